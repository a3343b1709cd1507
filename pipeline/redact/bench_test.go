package redact_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/redact"
)

// invoice is a record of about 1.2 KiB with 30 leaves: ids, times, amounts, names, lines.
func invoice(card string) []byte {
	return fmt.Appendf(nil, `{"event_id":"47223179-9330-4259-b66c-f2db26efb20c","tenant":"acme","account_id":"acc-00017291","invoice_id":"inv-2026-0009917","version":17,`+
		`"issued_at":"2026-09-15T10:00:00.123Z","issued_ms":1789466400123,"currency":"EUR","amount_minor":1250099,"tax_minor":199595,"status":"open",`+
		`"customer":{"name":"Erika Mustermann","email":"erika@acme.example","street":"Heidestrasse 17","city":"Koeln","zip":"51147","country":"DE"},`+
		`"lines":[{"sku":"A-1009-77","text":"Cloud storage, 1 TiB, September","quantity":3,"unit_minor":29900,"amount_minor":89700},`+
		`{"sku":"B-2210-01","text":"Support plan gold, monthly fee for the production tenant","quantity":1,"unit_minor":990000,"amount_minor":990000}],`+
		`"payment":{"method":"card","reference":"%s","due":"2026-10-15"},"note":"Please pay within thirty days. Questions are answered by the finance team at any time; `+
		`name the invoice number, so that the payment can be found. This invoice was made by a machine and is valid without a signature.",`+
		`"source":{"system":"billing-event-processor","release":"2.2.17","host":"worker-eu-7","trace":"0af7651916cd43dd8448eb211c80319c"}}`, card)
}

func decodeFor(b testing.TB, s *codec.Scratch, value []byte) (func() pipeline.View, pipeline.View) {
	d, err := codec.NewDecoder(codec.DecodeConfig{Format: codec.FormatJSON}, nil)
	if err != nil {
		b.Fatal(err)
	}
	decode := func() pipeline.View {
		s.Reset()
		v, f := d.Decode(context.Background(), s, value, nil)
		if f != nil {
			b.Fatal(f.Reason())
		}
		return v
	}
	return decode, decode()
}

// BenchmarkRedactJSON: the detectors alone (clean and with a card), with the decoding that goes before, and what a walk over
// encoding/json costs.
func BenchmarkRedactJSON(b *testing.B) {
	r := mustNew(b, redact.Config{}, redact.Options{})
	for _, c := range []struct{ name, card string }{{"clean", "RF18-5390-0754"}, {"card", "4539 5787 6362 1486"}} {
		value := invoice(c.card)
		b.Run(c.name+"/redact", func(b *testing.B) {
			_, v := decodeFor(b, codec.NewScratch(), value)
			e := r.NewEditor()
			dst := make([]byte, 0, 4096)
			b.SetBytes(int64(len(value)))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := r.Value(dst, v, e); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(c.name+"/leaves", func(b *testing.B) {
			_, v := decodeFor(b, codec.NewScratch(), value)
			rec := &recorder{e: r.NewEditor()}
			if _, _, err := v.Edit(nil, rec); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				for i := range rec.leaves {
					rec.e.Edit(rec.rules[i], rec.leaves[i])
				}
			}
		})
		b.Run(c.name+"/decode+redact", func(b *testing.B) {
			decode, _ := decodeFor(b, codec.NewScratch(), value)
			e := r.NewEditor()
			dst := make([]byte, 0, 4096)
			b.SetBytes(int64(len(value)))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := r.Value(dst, decode(), e); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(c.name+"/encoding-json", func(b *testing.B) {
			b.SetBytes(int64(len(value)))
			b.ReportAllocs()
			for b.Loop() {
				d := json.NewDecoder(bytes.NewReader(value))
				d.UseNumber()
				var x any
				if err := d.Decode(&x); err != nil {
					b.Fatal(err)
				}
				x = walkAny(x)
				if _, err := json.Marshal(x); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// walkAny is the least that a walk does: look for twelve digits in every string.
func walkAny(x any) any {
	switch x := x.(type) {
	case map[string]any:
		for k, v := range x {
			x[k] = walkAny(v)
		}
	case []any:
		for i, v := range x {
			x[i] = walkAny(v)
		}
	case string:
		n := 0
		for _, c := range []byte(x) {
			if c >= '0' && c <= '9' {
				n++
			}
		}
		if n >= 16 && strings.HasPrefix(x, "4") {
			return "****"
		}
	}
	return x
}

// recorder keeps the leaves that a view shows, to run them without the codec.
type recorder struct {
	e      *redact.Editor
	rules  []pipeline.Rule
	leaves []pipeline.Leaf
}

func (r *recorder) Plan(path, name string, kind pipeline.ValueKind, tags []string) pipeline.Rule {
	return r.e.Plan(path, name, kind, tags)
}

func (r *recorder) Edit(rule pipeline.Rule, leaf pipeline.Leaf) pipeline.Edit {
	leaf.Path, leaf.Name = string(append([]byte(nil), leaf.Path...)), string(append([]byte(nil), leaf.Name...))
	leaf.Value.Bytes = append([]byte(nil), leaf.Value.Bytes...)
	r.rules, r.leaves = append(r.rules, rule), append(r.leaves, leaf)
	return pipeline.Edit{}
}

func TestNothingFoundAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	r := mustNew(t, redact.Config{Fields: []redact.Field{{Path: "/lines/*/none"}, {Name: "ssn"}}, Tags: []string{"PII"}, Patterns: []redact.Pattern{{Name: "ticket", Match: `TCK-\d{6}`}}}, redact.Options{})
	value := invoice("RF18-5390-0754")
	_, v := decodeFor(t, codec.NewScratch(), value)
	e := r.NewEditor()
	dst := make([]byte, 0, 4096)
	run := func() {
		if _, changed, err := r.Value(dst, v, e); changed || err != nil {
			t.Fatal(changed, err)
		}
	}
	run()
	if n := testing.AllocsPerRun(200, run); n != 0 {
		t.Errorf("Value of a clean record: %v allocations", n)
	}
	text := "datum ends early (at=17, want=8) in billing.invoices.v1/11/9007199254740993 at 1789466400123, see https://acme.example/x?ref=7"
	if n := testing.AllocsPerRun(200, func() { r.Text(text) }); n != 0 {
		t.Errorf("Text of a clean reason: %v allocations", n)
	}
	rec := &pipeline.Record{Key: []byte("acc-00017291"), Value: value, Headers: []pipeline.Header{{Name: "event_id", Value: []byte("47223179-9330-4259-b66c-f2db26efb20c")},
		{Name: "traceparent", Value: []byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")}}}
	for name, view := range map[string]pipeline.View{"decoded": v, "raw": nil} {
		if n := testing.AllocsPerRun(200, func() {
			if c, err := r.Sanitize("orders", rec, view); err != nil || c.Changed {
				t.Fatal(c.Changed, err)
			}
		}); n != 0 {
			t.Errorf("Sanitize of a clean record, %s: %v allocations", name, n)
		}
	}
}

// A card found and replaced in a record costs no allocation either: the lane stays flat when a producer leaks.
func TestAMaskedCardAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	r := mustNew(t, redact.Config{}, redact.Options{})
	_, v := decodeFor(t, codec.NewScratch(), invoice("4539 5787 6362 1486"))
	e := r.NewEditor()
	dst := make([]byte, 0, 4096)
	run := func() {
		if _, changed, err := r.Value(dst, v, e); !changed || err != nil {
			t.Fatal(changed, err)
		}
	}
	run()
	if n := testing.AllocsPerRun(200, run); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkKey(b *testing.B) {
	r := mustNew(b, redact.Config{}, redact.Options{})
	e := r.NewEditor()
	for _, key := range []string{"ACC-000001647", "7f1c8e64-0b1d-4c7a-9b63-0d2f5a1e9c11", "customer/acme/invoice/2026-09-15T10:00:00Z"} {
		b.Run(key, func(b *testing.B) {
			b.ReportAllocs()
			k := []byte(key)
			for b.Loop() {
				if err := r.Key(k, e); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
