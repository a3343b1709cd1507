package stage

import (
	"context"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/redact"
)

func redactKind() pipeline.Kind {
	return pipeline.Kind{
		Name: "redact", Phase: pipeline.PhaseRedact,
		Doc:      "Takes card numbers, card verification values and credentials out of the value and the headers. What leaves and what later stages see is redacted.",
		Settings: func() any { return &redact.Config{} },
		Build:    buildRedact,
	}
}

type redactStage struct {
	name string
	r    *redact.Redactor
	slot pipeline.Slot[redact.Editor]
}

func buildRedact(settings any, env pipeline.Env) (pipeline.Stage, pipeline.Close, error) {
	id, err := resource[*Identity](env, ResourceIdentity, "")
	if err != nil {
		return nil, nil, err
	}
	key, err := resource[[]byte](env, ResourceHashKey, "")
	if err != nil {
		return nil, nil, err
	}
	r, err := redact.New(*settings.(*redact.Config), redact.Options{HashKey: key, Identity: id.Paths()})
	if err != nil {
		return nil, nil, err
	}
	return &redactStage{env.Name, r, pipeline.NewSlot(env.Layout, r.NewEditor)}, nil, nil
}

// Process replaces the value and the headers of each live record where something was found. A record that cannot be redacted
// safely (a secret stands in its key or in a field that identifies it) fails with ERR_REDACT_IDENTITY or ERR_REDACT_FAILED.
func (s *redactStage) Process(_ context.Context, b *pipeline.Batch) error {
	e := s.slot.Of(b)
	for i := range b.Recs {
		if !b.Live(i) {
			continue
		}
		if err := s.r.Key(b.Recs[i].Key, e); err != nil {
			s.fail(b, i, err)
			continue
		}
		if v := b.Views[i]; v != nil {
			out, changed, err := s.r.Value(b.AllocTail(len(b.Recs[i].Value)+256), v, e)
			if err == nil && changed {
				b.Outs[i].Value = b.Keep(out)
				err = v.Rebind(b.Outs[i].Value)
			}
			if err != nil {
				s.fail(b, i, err)
				continue
			}
		}
		if hs, changed, err := s.r.Headers(b.Recs[i].Headers, e); err != nil {
			s.fail(b, i, err)
		} else if changed {
			b.Outs[i].Headers = hs
		}
	}
	return nil
}

func (s *redactStage) fail(b *pipeline.Batch, i int, err error) {
	code := pipeline.CodeOf(err)
	if code == "" {
		code = pipeline.CodeRedactFailed
	}
	b.Fail(i, pipeline.Failure{Stage: s.name, Code: code, Cause: err})
}
