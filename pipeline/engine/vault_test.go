package engine_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/pipeline/engine"
	"reprieve.dev/pipeline/redact"
	"reprieve.dev/seal"
	"reprieve.dev/tests/conformance/script"
)

const (
	card = "4111111111111111"
	gzip = "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xffpoison inside"
)

// vault is what a custodian has: the private key.
type vault struct {
	b      *bench
	key    *seal.PrivateKey
	opener *seal.Opener
	broken error // what sealing answers
}

// seals makes the bench redact for real, and seal.
func (b *bench) seals(o engine.Sealing) *vault {
	b.t.Helper()
	b.c.CreateTopic("in.dlq.vault", 2, nil)
	v := &vault{b: b, key: must(seal.GeneratePrivateKey("tacme.1"))}
	sealer := seal.NewSealer(func(string) (*seal.PublicKey, error) { return v.key.Public(), v.broken }, seal.SealerOptions{Clock: time.Now})
	v.opener = seal.NewOpener(func(string, string) (*seal.PrivateKey, error) { return v.key, nil }, seal.OpenerOptions{Clock: time.Now})
	o.Sealer, o.Topic = sealer, "in.dlq.vault"
	o.Strip = must(redact.New(redact.Config{Detectors: []string{redact.DetectCVV}}, redact.Options{}))
	b.o.Sanitize = must(redact.New(redact.Config{}, redact.Options{HashKey: make([]byte, 32)}))
	b.o.Seal = o
	return v
}

// records are the sealed records of the vault topic, by item.
func (v *vault) records() map[pipeline.ID]pipeline.Record {
	v.b.t.Helper()
	out := map[pipeline.ID]pipeline.Record{}
	for _, r := range v.b.c.All("in.dlq.vault") {
		if deadletter.IsProbe(&r) {
			continue
		}
		m, err := deadletter.ParseVaulted("in.dlq.vault", &r, testRing)
		if err != nil {
			v.b.t.Fatal(err)
		}
		plain, err := v.opener.Open(deadletter.SealedTenant(m.Tenant), m.Enc, m.Sealed, []byte(m.Item))
		if err != nil {
			v.b.t.Fatal(err)
		}
		var rec pipeline.Record
		if rec.Key, rec.Value, rec.Headers, err = deadletter.UnpackRecord(plain); err != nil {
			v.b.t.Fatal(err)
		}
		if m.Digest != pipeline.Digest(testIdentity.Digest(rec.Value)) {
			v.b.t.Error("the digest of a vault message is not that of its record")
		}
		out[m.Item] = rec
	}
	return out
}

// leaks fails when a text stands in the clear on any of the topics that letters go to.
func (b *bench) leaks(texts ...string) {
	b.t.Helper()
	for _, topic := range []string{"in.dlq", "in.dlq.vault", "reprieve.settlements", "reprieve.outcomes"} {
		if b.c.Partitions(topic) == 0 {
			continue
		}
		for _, r := range b.c.All(topic) {
			all := string(r.Key) + "\x00" + string(r.Value)
			for _, h := range r.Headers {
				all += "\x00" + h.Name + "\x00" + string(h.Value)
			}
			for _, text := range texts {
				if strings.Contains(all, text) {
					b.t.Errorf("%s holds %q", topic, text)
				}
			}
		}
	}
}

func (b *bench) put(r pipeline.Record) {
	r.TimeMS, r.TimeType = time.Now().UnixMilli(), pipeline.TimeCreate
	b.c.Append(pipeline.TP{Topic: "in"}, r)
}

func (b *bench) run(t *testing.T, d time.Duration) {
	t.Helper()
	b.start()
	b.after(d)
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
}

// each runs f at least once and exactly once, with the letters on the source's cluster and on another.
func eachDelivery(t *testing.T, f func(t *testing.T, b *bench)) {
	for _, mode := range []string{"at least once", "exactly once", "at least once, letters elsewhere", "exactly once, letters elsewhere"} {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, 1)
				if strings.HasPrefix(mode, "exactly") {
					b.exactlyOnce()
				}
				if strings.HasSuffix(mode, "elsewhere") {
					b.o.Letters = b.c.Sink(script.SinkOptions{})
					b.o.Prober = b.o.Letters
				}
				f(t, b)
			})
		})
	}
}

// INV-DLQ-01: what cannot be redacted leaves too, and nothing behind it waits.
func TestWhatCannotBeRedactedGoesToTheVault(t *testing.T) {
	eachDelivery(t, func(t *testing.T, b *bench) {
		v := b.seals(engine.Sealing{})
		b.o.Identify = who{EventID: "token=" + card, Tenant: "acme"}
		b.put(pipeline.Record{Key: []byte("a"), Value: []byte("fine")})
		b.put(pipeline.Record{Key: []byte(card), Value: []byte("poison 1"), Headers: []pipeline.Header{{Name: "authorization", Value: []byte("Bearer abcdefghijklmnop")}, {Name: "null"}}})
		b.put(pipeline.Record{Key: []byte("k"), Value: []byte(gzip)})
		b.put(pipeline.Record{Key: []byte(card), Value: nil, Headers: []pipeline.Header{{Name: "trace", Value: []byte("t1")}}})
		b.put(pipeline.Record{Key: []byte("z"), Value: []byte("also fine")})
		b.stage.seen = func(bt *pipeline.Batch, i int) {
			if r := &bt.Recs[i]; r.Value == nil || bytes.HasPrefix(r.Value, []byte("\x1f\x8b")) {
				bt.Fail(i, pipeline.Failure{Stage: "decode", Code: pipeline.CodeDecodeInvalid})
			}
		}
		b.run(t, 5*time.Second)
		if got := join(b.values("out")); got != "fine also fine" {
			t.Errorf("delivered %q", got)
		}
		want := map[string]int64{"in delivered": 2, "in sealed": 3}
		if diff := cmp.Diff(want, b.settled()); diff != "" {
			t.Errorf("settlements (-want +got):\n%s", diff)
		}
		if b.committed("in", 0) != 5 {
			t.Errorf("committed %d", b.committed("in", 0))
		}
		letters, records := b.letters(), v.records()
		if len(letters) != 3 || len(records) != 3 {
			t.Fatalf("%d letters and %d sealed records", len(letters), len(records))
		}
		source := b.c.All("in")
		for _, l := range letters {
			if l.Kind != deadletter.KindSealed || l.Value != nil || l.Faithful != deadletter.Vault || l.Enc != "" || l.DigestRedacted != "sha256:null" {
				t.Errorf("the placeholder of %s: %+v", l.Original, l)
			}
			was := source[l.Original.Offset]
			if got := records[l.Item]; !bytes.Equal(got.Key, was.Key) || !bytes.Equal(got.Value, was.Value) || (got.Value == nil) != (was.Value == nil) || !sameHeaders(got.Headers, was.Headers) {
				t.Errorf("sealed %q %q, the source has %q %q", got.Key, got.Value, was.Key, was.Value)
			}
			if l.DigestFaithful != pipeline.Digest(testIdentity.Digest(was.Value)) {
				t.Error("the digest of a placeholder is not that of its record")
			}
			if secret := string(was.Key) == card; secret && string(l.Key) != testIdentity.Digest([]byte(card)) || !secret && !bytes.Equal(l.Key, was.Key) {
				t.Errorf("key %q", l.Key)
			}
			if l.Identity.EventID != testIdentity.Digest([]byte("token="+card)) || l.Identity.Tenant != "acme" {
				t.Errorf("names %+v", l.Identity)
			}
		}
		b.leaks(card, "abcdefghijklmnop", "poison")
	})
}

type who pipeline.Identity

func (w who) Identify(string, *pipeline.Record, pipeline.View) pipeline.Identity {
	return pipeline.Identity(w)
}

func sameHeaders(a, b []pipeline.Header) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Name != b[i].Name || !bytes.Equal(a[i].Value, b[i].Value) || (a[i].Value == nil) != (b[i].Value == nil) {
			return false
		}
	}
	return true
}

// Without a keeper nobody could open a vault: the bytes stay in the source alone, and the placeholder says so.
func TestWithoutAKeeperTheSourceKeepsWhatCannotBeRedacted(t *testing.T) {
	eachDelivery(t, func(t *testing.T, b *bench) {
		b.o.Sanitize = must(redact.New(redact.Config{}, redact.Options{HashKey: make([]byte, 32)}))
		b.put(pipeline.Record{Key: []byte(card), Value: []byte("poison 1")})
		b.put(pipeline.Record{Key: []byte("k"), Value: []byte("fine")})
		b.run(t, 5*time.Second)
		l := b.letters()
		if len(l) != 1 || l[0].Kind != deadletter.KindLetter || l[0].Value != nil || l[0].Faithful != deadletter.Source || b.committed("in", 0) != 2 {
			t.Fatalf("letters %+v, committed %d", l, b.committed("in", 0))
		}
		if got := b.settled()["in dead_lettered"]; got != 1 {
			t.Error(b.settled())
		}
		b.leaks(card)
	})
}

func TestSealedLettersOpenWithTheKeyOnly(t *testing.T) {
	eachDelivery(t, func(t *testing.T, b *bench) {
		v := b.seals(engine.Sealing{Letters: true})
		b.o.Identify = who{Tenant: "acme"}
		b.put(pipeline.Record{Key: []byte("k"), Value: []byte("poison with " + card)})
		b.put(pipeline.Record{Key: []byte("k"), Value: []byte("poison of acme")})
		b.run(t, 5*time.Second)
		letters := b.letters()
		if len(letters) != 2 || len(v.records()) != 0 {
			t.Fatalf("%d letters, %d sealed records", len(letters), len(v.records()))
		}
		for i, l := range letters {
			if l.Kind != deadletter.KindLetter || l.Enc == "" || strings.HasPrefix(string(l.DigestRedacted), "sha256:") {
				t.Errorf("letter %+v", l)
			}
			plain, err := v.opener.Open("acme", l.Enc, l.Value, []byte(l.Item))
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 && (bytes.Contains(plain, []byte(card)) || !bytes.HasPrefix(plain, []byte("poison with ")) || l.Faithful != deadletter.Source) || i == 1 && (string(plain) != "poison of acme" || l.Faithful != deadletter.Inline) {
				t.Errorf("%d: %q is %s", i, plain, l.Faithful)
			}
		}
		one, two := letters[0], letters[1]
		changed := append([]byte(nil), one.Value...)
		changed[len(changed)-1] ^= 1
		other := must(seal.GeneratePrivateKey("tacme.1"))
		stranger := seal.NewOpener(func(string, string) (*seal.PrivateKey, error) { return other, nil }, seal.OpenerOptions{Clock: time.Now})
		for _, wrong := range []struct {
			name, tenant, enc string
			value             []byte
			item              pipeline.ID
			opener            *seal.Opener
		}{
			{"another item", "acme", one.Enc, one.Value, two.Item, v.opener}, {"one bit changed", "acme", one.Enc, changed, one.Item, v.opener},
			{"another tenant", "globex", one.Enc, one.Value, one.Item, v.opener}, {"another key", "acme", one.Enc, one.Value, one.Item, stranger},
		} {
			if plain, err := wrong.opener.Open(wrong.tenant, wrong.enc, wrong.value, []byte(wrong.item)); pipeline.CodeOf(err) != pipeline.CodeSealBroken {
				t.Errorf("%s: %q %v", wrong.name, plain, err)
			}
		}
		b.leaks(card, "poison")
	})
}

func TestOriginalsAreSealedWithoutVerificationValues(t *testing.T) {
	eachDelivery(t, func(t *testing.T, b *bench) {
		v := b.seals(engine.Sealing{Originals: true})
		b.put(pipeline.Record{Key: []byte("k"), Value: []byte(`poison {"card": "` + card + `", "cvv": "737"}`)})
		b.put(pipeline.Record{Key: []byte("k"), Value: []byte("poison of nobody")})
		b.put(pipeline.Record{Key: []byte("cvv=737"), Value: []byte("poison in the key")})
		b.run(t, 5*time.Second)
		letters, records := b.letters(), v.records()
		if len(letters) != 3 || len(records) != 1 {
			t.Fatalf("%d letters, %d sealed records", len(letters), len(records))
		}
		for _, l := range letters {
			switch l.Original.Offset {
			case 0:
				got := string(records[l.Item].Value)
				if l.Kind != deadletter.KindLetter || l.Faithful != deadletter.Vault || !strings.Contains(got, card) || strings.Contains(got, "737") || strings.Contains(string(l.Value), card) {
					t.Errorf("letter %s %q, sealed %q", l.Faithful, l.Value, got)
				}
			case 1:
				if l.Faithful != deadletter.Inline || string(l.Value) != "poison of nobody" {
					t.Errorf("letter %s %q", l.Faithful, l.Value)
				}
			case 2: // it cannot be taken out of the key: nobody stores it
				if l.Kind != deadletter.KindLetter || l.Faithful != deadletter.Source || l.Value != nil || strings.Contains(string(l.Key), "737") {
					t.Errorf("letter %s %s key %q", l.Kind, l.Faithful, l.Key)
				}
			}
		}
		if got := b.settled()["in dead_lettered"]; got != 3 {
			t.Error(b.settled())
		}
		b.leaks(card, "737")
	})
}

// A vault that takes less than the source leaves the bytes where they are; the letter says so, and nothing is an outage.
func TestWhatTheVaultDoesNotTakeStaysInTheSource(t *testing.T) {
	for _, known := range []bool{true, false} {
		eachDelivery(t, func(t *testing.T, b *bench) {
			v := b.seals(engine.Sealing{Letters: true, Originals: true})
			b.c.DeleteTopic("in.dlq.vault")
			b.c.CreateTopic("in.dlq.vault", 1, map[string]string{"max.message.bytes": "2000"})
			if known {
				b.o.Seal.MaxBytes = 2000
			}
			b.put(pipeline.Record{Key: []byte("k"), Value: []byte("poison " + card + strings.Repeat(" x", 2000))})
			b.put(pipeline.Record{Key: []byte(card), Value: []byte("poison" + strings.Repeat(" y", 2000))})
			b.put(pipeline.Record{Key: []byte("k"), Value: []byte("fine")})
			b.run(t, 20*time.Second)
			if len(v.records()) != 0 || b.committed("in", 0) != 3 || !b.health.Load().Ready {
				t.Errorf("%d sealed records, committed %d", len(v.records()), b.committed("in", 0))
			}
			last := map[int64]*deadletter.Letter{}
			for _, l := range b.letters() {
				last[l.Original.Offset] = l
			}
			if a, c := last[0], last[1]; len(last) != 2 || a.Faithful != deadletter.Source || a.Enc == "" || c.Faithful != deadletter.Source || c.Value != nil {
				t.Errorf("letters %+v", last)
			}
			b.leaks(card)
		})
	}
}

func TestALetterThatIsTooLargeKeepsItsVault(t *testing.T) {
	eachDelivery(t, func(t *testing.T, b *bench) {
		v := b.seals(engine.Sealing{Letters: true, Originals: true})
		b.c.DeleteTopic("in.dlq")
		b.c.CreateTopic("in.dlq", 1, map[string]string{"max.message.bytes": "3000"})
		b.put(pipeline.Record{Key: []byte("k"), Value: []byte("poison " + card + strings.Repeat(" x", 3000))})
		b.run(t, 20*time.Second)
		l := b.letters()
		if len(l) != 1 || l[0].Value != nil || l[0].Faithful != deadletter.Vault || len(v.records()) != 1 || b.committed("in", 0) != 1 {
			t.Fatalf("letters %+v, %d sealed, committed %d", l, len(v.records()), b.committed("in", 0))
		}
	})
}

// A vault that refuses is a dead-letter path that is down: nothing new is read until it takes messages again.
func TestARefusingVaultHaltsAndResumesByItself(t *testing.T) {
	eachDelivery(t, func(t *testing.T, b *bench) {
		v := b.seals(engine.Sealing{})
		b.put(pipeline.Record{Key: []byte(card), Value: []byte("poison 1")})
		b.start()
		b.after(10 * time.Millisecond)
		b.c.Refuse("in.dlq.vault", pipeline.CodeSendFailed, -1)
		b.put(pipeline.Record{Key: []byte(card), Value: []byte("poison 2")})
		b.after(5 * time.Second)
		if h := b.health.Load(); h.Ready || h.Code != pipeline.CodeFailureDomain {
			t.Errorf("health %+v", h)
		}
		b.c.Refuse("in.dlq.vault", "", 0)
		b.put(pipeline.Record{Key: []byte("k"), Value: []byte("fine")})
		b.after(20 * time.Second)
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		if len(v.records()) != 2 || b.committed("in", 0) != 3 || join(b.values("out")) != "fine" {
			t.Errorf("%d sealed, committed %d, delivered %v", len(v.records()), b.committed("in", 0), b.values("out"))
		}
	})
}

// Without its keys a pipeline that is told to seal writes nothing.
func TestASealerThatFailsWritesNothingInClear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		v := b.seals(engine.Sealing{Letters: true})
		v.broken = errors.New("no keys")
		b.put(pipeline.Record{Key: []byte("k"), Value: []byte("poison")})
		b.start()
		b.after(5 * time.Second)
		_ = b.stop()
		if len(b.letters()) != 0 || b.committed("in", 0) > 0 {
			t.Errorf("letters %v, committed %d", b.letters(), b.committed("in", 0))
		}
		if h := b.health.Load(); h.Ready || h.Code != pipeline.CodeSealFailed {
			t.Errorf("health %+v", h)
		}
	})
}

// A retried record that fails for good is sealed from its source bytes, under the item that its trail names.
func TestARetriedRecordIsSealedUnderItsItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		v := b.seals(engine.Sealing{Originals: true})
		b.put(pipeline.Record{Key: []byte("k"), Value: []byte("down " + card), Headers: []pipeline.Header{{Name: "h", Value: []byte("1")}}})
		b.run(t, 30*time.Second)
		l, records := b.letters(), v.records()
		if len(l) != 1 || l[0].Decision.Code != pipeline.CodeRetryExhausted {
			t.Fatalf("letters %+v", l)
		}
		got := records[l[0].Item]
		if string(got.Value) != "down "+card || len(got.Headers) != 1 || got.Headers[0].Name != "h" {
			t.Errorf("sealed %q %v", got.Value, got.Headers)
		}
		b.leaks(card)
	})
}

// Try shows what would be written, and nothing of a record that cannot be redacted.
func TestTryShowsSealedMessages(t *testing.T) {
	b := newBench(t, 1)
	b.seals(engine.Sealing{Letters: true, Originals: true})
	trial := engine.NewTrial(b.o)
	batch := b.pool.Get()
	batch.TP = pipeline.TP{Topic: "in"}
	batch.Recs = append(batch.Recs[:0], pipeline.Record{Key: []byte(card), Value: []byte("poison")}, pipeline.Record{Key: []byte("k"), Value: []byte("poison " + card), Offset: 1})
	var topics []string
	err := trial.Try(context.Background(), batch, func(r engine.Tried) error {
		for _, m := range r.Messages {
			topics = append(topics, m.Topic)
			if bytes.Contains(append(m.Value, m.Key...), []byte(card)) {
				t.Errorf("%s shows the card", m.Topic)
			}
		}
		return nil
	})
	if err != nil || join(topics) != "in.dlq in.dlq.vault in.dlq in.dlq.vault" {
		t.Errorf("%v %v", topics, err)
	}
}
