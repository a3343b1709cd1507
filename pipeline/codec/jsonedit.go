package codec

import (
	"reflect"
	"strconv"
	"unicode/utf8"
	"unsafe"

	"reprieve.dev/pipeline"
)

// treeEntry keeps what one editor wants of the documents of one format, learnt from the documents themselves.
type treeEntry struct {
	f     *jsonFormat
	e     pipeline.Editor
	quick pipeline.Indifferent // e, if it is one
	root  *treeNode
	left  int // nodes that may still be learnt
}

// treeNode is a place: a path of member names, with "*" for array items.
type treeNode struct {
	path  string
	name  string // nearest member name
	seg   string // last segment
	tags  []string
	asked uint16 // kinds that were planned
	rules [16]pipeline.Rule
	least [16]int64 // strings and numbers whose text is shorter are kept without asking
	kids  []*treeNode
	index map[string]*treeNode // of many kids
	hint  int                  // the next member is most often the one behind the last
}

func (s *Scratch) treeFor(f *jsonFormat, e pipeline.Editor) *treeEntry {
	keep := reflect.TypeOf(e).Comparable()
	for i := 0; keep && i < len(s.trees); i++ {
		if t := &s.trees[i]; t.f == f && t.e == e {
			if t.left <= 0 { // full of names that may never come again: learn anew
				*t = newTree(f, e)
			}
			return t
		}
	}
	entry := newTree(f, e)
	if !keep {
		return &entry
	}
	if len(s.trees) < maxPlans {
		s.trees = append(s.trees, entry)
		return &s.trees[len(s.trees)-1]
	}
	s.tree = (s.tree + 1) % maxPlans
	s.trees[s.tree] = entry
	return &s.trees[s.tree]
}

func newTree(f *jsonFormat, e pipeline.Editor) treeEntry {
	t := treeEntry{f: f, e: e, left: maxPlanNodes, root: &treeNode{tags: f.schema.tagsAt("")}}
	t.quick, _ = e.(pipeline.Indifferent)
	return t
}

// kid returns the node of the member seg; name is the nearest member name.
func (t *treeEntry) kid(n *treeNode, seg []byte, item bool) *treeNode {
	for i := range min(len(n.kids), maxNear) {
		at := n.hint + i
		if at >= len(n.kids) {
			at -= len(n.kids)
		}
		if n.kids[at].seg == string(seg) {
			if n.hint = at + 1; n.hint == len(n.kids) {
				n.hint = 0
			}
			return n.kids[at]
		}
	}
	if k := n.index[string(seg)]; k != nil {
		return k
	}
	k := &treeNode{seg: string(seg), name: n.name}
	if item {
		k.path = n.path + "/*"
	} else {
		k.name = k.seg
		k.path = n.path + "/" + escapeSeg(k.seg)
	}
	k.tags = t.f.schema.tagsAt(k.path)
	if t.left > 0 {
		t.left--
		n.kids = append(n.kids, k)
		if len(n.kids) == maxNear+1 {
			n.index = make(map[string]*treeNode, 4*maxNear)
			for _, x := range n.kids {
				n.index[x.seg] = x
			}
		} else if n.index != nil {
			n.index[k.seg] = k
		}
	}
	return k
}

// maxNear is how many names are compared one by one before a table is asked.
const maxNear = 16

func (t *treeEntry) rule(n *treeNode, kind pipeline.ValueKind) pipeline.Rule {
	if bit := uint16(1) << kind; n.asked&bit == 0 {
		n.asked |= bit
		n.rules[kind] = t.e.Plan(n.path, n.name, kind, n.tags)
		if t.quick != nil && n.rules[kind] != 0 && (kind == pipeline.KindString || kind == pipeline.KindNumber) {
			n.least[kind] = t.quick.Least(n.rules[kind], kind)
		}
	}
	return n.rules[kind]
}

// jsonEdit is one pass of an editor over a document.
type jsonEdit struct {
	v       *jsonView
	t       *treeEntry
	dst     []byte
	last    int
	changed bool
}

// star is the segment of array items in a Plan path.
var star = []byte("*")

// Edit appends the document (framing included) with the leaves that e replaces; every other byte stays, white space too.
func (v *jsonView) Edit(dst []byte, e pipeline.Editor) (out []byte, changed bool, err error) {
	w := jsonEdit{v: v, t: v.s.treeFor(v.f, e), dst: dst}
	v.s.path = v.s.path[:0]
	w.value(0, w.t.root)
	if !w.changed {
		return dst, false, nil
	}
	return append(w.dst, v.src[w.last:]...), true, nil
}

// value visits node i. It tells whether the member is to be dropped.
func (w *jsonEdit) value(i uint32, t *treeNode) (drop bool) {
	v := w.v
	n := &v.nodes[i]
	depth := len(v.s.path)
	switch n.kind {
	case jsonObject:
		w.object(i, t, depth)
	case jsonArray:
		k := int64(0)
		for c := i + 1; c < n.next; c = v.nodes[c].next {
			v.s.path = strconv.AppendInt(append(v.s.path[:depth], '/'), k, 10)
			if w.value(c, w.t.kid(t, star, true)) { // an item cannot go: the others would move
				w.put(&v.nodes[c], "null")
			}
			k++
		}
	case jsonNull:
	default:
		drop = w.leaf(i, t)
	}
	v.s.path = v.s.path[:depth]
	return drop
}

func (w *jsonEdit) object(i uint32, t *treeNode, depth int) {
	v := w.v
	n := &v.nodes[i]
	kept := -1 // where the last member that stays ends
	for c := i + 1; c < n.next; c = v.nodes[c].next {
		m := &v.nodes[c]
		kid := w.t.kid(t, v.name(c), false)
		v.s.path = appendSeg(v.s.path[:depth], kid.seg)
		if !w.value(c, kid) {
			kept = int(m.end)
			continue
		}
		// With the member goes one comma: the one before it, or the one behind it when nothing stands before.
		from, to := int(m.name)-1, int(m.end)
		if kept >= 0 {
			from = kept
		} else if m.next < n.next {
			to = int(v.nodes[m.next].name) - 1
		}
		w.cut(from, to)
	}
}

func (w *jsonEdit) cut(from, to int) {
	if from > w.last {
		w.dst = append(w.dst, w.v.src[w.last:from]...)
	}
	w.last, w.changed = to, true
}

func (w *jsonEdit) leaf(i uint32, t *treeNode) (drop bool) {
	v := w.v
	n := &v.nodes[i]
	value := v.value(i)
	rule := w.t.rule(t, value.Kind)
	if rule == 0 {
		return false
	}
	if least := t.least[value.Kind]; least > 0 {
		if int64(len(value.Bytes)) < least {
			return false
		}
		if value.Kind == pipeline.KindString {
			if kept, _ := w.t.quick.Keeps(value.Bytes); kept {
				return false
			}
		}
	}
	path := unsafe.String(unsafe.SliceData(v.s.path), len(v.s.path))
	edit := w.t.e.Edit(rule, pipeline.Leaf{Path: path, Name: t.name, Value: value})
	switch edit.Kind {
	case pipeline.Replace:
		w.cut(int(n.start), int(n.end))
		w.dst = appendJSONLeaf(w.dst, n.kind, edit.Text)
	case pipeline.Null:
		w.put(n, "null")
	case pipeline.Drop:
		if i == 0 {
			w.put(n, "null")
			return false
		}
		return true
	}
	return false
}

func (w *jsonEdit) put(n *jsonNode, text string) {
	w.cut(int(n.start), int(n.end))
	w.dst = append(w.dst, text...)
}

// appendJSONLeaf keeps the kind of the value that is replaced: text that is no number where a number stood becomes 0.
func appendJSONLeaf(dst []byte, kind jsonKind, text []byte) []byte {
	switch kind {
	case jsonNumber:
		p := jsonScan{data: text}
		if len(text) > 0 && (text[0] == '-' || text[0] >= '0' && text[0] <= '9') && p.number(0) == len(text) {
			return append(dst, text...)
		}
		return append(dst, '0')
	case jsonTrue, jsonFalse:
		if string(text) == "true" {
			return append(dst, "true"...)
		}
		return append(dst, "false"...)
	}
	if !utf8.Valid(text) {
		text = []byte(validUTF8(text))
	}
	return appendQuoted(dst, text)
}
