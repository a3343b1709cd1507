package worker

import (
	"context"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/engine"
	"reprieve.dev/redrive"
	"reprieve.dev/transforms"
)

// trial runs what a redrive would send through the stages of its pipeline, as `reprieve try` does. The stages are opened at the
// first record.
type trial struct {
	plan   *Plan
	pp     *PipelinePlan
	keys   Keys
	clock  pipeline.Clock
	lookup func(string) (codec.Registry, error)

	mu   sync.Mutex
	o    engine.Options
	eng  *engine.Trial
	shut pipeline.Close
}

// run says for each record by which code it would fail, or "". Codes: those of opening the stages.
func (t *trial) run(ctx context.Context, list []redrive.Trial) ([]pipeline.Code, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.eng == nil {
		env := pipeline.Env{Log: slog.New(slog.DiscardHandler), Meter: NewMeter(prometheus.NewRegistry()), Clock: t.clock}
		var err error
		if t.o, t.shut, err = t.pp.Assemble(context.WithoutCancel(ctx), t.plan, t.keys, env, t.lookup); err != nil {
			return nil, err
		}
		t.eng = engine.NewTrial(t.o)
	}
	out := make([]pipeline.Code, len(list))
	for from := 0; from < len(list); {
		to := from + 1
		for to < len(list) && list[to].Original.TP == list[from].Original.TP && list[to].Original.Offset > list[to-1].Original.Offset {
			to++
		}
		b := t.o.Pool.Get()
		b.TP, b.Lane, b.Recs = list[from].Original.TP, pipeline.Retry, b.Recs[:0]
		for i := from; i < to; i++ {
			x := &list[i]
			b.Recs = append(b.Recs, pipeline.Record{Offset: x.Original.Offset, TimeMS: x.Bytes.TimeMS, TimeType: x.Bytes.TimeType, Key: x.Bytes.Key, Value: x.Bytes.Value, Headers: x.Bytes.Headers,
				Trail: &pipeline.Trail{Item: x.Item, Original: x.Original, At: x.Original, OriginalMS: x.Bytes.TimeMS, TimeType: x.Bytes.TimeType, Identity: x.Identity}})
		}
		at := from
		if err := t.eng.Try(transforms.Twice(ctx), b, func(tried engine.Tried) error {
			if tried.Failure != nil {
				out[at] = tried.Failure.Code
			}
			at++
			return nil
		}); err != nil {
			return nil, err
		}
		from = to
	}
	return out, nil
}

func (t *trial) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.shut != nil {
		_ = t.shut() // the desk closes
		t.shut = nil
	}
}
