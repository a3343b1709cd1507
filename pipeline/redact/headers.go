package redact

import "reprieve.dev/pipeline"

// Headers redacts the headers of a record that goes on. Nothing found: hs itself and changed false, without an allocation;
// else a new list whose other headers are borrowed. e is the caller's, one for each goroutine. Codes: ERR_REDACT_FAILED.
func (r *Redactor) Headers(hs []pipeline.Header, e *Editor) (out []pipeline.Header, changed bool, err error) {
	out = hs
	for i := range hs {
		name, value, hit := e.header(&hs[i])
		if e.fail != nil {
			return hs, false, e.failed()
		}
		if !hit {
			continue
		}
		if !changed {
			out, changed = append([]pipeline.Header(nil), hs...), true
		}
		out[i] = pipeline.Header{Name: name, Value: value}
	}
	return out, changed, nil
}
