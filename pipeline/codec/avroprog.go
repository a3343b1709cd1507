package codec

import "math"

// ins is one step of a program: validate one value of this type. Fields of nested records stand in the list of the outer
// record, so that most records are one flat loop.
type ins struct {
	op    op
	depth uint8 // how many records are open around it inside this list
	n     int32 // size of a fixed, number of symbols or branches, branch number of null
	t     *typ
}

// Nested records are taken into the outer list up to these bounds, beyond them they are called.
const (
	maxCode   = 1024
	maxInline = 32
)

// flatten makes t.code and t.cost. Records that are open (recursive) are called, not taken in.
func (t *typ) flatten() {
	if t.code != nil {
		return
	}
	if t.op != opRecord {
		t.code = []ins{t.ins(0)}
		t.cost = t.text()
		return
	}
	t.code = make([]ins, 0, len(t.fields)+1)
	t.cost, t.slots = t.inline(t, 0, []*typ{t})
}

// slot is a field of a record and where it stands in the outer list. subs are set for a record that was taken in.
type slot struct {
	t    *typ
	at   int
	subs []slot
}

// inline appends r's fields to t's code. It returns the JSON text that they take at least and where they stand.
func (t *typ) inline(r *typ, depth int, open []*typ) (cost int64, slots []slot) {
	cost = 2
	t.nest = max(t.nest, depth)
	for i := range r.fields {
		f := &r.fields[i]
		cost = addSat(cost, int64(len(f.name)+4))
		at := len(t.code)
		if t.takes(f.t, depth, open) {
			c, subs := t.inline(f.t, depth+1, append(open, f.t))
			cost = addSat(cost, c)
			slots = append(slots, slot{f.t, at, subs})
			continue
		}
		t.code = append(t.code, f.t.ins(uint8(depth)))
		slots = append(slots, slot{f.t, at, nil})
		if f.t.op != opRecord { // a called record adds its own cost when it is called
			cost = addSat(cost, f.t.text())
		}
	}
	return cost, slots
}

// takes tells whether the record f is taken into t's code at this depth.
func (t *typ) takes(f *typ, depth int, open []*typ) bool {
	if f.op != opRecord || depth+1 >= maxInline || len(t.code)+len(f.fields) > maxCode {
		return false
	}
	for _, o := range open {
		if o == f {
			return false
		}
	}
	return true
}

func (t *typ) ins(depth uint8) ins {
	in := ins{op: t.op, depth: depth, t: t}
	switch t.op {
	case opFixed, opDecimalFixed:
		in.n = int32(min(t.size, math.MaxInt32))
	case opEnum:
		in.n = int32(len(t.symbols))
	case opUnion:
		in.n = int32(len(t.branches))
	case opOptional:
		in.n = int32(t.null)
	}
	return in
}

// text is how much JSON a value takes at least beside its own bytes.
func (t *typ) text() int64 {
	switch t.op {
	case opNull:
		return 4
	case opString, opBytes, opFixed, opArray, opMap:
		return 2
	case opDecimal, opDecimalFixed:
		return int64(t.scale) + 2
	case opInt, opLong:
		if t.logical != logicalNone {
			return 10
		}
	}
	return 1
}
