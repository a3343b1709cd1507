package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Running is one program that was started.
type Running struct {
	Applied Applied
	PID     int
	Stdout  io.ReadCloser
	Stderr  io.ReadCloser

	level    Level
	dir      *os.File      // O_PATH of the socket folder
	group    *group        // nil: none
	answered chan struct{} // closed when nothing is asked any more; nil: nothing was
	host     *os.File      // our end of the socket pair: open as long as we live
	proc     *os.Process

	mu     sync.Mutex
	why    string // it was ended for something that it did
	reaped bool
	gone   chan struct{}
	state  *os.ProcessState
}

// reap waits for the program and then ends whatever is left of its session, before its id can be anybody else's.
func (r *Running) reap() {
	for errors.Is(unix.Waitid(unix.P_PID, r.PID, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
	r.mu.Lock()
	_ = unix.Kill(-r.PID, unix.SIGKILL) // an empty group is the usual case
	r.reaped = true
	r.state, _ = r.proc.Wait() // the state of a process that has ended
	r.mu.Unlock()
	if r.group != nil {
		if n := r.group.killedForMemory(); n > 0 {
			r.because("it has more memory than its control group may have")
		}
		r.group.remove()
	}
	close(r.gone)
}

// Kill ends the program and everything that it started, at once. It returns before they are gone: see Gone.
func (r *Running) Kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.reaped {
		_ = unix.Kill(-r.PID, unix.SIGKILL)
		_ = unix.Kill(r.PID, unix.SIGKILL)
	}
}

// Gone is closed when the program has ended and was reaped.
func (r *Running) Gone() <-chan struct{} { return r.gone }

// Exit says how the program ended, once Gone is closed: "exit status 2", "signal: bad system call", or why it was ended.
func (r *Running) Exit() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.why != "":
		return r.why
	case r.state == nil:
		return ""
	}
	return r.state.String()
}

// Peak is the most memory that the program has had resident so far, as text; empty once it has ended.
func (r *Running) Peak() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reaped {
		return ""
	}
	text, err := os.ReadFile("/proc/" + strconv.Itoa(r.PID) + "/status")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// CPU is how long the program has computed so far, on all processors together; 0 once it has ended.
func (r *Running) CPU() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reaped {
		return 0
	}
	const scheduled = 2 // the clock of a process is named by its number (linux/posix-timers.h)
	var used unix.Timespec
	if err := unix.ClockGettime(int32(^r.PID)<<3|scheduled, &used); err != nil {
		return 0
	}
	return time.Duration(used.Nano())
}

// Close frees what the host holds of the program. Call it after Kill.
func (r *Running) Close() {
	for _, f := range []io.Closer{r.Stdout, r.Stderr, r.host} {
		f.Close()
	}
	if r.dir != nil {
		r.dir.Close()
	}
	if r.answered != nil {
		<-r.answered
	}
}

// Dir is the socket folder as the program sees it.
func (r *Running) Dir(hostDir string) string {
	if r.level == Isolated {
		return socketDir
	}
	return hostDir
}

// Dial connects to the socket of that name in the program's socket folder. A symbolic link or anything else but a socket is
// refused, so the program cannot send the host to another one.
func (r *Running) Dial(ctx context.Context, name string) (net.Conn, error) {
	if name == "" || strings.ContainsAny(name, "/\x00") || name == ".." {
		return nil, fmt.Errorf("%q is not a name in the socket folder", name)
	}
	fd, err := unix.Openat(int(r.dir.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("open", err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, os.NewSyscallError("stat", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, errors.New("it is not a socket")
	}
	var d net.Dialer
	return d.DialContext(ctx, "unix", "/proc/self/fd/"+strconv.Itoa(fd))
}
