package integration

import (
	"strings"
	"testing"
	"time"

	"reprieve.dev/examples/billing"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/tests/lab"
)

// Dead letters that stand on a cluster of their own, sealed: the worker is killed again and again, and every record is delivered or has
// its letter there. With exactly_once nothing is delivered twice; letters are no part of the transaction and unique by their item.
func apart(t *testing.T, delivery string) {
	main, dead := startCluster(t), startCluster(t)
	l := lab.NewApart(t, main.Properties["bootstrap.servers"], dead.Properties["bootstrap.servers"])
	there := l.Letters()
	l.Edit("pipelines/billing.yaml", "delivery: at_least_once", "delivery: "+delivery)
	l.Edit("pipelines/billing.yaml", "encrypt: true", "encrypt: true, seal_originals: true")
	const records, kills = 9000, 3
	g := billing.Generator{Seed: 5, Count: records, Poison: 0.02, Secrets: 0.05, SchemaID: l.SchemaID}
	var msgs []pipeline.Message
	poison := 0
	for m, label := range g.Invoices() {
		m.Topic, m.Partition = l.Topic(m.Topic), -1
		msgs = append(msgs, m)
		if label.Defect != billing.None {
			poison++
		}
	}
	in, retry := l.Topic("billing.invoices.v1"), l.Topic("billing.invoices.v1.retry")
	dlq, vault := l.Topic("billing.invoices.v1.dlq"), l.Topic("billing.invoices.v1.dlq.vault")
	written := func() (n int64) {
		ends, err := there.Admin.EndOffsets(t.Context(), dlq)
		if err != nil {
			t.Fatal(err)
		}
		for _, end := range ends {
			n += end
		}
		return n
	}
	start := func() *lab.Worker {
		return l.Start("pipelines/billing.yaml", "--instance-id", "apart-1")
	}
	for k := range kills {
		l.Write(msgs[k*records/kills : (k+1)*records/kills])
		w := start()
		before := written()
		// Letters of this life are there: what they stand for may be committed, or not yet.
		l.Until(2*time.Minute, "a letter on the other cluster", func() bool { return w.Exited() || written() > before+3 })
		if w.Exited() {
			t.Fatalf("the worker ended by itself in round %d", k)
		}
		w.Kill()
	}
	w := start()
	l.Until(2*time.Minute, "the end of the source topics", func() bool {
		return l.Settled(l.Group("billing-event-processor"), in, retry)
	})
	var found struct{ Items []struct{ ID string } }
	l.Until(2*time.Minute, "custody of every dead letter", func() bool {
		l.JSON(&found, "quarantine", "list", "state=DEAD_LETTERED", "confirmed=yes", "--limit", "500")
		return len(found.Items) == poison
	})
	if code := w.Stop(); code != 0 && code != 143 {
		t.Errorf("the worker ended with exit code %d", code)
	}

	topics, err := l.Admin.Topics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for topic := range topics {
		if strings.HasPrefix(topic, dlq) {
			t.Errorf("%s stands on the cluster of the source", topic)
		}
	}
	items, letters := map[pipeline.Position]pipeline.ID{}, 0
	there.Each(dlq, func(_ pipeline.TP, r *pipeline.Record) {
		if deadletter.IsProbe(r) {
			return
		}
		letter, err := deadletter.Parse(dlq, r, l.Ring)
		switch {
		case err != nil:
			t.Fatal(err)
		case letter.Value != nil && letter.Enc == "":
			t.Errorf("the letter of %s is not sealed", letter.Original)
		case items[letter.Original] != "" && items[letter.Original] != letter.Item:
			t.Errorf("%s is two items", letter.Original)
		}
		letters++
		items[letter.Original] = letter.Item
	})
	sealedRecords := 0
	there.Each(vault, func(_ pipeline.TP, r *pipeline.Record) {
		if deadletter.IsProbe(r) {
			return
		}
		if _, err := deadletter.ParseVaulted(vault, r, l.Ring); err != nil {
			t.Fatal(err)
		}
		sealedRecords++
	})
	out := map[string]int{}
	for _, topic := range []string{"billing.ledger.v1", "billing.large.v1"} {
		l.Each(l.Topic(topic), func(_ pipeline.TP, r *pipeline.Record) { out[event(t, l, r)]++ })
	}
	lost, twice := 0, 0
	l.Each(in, func(tp pipeline.TP, r *pipeline.Record) {
		if items[pipeline.Position{TP: tp, Offset: r.Offset}] == "" && out[event(t, l, r)] == 0 {
			lost++
		}
	})
	for _, n := range out {
		twice += n - 1
	}
	t.Logf("%d delivered, %d of them again, %d letters of %d items, %d sealed records, %d lost", len(out), twice, letters, len(items), sealedRecords, lost)
	if lost != 0 || len(items) != poison || len(out) != records-poison || sealedRecords == 0 {
		t.Errorf("%d lost; %d items of %d, %d delivered of %d", lost, len(items), poison, len(out), records-poison)
	}
	if delivery == "exactly_once" && twice != 0 {
		t.Errorf("%d records are delivered twice", twice)
	}
	if _, errs, code := l.Run("ledger", "verify", "--topics"); code != 0 {
		t.Errorf("the ledger does not agree with the topics of both clusters: exit %d\n%s", code, errs)
	}
}

func TestLettersOnAnotherClusterSurviveKills(t *testing.T) {
	for _, delivery := range []string{"at_least_once", "exactly_once"} {
		t.Run(delivery, func(t *testing.T) { apart(t, delivery) })
	}
}
