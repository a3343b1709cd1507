package sandbox

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// tryAttacks makes the calls of an attacker on this thread, under the filter in errno mode. Raw calls only: a fork that is let
// through must not run the runtime twice.
func tryAttacks() []Proof {
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
	for _, path := range []string{"/etc/passwd", "/proc/self/environ", "/proc/1/environ", "/"} {
		b, err := unix.BytePtrFromString(path)
		if err != nil {
			continue
		}
		dir := unix.AT_FDCWD
		_, _, e = unix.RawSyscall6(unix.SYS_OPENAT, uintptr(dir), uintptr(unsafe.Pointer(b)), unix.O_RDONLY, 0, 0, 0)
		add("open "+path, e)
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
	_, _, e = unix.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(&name)), 0, 0)
	add("execve", e, unix.ENOENT, unix.EFAULT)
	_, _, e = unix.RawSyscall(unix.SYS_IO_URING_SETUP, 1, 0, 0)
	add("io_uring", e, unix.EFAULT, unix.EINVAL)
	_, _, e = unix.RawSyscall(unix.SYS_BPF, 0, 0, 0)
	add("bpf", e, unix.EINVAL, unix.EFAULT)
	return out
}
