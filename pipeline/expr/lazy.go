package expr

import (
	"fmt"
	"reflect"
	"strconv"
	"sync"
	"time"
	"unsafe"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"reprieve.dev/pipeline"
)

// pathSet hands out the same *Path for the same place, so that a codec that remembers a path by its address is not asked
// with new ones for ever. It is bounded: places beyond maxPaths (items of long arrays) get a path of their own each time.
type pathSet struct {
	mu   sync.Mutex
	n    int
	root pathNode
}

type pathNode struct {
	path *pipeline.Path
	kids map[string]*pathNode
}

const maxPaths = 1024

func newPathSet() *pathSet { return &pathSet{root: pathNode{path: &pipeline.Path{}}} }

func (s *pathSet) child(of *pathNode, seg string) *pathNode {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k, ok := of.kids[seg]; ok {
		return k
	}
	k := &pathNode{path: of.path.Child(string([]byte(seg)))} // a path outlives the record: seg may be borrowed
	if s.n < maxPaths {
		if of.kids == nil {
			of.kids = make(map[string]*pathNode)
		}
		of.kids[k.path.Segs[len(k.path.Segs)-1]] = k
		s.n++
	}
	return k
}

// place is where a composite stands in a view.
type place struct {
	view  pipeline.View
	paths *pathSet
	node  *pathNode
	meter *meter
	size  int64
	far   int // what walking here costs: a view finds item n by passing n items
}

// readCost is what one read of a record costs, beside the way to it; passing walkCost items costs one.
const (
	readCost = 4
	walkCost = 16
)

// at reads the value one step down, which passes up to n members or items.
func (p *place) at(seg string, n int64) (ref.Val, bool) {
	far := p.far + int(n/walkCost)
	k := p.paths.child(p.node, seg)
	v, ok := p.view.Get(k.path)
	p.meter.use(readCost + far + len(v.Bytes)/64)
	if !ok {
		return nil, false
	}
	return p.wrap(k, v, far), true
}

// wrap makes a CEL value of what a view gave for n.
func (p *place) wrap(n *pathNode, v pipeline.Value, far int) ref.Val {
	q := place{view: p.view, paths: p.paths, node: n, meter: p.meter, size: v.Int, far: far}
	switch v.Kind {
	case pipeline.KindArray:
		return &list{q}
	case pipeline.KindMap, pipeline.KindRecord:
		return &object{place: q}
	}
	return scalar(v)
}

// viewVal is the variable view: null without a view.
func viewVal(v pipeline.View, paths *pathSet, m *meter) ref.Val {
	if v == nil {
		return types.NullValue
	}
	p := place{view: v, paths: paths, node: &paths.root, meter: m}
	if top, ok := v.Get(paths.root.path); ok {
		return p.wrap(&paths.root, top, 0)
	}
	return &object{place: p}
}

// object is a record or a map of a view.
type object struct {
	place
	keys []string
}

func (o *object) names() []string {
	if o.keys == nil {
		o.keys = o.view.Keys(o.node.path)
		o.meter.use(1 + len(o.keys))
	}
	return o.keys
}

// Find implements traits.Mapper.
func (o *object) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return nil, false
	}
	return o.at(string(name), o.size)
}

// Get implements traits.Indexer.
func (o *object) Get(key ref.Val) ref.Val { return indexed(o, key) }

// Contains implements traits.Container.
func (o *object) Contains(key ref.Val) ref.Val { _, ok := o.Find(key); return types.Bool(ok) }

// Size implements traits.Sizer.
func (o *object) Size() ref.Val { return types.Int(len(o.names())) }

// Iterator implements traits.Iterable: over the names, in document order.
func (o *object) Iterator() traits.Iterator { return &names{left: o.names()} }

// Equal implements ref.Val.
func (o *object) Equal(other ref.Val) ref.Val { return types.Bool(equalVals(o.meter, o, other)) }

// ConvertToNative implements ref.Val: records stay where they are.
func (o *object) ConvertToNative(t reflect.Type) (any, error) { return nil, noNative(t) }

// ConvertToType implements ref.Val.
func (o *object) ConvertToType(t ref.Type) ref.Val { return convertComposite(o, t) }

// Type implements ref.Val.
func (o *object) Type() ref.Type { return types.MapType }

// Value implements ref.Val.
func (o *object) Value() any { return o }

// list is an array of a view.
type list struct{ place }

func (l *list) item(i int64) ref.Val {
	if v, ok := l.at(strconv.FormatInt(i, 10), i); ok {
		return v
	}
	return types.NullValue
}

// Get implements traits.Indexer.
func (l *list) Get(index ref.Val) ref.Val {
	i, err := types.IndexOrError(index)
	if err != nil {
		return types.WrapErr(err)
	}
	if i < 0 || int64(i) >= l.size {
		return types.NewErr("index out of bounds")
	}
	return l.item(int64(i))
}

// Contains implements traits.Container.
func (l *list) Contains(v ref.Val) ref.Val { return types.Bool(containsVal(l.meter, l, v)) }

// Size implements traits.Sizer.
func (l *list) Size() ref.Val { return types.Int(l.size) }

// Iterator implements traits.Iterable.
func (l *list) Iterator() traits.Iterator { return &items{list: l} }

// Add implements traits.Adder: concatenation.
func (l *list) Add(other ref.Val) ref.Val {
	o, ok := other.(traits.Lister)
	if !ok {
		return types.MaybeNoSuchOverloadErr(other)
	}
	var all []ref.Val
	for _, part := range []traits.Lister{l, o} {
		for it := part.Iterator(); it.HasNext() == types.True; {
			l.meter.use(1)
			all = append(all, it.Next())
		}
	}
	return types.NewRefValList(types.DefaultTypeAdapter, all)
}

// Equal implements ref.Val.
func (l *list) Equal(other ref.Val) ref.Val { return types.Bool(equalVals(l.meter, l, other)) }

// ConvertToNative implements ref.Val: arrays stay where they are.
func (l *list) ConvertToNative(t reflect.Type) (any, error) { return nil, noNative(t) }

// ConvertToType implements ref.Val.
func (l *list) ConvertToType(t ref.Type) ref.Val { return convertComposite(l, t) }

// Type implements ref.Val.
func (l *list) Type() ref.Type { return types.ListType }

// Value implements ref.Val.
func (l *list) Value() any { return l }

// headers is the variable headers: the last value of each name, those that enrich added included.
type headers struct {
	of, added []pipeline.Header
	meter     *meter
}

// Find implements traits.Mapper. A null header is null.
func (h *headers) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return nil, false
	}
	h.meter.use(1 + len(h.of))
	v, ok := lastHeader(h.of, h.added, string(name))
	if !ok {
		return nil, false
	}
	return textOrNull(v), true
}

// Get implements traits.Indexer.
func (h *headers) Get(key ref.Val) ref.Val { return indexed(h, key) }

// Contains implements traits.Container.
func (h *headers) Contains(key ref.Val) ref.Val { _, ok := h.Find(key); return types.Bool(ok) }

func (h *headers) names() []string {
	h.meter.use(1 + len(h.of))
	seen := make(map[string]bool, len(h.of))
	out := make([]string, 0, len(h.of))
	for _, part := range [2][]pipeline.Header{h.of, h.added} {
		for i := range part {
			if n := part[i].Name; !seen[n] {
				seen[n] = true
				out = append(out, n)
			}
		}
	}
	return out
}

// Size implements traits.Sizer: the number of different names.
func (h *headers) Size() ref.Val { return types.Int(len(h.names())) }

// Iterator implements traits.Iterable.
func (h *headers) Iterator() traits.Iterator { return &names{left: h.names()} }

// Equal implements ref.Val.
func (h *headers) Equal(other ref.Val) ref.Val { return types.Bool(equalVals(h.meter, h, other)) }

// ConvertToNative implements ref.Val.
func (h *headers) ConvertToNative(t reflect.Type) (any, error) { return nil, noNative(t) }

// ConvertToType implements ref.Val.
func (h *headers) ConvertToType(t ref.Type) ref.Val { return convertComposite(h, t) }

// Type implements ref.Val.
func (h *headers) Type() ref.Type { return types.MapType }

// Value implements ref.Val.
func (h *headers) Value() any { return h }

// headerList is the variable header_list.
func headerList(of, added []pipeline.Header, m *meter) ref.Val {
	m.use(len(of) + len(added))
	all := make([]ref.Val, 0, len(of)+len(added))
	for _, part := range [2][]pipeline.Header{of, added} {
		for _, h := range part {
			all = append(all, types.NewRefValMap(types.DefaultTypeAdapter, map[ref.Val]ref.Val{
				types.String("name"): types.String(h.Name), types.String("value"): textOrNull(h.Value),
			}))
		}
	}
	return types.NewRefValList(types.DefaultTypeAdapter, all)
}

type names struct {
	iterator
	left []string
}

func (n *names) HasNext() ref.Val { return types.Bool(len(n.left) > 0) }

func (n *names) Next() ref.Val {
	if len(n.left) == 0 {
		return nil
	}
	s := types.String(n.left[0])
	n.left = n.left[1:]
	return s
}

type items struct {
	iterator
	list *list
	at   int64
}

func (i *items) HasNext() ref.Val { return types.Bool(i.at < i.list.size) }

func (i *items) Next() ref.Val {
	if i.at >= i.list.size {
		return nil
	}
	i.at++
	return i.list.item(i.at - 1)
}

// iterator is the part of ref.Val that no iterator is asked for.
type iterator struct{}

func (iterator) ConvertToNative(t reflect.Type) (any, error) { return nil, noNative(t) }
func (iterator) ConvertToType(ref.Type) ref.Val              { return types.NewErr("an iterator does not convert") }
func (iterator) Equal(ref.Val) ref.Val                       { return types.False }
func (iterator) Type() ref.Type                              { return types.IteratorType }
func (iterator) Value() any                                  { return nil }

func indexed(m traits.Mapper, key ref.Val) ref.Val {
	if v, ok := m.Find(key); ok {
		return v
	}
	return types.NewErr("no such key")
}

func noNative(t reflect.Type) error { return fmt.Errorf("a value of a record is not a %v", t) }

func convertComposite(v ref.Val, t ref.Type) ref.Val {
	switch t {
	case types.TypeType:
		return v.Type().(ref.Val)
	case v.Type():
		return v
	}
	return types.NewErr("no such conversion")
}

func textOrNull(b []byte) ref.Val {
	if b == nil {
		return types.NullValue
	}
	return types.String(borrow(b))
}

// borrow reads bytes of the record as a string without copying: an evaluation ends before the batch is released, and its
// errors carry copies (program.evalError).
func borrow(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

func timestamp(o operand) ref.Val { return types.Timestamp{Time: time.Unix(o.i, o.ns).UTC()} }

// lastHeader is the value that counts for a name.
func lastHeader(of, added []pipeline.Header, name string) ([]byte, bool) {
	for i := len(added) - 1; i >= 0; i-- {
		if added[i].Name == name {
			return added[i].Value, true
		}
	}
	for i := len(of) - 1; i >= 0; i-- {
		if of[i].Name == name {
			return of[i].Value, true
		}
	}
	return nil, false
}
