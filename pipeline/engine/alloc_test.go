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

// healthy is one partition whose records only pass: begin, one stage that only routes, compose, settle.
type healthy struct {
	e    *Engine
	p    *part
	next int64
	pool *pipeline.Pool
	rec  pipeline.Record
	pol  pipeline.Policy
}

func newHealthy() *healthy {
	h := &healthy{pol: decide.Default(decide.Bounds{}, "in.retry", "in.dlq", decide.Backoff{}), rec: pipeline.Record{Key: []byte("k"),
		Value: make([]byte, 1200), Headers: []pipeline.Header{{Name: "trace", Value: []byte("1")}}}}
	layout := &pipeline.Layout{}
	h.pool = pipeline.NewPool(layout)
	h.e = New(Options{Pipeline: "p", Layout: layout, Pool: h.pool, Stages: []Stage{{Name: "out", Stage: toOut{}}}, Meter: counted{},
		Policy: func(pipeline.TP) pipeline.Policy { return h.pol }, Clock: time.Now, Source: noSource{}})
	h.p = newPart(pipeline.TP{Topic: "in"}, pipeline.Live, 1)
	h.p.settlement = deadletter.NewSettlement("p", h.p.tp, 1, pipeline.Checkpoint{Next: 0})
	return h
}

// batch takes n records from their arrival until they are settled.
func (h *healthy) batch(t testing.TB, n int) {
	b := h.pool.Get()
	b.TP, b.Policy = h.p.tp, h.pol
	for range n {
		h.rec.Offset = h.next
		b.Recs = append(b.Recs, h.rec)
		h.next++
	}
	h.p.window.Open(b.Recs[0].Offset, h.next-1, b.Len())
	h.e.working++
	h.p.working++
	w := h.e.slot.Of(b)
	w.reset(b, h.p)
	if err := h.e.process(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	if len(w.effects.Msgs) != n {
		t.Fatalf("%d messages", len(w.effects.Msgs))
	}
	h.e.sent(w)
}

// A healthy record costs no allocation of ours from the moment its batch arrives until it is settled.
func TestHealthyRecordsAllocateNothing(t *testing.T) {
	h := newHealthy()
	round := func() { h.batch(t, 500) }
	for range 10 {
		round()
	}
	if n := testing.AllocsPerRun(100, round); n > 0 && !raceEnabled {
		t.Errorf("%v allocations for 500 healthy records", n)
	}
	if h.p.window.Next() != h.next {
		t.Errorf("settled up to %d of %d", h.p.window.Next(), h.next)
	}
}
