package plugins

import (
	"bytes"
	"slices"
	"strings"
	"unicode"

	"reprieve.dev/pipeline"
	"reprieve.dev/plugins/wire"
	"reprieve.dev/transforms"
)

// take checks a reply and fills out. What it returns says how the reply breaks the protocol: then out is not to be used. The
// plugin's report is a claim: texts are redacted, and what the host can see itself is added.
func (r *remote) take(req *wire.RepairRequest, reply *wire.RepairReply, in []transforms.Envelope, out []transforms.Result) (what string) {
	switch {
	case reply.Batch != req.Batch:
		return "the reply is for another batch"
	case len(reply.Results) != len(in):
		return "one result a record is required"
	}
	for i, res := range reply.Results {
		e := &in[i]
		if res.GetItem() != req.Envelopes[i].Item {
			return "results are for other items or in another order"
		}
		o := transforms.Result{Key: e.Record.Key, Value: e.Record.Value, Headers: e.Record.Headers, Schema: e.Schema}
		touched := res.Key != nil || res.Value != nil || res.Headers != nil || res.Schema != nil
		switch res.Outcome {
		case wire.Outcome_REPAIRED:
			if what := r.apply(res, &o); what != "" {
				return what
			}
		case wire.Outcome_UNCHANGED:
			if touched {
				return "a record is called unchanged and changed"
			}
		case wire.Outcome_REJECTED:
			if touched {
				return "a record is rejected and changed"
			}
			reason := r.text(res.Reason)
			if reason == "" {
				reason = "no reason given"
			}
			o.Failure = r.failure(pipeline.CodeTransformFailed, reason, nil)
		default:
			return "a result has no outcome"
		}
		if what := r.report(res.Report, e, &o); what != "" {
			return what
		}
		out[i] = o
	}
	return ""
}

// apply puts what is set over what the record has.
func (r *remote) apply(res *wire.Result, o *transforms.Result) string {
	if res.Key != nil {
		o.Key = res.Key.Value
	}
	if res.Value != nil {
		o.Value = res.Value.Value
	}
	if res.Headers != nil {
		if len(res.Headers.Header) > 1000 {
			return "there are more than 1,000 headers"
		}
		o.Headers = make([]pipeline.Header, len(res.Headers.Header))
		for i, h := range res.Headers.Header {
			if len(h.Name) > wire.TextMost {
				return "a header name is too long"
			}
			o.Headers[i] = pipeline.Header{Name: h.Name, Value: h.Value}
		}
	}
	if res.Schema != nil {
		if len(*res.Schema) > wire.TextMost {
			return "the schema is too long"
		}
		o.Schema = *res.Schema
	}
	return ""
}

func (r *remote) report(rep *wire.Report, e *transforms.Envelope, o *transforms.Result) string {
	if len(rep.GetChanged()) > wire.ChangedMost || len(rep.GetNotes()) > wire.NotesMost {
		return "the report is too long"
	}
	for _, c := range rep.GetChanged() {
		if c != "" && c[0] != '/' && c != "key" && c != "schema" && !strings.HasPrefix(c, "headers/") || len(c) > wire.TextMost || r.text(c) != c {
			return "the report names something that is no path" // or holds what redaction takes away
		}
		o.Report.Changed = append(o.Report.Changed, c)
	}
	for _, n := range rep.GetNotes() {
		if len(n) > wire.TextMost {
			return "a note is too long"
		}
		o.Report.Notes = append(o.Report.Notes, r.text(n))
	}
	claim := func(name string, changed bool) {
		if changed && !slices.Contains(o.Report.Changed, name) {
			o.Report.Changed = append(o.Report.Changed, name)
		}
	}
	claim("key", !same(e.Record.Key, o.Key))
	claim("schema", e.Schema != o.Schema)
	if !same(e.Record.Value, o.Value) && !slices.ContainsFunc(o.Report.Changed, func(c string) bool { return c == "" || c[0] == '/' }) {
		o.Report.Changed = append(o.Report.Changed, "")
	}
	return ""
}

func same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

// text makes a plugin's words safe to keep and to show. They are cut when they are redacted: a card number that is cut before is
// none that can be known.
func (r *remote) text(s string) string {
	s = strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(s[:min(len(s), lineMost)], "\uFFFD"))
	s = r.h.redact(s)
	return strings.TrimSpace(strings.ToValidUTF8(s[:min(len(s), wire.TextMost)], ""))
}
