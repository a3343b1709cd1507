package plugin

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/plugins"
	"reprieve.dev/plugins/sandbox"
)

// escapes are ways out that an attacker comes to second: other doors of the kernel, what is left of limits and filters, the socket
// folder, the connection to the host.
var escapes = []string{"x32", "int80", "vfork", "adopt", "outlive", "dumpable", "no-limits", "filter", "landlock", "openat2", "handle", "userfault", "io_uring",
	"vmread", "pidfd", "keys", "vsock", "packet", "seqpacket", "datagram", "terminal", "fifo", "hardlink", "rename", "folder", "chmod", "upwards", "names", "replaced",
	"descriptor", "reexec", "rights", "mem", "devices", "cgroup", "clockset"}

func TestEveryEscapeIsBlockedOrEndsTheProcess(t *testing.T) {
	levels(t, func(t *testing.T, w *world) {
		tr, err := w.transform("")
		if err != nil {
			t.Fatal(err)
		}
		repair(t, tr, "fine")
		before := openFiles(t)
		for _, name := range escapes {
			t.Run(name, func(t *testing.T) {
				out := repair(t, tr, name+": ", "after")
				switch c := code(&out[0]); {
				case c == pipeline.CodePluginCrashed || c == pipeline.CodePluginTimeout:
				case c == pipeline.CodeTransformFailed && strings.Contains(fmt.Sprint(out[0].Failure.Params), "blocked"):
				default:
					t.Errorf("code %q, value %q", c, out[0].Value)
				}
				if out[1].Failure != nil || string(out[1].Value) != "fixed" {
					t.Errorf("another record paid for it: %+v", out[1].Failure)
				}
			})
		}
		repair(t, tr, "fine")
		if after := openFiles(t); after > before+2 {
			t.Errorf("%d open files at first, %d now", before, after)
		}
	})
}

func openFiles(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

func TestFloodsEndTheProcessAndCostTheHostNoMemory(t *testing.T) {
	levels(t, func(t *testing.T, w *world) {
		tr, err := w.transform("")
		if err != nil {
			t.Fatal(err)
		}
		for verb, want := range map[string]pipeline.Code{"stdout-flood": pipeline.CodePluginCrashed, "stderr-flood": pipeline.CodePluginCrashed, "huge": pipeline.CodePluginCrashed} {
			t.Run(verb, func(t *testing.T) {
				before := heap()
				lines := len(w.log.String())
				out := repair(t, tr, verb, "after")
				if c := code(&out[0]); c != want && c != pipeline.CodePluginTimeout { // a slow machine may not see the end of a flood
					t.Errorf("code %q, want %q", c, want)
				}
				if out[1].Failure != nil {
					t.Errorf("another record paid for it: %+v", out[1].Failure)
				}
				if grown := heap() - before; grown > 8<<20 {
					t.Errorf("the host grew by %d bytes", grown)
				}
				if n := len(w.log.String()) - lines; n > 3<<20 {
					t.Errorf("the log grew by %d bytes", n)
				}
			})
		}
		if out := repair(t, tr, "broker"); string(out[0].Value) != "0" {
			t.Errorf("the host opened %s streams to a broker that floods", out[0].Value)
		}
	})
}

func TestWhatDiffersByRunIsFoundAndStopsTheVersion(t *testing.T) {
	for _, verb := range []string{"clock", "random", "order"} {
		t.Run(verb, func(t *testing.T) {
			w := open(t, func(o *plugins.Options) { o.RepeatOneIn = 1 })
			w.install(sandbox.Restricted)
			tr, err := w.transform("")
			if err != nil {
				t.Fatal(err)
			}
			if out := repair(t, tr, verb); code(&out[0]) != pipeline.CodePluginNondeterministic {
				t.Fatalf("%+v", out[0])
			}
			if out := repair(t, tr, "fine"); code(&out[0]) != pipeline.CodePluginRefused {
				t.Fatal("the version is not stopped:", out[0].Failure)
			}
		})
	}
}

func TestAMemoryOfEarlierCallsIsFound(t *testing.T) {
	w := open(t, func(o *plugins.Options) { o.RepeatOneIn = 2 })
	w.install(sandbox.Restricted)
	tr, err := w.transform("")
	if err != nil {
		t.Fatal(err)
	}
	var got pipeline.Code
	for range 3 { // the second process sees the first and the third batch only
		out := repair(t, tr, "memory-of-calls")
		got = code(&out[0])
	}
	if got != pipeline.CodePluginNondeterministic {
		t.Fatal(got)
	}
}

func TestStopDoesNotWaitForAnAnswer(t *testing.T) {
	w := open(t, func(o *plugins.Options) { o.Call = time.Hour })
	w.install(sandbox.Restricted)
	tr, err := w.transform("")
	if err != nil {
		t.Fatal(err)
	}
	repair(t, tr, "fine")
	done := make(chan error, 1)
	asked := make(chan struct{})
	go func() {
		close(asked)
		_, err := tr.Repair(context.Background(), envelopes("hang"))
		done <- err
	}()
	<-asked
	t0 := time.Now()
	w.Close()
	if d := time.Since(t0); d > 20*time.Second {
		t.Errorf("stop took %s", d)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if left := children(t, os.Getpid()); len(left) != 0 {
		t.Errorf("processes left: %v", left)
	}
}

// The suite says which level it could test. A weaker one than isolated fails unless REPRIEVE_TEST_SANDBOX declares it.
func TestTheLevelOfThisMachineIsTheDeclaredOne(t *testing.T) {
	declared := sandbox.Isolated
	switch name := os.Getenv("REPRIEVE_TEST_SANDBOX"); name {
	case "":
	case "none":
		t.Skip("REPRIEVE_TEST_SANDBOX=none: this machine is declared to have no sandbox; nothing of the hostile suite was tested")
	default:
		var err error
		if declared, err = sandbox.ParseLevel(name); err != nil {
			t.Fatal(err)
		}
	}
	h, err := plugins.Open(context.Background(), plugins.Options{Clock: time.Now})
	if err != nil {
		t.Fatalf("no level can be had here, %s is expected: %v\nDeclare a weaker one with REPRIEVE_TEST_SANDBOX=restricted|process|none.", declared, err)
	}
	defer h.Close()
	had, why := h.Level()
	t.Logf("tested at level %s", had)
	if had < declared {
		t.Errorf("this machine has level %s, %s is expected: %v\nDeclare it with REPRIEVE_TEST_SANDBOX=%s.", had, declared, why, had)
	}
}
