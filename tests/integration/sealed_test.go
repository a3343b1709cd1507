package integration

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/tests/lab"
	"reprieve.dev/tests/services"
)

// What is planted: a test card, a token and a verification value that nothing else contains.
const (
	plantedCard  = "5105105105105100"
	plantedToken = "Zm9yIHRlc3RzIG9ubHk6IG5vdCBhIHRva2VuIQ"
	plantedCVV   = "92741"
)

// adjustment is a record of the example's JSON pipeline that fails for its currency.
func adjustment(l *lab.Lab, n int, key, notes string) pipeline.Message {
	value := map[string]any{"event_id": fmt.Sprintf("evt-sealed-%d", n), "adjustment_id": fmt.Sprintf("ADJ-%d", n), "invoice_id": fmt.Sprintf("INV-%d", n), "account_id": fmt.Sprintf("ACC-%d", n),
		"tenant": "acme", "token": fmt.Sprintf("tok-%d", n), "seq": n, "kind": "CORRECTION", "account_status": "ACTIVE", "country": "DE", "currency": "XXX", "amount_minor": 100 + n,
		"customer": map[string]string{"name": "Dora Muster", "email": "dora@example.com"}, "notes": notes}
	text, _ := json.Marshal(value) // strings and numbers
	return pipeline.Message{Topic: l.Topic("billing.adjustments.v1"), Partition: -1, Key: []byte(key), Value: text}
}

func zipped(text string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(text)) // into memory
	_ = w.Close()
	return b.Bytes()
}

// sealed is the way of records whose bytes may stand nowhere in the clear: quarantine, custody, repair from the vault after the source
// is gone, redrive, reconciliation, erasure.
func sealed(t *testing.T, bootstrap, delivery string) {
	l := lab.New(t, bootstrap)
	l.Edit("pipelines/adjustments.yaml", "encrypt: true", "encrypt: true, seal_originals: true")
	l.Edit("pipelines/adjustments.yaml", "delivery: at_least_once", "delivery: "+delivery)
	in, dlq, vault := l.Topic("billing.adjustments.v1"), l.Topic("billing.adjustments.v1.dlq"), l.Topic("billing.adjustments.v1.dlq.vault")
	const redacted, plain, healthy = 12, 6, 40
	var msgs []pipeline.Message
	for n := range redacted {
		msgs = append(msgs, adjustment(l, n, fmt.Sprintf("ACC-%d", n), "card "+plantedCard+", Authorization: Bearer "+plantedToken))
	}
	for n := range plain {
		msgs = append(msgs, adjustment(l, 100+n, fmt.Sprintf("ACC-%d", n), "nothing to hide"))
	}
	cvv := adjustment(l, 200, "ACC-200", "card "+plantedCard)
	cvv.Value = bytes.Replace(cvv.Value, []byte(`"notes"`), []byte(`"cvv":"`+plantedCVV[:3]+`","card_verification_value":"`+plantedCVV[:4]+`","notes"`), 1)
	inKey := adjustment(l, 201, plantedCard, "fine")
	hidden := pipeline.Message{Topic: in, Partition: -1, Key: []byte("ACC-202"), Value: zipped("card " + plantedCard)}
	msgs = append(msgs, cvv, inKey, hidden)
	for n := range healthy {
		m := adjustment(l, 300+n, fmt.Sprintf("ACC-%d", n), "card "+plantedCard)
		m.Value = bytes.Replace(m.Value, []byte("XXX"), []byte("EUR"), 1)
		msgs = append(msgs, m)
	}
	l.Write(msgs)
	w := l.Start()
	l.Until(2*time.Minute, "the end of the source topic", func() bool { return l.Settled(l.Group("billing-adjustment-processor"), in) })

	// Each failed record is a letter, and what redaction changed is in the vault too.
	const failed = redacted + plain + 3
	kinds, faithful := map[deadletter.Kind]int{}, map[deadletter.Faithful]int{}
	l.Each(dlq, func(_ pipeline.TP, r *pipeline.Record) {
		if deadletter.IsProbe(r) {
			return
		}
		letter, err := deadletter.Parse(dlq, r, l.Ring)
		if err != nil {
			t.Fatal(err)
		}
		kinds[letter.Kind]++
		faithful[letter.Faithful]++
		if letter.Value != nil && letter.Enc == "" {
			t.Errorf("the letter of %s is not sealed", letter.Original)
		}
	})
	sealedRecords := map[pipeline.ID]bool{}
	l.Each(vault, func(_ pipeline.TP, r *pipeline.Record) {
		if deadletter.IsProbe(r) {
			return
		}
		v, err := deadletter.ParseVaulted(vault, r, l.Ring)
		if err != nil {
			t.Fatal(err)
		}
		sealedRecords[v.Item] = true
	})
	// Every record has an e-mail address that the pipeline masks, so redaction changes each that it can read.
	if kinds[deadletter.KindLetter] != failed-2 || kinds[deadletter.KindSealed] != 2 || faithful[deadletter.Vault] != failed || len(sealedRecords) != failed {
		t.Errorf("kinds %v, faithful %v, %d sealed records", kinds, faithful, len(sealedRecords))
	}
	delivered := 0
	l.Each(l.Topic("billing.ledger.v1"), func(pipeline.TP, *pipeline.Record) { delivered++ })
	if delivered != healthy {
		t.Errorf("%d of %d records were delivered", delivered, healthy)
	}

	var found struct{ Items []struct{ ID, Kind string } }
	l.Until(time.Minute, "custody of every dead letter", func() bool {
		l.JSON(&found, "quarantine", "list", "state=DEAD_LETTERED", "confirmed=yes", "--limit", "500")
		return len(found.Items) == failed
	})
	l.Until(time.Minute, "every sealed record in the ledger", func() bool { _, _, code := l.Run("ledger", "verify"); return code == 0 })

	// The source forgets: what is repaired now comes from the vault.
	ends, err := l.Admin.EndOffsets(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	before := map[pipeline.TP]int64{}
	for p, end := range ends {
		before[pipeline.TP{Topic: in, Partition: p}] = end
	}
	if err := l.Admin.DeleteRecords(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	operator, finance, privacy := []string{"--credential", l.Key("operator")}, []string{"--credential", l.Key("finance")}, []string{"--credential", l.Key("privacy")}
	var all struct{ Groups []group }
	l.JSON(&all, "quarantine", "groups")
	var pick group
	for _, g := range all.Groups {
		if strings.Contains(g.Reason, "invalid-currency") && g.Open > pick.Open {
			pick = g
		}
	}
	sel := "fingerprint=" + pick.Fingerprint + " tenant=acme"
	l.Must(append([]string{"quarantine", "triage", sel, "--ticket", "T-1", "--yes"}, operator...)...)
	var repaired struct{ Changed, Failed int64 }
	out, _, _ := l.Run(append([]string{"quarantine", "repair", sel, "--pipeline", "adjustments", "--transform", "set@1.0.0", "--set", `{"values":{"/currency":"EUR"}}`, "--yes", "-o", "json"}, operator...)...)
	if err := json.Unmarshal([]byte(out), &repaired); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// All but the one whose verification value was taken out: no faithful bytes of it exist any more.
	const sent = redacted + plain + 1
	if repaired.Changed != sent || repaired.Failed != 1 {
		t.Errorf("repaired %+v, want %d", repaired, sent)
	}
	// The one with a card as its key would go to the vault again: it is left to the producer.
	var planned struct{ Digest string }
	l.JSON(&planned, append([]string{"redrive", "plan", sel + " kind=letter state=REPAIRED", "--pipeline", "adjustments", "--ticket", "T-1", "--yes"}, operator...)...)
	l.Must(append([]string{"redrive", "dry-run", planned.Digest}, operator...)...)
	l.Must(append([]string{"redrive", "approve", planned.Digest}, finance...)...)
	l.Run(append([]string{"redrive", "run", planned.Digest}, operator...)...)
	l.JSON(&found, "quarantine", "list", sel, "state=RECONCILED", "--limit", "500")
	if len(found.Items) != sent-1 {
		status, _, _ := l.Run(append([]string{"redrive", "status", planned.Digest}, operator...)...)
		t.Errorf("%d of %d items are reconciled\n%s", len(found.Items), sent-1, status)
	}
	delivered = 0
	l.Each(l.Topic("billing.ledger.v1"), func(_ pipeline.TP, r *pipeline.Record) { delivered++ })
	if delivered != healthy+sent-1 {
		t.Errorf("%d records were delivered, want %d", delivered, healthy+sent-1)
	}

	// A person sees the record as it came, for a reason; then the tenant is erased and nobody does.
	l.JSON(&found, "quarantine", "list", "tenant=acme", "--limit", "500")
	reveal := append([]string{"quarantine", "reveal", found.Items[0].ID, "--original", "--reason", "drill"}, privacy...)
	if out := l.Must(reveal...); !strings.Contains(out, `"key"`) {
		t.Errorf("revealed %s", out)
	}
	if _, errs, code := l.Run(append([]string{"ledger", "keys", "destroy", "acme", "--reason", "left", "--yes"}, operator...)...); code != 4 || !strings.Contains(errs, "ERR_PERMISSION_DENIED") {
		t.Errorf("an operator destroyed keys: exit %d\n%s", code, errs)
	}
	l.Must(append([]string{"ledger", "keys", "destroy", "acme", "--reason", "left", "--yes"}, privacy...)...)
	opened := 0
	l.JSON(&found, "quarantine", "list", "tenant=acme", "--limit", "500")
	for _, it := range found.Items {
		_, errs, code := l.Run(append([]string{"quarantine", "reveal", it.ID, "--original", "--reason", "drill"}, privacy...)...)
		switch {
		case code == 0:
			opened++
		case !strings.Contains(errs, "ERR_KEY_DESTROYED"):
			t.Errorf("%s: exit %d\n%s", it.ID, code, errs)
		}
		if opened > 0 {
			break
		}
	}
	if opened > 0 {
		t.Error("what was sealed for the tenant opens after its keys were destroyed")
	}
	// What comes later is sealed to the new key, and opens.
	l.Write([]pipeline.Message{adjustment(l, 900, "ACC-900", "card "+plantedCard)})
	var later struct{ Items []struct{ ID string } }
	l.Until(time.Minute, "custody of a later record", func() bool {
		l.JSON(&later, "quarantine", "list", "event=evt-sealed-900", "--limit", "5")
		return len(later.Items) == 1
	})
	l.Until(time.Minute, "its sealed record", func() bool {
		_, _, code := l.Run(append([]string{"quarantine", "reveal", later.Items[0].ID, "--original", "--reason", "drill"}, privacy...)...)
		return code == 0
	})
	if code := w.Stop(); code != 0 && code != 143 {
		t.Errorf("the worker ended with exit code %d", code)
	}
	nowhere(t, l, in)
}

// nowhere looks for what was planted in every topic but those that hold source bytes, and in every file: ledger, logs, journals.
func nowhere(t *testing.T, l *lab.Lab, in string) {
	t.Helper()
	secrets := []string{plantedCard, plantedToken, `"` + plantedCVV[:3] + `"`, `"` + plantedCVV[:4] + `"`}
	topics, err := l.Admin.Topics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	looked := 0
	for topic := range topics {
		if !strings.HasPrefix(topic, l.ID) || topic == in || topic == in+".retry" {
			continue
		}
		l.Each(topic, func(tp pipeline.TP, r *pipeline.Record) {
			looked++
			all := string(r.Key) + "\x00" + string(r.Value)
			for _, h := range r.Headers {
				all += "\x00" + h.Name + "\x00" + string(h.Value)
			}
			for _, s := range secrets {
				if strings.Contains(all, s) {
					t.Errorf("%s offset %d holds %s", tp, r.Offset, s)
				}
			}
		})
	}
	files := 0
	err = filepath.WalkDir(l.Dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		files++
		for _, s := range secrets {
			if bytes.Contains(text, []byte(s)) {
				t.Errorf("%s holds %s", path, s)
			}
		}
		return err
	})
	if err != nil || looked < 50 || files < 5 {
		t.Errorf("looked at %d messages and %d files: %v", looked, files, err)
	}
}

func TestSealedJourneyOnApacheKafka(t *testing.T) { sealed(t, services.Kafka(t), "exactly_once") }

func TestSealedJourneyOnTheEmbeddedBroker(t *testing.T) {
	c := startCluster(t)
	sealed(t, c.Properties["bootstrap.servers"], "at_least_once")
}
