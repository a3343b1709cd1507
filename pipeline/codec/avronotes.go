package codec

import (
	"math"

	"reprieve.dev/pipeline"
)

// While a record is validated its strings are read once: then it is also seen which of them an editor may want to change. What
// is noted stands here, so that Edit need not read the record again, only the fields that hold something noted and the few
// that the editor is always asked about.

// lookout is the editor for which the validation of a scratch takes notes: the one that edits its records.
type lookout struct {
	quick  pipeline.Indifferent
	dull   dull
	wanted pipeline.Indifferent // edited a record whose notes were taken for another, or for none
	used   bool
}

// turn is called between batches: whoever wants notes gets them unless those that were taken were of use.
func (l *lookout) turn() {
	if l.wanted != nil && !l.used {
		l.quick, l.dull = l.wanted, dullOf(l.wanted)
	}
	l.wanted, l.used = nil, false
}

// notes are where values stand of which it was not soon known that they are kept, in the order of the record.
type notes struct {
	of pipeline.Indifferent // nil: none were taken
	at []uint32
}

// dull is what an editor says of short texts.
type dull struct {
	signs *[256]uint8
	fewer int
}

func dullOf(q pipeline.Indifferent) (d dull) {
	if q != nil {
		d.signs, d.fewer = q.Dull()
	}
	return d
}

// all tells whether every byte of b is dull.
func (d *dull) all(b []byte) bool {
	k := uint8(1)
	for _, c := range b {
		k &= d.signs[c]
	}
	return k != 0
}

// takeNotes keeps what the last validation noted.
func (s *Scratch) takeNotes() notes {
	if s.look.quick == nil {
		return notes{}
	}
	at := s.offs.alloc(len(s.run.notes))
	copy(at, s.run.notes)
	return notes{s.look.quick, at}
}

// notesFor are the notes of a view if they were taken for the editor of pe.
func (v *avroView) notesFor(pe *planEntry) (at []uint32, ok bool) {
	if pe.quick == nil || !pe.kept {
		return nil, false
	}
	l := &v.s.look
	if v.notes.of != pe.quick {
		l.wanted = pe.quick
		return nil, false
	}
	l.used = true
	return v.notes.at, true
}

// soon is the first number that is noted: what is nearer to zero takes at most five bytes.
const soon = 1 << 34

// noteNumber notes a number of more than five bytes. t is its type, or the union that it stands in.
func (r *run) noteNumber(t *typ, at int) {
	if t.op == opOptional {
		t = t.item
	}
	if r.quick != nil && t.kind() == pipeline.KindInt {
		r.notes = append(r.notes, uint32(at))
	}
}

// noteFloat notes one that is far from zero, or no number.
func (r *run) noteFloat(f float64, at int) {
	if !(math.Abs(f) < soon) {
		r.notes = append(r.notes, uint32(at))
	}
}

// noted tells whether every value of n is kept unless the validation notes it.
func (n *planNode) isNoted() bool {
	switch n.t.op {
	case opRecord:
		if n.open {
			return false
		}
		for i := range n.kids {
			if !n.kids[i].node.isNoted() {
				return false
			}
		}
		return true
	case opOptional, opUnion:
		for _, b := range n.branch {
			if !b.isNoted() {
				return false
			}
		}
		return true
	case opArray:
		return n.item.isNoted()
	case opMap: // rules depend on the keys
		return false
	case opString:
		return n.rule == 0 || n.quick
	case opLong, opFloat, opDouble:
		return n.rule == 0 || n.least >= soon
	}
	return n.rule == 0
}

// flatField is a field of the root record, or of a record that was taken into it, that an editor may want to change.
type flatField struct {
	node  *planNode
	at    int // number of its place
	noted bool
}

// flat lists the fields that have rules in the order of the record.
func (n *planNode) flat(out []flatField, slots []slot) []flatField {
	for i := range n.kids {
		k := &n.kids[i]
		sl := &slots[k.field]
		if sl.subs != nil {
			out = k.node.flat(out, sl.subs)
		} else {
			out = append(out, flatField{k.node, sl.at, k.node.isNoted()})
		}
	}
	return out
}

// fields visits the fields of the root record where the validation noted them: with notes, only those that hold one or that
// are always asked about.
func (w *avroEdit) fields(flat []flatField, at []uint32, noted bool) {
	for i := range flat {
		f := &flat[i]
		if f.at >= len(w.offs) {
			break // a root without bytes
		}
		off := int(w.offs[f.at])
		if noted && f.noted {
			end := len(w.src)
			if f.at+1 < len(w.offs) {
				end = int(w.offs[f.at+1])
			}
			for len(at) > 0 && int(at[0]) < off { // of fields that nobody asked for
				at = at[1:]
			}
			if len(at) == 0 || int(at[0]) >= end {
				continue
			}
		} else if w.kept(f.node, off) >= 0 {
			continue
		}
		w.value(f.node, off)
	}
}
