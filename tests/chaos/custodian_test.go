package chaos

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"reprieve.dev/custody/custodytest"
	"reprieve.dev/ledger"
	"reprieve.dev/ledger/ledgertest"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/tests/lab"
	"reprieve.dev/tests/services"
)

// letters is how many dead letters the custodian takes: ITEMS, 20,000 by default.
func letters(t *testing.T) int64 {
	n, err := strconv.ParseInt(os.Getenv("ITEMS"), 10, 64)
	if err != nil {
		return 20_000
	}
	if n < 100 || n > 10_000_000 {
		t.Fatalf("ITEMS=%d", n)
	}
	return n
}

// The custodian is killed at random points of its work: every letter is one item, once, and the ledger verifies.
func TestChaosKillOfTheCustodianSQLite(t *testing.T) {
	killCustodian(t, "sqlite:reprieve.db")
}

// The same on PostgreSQL.
func TestChaosKillOfTheCustodianPostgres(t *testing.T) {
	killCustodian(t, ledgertest.Postgres(t).URL)
}

func killCustodian(t *testing.T, url string) {
	l := lab.New(t, services.Kafka(t))
	l.Ledger = url
	count := letters(t)
	e := custodytest.New(t, ledgertest.SQLite(t)) // makes letters
	topic := l.Topic("billing.invoices.v1.dlq")
	var msgs []pipeline.Message
	for n := range count {
		letter := e.Letter(n)
		letter.Value = append(letter.Value, make([]byte, 1000)...)
		m := pipeline.Message{Topic: topic, Partition: -1}
		if err := deadletter.Append(&m, letter, deadletter.Profiles{}, l.Ring); err != nil {
			t.Fatal(err)
		}
		m.Topic = topic
		if msgs = append(msgs, m); len(msgs) == 10_000 || n == count-1 {
			l.Write(msgs)
			msgs = nil
		}
	}
	l.Must("ledger", "migrate")
	where := url
	if path, ok := strings.CutPrefix(url, "sqlite:"); ok {
		where = "sqlite:" + filepath.Join(l.Dir, path)
	}
	db, err := ledger.Open(t.Context(), where, ledger.Options{Clock: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	items := func(condition string) (n int64) {
		if err := db.Read(t.Context(), func(tx *ledger.Tx) error {
			_, err := tx.Row("SELECT count(*) FROM items WHERE "+condition, nil, &n)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return n
	}
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 2))
	kills, midway := rounds(t), 0
	t.Logf("seed %d, %d kills, %d letters", seed, kills, count)
	for k := range kills {
		if items("1 = 1") == count {
			break // nothing is left to be killed at
		}
		w := l.Start("--roles", "custodian", "--instance-id", "chaos-1")
		before := items("1 = 1")
		l.Until(90*time.Second, "progress of the custodian", func() bool { return w.Exited() || items("1 = 1") > before || before == count })
		if w.Exited() {
			t.Fatalf("the worker ended by itself in round %d", k)
		}
		pause := time.NewTimer(time.Duration(random.Int64N(int64(100 * time.Millisecond))))
		<-pause.C // the random point of the kill
		w.Kill()
		if n := items("1 = 1"); n < count {
			midway++
		}
	}
	w := l.Start("--roles", "custodian", "--instance-id", "chaos-1")
	l.Until(5*time.Minute, "the end of the dead-letter topic", func() bool { return w.Exited() || items("1 = 1") >= count })
	if code := w.Stop(); code != 0 && code != 143 {
		t.Errorf("exit code %d", code)
	}
	t.Logf("%d of %d kills fell into the work", midway, kills)
	if n, once := items("1 = 1"), items("sightings = 1"); n != count || once != count {
		t.Errorf("%d items of %d letters, %d seen once", n, count, once)
	}
	if out, errs, code := l.Run("ledger", "verify"); code != 0 {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
}
