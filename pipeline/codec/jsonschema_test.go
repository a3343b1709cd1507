package codec

import (
	"strings"
	"testing"
	"time"

	"reprieve.dev/pipeline"
)

const orderSchema = `{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","required":["id","lines"],
 "properties":{"id":{"type":"string"},"customer":{"$ref":"customer.json"},
  "lines":{"type":"array","items":{"type":"object","properties":{"sku":{"type":"string"},"pan":{"type":"string","confluent:tags":["PCI"]}}}},
  "total":{"type":"integer","minimum":0}}}`

const customerSchema = `{"type":"object","properties":{"email":{"type":"string","confluent:tags":["PII"]}},"additionalProperties":false}`

func TestJSONSchemaValidatesAndNamesThePlace(t *testing.T) {
	server := newFakeRegistry(t)
	server.answer("/subjects/customer/versions/1", reply(200, schemaBody(customerSchema, "JSON")))
	server.answer("/schemas/ids/3", reply(200, schemaBody(orderSchema, "JSON", []byte(`{"name":"customer.json","subject":"customer","version":1}`))))
	d, err := NewDecoder(DecodeConfig{Format: FormatJSONSchema}, server.cache(t))
	if err != nil {
		t.Fatal(err)
	}
	frame := func(s string) []byte { return Frame(3, []byte(s)) }
	v := mustView(t, d, frame(` {"id":"o1","customer":{"email":"a@example.com"},"lines":[{"sku":"s","pan":"4111111111111111"}],"total":12345678901234567890} `))
	if v.Schema().String() != "jsonschema:3" || get(t, v, "/total") != "12345678901234567890" {
		t.Errorf("%s %s", v.Schema(), get(t, v, "/total"))
	}
	seen := map[string][]string{}
	out, changed, err := v.Edit(nil, tagEditor{seen})
	if err != nil || !changed {
		t.Fatal(err)
	}
	want := string(frame(` {"id":"o1","customer":{"email":"***"},"lines":[{"sku":"s","pan":"***"}],"total":12345678901234567890} `))
	if string(out) != want {
		t.Errorf("%q\n%q", out, want)
	}
	rows := []struct{ value, field, what string }{
		{`{"lines":[]}`, "/id", "required"},
		{`{"id":1,"lines":[]}`, "/id", "type"},
		{`{"id":"x","lines":[{"sku":"s"},{"sku":5}]}`, "/lines/*/sku", "type"},
		{`{"id":"x","lines":[],"total":-1}`, "/total", "minimum"},
		{`{"id":"x","lines":[],"customer":{"4111111111111111":1}}`, "", "additionalProperties"},
	}
	for _, row := range rows {
		_, f := decode(t, d, frame(row.value))
		if f == nil || f.Code != pipeline.CodeSchemaMismatch || param(f, "field") != row.field || param(f, "what") != row.what {
			t.Errorf("%s: %v", row.value, f)
			continue
		}
		if strings.Contains(f.Reason(), "4111") {
			t.Errorf("payload in the reason: %s", f.Reason())
		}
	}
	if _, f := decode(t, d, frame(`{"id":"x","id":"y","lines":[]}`)); f == nil || f.Code != pipeline.CodeDecodeDuplicate {
		t.Errorf("duplicate: %v", f)
	}
}

func TestJSONSchemaLoadsNothing(t *testing.T) {
	for _, ref := range []string{"https://example.com/x.json", "file:///etc/hostname", "other.json"} {
		start := time.Now()
		_, f := ParseSchema(pipeline.SchemaRef{Format: FormatJSONSchema, ID: 1}, `{"$ref":"`+ref+`"}`)
		if f == nil || f.Code != pipeline.CodeSchemaInvalid || time.Since(start) > 20*time.Second {
			t.Errorf("%s: %v", ref, f)
		}
	}
}

// tagEditor replaces what is tagged.
type tagEditor struct{ seen map[string][]string }

func (e tagEditor) Plan(path, _ string, _ pipeline.ValueKind, tags []string) pipeline.Rule {
	e.seen[path] = tags
	if len(tags) > 0 {
		return 1
	}
	return 0
}

func (e tagEditor) Edit(pipeline.Rule, pipeline.Leaf) pipeline.Edit {
	return pipeline.Edit{Kind: pipeline.Replace, Text: []byte("***")}
}
