package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"reprieve.dev/custody"
	"reprieve.dev/examples/billing"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/tests/lab"
	"reprieve.dev/tests/services"
)

// handOver posts to the intake of a running worker.
func handOver(t *testing.T, l *lab.Lab, w *lab.Worker, body string) (status int, answer []byte) {
	t.Helper()
	l.Until(3*time.Minute, "the worker takes records", func() bool {
		at := w.Address()
		if at == "" {
			return false
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at+"/v1/quarantine", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer the-token-of-the-application")
		r.Header.Set("Content-Type", "application/json")
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			return false
		}
		defer a.Body.Close()
		status = a.StatusCode
		answer, err = io.ReadAll(a.Body)
		return err == nil && status != http.StatusServiceUnavailable // its door opens a moment after its port
	})
	return status, answer
}

func submission(l *lab.Lab, n int) string {
	return fmt.Sprintf(`{"pipeline": "billing", "consumer": "invoice-app", "tenant": "acme", "event_id": "app-%d", "code": "ERR_DOMAIN_REJECTED", "stage": "app", "reason": "no such account",
		"record": {"topic": "%s", "partition": %d, "offset": "%d", "key": {"text": "ACC-%d"}, "value": {"text": "{\"n\":%d,\"card\":\"4111111111111111\"}"}, "headers": [["h", null]]}}`,
		n, l.Topic("billing.invoices.v1"), n%12, 1_000_000+n, n%7, n)
}

// exported is what the ledger knows of every item, by id. What only a ledger knows, or when it knew it, is left out.
func exported(t *testing.T, l *lab.Lab) map[string]custody.Form {
	t.Helper()
	out := map[string]custody.Form{}
	for line := range strings.Lines(l.Must("quarantine", "export")) {
		var f custody.Form
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatal(err)
		}
		f.Taken, f.Changed, f.LastSeen, f.Rev = "", "", "", ""
		f.Flags = slices.DeleteFunc(f.Flags, func(s string) bool { return s == "rebuilt" })
		out[f.ID] = f
	}
	return out
}

// An application hands records over by HTTP; whatever was answered 201 is on the dead-letter topic of a real Kafka though the worker is
// killed at once, and one item however often it is sent. When the ledger is lost, the topics bring every item back, held out of
// redrives, and what the topics have lost is named.
func TestIntakeAndRebuildOnApacheKafka(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Apache Kafka")
	}
	l := lab.New(t, services.Kafka(t))
	l.Edit("reprieve.yaml", `http: {address: "${REPRIEVE_HTTP:-127.0.0.1:8080}"}`,
		`http: {address: "${REPRIEVE_HTTP:-127.0.0.1:8080}", tokens: [{subject: app, token: the-token-of-the-application, roles: [intake], tenants: [acme]}]}`)
	g := billing.Generator{Seed: 11, Count: 600, Poison: 0.05, SchemaID: l.SchemaID}
	var msgs []pipeline.Message
	poison := 0
	for m, label := range g.Invoices() {
		m.Topic, m.Partition = l.Topic(m.Topic), -1
		msgs = append(msgs, m)
		if label.Defect != billing.None {
			poison++
		}
	}
	l.Write(msgs)

	w := l.Start("--instance-id", "rebuild-1")
	const single, batch = 20, 30
	ids := map[string]int{}
	keep := func(id string, n int) {
		if was, twice := ids[id]; twice && was != n {
			t.Errorf("records %d and %d are one item", was, n)
		}
		ids[id] = n
	}
	for n := range single {
		status, answer := handOver(t, l, w, submission(l, n))
		var one struct{ Quarantine_ID string }
		if err := json.Unmarshal(answer, &one); err != nil || status != http.StatusCreated || one.Quarantine_ID == "" {
			t.Fatalf("%d %s %v", status, answer, err)
		}
		keep(one.Quarantine_ID, n)
	}
	l.Until(3*time.Minute, "the end of the source topic", func() bool {
		return l.Settled(l.Group("billing-event-processor"), l.Topic("billing.invoices.v1"), l.Topic("billing.invoices.v1.retry"))
	})
	var many []string
	for n := range batch {
		many = append(many, submission(l, single+n))
	}
	status, answer := handOver(t, l, w, "["+strings.Join(many, ",")+"]")
	w.Kill() // at once: what was answered is durable all the same
	var all struct {
		Items []struct{ Quarantine_ID string }
	}
	if err := json.Unmarshal(answer, &all); err != nil || status != http.StatusCreated || len(all.Items) != batch {
		t.Fatalf("%d %s %v", status, answer, err)
	}
	for n, it := range all.Items {
		keep(it.Quarantine_ID, single+n)
	}
	if len(ids) != single+batch {
		t.Fatalf("%d ids for %d records", len(ids), single+batch)
	}
	dlq := l.Topic("billing.invoices.v1.dlq")
	standing := map[string]int{}
	l.Each(dlq, func(_ pipeline.TP, r *pipeline.Record) {
		if deadletter.IsProbe(r) {
			return
		}
		letter, err := deadletter.Parse(dlq, r, l.Ring)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(r.Value, []byte("4111111111111111")) {
			t.Errorf("%s stands on the topic with its card number", letter.Item)
		}
		standing[string(letter.Item)]++
	})
	for id := range ids {
		if standing[id] != 1 {
			t.Errorf("%s was answered 201 and stands %d times on the topic", id, standing[id])
		}
	}

	w = l.Start("--instance-id", "rebuild-1")
	for _, n := range []int{0, single} { // sent again: the same items
		status, answer := handOver(t, l, w, submission(l, n))
		var one struct{ Quarantine_ID string }
		if err := json.Unmarshal(answer, &one); err != nil || status != http.StatusCreated || ids[one.Quarantine_ID] != n {
			t.Fatalf("%d %s %v", status, answer, err)
		}
	}
	l.Until(3*time.Minute, "custody of everything, with what was sent twice", func() bool {
		var again struct{ Items []struct{ ID string } }
		l.JSON(&again, "quarantine", "list", "confirmed=yes", "--limit", "500")
		items := exported(t, l)
		twice := 0
		for id := range ids {
			if it, there := items[id]; there && it.Sightings == 2 {
				twice++
			}
		}
		return len(items) == poison+single+batch && twice == 2 && len(again.Items) == poison
	})
	if code := w.Stop(); code != 0 && code != 143 {
		t.Errorf("exit code %d", code)
	}
	l.Must("ledger", "verify")
	before := exported(t, l)

	// The ledger is lost.
	if _, errs, code := l.Run("ledger", "rebuild", "--credential", l.Key("privacy")); code != 2 || !strings.Contains(errs, "ERR_INPUT_INVALID") {
		t.Errorf("a rebuild wrote over a ledger that is there: exit %d\n%s", code, errs)
	}
	l.Ledger = "sqlite:rebuilt.db"
	var rebuilt struct {
		Items   string
		Raw     string
		Missing []struct{ Topic, From, To, Why string }
	}
	l.JSON(&rebuilt, "ledger", "rebuild", "--credential", l.Key("privacy"))
	if rebuilt.Items != fmt.Sprint(len(before)) || rebuilt.Raw != "0" || len(rebuilt.Missing) != 0 {
		t.Errorf("rebuilt %+v, want %d items", rebuilt, len(before))
	}
	if d := cmp.Diff(before, exported(t, l)); d != "" {
		t.Errorf("the rebuilt ledger differs (-lost +rebuilt):\n%s", d)
	}
	var held struct{ Items []struct{ ID string } }
	l.JSON(&held, "quarantine", "list", "flag=rebuilt", "--limit", "500")
	if len(held.Items) != len(before) {
		t.Errorf("%d of %d items are marked rebuilt", len(held.Items), len(before))
	}
	l.JSON(&rebuilt, "ledger", "rebuild", "--credential", l.Key("privacy")) // once more, as after one that was interrupted
	if rebuilt.Items != "0" {
		t.Errorf("a second rebuild made %s items", rebuilt.Items)
	}
	l.Must("ledger", "verify")

	// Retention takes the first letters of every partition: the next rebuild names them, and the source offsets that they were of.
	client, err := kgo.NewClient(kgo.SeedBrokers(l.Bootstrap))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	cut := kadm.Offsets{}
	lost := map[string]int{}
	for p, end := range must(l.Admin.EndOffsets(t.Context(), dlq)) {
		if end > 3 {
			cut.Add(kadm.Offset{Topic: dlq, Partition: p, At: 3})
		}
	}
	l.Each(dlq, func(tp pipeline.TP, r *pipeline.Record) {
		if _, is := cut.Lookup(dlq, tp.Partition); is && r.Offset < 3 && !deadletter.IsProbe(r) {
			letter, err := deadletter.Parse(dlq, r, l.Ring)
			if err != nil {
				t.Fatal(err)
			}
			lost[string(letter.Item)]++
		}
	})
	if _, err := kadm.NewClient(client).DeleteRecords(t.Context(), cut); err != nil {
		t.Fatal(err)
	}
	l.Ledger = "sqlite:rebuilt-again.db"
	l.JSON(&rebuilt, "ledger", "rebuild", "--credential", l.Key("privacy"))
	after := exported(t, l)
	partitions, offsets := 0, 0
	for _, m := range rebuilt.Missing {
		switch m.Topic {
		case dlq:
			partitions++
			if m.From != "0" || m.To != "3" {
				t.Errorf("%+v", m)
			}
		case l.Topic("billing.invoices.v1"):
			var from, to int
			if _, err := fmt.Sscan(m.From+" "+m.To, &from, &to); err != nil {
				t.Fatal(err)
			}
			offsets += to - from
		default:
			t.Errorf("%+v", m)
		}
	}
	gone, ofPipeline := 0, 0
	for id := range before {
		if _, there := after[id]; there {
			continue
		}
		gone++
		if _, handed := ids[id]; !handed {
			ofPipeline++
		}
		if lost[id] == 0 {
			t.Errorf("%s is gone though its letter stands", id)
		}
	}
	if partitions != len(cut[dlq]) || gone == 0 || offsets != ofPipeline {
		t.Errorf("%d partitions of %d are named; %d items are gone, %d of them the pipeline's, and %d source offsets are named", partitions, len(cut[dlq]), gone, ofPipeline, offsets)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
