package codec

import (
	"encoding/base64"
	"unicode/utf8"

	"reprieve.dev/pipeline"
)

// rawView shows a whole value as one leaf.
type rawView struct{ src []byte }

// Get finds the value under the empty path.
func (v *rawView) Get(p *pipeline.Path) (pipeline.Value, bool) {
	if len(p.Segs) > 0 {
		return pipeline.Value{}, false
	}
	return v.leaf(), true
}

// leaf is a string when the bytes are text, so that text detectors look at it.
func (v *rawView) leaf() pipeline.Value {
	kind := pipeline.KindBytes
	if utf8.Valid(v.src) {
		kind = pipeline.KindString
	}
	return pipeline.Value{Kind: kind, Bytes: v.src}
}

// Keys are none.
func (v *rawView) Keys(*pipeline.Path) []string { return nil }

// AppendJSON appends {"text": ...} when the bytes are valid UTF-8, else {"base64": ...}: the BYTES of the record form.
func (v *rawView) AppendJSON(dst []byte) ([]byte, error) {
	if utf8.Valid(v.src) {
		dst = appendQuoted(append(dst, `{"text":`...), v.src)
		return append(dst, '}'), nil
	}
	dst = append(dst, `{"base64":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, v.src)
	return append(dst, `"}`...), nil
}

// Schema is the bare format.
func (v *rawView) Schema() pipeline.SchemaRef { return pipeline.SchemaRef{Format: FormatRaw} }

// Edit asks about the one leaf.
func (v *rawView) Edit(dst []byte, e pipeline.Editor) ([]byte, bool, error) {
	leaf := pipeline.Leaf{Value: v.leaf()}
	rule := e.Plan("", "", leaf.Value.Kind, nil)
	if rule == 0 {
		return dst, false, nil
	}
	switch edit := e.Edit(rule, leaf); edit.Kind {
	case pipeline.Replace:
		return append(dst, edit.Text...), true, nil
	case pipeline.Null, pipeline.Drop:
		return dst, true, nil
	}
	return dst, false, nil
}

// Rebind makes the view read other bytes.
func (v *rawView) Rebind(value []byte) error {
	v.src = value
	return nil
}
