package stage_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/call"
	"reprieve.dev/pipeline/decide"
	"reprieve.dev/pipeline/stage"
)

// routed runs one record through decode, redact, enrich and a route stage of the text.
func routed(t *testing.T, route string, r pipeline.Record) (*pipeline.Batch, map[string]call.Effect) {
	t.Helper()
	id, err := stage.NewIdentity(stage.IdentityConfig{EventID: "header:event", Tenant: "/tenant"})
	if err != nil {
		t.Fatal(err)
	}
	layout := &pipeline.Layout{}
	env := pipeline.Env{Pipeline: "p", Layout: layout, Log: slog.New(slog.DiscardHandler), Meter: noMeter{}, Clock: time.Now,
		Resource: func(kind, name string) (any, error) {
			switch kind {
			case stage.ResourceIdentity:
				return id, nil
			case stage.ResourceHashKey:
				return make([]byte, 32), nil
			}
			return nil, pipeline.Errorf(pipeline.CodeConfigReference, name, "no %s", kind)
		}}
	var stages []pipeline.Stage
	var effects map[string]call.Effect
	for _, s := range [][2]string{{"decode", "{format: json}"}, {"redact", "{detectors: [pan]}"}, {"enrich", `{headers: {region: 'view == null ? "" : "eu"'}}`}, {"route", route}} {
		built := build(t, env, s[0], s[1])
		stages = append(stages, built)
		if c, ok := built.(interface{ Calls() map[string]call.Effect }); ok {
			effects = c.Calls()
		}
	}
	b := pipeline.NewPool(layout).Get()
	b.TP.Topic, b.Recs = "in", append(b.Recs, r)
	b.Begin(decide.Default(decide.Bounds{}, "r", "q", decide.Backoff{}))
	for _, s := range stages {
		if err := s.Process(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	return b, effects
}

const payRoute = `{rules: [{when: 'view.amount > 100', http: {name: pay, method: PUT, url: "https://pay/{tenant}/invoices/{/id}", idempotency_key: 'view.id', idempotent: true, content_type: application/json, headers: {Authorization: Bearer x}}}], default: {topic: small}}`

func TestARouteSaysWhatIsCalled(t *testing.T) {
	b, effects := routed(t, payRoute, pipeline.Record{Key: []byte("k"), Value: []byte(`{"id":"a/b","tenant":"acme","amount":101}`), Headers: []pipeline.Header{
		{Name: "traceparent", Value: []byte("00-1-2-3")}, {Name: "cookie", Value: []byte("not ours")}}})
	o := b.Outs[0]
	if len(b.Failures()) > 0 || o.To != (pipeline.Target{Kind: pipeline.TargetCall, Topic: "pay", Partition: -1}) {
		t.Fatalf("to %+v, failures %v", o.To, b.Failures())
	}
	r, f := effects["pay"].Request(&pipeline.Message{Topic: "pay", Value: o.Value, Headers: o.Add})
	if f != nil {
		t.Fatal(f.Reason())
	}
	got := ""
	for _, h := range r.Headers {
		got += h.Name + "=" + string(h.Value) + " "
	}
	if r.Method != "PUT" || r.URL != "https://pay/acme/invoices/a%2Fb" || !r.Repeatable || !r.Effect || string(r.Body) != `{"id":"a/b","tenant":"acme","amount":101}` ||
		got != "Content-Type=application/json region=eu traceparent=00-1-2-3 Idempotency-Key=a/b " {
		t.Errorf("%s %s %v %s %s", r.Method, r.URL, r.Repeatable, got, r.Body)
	}
	if b, _ := routed(t, payRoute, pipeline.Record{Value: []byte(`{"amount":1}`)}); b.Outs[0].To.Topic != "small" {
		t.Errorf("the default: %+v", b.Outs[0].To)
	}
}

// What a call would be addressed or recognised by must be there, and must be what the source says: a mask would make one call of
// two.
func TestACallThatCannotBeMadeFailsItsRecord(t *testing.T) {
	toDefault := func(settings string) string { return `{default: {http: {url: "https://pay/` + settings + `}}}` }
	for _, c := range []struct {
		route, value string
		code         pipeline.Code
		what         string
	}{
		{payRoute, `{"id":"","tenant":"acme","amount":101}`, pipeline.CodeHTTPRequest, "{/id} absent"},
		{payRoute, `{"id":"1","amount":101}`, pipeline.CodeHTTPRequest, "{tenant} absent"},
		{toDefault(`", idempotency_key: 'view.none'`), `{"id":"1"}`, pipeline.CodeHTTPRequest, "no idempotency key"},
		{toDefault(`", idempotency_key: 'view.list'`), `{"list":[1]}`, pipeline.CodeHTTPRequest, "no idempotency key"},
		{toDefault(`{/id}"`), `{"id":"4111111111111111"}`, pipeline.CodeRedactIdentity, ""},
		{toDefault(`", idempotency_key: 'view.id'`), `{"id":"4111111111111111"}`, pipeline.CodeRedactIdentity, ""},
		{toDefault(`", idempotency_key: 'view.id'`), "null", pipeline.CodeHTTPRequest, "no idempotency key"},
	} {
		r := pipeline.Record{Value: []byte(c.value)}
		if c.value == "null" {
			r.Value = nil
		}
		b, _ := routed(t, c.route, r)
		f := b.Failure(0)
		if f == nil || f.Code != c.code || f.Stage != "route" || c.what != "" && !strings.Contains(f.Reason(), c.what) {
			t.Errorf("%s: %+v, want %s %s", c.value, f, c.code, c.what)
		}
	}
	b, _ := routed(t, `{default: {http: {url: "https://pay/{/id}", idempotency_key: 'view.id'}}}`, pipeline.Record{Value: []byte(`{"id":"7","card":"4111111111111111"}`)})
	if f := b.Failure(0); f != nil || strings.Contains(string(b.Outs[0].Value), "4111") {
		t.Errorf("a card elsewhere: %v %s", f, b.Outs[0].Value)
	}
	if got, _ := b.Views[0].AppendJSON(nil); strings.Contains(string(got), "4111") {
		t.Errorf("the view is unredacted again: %s", got)
	}
	if b, _ := routed(t, `{default: {http: {url: "https://pay/all"}}}`, pipeline.Record{}); b.Failure(0) != nil || b.Outs[0].To.Kind != pipeline.TargetCall {
		t.Errorf("a delete marker: %v", b.Failure(0))
	}
}

func TestSettingsOfACallAreChecked(t *testing.T) {
	for text, want := range map[string]string{
		`url: "https://pay/", idempotent: true`:                                   "default.http.idempotency_key",
		`url: "https://pay/", idempotency_key: 'topic + view.id'`:                 "reads topic",
		`url: "https://pay/", idempotency_key: 'string(offset)'`:                  "reads offset",
		`url: "https://u:p@pay/"`:                                                 "credentials in a URL",
		`url: "https://pay/?api_key=abc"`:                                         "api_key is a credential",
		`url: "https://{/host}/"`:                                                 "which server is asked",
		`url: "https://pay/", timeout: 2m`:                                        "at most 1m",
		`url: "https://pay/", concurrency: 0`:                                     "between 1 and 1000",
		`url: "https://pay/", method: GET`:                                        "default.http.method",
		`url: "https://pay/", idempotency_header: Host`:                           "it frames the message",
		`url: "https://pay/", headers: {"X y": a}`:                                "headers.X y",
		`url: "https://pay/", name: "a b"`:                                        "it is not a name",
		`url: "https://pay/", content_type: "a\nb"`:                               "content_type",
		`url: "https://pay/", idempotency_key: 'view.id'}, topic: x, more: {a: 1`: "more",
	} {
		doc, ps := config.Parse("stage.yaml", []byte(`{default: {http: {`+text+`}}}`), config.Options{})
		if len(ps) == 0 {
			ps = doc.Decode(&stage.RouteSettings{})
		}
		if !strings.Contains(ps.Error(), want) {
			t.Errorf("%s: %v, want %s", text, ps, want)
		}
	}
	for text, want := range map[string]string{
		`{default: {}}`:             "default.topic: it is required, or http",
		`{rules: [{when: 'true'}]}`: "rules[0].topic: it is required, or http",
		`{default: {topic: a, http: {url: "https://pay/"}}}`: "not both",
	} {
		doc, ps := config.Parse("stage.yaml", []byte(text), config.Options{})
		if len(ps) == 0 {
			ps = doc.Decode(&stage.RouteSettings{})
		}
		if !strings.Contains(ps.Error(), want) {
			t.Errorf("%s: %v, want %s", text, ps, want)
		}
	}
}
