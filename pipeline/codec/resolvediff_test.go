package codec

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/linkedin/goavro/v2"
	twmb "github.com/twmb/avro"
	"pgregory.net/rapid"
)

var promotions = map[string][]string{"int": {"int", "long", "float", "double"}, "long": {"long", "float", "double"}, "float": {"float", "double"},
	"string": {"string", "bytes"}, "bytes": {"bytes", "string"}}

// evolve makes a reader schema out of a writer schema: promoted, reordered, with fields dropped and added.
func evolve(t *rapid.T, s any, inUnion bool) any {
	var out any
	switch x := s.(type) {
	case string:
		out = x
		if to := promotions[x]; to != nil && !inUnion {
			out = rapid.SampledFrom(to).Draw(t, "promoted")
		}
	case []any:
		var branches []any
		for _, b := range rapid.Permutation(x).Draw(t, "branches") {
			branches = append(branches, evolve(t, b, true))
		}
		return branches
	case map[string]any:
		m := map[string]any{}
		for k, v := range x {
			m[k] = v
		}
		switch x["type"] {
		case "array":
			m["items"] = evolve(t, x["items"], false)
		case "map":
			m["values"] = evolve(t, x["values"], false)
		case "enum":
			symbols := x["symbols"].([]string)
			keep := symbols[:rapid.IntRange(1, len(symbols)).Draw(t, "symbols")]
			m["symbols"], m["default"] = keep, keep[0]
		case "record":
			fields := []any{}
			for _, f := range rapid.Permutation(x["fields"].([]any)).Draw(t, "order") {
				if rapid.IntRange(0, 4).Draw(t, "drop") == 0 {
					continue
				}
				f := f.(map[string]any)
				fields = append(fields, map[string]any{"name": f["name"], "type": evolve(t, f["type"], false)})
			}
			added := []map[string]any{
				{"name": "added", "type": "string", "default": "é"},
				{"name": "added", "type": "bytes", "default": "\u00ff\u0000"},
				{"name": "added", "type": "long", "default": json.Number("9007199254740993")},
				{"name": "added", "type": []any{"null", "int"}, "default": nil},
				{"name": "added", "type": map[string]any{"type": "array", "items": "int"}, "default": []int{1, 2}},
				{"name": "added", "type": map[string]any{"type": "map", "values": "double"}, "default": map[string]any{"k": 1.5}},
			}
			if n := rapid.IntRange(0, 2*len(added)).Draw(t, "added"); n < len(added) {
				fields = append(fields, added[n])
			}
			m["fields"] = fields
		}
		out = m
	}
	if !inUnion && out != "null" && rapid.IntRange(0, 5).Draw(t, "nullable") == 0 {
		return []any{"null", out}
	}
	return out
}

// plainGo is plain for a value whose Go type says what it is.
func plainGo(v any) any {
	switch x := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range x {
			out[k] = plainGo(e)
		}
		return out
	case []any:
		out := []any{}
		for _, e := range x {
			out = append(out, plainGo(e))
		}
		return out
	case []byte:
		runes := []rune{}
		for _, c := range x {
			runes = append(runes, rune(c))
		}
		return string(runes)
	case int32, int64, int:
		return json.Number(fmt.Sprint(x))
	case float32:
		return number(float64(x), 32)
	case float64:
		return number(x, 64)
	}
	return v
}

func TestResolutionAgreesWithAnotherReader(t *testing.T) {
	compared := 0
	rapid.Check(t, func(t *rapid.T) {
		names := 0
		g := genSchema(t, 4, &names)
		writer, _ := json.Marshal(g.schema)
		evolved := evolve(t, g.schema, true) // the root stays a record
		reader, err := json.Marshal(evolved)
		if err != nil {
			t.Fatal(err)
		}
		codec, err := goavro.NewCodec(string(writer))
		if err != nil {
			t.Skip(err)
		}
		tw, err := twmb.Parse(string(writer))
		if err != nil {
			t.Skip(err)
		}
		tr, err := twmb.Parse(string(reader))
		if err != nil {
			t.Skip(err)
		}
		both, err := twmb.Resolve(tw, tr)
		if err != nil {
			t.Skip("does not resolve as a whole:", err)
		}
		body, err := codec.BinaryFromNative(nil, g.value(t))
		if err != nil || len(body) == 0 {
			t.Skip(err)
		}
		d, err := NewDecoder(DecodeConfig{Format: FormatAvro, Framing: FramingNone, Schema: string(writer), Reader: string(reader)}, nil)
		if err != nil {
			t.Fatalf("%s\n%s\n%v", writer, reader, err)
		}
		v, f := d.Decode(t.Context(), NewScratch(), body, nil)
		var want any
		_, err = both.Decode(body, &want)
		if err != nil { // bytes that are no text
			if f == nil {
				t.Fatalf("%s\n%s\n%x: accepted, but %v", writer, reader, body, err)
			}
			return
		}
		if f != nil {
			if f.Code == "ERR_DECODE_INVALID" { // the other does not look whether bytes read as a string are text
				return
			}
			t.Fatalf("%s\n%s\n%x: %s", writer, reader, body, f.Reason())
		}
		out, _ := v.AppendJSON(nil)
		if diff := cmp.Diff(plainGo(want), readJSON(t, string(out))); diff != "" {
			t.Fatalf("%s\n%s\n%x\n%s", writer, reader, body, diff)
		}
		compared++
	})
	t.Logf("%d records compared", compared)
	if compared < 10 {
		t.Errorf("only %d records were compared", compared)
	}
}
