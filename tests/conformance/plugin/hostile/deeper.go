package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

// Ways that look like ordinary work: memory that no limit counts, signals that a file sends, handles that a socket gives, names, what
// can be learned of a file without opening it, and kernel objects in numbers.

func init() {
	for name, f := range map[string]func(string) error{
		"grows-down": growsDown,
		"sigio":      func(a string) error { return signalByFile(a, 8) },
		"sigio-ex":   func(a string) error { return signalByFile(a, 15) },
		"pidfd-peer": peerHandle,
		"sockfilter": func(string) error {
			program := [2]uint64{0x0000ffff00000006, 0} // ret -1
			f := struct {
				n    uint16
				code *uint64
			}{1, &program[0]}
			return eachSocket(func(fd int) error { return setsockopt(fd, 1, 26, unsafe.Pointer(&f), unsafe.Sizeof(f)) })
		},
		"sockfilter-high": func(string) error { // the kernel looks at the low half of a number only
			return eachSocket(func(fd int) error { return raw6(syscall.SYS_SETSOCKOPT, uintptr(fd), 1, 1<<32|26, 0, 0, 0) })
		},
		"abstract":         func(a string) error { return bindAbstract(a) },
		"another-name":     func(string) error { l, err := net.Listen("unix", inFolder("second")); return closed(l, err) },
		"stat":             func(a string) error { var st syscall.Stat_t; return syscall.Stat(a, &st) },
		"access":           func(a string) error { return syscall.Access(a, 0) },
		"path-only":        func(a string) error { return opened(a, 0x200000) },
		"readlink":         func(a string) error { _, err := os.Readlink(a); return err },
		"parent":           func(string) error { return syscall.Kill(syscall.Getppid(), 0) },
		"group":            func(string) error { return syscall.Kill(0, 0) },
		"traced":           func(string) error { return raw(syscall.SYS_PTRACE, 0, 0, 0) }, // PTRACE_TRACEME
		"neighbour":        neighbour,
		"memfd":            func(string) error { name := [2]byte{'x'}; return raw(319, uintptr(unsafe.Pointer(&name)), 0, 0) },
		"own-program":      func(string) error { return opened("/proc/self/exe", syscall.O_RDWR) },
		"standard":         standardAgain,
		"inotify":          func(string) error { return raw(294, 0, 0, 0) },   // inotify_init1
		"fanotify":         func(string) error { return raw(300, 0, 0, 0) },   // fanotify_init
		"dnotify":          func(string) error { return raw(72, 0, 1026, 1) }, // fcntl F_NOTIFY
		"lease":            func(string) error { return raw(72, 0, 1024, 0) }, // fcntl F_SETLEASE
		"setns":            func(string) error { return raw(308, 0, 0, 0) },   //
		"setsid":           setsidLoop,                                        //
		"core-pattern":     func(string) error { return opened("/proc/sys/kernel/core_pattern", syscall.O_WRONLY) },
		"sysrq":            func(string) error { return opened("/proc/sysrq-trigger", syscall.O_WRONLY) },
		"timerfds":         func(string) error { return flood(func() error { return raw(283, 1, 0, 0) }) }, // timerfd_create
		"timers":           timers,                                                                         //
		"pipes":            pipes,                                                                          //
		"sparse":           sparse,                                                                         //
		"realtime":         realtime,                                                                       //
		"priority":         func(string) error { return raw(141, 0, 0, uintptr(0xffffffec)) },              // setpriority -20
		"move-pages":       func(string) error { return raw(279, 1, 0, 0) },                                //
		"ioports":          func(string) error { return raw(172, 3, 0, 0) },                                // iopl
		"segments":         func(string) error { return raw(154, 1, 0, 0) },                                // modify_ldt
		"personality":      func(string) error { return raw(135, 0x0040000, 0, 0) },                        // no address randomisation
		"vhangup":          func(string) error { return raw(153, 0, 0, 0) },                                //
		"hostname":         func(string) error { n := [2]byte{'x'}; return raw(170, uintptr(unsafe.Pointer(&n)), 1, 0) },
		"quota":            func(string) error { return raw(443, 0, 0, 0) }, // quotactl_fd
		"reap":             func(string) error { return raw(448, 0, 0, 0) }, // process_mrelease
		"protect":          protect,
		"stack-moves":      stackMoves,
		"device":           device,
		"asks":             func(string) error { return flood(func() error { var u syscall.Utsname; return syscall.Uname(&u) }) },
		"shared-copy":      func(string) error { return sharedMapping(0x03) },
		"shared-droppable": func(string) error { return sharedMapping(0x08) }, // MAP_DROPPABLE: not counted either
	} {
		attacks[name] = f
	}
}

func raw6(nr, a, b, c, d, e, f uintptr) error {
	if _, _, errno := syscall.RawSyscall6(nr, a, b, c, d, e, f); errno != 0 {
		return errno
	}
	return nil
}

func opened(path string, flags int) error {
	fd, err := syscall.Open(path, flags|syscall.O_CLOEXEC, 0)
	if err == nil {
		syscall.Close(fd)
	}
	return err
}

func closed(l net.Listener, err error) error {
	if err == nil {
		l.Close()
	}
	return err
}

// growsDown takes memory as stacks have it, which RLIMIT_DATA does not count.
func growsDown(string) error {
	const size = 1 << 30
	at, _, e := syscall.RawSyscall6(syscall.SYS_MMAP, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_GROWSDOWN, ^uintptr(0), 0)
	if e != 0 {
		return e
	}
	touch(at, size)
	return nil
}

// protect makes memory that was written one that is only read, which RLIMIT_DATA does not count, and stays with what it has.
func protect(string) error {
	const piece = 16 << 20
	for {
		at, _, e := syscall.RawSyscall6(syscall.SYS_MMAP, 0, piece, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON, ^uintptr(0), 0)
		if e != 0 {
			break
		}
		touch(at, piece)
		if err := raw(syscall.SYS_MPROTECT, at, piece, syscall.PROT_READ); err != nil {
			return err
		}
	}
	time.Sleep(time.Hour)
	return nil
}

// stackMoves makes a piece of the first stack a large one elsewhere: stacks are not counted, and only grow where they stand.
func stackMoves(string) error {
	const size = 1 << 30
	page := uintptr(unsafe.Pointer(unsafe.StringData(os.Args[0]))) &^ 4095
	at, _, e := syscall.RawSyscall6(syscall.SYS_MREMAP, page, 4096, size, 1, 0, 0) // MREMAP_MAYMOVE
	if e != 0 {
		return e
	}
	touch(at, size)
	return nil
}

func touch(at, size uintptr) {
	for i := uintptr(0); i < size; i += 4096 {
		*(*byte)(unsafe.Add(unsafe.Pointer(nil), at+i)) = 1
	}
}

// device asks whether the host has a device of the network, by binding a connection to it.
func device(string) error {
	name := [3]byte{'l', 'o'}
	return eachSocket(func(fd int) error { return setsockopt(fd, 1, 25, unsafe.Pointer(&name), unsafe.Sizeof(name)) })
}

func sharedMapping(kind uintptr) error {
	return raw6(syscall.SYS_MMAP, 0, 1<<30, syscall.PROT_READ|syscall.PROT_WRITE, kind|syscall.MAP_ANON, ^uintptr(0), 0)
}

// signalByFile lets a pipe send a signal of its choice to the host when it can be read.
func signalByFile(pid string, command uintptr) error {
	to, err := strconv.Atoi(pid)
	if err != nil {
		return err
	}
	var p [2]int
	if err := syscall.Pipe2(p[:], syscall.O_NONBLOCK|syscall.O_CLOEXEC); err != nil {
		return err
	}
	defer syscall.Close(p[0])
	defer syscall.Close(p[1])
	arg := uintptr(to)
	owner := [2]int32{1, int32(to)}
	if command == 15 { // F_SETOWN_EX
		arg = uintptr(unsafe.Pointer(&owner))
	}
	if err := raw(syscall.SYS_FCNTL, uintptr(p[0]), command, arg); err != nil {
		return err
	}
	if err := raw(syscall.SYS_FCNTL, uintptr(p[0]), 10, uintptr(syscall.SIGKILL)); err != nil { // F_SETSIG
		return err
	}
	if err := raw(syscall.SYS_FCNTL, uintptr(p[0]), syscall.F_SETFL, syscall.O_ASYNC|syscall.O_NONBLOCK); err != nil {
		return err
	}
	_, err = syscall.Write(p[1], []byte("x"))
	return err
}

// eachSocket tries something on the connections to the host; nil when it succeeded on one.
func eachSocket(f func(fd int) error) error {
	last := error(syscall.EBADF)
	for fd := 3; fd < 64; fd++ {
		var st syscall.Stat_t
		if syscall.Fstat(fd, &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFSOCK {
			if last = f(fd); last == nil {
				return nil
			}
		}
	}
	return last
}

func setsockopt(fd, level, name int, value unsafe.Pointer, size uintptr) error {
	return raw6(syscall.SYS_SETSOCKOPT, uintptr(fd), uintptr(level), uintptr(name), uintptr(value), size, 0)
}

// peerHandle asks a connection for a handle of the host's process.
func peerHandle(string) error {
	return eachSocket(func(fd int) error {
		var pidfd, size int32 = -1, 4
		return raw6(syscall.SYS_GETSOCKOPT, uintptr(fd), 1, 77, uintptr(unsafe.Pointer(&pidfd)), uintptr(unsafe.Pointer(&size)), 0)
	})
}

// bindAbstract takes a name that belongs to no folder.
func bindAbstract(name string) error {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	err = syscall.Bind(fd, &syscall.SockaddrUnix{Name: "@" + name})
	if err == nil {
		err = syscall.Listen(fd, 8)
	}
	return err // the socket stays: somebody might come
}

// neighbour speaks to the sockets of other plugins beside its own folder.
func neighbour(string) error {
	found, err := filepath.Glob(filepath.Join(os.Getenv("PLUGIN_UNIX_SOCKET_DIR"), "..", "*", "*"))
	if err != nil || len(found) == 0 {
		found = []string{inFolder("s")}
	}
	for _, f := range found {
		if err := dial("unix", f); err == nil {
			return nil
		}
	}
	return syscall.EACCES
}

// standardAgain opens its standard files again for the other direction.
func standardAgain(string) error {
	for _, path := range []string{"/proc/self/fd/0", "/proc/self/fd/1", "/dev/stdin", "/dev/fd/2"} {
		if err := opened(path, syscall.O_RDWR); err == nil {
			return nil
		}
	}
	return syscall.EACCES
}

// setsidLoop leaves the session at each fork, so that nobody who kills the session meets the last one.
func setsidLoop(string) error {
	for range 100 {
		pid, _, e := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
		if e != 0 {
			return e
		}
		if pid != 0 {
			syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0)
		}
		syscall.RawSyscall(syscall.SYS_SETSID, 0, 0, 0)
	}
	return nil
}

// flood makes kernel objects until it is refused, and tells only of too many.
func flood(make func() error) error {
	for range 100_000 {
		if err := make(); err != nil {
			return err
		}
	}
	return nil
}

func timers(string) error {
	var id int32
	return flood(func() error { return raw(222, 1, 0, uintptr(unsafe.Pointer(&id))) }) // timer_create
}

// pipes are kernel memory of up to 1 MiB each.
func pipes(string) error {
	var all []int
	defer func() {
		for _, fd := range all {
			syscall.Close(fd)
		}
	}()
	held := 0
	err := flood(func() error {
		var p [2]int
		if err := syscall.Pipe2(p[:], syscall.O_NONBLOCK|syscall.O_CLOEXEC); err != nil {
			return err
		}
		all = append(all, p[0], p[1])
		_ = raw(syscall.SYS_FCNTL, uintptr(p[1]), 1031, 1<<20) // F_SETPIPE_SZ: refused or not, it is filled
		for {
			n, err := syscall.Write(p[1], make([]byte, 64<<10))
			if err != nil {
				break
			}
			held += n
		}
		return nil
	})
	if held > 16<<20 {
		return nil // more than the limit of files times a pipe as it is made
	}
	return err
}

// sparse makes a file that has a size and no bytes.
func sparse(string) error {
	fd, err := syscall.Open(inFolder("sparse"), syscall.O_RDWR|syscall.O_CREAT|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	defer os.Remove(inFolder("sparse"))
	defer syscall.Close(fd)
	if syscall.Ftruncate(fd, 1<<40) == nil {
		return nil
	}
	return raw6(285, uintptr(fd), 0, 0, 1<<40, 0, 0) // fallocate
}

func realtime(string) error {
	priority := int32(99)
	return raw(144, 0, 1, uintptr(unsafe.Pointer(&priority))) // sched_setscheduler: SCHED_FIFO
}

// squat takes a name in the abstract namespace instead of its socket, tells that it tried, and waits to be asked.
func squat(name string) {
	err := bindAbstract(name)
	fmt.Fprintf(os.Stderr, "squatted: %v\n", err)
}
