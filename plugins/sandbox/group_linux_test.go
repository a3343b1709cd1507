package sandbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestTheGroupOfThisProcessIsFoundWhereItIsMounted(t *testing.T) {
	const mixed = "8:pids:/\n4:memory:/a\n0::/user.slice/worker\n"
	for name, c := range map[string]struct{ own, mounts, at, top, why string }{
		"version 2 alone": {"0::/system.slice/reprieve.service/worker\n", "25 20 0:22 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n",
			"/sys/fs/cgroup/system.slice/reprieve.service/worker", "/sys/fs/cgroup", ""},
		"beside version 1": {mixed, "24 20 0:21 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n25 20 0:22 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
			"/sys/fs/cgroup/unified/user.slice/worker", "/sys/fs/cgroup/unified", ""},
		"a namespace of groups": {"0::/\n", "25 20 0:22 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n", "/sys/fs/cgroup", "/sys/fs/cgroup", ""},
		"a part is mounted":     {"0::/pod/worker\n", "25 20 0:22 /pod /sys/fs/cgroup rw - cgroup2 cgroup rw\n", "/sys/fs/cgroup/worker", "/sys/fs/cgroup", ""},
		"another part":          {"0::/pod/worker\n", "25 20 0:22 /other /sys/fs/cgroup rw - cgroup2 cgroup rw\n", "", "", "not mounted"},
		"version 1":             {"8:pids:/\n", "24 20 0:21 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n", "", "", "version 2 is not there"},
		"not mounted":           {"0::/\n", "24 20 0:21 / /proc rw - proc proc rw\n", "", "", "not mounted"},
	} {
		t.Run(name, func(t *testing.T) {
			at, top, why := ownGroup(c.own, c.mounts)
			if at != c.at || top != c.top || !strings.Contains(why, c.why) || c.why == "" && why != "" {
				t.Errorf("%q %q %q", at, top, why)
			}
		})
	}
}

func TestOnlyAGroupWithItsControllersIsUsed(t *testing.T) {
	for name, c := range map[string]struct{ controllers, below, why string }{
		"given":             {"cpu memory pids", "memory pids", ""},
		"can be given":      {"memory pids", "", ""},
		"no memory":         {"hugetlb", "", "no memory controller"},
		"no pids":           {"memory", "memory", "no pids controller"},
		"not a group":       {"", "", "no memory controller"},
		"one of the two on": {"memory pids", "memory", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{"cgroup.controllers": c.controllers, "cgroup.subtree_control": c.below, "cgroup.procs": ""} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if why := usable(dir); c.why == "" && why != "" || !strings.Contains(why, c.why) {
				t.Errorf("%q", why)
			}
			below, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
			if err != nil {
				t.Fatal(err)
			}
			if c.why == "" && (!strings.Contains(string(below), "memory") || !strings.Contains(string(below), "pids")) {
				t.Errorf("it was left at %q", below)
			}
		})
	}
}

func TestALimitCountsTheProgramAndItsRootFolder(t *testing.T) {
	got := applied(settings(&Spec{Limits: Limits{Memory: 100 << 20, Processes: 8}, Tree: &Tree{Bytes: 10 << 20, Entries: 10}}))
	want := []string{"cgroup_memory_max=182452864", "cgroup_pids_max=24"}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// version2 is a group of version 2 in which this process may make others, with or without controllers.
func version2(t *testing.T) string {
	t.Helper()
	own, err1 := os.ReadFile("/proc/self/cgroup")
	mounts, err2 := os.ReadFile("/proc/self/mountinfo")
	if err1 != nil || err2 != nil {
		t.Skip("no control groups here: ", err1, err2)
	}
	at, _, why := ownGroup(string(own), string(mounts))
	if why != "" {
		t.Skip("no control groups here: ", why)
	}
	probe, err := os.MkdirTemp(at, groupName+"0-")
	if err != nil {
		t.Skip("control groups cannot be made here: ", err)
	}
	if err := os.Remove(probe); err != nil {
		t.Fatal(err)
	}
	return at
}

func TestAGroupEndsWithWhateverIsLeftInIt(t *testing.T) {
	if os.Getenv("WAIT_IN_GROUP") != "" {
		_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed: the test holds the other end
		return
	}
	c := controls{dir: version2(t)}
	g, err := c.make(nil)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestAGroupEndsWithWhateverIsLeftInIt$")
	cmd.Env = append(os.Environ(), "WAIT_IN_GROUP=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(g.file.Fd()), Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := cmd.Start(); err != nil {
		g.remove()
		t.Skip("this kernel does not start a process in a group: ", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if _, err := os.Stat(filepath.Join(g.dir, "cgroup.kill")); err != nil {
		_ = cmd.Process.Kill() // Linux before 5.14: the host kills the session
	}
	g.remove()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("it ended by itself: %v", err)
	}
	if _, err := os.Stat(g.dir); !os.IsNotExist(err) {
		t.Errorf("the group is left: %v", err)
	}
}

func TestGroupsOfHostsThatAreGoneAreRemoved(t *testing.T) {
	c := controls{dir: t.TempDir()}
	dead := filepath.Join(c.dir, groupName+"999999999-1") // above every process id
	ours, err := os.MkdirTemp(c.dir, groupName+"1-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dead, 0o755); err != nil {
		t.Fatal(err)
	}
	c.sweep()
	if _, err := os.Stat(dead); !os.IsNotExist(err) {
		t.Error("it is left:", err)
	}
	if _, err := os.Stat(ours); err != nil {
		t.Error("one of a living host is gone:", err)
	}
}

// With controllers a start has the group's limits; without, its report says which is missing.
func TestAStartHasAGroupOrSaysWhyNot(t *testing.T) {
	s := NewSpawner()
	defer s.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	did, _, err := s.Probe(ctx, Spec{Level: Restricted})
	if err != nil {
		t.Skip("level restricted cannot be had here: ", err)
	}
	limited := slices.ContainsFunc(did.Limits, func(l string) bool { return strings.HasPrefix(l, "cgroup_memory_max=") })
	told := slices.ContainsFunc(did.Missing, func(m string) bool { return strings.HasPrefix(m, "control group: ") && len(m) > len("control group: ") })
	if limited == told || limited != (s.controls.dir != "") {
		t.Fatalf("limits %v, missing %v, groups in %q", did.Limits, did.Missing, s.controls.dir)
	}
	if !limited {
		noGroups(t, fmt.Sprint(did.Missing))
	}
	ours := filepath.Join(s.controls.dir, fmt.Sprintf("%s%d-*", groupName, os.Getpid()))
	for deadline := time.Now().Add(10 * time.Second); ; runtime.Gosched() { // it is removed when the process was reaped
		left, err := filepath.Glob(ours)
		if err != nil || len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("groups are left:", left)
		}
	}
}

// useUp is the program of the test below: it takes what limits of a process do not count, and says how much of it was to be had.
func useUp(what string) {
	switch what {
	case "memory": // shared memory is not private memory
		text, err := unix.Mmap(-1, 0, 1<<30, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANON)
		if err != nil {
			fmt.Println("refused", err)
			return
		}
		for i := 0; i < len(text); i += os.Getpagesize() {
			text[i] = 1
		}
		fmt.Println("took all of it")
	case "processes":
		for n := 0; ; n++ {
			pid, _, e := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
			if e == 0 && pid == 0 {
				for {
					unix.RawSyscall(unix.SYS_PAUSE, 0, 0, 0)
				}
			}
			if e != 0 || n == 1000 {
				fmt.Println("started", n)
				return
			}
		}
	}
}

// A program has no more memory and no more processes than its group may have, whatever limits of a process say. The level is the one
// that leaves it everything else.
func TestAProgramIsHeldToTheLimitsOfItsGroup(t *testing.T) {
	if what := os.Getenv("USE_UP"); what != "" {
		useUp(what)
		return
	}
	s := NewSpawner()
	defer s.Close()
	if s.controls.dir == "" {
		noGroups(t, s.controls.why)
	}
	file, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	program, err := Seal(text)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	use := func(t *testing.T, what string) (said, end string) {
		t.Helper()
		r, err := s.Start(ctx, program, Spec{Level: Process, Args: []string{"test", "-test.run=^TestAProgramIsHeldToTheLimitsOfItsGroup$"},
			Env: []string{"USE_UP=" + what}, Dir: t.TempDir(), Limits: Limits{Processes: 32}})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		defer context.AfterFunc(ctx, r.Kill)()
		dir := r.group.dir
		text, err := bufio.NewReader(r.Stdout).ReadString('\n') // processes that it leaves hold the other end
		if err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		<-r.Gone()
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("the group is left: %v", err)
		}
		return strings.TrimSpace(text), r.Exit()
	}
	t.Run("memory", func(t *testing.T) {
		if said, end := use(t, "memory"); said != "" || !strings.Contains(end, "its control group") {
			t.Errorf("it said %q and ended as %q", said, end)
		}
	})
	t.Run("processes", func(t *testing.T) {
		said, end := use(t, "processes")
		number, found := strings.CutPrefix(said, "started ")
		if n, err := strconv.Atoi(number); !found || err != nil || n > 32+groupThreads || n == 0 {
			t.Errorf("it said %q and ended as %q", said, end)
		}
	})
}

// noGroups skips a test where there are no control groups with their controllers, unless this machine is declared to have them.
func noGroups(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("REPRIEVE_TEST_GROUPS") != "" {
		t.Fatal("this machine is declared to have control groups: ", why)
	}
	t.Skip("no limits by a control group here: ", why)
}
