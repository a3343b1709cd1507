package plugins

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"reprieve.dev/pipeline"
	"reprieve.dev/plugins/wire"
	"reprieve.dev/transforms"
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
	used   atomic.Int64 // order of use

	mu      sync.Mutex
	proc    *process
	witness *process // asked again to see whether the answer is the same
	batch   uint64
	closed  bool

	failures  int       // within the minute
	minute    time.Time // when it began
	wait      time.Duration
	notBefore time.Time // no start before: back-off
	startErr  error
}

func newRemote(h *Host, pkg *loaded, info transforms.Info, config []byte) *remote {
	info.Level = pkg.level.String()
	return &remote{h: h, pkg: pkg, info: info, config: config}
}

// Info implements transforms.Transform.
func (r *remote) Info() transforms.Info { return r.info }

// Repair implements transforms.Transform. What the plugin does wrong is the failure of a record, found here by halving; the
// error is only ctx's.
func (r *remote) Repair(ctx context.Context, in []transforms.Envelope) ([]transforms.Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used.Store(r.h.uses.Add(1))
	out := make([]transforms.Result, len(in))
	for i := range in {
		out[i] = transforms.Result{Key: in[i].Record.Key, Value: in[i].Record.Value, Headers: in[i].Record.Headers, Schema: in[i].Schema}
	}
	most := wire.BatchDefault
	if r.proc != nil && r.proc.about.MaxBatch > 0 {
		most = min(int(r.proc.about.MaxBatch), wire.BatchMost)
	}
	for from := 0; from < len(in); {
		size, to := 0, from
		for to < len(in) && to-from < most {
			if size += len(in[to].Record.Key) + len(in[to].Record.Value) + 512; size > callBytes && to > from {
				break
			}
			to++
		}
		if err := r.repair(ctx, in[from:to], out[from:to]); err != nil {
			return nil, err
		}
		from = to
	}
	return out, nil
}

// repair fills out for a batch, in halves when the plugin cannot stand it whole.
func (r *remote) repair(ctx context.Context, in []transforms.Envelope, out []transforms.Result) error {
	f := r.once(ctx, in, out)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if f == nil {
		return nil
	}
	switch halve := f.Code == pipeline.CodePluginCrashed || f.Code == pipeline.CodePluginTimeout || f.Code == pipeline.CodePluginAnswer; {
	case halve && len(in) > 1:
		half := len(in) / 2
		if err := r.repair(ctx, in[:half], out[:half]); err != nil {
			return err
		}
		return r.repair(ctx, in[half:], out[half:])
	}
	for i := range out {
		out[i] = transforms.Result{Key: in[i].Record.Key, Value: in[i].Record.Value, Headers: in[i].Record.Headers, Schema: in[i].Schema, Failure: f}
	}
	return nil
}

// once asks for one batch once. A failure is about all of it.
func (r *remote) once(ctx context.Context, in []transforms.Envelope, out []transforms.Result) *pipeline.Failure {
	if r.closed {
		return r.failure(pipeline.CodePluginRefused, "the host is closed", nil)
	}
	if why := r.h.stoppedVersion(r.info.Ref()); why != nil {
		return r.failure(pipeline.CodePluginRefused, "the version is stopped", why)
	}
	if r.tired() {
		return r.failure(pipeline.CodePluginRefused, "it failed too often within a minute", nil)
	}
	p, err := r.running(ctx, &r.proc)
	if err != nil {
		code := pipeline.CodeOf(err)
		if code == "" {
			code = pipeline.CodePluginHandshake
		}
		return r.failure(code, "it cannot be started", err)
	}
	r.batch++
	req, what := request(r.batch, in)
	if what != "" {
		return r.failure(pipeline.CodePluginRefused, what, nil)
	}
	reply, f := r.call(ctx, &r.proc, p, req)
	if f != nil {
		return f
	}
	if what := r.take(req, reply, in, out); what != "" {
		return r.failure(pipeline.CodePluginAnswer, what, nil)
	}
	if p.served += len(in); p.served >= recycleAfter {
		p.end()
		r.proc = nil
	}
	if n := r.h.o.RepeatOneIn; n == 1 || n > 1 && r.batch%uint64(n) == 1 {
		return r.repeat(ctx, req, reply)
	}
	return nil
}

// repeat asks a second process for the same batch. Another answer stops the version (INV-PLUGIN-SAME).
func (r *remote) repeat(ctx context.Context, req *wire.RepairRequest, first *wire.RepairReply) *pipeline.Failure {
	w, err := r.running(ctx, &r.witness)
	if err != nil {
		return r.failure(pipeline.CodePluginRefused, "it cannot be started a second time", err)
	}
	second, f := r.call(ctx, &r.witness, w, req)
	if f != nil {
		return f
	}
	if !proto.Equal(first, second) {
		e := pipeline.Errorf(pipeline.CodePluginNondeterministic, r.info.Ref(), "two processes gave two answers for one batch of %d records", len(req.Envelopes))
		r.h.stopVersion(r.info.Ref(), e)
		r.kill()
		return r.failure(pipeline.CodePluginNondeterministic, "two answers for one batch", e)
	}
	return nil
}

// running is the process in that place, started if there is none. A start that failed is not tried again before its back-off.
func (r *remote) running(ctx context.Context, at **process) (*process, error) {
	if p := *at; p != nil {
		if !p.gone() {
			return p, nil
		}
		p.end() // it ended between two calls: no record is to blame
		*at = nil
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
	a, err := p.client.Configure(ctx, &wire.ConfigureRequest{Config: r.config})
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

// blame counts a crash or a timeout; tired tells whether there were too many of them within the minute.
func (r *remote) blame(cost int) {
	if now := r.h.o.Clock(); now.Sub(r.minute) >= time.Minute {
		r.minute, r.failures = now, 0
	}
	r.failures += cost
}

func (r *remote) tired() bool {
	return r.failures >= r.h.o.Failures && r.h.o.Clock().Sub(r.minute) < time.Minute
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
	return &pipeline.Failure{Stage: "repair", Code: code, Params: []pipeline.Param{pipeline.Str("plugin", r.info.Ref()), pipeline.Str("what", what)}, Cause: cause}
}
