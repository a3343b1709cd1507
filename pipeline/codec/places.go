package codec

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"reprieve.dev/pipeline"
)

// Place is one leaf of a schema: its path with "*" for array items and map values, as Editor.Plan sees it.
type Place struct {
	Path string
	Kind pipeline.ValueKind
	Tags []string
}

// maxPlaces bounds Places: schemas may name the same record very often.
const maxPlaces = 10_000

// Places are the leaves of the schema in its order, each branch of a union on its own. A recursive type is followed once. A
// JSON Schema only tells the places that have tags.
func (s *Schema) Places() []Place {
	var out []Place
	switch {
	case s.root != nil:
		s.root.places(&out, "", nil, nil)
	case s.proto != nil:
		for i := range s.proto.Messages().Len() {
			protoPlaces(&out, s.proto.Messages().Get(i), "", nil)
		}
	default:
		for path, tags := range s.tags {
			out = append(out, Place{Path: path, Kind: pipeline.KindString, Tags: tags})
		}
	}
	return out
}

func (t *typ) places(out *[]Place, path string, tags []string, open []*typ) {
	if len(*out) >= maxPlaces {
		return
	}
	switch t.op {
	case opNull:
	case opRecord:
		for _, o := range open {
			if o == t {
				return
			}
		}
		for i := range t.fields {
			f := &t.fields[i]
			f.t.places(out, path+"/"+escapeSeg(f.name), f.tags, append(open, t))
		}
	case opOptional, opUnion:
		for _, b := range t.branches {
			b.places(out, path, tags, open)
		}
	case opArray, opMap:
		t.item.places(out, path+"/*", tags, open)
	default:
		*out = append(*out, Place{path, t.kind(), tags})
	}
}

func protoPlaces(out *[]Place, md protoreflect.MessageDescriptor, path string, open []protoreflect.FullName) {
	for _, o := range open {
		if o == md.FullName() || len(*out) >= maxPlaces {
			return
		}
	}
	open = append(open, md.FullName())
	for i := range md.Fields().Len() {
		f := md.Fields().Get(i)
		at := path + "/" + escapeSeg(string(f.Name()))
		tags := protoTags(f)
		if f.IsMap() {
			f = f.MapValue()
			at += "/*"
		} else if f.IsList() {
			at += "/*"
		}
		if f.Message() != nil {
			protoPlaces(out, f.Message(), at, open)
			continue
		}
		*out = append(*out, Place{at, scalar(f, nil).Kind, tags})
	}
}

// Matches tells whether a path with "*" segments, as Plan gives it, covers a real one.
func Matches(pattern, path string) bool {
	for pattern != "" || path != "" {
		var a, b string
		var okA, okB bool
		if a, pattern, okA = segment(pattern); !okA {
			return false
		}
		if b, path, okB = segment(path); !okB {
			return false
		}
		if a != "*" && a != b {
			return false
		}
	}
	return true
}

func segment(p string) (seg, rest string, ok bool) {
	if !strings.HasPrefix(p, "/") {
		return "", "", false
	}
	p = p[1:]
	if i := strings.IndexByte(p, '/'); i >= 0 {
		return p[:i], p[i:], true
	}
	return p, "", true
}
