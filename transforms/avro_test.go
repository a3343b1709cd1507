package transforms

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
)

// invoice9 is a framed datum of schema 9, written by hand.
func invoice9(event string, minor int64, amount []byte, channel string) []byte {
	b := binary.BigEndian.AppendUint32([]byte{0}, 9)
	b = avroString(b, event)
	b = avroString(b, "acme")
	b = avroLong(b, minor)
	b = append(avroLong(b, int64(len(amount))), amount...)
	b = avroString(b, "EUR")
	b = avroString(b, channel)
	b = avroLong(b, 2)
	b = avroLong(avroString(b, "A-1"), 1)
	b = avroLong(avroString(b, "B-2"), 40)
	return avroLong(b, 0)
}

func TestUpcast(t *testing.T) {
	lib, _ := avroLibrary(t)
	up := parse(t, lib, "upcast@1.0.0", `{"schema":"avro:9"}`)
	r := repair(t, up, envelope(invoice(7, "e1", 5, []byte{0, 255}, ptrTo("gone"))))
	if r.Failure != nil {
		t.Fatal(r.Failure.Reason(), r.Failure.Cause)
	}
	if want := invoice9("e1", 5, []byte{0, 255}, "web"); !bytes.Equal(r.Value, want) {
		t.Errorf("got  %x\nwant %x", r.Value, want)
	}
	if r.Schema != "avro:9" {
		t.Errorf("schema %s", r.Schema)
	}
	if r := repair(t, up, envelope(invoice9("e1", 5, []byte{1}, "web"))); r.Failure != nil || len(r.Report.Changed) != 0 {
		t.Errorf("a record of that schema: %+v", r)
	}
	if r := repair(t, parse(t, lib, "upcast@1.0.0", `{"schema":8}`), envelope(invoice(7, "e1", 5, []byte{1}, nil))); r.Failure == nil || r.Failure.Code != pipeline.CodeTransformSchema {
		t.Errorf("an unrelated schema: %+v", r)
	}
	if r := repair(t, parse(t, lib, "upcast@1.0.0", `{"schema":99}`), envelope(invoice(7, "e1", 5, []byte{1}, nil))); r.Failure == nil || r.Failure.Code != pipeline.CodeTransformSchema {
		t.Errorf("an unknown schema: %+v", r)
	}
}

func TestUpcastUnderHeaderFraming(t *testing.T) {
	lib, _ := avroLibrary(t)
	full, want := invoice(7, "e1", 5, []byte{1}, nil), invoice9("e1", 5, []byte{1}, "web")
	h := pipeline.Header{Name: codec.HeaderValueSchema, Value: bytes.Clone(full[:5])}
	e := envelope(full[5:], pipeline.Header{Name: "a"}, h)
	r := repair(t, parse(t, lib, "upcast@1.0.0", `{"schema":9}`), e)
	if r.Failure != nil {
		t.Fatal(r.Failure.Reason())
	}
	if !bytes.Equal(r.Value, want[5:]) || !bytes.Equal(r.Headers[1].Value, want[:5]) {
		t.Errorf("got %x under %x", r.Value, r.Headers[1].Value)
	}
	if !bytes.Equal(h.Value, full[:5]) {
		t.Error("the original header was written to")
	}
}

func TestStructuralEditsOnAvro(t *testing.T) {
	lib, _ := avroLibrary(t)
	in := invoice(7, "e1", 5, []byte{1}, nil)
	for name, c := range map[string]struct {
		ref, config string
		want        []byte
	}{
		"UnionTakesItsOtherBranch": {"set@1.0.0", `{"values":{"/note":"now there"}}`, invoice(7, "e1", 5, []byte{1}, ptrTo("now there"))},
		"PatchOfMembers":           {"json-patch@1.0.0", `{"patch":[{"op":"replace","path":"/amount_minor","value":9},{"op":"test","path":"/currency","value":"EUR"}]}`, invoice(7, "e9", 9, []byte{1}, nil)},
		"NumberForDecimal":         {"set@1.0.0", `{"values":{"/amount":2.55}}`, invoice(7, "e1", 5, []byte{0, 255}, nil)},
		"CELOverDecimal":           {"cel@1.0.0", `{"values":{"/amount_minor":"view.amount_minor * 100"}}`, invoice(7, "e1", 500, []byte{1}, nil)},
		"ToAnotherSchema":          {"json-patch@1.0.0", `{"patch":[{"op":"remove","path":"/note"},{"op":"move","from":"/currency","path":"/currency_code"},{"op":"add","path":"/channel","value":"shop"}],"schema":"avro:9"}`, invoice9("e1", 5, []byte{1}, "shop")},
	} {
		t.Run(name, func(t *testing.T) {
			e := envelope(in)
			if name == "PatchOfMembers" {
				e = envelope(invoice(7, "e9", 5, []byte{1}, nil))
			}
			r := repair(t, parse(t, lib, c.ref, c.config), e)
			if r.Failure != nil {
				t.Fatal(r.Failure.Reason(), r.Failure.Cause)
			}
			if !bytes.Equal(r.Value, c.want) {
				t.Errorf("got  %x\nwant %x", r.Value, c.want)
			}
		})
	}
	for name, c := range map[string][2]string{
		"UnknownMember":   {"json-patch@1.0.0", `{"patch":[{"op":"add","path":"/frob","value":1}]}`},
		"MissingMember":   {"remove@1.0.0", `{"paths":["/currency"]}`},
		"WrongType":       {"set@1.0.0", `{"values":{"/amount_minor":"many"}}`},
		"NumberTooLarge":  {"set@1.0.0", `{"values":{"/lines/0/qty":2147483648}}`},
		"Fraction":        {"set@1.0.0", `{"values":{"/amount_minor":1.5}}`},
		"NullWithoutNull": {"set@1.0.0", `{"values":{"/currency":null}}`},
	} {
		t.Run(name, func(t *testing.T) {
			r := repair(t, parse(t, lib, c[0], c[1]), envelope(in))
			if r.Failure == nil || r.Failure.Code != pipeline.CodeTransformSchema {
				t.Errorf("got %x, %v", r.Value, r.Failure)
			}
		})
	}
}

// A repair never loses half a cent: a decimal that its schema cannot hold is an error, never a rounded number.
func TestCaseC07RepairOfDecimalIsExact(t *testing.T) {
	dir := t.TempDir()
	schemas := map[string]json.RawMessage{}
	text, err := os.ReadFile("testdata/C07/registry.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &schemas); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "41.avsc"), schemas["41"], 0o600); err != nil {
		t.Fatal(err)
	}
	reg, err := codec.Folder(dir)
	if err != nil {
		t.Fatal(err)
	}
	dec, err := codec.NewDecoder(codec.DecodeConfig{Format: codec.FormatAvro}, reg)
	if err != nil {
		t.Fatal(err)
	}
	lib := NewLibrary(Options{Decoder: dec, Registry: reg})
	var cases []struct {
		Decimal string `json:"decimal"`
		Datum   string `json:"datum_hex"`
	}
	if text, err = os.ReadFile("testdata/C07/encode.json"); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	original := []byte{0, 0, 0, 0, 41, 4, 0x7f, 0xff}
	for _, c := range cases {
		for _, form := range []string{c.Decimal, `"` + c.Decimal + `"`} {
			t.Run(form, func(t *testing.T) {
				r := repair(t, parse(t, lib, "set@1.0.0", `{"values":{"/v":`+form+`}}`), envelope(original))
				if c.Datum == "" {
					if r.Failure == nil || r.Failure.Code != pipeline.CodeTransformSchema {
						t.Errorf("it was written as %x: %v", r.Value, r.Failure)
					}
					return
				}
				if r.Failure != nil {
					t.Fatal(r.Failure.Reason(), r.Failure.Cause)
				}
				if got := strings.ToLower(hexOf(r.Value[5:])); got != c.Datum {
					t.Errorf("got %s, want %s", got, c.Datum)
				}
			})
		}
	}
}

func hexOf(b []byte) string {
	const digits = "0123456789abcdef"
	out := make([]byte, 0, 2*len(b))
	for _, c := range b {
		out = append(out, digits[c>>4], digits[c&15])
	}
	return string(out)
}
