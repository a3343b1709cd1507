package expr

import (
	"math"
	"strconv"
	"strings"
	"time"

	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"reprieve.dev/pipeline"
)

// predicate turns the checked expression into a native one, or returns nil when some part of it is more than a comparison
// of one path with constants.
func (p *program) predicate() *predicate {
	t := translator{p: p}
	root, ok := t.bool(p.ast.NativeRep().Expr())
	if !ok {
		return nil
	}
	return &predicate{root: root}
}

type translator struct{ p *program }

// bool translates an expression that gives a truth value.
func (t *translator) bool(x celast.Expr) (node, bool) {
	switch x.Kind() {
	case celast.LiteralKind:
		if b, ok := x.AsLiteral().(types.Bool); ok {
			return node{op: opConst, truth: truthOf(bool(b))}, true
		}
		return node{}, false
	case celast.SelectKind:
		if x.AsSelect().IsTestOnly() {
			return t.has(x)
		}
	case celast.CallKind:
		return t.call(x)
	}
	if l, ok := t.path(x); ok { // a bool field by itself
		l.needBool()
		return node{op: opTruth, leaf: l}, true
	}
	return node{}, false
}

func (t *translator) call(x celast.Expr) (node, bool) {
	c := x.AsCall()
	args := c.Args()
	switch name := c.FunctionName(); name {
	case operators.LogicalAnd, operators.LogicalOr:
		n := node{op: opAnd}
		if name == operators.LogicalOr {
			n.op = opOr
		}
		for _, arg := range args {
			k, ok := t.bool(arg)
			if !ok {
				return node{}, false
			}
			n.kids = append(n.kids, k)
		}
		return n, true
	case operators.LogicalNot:
		k, ok := t.bool(args[0])
		if !ok || k.op == opTruth && k.leaf == nil {
			return node{}, false
		}
		return node{op: opNot, kids: []node{k}}, true
	case operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		return t.comparison(name, args[0], args[1])
	case operators.In:
		return t.in(args[0], args[1])
	case "startsWith", "endsWith", "contains":
		if !c.IsMemberFunction() || len(args) != 1 {
			return node{}, false
		}
		l, ok := t.path(c.Target())
		if !ok {
			return node{}, false
		}
		text, ok := t.constant(args[0])
		if !ok || text.kind != kindString {
			return node{}, false
		}
		ops := map[string]op{"startsWith": opStartsWith, "endsWith": opEndsWith, "contains": opContains}
		return node{op: ops[name], leaf: l, consts: []operand{text}}, true
	case operators.Index:
		if l, ok := t.path(x); ok {
			l.needBool()
			return node{op: opTruth, leaf: l}, true
		}
	}
	return node{}, false
}

var comparisons = map[string]op{
	operators.Equals: opEq, operators.NotEquals: opNe, operators.Less: opLt, operators.LessEquals: opLe,
	operators.Greater: opGt, operators.GreaterEquals: opGe,
}

// mirrored is the operator with its sides exchanged.
var mirrored = map[op]op{opEq: opEq, opNe: opNe, opLt: opGt, opLe: opGe, opGt: opLt, opGe: opLe}

func (t *translator) comparison(name string, left, right celast.Expr) (node, bool) {
	o := comparisons[name]
	l, ok := t.path(left)
	other := right
	if !ok {
		if l, ok = t.path(right); !ok {
			return node{}, false
		}
		other, o = left, mirrored[o]
	}
	c, ok := t.constant(other)
	if !ok {
		return node{}, false
	}
	return node{op: o, leaf: l, consts: []operand{c}}, true
}

// in translates path in [constants] and "name" in headers.
func (t *translator) in(left, right celast.Expr) (node, bool) {
	if right.Kind() == celast.IdentKind && t.p.env.rootOf(right.AsIdent()) == rootHeaders {
		c, ok := t.constant(left)
		if !ok || c.kind != kindString {
			return node{}, false
		}
		return node{op: opHas, leaf: t.header(string(c.s))}, true
	}
	l, ok := t.path(left)
	if !ok {
		return node{}, false
	}
	v, ok := t.evaluate(right)
	if !ok {
		return node{}, false
	}
	items, ok := v.(traits.Lister)
	if !ok {
		return node{}, false
	}
	n := node{op: opIn, leaf: l}
	for it := items.Iterator(); it.HasNext() == types.True; {
		c, ok := constantOf(it.Next())
		if !ok {
			return node{}, false
		}
		n.consts = append(n.consts, c)
	}
	return n, true
}

// has translates has(view.a.b) and has(headers.x).
func (t *translator) has(x celast.Expr) (node, bool) {
	s := x.AsSelect()
	l, ok := t.path(s.Operand())
	if !ok {
		return node{}, false
	}
	switch l.root {
	case rootHeaders:
		if l.header == "" {
			return node{op: opHas, leaf: t.header(s.FieldName())}, true
		}
	case rootView:
		if member, ok := l.member(s.FieldName()); ok {
			member.parent = l
			return node{op: opHas, leaf: member}, true
		}
	}
	return node{}, false
}

func (t *translator) header(name string) *leaf {
	return newLeaf(&leaf{root: rootHeaders, header: name, named: true}, "headers."+name)
}

// path translates a chain of members and constant indexes over a variable.
func (t *translator) path(x celast.Expr) (*leaf, bool) {
	switch x.Kind() {
	case celast.IdentKind:
		r := t.p.env.rootOf(x.AsIdent())
		switch r {
		case rootNone, rootHeaderList, rootStatus, rootBody:
			return nil, false
		}
		l := &leaf{root: r}
		if r == rootView || r == rootKey {
			l.path = t.p.paths.root.path
		}
		return newLeaf(l, x.AsIdent()), true
	case celast.SelectKind:
		s := x.AsSelect()
		if s.IsTestOnly() {
			return nil, false
		}
		l, ok := t.path(s.Operand())
		if !ok {
			return nil, false
		}
		return t.step(l, types.String(s.FieldName()))
	case celast.CallKind:
		c := x.AsCall()
		if c.FunctionName() != operators.Index || c.Args()[1].Kind() != celast.LiteralKind {
			return nil, false
		}
		l, ok := t.path(c.Args()[0])
		if !ok {
			return nil, false
		}
		return t.step(l, c.Args()[1].AsLiteral())
	}
	return nil, false
}

func (t *translator) step(l *leaf, key ref.Val) (*leaf, bool) {
	switch l.root {
	case rootHeaders:
		if name, ok := key.(types.String); ok && !l.named {
			return t.header(string(name)), true
		}
	case rootView:
		switch k := key.(type) {
		case types.String:
			return l.member(string(k))
		case types.Int:
			if k >= 0 {
				return l.item(int64(k)), true
			}
		}
	}
	return nil, false
}

// constant evaluates an expression without variables to one scalar.
func (t *translator) constant(x celast.Expr) (operand, bool) {
	if x.Kind() == celast.LiteralKind {
		return constantOf(x.AsLiteral())
	}
	v, ok := t.evaluate(x)
	if !ok {
		return operand{}, false
	}
	return constantOf(v)
}

// evaluate runs an expression without variables once, at compile time, under the same limits.
func (t *translator) evaluate(x celast.Expr) (ref.Val, bool) {
	free := false
	celast.PreOrderVisit(x, celast.NewExprVisitor(func(e celast.Expr) {
		switch e.Kind() {
		case celast.IdentKind, celast.ComprehensionKind, celast.StructKind, celast.MapKind:
			free = true
		}
	}))
	if free {
		return nil, false
	}
	whole := t.p.ast.NativeRep()
	part := celast.NewCheckedAST(celast.NewAST(x, whole.SourceInfo()), whole.TypeMap(), whole.ReferenceMap())
	run, err := t.p.env.plan(part)
	if err != nil {
		return nil, false
	}
	v, _, err := run.Eval(map[string]any{})
	if err != nil {
		return nil, false
	}
	return v, true
}

// constantOf makes an operand of a constant.
func constantOf(v ref.Val) (operand, bool) {
	switch c := v.(type) {
	case types.Null:
		return operand{kind: kindNull}, true
	case types.Bool:
		if c {
			return operand{kind: kindBool, i: 1}, true
		}
		return operand{kind: kindBool}, true
	case types.Double:
		return operand{kind: kindFloat, f: float64(c)}, !math.IsNaN(float64(c))
	case types.String:
		return operand{kind: kindString, s: []byte(c)}, true
	case types.Bytes:
		return operand{kind: kindBytes, s: c}, true
	case types.Timestamp:
		return operand{kind: kindTime, i: c.Unix(), ns: int64(c.Nanosecond())}, true
	case types.Duration:
		return operand{kind: kindDuration, i: int64(c.Duration)}, true
	}
	return numberOf(v)
}

// member is the place one name deeper. A name of digits could also be the index of an array, which a pointer does not tell
// apart: CEL decides it.
func (l *leaf) member(name string) (*leaf, bool) {
	if name == "-" || strings.Trim(name, "0123456789") == "" {
		return nil, false
	}
	return newLeaf(&leaf{root: rootView, path: l.path.Child(name), arrays: l.arrays}, l.text+"."+name), true
}

// item is the place at an index; what it indexes must turn out to be an array.
func (l *leaf) item(i int64) *leaf {
	n := strconv.FormatInt(i, 10)
	arrays := append(append([]*pipeline.Path(nil), l.arrays...), l.path)
	return newLeaf(&leaf{root: rootView, path: l.path.Child(n), arrays: arrays}, l.text+"["+n+"]")
}

// newLeaf makes the errors that the leaf may give, so that giving them allocates nothing.
func newLeaf(l *leaf, text string) *leaf {
	l.text = text
	l.missing = &EvalError{Kind: EvalMissing, Path: text, text: "there is no " + text}
	l.mismatch = &EvalError{Kind: EvalType, Path: text, text: text + " has a type that does not fit"}
	return l
}

func (l *leaf) needBool() {
	l.mismatch = &EvalError{Kind: EvalType, Path: l.text, text: l.text + " is not a bool"}
}

// durationOf keeps the time package out of predicate.go.
func durationOf(d time.Duration) operand { return operand{kind: kindDuration, i: int64(d)} }
