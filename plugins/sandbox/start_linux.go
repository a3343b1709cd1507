package sandbox

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Seal copies a program into memory that nobody can change and that programs are executed from.
func Seal(program []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("plugin", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "plugin")
	if _, err := f.Write(program); err != nil {
		f.Close()
		return nil, err
	}
	if err := f.Chmod(0o555); err != nil {
		f.Close()
		return nil, err
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE); err != nil {
		f.Close()
		return nil, os.NewSyscallError("seal", err)
	}
	return f, nil
}

// Spawner starts programs from one thread that lives as long as it: the kernel ends them when that thread ends.
type Spawner struct {
	jobs chan func()
	once sync.Once
}

// NewSpawner starts the thread. Close it.
func NewSpawner() *Spawner {
	s := &Spawner{jobs: make(chan func())}
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for job := range s.jobs {
			job()
		}
	}()
	return s
}

// Close ends the thread, and with it every program that still runs.
func (s *Spawner) Close() { s.once.Do(func() { close(s.jobs) }) }

// Running is one program that was started.
type Running struct {
	Applied Applied
	PID     int
	Stdout  io.ReadCloser
	Stderr  io.ReadCloser

	level Level
	dir   *os.File // O_PATH of the socket folder
	host  *os.File // our end of the socket pair: open as long as we live
	proc  *os.Process

	mu     sync.Mutex
	reaped bool
	gone   chan struct{}
	state  *os.ProcessState
}

// Start starts the sealed program under the spec and returns when it is executing. Codes: ERR_PLUGIN_SANDBOX when the level
// cannot be had.
func (s *Spawner) Start(ctx context.Context, program *os.File, spec Spec) (*Running, error) {
	r, _, err := s.start(ctx, program, order{Spec: spec})
	return r, err
}

// Probe starts the shim, which tries attacks instead of becoming a program, and says what it met. An error means that the level
// cannot be had here. Codes: ERR_PLUGIN_SANDBOX.
func (s *Spawner) Probe(ctx context.Context, spec Spec) (Applied, []Proof, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return Applied{}, nil, err
	}
	defer null.Close()
	r, proof, err := s.start(ctx, null, order{Spec: spec, Probe: true})
	if err != nil {
		return Applied{}, nil, err
	}
	r.Kill()
	r.Close()
	if spec.Level >= Restricted {
		for _, p := range proof {
			if !p.Blocked {
				return r.Applied, proof, refused(spec.Level, "proof", errors.New(p.String()))
			}
		}
	}
	return r.Applied, proof, nil
}

func (s *Spawner) start(ctx context.Context, program *os.File, o order) (_ *Running, _ []Proof, err error) {
	var opened []*os.File // closed here whatever happens: the child has its copies
	defer func() {
		for _, f := range opened {
			f.Close()
		}
	}()
	var keep []*os.File // ours, closed when the start fails
	defer func() {
		if err != nil {
			for _, f := range keep {
				f.Close()
			}
		}
	}()
	pipe := func() (ours, theirs *os.File, err error) {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, nil, err
		}
		keep, opened = append(keep, r), append(opened, w)
		return r, w, nil
	}
	stdout, outw, err := pipe()
	if err != nil {
		return nil, nil, err
	}
	stderr, errw, err := pipe()
	if err != nil {
		return nil, nil, err
	}
	report, reportw, err := pipe()
	if err != nil {
		return nil, nil, err
	}
	defer report.Close()
	specr, specw, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	opened = append(opened, specr, specw)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	host, theirs := os.NewFile(uintptr(pair[0]), "host"), os.NewFile(uintptr(pair[1]), "plugin")
	keep, opened = append(keep, host), append(opened, theirs)
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, nil, err
	}
	opened = append(opened, null)

	text, err := json.Marshal(o)
	if err != nil {
		return nil, nil, err
	}
	if len(text) > 32<<10 { // it must fit into the pipe: nobody reads yet
		return nil, nil, fmt.Errorf("arguments of %d bytes are too many", len(text))
	}
	if _, err := specw.Write(text); err != nil {
		return nil, nil, err
	}
	specw.Close()

	sys, err := attributes(&o.Spec)
	if err != nil {
		return nil, nil, err
	}
	attr := &os.ProcAttr{Env: []string{}, Files: []*os.File{null, outw, errw, specr, program, reportw, theirs}, Sys: sys}
	var proc *os.Process
	done := make(chan struct{})
	job := func() {
		proc, err = os.StartProcess("/proc/self/exe", []string{"reprieve", Verb}, attr)
		close(done)
	}
	select {
	case s.jobs <- job:
		<-done
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	if err != nil {
		return nil, nil, refused(o.Level, "start a process with its namespaces", err)
	}
	r := &Running{PID: proc.Pid, Stdout: stdout, Stderr: stderr, level: o.Level, host: host, proc: proc, gone: make(chan struct{})}
	go r.reap()
	for _, f := range opened {
		f.Close()
	}
	opened = nil
	stop := context.AfterFunc(ctx, r.Kill) // ends the reads below
	defer stop()
	proof, err := r.converse(report, &o)
	if err == nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		r.Kill()
		return nil, nil, err
	}
	return r, proof, nil
}

// converse takes the socket folder and reads what the shim says until it is the program.
func (r *Running) converse(report *os.File, o *order) (proof []Proof, err error) {
	if o.Level < Isolated && !o.Probe {
		fd, err := unix.Open(o.Dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: o.Dir, Err: err}
		}
		r.dir = os.NewFile(uintptr(fd), o.Dir)
	}
	heard := false
	dec := json.NewDecoder(bufio.NewReader(io.LimitReader(report, 64<<10)))
	for {
		var m message
		if e := dec.Decode(&m); errors.Is(e, io.EOF) {
			break
		} else if e != nil {
			return nil, refused(o.Level, "report of the shim", e)
		}
		switch {
		case m.Error != "":
			return nil, refused(o.Level, m.Step, errors.New(m.Error))
		case m.Applied != nil:
			r.Applied, heard = *m.Applied, true
		case m.Proof != nil:
			proof = m.Proof
		}
	}
	if !heard || o.Probe && proof == nil {
		return nil, refused(o.Level, "report of the shim", errors.New("the shim ended without a word"))
	}
	if o.Level == Isolated {
		if r.dir, err = receive(r.host); err != nil {
			return nil, refused(o.Level, "socket folder", err)
		}
		r.Applied.UID = hostUID(&o.Spec)
	}
	return proof, nil
}

// receive takes the folder that the shim sent before it reported.
func receive(host *os.File) (*os.File, error) {
	buf, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(int(host.Fd()), buf, oob, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return nil, err
	}
	cs, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(cs) != 1 {
		return nil, errors.New("no folder was sent")
	}
	fds, err := unix.ParseUnixRights(&cs[0])
	if err != nil || len(fds) != 1 {
		return nil, errors.New("no folder was sent")
	}
	return os.NewFile(uintptr(fds[0]), "sockets"), nil
}

func hostUID(s *Spec) int {
	switch {
	case os.Getuid() != 0:
		return os.Getuid()
	case s.UID != 0:
		return s.UID
	}
	return defaultUID
}

// attributes are the namespaces and the user that the shim starts with.
func attributes(s *Spec) (*syscall.SysProcAttr, error) {
	uid, gid := hostUID(s), hostUID(s)
	if os.Getuid() != 0 {
		gid = os.Getgid()
	}
	a := &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	switch {
	case s.Level == Isolated:
		a.Cloneflags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}}
		a.Credential = &syscall.Credential{NoSetGroups: true}
	case os.Getuid() == 0:
		a.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if s.Dir != "" {
			if err := os.Chown(s.Dir, uid, gid); err != nil {
				return nil, err
			}
		}
	}
	return a, nil
}

// reap waits for the program and then ends whatever is left of its session, before its id can be anybody else's.
func (r *Running) reap() {
	for {
		if err := unix.Waitid(unix.P_PID, r.PID, nil, unix.WEXITED|unix.WNOWAIT, nil); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	r.mu.Lock()
	_ = unix.Kill(-r.PID, unix.SIGKILL) // an empty group is the usual case
	r.reaped = true
	r.state, _ = r.proc.Wait() // the state of a process that has ended
	r.mu.Unlock()
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

// Exit says how the program ended, once Gone is closed: "exit status 2", "signal: bad system call".
func (r *Running) Exit() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state == nil {
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

// Close frees what the host holds of the program. Call it after Kill.
func (r *Running) Close() {
	for _, f := range []io.Closer{r.Stdout, r.Stderr, r.host} {
		f.Close()
	}
	if r.dir != nil {
		r.dir.Close()
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
