package worker_test

import (
	"context"
	"testing"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/pipeline/engine"
)

// Nobody can tell which bytes of a record that cannot be decoded are the declared fields: all of it goes to the vault.
func TestUndecodableRecordsOfDeclaredFieldsGoToTheVault(t *testing.T) {
	o := lane(t, "billing.yaml")
	trial := engine.NewTrial(o)
	b := o.Pool.Get()
	b.TP = pipeline.TP{Topic: "billing.invoices.v1"}
	b.Recs = append(b.Recs[:0], pipeline.Record{Key: []byte("ACC-1"), Value: []byte("\x00\x00\x00\x00\x07dora@example.com")})
	err := trial.Try(context.Background(), b, func(r engine.Tried) error {
		if r.What != pipeline.Sealed || r.View != nil || len(r.Messages) != 2 {
			t.Fatalf("%s with %d messages", r.What, len(r.Messages))
		}
		letter := pipeline.Record{Key: r.Messages[0].Key, Value: r.Messages[0].Value, Headers: r.Messages[0].Headers}
		l, err := deadletter.Parse(r.Messages[0].Topic, &letter, o.Ring)
		if err != nil || l.Kind != deadletter.KindSealed || l.Value != nil || l.Faithful != deadletter.Vault || string(l.Key) != "ACC-1" {
			t.Errorf("%+v %v", l, err)
		}
		kept := pipeline.Record{Key: r.Messages[1].Key, Value: r.Messages[1].Value, Headers: r.Messages[1].Headers}
		if v, err := deadletter.ParseVaulted("billing.invoices.v1.dlq.vault", &kept, o.Ring); err != nil || v.Item != l.Item || v.Digest != l.DigestFaithful {
			t.Errorf("%+v %v", v, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
