package codec

import (
	"encoding/binary"
	"strconv"
	"unsafe"

	"reprieve.dev/pipeline"
)

// avroEdit is one pass of an editor over a record. It writes nothing until something is replaced; then everything between
// two replacements is copied as it was (INV-SOURCE-UNMUTATED).
type avroEdit struct {
	s       *Scratch
	r       *run
	e       pipeline.Editor
	plan    *planEntry
	src     []byte
	offs    []uint32
	dst     []byte
	last    int // src up to here is in dst
	changed bool
	pend    string // last segment of the path, written only when somebody asks
	sure    bool   // moves says where everything stands now, and all of it is as valid as before
	moves   []move
}

// move says that what stood at a place of the source or behind it stands further on now.
type move struct{ at, by int }

// edited is what the last Edit of a Scratch wrote: a view that is made to read it need not validate it once more.
type edited struct {
	view *avroView
	out  *byte
	n    int
}

// Edit appends the record's value bytes (framing included) with the leaves that e replaces, in the writer's types: a text
// that does not fit becomes 0. Nothing replaced: dst as it was and false.
func (v *avroView) Edit(dst []byte, e pipeline.Editor) (out []byte, changed bool, err error) {
	s := v.s
	w := avroEdit{s: s, r: &s.nav, e: e, plan: s.planFor(v.p, e), src: v.src, offs: v.soff, dst: dst, sure: v.p.reader == nil, moves: s.moves[:0]}
	root := w.plan.root
	at, noted := v.notesFor(w.plan)
	if !root.any {
		return dst, false, nil
	}
	w.r.free(v.src)
	if root.t.op == opRecord {
		w.fields(w.plan.flat, at, noted)
	} else {
		w.value(root, v.head)
	}
	if !w.changed {
		return dst, false, nil
	}
	out = append(w.dst, v.src[w.last:]...)
	s.moves = w.moves
	if n := len(out) - len(dst); w.sure && n > 0 && n <= len(v.src) {
		s.edited = edited{v, &out[len(dst)], n}
	}
	return out, true, nil
}

// moved makes the view read what its last Edit wrote, if value is that: everything stands where it stood, or as far behind as
// was written more before it.
func (v *avroView) moved(value []byte) bool {
	last := v.s.edited
	v.s.edited = edited{}
	if last.view != v || len(value) != last.n || unsafe.SliceData(value) != last.out {
		return false
	}
	offs := v.s.offs.alloc(len(v.offs))
	moves, by := v.s.moves, 0
	for i, off := range v.offs {
		for len(moves) > 0 && moves[0].at <= int(off) {
			by, moves = by+moves[0].by, moves[1:]
		}
		offs[i] = uint32(int(off) + by)
	}
	v.src, v.data, v.offs, v.soff, v.notes = value, value, offs, offs, notes{}
	return true
}

// kept passes a value of which it is soon known that it is kept, as most are. -1: it must be visited.
func (w *avroEdit) kept(n *planNode, off int) int {
	src := w.src
	if n.t.op == opOptional {
		if src[off] > 3 {
			return -1
		}
		if n = n.branch[src[off]>>1]; n.t.op == opNull {
			return off + 1
		}
		off++
	}
	switch n.t.op {
	case opString:
		if !n.quick || src[off] >= 0x80 {
			return -1
		}
		text := src[off+1:][:src[off]>>1]
		if int64(len(text)) < n.least || w.keeps(text) {
			return off + 1 + len(text)
		}
	case opLong:
		if n.least < 1<<34 {
			return -1
		}
		for at := off; off-at < 5; off++ { // 35 bits
			if src[off] < 0x80 {
				return off + 1
			}
		}
	}
	return -1
}

func (w *avroEdit) keeps(text []byte) bool {
	kept, _ := w.plan.quick.Keeps(text)
	return kept
}

// value visits the value at off and returns where the next one starts.
func (w *avroEdit) value(n *planNode, off int) int {
	t := n.t
	if !n.any {
		return w.r.value(t, off, 0)
	}
	switch t.op {
	case opNull:
		return off
	case opOptional, opUnion:
		b, end := w.r.varint(off)
		x := n.branch[b]
		if x.rule != 0 {
			return w.leaf(x, end, off, t.null)
		}
		return w.value(x, end)
	case opRecord:
		return w.record(w.plan.ready(n), off)
	case opArray, opMap:
		return w.blocks(n, off)
	}
	return w.leaf(n, off, -1, -1)
}

// enter writes the segment that is still to be written.
func (w *avroEdit) enter() {
	if w.pend != "" {
		w.s.path = append(w.s.path, w.pend...)
		w.pend = ""
	}
}

func (w *avroEdit) record(n *planNode, off int) int {
	w.enter()
	depth := len(w.s.path)
	for i := range n.kids {
		k := &n.kids[i]
		if len(k.skip) > 0 {
			off = w.r.prog(k.skip, off, 0, nil)
		}
		if end := w.kept(k.node, off); end >= 0 {
			off = end
			continue
		}
		if k.node.star {
			w.pend = k.seg
		}
		off = w.value(k.node, off)
		w.s.path, w.pend = w.s.path[:depth], ""
	}
	if len(n.tail) > 0 {
		off = w.r.prog(n.tail, off, 0, nil)
	}
	return off
}

func (w *avroEdit) blocks(n *planNode, off int) int {
	if !n.star {
		w.s.path = append(w.s.path[:0], n.path...)
	}
	w.enter()
	base := len(w.s.path)
	for index := int64(0); ; {
		count, size, body := w.r.block(off)
		if count == 0 {
			w.s.path = w.s.path[:base]
			return body
		}
		// A block that says how long it is must say the new length: its size is written when the block is done.
		from := off
		sized := -1
		if size >= 0 {
			_, from = w.r.varint(off)
			w.dst = append(w.dst, w.src[w.last:from]...)
			sized, w.last = len(w.dst), body
		}
		off = body
		for ; count > 0; count, index = count-1, index+1 {
			item := n.item
			if n.t.op == opMap {
				k, start := w.r.length(off)
				off = start + k
				item = w.plan.key(n, w.src[start:off])
				if end := w.kept(item, off); end >= 0 {
					off = end
					continue
				}
				w.s.path = appendSeg(w.s.path[:base], item.name)
			} else {
				w.s.path = strconv.AppendInt(append(w.s.path[:base], '/'), index, 10)
			}
			off = w.value(item, off)
		}
		if sized >= 0 {
			w.closeBlock(sized, w.src[from:body], size, off)
		}
	}
}

// closeBlock puts the size before the block that stands at dst[at:]: old, as it was spelled, if it still holds.
func (w *avroEdit) closeBlock(at int, old []byte, size int64, end int) {
	w.dst = append(w.dst, w.src[w.last:end]...)
	w.last = end
	var room [binary.MaxVarintLen64]byte
	if now := int64(len(w.dst) - at); now != size {
		old = binary.AppendVarint(room[:0], now)
	}
	w.sure = false
	body := len(w.dst) - at
	w.dst = append(w.dst, old...)
	copy(w.dst[at+len(old):], w.dst[at:at+body])
	copy(w.dst[at:], old)
}

// leaf asks about one scalar. union is where its branch number stands (-1: no union), null the branch to write for null.
func (w *avroEdit) leaf(n *planNode, off, union, null int) int {
	var value pipeline.Value
	var end int
	switch n.t.op {
	case opString: // most of what is asked about
		k, start := w.r.length(off)
		if end = start + k; int64(k) < n.least {
			return end
		}
		value = pipeline.Value{Kind: pipeline.KindString, Bytes: w.src[start:end:end]}
	case opInt, opLong:
		var v int64
		if v, end = w.r.varint(off); v < n.least && v > -n.least {
			return end
		}
		value = w.s.value(w.src, n.t, off)
	default:
		end = w.r.value(n.t, off, 0)
		value = w.s.value(w.src, n.t, off)
	}
	path := n.path
	if n.star {
		w.enter()
		path = unsafe.String(unsafe.SliceData(w.s.path), len(w.s.path))
	}
	edit := w.e.Edit(n.rule, pipeline.Leaf{Path: path, Name: n.name, Value: value})
	w.r.data = w.src
	switch edit.Kind {
	case pipeline.Keep:
		return end
	case pipeline.Replace:
		w.flush(off)
		at := len(w.dst)
		w.dst = appendLeaf(w.dst, n.t, edit.Text)
		w.moves = append(w.moves, move{end, len(w.dst) - at - (end - off)})
		w.sure = w.sure && n.t.op == opString
	default:
		w.sure = false
		if union >= 0 && null >= 0 {
			w.flush(union)
			w.dst = binary.AppendVarint(w.dst, int64(null))
		} else {
			w.flush(off)
			w.dst = appendEmpty(w.dst, n.t)
		}
	}
	w.last = end
	return end
}

func (w *avroEdit) flush(to int) {
	w.dst = append(w.dst, w.src[w.last:to]...)
	w.changed = true
}
