package integration

import (
	"io/fs"
	"net"
	"path/filepath"
	"testing"
	"time"

	"reprieve.dev/embedded"
	"reprieve.dev/examples/billing"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/tests/lab"
	"reprieve.dev/tests/services"
)

// The dead-letter cluster goes away: the pipeline goes on, its letters go to a fallback store, sealed, and settle. The worker is
// killed. When the cluster is back, every letter comes to its topic and into custody, and every record is accounted for.
func fallback(t *testing.T, ledgerURL string) {
	main := startCluster(t)
	l0, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l0.Addr().(*net.TCPAddr).Port
	_ = l0.Close()
	dir := t.TempDir()
	start := func() *embedded.Broker {
		deadline := time.Now().Add(time.Minute)
		for {
			b, err := embedded.StartBroker(embedded.BrokerConfig{Dir: dir, Port: port})
			if err == nil {
				return b
			}
			if time.Now().After(deadline) {
				t.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond) // its port or folder may be given back a moment later
		}
	}
	dead := start()
	t.Cleanup(func() { _ = dead.Close() })
	l := lab.NewApart(t, main.Properties["bootstrap.servers"], dead.Bootstrap())
	store := "{blob: 'file://" + filepath.ToSlash(filepath.Join(l.Dir, "letters")) + "?create_dir=true&metadata=skip'}"
	if ledgerURL != "" {
		l.Ledger, store = ledgerURL, "{ledger: main}"
	}
	l.Edit("pipelines/billing.yaml", "encrypt: true", "encrypt: true, fallback: ["+store+"]")
	l.Edit("reprieve.yaml", `dlq: {bootstrap.servers: "${REPRIEVE_DLQ_BOOTSTRAP:-127.0.0.1:9092}"}`,
		`dlq: {bootstrap.servers: "${REPRIEVE_DLQ_BOOTSTRAP:-127.0.0.1:9092}", message.timeout.ms: "1500"}`)
	const records = 4000
	g := billing.Generator{Seed: 9, Count: records, Poison: 0.02, SchemaID: l.SchemaID}
	var msgs []pipeline.Message
	poison := 0
	for m, label := range g.Invoices() {
		m.Topic, m.Partition = l.Topic(m.Topic), -1
		msgs = append(msgs, m)
		if label.Defect != billing.None {
			poison++
		}
	}
	in, retry, group := l.Topic("billing.invoices.v1"), l.Topic("billing.invoices.v1.retry"), l.Group("billing-event-processor")
	settled := func() bool { return l.Settled(group, in, retry) }
	l.Write(msgs[:records/2])
	w := l.Start("pipelines/billing.yaml", "--instance-id", "fallback-1")
	l.Until(2*time.Minute, "the first half", settled)

	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	l.Write(msgs[records/2:])
	l.Until(2*time.Minute, "the second half, while no letter can be written", settled)
	if w.Exited() {
		t.Fatal("the worker ended by itself")
	}
	w.Kill()
	stored := 0
	l.Each(l.Prefix()+".settlements", func(_ pipeline.TP, r *pipeline.Record) {
		if s, err := deadletter.ParseSettlement(r, l.Ring); err != nil {
			t.Error(err)
		} else {
			stored += int(s.Count(pipeline.InFallback))
		}
	})
	if stored < poison/4 {
		t.Errorf("%d of %d letters were settled as in the fallback store", stored, poison)
	}
	if ledgerURL == "" && objects(t, filepath.Join(l.Dir, "letters")) < stored {
		t.Errorf("the bucket has %d objects for %d letters", objects(t, filepath.Join(l.Dir, "letters")), stored)
	}

	dead = start()
	w = l.Start("pipelines/billing.yaml", "--instance-id", "fallback-1")
	var found struct{ Items []struct{ ID string } }
	l.Until(2*time.Minute, "custody of every letter", func() bool {
		l.JSON(&found, "quarantine", "list", "state=DEAD_LETTERED", "confirmed=yes", "--limit", "500")
		return len(found.Items) == poison
	})
	if code := w.Stop(); code != 0 && code != 143 {
		t.Errorf("the worker ended with exit code %d", code)
	}
	if n := objects(t, filepath.Join(l.Dir, "letters")); n != 0 {
		t.Errorf("%d letters are left in the bucket", n)
	}
	positions, delivered := map[pipeline.Position]bool{}, map[string]bool{}
	there, dlq := l.Letters(), l.Topic("billing.invoices.v1.dlq")
	there.Each(dlq, func(_ pipeline.TP, r *pipeline.Record) {
		if deadletter.IsProbe(r) {
			return
		}
		letter, err := deadletter.Parse(dlq, r, l.Ring)
		if err != nil || letter.Forged || letter.Value != nil && letter.Enc == "" {
			t.Fatalf("%+v %v", letter, err)
		}
		positions[letter.Original] = true
	})
	for _, topic := range []string{"billing.ledger.v1", "billing.large.v1"} {
		l.Each(l.Topic(topic), func(_ pipeline.TP, r *pipeline.Record) { delivered[event(t, l, r)] = true })
	}
	if len(positions) != poison || len(delivered) != records-poison {
		t.Errorf("%d letters of %d, %d records delivered of %d", len(positions), poison, len(delivered), records-poison)
	}
	if out, errs, code := l.Run("ledger", "verify", "--topics"); code != 0 {
		t.Errorf("the ledger does not agree with the topics: exit %d\n%s%s", code, out, errs)
	}
}

// objects counts the files below a folder.
func objects(t *testing.T, dir string) (n int) {
	t.Helper()
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error { // it may not be there yet
		if err == nil && !e.IsDir() {
			n++
		}
		return nil
	})
	return n
}

func TestLettersWaitInAFallbackStore(t *testing.T) {
	t.Run("bucket", func(t *testing.T) { fallback(t, "") })
	t.Run("PostgreSQL", func(t *testing.T) { fallback(t, services.Postgres(t)) })
}
