package main

import (
	"bytes"
	"context"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
)

// Doors of the kernel that were added one after the other, or that an option opens; and what a library would never send.

func init() {
	for name, f := range map[string]func(string) error{
		"bpf":            func(string) error { return raw(321, 5, 0, 0) },
		"perf":           func(string) error { return raw(298, 0, 0, 0) },
		"clone3":         func(string) error { return raw(435, 0, 0, 0) },
		"pidfd-getfd":    func(string) error { return raw(438, 0, 0, 0) },
		"vmwrite":        func(string) error { return raw(311, 1, 0, 0) },
		"ring-enter":     func(string) error { return raw(426, 0, 0, 0) },
		"ring-register":  func(string) error { return raw(427, 0, 0, 0) },
		"advise-others":  func(string) error { return raw(440, 0, 0, 0) },
		"secret-memory":  func(string) error { return raw(447, 0, 0, 0) },
		"mount-anew":     func(string) error { return raw(430, 0, 0, 0) },
		"open-tree":      func(string) error { return raw(428, 0, 0, 0) },
		"compare":        func(string) error { return raw(312, 1, 1, 0) },
		"landlock-self":  func(string) error { return raw(446, 0, 0, 0) },
		"filter-prctl":   func(string) error { return raw(syscall.SYS_PRCTL, 22, 2, 0) },
		"gain-again":     func(string) error { return raw(syscall.SYS_PRCTL, 38, 0, 0) }, // PR_SET_NO_NEW_PRIVS
		"keep":           func(string) error { return raw(syscall.SYS_PRCTL, 8, 1, 0) },  // PR_SET_KEEPCAPS
		"ambient":        func(string) error { return raw(syscall.SYS_PRCTL, 47, 2, 1) },
		"foster":         func(string) error { return raw(syscall.SYS_PRCTL, 36, 1, 0) }, // PR_SET_CHILD_SUBREAPER
		"own-map":        func(string) error { return raw(syscall.SYS_PRCTL, 35, 14, 0) },
		"speculate":      func(string) error { return raw(syscall.SYS_PRCTL, 53, 0, 2) },
		"tagged":         func(string) error { return raw(syscall.SYS_ARCH_PRCTL, 0x4002, 6, 0) },
		"wide-registers": func(string) error { return raw(syscall.SYS_ARCH_PRCTL, 0x1023, 18, 0) },
		"splice":         func(string) error { return raw(275, 0, 0, 0) },
		"vmsplice":       func(string) error { return raw(278, 0, 0, 0) },
		"tee":            func(string) error { return raw(276, 0, 0, 0) },
		"many-messages":  func(string) error { return raw(307, 0, 0, 0) }, // sendmmsg
		"shadow-stack":   func(string) error { return raw(453, 0, 0, 0) },
		"list-mounts":    func(string) error { return raw(458, 0, 0, 0) },
		"stat-mount":     func(string) error { return raw(457, 0, 0, 0) },
		"modules":        func(string) error { return raw(461, 0, 0, 0) }, // lsm_list_modules
		"statx":          func(string) error { return raw(332, 0, 0, 0) },
		"chdir":          func(string) error { return syscall.Chdir("/") },
		"umask":          func(string) error { return raw(syscall.SYS_UMASK, 0, 0, 0) },
		"lock-memory":    func(string) error { return raw(syscall.SYS_MLOCKALL, 3, 0, 0) },
		"tomorrow":       func(string) error { return raw(1000, 0, 0, 0) },
		"urgent": func(string) error {
			return eachSocket(func(fd int) error { return raw6(syscall.SYS_SENDTO, uintptr(fd), 0, 0, syscall.MSG_OOB, 0, 0) })
		},
		"urgent-message": func(string) error {
			var m syscall.Msghdr
			return eachSocket(func(fd int) error {
				return raw6(syscall.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&m)), syscall.MSG_OOB, 0, 0, 0)
			})
		},
		"inherited": func(string) error {
			if inherited > 0 {
				return nil
			}
			return syscall.EBADF
		},
		"sysfs":       func(string) error { _, err := os.ReadDir("/sys"); return err },
		"kernel-log":  func(string) error { return opened("/dev/kmsg", syscall.O_WRONLY) },
		"other-stack": func(string) error { return opened("/proc/thread-self/mem", syscall.O_RDWR) },
	} {
		attacks[name] = f
	}
}

// inherited is how many files are open beside the three of every program before it has opened any.
var inherited = func() (n int) {
	for fd := 3; fd < 4096; fd++ {
		var st syscall.Stat_t
		if syscall.Fstat(fd, &st) == nil {
			n++
		}
	}
	return n
}()

// rawAnswers are replies that no library writes: field 2 is a result, field 9 nobody knows.
var rawAnswers = map[string]func() []byte{
	"lie: varint": func() []byte { return append([]byte{0x48}, bytes.Repeat([]byte{0xff}, 64)...) },
	"lie: deep": func() []byte {
		return append(bytes.Repeat([]byte{0x4b}, 1_000_000), bytes.Repeat([]byte{0x4c}, 1_000_000)...)
	},
	"lie: open":    func() []byte { return bytes.Repeat([]byte{0x4b}, 5000) },
	"lie: utf8":    func() []byte { return []byte{0x12, 0x03, 0x0a, 0x01, 0xff} },
	"lie: unknown": func() []byte { return append([]byte{0x4a, 0x80, 0x80, 0x80, 0x03}, make([]byte, 6<<20)...) },
	"lie: headers": func() []byte { // 100,000 of one result, each with a name
		hs := bytes.Repeat([]byte{0x0a, 0x03, 0x0a, 0x01, 'h'}, 100_000)
		r := append([]byte{0x2a, 0xa0, 0xc2, 0x1e}, hs...)
		return append([]byte{0x12, 0xa4, 0xc2, 0x1e}, r...)
	},
}

var (
	stdioOnce  sync.Once
	stdioHow   string
	stdioStart = make(chan struct{})
)

// floodStdio lets the stream by which a server tells what was printed run full.
func floodStdio(how string) { stdioOnce.Do(func() { stdioHow = how; close(stdioStart) }) }

func streamStdio(srv any, stream grpc.ServerStream, next grpc.StreamHandler) error {
	ended := make(chan error, 1)
	go func() { ended <- next(srv, &told{ServerStream: stream}) }()
	select {
	case err := <-ended:
		return err
	case <-stdioStart:
	}
	m := &emptypb.Empty{}
	if stdioHow == "large" { // {channel = 1, data = 900 kB}
		m.ProtoReflect().SetUnknown(append([]byte{0x08, 0x02, 0x12, 0xa0, 0xf7, 0x36}, make([]byte, 900_000)...))
	}
	for stream.SendMsg(m) == nil {
	}
	return context.Canceled
}

// told is the stream as the server's own words use it, which end where the flood begins.
type told struct{ grpc.ServerStream }

func (t *told) SendMsg(m any) error {
	select {
	case <-stdioStart:
		return context.Canceled
	default:
		return t.ServerStream.SendMsg(m)
	}
}
