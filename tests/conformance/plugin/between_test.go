package plugin

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/plugins"
	"reprieve.dev/plugins/sandbox"
	"reprieve.dev/transforms"
)

// What a plugin does beside its answers: between two calls, and over all its processes together.

// alone waits until no process of a plugin is left, and leaves the processor to it.
func alone(t *testing.T) {
	t.Helper()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for deadline := time.Now().Add(5 * time.Minute); len(children(t, os.Getpid())) > 0; <-look.C {
		if time.Now().After(deadline) {
			t.Fatal("the process runs on")
		}
	}
}

func TestWhoComputesWhenNobodyAsksIsEndedAndLeftAlone(t *testing.T) {
	w := open(t, func(o *plugins.Options) { now := time.Now(); o.Clock = func() time.Time { return now }; o.Failures = 5 })
	w.install(sandbox.Restricted)
	tr, err := w.transform("")
	if err != nil {
		t.Fatal(err)
	}
	if out := repair(t, tr, "computes-on"); out[0].Failure != nil {
		t.Fatal(out[0].Failure)
	}
	alone(t)
	repair(t, tr, "fine") // it is started again, and its end is counted
	if !strings.Contains(w.log.String(), "it computes when nobody asks it") {
		t.Error("nobody is told why it ended:", w.log)
	}
	if out := repair(t, tr, "fine"); code(&out[0]) != pipeline.CodePluginUnavailable {
		t.Error("it goes on as if nothing had been:", out[0].Failure)
	}
}

// Nobody waits for the answer of a process that ends between two calls, so it ends here from outside, at a moment that is surely one.
func TestWhoEndsBetweenTwoCallsIsLeftAlone(t *testing.T) {
	w := open(t, func(o *plugins.Options) { now := time.Now(); o.Clock = func() time.Time { return now }; o.Failures = 3 })
	w.install(sandbox.Restricted)
	tr, err := w.transform("")
	if err != nil {
		t.Fatal(err)
	}
	for killed := 0; killed < 3; {
		// A process whose end is seen only when it is asked costs the record that it is asked for, and counts as much.
		if out := repair(t, tr, "fine"); code(&out[0]) != "" && code(&out[0]) != pipeline.CodePluginCrashed {
			t.Fatal(killed, out[0].Failure)
		}
		for _, pid := range children(t, os.Getpid()) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			killed++
		}
		alone(t)
	}
	repair(t, tr, "fine") // the last end is counted now
	if out := repair(t, tr, "fine"); code(&out[0]) != pipeline.CodePluginUnavailable {
		t.Error("it is started again and again:", out[0].Failure)
	}
	if !strings.Contains(w.log.String(), "signal: killed") {
		t.Error("nobody is told how it ended")
	}
}

func TestWhoBeginsAgainWithNothingSaidFillsNoLog(t *testing.T) {
	w := open(t, func(o *plugins.Options) { now := time.Now(); o.Clock = func() time.Time { return now } })
	w.install(sandbox.Restricted)
	tr, err := w.transform("")
	if err != nil {
		t.Fatal(err)
	}
	before := len(w.log.String())
	for range 8 { // 900 KiB each
		if out := repair(t, tr, "says-much"); code(&out[0]) != pipeline.CodePluginCrashed {
			t.Fatal(out[0].Failure)
		}
	}
	if n := len(w.log.String()) - before; n > 3<<20 {
		t.Errorf("the log grew by %d bytes", n)
	}
	if n := strings.Count(w.log.String(), "more than is kept"); n != 1 {
		t.Errorf("%d times it is told that something is left out", n)
	}
}

// The stream by which a server of go-plugin tells what was printed is one without an end: empty messages count as well as large ones.
func TestAFloodBesideTheAnswersEndsTheProcess(t *testing.T) {
	for _, how := range []string{"empty", "large"} {
		t.Run(how, func(t *testing.T) {
			w := open(t, func(o *plugins.Options) { o.Call = 4 * time.Minute })
			w.install(sandbox.Restricted)
			tr, err := w.transform("")
			if err != nil {
				t.Fatal(err)
			}
			repair(t, tr, "fine")
			was := w.now(t)
			lines := len(w.log.String())
			out := repair(t, tr, "stdio: "+how, "after")
			if code(&out[0]) != pipeline.CodePluginCrashed || !strings.Contains(fmt.Sprint(out[0].Failure.Params), "it writes without end") {
				t.Errorf("%+v", out[0].Failure)
			}
			if out[1].Failure != nil {
				t.Errorf("another record paid for it: %+v", out[1].Failure)
			}
			if n := len(w.log.String()) - lines; n > 3<<20 {
				t.Errorf("the log grew by %d bytes", n)
			}
			w.back(t, was)
		})
	}
}

// A program that rests, or only does what its runtime does, is not taken for one that computes.
func TestWhoRestsIsLeftInPeace(t *testing.T) {
	w := open(t, func(o *plugins.Options) { o.Call = 4 * time.Minute })
	w.install(sandbox.Restricted)
	tr, err := w.transform("")
	if err != nil {
		t.Fatal(err)
	}
	var last []transforms.Result
	for range 3 {
		if last = repair(t, tr, "spends: 1500ms"); last[0].Failure != nil { // more in all than may be spent unasked
			t.Fatal(last[0].Failure)
		}
	}
	if strings.Contains(w.log.String(), "ended between two calls") {
		t.Error(w.log)
	}
}
