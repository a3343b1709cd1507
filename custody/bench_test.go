package custody_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/custody/custodytest"
	"reprieve.dev/ledger"
	"reprieve.dev/ledger/ledgertest"
)

// BenchmarkEvidence reports how many heap bytes the ledger keeps of an item beside its payload (PostgreSQL counts them
// exactly, row headers included; indexes and pages are not in it).
func BenchmarkEvidence(b *testing.B) {
	s := ledgertest.Postgres(b)
	e := custodytest.New(b, s)
	const n = 2000
	for b.Loop() {
		b.StopTimer()
		for i := int64(0); i < n; i += 500 {
			list := e.Arrivals(i, i+500)
			if _, err := e.Items.Admit(e.Ctx, custodytest.Worker, list); err != nil {
				b.Fatal(err)
			}
		}
		b.StartTimer()
		total := 0.0
		for _, table := range []string{"items", "dlq_message_custody_ledger", "custody_ledger_private", "attempts", "sightings"} {
			var bytes float64
			if err := s.SQL(b).QueryRow(fmt.Sprintf("SELECT coalesce(sum(pg_column_size(t.*)), 0) FROM %s t", table)).Scan(&bytes); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(bytes/n, strings.ReplaceAll(table, "_", "-")+"-B/item")
			total += bytes
		}
		b.ReportMetric(total/n, "B/item")
	}
}

// BenchmarkTriagePage is the page of groups over many items: it must not depend on how many there are.
func BenchmarkTriagePage(b *testing.B) {
	for _, store := range stores(b) {
		b.Run(store.name, func(b *testing.B) {
			e := custodytest.New(b, store.open(b))
			for i := int64(0); i < 20_000; i += 1000 {
				list := e.Arrivals(i, i+1000)
				for j := range list {
					list[j].Letter.Fingerprint = list[j].Letter.Fingerprint[:20] + list[j].Letter.Item[:0]
					list[j].Letter.Fingerprint += "x" + list[j].Letter.Item[1:3]
				}
				if _, err := e.Items.Admit(e.Ctx, custodytest.Worker, list); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				if g, err := e.Items.Groups(e.Ctx, custodytest.Operator, custody.GroupFilter{OnlyOpen: true}); err != nil || len(g) != 100 {
					b.Fatal(len(g), err)
				}
			}
		})
	}
}

// BenchmarkBareInsert writes the same rows as admission does, with nothing else: what admission is measured against.
func BenchmarkBareInsert(b *testing.B) {
	for _, store := range stores(b) {
		b.Run(store.name, func(b *testing.B) {
			from := custodytest.New(b, store.open(b))
			tables := []string{"items", "payloads", "dlq_message_custody_ledger", "custody_ledger_private"}
			to := custodytest.New(b, store.open(b))
			n := 0
			var spent time.Duration
			for b.Loop() {
				b.StopTimer()
				list := from.Arrivals(int64(n), int64(n+500))
				for i := range list {
					list[i].Letter.Value = append(list[i].Letter.Value, make([]byte, 1100)...)
				}
				if _, err := from.Items.Admit(from.Ctx, custodytest.Worker, list); err != nil {
					b.Fatal(err)
				}
				cols, rows := readRows(b, from, tables, n)
				n += 500
				b.StartTimer()
				start := time.Now()
				if err := to.DB.Write(to.Ctx, func(tx *ledger.Tx) error {
					for i, table := range tables {
						if err := tx.Insert(table, cols[i], rows[i]); err != nil {
							return err
						}
					}
					return nil
				}); err != nil {
					b.Fatal(err)
				}
				spent += time.Since(start)
			}
			b.ReportMetric(float64(n)/spent.Seconds(), "items/s")
		})
	}
}

// readRows reads the newest 500 items' rows of each table.
func readRows(b *testing.B, e *custodytest.Env, tables []string, after int) (cols [][]string, rows [][][]any) {
	order := map[string]string{"items": "id IN (SELECT item FROM dlq_message_custody_ledger WHERE seq > %d)", "payloads": "item IN (SELECT item FROM dlq_message_custody_ledger WHERE seq > %d)",
		"dlq_message_custody_ledger": "seq > %d", "custody_ledger_private": "seq > %d"}
	db := e.Store.SQL(b)
	for _, table := range tables {
		rs, err := db.Query("SELECT * FROM " + table + " WHERE " + fmt.Sprintf(order[table], 2*after))
		if err != nil {
			b.Fatal(err)
		}
		names, _ := rs.Columns()
		var all [][]any
		for rs.Next() {
			row := make([]any, len(names))
			dest := make([]any, len(names))
			for i := range row {
				dest[i] = &row[i]
			}
			if err := rs.Scan(dest...); err != nil {
				b.Fatal(err)
			}
			all = append(all, row)
		}
		rs.Close()
		cols, rows = append(cols, names), append(rows, all)
	}
	db.Close()
	return cols, rows
}
