package codec

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/hamba/avro/v2"

	"reprieve.dev/pipeline"
)

// EncodeAvro encodes plain JSON, as AppendJSON writes it, in s and frames it with the id (or GUID) of s. Nothing is rounded
// or dropped: a number that its type cannot hold, a decimal with digits beyond its scale or precision, a member that the
// schema does not know and a field without value and default are errors. A union takes the branch that fits the value best,
// or the one that is named as in Avro's own JSON: {"string": "x"}. What was written is decoded once more before it is
// returned. Codes: ERR_ROUTE_ENCODE (place is the JSON pointer), ERR_DECODE_JSON.
func EncodeAvro(s *Schema, jsonText []byte) ([]byte, error) {
	if s.root == nil {
		return nil, pipeline.Errorf(pipeline.CodeRouteEncode, s.ref.String(), "not an avro schema")
	}
	body, err := encodeBody(s.root, jsonText)
	if err != nil {
		return nil, err
	}
	var out []byte
	if s.ref.ID == 0 && s.ref.GUID != "" {
		g, _ := parseGUID(s.ref.GUID)
		out = append(append([]byte{1}, g[:]...), body...)
	} else {
		out = Frame(s.ref.ID, body)
	}
	p := &program{schema: s, root: s.root, limits: Limits{Bytes: 1 << 40, Items: 1 << 40, Expansion: 1 << 40}.withDefaults()}
	scratch := NewScratch()
	if _, ok := p.check(scratch, s.root, out, len(out)-len(body)); !ok {
		f := p.failure(&scratch.run)
		return nil, pipeline.Errorf(pipeline.CodeRouteEncode, s.ref.String(), "what was encoded does not decode: %s", f.Reason())
	}
	return out, nil
}

// encodeBody encodes plain JSON as a value of t.
func encodeBody(t *typ, jsonText []byte) ([]byte, error) {
	e := encoder{w: avro.NewWriter(nil, 1024)}
	if err := e.document(t, jsonText, ""); err != nil {
		return nil, err
	}
	return append([]byte(nil), e.w.Buffer()...), nil
}

// encoder walks a document and a type together; the library's writer puts down the values.
type encoder struct {
	w     *avro.Writer
	buf   []byte
	looks int
	raw   bool // a default: bytes stand for themselves, whatever the logical type makes of them
}

// document encodes a whole JSON text.
func (e *encoder) document(t *typ, text []byte, path string) error {
	l := Limits{Items: 1 << 40}.withDefaults()
	v := jsonView{s: NewScratch(), src: text}
	p := &v.s.scan
	if !p.document(text, 0, &l) {
		return asError(p.failure(pipeline.SchemaRef{Format: FormatJSON}, &l))
	}
	v.nodes = p.nodes
	return e.value(t, &v, 0, path)
}

func encodeError(path, format string, args ...any) error {
	if path == "" {
		path = "/"
	}
	return &pipeline.Error{Code: pipeline.CodeRouteEncode, Place: path, Text: fmt.Sprintf(format, args...)}
}

func (e *encoder) value(t *typ, v *jsonView, i uint32, path string) error {
	n := &v.nodes[i]
	switch t.op {
	case opNull:
		if n.kind != jsonNull {
			return encodeError(path, "the schema wants null")
		}
		return nil
	case opOptional, opUnion:
		return e.union(t, v, i, path)
	case opRecord:
		return e.record(t, v, i, path)
	case opArray:
		return e.items(t, v, i, path, jsonArray)
	case opMap:
		return e.items(t, v, i, path, jsonObject)
	}
	if e.raw && t.bytes() {
		return e.rawBytes(t, v, i, path)
	}
	text, ok := leafText(t, v, i)
	if !ok {
		return encodeError(path, "the schema wants %s", t.want())
	}
	out, ok := encodeLeaf(e.buf[:0], t, text)
	e.buf = out
	if !ok {
		if t.op == opDecimal || t.op == opDecimalFixed {
			_, what := decimalOf(string(text), t)
			switch what {
			case "scale":
				return encodeError(path, "the decimal has more digits behind the point than its scale, %d; it is not rounded", t.scale)
			case "precision", "":
				return encodeError(path, "the decimal has more digits than its precision, %d", t.precision)
			}
		}
		return encodeError(path, "the value does not fit %s", t.want())
	}
	e.put(t, out)
	return nil
}

// bytes tells whether values of t are bytes on the wire.
func (t *typ) bytes() bool {
	return t.op == opBytes || t.op == opFixed || t.op == opDecimal || t.op == opDecimalFixed
}

// rawBytes encodes a default of bytes or fixed: its code points are the bytes.
func (e *encoder) rawBytes(t *typ, v *jsonView, i uint32, path string) error {
	b, ok := latin1(v.value(i).Bytes)
	fixed := t.op == opFixed || t.op == opDecimalFixed
	if v.nodes[i].kind != jsonString || !ok || fixed && len(b) != t.size || t.limit != nil && (len(b) == 0 || !fits(b, t)) {
		return encodeError(path, "the default does not fit %s", t.want())
	}
	if fixed {
		_, _ = e.w.Write(b)
	} else {
		e.w.WriteBytes(b)
	}
	return nil
}

// put writes an encoded leaf through the library's writer.
func (e *encoder) put(t *typ, out []byte) {
	switch t.op {
	case opInt, opEnum:
		n, _ := binary.Varint(out)
		e.w.WriteInt(int32(n))
	case opLong:
		n, _ := binary.Varint(out)
		e.w.WriteLong(n)
	case opString, opBytes, opDecimal:
		_, n := binary.Varint(out)
		e.w.WriteBytes(out[n:])
	case opBool:
		e.w.WriteBool(out[0] == 1)
	case opFloat:
		e.w.WriteFloat(float32At(out, 0))
	case opDouble:
		e.w.WriteDouble(float64At(out, 0))
	default:
		_, _ = e.w.Write(out)
	}
}

// want is the type for messages.
func (t *typ) want() string {
	if t.name != "" {
		return opNames[t.op] + " " + t.name
	}
	return opNames[t.op]
}

// leafText is the text of a scalar for encodeLeaf: bytes and fixed come as code points. False: the JSON kind is wrong.
func leafText(t *typ, v *jsonView, i uint32) ([]byte, bool) {
	value := v.value(i)
	text := value.Bytes
	n := &v.nodes[i]
	switch t.op {
	case opBool:
		if n.kind == jsonTrue || n.kind == jsonFalse {
			return v.src[n.start:n.end], true
		}
	case opInt, opLong:
		if n.kind == jsonNumber || n.kind == jsonString && t.logical != logicalNone {
			return text, true
		}
	case opFloat, opDouble:
		if n.kind == jsonNumber {
			return text, true
		}
		s := string(text)
		return text, n.kind == jsonString && (s == "NaN" || s == "Infinity" || s == "-Infinity")
	case opDecimal, opDecimalFixed:
		return text, n.kind == jsonNumber || n.kind == jsonString
	case opString, opEnum:
		return text, n.kind == jsonString
	case opBytes, opFixed:
		if n.kind == jsonObject && t.logical == logicalDuration {
			return durationBytes(v, i)
		}
		if n.kind != jsonString {
			return nil, false
		}
		if t.logical == logicalUUID {
			return text, true
		}
		return latin1(text)
	}
	return nil, false
}

// latin1 turns code points 0 to 255 into bytes.
func latin1(text []byte) ([]byte, bool) {
	out := make([]byte, 0, len(text))
	for _, r := range string(text) {
		if r > 0xff {
			return nil, false
		}
		out = append(out, byte(r))
	}
	return out, true
}

func durationBytes(v *jsonView, i uint32) ([]byte, bool) {
	var out []byte
	for _, name := range [...]string{"months", "days", "millis"} {
		m, ok := v.member(i, name)
		if !ok || v.nodes[m].kind != jsonNumber {
			return nil, false
		}
		n, err := strconv.ParseUint(string(v.value(m).Bytes), 10, 32)
		if err != nil {
			return nil, false
		}
		out = binary.LittleEndian.AppendUint32(out, uint32(n))
	}
	return out, v.nodes[i].count == 3
}

func (e *encoder) record(t *typ, v *jsonView, i uint32, path string) error {
	n := &v.nodes[i]
	if n.kind != jsonObject {
		return encodeError(path, "the schema wants %s", t.want())
	}
	for c := i + 1; c < n.next; c = v.nodes[c].next {
		if name := string(v.name(c)); !t.has(name) {
			return encodeError(path+"/"+escapeSeg(name), "the schema has no such field")
		}
	}
	for k := range t.fields {
		f := &t.fields[k]
		at := path + "/" + escapeSeg(f.name)
		m, ok := v.member(i, f.name)
		switch {
		case ok:
			if err := e.value(f.t, v, m, at); err != nil {
				return err
			}
		case f.def != nil:
			if err := e.fallback(f.t, *f.def, at); err != nil {
				return err
			}
		default:
			return encodeError(at, "the field is missing and has no default")
		}
	}
	return nil
}

// fallback encodes a default: of a union it is a value of the branch that it fits, by the specification the first one.
func (e *encoder) fallback(t *typ, text, path string) error {
	was := e.raw
	e.raw = true
	err := e.document(t, []byte(text), path)
	e.raw = was
	return err
}

// encodeDefault encodes the JSON text of a default as a value of t.
func encodeDefault(t *typ, text string) ([]byte, error) {
	e := encoder{w: avro.NewWriter(nil, 64)}
	if err := e.fallback(t, text, ""); err != nil {
		return nil, err
	}
	return append([]byte(nil), e.w.Buffer()...), nil
}

func (t *typ) has(name string) bool {
	_, ok := t.index[name]
	return ok
}

func (e *encoder) items(t *typ, v *jsonView, i uint32, path string, kind jsonKind) error {
	n := &v.nodes[i]
	if n.kind != kind {
		return encodeError(path, "the schema wants %s", t.want())
	}
	if n.count > 0 {
		e.w.WriteLong(int64(n.count))
	}
	k := 0
	for c := i + 1; c < n.next; c = v.nodes[c].next {
		at := path + "/" + strconv.Itoa(k)
		if kind == jsonObject {
			name := string(v.name(c))
			e.w.WriteString(name)
			at = path + "/" + escapeSeg(name)
		}
		if err := e.value(t.item, v, c, at); err != nil {
			return err
		}
		k++
	}
	e.w.WriteLong(0)
	return nil
}

// union writes the branch that fits best: one of the value's own kind before one that reads it as something else.
func (e *encoder) union(t *typ, v *jsonView, i uint32, path string) error {
	best, rank := -1, 9
	for k, b := range t.branches {
		r := e.fit(b, v, i)
		if e.raw && b.bytes() && v.nodes[i].kind == jsonString {
			r = 2
		}
		if r < rank {
			best, rank = k, r
		}
	}
	if best >= 0 {
		e.w.WriteLong(int64(best))
		return e.value(t.branches[best], v, i, path)
	}
	if n := &v.nodes[i]; n.kind == jsonObject && n.count == 1 {
		name := string(v.name(i + 1))
		for k, b := range t.branches {
			if b.name == name || b.name == "" && opNames[b.wire()] == name {
				e.w.WriteLong(int64(k))
				return e.value(b, v, i+1, path)
			}
		}
	}
	return encodeError(path, "the value fits no branch of the union")
}

// wire is the op without what a logical type adds.
func (t *typ) wire() op {
	if t.op == opDecimal {
		return opBytes
	}
	return t.op
}

// fit tells how well t takes a value, down to its leaves: 0 is its own kind, 9 not at all.
func (e *encoder) fit(t *typ, v *jsonView, i uint32) (worst int) {
	n := &v.nodes[i]
	if e.looks++; e.looks > maxLooks { // alternatives inside alternatives: from here on the kind decides
		return 0
	}
	switch t.op {
	case opNull:
		return when(n.kind == jsonNull, 0)
	case opOptional, opUnion:
		best := 9
		for _, b := range t.branches {
			best = min(best, e.fit(b, v, i))
		}
		return best
	case opRecord:
		return e.fitRecord(t, v, i)
	case opArray, opMap:
		if n.kind != jsonArray && t.op == opArray || n.kind != jsonObject && t.op == opMap {
			return 9
		}
		if t.op == opMap {
			worst = 1
		}
		for c := i + 1; c < n.next && worst < 9; c = v.nodes[c].next {
			worst = max(worst, e.fit(t.item, v, c))
		}
		return worst
	}
	text, ok := leafText(t, v, i)
	if !ok {
		return 9
	}
	if _, ok := encodeLeaf(nil, t, text); !ok {
		return 9
	}
	whole := n.kind == jsonNumber
	for _, c := range text {
		whole = whole && c != '.' && c != 'e' && c != 'E'
	}
	switch t.op {
	case opBool, opEnum:
		return 0
	case opString:
		return when(t.logical == logicalNone || len(text) == 36, 1)
	case opInt, opLong:
		if n.kind == jsonString {
			return 2
		}
		return 0
	case opFloat, opDouble:
		if whole {
			return 3
		}
		if t.op == opFloat { // a double holds more
			return 1
		}
		return 0
	case opDecimal, opDecimalFixed:
		if n.kind == jsonNumber && !whole {
			return 2
		}
		return 4
	}
	return 5
}

func (e *encoder) fitRecord(t *typ, v *jsonView, i uint32) (worst int) {
	n := &v.nodes[i]
	if n.kind != jsonObject {
		return 9
	}
	for c := i + 1; c < n.next; c = v.nodes[c].next {
		if !t.has(string(v.name(c))) {
			return 9
		}
	}
	for k := range t.fields {
		f := &t.fields[k]
		m, ok := v.member(i, f.name)
		switch {
		case ok:
			worst = max(worst, e.fit(f.t, v, m))
		case f.def == nil:
			return 9
		}
		if worst == 9 {
			break
		}
	}
	return worst
}

// maxLooks bounds the search for the branches that fit.
const maxLooks = 1_000_000

func when(ok bool, rank int) int {
	if ok {
		return rank
	}
	return 9
}
