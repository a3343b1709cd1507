package integration

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/tests/lab"
	"reprieve.dev/tests/services"
)

// A record that just fits into its topic, and fails: neither its letter nor its sealed bytes fit into theirs, whose limit is the same. They
// come into custody by way of the fallback store, and from there nothing is missing.
func large(t *testing.T, bootstrap, ledgerURL string) {
	l := lab.New(t, bootstrap)
	store := "{blob: 'file://" + filepath.ToSlash(filepath.Join(l.Dir, "letters")) + "?create_dir=true&metadata=skip'}"
	if ledgerURL != "" {
		l.Ledger, store = ledgerURL, "{ledger: main}"
	}
	l.Edit("pipelines/billing.yaml", "encrypt: true", "encrypt: true, fallback: ["+store+"]")
	in, group := l.Topic("billing.invoices.v1"), l.Group("billing-event-processor")
	value := append([]byte{0, 0, 0, 0, byte(l.SchemaID)}, bytes.Repeat([]byte{0xff}, 1_048_400)...) // a topic takes 1,048,588 unless it says else
	l.Write([]pipeline.Message{{Topic: in, Partition: 3, Key: []byte("ACC-1"), Value: value, From: -1}})
	w := l.Start("pipelines/billing.yaml", "--instance-id", "large-1")
	l.Until(2*time.Minute, "the record settled", func() bool { return l.Settled(group, in) })
	var found struct{ Items []struct{ ID string } }
	l.Until(2*time.Minute, "custody of it", func() bool {
		l.JSON(&found, "quarantine", "list", "confirmed=yes")
		return len(found.Items) == 1
	})
	id := found.Items[0].ID
	var out string
	l.Until(2*time.Minute, "its bytes in the vault", func() bool {
		var code int
		out, _, code = l.Run("quarantine", "reveal", id, "--original", "--reason", "look", "--credential", l.Key("finance"))
		return code == 0
	})
	var record struct{ Value struct{ Base64 string } }
	if err := json.Unmarshal([]byte(out), &record); err != nil {
		t.Fatal(err)
	}
	if got, err := base64.StdEncoding.DecodeString(record.Value.Base64); err != nil || !bytes.Equal(got, value) {
		t.Errorf("%d bytes of %d came back, %v", len(got), len(value), err)
	}
	l.Each(l.Topic("billing.invoices.v1.dlq.vault"), func(_ pipeline.TP, r *pipeline.Record) {
		if !deadletter.IsProbe(r) {
			t.Errorf("the vault topic took a message of %d bytes", len(r.Value))
		}
	})
	if code := w.Stop(); code != 0 && code != 143 {
		t.Errorf("the worker ended with exit code %d", code)
	}
	if n := objects(t, filepath.Join(l.Dir, "letters")); n != 0 {
		t.Errorf("%d messages are left in the bucket", n)
	}
	if out, errs, code := l.Run("ledger", "verify", "--topics"); code != 0 {
		t.Errorf("the ledger does not agree with the topics: exit %d\n%s%s", code, out, errs)
	}
}

func TestARecordThatNoTopicTakesComesIntoCustody(t *testing.T) {
	t.Run("embedded, bucket", func(t *testing.T) { large(t, startCluster(t).Properties["bootstrap.servers"], "") })
	t.Run("Apache Kafka, PostgreSQL", func(t *testing.T) {
		if testing.Short() {
			t.Skip("starts Apache Kafka")
		}
		large(t, services.Kafka(t), services.Postgres(t))
	})
}
