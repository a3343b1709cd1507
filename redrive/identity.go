package redrive

import (
	"context"

	"reprieve.dev/custody"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
)

// identityOf is who a repaired record says it is: identity fields that the pipeline reads from the payload come from the repaired
// bytes, the others stay. The item itself keeps its id, so the lineage of the old identity leads to the new one.
func (t *Target) identityOf(ctx context.Context, id pipeline.Identity, b *custody.Bytes) (pipeline.Identity, error) {
	if t.Decoder == nil || b.Value == nil {
		return id, nil
	}
	s := codec.NewScratch()
	v, f := t.Decoder.Decode(ctx, s, b.Value, b.Headers)
	if f != nil {
		return id, pipeline.Errorf(f.Code, t.Pipeline, "the repaired record cannot be read: %s", f.Reason())
	}
	for _, x := range []struct {
		path string
		to   *string
	}{{t.Rules.EventID, &id.EventID}, {t.Rules.Entity, &id.Entity}, {t.Rules.BusinessID, &id.BusinessID}, {t.Rules.Token, &id.Token}, {t.Rules.Version, &id.Version}} {
		if x.path == "" || x.path[0] != '/' {
			continue
		}
		p, err := pipeline.NewPath(x.path)
		if err != nil {
			return id, err
		}
		if got, ok := v.Get(p); ok {
			*x.to = string(got.AppendText(nil))
		}
	}
	return id, nil
}

// unreadable tells whether the registry does not know a record's schema any more: the pipeline would quarantine it again at once. Any
// other failure is for the pipeline to meet; the dry run tells of it.
func (t *Target) unreadable(ctx context.Context, s *codec.Scratch, b *custody.Bytes) bool {
	if t.Decoder == nil || b.Value == nil {
		return false
	}
	s.Reset()
	_, f := t.Decoder.Decode(ctx, s, b.Value, b.Headers)
	return f != nil && f.Code == pipeline.CodeSchemaUnknown
}
