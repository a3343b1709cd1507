package worker_test

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"testing"

	"reprieve.dev/config"
	"reprieve.dev/custody"
	"reprieve.dev/custody/custodytest"
	"reprieve.dev/ledger"
	"reprieve.dev/ledger/ledgertest"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/seal"
	"reprieve.dev/tests/conformance/script"
	"reprieve.dev/worker"
)

// Case C29: bytes that no topic takes come from a fallback store into custody, their letter from there to its topic; then the store has
// nothing of them. What was erased meanwhile does not come back.
func TestWhatNoTopicTakesComesFromTheFallbackStoreIntoCustody(t *testing.T) {
	ledgertest.Each(t, func(t *testing.T, s ledgertest.Store) {
		for n, kind := range []string{"ledger", "blob"} {
			t.Run(kind, func(t *testing.T) {
				const topic, vaultTopic = "billing.invoices.v1.dlq", "billing.invoices.v1.dlq.vault"
				e := custodytest.New(t, s)
				private, err := seal.GeneratePrivateKey("tacme.1")
				if err != nil {
					t.Fatal(err)
				}
				sealer := seal.NewSealer(func(string) (*seal.PublicKey, error) { return private.Public(), nil }, seal.SealerOptions{Clock: e.Clock})
				opener := seal.NewOpener(func(string, string) (*seal.PrivateKey, error) { return private, nil }, seal.OpenerOptions{Clock: e.Clock})
				items := e.Again(e.DB, func(o *custody.Options) { o.Opener, o.Sealer = opener, sealer })

				c := &config.Pipeline{Name: "billing"}
				c.Quarantine.Fallback = []config.Fallback{{Ledger: "main"}}
				if kind == "blob" {
					c.Quarantine.Fallback = []config.Fallback{{Blob: "file://" + filepath.ToSlash(t.TempDir()) + "?create_dir=true&metadata=skip"}}
				}
				plan := &worker.Plan{Config: &config.Worker{Ledgers: map[string]config.Ledger{"main": {URL: config.NewSecret(s.URL)}}}}
				stores, closing, err := plan.Fallbacks(e.Ctx, c, ledger.Options{Clock: e.Clock})
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := closing(); err != nil {
						t.Error(err)
					}
				}()
				store := stores[0]

				cl := script.New(custodytest.Start.UnixMilli())
				for _, name := range []string{topic, vaultTopic} {
					cl.CreateTopic(name, 1, map[string]string{"max.message.bytes": "5000"})
				}
				out := cl.Sink(script.SinkOptions{})
				spared := custody.NewFallback(t.Context(), c.Name, stores, e.Clock)
				value := bytes.Repeat([]byte("invoice "), 2000)
				put := func(n int64) *deadletter.Letter {
					l := e.Letter(n)
					l.Value, l.Headers, l.Faithful = nil, nil, deadletter.Vault
					l.DigestFaithful, l.DigestRedacted = pipeline.Digest(e.Identity.Digest(value)), pipeline.Digest(seal.SHA256(nil))
					kept := pipeline.Message{Topic: vaultTopic, Partition: -1}
					if err := l.Keep(&kept, &pipeline.Clean{Key: []byte("k"), Value: value}, sealer, e.Identity.Digest, e.Ring); err != nil {
						t.Fatal(err)
					}
					m := pipeline.Message{Topic: topic, Partition: -1}
					if err := deadletter.Append(&m, l, deadletter.Profiles{}, e.Ring); err != nil {
						t.Fatal(err)
					}
					for range 2 { // the same record, read again
						if err := spared.Send(&pipeline.Sending{Msgs: []pipeline.Message{kept, m}}); err != nil {
							t.Fatal(err)
						}
						if x := <-spared.Done(); len(x.Bad) > 0 {
							t.Fatal(x.Bad)
						}
					}
					return l
				}
				left := func() int {
					list, err := store.List(e.Ctx, c.Name, nil, 10)
					if err != nil {
						t.Fatal(err)
					}
					return len(list)
				}
				keep := func(ctx context.Context, list []custody.TakenVault) error {
					return items.Within(ctx, func(tx *ledger.Tx) error { return items.VaultTx(tx, list) })
				}

				l := put(int64(n) + 1)
				away := errors.New("the ledger is away")
				if _, err := custody.Republish(e.Ctx, store, c.Name, out, e.Ring, func(context.Context, []custody.TakenVault) error { return away }); !errors.Is(err, away) {
					t.Errorf("custody is away: %v", err)
				}
				if left() != 1 || len(cl.All(topic)) != 1 {
					t.Errorf("%d messages in the store, %d letters on the topic", left(), len(cl.All(topic)))
				}
				for range 2 { // a stop between custody and the store repeats it
					if _, err := custody.Republish(e.Ctx, store, c.Name, out, e.Ring, keep); err != nil || left() != 0 {
						t.Fatalf("%v, %d left", err, left())
					}
				}
				published := cl.All(topic)
				read, err := deadletter.Parse(topic, &published[0], e.Ring)
				if err != nil || read.Value != nil || read.Faithful != deadletter.Vault || len(cl.All(vaultTopic)) != 0 {
					t.Fatalf("letter %+v, %v", read, err)
				}
				if _, err := items.Admit(e.Ctx, custodytest.Worker, []custody.Arrival{custodytest.Arrival(read, int64(n)+1)}); err != nil {
					t.Fatal(err)
				}
				it := e.Show(t, l.Item).Item
				b, err := items.Faithful(e.Ctx, it)
				if err != nil || !bytes.Equal(b.Value, value) || string(b.Key) != "k" || !b.Faithful {
					t.Errorf("%d bytes, %v", len(b.Value), err)
				}

				// Read again after a crash, erased before it is taken.
				put(int64(n) + 1)
				if _, err := items.EraseItems(e.Ctx, custodytest.Admin, []pipeline.ID{l.Item}, "asked for"); err != nil {
					t.Fatal(err)
				}
				if _, err := custody.Republish(e.Ctx, store, c.Name, out, e.Ring, keep); err != nil || left() != 0 {
					t.Errorf("%v, %d left", err, left())
				}
				if b, err := items.Faithful(e.Ctx, e.Show(t, l.Item).Item); err == nil {
					t.Errorf("%d erased bytes came back", len(b.Value))
				}
			})
		}
	})
}
