package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"unsafe"
)

// Attempts to get out by ways that are not calls which an attacker makes first.

func init() {
	for name, f := range map[string]func(string) error{
		"x32":   func(string) error { return raw(0x40000000|39, 0, 0, 0) }, // getpid by the numbers of x32
		"int80": func(string) error { return int80() },
		"execve": func(string) error {
			path := [10]byte{'/', 'b', 'i', 'n', '/', 's', 'h'}
			return raw(syscall.SYS_EXECVE, uintptr(unsafe.Pointer(&path)), 0, 0)
		},
		"vfork": func(string) error {
			return raw(syscall.SYS_CLONE, syscall.CLONE_VM|syscall.CLONE_VFORK|uintptr(syscall.SIGCHLD), 0, 0)
		},
		"adopt":     func(string) error { return raw(syscall.SYS_CLONE, syscall.CLONE_PARENT|uintptr(syscall.SIGCHLD), 0, 0) },
		"outlive":   func(string) error { return raw(syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, 0, 0) },
		"dumpable":  func(string) error { return raw(syscall.SYS_PRCTL, syscall.PR_SET_DUMPABLE, 1, 0) },
		"no-limits": noLimits,
		"filter":    func(string) error { return raw(317, 1, 0, 0) },          // seccomp
		"landlock":  func(string) error { return raw(444, 0, 0, 1) },          // landlock_create_ruleset: its version
		"openat2":   func(string) error { return raw(437, 0, 0, 0) },          //
		"handle":    func(string) error { return raw(304, 0, 0, 0) },          // open_by_handle_at
		"userfault": func(string) error { return raw(323, 0, 0, 0) },          // userfaultfd
		"io_uring":  func(string) error { return raw(425, 8, 0, 0) },          // io_uring_setup
		"vmread":    func(string) error { return raw(310, 1, 0, 0) },          // process_vm_readv
		"pidfd":     func(string) error { return raw(434, 1, 0, 0) },          // pidfd_open
		"keys":      func(string) error { return raw(250, 0, 0xfffffffc, 0) }, // keyctl: the session's keys
		"vsock":     func(string) error { return raw(syscall.SYS_SOCKET, 40, syscall.SOCK_STREAM, 0) },
		"packet":    func(string) error { return raw(syscall.SYS_SOCKET, syscall.AF_PACKET, syscall.SOCK_RAW, 0) },
		"seqpacket": func(string) error { return raw(syscall.SYS_SOCKET, syscall.AF_UNIX, syscall.SOCK_SEQPACKET, 0) },
		"datagram":  func(string) error { return raw(syscall.SYS_SOCKET, syscall.AF_UNIX, syscall.SOCK_DGRAM, 0) },
		"terminal":  func(string) error { return raw(syscall.SYS_IOCTL, 0, 0x5412, 0) }, // TIOCSTI: type into the host's terminal
		"fifo":      func(string) error { return syscall.Mknod(inFolder("fifo"), syscall.S_IFIFO|0o600, 0) },
		"hardlink":  hardlink,
		"rename":    func(string) error { return os.Rename(inFolder("a"), inFolder("b")) },
		"folder":    func(string) error { return os.Mkdir(inFolder("dir"), 0o700) },
		"chmod":     func(string) error { return os.Chmod(inFolder("."), 0o777) },
		"upwards":   func(string) error { return os.WriteFile(inFolder("../escaped"), nil, 0o600) },
		"names":     names,
		"replaced":  replaced,
		"descriptor": func(string) error {
			_, err := os.ReadFile("/proc/self/fd/4")
			return err
		},
		"reexec":  reexec,
		"rights":  rights,
		"mem":     func(string) error { return os.WriteFile("/proc/self/mem", nil, 0o600) },
		"devices": func(string) error { _, err := os.OpenFile("/dev/mem", os.O_RDWR, 0); return err },
		"cgroup":  func(string) error { _, err := os.ReadDir("/sys/fs/cgroup"); return err },
		"clockset": func(string) error {
			return syscall.Settimeofday(&syscall.Timeval{Sec: 1})
		},
	} {
		attacks[name] = f
	}
}

func inFolder(name string) string { return filepath.Join(os.Getenv("PLUGIN_UNIX_SOCKET_DIR"), name) }

func raw(nr, a, b, c uintptr) error {
	r, _, e := syscall.RawSyscall6(nr, a, b, c, 0, 0, 0)
	if e != 0 {
		return e
	}
	if nr == syscall.SYS_CLONE && r == 0 {
		syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0)
	}
	return nil
}

func noLimits(string) error {
	var l syscall.Rlimit
	l.Cur, l.Max = 1<<40, 1<<40
	return syscall.Setrlimit(2, &l) // RLIMIT_DATA
}

func hardlink(string) error {
	_ = os.WriteFile(inFolder("a"), nil, 0o600)
	return os.Link(inFolder("a"), inFolder("hard"))
}

// names makes empty files until it is stopped: they use up names of the host, not bytes.
func names(string) error {
	for i := range 2_000_000 {
		f, err := os.Create(inFolder(fmt.Sprint("n", i)))
		if err != nil {
			return err
		}
		f.Close()
	}
	return nil
}

// replaced puts another socket into the place of the one that the host knows.
func replaced(string) error {
	found, _ := filepath.Glob(inFolder("*"))
	for _, f := range found {
		_ = os.Remove(f)
	}
	l, err := net.Listen("unix", inFolder("other"))
	if err != nil {
		return err
	}
	l.Close()
	return syscall.EPERM // whatever it did, it did to itself
}

// reexec executes again what it was executed from.
func reexec(string) error {
	empty := [1]byte{}
	_, _, e := syscall.RawSyscall6(322, 4, uintptr(unsafe.Pointer(&empty)), 0, 0, 0x1000, 0)
	return e
}

// rights sends its own open files to the host, over the connection that the host calls it by.
func rights(string) error {
	for fd := 3; fd < 64; fd++ {
		var st syscall.Stat_t
		if syscall.Fstat(fd, &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFSOCK {
			_ = syscall.Sendmsg(fd, []byte{}, syscall.UnixRights(0, 1, 2), nil, 0)
		}
	}
	return syscall.EPERM // the host's files are counted by the test
}
