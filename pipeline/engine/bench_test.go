package engine

import "testing"

// BenchmarkPartitionLoop is what the engine itself costs a healthy record: begin, one stage that only routes, compose, settle.
func BenchmarkPartitionLoop(b *testing.B) {
	const n = 1000
	h := newHealthy()
	b.ReportAllocs()
	for b.Loop() {
		h.batch(b, n)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/record")
}
