package codec

import (
	"strconv"

	"google.golang.org/protobuf/reflect/protoreflect"

	"reprieve.dev/pipeline"
)

// Has tells whether records of the schema can have a value at a path. known is false where the schema does not say: a JSON
// Schema allows what it does not name.
func (s *Schema) Has(p *pipeline.Path) (has, known bool) {
	switch {
	case s.root != nil:
		return hasAvro(s.root, p.Segs), true
	case s.proto != nil:
		for i := range s.proto.Messages().Len() {
			if hasProto(s.proto.Messages().Get(i), p.Segs) {
				return true, true
			}
		}
		return false, true
	}
	return false, false
}

func hasAvro(t *typ, segs []string) bool {
	if len(segs) == 0 {
		return true
	}
	switch t.op {
	case opRecord:
		i, ok := t.index[segs[0]]
		return ok && hasAvro(t.fields[i].t, segs[1:])
	case opOptional, opUnion:
		for _, b := range t.branches {
			if hasAvro(b, segs) {
				return true
			}
		}
	case opMap:
		return hasAvro(t.item, segs[1:])
	case opArray:
		_, err := strconv.ParseUint(segs[0], 10, 31)
		return err == nil && hasAvro(t.item, segs[1:])
	}
	return false
}

func hasProto(md protoreflect.MessageDescriptor, segs []string) bool {
	if len(segs) == 0 {
		return true
	}
	f := protoField(md, segs[0])
	if f == nil {
		return false
	}
	segs = segs[1:]
	if f.IsMap() || f.IsList() {
		if len(segs) == 0 {
			return true
		}
		if f.IsMap() {
			f = f.MapValue()
		} else if _, err := strconv.ParseUint(segs[0], 10, 31); err != nil {
			return false
		}
		segs = segs[1:]
	}
	if f.Message() == nil {
		return len(segs) == 0
	}
	return hasProto(f.Message(), segs)
}
