package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"reprieve.dev/config"
	"reprieve.dev/custody"
	"reprieve.dev/pipeline"
	"reprieve.dev/worker"
)

// reloading runs a worker, and on SIGHUP the one of the changed files: the old one drains, then the new one starts. Files with
// a problem change nothing. It is the lifecycle that the HTTP port shows.
type reloading struct {
	a    *app
	args []string // the pipeline files, as they were named
	o    worker.Options
	now  atomic.Pointer[worker.Worker]
}

// Pipelines tells how each pipeline of the present worker is.
func (r *reloading) Pipelines() []pipeline.Status { return r.now.Load().Pipelines() }

// Draining tells whether the present worker ends.
func (r *reloading) Draining() bool { return r.now.Load().Draining() }

// QuarantineAll hands records over to the present worker.
func (r *reloading) QuarantineAll(ctx context.Context, who custody.Actor, list []custody.Submission) ([]pipeline.ID, error) {
	return r.now.Load().QuarantineAll(ctx, who, list)
}

// Outcome gives the present worker what a registered writer has signed.
func (r *reloading) Outcome(ctx context.Context, who custody.Actor, value []byte) (pipeline.Outcome, error) {
	return r.now.Load().Outcome(ctx, who, value)
}

// SourceMoved tells the present worker that a source has moved on.
func (r *reloading) SourceMoved(ctx context.Context, who custody.Actor, id pipeline.ID) error {
	return r.now.Load().SourceMoved(ctx, who, id)
}

// run runs workers until ctx ends or one fails.
func (r *reloading) run(ctx context.Context) error {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	for {
		life, end := context.WithCancel(ctx)
		ended := make(chan error, 1)
		w := r.now.Load()
		go func() { ended <- w.Run(life) }()
		next, err := r.await(ctx, hangup, ended)
		end()
		if next == nil {
			return err
		}
		if err := <-ended; err != nil {
			r.o.Log.Warn("the old pipelines did not end cleanly; their records are read again", "cause", err.Error())
		}
		r.now.Store(next)
		r.o.Log.Info("the changed files are in force")
	}
}

// await returns the worker of changed files, or nil when the present one ended.
func (r *reloading) await(ctx context.Context, hangup <-chan os.Signal, ended <-chan error) (*worker.Worker, error) {
	for {
		select {
		case err := <-ended:
			return nil, err
		case <-ctx.Done():
			return nil, <-ended
		case <-hangup:
			if w := r.changed(); w != nil {
				return w, nil
			}
		}
	}
}

// changed reads the files again. Nil: they are as they were, or have a problem, and nothing changes.
func (r *reloading) changed() *worker.Worker {
	plan, err := r.a.load(r.args)
	if err != nil {
		logProblems(r.o.Log, err)
		return nil
	}
	if plan.Contents() == r.o.Plan.Contents() {
		r.o.Log.Info("reload: the files say what they said before")
		return nil
	}
	o := r.o
	o.Plan = plan
	w, err := worker.New(o)
	if err != nil {
		logProblems(r.o.Log, err)
		return nil
	}
	r.o = o
	return w
}

func logProblems(log *slog.Logger, err error) {
	if ps, ok := err.(config.Problems); ok {
		for _, p := range ps {
			log.Error("reload refused: nothing was changed", "problem", p.String())
		}
		return
	}
	log.Error("reload refused: nothing was changed", "code", pipeline.CodeOf(err), "cause", err.Error())
}
