package redact_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"path/filepath"
	"testing"
	"unicode/utf8"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/redact"
)

// placesSchema has a text at each kind of place that a validation takes notes of, or does not.
const placesSchema = `{"type": "record", "name": "Places", "fields": [
  {"name": "note", "type": "string"},
  {"name": "name", "type": "string"},
  {"name": "value", "type": ["null", "string"]},
  {"name": "password", "type": "string"},
  {"name": "cvv", "type": ["string", "null"]},
  {"name": "email", "type": "string", "confluent:tags": ["PII"]},
  {"name": "number", "type": "long"},
  {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
  {"name": "rate", "type": ["null", "double"]},
  {"name": "small", "type": "float"},
  {"name": "raw", "type": "bytes"},
  {"name": "empty", "type": {"type": "record", "name": "Empty", "fields": []}},
  {"name": "inner", "type": {"type": "record", "name": "Inner", "fields": [
    {"name": "card_number", "type": "string"}, {"name": "phone", "type": ["null", "long", "string"]}, {"name": "more", "type": ["null", "Inner"]}]}},
  {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
    {"name": "sku", "type": "string"}, {"name": "seen", "type": {"type": "long", "logicalType": "timestamp-micros"}}, {"name": "amount", "type": "long"},
    {"name": "tags", "type": {"type": "array", "items": "string"}}]}}},
  {"name": "map", "type": {"type": "map", "values": "string"}},
  {"name": "either", "type": ["string", "long", "double", "Line"]},
  {"name": "last", "type": "string"}]}`

const placesOfText = 16

// placed writes a record with text at one place, the numbers at theirs and harmless values elsewhere.
func placed(text []byte, number int64, rate float64, where int) []byte {
	b := []byte{0, 0, 0, 0, 7}
	place := 0
	str := func(harmless string) {
		s := []byte(harmless)
		if place == where {
			s = text
		}
		place++
		b = append(binary.AppendVarint(b, int64(len(s))), s...)
	}
	long := func(n int64) { b = binary.AppendVarint(b, n) }
	double := func(f float64) { b = binary.LittleEndian.AppendUint64(b, math.Float64bits(f)) }
	str("standard")
	str("Ann Example")
	long(1)
	str("two words")
	str("***")
	long(0)
	str("")
	str("ann@example.com")
	long(number)
	long(1_789_466_400_123)
	long(1)
	double(rate)
	b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(rate)))
	long(2)
	b = append(b, 1, 2)
	str("VISA ending 4242") // inner
	long(2)
	str("+49 30 5550101")
	long(1)
	str("none")
	long(1)
	long(number)
	long(0)
	long(2) // lines
	for range 2 {
		str("SUB-BASIC-M")
		long(1_789_466_400_123_456)
		long(number)
		long(-1)
		at := len(b)
		str("one month, renewed on the first")
		size := len(b) - at
		b = append(b[:at], append(binary.AppendVarint(nil, int64(size)), b[at:]...)...)
		long(0)
	}
	long(0)
	long(1) // map
	key := [...]string{"channel", "cvv", "password"}[uint64(number)%3]
	b = append(binary.AppendVarint(b, int64(len(key))), key...)
	str("web")
	long(0)
	switch number & 3 {
	case 0:
		long(0)
		str("either")
	case 1:
		long(1)
		long(number)
		place++
	case 2:
		long(2)
		double(rate)
		place++
	default:
		long(3)
		str("sku")
		long(0)
		long(number)
		long(0)
	}
	str("the end")
	return b
}

// FuzzNotedEdit: an editor that the validation takes notes for writes the same bytes as one that is asked about every leaf,
// wherever a text stands and whatever the numbers beside it are.
func FuzzNotedEdit(f *testing.F) {
	files, err := filepath.Glob("testdata/text.*.txt")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, file := range files {
		for i, s := range corpus(f, filepath.Base(file)) {
			f.Add([]byte(s.input), int64(i), float64(i)/3, uint8(i))
		}
	}
	for i, s := range []string{"4111111111111111", "Basic dXNlcjpwYXNz", "eyJabcde..x", "Jena", "basic+dXNlcjpwYXNz", "cvv 123", "a", "", "{\"cvv\":123}", "\x01\x02 4111 1111 1111 1111", "Zürich 8001", "\u00a0x"} {
		f.Add([]byte(s), int64(4_111_111_111_111_111)>>i, 4111111111111111/math.Pow(10, float64(i)), uint8(i))
	}
	f.Add([]byte("x"), int64(math.MinInt64), math.NaN(), uint8(3))
	f.Add([]byte("x"), int64(1<<34), math.Inf(-1), uint8(3))
	dir := f.TempDir()
	write(f, dir, "7.avsc", placesSchema)
	reg, err := codec.Folder(dir)
	if err != nil {
		f.Fatal(err)
	}
	d, err := codec.NewDecoder(codec.DecodeConfig{Format: codec.FormatAvro}, reg)
	if err != nil {
		f.Fatal(err)
	}
	type editing struct {
		noted, asked pipeline.Editor
		scratch      *codec.Scratch
	}
	var all []editing
	for _, c := range []redact.Config{{Tags: []string{"PII"}}, {Detectors: []string{"pan"}, Fields: []redact.Field{{Path: "/lines/*/sku"}}}, {Detectors: []string{"cvv"}},
		{Detectors: []string{"authorization"}, Fields: []redact.Field{{Name: "amount"}}}, {Patterns: []redact.Pattern{{Name: "t", Match: `TCK-\d+`}}}, {Keep: []string{"/inner"}}} {
		r := mustNew(f, c, redact.Options{})
		all = append(all, editing{r.NewEditor(), asked{r.NewEditor()}, codec.NewScratch()})
	}
	edit := func(t *testing.T, x *editing, value []byte) (got, want []byte) {
		x.scratch.Reset()
		v, fail := d.Decode(t.Context(), x.scratch, value, nil)
		if fail != nil {
			t.Fatal(fail.Reason())
		}
		got, _, err := v.Edit(nil, x.noted)
		want, _, wantErr := v.Edit(nil, x.asked)
		if err != nil || wantErr != nil {
			t.Fatal(err, wantErr)
		}
		return got, want
	}
	f.Fuzz(func(t *testing.T, text []byte, number int64, rate float64, where uint8) {
		if len(text) > 1<<10 || !utf8.Valid(text) {
			return
		}
		for place := range placesOfText {
			if where%16 != 0 && place != int(where)%placesOfText { // not every text at every place: time
				continue
			}
			value := placed(text, number, rate, place)
			for i := range all {
				for range 2 { // for the second, if not before, notes are taken for the editor
					if got, want := edit(t, &all[i], value); !bytes.Equal(got, want) {
						t.Fatalf("%q at %d, %d, %v: %q, asked about each leaf: %q", text, place, number, rate, got, want)
					}
				}
			}
		}
	})
}
