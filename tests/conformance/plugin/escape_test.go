package plugin

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/plugins"
	"reprieve.dev/plugins/sandbox"
	"reprieve.dev/transforms"
)

// escapes are ways out that an attacker comes to second: other doors of the kernel, what is left of limits and filters, the socket
// folder, the connection to the host, memory that no limit counts, handles and signals that a file or a socket gives.
var escapes = map[string]outcome{
	"x32": killed, "int80": killed, "vfork": killed, "adopt": killed, "outlive": blocked, "dumpable": blocked, "no-limits": blocked, "filter": blocked, "landlock": blocked,
	"openat2": blocked, "handle": killed, "userfault": killed, "io_uring": killed, "vmread": killed, "pidfd": killed, "keys": killed, "vsock": killed, "packet": killed,
	"seqpacket": killed, "datagram": killed, "terminal": blocked, "fifo": killed, "hardlink": killed, "rename": killed, "folder": blocked, "chmod": blocked,
	"upwards": blocked, "replaced": blocked, "descriptor": blocked, "reexec": blocked, "mem": blocked, "devices": blocked,
	"cgroup": blocked, "clockset": killed,

	"protect": killed, "stack-moves": blocked, "device": killed,
	"grows-down": blocked, "shared-copy": blocked, "shared-droppable": blocked, "pipes": blocked, "timers": blocked, "timerfds": blocked, "sparse": blocked,
	"pidfd-peer": killed, "sockfilter": killed, "sockfilter-high": killed, "parent": killed, "group": killed, "traced": killed, "neighbour": killed,
	"memfd": killed, "own-program": blocked, "standard": blocked, "inotify": blocked, "fanotify": killed, "dnotify": blocked, "lease": blocked, "setns": killed,
	"setsid": killed, "core-pattern": blocked, "sysrq": blocked, "realtime": blocked, "priority": blocked, "move-pages": blocked, "ioports": blocked,
	"bpf": killed, "perf": killed, "clone3": blocked, "pidfd-getfd": killed, "vmwrite": killed, "ring-enter": killed, "ring-register": killed, "advise-others": killed,
	"secret-memory": killed, "mount-anew": killed, "open-tree": killed, "compare": killed, "landlock-self": blocked, "filter-prctl": blocked, "gain-again": blocked,
	"keep": blocked, "ambient": blocked, "foster": blocked, "own-map": blocked, "speculate": blocked, "tagged": blocked, "wide-registers": blocked,
	"splice": blocked, "vmsplice": blocked, "tee": blocked, "many-messages": blocked, "shadow-stack": blocked, "list-mounts": blocked, "stat-mount": blocked,
	"modules": blocked, "statx": blocked, "chdir": blocked, "umask": blocked, "lock-memory": blocked, "tomorrow": blocked, "urgent": killed,
	"urgent-message": killed, "inherited": blocked, "sysfs": blocked, "kernel-log": blocked, "other-stack": blocked,

	"segments": blocked, "personality": blocked, "vhangup": blocked, "hostname": blocked, "quota": blocked, "reap": blocked,
}

func TestEveryEscapeIsBlockedOrEndsTheProcess(t *testing.T) {
	levels(t, func(t *testing.T, w *world) {
		tr, err := w.transform("")
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range escapes {
			t.Run(name, func(t *testing.T) { w.attacked(t, tr, name+": ", want) })
		}
		t.Run("rights", func(t *testing.T) { // a byte comes along with its files, which the protocol does not know
			w.attacked(t, tr, "rights: ", killed, late)
		})
		t.Run("names", func(t *testing.T) {
			want := blocked // its own folder is full
			if w.did.Level != sandbox.Isolated.String() {
				want = killed // the host looks after the folder
			}
			w.attacked(t, tr, "names: ", want)
		})
		t.Run("asks", func(t *testing.T) {
			want := through // it has a name of its own, which the kernel tells
			if w.did.Level != sandbox.Isolated.String() && !slices.ContainsFunc(w.did.Missing, func(m string) bool { return strings.Contains(m, "the host's name") }) {
				want = killed // the host tells it, and not for ever
			}
			w.attacked(t, tr, "asks: ", want)
		})
	})
}

// squatted tells whether somebody has that name in the abstract namespace of the host.
func squatted(t *testing.T, name string) bool {
	t.Helper()
	b, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(b), "@"+name+"\n")
}

// One address is a plugin's: that of its socket. At level isolated other names are in a namespace of its own.
func TestAPluginHoldsNoNameInTheAbstractNamespaceOfTheHost(t *testing.T) {
	levels(t, func(t *testing.T, w *world) {
		restricted := w.did.Level == sandbox.Restricted.String()
		if restricted && slices.ContainsFunc(w.did.Missing, func(m string) bool { return strings.Contains(m, "abstract namespace") }) {
			t.Skip("a declared weakness of this machine: ", w.did.Missing)
		}
		tr, err := w.transform("")
		if err != nil {
			t.Fatal(err)
		}
		want := through
		if restricted {
			want = blocked
		}
		w.attacked(t, tr, "abstract: reprieve-taken", want)
		w.attacked(t, tr, "another-name: ", want)
		if squatted(t, "reprieve-taken") {
			t.Error("it holds a name of the host")
		}
		for name, taken := range map[string]string{"squatter": "reprieve-squatted", "squatter-who-serves": "reprieve-squatted-too"} {
			t.Run(name, func(t *testing.T) {
				was := w.now(t)
				err := register(w, name)
				if c := pipeline.CodeOf(err); c != pipeline.CodePluginHandshake && (restricted || name == "squatter") {
					t.Errorf("%v", err)
				}
				if squatted(t, taken) {
					t.Error("it holds a name of the host")
				}
				w.back(t, was)
			})
		}
	})
}

// Empty parts are two bytes on the wire and a hundred in memory.
func TestAnAnswerOfEmptyPartsCostsTheHostNoMemory(t *testing.T) {
	w := open(t, nil)
	w.install(sandbox.Restricted)
	tr, err := w.transform("")
	if err != nil {
		t.Fatal(err)
	}
	repair(t, tr, "fine")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	out := repair(t, tr, "lie: empties")
	runtime.ReadMemStats(&after)
	if code(&out[0]) != pipeline.CodePluginAnswer || !strings.Contains(fmt.Sprint(out[0].Failure.Params), "too many parts") {
		t.Errorf("%+v", out[0].Failure)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 128<<20 { // 8 MB came; built they are 600
		t.Errorf("%d bytes were taken for it", n)
	}
}

// What a program can ask about where it is, is the same everywhere.
func TestAPluginSeesNeitherNameNorFolderOfTheHost(t *testing.T) {
	levels(t, func(t *testing.T, w *world) {
		if slices.ContainsFunc(w.did.Missing, func(m string) bool { return strings.Contains(m, "the host's name") }) {
			t.Skip("a declared weakness of this machine: ", w.did.Missing)
		}
		tr, err := w.transform("")
		if err != nil {
			t.Fatal(err)
		}
		if out := repair(t, tr, "where"); string(out[0].Value) != "plugin in /" {
			t.Errorf("%q %+v", out[0].Value, out[0].Failure)
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
				repair(t, tr, "fine")
				was := w.now(t)
				lines := len(w.log.String())
				out := repair(t, tr, verb, "after")
				if c := code(&out[0]); c != want && c != pipeline.CodePluginTimeout { // a slow machine may not see the end of a flood
					t.Errorf("code %q, want %q", c, want)
				}
				if out[1].Failure != nil {
					t.Errorf("another record paid for it: %+v", out[1].Failure)
				}
				repair(t, tr, "fine")
				w.back(t, was)
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
	if n := foundAfter(t, tr, "memory-of-calls"); n == 0 {
		t.Fatal("it was not found")
	}
}

// foundAfter is how many batches of one record a plugin was asked for until it was found to give two answers; 0: it never was. So many
// are asked that a draw of one in two does not miss it.
func foundAfter(t *testing.T, tr transforms.Transform, value string) int {
	t.Helper()
	for n := range 64 {
		if out := repair(t, tr, value); code(&out[0]) == pipeline.CodePluginNondeterministic {
			return n + 1
		}
	}
	return 0
}

// Who is honest wherever a second answer could be counted on beforehand is found all the same: which batches are asked again follows
// from nothing that a plugin sees (INV-PLUGIN-SAME).
func TestWhoLiesInEverySecondBatchIsFound(t *testing.T) {
	for _, verb := range []string{"random-if-even", "random-if-odd", "random-from-second"} {
		t.Run(verb, func(t *testing.T) {
			w := open(t, func(o *plugins.Options) { o.RepeatOneIn = 2 })
			w.install(sandbox.Restricted)
			tr, err := w.transform("")
			if err != nil {
				t.Fatal(err)
			}
			if n := foundAfter(t, tr, verb); n == 0 {
				t.Fatal("it was not found")
			}
		})
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
