package transforms

import (
	"context"
	"strconv"
	"strings"

	"reprieve.dev/pipeline"
)

// builtins lists the built-in transforms. A change of what one does is a new version beside the old one.
func builtins(t *tools) []builtinKind {
	return []builtinKind{
		{"set", "1.0.0", "Sets members to values: {values: {/path: value}}.", t.set},
		{"rename", "1.0.0", "Renames members in their place: {names: {/path: new name}, schema?}.", t.rename},
		{"remove", "1.0.0", "Removes members or items: {paths: [/path], missing?: true, schema?}.", t.remove},
		{"cast", "1.0.0", "Changes the type of members exactly: {fields: {/path: string|integer|number|boolean}, schema?}.", t.cast},
		{"upcast", "1.0.0", "Evolves an Avro or JSON Schema record to a newer schema ({schema: avro:9}) or adds JSON defaults ({defaults: {/path: value}}).", t.upcast},
		{"json-patch", "1.0.0", "Applies a JSON Patch (RFC 6902): {patch: [...], schema?}.", t.jsonPatch},
		{"merge-patch", "1.0.0", "Applies a JSON Merge Patch (RFC 7396): {patch: {...}, schema?}.", t.mergePatch},
		{"cel", "1.0.0", "Sets members to what CEL expressions say: {values: {/path: expression}, as?: {/path: string|number|boolean|json}, schema?}.", t.cel},
		{"headers", "1.0.0", "Sets, adds and removes headers: {set: {name: text}, add: [[name, text]], remove: [name]}.", headersBuiltin},
		{"trim-leftover", "1.0.0", "Cuts the bytes that are left over after a whole record: {most?: 65536}.", t.trimLeftover},
		{"reframe", "1.0.0", "Puts another schema id before the same bytes: {schema: avro:7, from?: avro:6}.", t.reframe},
	}
}

// edit is a change of a record's document. leaves, when not nil, is the same change as scalars in their place, which a binary
// format takes without touching another byte.
type edit struct {
	do     func(d *document) (changed []string, f *pipeline.Failure)
	leaves []field
	schema *target // nil: the schema stays
}

func (t *tools) set(c *settings) (func(context.Context, *work, *Envelope) Result, error) {
	c.only("values", "schema")
	fields := c.fields("values")
	ed := edit{do: setter(fields), leaves: scalars(fields), schema: t.target(c)}
	return func(ctx context.Context, w *work, e *Envelope) Result { return t.rewrite(ctx, w, e, &ed) }, c.err
}

// setter puts values into a document. Values are shared between documents: nothing writes to them.
func setter(fields []field) func(*document) ([]string, *pipeline.Failure) {
	return func(d *document) (changed []string, f *pipeline.Failure) {
		for i := range fields {
			p := &fields[i]
			old := d.at(p.path)
			if old != nil && old.equal(p.value) && string(old.src) == string(p.value.src) {
				continue
			}
			v := p.value
			if v.kind == '{' || v.kind == '[' {
				v = v.clone() // a later field may go into it
			}
			if what := d.put(p.path, v, false); what != "" {
				return nil, refuse(pipeline.CodeTransformFailed, what, pipeline.Str("path", p.text))
			}
			changed = append(changed, p.text)
		}
		return changed, nil
	}
}

// scalars returns the fields if each is one scalar, else nil.
func scalars(fields []field) []field {
	for i := range fields {
		if k := fields[i].value.kind; k == '{' || k == '[' {
			return nil
		}
	}
	return fields
}

func (t *tools) rename(c *settings) (func(context.Context, *work, *Envelope) Result, error) {
	c.only("names", "schema")
	fields := c.fields("names")
	for _, f := range fields {
		if f.value.kind != '"' {
			c.fail("names: %s must be a string", f.text)
		}
	}
	ed := edit{schema: t.target(c), do: func(d *document) (changed []string, _ *pipeline.Failure) {
		for _, f := range fields {
			name := unquote(f.value.src)
			if what := d.rename(f.path, name); what != "" {
				return nil, refuse(pipeline.CodeTransformFailed, what, pipeline.Str("path", f.text))
			}
			changed = append(changed, f.text, append(f.path[:len(f.path)-1:len(f.path)-1], name).String())
		}
		return changed, nil
	}}
	return func(ctx context.Context, w *work, e *Envelope) Result { return t.rewrite(ctx, w, e, &ed) }, c.err
}

func (t *tools) remove(c *settings) (func(context.Context, *work, *Envelope) Result, error) {
	c.only("paths", "missing", "schema")
	var texts []string
	var missing bool
	c.decode("paths", &texts)
	c.decode("missing", &missing)
	if len(texts) == 0 {
		c.fail("paths must name at least one value")
	}
	paths := make([]pointer, len(texts))
	for i, s := range texts {
		var ok bool
		if paths[i], ok = parsePointer(s); !ok || len(paths[i]) == 0 {
			c.fail("paths: %q is not a JSON pointer into the record", s)
		}
	}
	ed := edit{schema: t.target(c), do: func(d *document) (changed []string, _ *pipeline.Failure) {
		for i, p := range paths {
			if missing && d.at(p) == nil {
				continue
			}
			if what := d.drop(p); what != "" {
				return nil, refuse(pipeline.CodeTransformFailed, what, pipeline.Str("path", texts[i]))
			}
			changed = append(changed, texts[i])
		}
		return changed, nil
	}}
	return func(ctx context.Context, w *work, e *Envelope) Result { return t.rewrite(ctx, w, e, &ed) }, c.err
}

func (t *tools) cast(c *settings) (func(context.Context, *work, *Envelope) Result, error) {
	c.only("fields", "schema")
	fields := c.fields("fields")
	for _, f := range fields {
		switch to := string(f.value.src); to {
		case `"string"`, `"integer"`, `"number"`, `"boolean"`:
		default:
			c.fail("fields: %s must be string, integer, number or boolean", f.text)
		}
	}
	ed := edit{schema: t.target(c), do: func(d *document) (changed []string, _ *pipeline.Failure) {
		for _, f := range fields {
			old := d.at(f.path)
			if old == nil {
				return nil, refuse(pipeline.CodeTransformFailed, "no such value", pipeline.Str("path", f.text))
			}
			v, what := castNode(old, unquote(f.value.src))
			if what != "" {
				return nil, refuse(pipeline.CodeTransformFailed, what, pipeline.Str("path", f.text))
			}
			if v == nil {
				continue
			}
			if what := d.put(f.path, v, false); what != "" {
				return nil, refuse(pipeline.CodeTransformFailed, what, pipeline.Str("path", f.text))
			}
			changed = append(changed, f.text)
		}
		return changed, nil
	}}
	return func(ctx context.Context, w *work, e *Envelope) Result { return t.rewrite(ctx, w, e, &ed) }, c.err
}

// castNode gives a scalar another type without losing anything; nil: it has the type already. A null stays null.
func castNode(n *node, to string) (*node, string) {
	if n.kind == 'n' {
		return nil, ""
	}
	if n.kind == '{' || n.kind == '[' {
		return nil, "only scalars can be cast"
	}
	text := string(n.src)
	if n.kind == '"' {
		text = unquote(n.src)
	}
	switch to {
	case "string":
		if n.kind == '"' {
			return nil, ""
		}
		return scalarNode('"', appendQuoted(nil, text)), ""
	case "boolean":
		switch {
		case n.kind == 't':
			return nil, ""
		case text == "true" || text == "false":
			return scalarNode('t', []byte(text)), ""
		case n.kind == '0' && sameNumber(text, "1"):
			return scalarNode('t', []byte("true")), ""
		case n.kind == '0' && sameNumber(text, "0"):
			return scalarNode('t', []byte("false")), ""
		}
		return nil, "not a boolean"
	case "number":
		if n.kind == '0' {
			return nil, ""
		}
		if !isNumber(text) {
			return nil, "not a number"
		}
		return scalarNode('0', []byte(text)), ""
	}
	if n.kind == 't' || !isNumber(text) {
		return nil, "not a number"
	}
	whole, ok := integer(text)
	if !ok {
		return nil, "the number has a fraction"
	}
	if n.kind == '0' && whole == text {
		return nil, ""
	}
	return scalarNode('0', []byte(whole)), ""
}

func scalarNode(kind byte, src []byte) *node { return &node{kind: kind, src: src} }

func isNumber(text string) bool {
	d := document{src: []byte(text)}
	return text != "" && (text[0] == '-' || text[0] >= '0' && text[0] <= '9') && d.number() == "" && d.pos == len(text)
}

// integer writes a JSON number as digits only, if it is whole and not absurdly long.
func integer(text string) (string, bool) {
	neg, digits, exp := normal(text)
	if digits == "" {
		return "0", true
	}
	if exp < 0 || exp > 64 {
		return "", false
	}
	s := digits + strings.Repeat("0", int(exp))
	if neg {
		s = "-" + s
	}
	return s, true
}

func (t *tools) jsonPatch(c *settings) (func(context.Context, *work, *Envelope) Result, error) {
	c.only("patch", "schema")
	n := c.get("patch")
	if n == nil {
		return nil, c.fail("patch is missing")
	}
	ops, what := parsePatch(n)
	if what != "" {
		return nil, c.fail("patch: %s", what)
	}
	if len(ops) == 0 {
		return nil, c.fail("patch has no operation")
	}
	ed := edit{schema: t.target(c), do: func(d *document) ([]string, *pipeline.Failure) { return d.patch(ops) }}
	return func(ctx context.Context, w *work, e *Envelope) Result { return t.rewrite(ctx, w, e, &ed) }, c.err
}

func (t *tools) mergePatch(c *settings) (func(context.Context, *work, *Envelope) Result, error) {
	c.only("patch", "schema")
	n := c.get("patch")
	if n == nil || n.kind != '{' {
		return nil, c.fail("patch must be an object: a merge patch of another kind replaces the whole record")
	}
	ed := edit{schema: t.target(c), do: func(d *document) ([]string, *pipeline.Failure) { return d.merge(n), nil }}
	return func(ctx context.Context, w *work, e *Envelope) Result { return t.rewrite(ctx, w, e, &ed) }, c.err
}

func headersBuiltin(c *settings) (func(context.Context, *work, *Envelope) Result, error) {
	c.only("set", "add", "remove")
	type pair struct{ name, text string }
	var sets, adds []pair
	var remove []string
	if n := c.get("set"); n != nil {
		if n.kind != '{' {
			c.fail("set must be an object from header name to text")
		}
		for _, m := range n.members {
			if m.v.kind != '"' {
				c.fail("set: %s must be a string", m.name)
				break
			}
			sets = append(sets, pair{m.name, unquote(m.v.src)})
		}
	}
	var added [][2]string
	c.decode("add", &added)
	for _, a := range added {
		adds = append(adds, pair{a[0], a[1]})
	}
	c.decode("remove", &remove)
	for _, p := range append(append([]pair(nil), sets...), adds...) {
		remove := ReservedHeader(p.name)
		if remove || p.name == "" {
			c.fail("the header %q is not for repairs", p.name)
		}
	}
	for _, n := range remove {
		if ReservedHeader(n) {
			c.fail("the header %q is not for repairs", n)
		}
	}
	if len(sets)+len(adds)+len(remove) == 0 {
		c.fail("set, add or remove must name a header")
	}
	return func(_ context.Context, _ *work, e *Envelope) Result {
		r := unchanged(e)
		out := make([]pipeline.Header, 0, len(e.Record.Headers)+len(sets)+len(adds))
		done := make([]bool, len(sets))
	each:
		for _, h := range e.Record.Headers {
			for _, n := range remove {
				if h.Name == n {
					r.Report.Changed = appendOnce(r.Report.Changed, "headers/"+n)
					continue each
				}
			}
			for i, p := range sets {
				if h.Name == p.name { // the first takes the value, repeats go
					if !done[i] {
						done[i] = true
						out = append(out, pipeline.Header{Name: p.name, Value: []byte(p.text)})
					}
					r.Report.Changed = appendOnce(r.Report.Changed, "headers/"+p.name)
					continue each
				}
			}
			out = append(out, h)
		}
		for i, p := range sets {
			if !done[i] {
				out = append(out, pipeline.Header{Name: p.name, Value: []byte(p.text)})
				r.Report.Changed = appendOnce(r.Report.Changed, "headers/"+p.name)
			}
		}
		for _, p := range adds {
			out = append(out, pipeline.Header{Name: p.name, Value: []byte(p.text)})
			r.Report.Changed = appendOnce(r.Report.Changed, "headers/"+p.name)
		}
		r.Headers = out
		return r
	}, c.err
}

// ReservedHeader tells whether a header belongs to Reprieve's own trail: a repair may neither set nor remove it.
func ReservedHeader(name string) bool {
	const prefix = "reprieve-"
	return len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix)
}

func appendOnce(list []string, s string) []string {
	for _, x := range list {
		if x == s {
			return list
		}
	}
	return append(list, s)
}

// schemaID reads "avro:7", "7" or the number 7.
func schemaID(n *node) (int32, bool) {
	if n == nil {
		return 0, false
	}
	text := string(n.src)
	if n.kind == '"' {
		text = strings.TrimPrefix(strings.TrimPrefix(unquote(n.src), "avro:"), "jsonschema:")
	}
	id, err := strconv.ParseInt(text, 10, 32)
	return int32(id), err == nil && id > 0
}
