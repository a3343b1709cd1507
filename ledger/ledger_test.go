package ledger_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"reprieve.dev/ledger"
	"reprieve.dev/ledger/ledgertest"
	"reprieve.dev/pipeline"
)

func TestOpenIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		url  string
		code pipeline.Code
	}{
		"an unknown scheme":     {"mysql://x", pipeline.CodeConfigValue},
		"memory":                {"sqlite::memory:", pipeline.CodeConfigValue},
		"no folder":             {"sqlite:/nowhere/at/all/x.db", pipeline.CodeLedgerUnavailable},
		"no server":             {"postgres://nobody@127.0.0.1:1/none?sslmode=disable", pipeline.CodeLedgerUnavailable},
		"a URL with a bad port": {"postgres://u:secret@127.0.0.1:port/none", pipeline.CodeConfigValue},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ledger.Open(context.Background(), c.url, ledger.Options{Clock: time.Now})
			if pipeline.CodeOf(err) != c.code {
				t.Fatalf("got %v, want %s", err, c.code)
			}
		})
	}
}

// eachEmpty is ledgertest.Each with nothing in the stores.
func eachEmpty(t *testing.T, f func(t *testing.T, s ledgertest.Store)) {
	t.Run("sqlite", func(t *testing.T) { f(t, ledgertest.SQLite(t)) })
	t.Run("postgres", func(t *testing.T) { f(t, ledgertest.EmptyPostgres(t)) })
}

func TestManyProcessesMigrateAtOnce(t *testing.T) {
	eachEmpty(t, func(t *testing.T, s ledgertest.Store) {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				db, err := ledger.Open(context.Background(), s.URL, ledger.Options{Clock: time.Now})
				if err != nil {
					t.Error(err)
					return
				}
				defer db.Close()
				have, need, err := db.Version(context.Background())
				if err != nil || have != need {
					t.Errorf("version %d of %d, %v", have, need, err)
				}
			})
		}
		wg.Wait()
	})
}

func TestNewerLedgerIsRefused(t *testing.T) {
	ledgertest.Each(t, func(t *testing.T, s ledgertest.Store) {
		s.Open(t, ledger.Options{})
		if _, err := s.SQL(t).Exec("INSERT INTO ledger_version (version_id, is_applied) VALUES (9999, true)"); err != nil {
			t.Fatal(err)
		}
		_, err := ledger.Open(context.Background(), s.URL, ledger.Options{Clock: time.Now})
		if pipeline.CodeOf(err) != pipeline.CodeLedgerVersion {
			t.Fatal(err)
		}
	})
}

func TestOldLedgerIsKeptWhenAsked(t *testing.T) {
	eachEmpty(t, func(t *testing.T, s ledgertest.Store) {
		_, err := ledger.Open(context.Background(), s.URL, ledger.Options{Clock: time.Now, KeepVersion: true})
		if pipeline.CodeOf(err) != pipeline.CodeLedgerVersion {
			t.Fatal(err)
		}
	})
}

// Two first writers, then 8 x 50: one first entry, no shared predecessor, no gap.
func TestCaseC38AppendersFormOneChain(t *testing.T) {
	ledgertest.Each(t, func(t *testing.T, s ledgertest.Store) {
		ctx := context.Background()
		append1 := func(db *ledger.DB, who string) error {
			return db.Write(ctx, func(tx *ledger.Tx) error {
				tx.Append(ledger.Entry{Tenant: "acme", Item: "q1", Event: "note", Actor: who})
				return nil
			})
		}
		dbs := make([]*ledger.DB, 8)
		for i := range dbs {
			dbs[i] = s.Open(t, ledger.Options{BusyTimeout: time.Minute})
		}
		var wg sync.WaitGroup
		for _, db := range dbs[:2] {
			wg.Go(func() {
				if err := append1(db, "first"); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for i, db := range dbs {
			wg.Go(func() {
				for range 50 {
					if err := append1(db, fmt.Sprint("writer", i)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		rows, found, err := dbs[0].Verify(ctx, nil, nil)
		if err != nil || rows != 402 || len(found) != 0 {
			t.Fatalf("%d rows, %v, %v", rows, found, err)
		}
		var distinct, firsts, last int
		q := s.SQL(t).QueryRow("SELECT count(DISTINCT hash), sum(CASE WHEN seq = 1 THEN 1 ELSE 0 END), max(seq) FROM dlq_message_custody_ledger")
		if err := q.Scan(&distinct, &firsts, &last); err != nil || distinct != 402 || firsts != 1 || last != 402 {
			t.Fatalf("distinct %d, first %d, last %d, %v", distinct, firsts, last, err)
		}
	})
}

// A reads item 7, B writes another row and commits, A updates item 7: A must not fail.
func TestCaseC40ReadThenWriteWaitsInsteadOfFailing(t *testing.T) {
	ledgertest.Each(t, func(t *testing.T, s ledgertest.Store) {
		ctx := context.Background()
		a := s.Open(t, ledger.Options{BusyTimeout: 3 * time.Second})
		b := s.Open(t, ledger.Options{BusyTimeout: 3 * time.Second})
		read, done := make(chan struct{}), make(chan error, 1)
		go func() {
			<-read
			done <- b.Write(ctx, func(tx *ledger.Tx) error {
				_, err := tx.Next("b", 1)
				return err
			})
		}()
		err := a.Write(ctx, func(tx *ledger.Tx) error {
			var n int64
			if _, err := tx.Row("SELECT next FROM sequences WHERE name = 'item7'", nil, &n); err != nil {
				return err
			}
			close(read)
			if s.Dialect == ledger.Postgres {
				if err := <-done; err != nil { // another row: it does not wait for us
					return err
				}
			}
			_, err := tx.Exec("INSERT INTO sequences (name, next) VALUES ('item7', ?)", n+1)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if s.Dialect == ledger.SQLite {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestBusyIsACodeAndWritesNothing(t *testing.T) {
	ledgertest.Each(t, func(t *testing.T, s ledgertest.Store) {
		ctx := context.Background()
		a := s.Open(t, ledger.Options{})
		b := s.Open(t, ledger.Options{BusyTimeout: 50 * time.Millisecond})
		add := func(tx *ledger.Tx) error {
			tx.Append(ledger.Entry{Event: "note"})
			_, err := tx.Next("same", 1)
			return err
		}
		err := a.Write(ctx, func(tx *ledger.Tx) error {
			if err := add(tx); err != nil {
				return err
			}
			if err := b.Write(ctx, add); pipeline.CodeOf(err) != pipeline.CodeLedgerBusy {
				t.Errorf("got %v", err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if rows, found, err := a.Verify(ctx, nil, nil); rows != 1 || len(found) != 0 || err != nil {
			t.Fatal(rows, found, err)
		}
	})
}

func TestAnErrorUndoesEverything(t *testing.T) {
	ledgertest.Each(t, func(t *testing.T, s ledgertest.Store) {
		ctx, db := context.Background(), s.Open(t, ledger.Options{})
		boom := errors.New("boom")
		err := db.Write(ctx, func(tx *ledger.Tx) error {
			tx.Append(ledger.Entry{Event: "note"})
			tx.Count("acme", "f1", "TRIAGED", "", 0, 1)
			if _, err := tx.Next("x", 1); err != nil {
				return err
			}
			return boom
		})
		if !errors.Is(err, boom) {
			t.Fatal(err)
		}
		for _, table := range []string{"sequences", "group_rollup", "dlq_message_custody_ledger"} {
			var n int
			if err := s.SQL(t).QueryRow("SELECT count(*) FROM " + table).Scan(&n); err != nil || n != 0 {
				t.Fatalf("%s has %d rows, %v", table, n, err)
			}
		}
	})
}

func TestIntakeOffsetsOnlyGoForwardAndOldCustodiansAreFenced(t *testing.T) {
	ledgertest.Each(t, func(t *testing.T, s ledgertest.Store) {
		ctx, db := context.Background(), s.Open(t, ledger.Options{})
		tp := pipeline.TP{Topic: "a.dlq", Partition: 3}
		step := func(next, epoch int64) (ok bool) {
			t.Helper()
			if err := db.Write(ctx, func(tx *ledger.Tx) (err error) {
				ok, err = tx.Advance([]ledger.Intake{{Cluster: "main", TP: tp, Next: next, Epoch: epoch}})
				return err
			}); err != nil {
				t.Fatal(err)
			}
			return ok
		}
		take := func() (next, epoch int64) {
			t.Helper()
			if err := db.Write(ctx, func(tx *ledger.Tx) (err error) {
				next, epoch, err = tx.TakeOver("main", tp)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			return next, epoch
		}
		if next, epoch := take(); next != -1 || epoch != 1 {
			t.Fatal(next, epoch)
		}
		got := []bool{step(10, 1), step(10, 1), step(9, 1), step(20, 1)}
		next, epoch := take()
		got = append(got, step(30, 1), step(30, epoch), step(25, epoch))
		want := []bool{true, false, false, true, false, true, false}
		if d := cmp.Diff(want, got); d != "" || next != 20 || epoch != 2 {
			t.Fatal(d, next, epoch)
		}
	})
}

func TestLeaseHasOneHolderAndFencesByEpoch(t *testing.T) {
	ledgertest.Each(t, func(t *testing.T, s ledgertest.Store) {
		ctx := context.Background()
		now := time.UnixMilli(1_000_000)
		db := s.Open(t, ledger.Options{Clock: func() time.Time { return now }})
		take := func(who string) (l ledger.Lease, ok bool) {
			t.Helper()
			if err := db.Write(ctx, func(tx *ledger.Tx) (err error) {
				l, ok, err = tx.Lease("run", who, time.Second)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			return l, ok
		}
		a, ok := take("a")
		if !ok || a.Epoch != 1 {
			t.Fatal(a, ok)
		}
		if l, ok := take("b"); ok || l.Holder != "a" {
			t.Fatal(l, ok)
		}
		now = now.Add(500 * time.Millisecond)
		if l, ok := take("a"); !ok || l.Epoch != 1 {
			t.Fatal(l, ok)
		}
		now = now.Add(2 * time.Second)
		b, ok := take("b")
		if !ok || b.Epoch != 2 {
			t.Fatal(b, ok)
		}
		held := func(l ledger.Lease) error { return db.Write(ctx, func(tx *ledger.Tx) error { return tx.Held(l) }) }
		if err := held(a); pipeline.CodeOf(err) != pipeline.CodeRedriveState {
			t.Fatal(err)
		}
		if err := held(b); err != nil {
			t.Fatal(err)
		}
	})
}

func TestTextThatNoDatabaseTakesIsCleanedAndBytesAreKept(t *testing.T) {
	ledgertest.Each(t, func(t *testing.T, s ledgertest.Store) {
		ctx, db := context.Background(), s.Open(t, ledger.Options{})
		values := [][]byte{nil, {}, {0}, {0xff, 0xfe, 0}, []byte("plain")}
		err := db.Write(ctx, func(tx *ledger.Tx) error {
			rows := make([][]any, len(values))
			for i, v := range values {
				rows[i] = []any{fmt.Sprint("q", i), int64(1), "a\x00b\xff", v, v, []byte{}}
			}
			return tx.Insert("payloads", []string{"item", "week", "tenant", "record_key", "value", "headers"}, rows)
		})
		if err != nil {
			t.Fatal(err)
		}
		err = db.Read(ctx, func(tx *ledger.Tx) error {
			for i, v := range values {
				var tenant string
				var key, value []byte
				if _, err := tx.Row("SELECT tenant, record_key, value FROM payloads WHERE item = ? AND tenant = ?", []any{fmt.Sprint("q", i), "a\x00b\xff"}, &tenant, &key, &value); err != nil {
					return err
				}
				if d := cmp.Diff([][]byte{v, v}, [][]byte{key, value}); d != "" || tenant != "a\uFFFDb\uFFFD" {
					t.Errorf("%d: %q %s", i, tenant, d)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

func TestVerifyNamesWhatWasDone(t *testing.T) {
	ledgertest.Each(t, func(t *testing.T, s ledgertest.Store) {
		ctx, db := context.Background(), s.Open(t, ledger.Options{})
		for i := range 5 {
			if err := db.Write(ctx, func(tx *ledger.Tx) error {
				tx.Append(ledger.Entry{Tenant: "acme", Item: fmt.Sprint("q", i), Event: "note", To: "TRIAGED", Actor: "ana", Detail: map[string]string{"note": "fünf"}, Evidence: []byte{1, 2}})
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		raw := s.SQL(t)
		var head []byte
		if err := raw.QueryRow("SELECT hash FROM dlq_message_custody_ledger WHERE seq = 5").Scan(&head); err != nil {
			t.Fatal(err)
		}
		exec := func(db *sql.DB, q string, args ...any) {
			t.Helper()
			if _, err := db.Exec(q, args...); err != nil {
				t.Fatal(err)
			}
		}
		verify := func(heads ...ledger.Head) []string {
			t.Helper()
			_, found, err := db.Verify(ctx, heads, nil)
			if err != nil {
				t.Fatal(err)
			}
			var places []string
			for _, f := range found {
				places = append(places, f.Place)
			}
			return places
		}
		check := func(name string, got, want []string) {
			t.Helper()
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s: %s", name, d)
			}
		}
		const h = "dlq_message_custody_ledger"
		check("untouched", verify(ledger.Head{Seq: 5, Hash: head}), nil)

		exec(raw, "UPDATE dlq_message_custody_ledger SET to_state = 'DISCARDED' WHERE seq = 3")
		check("a rewritten row", verify(), []string{h + "/3"})
		exec(raw, "UPDATE dlq_message_custody_ledger SET to_state = 'TRIAGED' WHERE seq = 3")

		exec(raw, "UPDATE custody_ledger_private SET actor = 'bob' WHERE seq = 2")
		check("a rewritten actor", verify(), []string{h + "/2"})
		exec(raw, "UPDATE custody_ledger_private SET actor = 'ana' WHERE seq = 2")

		if err := db.Write(ctx, func(tx *ledger.Tx) error { return tx.EraseHistory([]string{"q3"}, []string{"refused"}) }); err != nil {
			t.Fatal(err)
		}
		var n int
		if err := raw.QueryRow("SELECT count(*) FROM custody_ledger_private").Scan(&n); err != nil || n != 4 {
			t.Fatal(n, err)
		}
		check("an erased detail verifies", verify(), nil)
		exec(raw, "DELETE FROM custody_ledger_private WHERE seq = 1")
		check("a detail that somebody took away", verify(), []string{h + "/1"})
		exec(raw, "DELETE FROM dlq_message_custody_ledger WHERE seq = 1")
		check("a cut beginning", verify(), []string{h + "/2"})

		exec(raw, "DELETE FROM dlq_message_custody_ledger WHERE seq = 5")
		check("a cut tail", verify(), []string{h + "/2", "history_head"})
		exec(raw, "UPDATE history_head SET seq = 4, hash = (SELECT hash FROM dlq_message_custody_ledger WHERE seq = 4)")
		check("a cut tail with its head", verify(), []string{h + "/2"})
		check("a cut tail against a signed head", verify(ledger.Head{Seq: 5, Hash: head}), []string{h + "/2", h + "/5"})
		exec(raw, "DELETE FROM dlq_message_custody_ledger WHERE seq = 3")
		check("a hole", verify(), []string{h + "/2", h + "/4"})
	})
}

func TestCutCountsCharacters(t *testing.T) {
	for in, want := range map[string]string{"": "", "abc": "ab", "éé": "éé", "ééé": "éé", "a\x00b": "a\uFFFD", "\xff\xfe": "\uFFFD"} {
		if got := ledger.Cut(in, 2); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestAReadOnlyServerIsACodeAndWritesNothing(t *testing.T) {
	s := ledgertest.Postgres(t)
	raw := s.SQL(t)
	var name string
	if err := raw.QueryRow("SELECT current_database()").Scan(&name); err != nil {
		t.Fatal(err)
	}
	if _, err := raw.Exec("ALTER DATABASE " + name + " SET default_transaction_read_only = on"); err != nil {
		t.Fatal(err)
	}
	db := s.Open(t, ledger.Options{})
	err := db.Write(context.Background(), func(tx *ledger.Tx) error {
		_, err := tx.Next("x", 1)
		return err
	})
	if pipeline.CodeOf(err) != pipeline.CodeLedgerReadOnly {
		t.Fatal(err)
	}
}

func TestALostConnectionIsACodeAndTheNextWriteWorks(t *testing.T) {
	s := ledgertest.Postgres(t)
	ctx, db, raw := context.Background(), s.Open(t, ledger.Options{}), s.SQL(t)
	err := db.Write(ctx, func(tx *ledger.Tx) error {
		if _, err := tx.Next("x", 1); err != nil {
			return err
		}
		var pid int
		if _, err := tx.Row("SELECT pg_backend_pid()", nil, &pid); err != nil {
			return err
		}
		if _, err := raw.Exec(fmt.Sprint("SELECT pg_terminate_backend(", pid, ")")); err != nil {
			return err
		}
		_, err := tx.Next("x", 1)
		return err
	})
	if pipeline.CodeOf(err) != pipeline.CodeLedgerUnavailable {
		t.Fatal(err)
	}
	var n int64
	if err := db.Write(ctx, func(tx *ledger.Tx) (err error) {
		n, err = tx.Next("x", 1)
		return err
	}); err != nil || n != 1 {
		t.Fatal(n, err)
	}
}

func TestAFullFileIsACodeAndWritesNothing(t *testing.T) {
	s := ledgertest.SQLite(t)
	ctx, db := context.Background(), s.Open(t, ledger.Options{})
	big := make([]byte, 1<<20)
	err := db.Write(ctx, func(tx *ledger.Tx) error {
		var pages int64
		if _, err := tx.Row("PRAGMA max_page_count = 200", nil, &pages); err != nil {
			return err
		}
		tx.Append(ledger.Entry{Event: "note"})
		return tx.Insert("payloads", []string{"item", "week", "tenant", "record_key", "value", "headers"}, [][]any{{"q", 1, "acme", nil, big, []byte{}}})
	})
	if pipeline.CodeOf(err) != pipeline.CodeLedgerFull {
		t.Fatal(err)
	}
	if rows, found, err := db.Verify(ctx, nil, nil); rows != 0 || len(found) != 0 || err != nil {
		t.Fatal(rows, found, err)
	}
}

func TestAFileThatIsNoDatabaseIsACode(t *testing.T) {
	path := t.TempDir() + "/x.db"
	if err := os.WriteFile(path, []byte(strings.Repeat("this is no database ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ledger.Open(context.Background(), "sqlite:"+path, ledger.Options{Clock: time.Now}); pipeline.CodeOf(err) != pipeline.CodeLedgerCorrupt {
		t.Fatal(err)
	}
}
