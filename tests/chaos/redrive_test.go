package chaos

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"reprieve.dev/examples/billing"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/tests/lab"
	"reprieve.dev/tests/services"
)

// An executor of a redrive is killed at random points, again and again, and another one takes over when its lease has run out: every
// item is sent once and delivered once, and nothing is left in doubt.
func TestChaosKillRedriveSendsEachItemOnce(t *testing.T) {
	l := lab.New(t, services.Kafka(t))
	l.Ledger = services.Postgres(t)
	g := billing.Generator{Seed: 5, Count: 2000, Poison: 1, SchemaID: l.SchemaID}
	var msgs []pipeline.Message
	for m, label := range g.Invoices() {
		if label.Defect == billing.InvalidCurrency {
			m.Topic, m.Partition = l.Topic(m.Topic), -1
			msgs = append(msgs, m)
		}
	}
	l.Write(msgs)
	w := l.Start("pipelines/billing.yaml")
	operator, finance := []string{"--credential", l.Key("operator")}, []string{"--credential", l.Key("finance")}
	const sel = "pipeline=billing tenant=acme state=DEAD_LETTERED confirmed=yes"
	items := int64(0)
	in := l.Topic(billing.InvoicesTopic)
	l.Until(time.Minute, "the end of the source topic", func() bool { return l.Settled(l.Group("billing-event-processor"), in) })
	l.Until(time.Minute, "custody of the items", func() bool {
		n := l.Triage(sel, "T-1")
		items += n
		return n == 0 && items > 200
	})
	l.Must(append([]string{"quarantine", "repair", "pipeline=billing tenant=acme state=TRIAGED", "--pipeline", "billing", "--transform", "set@1.0.0", "--set", `{"values":{"/currency":"EUR"}}`, "--yes"}, operator...)...)
	var planned struct{ Digest string }
	l.JSON(&planned, append([]string{"redrive", "plan", "pipeline=billing tenant=acme state=REPAIRED", "--pipeline", "billing", "--ticket", "T-1", "--rate", "10/s", "--yes"}, operator...)...)
	l.Must(append([]string{"redrive", "dry-run", planned.Digest}, operator...)...)
	l.Must(append([]string{"redrive", "approve", planned.Digest}, finance...)...)

	seed := uint64(time.Now().UnixNano())
	times := max(1, min(4, rounds(t)/4)) // each waits for the lease of the one before
	t.Logf("seed %d, %d kills of a redrive of %d items", seed, times, items)
	random := rand.New(rand.NewPCG(seed, 1))
	var status struct {
		State  string
		Counts struct{ Reconciled, Sending int64 }
	}
	done := func() bool {
		l.JSON(&status, "redrive", "status", planned.Digest)
		return status.State == "DONE"
	}
	killed := 0
	for killed < times && !done() { // on a slow machine it may be done before the last kill
		cmd := l.Command(context.Background(), append([]string{"redrive", "run", planned.Digest}, operator...)...)
		var errs strings.Builder
		cmd.Stderr = &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = cmd.Wait() // the state tells
		}()
		started := redriven(t, l)
		deadline := time.Now().Add(90 * time.Second)
	sending:
		for len(redriven(t, l)) == len(started) { // at least one item of its own
			select {
			case <-ended:
				if !strings.Contains(errs.String(), "ERR_REDRIVE_STATE") && !done() { // the dead one's lease
					t.Fatalf("it ended by itself: %s", errs.String())
				}
				break sending
			default:
			}
			if time.Now().After(deadline) {
				t.Fatal("nobody sends")
			}
			time.Sleep(20 * time.Millisecond) // between two looks at the topic
		}
		select {
		case <-ended:
			time.Sleep(time.Second) // until the lease of the dead one has run out
			continue
		case <-time.After(time.Duration(random.Int64N(int64(500 * time.Millisecond)))): // the random point of the kill
		}
		_ = cmd.Process.Kill()
		<-ended
		killed++
	}
	if killed == 0 {
		t.Error("it was never killed")
	}
	l.Until(2*time.Minute, "the end of the redrive", func() bool {
		began := time.Now()
		out, errs, code := l.Run(append([]string{"redrive", "run", planned.Digest}, operator...)...)
		t.Logf("exit %d after %s: %s", code, time.Since(began).Round(time.Millisecond), errs)
		if code != 0 && !strings.Contains(errs, "ERR_REDRIVE_STATE") {
			t.Fatalf("exit %d\n%s%s", code, out, errs)
		}
		return done()
	})
	if status.Counts.Reconciled != items || status.Counts.Sending != 0 {
		t.Errorf("%s, %d of %d reconciled, %d in doubt", status.State, status.Counts.Reconciled, items, status.Counts.Sending)
	}
	if code := w.Stop(); code != 0 && code != 143 {
		t.Errorf("exit code %d", code)
	}
	sent := redriven(t, l)
	for id, n := range sent {
		if n != 1 {
			t.Errorf("%s was sent %d times", id, n)
		}
	}
	out := outputs(l)
	if int64(len(sent)) != items || out != items {
		t.Errorf("%d items sent, %d records delivered, of %d", len(sent), out, items)
	}
}

// redriven counts the redriven records of the retry topic, by item: what readers of committed records see.
func redriven(t *testing.T, l *lab.Lab) map[pipeline.ID]int {
	t.Helper()
	retry := l.Topic("billing.invoices.v1.retry")
	out := map[pipeline.ID]int{}
	l.Each(retry, func(_ pipeline.TP, r *pipeline.Record) {
		if tr, _, err := deadletter.ParseTrail(retry, r, l.Ring); err == nil && tr.Redrive != "" {
			out[tr.Item]++
		}
	})
	return out
}
