package codec

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"reprieve.dev/pipeline"
)

// protoView reads one validated Protobuf message from its wire form.
type protoView struct {
	s    *Scratch
	p    *program
	cfg  DecodeConfig
	md   protoreflect.MessageDescriptor
	src  []byte
	head int // framing and message indexes
	side []byte
}

// protoRun validates a message: known fields have their wire type, strings are UTF-8, nothing is cut, depth and items are
// bounded, required fields are there. Unknown fields are allowed, as Protobuf demands, and kept.
type protoRun struct {
	l     Limits
	items int64
	fail  pipeline.Failure
}

// bind validates src and makes the view read it. side holds message indexes that came in a header.
func (v *protoView) bind(s *Scratch, p *program, cfg DecodeConfig, src []byte, head int, side []byte) *pipeline.Failure {
	v.s, v.p, v.cfg, v.src, v.head, v.side = s, p, cfg, src, head, side
	plain := cfg.Indexes == "plain"
	switch {
	case cfg.Framing == FramingNone:
		v.md = p.schema.messageNamed(cfg.Message)
	case head == 0: // the id came in a header, the indexes with it
		if len(side) == 0 {
			side = []byte{0}
		}
		indexes, n, f := parseIndexes(side, plain)
		if f == nil && n != len(side) {
			f = frameFailure("schema id header", n)
		}
		if f != nil {
			return f
		}
		v.md = p.schema.messageAt(indexes)
	default:
		indexes, n, f := parseIndexes(src[head:], plain)
		if f != nil {
			return f
		}
		v.head += n
		v.md = p.schema.messageAt(indexes)
	}
	if v.md == nil {
		return frameFailure("message indexes", head)
	}
	r := protoRun{l: p.limits, items: p.limits.Items}
	if !r.message(v.md, src[v.head:], v.head, 1) {
		r.fail.Params = append([]pipeline.Param{pipeline.Str("schema", p.schema.ref.String())}, r.fail.Params...)
		return &r.fail
	}
	return nil
}

func (r *protoRun) bad(code pipeline.Code, at int, params ...pipeline.Param) bool {
	r.fail = pipeline.Failure{Code: code, Params: append(params, pipeline.Int("at", at))}
	return false
}

func wireType(f protoreflect.FieldDescriptor) protowire.Type {
	switch f.Kind() {
	case protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind, protoreflect.FloatKind:
		return protowire.Fixed32Type
	case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind, protoreflect.DoubleKind:
		return protowire.Fixed64Type
	case protoreflect.StringKind, protoreflect.BytesKind, protoreflect.MessageKind:
		return protowire.BytesType
	case protoreflect.GroupKind:
		return protowire.StartGroupType
	}
	return protowire.VarintType
}

func packable(f protoreflect.FieldDescriptor) bool {
	t := wireType(f)
	return f.IsList() && t != protowire.BytesType && t != protowire.StartGroupType
}

func (r *protoRun) message(md protoreflect.MessageDescriptor, b []byte, base, depth int) bool {
	if int64(depth) > r.l.Depth {
		return r.bad(pipeline.CodeLimitDepth, base, pipeline.Int("limit", r.l.Depth))
	}
	var seen map[protowire.Number]bool
	if md.RequiredNumbers().Len() > 0 {
		seen = map[protowire.Number]bool{}
	}
	for off := 0; off < len(b); {
		if r.items--; r.items < 0 {
			return r.bad(pipeline.CodeLimitItems, base+off, pipeline.Int("limit", r.l.Items))
		}
		num, typ, n := protowire.ConsumeTag(b[off:])
		if n < 0 {
			return r.wire(n, base+off, len(b)-off)
		}
		size := protowire.ConsumeFieldValue(num, typ, b[off+n:])
		if size < 0 {
			return r.wire(size, base+off+n, len(b)-off-n)
		}
		value := b[off+n : off+n+size]
		if f := md.Fields().ByNumber(num); f != nil {
			if seen != nil {
				seen[num] = true
			}
			if !r.field(f, typ, num, value, base+off+n, depth) {
				return false
			}
		}
		off += n + size
	}
	for i := range md.RequiredNumbers().Len() {
		if num := md.RequiredNumbers().Get(i); !seen[num] {
			return r.bad(pipeline.CodeSchemaMismatch, base, pipeline.Str("field", string(md.Fields().ByNumber(num).FullName())), pipeline.Str("what", "required"))
		}
	}
	return true
}

func (r *protoRun) wire(n, at, left int) bool {
	if err := protowire.ParseError(n); err != nil && err.Error() == protowire.ParseError(-1).Error() {
		return r.bad(pipeline.CodeDecodeTruncated, at, pipeline.Int("left", left))
	}
	return r.bad(pipeline.CodeDecodeInvalid, at, pipeline.Str("what", "wire format"))
}

func (r *protoRun) field(f protoreflect.FieldDescriptor, typ protowire.Type, num protowire.Number, value []byte, at, depth int) bool {
	want := wireType(f)
	if typ != want {
		if typ != protowire.BytesType || !packable(f) {
			return r.bad(pipeline.CodeDecodeInvalid, at, pipeline.Str("what", "wire type"), pipeline.Str("field", string(f.FullName())))
		}
		body, _ := protowire.ConsumeBytes(value)
		for off := 0; off < len(body); {
			if r.items--; r.items < 0 {
				return r.bad(pipeline.CodeLimitItems, at, pipeline.Int("limit", r.l.Items))
			}
			n := protowire.ConsumeFieldValue(num, want, body[off:])
			if n < 0 {
				return r.wire(n, at+off, len(body)-off)
			}
			off += n
		}
		return true
	}
	switch f.Kind() {
	case protoreflect.StringKind:
		s, n := protowire.ConsumeBytes(value)
		if !utf8.Valid(s) {
			return r.bad(pipeline.CodeDecodeInvalid, at+n-len(s), pipeline.Str("what", "UTF-8"), pipeline.Str("field", string(f.FullName())))
		}
	case protoreflect.MessageKind:
		m, n := protowire.ConsumeBytes(value)
		return r.message(f.Message(), m, at+n-len(m), depth+1)
	case protoreflect.GroupKind:
		m, _ := protowire.ConsumeGroup(num, value)
		return r.message(f.Message(), m, at, depth+1)
	}
	return true
}

// Schema is the writer schema.
func (v *protoView) Schema() pipeline.SchemaRef { return v.p.schema.ref }

// Rebind makes the view read other bytes of the same schema. Codes: ERR_DECODE_*.
func (v *protoView) Rebind(value []byte) error {
	if len(value) < v.head || string(value[:v.head]) != string(v.src[:v.head]) {
		return pipeline.Errorf(pipeline.CodeDecodeFraming, v.p.schema.ref.String(), "the new value is framed differently")
	}
	frame := v.head
	if frame > 0 && v.cfg.Framing != FramingNone {
		_, n, _ := parsePrefix(value)
		frame = n
	}
	return asError(v.bind(v.s, v.p, v.cfg, value, frame, v.side))
}

// AppendJSON appends the message as Protobuf's own JSON with the field names of the schema: 64-bit numbers as text, enums
// as names, bytes as base64, times as RFC 3339. Codes: ERR_DECODE_INVALID for a value that this form cannot say.
func (v *protoView) AppendJSON(dst []byte) ([]byte, error) {
	m := dynamicpb.NewMessage(v.md)
	if err := (proto.UnmarshalOptions{AllowPartial: true, RecursionLimit: int(v.p.limits.Depth) + 1}).Unmarshal(v.src[v.head:], m); err != nil {
		return dst, pipeline.Errorf(pipeline.CodeDecodeInvalid, v.p.schema.ref.String(), "the message does not decode: %w", err)
	}
	b, err := protojson.MarshalOptions{UseProtoNames: true, AllowPartial: true}.Marshal(m)
	if err != nil {
		return dst, pipeline.Errorf(pipeline.CodeDecodeInvalid, v.p.schema.ref.String(), "the message has no JSON form: %w", err)
	}
	buf := bytes.NewBuffer(dst)
	err = json.Compact(buf, b) // the library varies its white space on purpose
	return buf.Bytes(), err
}

// protoAt is a place on the wire.
type protoAt struct {
	f     protoreflect.FieldDescriptor // nil: the message md
	md    protoreflect.MessageDescriptor
	body  []byte // of a message or map: its fields; of a scalar: its wire value
	items int    // of a list or map
	list  bool
}

func (v *protoView) find(p *pipeline.Path) (protoAt, bool) {
	at := protoAt{md: v.md, body: v.src[v.head:]}
	for i := 0; i < len(p.Segs); i++ {
		if at.md == nil {
			return at, false
		}
		f := protoField(at.md, p.Segs[i])
		if f == nil {
			return at, false
		}
		all := values(at.body, f)
		switch {
		case f.IsList(), f.IsMap():
			if i+1 == len(p.Segs) {
				return protoAt{f: f, body: at.body, items: len(all), list: true}, true
			}
			i++
			item := pick(f, all, p.Segs[i])
			if item == nil {
				return at, false
			}
			if f.IsMap() {
				f = f.MapValue()
				one := values(item, f)
				if len(one) == 0 {
					at = protoAt{f: f}
					break
				}
				item = one[len(one)-1]
			}
			at = protoAt{f: f, body: item}
		case len(all) == 0:
			if f.HasPresence() || i+1 < len(p.Segs) {
				return at, false
			}
			return protoAt{f: f}, true
		default:
			at = protoAt{f: f, body: all[len(all)-1]}
		}
		if at.f.Message() != nil {
			at.md = at.f.Message()
		}
	}
	return at, true
}

func protoField(md protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if f := md.Fields().ByName(protoreflect.Name(name)); f != nil {
		return f
	}
	return md.Fields().ByJSONName(name)
}

// values are the wire values of each occurrence of f: message bodies and bytes without their length, packed numbers apart.
func values(b []byte, f protoreflect.FieldDescriptor) (out [][]byte) {
	want := wireType(f)
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		size := protowire.ConsumeFieldValue(num, typ, b[n:])
		value := b[n : n+size]
		b = b[n+size:]
		if num != f.Number() {
			continue
		}
		switch {
		case typ != want: // packed
			body, _ := protowire.ConsumeBytes(value)
			for len(body) > 0 {
				k := protowire.ConsumeFieldValue(num, want, body)
				out, body = append(out, body[:k:k]), body[k:]
			}
		case typ == protowire.BytesType:
			body, _ := protowire.ConsumeBytes(value)
			out = append(out, body)
		case typ == protowire.StartGroupType:
			body, _ := protowire.ConsumeGroup(num, value)
			out = append(out, body)
		default:
			out = append(out, value)
		}
	}
	return out
}

// pick finds an item of a list by its index or an entry of a map by its key.
func pick(f protoreflect.FieldDescriptor, all [][]byte, seg string) []byte {
	if f.IsList() {
		n, err := strconv.ParseUint(seg, 10, 31)
		if err != nil || int(n) >= len(all) {
			return nil
		}
		return all[n]
	}
	for i := len(all) - 1; i >= 0; i-- {
		if mapKey(f, all[i]) == seg {
			return all[i]
		}
	}
	return nil
}

// mapKey is the key of a map entry as text.
func mapKey(f protoreflect.FieldDescriptor, entry []byte) string {
	k := f.MapKey()
	var body []byte
	if all := values(entry, k); len(all) > 0 {
		body = all[len(all)-1]
	}
	x := scalar(k, body)
	return string(x.AppendText(nil))
}

// Get finds a value by the names of the schema or their JSON forms. A field without presence that is not on the wire has
// its zero value. False: no such field, or not set.
func (v *protoView) Get(p *pipeline.Path) (pipeline.Value, bool) {
	at, ok := v.find(p)
	if !ok {
		return pipeline.Value{}, false
	}
	switch {
	case at.list && at.f.IsMap():
		return pipeline.Value{Kind: pipeline.KindMap, Int: int64(at.items)}, true
	case at.list:
		return pipeline.Value{Kind: pipeline.KindArray, Int: int64(at.items)}, true
	case at.f == nil, at.f.Message() != nil:
		return messageValue(at.md, at.body), true
	}
	return scalar(at.f, at.body), true
}

// messageValue is a record, or the time of a google.protobuf.Timestamp.
func messageValue(md protoreflect.MessageDescriptor, body []byte) pipeline.Value {
	if md.FullName() == "google.protobuf.Timestamp" {
		var part [3]int64
		for i := 1; i < 3; i++ {
			if all := values(body, md.Fields().ByNumber(protowire.Number(i))); len(all) > 0 {
				part[i] = scalar(md.Fields().ByNumber(protowire.Number(i)), all[len(all)-1]).Int
			}
		}
		if part[1] > -4e9 && part[1] < 4e9 {
			return pipeline.Value{Kind: pipeline.KindTimestamp, Int: part[1]*1e9 + part[2], Scale: 1e9}
		}
		return pipeline.Value{Kind: pipeline.KindTimestamp, Int: part[1], Scale: 1}
	}
	return pipeline.Value{Kind: pipeline.KindRecord, Int: int64(md.Fields().Len())}
}

// scalar reads a wire value; nil is the zero value.
func scalar(f protoreflect.FieldDescriptor, b []byte) pipeline.Value {
	var u uint64
	switch wireType(f) {
	case protowire.VarintType:
		u, _ = protowire.ConsumeVarint(b)
	case protowire.Fixed32Type:
		x, _ := protowire.ConsumeFixed32(b)
		u = uint64(x)
	case protowire.Fixed64Type:
		u, _ = protowire.ConsumeFixed64(b)
	}
	if len(b) == 0 {
		u = 0
		if f.HasDefault() && f.Kind() == protoreflect.EnumKind {
			u = uint64(f.Default().Enum())
		}
	}
	number := func(n int64) pipeline.Value { return pipeline.Value{Kind: pipeline.KindInt, Int: n} }
	switch f.Kind() {
	case protoreflect.BoolKind:
		return pipeline.Value{Kind: pipeline.KindBool, Int: int64(min(u, 1))}
	case protoreflect.EnumKind:
		if x := f.Enum().Values().ByNumber(protoreflect.EnumNumber(int32(u))); x != nil {
			return pipeline.Value{Kind: pipeline.KindEnum, Bytes: readOnly(string(x.Name()))}
		}
		return number(int64(int32(u)))
	case protoreflect.Int32Kind, protoreflect.Sfixed32Kind:
		return number(int64(int32(u)))
	case protoreflect.Sint32Kind:
		return number(protowire.DecodeZigZag(u & math.MaxUint32))
	case protoreflect.Sint64Kind:
		return number(protowire.DecodeZigZag(u))
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return number(int64(uint32(u)))
	case protoreflect.Int64Kind, protoreflect.Sfixed64Kind:
		return number(int64(u))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		if u > math.MaxInt64 {
			return pipeline.Value{Kind: pipeline.KindNumber, Bytes: strconv.AppendUint(nil, u, 10)}
		}
		return number(int64(u))
	case protoreflect.FloatKind:
		return pipeline.Value{Kind: pipeline.KindFloat, Float: float64(math.Float32frombits(uint32(u)))}
	case protoreflect.DoubleKind:
		return pipeline.Value{Kind: pipeline.KindFloat, Float: math.Float64frombits(u)}
	case protoreflect.BytesKind:
		return pipeline.Value{Kind: pipeline.KindBytes, Bytes: b}
	}
	return pipeline.Value{Kind: pipeline.KindString, Bytes: b}
}

// Keys are the field names of the message at p, or the keys of the map there.
func (v *protoView) Keys(p *pipeline.Path) (keys []string) {
	at, ok := v.find(p)
	switch {
	case !ok:
	case at.list && at.f.IsMap():
		for _, e := range values(at.body, at.f) {
			keys = append(keys, mapKey(at.f, e))
		}
	case !at.list && at.md != nil:
		for i := range at.md.Fields().Len() {
			keys = append(keys, string(at.md.Fields().Get(i).Name()))
		}
	}
	return keys
}
