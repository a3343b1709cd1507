package engine_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/pipeline/engine"
	"reprieve.dev/tests/conformance/script"
)

// narrow gives a bench topics that take little, and a fallback store that takes all.
func narrow(b *bench, o engine.Sealing) (*vault, *script.Cluster) {
	v := b.seals(o)
	for _, topic := range []string{"in.dlq", "in.dlq.vault"} {
		b.c.DeleteTopic(topic)
		b.c.CreateTopic(topic, 1, map[string]string{"max.message.bytes": "3000"})
	}
	store := b.spare()
	store.CreateTopic("in.dlq.vault", 1, nil)
	return v, store
}

// asideOf is what the store has of the only record in it: its letter, and its sealed record opened.
func asideOf(t *testing.T, v *vault, store *script.Cluster) (*deadletter.Letter, pipeline.Record) {
	t.Helper()
	var l *deadletter.Letter
	for _, r := range store.All("in.dlq") {
		if !deadletter.IsProbe(&r) {
			var err error
			if l, err = deadletter.Parse("in.dlq", &r, testRing); err != nil {
				t.Fatal(err)
			}
		}
	}
	var rec pipeline.Record
	n := 0
	for _, r := range store.All("in.dlq.vault") {
		m, err := deadletter.ParseVaulted("in.dlq.vault", &r, testRing)
		if err != nil {
			t.Fatal(err)
		}
		plain, err := v.opener.Open(deadletter.SealedTenant(m.Tenant), m.Enc, m.Sealed, []byte(m.Item))
		if err != nil {
			t.Fatal(err)
		}
		if rec.Key, rec.Value, rec.Headers, err = deadletter.UnpackRecord(plain); err != nil {
			t.Fatal(err)
		}
		if l == nil || m.Item != l.Item {
			t.Fatalf("a sealed record of %s beside the letter %+v", m.Item, l)
		}
		n++
	}
	if l == nil || n == 0 {
		t.Fatalf("the store has the letter %+v and %d sealed records", l, n)
	}
	return l, rec
}

// Case C29: a value that no topic takes goes to the fallback store, sealed; its letter names it and carries nothing.
func TestAValueThatIsTooLargeGoesToTheFallbackStore(t *testing.T) {
	eachDelivery(t, func(t *testing.T, b *bench) {
		v, store := narrow(b, engine.Sealing{Letters: true})
		value := "poison" + strings.Repeat(" x", 3000)
		b.put(pipeline.Record{Key: []byte("k"), Value: []byte(value)})
		b.put(pipeline.Record{Key: []byte("k"), Value: []byte("fine")})
		b.run(t, 20*time.Second)
		l, rec := asideOf(t, v, store)
		if l.Value != nil || l.Faithful != deadletter.Vault || string(rec.Value) != value || string(rec.Key) != "k" {
			t.Errorf("letter %+v, %d bytes sealed", l, len(rec.Value))
		}
		if l.DigestFaithful != pipeline.Digest(testIdentity.Digest(rec.Value)) {
			t.Error("the letter names another digest")
		}
		if len(b.letters()) != 0 || b.committed("in", 0) != 2 || b.settled()["in fallback"] != 1 {
			t.Errorf("letters %v, committed %d, settled %v", b.letters(), b.committed("in", 0), b.settled())
		}
		if h := b.health.Load(); !h.Ready || h.Code != "" {
			t.Errorf("too large was taken for an outage: %+v", h)
		}
	})
}

// What redaction took out stands nowhere, unless originals are kept: then they are what is sealed.
func TestWhatGoesToTheFallbackStoreIsWhatTheLetterMayShow(t *testing.T) {
	for _, originals := range []bool{false, true} {
		eachDelivery(t, func(t *testing.T, b *bench) {
			v, store := narrow(b, engine.Sealing{Originals: originals})
			b.put(pipeline.Record{Key: []byte("k"), Value: []byte("poison " + card + strings.Repeat(" x", 3000))})
			b.run(t, 20*time.Second)
			l, rec := asideOf(t, v, store)
			if l.Faithful != deadletter.Vault || l.Value != nil || strings.Contains(string(rec.Value), card) != originals {
				t.Errorf("letter %+v; the card is sealed: %v", l, !originals)
			}
		})
	}
}

// A store that refuses halts: nothing of the record stands on a topic, and nothing is lost.
func TestAFallbackStoreThatRefusesALargeValueIsWaitedFor(t *testing.T) {
	eachDelivery(t, func(t *testing.T, b *bench) {
		v, store := narrow(b, engine.Sealing{Letters: true})
		store.Refuse("in.dlq", pipeline.CodeSendFailed, -1)
		store.Refuse("in.dlq.vault", pipeline.CodeSendFailed, -1)
		b.put(pipeline.Record{Key: []byte("k"), Value: []byte("poison" + strings.Repeat(" x", 3000))})
		b.start()
		b.after(20 * time.Second)
		if h := b.health.Load(); h.Ready || h.Code != pipeline.CodeFailureDomain {
			t.Errorf("health %+v", h)
		}
		if len(b.letters()) != 0 || b.committed("in", 0) > 0 {
			t.Errorf("letters %v, committed %d", b.letters(), b.committed("in", 0))
		}
		store.Refuse("in.dlq", "", 0)
		store.Refuse("in.dlq.vault", "", 0)
		b.after(30 * time.Second)
		if h := b.health.Load(); !h.Ready {
			t.Errorf("health %+v after the store came back", h)
		}
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		if l, _ := asideOf(t, v, store); l.Value != nil || len(b.letters()) != 0 || b.committed("in", 0) != 1 {
			t.Errorf("letter %+v, letters %v, committed %d", l, b.letters(), b.committed("in", 0))
		}
	})
}

// Without keys nothing may stand outside of the source unsealed: the value stays there.
func TestWithoutKeysALargeValueStaysInTheSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		b.c.DeleteTopic("in.dlq")
		b.c.CreateTopic("in.dlq", 1, map[string]string{"max.message.bytes": "3000"})
		store := b.spare()
		b.in(0, "poison"+strings.Repeat("x", 5000))
		b.run(t, 5*time.Second)
		if l := b.letters(); len(l) != 1 || l[0].Faithful != deadletter.Source || l[0].Value != nil || len(spared(t, store)) != 0 {
			t.Errorf("letters %+v", l)
		}
	})
}
