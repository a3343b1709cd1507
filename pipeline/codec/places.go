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
	w := placeWalk{left: 10 * maxPlaces}
	switch {
	case s.root != nil:
		w.avro(s.root, "", nil, nil)
	case s.proto != nil:
		for i := range s.proto.Messages().Len() {
			w.message(s.proto.Messages().Get(i), "", nil)
		}
	default:
		for path, tags := range s.tags {
			w.out = append(w.out, Place{Path: path, Kind: pipeline.KindString, Tags: tags})
		}
	}
	return w.out
}

type placeWalk struct {
	out  []Place
	left int // visits: records of no bytes may unfold without any leaf
}

func (w *placeWalk) full() bool {
	w.left--
	return w.left < 0 || len(w.out) >= maxPlaces
}

func (w *placeWalk) avro(t *typ, path string, tags []string, open []*typ) {
	if w.full() {
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
			w.avro(f.t, path+"/"+escapeSeg(f.name), f.tags, append(open, t))
		}
	case opOptional, opUnion:
		for _, b := range t.branches {
			w.avro(b, path, tags, open)
		}
	case opArray, opMap:
		w.avro(t.item, path+"/*", tags, open)
	default:
		w.out = append(w.out, Place{path, t.kind(), tags})
	}
}

func (w *placeWalk) message(md protoreflect.MessageDescriptor, path string, open []protoreflect.FullName) {
	for _, o := range open {
		if o == md.FullName() {
			return
		}
	}
	if w.full() {
		return
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
			w.message(f.Message(), at, open)
			continue
		}
		w.out = append(w.out, Place{at, scalar(f, nil).Kind, tags})
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
