package expr

import (
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

// choice is a value without CEL: a constant, a bare path, or one of two choices by a native condition.
type choice struct {
	leaf *leaf // a bare path
	when *node // nil: leaf or constant
	yes  *choice
	no   *choice
	text []byte // a constant as it is written
	null bool   // the constant is null
}

// choice turns the checked expression into a native value, or returns nil when some part of it is more than a path, a constant
// or condition ? one : other of these.
func (p *program) choice() *choice {
	t := translator{p: p}
	c, ok := t.choice(p.ast.NativeRep().Expr())
	if !ok {
		return nil
	}
	return c
}

func (t *translator) choice(x celast.Expr) (*choice, bool) {
	if l, ok := t.path(x); ok {
		return &choice{leaf: l}, true
	}
	if x.Kind() == celast.CallKind && x.AsCall().FunctionName() == operators.Conditional {
		args := x.AsCall().Args()
		when, ok := t.bool(args[0])
		if !ok {
			return nil, false
		}
		yes, ok := t.choice(args[1])
		if !ok {
			return nil, false
		}
		no, ok := t.choice(args[2])
		return &choice{when: &when, yes: yes, no: no}, ok
	}
	v, ok := t.evaluate(x)
	if !ok {
		return nil, false
	}
	text, ok, err := t.p.appendVal(nil, v)
	return &choice{text: text, null: !ok}, err == nil
}

// append appends the text of the branch that counts. Only that branch is read, and a condition that errors is the error of the
// whole, as in CEL.
func (c *choice) append(dst []byte, e *env) ([]byte, bool, error) {
	for c.when != nil {
		t, err := c.when.eval(e)
		switch {
		case err != nil:
			return dst, false, err
		case t == isTrue:
			c = c.yes
		default:
			c = c.no
		}
	}
	if c.leaf != nil {
		return c.leaf.appendText(dst, e)
	}
	return append(dst, c.text...), !c.null, nil
}
