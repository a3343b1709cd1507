package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"unsafe"

	"github.com/landlock-lsm/go-landlock/landlock"
	llsyscall "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// Main is the shim: it puts the sandbox on itself and becomes the program. It does not return. Call it from the first
// initialisation of the program when the first argument is Verb, before anything else is opened or started.
func Main() {
	runtime.LockOSThread()
	debug.SetGCPercent(-1) // it lives for milliseconds
	s := &shim{report: os.NewFile(fdReport, "report")}
	err := s.run()
	msg := message{Step: s.step, Error: err.Error()} // run does not come back from a program that began
	_ = json.NewEncoder(s.report).Encode(msg)        // without a reader there is nobody to tell
	os.Exit(125)
}

type shim struct {
	report *os.File
	step   string
	order  order
	did    Applied
	loader []string // of the program in a packed root folder
}

func (s *shim) run() error {
	s.step = "read the order"
	text, err := io.ReadAll(os.NewFile(fdSpec, "spec"))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &s.order); err != nil {
		return err
	}
	if s.order.Tree != nil && s.order.Level < Isolated {
		return errors.New("a packed root folder needs namespaces")
	}
	s.did = Applied{Level: s.order.Level.String(), UID: os.Getuid(), Seccomp: "none"}
	dir := s.order.Dir
	if s.order.Level == Isolated {
		dir = socketDir
		s.did.Namespaces = []string{"user", "mount", "pid", "net", "ipc", "uts", "cgroup"}
		if err := s.root(); err != nil {
			return err
		}
	}
	s.step = "drop capabilities"
	if err := s.dropCapabilities(); err != nil {
		return err
	}
	s.step = "die with the host"
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return err
	}
	if hostGone() {
		return errors.New("the host is gone")
	}
	s.step = "no_new_privs"
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if s.order.Level >= Restricted {
		s.step = "Landlock"
		if err := s.landlock(dir); err != nil {
			return err
		}
	}
	s.step = "close files"
	if err := unix.CloseRange(3, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return err
	}
	return s.become(dir)
}

// hostGone tells whether the host ended before the death signal was set: its end of the socket pair is closed.
func hostGone() bool {
	p := []unix.PollFd{{Fd: fdSocket, Events: unix.POLLIN}}
	n, err := unix.Poll(p, 0)
	return err == nil && n > 0 && p[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
}

// root makes an empty, read-only root folder with one small writable folder for the socket, and hands that folder to the host.
func (s *shim) root() error {
	s.step = "mount namespace"
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	base := ""
	for _, d := range []string{"/tmp", "/run", "/mnt", "/var", "/dev"} {
		if st, err := os.Stat(d); err == nil && st.IsDir() {
			base = d
			break
		}
	}
	s.step = "mount the root folder"
	const closed = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	flags, room := uintptr(closed), "size=64k,nr_inodes=16,mode=0755"
	if t := s.order.Tree; t != nil {
		flags = unix.MS_NOSUID | unix.MS_NODEV // its libraries are mapped to be executed
		room = fmt.Sprintf("size=%d,nr_inodes=%d,mode=0755", t.Bytes+64*t.Entries+(1<<20), t.Entries+32)
	}
	if err := unix.Mount("plugin", base, "tmpfs", flags, room); err != nil {
		return err
	}
	sock := filepath.Join(base, socketDir)
	if err := os.Mkdir(sock, 0o700); err != nil {
		return err
	}
	s.step = "mount the socket folder"
	if err := unix.Mount("plugin", sock, "tmpfs", closed, "size=64k,nr_inodes=8,mode=0700"); err != nil {
		return err
	}
	fd, err := unix.Open(sock, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	s.step = "hand the socket folder to the host"
	if err := unix.Sendmsg(fdSocket, []byte{1}, unix.UnixRights(fd), nil, 0); err != nil {
		return err
	}
	s.step = "pivot_root"
	if err := unix.Chdir(base); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return err
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return err
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	if s.order.Tree != nil { // only now: nothing of the host is left that a link in it could lead to
		s.step = "unpack the root folder"
		if err := s.unpack(); err != nil {
			return err
		}
		s.step = "close the root folder"
	}
	if err := unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|flags, ""); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(hostName)); err != nil {
		s.did.Missing = append(s.did.Missing, "hostname: "+err.Error())
	}
	return nil
}

func (s *shim) dropCapabilities() error {
	var held [2]unix.CapUserData
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capget(&head, &held[0]); err != nil {
		return err
	}
	if held[0].Permitted == 0 && held[1].Permitted == 0 {
		return nil // none is held, and no_new_privs keeps it so
	}
	for c := uintptr(0); c < 64; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			if errors.Is(err, unix.EINVAL) {
				break
			}
			return err
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return err
	}
	const locked = 1<<0 | 1<<1 | 1<<2 | 1<<3 | 1<<5 // noroot, no_setuid_fixup, each locked; keep_caps locked off
	if err := unix.Prctl(unix.PR_SET_SECUREBITS, locked, 0, 0, 0); err != nil {
		return err
	}
	var none [2]unix.CapUserData
	return unix.Capset(&head, &none[0])
}

// landlock leaves one folder in which sockets can be made, and nothing else: no file may be opened or executed by its path, no
// TCP port bound or reached, no abstract socket and no process outside reached.
func (s *shim) landlock(dir string) error {
	abi, err := llsyscall.LandlockGetABIVersion()
	if err != nil || abi < 1 {
		return fmt.Errorf("this kernel has none (%w)", errors.Join(err, unix.ENOSYS))
	}
	s.did.Landlock = abi
	if abi < 4 {
		s.did.Missing = append(s.did.Missing, "Landlock for TCP (seccomp does it)")
	}
	if abi < 6 {
		s.did.Missing = append(s.did.Missing, "Landlock scopes (seccomp does it)")
	}
	const read = llsyscall.AccessFSReadFile | llsyscall.AccessFSReadDir
	const rights = llsyscall.AccessFSMakeSock | llsyscall.AccessFSMakeReg | llsyscall.AccessFSRemoveFile | llsyscall.AccessFSReadFile |
		llsyscall.AccessFSWriteFile
	var rules []landlock.Rule
	if dir != "" {
		rules = append(rules, landlock.PathAccess(rights, dir))
	}
	if t := s.order.Tree; t != nil { // one program and its loader may be executed, everything may be read
		rules = append(rules, landlock.PathAccess(read, "/"), landlock.PathAccess(llsyscall.AccessFSExecute|llsyscall.AccessFSReadFile, append([]string{t.Run}, s.loader...)...))
	}
	fd, flags, err := landlock.V7.BestEffort().NewRulesetFD(rules...)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// This thread alone: the others end when the program is executed, and reaching them would need /proc.
	return llsyscall.LandlockRestrictSelf(fd, flags)
}

// become sets the limits and the filter and executes the program. From the limits on only raw system calls are made: the runtime
// could no longer get memory or threads.
func (s *shim) become(dir string) error {
	l := s.order.Limits.Filled()
	space := uint64(l.Memory) + 2<<30 // what runtimes reserve and never touch; it stops who takes memory faster than it can be counted
	if s.order.Tree != nil {
		space = 64 << 30 // interpreters reserve much that they never touch; memory is what counts
	}
	threads := uint64(l.Processes)
	if s.order.Level < Isolated { // it counts the whole user: room for what others of it start meanwhile
		threads = uint64(s.order.Others + threadsRoom)
	}
	limits := []struct {
		name     string
		resource int
		value    uint64
	}{
		{"address_space", unix.RLIMIT_AS, space},
		{"memory", unix.RLIMIT_DATA, uint64(l.Memory)},
		{"cpu_seconds", unix.RLIMIT_CPU, uint64(l.CPU.Seconds())},
		{"open_files", unix.RLIMIT_NOFILE, uint64(l.Files)},
		{"file_size", unix.RLIMIT_FSIZE, 0},
		{"core", unix.RLIMIT_CORE, 0},
		{"locked_memory", unix.RLIMIT_MEMLOCK, 0},
		{"queues", unix.RLIMIT_MSGQUEUE, 0},
		{"signals", unix.RLIMIT_SIGPENDING, 64},
		{"stack", unix.RLIMIT_STACK, 8 << 20},
		{"threads", unix.RLIMIT_NPROC, threads},
	}
	var plain, asking []unix.SockFilter
	if s.order.Level >= Restricted {
		t := terms{pid: os.Getpid(), level: s.order.Level, errno: s.order.Errno || s.order.Probe}
		p, ok := filter(t)
		s.step = "seccomp"
		if !ok {
			return fmt.Errorf("no filter is written for %s", runtime.GOARCH)
		}
		plain, s.did.Seccomp = p, "kill"
		if s.order.Errno {
			s.did.Seccomp = "errno"
		}
		if s.order.asks() {
			t.asks, t.elsewhere = true, s.order.Elsewhere != nil
			asking, _ = filter(t)
		}
	}
	for _, r := range limits {
		s.did.Limits = append(s.did.Limits, fmt.Sprintf("%s=%d", r.name, r.value))
	}
	env := append(append([]string(nil), s.order.Env...), "PLUGIN_UNIX_SOCKET_DIR="+dir)
	argv, err := pointers(s.order.Args)
	if err != nil {
		return err
	}
	envp, err := pointers(env)
	if err != nil {
		return err
	}
	empty, err := unix.BytePtrFromString("")
	if err != nil {
		return err
	}
	s.step = "report"
	if err := json.NewEncoder(s.report).Encode(message{Applied: &s.did}); err != nil {
		return err
	}
	if s.order.Probe {
		s.step = "seccomp"
		asks, err := applyFilter(plain, asking)
		if err != nil {
			return err
		}
		if asks >= 0 {
			unix.Close(asks) // who would be asked is gone: the kernel refuses, as the host does
		}
		proof := tryAttacks(s.order.Level, asks >= 0)
		s.step = "proof"
		if err := json.NewEncoder(s.report).Encode(message{Proof: proof}); err != nil {
			return err
		}
		os.Exit(0)
	}
	if e := s.order.Elsewhere; e != nil {
		s.step = elsewhere
		if s.order.Level < Restricted {
			return errors.New("it needs a filter")
		}
		if e.OneCPU {
			if err := oneCPU(); err != nil {
				return err
			}
		}
	}
	// Memory last: between it and the program there is one call, so that no other thread of ours meets the limit.
	set := func(memory bool) error {
		for _, r := range limits {
			if memory != (r.resource == unix.RLIMIT_AS || r.resource == unix.RLIMIT_DATA) {
				continue
			}
			var v unix.Rlimit
			if e := prlimit(r.resource, nil, &v); e != 0 {
				return fmt.Errorf("%s: %w", r.name, e)
			}
			v.Max = min(v.Max, r.value) // a limit of the host is never raised
			v.Cur = v.Max
			if e := prlimit(r.resource, &v, nil); e != 0 {
				return fmt.Errorf("%s: %w", r.name, e)
			}
		}
		return nil
	}
	s.step = "limits"
	if err := set(false); err != nil {
		return err
	}
	s.step = "seccomp"
	asks, err := applyFilter(plain, asking)
	if err != nil {
		return err
	}
	if asking != nil {
		if err := handOver(asks); err != nil {
			return err
		}
	}
	s.step = "limits"
	if err := set(true); err != nil {
		return err
	}
	s.step = "execute"
	_, _, e := unix.RawSyscall6(unix.SYS_EXECVEAT, fdArtifact, uintptr(unsafe.Pointer(empty)), uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&envp[0])), unix.AT_EMPTY_PATH, 0)
	runtime.KeepAlive(argv)
	runtime.KeepAlive(envp)
	return e
}

// oneCPU leaves the first of its processors to this thread, and so to the program.
func oneCPU() error {
	var have, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &have); err != nil {
		return err
	}
	for i := range 8 * len(have) * 8 {
		if have.IsSet(i) {
			one.Set(i)
			break
		}
	}
	return unix.SchedSetaffinity(0, &one)
}

func prlimit(resource int, to, from *unix.Rlimit) unix.Errno {
	_, _, e := unix.RawSyscall6(unix.SYS_PRLIMIT64, 0, uintptr(resource), uintptr(unsafe.Pointer(to)), uintptr(unsafe.Pointer(from)), 0, 0)
	return e
}

// applyFilter puts the filter on this thread: asking, whose listener it returns, or plain where the kernel gives no listener (-1).
func applyFilter(plain, asking []unix.SockFilter) (listener int, err error) {
	if plain == nil {
		return -1, nil
	}
	if asking != nil {
		f := unix.SockFprog{Len: uint16(len(asking)), Filter: &asking[0]}
		fd, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&f)))
		runtime.KeepAlive(asking)
		if e == 0 {
			return int(fd), nil
		}
	}
	f := unix.SockFprog{Len: uint16(len(plain)), Filter: &plain[0]}
	_, _, e := unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&f)))
	runtime.KeepAlive(plain)
	if e != 0 {
		return -1, e
	}
	return -1, nil
}

// handOver gives the listener to the host, or tells it that there is none.
func handOver(listener int) error {
	var rights []byte
	if listener >= 0 {
		rights = unix.UnixRights(listener)
	}
	return unix.Sendmsg(fdSocket, []byte{2}, rights, nil, 0)
}

// pointers is a list of C strings as execve takes it, with its null.
func pointers(ss []string) ([]*byte, error) {
	out := make([]*byte, len(ss)+1)
	for i, s := range ss {
		p, err := unix.BytePtrFromString(s)
		if err != nil {
			return nil, err
		}
		out[i] = p
	}
	return out, nil
}
