package deadletter

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"reprieve.dev/pipeline"
	"reprieve.dev/seal"
)

func TestLetterGolden(t *testing.T) {
	ring := newRing(t, "k1")
	cases := map[string]func() (*Letter, Profiles){
		"letter-full":    func() (*Letter, Profiles) { return exampleLetter(), Profiles{} },
		"letter-connect": func() (*Letter, Profiles) { return exampleLetter(), Profiles{Connect: true} },
		"letter-least": func() (*Letter, Profiles) {
			return &Letter{Original: position("t", 0, 0), Failure: pipeline.Failure{Code: pipeline.CodeDecodeEmpty}}, Profiles{}
		},
		"letter-sealed": func() (*Letter, Profiles) {
			l := exampleLetter()
			l.Kind, l.Value, l.Faithful, l.Enc = KindSealed, []byte{1, 2, 3}, Vault, "hpke1;t1;AAAA"
			return l, Profiles{}
		},
		"letter-parked": func() (*Letter, Profiles) {
			l := exampleLetter()
			l.Kind, l.Behind, l.Failure, l.Attempts, l.Decision.Attempt = KindParked, "qother", pipeline.Failure{}, nil, 0
			return l, Profiles{}
		},
	}
	for name, make := range cases {
		t.Run(name+" is byte-stable and still read", func(t *testing.T) {
			l, p := make()
			golden(t, name, appendLetter(t, l, p, ring))
			got, err := Parse(dlq, arrived(readGolden(t, name)), ring)
			if err != nil {
				t.Fatal(err)
			}
			want, err := Parse(dlq, arrived(appendLetter(t, l, p, ring)), ring)
			if err != nil {
				t.Fatal(err)
			}
			if got.Dialect != Reprieve {
				t.Errorf("dialect %q", got.Dialect)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestLetterRoundTrip(t *testing.T) {
	ring := newRing(t, "k1")
	l := exampleLetter()
	got, err := Parse(dlq, arrived(appendLetter(t, l, Profiles{Connect: true}, ring)), ring)
	if err != nil {
		t.Fatal(err)
	}
	want := *l
	want.Dialect = Reprieve
	want.Class = pipeline.Payload
	want.Reason = "the bytes end before the record does (schema=avro:7, at=17)"
	want.Exception = "reprieve.payload.ERR_DECODE_TRUNCATED"
	want.Stack = "at stage decode of pipeline billing"
	want.Failure.Params, want.Failure.Stack = nil, want.Stack
	want.Decision.Code, want.Decision.Topic = pipeline.CodeDecodeTruncated, dlq
	if d := cmp.Diff(&want, got); d != "" {
		t.Error(d)
	}
}

func TestEveryLetterHasEachOfTheEightHeadersOnce(t *testing.T) {
	for _, l := range []*Letter{exampleLetter(), {Failure: pipeline.Failure{Code: pipeline.CodeDecodeEmpty, Stage: "decode"}}} {
		m := appendLetter(t, l, Profiles{}, nil)
		for _, name := range []string{HeaderReason, HeaderException, HeaderStack, HeaderTopic, HeaderPartition, HeaderOffset, HeaderQuarantined, HeaderAttemptCount} {
			if n := count(m.Headers, name); n != 1 {
				t.Errorf("%s stands %d times", name, n)
			}
		}
	}
}

// INV-SIGN: whatever somebody changes, adds, repeats or takes away, nothing of ours is believed.
func TestTamperedLetterIsNotBelieved(t *testing.T) {
	ring := newRing(t, "k1")
	whole := func() (string, *pipeline.Record) {
		return dlq, arrived(appendLetter(t, exampleLetter(), Profiles{Connect: true}, ring))
	}
	check := func(t *testing.T, topic string, r *pipeline.Record) {
		t.Helper()
		l, err := Parse(topic, r, ring)
		if err != nil {
			t.Fatal(err)
		}
		if l.Dialect == Reprieve || l.Item != "" || l.Identity.Tenant != "" || l.Identity.EventID != "" {
			t.Errorf("believed: %+v", l)
		}
		for _, h := range l.Headers {
			if isOurs(h.Name) {
				t.Errorf("%s is carried on under its own name", h.Name)
			}
		}
	}
	t.Run("another topic", func(t *testing.T) {
		_, r := whole()
		check(t, "other.dlq", r)
	})
	t.Run("another value, null or empty", func(t *testing.T) {
		for _, v := range [][]byte{nil, {}, {1}} {
			_, r := whole()
			r.Value = v
			check(t, dlq, r)
		}
	})
	t.Run("another key, null or empty", func(t *testing.T) {
		for _, v := range [][]byte{nil, {}, []byte("inv-2")} {
			_, r := whole()
			r.Key = v
			check(t, dlq, r)
		}
	})
	t.Run("an empty key made null", func(t *testing.T) {
		l := exampleLetter()
		l.Key = []byte{}
		r := arrived(appendLetter(t, l, Profiles{}, ring))
		if got, _ := Parse(dlq, r, ring); got.Dialect != Reprieve {
			t.Fatal("the untouched letter is not believed")
		}
		r.Key = nil
		check(t, dlq, r)
	})
	_, r := whole()
	for i, h := range r.Headers {
		if !isOurs(h.Name) && !isDeath(h.Name) {
			continue
		}
		t.Run("changed "+h.Name, func(t *testing.T) {
			_, r := whole()
			r.Headers[i].Value = append([]byte{'9'}, r.Headers[i].Value...)
			check(t, dlq, r)
		})
		t.Run("without "+h.Name, func(t *testing.T) {
			_, r := whole()
			r.Headers = append(r.Headers[:i:i], r.Headers[i+1:]...)
			check(t, dlq, r)
		})
		t.Run("repeated "+h.Name, func(t *testing.T) {
			_, r := whole()
			r.Headers = append(r.Headers, r.Headers[i])
			check(t, dlq, r)
		})
	}
	t.Run("an added header of our family", func(t *testing.T) {
		_, r := whole()
		r.Headers = append(r.Headers, pipeline.Header{Name: "reprieve-behind", Value: []byte("q1")})
		check(t, dlq, r)
	})
	t.Run("signed by a key that is not ours", func(t *testing.T) {
		check(t, dlq, arrived(appendLetter(t, exampleLetter(), Profiles{}, newRing(t, "k2"))))
	})
	t.Run("no signature", func(t *testing.T) {
		check(t, dlq, arrived(appendLetter(t, exampleLetter(), Profiles{}, nil)))
	})
	t.Run("signatures of odd forms", func(t *testing.T) {
		for _, sig := range []string{"", "v1", "v1;", "v1;k1", "v1;k1;", "v1;k1;!!", "v2;k1;AAAA", ";;;;", "v1;;", strings.Repeat("v1;k1;", 1000)} {
			_, r := whole()
			r.Headers[len(r.Headers)-1].Value = []byte(sig)
			check(t, dlq, r)
		}
	})
}

func TestForgedSaysSo(t *testing.T) {
	ring := newRing(t, "k1")
	r := &pipeline.Record{Headers: []pipeline.Header{{Name: "reprieve-quarantine-id", Value: []byte("q1")}, {Name: HeaderTopic, Value: []byte("t")}}}
	l, err := Parse(dlq, r, ring)
	if err != nil || !l.Forged || l.Dialect != X || l.Item != "" {
		t.Errorf("got %+v, %v", l, err)
	}
	want := []pipeline.Header{{Name: "reprieve-foreign-quarantine-id", Value: []byte("q1")}}
	if d := cmp.Diff(want, l.Headers); d != "" {
		t.Error(d)
	}
}

func TestKeysRotate(t *testing.T) {
	old, both := newRing(t, "k1"), newRing(t, "k2", "k1")
	r := arrived(appendLetter(t, exampleLetter(), Profiles{}, old))
	if l, err := Parse(dlq, r, both); err != nil || l.Dialect != Reprieve {
		t.Errorf("a letter under the old key: %v", err)
	}
	r = arrived(appendLetter(t, exampleLetter(), Profiles{}, both))
	if l, err := Parse(dlq, r, both); err != nil || l.Dialect != Reprieve {
		t.Errorf("a letter under the new key: %v", err)
	}
}

func TestSignedButUnreadableIsAnError(t *testing.T) {
	ring := newRing(t, "k1")
	for _, h := range []pipeline.Header{{Name: headerV, Value: []byte("2")}, {Name: headerKind, Value: []byte("postcard")},
		{Name: headerClass, Value: []byte("weird")}, {Name: headerTry, Value: []byte("70000")}, {Name: HeaderOffset, Value: []byte("1x")},
		{Name: headerAttempts, Value: []byte("{")}, {Name: headerAt, Value: []byte("t/1")}, {Name: headerTimeType, Value: []byte("moon")},
		{Name: headerFaithful, Value: []byte("yes")}} {
		t.Run(h.Name, func(t *testing.T) {
			m := appendLetter(t, exampleLetter(), Profiles{}, nil)
			for i := range m.Headers {
				if m.Headers[i].Name == h.Name {
					m.Headers[i].Value = h.Value
				}
			}
			sign(m, ring)
			l, err := Parse(dlq, arrived(m), ring)
			if pipeline.CodeOf(err) != pipeline.CodeLetterInvalid || l != nil {
				t.Errorf("got %v, %v", l, err)
			}
		})
	}
}

func TestShrinkOrder(t *testing.T) {
	ring := newRing(t, "k1")
	long := func() *Letter {
		l := exampleLetter()
		l.Stack = strings.Repeat("\tat x.y(Z.java:1)é\n", 9)
		l.Reason = strings.Repeat("é", 400)
		return l
	}
	whole := Size(appendLetter(t, long(), Profiles{Connect: true}, ring))
	least := Size(appendLetter(t, func() *Letter { l := long(); l.Stack, l.Reason = "x", "x"; return l }(), Profiles{}, ring))
	type state struct{ stack, reason, connect int }
	last := state{1 << 30, 1 << 30, 1}
	for limit := whole + 200; limit > least-200; limit -= 7 {
		m := &pipeline.Message{Topic: dlq}
		err := Append(m, long(), Profiles{Connect: true, MessageBytes: limit}, ring)
		if err != nil {
			if pipeline.CodeOf(err) != pipeline.CodeTooLarge {
				t.Fatal(err)
			}
			if last.stack > 0 || last.reason > 0 || last.connect > 0 {
				t.Fatalf("limit %d: refused though something could still give way: %+v", limit, last)
			}
			return
		}
		if Size(m) > limit {
			t.Fatalf("limit %d: the message has %d bytes", limit, Size(m))
		}
		stack, _ := find(m.Headers, HeaderStack)
		reason, _ := find(m.Headers, HeaderReason)
		if !utf8.Valid(stack) || !utf8.Valid(reason) {
			t.Fatalf("limit %d: cut inside a character", limit)
		}
		now := state{len(stack), len(reason), count(m.Headers, connectTopic)}
		if now.reason < len("é")*400 && now.stack > 0 {
			t.Fatalf("limit %d: the reason gave way before the stack", limit)
		}
		if now.connect == 0 && now.reason > 0 {
			t.Fatalf("limit %d: the connect profile gave way before the reason", limit)
		}
		if now.stack > last.stack || now.reason > last.reason || now.connect > last.connect {
			t.Fatalf("limit %d: something grew: %+v after %+v", limit, now, last)
		}
		last = now
		l, err := Parse(dlq, arrived(m), ring)
		if err != nil || l.Identity != long().Identity || l.Item != long().Item || string(l.Value) != string(long().Value) {
			t.Fatalf("limit %d: INV-IDENTITY: %v %+v", limit, err, l)
		}
	}
	t.Fatal("no limit was small enough to be refused")
}

func TestHeadersAreBounded(t *testing.T) {
	l := exampleLetter()
	l.Stack = strings.Repeat("𝄞", 5000) // four bytes each
	l.Reason = strings.Repeat("𝄞", 5000)
	for n := range 500 {
		l.Attempts = append(l.Attempts, pipeline.Attempt{N: n, At: time.UnixMilli(1760000000000), Code: pipeline.CodeRegistryUnavailable})
	}
	for _, p := range []Profiles{{}, {Connect: true}, {HeaderBytes: 3000}} {
		m := appendLetter(t, l, p, newRing(t, "k1"))
		most := p.HeaderBytes
		if most == 0 {
			most = DefaultHeaderBytes
		}
		if n := sizeOf(m.Headers[3:]); n > most {
			t.Errorf("%+v: %d bytes of headers", p, n)
		}
	}
}

// A producer that writes a megabyte into an id, a key or a header must not be able to make a record that no letter can hold.
func TestPointerAlwaysFits(t *testing.T) {
	ring := newRing(t, "k1")
	huge := strings.Repeat("9é", 500_000)
	l := exampleLetter()
	l.Identity = pipeline.Identity{Consumer: "c", Tenant: huge, EventID: huge, Entity: huge, BusinessID: huge, Token: huge, Version: huge}
	l.Key, l.Value = []byte(huge), []byte(huge)
	l.Headers = []pipeline.Header{{Name: "x", Value: []byte(huge)}}
	l.Reason, l.Stack = huge, huge
	m := &pipeline.Message{Topic: dlq}
	if err := Append(m, l.Pointer(), Profiles{Connect: true, MessageBytes: 16 << 10}, ring); err != nil {
		t.Fatal(err)
	}
	got, err := Parse(dlq, arrived(m), ring)
	if err != nil || got.Original != l.Original || got.Item != l.Item || got.Faithful != Source || got.Value != nil || got.Key != nil {
		t.Errorf("got %+v, %v", got, err)
	}
	if got.Identity.EventID != seal.SHA256([]byte(huge)) || got.Identity.Consumer != "c" {
		t.Errorf("event id %q", cutChars(got.Identity.EventID, 80))
	}
	if l.Value == nil || l.Headers == nil {
		t.Error("the letter itself was changed")
	}
}

func TestConnectProfileReplacesTheSourcesOwn(t *testing.T) {
	ring := newRing(t, "k1")
	l := exampleLetter()
	l.Headers = append(l.Headers, pipeline.Header{Name: connectTopic, Value: []byte("older")})
	with := appendLetter(t, l, Profiles{Connect: true}, ring)
	if n := count(with.Headers, connectTopic); n != 1 || value(t, with.Headers, connectTopic) != "billing.invoices.v1" {
		t.Errorf("connect topic stands %d times", n)
	}
	without := appendLetter(t, l, Profiles{}, ring)
	if value(t, without.Headers, connectTopic) != "older" {
		t.Error("a header that is not ours is gone")
	}
	got, err := Parse(dlq, arrived(without), ring)
	if err != nil || value(t, got.Headers, connectTopic) != "older" {
		t.Errorf("the source's header does not come back: %v", err)
	}
	got, err = Parse(dlq, arrived(with), ring)
	if err != nil || count(got.Headers, connectTopic) != 0 {
		t.Errorf("our profile is carried on as if it were the source's: %v", err)
	}
}

func TestPassHeaders(t *testing.T) {
	src := []pipeline.Header{{Name: "a"}, {Name: "reprieve-tenant", Value: []byte("evil")}, {Name: HeaderAttemptCount, Value: []byte("0")},
		{Name: "a", Value: []byte{}}, {Name: "reprieve-foreign-x", Value: []byte("1")}, {Name: "x-death-reason", Value: []byte("not ours")}}
	t.Run("unsigned: ours are renamed", func(t *testing.T) {
		want := []pipeline.Header{{Name: "a"}, {Name: "reprieve-foreign-tenant", Value: []byte("evil")}, {Name: "a", Value: []byte{}},
			{Name: "reprieve-foreign-x", Value: []byte("1")}, {Name: "x-death-reason", Value: []byte("not ours")}}
		if d := cmp.Diff(want, PassHeaders(nil, src, false)); d != "" {
			t.Error(d)
		}
	})
	t.Run("signed: ours are left out", func(t *testing.T) {
		want := []pipeline.Header{{Name: "a"}, {Name: "a", Value: []byte{}}, {Name: "reprieve-foreign-x", Value: []byte("1")},
			{Name: "x-death-reason", Value: []byte("not ours")}}
		if d := cmp.Diff(want, PassHeaders(nil, src, true)); d != "" {
			t.Error(d)
		}
	})
	t.Run("src is not written to", func(t *testing.T) {
		if src[1].Name != "reprieve-tenant" {
			t.Error("changed in place")
		}
	})
	if Passes(src) || !Passes(src[4:]) {
		t.Error("Passes disagrees with PassHeaders")
	}
}

func TestProbe(t *testing.T) {
	probe := &pipeline.Record{Headers: []pipeline.Header{{Name: HeaderProbe, Value: []byte("1")}}}
	keyed := &pipeline.Record{Key: []byte(HeaderProbe), Headers: probe.Headers}
	if !IsProbe(probe) || !IsProbe(keyed) {
		t.Error("a probe is not seen")
	}
	for name, r := range map[string]*pipeline.Record{
		"a foreign letter that calls itself one": {Headers: []pipeline.Header{{Name: HeaderProbe}, {Name: connectTopic}}},
		"a record with a key":                    {Key: []byte("k"), Headers: probe.Headers},
		"a record with a value":                  {Value: []byte("v"), Headers: probe.Headers},
		"no header":                              {},
	} {
		if IsProbe(r) {
			t.Errorf("%s would be skipped", name)
		}
	}
}

// Any letter comes back as it was written, and both writings of it are the same bytes.
func TestLetterModel(t *testing.T) {
	ring := newRing(t, "k1")
	text := rapid.StringMatching(`[ -~é—]{0,40}`)
	name := rapid.SampledFrom([]string{"a", "b", "", "reprieve-x", "reprieve-sig", "X-Death-Reason", "__connect.errors.topic", "kafka_dlt-original-topic", "X-Other"})
	some := rapid.OneOf(rapid.Just([]byte(nil)), rapid.SliceOfN(rapid.Byte(), 0, 20))
	rapid.Check(t, func(rt *rapid.T) {
		l := &Letter{Kind: KindLetter, Item: pipeline.ID(text.Draw(rt, "item")), Pipeline: text.Draw(rt, "pipeline"), Data: text.Draw(rt, "data"),
			Original:   position("t", rapid.Int32Min(0).Draw(rt, "p"), rapid.Int64Min(0).Draw(rt, "o")),
			At:         position("r", rapid.Int32Min(0).Draw(rt, "p2"), rapid.Int64Min(0).Draw(rt, "o2")),
			OriginalMS: rapid.Int64().Draw(rt, "ms"), TimeType: pipeline.TimeCreate, QuarantinedMS: rapid.Int64().Draw(rt, "q"),
			Failure:  pipeline.Failure{Stage: "decode", Code: pipeline.CodeDecodeEmpty},
			Identity: pipeline.Identity{Tenant: text.Draw(rt, "tenant"), EventID: text.Draw(rt, "event"), Token: text.Draw(rt, "token")},
			Key:      some.Draw(rt, "key"), Value: some.Draw(rt, "value")}
		for range rapid.IntRange(0, 6).Draw(rt, "headers") {
			l.Headers = append(l.Headers, pipeline.Header{Name: name.Draw(rt, "name"), Value: some.Draw(rt, "hv")})
		}
		m, again := &pipeline.Message{Topic: dlq}, &pipeline.Message{Topic: dlq}
		p := Profiles{Connect: rapid.Bool().Draw(rt, "connect")}
		if err := Append(m, l, p, ring); err != nil {
			rt.Fatal(err)
		}
		if err := Append(again, l, p, ring); err != nil {
			rt.Fatal(err)
		}
		if d := cmp.Diff(m, again); d != "" {
			rt.Fatal("not byte-stable: " + d)
		}
		got, err := Parse(dlq, arrived(m), ring)
		if err != nil {
			rt.Fatal(err)
		}
		if got.Dialect != Reprieve || got.Item != l.Item || got.Original != l.Original || got.At != l.At || got.OriginalMS != l.OriginalMS ||
			got.QuarantinedMS != l.QuarantinedMS || got.Identity != l.Identity || got.Pipeline != l.Pipeline {
			rt.Fatalf("got %+v", got)
		}
		if fmt.Sprintf("%#v %#v", got.Key, got.Value) != fmt.Sprintf("%#v %#v", l.Key, l.Value) {
			rt.Fatalf("key or value changed: %#v %#v", got.Key, got.Value)
		}
		want := PassHeaders(nil, l.Headers, false)
		if p.Connect {
			var rest []pipeline.Header
			for _, h := range want {
				if !strings.HasPrefix(h.Name, connectPrefix) {
					rest = append(rest, h)
				}
			}
			want = rest
		}
		if d := cmp.Diff(want, got.Headers); d != "" {
			rt.Fatal("INV-ORDER: " + d)
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	ring, l := newRing(b, "k1"), exampleLetter()
	m := &pipeline.Message{Topic: dlq}
	b.ReportAllocs()
	for b.Loop() {
		if err := Append(m, l, Profiles{}, ring); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	ring := newRing(b, "k1")
	r := arrived(appendLetter(b, exampleLetter(), Profiles{}, ring))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(dlq, r, ring); err != nil {
			b.Fatal(err)
		}
	}
}
