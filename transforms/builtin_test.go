package transforms

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/seal"
)

const invoiceV7 = `{"type":"record","name":"Invoice","namespace":"billing","fields":[
 {"name":"event_id","type":"string"},
 {"name":"tenant","type":"string"},
 {"name":"amount_minor","type":"long"},
 {"name":"amount","type":{"type":"bytes","logicalType":"decimal","precision":10,"scale":2}},
 {"name":"currency","type":"string"},
 {"name":"note","type":["null","string"]},
 {"name":"lines","type":{"type":"array","items":{"type":"record","name":"Line","fields":[{"name":"sku","type":"string"},{"name":"qty","type":"int"}]}}}]}`

// invoiceV9 renames currency, widens qty, adds fields with defaults and drops note.
const invoiceV9 = `{"type":"record","name":"Invoice","namespace":"billing","fields":[
 {"name":"event_id","type":"string"},
 {"name":"tenant","type":"string"},
 {"name":"amount_minor","type":"long"},
 {"name":"amount","type":{"type":"bytes","logicalType":"decimal","precision":10,"scale":2}},
 {"name":"currency_code","aliases":["currency"],"type":"string"},
 {"name":"channel","type":"string","default":"web"},
 {"name":"lines","type":{"type":"array","items":{"type":"record","name":"Line","fields":[{"name":"sku","type":"string"},{"name":"qty","type":"long"}]}}}]}`

func avroLong(b []byte, n int64) []byte { return binary.AppendVarint(b, n) }

func avroString(b []byte, s string) []byte { return append(avroLong(b, int64(len(s))), s...) }

// invoice is a framed datum of schema 7 written by hand, so that a test never believes our own encoder.
func invoice(id int32, event string, minor int64, amount []byte, note *string) []byte {
	b := binary.BigEndian.AppendUint32([]byte{0}, uint32(id))
	b = avroString(b, event)
	b = avroString(b, "acme")
	b = avroLong(b, minor)
	b = append(avroLong(b, int64(len(amount))), amount...)
	b = avroString(b, "EUR")
	if note == nil {
		b = avroLong(b, 0)
	} else {
		b = avroString(avroLong(b, 1), *note)
	}
	b = avroLong(b, 2)
	for _, l := range []struct {
		sku string
		qty int64
	}{{"A-1", 1}, {"B-2", 40}} {
		b = avroLong(avroString(b, l.sku), l.qty)
	}
	return avroLong(b, 0)
}

var ctx = context.Background()

func avroLibrary(t testing.TB) (*Library, *codec.Decoder) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"7.avsc": invoiceV7, "8.avsc": `{"type":"record","name":"Other","fields":[{"name":"x","type":"long"}]}`, "9.avsc": invoiceV9} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	reg, err := codec.Folder(dir)
	if err != nil {
		t.Fatal(err)
	}
	dec, err := codec.NewDecoder(codec.DecodeConfig{Format: codec.FormatAvro}, reg)
	if err != nil {
		t.Fatal(err)
	}
	return NewLibrary(Options{Decoder: dec, Registry: reg}), dec
}

func jsonLibrary(t testing.TB) (*Library, *codec.Decoder) {
	t.Helper()
	dec, err := codec.NewDecoder(codec.DecodeConfig{Format: codec.FormatJSON}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return NewLibrary(Options{Decoder: dec}), dec
}

func parse(t testing.TB, l *Library, ref, config string) Transform {
	t.Helper()
	tr, err := l.Parse(ref, []byte(config))
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func envelope(value []byte, headers ...pipeline.Header) Envelope {
	return Envelope{Item: "q1", Topic: "billing.invoices.v1", Record: pipeline.Record{Key: []byte("inv-1"), Value: value, Headers: headers}}
}

func repair(t testing.TB, tr Transform, e Envelope) Result {
	t.Helper()
	before := e.Record.Clone()
	out, err := tr.Repair(ctx, []Envelope{e})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, e.Record); diff != "" {
		t.Fatalf("the transform wrote to the original: %s", diff)
	}
	return out[0]
}

func TestBuiltinsOnJSON(t *testing.T) {
	lib, _ := jsonLibrary(t)
	const doc = `{ "id":"e1", "amount": 228930314431312345, "price":1.10, "nested":{"a":"<a&b>","list":[1,2]}, "flag":"true" }`
	for name, c := range map[string]struct {
		ref, config, want string // want "" fails
		changed           []string
	}{
		"SetScalarKeepsTheRest":  {"set@1.0.0", `{"values":{"/price":2.50}}`, strings.Replace(doc, "1.10", "2.50", 1), []string{"/price"}},
		"SetKeepsDigitsOfText":   {"set@1.0.0", `{"values":{"/amount":228930314431312346}}`, strings.Replace(doc, "312345", "312346", 1), []string{"/amount"}},
		"SetNestedItem":          {"set@1.0.0", `{"values":{"/nested/list/1":null}}`, strings.Replace(doc, "[1,2]", "[1,null]", 1), []string{"/nested/list/1"}},
		"SetTextToNumber":        {"set@1.0.0", `{"values":{"/flag":12}}`, strings.Replace(doc, `"true"`, `12`, 1), []string{"/flag"}},
		"SetNumberToText":        {"set@1.0.0", `{"values":{"/price":"1.10"}}`, strings.Replace(doc, `1.10`, `"1.10"`, 1), []string{"/price"}},
		"SetTextToBoolean":       {"set@1.0.0", `{"values":{"/flag":true}}`, strings.Replace(doc, `"true"`, `true`, 1), []string{"/flag"}},
		"SetNumberToNull":        {"set@1.0.0", `{"values":{"/price":null}}`, strings.Replace(doc, `1.10`, `null`, 1), []string{"/price"}},
		"SetKeepsSpelling":       {"set@1.0.0", `{"values":{"/price":1.1}}`, strings.Replace(doc, `1.10`, `1.1`, 1), []string{"/price"}},
		"SetSameIsNoChange":      {"set@1.0.0", `{"values":{"/price":1.10}}`, doc, nil},
		"SetObjectThenMember":    {"set@1.0.0", `{"values":{"/nested":{"x":1},"/nested/y":2}}`, strings.Replace(doc, `{"a":"<a&b>","list":[1,2]}`, `{"x":1,"y":2}`, 1), []string{"/nested", "/nested/y"}},
		"SetWithoutParent":       {"set@1.0.0", `{"values":{"/no/where":1}}`, "", nil},
		"Rename":                 {"rename@1.0.0", `{"names":{"/nested/a":"b"}}`, strings.Replace(doc, `"a":"<`, `"b":"<`, 1), []string{"/nested/a", "/nested/b"}},
		"RenameMissing":          {"rename@1.0.0", `{"names":{"/x":"y"}}`, "", nil},
		"RemoveItem":             {"remove@1.0.0", `{"paths":["/nested/list/0"]}`, strings.Replace(doc, "[1,2]", "[2]", 1), []string{"/nested/list/0"}},
		"RemoveMissingRefused":   {"remove@1.0.0", `{"paths":["/x"]}`, "", nil},
		"RemoveMissingAllowed":   {"remove@1.0.0", `{"paths":["/x"],"missing":true}`, doc, nil},
		"CastTextToBoolean":      {"cast@1.0.0", `{"fields":{"/flag":"boolean"}}`, strings.Replace(doc, `"true"`, `true`, 1), []string{"/flag"}},
		"CastNumberToText":       {"cast@1.0.0", `{"fields":{"/amount":"string"}}`, strings.Replace(doc, `228930314431312345`, `"228930314431312345"`, 1), []string{"/amount"}},
		"CastFractionToInteger":  {"cast@1.0.0", `{"fields":{"/price":"integer"}}`, "", nil},
		"CastTextToNumber":       {"cast@1.0.0", `{"fields":{"/id":"number"}}`, "", nil},
		"JSONDefaults":           {"upcast@1.0.0", `{"defaults":{"/price":0,"/nested/c":"d"}}`, strings.Replace(doc, `{"a":"<a&b>","list":[1,2]}`, `{"a":"<a&b>","list":[1,2],"c":"d"}`, 1), []string{"/nested/c"}},
		"JSONPatch":              {"json-patch@1.0.0", `{"patch":[{"op":"test","path":"/id","value":"e1"},{"op":"move","from":"/price","path":"/nested/list/0"}]}`, `{"id":"e1","amount":228930314431312345,"nested":{"a":"<a&b>","list":[1.10,1,2]},"flag":"true"}`, []string{"/price", "/nested/list/0"}},
		"JSONPatchFailsAsAWhole": {"json-patch@1.0.0", `{"patch":[{"op":"remove","path":"/price"},{"op":"test","path":"/id","value":"e2"}]}`, "", nil},
		"MergePatch":             {"merge-patch@1.0.0", `{"patch":{"nested":{"a":null}}}`, strings.Replace(doc, `{"a":"<a&b>","list":[1,2]}`, `{"list":[1,2]}`, 1), []string{"/nested/a"}},
		"CELKeepsType":           {"cel@1.0.0", `{"values":{"/amount":"view.amount + 1"}}`, strings.Replace(doc, "312345", "312346", 1), []string{"/amount"}},
		"CELAsText":              {"cel@1.0.0", `{"values":{"/new":"view.id + \"-\" + key"},"as":{"/new":"string"}}`, strings.Replace(strings.Replace(strings.Replace(doc, `{ "id":"e1", "amount": 2`, `{"id":"e1","amount":2`, 1), `, "price":1.10, "nested"`, `,"price":1.10,"nested"`, 1), `, "flag":"true" }`, `,"flag":"true","new":"e1-inv-1"}`, 1), []string{"/new"}},
		"CELMissingMember":       {"cel@1.0.0", `{"values":{"/amount":"view.none + 1"}}`, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := repair(t, parse(t, lib, c.ref, c.config), envelope([]byte(doc)))
			if c.want == "" {
				if r.Failure == nil {
					t.Fatalf("it was repaired: %s", r.Value)
				}
				if r.Failure.Code != pipeline.CodeTransformFailed {
					t.Errorf("code %s", r.Failure.Code)
				}
				if !bytes.Equal(r.Value, []byte(doc)) {
					t.Error("a failed repair has other bytes")
				}
				return
			}
			if r.Failure != nil {
				t.Fatal(r.Failure.Reason())
			}
			if got := string(r.Value); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if diff := cmp.Diff(c.changed, r.Report.Changed); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestBuiltinsRefuseWhatTheyCannotRead(t *testing.T) {
	lib, _ := jsonLibrary(t)
	set := parse(t, lib, "set@1.0.0", `{"values":{"/a":1}}`)
	for name, v := range map[string][]byte{"Null": nil, "Empty": {}, "NoJSON": []byte("{"), "LatinByte": []byte("{\"a\":\"\xe9\"}")} {
		t.Run(name, func(t *testing.T) {
			if r := repair(t, set, envelope(v)); r.Failure == nil {
				t.Error("it was repaired")
			}
		})
	}
	t.Run("NoDecoder", func(t *testing.T) {
		set := parse(t, NewLibrary(Options{}), "set@1.0.0", `{"values":{"/a":1}}`)
		if r := repair(t, set, envelope([]byte(`{"a":2}`))); r.Failure == nil {
			t.Error("it was repaired")
		}
	})
}

func TestSetEditsAvroInPlace(t *testing.T) {
	lib, _ := avroLibrary(t)
	note := "old"
	for name, c := range map[string]struct {
		config   string
		in, want []byte
	}{
		"Long":        {`{"values":{"/amount_minor":1234}}`, invoice(7, "e1", -5, []byte{1}, nil), invoice(7, "e1", 1234, []byte{1}, nil)},
		"Decimal":     {`{"values":{"/amount":"2.55"}}`, invoice(7, "e1", 5, []byte{1}, nil), invoice(7, "e1", 5, []byte{0, 255}, nil)},
		"String":      {`{"values":{"/note":"a longer note"}}`, invoice(7, "e1", 5, []byte{1}, &note), invoice(7, "e1", 5, []byte{1}, ptrTo("a longer note"))},
		"SameIsKept":  {`{"values":{"/amount_minor":5}}`, invoice(7, "e1", 5, []byte{1}, nil), invoice(7, "e1", 5, []byte{1}, nil)},
		"TwoAtOnce":   {`{"values":{"/amount_minor":7,"/event_id":"e2"}}`, invoice(7, "e1", 5, []byte{1}, nil), invoice(7, "e2", 7, []byte{1}, nil)},
		"ArrayMember": {`{"values":{"/lines/1/qty":40}}`, invoice(7, "e1", 5, []byte{1}, nil), invoice(7, "e1", 5, []byte{1}, nil)},
	} {
		t.Run(name, func(t *testing.T) {
			r := repair(t, parse(t, lib, "set@1.0.0", c.config), envelope(c.in))
			if r.Failure != nil {
				t.Fatal(r.Failure.Reason(), r.Failure.Cause)
			}
			if !bytes.Equal(r.Value, c.want) {
				t.Errorf("got  %x\nwant %x", r.Value, c.want)
			}
			if r.Schema != "avro:7" {
				t.Errorf("schema %s", r.Schema)
			}
		})
	}
}

func ptrTo(s string) *string { return &s }

func TestTrimLeftover(t *testing.T) {
	lib, _ := avroLibrary(t)
	whole := invoice(7, "e1", 5, []byte{1}, nil)
	glued := append(bytes.Clone(whole), 0xbe, 0xef)
	t.Run("CutsWhatStandsAfterTheDatum", func(t *testing.T) {
		r := repair(t, parse(t, lib, "trim-leftover@1.0.0", ""), envelope(glued))
		if r.Failure != nil {
			t.Fatal(r.Failure.Reason())
		}
		if !bytes.Equal(r.Value, whole) || r.Schema != "avro:7" {
			t.Errorf("got %x under %s", r.Value, r.Schema)
		}
	})
	for name, c := range map[string]struct {
		config string
		value  []byte
	}{
		"WholeRecord":   {"", whole},
		"Truncated":     {"", whole[:len(whole)-3]},
		"MoreThanMost":  {`{"most":1}`, glued},
		"UnknownSchema": {"", append([]byte{0, 0, 0, 9, 9}, glued[5:]...)},
		"Null":          {"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if r := repair(t, parse(t, lib, "trim-leftover@1.0.0", c.config), envelope(c.value)); r.Failure == nil {
				t.Error("it was repaired")
			}
		})
	}
	t.Run("SecondJSONDocument", func(t *testing.T) {
		lib, _ := jsonLibrary(t)
		r := repair(t, parse(t, lib, "trim-leftover@1.0.0", ""), envelope([]byte(`{"a":1}{"b":2}`)))
		if r.Failure != nil || string(r.Value) != `{"a":1}` {
			t.Errorf("got %s, %v", r.Value, r.Failure)
		}
	})
}

func TestReframe(t *testing.T) {
	lib, _ := avroLibrary(t)
	wrong, right := invoice(8, "e1", 5, []byte{1}, nil), invoice(7, "e1", 5, []byte{1}, nil)
	r := repair(t, parse(t, lib, "reframe@1.0.0", `{"schema":"avro:7","from":"avro:8"}`), envelope(wrong))
	if r.Failure != nil || !bytes.Equal(r.Value, right) || r.Schema != "avro:7" {
		t.Errorf("got %x under %s: %v", r.Value, r.Schema, r.Failure)
	}
	for name, c := range map[string]struct {
		config string
		value  []byte
	}{
		"OtherThanFrom":      {`{"schema":7,"from":6}`, wrong},
		"NotOfThatSchema":    {`{"schema":8}`, right},
		"NoFraming":          {`{"schema":7}`, []byte("{}")},
		"UnknownSchema":      {`{"schema":999}`, right},
		"ShorterThanFraming": {`{"schema":7}`, []byte{0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			if r := repair(t, parse(t, lib, "reframe@1.0.0", c.config), envelope(c.value)); r.Failure == nil {
				t.Error("it was repaired")
			}
		})
	}
}

func TestHeaders(t *testing.T) {
	lib, _ := jsonLibrary(t)
	in := []pipeline.Header{{Name: "a", Value: []byte("1")}, {Name: "b", Value: nil}, {Name: "a", Value: []byte("2")}, {Name: "c", Value: []byte{}}, {Name: "", Value: []byte("x")}}
	r := repair(t, parse(t, lib, "headers@1.0.0", `{"set":{"a":"9","new":"n"},"add":[["b","second"]],"remove":["c"]}`), envelope([]byte("not read"), in...))
	if r.Failure != nil {
		t.Fatal(r.Failure.Reason())
	}
	want := []pipeline.Header{{Name: "a", Value: []byte("9")}, {Name: "b"}, {Name: "", Value: []byte("x")}, {Name: "new", Value: []byte("n")}, {Name: "b", Value: []byte("second")}}
	if diff := cmp.Diff(want, r.Headers); diff != "" {
		t.Error(diff)
	}
}

func TestParseRefused(t *testing.T) {
	lib, _ := avroLibrary(t)
	for name, c := range map[string]struct {
		ref, config string
		code        pipeline.Code
	}{
		"NoVersion":      {"set", `{}`, pipeline.CodeTransformUnknown},
		"Latest":         {"set@latest", `{}`, pipeline.CodeTransformUnknown},
		"Range":          {"set@^1.0.0", `{}`, pipeline.CodeTransformUnknown},
		"UnknownVersion": {"set@2.0.0", `{}`, pipeline.CodeTransformUnknown},
		"UnknownName":    {"frob@1.0.0", `{}`, pipeline.CodeTransformUnknown},
		"NotJSON":        {"set@1.0.0", `{`, pipeline.CodeTransformConfig},
		"RepeatedKey":    {"set@1.0.0", `{"values":{"/a":1},"values":{"/a":2}}`, pipeline.CodeTransformConfig},
		"UnknownKey":     {"set@1.0.0", `{"value":{"/a":1}}`, pipeline.CodeTransformConfig},
		"NoPointer":      {"set@1.0.0", `{"values":{"a":1}}`, pipeline.CodeTransformConfig},
		"WholeRecord":    {"set@1.0.0", `{"values":{"":1}}`, pipeline.CodeTransformConfig},
		"CastType":       {"cast@1.0.0", `{"fields":{"/a":"float"}}`, pipeline.CodeTransformConfig},
		"SchemaLatest":   {"upcast@1.0.0", `{"schema":"latest"}`, pipeline.CodeTransformConfig},
		"PatchOp":        {"json-patch@1.0.0", `{"patch":[{"op":"x","path":""}]}`, pipeline.CodeTransformConfig},
		"Expression":     {"cel@1.0.0", `{"values":{"/a":"view."}}`, pipeline.CodeTransformConfig},
		"OurHeader":      {"headers@1.0.0", `{"set":{"Reprieve-Sig":"x"}}`, pipeline.CodeTransformConfig},
		"OurHeaderGone":  {"headers@1.0.0", `{"remove":["reprieve-sig"]}`, pipeline.CodeTransformConfig},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := lib.Parse(c.ref, []byte(c.config))
			if pipeline.CodeOf(err) != c.code {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestVersionsNeverChange(t *testing.T) {
	lib, _ := jsonLibrary(t)
	build := func(i Info, _ []byte) (Transform, error) { return failing{i}, nil }
	if err := lib.Add(Kind{Name: "acme/x", Version: "1.2.3", Build: build}); err != nil {
		t.Fatal(err)
	}
	if err := lib.Add(Kind{Name: "acme/x", Version: "1.2.3", Build: build}); err == nil {
		t.Error("a version was replaced")
	}
	if err := lib.Add(Kind{Name: "acme/x", Version: "latest", Build: build}); err == nil {
		t.Error("latest was taken")
	}
	a := parse(t, lib, "set@1.0.0", `{"values":{"/a":1.0,"/b":[{"c":null}]}}`).Info()
	b := parse(t, lib, "set@1.0.0", ` { "values" : {"/b":[{"c":null}],"/a":1.0} } `).Info()
	c := parse(t, lib, "set@1.0.0", `{"values":{"/a":1.00,"/b":[{"c":null}]}}`).Info()
	if a != b {
		t.Error("white space and member order change the digest")
	}
	if a.Config == c.Config {
		t.Error("1.0 and 1.00 are one configuration")
	}
}

// failing fails as a whole whenever a batch holds an envelope with the value "bad".
type failing struct{ info Info }

func (f failing) Info() Info { return f.info }

func (f failing) Repair(_ context.Context, in []Envelope) ([]Result, error) {
	out := make([]Result, len(in))
	for i := range in {
		if string(in[i].Record.Value) == "bad" {
			return nil, errors.New("crashed")
		}
		out[i] = unchanged(&in[i])
	}
	return out, nil
}

func TestRunBisects(t *testing.T) {
	in := make([]Envelope, 100)
	for i := range in {
		in[i] = envelope([]byte("good"))
	}
	in[3].Record.Value, in[77].Record.Value = []byte("bad"), []byte("bad")
	out, err := Run(ctx, failing{}, nil, in)
	if err != nil {
		t.Fatal(err)
	}
	for i := range out {
		if bad := i == 3 || i == 77; bad == out[i].OK() {
			t.Errorf("envelope %d: ok %v", i, out[i].OK())
		}
	}
}

func TestChecks(t *testing.T) {
	lib, dec := jsonLibrary(t)
	checker := func(t *testing.T, r Rules) *Checker {
		c, err := NewChecker(r, dec)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	rules := Rules{EventID: "/event_id", Tenant: "/tenant", TenantHeader: "tenant", Invariants: []Invariant{{"balanced", "view.debit == view.credit"}}, MaxBytes: 200}
	const doc = `{"event_id":"e1","tenant":"acme","debit":10,"credit":10}`
	header := pipeline.Header{Name: "tenant", Value: []byte("acme")}
	for name, c := range map[string]struct {
		rules       Rules
		ref, config string
		change      func(*Result)
		code        pipeline.Code
	}{
		"Kept":              {rules, "set@1.0.0", `{"values":{"/debit":20,"/credit":20}}`, nil, ""},
		"Invariant":         {rules, "set@1.0.0", `{"values":{"/debit":20}}`, nil, pipeline.CodeTransformInvariant},
		"InvariantErrors":   {rules, "remove@1.0.0", `{"paths":["/debit"]}`, nil, pipeline.CodeTransformInvariant},
		"Identity":          {rules, "set@1.0.0", `{"values":{"/event_id":"e2"}}`, nil, pipeline.CodeTransformIdentity},
		"IdentityRemoved":   {rules, "remove@1.0.0", `{"paths":["/event_id"]}`, nil, pipeline.CodeTransformIdentity},
		"IdentityDeclared":  {Rules{EventID: "/event_id", MayChange: []string{"event_id"}}, "set@1.0.0", `{"values":{"/event_id":"e2"}}`, nil, ""},
		"Tenant":            {rules, "set@1.0.0", `{"values":{"/tenant":"globex"}}`, nil, pipeline.CodeRedriveTenant},
		"TenantHeader":      {rules, "headers@1.0.0", `{"set":{"tenant":"globex"}}`, nil, pipeline.CodeRedriveTenant},
		"Size":              {rules, "set@1.0.0", `{"values":{"/debit":"` + strings.Repeat("9", 300) + `"}}`, nil, pipeline.CodeTransformSize},
		"Key":               {rules, "headers@1.0.0", `{"set":{"x":"y"}}`, func(r *Result) { r.Key = []byte("other") }, pipeline.CodeTransformKey},
		"KeyNullIsNotEmpty": {rules, "headers@1.0.0", `{"set":{"x":"y"}}`, func(r *Result) { r.Key = nil }, pipeline.CodeTransformKey},
		"NotDecodable":      {rules, "headers@1.0.0", `{"set":{"x":"y"}}`, func(r *Result) { r.Value = []byte("{") }, pipeline.CodeTransformSchema},
		"Tombstone":         {rules, "headers@1.0.0", `{"set":{"x":"y"}}`, func(r *Result) { r.Value = nil }, pipeline.CodeTransformFailed},
		"ForgedHeader":      {rules, "headers@1.0.0", `{"set":{"x":"y"}}`, func(r *Result) { r.Headers = append(r.Headers, pipeline.Header{Name: "reprieve-sig"}) }, pipeline.CodeTransformFailed},
	} {
		t.Run(name, func(t *testing.T) {
			e := envelope([]byte(doc), header)
			e.Identity = pipeline.Identity{EventID: "e1", Tenant: "acme"}
			r := repair(t, parse(t, lib, c.ref, c.config), e)
			if r.Failure != nil {
				t.Fatal(r.Failure.Reason())
			}
			if c.change != nil {
				c.change(&r)
			}
			f := checker(t, c.rules).Check(ctx, &e, &r)
			var code pipeline.Code
			if f != nil {
				code = f.Code
			}
			if code != c.code {
				t.Errorf("got %q (%v), want %q", code, f, c.code)
			}
		})
	}
	t.Run("UnreadableOriginalCountsWhatCustodyKnows", func(t *testing.T) {
		e := envelope([]byte(doc+"x"), header)
		e.Identity = pipeline.Identity{EventID: "e9", Tenant: "acme"}
		r := unchanged(&e)
		r.Value = []byte(doc)
		if f := checker(t, rules).Check(ctx, &e, &r); f == nil || f.Code != pipeline.CodeTransformIdentity {
			t.Errorf("got %v", f)
		}
		e.Identity.EventID = ""
		if f := checker(t, rules).Check(ctx, &e, &r); f != nil {
			t.Error(f.Reason())
		}
	})
}

func TestLineageRepeats(t *testing.T) {
	lib, _ := jsonLibrary(t)
	key, err := seal.NewIdentityKey("k1", bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 9, 15, 10, 0, 0, 123e6, time.UTC)
	e := envelope([]byte(`{"a":1}`))
	tr := parse(t, lib, "set@1.0.0", `{"values":{"/a":2}}`)
	r := repair(t, tr, e)
	l := NewLineage(tr.Info(), &e, &r, key, "ann", now)
	if l.At != "2026-09-15T10:00:00.123Z" || l.Input == l.Output || !strings.HasPrefix(string(l.Input), "hmac256:k1:") {
		t.Errorf("%+v", l)
	}
	if _, err := l.Repeat(ctx, tr, &e, key); err != nil {
		t.Error(err)
	}
	other := envelope([]byte(`{"a":3}`))
	if _, err := l.Repeat(ctx, tr, &other, key); pipeline.CodeOf(err) != pipeline.CodeTransformFailed {
		t.Errorf("other bytes: %v", err)
	}
	if _, err := l.Repeat(ctx, parse(t, lib, "set@1.0.0", `{"values":{"/a":4}}`), &e, key); pipeline.CodeOf(err) != pipeline.CodeTransformUnknown {
		t.Errorf("other configuration: %v", err)
	}
}

// A second repair starts from the original bytes, whatever a first one made of them (INV-REPAIR-01).
func TestCaseC49SecondRepairStartsFromTheOriginal(t *testing.T) {
	lib, _ := jsonLibrary(t)
	key, _ := seal.NewIdentityKey("k1", bytes.Repeat([]byte{7}, 32))
	original := envelope([]byte(`{"event_id":"e1","cents":"12.5"}`))
	first := parse(t, lib, "set@1.0.0", `{"values":{"/cents":13}}`)
	second := parse(t, lib, "cel@1.0.0", `{"values":{"/cents":"view.cents + \"0\""}}`)
	r1, r2 := repair(t, first, original), repair(t, second, original)
	if string(r2.Value) != `{"event_id":"e1","cents":"12.50"}` {
		t.Errorf("the second repair saw the first: %s", r2.Value)
	}
	l1, l2 := NewLineage(first.Info(), &original, &r1, key, "ann", time.Time{}), NewLineage(second.Info(), &original, &r2, key, "ann", time.Time{})
	if l1.Input != l2.Input || l1.Output == l2.Output {
		t.Errorf("lineage %v %v", l1, l2)
	}
}

func BenchmarkRepairBuiltin(b *testing.B) {
	for name, c := range map[string]struct {
		lib   func(testing.TB) (*Library, *codec.Decoder)
		value []byte
		conf  string
	}{
		"SetAvro": {avroLibrary, invoice(7, "e1", 5, []byte{1}, nil), `{"values":{"/amount_minor":1234}}`},
		"SetJSON": {jsonLibrary, []byte(`{"event_id":"e1","tenant":"acme","amount_minor":5,"lines":[{"sku":"A-1","qty":1},{"sku":"B-2","qty":40}],"note":"` + strings.Repeat("n", 200) + `"}`), `{"values":{"/amount_minor":1234}}`},
	} {
		b.Run(name, func(b *testing.B) {
			lib, dec := c.lib(b)
			tr := parse(b, lib, "set@1.0.0", c.conf)
			checks, err := NewChecker(Rules{EventID: "/event_id", Tenant: "/tenant"}, dec)
			if err != nil {
				b.Fatal(err)
			}
			in := make([]Envelope, 500)
			for i := range in {
				in[i] = envelope(c.value)
			}
			b.ResetTimer()
			n := 0
			for b.Loop() {
				out, err := Run(ctx, tr, checks, in)
				if err != nil || !out[0].OK() {
					b.Fatal(err, out[0].Failure)
				}
				n += len(in)
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "items/s")
		})
	}
}

// Both ways to set a scalar, in place and through the document, give the same bytes.
func TestInPlaceIsTheDocumentEdit(t *testing.T) {
	lib, _ := jsonLibrary(t)
	const doc = ` {"s":"te\u00e9xt" , "n": 10.50,"i":-0,"big":9007199254740993,"t":true, "z":null,"o":{"a b":{"x~y":"1"}},"l":[1,"2",[3.0]],"e":"", "u":"é\"\\/"} `
	paths := []string{"/s", "/n", "/i", "/big", "/t", "/z", "/o/a b/x~0y", "/l/0", "/l/1", "/l/2/0", "/e", "/u", "/new", "/o", "/l"}
	values := []string{`"text"`, `""`, `"10.50"`, `10.50`, `10.5`, `105e-1`, `-0`, `0`, `9007199254740992`, `1E400`, `true`, `false`, `null`, `"teéxt"`, `"te\u00e9xt"`, `"1"`, `1`, `"a\nb\"c"`}
	for _, p := range paths {
		for _, v := range values {
			conf := `{"values":{"` + p + `":` + v + `}}`
			r := repair(t, parse(t, lib, "set@1.0.0", conf), envelope([]byte(doc)))
			if r.Failure != nil {
				t.Errorf("%s: %s", conf, r.Failure.Reason())
				continue
			}
			d := mustParse(t, doc)
			if what := d.put(ptr(t, p), value(t, v), false); what != "" {
				t.Fatal(what)
			}
			got, want := mustParse(t, string(r.Value)), mustParse(t, string(d.text(nil)))
			if !got.root.equal(want.root) {
				t.Errorf("%s: got %s, want %s", conf, r.Value, d.text(nil))
			}
			if n := got.at(ptr(t, p)); n.kind == '0' && string(n.src) != v {
				t.Errorf("%s: the number is written as %s", conf, n.src)
			}
		}
	}
}

func TestConfigurationThatIsNotJSONIsToldWithoutACodeInTheText(t *testing.T) {
	_, err := NewLibrary(Options{}).Parse("set@1.0.0", []byte(`{"values": {"/currency": "EUR"`))
	e, ok := errors.AsType[*pipeline.Error](err)
	if !ok || e.Code != pipeline.CodeTransformConfig || e.Place != "set@1.0.0" {
		t.Fatalf("got %v", err)
	}
	if want := "the configuration is not valid JSON: the text ends early at 30"; e.Text != want {
		t.Errorf("%q instead of %q", e.Text, want)
	}
}
