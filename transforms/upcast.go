package transforms

import (
	"context"
	"sync"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
)

// upcast evolves a record. Avro: the decoder resolves it to the newer schema (names, aliases, promotions, defaults), and the
// result is written under that schema. JSON Schema: members that are missing get the defaults of the newer schema, which must then
// allow the record. JSON without a schema: members that are missing get defaults of the configuration.
func (t *tools) upcast(c *settings) (func(context.Context, *work, *Envelope) Result, error) {
	c.only("schema", "defaults")
	if c.get("schema") == nil {
		fields := c.fields("defaults")
		ed := edit{do: func(d *document) (changed []string, _ *pipeline.Failure) {
			for _, f := range fields {
				if d.at(f.path) != nil {
					continue
				}
				if what := d.put(f.path, f.value.clone(), false); what != "" {
					return nil, refuse(pipeline.CodeTransformFailed, what, pipeline.Str("path", f.text))
				}
				changed = append(changed, f.text)
			}
			return changed, nil
		}}
		return func(ctx context.Context, w *work, e *Envelope) Result { return t.rewrite(ctx, w, e, &ed) }, c.err
	}
	if c.get("defaults") != nil {
		return nil, c.fail("defaults are for JSON; an Avro schema brings its own")
	}
	to := t.target(c)
	up := &resolver{}
	return func(ctx context.Context, w *work, e *Envelope) Result {
		r := unchanged(e)
		v, f := t.open(ctx, w, e.Record.Value, e.Record.Headers)
		if f != nil {
			r.Failure = f
			return r
		}
		ref := v.Schema()
		if r.Schema == "" {
			r.Schema = ref.String()
		}
		if ref.Format != "avro" && ref.Format != "jsonschema" {
			r.Failure = refuse(pipeline.CodeTransformFailed, "another schema is for Avro and JSON Schema records only")
			return r
		}
		if ref.ID == to.id {
			r.done(nil)
			return r
		}
		if ref.Format == "jsonschema" {
			t.evolve(ctx, w, e, ref, to, &r)
			return r
		}
		s, f := t.schema(ctx, ref, to)
		if f != nil {
			r.Failure = f
			return r
		}
		dec, err := up.decoder(s, t.reg)
		if err != nil {
			r.Failure = refuse(pipeline.CodeTransformSchema, "the schema cannot be a reader", pipeline.Str("schema", s.Ref().String()))
			r.Failure.Cause = err
			return r
		}
		w.scratch.Reset()
		v, f = dec.Decode(ctx, w.scratch, e.Record.Value, e.Record.Headers)
		if f != nil {
			r.Failure = refuse(pipeline.CodeTransformSchema, "the record cannot be read as the newer schema", pipeline.Str("code", string(f.Code)), pipeline.Str("schema", s.Ref().String()))
			return r
		}
		w.json, err = v.AppendJSON(w.json[:0])
		if err != nil {
			r.Failure = refuse(pipeline.CodeTransformFailed, "the record has no JSON form")
			return r
		}
		framed, err := codec.EncodeAvro(s, w.json)
		if err != nil {
			r.Failure = refuse(pipeline.CodeTransformSchema, "the record cannot be written under the newer schema", pipeline.Str("schema", s.Ref().String()))
			r.Failure.Cause = err
			return r
		}
		if f := t.frame(ctx, w, e, ref, s, framed, &r); f != nil {
			r = unchanged(e)
			r.Failure = f
			return r
		}
		r.Schema = s.Ref().String()
		r.Report.Changed = append(r.Report.Changed, "schema")
		r.Report.Notes = append(r.Report.Notes, "from "+ref.String()+" to "+r.Schema)
		return r
	}, c.err
}

// resolver keeps the decoder that reads records as one newer schema: made at the first record, because only then may the
// registry be asked.
type resolver struct {
	mu  sync.Mutex
	of  *codec.Schema
	dec *codec.Decoder
}

func (r *resolver) decoder(s *codec.Schema, reg codec.Registry) (*codec.Decoder, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == s {
		return r.dec, nil
	}
	if len(s.References()) > 0 {
		return nil, pipeline.Errorf(pipeline.CodeTransformSchema, s.Ref().String(), "a schema with references cannot be a reader yet")
	}
	dec, err := codec.NewDecoder(codec.DecodeConfig{Format: codec.FormatAvro, Reader: s.Text()}, reg)
	if err != nil {
		return nil, err
	}
	r.of, r.dec = s, dec
	return dec, nil
}
