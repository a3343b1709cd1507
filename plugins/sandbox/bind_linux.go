package sandbox

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Names of sockets in the abstract namespace have no folder that Landlock could close, and a filter cannot read the name that bind is
// given. So a program below level isolated may bind once, and the kernel asks the host before. If it binds anything but the socket in
// its folder, the host cannot reach it there and refuses its start; afterwards nobody answers, and the kernel refuses every further
// bind. So no running plugin holds a name that another program of the host could take for somebody else's (INV-PLUGIN-NAME).

// manyNames is what the report says where the kernel has no listener to give: another one stands before it.
const manyNames = "one name of a socket only: the filter has no listener, so names in the abstract namespace can be bound"

// The kernel's forms of asking and answering (linux/seccomp.h).
type (
	question struct {
		id    uint64
		pid   uint32
		flags uint32
		nr    int32
		arch  uint32
		ip    uint64
		args  [6]uint64
	}
	answer struct {
		id    uint64
		val   int64
		errno int32
		flags uint32
	}
)

// oneAddress lets the program make one bind, or waits for its end.
func (r *Running) oneAddress(asks *os.File) {
	defer close(r.bound)
	defer asks.Close()
	fd := asks.Fd()
	control := func(request uintptr, arg unsafe.Pointer) unix.Errno {
		_, _, e := unix.Syscall(unix.SYS_IOCTL, fd, request, uintptr(arg))
		return e
	}
	for {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		switch _, err := unix.Poll(p, -1); {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil || p[0].Revents&unix.POLLIN == 0: // it has ended
			return
		}
		var q question
		switch e := control(unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&q)); e {
		case 0:
		case unix.EINTR, unix.ENOENT: // a signal took the call back; it comes again
			continue
		default:
			return
		}
		a := answer{id: q.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		if e := control(unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&a)); e != unix.ENOENT && e != unix.EINTR {
			return
		}
	}
}
