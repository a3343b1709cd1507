package codec

import (
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"reprieve.dev/pipeline"
)

func TestFingerprintIsTheOneOfTheSpecification(t *testing.T) {
	for schema, want := range map[string]uint64{`"null"`: 0x63dd24e7cc258f8a, `"boolean"`: 0x9f42fc78a4d4f764, `"int"`: 0x7275d51a3f395c8f,
		`"string"`: 0x8f014872634503c7, `{"type":"fixed","name":"foo","size":15}`: 0x18602ec3ed31a504} {
		if got := parse(t, schema).Fingerprint(); got != want {
			t.Errorf("%s: %x, want %x", schema, got, want)
		}
	}
}

func TestJSONEditKeepsEveryOtherByte(t *testing.T) {
	in := "{ \"a\" : 1 ,\n  \"b\":\"x\\u0041\", \"c\" : [ \"x\" , {\"d\":\"x\"} ] ,\t\"e\":true,\"f\":{}, \"g~/h\":\"x\" } \n"
	rows := []struct {
		paths string
		edit  pipeline.Edit
		want  string
	}{
		{"/b", pipeline.Edit{Kind: pipeline.Replace, Text: []byte(`<"&>`)}, strings.Replace(in, `"x\u0041"`, `"<\"&>"`, 1)},
		{"/a", pipeline.Edit{Kind: pipeline.Replace, Text: []byte("12.50")}, strings.Replace(in, " 1 ", " 12.50 ", 1)},
		{"/a", pipeline.Edit{Kind: pipeline.Replace, Text: []byte("no number")}, strings.Replace(in, " 1 ", " 0 ", 1)},
		{"/e", pipeline.Edit{Kind: pipeline.Replace, Text: []byte("***")}, strings.Replace(in, "true", "false", 1)},
		{"/a", pipeline.Edit{Kind: pipeline.Drop}, strings.Replace(in, "\"a\" : 1 ,\n  ", "", 1)},
		{"/e", pipeline.Edit{Kind: pipeline.Drop}, strings.Replace(in, " ,\t\"e\":true", "", 1)},
		{"/g~0~1h", pipeline.Edit{Kind: pipeline.Drop}, strings.Replace(in, `, "g~/h":"x"`, "", 1)},
		{"/c/*", pipeline.Edit{Kind: pipeline.Drop}, strings.Replace(in, `[ "x"`, `[ null`, 1)},
		{"/c/*/d", pipeline.Edit{Kind: pipeline.Drop}, strings.Replace(in, `{"d":"x"}`, `{}`, 1)},
		{"/c/*/d", pipeline.Edit{Kind: pipeline.Null}, strings.Replace(in, `{"d":"x"}`, `{"d":null}`, 1)},
		{"/a /b", pipeline.Edit{Kind: pipeline.Drop}, strings.Replace(in, "\"a\" : 1 ,\n  \"b\":\"x\\u0041\", ", "", 1)},
		{"/none", pipeline.Edit{Kind: pipeline.Drop}, ""},
	}
	d := jsonDecoder(t, Limits{})
	for _, row := range rows {
		v := mustView(t, d, []byte(in))
		out, changed, err := v.Edit(nil, editorFunc{func(p string) bool { return strings.Contains(" "+row.paths+" ", " "+p+" ") }, func(pipeline.Leaf) pipeline.Edit { return row.edit }})
		if err != nil || changed != (row.want != "") || string(out) != row.want {
			t.Errorf("%s %v:\ngot  %q\nwant %q", row.paths, row.edit.Kind, out, row.want)
		}
	}
	v := mustView(t, d, []byte(in))
	if diff := cmp.Diff([]string{"a", "b", "c", "e", "f", "g~/h"}, v.Keys(&pipeline.Path{})); diff != "" {
		t.Error(diff)
	}
	if got := get(t, v, "/b") + get(t, v, "/c/1/d") + get(t, v, "/g~0~1h") + get(t, v, "/c/2"); got != "xAxx(none)" {
		t.Error(got)
	}
}

func TestLeafPathsCountItems(t *testing.T) {
	d, value := invoice(t, 3)
	docs := []pipeline.View{mustView(t, d, value)}
	docs = append(docs, mustView(t, jsonDecoder(t, Limits{}), []byte(text(t, docs[0]))))
	for _, v := range docs {
		var got []string
		_, _, _ = v.Edit(nil, editorFunc{func(p string) bool { return p == "/lines/*/sku" || p == "/labels/region" || p == "/customer/city" },
			func(l pipeline.Leaf) pipeline.Edit {
				got = append(got, strings.Clone(l.Path)+" "+l.Name+" "+string(l.Value.Bytes))
				return pipeline.Edit{}
			}})
		want := []string{"/customer/city city Berlin", "/lines/0/sku sku SKU-00000", "/lines/1/sku sku SKU-00001", "/lines/2/sku sku SKU-00002", "/labels/region region eu"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s:\n%s", v.Schema(), diff)
		}
	}
}

func TestAvroEditNullsAndMisfits(t *testing.T) {
	schema := `{"type":"record","name":"R","fields":[
	 {"name":"s","type":"string"},{"name":"o","type":["null","string"]},{"name":"p","type":["string","null"]},{"name":"i","type":"int"},
	 {"name":"b","type":"boolean"},{"name":"d","type":{"type":"bytes","logicalType":"decimal","precision":5,"scale":2}},
	 {"name":"x","type":{"type":"fixed","name":"F","size":3}},{"name":"e","type":{"type":"enum","name":"E","symbols":["Z","A"]}},
	 {"name":"t","type":{"type":"long","logicalType":"timestamp-millis"}},{"name":"f","type":"double"},
	 {"name":"r","type":["null",{"type":"record","name":"In","fields":[{"name":"q","type":"string"}]}]}]}`
	in := `{"s":"text","o":"text","p":"text","i":7,"b":true,"d":"1.23","x":"abc","e":"A","t":"2026-01-02T03:04:05Z","f":2.5,"r":{"q":"text"}}`
	d := bare(t, schema, DecodeConfig{})
	value, err := EncodeAvro(parse(t, schema), []byte(in))
	if err != nil {
		t.Fatal(err)
	}
	rows := []struct {
		edit pipeline.Edit
		want string
	}{
		{pipeline.Edit{Kind: pipeline.Null}, `{"s":"","o":null,"p":null,"i":0,"b":false,"d":"0.00","x":"\u0000\u0000\u0000","e":"Z","t":"1970-01-01T00:00:00Z","f":0.0,"r":{"q":""}}`},
		{pipeline.Edit{Kind: pipeline.Replace, Text: []byte("***")}, `{"s":"***","o":"***","p":"***","i":0,"b":false,"d":"0.00","x":"***","e":"Z","t":"1970-01-01T00:00:00Z","f":0.0,"r":{"q":"***"}}`},
		{pipeline.Edit{Kind: pipeline.Replace, Text: []byte("42")}, `{"s":"42","o":"42","p":"42","i":42,"b":false,"d":"42.00","x":"\u0000\u0000\u0000","e":"Z","t":"1970-01-01T00:00:00.042Z","f":42.0,"r":{"q":"42"}}`},
		{pipeline.Edit{Kind: pipeline.Replace, Text: []byte("99999999999")}, `{"s":"99999999999","o":"99999999999","p":"99999999999","i":0,"b":false,"d":"0.00","x":"\u0000\u0000\u0000","e":"Z","t":"1973-03-03T09:46:39.999Z","f":99999999999.0,"r":{"q":"99999999999"}}`},
	}
	for _, row := range rows {
		v := mustView(t, d, value[5:])
		out, changed, err := v.Edit(nil, editorFunc{func(string) bool { return true }, func(pipeline.Leaf) pipeline.Edit { return row.edit }})
		if err != nil || !changed {
			t.Fatal(err)
		}
		if got := text(t, mustView(t, d, out)); got != row.want {
			t.Errorf("got  %s\nwant %s", got, row.want)
		}
	}
}

func TestRecursiveRecordsAreEditedAtEveryDepth(t *testing.T) {
	schema := `{"type":"record","name":"N","fields":[{"name":"v","type":"string"},{"name":"next","type":["null","N"]},{"name":"kids","type":{"type":"array","items":"N"}}]}`
	s := parse(t, schema)
	in := `{"v":"x","next":{"v":"x","next":{"v":"x","next":null,"kids":[]},"kids":[{"v":"x","next":null,"kids":[]}]},"kids":[{"v":"x","next":null,"kids":[]}]}`
	value, err := EncodeAvro(s, []byte(in))
	if err != nil {
		t.Fatal(err)
	}
	d := bare(t, schema, DecodeConfig{})
	v := mustView(t, d, value[5:])
	for range 2 {
		var paths []string
		out, _, _ := v.Edit(nil, &recorder{&paths})
		if got := text(t, mustView(t, d, out)); got != strings.ReplaceAll(in, `"x"`, `"longer"`) {
			t.Errorf("%s", got)
		}
		want := []string{"/v", "/next/v", "/next/next/v", "/next/kids/0/v", "/kids/0/v"}
		if diff := cmp.Diff(want, paths); diff != "" {
			t.Error(diff)
		}
	}
}

type recorder struct{ paths *[]string }

func (e *recorder) Plan(_, name string, _ pipeline.ValueKind, _ []string) pipeline.Rule {
	if name == "v" {
		return 1
	}
	return 0
}

func (e *recorder) Edit(_ pipeline.Rule, l pipeline.Leaf) pipeline.Edit {
	*e.paths = append(*e.paths, strings.Clone(l.Path))
	return pipeline.Edit{Kind: pipeline.Replace, Text: []byte("longer")}
}

func TestEncodeAvroRefusesWhatWouldBeLost(t *testing.T) {
	s := parse(t, `{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":["null","long"],"default":null},{"name":"c","type":{"type":"map","values":"float"},"default":{}},{"name":"l","type":"long","default":9007199254740993}]}`)
	out, err := EncodeAvro(s, []byte(`{"a":1}`))
	if err != nil {
		t.Fatal(err)
	}
	d := bare(t, s.Text(), DecodeConfig{})
	if got := text(t, mustView(t, d, out[5:])); got != `{"a":1,"b":null,"c":{},"l":9007199254740993}` {
		t.Error(got)
	}
	for in, place := range map[string]string{`{}`: "/a", `{"a":2147483648}`: "/a", `{"a":1.5}`: "/a", `{"a":"1"}`: "/a", `{"a":1,"d":1}`: "/d",
		`{"a":1,"b":"x"}`: "/b", `{"a":1,"c":{"k/1":"x"}}`: "/c/k~11", `[1]`: "/", `{"a":1,"b":9223372036854775808}`: "/b"} {
		_, err := EncodeAvro(s, []byte(in))
		e, ok := err.(*pipeline.Error)
		if !ok || e.Code != pipeline.CodeRouteEncode || e.Place != place {
			t.Errorf("%s: %v, want a complaint about %s", in, err, place)
		}
	}
	if _, err := EncodeAvro(s, []byte(`{"a":1,"a":2}`)); pipeline.CodeOf(err) != pipeline.CodeDecodeDuplicate {
		t.Errorf("%v", err)
	}
	named, err := EncodeAvro(s, []byte(`{"a":1,"b":{"long":5}}`))
	if err != nil || get(t, mustView(t, d, named[5:]), "/b") != "5" {
		t.Errorf("a named branch: %v", err)
	}
}

func TestLogicalTypesAreReadableAndComeBack(t *testing.T) {
	rows := []struct{ schema, json string }{
		{`{"type":"int","logicalType":"date"}`, `"1969-12-31"`},
		{`{"type":"int","logicalType":"date"}`, `2147483647`},
		{`{"type":"int","logicalType":"time-millis"}`, `"23:59:59.999"`},
		{`{"type":"int","logicalType":"time-millis"}`, `-1`},
		{`{"type":"long","logicalType":"time-micros"}`, `"00:00:00.000001"`},
		{`{"type":"long","logicalType":"timestamp-nanos"}`, `"1969-12-31T23:59:59.999999999Z"`},
		{`{"type":"long","logicalType":"timestamp-millis"}`, `9223372036854775807`},
		{`{"type":"long","logicalType":"local-timestamp-micros"}`, `"2026-09-15T10:00:00.5"`},
		{`{"type":"string","logicalType":"uuid"}`, `"0f8fad5b-d9cb-469f-a165-70867728950e"`},
		{`{"type":"fixed","name":"U","size":16,"logicalType":"uuid"}`, `"0f8fad5b-d9cb-469f-a165-70867728950e"`},
		{`{"type":"fixed","name":"D","size":12,"logicalType":"duration"}`, `{"months":1,"days":4294967295,"millis":3}`},
		{`{"type":"fixed","name":"M","size":4,"logicalType":"decimal","precision":8,"scale":3}`, `"-0.001"`},
		{`{"type":"bytes","logicalType":"decimal","precision":40,"scale":0}`, `"1234567890123456789012345678901234567890"`},
		{`{"type":"bytes","logicalType":"decimal","precision":40,"scale":38}`, `"-12.34567890123456789012345678901234567890"`},
		{`"double"`, `"NaN"`}, {`"float"`, `"-Infinity"`}, {`"double"`, `-0.0`}, {`"float"`, `0.1`}, {`"double"`, `1e300`}, {`"bytes"`, `"\u0000` + "\u00ff" + `"`},
	}
	for _, row := range rows {
		s := parse(t, row.schema)
		out, err := EncodeAvro(s, []byte(row.json))
		if err != nil {
			t.Errorf("%s %s: %v", row.schema, row.json, err)
			continue
		}
		if got := text(t, mustView(t, bare(t, row.schema, DecodeConfig{}), out[5:])); strings.Replace(got, "e+", "e", 1) != row.json {
			t.Errorf("%s: %s came back as %s", row.schema, row.json, got)
		}
	}
	for schema, bad := range map[string]string{`{"type":"int","logicalType":"date"}`: `"2026-02-30"`, `{"type":"long","logicalType":"timestamp-millis"}`: `"2026-01-01T00:00:00.0001Z"`} {
		if _, err := EncodeAvro(parse(t, schema), []byte(bad)); err == nil {
			t.Errorf("%s took %s", schema, bad)
		}
	}
}

func TestLimitsNameThemselves(t *testing.T) {
	d := jsonDecoder(t, Limits{Bytes: 50, Depth: 3, Items: 5})
	for value, code := range map[string]pipeline.Code{strings.Repeat(" ", 51): pipeline.CodeLimitBytes, `[[[[]]]]`: pipeline.CodeLimitDepth, `[1,2,3,4,5,6]`: pipeline.CodeLimitItems, `[[[1]]]`: ""} {
		if _, f := decode(t, d, []byte(value)); f == nil && code != "" || f != nil && f.Code != code {
			t.Errorf("%s: %v, want %s", value, f, code)
		}
	}
	nested := `"int"`
	for i := range 5 {
		nested = fmt.Sprintf(`{"type":"record","name":"R%d","fields":[{"name":"f","type":%s}]}`, i, nested)
	}
	if _, f := decode(t, bare(t, nested, DecodeConfig{Limits: Limits{Depth: 4}}), []byte{2}); f == nil || f.Code != pipeline.CodeLimitDepth {
		t.Errorf("records in records: %v", f)
	}
	if _, f := decode(t, bare(t, nested, DecodeConfig{Limits: Limits{Depth: 5}}), []byte{2}); f != nil {
		t.Errorf("as deep as allowed: %s", f.Reason())
	}
}

func TestDecodersShareNothingButSchemas(t *testing.T) {
	d, value := invoice(t, 3)
	want := text(t, mustView(t, d, value))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			s, e := NewScratch(), newRedactEditor()
			for range 50 {
				s.Reset()
				for range 100 {
					v, f := d.Decode(t.Context(), s, value, nil)
					if f != nil {
						t.Error(f.Reason())
						return
					}
					v.Get(&pipeline.Path{Segs: []string{"customer", "email"}, Text: "/customer/email"})
					if i == 0 {
						if out, _ := v.AppendJSON(nil); string(out) != want {
							t.Error("changed")
						}
					}
					_, _, _ = v.Edit(nil, e)
				}
			}
		})
	}
	wg.Wait()
}

func TestRegistryOverTLSWithATokenAndASecondURL(t *testing.T) {
	handler := newFakeRegistry(t)
	handler.answer("/schemas/ids/1", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer let-me-in" {
			w.WriteHeader(403)
			return
		}
		reply(200, schemaBody(`"string"`, ""))(w, r)
	})
	server := httptest.NewUnstartedServer(handler)
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS13}
	server.StartTLS()
	defer server.Close()
	dead := httptest.NewServer(nil)
	dead.Close()
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	c, err := NewRegistry(RegistryConfig{Name: "tls", URL: dead.URL + ", " + server.URL + "/", CA: ca, Token: "let-me-in"}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	if _, f := c.ByID(t.Context(), 1); f != nil {
		t.Errorf("%s: %v", f.Reason(), f.Cause)
	}
	wrong, _ := NewRegistry(RegistryConfig{URL: server.URL, CA: ca, Token: "no"}, time.Now)
	if _, f := wrong.ByID(t.Context(), 1); f == nil || f.Code != pipeline.CodeRegistryDenied {
		t.Errorf("wrong token: %v", f)
	}
	if _, err := NewRegistry(RegistryConfig{URL: "kafka:9092"}, time.Now); pipeline.CodeOf(err) != pipeline.CodeConfigValue {
		t.Errorf("no URL: %v", err)
	}
}

func TestLatestIsKeptForAMinuteAndOutlivesAnOutage(t *testing.T) {
	server := newFakeRegistry(t)
	h := &hand{now: time.Unix(1e9, 0)}
	c, err := NewRegistry(RegistryConfig{URL: server.URL, Timeout: time.Second}, h.clock())
	if err != nil {
		t.Fatal(err)
	}
	latest := func() string {
		s, f := c.Latest(t.Context(), "orders-value")
		if f != nil {
			return string(f.Code)
		}
		return s.Text()
	}
	server.answer("/subjects/orders-value/versions/latest", reply(200, `{"id":5,"version":1,"schema":"\"int\""}`))
	if got := latest(); got != `"int"` {
		t.Fatal(got)
	}
	server.answer("/subjects/orders-value/versions/latest", reply(200, `{"id":6,"version":2,"schema":"\"long\""}`))
	if got := latest(); got != `"int"` {
		t.Errorf("asked again at once: %s", got)
	}
	h.move(61 * time.Second)
	if got := latest(); got != `"long"` {
		t.Errorf("not asked again: %s", got)
	}
	server.answer("/subjects/orders-value/versions/latest", reply(503, ""))
	h.move(61 * time.Second)
	if got := latest(); got != `"long"` {
		t.Errorf("during an outage: %s", got)
	}
}

func TestFolderOfSchemas(t *testing.T) {
	dir := t.TempDir()
	guid := "4f7a1b2c-0011-2233-4455-66778899aabb"
	writeFile(t, dir+"/1.avsc", `{"type":"record","name":"A","fields":[{"name":"p","type":"x.Party"}]}`)
	writeFile(t, dir+"/party.avsc", `{"type":"record","name":"x.Party","fields":[{"name":"c","type":"x.Country"}]}`)
	writeFile(t, dir+"/country.avsc", `{"type":"enum","name":"x.Country","symbols":["DE"]}`)
	writeFile(t, dir+"/2.json", `{"$ref":"base.json"}`)
	writeFile(t, dir+"/base.json", `{"type":"object"}`)
	writeFile(t, dir+"/3.proto", "syntax = \"proto3\";\nimport \"p.proto\";\nmessage A { P p = 1; }\n")
	writeFile(t, dir+"/p.proto", "syntax = \"proto3\";\nmessage P { string c = 1; }\n")
	writeFile(t, dir+"/"+guid+".avsc", `"string"`)
	writeFile(t, dir+"/9.avsc", `{"type":"nosuch"}`)
	writeFile(t, dir+"/notes.txt", "no schema")
	r, err := Folder(dir)
	if err != nil {
		t.Fatal(err)
	}
	for id, format := range map[int32]string{1: FormatAvro, 2: FormatJSONSchema, 3: FormatProtobuf} {
		if s, f := r.ByID(t.Context(), id); f != nil || s.Ref().Format != format {
			t.Errorf("%d: %v", id, f)
		}
	}
	if _, f := r.ByGUID(t.Context(), guid); f != nil {
		t.Error(f.Reason())
	}
	if _, f := r.ByID(t.Context(), 9); f == nil || f.Code != pipeline.CodeSchemaInvalid {
		t.Errorf("%v", f)
	}
	if _, f := r.ByID(t.Context(), 8); f == nil || f.Code != pipeline.CodeSchemaUnknown {
		t.Errorf("%v", f)
	}
	if _, err := Folder(dir + "/none"); pipeline.CodeOf(err) != pipeline.CodeInputInvalid {
		t.Errorf("%v", err)
	}
}

func TestPlacesNameLeavesAndTags(t *testing.T) {
	s := parse(t, `{"type":"record","name":"R","fields":[{"name":"a","type":["null","string"],"confluent:tags":["PII"]},{"name":"l","type":{"type":"array","items":{"type":"record","name":"L","fields":[{"name":"p","type":"long"},{"name":"r","type":["null","R"]}]}}},{"name":"m","type":{"type":"map","values":"bytes"}}]}`)
	want := []Place{{"/a", pipeline.KindString, []string{"PII"}}, {"/l/*/p", pipeline.KindInt, nil}, {"/m/*", pipeline.KindBytes, nil}}
	if diff := cmp.Diff(want, s.Places()); diff != "" {
		t.Error(diff)
	}
	if !Matches("/l/*/p", "/l/12/p") || Matches("/l/*/p", "/l/12") || Matches("/l", "/l/1") || !Matches("", "") {
		t.Error("Matches")
	}
}

func TestCompatible(t *testing.T) {
	old, add := `{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}`, `{"type":"record","name":"R","fields":[{"name":"a","type":"long"},{"name":"b","type":"string","default":""}]}`
	if err := Compatible(parse(t, add), parse(t, old)); err != nil {
		t.Error(err)
	}
	if err := Compatible(parse(t, old), parse(t, add)); pipeline.CodeOf(err) != pipeline.CodeSchemaMismatch {
		t.Errorf("long read as int: %v", err)
	}
	if err := Compatible(parse(t, `["null","int"]`), parse(t, `["null","int","string"]`)); pipeline.CodeOf(err) != pipeline.CodeSchemaMismatch {
		t.Errorf("a branch less: %v", err)
	}
	enum := func(symbols, def string) string {
		return `{"type":"enum","name":"E","symbols":[` + symbols + `]` + def + `}`
	}
	if err := Compatible(parse(t, enum(`"A"`, "")), parse(t, enum(`"A","B"`, ""))); err == nil {
		t.Error("a symbol less without default")
	}
	if err := Compatible(parse(t, enum(`"A"`, `,"default":"A"`)), parse(t, enum(`"A","B"`, ""))); err != nil {
		t.Error(err)
	}
}
