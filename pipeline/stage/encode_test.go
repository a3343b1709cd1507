package stage_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/call"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/stage"
)

const enrichedSchema = `{"type":"record","name":"Enriched","fields":[{"name":"id","type":"string"},{"name":"amount","type":"long"},
	{"name":"account","type":["null",{"type":"record","name":"Account","fields":[{"name":"tier","type":"string"}]}],"default":null}]}`

// subjects is a registry of newest schemas that counts how often it is asked.
type subjects struct {
	codec.Registry
	schema *codec.Schema // nil: it is down
	asked  int
}

func (s *subjects) Latest(_ context.Context, subject string) (*codec.Schema, *pipeline.Failure) {
	s.asked++
	if s.schema == nil || subject != "enriched-value" {
		return nil, &pipeline.Failure{Code: pipeline.CodeRegistryUnavailable, RetryAfter: 700}
	}
	return s.schema, nil
}

// answers stands for a service: the tier of an account by its URL.
type tiers map[string]string

func (a tiers) Do(_ context.Context, r call.Request) (call.Answer, *pipeline.Failure) {
	body, ok := a[r.URL]
	if !ok {
		return call.Answer{Status: 404}, nil
	}
	return call.Answer{Status: 200, Body: []byte(body)}, nil
}

// encoded runs records through decode of JSON, a look-up into the member account, and a route that writes them anew.
func encoded(t *testing.T, encode string, reg *subjects, recs ...pipeline.Record) *pipeline.Batch {
	t.Helper()
	layout := &pipeline.Layout{}
	env := pipeline.Env{Pipeline: "p", Layout: layout, Log: slog.New(slog.DiscardHandler), Meter: noMeter{}, Clock: time.Now,
		Resource: func(kind, name string) (any, error) {
			switch kind {
			case stage.ResourceRegistry:
				return reg, nil
			case stage.ResourceHTTP:
				return tiers{"http://accounts/A": ` {"tier": "gold"} `, "http://accounts/B": `[1.50]`}, nil
			}
			return nil, pipeline.Errorf(pipeline.CodeConfigReference, name, "no %s", kind)
		}}
	var stages []pipeline.Stage
	for _, s := range [][2]string{{"decode", "{format: json}"}, {"enrich", `{http: {url: "http://accounts/{/a}", into: account, missing: skip}}`},
		{"route", `{rules: [{when: 'view != null && has(view.id) && view.id == "lost"', topic: lost}], default: {topic: out}, encode: ` + encode + `}`}} {
		built := build(t, env, s[0], s[1])
		stages = append(stages, built)
	}
	b := pipeline.NewPool(layout).Get()
	b.TP.Topic = "in"
	for round := range 2 { // the second time in the same batch: nothing of the first is left
		b.Recs = append(b.Recs[:0], recs...)
		b.Begin(nil)
		for _, s := range stages {
			if err := s.Process(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		if round == 0 && reg != nil && reg.asked != 1 {
			t.Errorf("the registry was asked %d times for one batch", reg.asked)
		}
	}
	return b
}

func TestValuesAreWrittenAsJSONWithWhatWasLookedUp(t *testing.T) {
	named := pipeline.Header{Name: codec.HeaderValueSchema, Value: []byte("\x01old")}
	own := []pipeline.Header{{Name: "trace", Value: []byte("t")}, named, {Name: "null"}}
	b := encoded(t, "json", nil,
		pipeline.Record{Value: []byte(` {"id" : "1", "a": "A", "n": 1.500} `), Headers: own},
		pipeline.Record{Value: []byte(`{"account":7,"a":"B"}`)},
		pipeline.Record{Value: []byte(`{"a":"nobody"}`)},
		pipeline.Record{},
		pipeline.Record{Value: []byte(`{"a":`)},
	)
	for i, want := range []string{`{"id" : "1","a": "A","n": 1.500,"account":{"tier": "gold"}}`, `{"a":"B","account":[1.50]}`, `{"a":"nobody"}`} {
		if got := string(b.Outs[i].Value); got != want || !b.Live(i) || b.Outs[i].To.Topic != "out" {
			t.Errorf("record %d leaves as %s (failure %v), want %s", i, got, b.Failure(i), want)
		}
	}
	if b.Outs[3].Value != nil || !b.Live(3) {
		t.Errorf("a delete marker became %q", b.Outs[3].Value)
	}
	if f := b.Failure(4); f == nil || f.Stage != "decode" {
		t.Errorf("what does not decode: %v", f)
	}
	if h := b.Outs[0].Headers; len(h) != 2 || h[0].Name != "trace" || h[1].Name != "null" || len(own) != 3 || own[1].Name != codec.HeaderValueSchema {
		t.Errorf("headers %v leave, the source's are %v", h, own)
	}
}

func TestValuesAreWrittenInTheNewestSchemaOfASubject(t *testing.T) {
	schema, f := codec.ParseSchema(pipeline.SchemaRef{Format: codec.FormatAvro, ID: 8}, enrichedSchema)
	if f != nil {
		t.Fatal(f.Reason())
	}
	b := encoded(t, "{avro: enriched-value}", &subjects{schema: schema},
		pipeline.Record{Value: []byte(`{"id":"x","amount":-3,"a":"A"}`)},
		pipeline.Record{Value: []byte(`{"id":"x","amount":3,"a":"nobody"}`)},
		pipeline.Record{Value: []byte(`{"id":"x","amount":3.5,"a":"nobody"}`)},
		pipeline.Record{},
	)
	if f := b.Failure(0); f == nil || f.Code != pipeline.CodeRouteEncode || f.Stage != "route" || !strings.Contains(f.Reason(), "/a") {
		t.Errorf("a member that the schema does not know: %+v", f)
	}
	b = encoded(t, "{avro: enriched-value}", &subjects{schema: schema},
		pipeline.Record{Value: []byte(`{"id":"x","amount":-3}`)},
		pipeline.Record{Value: []byte(`{"id":"x","amount":3.5}`)},
		pipeline.Record{Value: []byte(`{"id":"lost","account":{"tier":"x"},"amount":1}`)},
	)
	if got := string(b.Outs[0].Value); got != "\x00\x00\x00\x00\x08\x02x\x05\x00" || !b.Live(0) {
		t.Errorf("it leaves as %q (%v)", got, b.Failure(0))
	}
	if f := b.Failure(1); f == nil || f.Code != pipeline.CodeRouteEncode || !strings.Contains(f.Reason(), "/amount") || strings.Contains(f.Reason(), "3.5") {
		t.Errorf("a number that the type cannot hold: %+v", f)
	}
	if got := string(b.Outs[2].Value); got != "\x00\x00\x00\x00\x08\x08lost\x02\x02\x02x" || b.Outs[2].To.Topic != "lost" {
		t.Errorf("it leaves as %q for %s (%v)", got, b.Outs[2].To.Topic, b.Failure(2))
	}
}

func TestARegistryThatIsDownFailsWhatNeedsASchemaOnly(t *testing.T) {
	b := encoded(t, "{avro: enriched-value}", &subjects{}, pipeline.Record{}, pipeline.Record{Value: []byte(`{"id":"x"}`)}, pipeline.Record{Value: []byte(`{"id":"y"}`)})
	if !b.Live(0) || b.Outs[0].To.Topic != "out" {
		t.Error("a delete marker needs no schema")
	}
	for i := 1; i < 3; i++ {
		if f := b.Failure(i); f == nil || f.Code != pipeline.CodeRegistryUnavailable || f.Stage != "route" || f.RetryAfter != 700 {
			t.Errorf("record %d: %+v", i, f)
		}
	}
}

func TestSettingsOfEncodeAreStrict(t *testing.T) {
	for text, want := range map[string]string{"xml": "write json", "{subject: x}": "unknown key", "{avro: ''}": "a subject has a name", "[json]": "is wanted here", "json": "", "{avro: x, registry: main}": "", "": ""} {
		doc, ps := config.Parse("stage.yaml", []byte("{default: {topic: out}, encode: "+text+"}"), config.Options{})
		var set stage.RouteSettings
		if len(ps) == 0 {
			ps = doc.Decode(&set)
		}
		if got := ps.Error(); (want == "") != (len(ps) == 0) || !strings.Contains(got, want) {
			t.Errorf("%q: %v, want %q", text, ps, want)
		}
	}
}
