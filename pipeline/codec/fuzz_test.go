package codec

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	twmb "github.com/twmb/avro"

	"reprieve.dev/pipeline"
)

// fuzzSchemas are one of each kind, and those that were trouble elsewhere.
var fuzzSchemas = []string{
	invoiceSchema,
	recordV1,
	`{"type":"record","name":"Node","fields":[{"name":"v","type":"int"},{"name":"next","type":["null","Node"]}]}`,
	`{"type":"array","items":"null"}`,
	`{"type":"array","items":{"type":"array","items":{"type":"record","name":"E","fields":[]}}}`,
	`{"type":"map","values":{"type":"map","values":"int"}}`,
	`{"type":"record","name":"R","fields":[{"name":"u","type":["string","null","bytes",{"type":"enum","name":"E","symbols":["A","B"]},{"type":"fixed","name":"F","size":3},"double","boolean"]},
	  {"name":"d","type":{"type":"bytes","logicalType":"decimal","precision":30,"scale":10}},{"name":"t","type":{"type":"long","logicalType":"timestamp-micros"}},
	  {"name":"tm","type":{"type":"int","logicalType":"time-millis"}},{"name":"l","type":{"type":"long","logicalType":"local-timestamp-millis"}},{"name":"f","type":"float"}]}`,
}

func FuzzAvroDecode(f *testing.F) {
	var decoders []*Decoder
	var others []*twmb.Schema
	for _, s := range fuzzSchemas {
		decoders = append(decoders, bare(f, s, DecodeConfig{}))
		o, err := twmb.Parse(s)
		if err != nil {
			f.Fatal(err)
		}
		others = append(others, o)
	}
	_, value := invoice(f, 2)
	f.Add(uint8(0), value[5:])
	f.Add(uint8(2), []byte{2, 2, 2, 0})
	f.Add(uint8(3), []byte{6, 0})
	f.Add(uint8(4), []byte{1, 4, 6, 0, 0})
	f.Add(uint8(5), []byte{2, 2, 'a', 2, 2, 'b', 2, 0, 0})
	f.Add(uint8(6), []byte{0, 2, 'x', 2, 5, 0, 0, 0, 0, 0, 0, 0})
	s := NewScratch()
	f.Fuzz(func(t *testing.T, which uint8, value []byte) {
		s.Reset()
		i := int(which) % len(decoders)
		v, fail := decoders[i].Decode(t.Context(), s, value, nil)
		if fail != nil {
			if !pipeline.Known(fail.Code) || fail.Reason() == "" {
				t.Fatal(fail)
			}
			return
		}
		if v == nil {
			return
		}
		var x any
		if rest, err := others[i].Decode(value, &x); err != nil || len(rest) > 0 {
			if !strings.Contains(err.Error(), "exceed") { // a limit of its own
				t.Fatalf("accepted by us, but %v, %d bytes left", err, len(rest))
			}
		}
		out, err := v.AppendJSON(nil)
		if err != nil || !jsontext.Value(out).IsValid() {
			t.Fatalf("our JSON is none: %v %s", err, out)
		}
		walkAll(t, v, &pipeline.Path{}, 0)
		if edited, changed, _ := v.Edit(nil, &sameEditor{}); changed {
			if _, fail := decoders[i].Decode(t.Context(), NewScratch(), edited, nil); fail != nil {
				t.Fatalf("edited: %s", fail.Reason())
			}
		}
		edited, changed, _ := v.Edit(nil, &sameEditor{other: true})
		if changed {
			if _, fail := decoders[i].Decode(t.Context(), NewScratch(), edited, nil); fail != nil && fail.Code != pipeline.CodeLimitBytes && fail.Code != pipeline.CodeLimitExpansion {
				t.Fatalf("edited: %s", fail.Reason())
			}
		}
	})
}

// walkAll finds everything that Keys and lengths promise.
func walkAll(t *testing.T, v pipeline.View, p *pipeline.Path, depth int) {
	x, ok := v.Get(p)
	if !ok {
		t.Fatalf("%s is promised and not found", p.Text)
	}
	if depth > 5 {
		return
	}
	switch x.Kind {
	case pipeline.KindRecord, pipeline.KindMap:
		for i, k := range v.Keys(p) {
			if i > 20 {
				break
			}
			walkAll(t, v, p.Child(k), depth+1)
		}
	case pipeline.KindArray:
		if x.Int > 0 {
			walkAll(t, v, p.Child("0"), depth+1)
		}
	}
}

func FuzzJSONAgreesWithJsontext(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5e-3,"x\u00e9\ud83d\ude00",null,true]}`, `{"a":1,"\u0061":2}`, "[1,]", `"\ud800"`, "{}x", "\xef\xbb\xbf{}", "-0", "01", "1e", `{"":0}`, "\"\xc0\xaf\""} {
		f.Add([]byte(s))
	}
	d := jsonDecoder(f, Limits{})
	s := NewScratch()
	f.Fuzz(func(t *testing.T, value []byte) {
		if len(value) == 0 || deepest(value) > 100 {
			return
		}
		s.Reset()
		before := bytes.Clone(value)
		v, fail := d.Decode(t.Context(), s, value, nil)
		valid := jsontext.Value(value).IsValid()
		if (fail == nil) != valid {
			t.Fatalf("we say %v, jsontext %t", fail, valid)
		}
		if !bytes.Equal(before, value) {
			t.Fatal("the source changed")
		}
		if fail != nil {
			return
		}
		walkAll(t, v, &pipeline.Path{}, 0)
		for _, kind := range []pipeline.EditKind{pipeline.Replace, pipeline.Null, pipeline.Drop} {
			out, changed, err := v.Edit(nil, everyOther{kind})
			if err != nil {
				t.Fatal(err)
			}
			if changed && !jsontext.Value(out).IsValid() {
				t.Fatalf("edit %d made %s", kind, out)
			}
		}
	})
}

func deepest(b []byte) (most int) {
	depth := 0
	for _, c := range b {
		switch c {
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		}
		most = max(most, depth)
	}
	return most
}

// everyOther edits the leaves whose path has an even length.
type everyOther struct{ kind pipeline.EditKind }

func (e everyOther) Plan(path, _ string, _ pipeline.ValueKind, _ []string) pipeline.Rule {
	return pipeline.Rule(len(path) % 2)
}

func (e everyOther) Edit(pipeline.Rule, pipeline.Leaf) pipeline.Edit {
	return pipeline.Edit{Kind: e.kind, Text: []byte("a\"\\\x01é")}
}

func FuzzAvroSchema(f *testing.F) {
	for _, s := range fuzzSchemas {
		f.Add(s)
	}
	f.Add(`{"type":"record","name":"L","fields":[{"name":"s","type":"L"}]}`)
	f.Add(`{"type":"fixed","name":"F","size":-1}`)
	f.Fuzz(func(t *testing.T, text string) {
		start := time.Now()
		s, fail := ParseSchema(pipeline.SchemaRef{Format: FormatAvro, ID: 1}, text)
		if took := time.Since(start); took > 20*time.Second {
			t.Fatalf("took %s", took)
		}
		if fail != nil {
			return
		}
		s.Fingerprint()
		p := &program{schema: s, root: s.root, limits: Limits{}.withDefaults()}
		var v avroView
		if v.bind(NewScratch(), p, make([]byte, 64), 0) == nil {
			_, _ = v.AppendJSON(nil)
		}
		_, _ = resolve(s, s)
	})
}

func FuzzProtobufDecode(f *testing.F) {
	c := protoRegistry(f)
	d, err := NewDecoder(DecodeConfig{Format: FormatProtobuf}, c)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append([]byte{2, 2}, orderBytes(f, c)...))
	f.Add([]byte{0, 0x0a, 1, 'x'})
	f.Fuzz(func(t *testing.T, body []byte) {
		v, fail := d.Decode(t.Context(), NewScratch(), Frame(4, body), nil)
		if fail != nil {
			return
		}
		_, jsonErr := v.AppendJSON(nil)
		for _, p := range []string{"/id", "/party/email", "/lines/0/deltas/0", "/labels/a", "/next/next/big", "/at", "/rate"} {
			v.Get(path(t, p))
		}
		v.Keys(path(t, "/labels"))
		for _, kind := range []pipeline.EditKind{pipeline.Replace, pipeline.Drop} {
			out, changed, _ := v.Edit(nil, everyOther{kind})
			if !changed {
				continue
			}
			ev, fail := d.Decode(t.Context(), NewScratch(), out, nil)
			if fail != nil {
				t.Fatalf("edited: %s", fail.Reason())
			}
			if _, err := ev.AppendJSON(nil); err != nil && jsonErr == nil && kind == pipeline.Drop {
				t.Fatalf("edited: %v", err)
			}
		}
	})
}
