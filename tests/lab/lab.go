// Package lab runs the billing example as its users do: the built program, its files in a folder, processes that are started,
// signalled and killed. Topics and groups have names of their own, so that several labs share one cluster.
package lab

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"reprieve.dev/embedded"
	"reprieve.dev/examples/billing"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/kafka"
	"reprieve.dev/seal"
)

var build struct {
	sync.Once
	path string
	err  error
}

// Binary is the program, built once for a test process.
func Binary(t testing.TB) string {
	t.Helper()
	build.Do(func() {
		dir, err := os.MkdirTemp("", "reprieve-lab")
		if err != nil {
			build.err = err
			return
		}
		build.path = filepath.Join(dir, "reprieve")
		cmd := exec.Command("go", "build", "-o", build.path, "reprieve.dev/cmd/reprieve")
		if out, err := cmd.CombinedOutput(); err != nil {
			build.err = fmt.Errorf("%w\n%s", err, out)
		}
	})
	if build.err != nil {
		t.Fatal(build.err)
	}
	return build.path
}

// Lab is the billing example in a folder, against one cluster.
type Lab struct {
	T         testing.TB
	Dir       string
	ID        string // prefix of every topic and group
	Bootstrap string
	Dead      string // bootstrap servers of the cluster of dead letters
	Registry  string
	Ledger    string // URL
	SchemaID  int32
	Cluster   kafka.Cluster
	Admin     *kafka.Admin
	Log       *kafka.Log
	Ring      *seal.Ring
	Codec     codec.Registry
}

// New writes the files, registers the schema and creates the topics. The registry is the embedded one.
func New(t testing.TB, bootstrap string) *Lab { return NewApart(t, bootstrap, bootstrap) }

// NewApart is New with the dead letters on another cluster.
func NewApart(t testing.TB, bootstrap, dead string) *Lab {
	t.Helper()
	id := make([]byte, 4)
	_, _ = rand.Read(id) // never fails
	l := &Lab{T: t, Dir: t.TempDir(), Ledger: "sqlite:reprieve.db", ID: "t" + hex.EncodeToString(id), Bootstrap: bootstrap, Dead: dead}
	reg, err := embedded.StartRegistry(embedded.RegistryConfig{Dir: filepath.Join(l.Dir, "registry")})
	l.check(err)
	t.Cleanup(func() { _ = reg.Close() })
	l.Registry = reg.URL()
	l.connect("main", bootstrap)
	cache, err := codec.NewRegistry(codec.RegistryConfig{Name: "main", URL: l.Registry}, time.Now)
	l.check(err)
	l.SchemaID, err = cache.Register(t.Context(), l.Topic(billing.Subject), billing.Schema(), "avro")
	l.check(err)
	l.Codec = cache
	l.writeFiles()
	l.Must("topics", "apply", "--partitions", "12")
	return l
}

func (l *Lab) connect(name, bootstrap string) {
	l.T.Helper()
	var err error
	l.Cluster = kafka.Cluster{Name: name, Properties: map[string]string{"bootstrap.servers": bootstrap}}
	l.Admin, err = kafka.NewAdmin(l.Cluster)
	l.check(err)
	l.T.Cleanup(l.Admin.Close)
	l.Log, err = kafka.NewLog(l.Cluster, nil)
	l.check(err)
	l.T.Cleanup(l.Log.Close)
}

// Letters is the lab as it looks at the cluster of dead letters: what it reads and asks is there.
func (l *Lab) Letters() *Lab {
	l.T.Helper()
	there := *l
	there.connect("dlq", l.Dead)
	return &there
}

func (l *Lab) check(err error) {
	l.T.Helper()
	if err != nil {
		l.T.Fatal(err)
	}
}

// Topic is the lab's name for a topic of the example.
func (l *Lab) Topic(name string) string { return strings.Replace(name, "billing.", l.ID+".", 1) }

// Prefix of the platform's own topics.
func (l *Lab) Prefix() string { return l.ID + ".reprieve" }

// Group is the lab's name for a consumer group of the example.
func (l *Lab) Group(name string) string { return l.ID + "." + name }

func (l *Lab) writeFiles() {
	l.check(os.MkdirAll(filepath.Join(l.Dir, "keys"), 0o700))
	for _, k := range []string{"hmac", "identity", "keeper"} {
		l.check(seal.WriteSecret(filepath.Join(l.Dir, "keys", k), 32))
	}
	approvers := "approvers:\n"
	for file, roles := range map[string]string{"operator": "[operator]", "finance": "[owner, approver]", "second": "[approver]", "platform": "[platform]", "privacy": "[privacy, owner]"} {
		s, err := seal.GenerateSigner(file + "@example.com")
		l.check(err)
		l.check(s.WriteFile(l.Key(file)))
		approvers += fmt.Sprintf("  - {subject: %s, public: %q, roles: %s}\n", s.Subject(), s.Verifier().Text(), roles)
	}
	l.check(fs.WalkDir(billing.Files(), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == "." {
			return err
		}
		if e.IsDir() {
			return os.MkdirAll(filepath.Join(l.Dir, path), 0o755)
		}
		text, err := fs.ReadFile(billing.Files(), path)
		if err != nil {
			return err
		}
		s := string(text)
		if strings.HasPrefix(path, "pipelines/") {
			s = strings.NewReplacer("billing.invoices", l.ID+".invoices", "billing.adjustments", l.ID+".adjustments", "billing.ledger", l.ID+".ledger",
				"billing.large", l.ID+".large", "group: ", "group: "+l.ID+".").Replace(s)
		}
		if path == "reprieve.yaml" {
			s += "topics: {prefix: " + l.Prefix() + "}\n" + approvers
		}
		return os.WriteFile(filepath.Join(l.Dir, path), []byte(s), 0o644)
	}))
	secret, err := os.ReadFile(filepath.Join(l.Dir, "keys", "hmac"))
	l.check(err)
	l.Ring, err = seal.NewRing([]seal.Key{{ID: "h1", Secret: bytes.TrimSpace(secret)}})
	l.check(err)
}

// Edit replaces text in one of the lab's files.
func (l *Lab) Edit(file, old, new string) {
	l.T.Helper()
	path := filepath.Join(l.Dir, file)
	text, err := os.ReadFile(path)
	l.check(err)
	if !strings.Contains(string(text), old) {
		l.T.Fatalf("%s has no %q", file, old)
	}
	l.check(os.WriteFile(path, []byte(strings.Replace(string(text), old, new, 1)), 0o644))
}

// Key is the credential file of operator, finance, second, platform or privacy.
func (l *Lab) Key(who string) string { return filepath.Join(l.Dir, "keys", who+".pem") }

func (l *Lab) environment() []string {
	return append(os.Environ(), "REPRIEVE_CONFIG="+filepath.Join(l.Dir, "reprieve.yaml"), "REPRIEVE_BOOTSTRAP="+l.Bootstrap,
		"REPRIEVE_DLQ_BOOTSTRAP="+l.Dead, "REPRIEVE_REGISTRY="+l.Registry, "REPRIEVE_HTTP=127.0.0.1:0", "REPRIEVE_LEDGER="+l.Ledger)
}

// Command is one call of the program in the lab's folder.
func (l *Lab) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, Binary(l.T), args...)
	cmd.Dir, cmd.Env = l.Dir, l.environment()
	return cmd
}

// Run calls the program and returns what it printed and its exit code.
func (l *Lab) Run(args ...string) (stdout, stderr string, code int) {
	l.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := l.Command(ctx, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		l.T.Fatalf("reprieve %s: %v", strings.Join(args, " "), err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// Must calls the program and fails the test unless it exits with 0.
func (l *Lab) Must(args ...string) string {
	l.T.Helper()
	out, errs, code := l.Run(args...)
	if code != 0 {
		l.T.Fatalf("reprieve %s: exit %d\n%s%s", strings.Join(args, " "), code, out, errs)
	}
	return out
}

// JSON calls the program with -o json and reads what it printed.
func (l *Lab) JSON(into any, args ...string) {
	l.T.Helper()
	out := l.Must(append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		l.T.Fatalf("reprieve %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// Triage triages what a selection has now, as the operator, and returns how many items that were: none is no failure.
func (l *Lab) Triage(selection, ticket string) int64 {
	l.T.Helper()
	out, errs, code := l.Run("quarantine", "triage", selection, "--ticket", ticket, "--yes", "--credential", l.Key("operator"), "-o", "json")
	var r struct{ Changed int64 }
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 && code != 4 {
		l.T.Fatalf("triage %s: exit %d, %v\n%s%s", selection, code, err, out, errs)
	}
	return r.Changed
}

// Worker is a running `reprieve run`.
type Worker struct {
	cmd  *exec.Cmd
	out  *os.File
	done chan struct{}
}

// Start starts `reprieve run`; its log goes to a file in the lab's folder.
func (l *Lab) Start(args ...string) *Worker {
	l.T.Helper()
	l.Must("ledger", "migrate")
	out, err := os.CreateTemp(l.Dir, "worker-*.log")
	l.check(err)
	cmd := l.Command(context.Background(), append([]string{"run"}, args...)...)
	cmd.Stdout, cmd.Stderr = out, out
	l.check(cmd.Start())
	w := &Worker{cmd: cmd, out: out, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		_ = cmd.Wait() // the state tells
	}()
	l.T.Cleanup(func() {
		w.Kill()
		if l.T.Failed() {
			text, _ := os.ReadFile(out.Name())
			if len(text) > 6000 {
				text = text[len(text)-6000:]
			}
			l.T.Logf("%s:\n%s", filepath.Base(out.Name()), text)
		}
	})
	return w
}

// PID is the process.
func (w *Worker) PID() int { return w.cmd.Process.Pid }

// Kill ends it as a power cut would, and waits until it is gone.
func (w *Worker) Kill() {
	_ = w.cmd.Process.Kill() // it may be gone already
	<-w.done
}

// Stop asks it to drain and returns its exit code.
func (w *Worker) Stop() int {
	for begun := time.Now(); !w.Exited() && w.Address() == "" && time.Since(begun) < time.Minute; {
		time.Sleep(10 * time.Millisecond) // polling: a process that has not begun to listen for signals dies of one
	}
	_ = w.cmd.Process.Signal(syscall.SIGTERM) // it may be gone already
	<-w.done
	return w.cmd.ProcessState.ExitCode()
}

// Reload sends SIGHUP.
func (w *Worker) Reload() {
	_ = w.cmd.Process.Signal(syscall.SIGHUP) // it may be gone already
}

// Log is what it logged so far.
func (w *Worker) Log() string {
	text, _ := os.ReadFile(w.out.Name()) // it was created by Start
	return string(text)
}

// Policies are the policy versions that a running worker shows of the pipeline billing; nothing while its port is not open.
func (l *Lab) Policies(w *Worker) (s pipeline.Status) {
	l.T.Helper()
	address := w.Address()
	if address == "" {
		return s
	}
	r, err := http.Get(address + "/v1/pipelines")
	if err != nil {
		return s
	}
	defer r.Body.Close()
	var all struct{ Pipelines []pipeline.Status }
	l.check(json.NewDecoder(r.Body).Decode(&all))
	for _, p := range all.Pipelines {
		if p.Name == "billing" {
			return p
		}
	}
	return s
}

var servingAt = regexp.MustCompile(`address=(https?://\S+)`)

// Address is the URL of its HTTP port; "" while it is not open.
func (w *Worker) Address() string {
	if at := servingAt.FindStringSubmatch(w.Log()); at != nil {
		return at[1]
	}
	return ""
}

// Exited tells whether it ended by itself.
func (w *Worker) Exited() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// Write produces messages and waits for all acknowledgements.
func (l *Lab) Write(msgs []pipeline.Message) {
	l.T.Helper()
	sink, err := kafka.NewSink(kafka.SinkConfig{Cluster: l.Cluster, ClientID: "lab"})
	l.check(err)
	defer func() { _ = sink.Close(context.Background()) }()
	for len(msgs) > 0 {
		n := min(5000, len(msgs))
		l.check(sink.Send(&pipeline.Sending{Msgs: msgs[:n]}))
		if done := <-sink.Done(); len(done.Bad) > 0 {
			l.T.Fatalf("refused: %s", done.Bad[0].Failure.Reason())
		}
		msgs = msgs[n:]
	}
}

// Each reads every record of a topic.
func (l *Lab) Each(topic string, f func(tp pipeline.TP, r *pipeline.Record)) {
	l.T.Helper()
	ranges, err := l.Admin.Offsets(l.T.Context(), topic)
	l.check(err)
	for p, r := range ranges {
		tp := pipeline.TP{Topic: topic, Partition: p}
		all := func(yield func(int64) bool) {
			for off := r.First; off < r.Next; off++ {
				if !yield(off) {
					return
				}
			}
		}
		l.check(l.Log.Read(l.T.Context(), tp, all, func(b *pipeline.Batch) error {
			defer b.Release()
			for i := range b.Recs {
				f(tp, &b.Recs[i])
			}
			return nil
		}))
	}
}

// Settled tells whether a group has committed to the end of every partition of the topics.
func (l *Lab) Settled(group string, topics ...string) bool {
	l.T.Helper()
	points, err := l.Admin.Checkpoints(l.T.Context(), group)
	if err != nil {
		return false
	}
	for _, topic := range topics {
		ends, err := l.Admin.EndOffsets(l.T.Context(), topic)
		l.check(err)
		for p, end := range ends {
			tp := pipeline.TP{Topic: topic, Partition: p}
			if from := points[tp].Next; from < end && l.holds(tp, from, end) {
				return false
			}
		}
	}
	return true
}

// holds tells whether a record stands at [from, end) of a partition: the marks of transactions are never read.
func (l *Lab) holds(tp pipeline.TP, from, end int64) (found bool) {
	l.T.Helper()
	l.check(l.Log.Read(l.T.Context(), tp, func(yield func(int64) bool) {
		for off := max(from, end-100); off < end && yield(off); off++ {
		}
	}, func(b *pipeline.Batch) error {
		defer b.Release()
		found = found || len(b.Recs) > 0
		return nil
	}))
	return found
}

// Until polls until done answers true, or fails the test after limit.
func (l *Lab) Until(limit time.Duration, what string, done func() bool) {
	l.T.Helper()
	deadline := time.Now().Add(limit)
	for !done() {
		if time.Now().After(deadline) {
			l.T.Fatalf("%s did not happen within %s", what, limit)
		}
		time.Sleep(100 * time.Millisecond) // between two looks at a broker or a ledger
	}
}
