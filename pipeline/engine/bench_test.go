package engine

import (
	"testing"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/pipeline/decide"
)

// BenchmarkPartitionLoop is what the engine itself costs a healthy record: begin, one stage that only routes, compose, settle.
func BenchmarkPartitionLoop(b *testing.B) {
	const n = 1000
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
	b.ReportAllocs()
	for b.Loop() {
		batch := pool.Get()
		batch.TP, batch.Policy = p.tp, policy
		for range n {
			batch.Recs = append(batch.Recs, pipeline.Record{Offset: next, Key: key, Value: value, Headers: headers})
			next++
		}
		p.window.Open(batch.Recs[0].Offset, next-1, batch.Len())
		e.working++
		p.working++
		w := e.slot.Of(batch)
		w.reset(batch, p)
		if err := e.process(b.Context(), w); err != nil {
			b.Fatal(err)
		}
		e.sent(w)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/record")
}
