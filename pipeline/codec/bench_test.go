package codec

import (
	"encoding/json"
	"testing"

	hamba "github.com/hamba/avro/v2"
	"github.com/linkedin/goavro/v2"
	twmb "github.com/twmb/avro"

	"reprieve.dev/pipeline"
)

// BenchmarkDecodeRedact measures one record through each route in the same run: ours (validate, find, edit in place) and
// those of the libraries (decode, set fields, encode again).
func BenchmarkDecodeRedact(b *testing.B) {
	d, value := invoice(b, 2)
	body := value[5:]
	paths := []*pipeline.Path{path(b, "/event_id"), path(b, "/account_id"), path(b, "/customer/email"), path(b, "/amount_minor"), path(b, "/tenant")}
	ctx := b.Context()

	b.Run("reprieve/validate", func(b *testing.B) {
		s := NewScratch()
		b.ReportAllocs()
		for b.Loop() {
			s.Reset()
			if _, f := d.Decode(ctx, s, value, nil); f != nil {
				b.Fatal(f.Reason())
			}
		}
	})
	b.Run("reprieve/validate+find5", func(b *testing.B) {
		s := NewScratch()
		b.ReportAllocs()
		for b.Loop() {
			s.Reset()
			v, _ := d.Decode(ctx, s, value, nil)
			for _, p := range paths {
				v.Get(p)
			}
		}
	})
	b.Run("reprieve/redact", func(b *testing.B) {
		s := NewScratch()
		e := newRedactEditor()
		var dst []byte
		b.ReportAllocs()
		for b.Loop() {
			s.Reset()
			v, _ := d.Decode(ctx, s, value, nil)
			dst, _, _ = v.Edit(dst[:0], e)
		}
	})
	b.Run("reprieve/json", func(b *testing.B) {
		s := NewScratch()
		var dst []byte
		b.ReportAllocs()
		for b.Loop() {
			s.Reset()
			v, _ := d.Decode(ctx, s, value, nil)
			dst, _ = v.AppendJSON(dst[:0])
		}
	})
	b.Run("reprieve/json-input", func(b *testing.B) {
		s := NewScratch()
		j := jsonDecoder(b, Limits{})
		doc := []byte(text(b, mustView(b, d, value)))
		e := newRedactEditor()
		var dst []byte
		b.ReportAllocs()
		b.SetBytes(int64(len(doc)))
		for b.Loop() {
			s.Reset()
			v, _ := j.Decode(ctx, s, doc, nil)
			dst, _, _ = v.Edit(dst[:0], e)
		}
	})
	b.Run("encodingjson/json-input", func(b *testing.B) {
		doc := []byte(text(b, mustView(b, d, value)))
		b.ReportAllocs()
		b.SetBytes(int64(len(doc)))
		for b.Loop() {
			var m map[string]any
			if err := json.Unmarshal(doc, &m); err != nil {
				b.Fatal(err)
			}
			redactMap(m, false)
			if _, err := json.Marshal(m); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("hamba/redact", func(b *testing.B) {
		s := hamba.MustParse(invoiceSchema)
		b.ReportAllocs()
		for b.Loop() {
			var m map[string]any
			if err := hamba.Unmarshal(s, body, &m); err != nil {
				b.Fatal(err)
			}
			redactMap(m, false)
			if _, err := hamba.Marshal(s, m); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("twmb/redact", func(b *testing.B) {
		s, err := twmb.Parse(invoiceSchema)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			var m any
			if _, err := s.Decode(body, &m); err != nil {
				b.Fatal(err)
			}
			redactMap(m.(map[string]any), false)
			if _, err := s.Encode(m); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("goavro/redact", func(b *testing.B) {
		c, err := goavro.NewCodec(invoiceSchema)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			m, _, err := c.NativeFromBinary(body)
			if err != nil {
				b.Fatal(err)
			}
			redactMap(m.(map[string]any), true)
			if _, err := c.BinaryFromNative(nil, m); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// redactMap is what the library routes do with a decoded record.
func redactMap(m map[string]any, wrapped bool) {
	mask := func(m map[string]any, k string) {
		switch v := m[k].(type) {
		case nil:
		case map[string]any:
			if wrapped {
				v["string"] = "***"
			}
		default:
			m[k] = "***"
		}
	}
	c := m["customer"].(map[string]any)
	mask(c, "name")
	mask(c, "email")
	mask(m, "iban")
	mask(m, "card")
	mask(m, "cvv")
	for _, x := range m["lines"].([]any) {
		mask(x.(map[string]any), "note")
	}
	mask(m["labels"].(map[string]any), "region")
}
