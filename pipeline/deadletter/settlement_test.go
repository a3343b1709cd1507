package deadletter

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"reprieve.dev/pipeline"
	"reprieve.dev/seal"
)

var everyDisposition = []pipeline.Disposition{pipeline.Delivered, pipeline.Retried, pipeline.DeadLettered, pipeline.Sealed,
	pipeline.InFallback, pipeline.Parked, pipeline.Ranged}

func exampleSettlement() *Settlement {
	const base = 1<<53 + 1
	s := NewSettlement("billing", pipeline.TP{Topic: "billing.invoices.v1", Partition: 3}, 7, pipeline.Checkpoint{Next: base})
	s.Policy = "sha256:00"
	for i := range int64(1000) {
		d := pipeline.Delivered
		switch {
		case i == 500:
			continue // a gap of the broker
		case i%10 == 3:
			d = pipeline.DeadLettered
		case i%100 == 7:
			d = pipeline.Retried
		case i == 998:
			d = pipeline.Parked
		}
		s.Add(base+i, d)
	}
	s.To, s.Next = base+1000, base+1000
	return s
}

func TestSettlementRoundTrip(t *testing.T) {
	ring := newRing(t, "k1")
	s := exampleSettlement()
	var m pipeline.Message
	if err := s.AppendMessage(&m, "reprieve", ring); err != nil {
		t.Fatal(err)
	}
	if m.Topic != "reprieve.settlements" || string(m.Key) != "billing/billing.invoices.v1/3" {
		t.Errorf("topic %s, key %s", m.Topic, m.Key)
	}
	golden(t, "settlement", &m)
	for _, m := range []*pipeline.Message{&m, readGolden(t, "settlement")} {
		got, err := ParseSettlement(arrived(m), ring)
		if err != nil {
			t.Fatal(err)
		}
		if got.Pipeline != "billing" || got.TP != s.TP || got.Epoch != 7 || got.From != s.From || got.To != s.To || got.Policy != s.Policy {
			t.Errorf("got %+v", got)
		}
		want := map[pipeline.Disposition]int64{pipeline.Delivered: 888, pipeline.DeadLettered: 100, pipeline.Retried: 10, pipeline.Parked: 1}
		for _, d := range everyDisposition {
			if got.Count(d) != want[d] || s.Count(d) != want[d] {
				t.Errorf("%v: %d written, %d read, want %d", d, s.Count(d), got.Count(d), want[d])
			}
			if diff := cmp.Diff(slices.Collect(s.Offsets(d)), slices.Collect(got.Offsets(d))); diff != "" {
				t.Error(diff)
			}
		}
		if d, ok := got.Disposition(s.From + 13); !ok || d != pipeline.DeadLettered {
			t.Errorf("offset 13: %v %v", d, ok)
		}
		if d, ok := got.Disposition(s.From + 500); !ok || d != pipeline.Delivered {
			t.Errorf("a gap reads as %v %v", d, ok)
		}
		if _, ok := got.Disposition(s.To); ok {
			t.Error("it knows an offset beyond its interval")
		}
		if _, ok := got.Disposition(s.From - 1); ok {
			t.Error("it knows an offset before its interval")
		}
	}
}

// Whatever is settled beyond the watermark, committed there and read on from by another life: of each offset that a committed
// checkpoint says is done, exactly one settlement that was committed with it speaks, and says what became of it.
func TestSettlementModel(t *testing.T) {
	ring := newRing(t, "k1")
	rapid.Check(t, func(rt *rapid.T) {
		committed := pipeline.Checkpoint{Next: rapid.Int64Range(0, 1<<40).Draw(rt, "from")}
		begin := func() (*Settlement, pipeline.Offsets) {
			return NewSettlement("p", pipeline.TP{Topic: "t"}, 1, committed), committed.Ahead.Clone()
		}
		s, done := begin() // done: what is settled beyond the watermark, in this life
		model, told := map[int64]pipeline.Disposition{}, map[int64]pipeline.Disposition{}
		for range rapid.IntRange(1, 20).Draw(rt, "steps") {
			for range rapid.IntRange(0, 10).Draw(rt, "adds") {
				off := committed.Next + rapid.Int64Range(0, 30).Draw(rt, "off")
				if d := rapid.SampledFrom(everyDisposition).Draw(rt, "d"); !done.Has(off) {
					s.Add(off, d)
					done.Add(off)
					model[off] = d
				}
			}
			c := pipeline.Checkpoint{Next: committed.Next, Ahead: done.Clone()}
			for c.Ahead.Has(c.Next) {
				c.Next++
			}
			if gap := rapid.Int64Range(0, 3).Draw(rt, "gap"); gap > 0 && c.Ahead.Count() == 0 { // offsets without a record
				c.Next += gap
			}
			c.Ahead.DropBelow(c.Next)
			now := map[int64]pipeline.Disposition{}
			for from, to := range s.Due(c) {
				var m pipeline.Message
				if err := s.Part(from, to, c.Next).AppendMessage(&m, "r", ring); err != nil {
					rt.Fatal(err)
				}
				got, err := ParseSettlement(arrived(&m), ring)
				if err != nil {
					rt.Fatal(err)
				}
				if got.From != from || got.To != to || got.Next != c.Next {
					rt.Fatalf("[%d, %d) with %d came as [%d, %d) with %d", from, to, c.Next, got.From, got.To, got.Next)
				}
				delivered := int64(0)
				for off := from; off < to; off++ {
					d, known := model[off]
					if !known {
						continue // it holds no record
					}
					if _, twice := told[off]; twice {
						rt.Fatalf("offset %d is told twice", off)
					}
					now[off] = d
					if d == pipeline.Delivered {
						delivered++
					} else if g, ok := got.Disposition(off); !ok || g != d {
						rt.Fatalf("offset %d: %v, want %v", off, g, d)
					}
				}
				if got.Count(pipeline.Delivered) != delivered {
					rt.Fatalf("delivered %d, want %d", got.Count(pipeline.Delivered), delivered)
				}
			}
			switch rapid.SampledFrom([]string{"committed", "committed", "refused", "killed"}).Draw(rt, "then") {
			case "committed":
				s.Advance(c)
				committed = c
				done.DropBelow(c.Next)
				for off, d := range now {
					told[off] = d
				}
				if rapid.Bool().Draw(rt, "another life") {
					s, done = begin()
				}
			case "killed": // what was not committed is done again
				s, done = begin()
				for off := range model {
					if _, ok := told[off]; !ok {
						delete(model, off)
					}
				}
			}
		}
		for off := range model {
			if _, ok := told[off]; !ok && (off < committed.Next || committed.Ahead.Has(off)) {
				rt.Fatalf("offset %d is committed and was never told", off)
			}
		}
	})
}

func resign(t *testing.T, m *pipeline.Message, ring *seal.Ring) {
	t.Helper()
	m.Headers = m.Headers[:1]
	m.Headers = append(m.Headers, pipeline.Header{Name: headerSig, Value: signature(ring, signedText(domainSettlement, m.Key, m.Value, m.Headers))})
}

func TestSettlementIsNotBelieved(t *testing.T) {
	ring := newRing(t, "k1")
	fresh := func() *pipeline.Message {
		var m pipeline.Message
		if err := exampleSettlement().AppendMessage(&m, "reprieve", ring); err != nil {
			t.Fatal(err)
		}
		return &m
	}
	t.Run("changed after it was signed", func(t *testing.T) {
		for _, change := range []func(*pipeline.Message){
			func(m *pipeline.Message) {
				m.Value = bytes.Replace(m.Value, []byte(`"epoch":7`), []byte(`"epoch":8`), 1)
			},
			func(m *pipeline.Message) { m.Key = []byte("other/t/0") },
			func(m *pipeline.Message) { m.Headers = m.Headers[:1] },
			func(m *pipeline.Message) { m.Value = nil },
		} {
			m := fresh()
			change(m)
			if s, err := ParseSettlement(arrived(m), ring); pipeline.CodeOf(err) != pipeline.CodeSignatureInvalid || s != nil {
				t.Errorf("got %v, %v", s, err)
			}
		}
	})
	edit := func(f func(v *settlementJSON)) *pipeline.Message {
		m := fresh()
		var v settlementJSON
		if err := json.Unmarshal(m.Value, &v); err != nil {
			t.Fatal(err)
		}
		f(&v)
		m.Value, _ = seal.Canonical(v)
		resign(t, m, ring)
		return m
	}
	huge := append(bytes.Repeat([]byte{0xff}, 8), make([]byte, 64)...)
	for name, f := range map[string]func(v *settlementJSON){
		"an interval that runs backwards": func(v *settlementJSON) { v.To = "1" },
		"a negative offset":               func(v *settlementJSON) { v.From = "-5" },
		"offsets outside the interval":    func(v *settlementJSON) { v.To = "9007199254741500" },
		"a count that the bitmap has not": func(v *settlementJSON) { v.Counts["retried"] = "11" },
		"a bitmap without a count":        func(v *settlementJSON) { delete(v.Counts, "retried") },
		"a count without a bitmap":        func(v *settlementJSON) { delete(v.Sets, "retried") },
		"an unknown disposition":          func(v *settlementJSON) { v.Counts["lost"] = "1" },
		"more than the interval holds":    func(v *settlementJSON) { v.Counts["delivered"] = "999" },
		"one offset twice":                func(v *settlementJSON) { v.Sets["sealed"], v.Counts["sealed"] = v.Sets["parked"], "1" },
		"a bitmap that claims 2^64 parts": func(v *settlementJSON) { v.Sets["retried"] = base64.StdEncoding.EncodeToString(huge) },
		"a bitmap that is cut":            func(v *settlementJSON) { v.Sets["retried"] = v.Sets["retried"][:16] },
		"a bitmap with something after it": func(v *settlementJSON) {
			b, _ := base64.StdEncoding.DecodeString(v.Sets["retried"])
			v.Sets["retried"] = base64.StdEncoding.EncodeToString(append(b, 0))
		},
		"another version": func(v *settlementJSON) { v.V = 2 },
	} {
		t.Run(name, func(t *testing.T) {
			if s, err := ParseSettlement(arrived(edit(f)), ring); pipeline.CodeOf(err) != pipeline.CodeLetterInvalid || s != nil {
				t.Errorf("got %v, %v", s, err)
			}
		})
	}
}

func exampleOutcome() *pipeline.Outcome {
	return &pipeline.Outcome{Pipeline: "billing", Item: "q1", Redrive: "sha256:m", Try: 2, At: position("billing.invoices.v1.retry", 1, 1<<53+1), AtMS: 1760000000123,
		Result: pipeline.Applied, EffectRef: "ledger:<7>", Writer: "billing-worker-1", Code: pipeline.CodeHTTPTimeout}
}

func TestOutcomeRoundTrip(t *testing.T) {
	ring := newRing(t, "k1")
	m := &pipeline.Message{Topic: OutcomesTopic("reprieve")}
	if err := AppendOutcome(m, exampleOutcome(), ring); err != nil {
		t.Fatal(err)
	}
	golden(t, "outcome", m)
	for _, m := range []*pipeline.Message{m, readGolden(t, "outcome")} {
		got, err := ParseOutcome(arrived(m), ring)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(*exampleOutcome(), got); d != "" {
			t.Error(d)
		}
	}
}

func TestOutcomeOfARegisteredWriter(t *testing.T) {
	ring := newRing(t, "k1")
	key, err := seal.NewSigner("payments", bytes.Repeat([]byte{3}, 32))
	if err != nil {
		t.Fatal(err)
	}
	stranger, _ := seal.NewSigner("stranger", bytes.Repeat([]byte{4}, 32))
	writers := map[string]Writer{"payments": {Consumer: "billing-event-processor", Key: key.Verifier()}}
	write := func(o *pipeline.Outcome, id string, k *seal.Signer) *pipeline.Record {
		m := &pipeline.Message{}
		if err := AppendOutcomeBy(m, o, id, k); err != nil {
			t.Fatal(err)
		}
		return arrived(m)
	}
	t.Run("is believed about its own consumer", func(t *testing.T) {
		o, consumer, err := ParseOutcomeBy(write(exampleOutcome(), "payments", key), ring, writers)
		if err != nil || consumer != "billing-event-processor" || o.Writer != "payments" || o.Result != pipeline.Applied {
			t.Errorf("got %+v %q %v", o, consumer, err)
		}
	})
	t.Run("never says forwarded", func(t *testing.T) {
		o := exampleOutcome()
		o.Result = pipeline.Forwarded
		if _, _, err := ParseOutcomeBy(write(o, "payments", key), ring, writers); err == nil {
			t.Error("believed")
		}
	})
	t.Run("is not believed when not registered, or with another's key", func(t *testing.T) {
		for _, r := range []*pipeline.Record{write(exampleOutcome(), "stranger", stranger), write(exampleOutcome(), "payments", stranger), write(exampleOutcome(), "k1", stranger)} {
			if _, _, err := ParseOutcomeBy(r, ring, writers); pipeline.CodeOf(err) != pipeline.CodeSignatureInvalid {
				t.Errorf("got %v", err)
			}
		}
		if _, err := ParseOutcome(write(exampleOutcome(), "payments", key), ring); err == nil {
			t.Error("believed without a registry of writers")
		}
	})
}

// A writer in another language follows the contract alone: no kind, and members of its own.
func TestOutcomeByTheContractAlone(t *testing.T) {
	key, err := seal.NewSigner("payments", bytes.Repeat([]byte{3}, 32))
	if err != nil {
		t.Fatal(err)
	}
	writers := map[string]Writer{"payments": {Consumer: "c", Key: key.Verifier()}}
	plain := `{"at":"1760000000123","effect_ref":"e","kid":"payments","more":"x","outcome":"applied","pipeline":"billing","quarantine_id":"q1","redrive_id":"sha256:m","try":1,"v":1,"writer":"payments"}`
	sig := base64.RawURLEncoding.EncodeToString(key.Sign([]byte(plain)))
	spaced := `{ "sig": "` + sig + `", ` + plain[1:]
	o, consumer, err := ParseOutcomeBy(&pipeline.Record{Value: []byte(spaced)}, nil, writers)
	if err != nil || consumer != "c" || o.Result != pipeline.Applied || o.AtMS != 1760000000123 {
		t.Errorf("got %+v, %v", o, err)
	}
	for name, text := range map[string]string{
		"a member added":   `{"extra":"1","sig": "` + sig + `", ` + plain[1:],
		"a member twice":   `{"outcome":"failed","sig": "` + sig + `", ` + plain[1:],
		"another kind":     `{"kind":"approval","sig": "` + sig + `", ` + plain[1:],
		"a member changed": strings.Replace(spaced, `"more":"x"`, `"more":"y"`, 1),
	} {
		if o, _, err := ParseOutcomeBy(&pipeline.Record{Value: []byte(text)}, nil, writers); err == nil {
			t.Errorf("%s: believed: %+v", name, o)
		}
	}
}

func TestDeliveredRecordsCostASettlementNothing(t *testing.T) {
	s := NewSettlement("p", pipeline.TP{Topic: "t"}, 1, pipeline.Checkpoint{Next: 0})
	off := int64(0)
	s.Add(off, pipeline.Delivered)
	if n := testing.AllocsPerRun(10_000, func() { off++; s.Add(off, pipeline.Delivered) }); n > 0 {
		t.Errorf("%v allocations a record", n)
	}
}

func TestOutcomeIsNotBelieved(t *testing.T) {
	ring := newRing(t, "k1")
	m := &pipeline.Message{}
	if err := AppendOutcome(m, exampleOutcome(), ring); err != nil {
		t.Fatal(err)
	}
	for _, pair := range [][2]string{{`"try":2`, `"try":3`}, {`"applied"`, `"failed"`}, {`"q1"`, `"q2"`}, {`"kid":"k1"`, `"kid":"k2"`}, {`"v":1`, `"v":2`},
		{`"pipeline":"billing"`, `"pipeline":"other"`}, {`"sha256:m"`, `"sha256:n"`}} {
		r := arrived(m)
		r.Value = bytes.Replace(r.Value, []byte(pair[0]), []byte(pair[1]), 1)
		if bytes.Equal(r.Value, m.Value) {
			t.Fatalf("%s is not in it", pair[0])
		}
		if o, err := ParseOutcome(r, ring); pipeline.CodeOf(err) != pipeline.CodeSignatureInvalid || o != (pipeline.Outcome{}) {
			t.Errorf("%s: got %+v, %v", pair[1], o, err)
		}
	}
}
