//go:build linux && amd64

package sandbox

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// call is what the kernel shows a filter.
type call struct {
	nr, arch uint32
	args     [6]uint64
}

// run interprets a program as the kernel does.
func run(t *testing.T, p []unix.SockFilter, c call) uint32 {
	t.Helper()
	var data [64]byte
	binary.NativeEndian.PutUint32(data[0:], c.nr)
	binary.NativeEndian.PutUint32(data[4:], c.arch)
	for i, a := range c.args {
		binary.NativeEndian.PutUint64(data[16+8*i:], a)
	}
	var a uint32
	for pc := 0; pc < len(p); pc++ {
		in := p[pc]
		jump := func(yes bool) {
			if yes {
				pc += int(in.Jt)
			} else {
				pc += int(in.Jf)
			}
		}
		switch in.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			a = binary.NativeEndian.Uint32(data[in.K:])
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			jump(a == in.K)
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			jump(a >= in.K)
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			jump(a&in.K != 0)
		case unix.BPF_RET | unix.BPF_K:
			return in.K
		default:
			t.Fatalf("instruction %#x", in.Code)
		}
	}
	t.Fatal("the program runs off its end")
	return 0
}

// judge says what the rules mean, without a compiler.
func judge(rules []rule, c call, other, foreign uint32) uint32 {
	if c.arch != auditArch || c.nr >= x32Bit {
		return foreign
	}
	for _, r := range rules {
		if r.nr == c.nr && !slices.ContainsFunc(r.when, func(w condition) bool {
			v := c.args[w.arg]
			switch w.op {
			case equal:
				return v != w.value
			case notEqual:
				return v == w.value
			case anySet:
				return v&w.value == 0
			}
			return v&w.value != 0
		}) {
			return r.action
		}
	}
	return other
}

func TestTheFilterMeansWhatTheRulesSay(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	small := func() uint64 { // few values, in both halves, so that conditions are met and missed by a bit
		v := uint64(rnd.IntN(4))
		if rnd.IntN(2) == 0 {
			v <<= 32
		}
		if rnd.IntN(8) == 0 {
			v |= rnd.Uint64()
		}
		return v
	}
	for range 2000 {
		var rules []rule
		for range 1 + rnd.IntN(12) {
			r := rule{nr: uint32(rnd.IntN(6)), action: uint32(rnd.IntN(3)) << 16}
			for range rnd.IntN(4) {
				r.when = append(r.when, condition{uint32(rnd.IntN(6)), compare(rnd.IntN(4)), small()})
			}
			rules = append(rules, r)
		}
		p := compile(auditArch, rules, 77, 99)
		for range 100 {
			c := call{nr: uint32(rnd.IntN(6)), arch: auditArch}
			switch rnd.IntN(20) {
			case 0:
				c.arch = unix.AUDIT_ARCH_I386
			case 1:
				c.nr |= x32Bit
			}
			for i := range c.args {
				c.args[i] = small()
			}
			if got, want := run(t, p, c), judge(rules, c, 77, 99); got != want {
				t.Fatalf("rules %+v, call %+v: %d, want %d", rules, c, got, want)
			}
		}
	}
}

func TestThePolicyKillsAttacksAndFitsTheKernel(t *testing.T) {
	p, ok := filter(terms{pid: 42, level: Restricted, asks: true})
	if !ok || len(p) > 4096 {
		t.Fatal(ok, len(p))
	}
	for name, c := range map[string]struct {
		call
		want uint32
	}{
		"own socket":               {call{nr: unix.SYS_SOCKET, args: [6]uint64{unix.AF_UNIX, unix.SOCK_STREAM | unix.SOCK_CLOEXEC}}, actAllow},
		"TCP":                      {call{nr: unix.SYS_SOCKET, args: [6]uint64{unix.AF_INET, unix.SOCK_STREAM}}, actKill},
		"TCP with a high half":     {call{nr: unix.SYS_SOCKET, args: [6]uint64{1<<32 | unix.AF_UNIX, unix.SOCK_STREAM}}, actKill},
		"connect":                  {call{nr: unix.SYS_CONNECT}, actKill},
		"thread":                   {call{nr: unix.SYS_CLONE, args: [6]uint64{unix.CLONE_THREAD | unix.CLONE_VM}}, actAllow},
		"fork that looks like":     {call{nr: unix.SYS_CLONE, args: [6]uint64{unix.SYS_MMAP, 0, 0, 2}}, actKill},
		"thread in a namespace":    {call{nr: unix.SYS_CLONE, args: [6]uint64{unix.CLONE_THREAD | unix.CLONE_NEWUSER}}, actKill},
		"private memory":           {call{nr: unix.SYS_MMAP, args: [6]uint64{0, 0, 0, unix.MAP_PRIVATE | unix.MAP_ANON}}, actAllow},
		"shared memory":            {call{nr: unix.SYS_MMAP, args: [6]uint64{0, 0, 0, unix.MAP_SHARED | unix.MAP_ANON}}, actErrno(unix.EPERM)},
		"shared validated memory":  {call{nr: unix.SYS_MMAP, args: [6]uint64{0, 0, 0, unix.MAP_SHARED_VALIDATE}}, actErrno(unix.EPERM)},
		"own signal":               {call{nr: unix.SYS_TGKILL, args: [6]uint64{42, 43, 6}}, actAllow},
		"another's signal":         {call{nr: unix.SYS_TGKILL, args: [6]uint64{1, 1, 9}}, actKill},
		"become the program":       {call{nr: unix.SYS_EXECVEAT, args: [6]uint64{fdArtifact, 0, 0, 0, unix.AT_EMPTY_PATH}}, actAllow},
		"become another":           {call{nr: unix.SYS_EXECVEAT, args: [6]uint64{5, 0, 0, 0, unix.AT_EMPTY_PATH}}, actKill},
		"memory that grows down":   {call{nr: unix.SYS_MMAP, args: [6]uint64{0, 0, 0, unix.MAP_PRIVATE | unix.MAP_GROWSDOWN}}, actErrno(unix.EPERM)},
		"an address":               {call{nr: unix.SYS_BIND}, actAsk},
		"the host's name":          {call{nr: unix.SYS_UNAME}, actAsk},
		"the time":                 {call{nr: unix.SYS_CLOCK_GETTIME}, actAllow},
		"a stack that moves":       {call{nr: unix.SYS_MREMAP}, actErrno(unix.ENOMEM)},
		"a device of the network":  {call{nr: unix.SYS_SETSOCKOPT, args: [6]uint64{3, unix.SOL_SOCKET, unix.SO_BINDTODEVICE}}, actKill},
		"look at a file":           {call{nr: unix.SYS_NEWFSTATAT}, actErrno(unix.EACCES)},
		"a file by its path":       {call{nr: unix.SYS_OPENAT, args: [6]uint64{0, 0, unix.O_PATH}}, actErrno(unix.EACCES)},
		"a file to be read":        {call{nr: unix.SYS_OPENAT, args: [6]uint64{0, 0, unix.O_CLOEXEC}}, actAllow},
		"not to wait":              {call{nr: unix.SYS_FCNTL, args: [6]uint64{3, unix.F_SETFL, unix.O_NONBLOCK}}, actAllow},
		"to be signalled":          {call{nr: unix.SYS_FCNTL, args: [6]uint64{3, unix.F_SETFL, unix.O_ASYNC}}, actErrno(unix.EPERM)},
		"somebody to be signalled": {call{nr: unix.SYS_FCNTL, args: [6]uint64{3, unix.F_SETOWN, 1}}, actKill},
		"which signal":             {call{nr: unix.SYS_FCNTL, args: [6]uint64{3, unix.F_SETSIG, 9}}, actKill},
		"which signal, high half":  {call{nr: unix.SYS_FCNTL, args: [6]uint64{3, 1<<32 | unix.F_SETSIG, 9}}, actErrno(unix.EPERM)},
		"socket error":             {call{nr: unix.SYS_GETSOCKOPT, args: [6]uint64{3, unix.SOL_SOCKET, unix.SO_ERROR}}, actAllow},
		"handle of the host":       {call{nr: unix.SYS_GETSOCKOPT, args: [6]uint64{3, unix.SOL_SOCKET, 77}}, actKill},
		"the same, high half":      {call{nr: unix.SYS_GETSOCKOPT, args: [6]uint64{3, unix.SOL_SOCKET, 1<<32 | 77}}, actKill},
		"a program on a socket":    {call{nr: unix.SYS_SETSOCKOPT, args: [6]uint64{3, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER}}, actKill},
		"level with a high half":   {call{nr: unix.SYS_SETSOCKOPT, args: [6]uint64{3, 1<<32 | unix.SOL_SOCKET, unix.SO_ATTACH_FILTER}}, actKill},
		"unknown call":             {call{nr: 9999}, actErrno(unix.EPERM)},
		"x32":                      {call{nr: x32Bit | unix.SYS_READ}, actKill},
	} {
		c.arch = auditArch
		if got := run(t, p, c.call); got != c.want {
			t.Errorf("%s: %#x, want %#x", name, got, c.want)
		}
	}
	own, _ := filter(terms{pid: 42, level: Isolated})
	for nr, want := range map[uint32]uint32{unix.SYS_BIND: actAllow, unix.SYS_NEWFSTATAT: actAllow, unix.SYS_CONNECT: actKill} {
		if got := run(t, own, call{nr: nr, arch: auditArch}); got != want {
			t.Errorf("call %d in a root folder of its own: %#x, want %#x", nr, got, want)
		}
	}
	away, _ := filter(terms{pid: 42, level: Isolated, asks: true, elsewhere: true})
	for c, want := range map[call]uint32{
		{nr: unix.SYS_CLOCK_GETTIME, args: [6]uint64{unix.CLOCK_REALTIME}}:  actAsk,
		{nr: unix.SYS_CLOCK_GETTIME, args: [6]uint64{unix.CLOCK_TAI}}:       actAsk,
		{nr: unix.SYS_CLOCK_GETTIME, args: [6]uint64{unix.CLOCK_MONOTONIC}}: actAllow,
		{nr: unix.SYS_GETTIMEOFDAY}:                                         actAsk, {nr: unix.SYS_TIME}: actAsk, {nr: unix.SYS_UNAME}: actAsk, {nr: unix.SYS_BIND}: actAllow,
	} {
		c.arch = auditArch
		if got := run(t, away, c); got != want {
			t.Errorf("elsewhere, %+v: %#x, want %#x", c, got, want)
		}
	}
	if got := run(t, p, call{nr: unix.SYS_READ, arch: unix.AUDIT_ARCH_I386}); got != actKill {
		t.Errorf("32-bit calls: %#x", got)
	}
}
