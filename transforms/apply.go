package transforms

import (
	"bytes"
	"context"
	"encoding/binary"
	"strconv"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
)

// tools is what built-ins read and write records with.
type tools struct {
	dec *codec.Decoder
	reg codec.Registry
}

// work is scratch of one goroutine.
type work struct {
	scratch *codec.Scratch
	batch   pipeline.Batch
	json    []byte
	text    []byte
	editor  leafEditor
}

func newWork() *work { return &work{scratch: codec.NewScratch()} }

// target is another schema to write the record under; always an exact id.
type target struct{ id int32 }

func (t *tools) target(c *settings) *target {
	n := c.get("schema")
	if n == nil {
		return nil
	}
	id, ok := schemaID(n)
	if !ok {
		c.fail(`schema must be an exact id, as in "avro:9"; latest is not one`)
		return nil
	}
	if t.reg == nil {
		c.fail("schema: no registry is configured")
	}
	return &target{id: id}
}

// open decodes the envelope's value. The view lives until the next open.
func (t *tools) open(ctx context.Context, w *work, value []byte, headers []pipeline.Header) (pipeline.View, *pipeline.Failure) {
	switch {
	case t.dec == nil:
		return nil, refuse(pipeline.CodeTransformFailed, "no decoder is configured for this item's records")
	case value == nil:
		return nil, refuse(pipeline.CodeTransformFailed, "a null value has no members")
	}
	w.scratch.Reset()
	v, f := t.dec.Decode(ctx, w.scratch, value, headers)
	if f != nil {
		return nil, refuse(pipeline.CodeTransformFailed, "the record cannot be decoded", pipeline.Str("code", string(f.Code)))
	}
	return v, nil
}

// rewrite applies an edit to an envelope.
func (t *tools) rewrite(ctx context.Context, w *work, e *Envelope, ed *edit) Result {
	r := unchanged(e)
	v, f := t.open(ctx, w, e.Record.Value, e.Record.Headers)
	if f != nil {
		r.Failure = f
		return r
	}
	t.apply(ctx, w, e, v, ed, &r)
	return r
}

func (t *tools) apply(ctx context.Context, w *work, e *Envelope, v pipeline.View, ed *edit, r *Result) {
	ref := v.Schema()
	if r.Schema == "" {
		r.Schema = ref.String()
	}
	switch ref.Format {
	case "avro":
		if ed.leaves != nil && ed.schema == nil && t.inPlace(ctx, w, e, v, ed.leaves, r) {
			return
		}
		t.encode(ctx, w, e, v, ed, r)
	case "json", "jsonschema":
		if ed.schema != nil {
			r.Failure = refuse(pipeline.CodeTransformFailed, "another schema is for Avro records only")
			return
		}
		if ed.leaves != nil && t.inPlace(ctx, w, e, v, ed.leaves, r) {
			return
		}
		head := jsonStart(e.Record.Value)
		d, changed, f := ed.text(e.Record.Value[head:])
		if f != nil {
			r.Failure = f
			return
		}
		r.done(changed)
		if len(changed) > 0 {
			out := append(make([]byte, 0, len(e.Record.Value)+64), e.Record.Value[:head]...)
			r.Value = d.text(out)
		}
	default:
		r.Failure = refuse(pipeline.CodeTransformFailed, "records of this format cannot be edited", pipeline.Str("format", ref.Format))
	}
}

// text edits JSON text and tells what has changed.
func (ed *edit) text(src []byte) (d *document, changed []string, f *pipeline.Failure) {
	d, what := parseDocument(src)
	if what != "" {
		return nil, nil, refuse(pipeline.CodeTransformFailed, what)
	}
	changed, f = ed.do(d)
	return d, changed, f
}

func (r *Result) done(changed []string) {
	for _, c := range changed {
		r.Report.Changed = appendOnce(r.Report.Changed, c)
	}
	if len(changed) == 0 {
		r.Report.Notes = append(r.Report.Notes, "nothing was different")
	}
}

// jsonStart is where the text begins in a value that was decoded: after a framing of 5 or 17 bytes, which no JSON text can
// start with.
func jsonStart(value []byte) int {
	switch {
	case len(value) > 5 && value[0] == 0:
		return 5
	case len(value) > 17 && value[0] == 1:
		return 17
	}
	return 0
}

// inPlace replaces scalars of a binary record where they stand; every other byte stays. False: the schema or the record has no
// room for that (a union's other branch, a number that does not fit), and the exact encoder has to say so.
func (t *tools) inPlace(ctx context.Context, w *work, e *Envelope, v pipeline.View, leaves []field, r *Result) bool {
	w.editor.fields = leaves
	w.editor.hits = w.editor.hits[:0]
	out, changed, err := v.Edit(make([]byte, 0, len(e.Record.Value)+64), &w.editor)
	if err != nil {
		return false
	}
	if !changed {
		out = e.Record.Value
	}
	// Edit writes what fits; what was asked for must be what can be read again (C07: half a cent is never lost).
	w.scratch.Reset()
	again, f := t.dec.Decode(ctx, w.scratch, out, e.Record.Headers)
	if f != nil {
		return false
	}
	if !holds(w, again, leaves) {
		return false
	}
	if !bytes.Equal(out, e.Record.Value) {
		r.Value = out
		for _, i := range w.editor.hits {
			r.Report.Changed = appendOnce(r.Report.Changed, leaves[i].text)
		}
	} else {
		r.done(nil)
	}
	return true
}

// holds tells whether the record says what was asked for.
func holds(w *work, v pipeline.View, leaves []field) bool {
	var d *document
	for i := range leaves {
		l := &leaves[i]
		decimal := false
		if got, ok := v.Get(l.at); ok {
			decimal = got.Kind == pipeline.KindDecimal
			switch {
			case got.Kind == pipeline.KindInt && l.value.kind == '0':
				if strconv.FormatInt(got.Int, 10) == string(l.value.src) {
					continue
				}
			case got.Kind == pipeline.KindNumber: // JSON keeps the digits that were asked for
				if l.value.kind == '0' && string(got.Bytes) == string(l.value.src) {
					continue
				}
				return false
			case (got.Kind == pipeline.KindString || got.Kind == pipeline.KindEnum) && l.value.kind == '"':
				if string(got.Bytes) == l.plain {
					continue
				}
				return false
			}
		}
		if d == nil { // every other kind by its exact text
			var err error
			if w.json, err = v.AppendJSON(w.json[:0]); err != nil {
				return false
			}
			var what string
			if d, what = parseDocument(w.json); what != "" {
				return false
			}
		}
		got := d.at(l.path)
		if got == nil || !got.equal(l.value) && !(decimal && decimalText(got, l.value)) {
			return false
		}
	}
	return true
}

// decimalText tells whether a decimal, which JSON shows as text, is the number that was asked for.
func decimalText(got, want *node) bool {
	if got.kind != '"' || want.kind != '0' {
		return false
	}
	text := unquote(got.src)
	return isNumber(text) && sameNumber(text, string(want.src))
}

// leafEditor replaces the leaves at given pointers.
type leafEditor struct {
	fields []field
	hits   []int
	text   []byte
}

// Plan implements pipeline.Editor: array items are "*" in the place of a schema.
func (l *leafEditor) Plan(path, _ string, _ pipeline.ValueKind, _ []string) pipeline.Rule {
	for i := range l.fields {
		if samePlace(path, l.fields[i].text) {
			return 1
		}
	}
	return 0
}

// samePlace compares a schema place with a pointer, segment by segment.
func samePlace(place, ptr string) bool {
	for {
		if place == "" || ptr == "" {
			return place == ptr
		}
		p, q := segment(place), segment(ptr)
		if p != q && p != "/*" {
			return false
		}
		place, ptr = place[len(p):], ptr[len(q):]
	}
}

func segment(s string) string {
	if i := bytes.IndexByte([]byte(s[1:]), '/'); i >= 0 {
		return s[:i+1]
	}
	return s
}

// Edit implements pipeline.Editor.
func (l *leafEditor) Edit(_ pipeline.Rule, leaf pipeline.Leaf) pipeline.Edit {
	for i := range l.fields {
		f := &l.fields[i]
		if leaf.Path != f.text {
			continue
		}
		if sameLeaf(leaf.Value, f) {
			return pipeline.Edit{Kind: pipeline.Keep}
		}
		l.hits = append(l.hits, i)
		switch f.value.kind {
		case 'n':
			return pipeline.Edit{Kind: pipeline.Null}
		case '"':
			l.text = append(l.text[:0], f.plain...)
		default:
			l.text = append(l.text[:0], f.value.src...)
		}
		return pipeline.Edit{Kind: pipeline.Replace, Text: l.text}
	}
	return pipeline.Edit{Kind: pipeline.Keep}
}

// sameLeaf tells whether a leaf has the value already, in the same spelling.
func sameLeaf(v pipeline.Value, f *field) bool {
	switch v.Kind {
	case pipeline.KindString, pipeline.KindEnum:
		return f.value.kind == '"' && string(v.Bytes) == f.plain
	case pipeline.KindNumber:
		return f.value.kind == '0' && string(v.Bytes) == string(f.value.src)
	case pipeline.KindInt:
		return f.value.kind == '0' && strconv.FormatInt(v.Int, 10) == string(f.value.src)
	}
	return false
}

// encode goes through JSON text and the exact encoder, under the record's own schema or another one.
func (t *tools) encode(ctx context.Context, w *work, e *Envelope, v pipeline.View, ed *edit, r *Result) {
	ref := v.Schema()
	var err error
	w.json, err = v.AppendJSON(w.json[:0])
	if err != nil {
		r.Failure = refuse(pipeline.CodeTransformFailed, "the record has no JSON form")
		return
	}
	d, changed, f := ed.text(w.json)
	if f != nil {
		r.Failure = f
		return
	}
	if len(changed) == 0 && ed.schema == nil {
		r.done(nil)
		return
	}
	schema, f := t.schema(ctx, ref, ed.schema)
	if f != nil {
		r.Failure = f
		return
	}
	w.text = d.text(w.text[:0])
	framed, err := codec.EncodeAvro(schema, w.text)
	if err != nil {
		r.Failure = refuse(pipeline.CodeTransformSchema, "the edited record cannot be written under its schema", pipeline.Str("schema", schema.Ref().String()))
		r.Failure.Cause = err
		return
	}
	if r.Failure = t.frame(ctx, w, e, ref, schema, framed, r); r.Failure != nil {
		r.Value, r.Headers = e.Record.Value, e.Record.Headers
		return
	}
	r.done(changed)
	if ed.schema != nil && schema.Ref() != ref {
		r.Report.Changed = appendOnce(r.Report.Changed, "schema")
	}
	r.Schema = schema.Ref().String()
}

func (t *tools) schema(ctx context.Context, ref pipeline.SchemaRef, to *target) (*codec.Schema, *pipeline.Failure) {
	if t.reg == nil {
		return nil, refuse(pipeline.CodeTransformFailed, "no registry is configured: a record can only be edited in place")
	}
	var s *codec.Schema
	var f *pipeline.Failure
	switch {
	case to != nil:
		s, f = t.reg.ByID(ctx, to.id)
	case ref.ID != 0:
		s, f = t.reg.ByID(ctx, ref.ID)
	default:
		s, f = t.reg.ByGUID(ctx, ref.GUID)
	}
	if f != nil {
		return nil, refuse(pipeline.CodeTransformSchema, "the schema cannot be had", pipeline.Str("code", string(f.Code)), pipeline.Str("schema", schemaText(ref, to)))
	}
	return s, nil
}

func schemaText(ref pipeline.SchemaRef, to *target) string {
	if to != nil {
		return "avro:" + strconv.Itoa(int(to.id))
	}
	return ref.String()
}

// frame puts an encoded body into the framing that the record has. framed is its own prefix and the body. It tries what the
// record looks like and lets the decoder judge.
func (t *tools) frame(ctx context.Context, w *work, e *Envelope, ref pipeline.SchemaRef, s *codec.Schema, framed []byte, r *Result) *pipeline.Failure {
	old, to := e.Record.Value, s.Ref()
	head := 5
	if to.ID == 0 && to.GUID != "" {
		head = 17
	}
	body := framed[head:]
	at := -1
	for i := len(e.Record.Headers) - 1; i >= 0 && at < 0; i-- {
		if e.Record.Headers[i].Name == codec.HeaderValueSchema {
			at = i
		}
	}
	if at >= 0 {
		r.Value, r.Headers = body, e.Record.Headers
		if to != ref {
			r.Headers = append([]pipeline.Header(nil), e.Record.Headers...)
			r.Headers[at].Value = framed[:head:head]
		}
		if _, f := t.open(ctx, w, r.Value, r.Headers); f == nil {
			return nil
		}
		r.Headers = e.Record.Headers
	}
	switch {
	case ref.ID != 0 && len(old) >= 5 && old[0] == 0 && binary.BigEndian.Uint32(old[1:5]) == uint32(ref.ID):
		r.Value = framed
	case len(old) >= 17 && old[0] == 1 && to == ref && ref.GUID != "":
		r.Value = append(append(make([]byte, 0, 17+len(body)), old[:17]...), body...)
	case len(old) >= 17 && old[0] == 1:
		r.Value = framed // a GUID names the old schema only
	case len(old) >= 10 && old[0] == 0xc3 && old[1] == 1:
		r.Value = binary.LittleEndian.AppendUint64(append(make([]byte, 0, 10+len(body)), 0xc3, 1), s.Fingerprint())
		r.Value = append(r.Value, body...)
	default:
		r.Value = body
	}
	if _, f := t.open(ctx, w, r.Value, r.Headers); f != nil {
		f.Code = pipeline.CodeTransformSchema
		return f
	}
	return nil
}
