package codec

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"reprieve.dev/pipeline"
)

func TestCaseC01TruncatedIsRefused(t *testing.T) {
	d := caseDecoder(t, "C01", DecodeConfig{})
	var records []caseRecord
	loadCase(t, "C01/records.json", &records)
	codes := []pipeline.Code{"", pipeline.CodeDecodeTruncated, pipeline.CodeDecodeTruncated, pipeline.CodeDecodeTruncated,
		pipeline.CodeDecodeTruncated, pipeline.CodeDecodeFraming, pipeline.CodeDecodeInvalid, ""}
	s := NewScratch()
	for i, r := range records {
		v, f := d.Decode(t.Context(), s, r.bytes(t), nil)
		if codes[i] == "" {
			if f != nil || get(t, v, "/ref") != "chg-7" || get(t, v, "/cents") != "4250" {
				t.Errorf("offset %d: want the charge, got %v %v", r.Offset, v, f)
			}
			continue
		}
		if f == nil || v != nil {
			t.Errorf("offset %d: accepted (%s)", r.Offset, r.Expect)
			continue
		}
		if f.Code != codes[i] {
			t.Errorf("offset %d: %s, want %s (%s)", r.Offset, f.Reason(), codes[i], r.Expect)
		}
	}
	// The whole kind: every prefix of a whole record is refused.
	whole := records[0].bytes(t)
	for n := range whole {
		if v, f := d.Decode(t.Context(), s, whole[:n], nil); f == nil || v != nil {
			t.Errorf("%d of %d bytes: accepted", n, len(whole))
		}
	}
}

func TestCaseC02LeftoverIsRefusedWithItsCount(t *testing.T) {
	avro := caseDecoder(t, "C02", DecodeConfig{})
	plain := caseDecoder(t, "C02", DecodeConfig{Format: FormatJSON})
	var records []caseRecord
	loadCase(t, "C02/records.json", &records)
	left := []string{"2", "1", "25", ""}
	for i, r := range records {
		d := avro
		if r.Format == "json" {
			d = plain
		}
		v, f := decode(t, d, r.bytes(t))
		if left[i] == "" {
			if f != nil || text(t, v) != `{"ref":"chg-7","cents":4250}` {
				t.Errorf("offset %d: refused: %v", r.Offset, f)
			}
			continue
		}
		if f == nil || f.Code != pipeline.CodeDecodeLeftover || param(f, "left") != left[i] {
			t.Errorf("offset %d: got %v, want %s bytes left over", r.Offset, f, left[i])
		}
	}
}

func TestCaseC05TheIDNotTheNameNamesTheSchema(t *testing.T) {
	var reg map[string]json.RawMessage
	loadCase(t, "C05/registry.json", &reg)
	var subjects map[string]map[string]json.RawMessage
	if err := json.Unmarshal(reg["subjects"], &subjects); err != nil {
		t.Fatal(err)
	}
	server := newFakeRegistry(t)
	for version, text := range subjects["party-value"] {
		server.subject("party-value", version, string(text))
	}
	for _, id := range []string{"21", "22"} {
		var s struct {
			Schema     json.RawMessage   `json:"schema"`
			References []json.RawMessage `json:"references"`
		}
		if err := json.Unmarshal(reg[id], &s); err != nil {
			t.Fatal(err)
		}
		server.id(id, string(s.Schema), s.References...)
	}
	d, err := NewDecoder(DecodeConfig{Format: FormatAvro}, server.cache(t))
	if err != nil {
		t.Fatal(err)
	}
	var records []caseRecord
	loadCase(t, "C05/records.json", &records)
	want := []string{"DE-99", "99", "DE-99", "99", ""}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			s := NewScratch()
			for i, r := range records {
				v, f := d.Decode(t.Context(), s, r.bytes(t), nil)
				if want[i] == "" {
					if f == nil || f.Code != pipeline.CodeDecodeLeftover || param(f, "left") != "5" {
						t.Errorf("offset %d: mis-framed record: %v", r.Offset, f)
					}
					continue
				}
				if f != nil {
					t.Errorf("offset %d: %s", r.Offset, f.Reason())
					continue
				}
				if got := get(t, v, "/party/tax"); got != want[i] {
					t.Errorf("offset %d: tax %q, want %q", r.Offset, got, want[i])
				}
			}
		})
	}
	wg.Wait()
}

func TestCaseC07DecimalsAreExact(t *testing.T) {
	d := caseDecoder(t, "C07", DecodeConfig{})
	var table []struct {
		Datum  string `json:"datum_hex"`
		Expect string `json:"expect"`
	}
	loadCase(t, "C07/table.json", &table)
	for _, row := range table {
		v, f := decode(t, d, append([]byte{0, 0, 0, 0, 41}, unhex(t, row.Datum)...))
		switch row.Datum {
		case "00": // our fixed answer: no digits are no number
			if f == nil || f.Code != pipeline.CodeDecodeInvalid {
				t.Errorf("%s: %v, want %s", row.Datum, f, pipeline.CodeDecodeInvalid)
			}
		case "0c00e8d4a51000":
			if f == nil || f.Code != pipeline.CodeDecodePrecision || param(f, "field") != "/v" {
				t.Errorf("%s: %v, want %s", row.Datum, f, pipeline.CodeDecodePrecision)
			}
		default:
			want, _, _ := strings.Cut(row.Expect, " ")
			if f != nil || get(t, v, "/v") != want || text(t, v) != `{"v":"`+want+`"}` {
				t.Errorf("%s: got %v %v, want %s", row.Datum, v, f, want)
			}
		}
	}

	t.Run("encoding never rounds", func(t *testing.T) {
		s, f := caseRegistry(t, "C07").ByID(t.Context(), 41)
		if f != nil {
			t.Fatal(f.Reason())
		}
		var rows []struct{ Decimal, Expect, Datum_hex string }
		loadCase(t, "C07/encode.json", &rows)
		for _, row := range rows {
			got, err := EncodeAvro(s, []byte(`{"v":`+row.Decimal+`}`))
			asText, err2 := EncodeAvro(s, []byte(`{"v":"`+row.Decimal+`"}`))
			if row.Expect != "" {
				word := strings.Fields(row.Expect)[1]
				if pipeline.CodeOf(err) != pipeline.CodeRouteEncode || !strings.Contains(err.Error(), strings.TrimSuffix(word, ":")) || err2 == nil {
					t.Errorf("%s: got %x %v, want an error about %s", row.Decimal, got, err, word)
				}
				continue
			}
			if err != nil || hex.EncodeToString(got[5:]) != row.Datum_hex || !bytes.Equal(got, asText) {
				t.Errorf("%s: got %x %v, want %s", row.Decimal, got, err, row.Datum_hex)
			}
		}
	})

	t.Run("bad logical types fall back to the underlying type", func(t *testing.T) {
		var rows []struct{ Schema json.RawMessage }
		loadCase(t, "C07/bad_logical.json", &rows)
		for i, row := range rows {
			d := bare(t, `{"type":"record","name":"R","fields":[{"name":"v","type":`+string(row.Schema)+`}]}`, DecodeConfig{})
			v, f := decode(t, d, unhex(t, "0400ff"))
			if i == 2 {
				v, f = decode(t, d, unhex(t, "046162"))
			}
			if f != nil {
				t.Fatalf("%s: %s", row.Schema, f.Reason())
			}
			if w := d.fixed.schema.Warnings(); len(w) != 1 || !strings.HasPrefix(w[0], "/v: ") {
				t.Errorf("%s: warnings %q", row.Schema, w)
			}
			want := pipeline.KindBytes
			if i == 2 {
				want = pipeline.KindString
			}
			if x, ok := v.Get(path(t, "/v")); !ok || x.Kind != want {
				t.Errorf("%s: %v", row.Schema, x)
			}
		}
	})
}

func TestCaseC08DepthIsBoundedAndEndlessSchemaIsRefused(t *testing.T) {
	d := caseDecoder(t, "C08", DecodeConfig{Limits: Limits{Bytes: 16 << 20}})
	var records []caseRecord
	loadCase(t, "C08/records.json", &records)
	codes := []pipeline.Code{"", pipeline.CodeLimitDepth, pipeline.CodeLimitDepth, pipeline.CodeSchemaInvalid, ""}
	nodes := []int{4, 0, 0, 0, 1}
	for i, r := range records {
		v, f := decode(t, d, r.bytes(t))
		if codes[i] != "" {
			if f == nil || f.Code != codes[i] {
				t.Errorf("offset %d: %v, want %s", r.Offset, f, codes[i])
			}
			continue
		}
		if f != nil {
			t.Fatalf("offset %d: %s", r.Offset, f.Reason())
		}
		if got := strings.Count(text(t, v), `"v":`); got != nodes[i] {
			t.Errorf("offset %d: %d nodes, want %d", r.Offset, got, nodes[i])
		}
	}
	if got := get(t, mustView(t, d, records[0].bytes(t)), "/next/next/next/v"); got != "0" && got != "1" {
		t.Errorf("the fourth node: %s", got)
	}
}

func mustView(t testing.TB, d *Decoder, value []byte) pipeline.View {
	t.Helper()
	v, f := decode(t, d, value)
	if f != nil {
		t.Fatal(f.Reason())
	}
	return v
}

func TestCaseC10NumbersAndStringsKeepTheirText(t *testing.T) {
	var expected struct {
		Keep []string `json:"must_keep_text"`
		Not  []string `json:"must_not_appear"`
		Sum  string   `json:"sha256_of_value"`
	}
	loadCase(t, "C10/expected.json", &expected)
	value := readCase(t, "C10/value.json")
	if sum := sha256.Sum256(value); hex.EncodeToString(sum[:]) != expected.Sum {
		t.Fatal("the input is not the case's")
	}
	d := jsonDecoder(t, Limits{})
	v := mustView(t, d, value)
	out := text(t, v)
	if out != string(bytes.TrimSpace(value)) {
		t.Errorf("JSON view changed the text:\n%s", out)
	}
	edited, changed, err := v.Edit(nil, editorFunc{plan: func(p string) bool { return p == "/html" },
		edit: func(pipeline.Leaf) pipeline.Edit { return pipeline.Edit{Kind: pipeline.Replace, Text: []byte("<a&b>")} }})
	if err != nil || !changed || !bytes.Equal(edited, value) {
		t.Errorf("an edit changed other bytes: %s", edited)
	}
	for _, s := range expected.Keep {
		if !strings.Contains(out, s) {
			t.Errorf("%s is lost", s)
		}
	}
	for _, s := range expected.Not {
		if strings.Contains(out, s) {
			t.Errorf("%s appears", s)
		}
	}
	if got := get(t, v, "/ratio"); got != "1E400" {
		t.Errorf("ratio %s", got)
	}
}

func TestCaseC13StrictJSON(t *testing.T) {
	d := jsonDecoder(t, Limits{Depth: 1000})
	deep := jsonDecoder(t, Limits{Depth: 10_000, Bytes: 4 << 20})
	var rows []struct {
		N            int
		Value_hex    string
		What, Expect string
	}
	loadCase(t, "C13/table.json", &rows)
	for _, row := range rows {
		var value []byte
		switch row.N {
		case 19:
			value = []byte(strings.Repeat("[", 9999) + strings.Repeat("]", 9999))
		case 20:
			value = []byte(strings.Repeat("[", 100_000))
		default:
			value = append([]byte{}, unhex(t, row.Value_hex)...)
		}
		before := bytes.Clone(value)
		v, f := decode(t, d, value)
		ok := strings.HasPrefix(row.Expect, "OK")
		switch {
		case row.N == 19 || row.N == 20:
			if f == nil || f.Code != pipeline.CodeLimitDepth {
				t.Errorf("%d %s: %v", row.N, row.What, f)
			}
		case ok && f != nil:
			t.Errorf("%d %s: refused: %s", row.N, row.What, f.Reason())
		case !ok && (f == nil || pipeline.Lookup(f.Code).Class != pipeline.Payload):
			t.Errorf("%d %s: %v", row.N, row.What, v)
		case ok && text(t, v) != string(before):
			t.Errorf("%d %s: text changed to %s", row.N, row.What, text(t, v))
		}
		if !bytes.Equal(value, before) {
			t.Errorf("%d %s: source bytes changed", row.N, row.What)
		}
	}
	if _, f := decode(t, deep, []byte(strings.Repeat("[", 9999)+strings.Repeat("]", 9999))); f != nil {
		t.Errorf("9,999 deep with a limit of 10,000: %s", f.Reason())
	}
	if _, f := decode(t, deep, []byte(strings.Repeat("[", 100_000))); f == nil {
		t.Error("100,000 open brackets accepted")
	}
}

func TestCaseC20OnlyFramedValuesReachTheRegistry(t *testing.T) {
	server := newFakeRegistry(t)
	server.id("1", `{"type":"record","name":"Charge","namespace":"pay","fields":[{"name":"ref","type":"string"},{"name":"cents","type":"long"}]}`)
	d, err := NewDecoder(DecodeConfig{Format: FormatAvro}, server.cache(t))
	if err != nil {
		t.Fatal(err)
	}
	var records []caseRecord
	loadCase(t, "C20/records.json", &records)
	headers := []pipeline.Header{{Name: "apicurio.value.globalId", Value: []byte{0, 0, 0, 0, 0, 0, 0, 1}}}
	codes := []pipeline.Code{pipeline.CodeSchemaUnknown, "", pipeline.CodeDecodeFraming, pipeline.CodeDecodeFraming, pipeline.CodeDecodeFraming, ""}
	for range 3 {
		for i, r := range records {
			var h []pipeline.Header
			if i == 4 {
				h = headers
			}
			_, f := d.Decode(t.Context(), NewScratch(), r.bytes(t), h)
			if f == nil && codes[i] != "" || f != nil && f.Code != codes[i] {
				t.Errorf("offset %d: %v, want %s", r.Offset, f, codes[i])
			}
		}
	}
	if n := server.calls("/schemas/ids/999"); n != 1 {
		t.Errorf("%d requests for 999, want 1", n)
	}
}

func TestCaseC32NullIsNotEmpty(t *testing.T) {
	var records []caseRecord
	loadCase(t, "C32/records.json", &records)
	for _, format := range []string{FormatJSON, FormatRaw} {
		d, err := NewDecoder(DecodeConfig{Format: format}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range records {
			v, f := decode(t, d, r.bytes(t))
			switch i {
			case 1:
				if f == nil || f.Code != pipeline.CodeDecodeEmpty {
					t.Errorf("%s: zero bytes: %v %v", format, v, f)
				}
			case 2:
				if f != nil || v == nil {
					t.Errorf("%s: the text null: %v", format, f)
				}
			default:
				if f != nil || v != nil {
					t.Errorf("%s: null: %v %v", format, v, f)
				}
			}
		}
	}
}
