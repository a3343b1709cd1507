package codec

import (
	"math"
	"strconv"
	"sync/atomic"

	"reprieve.dev/pipeline"
)

// program is what a decoder does with the values of one writer schema.
type program struct {
	schema  *Schema
	refused *pipeline.Failure // the schema cannot be used here
	root    *typ
	limits  Limits
	reader  *resolved // nil: the view shows the writer's own shape
	paths   atomic.Pointer[[]route]
	json    *jsonFormat // JSON Schema
	print   uint64      // single_object
}

// route is how far a path leads over fields whose place the validation has noted.
type route struct {
	path *pipeline.Path
	t    *typ
	at   int // index of the place; -1 is the start of the value
	used int // segments that lead there
	none bool
	leaf bool // it leads to the value itself, with no union on the way
}

// maxRoutes bounds how many paths a program remembers; more are found without.
const maxRoutes = 256

// check validates data from off on and notes where the fields of the root start.
func (p *program) check(s *Scratch, root *typ, data []byte, off int) (offs []uint32, ok bool) {
	r := &s.run
	r.start(data, &p.limits)
	if len(data) > math.MaxInt32 {
		r.limit(pipeline.CodeLimitBytes, 0)
		return nil, false
	}
	offs = s.offs.alloc(len(root.code))
	depth := 0
	if root.op == opRecord {
		depth = 1
		r.cost -= root.cost
		if depth+root.nest > r.depth {
			r.limit(pipeline.CodeLimitDepth, off)
			return nil, false
		}
	}
	if r.cost < 0 {
		r.limit(pipeline.CodeLimitExpansion, off)
		return nil, false
	}
	end := r.prog(root.code, off, depth, offs)
	if end < 0 {
		return nil, false
	}
	if end != len(data) { // INV-WHOLE-RECORD
		r.code, r.at, r.want = pipeline.CodeDecodeLeftover, end, len(data)-end
		return nil, false
	}
	return offs, true
}

// failure turns the reason why a run stopped into a Failure.
func (p *program) failure(r *run) *pipeline.Failure {
	f := &pipeline.Failure{Code: r.code, Params: []pipeline.Param{pipeline.Str("schema", p.schema.ref.String())}}
	switch r.code {
	case pipeline.CodeDecodeTruncated:
		left := len(r.data) - r.at
		f.Params = append(f.Params, pipeline.Int("at", r.at), pipeline.Int("want", r.want), pipeline.Int("left", left))
	case pipeline.CodeDecodeLeftover:
		f.Params = append(f.Params, pipeline.Int("at", r.at), pipeline.Int("left", r.want))
	case pipeline.CodeDecodeInvalid:
		f.Params = append(f.Params, pipeline.Str("what", r.what), pipeline.Int("at", r.at))
		if r.bad != nil && r.bad.place != "" {
			f.Params = append(f.Params, pipeline.Str("field", r.bad.place))
		}
	case pipeline.CodeSchemaMismatch:
		f.Params = append(f.Params, pipeline.Str("field", r.bad.place), pipeline.Str("what", r.what), pipeline.Int("at", r.at))
	case pipeline.CodeDecodePrecision, pipeline.CodeDecodeEnum:
		f.Params = append(f.Params, pipeline.Str("field", r.bad.place), pipeline.Int("at", r.at))
	case pipeline.CodeDecodeDuplicate:
		f.Params = append(f.Params, pipeline.Int("at", r.at))
	case pipeline.CodeLimitDepth:
		f.Params = append(f.Params, pipeline.Int("at", r.at), pipeline.Int("limit", r.depth))
	case pipeline.CodeLimitItems:
		f.Params = append(f.Params, pipeline.Int("at", r.at), pipeline.Int("limit", p.limits.Items))
	case pipeline.CodeLimitExpansion:
		f.Params = append(f.Params, pipeline.Int("at", r.at), pipeline.Int("limit", p.limits.Expansion))
	}
	return f
}

// avroView reads one validated record. data is what the root type describes, from body on; src is the value as it came
// (framing included), which is the same unless a reader schema is in use.
type avroView struct {
	s    *Scratch
	p    *program
	root *typ
	data []byte
	body int
	offs []uint32
	src  []byte
	head int // length of the framing in src
	soff []uint32
	mark []Mark

	notes notes // of src
}

// bind validates src and makes the view read it.
func (v *avroView) bind(s *Scratch, p *program, src []byte, head int) *pipeline.Failure {
	s.edited = edited{}
	s.run.quick, s.run.dull, s.run.notes = s.look.quick, s.look.dull, s.run.notes[:0]
	s.run.sifted = s.look.quick != nil && s.look.quick.Sift(src, &s.run.sieve)
	offs, ok := p.check(s, p.root, src, head)
	s.run.quick = nil
	if !ok {
		return p.failure(&s.run)
	}
	v.notes = s.takeNotes()
	v.s, v.p, v.src, v.head, v.soff = s, p, src, head, offs
	v.root, v.data, v.body, v.offs, v.mark = p.root, src, head, offs, nil
	if p.reader != nil {
		return v.resolve()
	}
	return nil
}

// Schema is the writer schema.
func (v *avroView) Schema() pipeline.SchemaRef { return v.p.schema.ref }

// Rebind makes the view read other bytes of the same schema. Codes: ERR_DECODE_*.
func (v *avroView) Rebind(value []byte) error {
	if len(value) < v.head || string(value[:v.head]) != string(v.src[:v.head]) {
		return pipeline.Errorf(pipeline.CodeDecodeFraming, v.p.schema.ref.String(), "the new value is framed differently")
	}
	if v.moved(value) {
		return nil
	}
	return asError(v.bind(v.s, v.p, value, v.head))
}

// asError makes an error of a failure where an interface wants one.
func asError(f *pipeline.Failure) error {
	if f == nil {
		return nil
	}
	return &pipeline.Error{Code: f.Code, Text: f.Reason(), Cause: f.Cause}
}

// routeOf finds or learns how far p leads.
func (v *avroView) routeOf(p *pipeline.Path) *route {
	var known []route
	list := &v.p.paths
	if ptr := list.Load(); ptr != nil {
		known = *ptr
	}
	for i := range known {
		if known[i].path == p {
			return &known[i]
		}
	}
	r := route{path: p, t: v.root, at: -1}
	slots := v.root.slots
	for r.used < len(p.Segs) && r.t.op == opRecord && (slots != nil || r.at < 0) {
		i, ok := r.t.index[p.Segs[r.used]]
		if !ok {
			r.none = true
			break
		}
		sl := &slots[i]
		r.t, r.at, slots = sl.t, sl.at, sl.subs
		r.used++
		if slots == nil {
			break
		}
	}
	r.leaf = !r.none && r.at >= 0 && r.used == len(p.Segs) && !isUnion(r.t)
	if len(known) < maxRoutes {
		grown := append(known[:len(known):len(known)], r)
		list.Store(&grown) // a racing learner may lose its entry: it is learnt again
	}
	return &r
}

// find walks to p: unions are transparent, an array member is its index, a map member its key.
func (v *avroView) find(p *pipeline.Path) (t *typ, off int, ok bool) {
	r := v.routeOf(p)
	if r.none {
		return nil, 0, false
	}
	t, off = r.t, v.body
	if r.at >= 0 {
		// A record without fields, or of nulls only, may stand behind the last noted place.
		if r.at < len(v.offs) {
			off = int(v.offs[r.at])
		} else {
			off = len(v.data)
		}
	}
	nav := &v.s.nav
	nav.free(v.data)
	for i := r.used; ; i++ {
		for t.op == opUnion || t.op == opOptional {
			b, end := nav.varint(off)
			if end < 0 {
				return nil, 0, false
			}
			t, off = t.branches[b], end
		}
		if i == len(p.Segs) {
			return t, off, true
		}
		seg := p.Segs[i]
		switch t.op {
		case opRecord:
			j, found := t.field(seg)
			if !found {
				return nil, 0, false
			}
			for k := 0; k < j; k++ {
				if off = nav.value(t.fields[k].t, off, 0); off < 0 {
					return nil, 0, false
				}
			}
			t = t.fields[j].t
		case opArray:
			n, err := strconv.ParseUint(seg, 10, 32)
			if err != nil {
				return nil, 0, false
			}
			if off = nav.nth(t, off, int64(n)); off < 0 {
				return nil, 0, false
			}
			t = t.item
		case opMap:
			if off = nav.key(t, off, seg); off < 0 {
				return nil, 0, false
			}
			t = t.item
		default:
			return nil, 0, false
		}
	}
}

// field is the number of the field of that name.
func (t *typ) field(name string) (int, bool) {
	if len(t.names) <= 12 {
		for i, n := range t.names {
			if n == name {
				return i, true
			}
		}
		return 0, false
	}
	i, ok := t.index[name]
	return i, ok
}

// nth returns where item n of the array at off starts, or -1.
func (r *run) nth(t *typ, off int, n int64) int {
	for {
		count, size, body := r.block(off)
		if body < 0 || count == 0 {
			return -1
		}
		if n >= count && (size >= 0 || t.item.min == 0) {
			off = body
			if size > 0 {
				off += int(size)
			}
			n -= count
			continue
		}
		off = body
		for ; count > 0; count, n = count-1, n-1 {
			if n == 0 {
				return off
			}
			if off = r.value(t.item, off, 0); off < 0 {
				return -1
			}
		}
	}
}

// key returns where the value of that key starts, or -1.
func (r *run) key(t *typ, off int, key string) int {
	for {
		count, _, body := r.block(off)
		if body < 0 || count == 0 {
			return -1
		}
		off = body
		for ; count > 0; count-- {
			n, start := r.length(off)
			if start < 0 {
				return -1
			}
			off = start + n
			if string(r.data[start:off]) == key {
				return off
			}
			if off = r.value(t.item, off, 0); off < 0 {
				return -1
			}
		}
	}
}

// count is the number of items of the array or map at off.
func (r *run) count(t *typ, off int) (total int64) {
	for {
		count, size, body := r.block(off)
		if body < 0 || count == 0 {
			return total
		}
		total += count
		off = body
		switch {
		case size >= 0:
			off += int(size)
		case t.op == opArray && t.item.min == 0:
		default:
			if off = r.itemsOf(t, off, count, 0); off < 0 {
				return total
			}
		}
	}
}

// Get finds a value. False: no such member, or null on the way.
func (v *avroView) Get(p *pipeline.Path) (pipeline.Value, bool) {
	if r := v.routeOf(p); r.leaf && r.at < len(v.offs) { // most paths: its place was noted
		return v.s.value(v.data, r.t, int(v.offs[r.at])), true
	}
	t, off, ok := v.find(p)
	if !ok {
		return pipeline.Value{}, false
	}
	return v.s.value(v.data, t, off), true
}

// Keys are the member names of the record or map at p, in document order.
func (v *avroView) Keys(p *pipeline.Path) []string {
	t, off, ok := v.find(p)
	if !ok {
		return nil
	}
	if t.op == opRecord {
		return t.names
	}
	if t.op != opMap {
		return nil
	}
	var keys []string
	nav := &v.s.nav
	for {
		count, _, body := nav.block(off)
		if body < 0 || count == 0 {
			return keys
		}
		off = body
		for ; count > 0; count-- {
			n, start := nav.length(off)
			keys = append(keys, string(v.data[start:start+n]))
			off = nav.value(t.item, start+n, 0)
		}
	}
}

// value is the leaf of type t at off. The bytes were validated.
func (s *Scratch) value(data []byte, t *typ, off int) pipeline.Value {
	r := &s.nav
	r.free(data)
	switch t.op {
	case opBool:
		return pipeline.Value{Kind: pipeline.KindBool, Int: int64(data[off])}
	case opInt, opLong:
		n, _ := r.varint(off)
		switch t.logical {
		case logicalDate:
			return pipeline.Value{Kind: pipeline.KindTimestamp, Int: n * 86400, Scale: 1}
		case logicalTimestamp, logicalLocalTimestamp:
			return pipeline.Value{Kind: pipeline.KindTimestamp, Int: n, Scale: t.units}
		}
		return pipeline.Value{Kind: pipeline.KindInt, Int: n}
	case opFloat:
		return pipeline.Value{Kind: pipeline.KindFloat, Float: float64(float32At(data, off))}
	case opDouble:
		return pipeline.Value{Kind: pipeline.KindFloat, Float: float64At(data, off)}
	case opString:
		n, start := r.length(off)
		return pipeline.Value{Kind: pipeline.KindString, Bytes: data[start : start+n : start+n]}
	case opBytes:
		n, start := r.length(off)
		return pipeline.Value{Kind: pipeline.KindBytes, Bytes: data[start : start+n : start+n]}
	case opFixed:
		b := data[off : off+t.size : off+t.size]
		if t.logical == logicalUUID {
			text := s.text.alloc(36)
			return pipeline.Value{Kind: pipeline.KindString, Bytes: appendUUID(text[:0], b)}
		}
		return pipeline.Value{Kind: pipeline.KindBytes, Bytes: b}
	case opEnum:
		n, _ := r.varint(off)
		return pipeline.Value{Kind: pipeline.KindEnum, Bytes: readOnly(t.symbols[n])}
	case opDecimal:
		n, start := r.length(off)
		return pipeline.Value{Kind: pipeline.KindDecimal, Bytes: data[start : start+n : start+n], Int: int64(t.scale)}
	case opDecimalFixed:
		return pipeline.Value{Kind: pipeline.KindDecimal, Bytes: data[off : off+t.size : off+t.size], Int: int64(t.scale)}
	case opArray:
		return pipeline.Value{Kind: pipeline.KindArray, Int: r.count(t, off)}
	case opMap:
		return pipeline.Value{Kind: pipeline.KindMap, Int: r.count(t, off)}
	case opRecord:
		return pipeline.Value{Kind: pipeline.KindRecord, Int: int64(len(t.fields))}
	case opOptional, opUnion:
		b, end := r.varint(off)
		return s.value(data, t.branches[b], end)
	}
	return pipeline.Value{}
}

// kind is the kind of the values of t; a union has none of its own.
func (t *typ) kind() pipeline.ValueKind {
	switch t.op {
	case opBool:
		return pipeline.KindBool
	case opInt, opLong:
		if t.logical == logicalDate || t.logical == logicalTimestamp || t.logical == logicalLocalTimestamp {
			return pipeline.KindTimestamp
		}
		return pipeline.KindInt
	case opFloat, opDouble:
		return pipeline.KindFloat
	case opString:
		return pipeline.KindString
	case opBytes:
		return pipeline.KindBytes
	case opFixed:
		if t.logical == logicalUUID {
			return pipeline.KindString
		}
		return pipeline.KindBytes
	case opEnum:
		return pipeline.KindEnum
	case opDecimal, opDecimalFixed:
		return pipeline.KindDecimal
	case opArray:
		return pipeline.KindArray
	case opMap:
		return pipeline.KindMap
	case opRecord:
		return pipeline.KindRecord
	}
	return pipeline.KindNull
}
