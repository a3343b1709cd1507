package redrive

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"reprieve.dev/custody/custodytest"
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

// BenchmarkPlanMillion plans and stores a manifest of 1,000,000 items in PostgreSQL.
func BenchmarkPlanMillion(b *testing.B) {
	const n = 1_000_000
	w := newBench(b, ledgertest.Postgres(b))
	w.ready(1)
	multiply(b, w, n)
	req := w.request()
	if req.Count != n {
		b.Fatalf("%d items", req.Count)
	}
	runtime.GC()
	for b.Loop() {
		stop := memory(b)
		p, err := w.svc.Plan(w.Ctx, custodytest.Operator, req)
		b.ReportMetric(stop(), "MiB")
		if err != nil || p.Manifest.Selection.Count != n {
			b.Fatal(err)
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s")
}

// multiply makes n items of the only one, with identities, keys and positions of their own.
func multiply(b *testing.B, w *bench, n int) {
	b.Helper()
	db := w.Store.SQL(b)
	columns := func(table string, other map[string]string) string {
		var names, values []string
		rows, err := db.Query("SELECT column_name FROM information_schema.columns WHERE table_name = $1 AND table_schema = current_schema() ORDER BY ordinal_position", table)
		if err != nil {
			b.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var name string
			if err := rows.Scan(&name); err != nil {
				b.Fatal(err)
			}
			names = append(names, name)
			if v, ok := other[name]; ok {
				name = v
			}
			values = append(values, name)
		}
		return fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM %s t, generate_series(1, %d) AS g(k)", table, strings.Join(names, ", "), strings.Join(values, ", "), table, n-1)
	}
	id := "'q' || substr(md5(k::text), 1, 32)"
	for _, statement := range []string{
		columns("payloads", map[string]string{"item": id}),
		columns("items", map[string]string{"id": id, "source_offset": "k", "partition": "k % 3", "event_id": "'ev-' || k", "entity": "'acct-' || k % 100000"}),
		"ANALYZE",
	} {
		if _, err := db.Exec(statement); err != nil {
			b.Fatal(err)
		}
	}
}

// memory watches how much memory the process takes from now on; what it returns tells the most, in MiB.
func memory(b *testing.B) func() float64 {
	b.Helper()
	done, most := make(chan struct{}), make(chan uint64)
	go func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		var high uint64
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			high = max(high, m.Sys-m.HeapReleased)
			select {
			case <-tick.C:
			case <-done:
				most <- high
				return
			}
		}
	}()
	return func() float64 {
		close(done)
		return float64(<-most) / (1 << 20)
	}
}
