package codec

import (
	"fmt"
	"slices"
	"strings"

	"reprieve.dev/pipeline"
)

// resolved turns values of a writer schema into values of a reader schema, by the rules of the Avro specification: promotion,
// defaults, aliases, unions, enum defaults. Logical types that differ in meaning (another scale, another unit) do not match:
// the number would be read wrongly without an error.
type resolved struct {
	root  *step
	names map[string]string // writer path -> reader path, where they differ
	types *typ              // reader root
}

// renamed is the reader's path of a place of the writer, if it has another one.
func (r *resolved) renamed(path string) (string, bool) {
	to, ok := r.names[path]
	return to, ok
}

// Mark says that a reader's default stands for an enum symbol of the writer that the reader does not know. The source bytes
// still hold the symbol.
type Mark struct{ Path, Symbol, Default string }

// Marked is a view that may stand for more than it shows: those of a decoder with a reader schema.
type Marked interface{ Marks() []Mark }

// step turns one writer type into one reader type.
type step struct {
	do       stepKind
	w, r     *typ
	parts    []part  // record: reader fields in their order
	item     *step   // array, map, and the target of stepWrap
	branches []*step // of a writer union; a stepRefuse is a branch that does not match
	branch   int     // of the reader union, stepWrap
	symbols  []int   // writer symbol -> reader symbol; -1 is none
	what     string  // stepRefuse
	same     bool    // the bytes are the same
}

type part struct {
	from int // writer field; -1 is the default
	step *step
	def  []byte
}

type stepKind uint8

const (
	stepCopy stepKind = iota
	stepRecord
	stepItems
	stepUnion
	stepWrap
	stepEnum
	stepToFloat
	stepToDouble
	stepFloatToDouble
	stepToString  // bytes that must be UTF-8
	stepToDecimal // must fit the reader's precision
	stepRefuse
)

// resolveError says where the two schemas do not match.
type resolveError struct{ place, what string }

// Error names the place and what differs.
func (e *resolveError) Error() string { return e.place + ": " + e.what }

type resolver struct {
	known map[[2]*typ]*step
	names map[string]string
}

// resolve compiles the steps from w to r.
func resolve(w, r *Schema) (*resolved, *resolveError) {
	c := &resolver{known: map[[2]*typ]*step{}, names: map[string]string{}}
	root, err := c.step(w.root, r.root, "", "")
	if err != nil {
		return nil, err
	}
	c.settle()
	return &resolved{root: root, names: c.names, types: r.root}, nil
}

// Compatible tells whether a reader with the schema r can read everything that was written with w, by Avro's rules. The error
// names the place that does not match. Codes: ERR_SCHEMA_MISMATCH.
func Compatible(r, w *Schema) error {
	if r.root == nil || w.root == nil {
		return pipeline.Errorf(pipeline.CodeSchemaMismatch, r.ref.String(), "only avro schemas can be compared")
	}
	c := &resolver{known: map[[2]*typ]*step{}, names: map[string]string{}}
	_, err := c.step(w.root, r.root, "", "")
	for _, s := range c.known {
		if err != nil {
			break
		}
		for _, b := range s.branches {
			if b.do == stepRefuse {
				err = &resolveError{s.w.place, b.what}
			}
		}
		if s.do == stepEnum && slices.Contains(s.symbols, -1) && s.r.enumDef < 0 {
			err = &resolveError{s.w.place, "the writer has symbols that the reader does not know, and no default"}
		}
	}
	if err != nil {
		return pipeline.Errorf(pipeline.CodeSchemaMismatch, err.place, "%s", err.what)
	}
	return nil
}

func (c *resolver) step(w, r *typ, wpath, rpath string) (*step, *resolveError) {
	if s := c.known[[2]*typ{w, r}]; s != nil {
		return s, nil
	}
	s := &step{w: w, r: r}
	c.known[[2]*typ{w, r}] = s
	err := c.fill(s, w, r, wpath, rpath)
	if err != nil {
		delete(c.known, [2]*typ{w, r})
		*s = step{do: stepRefuse, w: w, r: r, what: err.what} // a recursive part may point here already
	}
	return s, err
}

func isUnion(t *typ) bool { return t.op == opUnion || t.op == opOptional }

func (c *resolver) fill(s *step, w, r *typ, wpath, rpath string) *resolveError {
	if isUnion(w) {
		s.do = stepUnion
		for _, b := range w.branches {
			x, err := c.step(b, r, wpath, rpath)
			if err != nil { // only a record that has this branch fails
				x = &step{do: stepRefuse, w: b, r: r, what: err.what}
			}
			s.branches = append(s.branches, x)
		}
		if !slices.ContainsFunc(s.branches, func(b *step) bool { return b.do != stepRefuse }) {
			return &resolveError{wpath, s.branches[0].what}
		}
		return nil
	}
	if isUnion(r) {
		return c.wrap(s, w, r, wpath, rpath)
	}
	mismatch := &resolveError{wpath, fmt.Sprintf("the writer has %s, the reader %s", w.want(), r.want())}
	if !named(w, r) {
		return mismatch
	}
	switch {
	case w.op == opRecord && r.op == opRecord:
		return c.record(s, w, r, wpath, rpath)
	case w.op == opArray && r.op == opArray, w.op == opMap && r.op == opMap:
		s.do = stepItems
		item, err := c.step(w.item, r.item, wpath+"/*", rpath+"/*")
		s.item = item
		return err
	case w.op == opEnum && r.op == opEnum:
		s.do = stepEnum
		for _, symbol := range w.symbols {
			s.symbols = append(s.symbols, slices.Index(r.symbols, symbol))
		}
		return nil
	}
	if !meaning(w, r) {
		return &resolveError{wpath, "the logical types of writer and reader differ in scale or unit"}
	}
	do, ok := promote(w, r)
	if !ok {
		return mismatch
	}
	s.do, s.same = do, do == stepCopy
	return nil
}

// wrap finds the branch of a reader union: of the same type before one that it can be promoted to.
func (c *resolver) wrap(s *step, w, r *typ, wpath, rpath string) *resolveError {
	s.do = stepWrap
	var first *resolveError
	for _, exact := range [...]bool{true, false} {
		for i, b := range r.branches {
			if exact != (b.wire() == w.wire() && b.name == w.name) {
				continue
			}
			x, err := c.step(w, b, wpath, rpath)
			if err == nil {
				s.item, s.branch = x, i
				return nil
			}
			if first == nil {
				first = err
			}
		}
	}
	if first == nil {
		first = &resolveError{wpath, "no branch of the reader's union takes " + w.want()}
	}
	return first
}

func (c *resolver) record(s *step, w, r *typ, wpath, rpath string) *resolveError {
	s.do = stepRecord
	for i := range r.fields {
		f := &r.fields[i]
		at := rpath + "/" + escapeSeg(f.name)
		from, ok := w.index[f.name]
		for k := 0; !ok && k < len(f.aliases); k++ {
			from, ok = w.index[f.aliases[k]]
		}
		if !ok {
			if f.def == nil {
				return &resolveError{at, "the writer has no such field and the reader no default"}
			}
			body, err := encodeDefault(f.t, *f.def)
			if err != nil {
				return &resolveError{at, "the default does not fit its type"}
			}
			s.parts = append(s.parts, part{from: -1, def: body})
			continue
		}
		was := wpath + "/" + escapeSeg(w.fields[from].name)
		if was != at {
			c.names[was] = at
		}
		x, err := c.step(w.fields[from].t, f.t, was, at)
		if err != nil {
			return err
		}
		s.parts = append(s.parts, part{from: from, step: x})
	}
	return nil
}

// settle finds the steps whose bytes stay the same: the greatest fixed point, so that recursive types are found too.
func (c *resolver) settle() {
	for _, s := range c.known {
		s.same = s.same || s.do == stepRecord || s.do == stepItems || s.do == stepEnum || s.do == stepUnion
	}
	for changed := true; changed; {
		changed = false
		for _, s := range c.known {
			if s.same && !s.unchanged() {
				s.same, changed = false, true
			}
		}
	}
}

func (s *step) unchanged() bool {
	switch s.do {
	case stepCopy:
		return true
	case stepRecord:
		if len(s.parts) != len(s.w.fields) {
			return false
		}
		for i, p := range s.parts {
			if p.from != i || !p.step.same {
				return false
			}
		}
		return true
	case stepItems:
		return s.item.same
	case stepEnum:
		for i, to := range s.symbols {
			if i != to {
				return false
			}
		}
		return true
	case stepUnion:
		if !isUnion(s.r) {
			return false
		}
		for i, b := range s.branches {
			if b.do != stepWrap || b.branch != i || !b.item.same {
				return false
			}
		}
		return true
	}
	return false
}

// named tells whether the names of two named types match: unqualified, or by the reader's aliases.
func named(w, r *typ) bool {
	if w.name == "" || r.name == "" || w.op == opFixed && r.op != opFixed {
		return true
	}
	short := func(s string) string { return s[strings.LastIndexByte(s, '.')+1:] }
	if short(w.name) == short(r.name) {
		return true
	}
	return slices.ContainsFunc(r.aliases, func(a string) bool { return a == w.name || short(a) == short(w.name) })
}

// meaning tells whether two logical types mean the same number.
func meaning(w, r *typ) bool {
	if w.limit != nil && r.limit != nil {
		return w.scale == r.scale
	}
	return w.logical == logicalNone || r.logical == logicalNone || w.logical == r.logical && w.units == r.units
}

// promote is how a scalar is read as another one.
func promote(w, r *typ) (stepKind, bool) {
	from, to := w.wire(), r.wire()
	if from == opDecimalFixed {
		from = opFixed
	}
	if to == opDecimalFixed {
		to = opFixed
	}
	if from == to {
		switch {
		case from == opFixed && w.size != r.size:
			return 0, false
		case r.limit != nil && (w.limit == nil || w.precision > r.precision):
			return stepToDecimal, true
		}
		return stepCopy, true
	}
	switch {
	case from == opInt && to == opLong, from == opString && to == opBytes && r.limit == nil:
		return stepCopy, true
	case from == opBytes && to == opString:
		return stepToString, true
	case (from == opInt || from == opLong) && to == opFloat:
		return stepToFloat, true
	case (from == opInt || from == opLong) && to == opDouble:
		return stepToDouble, true
	case from == opFloat && to == opDouble:
		return stepFloatToDouble, true
	}
	return 0, false
}
