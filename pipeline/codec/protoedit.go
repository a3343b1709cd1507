package codec

import (
	"math"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"reprieve.dev/pipeline"
)

// protoEdit is one pass of an editor over a message. Fields that nothing is replaced in are copied as they stand, unknown
// ones too.
type protoEdit struct {
	e       pipeline.Editor
	changed bool
}

// Edit appends the message (framing included) with the leaves that e replaces. Null and Drop take a field off the wire; in
// lists and maps, whose other items would move, they write an empty value.
func (v *protoView) Edit(dst []byte, e pipeline.Editor) (out []byte, changed bool, err error) {
	w := protoEdit{e: e}
	out = append(dst, v.src[:v.head]...)
	out = w.message(out, v.md, v.src[v.head:], "", "")
	if !w.changed {
		return dst, false, nil
	}
	return out, true, nil
}

// message appends b with its leaves edited. plan is the path with "*" for list items, path the real one.
func (w *protoEdit) message(dst []byte, md protoreflect.MessageDescriptor, b []byte, plan, path string) []byte {
	index := map[protowire.Number]int{}
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		size := protowire.ConsumeFieldValue(num, typ, b[n:])
		whole := b[:n+size]
		value := whole[n:]
		b = b[n+size:]
		f := md.Fields().ByNumber(num)
		if f == nil {
			dst = append(dst, whole...)
			continue
		}
		name := string(f.Name())
		at, real := plan+"/"+escapeSeg(name), path+"/"+escapeSeg(name)
		var done bool
		var out []byte
		switch {
		case f.IsMap():
			out, done = w.entry(f, value, at, real)
		case typ != wireType(f):
			out, done = w.packed(f, value, at, real, index)
		case f.IsList():
			real += "/" + strconv.Itoa(index[num])
			index[num]++
			out, done = w.field(f, name, value, at+"/*", real, true)
		default:
			out, done = w.field(f, name, value, at, real, false)
		}
		switch {
		case !done:
			dst = append(dst, whole...)
		case out != nil:
			dst = append(append(dst, whole[:n]...), out...)
		}
	}
	return dst
}

// field edits one value; done says that out stands for it, nil out that it goes.
func (w *protoEdit) field(f protoreflect.FieldDescriptor, name string, value []byte, plan, path string, item bool) (out []byte, done bool) {
	if md := f.Message(); md != nil {
		before := w.changed
		w.changed = false
		if f.Kind() == protoreflect.GroupKind {
			body, _ := protowire.ConsumeGroup(f.Number(), value)
			out = protowire.AppendTag(w.message(nil, md, body, plan, path), f.Number(), protowire.EndGroupType)
		} else {
			body, _ := protowire.ConsumeBytes(value)
			out = protowire.AppendBytes(nil, w.message(nil, md, body, plan, path))
		}
		done, w.changed = w.changed, w.changed || before
		return out, done
	}
	body := value
	if wireType(f) == protowire.BytesType {
		body, _ = protowire.ConsumeBytes(value)
	}
	edit, ok := w.ask(f, name, body, plan, path)
	if !ok {
		return nil, false
	}
	w.changed = true
	if edit.Kind != pipeline.Replace {
		if item || f.Cardinality() == protoreflect.Required {
			return appendProto(nil, f, nil), true
		}
		return nil, true
	}
	return appendProto(nil, f, edit.Text), true
}

// ask plans and asks about one scalar; false is keep.
func (w *protoEdit) ask(f protoreflect.FieldDescriptor, name string, body []byte, plan, path string) (pipeline.Edit, bool) {
	value := scalar(f, body)
	rule := w.e.Plan(plan, name, value.Kind, protoTags(f))
	if rule == 0 {
		return pipeline.Edit{}, false
	}
	edit := w.e.Edit(rule, pipeline.Leaf{Path: path, Name: name, Value: value})
	return edit, edit.Kind != pipeline.Keep
}

func (w *protoEdit) packed(f protoreflect.FieldDescriptor, value []byte, plan, path string, index map[protowire.Number]int) ([]byte, bool) {
	body, _ := protowire.ConsumeBytes(value)
	var out []byte
	changed := false
	for len(body) > 0 {
		n := protowire.ConsumeFieldValue(f.Number(), wireType(f), body)
		edit, ok := w.ask(f, string(f.Name()), body[:n], plan+"/*", path+"/"+strconv.Itoa(index[f.Number()]))
		index[f.Number()]++
		switch {
		case !ok:
			out = append(out, body[:n]...)
		case edit.Kind == pipeline.Replace:
			out, changed = appendProto(out, f, edit.Text), true
		default:
			out, changed = appendProto(out, f, nil), true
		}
		body = body[n:]
	}
	w.changed = w.changed || changed
	return protowire.AppendBytes(nil, out), changed
}

// entry edits the value of a map entry under its key.
func (w *protoEdit) entry(f protoreflect.FieldDescriptor, value []byte, plan, path string) ([]byte, bool) {
	entry, _ := protowire.ConsumeBytes(value)
	key := mapKey(f, entry)
	plan, path = plan+"/"+escapeSeg(key), path+"/"+escapeSeg(key)
	var out []byte
	changed := false
	for b := entry; len(b) > 0; {
		num, typ, n := protowire.ConsumeTag(b)
		size := protowire.ConsumeFieldValue(num, typ, b[n:])
		whole := b[:n+size]
		b = b[n+size:]
		if num == f.MapValue().Number() {
			if x, done := w.field(f.MapValue(), key, whole[n:], plan, path, true); done {
				out = append(append(out, whole[:n]...), x...)
				changed = true
				continue
			}
		}
		out = append(out, whole...)
	}
	return protowire.AppendBytes(nil, out), changed
}

// appendProto appends text as a wire value of f; what does not fit, and nil, is the zero value.
func appendProto(dst []byte, f protoreflect.FieldDescriptor, text []byte) []byte {
	s := string(text)
	i, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		i = 0
	}
	u, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		u = 0
	}
	small := i
	if i != int64(int32(i)) {
		small = 0
	}
	x, _ := floatOf(text, 64)
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protowire.AppendVarint(dst, protowire.EncodeBool(s == "true"))
	case protoreflect.EnumKind:
		if v := f.Enum().Values().ByName(protoreflect.Name(s)); v != nil {
			small = int64(v.Number())
		}
		return protowire.AppendVarint(dst, uint64(small))
	case protoreflect.Int32Kind:
		return protowire.AppendVarint(dst, uint64(small))
	case protoreflect.Int64Kind:
		return protowire.AppendVarint(dst, uint64(i))
	case protoreflect.Uint32Kind:
		return protowire.AppendVarint(dst, uint64(fits32(u)))
	case protoreflect.Uint64Kind:
		return protowire.AppendVarint(dst, u)
	case protoreflect.Sint32Kind:
		return protowire.AppendVarint(dst, protowire.EncodeZigZag(small))
	case protoreflect.Sint64Kind:
		return protowire.AppendVarint(dst, protowire.EncodeZigZag(i))
	case protoreflect.Fixed32Kind:
		return protowire.AppendFixed32(dst, fits32(u))
	case protoreflect.Sfixed32Kind:
		return protowire.AppendFixed32(dst, uint32(small))
	case protoreflect.Fixed64Kind:
		return protowire.AppendFixed64(dst, u)
	case protoreflect.Sfixed64Kind:
		return protowire.AppendFixed64(dst, uint64(i))
	case protoreflect.FloatKind:
		return protowire.AppendFixed32(dst, math.Float32bits(float32(x)))
	case protoreflect.DoubleKind:
		return protowire.AppendFixed64(dst, math.Float64bits(x))
	case protoreflect.StringKind:
		return protowire.AppendString(dst, validUTF8(text))
	}
	return protowire.AppendBytes(dst, text)
}

func fits32(u uint64) uint32 {
	if u > math.MaxUint32 {
		return 0
	}
	return uint32(u)
}
