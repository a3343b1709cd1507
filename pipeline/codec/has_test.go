package codec

import (
	"testing"

	"reprieve.dev/pipeline"
)

func TestASchemaSaysWhichPlacesRecordsCanHave(t *testing.T) {
	avro, f := ParseSchema(pipeline.SchemaRef{Format: FormatAvro, ID: 1}, `{"type":"record","name":"R","fields":[
		{"name":"a","type":"int"},
		{"name":"opt","type":["null",{"type":"record","name":"O","fields":[{"name":"x","type":"string"}]}]},
		{"name":"un","type":["int",{"type":"record","name":"U","fields":[{"name":"y","type":"string"}]},{"type":"map","values":"O"}]},
		{"name":"lines","type":{"type":"array","items":"O"}},
		{"name":"attrs","type":{"type":"map","values":"string"}},
		{"name":"next","type":["null","R"]}]}`)
	if f != nil {
		t.Fatal(f.Reason(), f.Cause)
	}
	proto, f := ParseSchema(pipeline.SchemaRef{Format: FormatProtobuf, ID: 2}, `syntax = "proto3";
message P { int32 a = 1; message O { string x = 1; } O opt = 2; repeated O lines = 3; map<string, O> attrs = 4; string long_name = 5; P next = 6; }`)
	if f != nil {
		t.Fatal(f.Reason(), f.Cause)
	}
	json, f := ParseSchema(pipeline.SchemaRef{Format: FormatJSONSchema, ID: 3}, `{"properties":{"a":{"type":"integer"}}}`)
	if f != nil {
		t.Fatal(f.Reason(), f.Cause)
	}
	for _, c := range []struct {
		s    *Schema
		path string
		want bool
	}{
		{avro, "", true}, {avro, "/a", true}, {avro, "/b", false}, {avro, "/a/b", false}, {avro, "/opt/x", true}, {avro, "/opt/y", false},
		{avro, "/un/y", true}, {avro, "/un/any/x", true}, {avro, "/un/any/y", false}, {avro, "/lines/0/x", true}, {avro, "/lines/x", false},
		{avro, "/attrs/whatever", true}, {avro, "/attrs/whatever/more", false}, {avro, "/next/next/next/a", true}, {avro, "/next/next/b", false},
		{proto, "/a", true}, {proto, "/b", false}, {proto, "/opt/x", true}, {proto, "/opt/y", false}, {proto, "/lines/3/x", true}, {proto, "/lines", true},
		{proto, "/lines/x", false}, {proto, "/attrs/k/x", true}, {proto, "/long_name", true}, {proto, "/longName", true}, {proto, "/next/next/a", true}, {proto, "/a/b", false},
	} {
		p, err := pipeline.NewPath(c.path)
		if err != nil {
			t.Fatal(err)
		}
		if has, known := c.s.Has(p); !known || has != c.want {
			t.Errorf("%s %q: %v, %v", c.s.Ref(), c.path, has, known)
		}
	}
	p, _ := pipeline.NewPath("/b")
	if _, known := json.Has(p); known {
		t.Error("a JSON Schema does not say what it does not name")
	}
}
