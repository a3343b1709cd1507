package stage

import (
	"context"
	"errors"
	"slices"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/expr"
)

// EnrichSettings of an enrich stage.
type EnrichSettings struct {
	HTTP    *HTTPLookup       `yaml:"http" doc:"A question over HTTP for each record; its answer becomes headers."`
	Table   *TableLookup      `yaml:"table" doc:"A row of a file or of a compacted topic for each record; it becomes headers."`
	Headers map[string]string `yaml:"headers" doc:"Header name to CEL expression over view, headers, key and topic; it sees what http and table added. A null result adds no header."`
}

// Validate refuses a stage that adds nothing.
func (s *EnrichSettings) Validate(n config.Node) config.Problems {
	if s.HTTP == nil && s.Table == nil && len(s.Headers) == 0 && len(n.Keys()) == 0 {
		return config.Problems{n.Problem("headers", config.CodeMissing, "the stage adds nothing", "write headers: {NAME: EXPRESSION}, or http or table")}
	}
	return nil
}

func enrichKind() pipeline.Kind {
	return pipeline.Kind{
		Name: "enrich", Phase: pipeline.PhaseEnrich,
		Doc:      "Adds headers to what leaves, and members to a value that route.encode writes anew.",
		Settings: func() any { return &EnrichSettings{} },
		Build:    buildEnrich,
	}
}

type enrich struct {
	name    string
	http    *httpLookup    // nil: none
	table   *tableLookup   // nil: none
	headers []enrichHeader // by name, so that the output does not depend on the order of a map
}

// Unhealthy tells whether the service that f is about is known to be down, for Facts.
func (e *enrich) Unhealthy(f *pipeline.Failure) bool {
	return e.http != nil && f.Stage == e.name && !e.http.healthy()
}

type enrichHeader struct {
	name  string
	value *expr.Val
}

func buildEnrich(settings any, env pipeline.Env) (pipeline.Stage, pipeline.Close, error) {
	e := &enrich{name: env.Name}
	set := settings.(*EnrichSettings)
	for name, src := range set.Headers {
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
	var closers []pipeline.Close
	shut := func() error {
		var errs []error
		for _, c := range closers {
			errs = append(errs, c())
		}
		return errors.Join(errs...)
	}
	add := func(c pipeline.Close, err error) error {
		if c != nil {
			closers = append(closers, c)
		}
		if err != nil {
			return errors.Join(err, shut())
		}
		return nil
	}
	if set.Table != nil {
		t, c, err := buildTableLookup(set.Table, env)
		if err := add(c, err); err != nil {
			return nil, nil, err
		}
		e.table = t
	}
	if set.HTTP != nil {
		h, c, err := buildHTTPLookup(set.HTTP, env)
		if err := add(c, err); err != nil {
			return nil, nil, err
		}
		e.http = h
	}
	return e, shut, nil
}

// Process adds the headers to each live record: those of look-ups first, so that expressions see them. A look-up without an
// answer is ERR_ENRICH_MISSING or its declared choice, a service that fails ERR_HTTP_*; an expression that fails is
// ERR_ENRICH_RULE.
func (e *enrich) Process(ctx context.Context, b *pipeline.Batch) error {
	if e.table != nil {
		e.table.process(b)
	}
	if e.http != nil {
		e.http.process(ctx, b)
	}
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
