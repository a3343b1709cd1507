package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	_ "gocloud.dev/blob/fileblob"

	"reprieve.dev/config"
	"reprieve.dev/custody"
	"reprieve.dev/custody/custodytest"
	"reprieve.dev/ledger"
	"reprieve.dev/ledger/ledgertest"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/tests/conformance/script"
	"reprieve.dev/worker"
)

// Every store keeps letters, each once, gives them back as they were, forgets what is published and what is erased.
func TestFallbackStoresKeepLettersUntilTheirTopicTakesThem(t *testing.T) {
	ledgertest.Each(t, func(t *testing.T, s ledgertest.Store) {
		for _, kind := range []string{"ledger", "blob"} {
			t.Run(kind, func(t *testing.T) {
				e := custodytest.New(t, s)
				const topic = "billing.invoices.v1.dlq"
				c := &config.Pipeline{Name: "billing"}
				plan := &worker.Plan{Config: &config.Worker{Ledgers: map[string]config.Ledger{"main": {URL: config.NewSecret(s.URL)}}}}
				f := config.Fallback{Ledger: "main"}
				if kind == "blob" {
					f = config.Fallback{Blob: "file://" + filepath.ToSlash(t.TempDir()) + "?create_dir=true&metadata=skip"}
				}
				c.Quarantine.Fallback = []config.Fallback{f}
				stores, closing, err := plan.Fallbacks(e.Ctx, c, ledger.Options{Clock: e.Clock})
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := closing(); err != nil {
						t.Error(err)
					}
				}()
				sink := custody.NewFallback(t.Context(), c.Name, stores, e.Clock)
				if err := sink.Probe(e.Ctx, topic); err != nil {
					t.Fatal(err)
				}
				letter := func(n int64) pipeline.Message {
					m := pipeline.Message{Topic: topic, Partition: -1, From: 0}
					l := e.Letter(n)
					l.Headers = []pipeline.Header{{Name: "null"}, {Name: "twice", Value: []byte("1")}, {Name: "twice", Value: []byte{}}}
					if err := deadletter.Append(&m, l, deadletter.Profiles{}, e.Ring); err != nil {
						t.Fatal(err)
					}
					return m
				}
				var sent []pipeline.Message
				for n := range int64(250) {
					sent = append(sent, letter(n))
				}
				for range 2 { // the same records, read again
					x := &pipeline.Sending{Msgs: sent}
					if err := sink.Send(x); err != nil {
						t.Fatal(err)
					}
					if done := <-sink.Done(); done != x || len(x.Bad) > 0 {
						t.Fatalf("%d refused", len(x.Bad))
					}
				}
				store := stores[0]
				if err := store.Erase(e.Ctx, c.Name, deadletter.ItemOf(&sent[7])); err != nil {
					t.Fatal(err)
				}
				if other, err := store.List(e.Ctx, "bill", nil, 10); err != nil || len(other) > 0 {
					t.Errorf("another pipeline sees %d letters, %v", len(other), err)
				}

				cl := script.New(custodytest.Start.UnixMilli())
				cl.CreateTopic(topic, 1, nil)
				cl.Refuse(topic, pipeline.CodeSendTimeout, 1)
				out := cl.Sink(script.SinkOptions{})
				if _, err := custody.Republish(e.Ctx, store, c.Name, out, e.Ring, nil); pipeline.CodeOf(err) != pipeline.CodeCustodyUnavailable {
					t.Errorf("while the topic refuses: %v", err)
				}
				cl.Refuse(topic, "", 0)
				if _, err := custody.Republish(e.Ctx, store, c.Name, out, e.Ring, nil); err != nil {
					t.Fatal(err)
				}
				got := map[string]pipeline.Record{}
				for _, r := range cl.All(topic) {
					if _, err := deadletter.Parse(topic, &r, e.Ring); err != nil {
						t.Fatal(err)
					}
					got[fmt.Sprint(r.Headers)] = r
				}
				if len(got) != 249 || len(cl.All(topic)) != 249 {
					t.Errorf("%d letters, %d of them different, want 249", len(cl.All(topic)), len(got))
				}
				for i, m := range sent {
					r, there := got[fmt.Sprint(m.Headers)]
					if there == (i == 7) || there && (!bytes.Equal(r.Key, m.Key) || !bytes.Equal(r.Value, m.Value)) {
						t.Errorf("letter %d: published %v, %q %q", i, there, r.Key, r.Value)
					}
				}
				if left, err := store.List(e.Ctx, c.Name, nil, 10); err != nil || len(left) > 0 {
					t.Errorf("%d letters are left, %v", len(left), err)
				}

				// What is too large for its topic goes there without its value.
				x := &pipeline.Sending{Msgs: []pipeline.Message{letter(900)}}
				if err := sink.Send(x); err != nil {
					t.Fatal(err)
				}
				<-sink.Done()
				cl.Refuse(topic, pipeline.CodeTooLarge, 1)
				if n, err := custody.Republish(e.Ctx, store, c.Name, out, e.Ring, nil); err != nil || n != 1 {
					t.Errorf("%d published, %v", n, err)
				}
				all := cl.All(topic)
				l, err := deadletter.Parse(topic, &all[len(all)-1], e.Ring)
				if err != nil || l.Value != nil || l.Item != deadletter.ItemOf(&x.Msgs[0]) || l.Faithful != deadletter.Source {
					t.Errorf("%+v %v", l, err)
				}

				// What is too large for its vault, and custody does not take yet, stays in the store: these are the only bytes of it.
				kept := pipeline.Message{Topic: deadletter.VaultTopic(topic), Partition: -1}
				deadletter.AppendVaulted(&kept, &deadletter.Vaulted{Item: "large", Pipeline: c.Name, Enc: "hpke1;kid", Sealed: []byte("sealed")}, e.Ring)
				if err := sink.Send(&pipeline.Sending{Msgs: []pipeline.Message{kept}}); err != nil {
					t.Fatal(err)
				}
				<-sink.Done()
				cl.CreateTopic(kept.Topic, 1, nil)
				cl.Refuse(kept.Topic, pipeline.CodeTooLarge, 1)
				away := errors.New("the ledger is away")
				if n, err := custody.Republish(e.Ctx, store, c.Name, out, e.Ring, func(context.Context, []custody.TakenVault) error { return away }); !errors.Is(err, away) || n != 0 {
					t.Errorf("%d published, %v", n, err)
				}
				if left, err := store.List(e.Ctx, c.Name, nil, 10); err != nil || len(left) != 1 || len(cl.All(kept.Topic)) != 0 {
					t.Errorf("%d in the store, %d on the vault topic, %v", len(left), len(cl.All(kept.Topic)), err)
				}
			})
		}
	})
}

func TestAFallbackThatIsAwayRefusesAndTheNextOneTakes(t *testing.T) {
	ledgertest.Each(t, func(t *testing.T, s ledgertest.Store) {
		e := custodytest.New(t, s)
		away := custody.NewLedgerFallback(func(context.Context) (*ledger.DB, error) {
			return nil, pipeline.Errorf(pipeline.CodeLedgerUnavailable, "main", "it is away")
		})
		next := custody.NewLedgerFallback(func(context.Context) (*ledger.DB, error) { return e.DB, nil })
		m := pipeline.Message{Topic: "t", Partition: -1}
		if err := deadletter.Append(&m, e.Letter(1), deadletter.Profiles{}, e.Ring); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			stores []custody.FallbackStore
			bad    int
		}{{[]custody.FallbackStore{away, next}, 0}, {[]custody.FallbackStore{away}, 1}} {
			f := custody.NewFallback(t.Context(), "billing", c.stores, e.Clock)
			if err := f.Probe(e.Ctx, "t"); (err != nil) != (c.bad > 0) {
				t.Error(err)
			}
			x := &pipeline.Sending{Msgs: []pipeline.Message{m}}
			if err := f.Send(x); err != nil {
				t.Fatal(err)
			}
			<-f.Done()
			if len(x.Bad) != c.bad || c.bad > 0 && x.Bad[0].Failure.Code != pipeline.CodeFallbackFailed {
				t.Errorf("%+v", x.Bad)
			}
			closing, cancel := context.WithTimeout(t.Context(), time.Minute)
			if err := f.Close(closing); err != nil {
				t.Error(err)
			}
			cancel()
		}
	})
}
