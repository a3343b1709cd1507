package sandbox

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Seal copies a program into memory that nobody can change and that programs are executed from.
func Seal(program []byte) (*os.File, error) {
	return sealed(func(f *os.File) error {
		_, err := f.Write(program)
		return err
	})
}

func sealed(fill func(*os.File) error) (_ *os.File, err error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate("plugin", flags|unix.MFD_EXEC) // a system may have it that memory is not executed unless it is asked for
	if errors.Is(err, unix.EINVAL) {                           // before Linux 6.3 there was no need to ask
		fd, err = unix.MemfdCreate("plugin", flags)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "plugin")
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	if err := fill(f); err != nil {
		return nil, err
	}
	if err := f.Chmod(0o555); err != nil {
		return nil, err
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE); err != nil {
		return nil, os.NewSyscallError("seal", err)
	}
	return f, nil
}

// withoutClock is a copy of a sealed program that has to ask for the time.
func withoutClock(program *os.File) (*os.File, error) {
	st, err := program.Stat()
	if err != nil {
		return nil, err
	}
	whole := io.NewSectionReader(program, 0, st.Size()) // the file is shared with other starts: its position belongs to nobody
	edits, err := clockless(whole, st.Size())
	if err != nil {
		return nil, err
	}
	return sealed(func(f *os.File) error {
		if _, err := io.Copy(f, whole); err != nil {
			return err
		}
		return apply(f, edits)
	})
}

func apply(f io.WriterAt, edits []edit) error {
	for _, e := range edits {
		if _, err := f.WriteAt(e.text, e.at); err != nil {
			return err
		}
	}
	return nil
}

// Spawner starts programs from one thread that lives as long as it: the kernel ends them when that thread ends.
type Spawner struct {
	jobs     chan func()
	once     sync.Once
	controls controls
}

// NewSpawner starts the thread. Close it.
func NewSpawner() *Spawner {
	s := &Spawner{jobs: make(chan func()), controls: findControls()}
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
	stdout, outw, err := mouth()
	if err != nil {
		return nil, nil, err
	}
	keep, opened = append(keep, stdout), append(opened, outw)
	stderr, errw, err := mouth()
	if err != nil {
		return nil, nil, err
	}
	keep, opened = append(keep, stderr), append(opened, errw)
	report, reportw, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer report.Close()
	opened = append(opened, reportw)
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

	if o.Level < Isolated {
		o.Others = threadsOf(hostUID(&o.Spec))
	}
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

	if o.Elsewhere != nil && o.Tree == nil { // in a tree the shim does it, to the loader
		if program, err = withoutClock(program); err != nil {
			return nil, nil, refused(o.Level, elsewhere, err)
		}
		opened = append(opened, program)
	}
	sys, err := attributes(&o.Spec)
	if err != nil {
		return nil, nil, err
	}
	// Its folder is none of the host's, whose path it could ask for.
	attr := &os.ProcAttr{Dir: "/", Env: []string{}, Files: []*os.File{null, outw, errw, specr, program, reportw, theirs}, Sys: sys}
	limits := settings(&o.Spec)
	group, without := s.group(limits)
	var proc *os.Process
	done := make(chan struct{})
	job := func() {
		defer close(done)
		if group != nil {
			sys.UseCgroupFD, sys.CgroupFD = true, int(group.file.Fd())
		}
		proc, err = os.StartProcess("/proc/self/exe", []string{"reprieve", Verb}, attr)
		if err == nil || group == nil {
			return
		}
		if group.remove(); without == "" { // the start as it is without a group tells whether that is the reason
			without = err.Error()
		}
		group, sys.UseCgroupFD = nil, false
		proc, err = os.StartProcess("/proc/self/exe", []string{"reprieve", Verb}, attr)
	}
	select {
	case s.jobs <- job:
		<-done
	case <-ctx.Done():
		if group != nil {
			group.remove()
		}
		return nil, nil, ctx.Err()
	}
	if err != nil {
		return nil, nil, refused(o.Level, "start a process with its namespaces", err)
	}
	r := &Running{PID: proc.Pid, Stdout: stdout, Stderr: stderr, level: o.Level, host: host, proc: proc, group: group, gone: make(chan struct{})}
	go r.reap()
	for _, f := range opened {
		f.Close()
	}
	opened = nil
	stop := context.AfterFunc(ctx, r.Kill) // ends the reads below
	defer stop()
	proof, err := r.converse(report, &o)
	if err == nil && o.Elsewhere != nil {
		err = r.canBeTold()
	}
	if err == nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		r.Kill()
		return nil, nil, err
	}
	if group != nil {
		r.Applied.Limits = append(r.Applied.Limits, applied(limits)...)
	} else {
		most := o.Limits.Filled().Memory + watchRoom
		r.Applied.Limits = append(r.Applied.Limits, fmt.Sprintf("watched_memory=%d", most))
		r.Applied.Missing = append(r.Applied.Missing, "control group: "+without)
		if !o.Probe {
			go r.watch(most)
		}
	}
	return r, proof, nil
}

// mouth is what a program writes to as standard output or error, and where the host reads it. It is a pair of sockets, of which each can
// do only that: a pipe could be opened again from /proc by its own user, for the other direction.
func mouth() (ours, theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	err = errors.Join(unix.SetNonblock(pair[0], true), unix.Shutdown(pair[1], unix.SHUT_RD)) // reading ends when it is closed
	ours, theirs = os.NewFile(uintptr(pair[0]), "stdout or stderr"), os.NewFile(uintptr(pair[1]), "their stdout or stderr")
	if err != nil {
		ours.Close()
		theirs.Close()
		return nil, nil, os.NewSyscallError("shutdown", err)
	}
	return ours, theirs, nil
}

// canBeTold tells whether the host may write into the memory of the program, as answers to its questions need.
func (r *Running) canBeTold() error {
	mem, err := os.OpenFile("/proc/"+strconv.Itoa(r.PID)+"/mem", os.O_WRONLY, 0)
	if errors.Is(err, os.ErrPermission) {
		return refused(r.level, elsewhere, err)
	}
	if err == nil {
		mem.Close()
	}
	return nil // one that has ended already is told nothing
}

// elsewhere is the step of a start that is about Elsewhere.
const elsewhere = "another time and another machine"

// group makes the control group of one start, or says why there is none.
func (s *Spawner) group(limits []setting) (_ *group, why string) {
	if s.controls.dir == "" {
		return nil, s.controls.why
	}
	g, err := s.controls.make(limits)
	if err != nil {
		return nil, err.Error()
	}
	return g, ""
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
		if r.dir, err = receive(r.host, "sockets"); err == nil && r.dir == nil {
			err = errors.New("no folder was sent")
		}
		if err != nil {
			return nil, refused(o.Level, "socket folder", err)
		}
		r.Applied.UID = hostUID(&o.Spec)
	}
	if o.Probe || !o.asks() {
		return proof, nil
	}
	asks, err := receive(r.host, "asks")
	switch {
	case err != nil:
		return nil, refused(o.Level, "listener of the filter", err)
	case asks == nil && o.Elsewhere != nil:
		return nil, refused(o.Level, elsewhere, errors.New("the filter has no listener"))
	case asks == nil:
		r.Applied.Missing = append(r.Applied.Missing, manyNames)
		return proof, nil
	}
	r.answered = make(chan struct{})
	go r.answers(asks, o.Elsewhere)
	return proof, nil
}

// asks tells whether the filter of that start asks the host.
func (o *order) asks() bool {
	return o.Level == Restricted || o.Level == Isolated && o.Elsewhere != nil
}

// receive takes the file that the shim sent before it became the program; nil: it sent word that there is none.
func receive(host *os.File, name string) (*os.File, error) {
	buf, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(int(host.Fd()), buf, oob, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
	if err != nil || n == 0 {
		return nil, err
	}
	cs, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(cs) != 1 {
		return nil, errors.New("what was sent cannot be read")
	}
	fds, err := unix.ParseUnixRights(&cs[0])
	if err != nil || len(fds) != 1 {
		return nil, errors.New("what was sent is not one file")
	}
	return os.NewFile(uintptr(fds[0]), name), nil
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
