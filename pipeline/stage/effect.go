package stage

import (
	"bytes"
	"math"
	"strings"
	"time"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/call"
	"reprieve.dev/pipeline/expr"
)

// HTTPEffect is a destination that is called: the request's body is the value that leaves.
type HTTPEffect struct {
	Name              string                   `yaml:"name" doc:"Name in failures, metrics and tests; if not said its place: route/rules/0, route/default."`
	Method            string                   `yaml:"method" default:"POST" enum:"POST,PUT,PATCH,DELETE" doc:"HTTP method."`
	URL               string                   `yaml:"url" required:"true" doc:"URL template: {/path} is a field of the redacted record, {name} an identity field (event_id, entity, business_id, idempotency_token, version, tenant). The host is fixed."`
	IdempotencyKey    string                   `yaml:"idempotency_key" doc:"CEL expression over view, headers and key: what the service recognises a repeated call by. It must stay the same when the record is retried or redriven."`
	IdempotencyHeader string                   `yaml:"idempotency_header" default:"Idempotency-Key" doc:"Header that carries the key."`
	Idempotent        bool                     `yaml:"idempotent" doc:"The service does nothing twice for one key. Without it a call whose end is unknown (408, 5xx, a timeout or a broken connection after the first byte) is ambiguous: quarantined at once, and asked about before anything is sent again."`
	Timeout           config.Duration          `yaml:"timeout" default:"1s" doc:"Time for one call."`
	Concurrency       int                      `yaml:"concurrency" default:"64" doc:"Calls at once; calls of one key are made one after the other."`
	ContentType       string                   `yaml:"content_type" default:"application/octet-stream" doc:"Content-Type of the body."`
	Headers           map[string]config.Secret `yaml:"headers" doc:"Headers to send. Headers that the pipeline's enrich stages add are sent too, those of the source record are not, but for traceparent and tracestate."`
	TLS               config.TLS               `yaml:"tls" doc:"Certificates; files from the folder of the pipeline file."`
}

// Validate checks template, key and numbers.
func (h *HTTPEffect) Validate(n config.Node) (ps config.Problems) {
	bad := func(path, code, text, suggestion string) { ps = append(ps, n.Problem(path, code, text, suggestion)) }
	if h.URL != "" {
		if _, err := call.ParseTemplate(h.URL); err != nil {
			text, remedy := err.Error(), "for example https://payments/invoices/{/invoice_id}"
			if e, ok := err.(*pipeline.Error); ok {
				text, remedy = e.Text, e.Fix()
			}
			bad("url", config.CodeValue, text, remedy)
		}
	}
	if h.Timeout <= 0 || h.Timeout > config.Duration(time.Minute) {
		bad("timeout", config.CodeValue, "a call takes more than nothing and at most 1m", "for example 800ms")
	}
	if h.Concurrency < 1 || h.Concurrency > 1000 {
		bad("concurrency", config.CodeValue, "calls at once are between 1 and 1000", "for example 64")
	}
	if h.Name != "" && (len(h.Name) > 100 || strings.ContainsFunc(h.Name, func(r rune) bool { return r <= ' ' || r > '~' })) {
		bad("name", config.CodeValue, "it is not a name", "letters, digits, '.', '_', '/' and '-', at most 100")
	}
	if why := call.CheckHeader(h.IdempotencyHeader, ""); why != "" {
		bad("idempotency_header", config.CodeValue, "it cannot be sent: "+why, "for example Idempotency-Key")
	}
	if why := call.CheckHeader("Content-Type", h.ContentType); why != "" {
		bad("content_type", config.CodeValue, "it cannot be sent: "+why, "for example application/json")
	}
	for _, name := range sorted(h.Headers) {
		if why := call.CheckHeader(name, h.Headers[name].Reveal()); why != "" {
			bad("headers."+name, config.CodeValue, "it cannot be sent: "+why, "")
		}
	}
	switch {
	case h.Idempotent && h.IdempotencyKey == "":
		bad("idempotency_key", config.CodeMissing, "without a key the service cannot tell a repeated call from a new one", "for example idempotency_key: 'view.invoice_id'")
	case h.IdempotencyKey != "":
		if v, err := expr.ValueOf(h.IdempotencyKey); err == nil { // what does not compile is told by who knows expressions
			for _, name := range []string{"topic", "partition", "offset", "timestamp"} {
				if v.Reads(name) {
					bad("idempotency_key", config.CodeUnsafe, "the key reads "+name+", which a retry of the record changes: the service would take it for a new call", "use a field of the record")
				}
			}
		}
	}
	return ps
}

// effect is one built HTTP destination.
type effect struct {
	name    string
	url     *call.Template
	id      *Identity // nil unless the template is Named
	key     *expr.Val // nil: none
	call    call.Effect
	healthy func() bool
}

func buildEffect(h *HTTPEffect, name string, env pipeline.Env) (*effect, pipeline.Close, error) {
	e := &effect{name: name, healthy: func() bool { return true }}
	var err error
	if e.url, err = call.ParseTemplate(h.URL); err != nil {
		return nil, nil, err
	}
	if e.url.Named() {
		if e.id, err = resource[*Identity](env, ResourceIdentity, ""); err != nil {
			return nil, nil, err
		}
	}
	if h.IdempotencyKey != "" {
		if e.key, err = expr.ValueOf(h.IdempotencyKey); err != nil {
			return nil, nil, pipeline.Errorf(pipeline.CodeConfigExpression, name+"/idempotency_key", "%w", err)
		}
	}
	e.call = call.Effect{Stage: env.Name, Method: h.Method, Repeatable: h.Idempotent, KeyHeader: h.IdempotencyHeader, ContentType: h.ContentType, Lanes: h.Concurrency, Headers: sorted(h.Headers)}
	o := call.Options{Target: name, Origin: e.url.Origin(), Timeout: h.Timeout.Std(), Concurrency: h.Concurrency}
	if each, err := env.Resource(ResourceEach, ""); err == nil && each == true {
		o.Failures = math.MaxInt // no record is spared because others failed: each keeps its own rule
	}
	c, err := newClient(env, o, h.Headers, h.TLS)
	if err != nil {
		return nil, nil, err
	}
	e.call.Client, e.healthy = c, c.Healthy
	return e, c.Close, nil
}

// to makes record i a call: the URL and the key stand in headers that only the sink of effects reads.
func (e *effect) to(b *pipeline.Batch, i int, stage string) {
	o := &b.Outs[i]
	url, key, what, err := e.address(b, i)
	if what != "" {
		b.Fail(i, pipeline.Failure{Stage: stage, Code: pipeline.CodeHTTPRequest,
			Params: []pipeline.Param{pipeline.Str("target", e.name), pipeline.Str("what", what)}, Cause: err})
		return
	}
	if v := b.Views[i]; v != nil && !sameBytes(o.Value, b.Recs[i].Value) {
		// Redaction changed the value. A mask in a URL or a key would make one call of two different ones: it must have changed
		// nothing there.
		clean := v.Rebind(b.Recs[i].Value)
		var url2, key2 []byte
		if clean == nil {
			url2, key2, _, _ = e.address(b, i)
			clean = v.Rebind(o.Value)
		}
		if clean != nil || !bytes.Equal(url, url2) || !bytes.Equal(key, key2) {
			b.Fail(i, pipeline.Failure{Stage: stage, Code: pipeline.CodeRedactIdentity, Cause: clean})
			return
		}
	}
	for _, h := range o.Headers {
		if call.Keeps(h.Name) {
			o.Add = append(o.Add, h)
		}
	}
	o.Add = append(o.Add, pipeline.Header{Name: call.HeaderURL, Value: url})
	if e.key != nil {
		o.Add = append(o.Add, pipeline.Header{Name: call.HeaderKey, Value: key})
	}
	o.To = pipeline.Target{Kind: pipeline.TargetCall, Topic: e.name, Partition: -1}
}

// address is the URL and the idempotency key of record i; what names the part that it has no value for, err may say why.
func (e *effect) address(b *pipeline.Batch, i int) (url, key []byte, what string, err error) {
	var id pipeline.Identity
	if e.id != nil {
		if t := b.Recs[i].Trail; t != nil && t.Identity.Tenant != "" {
			id = t.Identity
		} else {
			id = e.id.Identify(b.TP.Topic, &b.Recs[i], b.Views[i])
		}
	}
	url, at, why := e.url.Append(b.AllocTail(256), b.Views[i], &id)
	if at != "" {
		return nil, nil, at + " " + why, nil
	}
	url = b.Keep(url)
	if e.key == nil {
		return url, nil, "", nil
	}
	some := b.Views[i] != nil || !e.key.ReadsView() // a delete marker has no fields
	if some {
		key, some, err = e.key.Append(b.AllocTail(64), b, i)
	}
	if err != nil || !some || len(key) == 0 {
		return nil, nil, "no idempotency key", err
	}
	return url, b.Keep(key), "", nil
}

func sameBytes(a, b []byte) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
