package plugins

import (
	"encoding/json"
	"strconv"

	"reprieve.dev/pipeline"
	"reprieve.dev/plugins/wire"
)

// overlays are the views of one batch with fields that a plugin added, reused from batch to batch.
type overlays struct {
	views []overlay
	used  int
}

func (o *overlays) begin(records int) {
	for i := range o.views[:o.used] {
		o.views[i] = overlay{}
	}
	o.used = 0
	if cap(o.views) < records { // never moved while a batch holds pointers into it
		o.views = make([]overlay, records)
	}
	o.views = o.views[:cap(o.views)]
}

func (o *overlays) over(v pipeline.View, fields []*wire.Field) pipeline.View {
	out := &o.views[o.used]
	o.used++
	out.View, out.names, out.values = v, make([]string, len(fields)), make([]pipeline.Value, len(fields))
	for i, f := range fields {
		out.names[i] = f.Name
		switch x := f.Value.(type) {
		case *wire.Field_Text:
			out.values[i] = pipeline.Value{Kind: pipeline.KindString, Bytes: []byte(x.Text)}
		case *wire.Field_Integer:
			out.values[i] = pipeline.Value{Kind: pipeline.KindInt, Int: x.Integer}
		case *wire.Field_Number:
			out.values[i] = pipeline.Value{Kind: pipeline.KindFloat, Float: x.Number}
		case *wire.Field_Boolean:
			out.values[i] = pipeline.Value{Kind: pipeline.KindBool}
			if x.Boolean {
				out.values[i].Int = 1
			}
		}
	}
	return out
}

// overlay is a view with more members at its top. What leaves are still the bytes below it.
type overlay struct {
	pipeline.View
	names  []string
	values []pipeline.Value
}

// Get implements pipeline.View.
func (o *overlay) Get(p *pipeline.Path) (pipeline.Value, bool) {
	if len(p.Segs) > 0 {
		for i, n := range o.names {
			if n == p.Segs[0] {
				return o.values[i], len(p.Segs) == 1
			}
		}
	}
	return o.View.Get(p)
}

// Keys implements pipeline.View.
func (o *overlay) Keys(p *pipeline.Path) []string {
	below := o.View.Keys(p)
	if len(p.Segs) > 0 {
		return below
	}
	return append(append(make([]string, 0, len(below)+len(o.names)), below...), o.names...)
}

// AppendJSON implements pipeline.View.
func (o *overlay) AppendJSON(dst []byte) ([]byte, error) {
	from := len(dst)
	dst, err := o.View.AppendJSON(dst)
	if err != nil {
		return dst, err
	}
	end := len(dst)
	for end > from && dst[end-1] != '}' { // an object, possibly with white space behind it
		end--
	}
	if end == from {
		return dst, nil // not an object: it has no members to add to
	}
	out := dst[:end-1]
	empty := true
	for i := end - 2; i > from; i-- {
		if c := dst[i]; c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			empty = false
			break
		}
	}
	for i, n := range o.names {
		if !empty || i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, '"'), n...), '"', ':') // names need no escapes
		switch v := o.values[i]; {
		case v.Kind == pipeline.KindString:
			text, err := json.Marshal(string(v.Bytes))
			if err != nil {
				return dst, err
			}
			out = append(out, text...)
		case v.Kind == pipeline.KindFloat:
			out = strconv.AppendFloat(out, v.Float, 'g', -1, 64)
		default:
			out = v.AppendText(out)
		}
	}
	return append(out, '}'), nil
}
