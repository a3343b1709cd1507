package deadletter

import (
	"bytes"
	"encoding/base64"
	"testing"

	"reprieve.dev/pipeline"
	"reprieve.dev/seal"
)

// fuzzRecord makes a record of bytes: key, value, then names and values, split at 0xff; fe is a null.
func fuzzRecord(b []byte) *pipeline.Record {
	parts := bytes.Split(b, []byte{0xff})
	at := func(i int) []byte {
		if i >= len(parts) || bytes.Equal(parts[i], []byte{0xfe}) {
			return nil
		}
		return append([]byte{}, parts[i]...)
	}
	r := &pipeline.Record{Key: at(0), Value: at(1)}
	for i := 2; i+1 < len(parts) && i < 130; i += 2 {
		r.Headers = append(r.Headers, pipeline.Header{Name: string(at(i)), Value: at(i + 1)})
	}
	return r
}

func seedOf(r *pipeline.Record) []byte {
	null := func(b []byte) []byte {
		if b == nil {
			return []byte{0xfe}
		}
		return b
	}
	parts := [][]byte{null(r.Key), null(r.Value)}
	for _, h := range r.Headers {
		parts = append(parts, []byte(h.Name), null(h.Value))
	}
	return bytes.Join(parts, []byte{0xff})
}

func addSeeds(f *testing.F, ring *seal.Ring) {
	for _, name := range []string{"connect", "streams", "share", "spring"} {
		_, recs := dialectFile(f, name)
		for _, r := range recs {
			f.Add(seedOf(r))
		}
	}
	f.Add(seedOf(arrived(appendLetter(f, exampleLetter(), Profiles{Connect: true}, ring))))
	f.Add(seedOf(arrived(trailMessage(f, nil, "k1"))))
	f.Add([]byte{})
}

// FuzzParse: nothing panics, and nobody without the key gets anything believed.
func FuzzParse(f *testing.F) {
	ring := newRing(f, "k1")
	addSeeds(f, ring)
	other := newRing(f, "k2")
	f.Fuzz(func(t *testing.T, b []byte) {
		r := fuzzRecord(b)
		l, err := Parse(dlq, r, other)
		if err != nil {
			t.Fatalf("an unsigned message is an error: %v", err)
		}
		if l.Dialect == Reprieve || l.Item != "" || l.Identity.Tenant != "" || l.Identity.EventID != "" {
			t.Fatalf("believed: %+v", l)
		}
		// What it says can be written as a letter of ours and read back.
		l.Failure.Stack = Stack(l.Stack)
		m := &pipeline.Message{Topic: dlq}
		if err := Append(m, l, Profiles{Connect: true}, ring); err != nil {
			t.Fatal(err)
		}
		back, err := Parse(dlq, arrived(m), ring)
		if err != nil || back.Dialect != Reprieve || !bytes.Equal(back.Value, r.Value) || (back.Value == nil) != (r.Value == nil) {
			t.Fatalf("read back %+v, %v", back, err)
		}
	})
}

// FuzzParseSigned: what a holder of the key signed is read or refused, never half read, and never panics.
func FuzzParseSigned(f *testing.F) {
	ring := newRing(f, "k1")
	addSeeds(f, ring)
	f.Fuzz(func(t *testing.T, b []byte) {
		r := fuzzRecord(b)
		m := &pipeline.Message{Topic: dlq, Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			if h.Name != headerSig {
				m.Headers = append(m.Headers, h)
			}
		}
		sign(m, ring)
		if l, err := Parse(dlq, arrived(m), ring); (l == nil) == (err == nil) {
			t.Fatalf("%v and %v", l, err)
		}
		if tr, _, err := ParseTrail(dlq, arrived(m), ring); (tr == nil) == (err == nil) {
			t.Fatalf("%v and %v", tr, err)
		}
	})
}

// FuzzParseTrail: nobody without the key has a past.
func FuzzParseTrail(f *testing.F) {
	ring := newRing(f, "k1")
	addSeeds(f, ring)
	other := newRing(f, "k2")
	f.Fuzz(func(t *testing.T, b []byte) {
		if tr, _, err := ParseTrail(retry, fuzzRecord(b), other); err == nil || tr != nil {
			t.Fatalf("believed: %+v", tr)
		}
	})
}

// FuzzParseSettlement goes past the signature: the value is read as if it were signed.
func FuzzParseSettlement(f *testing.F) {
	ring := newRing(f, "k1")
	var m pipeline.Message
	if err := exampleSettlement().AppendMessage(&m, "r", ring); err != nil {
		f.Fatal(err)
	}
	f.Add(m.Value)
	f.Fuzz(func(t *testing.T, value []byte) {
		s, what := parseSettlement(value)
		if (s == nil) == (what == "") {
			t.Fatal("neither read nor refused")
		}
		if s != nil {
			for _, d := range settled {
				for off := range s.Offsets(d) {
					if off < s.From || off >= s.To {
						t.Fatalf("offset %d outside [%d, %d)", off, s.From, s.To)
					}
				}
			}
		}
	})
}

// FuzzParseSet: hostile bitmap bytes.
func FuzzParseSet(f *testing.F) {
	s := exampleSettlement()
	b, err := s.sets[pipeline.DeadLettered].ToBytes()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		if set, ok := parseSet(base64.StdEncoding.EncodeToString(b)); ok && set.IsEmpty() {
			t.Fatal("an empty set")
		}
	})
}

// FuzzParseOutcome: nobody without a key says what became of anything.
func FuzzParseOutcome(f *testing.F) {
	ring := newRing(f, "k1")
	m := &pipeline.Message{}
	if err := AppendOutcome(m, exampleOutcome(), ring); err != nil {
		f.Fatal(err)
	}
	f.Add(m.Value)
	other := newRing(f, "k2")
	f.Fuzz(func(t *testing.T, value []byte) {
		if o, err := ParseOutcome(&pipeline.Record{Value: value}, other); err == nil {
			t.Fatalf("believed: %+v", o)
		}
	})
}
