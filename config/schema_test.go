package config

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"gopkg.in/yaml.v3"
)

// Settings of stage kinds as other packages declare them.
type (
	decodeSettings struct {
		Format   string       `yaml:"format" required:"true" enum:"avro,json,jsonschema,protobuf,raw" doc:"Form of the value."`
		Registry string       `yaml:"registry" doc:"Name of a registry."`
		Limits   decodeLimits `yaml:"limits"`
	}
	decodeLimits struct {
		Bytes     Size   `yaml:"bytes" default:"1MiB"`
		Depth     uint16 `yaml:"depth" default:"64"`
		Expansion Size   `yaml:"expansion"`
	}
	classifySettings struct {
		Policy string `yaml:"policy" required:"true"`
	}
	redactSettings struct {
		Detectors []string      `yaml:"detectors" default:"pan,cvv"`
		Fields    []redactField `yaml:"fields"`
		Tags      []string      `yaml:"tags"`
	}
	redactField struct {
		Path   string `yaml:"path" required:"true"`
		Action string `yaml:"action" default:"mask" enum:"mask,hash,drop"`
	}
	enrichSettings struct {
		Headers map[string]string `yaml:"headers"`
		HTTP    *enrichHTTP       `yaml:"http"`
	}
	enrichHTTP struct {
		URL     string        `yaml:"url" required:"true"`
		Timeout time.Duration `yaml:"timeout" default:"1s"`
		Cache   struct {
			TTL Duration `yaml:"ttl"`
		} `yaml:"cache"`
		Extra map[string]any `yaml:",inline"`
	}
	pluginSettings struct {
		Ref      string `yaml:"ref" required:"true"`
		Settings Node   `yaml:"settings"`
	}
	routeSettings struct {
		Rules   []routeRule `yaml:"rules"`
		Default routeTarget `yaml:"default"`
	}
	routeRule struct {
		When        string `yaml:"when" required:"true"`
		routeTarget `yaml:",inline"`
	}
	routeTarget struct {
		Topic string `yaml:"topic"`
	}
)

func kinds() map[string]any {
	return map[string]any{"decode": &decodeSettings{}, "classify": &classifySettings{}, "redact": &redactSettings{}, "enrich": &enrichSettings{},
		"plugin": &pluginSettings{}, "route": &routeSettings{}}
}

func compile(t *testing.T, root any, kinds map[string]any) *jsonschema.Schema {
	t.Helper()
	text, err := Schema(root, kinds)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource("reprieve.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("reprieve.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// asEditor reads a file as an editor does: aliases and merge keys resolved, variables as they stand.
func asEditor(t *testing.T, name string) any {
	t.Helper()
	var v any
	if err := yaml.Unmarshal(read(t, name), &v); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestSchemaAgreesWithTheFiles(t *testing.T) {
	pipeline, worker := compile(t, Pipeline{}, kinds()), compile(t, &Worker{}, nil)
	schema := func(name string) *jsonschema.Schema {
		if strings.HasPrefix(name, "worker") {
			return worker
		}
		return pipeline
	}
	for _, name := range files(t, "*.good.yaml") {
		t.Run(name+" is accepted", func(t *testing.T) {
			if err := schema(name).Validate(asEditor(t, name)); err != nil {
				t.Errorf("%#v", err)
			}
		})
	}
	for _, name := range files(t, "*.bad.yaml") {
		t.Run(name+" is refused", func(t *testing.T) {
			if schema(name).Validate(asEditor(t, name)) == nil {
				t.Error("accepted")
			}
		})
	}
}

// TestSchemaSaysWhatDecodeSays changes one thing at a time in a good file: the schema and Decode must judge alike.
func TestSchemaSaysWhatDecodeSays(t *testing.T) {
	pipeline := compile(t, Pipeline{}, kinds())
	good := string(read(t, "pipeline.good.yaml"))
	for name, change := range map[string]struct {
		from, to string
		ok       bool
	}{
		"unknown section":           {"outage:     pause", "outages: pause", false},
		"unknown stage kind":        {"- plugin:", "- plug:", false},
		"unknown setting":           {"depth: 64", "depths: 64", false},
		"setting out of range":      {"depth: 64", "depth: 70000", false},
		"setting of another type":   {"depth: 64", "depth: deep", false},
		"setting missing":           {"{policy: policies/billing.yaml}", "{}", false},
		"settings missing":          {"{policy: policies/billing.yaml}", "", false},
		"settings all defaults":     {"{detectors: [pan, cvv, authorization], fields: [{path: /customer/email, action: mask}], tags: [PII]}", "", true},
		"setting not allowed":       {"action: mask", "action: blur", false},
		"setting by variable":       {"depth: 64", `depth: "${DEPTH:-64}"`, true},
		"choice by variable":        {"outage:     pause", `outage: ${OUTAGE:-pause}`, true},
		"duration by variable":      {"window: 10s", `window: "${WINDOW:-10s}"`, true},
		"size without unit":         {"bytes: 1MiB", "bytes: 1000", false},
		"free members":              {"cache: {ttl: 60s}", "cache: {ttl: 60s}, retries: 3", true},
		"section empty":             {"outage:     pause", "outage: pause\n# nothing", true},
		"reconcile by word":         {"{http: {url: \"https://payments/{event_id}\", applied: 'status == 200', absent: 'status == 404'}}", "here", true},
		"reconcile by another word": {"{http: {url: \"https://payments/{event_id}\", applied: 'status == 200', absent: 'status == 404'}}", "there", false},
		"number as text":            {"pipeline: billing", "pipeline: 5", true},
		"nothing as text":           {"pipeline: billing", "pipeline:", false},
		"number in quotes":          {"min_records: 100", "min_records: '100'", false},
		"two kinds":                 {"    name: currency", "    redact: {}", false},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(good, change.from, change.to, 1)
			if text == good {
				t.Fatal("nothing changed")
			}
			p, _, ps := LoadPipeline("p.yaml", []byte(text), Options{})
			for i := range p.Stages {
				settings, known := kinds()[p.Stages[i].Kind]
				if !known && p.Stages[i].Kind != "" {
					ps = append(ps, p.Stages[i].Settings.Problem("", CodeUnknownKey, "unknown kind", ""))
					continue
				}
				if known {
					ps = append(ps, p.Stages[i].Settings.Decode(settings)...)
				}
			}
			var v any
			if err := yaml.Unmarshal([]byte(text), &v); err != nil {
				t.Fatal(err)
			}
			j, _ := json.Marshal(v)
			doc, _ := jsonschema.UnmarshalJSON(bytes.NewReader(j))
			err := pipeline.Validate(doc)
			if (err == nil) != change.ok || (len(ps) == 0) != change.ok {
				t.Errorf("schema: %v\ndecode: %v\nwant ok %v", err, ps, change.ok)
			}
		})
	}
}

func TestSchemaExplains(t *testing.T) {
	text, err := Schema(Pipeline{}, kinds())
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		Schema     string `json:"$schema"`
		Properties map[string]struct {
			Description string
			Default     any
			Properties  map[string]struct{ Default any }
			Items       struct{ OneOf []any }
		}
		Required []string
	}
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	if s.Schema != "https://json-schema.org/draft/2020-12/schema" {
		t.Error(s.Schema)
	}
	if !slices.Equal(s.Required, []string{"apiVersion", "pipeline", "quarantine", "source", "stages"}) {
		t.Error(s.Required)
	}
	if s.Properties["owner"].Description == "" || s.Properties["delivery"].Default != "at_least_once" {
		t.Error(s.Properties["delivery"])
	}
	if d := s.Properties["retry"].Properties["attempts"].Default; d != float64(5) {
		t.Errorf("%v", d)
	}
	if n := len(s.Properties["stages"].Items.OneOf); n != 6 {
		t.Errorf("%d kinds", n)
	}
}

// TestEveryKeyIsExplained keeps the reference complete: each key has a sentence, each default fits its type and its choices.
func TestEveryKeyIsExplained(t *testing.T) {
	for _, root := range []any{Pipeline{}, Worker{}} {
		for _, r := range References(root) {
			if r.Doc == "" || !strings.HasSuffix(r.Doc, ".") {
				t.Errorf("%s has no sentence", r.Path)
			}
			if r.Required && r.Default != "" {
				t.Errorf("%s is required and has a default", r.Path)
			}
			for _, d := range strings.Split(r.Default, ",") {
				if r.Default != "" && len(r.Enum) > 0 && !slices.Contains(r.Enum, d) {
					t.Errorf("the default of %s is not a choice", r.Path)
				}
			}
		}
		Node{}.Decode(reflect.New(reflect.TypeOf(root)).Interface()) // panics when a default does not fit
	}
	paths := []string{}
	for _, r := range References(Pipeline{}) {
		paths = append(paths, r.Path)
	}
	for _, want := range []string{"source.tenant.allow", "quarantine.fallback[].ledger", "reconcile.http.applied", "retry.backoff.initial", "stages"} {
		if !slices.Contains(paths, want) {
			t.Errorf("no %s in %v", want, paths)
		}
	}
}

func TestDefaultsAreFilled(t *testing.T) {
	p, _, ps := LoadPipeline("p.yaml", read(t, "minimal.good.yaml"), Options{})
	if len(ps) != 0 {
		t.Fatal(ps)
	}
	got := []any{p.Delivery, p.Source.Cluster, p.Source.Ordering, p.Retry, p.Quarantine, p.Breaker, p.Outage, p.Redrive, p.Reconcile.Mode, p.Stages[1].Name}
	want := []any{"at_least_once", "main", Ordering{"none", "none"},
		Retry{"orders.v1.retry", 5, Backoff{Duration(100 * time.Millisecond), 2, 0, 0}},
		Quarantine{Topic: "orders.v1.dlq", Cluster: "main", Retention: Duration(720 * time.Hour), Profile: []string{"death"}, Partitions: 6},
		Breaker{[]string{"release", "fingerprint"}, Duration(10 * time.Second), 100, 0.2, false}, "pause",
		Redrive{Ceiling: Rate{50, time.Second}, Destination: "orders.v1.retry", Approval: "dual", Yield: Yield{Lag: 10000}, MaxRepaired: 1 << 20}, "", "redact"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	w, _, ps := LoadWorker("w.yaml", read(t, "worker-short.good.yaml"), Options{})
	if len(ps) != 0 {
		t.Fatal(ps)
	}
	if w.Topics.Prefix != "reprieve" || w.Bounds.Redrive != (Rate{50, time.Second}) || w.Custody.Retention.Default.String() != "10d" ||
		w.Custody.Retention.History.String() != "2557d" || w.Ledgers["main"].URL.Reveal() != "sqlite:reprieve.db" || w.HTTP.Address != "127.0.0.1:8080" {
		t.Errorf("%+v", w)
	}
}
