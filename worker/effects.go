package worker

import (
	"context"
	"maps"
	"slices"
	"time"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/call"
	"reprieve.dev/pipeline/engine"
	"reprieve.dev/pipeline/expr"
	"reprieve.dev/pipeline/stage"
)

// Effect is one call that a pipeline makes, as check names it.
type Effect struct {
	Pipeline   string `json:"pipeline"`
	Name       string `json:"name"`
	Method     string `json:"method"`
	URL        string `json:"url"` // as the file spells it
	Idempotent bool   `json:"idempotent"`
	Key        string `json:"idempotency_key,omitempty"`
	Note       string `json:"note"` // what a call whose end is unknown leads to
}

// Effects are the calls that the pipeline makes, in the order of the file.
func (pp *PipelinePlan) Effects() (out []Effect) {
	for _, s := range pp.Stages {
		set, ok := s.Settings.(*stage.RouteSettings)
		if !ok {
			continue
		}
		for _, e := range set.Effects(s.Name) {
			one := Effect{Pipeline: pp.Config.Name, Name: e.Name, Method: e.HTTP.Method, URL: s.Node.At(e.Path + ".url").Shown(), Idempotent: e.HTTP.Idempotent, Key: e.HTTP.IdempotencyKey,
				Note: "a call whose end is unknown is repeated under the same key"}
			switch {
			case !one.Idempotent:
				one.Note = "NOT IDEMPOTENT: a call whose end is unknown is ambiguous: it is quarantined and never repeated before somebody knows; after a crash of the worker it may be made again"
			case pp.Config.Delivery == "exactly_once":
				one.Note = "effectively once: topics are written exactly once, a call may be repeated under the same key"
			}
			out = append(out, one)
		}
	}
	return out
}

// effects checks the calls of a pipeline beyond their form.
func (pp *PipelinePlan) effects() (ps config.Problems) {
	names := map[string]bool{}
	for _, s := range pp.Stages {
		set, ok := s.Settings.(*stage.RouteSettings)
		if !ok {
			continue
		}
		for _, e := range set.Effects(s.Name) {
			if names[e.Name] {
				ps = append(ps, s.Node.Problem(e.Path+".name", config.CodeValue, "two effects are called "+e.Name, "give one of them another name"))
			}
			names[e.Name] = true
			if e.HTTP.IdempotencyKey != "" {
				if _, err := expr.ValueOf(e.HTTP.IdempotencyKey); err != nil {
					ps = append(ps, expressionProblems(s.Node, e.Path+".idempotency_key", err)...)
				}
			}
			if pp.Config.Delivery == "exactly_once" && !e.HTTP.Idempotent {
				ps = append(ps, s.Node.Problem(e.Path, config.CodeUnsafe,
					"a call is no part of a Kafka transaction: when one is aborted its records are read again and the call is repeated, so delivery is effectively once, and only if the service knows a repeated call",
					"write idempotent: true and idempotency_key: 'view.invoice_id', or delivery: at_least_once"))
			}
			ps = append(ps, pp.certificates(e.HTTP.TLS, e.Path+".tls", s.Node)...)
		}
	}
	return ps
}

// certificates checks that the files of a TLS section can be read.
func (pp *PipelinePlan) certificates(tls config.TLS, path string, n config.Node) (ps config.Problems) {
	for _, f := range [][2]string{{"ca", tls.CA}, {"cert", tls.Cert}, {"key", tls.Key}} {
		if f[1] == "" {
			continue
		}
		if _, err := pp.readFile(f[1]); err != nil {
			text, remedy := err.Error(), ""
			if e, ok := err.(*pipeline.Error); ok {
				text, remedy = e.Place+": "+e.Text, e.Fix()
			}
			ps = append(ps, n.Problem(path+"."+f[0], config.CodeValue, text, remedy))
		}
	}
	return ps
}

// Calls are the effects that the built stages make, by name.
func Calls(stages []engine.Stage) map[string]call.Effect {
	out := map[string]call.Effect{}
	for _, s := range stages {
		if c, ok := s.Stage.(interface{ Calls() map[string]call.Effect }); ok {
			maps.Copy(out, c.Calls())
		}
	}
	return out
}

// longestLane is about how long the last message of a full lane waits: shorter than a drain and than a transaction may last.
const longestLane = 10 * time.Second

// calls opens the sink of effects, if there are any. Calls go on while the pipeline drains.
func (w *Worker) calls(ctx context.Context, ps *parts, o *engine.Options, c *config.Pipeline) {
	effects := Calls(o.Stages)
	if len(effects) == 0 {
		return
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	slowest := time.Second
	for _, name := range slices.Sorted(maps.Keys(effects)) {
		if t, ok := effects[name].Client.(interface{ Timeout() time.Duration }); ok {
			slowest = max(slowest, t.Timeout())
		}
	}
	sink := call.NewSink(ctx, call.SinkOptions{Effects: effects, Depth: int(min(max(longestLane/slowest, 4), 256))})
	ps.close = append(ps.close, func() {
		w.closeSink(c.Name+" effects", sink.Close)
		cancel()
	})
	o.Calls = sink
}
