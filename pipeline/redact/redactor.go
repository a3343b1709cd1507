package redact

import (
	"regexp"
	"strings"
	"sync"
	"unsafe"

	"reprieve.dev/pipeline"
)

// Redactor strips what a Config names. It is immutable and safe for concurrent use.
type Redactor struct {
	pan, cvv, auth          bool
	actPAN, actCVV, actAuth action
	fields                  []fieldRule
	paths, named            bool // there are fields by path, by name
	patterns                []patternRule
	keep                    [][]string
	ident                   []string
	hashKey                 []byte
	hashKeyID               string
	class                   [256]uint8
	dull                    [256]uint8
	issuers                 []issuerRange
	editors                 sync.Pool
}

type patternRule struct {
	re     *regexp.Regexp
	action action
}

// New compiles cfg. The error names every problem; its code is the first one's. Codes: ERR_CONFIG_VALUE,
// ERR_CONFIG_MISSING, ERR_CONFIG_UNSAFE, ERR_PATH_INVALID.
func New(cfg Config, o Options) (*Redactor, error) {
	if ps := cfg.Check(o); len(ps) > 0 {
		lines := make([]string, len(ps))
		for i, p := range ps {
			lines[i] = p.Path + ": " + p.Text
			if p.Suggestion != "" {
				lines[i] += " (" + p.Suggestion + ")"
			}
		}
		return nil, &pipeline.Error{Code: ps[0].Code, Place: "redact." + ps[0].Path, Text: strings.Join(lines, "\n")}
	}
	r := &Redactor{class: classes(), issuers: issuers(), hashKey: pipeline.CloneBytes(o.HashKey), hashKeyID: o.HashKeyID}
	r.dull = dullSigns(&r.class)
	if r.hashKeyID == "" {
		r.hashKeyID = "redact"
	}
	all := len(cfg.Detectors) == 0
	for _, d := range cfg.Detectors {
		r.pan = r.pan || d == DetectPAN
		r.cvv = r.cvv || d == DetectCVV
		r.auth = r.auth || d == DetectAuthorization
	}
	r.pan, r.cvv, r.auth = r.pan || all, r.cvv || all, r.auth || all
	r.actPAN, _ = parseAction(cfg.Actions.PAN)
	r.actCVV, _ = parseAction(cfg.Actions.CVV)
	r.actAuth, _ = parseAction(cfg.Actions.Authorization)
	for _, f := range cfg.Fields {
		rule := fieldRule{name: f.Name}
		if f.Path != "" {
			rule.segs = splitPath(f.Path)
			r.paths = true
		} else {
			r.named = true
		}
		rule.action, _ = parseAction(f.Action)
		r.fields = append(r.fields, rule)
	}
	for _, t := range cfg.Tags {
		rule := fieldRule{tag: t}
		rule.action, _ = parseAction(cfg.TagAction)
		r.fields = append(r.fields, rule)
	}
	for _, p := range cfg.Patterns {
		re, err := compilePattern(p.Match)
		if err != nil {
			return nil, pipeline.Errorf(pipeline.CodeConfigValue, "redact.patterns", "%w", err)
		}
		rule := patternRule{re: re}
		rule.action, _ = parseAction(p.Action)
		r.patterns = append(r.patterns, rule)
	}
	for _, k := range cfg.Keep {
		r.keep = append(r.keep, splitPath(k))
	}
	for _, id := range o.Identity {
		r.ident = append(r.ident, id.Text)
	}
	r.editors.New = func() any { return r.NewEditor() }
	return r, nil
}

// Value appends v's bytes (framing included) with what goes replaced; every other byte stays. Nothing to replace: dst as it
// was and changed false, without an allocation. e is the caller's, one for each goroutine. Codes: ERR_REDACT_IDENTITY (a
// hit in an identity field), ERR_REDACT_FAILED; then dst is as it was.
func (r *Redactor) Value(dst []byte, v pipeline.View, e *Editor) (out []byte, changed bool, err error) {
	out, changed, err = r.edit(dst, v, e)
	if err != nil {
		return dst, false, err
	}
	if r.pan && jsonFormat(v.Schema().Format) {
		if out, changed, err = r.names(dst, out, changed, v, e); err != nil {
			return dst, false, err
		}
	}
	return out, changed, nil
}

// edit is Value without the member names of JSON.
func (r *Redactor) edit(dst []byte, v pipeline.View, e *Editor) (out []byte, changed bool, err error) {
	e.begin()
	out, changed, err = v.Edit(dst, e)
	switch {
	case err != nil:
		return dst, false, pipeline.Errorf(pipeline.CodeRedactFailed, v.Schema().String(), "the codec could not rewrite the value: %w", err)
	case e.nameHit && !jsonFormat(v.Schema().Format):
		e.refuse(pipeline.CodeRedactFailed, v.Schema().String(), "a map key holds a card number")
	}
	if e.fail != nil {
		return dst, false, e.failed()
	}
	return out, changed, nil
}

// names masks card numbers in member names of what Value made. A view does not lend its bytes: names of a document in which
// no leaf changed are looked at in a copy, and one that must go makes the record fail.
func (r *Redactor) names(dst, out []byte, changed bool, v pipeline.View, e *Editor) ([]byte, bool, error) {
	if changed {
		named, hit, ok := e.memberNames(out[len(dst):])
		if !ok {
			return dst, false, e.failed()
		}
		if hit {
			out = append(out[:len(dst)], named...)
		}
		return out, true, nil
	}
	doc, err := v.AppendJSON(e.doc[:0])
	if err != nil {
		return dst, false, pipeline.Errorf(pipeline.CodeRedactFailed, v.Schema().String(), "the codec could not read the value: %w", err)
	}
	e.doc = doc
	_, hit, ok := e.memberNames(doc)
	if hit {
		e.refuse(pipeline.CodeRedactFailed, v.Schema().String(), "a member name holds a card number")
		ok = false
	}
	if !ok {
		return dst, false, e.failed()
	}
	return out, false, nil
}

// Sanitize redacts what a letter carries of rec: key, value, headers, from rec's own bytes. v may be nil (decode failed):
// then the value is read as text and as binary and masked in place. Otherwise v is made to read rec.Value, and afterwards
// reads what Clean carries. What did not change is borrowed from rec; what did is new. Codes: ERR_REDACT_IDENTITY (a hit
// in an identity field or the key), ERR_REDACT_FAILED (it cannot be sure): the caller seals the record into the vault.
func (r *Redactor) Sanitize(topic string, rec *pipeline.Record, v pipeline.View) (pipeline.Clean, error) {
	e := r.editors.Get().(*Editor)
	defer r.editors.Put(e)
	clean := pipeline.Clean{Key: rec.Key, Value: rec.Value, Headers: rec.Headers}
	if err := r.Key(rec.Key, e); err != nil {
		return pipeline.Clean{}, err
	}
	if rec.Value != nil {
		value, changed, err := r.value(e, rec, v)
		if err != nil {
			return pipeline.Clean{}, err
		}
		if changed {
			clean.Value, clean.Changed = value, true
		}
	}
	for i := range rec.Headers {
		h := &rec.Headers[i]
		name, value, changed := e.header(h)
		if e.fail != nil {
			return pipeline.Clean{}, e.failed()
		}
		if !changed {
			continue
		}
		if len(clean.Headers) > 0 && &clean.Headers[0] == &rec.Headers[0] {
			clean.Headers = append([]pipeline.Header(nil), rec.Headers...)
		}
		clean.Headers[i] = pipeline.Header{Name: name, Value: value}
	}
	return clean, nil
}

// Key refuses a record key that holds what is to go: redacted, it would no longer be the key. It allocates nothing. Codes:
// ERR_REDACT_IDENTITY, ERR_REDACT_FAILED (it cannot be looked into).
func (r *Redactor) Key(key []byte, e *Editor) error {
	if len(key) == 0 {
		return nil
	}
	if e.keepsRaw(key) {
		return nil
	}
	e.begin()
	if _, changed := e.raw(nil, key); changed {
		return &pipeline.Error{Code: pipeline.CodeRedactIdentity, Place: "key", Text: "a secret stands in the record key"}
	}
	if e.fail != nil {
		return e.failed()
	}
	return nil
}

// value is Sanitize for the value.
func (r *Redactor) value(e *Editor, rec *pipeline.Record, v pipeline.View) ([]byte, bool, error) {
	if v != nil && v.Rebind(rec.Value) == nil {
		out, changed, err := r.edit(nil, v, e)
		if err != nil {
			return nil, false, err
		}
		now := rec.Value
		if changed {
			now = out
		}
		if r.pan && jsonFormat(v.Schema().Format) {
			named, hit, ok := e.memberNames(now)
			if !ok {
				return nil, false, e.failed()
			}
			if hit {
				now, changed = named, true
			}
		}
		if changed {
			if err := v.Rebind(now); err != nil {
				return nil, false, pipeline.Errorf(pipeline.CodeRedactFailed, v.Schema().String(), "the redacted value cannot be read back: %w", err)
			}
		}
		return now, changed, nil
	}
	e.begin()
	out, changed := e.raw(nil, rec.Value)
	if e.fail != nil {
		return nil, false, e.failed()
	}
	return out, changed, nil
}

func jsonFormat(f string) bool { return f == "json" || f == "jsonschema" }

// Text redacts diagnostics: a reason, a stack, a log line. Nothing found: s itself. What it cannot be sure of becomes
// "***".
func (r *Redactor) Text(s string) string {
	if len(s) < 3 {
		return s
	}
	e := r.editors.Get().(*Editor)
	defer r.editors.Put(e)
	e.begin()
	b := unsafe.Slice(unsafe.StringData(s), len(s)) // only read
	e.value(b, means, "", 0, false)
	if e.fail != nil {
		return hiddenText
	}
	if len(e.hits) == 0 {
		return s
	}
	return string(e.render(nil, b, e.hits, false))
}
