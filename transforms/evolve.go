package transforms

import (
	"context"
	"encoding/binary"

	"reprieve.dev/pipeline"
)

// evolve puts a JSON Schema record under a newer schema: numbers and strings keep their text, members that are missing get the
// schema's defaults, and the framing names the newer schema, which must allow the result.
func (t *tools) evolve(ctx context.Context, w *work, e *Envelope, ref pipeline.SchemaRef, to *target, r *Result) {
	value := e.Record.Value
	if len(value) < 5 || value[0] != 0 {
		r.Failure = refuse(pipeline.CodeTransformFailed, "the value has no framing with a schema id")
		return
	}
	s, f := t.schema(ctx, ref, to)
	if f != nil {
		r.Failure = f
		return
	}
	schema, what := parseDocument([]byte(s.Text()))
	if what != "" || s.Ref().Format != ref.Format {
		r.Failure = refuse(pipeline.CodeTransformSchema, "the newer schema is none for these records", pipeline.Str("schema", s.Ref().String()))
		return
	}
	d, what := parseDocument(value[5:])
	if what != "" {
		r.Failure = refuse(pipeline.CodeTransformFailed, what)
		return
	}
	changed := defaults(d.root, schema.root, pointer{}, nil)
	out := binary.BigEndian.AppendUint32([]byte{0}, uint32(to.id))
	out = d.text(out)
	if _, f := t.open(ctx, w, out, e.Record.Headers); f != nil {
		r.Failure = refuse(pipeline.CodeTransformSchema, "the newer schema does not allow the record", pipeline.Str("schema", s.Ref().String()))
		r.Failure.Params = append(r.Failure.Params, f.Params...)
		return
	}
	r.Value, r.Schema = out, s.Ref().String()
	r.Report.Changed = append(append(r.Report.Changed, changed...), "schema")
	r.Report.Notes = append(r.Report.Notes, "from "+ref.String()+" to "+r.Schema)
}

// defaults adds what the schema's properties have as default and the record has not, in the order of the schema.
func defaults(n, schema *node, at pointer, changed []string) []string {
	before := len(changed)
	if i := schema.find("items"); n.kind == '[' && i >= 0 {
		for k := range n.items {
			changed = defaults(n.items[k].v, schema.members[i].v, append(at[:len(at):len(at)], "*"), changed)
		}
	}
	if i := schema.find("properties"); n.kind == '{' && i >= 0 {
		for _, p := range schema.members[i].v.members {
			here := append(at[:len(at):len(at)], p.name)
			if k := n.find(p.name); k >= 0 {
				changed = defaults(n.members[k].v, p.v, here, changed)
				continue
			}
			if d := p.v.find("default"); d >= 0 {
				n.members = append(n.members, member{slot: slot{v: p.v.members[d].v.clone(), from: -1}, raw: p.raw, name: p.name})
				n.shape = true
				changed = appendOnce(changed, here.String())
			}
		}
	}
	if len(changed) > before || n.shape {
		n.dirty = true
	}
	return changed
}
