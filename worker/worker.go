package worker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/engine"
)

// Role is a part of the work that a process does.
type Role string

// The roles. A process that does all of them needs no other.
const (
	RolePipelines Role = "pipelines"
	RoleCustodian Role = "custodian"
)

// Roles are all roles of this version.
func Roles() []Role { return []Role{RolePipelines, RoleCustodian} }

// Options are what a worker runs with.
type Options struct {
	Plan       *Plan
	Roles      []Role
	Host       string // stands in for the worker's name when its file has none
	InstanceID string // static membership of the consumer groups; "" is dynamic
	Limits     engine.Limits
	Clock      pipeline.Clock
	Log        *slog.Logger
	Meter      pipeline.Meter
}

// Worker runs the pipelines and the custodian of one process.
type Worker struct {
	o    Options
	keys Keys
	ctx  context.Context // of Run, for closing within it

	mu         sync.Mutex
	registries map[string]codec.Registry
	versions   map[string]*versions // of the policies, by pipeline; set once by Run
	status     map[string]*pipeline.Status
	draining   bool

	door   atomic.Pointer[door] // nil while nothing is taken
	alarms chan Alert           // of pipelines, told beside their work
}

// New prepares a worker. It starts nothing and opens nothing. Codes: ERR_KEY_UNKNOWN.
func New(o Options) (*Worker, error) {
	keys, err := NewKeys(o.Plan.Config.Keys)
	if err != nil {
		return nil, err
	}
	w := &Worker{o: o, keys: keys, registries: map[string]codec.Registry{}, status: map[string]*pipeline.Status{}, alarms: make(chan Alert, 64)}
	for _, pp := range o.Plan.Pipelines {
		w.status[pp.Config.Name] = &pipeline.Status{Name: pp.Config.Name, State: pipeline.StateStopped, Digest: pp.Digest}
	}
	return w, nil
}

// Pipelines tells how each pipeline is, sorted by name.
func (w *Worker) Pipelines() []pipeline.Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []pipeline.Status
	for _, s := range w.status {
		one := *s
		if v := w.versions[one.Name]; v != nil {
			one.Policy, one.Canary = v.status()
		}
		out = append(out, one)
	}
	slices.SortFunc(out, func(a, b pipeline.Status) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return out
}

// Draining tells whether Run is ending.
func (w *Worker) Draining() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.draining
}

// Run runs every pipeline and role until ctx ends, then drains them. A pipeline that ends with an error is started again, later
// and later; the others go on. When all of them need somebody to mend something first, Run returns the first reason; and at once when
// there is a custodian to run and the keeper that its files name cannot be opened.
func (w *Worker) Run(ctx context.Context) error {
	w.ctx = ctx
	if err := w.checkKeeper(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() {
		w.mu.Lock()
		w.draining = true
		w.mu.Unlock()
	})
	defer stop()
	var wg sync.WaitGroup
	var failed struct {
		sync.Mutex
		n   int
		err error
	}
	wg.Go(func() { w.deliver(ctx) })
	if slices.Contains(w.o.Roles, RolePipelines) {
		closing, err := w.openVersions(ctx)
		if err != nil {
			return err
		}
		defer closing()
		for _, pp := range w.o.Plan.Pipelines {
			wg.Go(func() {
				err := w.supervise(ctx, pp)
				if err == nil {
					return
				}
				failed.Lock()
				defer failed.Unlock()
				if failed.n++; failed.err == nil {
					failed.err = err
				}
				if failed.n == len(w.o.Plan.Pipelines) {
					cancel(failed.err)
				}
			})
		}
	}
	if slices.Contains(w.o.Roles, RoleCustodian) {
		wg.Go(func() { w.custodians(ctx) })
		wg.Go(func() { w.superviseIntake(ctx) })
		wg.Go(func() { w.superviseCare(ctx) })
		if w.o.Plan.Vaulted() {
			wg.Go(func() { w.superviseKeys(ctx) })
		}
	}
	wg.Wait()
	failed.Lock()
	defer failed.Unlock()
	return failed.err
}

// set changes the status of a pipeline.
func (w *Worker) set(name string, change func(*pipeline.Status)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(w.status[name])
}

// supervise runs one pipeline again and again until ctx ends. It returns an error only when trying again cannot help.
func (w *Worker) supervise(ctx context.Context, pp *PipelinePlan) error {
	name := pp.Config.Name
	backoff := time.Second
	for ctx.Err() == nil {
		if _, halted := w.versions[name].halted(); halted {
			w.stayHalted(ctx, w.versions[name], nil)
			continue
		}
		started := w.o.Clock()
		w.set(name, func(s *pipeline.Status) {
			*s = pipeline.Status{Name: name, State: pipeline.StateStarting, Digest: pp.Digest}
		})
		err := w.runOnce(ctx, pp)
		if err == nil || ctx.Err() != nil {
			if err != nil {
				w.o.Log.Warn("pipeline did not end cleanly", "pipeline", name, "code", pipeline.CodeOf(err), "cause", err.Error())
			}
			break
		}
		info := pipeline.Lookup(pipeline.CodeOf(err))
		if info.Code == pipeline.CodeErrorBudget {
			w.stayHalted(ctx, w.versions[name], err)
			continue
		}
		if info.Exit == pipeline.ExitInput {
			w.fail(name, pipeline.StateFailed, err)
			w.o.Log.Error("pipeline failed: somebody must mend it first", "pipeline", name, "code", info.Code, "cause", err.Error())
			return err
		}
		w.fail(name, pipeline.StateWaiting, err)
		if w.o.Clock().Sub(started) > time.Minute {
			backoff = time.Second // it ran well for a while
		}
		w.o.Log.Error("pipeline stopped and is started again", "pipeline", name, "code", pipeline.CodeOf(err), "cause", err.Error(), "in", backoff.String())
		_ = wait(ctx, backoff) // the loop looks at ctx itself
		backoff = min(2*backoff, 30*time.Second)
	}
	w.set(name, func(s *pipeline.Status) { s.State, s.Ready, s.Assigned = pipeline.StateStopped, false, 0 })
	return nil
}

func (w *Worker) fail(name, state string, err error) {
	w.set(name, func(s *pipeline.Status) {
		s.State, s.Ready, s.Assigned, s.Text = state, false, 0, err.Error()
		s.Code = pipeline.CodeOf(err)
		s.Remedy = pipeline.Lookup(s.Code).Remedy
	})
}

// runOnce builds a pipeline, runs it and closes everything it opened.
func (w *Worker) runOnce(ctx context.Context, pp *PipelinePlan) error {
	name := pp.Config.Name
	told := pipeline.Code("")
	parts, err := w.build(ctx, pp, func(h engine.Health) {
		if h.Code != told && pipeline.IsAlert(h.Code) {
			w.alarm(Alert{Code: h.Code, Detail: map[string]string{"pipeline": name, "place": h.Place}})
		}
		told = h.Code
		w.set(name, func(s *pipeline.Status) {
			s.State, s.Ready, s.Code, s.Place, s.Assigned = pipeline.StateRunning, h.Ready, h.Code, h.Place, h.Assigned
			s.Text, s.Remedy = "", ""
			if h.Code != "" {
				s.Text, s.Remedy = pipeline.Lookup(h.Code).Text, pipeline.Lookup(h.Code).Remedy
			}
		})
	})
	if err != nil {
		return err
	}
	defer parts.shut()
	w.o.Log.Info("pipeline starts", "pipeline", name, "digest", pp.Digest)
	run, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { w.versions[name].stopWhenHalted(run, cancel) })
	defer watching.Wait()
	defer cancel(nil)
	err = parts.engine.Run(run)
	if halt, ok := errors.AsType[*pipeline.Error](context.Cause(run)); ok && ctx.Err() == nil && err == nil {
		return halt
	}
	return err
}
