package sandbox

import "golang.org/x/sys/unix"

// A seccomp filter is compiled from a list of rules, first match wins. Every rule loads the number of the call again, so no rule
// ever judges an argument that another one left in the accumulator (INV-PLUGIN-FILTER).

type compare uint8

const (
	equal    compare = iota // argument == value
	notEqual                // argument != value
	anySet                  // argument & value != 0
	allClear                // argument & value == 0
)

// condition is about one 64-bit argument.
type condition struct {
	arg   uint32
	op    compare
	value uint64
}

// rule gives an action to a system call whose arguments meet all conditions.
type rule struct {
	nr     uint32
	action uint32
	when   []condition
}

const (
	actAllow = unix.SECCOMP_RET_ALLOW
	actKill  = unix.SECCOMP_RET_KILL_PROCESS
	actAsk   = unix.SECCOMP_RET_USER_NOTIF // the host decides
	x32Bit   = 0x40000000
)

// terms are what a policy depends on.
type terms struct {
	pid       int // of the plugin
	level     Level
	errno     bool // forbidden calls fail instead of ending the process
	asks      bool // there is a host to ask
	elsewhere bool // which tells another time and another machine
}

func actErrno(e unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(e) }

const (
	opLoad = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	opJeq  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	opJge  = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
	opJset = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
	opRet  = unix.BPF_RET | unix.BPF_K
)

// compile makes the program: calls of another architecture get foreign, calls without a rule get other.
func compile(arch uint32, rules []rule, other, foreign uint32) []unix.SockFilter {
	p := []unix.SockFilter{
		{Code: opLoad, K: 4},
		{Code: opJeq, Jt: 1, K: arch},
		{Code: opRet, K: foreign},
		{Code: opLoad, K: 0},
		{Code: opJge, Jf: 1, K: x32Bit},
		{Code: opRet, K: foreign},
	}
	for _, r := range rules {
		p = append(p, compileRule(r)...)
	}
	return append(p, unix.SockFilter{Code: opRet, K: other})
}

// compileRule is "ld nr; jeq nr else end; conditions else end; ret action; end:". Blocks are built from the end, so that every
// jump knows how far the end is.
func compileRule(r rule) []unix.SockFilter {
	tail := []unix.SockFilter{{Code: opRet, K: r.action}}
	for i := len(r.when) - 1; i >= 0; i-- {
		c := r.when[i]
		low, high := uint32(16+8*c.arg), uint32(20+8*c.arg)
		lo, hi := uint32(c.value), uint32(c.value>>32)
		end := uint8(len(tail)) // from the last instruction of this block to the rule's end
		var b []unix.SockFilter
		switch c.op {
		case equal:
			b = []unix.SockFilter{{Code: opLoad, K: high}, {Code: opJeq, Jf: end + 2, K: hi}, {Code: opLoad, K: low}, {Code: opJeq, Jf: end, K: lo}}
		case notEqual:
			b = []unix.SockFilter{{Code: opLoad, K: high}, {Code: opJeq, Jf: 2, K: hi}, {Code: opLoad, K: low}, {Code: opJeq, Jt: end, K: lo}}
		case anySet:
			b = []unix.SockFilter{{Code: opLoad, K: high}, {Code: opJset, Jt: 2, K: hi}, {Code: opLoad, K: low}, {Code: opJset, Jf: end, K: lo}}
		case allClear:
			b = []unix.SockFilter{{Code: opLoad, K: high}, {Code: opJset, Jt: end + 2, K: hi}, {Code: opLoad, K: low}, {Code: opJset, Jt: end, K: lo}}
		}
		tail = append(b, tail...)
	}
	return append([]unix.SockFilter{{Code: opLoad, K: 0}, {Code: opJeq, Jf: uint8(len(tail)), K: r.nr}}, tail...)
}
