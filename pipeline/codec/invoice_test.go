package codec

import (
	"fmt"
	"strings"
	"testing"

	"reprieve.dev/pipeline"
)

// invoiceSchema is a record of 30 fields as billing has them.
const invoiceSchema = `{"type":"record","name":"Invoice","namespace":"billing.v1","fields":[
 {"name":"event_id","type":{"type":"string","logicalType":"uuid"}},
 {"name":"invoice_id","type":"string"},
 {"name":"account_id","type":"string"},
 {"name":"tenant","type":"string"},
 {"name":"seq","type":"long"},
 {"name":"created","type":{"type":"long","logicalType":"timestamp-millis"}},
 {"name":"due","type":{"type":"int","logicalType":"date"}},
 {"name":"currency","type":{"type":"enum","name":"Currency","symbols":["EUR","USD","GBP","CHF"]}},
 {"name":"amount_minor","type":"long"},
 {"name":"tax","type":{"type":"bytes","logicalType":"decimal","precision":12,"scale":2}},
 {"name":"paid","type":"boolean"},
 {"name":"customer","type":{"type":"record","name":"Customer","fields":[
   {"name":"name","type":"string"},{"name":"email","type":["null","string"]},{"name":"phone","type":["null","string"]},
   {"name":"street","type":"string"},{"name":"city","type":"string"},{"name":"zip","type":"string"},{"name":"country","type":"string"}]}},
 {"name":"iban","type":["null","string"]},
 {"name":"card","type":["null","string"]},
 {"name":"cvv","type":["null","string"]},
 {"name":"memo","type":["null","string"]},
 {"name":"channel","type":"string"},
 {"name":"rate","type":"double"},
 {"name":"discount","type":"float"},
 {"name":"attempt","type":"int"},
 {"name":"lines","type":{"type":"array","items":{"type":"record","name":"Line","fields":[
   {"name":"sku","type":"string"},{"name":"qty","type":"int"},{"name":"price","type":"long"},{"name":"note","type":["null","string"]}]}}},
 {"name":"labels","type":{"type":"map","values":"string"}},
 {"name":"token","type":"string"}]}`

// invoiceReader is what a reader made of it: other order, one field more, one promoted.
const invoiceReader = `{"type":"record","name":"Invoice","namespace":"billing.v2","fields":[
 {"name":"region","type":"string","default":"row"},
 {"name":"amount_minor","type":"double"},
 {"name":"id","type":"string","aliases":["event_id"]},
 {"name":"lines","type":{"type":"array","items":{"type":"record","name":"Line","fields":[{"name":"price","type":"long"},{"name":"sku","type":["null","string"]}]}}}]}`

func invoiceJSON(lines int) string {
	var items []string
	for i := range lines {
		items = append(items, fmt.Sprintf(`{"sku":"SKU-%05d","qty":%d,"price":%d,"note":%s}`, i, i+1, 1999+i, []string{"null", `"gift for Ann"`}[i%2]))
	}
	return `{"event_id":"0f8fad5b-d9cb-469f-a165-70867728950e","invoice_id":"INV-2026-000123456","account_id":"ACC-0042","tenant":"acme",
 "seq":9007199254740993,"created":"2026-09-15T10:00:00.123Z","due":"2026-10-15","currency":"EUR","amount_minor":424242,"tax":"678.79","paid":false,
 "customer":{"name":"Ann Example","email":"ann@example.com","phone":null,"street":"Long Street 12","city":"Berlin","zip":"10115","country":"DE"},
 "iban":"DE89370400440532013000","card":"4111111111111111","cvv":"123","memo":null,"channel":"web","rate":1.08,"discount":0.5,"attempt":1,
 "lines":[` + strings.Join(items, ",") + `],"labels":{"region":"eu"},"token":"tok-0001"}`
}

func invoice(t testing.TB, lines int) (*Decoder, []byte) {
	t.Helper()
	dir := t.TempDir()
	writeFile(t, dir+"/7.avsc", invoiceSchema)
	reg, err := Folder(dir)
	if err != nil {
		t.Fatal(err)
	}
	d, err := NewDecoder(DecodeConfig{Format: FormatAvro}, reg)
	if err != nil {
		t.Fatal(err)
	}
	s, f := reg.ByID(t.Context(), 7)
	if f != nil {
		t.Fatal(f.Reason(), f.Cause)
	}
	value, err := EncodeAvro(s, []byte(invoiceJSON(lines)))
	if err != nil {
		t.Fatal(err)
	}
	return d, value
}

// redactEditor replaces what stands at its paths, as the redact stage does.
type redactEditor struct {
	paths map[string]bool
	text  []byte
}

func newRedactEditor() *redactEditor {
	return &redactEditor{text: []byte("***"), paths: map[string]bool{"/customer/email": true, "/customer/name": true, "/iban": true, "/card": true, "/cvv": true, "/lines/*/note": true, "/labels/region": true}}
}

func (e *redactEditor) Plan(path, name string, kind pipeline.ValueKind, tags []string) pipeline.Rule {
	if e.paths[path] {
		return 1
	}
	return 0
}

func (e *redactEditor) Edit(pipeline.Rule, pipeline.Leaf) pipeline.Edit {
	return pipeline.Edit{Kind: pipeline.Replace, Text: e.text}
}

func TestINVWholeRecordEveryTruncationAndLeftoverIsRefused(t *testing.T) {
	d, value := invoice(t, 3)
	s := NewScratch()
	for n := range value {
		s.Reset()
		if _, f := d.Decode(t.Context(), s, value[:n:n], nil); f == nil {
			t.Fatalf("%d of %d bytes accepted", n, len(value))
		} else if n >= 5 && f.Code != pipeline.CodeDecodeTruncated {
			t.Fatalf("%d bytes: %s", n, f.Reason())
		} else if n >= 5 && (param(f, "at") == "" || param(f, "want") == "" || param(f, "left") == "") {
			t.Fatalf("%d bytes: %s", n, f.Reason())
		}
	}
	if _, f := d.Decode(t.Context(), s, append(value[:len(value):len(value)], 0), nil); f == nil || f.Code != pipeline.CodeDecodeLeftover {
		t.Error(f)
	}
}

func TestINVSourceUnmutatedEditReplacesOnlyWhatItIsTold(t *testing.T) {
	d, value := invoice(t, 4)
	v := mustView(t, d, value)
	before := text(t, v)
	e := newRedactEditor()
	prefix := []byte("kept")
	out, changed, err := v.Edit(prefix, e)
	if err != nil || !changed || !strings.HasPrefix(string(out), "kept") {
		t.Fatal(changed, err)
	}
	out = out[4:]
	want := before
	for _, s := range []string{`"Ann Example"`, `"ann@example.com"`, `"DE89370400440532013000"`, `"4111111111111111"`, `"123"`, `"gift for Ann"`, `"eu"`} {
		want = strings.ReplaceAll(want, s, `"***"`)
	}
	if got := text(t, mustView(t, d, out)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if text(t, v) != before {
		t.Error("the source changed")
	}
	if err := v.Rebind(out); err != nil || text(t, v) != want {
		t.Errorf("Rebind: %v", err)
	}
	if _, changed, _ := v.Edit(nil, &redactEditor{}); changed {
		t.Error("an editor without rules changed something")
	}
}

func TestHotPathAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	d, value := invoice(t, 3)
	s := NewScratch()
	paths := []*pipeline.Path{path(t, "/event_id"), path(t, "/account_id"), path(t, "/customer/email"), path(t, "/amount_minor"), path(t, "/lines/1/price"), path(t, "/labels/region")}
	e := newRedactEditor()
	var dst, js []byte
	ctx := t.Context()
	n := testing.AllocsPerRun(1000, func() {
		s.Reset()
		v, f := d.Decode(ctx, s, value, nil)
		if f != nil {
			t.Fatal(f.Reason())
		}
		for _, p := range paths {
			if _, ok := v.Get(p); !ok {
				t.Fatal(p.Text)
			}
		}
		dst, _, _ = v.Edit(dst[:0], e)
		js, _ = v.AppendJSON(js[:0])
		if err := v.Rebind(dst); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("avro: %v allocations a record", n)
	}

	headers := []pipeline.Header{{Name: "other", Value: []byte("x")}, {Name: HeaderValueSchema, Value: append([]byte{1}, make([]byte, 16)...)}}
	dir := t.TempDir()
	writeFile(t, dir+"/00000000000000000000000000000000.avsc", invoiceSchema)
	reg, err := Folder(dir)
	if err != nil {
		t.Fatal(err)
	}
	byGUID, err := NewDecoder(DecodeConfig{Format: FormatAvro}, reg)
	if err != nil {
		t.Fatal(err)
	}
	n = testing.AllocsPerRun(1000, func() {
		s.Reset()
		if _, f := byGUID.Decode(ctx, s, value[5:], headers); f != nil {
			t.Fatal(f.Reason())
		}
	})
	if n != 0 {
		t.Errorf("GUID in a header: %v allocations a record", n)
	}

	reader, err := NewDecoder(DecodeConfig{Format: FormatAvro, Framing: FramingNone, Schema: invoiceSchema, Reader: invoiceReader}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if v := mustView(t, reader, value[5:]); get(t, v, "/amount_minor") != "424242" || get(t, v, "/region") != "row" {
		t.Error(text(t, v))
	}
	n = testing.AllocsPerRun(1000, func() {
		s.Reset()
		if _, f := reader.Decode(ctx, s, value[5:], nil); f != nil {
			t.Fatal(f.Reason())
		}
	})
	if n != 0 {
		t.Errorf("reader schema: %v allocations a record", n)
	}

	doc := []byte(js)
	j := jsonDecoder(t, Limits{})
	n = testing.AllocsPerRun(1000, func() {
		s.Reset()
		v, f := j.Decode(ctx, s, doc, nil)
		if f != nil {
			t.Fatal(f.Reason())
		}
		for _, p := range paths {
			if _, ok := v.Get(p); !ok {
				t.Fatal(p.Text)
			}
		}
		dst, _, _ = v.Edit(dst[:0], e)
		js, _ = v.AppendJSON(js[:0])
	})
	if n != 0 {
		t.Errorf("json: %v allocations a record", n)
	}
}
