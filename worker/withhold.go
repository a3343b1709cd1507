package worker

import (
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/redact"
)

// withhold is the sanitizer of a pipeline that declares fields by path or tag. Of a record that could not be decoded nobody can
// tell which bytes those fields are: with a vault it cannot be redacted safely and goes there; without one none of its value leaves, key
// and headers are redacted as ever, and the faithful bytes stay in the source.
type withhold struct {
	pipeline.Sanitizer
	vault bool
}

// newSanitizer joins a redactor with what its settings declare.
func newSanitizer(c redact.Config, o redact.Options, vault bool) (pipeline.Sanitizer, error) {
	r, err := redact.New(c, o)
	if err != nil {
		return nil, err
	}
	declared := len(c.Tags) > 0
	for _, f := range c.Fields {
		declared = declared || f.Path != ""
	}
	if declared {
		return withhold{r, vault}, nil
	}
	return r, nil
}

// Sanitize redacts; without a view nothing of the value is carried. Codes: as redact.Redactor.Sanitize.
func (w withhold) Sanitize(topic string, rec *pipeline.Record, v pipeline.View) (pipeline.Clean, error) {
	if v != nil || len(rec.Value) == 0 {
		return w.Sanitizer.Sanitize(topic, rec, v)
	}
	if w.vault {
		return pipeline.Clean{}, pipeline.Errorf(pipeline.CodeRedactFailed, topic, "the record cannot be decoded, and nobody can tell which of its bytes the declared fields are")
	}
	own := *rec
	own.Value = nil
	clean, err := w.Sanitizer.Sanitize(topic, &own, nil)
	clean.Changed = true
	return clean, err
}
