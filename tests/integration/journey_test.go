package integration

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"

	"reprieve.dev/examples/billing"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/tests/lab"
	"reprieve.dev/tests/services"
)

// group is a line of `reprieve quarantine groups`.
type group struct {
	Fingerprint, Tenant, Pipeline, Code string
	Reason                              string `json:"sample_reason"`
	Open                                int64
	Sample                              string
}

// journey is the whole story of one record, typed as its people type it, with the worker in a process of its own.
func journey(t *testing.T, bootstrap, ledgerURL string) {
	l := lab.New(t, bootstrap)
	if ledgerURL != "" {
		l.Ledger = ledgerURL
	}
	const invoices, adjustments = 6000, 600
	g := billing.Generator{Seed: 7, Count: invoices, Poison: 0.01, Secrets: 0.02, SchemaID: l.SchemaID}
	a := billing.Generator{Seed: 7, Count: adjustments, Poison: 0.05, Secrets: 0.02}
	var msgs []pipeline.Message
	poison := 0
	for _, records := range []func(func(pipeline.Message, billing.Label) bool){g.Invoices(), a.Adjustments()} {
		for m, label := range records {
			m.Topic, m.Partition = l.Topic(m.Topic), -1
			msgs = append(msgs, m)
			if label.Defect != billing.None {
				poison++
			}
		}
	}
	l.Write(msgs)
	w := l.Start()
	in, retry := l.Topic("billing.invoices.v1"), l.Topic("billing.invoices.v1.retry")
	l.Until(time.Minute, "the end of the source topics", func() bool {
		return l.Settled(l.Group("billing-event-processor"), in, retry) && l.Settled(l.Group("billing-adjustment-processor"), l.Topic("billing.adjustments.v1"))
	})

	var found struct{ Items []struct{ ID string } }
	l.Until(time.Minute, "custody of every dead letter", func() bool {
		l.JSON(&found, "quarantine", "list", "state=DEAD_LETTERED", "confirmed=yes", "--limit", "500")
		return len(found.Items) == poison
	})
	assertRedacted(t, l)

	var all struct{ Groups []group }
	l.JSON(&all, "quarantine", "groups")
	var pick group
	for _, g := range all.Groups {
		if g.Pipeline == "billing" && strings.Contains(g.Reason, "invalid-currency") && g.Open > pick.Open {
			pick = g
		}
	}
	sel := "fingerprint=" + pick.Fingerprint + " tenant=" + pick.Tenant
	operator := []string{"--credential", l.Key("operator")}
	finance := []string{"--credential", l.Key("finance")}

	if _, errs, code := l.Run("quarantine", "triage", sel, "--ticket", "T-1"); code != 4 || !strings.Contains(errs, "ERR_SNAPSHOT_REQUIRED") {
		t.Errorf("a bare selection was changed: exit %d\n%s", code, errs)
	}
	l.Must(append([]string{"quarantine", "triage", sel, "--ticket", "T-1", "--yes"}, operator...)...)
	l.Must(append([]string{"quarantine", "repair", sel, "--pipeline", "billing", "--transform", "set@1.0.0", "--set", `{"values":{"/currency":"EUR"}}`, "--yes"}, operator...)...)
	var planned struct{ Digest string }
	l.JSON(&planned, append([]string{"redrive", "plan", sel + " state=REPAIRED", "--pipeline", "billing", "--ticket", "T-1", "--yes"}, operator...)...)
	if _, errs, code := l.Run(append([]string{"redrive", "approve", planned.Digest}, finance...)...); code != 4 || !strings.Contains(errs, "ERR_DRY_RUN_REQUIRED") {
		t.Errorf("approved without a dry run: exit %d\n%s", code, errs)
	}
	l.Must(append([]string{"redrive", "dry-run", planned.Digest}, operator...)...)
	if _, errs, code := l.Run(append([]string{"redrive", "run", planned.Digest}, operator...)...); code != 4 || !strings.Contains(errs, "ERR_REDRIVE_STATE") && !strings.Contains(errs, "ERR_APPROVAL_MISSING") {
		t.Errorf("ran without an approval: exit %d\n%s", code, errs)
	}
	if _, errs, code := l.Run(append([]string{"redrive", "approve", planned.Digest, "--role", "operator"}, operator...)...); code != 4 {
		t.Errorf("the requester approved: exit %d\n%s", code, errs)
	}
	l.Must(append([]string{"redrive", "approve", planned.Digest}, finance...)...)

	// A halt stops everything, and another person lifts it.
	l.Must(append([]string{"redrive", "halt", "--reason", "drill"}, operator...)...)
	if _, errs, code := l.Run(append([]string{"redrive", "run", planned.Digest}, operator...)...); code != 4 || !strings.Contains(errs, "ERR_REDRIVE_HALTED") {
		t.Errorf("ran while halted: exit %d\n%s", code, errs)
	}
	if _, errs, code := l.Run(append([]string{"redrive", "lift", "--reason", "over"}, operator...)...); code != 4 {
		t.Errorf("the one who halted lifted: exit %d\n%s", code, errs)
	}
	l.Must(append([]string{"redrive", "lift", "--reason", "over"}, finance...)...)
	l.Must("redrive", "lift", "--reason", "over", "--credential", l.Key("second"))

	var status struct {
		State  string
		Counts struct{ Reconciled, Planned int64 }
	}
	l.JSON(&status, append([]string{"redrive", "run", planned.Digest}, operator...)...)
	if status.State != "DONE" || status.Counts.Reconciled != pick.Open {
		t.Errorf("the run ended %s with %d of %d reconciled", status.State, status.Counts.Reconciled, pick.Open)
	}
	l.JSON(&found, "quarantine", "list", sel, "state=RECONCILED", "--limit", "500")
	if int64(len(found.Items)) != pick.Open {
		t.Errorf("%d of %d items are reconciled", len(found.Items), pick.Open)
	}
	if code := w.Stop(); code != 0 && code != 143 {
		t.Errorf("the worker ended with exit code %d", code)
	}
	account(t, l, len(msgs), poison, int(pick.Open))
	if _, errs, code := l.Run("ledger", "verify"); code != 0 {
		t.Errorf("the ledger does not verify: exit %d\n%s", code, errs)
	}
}

// account reads every topic and finds each record exactly where it should be.
func account(t *testing.T, l *lab.Lab, records, poison, redriven int) {
	t.Helper()
	out, dead := map[string]int{}, map[pipeline.Position]int{}
	for _, topic := range []string{"billing.ledger.v1", "billing.large.v1"} {
		l.Each(l.Topic(topic), func(_ pipeline.TP, r *pipeline.Record) { out[event(t, l, r)]++ })
	}
	for _, topic := range []string{"billing.invoices.v1.dlq", "billing.adjustments.v1.dlq"} {
		name := l.Topic(topic)
		l.Each(name, func(_ pipeline.TP, r *pipeline.Record) {
			if deadletter.IsProbe(r) {
				return
			}
			letter, err := deadletter.Parse(name, r, l.Ring)
			if err != nil {
				t.Fatal(err)
			}
			dead[letter.Original]++
		})
	}
	in, lost := 0, 0
	for _, topic := range []string{"billing.invoices.v1", "billing.adjustments.v1"} {
		l.Each(l.Topic(topic), func(tp pipeline.TP, r *pipeline.Record) {
			in++
			if dead[pipeline.Position{TP: tp, Offset: r.Offset}] == 0 && out[event(t, l, r)] == 0 {
				lost++
			}
		})
	}
	twice := 0
	for _, n := range out {
		twice += n - 1
	}
	if in != records || lost != 0 || twice != 0 || len(dead) != poison || len(out) != records-poison+redriven {
		t.Errorf("in %d of %d, lost %d, twice %d, dead letters %d of %d, delivered %d of %d", in, records, lost, twice, len(dead), poison, len(out), records-poison+redriven)
	}
}

var scratch = codec.NewScratch()

// event is the event id of a record, "" when it cannot be read.
func event(t *testing.T, l *lab.Lab, r *pipeline.Record) string {
	t.Helper()
	c := codec.DecodeConfig{Format: "json"}
	var reg codec.Registry
	if len(r.Value) > 0 && r.Value[0] == 0 {
		c.Format, reg = "avro", l.Codec
	}
	d, err := codec.NewDecoder(c, reg)
	if err != nil {
		t.Fatal(err)
	}
	scratch.Reset()
	v, f := d.Decode(t.Context(), scratch, r.Value, r.Headers)
	if f != nil || v == nil {
		return ""
	}
	path, _ := pipeline.NewPath("/event_id")
	val, _ := v.Get(path)
	return string(val.Bytes)
}

// assertRedacted looks for the planted card numbers and tokens in everything that was written.
func assertRedacted(t *testing.T, l *lab.Lab) {
	t.Helper()
	for _, topic := range []string{"billing.ledger.v1", "billing.large.v1", "billing.invoices.v1.dlq", "billing.adjustments.v1.dlq"} {
		name := l.Topic(topic)
		l.Each(name, func(tp pipeline.TP, r *pipeline.Record) {
			all := string(r.Value) + string(r.Key)
			for _, h := range r.Headers {
				all += h.Name + "\x00" + string(h.Value)
			}
			for _, card := range []string{"4111111111111111", "5555555555554444", "378282246310005", "4111 1111 1111 1111"} {
				if strings.Contains(all, card) {
					t.Errorf("%s/%d holds the card number %s", tp, r.Offset, card)
				}
			}
		})
	}
}

func TestJourneyOnApacheKafka(t *testing.T) { journey(t, services.Kafka(t), "") }

func TestJourneyOnApacheKafkaAndPostgreSQL(t *testing.T) {
	journey(t, services.Kafka(t), services.Postgres(t))
}

func TestJourneyOnTheEmbeddedBroker(t *testing.T) {
	c := startCluster(t)
	journey(t, c.Properties["bootstrap.servers"], "")
}

// make demo: one object, counted from the topics, twice in the same folder.
func TestDemoEndsWithNothingLost(t *testing.T) {
	dir := t.TempDir()
	for run := 1; run <= 2; run++ {
		out, err := exec.Command(lab.Binary(t), "demo", "--once", "-o", "json", "--dir", dir).Output()
		if err != nil {
			t.Fatalf("run %d: %v\n%s", run, err, out)
		}
		var got struct {
			RecordsIn    int `json:"records_in"`
			Delivered    int
			DeadLettered int `json:"dead_lettered"`
			Repaired     int
			Redriven     int
			Reconciled   int
			Lost         int
			Duplicates   int
			Seconds      float64
		}
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("run %d: %v\n%s", run, err, out)
		}
		if got.RecordsIn != 21_000 || got.DeadLettered != 50 || got.Lost != 0 || got.Duplicates != 0 || got.Repaired == 0 ||
			got.Redriven != got.Repaired || got.Reconciled != got.Redriven || got.Delivered != 21_000-50+got.Redriven || got.Seconds <= 0 {
			t.Errorf("run %d: %+v", run, got)
		}
	}
}
