package transforms

import (
	"context"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/expr"
)

// cel sets members to what expressions say of the original record.
func (t *tools) cel(c *settings) (func(context.Context, *work, *Envelope) Result, error) {
	c.only("values", "as", "schema")
	type compiled struct {
		field
		val *expr.Val
		as  string
	}
	as := map[string]string{}
	c.decode("as", &as)
	fields := c.fields("values")
	all := make([]compiled, 0, len(fields))
	for _, f := range fields {
		if f.value.kind != '"' {
			return nil, c.fail("values: %s must be an expression as text", f.text)
		}
		val, err := expr.ValueOf(unquote(f.value.src))
		if err != nil {
			return nil, c.fail("values: %s: %w", f.text, err)
		}
		kind := as[f.text]
		delete(as, f.text)
		switch kind {
		case "", "string", "number", "boolean", "json":
		default:
			return nil, c.fail("as: %s must be string, number, boolean or json", f.text)
		}
		all = append(all, compiled{f, val, kind})
	}
	for p := range as {
		c.fail("as: %s is not among values", p)
	}
	to := t.target(c)
	return func(ctx context.Context, w *work, e *Envelope) Result {
		r := unchanged(e)
		v, f := t.open(ctx, w, e.Record.Value, e.Record.Headers)
		if f != nil {
			r.Failure = f
			return r
		}
		w.one(e, &e.Record, v)
		sets := make([]field, len(all))
		for i := range all {
			text, ok, err := all[i].val.Append(nil, &w.batch, 0)
			if err != nil {
				r.Failure = refuse(pipeline.CodeTransformFailed, "the expression failed", pipeline.Str("path", all[i].text))
				r.Failure.Cause = err
				return r
			}
			n, what := typedNode(text, ok, all[i].as, func() byte { return kindAt(v, all[i].at) })
			if what != "" {
				r.Failure = refuse(pipeline.CodeTransformFailed, what, pipeline.Str("path", all[i].text))
				return r
			}
			sets[i] = all[i].field
			sets[i].value, sets[i].plain = n, ""
			if n.kind == '"' {
				sets[i].plain = unquote(n.src)
			}
		}
		ed := edit{do: setter(sets), leaves: scalars(sets), schema: to}
		t.apply(ctx, w, e, v, &ed, &r)
		return r
	}, c.err
}

// one makes the batch of one record that expressions look at.
func (w *work) one(e *Envelope, rec *pipeline.Record, v pipeline.View) {
	w.batch.TP.Topic = e.Topic
	w.batch.Recs = append(w.batch.Recs[:0], *rec)
	w.batch.Begin(nil)
	w.batch.Views[0] = v
}

// typedNode makes a JSON value of an expression's text. Without a declared type, a member keeps the type that it has; a new one
// is a string.
func typedNode(text []byte, ok bool, as string, has func() byte) (*node, string) {
	if !ok {
		return scalarNode('n', []byte("null")), ""
	}
	if as == "" {
		switch has() {
		case '0':
			as = "number"
		case 't':
			as = "boolean"
		default:
			as = "string"
		}
	}
	switch as {
	case "number":
		if !isNumber(string(text)) {
			return nil, "the expression gave no number"
		}
		return scalarNode('0', text), ""
	case "boolean":
		if s := string(text); s != "true" && s != "false" {
			return nil, "the expression gave no boolean"
		}
		return scalarNode('t', text), ""
	case "json":
		d, what := parseDocument(text)
		if what != "" {
			return nil, "the expression gave no JSON"
		}
		return d.root, ""
	}
	return scalarNode('"', appendQuoted(nil, string(text))), ""
}

// kindAt is the JSON kind of the value at p as AppendJSON would write it, 0 if there is none.
func kindAt(v pipeline.View, p *pipeline.Path) byte {
	val, ok := v.Get(p)
	if !ok {
		return 0
	}
	switch val.Kind {
	case pipeline.KindInt, pipeline.KindFloat, pipeline.KindNumber, pipeline.KindDecimal, pipeline.KindTimestamp:
		return '0'
	case pipeline.KindBool:
		return 't'
	}
	return '"'
}
