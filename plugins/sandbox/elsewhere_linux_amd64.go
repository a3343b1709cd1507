package sandbox

import (
	"encoding/binary"
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// traceMe lets the thread that started this process see it stop when it has become the program.
func traceMe() error {
	if _, _, e := unix.RawSyscall(unix.SYS_PTRACE, unix.PTRACE_TRACEME, 0, 0); e != 0 {
		return e
	}
	return nil
}

// What the kernel tells a program about itself (linux/auxvec.h).
const (
	auxNull   = 0
	auxIgnore = 1
	auxCalls  = 33 // where the calls are that need no kernel: reading the clock is one
)

// hideClock waits until the program was executed and takes from it, before its first instruction, the page by which it would read the
// clock without asking. It is called by the thread that started it, which then lets it go.
func hideClock(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WALL, nil)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("waitid", err)
		}
	}
	var regs unix.PtraceRegs
	if err := unix.PtraceGetRegs(pid, &regs); err != nil {
		return os.NewSyscallError("ptrace", err)
	}
	mem, err := os.OpenFile("/proc/"+strconv.Itoa(pid)+"/mem", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer mem.Close()
	stack := make([]byte, 64<<10)
	n, err := mem.ReadAt(stack, int64(regs.Rsp)) // it may end before
	if n == 0 {
		return err
	}
	at, err := auxEntry(stack[:n], auxCalls)
	if err != nil {
		return err
	}
	if at > 0 {
		if _, err := mem.WriteAt(binary.NativeEndian.AppendUint64(nil, auxIgnore), int64(regs.Rsp)+int64(at)); err != nil {
			return err
		}
	}
	return os.NewSyscallError("ptrace", unix.PtraceDetach(pid))
}

// auxEntry finds an entry of the auxiliary vector on the stack that a program starts with: the number of arguments, the arguments, 0,
// the environment, 0, pairs of kind and value. 0: there is none of the kind.
func auxEntry(stack []byte, kind uint64) (at int, err error) {
	word := func() (v uint64) {
		if at+8 > len(stack) {
			err = errors.New("the stack of the program cannot be read")
			return 0
		}
		v = binary.NativeEndian.Uint64(stack[at:])
		at += 8
		return v
	}
	arguments := word()
	if arguments > uint64(len(stack)/8) {
		return 0, errors.New("the stack of the program cannot be read")
	}
	at += 8 * (int(arguments) + 1)
	for word() != 0 {
	}
	for err == nil {
		was := at
		switch k := word(); {
		case err != nil:
		case k == kind:
			return was, nil
		case k == auxNull:
			return 0, nil
		}
		word()
	}
	return 0, err
}
