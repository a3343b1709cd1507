package transforms

import (
	"context"
	"encoding/binary"
	"strconv"

	"reprieve.dev/pipeline"
)

// trimLeftover cuts what stands after a whole record: a producer that glued something to its datum. It only ever cuts at the end
// that the decoder found, and what is left must decode.
func (t *tools) trimLeftover(c *settings) (func(context.Context, *work, *Envelope) Result, error) {
	c.only("most")
	most := int64(65536)
	c.decode("most", &most)
	if most <= 0 {
		c.fail("most must be a positive number of bytes")
	}
	return func(ctx context.Context, w *work, e *Envelope) Result {
		r := unchanged(e)
		if t.dec == nil || e.Record.Value == nil {
			_, r.Failure = t.open(ctx, w, e.Record.Value, nil)
			return r
		}
		w.scratch.Reset()
		v, f := t.dec.Decode(ctx, w.scratch, e.Record.Value, e.Record.Headers)
		switch {
		case f == nil:
			r.Schema = v.Schema().String()
			r.Failure = refuse(pipeline.CodeTransformFailed, "nothing is left over")
			return r
		case f.Code != pipeline.CodeDecodeLeftover:
			r.Failure = refuse(pipeline.CodeTransformFailed, "the record is not whole", pipeline.Str("code", string(f.Code)))
			return r
		}
		n, ok := leftover(f)
		if !ok || n <= 0 || n >= int64(len(e.Record.Value)) {
			r.Failure = refuse(pipeline.CodeTransformFailed, "the decoder does not say how much is left over")
			return r
		}
		if n > most {
			r.Failure = refuse(pipeline.CodeTransformFailed, "more is left over than may be cut", pipeline.Int("bytes", n), pipeline.Int("most", most))
			return r
		}
		out := e.Record.Value[: int64(len(e.Record.Value))-n : int64(len(e.Record.Value))-n]
		if v, f = t.open(ctx, w, out, e.Record.Headers); f != nil {
			r.Failure = f
			return r
		}
		r.Value, r.Schema = out, v.Schema().String()
		r.Report.Changed = append(r.Report.Changed, "")
		r.Report.Notes = append(r.Report.Notes, strconv.FormatInt(n, 10)+" bytes after the record were cut")
		return r
	}, c.err
}

// leftover is how many bytes the decoder found after a whole record.
func leftover(f *pipeline.Failure) (int64, bool) {
	for _, p := range f.Params {
		if p.IsInt && p.Name == "left" {
			return p.Int, true
		}
	}
	return 0, false
}

// reframe puts another schema id before the same body: a producer that framed with the wrong id.
func (t *tools) reframe(c *settings) (func(context.Context, *work, *Envelope) Result, error) {
	c.only("schema", "from")
	to, ok := schemaID(c.get("schema"))
	if !ok {
		c.fail(`schema must be an exact id, as in "avro:7"; latest is not one`)
	}
	var from int32
	if n := c.get("from"); n != nil {
		if from, ok = schemaID(n); !ok {
			c.fail(`from must be an exact id, as in "avro:6"`)
		}
	}
	return func(ctx context.Context, w *work, e *Envelope) Result {
		r := unchanged(e)
		v := e.Record.Value
		if len(v) < 5 || v[0] != 0 {
			r.Failure = refuse(pipeline.CodeTransformFailed, "the value has no framing with a schema id")
			return r
		}
		had := int32(binary.BigEndian.Uint32(v[1:5]))
		if from != 0 && had != from {
			r.Failure = refuse(pipeline.CodeTransformFailed, "the value has another schema id", pipeline.Int("has", had), pipeline.Int("from", from))
			return r
		}
		out := pipeline.CloneBytes(v)
		binary.BigEndian.PutUint32(out[1:5], uint32(to))
		view, f := t.open(ctx, w, out, e.Record.Headers)
		if f != nil {
			f.Code = pipeline.CodeTransformSchema
			r.Failure = f
			return r
		}
		r.Value, r.Schema = out, view.Schema().String()
		if had != to {
			r.Report.Changed = append(r.Report.Changed, "schema")
		} else {
			r.done(nil)
		}
		return r
	}, c.err
}
