package plugins

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"reprieve.dev/pipeline"
	"reprieve.dev/plugins/wire"
	"reprieve.dev/seal"
	"reprieve.dev/transforms"
)

// Seed and time that every process is configured with: the same everywhere, for ever.
const (
	fixedClockMS = 1_000_000_000_000
	seedOf       = "reprieve/v1 seed"
)

const (
	recycleAfter = 20_000  // records of one process, whose CPU limit is for its life
	callBytes    = 3 << 20 // of one batch: below what gRPC servers take by default, unless one record is larger
	backoffFirst = 100 * time.Millisecond
	backoffMost  = 30 * time.Second
	timeoutCosts = 5 // crashes
)

// remote is one plugin with one configuration as a transform. One batch at a time; its process is started when there is none.
type remote struct {
	h      *Host
	pkg    *loaded
	info   transforms.Info
	config []byte
	stage  string       // whose failures they are
	used   atomic.Int64 // order of use

	mu      sync.Mutex
	proc    *process
	witness *process // asked again to see whether the answer is the same
	batch   uint64   // number of the last batch; the first one follows from nothing
	asked   bool     // a batch was answered
	words   string   // what the last process that crashed wrote last
	closed  bool

	failures  int       // within the window
	since     time.Time // when it began
	wait      time.Duration
	notBefore time.Time // no start before: back-off
	startErr  error
}

func newRemote(h *Host, pkg *loaded, info transforms.Info, config []byte) *remote {
	info.Level = pkg.level.String()
	return &remote{h: h, pkg: pkg, info: info, config: config, stage: "repair", batch: drawn() >> 16}
}

// drawn is a number that no plugin can know or tell in advance.
func drawn() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return binary.BigEndian.Uint64(b[:])
}

// watched tells whether this batch is asked for a second time: the first one that is answered, and of the others one in n. Which
// ones is drawn when the answer is there, so that no plugin can be honest only where it is watched.
func (r *remote) watched(n int) bool {
	first := !r.asked
	r.asked = true
	return n == 1 || n > 1 && (first || drawn()%uint64(n) == 0)
}

// Info implements transforms.Transform.
func (r *remote) Info() transforms.Info { return r.info }

// work is what one call to a plugin is about: entries that are sent in batches, in halves where a batch is not stood.
type work interface {
	len() int
	size(i int) int // bytes, about
	request(batch uint64, from, to int) (req proto.Message, what string)
	send(ctx context.Context, p *process, req proto.Message) (proto.Message, error)
	// take checks a reply and keeps it. What it returns says how the reply breaks the protocol.
	take(req, reply proto.Message, from, to int) (what string)
	fail(from, to int, f *pipeline.Failure)
}

// Repair implements transforms.Transform. What the plugin does wrong is the failure of a record, found here by halving; the
// error is only ctx's.
func (r *remote) Repair(ctx context.Context, in []transforms.Envelope) ([]transforms.Result, error) {
	out := make([]transforms.Result, len(in))
	w := &repairs{r: r}
	at := w.readable(r.pkg.Descriptor.Reads, in, out)
	w.out = make([]transforms.Result, len(at))
	if err := r.do(ctx, w); err != nil {
		return nil, err
	}
	for k, i := range at {
		out[i] = w.out[k]
	}
	return out, nil
}

// do asks for all of w. The error is only ctx's.
func (r *remote) do(ctx context.Context, w work) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used.Store(r.h.uses.Add(1))
	most := wire.BatchDefault
	if r.proc != nil && r.proc.about.MaxBatch > 0 {
		most = min(int(r.proc.about.MaxBatch), wire.BatchMost)
	}
	for from := 0; from < w.len(); {
		size, to := 0, from
		for to < w.len() && to-from < most {
			if size += w.size(to) + 512; size > callBytes && to > from {
				break
			}
			to++
		}
		if err := r.part(ctx, w, from, to); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// part asks for some entries, in halves when the plugin cannot stand them whole.
func (r *remote) part(ctx context.Context, w work, from, to int) error {
	f := r.once(ctx, w, from, to)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case f == nil:
		return nil
	case to-from > 1 && (f.Code == pipeline.CodePluginCrashed || f.Code == pipeline.CodePluginTimeout || f.Code == pipeline.CodePluginAnswer):
		half := from + (to-from)/2
		if err := r.part(ctx, w, from, half); err != nil {
			return err
		}
		return r.part(ctx, w, half, to)
	}
	w.fail(from, to, f)
	return nil
}

// once asks for one batch once. A failure is about all of it.
func (r *remote) once(ctx context.Context, w work, from, to int) *pipeline.Failure {
	if r.closed || r.h.isClosing() {
		return r.failure(pipeline.CodePluginUnavailable, "the host is closed", nil)
	}
	if why := r.h.stoppedVersion(r.info.Ref()); why != nil {
		return r.failure(pipeline.CodePluginRefused, "the version is stopped", why)
	}
	if r.tired() {
		return r.failure(pipeline.CodePluginUnavailable, "it failed too often", nil)
	}
	p, err := r.running(ctx, &r.proc)
	if err != nil {
		return r.failure(pipeline.CodePluginUnavailable, "it cannot be started: "+string(orCode(err)), err)
	}
	r.batch++
	req, what := w.request(r.batch, from, to)
	if what != "" {
		return r.failure(pipeline.CodePluginRefused, what, nil)
	}
	reply, f := r.call(ctx, &r.proc, p, w, req, to-from)
	if f != nil {
		return f
	}
	if what := w.take(req, reply, from, to); what != "" {
		if to-from == 1 { // the record is found
			r.blame(1)
		}
		return r.failure(pipeline.CodePluginAnswer, what, nil)
	}
	if p.served += to - from; p.served >= recycleAfter {
		p.end()
		r.proc = nil
	}
	if r.watched(r.h.o.RepeatOneIn) || transforms.EachTwice(ctx) {
		return r.repeat(ctx, w, req, reply, to-from)
	}
	return nil
}

func orCode(err error) pipeline.Code {
	if code := pipeline.CodeOf(err); code != "" {
		return code
	}
	return pipeline.CodePluginHandshake
}

// repeat asks a second process for the same batch. Another answer stops the version (INV-PLUGIN-SAME).
func (r *remote) repeat(ctx context.Context, w work, req, first proto.Message, n int) *pipeline.Failure {
	p, err := r.running(ctx, &r.witness)
	if err != nil {
		return r.failure(pipeline.CodePluginUnavailable, "it cannot be started a second time: "+string(orCode(err)), err)
	}
	second, f := r.call(ctx, &r.witness, p, w, req, n)
	if f != nil {
		return f
	}
	if p.served += n; p.served >= recycleAfter {
		p.end()
		r.witness = nil
	}
	if !proto.Equal(first, second) {
		e := pipeline.Errorf(pipeline.CodePluginNondeterministic, r.info.Ref(), "two processes gave two answers for one batch of %d records", n)
		r.h.stopVersion(r.info.Ref(), e)
		r.kill()
		return r.failure(pipeline.CodePluginNondeterministic, "two answers for one batch", e)
	}
	return nil
}

// running is the process in that place, started if there is none. A start that failed is not tried again before its back-off.
func (r *remote) running(ctx context.Context, at **process) (*process, error) {
	if p := *at; p != nil {
		if !p.gone() && !p.runner.wasEnded() {
			return p, nil
		}
		r.blame(p.costs()) // it ended between two calls: no record is to blame, but the version is
		exit, last := p.runner.exit(), p.runner.diary.last()
		p.end()
		*at = nil
		r.h.log.Warn("plugin ended between two calls", "plugin", r.info.Ref(), "exit", exit, "last", last)
	}
	now := r.h.o.Clock()
	if now.Before(r.notBefore) {
		return nil, r.startErr
	}
	p, err := r.h.start(ctx, r.pkg)
	if err == nil {
		err = r.configure(ctx, p)
	}
	if err != nil {
		if ctx.Err() == nil {
			r.wait = min(max(2*r.wait, backoffFirst), backoffMost)
			r.notBefore, r.startErr = now.Add(r.wait), err
			r.h.log.Warn("plugin does not start", "plugin", r.info.Ref(), "error", err, "again_in", r.wait)
		}
		return nil, err
	}
	r.wait, r.startErr = 0, nil
	did := p.runner.running.Applied
	r.h.log.Info("plugin started", "plugin", r.info.Ref(), "digest", r.info.Artifact, "level", did.Level, "landlock", did.Landlock, "seccomp", did.Seccomp,
		"uid", did.UID, "pid", p.runner.running.PID, "limits", did.Limits, "missing", did.Missing)
	*at = p
	return p, nil
}

func (r *remote) configure(ctx context.Context, p *process) error {
	ctx, cancel := context.WithTimeout(ctx, r.h.o.Start)
	defer cancel()
	a, err := p.client.Configure(ctx, r.settings())
	if err == nil && a.Problem == "" {
		return nil
	}
	clean := p.runner.diary.clean
	p.end()
	if err != nil {
		return pipeline.Errorf(pipeline.CodePluginHandshake, p.ref, "it did not take its configuration: %s", clean(err.Error()))
	}
	return pipeline.Errorf(pipeline.CodeTransformConfig, p.ref, "%s", clean(a.Problem))
}

// settings are what a process is configured with. The seed follows from what the transform is.
func (r *remote) settings() *wire.ConfigureRequest {
	sum := sha256.Sum256(seal.LP([]byte(seedOf), []byte(r.info.Ref()), []byte(r.info.Config)))
	return &wire.ConfigureRequest{Config: r.config, Seed: binary.BigEndian.Uint64(sum[:]), ClockMs: fixedClockMS}
}

// try starts the process and configures it.
func (r *remote) try(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used.Store(r.h.uses.Add(1))
	if why := r.h.stoppedVersion(r.info.Ref()); why != nil {
		return why
	}
	_, err := r.running(ctx, &r.proc)
	return err
}

// blame counts a crash or a timeout; tired tells whether there were too many of them within the window: a minute, and longer
// where calls may take long, or timeouts alone would never be too many.
func (r *remote) blame(cost int) {
	if now := r.h.o.Clock(); now.Sub(r.since) >= r.window() {
		r.since, r.failures = now, 0
	}
	r.failures += cost
}

func (r *remote) tired() bool {
	return r.failures >= r.h.o.Failures && r.h.o.Clock().Sub(r.since) < r.window()
}

// costs is what the end of a process counts as.
func (p *process) costs() int {
	if p.runner.wasEnded() {
		return timeoutCosts
	}
	return 1
}

func (r *remote) window() time.Duration { return time.Minute + 20*r.h.o.Call }

// resting tells whether the next batch would be refused without a call: the circuit is open, or a start failed a moment ago.
func (r *remote) resting() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tired() || r.h.o.Clock().Before(r.notBefore)
}

// peak is the most memory of the process, as text; "-" if there is none.
func (r *remote) peak() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.proc == nil {
		return "-"
	}
	return or(r.proc.runner.running.Peak(), "-")
}

func (r *remote) kill() {
	for _, at := range []**process{&r.proc, &r.witness} {
		if *at != nil {
			(*at).end()
			*at = nil
		}
	}
}

// rest ends the processes; the next batch starts them again.
func (r *remote) rest() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kill()
}

// stop ends the processes for good.
func (r *remote) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.kill()
}

func (r *remote) failure(code pipeline.Code, what string, cause error) *pipeline.Failure {
	return &pipeline.Failure{Stage: r.stage, Code: code, Params: []pipeline.Param{pipeline.Str("plugin", r.info.Ref()), pipeline.Str("what", what)}, Cause: cause}
}
