package codec

import (
	"strconv"

	"reprieve.dev/pipeline"
)

// jsonView reads one validated JSON document.
type jsonView struct {
	s     *Scratch
	f     *jsonFormat
	ref   pipeline.SchemaRef
	src   []byte
	head  int // length of the framing
	nodes []jsonNode
}

// jsonFormat is what a decoder does with JSON values: with a schema or without.
type jsonFormat struct {
	limits Limits
	schema *Schema // nil: none
}

// bind validates src and makes the view read it.
func (v *jsonView) bind(s *Scratch, f *jsonFormat, ref pipeline.SchemaRef, src []byte, head int) *pipeline.Failure {
	p := &s.scan
	if !p.document(src, head, &f.limits) {
		return p.failure(ref, &f.limits)
	}
	nodes := s.nodes.alloc(len(p.nodes))
	copy(nodes, p.nodes)
	v.s, v.f, v.ref, v.src, v.head, v.nodes = s, f, ref, src, head, nodes
	if f.schema != nil {
		return f.schema.validateJSON(src[head:])
	}
	return nil
}

func (p *jsonScan) failure(ref pipeline.SchemaRef, l *Limits) *pipeline.Failure {
	f := &pipeline.Failure{Code: p.code}
	switch p.code {
	case pipeline.CodeDecodeJSON:
		f.Params = []pipeline.Param{pipeline.Str("what", p.what), pipeline.Int("at", p.at)}
	case pipeline.CodeDecodeLeftover:
		f.Params = []pipeline.Param{pipeline.Str("schema", ref.String()), pipeline.Int("at", p.at), pipeline.Int("left", len(p.data)-p.at)}
	case pipeline.CodeLimitDepth:
		f.Params = []pipeline.Param{pipeline.Int("at", p.at), pipeline.Int("limit", l.Depth)}
	case pipeline.CodeLimitItems:
		f.Params = []pipeline.Param{pipeline.Int("at", p.at), pipeline.Int("limit", l.Items)}
	default:
		f.Params = []pipeline.Param{pipeline.Int("at", p.at)}
	}
	return f
}

// Schema is the schema that the record was written with, or the bare format.
func (v *jsonView) Schema() pipeline.SchemaRef { return v.ref }

// Rebind makes the view read other bytes of the same format. Codes: ERR_DECODE_*, ERR_SCHEMA_MISMATCH.
func (v *jsonView) Rebind(value []byte) error {
	if len(value) < v.head || string(value[:v.head]) != string(v.src[:v.head]) {
		return pipeline.Errorf(pipeline.CodeDecodeFraming, v.ref.String(), "the new value is framed differently")
	}
	return asError(v.bind(v.s, v.f, v.ref, value, v.head))
}

// AppendJSON appends the document as it came, without the white space around it.
func (v *jsonView) AppendJSON(dst []byte) ([]byte, error) {
	n := &v.nodes[0]
	return append(dst, v.src[n.start:n.end]...), nil
}

func (v *jsonView) find(p *pipeline.Path) (uint32, bool) {
	at := uint32(0)
	for _, seg := range p.Segs {
		n := &v.nodes[at]
		switch n.kind {
		case jsonObject:
			child, ok := v.member(at, seg)
			if !ok {
				return 0, false
			}
			at = child
		case jsonArray:
			i, err := strconv.ParseUint(seg, 10, 32)
			if err != nil || i >= uint64(n.count) {
				return 0, false
			}
			for at++; i > 0; i-- {
				at = v.nodes[at].next
			}
		default:
			return 0, false
		}
	}
	return at, true
}

func (v *jsonView) member(at uint32, name string) (uint32, bool) {
	end := v.nodes[at].next
	for i := at + 1; i < end; i = v.nodes[i].next {
		n := &v.nodes[i]
		if !n.nameEsc {
			if int(n.nameEnd-n.name) == len(name) && string(v.src[n.name:n.nameEnd]) == name {
				return i, true
			}
			continue
		}
		p := &v.s.scan
		if p.a = unescape(p.a[:0], v.src[n.name:n.nameEnd]); string(p.a) == name {
			return i, true
		}
	}
	return 0, false
}

// Get finds a value. False: no such member, or null on the way.
func (v *jsonView) Get(p *pipeline.Path) (pipeline.Value, bool) {
	at, ok := v.find(p)
	if !ok {
		return pipeline.Value{}, false
	}
	return v.value(at), true
}

// value is the value of a node. Unescaped text lives in the scratch.
func (v *jsonView) value(at uint32) pipeline.Value {
	n := &v.nodes[at]
	text := v.src[n.start:n.end:n.end]
	switch n.kind {
	case jsonFalse:
		return pipeline.Value{Kind: pipeline.KindBool}
	case jsonTrue:
		return pipeline.Value{Kind: pipeline.KindBool, Int: 1}
	case jsonNumber:
		return pipeline.Value{Kind: pipeline.KindNumber, Bytes: text}
	case jsonString:
		text = text[1 : len(text)-1 : len(text)-1]
		if n.escaped {
			p := &v.s.scan
			p.a = unescape(p.a[:0], text)
			text = v.s.keepText(p.a)
		}
		return pipeline.Value{Kind: pipeline.KindString, Bytes: text}
	case jsonArray:
		return pipeline.Value{Kind: pipeline.KindArray, Int: int64(n.count)}
	case jsonObject:
		return pipeline.Value{Kind: pipeline.KindMap, Int: int64(n.count)}
	}
	return pipeline.Value{}
}

// Keys are the member names of the object at p, in document order.
func (v *jsonView) Keys(p *pipeline.Path) []string {
	at, ok := v.find(p)
	if !ok || v.nodes[at].kind != jsonObject {
		return nil
	}
	keys := make([]string, 0, v.nodes[at].count)
	end := v.nodes[at].next
	for i := at + 1; i < end; i = v.nodes[i].next {
		keys = append(keys, string(v.name(i)))
	}
	return keys
}

// name is the member name of a node; valid until the next one is asked for.
func (v *jsonView) name(i uint32) []byte {
	n := &v.nodes[i]
	b := v.src[n.name:n.nameEnd]
	if n.nameEsc {
		p := &v.s.scan
		p.a = unescape(p.a[:0], b)
		b = p.a
	}
	return b
}
