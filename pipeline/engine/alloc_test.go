package engine

import (
	"context"
	"testing"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/pipeline/decide"
)

type toOut struct{}

func (toOut) Process(_ context.Context, b *pipeline.Batch) error {
	for i := range b.Recs {
		b.Outs[i].To = pipeline.Target{Kind: pipeline.TargetTopic, Topic: "out", Partition: -1}
		b.Outs[i].Add = append(b.Outs[i].Add, pipeline.Header{Name: "region", Value: b.Recs[i].Key})
	}
	return nil
}

type counted struct{}

func (counted) Add(float64)                                                       {}
func (counted) Set(float64)                                                       {}
func (counted) Observe(float64)                                                   {}
func (counted) Counter(string, string, ...string) pipeline.Counter                { return counted{} }
func (counted) Gauge(string, string, ...string) pipeline.Gauge                    { return counted{} }
func (counted) Histogram(string, string, []float64, ...string) pipeline.Histogram { return counted{} }

type noSource struct{ pipeline.Source }

func (noSource) Resume(...pipeline.TP) error { return nil }
func (noSource) Pause(...pipeline.TP) error  { return nil }

// A healthy record costs no allocation of ours from the moment its batch arrives until it is settled.
func TestHealthyRecordsAllocateNothing(t *testing.T) {
	policy := decide.Default(decide.Bounds{}, "in.retry", "in.dlq", decide.Backoff{})
	layout := &pipeline.Layout{}
	pool := pipeline.NewPool(layout)
	e := New(Options{Pipeline: "p", Layout: layout, Pool: pool, Stages: []Stage{{Name: "out", Stage: toOut{}}}, Meter: counted{},
		Policy: func(pipeline.TP) pipeline.Policy { return policy }, Clock: time.Now, Source: noSource{}})
	p := newPart(pipeline.TP{Topic: "in"}, pipeline.Live, 1)
	p.settlement = deadletter.NewSettlement("p", p.tp, 1, 0)
	headers := []pipeline.Header{{Name: "trace", Value: []byte("1")}}
	key, value := []byte("k"), make([]byte, 1200)
	next := int64(0)
	round := func() {
		b := pool.Get()
		b.TP, b.Policy = p.tp, policy
		for range 500 {
			b.Recs = append(b.Recs, pipeline.Record{Offset: next, Key: key, Value: value, Headers: headers})
			next++
		}
		p.window.Open(b.Recs[0].Offset, next-1, b.Len())
		e.working++
		p.working++
		w := e.slot.Of(b)
		w.reset(b, p)
		if err := e.process(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		if len(w.effects.Msgs) != 500 {
			t.Fatalf("%d messages", len(w.effects.Msgs))
		}
		e.sent(w)
	}
	for range 10 {
		round()
	}
	if n := testing.AllocsPerRun(100, round); n > 0 && !raceEnabled {
		t.Errorf("%v allocations for 500 healthy records", n)
	}
	if p.window.Next() != next {
		t.Errorf("settled up to %d of %d", p.window.Next(), next)
	}
}
