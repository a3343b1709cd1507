package redrive

import (
	"testing"
	"time"

	"reprieve.dev/ledger/ledgertest"
)

// BenchmarkRun sends 8,000 items from the ledger to a scripted topic, at a rate that does not bound it, until every one is reconciled.
func BenchmarkRun(b *testing.B) {
	for name, open := range map[string]func(testing.TB) ledgertest.Store{"SQLite": ledgertest.SQLite, "PostgreSQL": ledgertest.Postgres} {
		b.Run(name, func(b *testing.B) {
			n := int64(0)
			var spent time.Duration
			for b.Loop() {
				b.StopTimer()
				w := newBench(b, open(b), func(o *Options) { o.Bound = 1_000_000 })
				w.target.Ceiling = 1_000_000
				for from := int64(0); from < 8000; from += 2000 {
					w.Triage(b, w.Admit(b, from, from+2000)...)
				}
				w.Confirm(b, 0, 8000)
				p := w.plan()
				w.approve(p)
				b.StartTimer()
				at := time.Now()
				st := w.run(p)
				spent += time.Since(at)
				if st.State != StateDone {
					b.Fatalf("%s %+v", st.State, st.Counts)
				}
				n += 8000
			}
			b.ReportMetric(float64(n)/spent.Seconds(), "items/s")
		})
	}
}
