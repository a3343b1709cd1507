package sandbox

import (
	"encoding/binary"
	"errors"
	"os"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What a filter alone cannot decide the kernel asks the host about.
//
// Names of sockets in the abstract namespace have no folder that Landlock could close, and a filter cannot read the name that bind is
// given. So a program below level isolated may bind once. If it binds anything but the socket in its folder, the host cannot reach it
// there and refuses its start; every further bind is refused. So no running plugin holds a name that another program of the host could
// take for somebody else's (INV-PLUGIN-NAME).
//
// Nor has such a program a host name of its own: the host says what level isolated has. And one that is started elsewhere (Elsewhere)
// is told another time and another machine.

// manyNames is what the report says where the kernel has no listener to give: another one stands before it.
const manyNames = "one name of a socket only: the filter has no listener, so names in the abstract namespace can be bound, and the host's name is seen"

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
		errno int32 // below 0
		flags uint32
	}
)

// asksMost is how often a program may ask that is not elsewhere. An honest one asks a few times at its start, and an answer costs the host
// as much as the program.
const asksMost = 10_000

// answers answers until the program ends.
func (r *Running) answers(asks *os.File, where *Elsewhere) {
	defer close(r.answered)
	defer asks.Close()
	fd := asks.Fd()
	control := func(request uintptr, arg unsafe.Pointer) unix.Errno {
		_, _, e := unix.Syscall(unix.SYS_IOCTL, fd, request, uintptr(arg))
		return e
	}
	bound := false
	for n := 0; ; n++ {
		if where == nil && n > asksMost {
			r.end("it asks without end")
			return
		}
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
		waits := func() bool {
			id := q.id
			return control(unix.SECCOMP_IOCTL_NOTIF_ID_VALID, unsafe.Pointer(&id)) == 0
		}
		if q.nr != unix.SYS_BIND {
			if at, text, val := where.told(&q, kernelTime()); at == 0 || put(&q, at, text, waits) {
				a.flags, a.val = 0, val
			}
		} else if bound {
			a.flags, a.errno = 0, -int32(unix.EPERM)
		}
		switch e := control(unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&a)); e {
		case 0:
			bound = bound || q.nr == unix.SYS_BIND
		case unix.ENOENT, unix.EINTR: // a signal took the call back
		default:
			return
		}
	}
}

// kernelTime is what the kernel would have answered.
func kernelTime() time.Time {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_REALTIME, &now) // it fails for a bad address only
	return time.Unix(now.Unix())
}

// put writes into the memory of who asked. The memory is opened first and the question looked at after: then it is not that of a later
// process of the same number. False: it could not be written, and the kernel may do the call itself.
func put(q *question, at uint64, text []byte, waits func() bool) bool {
	mem, err := os.OpenFile("/proc/"+strconv.FormatUint(uint64(q.pid), 10)+"/mem", os.O_WRONLY, 0)
	if err != nil {
		return false
	}
	defer mem.Close()
	if !waits() {
		return false
	}
	_, err = mem.WriteAt(text, int64(at))
	return err == nil
}

// told is what a call that asks for time or machine is answered: text for an address of the program, if that is not 0, and a result.
func (e *Elsewhere) told(q *question, now time.Time) (at uint64, text []byte, val int64) {
	if e != nil {
		now = now.Add(e.Shift)
	}
	word := binary.NativeEndian.AppendUint64
	switch q.nr {
	case unix.SYS_CLOCK_GETTIME:
		return q.args[1], word(word(nil, uint64(now.Unix())), uint64(now.Nanosecond())), 0
	case unix.SYS_GETTIMEOFDAY:
		return q.args[0], word(word(nil, uint64(now.Unix())), uint64(now.Nanosecond()/1000)), 0
	case unix.SYS_TIME:
		return q.args[0], word(nil, uint64(now.Unix())), now.Unix()
	}
	var u unix.Utsname // uname is what is left
	_ = unix.Uname(&u) // it fails for a bad address only
	u.Nodename, u.Domainname = [65]byte{}, [65]byte{}
	copy(u.Nodename[:], hostName)
	copy(u.Domainname[:], "(none)")
	if e != nil {
		u.Nodename, u.Release = [65]byte{}, [65]byte{}
		copy(u.Nodename[:], "elsewhere")
		copy(u.Release[:], "6.99.0")
	}
	for _, field := range [][65]byte{u.Sysname, u.Nodename, u.Release, u.Version, u.Machine, u.Domainname} {
		text = append(text, field[:]...)
	}
	return q.args[0], text, 0
}
