package plugin

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/plugins"
	"reprieve.dev/plugins/sandbox"
)

// children are the processes whose parent is pid.
func children(t *testing.T, pid int) (out []int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		rest := string(b[strings.LastIndexByte(string(b), ')')+2:])
		fields := strings.Fields(rest)
		child, _ := strconv.Atoi(strings.Split(f, "/")[2])
		if fields[1] == fmt.Sprint(pid) && fields[0] != "Z" {
			out = append(out, child)
		}
	}
	return out
}

// shortTemp makes a folder for temporary files whose path leaves room for the name of a socket.
func shortTemp(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "t")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil { // a plugin of another user passes through it
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", dir)
	return dir
}

// roomsIn are the folders in which hosts keep the sockets of their plugins.
func roomsIn(t *testing.T, tmp string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(tmp, "reprieve-host-*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// heap is what the host has in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestCaseC53StopAndCrashLeaveNothingBehind(t *testing.T) {
	t.Run("a child is not started; stop returns within 5 s and leaves no process", func(t *testing.T) {
		levels(t, func(t *testing.T, w *world) {
			tr, err := w.transform("")
			if err != nil {
				t.Fatal(err)
			}
			if out := repair(t, tr, "exec: "); out[0].Failure == nil {
				t.Fatal("it started a child")
			}
			repair(t, tr, "fine")
			t0 := time.Now()
			w.Close()
			if d := time.Since(t0); d > 20*time.Second {
				t.Errorf("stop took %s", d)
			}
			if left := children(t, os.Getpid()); len(left) != 0 {
				t.Errorf("processes left: %v", left)
			}
		})
	})
	t.Run("at level process the children of a plugin end with it", func(t *testing.T) {
		w := open(t, func(o *plugins.Options) { o.Most = sandbox.Process; o.Insecure = true })
		w.install(sandbox.Process)
		tr, err := w.transform("")
		if err != nil {
			t.Fatal(err)
		}
		if got := tr.Info().Level; got != "process" {
			t.Fatal(got)
		}
		repair(t, tr, "fork: ")
		w.Close()
		if left := children(t, os.Getpid()); len(left) != 0 {
			t.Errorf("processes left: %v", left)
		}
	})
	t.Run("E: handshake, then no service: killed", func(t *testing.T) {
		w := open(t, func(o *plugins.Options) { o.Start = time.Second })
		if err := register(w, "mute"); pipeline.CodeOf(err) != pipeline.CodePluginHandshake {
			t.Error(err)
		}
		if left := children(t, os.Getpid()); len(left) != 0 {
			t.Errorf("processes left: %v", left)
		}
	})
	t.Run("F: no handshake: killed after the start limit, not started again", func(t *testing.T) {
		w := open(t, func(o *plugins.Options) { o.Start = time.Second })
		if err := register(w, "silent"); pipeline.CodeOf(err) != pipeline.CodePluginHandshake {
			t.Error(err)
		}
		w.Close()
		if left := children(t, os.Getpid()); len(left) != 0 {
			t.Errorf("processes left: %v", left)
		}
	})
	t.Run("G: crashes cost their item alone, and no memory", func(t *testing.T) {
		w := open(t, nil)
		w.install(sandbox.Restricted)
		tr, err := w.transform("")
		if err != nil {
			t.Fatal(err)
		}
		crashes := 1000
		if testing.Short() {
			crashes = 30
		}
		var before, after runtime.MemStats
		for i := range crashes {
			if i == crashes/10 {
				runtime.GC()
				runtime.ReadMemStats(&before)
			}
			if out := repair(t, tr, "exit"); code(&out[0]) != pipeline.CodePluginCrashed {
				t.Fatal(i, out[0].Failure)
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc) - int64(len(w.log.String())); grown > 4<<20 {
			t.Errorf("the host grew by %d bytes", grown)
		}
		if out := repair(t, tr, "fine"); out[0].Failure != nil {
			t.Error(out[0].Failure)
		}
	})
}

func TestKillOfTheHostEndsThePlugins(t *testing.T) {
	if os.Getenv("HOST_TO_KILL") != "" {
		level, err := sandbox.ParseLevel(os.Getenv("HOST_TO_KILL"))
		if err != nil {
			t.Fatal(err)
		}
		w := open(t, func(o *plugins.Options) { o.Most = level; o.Insecure = true; o.Call = time.Hour })
		w.install(level)
		tr, err := w.transform("")
		if err != nil {
			t.Fatal(err)
		}
		repair(t, tr, "fine")
		fmt.Println("PLUGINS", children(t, os.Getpid()))
		_, _ = tr.Repair(context.Background(), envelopes("hang"))
		return
	}
	for _, l := range []sandbox.Level{sandbox.Isolated, sandbox.Restricted, sandbox.Process} {
		t.Run(l.String(), func(t *testing.T) {
			tmp := shortTemp(t)
			cmd := exec.Command(os.Args[0], "-test.run=^TestKillOfTheHostEndsThePlugins$", "-test.v")
			cmd.Env = append(os.Environ(), "HOST_TO_KILL="+l.String())
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Wait()
			defer cmd.Process.Kill()
			var pids []int
			for sc := bufio.NewScanner(out); pids == nil && sc.Scan(); {
				if strings.Contains(sc.Text(), "SKIP") {
					t.Skip("level cannot be had here")
				}
				if rest, ok := strings.CutPrefix(sc.Text(), "PLUGINS ["); ok {
					for _, f := range strings.Fields(strings.TrimSuffix(rest, "]")) {
						pid, err := strconv.Atoi(f)
						if err != nil {
							t.Fatal(err)
						}
						pids = append(pids, pid)
					}
				}
			}
			if len(pids) == 0 {
				t.Fatal("the host has no plugin")
			}
			if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			deadline := time.Now().Add(5 * time.Second)
			for _, pid := range pids {
				for {
					b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
					if err != nil || strings.Contains(string(b), ") Z ") {
						break
					}
					if time.Now().After(deadline) {
						syscall.Kill(pid, syscall.SIGKILL)
						t.Fatalf("plugin %d outlived its host", pid)
					}
					runtime.Gosched()
				}
			}
			_ = cmd.Wait() // killed, as it was meant to be
			if left := roomsIn(t, tmp); len(left) != 1 {
				t.Errorf("a host that was killed leaves %v", left)
			}
			open(t, func(o *plugins.Options) { o.Most = l; o.Insecure = true }).Close()
			if left := roomsIn(t, tmp); len(left) != 0 {
				t.Errorf("the next host leaves %v", left)
			}
		})
	}
}

func TestOnlyWhatIsPinnedRuns(t *testing.T) {
	w := open(t, nil)
	w.install(sandbox.Restricted)
	program := filepath.Join(w.Folder("acme/hostile@1.0.0"), "hostile")
	b, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program+".new", append(b, 0), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(program+".new", program); err != nil {
		t.Fatal(err)
	}
	_, err = w.transform("")
	if pipeline.CodeOf(err) != pipeline.CodePluginLock || strings.Count(err.Error(), "sha256:") != 2 {
		t.Fatalf("%v", err)
	}
	lock, err := plugins.ReadLock(w.o.Lock)
	if err != nil {
		t.Fatal(err)
	}
	lock.Plugins = nil
	if err := lock.Write(w.o.Lock); err != nil {
		t.Fatal(err)
	}
	if _, err := w.transform(""); pipeline.CodeOf(err) != pipeline.CodeTransformUnknown {
		t.Fatalf("%v", err)
	}
}

func TestWrongConfigurationIsToldAtOnce(t *testing.T) {
	w := open(t, nil)
	w.install(sandbox.Restricted)
	if _, err := w.transform(`{"refuse":1}`); pipeline.CodeOf(err) != pipeline.CodeTransformConfig || !strings.Contains(err.Error(), "unknown key") {
		t.Fatalf("%v", err)
	}
}

func TestALevelThatCannotBeHadIsRefused(t *testing.T) {
	w := open(t, func(o *plugins.Options) { o.Most = sandbox.Restricted })
	if had, _ := w.Level(); had != sandbox.Restricted {
		t.Skip("level restricted cannot be had here")
	}
	w.install(sandbox.Isolated)
	if _, err := w.transform(""); pipeline.CodeOf(err) != pipeline.CodePluginSandbox || !strings.Contains(err.Error(), "it needs level isolated") {
		t.Fatalf("%v", err)
	}
}

func TestAStartThatFailsIsTriedAgainAfterItsBackOff(t *testing.T) {
	now := time.Now()
	tmp := shortTemp(t)
	w := open(t, func(o *plugins.Options) { o.Clock = func() time.Time { return now } })
	w.install(sandbox.Restricted)
	tr, err := w.transform("")
	if err != nil {
		t.Fatal(err)
	}
	rooms := roomsIn(t, tmp)
	if len(rooms) != 1 {
		t.Fatal(rooms)
	}
	startable := func(yes bool) { // the folder of the socket is made in the room of the host
		from, to := rooms[0], rooms[0]+"-away"
		if yes {
			from, to = to, from
		}
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	startable(false)
	for _, wait := range []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond} {
		if out := repair(t, tr, "exit"); code(&out[0]) != pipeline.CodePluginUnavailable && wait > 100*time.Millisecond || out[0].Failure == nil {
			t.Fatal(out[0].Failure)
		}
		if out := repair(t, tr, "fine"); code(&out[0]) != pipeline.CodePluginUnavailable {
			t.Fatal(out[0].Failure)
		}
		startable(true) // it would start now, but is not asked before its time
		now = now.Add(wait - time.Millisecond)
		if out := repair(t, tr, "fine"); code(&out[0]) != pipeline.CodePluginUnavailable {
			t.Fatalf("it was started before %s were over: %+v", wait, out[0])
		}
		startable(false)
		now = now.Add(time.Millisecond)
	}
	startable(true)
	now = now.Add(time.Minute)
	if out := repair(t, tr, "fine"); out[0].Failure != nil {
		t.Fatal(out[0].Failure)
	}
}

func TestBatchesAreOf64RecordsUnlessThePluginAsksForMore(t *testing.T) {
	w := open(t, nil)
	w.install(sandbox.Restricted)
	tr, err := w.transform("")
	if err != nil {
		t.Fatal(err)
	}
	values := make([]string, 150)
	for i := range values {
		values[i] = "lie: size"
	}
	for i, r := range repair(t, tr, values...) {
		want := "64"
		if i >= 128 {
			want = "22"
		}
		if string(r.Value) != want {
			t.Fatalf("record %d was in a batch of %q, not of %s: %+v", i, r.Value, want, r.Failure)
		}
	}
}
