package codec

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	hamba "github.com/hamba/avro/v2"
	"github.com/linkedin/goavro/v2"
	twmb "github.com/twmb/avro"
	"pgregory.net/rapid"

	"reprieve.dev/pipeline"
)

// gen is a schema and a maker of its values, in the native form that goavro and hamba share.
type gen struct {
	schema any
	value  func(*rapid.T) any
	name   string // in a union
}

// genSchema draws a schema; names counts named types.
func genSchema(t *rapid.T, depth int, names *int) gen {
	kinds := []string{"null", "boolean", "int", "long", "float", "double", "bytes", "string", "fixed", "enum"}
	if depth > 0 {
		kinds = append(kinds, "array", "map", "union", "union", "record", "record")
	}
	if depth == 4 {
		kinds = []string{"record"} // what topics carry
	}
	kind := rapid.SampledFrom(kinds).Draw(t, "kind")
	prim := func(f func(*rapid.T) any) gen { return gen{kind, f, kind} }
	*names++
	name := fmt.Sprintf("n.T%d", *names)
	switch kind {
	case "null":
		return prim(func(*rapid.T) any { return nil })
	case "boolean":
		return prim(func(t *rapid.T) any { return rapid.Bool().Draw(t, "b") })
	case "int":
		return prim(func(t *rapid.T) any { return rapid.Int32().Draw(t, "i") })
	case "long":
		return prim(func(t *rapid.T) any { return rapid.Int64().Draw(t, "l") })
	case "float":
		return prim(func(t *rapid.T) any { return rapid.Float32().Draw(t, "f") })
	case "double":
		return prim(func(t *rapid.T) any { return rapid.Float64().Draw(t, "d") })
	case "bytes":
		return prim(func(t *rapid.T) any { return rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "x") })
	case "string":
		return prim(func(t *rapid.T) any { return rapid.StringN(0, 90, 200).Draw(t, "s") })
	case "fixed":
		size := rapid.IntRange(1, 20).Draw(t, "size")
		return gen{map[string]any{"type": "fixed", "name": name, "size": size}, func(t *rapid.T) any {
			return rapid.SliceOfN(rapid.Byte(), size, size).Draw(t, "x")
		}, name}
	case "enum":
		symbols := []string{"A", "B", "C", "D"}[:rapid.IntRange(1, 4).Draw(t, "n")]
		return gen{map[string]any{"type": "enum", "name": name, "symbols": symbols}, func(t *rapid.T) any {
			return rapid.SampledFrom(symbols).Draw(t, "e")
		}, name}
	case "array":
		item := genSchema(t, depth-1, names)
		return gen{map[string]any{"type": "array", "items": item.schema}, func(t *rapid.T) any {
			out := []any{}
			for range rapid.IntRange(0, 5).Draw(t, "n") {
				out = append(out, item.value(t))
			}
			return out
		}, "array"}
	case "map":
		item := genSchema(t, depth-1, names)
		return gen{map[string]any{"type": "map", "values": item.schema}, func(t *rapid.T) any {
			out := map[string]any{}
			for range rapid.IntRange(0, 4).Draw(t, "n") {
				out[rapid.StringN(0, 10, 20).Draw(t, "key")] = item.value(t)
			}
			return out
		}, "map"}
	case "union":
		var branches []gen
		var schemas []any
		seen := map[string]bool{}
		for range rapid.IntRange(1, 4).Draw(t, "branches") {
			b := genSchema(t, depth-1, names)
			if seen[b.name] || b.name == "union" {
				continue
			}
			seen[b.name] = true
			branches = append(branches, b)
			schemas = append(schemas, b.schema)
		}
		if len(branches) == 0 {
			branches, schemas = []gen{{"null", func(*rapid.T) any { return nil }, "null"}}, []any{"null"}
		}
		return gen{schemas, func(t *rapid.T) any {
			b := rapid.SampledFrom(branches).Draw(t, "branch")
			v := b.value(t)
			if v == nil {
				return nil
			}
			return map[string]any{b.name: v}
		}, "union"}
	}
	var fields []any
	var parts []gen
	for i := range rapid.IntRange(0, 6).Draw(t, "fields") {
		f := genSchema(t, depth-1, names)
		parts = append(parts, f)
		fields = append(fields, map[string]any{"name": fmt.Sprintf("f%d", i), "type": f.schema})
	}
	if fields == nil {
		fields = []any{}
	}
	return gen{map[string]any{"type": "record", "name": name, "fields": fields}, func(t *rapid.T) any {
		out := map[string]any{}
		for i, p := range parts {
			out[fmt.Sprintf("f%d", i)] = p.value(t)
		}
		return out
	}, name}
}

// plain turns a native value into what our JSON says, read back as any.
func plain(t *typ, v any) any { return plainWith(t, v, func(s string) string { return s }) }

// plainWith is plain with each string replaced.
func plainWith(t *typ, v any, replace func(string) string) any {
	switch t.op {
	case opString:
		return replace(v.(string))
	case opRecord:
		out := map[string]any{}
		for i := range t.fields {
			out[t.fields[i].name] = plainWith(t.fields[i].t, v.(map[string]any)[t.fields[i].name], replace)
		}
		return out
	case opArray:
		out := []any{}
		for _, x := range v.([]any) {
			out = append(out, plainWith(t.item, x, replace))
		}
		return out
	case opMap:
		out := map[string]any{}
		for k, x := range v.(map[string]any) {
			out[k] = plainWith(t.item, x, replace)
		}
		return out
	case opUnion, opOptional:
		if v == nil {
			return nil
		}
		for k, x := range v.(map[string]any) {
			for _, b := range t.branches {
				if b.name == k || b.name == "" && opNames[b.wire()] == k {
					return plainWith(b, x, replace)
				}
			}
		}
	case opBytes, opFixed:
		runes := []rune{}
		for _, c := range v.([]byte) {
			runes = append(runes, rune(c))
		}
		return string(runes)
	case opInt, opLong:
		return json.Number(fmt.Sprint(v))
	case opFloat:
		return number(float64(v.(float32)), 32)
	case opDouble:
		return number(v.(float64), 64)
	}
	return v
}

func number(f float64, bits int) any {
	s := string(appendFloat(nil, f, bits))
	if s[0] == '"' {
		return s[1 : len(s)-1]
	}
	return json.Number(s)
}

func readJSON(t interface{ Fatalf(string, ...any) }, text string) any {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("our JSON is none: %v: %s", err, text)
	}
	return v
}

// reblock writes a validated value again with other block spellings: several blocks, with and without sizes.
func reblock(t *rapid.T, r *run, dst []byte, x *typ, off int) ([]byte, int) {
	switch x.op {
	case opRecord:
		for i := range x.fields {
			dst, off = reblock(t, r, dst, x.fields[i].t, off)
		}
		return dst, off
	case opUnion, opOptional:
		b, end := r.varint(off)
		dst = append(dst, r.data[off:end]...)
		return reblock(t, r, dst, x.branches[b], end)
	case opArray, opMap:
		for {
			count, _, body := r.block(off)
			off = body
			if count == 0 {
				return append(dst, 0), off
			}
			for count > 0 {
				n := int64(rapid.IntRange(1, int(count)).Draw(t, "block"))
				count -= n
				var block []byte
				for range n {
					if x.op == opMap {
						k, start := r.length(off)
						block = append(block, r.data[off:start+k]...)
						off = start + k
					}
					block, off = reblock(t, r, block, x.item, off)
				}
				if rapid.Bool().Draw(t, "sized") {
					dst = binary.AppendVarint(binary.AppendVarint(dst, -n), int64(len(block)))
				} else {
					dst = binary.AppendVarint(dst, n)
				}
				dst = append(dst, block...)
			}
		}
	}
	end := r.value(x, off, 0)
	return append(dst, r.data[off:end]...), end
}

// sameEditor replaces each leaf by its own text, or by another text.
type sameEditor struct{ other bool }

func (e *sameEditor) Plan(_, _ string, kind pipeline.ValueKind, _ []string) pipeline.Rule {
	if kind == pipeline.KindString {
		return 1
	}
	return 0
}

func (e *sameEditor) Edit(_ pipeline.Rule, l pipeline.Leaf) pipeline.Edit {
	if !e.other {
		return pipeline.Edit{Kind: pipeline.Replace, Text: l.Value.Bytes}
	}
	return pipeline.Edit{Kind: pipeline.Replace, Text: []byte(strings.Repeat("z", len(l.Value.Bytes)*3+70))}
}

func TestAgreesWithOtherDecodersOnGeneratedSchemas(t *testing.T) {
	same, other := &sameEditor{}, &sameEditor{other: true}
	rapid.Check(t, func(t *rapid.T) {
		names := 0
		g := genSchema(t, 4, &names)
		schemaText, err := json.Marshal(g.schema)
		if err != nil {
			t.Fatal(err)
		}
		codec, err := goavro.NewCodec(string(schemaText))
		if err != nil {
			t.Skip("goavro refuses the schema:", err)
		}
		cache := &hamba.SchemaCache{}
		hs, err := hamba.ParseWithCache(string(schemaText), "", cache)
		if err != nil {
			t.Skip("hamba refuses the schema:", err)
		}
		ts, err := twmb.Parse(string(schemaText))
		if err != nil {
			t.Skip("twmb refuses the schema:", err)
		}
		d, err := NewDecoder(DecodeConfig{Format: FormatAvro, Framing: FramingNone, Schema: string(schemaText)}, nil)
		if err != nil {
			t.Fatalf("%s: %v", schemaText, err)
		}
		native := g.value(t)
		body, err := codec.BinaryFromNative(nil, native)
		if err != nil {
			t.Skip("goavro refuses the value:", err)
		}
		if len(body) == 0 {
			t.Skip("a record of no bytes is no value of a topic")
		}
		s := NewScratch()
		v, f := d.Decode(t.Context(), s, body, nil)
		if f != nil {
			t.Fatalf("%s: %x: %s", schemaText, body, f.Reason())
		}
		out, _ := v.AppendJSON(nil)
		want := plain(d.fixed.root, native)
		if diff := cmp.Diff(want, readJSON(t, string(out))); diff != "" {
			t.Fatalf("%s\n%s", schemaText, diff)
		}

		// hamba writes the same value in its own way.
		if hb, err := hamba.Marshal(hs, native); err == nil && len(hb) > 0 {
			hv, f := d.Decode(t.Context(), NewScratch(), hb, nil)
			if f != nil {
				t.Fatalf("hamba's bytes: %s: %x: %s", schemaText, hb, f.Reason())
			}
			hout, _ := hv.AppendJSON(nil)
			if diff := cmp.Diff(want, readJSON(t, string(hout))); diff != "" {
				t.Fatalf("hamba's bytes: %s\n%s", schemaText, diff)
			}
		}

		// Our JSON encodes to a value with the same JSON.
		if enc, err := EncodeAvro(d.fixed.schema, out); err != nil {
			t.Fatalf("encode: %v: %s: %s", err, schemaText, out)
		} else if len(enc) > 5 {
			back, f := d.Decode(t.Context(), NewScratch(), enc[5:], nil)
			if f != nil {
				t.Fatalf("decode after encode: %s", f.Reason())
			}
			again, _ := back.AppendJSON(nil)
			if diff := cmp.Diff(readJSON(t, string(out)), readJSON(t, string(again))); diff != "" {
				t.Fatalf("round trip: %s\n%s", schemaText, diff)
			}
		}

		// Every truncation is refused; goavro and twmb agree that something is missing.
		cut := rapid.IntRange(0, len(body)-1).Draw(t, "cut")
		if _, f := d.Decode(t.Context(), NewScratch(), append([]byte{}, body[:cut]...), nil); f == nil {
			t.Fatalf("%s: %x cut to %d bytes is accepted", schemaText, body, cut)
		}

		// What we accept of damaged bytes, twmb accepts too, down to the last byte.
		bad := append([]byte{}, body...)
		for range rapid.IntRange(1, 3).Draw(t, "damage") {
			bad[rapid.IntRange(0, len(bad)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		}
		if bv, f := d.Decode(t.Context(), NewScratch(), bad, nil); f == nil {
			var x any
			rest, err := ts.Decode(bad, &x)
			if err != nil || len(rest) != 0 {
				t.Fatalf("%s: %x: accepted by us, twmb says %v and leaves %d bytes", schemaText, bad, err, len(rest))
			}
			bout, _ := bv.AppendJSON(nil)
			readJSON(t, string(bout))
		}

		// Other block spellings read the same, and edits keep them.
		r := &run{}
		r.free(body)
		blocks, _ := reblock(t, r, nil, d.fixed.root, 0)
		bv, f := d.Decode(t.Context(), s, blocks, nil)
		if f != nil {
			t.Fatalf("%s: blocks %x: %s", schemaText, blocks, f.Reason())
		}
		bout, _ := bv.AppendJSON(nil)
		if string(bout) != string(out) {
			t.Fatalf("blocks: %s, want %s", bout, out)
		}
		if edited, changed, _ := bv.Edit(nil, same); changed && string(edited) != string(blocks) {
			t.Fatalf("%s: replacing each string by itself changed %x to %x", schemaText, blocks, edited)
		}
		if edited, changed, _ := bv.Edit(nil, other); changed {
			ev, f := d.Decode(t.Context(), s, edited, nil)
			if f != nil {
				t.Fatalf("%s: edited %x to %x: %s", schemaText, blocks, edited, f.Reason())
			}
			eout, _ := ev.AppendJSON(nil)
			longer := plainWith(d.fixed.root, native, lengthen)
			if diff := cmp.Diff(longer, readJSON(t, string(eout))); diff != "" {
				t.Fatalf("%s: edit\n%s", schemaText, diff)
			}
		}
	})
}

// lengthen replaces a string as sameEditor does.
func lengthen(s string) string { return strings.Repeat("z", len(s)*3+70) }

func TestINVBoundedDecodeHostileCountsAreRefusedAtOnce(t *testing.T) {
	count := func(n int64) []byte { return binary.AppendVarint(nil, n) }
	rows := []struct {
		name, schema string
		value        []byte
		code         pipeline.Code
	}{
		{"2^31 longs in 6 bytes", `{"type":"array","items":"long"}`, append(count(1<<31), 2), pipeline.CodeDecodeTruncated},
		{"2^33 nulls", `{"type":"array","items":"null"}`, append(count(1<<33), 0), pipeline.CodeLimitItems},
		{"2^62 nulls", `{"type":"array","items":"null"}`, append(count(1<<62), 0), pipeline.CodeLimitItems},
		{"2^28 empty records", `{"type":"array","items":{"type":"record","name":"E","fields":[]}}`, append(count(1<<28), 0), pipeline.CodeLimitItems},
		{"many blocks of nulls", `{"type":"array","items":"null"}`, append(repeated(count(900_000), 3), 0), pipeline.CodeLimitItems},
		{"2^31 map entries", `{"type":"map","values":"long"}`, count(1 << 31), pipeline.CodeDecodeTruncated},
		{"least number", `{"type":"array","items":"long"}`, count(math.MinInt64), pipeline.CodeDecodeInvalid},
		{"negative size", `{"type":"array","items":"long"}`, append(append(count(-1), count(-5)...), 2, 0), pipeline.CodeDecodeInvalid},
		{"size beyond the end", `{"type":"array","items":"long"}`, append(append(count(-1), count(500)...), 2, 0), pipeline.CodeDecodeTruncated},
		{"size that is wrong", `{"type":"array","items":"long"}`, append(append(count(-1), count(2)...), 2, 0), pipeline.CodeDecodeInvalid},
		{"negative length", `"string"`, count(-1), pipeline.CodeDecodeInvalid},
		{"length 2^63-1", `"bytes"`, count(math.MaxInt64), pipeline.CodeDecodeTruncated},
		{"number of 11 bytes", `"long"`, []byte{0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1}, pipeline.CodeDecodeInvalid},
		{"number beyond 64 bits", `"long"`, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2}, pipeline.CodeDecodeInvalid},
		{"int beyond 32 bits", `"int"`, count(1 << 31), pipeline.CodeDecodeInvalid},
		{"boolean 2", `"boolean"`, []byte{2}, pipeline.CodeDecodeInvalid},
		{"branch 7", `["null","int"]`, []byte{14}, pipeline.CodeDecodeInvalid},
		{"branch -1", `["int","string","null"]`, []byte{1, 0}, pipeline.CodeDecodeInvalid},
		{"Latin-1 text", `"string"`, []byte{2, 0xe9}, pipeline.CodeDecodeInvalid},
		{"the same key twice", `{"type":"map","values":"int"}`, []byte{4, 2, 'a', 2, 2, 'a', 4, 0}, pipeline.CodeDecodeDuplicate},
		{"the same key twice among many", `{"type":"map","values":"null"}`, manyKeys(40, true), pipeline.CodeDecodeDuplicate},
		{"names that expand", `{"type":"array","items":{"type":"record","name":"E","fields":[{"name":"` + strings.Repeat("n", 400) + `","type":"boolean"}]}}`,
			append(append(count(100_000), make([]byte, 100_000)...), 0), pipeline.CodeLimitExpansion},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			_, f := decode(t, bare(t, row.schema, DecodeConfig{}), row.value)
			if f == nil || f.Code != row.code {
				t.Errorf("%v, want %s", f, row.code)
			}
		})
	}
}

func repeated(b []byte, n int) (out []byte) {
	for range n {
		out = append(out, b...)
	}
	return out
}

// manyKeys is a map of nulls; twice repeats the first key in a second block.
func manyKeys(n int, twice bool) []byte {
	b := binary.AppendVarint(nil, int64(n))
	for i := range n {
		b = append(b, 4, byte('a'+i/26), byte('a'+i%26))
	}
	if twice {
		b = append(b, 2, 4, 'a', 'a')
	}
	return append(b, 0)
}

func TestMapOfManyKeysIsRead(t *testing.T) {
	d := bare(t, `{"type":"map","values":"null"}`, DecodeConfig{})
	v := mustView(t, d, manyKeys(40, false))
	if n := len(v.Keys(&pipeline.Path{})); n != 40 {
		t.Errorf("%d keys", n)
	}
	if x, ok := v.Get(path(t, "/bn")); !ok || x.Kind != pipeline.KindNull {
		t.Errorf("%v %t", x, ok)
	}
}
