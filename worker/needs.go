package worker

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/kafka"
	"reprieve.dev/pipeline/stage"
)

// Logs opens random access to the clusters of the worker file, each once, when it is first asked for.
type Logs struct {
	ctx  context.Context // ends the question which cluster has an id
	plan *Plan
	mu   sync.Mutex
	open map[string]*kafka.Log // by name or id; nil: it cannot be had
}

// Logs answers by the names of clusters, and by the ids that items carry. Close it.
func (p *Plan) Logs(ctx context.Context) *Logs {
	return &Logs{ctx: ctx, plan: p, open: map[string]*kafka.Log{}}
}

// Of is what custody.Options.Source asks.
func (l *Logs) Of(cluster string) (pipeline.Log, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if log, asked := l.open[cluster]; asked {
		return log, log != nil
	}
	l.open[cluster] = nil
	for _, name := range slices.Sorted(maps.Keys(l.plan.Config.Clusters)) {
		c := kafka.Cluster{Name: name, Properties: l.plan.Config.Clusters[name]}
		if name != cluster {
			if id, err := ClusterID(l.ctx, c); err != nil || id != cluster {
				continue
			}
		}
		log, err := kafka.NewLog(c, nil)
		if err != nil {
			continue
		}
		l.open[cluster] = log
		return log, true
	}
	return nil, false
}

// Close frees what was opened.
func (l *Logs) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, log := range l.open {
		if log != nil {
			log.Close()
		}
	}
	clear(l.open)
}

// Schemas tells whether a registry still knows the schemas of items: that of their pipeline, and for a pipeline whose file is not here any
// of the worker file. It is what custody.Options.Schemas asks. Codes: ERR_CONFIG_REFERENCE (no registry is named), ERR_CONFIG_VALUE,
// ERR_REGISTRY_*.
func (p *Plan) Schemas(clock pipeline.Clock) func(ctx context.Context, pipeline, schema string) (bool, error) {
	opened := map[string]codec.Registry{}
	return func(ctx context.Context, name, schema string) (bool, error) {
		names := p.registriesOf(name)
		if len(names) == 0 {
			return false, pipeline.Errorf(pipeline.CodeConfigReference, p.File, "no registry is named that could know the schema %s of the pipeline %q", schema, name)
		}
		var failed []error
		for _, reg := range names {
			r := opened[reg]
			if r == nil {
				var err error
				if r, err = p.Registry(reg, clock); err != nil {
					failed = append(failed, err)
					continue
				}
				opened[reg] = r
			}
			known, err := knows(ctx, r, reg, schema)
			if known {
				return true, nil
			}
			failed = append(failed, err)
		}
		return false, errors.Join(failed...)
	}
}

// registriesOf are the names of the registries that the decode stage of a pipeline asks; all of them if its file is not here.
func (p *Plan) registriesOf(name string) []string {
	for _, pp := range p.Pipelines {
		if pp.Config.Name != name {
			continue
		}
		for _, s := range pp.Stages {
			if set, ok := s.Settings.(*stage.DecodeSettings); ok {
				return set.Registries()
			}
		}
	}
	return slices.Sorted(maps.Keys(p.Config.Registries))
}

// knows asks a registry for a schema as items spell it. One that it has and we cannot read is there.
func knows(ctx context.Context, r codec.Registry, registry, schema string) (bool, error) {
	kind, which, _ := strings.Cut(schema, ":")
	var f *pipeline.Failure
	if kind == "guid" {
		_, f = r.ByGUID(ctx, which)
	} else {
		id, err := strconv.ParseInt(which, 10, 32)
		if err != nil {
			return false, pipeline.Errorf(pipeline.CodeInputInvalid, schema, "it is not the name of a schema")
		}
		_, f = r.ByID(ctx, int32(id))
	}
	switch {
	case f == nil || f.Code == pipeline.CodeSchemaInvalid:
		return true, nil
	case f.Code == pipeline.CodeSchemaUnknown:
		return false, nil
	}
	return false, pipeline.Errorf(f.Code, "registries."+registry, "%s", f.Reason())
}
