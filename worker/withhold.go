package worker

import (
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/redact"
)

// withhold is the sanitizer of a pipeline that declares fields by path or tag. Of a record that could not be decoded nobody can
// tell which bytes those fields are: none of its value leaves. Key and headers are redacted as ever, and the faithful bytes stay
// in the source.
type withhold struct{ pipeline.Sanitizer }

// newSanitizer joins a redactor with what its settings declare.
func newSanitizer(c redact.Config, o redact.Options) (pipeline.Sanitizer, error) {
	r, err := redact.New(c, o)
	if err != nil {
		return nil, err
	}
	declared := len(c.Tags) > 0
	for _, f := range c.Fields {
		declared = declared || f.Path != ""
	}
	if declared {
		return withhold{r}, nil
	}
	return r, nil
}

// Sanitize redacts; without a view it carries nothing of the value.
func (w withhold) Sanitize(topic string, rec *pipeline.Record, v pipeline.View) (pipeline.Clean, error) {
	if v != nil || len(rec.Value) == 0 {
		return w.Sanitizer.Sanitize(topic, rec, v)
	}
	own := *rec
	own.Value = nil
	clean, err := w.Sanitizer.Sanitize(topic, &own, nil)
	clean.Changed = true
	return clean, err
}
