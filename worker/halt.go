package worker

import (
	"context"
	"log/slog"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/control"
	"reprieve.dev/pipeline/engine"
	"reprieve.dev/seal"
)

// A pipeline that halted itself (its error budget was exceeded) stays halted, on every worker and over restarts, until a person
// resumes it: the halt is an entry of the control topic, and only a person's signature lifts it.

// gate lets a pipeline read only while it is not halted.
type gate struct {
	*versions
}

// Covers tells whether everything that stood on the topic at a moment is known, and the pipeline is not halted.
func (g gate) Covers(ms int64) bool {
	if !g.versions.Covers(ms) {
		return false
	}
	_, halted := g.halted()
	return !halted
}

// halted is the halt of the pipeline itself that is in effect.
func (v *versions) halted() (control.Entry, bool) {
	s, err := v.board.Snapshot()
	if err != nil {
		return control.Entry{}, false // cold: nothing is polled either
	}
	return s.Stopped(v.pp.Config.Name)
}

// errHalted is why a run of a pipeline ends: it was halted, here or by another worker.
func errHalted(e control.Entry) *pipeline.Error {
	code := pipeline.Code(e.HaltState().Code)
	if !pipeline.Known(code) {
		code = pipeline.CodeErrorBudget
	}
	return pipeline.Errorf(code, e.Pipeline, "halted by the worker %s: %s", e.By, e.HaltState().Reason)
}

// stopWhenHalted cancels a run when the pipeline is halted, until ctx ends.
func (v *versions) stopWhenHalted(ctx context.Context, cancel context.CancelCauseFunc) {
	for {
		changed := v.board.Changed()
		if e, halted := v.halted(); halted {
			cancel(errHalted(e))
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// haltEvery is how often a halt is written again that the control topic did not take.
const haltEvery = 2 * time.Second

// stayHalted writes the halt of a pipeline that halted itself, and waits until it is lifted or ctx ends. While the control topic
// cannot be written the pipeline stays halted here all the same.
func (w *Worker) stayHalted(ctx context.Context, v *versions, why error) {
	name := v.pp.Config.Name
	w.fail(name, pipeline.StateHalted, why)
	for why != nil && ctx.Err() == nil {
		if _, halted := v.halted(); halted {
			break // somebody wrote it already
		}
		err := v.board.Publish(ctx, control.ByRing(w.keys.Ring), control.NewStop(name, w.name(), string(pipeline.CodeOf(why)), why.Error()))
		if err == nil {
			break
		}
		w.o.Log.Error("the halt could not be written to the control topic; the pipeline is halted here", "pipeline", name, "code", pipeline.CodeOf(err), "cause", err.Error())
		_ = wait(ctx, haltEvery) // the loop looks at ctx itself
	}
	for ctx.Err() == nil {
		changed := v.board.Changed()
		e, halted := v.halted()
		if !halted {
			w.o.Log.Info("the pipeline was resumed", "pipeline", name)
			return
		}
		w.fail(name, pipeline.StateHalted, errHalted(e))
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// HaltedPipeline is one pipeline and whether it is halted.
type HaltedPipeline struct {
	Pipeline string        `json:"pipeline"`
	Halted   bool          `json:"halted"`
	Code     pipeline.Code `json:"code,omitempty"`
	Reason   string        `json:"reason,omitempty"`
	By       string        `json:"by,omitempty"`
	At       string        `json:"at,omitempty"`
}

// HaltDesk looks at the halt of one pipeline, and lifts it.
type HaltDesk struct {
	followed
	name string
}

// OpenHalt follows the control topic of the pipeline's source cluster. Codes: ERR_CONFIG_*, ERR_BROKER_*, ERR_CONTROL_NOT_READY.
func OpenHalt(ctx context.Context, plan *Plan, pipelineName string, keys Keys, clock pipeline.Clock, log *slog.Logger) (*HaltDesk, error) {
	f, err := follow(ctx, pipelineName, boardOptions{plan: plan, ring: keys.Ring, name: "halt", clock: clock, log: log})
	if err != nil {
		return nil, err
	}
	return &HaltDesk{followed: f, name: pipelineName}, nil
}

// State tells whether the pipeline is halted, and why. Codes: ERR_CONTROL_NOT_READY.
func (d *HaltDesk) State() (HaltedPipeline, error) {
	s, err := d.board.Snapshot()
	if err != nil {
		return HaltedPipeline{}, err
	}
	out := HaltedPipeline{Pipeline: d.name}
	if e, halted := s.Stopped(d.name); halted {
		h := e.HaltState()
		out = HaltedPipeline{d.name, true, pipeline.Code(h.Code), h.Reason, e.By, time.UnixMilli(e.AtMS).UTC().Format("2006-01-02T15:04:05.000Z")}
	}
	return out, nil
}

// Resume lifts the halt under a person's signature. False: the pipeline is not halted, and nothing was written. Codes:
// ERR_REASON_MISSING, ERR_CONTROL_NOT_READY, ERR_PERMISSION_DENIED.
func (d *HaltDesk) Resume(ctx context.Context, by *seal.Signer, reason string) (bool, error) {
	if reason == "" {
		return false, pipeline.Errorf(pipeline.CodeReasonMissing, d.name, "say why the pipeline may go on")
	}
	s, err := d.board.Snapshot()
	if err != nil {
		return false, err
	}
	e, halted := s.NewResume(d.name, by.Subject(), reason)
	if !halted {
		return false, nil
	}
	return true, d.board.Publish(ctx, by, e)
}

var _ engine.Control = gate{}
