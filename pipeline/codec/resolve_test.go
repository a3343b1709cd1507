package codec

import (
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"

	"reprieve.dev/pipeline"
)

func TestCaseC04EnumDefaultReplacesOnlyKnownSymbols(t *testing.T) {
	var readers map[string]json.RawMessage
	loadCase(t, "C04/readers.json", &readers)
	a := caseDecoder(t, "C04", DecodeConfig{Reader: string(readers["A_with_default"])})
	b := caseDecoder(t, "C04", DecodeConfig{Reader: string(readers["B_without_default"])})
	var records []caseRecord
	loadCase(t, "C04/records.json", &records)
	wantA := []string{"PAID", "OPEN", "", "VOID"}
	wantB := []string{"PAID", "", "", "VOID"}
	codesB := []pipeline.Code{"", pipeline.CodeDecodeEnum, pipeline.CodeDecodeInvalid, ""}
	for i, r := range records {
		v, f := decode(t, a, r.bytes(t))
		if wantA[i] == "" {
			if f == nil || f.Code != pipeline.CodeDecodeInvalid {
				t.Errorf("A, offset %d: %v: the default must not hide an index that no writer has", r.Offset, f)
			}
		} else if f != nil || get(t, v, "/st") != wantA[i] {
			t.Errorf("A, offset %d: %v, want %s", r.Offset, f, wantA[i])
		} else if marks := v.(Marked).Marks(); (len(marks) == 1) != (i == 1) {
			t.Errorf("A, offset %d: marks %v", r.Offset, marks)
		} else if i == 1 && marks[0] != (Mark{"/st", "REFUNDED", "OPEN"}) {
			t.Errorf("A: mark %v", marks[0])
		}
		v, f = decode(t, b, r.bytes(t))
		if wantB[i] == "" {
			if f == nil || f.Code != codesB[i] {
				t.Errorf("B, offset %d: %v, want %s", r.Offset, f, codesB[i])
			}
		} else if f != nil || get(t, v, "/st") != wantB[i] {
			t.Errorf("B, offset %d: %v, want %s", r.Offset, f, wantB[i])
		}
	}
}

func TestCaseC11DefaultsAndInstants(t *testing.T) {
	reader, writer := string(readCase(t, "C11/reader.json")), string(readCase(t, "C11/writer.json"))
	d := bare(t, writer, DecodeConfig{Reader: reader})
	v := mustView(t, d, unhex(t, "02"))
	raw := func(p string) string {
		x, _ := v.Get(path(t, p))
		return hex.EncodeToString(x.Bytes)
	}
	if got := raw("/sig"); got != "fffe" {
		t.Errorf("sig %s", got)
	}
	if got := raw("/id"); got != "0080" {
		t.Errorf("id %s", got)
	}
	if x, ok := v.Get(path(t, "/u")); !ok || x.Kind != pipeline.KindNull {
		t.Errorf("u %v", x)
	}
	if got := get(t, v, "/amt"); got != "2.55" {
		t.Errorf("amt %s", got)
	}
	want := `{"a":1,"sig":"ÿþ","id":"\u0000` + "\u0080" + `","u":null,"amt":"2.55","ts":"1969-12-31T23:59:59.999999Z"}`
	if got := text(t, v); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}

	var rows []struct {
		Type   string `json:"type"`
		Datum  string `json:"datum_hex"`
		Expect string `json:"expect"`
	}
	loadCase(t, "C11/timestamps.json", &rows)
	for _, row := range rows {
		schema := `{"type":"record","name":"T","fields":[{"name":"t","type":{"type":"long","logicalType":"` + row.Type + `"}}]}`
		v := mustView(t, bare(t, schema, DecodeConfig{}), unhex(t, row.Datum))
		if got := text(t, v); got != `{"t":"`+row.Expect+`"}` {
			t.Errorf("%s %s: %s, want %s", row.Type, row.Datum, got, row.Expect)
		}
		back, err := EncodeAvro(parse(t, schema), []byte(text(t, v)))
		if err != nil || hex.EncodeToString(back[5:]) != row.Datum {
			t.Errorf("%s: back %x %v", row.Datum, back, err)
		}
	}
}

const recordV1 = `{"type":"record","name":"a.Order","fields":[
	{"name":"id","type":"int"},{"name":"old","type":"string"},{"name":"gone","type":{"type":"array","items":"long"}},
	{"name":"amount","type":"float"},{"name":"note","type":["null","string"]},
	{"name":"lines","type":{"type":"array","items":{"type":"record","name":"Line","fields":[{"name":"sku","type":"string"},{"name":"n","type":"int"}]}}},
	{"name":"next","type":["null","a.Order"]}]}`

const recordV2 = `{"type":"record","name":"b.Order","fields":[
	{"name":"lines","type":{"type":"array","items":{"type":"record","name":"Line","fields":[{"name":"n","type":"long"},{"name":"sku","type":"bytes"},{"name":"tax","type":"double","default":0.5}]}}},
	{"name":"id","type":["null","long"]},{"name":"new","type":"string","aliases":["old"]},
	{"name":"amount","type":"double"},{"name":"note","type":["string","null"]},
	{"name":"next","type":["null","b.Order"]},{"name":"state","type":"string","default":"open"}]}`

func TestReaderSchemaReshapesTheView(t *testing.T) {
	w := parse(t, recordV1)
	value, err := EncodeAvro(w, []byte(`{"id":7,"old":"x","gone":[1,2],"amount":1.5,"note":"n","lines":[{"sku":"s1","n":3},{"sku":"s2","n":4}],
		"next":{"id":8,"old":"y","gone":[],"amount":0,"note":null,"lines":[],"next":null}}`))
	if err != nil {
		t.Fatal(err)
	}
	d := bare(t, recordV1, DecodeConfig{Reader: recordV2})
	v := mustView(t, d, value[5:])
	want := `{"lines":[{"n":3,"sku":"s1","tax":0.5},{"n":4,"sku":"s2","tax":0.5}],"id":7,"new":"x","amount":1.5,"note":"n",` +
		`"next":{"lines":[],"id":8,"new":"y","amount":0.0,"note":null,"next":null,"state":"open"},"state":"open"}`
	if got := text(t, v); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := get(t, v, "/lines/1/n"); got != "4" {
		t.Errorf("lines/1/n = %s", got)
	}

	t.Run("rules of the reader's names reach the writer's bytes", func(t *testing.T) {
		out, changed, err := v.Edit(nil, editorFunc{plan: func(p string) bool { return p == "/new" || p == "/lines/*/sku" },
			edit: func(l pipeline.Leaf) pipeline.Edit { return pipeline.Edit{Kind: pipeline.Replace, Text: []byte("***")} }})
		if err != nil || !changed {
			t.Fatal(changed, err)
		}
		got := text(t, mustView(t, bare(t, recordV1, DecodeConfig{}), out))
		if !strings.HasPrefix(got, `{"id":7,"old":"***","gone":[1,2],"amount":1.5,"note":"n","lines":[{"sku":"***","n":3},{"sku":"***","n":4}]`) {
			t.Errorf("%s", got)
		}
		if err := v.Rebind(out); err != nil || get(t, v, "/new") != "***" {
			t.Errorf("after Rebind: %v %s", err, get(t, v, "/new"))
		}
	})
}

func TestReaderSchemaThatDoesNotMatchIsRefused(t *testing.T) {
	rows := []struct{ name, w, r, value, code string }{
		{"missing field without default", `{"type":"record","name":"R","fields":[]}`, `{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}`, "", "ERR_SCHEMA_MISMATCH"},
		{"other name", `{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}`, `{"type":"record","name":"S","fields":[{"name":"a","type":"int"}]}`, "02", "ERR_SCHEMA_MISMATCH"},
		{"other scale", `{"type":"bytes","logicalType":"decimal","precision":5,"scale":2}`, `{"type":"bytes","logicalType":"decimal","precision":5,"scale":3}`, "0202", "ERR_SCHEMA_MISMATCH"},
		{"other unit", `{"type":"long","logicalType":"timestamp-millis"}`, `{"type":"long","logicalType":"timestamp-micros"}`, "02", "ERR_SCHEMA_MISMATCH"},
		{"narrower precision", `{"type":"bytes","logicalType":"decimal","precision":5,"scale":2}`, `{"type":"bytes","logicalType":"decimal","precision":2,"scale":2}`, "0403e8", "ERR_DECODE_PRECISION"},
		{"demotion", `"long"`, `"int"`, "02", "ERR_SCHEMA_MISMATCH"},
		{"union branch", `["string","long"]`, `"long"`, "000261", "ERR_SCHEMA_MISMATCH"},
		{"bytes that are no text", `"bytes"`, `"string"`, "02ff", "ERR_DECODE_INVALID"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			cfg := DecodeConfig{Format: FormatAvro, Framing: FramingNone, Schema: row.w, Reader: row.r}
			d, err := NewDecoder(cfg, nil)
			code := pipeline.CodeOf(err)
			if err == nil {
				value := append([]byte{}, unhex(t, row.value)...)
				_, f := decode(t, d, value)
				if f == nil {
					t.Fatal("accepted")
				}
				code = f.Code
			}
			if string(code) != row.code {
				t.Errorf("%s, want %s (%v)", code, row.code, err)
			}
		})
	}
	if _, f := decode(t, bare(t, `["string","long"]`, DecodeConfig{Reader: `"long"`}), unhex(t, "020e")); f != nil {
		t.Errorf("the branch that matches: %s", f.Reason())
	}
}

func TestDefaultsDoNotExpandWithoutBound(t *testing.T) {
	w := `{"type":"array","items":{"type":"record","name":"E","fields":[]}}`
	r := `{"type":"array","items":{"type":"record","name":"E","fields":[{"name":"x","type":"string","default":"` + strings.Repeat("x", 4000) + `"}]}}`
	d := bare(t, w, DecodeConfig{Reader: r})
	_, f := decode(t, d, unhex(t, "80897a00")) // 1,000,000 items of no bytes
	if f == nil || f.Code != pipeline.CodeLimitExpansion {
		t.Errorf("%v", f)
	}
}
