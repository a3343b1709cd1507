package stage

import (
	"context"
	"slices"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
)

// newest is a registry that knows the newest schema of a subject.
type newest interface {
	Latest(ctx context.Context, subject string) (*codec.Schema, *pipeline.Failure)
}

// encoder writes the values of routed records anew: what the view reads, with the members that enrich stages gave.
type encoder struct {
	stage    string
	subject  string // "" is plain JSON
	registry newest
	slot     pipeline.Slot[encodeScratch]
}

type encodeScratch struct{ view, joined []byte }

func buildEncoder(c *config.Encode, env pipeline.Env) (*encoder, error) {
	e := &encoder{stage: env.Name, subject: c.Subject, slot: pipeline.NewSlot(env.Layout, func() *encodeScratch { return &encodeScratch{} })}
	if c.Format != codec.FormatAvro {
		return e, nil
	}
	var err error
	e.registry, err = resource[newest](env, ResourceRegistry, c.Registry)
	return e, err
}

// process replaces the value of each record that still goes on. A delete marker stays one. A record that does not fit the schema
// fails with ERR_ROUTE_ENCODE; a schema that cannot be had fails those that need it with the registry's code.
func (e *encoder) process(ctx context.Context, b *pipeline.Batch) {
	s := e.slot.Of(b)
	var schema *codec.Schema
	var down *pipeline.Failure
	joins := b.Joins()
	for i := range b.Recs {
		var mine []pipeline.Join
		mine, joins = joinsOf(joins, int32(i))
		if !b.Live(i) || b.Views[i] == nil {
			continue
		}
		if e.registry != nil && schema == nil && down == nil { // once for the batch, and only if a record needs it
			schema, down = e.registry.Latest(ctx, e.subject)
		}
		if down != nil {
			f := *down
			f.Stage = e.stage
			b.Fail(i, f)
			continue
		}
		out, err := e.value(b, i, s, schema, mine)
		if err != nil {
			b.Fail(i, e.failure(err))
			continue
		}
		o := &b.Outs[i]
		o.Value = out
		if slices.ContainsFunc(o.Headers, namesSchema) { // it names the schema that the source's bytes are in
			o.Headers = slices.DeleteFunc(slices.Clone(o.Headers), namesSchema)
		}
	}
}

func namesSchema(h pipeline.Header) bool { return h.Name == codec.HeaderValueSchema }

// joinsOf splits off the members of record i.
func joinsOf(joins []pipeline.Join, i int32) (mine, rest []pipeline.Join) {
	n := 0
	for n < len(joins) && joins[n].Index == i {
		n++
	}
	return joins[:n], joins[n:]
}

func (e *encoder) value(b *pipeline.Batch, i int, s *encodeScratch, schema *codec.Schema, joins []pipeline.Join) ([]byte, error) {
	var err error
	if s.view, err = b.Views[i].AppendJSON(s.view[:0]); err != nil {
		return nil, err
	}
	text := s.view
	if len(joins) > 0 {
		if s.joined, err = codec.JoinJSON(s.joined[:0], s.view, joins); err != nil {
			return nil, err
		}
		text = s.joined
	}
	if schema != nil {
		return codec.EncodeAvro(schema, text)
	}
	return b.Keep(append(b.AllocTail(len(text)), text...)), nil
}

// failure tells which field has no place in the schema. What stands in it is not told.
func (e *encoder) failure(err error) pipeline.Failure {
	f := pipeline.Failure{Stage: e.stage, Code: pipeline.CodeRouteEncode, Cause: err, Params: []pipeline.Param{pipeline.Str("field", "")}}
	if perr, ok := err.(*pipeline.Error); ok && perr.Code == pipeline.CodeRouteEncode {
		f.Params[0].Text = perr.Place
	}
	return f
}
