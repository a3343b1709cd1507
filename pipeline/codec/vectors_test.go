package codec

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"testing"

	"reprieve.dev/pipeline"
)

// Schemas and their canonical forms, written by the rules of the specification: primitives simplified, names in full, what does
// not matter for reading taken out, members in order, no white space.
func TestVectorsOfCanonicalForms(t *testing.T) {
	for schema, canonical := range map[string]string{
		`"null"`:                               `"null"`,
		`{"type":"boolean"}`:                   `"boolean"`,
		` "int" `:                              `"int"`,
		`"long"`:                               `"long"`,
		`"float"`:                              `"float"`,
		`"double"`:                             `"double"`,
		`"bytes"`:                              `"bytes"`,
		`"string"`:                             `"string"`,
		`["int"]`:                              `["int"]`,
		`["null", {"type":"string"}]`:          `["null","string"]`,
		`{"items":"long","type":"array"}`:      `{"type":"array","items":"long"}`,
		`{"values":"long","type":"map","x":1}`: `{"type":"map","values":"long"}`,
		`{"type":"fixed","name":"F","namespace":"a.b","size":16,"doc":"d"}`:                                                                                              `{"name":"a.b.F","type":"fixed","size":16}`,
		`{"type":"enum","name":"E","symbols":["A","B"],"doc":"d","aliases":["X"],"default":"A"}`:                                                                         `{"name":"E","type":"enum","symbols":["A","B"]}`,
		`{"type":"record","name":"R","namespace":"x.y","fields":[{"name":"f","type":"int","default":1,"doc":"d"}],"doc":""}`:                                             `{"name":"x.y.R","type":"record","fields":[{"name":"f","type":"int"}]}`,
		`{"type":"record","name":"a.R","fields":[{"name":"n","type":["null","R"]}]}`:                                                                                     `{"name":"a.R","type":"record","fields":[{"name":"n","type":["null","a.R"]}]}`,
		`{"type":"int","logicalType":"date"}`:                                                                                                                            `"int"`,
		`{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"fixed","name":"D","size":4,"logicalType":"decimal","precision":3}},{"name":"b","type":"D"}]}`: `{"name":"R","type":"record","fields":[{"name":"a","type":{"name":"D","type":"fixed","size":4}},{"name":"b","type":"D"}]}`,
		`{"type":"record","name":"R","fields":[]}`:                                                                                                                       `{"name":"R","type":"record","fields":[]}`,
	} {
		s, f := ParseSchema(pipeline.SchemaRef{Format: FormatAvro}, schema)
		if f != nil {
			t.Errorf("%s: %v", schema, f.Cause)
			continue
		}
		if got := string(canonicalAvro(nil, s.avro, map[string]bool{})); got != canonical {
			t.Errorf("%s: %s, want %s", schema, got, canonical)
		}
	}
}

// Values as the specification's section on encoding writes them.
func TestVectorsOfTheBinaryEncoding(t *testing.T) {
	for _, c := range []struct{ schema, bytes, want string }{
		{`"long"`, "00", "0"}, {`"long"`, "01", "-1"}, {`"long"`, "02", "1"}, {`"long"`, "03", "-2"}, {`"long"`, "04", "2"},
		{`"long"`, "7f", "-64"}, {`"long"`, "8001", "64"}, {`"int"`, "ffffffff0f", "-2147483648"}, {`"int"`, "feffffff0f", "2147483647"},
		{`"long"`, "ffffffffffffffffff01", `-9223372036854775808`}, {`"long"`, "feffffffffffffffff01", `9223372036854775807`},
		{`"string"`, "06666f6f", `"foo"`}, {`"string"`, "00", `""`}, {`"bytes"`, "06000102", `"\u0000\u0001\u0002"`},
		{`"boolean"`, "01", "true"}, {`"boolean"`, "00", "false"}, {`"double"`, "000000000000f03f", "1.0"}, {`"float"`, "0000c03f", "1.5"},
		{`{"type":"record","name":"test","fields":[{"name":"a","type":"long"},{"name":"b","type":"string"}]}`, "3606666f6f", `{"a":27,"b":"foo"}`},
		{`{"type":"enum","name":"Foo","symbols":["A","B","C","D"]}`, "06", `"D"`},
		{`{"type":"array","items":"long"}`, "04063600", "[3,27]"}, {`{"type":"array","items":"long"}`, "0304063600", "[3,27]"},
		{`{"type":"array","items":"long"}`, "00", "[]"}, {`{"type":"array","items":"long"}`, "0206023600", "[3,27]"},
		{`{"type":"map","values":"long"}`, "02026104" + "00", `{"a":2}`},
		{`["null","string"]`, "00", "null"}, {`["null","string"]`, "020261", `"a"`},
		{`{"type":"fixed","name":"F","size":2}`, "6162", `"ab"`},
	} {
		d, err := NewDecoder(DecodeConfig{Format: FormatAvro, Framing: FramingNone, Schema: c.schema}, nil)
		if err != nil {
			t.Errorf("%s: %v", c.schema, err)
			continue
		}
		raw, err := hex.DecodeString(c.bytes)
		if err != nil {
			t.Fatal(err)
		}
		v, f := d.Decode(t.Context(), NewScratch(), raw, nil)
		if f != nil {
			t.Errorf("%s %s: %s", c.schema, c.bytes, f.Reason())
			continue
		}
		if got, err := v.AppendJSON(nil); err != nil || string(got) != c.want {
			t.Errorf("%s %s: %s, want %s (%v)", c.schema, c.bytes, got, c.want, err)
		}
	}
}

// What a schema may not be, a kind a line.
func TestVectorsOfSchemasThatAreRefused(t *testing.T) {
	for _, schema := range []string{
		``, `{`, `"strin"`, `{"type":"strin"}`, `{"type":"array"}`, `{"type":"map"}`, `{"type":"enum","name":"E"}`,
		`{"type":"enum","symbols":["A"]}`, `{"type":"fixed","name":"F"}`, `{"type":"fixed","size":3}`,
		`{"type":"record","fields":[]}`, `{"type":"record","name":"R"}`, `{"type":"record","name":"R","fields":[{"type":"int"}]}`,
		`{"type":"record","name":"R","fields":[{"name":"f"}]}`, `{"type":"record","name":"R","fields":[{"name":"f","type":"Missing"}]}`,
		`{"type":"record","name":"R","fields":[{"name":"f","type":"int"},{"name":"f","type":"int"}]}`,
		`["int","int"]`, `[["null","int"],"string"]`, `{"type":"record","name":"R","fields":[{"name":"r","type":"R"}]}`,
	} {
		s, f := ParseSchema(pipeline.SchemaRef{Format: FormatAvro, ID: 1}, schema)
		if f == nil {
			t.Errorf("%s is taken: %v", schema, s.root)
		} else if f.Code != pipeline.CodeSchemaInvalid {
			t.Errorf("%s: %s", schema, f.Code)
		}
	}
}

// Frames as the serializers of Confluent write them.
func TestVectorsOfFrames(t *testing.T) {
	const guid = "89791762-2336-4186-9674-299b90a802e2"
	for _, c := range []struct {
		frame, id string
		n         int
	}{
		{"0000000001", "1", 5}, {"00000000ff", "255", 5}, {"007fffffff", "2147483647", 5}, {"000000000161", "1", 5},
		{"0189791762233641869674299b90a802e2", guid, 17}, {"0189791762233641869674299b90a802e200", guid, 17},
		{"", "", 0}, {"00", "", 0}, {"00000001", "", 0}, {"0080000000", "", 0}, {"0189791762233641869674299b90a802", "", 0}, {"0200000001", "", 0}, {"7b7d", "", 0},
	} {
		raw, err := hex.DecodeString(c.frame)
		if err != nil {
			t.Fatal(err)
		}
		id, n, f := parsePrefix(raw)
		got := ""
		if f == nil {
			if got = fmt.Sprint(id.id); id.isGUID {
				got = guidText(id.guid)
			}
		} else if f.Code != pipeline.CodeDecodeFraming {
			t.Errorf("%s: %s", c.frame, f.Code)
		}
		if got != c.id || n != c.n {
			t.Errorf("%s: %q %d, want %q %d", c.frame, got, n, c.id, c.n)
		}
	}
	s, f := ParseSchema(pipeline.SchemaRef{Format: FormatAvro, ID: 1}, `"string"`)
	if f != nil {
		t.Fatal(f.Cause)
	}
	d, err := NewDecoder(DecodeConfig{Format: FormatAvro, Framing: FramingSingle, Schema: `"string"`}, nil)
	if err != nil {
		t.Fatal(err)
	}
	single := append(binary.LittleEndian.AppendUint64([]byte{0xc3, 1}, s.Fingerprint()), 2, 'a')
	if want := "c301c70345637248018f0261"; hex.EncodeToString(single) != want {
		t.Errorf("a single object is %x, want %s", single, want)
	}
	if v, f := d.Decode(t.Context(), NewScratch(), single, nil); f != nil || get(t, v, "") != "a" {
		t.Errorf("a single object: %v", f)
	}
}

// Message indexes in both spellings: 0 alone is the first message, else a count and each index.
func TestVectorsOfMessageIndexes(t *testing.T) {
	c := protoRegistry(t)
	sku := []byte("\x0a\x03sku")
	for _, v := range []struct{ indexes, spelling, place, code string }{
		{"00", "zigzag", "/x", ""}, {"0200", "zigzag", "/x", ""}, {"0202", "zigzag", "/id", ""}, {"040200", "zigzag", "/sku", ""},
		{"00", "plain", "/x", ""}, {"0100", "plain", "/x", ""}, {"0101", "plain", "/id", ""}, {"020100", "plain", "/sku", ""},
		{"01", "zigzag", "", "ERR_DECODE_FRAMING"}, {"0201", "zigzag", "", "ERR_DECODE_FRAMING"}, {"02", "zigzag", "", "ERR_DECODE_FRAMING"},
		{"020e", "zigzag", "", "ERR_DECODE_FRAMING"}, {"0107", "plain", "", "ERR_DECODE_FRAMING"}, {"ffffffff0f", "plain", "", "ERR_DECODE_FRAMING"},
		{"feffffffffffffffff01", "zigzag", "", "ERR_DECODE_FRAMING"}, {"80", "zigzag", "", "ERR_DECODE_FRAMING"},
	} {
		d, err := NewDecoder(DecodeConfig{Format: FormatProtobuf, Indexes: v.spelling}, c)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := hex.DecodeString(v.indexes)
		if err != nil {
			t.Fatal(err)
		}
		view, f := d.Decode(t.Context(), NewScratch(), append(Frame(4, raw), sku...), nil)
		switch {
		case v.code != "" && (f == nil || string(f.Code) != v.code):
			t.Errorf("%s %s: %+v, want %s", v.spelling, v.indexes, f, v.code)
		case v.code == "" && f != nil:
			t.Errorf("%s %s: %s", v.spelling, v.indexes, f.Reason())
		case v.code == "" && get(t, view, v.place) != "sku":
			t.Errorf("%s %s: nothing at %s", v.spelling, v.indexes, v.place)
		}
	}
}

// Whatever a JSON document is cut to is refused, and so is whatever stands behind it.
func TestEveryTruncationOfJSONIsRefused(t *testing.T) {
	d := jsonDecoder(t, Limits{})
	for _, doc := range []string{
		`{"a":[1,-2.5e+3,true,false,null,"\u00e9\n","é"],"b":{"c":{}},"d":[]}`, `[[],{"a":"b"}]`, `"text \"quoted\" \\"`, `{"":""}`,
	} {
		if _, f := decode(t, d, []byte(doc)); f != nil {
			t.Fatalf("%s: %s", doc, f.Reason())
		}
		for n := 1; n < len(doc); n++ {
			if v, f := decode(t, d, []byte(doc[:n])); f == nil {
				t.Errorf("%q is taken as %s", doc[:n], text(t, v))
			}
		}
		for _, more := range []string{"x", "{}", ",", "\x00", `"`} {
			if _, f := decode(t, d, []byte(doc+more)); f == nil {
				t.Errorf("%q is taken", doc+more)
			}
		}
		if _, f := decode(t, d, []byte(" \t\r\n"+doc+" \n")); f != nil {
			t.Errorf("white space around %s: %s", doc, f.Reason())
		}
	}
}
