package custody_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/custody/custodytest"
	"reprieve.dev/ledger"
	"reprieve.dev/ledger/ledgertest"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/seal"
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
			for j := range list { // names as long as those of a cluster and of a policy are
				list[j].Letter.Cluster, list[j].Letter.Decision.Policy = "MkU3OEVBNTcwNTJENDM2Qg", pipeline.Digest(seal.SHA256([]byte("policy")))
			}
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

// BenchmarkCustodian is the whole way of a letter: read from its topic, verified, taken into custody with its offsets, in batches of
// 500; beside it, turn by turn, a bare insert of the rows that each batch made into a ledger of the same kind.
func BenchmarkCustodian(b *testing.B) {
	for _, store := range stores(b) {
		b.Run(store.name, func(b *testing.B) {
			const batch, batches = 500, 4
			l := newLab(b, store.open(b))
			bare := custodytest.New(b, store.open(b))
			tables := []string{"items", "payloads", "dlq_message_custody_ledger", "custody_ledger_private"}
			k, src := l.custodian(l.Items, func(o *custody.CustodianOptions) { o.Review = time.Hour })
			defer src.Close()
			stop := run(k)
			n := int64(0)
			made := func() (parts [2][]pipeline.Record) {
				for range batches * batch {
					letter := l.Letter(n)
					letter.Value = append(letter.Value, make([]byte, 1100)...)
					letter.DigestFaithful = pipeline.Digest(l.Identity.Digest(letter.Value))
					letter.Item = deadletter.QuarantineID(l.Identity, letter.Identity, letter.Cluster, letter.Original, letter.Value)
					m := &pipeline.Message{Topic: dlq}
					if err := deadletter.Append(m, letter, deadletter.Profiles{}, l.Ring); err != nil {
						b.Fatal(err)
					}
					parts[n%2] = append(parts[n%2], pipeline.Record{TimeMS: l.Clock().UnixMilli(), TimeType: pipeline.TimeCreate, Key: m.Key, Value: m.Value, Headers: m.Headers})
					n++
				}
				return parts
			}
			put := func(parts [2][]pipeline.Record) {
				for p, recs := range parts {
					l.cl.Append(pipeline.TP{Topic: dlq, Partition: int32(p)}, recs...)
				}
			}
			put(made()) // the place of the week, prepared statements
			l.passed(k)
			var ours, theirs []float64
			for b.Loop() {
				parts := made()
				start := time.Now()
				put(parts)
				l.passed(k)
				ours = append(ours, batches*batch/time.Since(start).Seconds())
				var spent time.Duration
				for i := range batches {
					cols, rows := readRows(b, l.Env, tables, int(n)-(batches-i)*batch)
					start = time.Now()
					if err := bare.DB.Write(bare.Ctx, func(tx *ledger.Tx) error {
						if err := tx.PayloadWeek(ledger.Week(l.Clock().UnixMilli())); err != nil {
							return err
						}
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
				theirs = append(theirs, batches*batch/spent.Seconds())
			}
			if err := stop(); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(middle(ours), "items/s")
			b.ReportMetric(middle(theirs), "bare-items/s")
			b.ReportMetric(middle(ours)/middle(theirs), "ratio")
		})
	}
}

func middle(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// readRows reads the rows of the 500 items that were taken after so many, of each table.
func readRows(b *testing.B, e *custodytest.Env, tables []string, after int) (cols [][]string, rows [][][]any) {
	const half = "SELECT item FROM dlq_message_custody_ledger WHERE seq > %[1]d AND seq <= %[1]d + 1000"
	order := map[string]string{"items": "id IN (" + half + ")", "payloads": "item IN (" + half + ")",
		"dlq_message_custody_ledger": "seq > %[1]d AND seq <= %[1]d + 1000", "custody_ledger_private": "seq > %[1]d AND seq <= %[1]d + 1000"}
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
