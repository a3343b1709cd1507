package call

import (
	"slices"
	"strings"

	"reprieve.dev/pipeline"
)

// The headers by which a message for a Sink says what to call. They are made by the route stage, which has the record's fields,
// and are never sent as they are.
const (
	HeaderURL = "reprieve-call-url"
	HeaderKey = "reprieve-call-key" // the idempotency key of this record
)

// Effect is one destination that is called rather than written to.
type Effect struct {
	Client      Doer
	Stage       string   // that failures name
	Method      string   // "" is POST
	Repeatable  bool     // idempotent: true, with a key
	KeyHeader   string   // "" is Idempotency-Key
	ContentType string   // "" is application/octet-stream
	Lanes       int      // calls at once, and at most one for each key (64)
	Headers     []string // names of the headers that Client adds to each call; their values may be secrets
}

// traceHeaders are the headers of a record that a call keeps.
var traceHeaders = []string{"traceparent", "tracestate"}

// Keeps tells whether a header of the source record goes along with a call: only those of a trace do, the rest is not ours to
// hand on.
func Keeps(name string) bool {
	return slices.ContainsFunc(traceHeaders, func(t string) bool { return strings.EqualFold(t, name) })
}

// Request is the call that a message stands for. Its other headers are those of the pipeline. Codes: ERR_HTTP_REQUEST.
func (e Effect) Request(m *pipeline.Message) (Request, *pipeline.Failure) {
	r := Request{Method: e.Method, Body: m.Value, Repeatable: e.Repeatable, Effect: true}
	if r.Method == "" {
		r.Method = "POST"
	}
	content := e.ContentType
	if content == "" {
		content = "application/octet-stream"
	}
	r.Headers = append(r.Headers, pipeline.Header{Name: "Content-Type", Value: []byte(content)})
	keyed := false
	for _, h := range m.Headers {
		switch {
		case h.Name == HeaderURL:
			r.URL = string(h.Value)
		case h.Name == HeaderKey:
			name := e.KeyHeader
			if name == "" {
				name = "Idempotency-Key"
			}
			keyed = len(h.Value) > 0
			r.Headers = append(r.Headers, pipeline.Header{Name: name, Value: h.Value})
		case Keeps(h.Name) && CheckHeader(h.Name, string(h.Value)) != "": // a record's own: not a reason to fail
		case h.Value != nil:
			r.Headers = append(r.Headers, h)
		}
	}
	switch {
	case r.URL == "":
		return Request{}, e.unfit(m, "url")
	case e.Repeatable && !keyed: // INV-CALL-AMBIGUOUS: without a key nothing makes it repeatable
		return Request{}, e.unfit(m, "idempotency key")
	}
	return r, nil
}

func (e Effect) unfit(m *pipeline.Message, what string) *pipeline.Failure {
	return &pipeline.Failure{Stage: e.Stage, Code: pipeline.CodeHTTPRequest, Params: []pipeline.Param{pipeline.Str("target", m.Topic), pipeline.Str("what", what)}}
}
