package stage

import (
	"context"
	"slices"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/expr"
)

// EnrichSettings of an enrich stage.
type EnrichSettings struct {
	Headers map[string]string `yaml:"headers" required:"true" doc:"Header name to CEL expression over view, headers, key and topic. A null result adds no header."`
}

func enrichKind() pipeline.Kind {
	return pipeline.Kind{
		Name: "enrich", Phase: pipeline.PhaseEnrich,
		Doc:      "Adds headers to what leaves. The value stays the source's bytes.",
		Settings: func() any { return &EnrichSettings{} },
		Build:    buildEnrich,
	}
}

type enrich struct {
	name    string
	headers []enrichHeader // by name, so that the output does not depend on the order of a map
}

type enrichHeader struct {
	name  string
	value *expr.Val
}

func buildEnrich(settings any, env pipeline.Env) (pipeline.Stage, pipeline.Close, error) {
	e := &enrich{name: env.Name}
	for name, src := range settings.(*EnrichSettings).Headers {
		v, err := expr.ValueOf(src)
		if err != nil {
			return nil, nil, pipeline.Errorf(pipeline.CodeConfigExpression, "headers/"+name, "%w", err)
		}
		e.headers = append(e.headers, enrichHeader{name, v})
	}
	slices.SortFunc(e.headers, func(a, b enrichHeader) int {
		if a.name < b.name {
			return -1
		}
		return 1
	})
	return e, nil, nil
}

// Process adds the headers to each live record. An expression that fails fails the record with ERR_ENRICH_RULE.
func (e *enrich) Process(_ context.Context, b *pipeline.Batch) error {
	for i := range b.Recs {
		if !b.Live(i) {
			continue
		}
		for k := range e.headers {
			h := &e.headers[k]
			if b.Views[i] == nil && h.value.ReadsView() {
				continue // a delete marker has no fields
			}
			out, ok, err := h.value.Append(b.AllocTail(64), b, i)
			if err != nil {
				b.Fail(i, pipeline.Failure{Stage: e.name, Code: pipeline.CodeEnrichRule,
					Params: []pipeline.Param{pipeline.Str("rule", h.name)}, Cause: err})
				break
			}
			if ok {
				b.Outs[i].Add = append(b.Outs[i].Add, pipeline.Header{Name: h.name, Value: b.Keep(out)})
			}
		}
	}
	return nil
}
