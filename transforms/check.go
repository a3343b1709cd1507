package transforms

import (
	"bytes"
	"context"
	"strings"
	"sync"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/expr"
)

// Invariant is a CEL condition over the repaired record that must hold, as in view.debit == view.credit.
type Invariant struct {
	Name string `json:"name"`
	CEL  string `json:"cel"`
}

// Rules say what no repair of a pipeline may break. Paths are JSON pointers into the value, as the pipeline file declares
// them; an empty one is not checked.
type Rules struct {
	EventID, Entity, BusinessID, Token, Version string
	Tenant                                      string // when the tenant stands in the payload
	TenantHeader                                string // when it stands in a header
	Invariants                                  []Invariant
	MaxBytes                                    int64    // of value, key and headers; 0 is 1 MiB
	MayChange                                   []string // declared changes: "key", "event_id", "entity", "business_id", "token", "version"
}

// Checker verifies results against the envelopes that they came from. Safe for concurrent use.
type Checker struct {
	dec    *codec.Decoder
	ids    []identityCheck
	header string
	inv    []invariant
	max    int64
	key    bool // the key may change
	pool   sync.Pool
}

type identityCheck struct {
	name  string
	path  *pipeline.Path
	known func(*pipeline.Identity) string
	code  pipeline.Code
}

type invariant struct {
	name string
	cond *expr.Cond
}

// NewChecker compiles rules. dec is the pipeline's own decoder; nil: values are not decoded, and only bytes are checked. Codes:
// ERR_TRANSFORM_CONFIG, ERR_PATH_INVALID.
func NewChecker(r Rules, dec *codec.Decoder) (*Checker, error) {
	c := &Checker{dec: dec, header: r.TenantHeader, max: r.MaxBytes}
	if c.max <= 0 {
		c.max = 1 << 20
	}
	may := map[string]bool{}
	for _, m := range r.MayChange {
		switch m {
		case "key", "event_id", "entity", "business_id", "token", "version":
			may[m] = true
		default:
			return nil, pipeline.Errorf(pipeline.CodeTransformConfig, m, "a repair can declare key, event_id, entity, business_id, token or version, not %s", m)
		}
	}
	c.key = may["key"]
	for _, f := range []struct {
		name, path string
		known      func(*pipeline.Identity) string
		code       pipeline.Code
	}{
		{"event_id", r.EventID, func(i *pipeline.Identity) string { return i.EventID }, pipeline.CodeTransformIdentity},
		{"entity", r.Entity, func(i *pipeline.Identity) string { return i.Entity }, pipeline.CodeTransformIdentity},
		{"business_id", r.BusinessID, func(i *pipeline.Identity) string { return i.BusinessID }, pipeline.CodeTransformIdentity},
		{"token", r.Token, func(i *pipeline.Identity) string { return i.Token }, pipeline.CodeTransformIdentity},
		{"version", r.Version, func(i *pipeline.Identity) string { return i.Version }, pipeline.CodeTransformIdentity},
		{"tenant", r.Tenant, tenantOf, pipeline.CodeRedriveTenant},
	} {
		if f.path == "" || may[f.name] {
			continue
		}
		p, err := pipeline.NewPath(f.path)
		if err != nil {
			return nil, err
		}
		c.ids = append(c.ids, identityCheck{f.name, p, f.known, f.code})
	}
	for _, i := range r.Invariants {
		cond, err := expr.Condition(i.CEL)
		if err != nil {
			return nil, pipeline.Errorf(pipeline.CodeTransformConfig, i.Name, "the invariant does not compile: %w", err)
		}
		c.inv = append(c.inv, invariant{i.Name, cond})
	}
	return c, nil
}

func tenantOf(i *pipeline.Identity) string {
	if i.Tenant == pipeline.TenantUnassigned {
		return ""
	}
	return i.Tenant
}

// Check says what a repair would break, or nil. It decodes the original and the repaired value. Codes: ERR_TRANSFORM_SIZE,
// ERR_TRANSFORM_KEY, ERR_TRANSFORM_SCHEMA, ERR_TRANSFORM_IDENTITY, ERR_REDRIVE_TENANT, ERR_TRANSFORM_INVARIANT,
// ERR_TRANSFORM_FAILED (a header of ours).
func (c *Checker) Check(ctx context.Context, e *Envelope, r *Result) *pipeline.Failure {
	size := int64(len(r.Value) + len(r.Key))
	for _, h := range r.Headers {
		size += int64(len(h.Name) + len(h.Value))
	}
	if size > c.max {
		return refuse(pipeline.CodeTransformSize, "value, key and headers", pipeline.Int("bytes", size), pipeline.Int("most", c.max))
	}
	if !c.key && !same(e.Record.Key, r.Key) {
		return refuse(pipeline.CodeTransformKey, "key")
	}
	if f := c.headers(e, r); f != nil {
		return f
	}
	if e.Record.Value != nil && r.Value == nil {
		return refuse(pipeline.CodeTransformFailed, "a repair cannot make a tombstone")
	}
	if c.dec == nil || r.Value == nil {
		return nil
	}
	w, _ := c.pool.Get().(*work)
	if w == nil {
		w = newWork()
	}
	defer c.pool.Put(w)

	before := make([]string, len(c.ids))
	found := false
	if len(c.ids) > 0 {
		w.scratch.Reset()
		if v, f := c.dec.Decode(ctx, w.scratch, e.Record.Value, e.Record.Headers); f == nil && v != nil {
			found = true
			for i := range c.ids {
				before[i] = textAt(v, c.ids[i].path)
			}
		}
	}
	w.scratch.Reset()
	v, f := c.dec.Decode(ctx, w.scratch, r.Value, r.Headers)
	if f != nil {
		return refuse(pipeline.CodeTransformSchema, "the repaired value cannot be decoded", pipeline.Str("code", string(f.Code)))
	}
	for i := range c.ids {
		id := &c.ids[i]
		want := before[i]
		if !found {
			want = id.known(&e.Identity) // the original could not be read: what custody knows counts
			if want == "" {
				continue
			}
		}
		if textAt(v, id.path) != want {
			return refuse(id.code, id.name)
		}
	}
	if len(c.inv) == 0 {
		return nil
	}
	rec := e.Record
	rec.Key, rec.Value, rec.Headers = r.Key, r.Value, r.Headers
	w.one(e, &rec, v)
	for _, i := range c.inv {
		ok, err := i.cond.Eval(&w.batch, 0)
		if err != nil {
			f := refuse(pipeline.CodeTransformInvariant, "the invariant cannot be evaluated", pipeline.Str("invariant", i.name))
			f.Cause = err
			return f
		}
		if !ok {
			return refuse(pipeline.CodeTransformInvariant, "broken", pipeline.Str("invariant", i.name))
		}
	}
	return nil
}

// headers refuses headers of ours that the original did not have, and another tenant.
func (c *Checker) headers(e *Envelope, r *Result) *pipeline.Failure {
	had := 0
	for _, h := range e.Record.Headers {
		if ReservedHeader(h.Name) {
			had++
		}
	}
	for _, h := range r.Headers {
		if h.Name == "" && !hasHeader(e.Record.Headers, h) {
			return refuse(pipeline.CodeTransformFailed, "a header without a name")
		}
		if ReservedHeader(h.Name) {
			if !hasHeader(e.Record.Headers, h) {
				return refuse(pipeline.CodeTransformFailed, "a header that is not for repairs")
			}
			had--
		}
	}
	if had > 0 {
		return refuse(pipeline.CodeTransformFailed, "a header that is not for repairs was removed")
	}
	if c.header != "" {
		was, _ := e.Record.Header(c.header)
		now, _ := (&pipeline.Record{Headers: r.Headers}).Header(c.header)
		if !same(was, now) {
			return refuse(pipeline.CodeRedriveTenant, "tenant")
		}
	}
	return nil
}

func hasHeader(hs []pipeline.Header, want pipeline.Header) bool {
	for _, h := range hs {
		if h.Name == want.Name && same(h.Value, want.Value) {
			return true
		}
	}
	return false
}

// same compares bytes and keeps null apart from empty.
func same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

func textAt(v pipeline.View, p *pipeline.Path) string {
	val, ok := v.Get(p)
	if !ok {
		return ""
	}
	var b strings.Builder
	var buf [64]byte
	b.Write(val.AppendText(buf[:0]))
	return b.String()
}
