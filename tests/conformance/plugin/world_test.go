package plugin

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/plugins"
	"reprieve.dev/plugins/sandbox"
	"reprieve.dev/transforms"
)

func init() {
	if len(os.Args) > 1 && os.Args[1] == sandbox.Verb {
		sandbox.Main()
	}
}

var hostile string // the program, built once

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "hostile-")
	if err != nil {
		panic(err)
	}
	if hostile = os.Getenv("REPRIEVE_TEST_HOSTILE"); hostile != "" { // built before, to test as a user who has no compiler
		os.Exit(m.Run())
	}
	hostile = filepath.Join(dir, "hostile")
	cmd := exec.Command("go", "build", "-o", hostile, "./hostile")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		panic(fmt.Sprintf("build: %v\n%s", err, out))
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// log keeps what a host wrote.
type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// world is a host with the hostile plugin installed.
type world struct {
	*plugins.Host
	t   *testing.T
	log *log
	o   plugins.Options
	did sandbox.Applied // at its installation
}

func open(t *testing.T, change func(*plugins.Options)) *world {
	t.Helper()
	dir := t.TempDir()
	l := &log{}
	o := plugins.Options{Dir: filepath.Join(dir, "plugins"), Lock: filepath.Join(dir, "plugins.lock"), Start: 20 * time.Second, Call: 30 * time.Second,
		RepeatOneIn: -1, Failures: 10_000, Clock: time.Now, Log: slog.New(slog.NewJSONHandler(l, nil))}
	if change != nil {
		change(&o)
	}
	before := runtime.NumGoroutine()
	h, err := plugins.Open(context.Background(), o)
	if err != nil {
		t.Skip("no sandbox level can be had here: " + err.Error())
	}
	w := &world{Host: h, t: t, log: l, o: o}
	t.Cleanup(func() {
		h.Close()
		for deadline := time.Now().Add(20 * time.Second); runtime.NumGoroutine() > before; runtime.Gosched() {
			if time.Now().After(deadline) {
				b := make([]byte, 1<<16)
				t.Errorf("%d goroutines at first, %d now\n%s", before, runtime.NumGoroutine(), b[:runtime.Stack(b, true)])
				return
			}
		}
	})
	return w
}

// folder is a plugin under the program name name.
func folder(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	text := "apiVersion: reprieve/v1\nname: acme/hostile\nversion: 1.0.0\ndoc: Misbehaves.\ndelivers: [transform, stage]\nartifacts:\n  - {os: linux, arch: " + runtime.GOARCH + ", path: " + name + "}\n"
	if err := os.WriteFile(filepath.Join(dir, plugins.DescriptorFile), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(hostile, filepath.Join(dir, name)); err != nil {
		b, err := os.ReadFile(hostile)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// install installs and pins the plugin at a level.
func (w *world) install(level sandbox.Level) {
	w.t.Helper()
	pkg, did, err := w.Install(context.Background(), folder(w.t, "hostile"))
	if err != nil {
		w.t.Fatal(err)
	}
	w.did = did
	lock, err := plugins.ReadLock(w.o.Lock)
	if err != nil {
		w.t.Fatal(err)
	}
	lock.Set(pkg.Pin(level))
	if err := lock.Write(w.o.Lock); err != nil {
		w.t.Fatal(err)
	}
}

// transform is the installed plugin as a repair has it.
func (w *world) transform(config string) (transforms.Transform, error) {
	w.t.Helper()
	lib := transforms.NewLibrary(transforms.Options{})
	kinds, err := w.Kinds(context.Background())
	if err != nil {
		return nil, err
	}
	for _, k := range kinds {
		if err := lib.Add(k); err != nil {
			return nil, err
		}
	}
	return lib.Parse("acme/hostile@1.0.0", []byte(config))
}

func envelopes(values ...string) []transforms.Envelope {
	out := make([]transforms.Envelope, len(values))
	for i, v := range values {
		out[i] = transforms.Envelope{Item: pipeline.ID(fmt.Sprintf("q%d", i)), Topic: "invoices", Record: pipeline.Record{Offset: int64(i), Key: []byte("k"), Value: []byte(v),
			Headers: []pipeline.Header{{Name: "h", Value: nil}, {Name: "h", Value: []byte{}}}}, Schema: "json"}
	}
	return out
}

// repair repairs records with these values.
func repair(t *testing.T, tr transforms.Transform, values ...string) []transforms.Result {
	t.Helper()
	out, err := tr.Repair(context.Background(), envelopes(values...))
	if err != nil {
		t.Fatal(err)
	}
	if len(out) != len(values) {
		t.Fatalf("%d results for %d records", len(out), len(values))
	}
	return out
}

// host is what a host has in use: its own log, which a test keeps in memory, is not counted.
type host struct {
	goroutines, files int
	heap              int64
}

func (w *world) now(t *testing.T) host {
	t.Helper()
	used := heap()
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	return host{runtime.NumGoroutine(), openFiles(t), used - int64(w.log.b.Cap())}
}

// back fails when the host does not come back to what it was: no goroutine and no open file more, no memory that is worth a name.
func (w *world) back(t *testing.T, was host) {
	t.Helper()
	now := w.now(t)
	for deadline := time.Now().Add(20 * time.Second); now.goroutines > was.goroutines || now.files > was.files || now.heap-was.heap > 4<<20; now = w.now(t) {
		if time.Now().After(deadline) {
			b := make([]byte, 1<<16)
			t.Errorf("the host was at %+v, and is at %+v\n%s", was, now, b[:runtime.Stack(b, now.goroutines > was.goroutines)])
			return
		}
	}
}

// outcome is what an attack came to.
type outcome string

const (
	killed  outcome = "killed"  // the process was ended: ERR_PLUGIN_CRASHED
	blocked outcome = "blocked" // the kernel refused: the plugin says so, ERR_TRANSFORM_FAILED
	late    outcome = "late"    // the process was ended at the limit of a call: ERR_PLUGIN_TIMEOUT
	through outcome = "through" // it got what it wanted
)

func outcomeOf(r *transforms.Result) outcome {
	switch c := code(r); {
	case c == pipeline.CodePluginCrashed:
		return killed
	case c == pipeline.CodeTransformFailed && strings.Contains(fmt.Sprint(r.Failure.Params), "blocked"):
		return blocked
	case c == pipeline.CodePluginTimeout:
		return late
	case c == "" && string(r.Value) == "THROUGH":
		return through
	default:
		return outcome(fmt.Sprintf("%s %q", c, r.Value))
	}
}

// attacked sends one attack with a harmless record behind it and holds the host to what must come of it: the outcome, the other record
// repaired, a process that works again, and the host as it was.
func (w *world) attacked(t *testing.T, tr transforms.Transform, attack string, want ...outcome) {
	t.Helper()
	repair(t, tr, "fine")
	was := w.now(t)
	out := repair(t, tr, attack, "after")
	if got := outcomeOf(&out[0]); !slices.Contains(want, got) {
		t.Errorf("it is %s, not %s", got, want)
	}
	if out[1].Failure != nil || string(out[1].Value) != "fixed" {
		t.Errorf("another record paid for it: %+v", out[1].Failure)
	}
	repair(t, tr, "fine")
	w.back(t, was)
}

func code(r *transforms.Result) pipeline.Code {
	if r.Failure == nil {
		return ""
	}
	return r.Failure.Code
}

// noCard fails when a card number is to be seen.
func noCard(t *testing.T, where, text string) {
	t.Helper()
	for _, card := range []string{"4111111111111111", "4111 1111 1111 1111", "5555555555554444"} {
		if strings.Contains(text, card) {
			t.Errorf("%s shows a card number", where)
		}
	}
}
