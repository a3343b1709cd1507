package custody_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
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

// BenchmarkMillion is the page of groups, the first page of a list, and the walk that finds what ends before its items do, over 1,000,000
// items in 1,000 groups. The bytes of every second one stand in its source alone, all were written in a schema, and the topics answer at
// once.
func BenchmarkMillion(b *testing.B) {
	for _, store := range stores(b) {
		b.Run(store.name, func(b *testing.B) {
			e := custodytest.New(b, store.open(b))
			const kinds, copies = 1000, 999
			list := e.Arrivals(0, kinds)
			for i := range list {
				list[i].Letter.Fingerprint = pipeline.ID(fmt.Sprintf("f1%026d", i))
				if i%2 == 0 {
					list[i].Letter.Faithful = deadletter.Source
				}
			}
			if _, err := e.Items.Admit(e.Ctx, custodytest.Worker, list); err != nil {
				b.Fatal(err)
			}
			multiply(b, e, copies)
			b.Run("groups", func(b *testing.B) {
				for b.Loop() {
					if g, err := e.Items.Groups(e.Ctx, custodytest.Operator, custody.GroupFilter{OnlyOpen: true}); err != nil || len(g) != 100 || g[0].Total() != copies+1 {
						b.Fatal(len(g), err)
					}
				}
			})
			b.Run("list", func(b *testing.B) {
				sel := selection(b, "state=DEAD_LETTERED class=payload")
				for b.Loop() {
					if f, err := e.Items.Find(e.Ctx, custodytest.Operator, sel, custody.Page{}); err != nil || len(f.Items) != 50 || f.Next == "" {
						b.Fatal(err)
					}
				}
			})
			b.Run("needs", func(b *testing.B) {
				items := e.Again(e.DB, func(o *custody.Options) {
					o.Source = func(string) (pipeline.Log, bool) { return kept{}, true }
					o.Schemas = func(context.Context, string, string) (bool, error) { return true, nil }
				})
				runtime.GC()
				peak := heapPeak(b, func() {
					for b.Loop() {
						if n, err := items.Needs(e.Ctx, custodytest.Operator, custody.Retention{}, ""); err != nil || len(n.Ends) != 1 || n.Ends[0].Items != kinds*(copies+1)/2 {
							b.Fatalf("%+v %v", n, err)
						}
					}
				})
				b.ReportMetric(peak, "heap-MiB")
			})
		})
	}
}

// kept is a cluster whose topics hold everything for 20 days.
type kept struct{ pipeline.Log }

func (kept) Info(_ context.Context, topic string) (pipeline.TopicInfo, error) {
	all := pipeline.Range{Next: 1 << 40}
	return pipeline.TopicInfo{Topic: topic, Partitions: map[int32]pipeline.Range{0: all, 1: all, 2: all}, RetentionMS: 20 * 24 * 3600 * 1000, KeepBytes: -1}, nil
}

// heapPeak is the most that f has on the heap, of what the collector sees every 10 ms, in MiB.
func heapPeak(b *testing.B, f func()) float64 {
	b.Helper()
	stop, peak := make(chan struct{}), make(chan uint64)
	go func() {
		var most uint64
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapAlloc)
			select {
			case <-stop:
				peak <- most
				return
			case <-tick.C:
			}
		}
	}()
	f()
	close(stop)
	return float64(<-peak) / (1 << 20)
}

// multiply makes so many copies of each item, with the counts that they would have.
func multiply(b *testing.B, e *custodytest.Env, copies int) {
	b.Helper()
	db := e.Store.SQL(b)
	rows, err := db.Query("SELECT * FROM items LIMIT 1")
	if err != nil {
		b.Fatal(err)
	}
	cols, err := rows.Columns()
	if err != nil {
		b.Fatal(err)
	}
	rows.Close()
	values := slices.Clone(cols)
	for i, c := range values {
		switch c {
		case "id":
			values[i] = "id || '-' || n"
		case "quarantined_ms", "source_offset", "letter_offset":
			values[i] = c + " + 1000 * n"
		}
	}
	series := fmt.Sprintf("(WITH RECURSIVE g(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM g WHERE n < %d) SELECT n FROM g) AS series", copies)
	for _, q := range []string{
		"INSERT INTO items (" + strings.Join(cols, ", ") + ") SELECT " + strings.Join(values, ", ") + " FROM items CROSS JOIN " + series,
		fmt.Sprintf("UPDATE group_rollup SET n = n * %d", copies+1), fmt.Sprintf("UPDATE age_rollup SET n = n * %d", copies+1), "ANALYZE",
	} {
		if _, err := db.Exec(q); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkVerify checks a ledger of 20,000 items, all of it.
func BenchmarkVerify(b *testing.B) {
	for _, store := range stores(b) {
		b.Run(store.name, func(b *testing.B) {
			e := custodytest.New(b, store.open(b))
			for i := int64(0); i < 20_000; i += 1000 {
				if _, err := e.Items.Admit(e.Ctx, custodytest.Worker, e.Arrivals(i, i+1000)); err != nil {
					b.Fatal(err)
				}
			}
			rows := int64(0)
			for b.Loop() {
				v, err := e.Items.Verify(e.Ctx, custodytest.Admin, nil, nil)
				if err != nil || !v.OK() {
					b.Fatal(v.Findings, err)
				}
				rows += v.HistoryRows
			}
			b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// BenchmarkCustodian is the whole way of a letter: read from its topic, verified, taken into custody with its offsets, in batches of
// 500; beside it, turn by turn, a bare insert of the rows that each batch made into a ledger of the same kind, in as many transactions:
// prepared statements of database/sql in SQLite, COPY in PostgreSQL. What was read leaves the topic between turns: a broker's memory is
// not the custodian's. The processor time of each, in us an item, counts also where the machine is busy.
func BenchmarkCustodian(b *testing.B) {
	for _, store := range stores(b) {
		b.Run(store.name, func(b *testing.B) {
			const batches = 8
			f := newFeed(b, store.open(b))
			bare := newBare(b, store.open(b))
			f.put(f.made(batches)) // the place of the week, prepared statements
			f.passed(f.k)
			var ours, theirs, ratios, ourCPU, theirCPU []float64
			for b.Loop() {
				f.forget()
				parts := f.made(batches)
				runtime.GC() // nobody pays for what the making of letters left behind
				start, cpu := time.Now(), processorTime(b)
				f.put(parts)
				f.passed(f.k)
				ours = append(ours, batches*feedBatch/time.Since(start).Seconds())
				ourCPU = append(ourCPU, (processorTime(b)-cpu).Seconds()*1e6/(batches*feedBatch))
				var spent, used time.Duration
				for i := range batches {
					cols, rows := readRows(b, f.Env, custodyTables, int(f.n)-(batches-i)*feedBatch)
					runtime.GC()
					start, cpu = time.Now(), processorTime(b)
					if err := bare.insert(cols, rows); err != nil {
						b.Fatal(err)
					}
					spent, used = spent+time.Since(start), used+processorTime(b)-cpu
				}
				theirs = append(theirs, batches*feedBatch/spent.Seconds())
				theirCPU = append(theirCPU, used.Seconds()*1e6/(batches*feedBatch))
				ratios = append(ratios, ours[len(ours)-1]/theirs[len(theirs)-1])
			}
			f.stop()
			b.ReportMetric(middle(ours), "items/s")
			b.ReportMetric(middle(theirs), "bare-items/s")
			b.ReportMetric(middle(ratios), "ratio")
			b.ReportMetric(middle(ourCPU), "cpu-us/item")
			b.ReportMetric(middle(theirCPU), "bare-cpu-us/item")
		})
	}
}

// bare writes rows as somebody would who has nothing to do but that.
type bare struct {
	*custodytest.Env
	db *sql.DB // of SQLite
}

func newBare(b *testing.B, s ledgertest.Store) *bare {
	x := &bare{Env: custodytest.New(b, s)}
	if s.Dialect == ledger.SQLite {
		db, err := sql.Open("sqlite3", "file:"+strings.TrimPrefix(s.URL, "sqlite:")+"?_journal_mode=WAL&_synchronous=FULL&_txlock=immediate&_cache_size=-65536&_busy_timeout=5000")
		if err != nil {
			b.Fatal(err)
		}
		db.SetMaxOpenConns(1)
		b.Cleanup(func() { db.Close() })
		x.db = db
	}
	return x
}

func (x *bare) insert(cols [][]string, rows [][][]any) error {
	if x.db == nil {
		return x.DB.Write(x.Ctx, func(tx *ledger.Tx) error {
			if err := tx.PayloadWeek(ledger.Week(x.Clock().UnixMilli())); err != nil {
				return err
			}
			for i, table := range custodyTables {
				if err := tx.Insert(table, cols[i], rows[i]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	tx, err := x.db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for i, table := range custodyTables {
		in, err := tx.Prepare("INSERT INTO " + table + " (" + strings.Join(cols[i], ", ") + ") VALUES (?" + strings.Repeat(", ?", len(cols[i])-1) + ")")
		if err != nil {
			return err
		}
		for _, r := range rows[i] {
			if _, err := in.Exec(r...); err != nil {
				return err
			}
		}
		in.Close()
	}
	return tx.Commit()
}

// processorTime is what this process has used so far, user and system.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkCustodianMemory reports the most memory that this process has had while 40,000 letters went into custody, the topic with the
// last 4,000 of them included.
func BenchmarkCustodianMemory(b *testing.B) {
	for _, store := range stores(b) {
		b.Run(store.name, func(b *testing.B) {
			for b.Loop() {
				f := newFeed(b, store.open(b))
				for f.n < 40_000 {
					f.put(f.made(8))
					f.passed(f.k)
					f.forget()
				}
				f.stop()
			}
			b.ReportMetric(peakMiB(b), "MiB")
		})
	}
}

// feedBatch is how many letters the custodian takes in one transaction.
const feedBatch = 500

// custodyTables are the tables that hold a row or more of each letter.
var custodyTables = []string{"items", "payloads", "dlq_message_custody_ledger", "custody_ledger_private"}

// feed is a custodian at work and a way to give it letters of 1.2 KiB.
type feed struct {
	*lab
	b    *testing.B
	k    *custody.Custodian
	n    int64
	stop func()
}

func newFeed(b *testing.B, s ledgertest.Store) *feed {
	f := &feed{lab: newLab(b, s), b: b}
	k, src := f.custodian(f.Items, func(o *custody.CustodianOptions) { o.Review, o.Batch = time.Hour, feedBatch })
	end := run(k)
	f.k, f.stop = k, func() {
		if err := end(); err != nil {
			b.Fatal(err)
		}
		src.Close()
	}
	return f
}

// made are the next letters, as the engine writes them, for two partitions.
func (f *feed) made(batches int) (parts [2][]pipeline.Record) {
	for range batches * feedBatch {
		letter := f.Letter(f.n)
		letter.Value = append(letter.Value, make([]byte, 1100)...)
		letter.DigestFaithful = pipeline.Digest(f.Identity.Digest(letter.Value))
		letter.Item = deadletter.QuarantineID(f.Identity, letter.Identity, letter.Cluster, letter.Original, letter.Value)
		m := &pipeline.Message{Topic: dlq}
		if err := deadletter.Append(m, letter, deadletter.Profiles{}, f.Ring); err != nil {
			f.b.Fatal(err)
		}
		parts[f.n%2] = append(parts[f.n%2], pipeline.Record{TimeMS: f.Clock().UnixMilli(), TimeType: pipeline.TimeCreate, Key: m.Key, Value: m.Value, Headers: m.Headers})
		f.n++
	}
	return parts
}

func (f *feed) put(parts [2][]pipeline.Record) {
	for p, recs := range parts {
		f.cl.Give(pipeline.TP{Topic: dlq, Partition: int32(p)}, recs)
	}
}

// forget lets go of what the topic held so far.
func (f *feed) forget() {
	for tp, end := range f.ends() {
		f.cl.Trim(tp, end)
	}
}

// peakMiB is the most memory that this process has had.
func peakMiB(b *testing.B) float64 {
	b.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var kib float64
		if _, err := fmt.Sscanf(line, "VmHWM: %f kB", &kib); err == nil {
			return kib / 1024
		}
	}
	b.Fatal("no VmHWM")
	return 0
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
