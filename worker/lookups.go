package worker

import (
	"os"
	"path/filepath"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/engine"
	"reprieve.dev/pipeline/stage"
)

// readFile reads a file that the pipeline file names; paths count from its folder. Codes: ERR_CONFIG_READ.
func (pp *PipelinePlan) readFile(name string) ([]byte, error) {
	path := name
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(pp.File), path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, pipeline.Errorf(pipeline.CodeConfigRead, path, "%w", err).With("paths count from the folder of the pipeline file")
	}
	return data, nil
}

// lookups checks the files that look-ups name: a table that cannot be read would end the pipeline at its start.
func (pp *PipelinePlan) lookups(set *stage.EnrichSettings, n config.Node) (ps config.Problems) {
	told := func(path string, err error) {
		text, remedy := err.Error(), ""
		if e, ok := err.(*pipeline.Error); ok {
			text, remedy = e.Place+": "+e.Text, e.Fix()
		}
		ps = append(ps, n.Problem(path, config.CodeValue, text, remedy))
	}
	if t := set.Table; t != nil && t.File != "" {
		data, err := pp.readFile(t.File)
		if err == nil && len(t.Validate(n.Key("table"))) == 0 {
			_, err = t.ReadTable(data)
		}
		if err != nil {
			told("table.file", err)
		}
	}
	if h := set.HTTP; h != nil {
		ps = append(ps, pp.certificates(h.TLS, "http.tls", n)...)
	}
	return ps
}

// servicesDown asks the stages whether the service behind a failure is known to be down.
func servicesDown(stages []engine.Stage) func(*pipeline.Failure) bool {
	var ask []func(*pipeline.Failure) bool
	for _, s := range stages {
		if u, ok := s.Stage.(interface {
			Unhealthy(*pipeline.Failure) bool
		}); ok {
			ask = append(ask, u.Unhealthy)
		}
	}
	return func(f *pipeline.Failure) bool {
		for _, unhealthy := range ask {
			if unhealthy(f) {
				return true
			}
		}
		return false
	}
}
