package sandbox

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// tryAttacks makes the calls of an attacker on this thread, under the filter in errno mode. Raw calls only: a fork that is let
// through must not run the runtime twice.
func tryAttacks(level Level, oneAddress bool) []Proof {
	var out []Proof
	add := func(name string, e unix.Errno, harmless ...unix.Errno) {
		p := Proof{Attack: name, Blocked: e != 0, How: e.Error()}
		if e == 0 {
			p.How = "the call succeeded"
		}
		for _, h := range harmless {
			if e == h { // the call was let in and failed for a reason of its own
				p.Blocked = false
			}
		}
		out = append(out, p)
	}
	_, _, e := unix.RawSyscall(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, 0)
	add("TCP socket", e)
	_, _, e = unix.RawSyscall(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_DGRAM, 0)
	add("UDP socket", e)
	_, _, e = unix.RawSyscall(unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, 0)
	add("netlink socket", e)
	addr := [3]byte{unix.AF_UNIX, 0, 'x'}
	_, _, e = unix.RawSyscall(unix.SYS_CONNECT, ^uintptr(0), uintptr(unsafe.Pointer(&addr)), 3)
	add("connect", e, unix.EBADF)
	if oneAddress {
		own, _, _ := unix.RawSyscall(unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_STREAM, 0)
		abstract := [4]byte{unix.AF_UNIX, 0, 0, 'x'}
		_, _, e = unix.RawSyscall(unix.SYS_BIND, own, uintptr(unsafe.Pointer(&abstract)), 4)
		add("a name in the abstract namespace", e, unix.EBADF, unix.EADDRINUSE)
	}
	for _, path := range []string{"/etc/passwd", "/proc/self/environ", "/proc/1/environ", "/"} {
		b, err := unix.BytePtrFromString(path)
		if err != nil {
			continue
		}
		dir := unix.AT_FDCWD
		_, _, e = unix.RawSyscall6(unix.SYS_OPENAT, uintptr(dir), uintptr(unsafe.Pointer(b)), unix.O_RDONLY, 0, 0, 0)
		add("open "+path, e)
	}
	var about unix.Stat_t
	root := [2]byte{'/', 0}
	_, _, e = unix.RawSyscall(unix.SYS_STAT, uintptr(unsafe.Pointer(&root)), uintptr(unsafe.Pointer(&about)), 0)
	if level < Isolated {
		add("size and time of a file", e)
	}
	pid, _, e := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if e == 0 && pid == 0 {
		unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	add("fork", e)
	_, _, e = unix.RawSyscall(unix.SYS_PTRACE, unix.PTRACE_TRACEME, 0, 0)
	add("ptrace", e)
	_, _, e = unix.RawSyscall(unix.SYS_KILL, ^uintptr(0), 0, 0)
	add("signal to everybody", e)
	_, _, e = unix.RawSyscall(unix.SYS_UNSHARE, unix.CLONE_NEWUSER, 0, 0)
	add("unshare", e)
	name := [2]byte{'x', 0}
	_, _, e = unix.RawSyscall(unix.SYS_MEMFD_CREATE, uintptr(unsafe.Pointer(&name)), 0, 0)
	add("memfd", e)
	_, _, e = unix.RawSyscall6(unix.SYS_MMAP, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS, ^uintptr(0), 0)
	add("shared memory", e)
	_, _, e = unix.RawSyscall6(unix.SYS_MMAP, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_GROWSDOWN, ^uintptr(0), 0)
	add("memory that grows down", e)
	_, _, e = unix.RawSyscall(unix.SYS_FCNTL, 0, unix.F_SETSIG, uintptr(unix.SIGKILL))
	add("a signal by a file", e, unix.EBADF)
	_, _, e = unix.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(&name)), 0, 0)
	add("execve", e, unix.ENOENT, unix.EFAULT)
	_, _, e = unix.RawSyscall(unix.SYS_IO_URING_SETUP, 1, 0, 0)
	add("io_uring", e, unix.EFAULT, unix.EINVAL)
	_, _, e = unix.RawSyscall(unix.SYS_BPF, 0, 0, 0)
	add("bpf", e, unix.EINVAL, unix.EFAULT)
	return out
}
