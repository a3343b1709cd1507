package expr

import (
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// meter is the budget of one evaluation. It is charged for each item that a macro visits, by the size of what it does with
// it; for each call, by the size of its operands; and for each read of the record. cel-go has a budget of its own, but it
// counts a comparison of two records as one step and searches a stack that grows with each step.
type meter struct{ left int }

// meterName is how a call finds the meter of its evaluation. It cannot be written in an expression.
const meterName = "@meter"

// use takes n from the budget. cel-go recovers this panic itself and returns it as an error (program.eval).
func (m *meter) use(n int) {
	m.left -= n
	if m.left < 0 {
		panic(interpreter.EvalCancelledError{Cause: interpreter.CostLimitExceeded, Message: "the budget of the evaluation is used up"})
	}
}

// meterOf is the meter of the evaluation; what is folded at compile time has one of its own.
func meterOf(frame *interpreter.ExecutionFrame) *meter {
	if v, ok := frame.ResolveName(meterName); ok {
		if m, ok := v.(*meter); ok {
			return m
		}
	}
	return &meter{left: MaxCost}
}

// weigh is what handling v costs, beside what reading its items costs: copying or looking through 32 bytes is about as long as
// one step.
func weigh(v ref.Val) int {
	switch x := v.(type) {
	case types.String:
		return len(x) / 32
	case types.Bytes:
		return len(x) / 32
	case *decimal:
		return len(x.text) / 32
	}
	return 0
}

// each is the call that stands around what a macro goes through; its second argument is how much one round costs.
const each = "@each"

// meterMacros puts each around the range of every macro. It changes a checked expression in place.
func meterMacros(a *celast.AST) *celast.AST {
	next := celast.MaxID(a) + 1
	fac := celast.NewExprFactory()
	celast.PostOrderVisit(a.Expr(), celast.NewExprVisitor(func(x celast.Expr) {
		if x.Kind() != celast.ComprehensionKind || x.AsComprehension().HasIterVar2() {
			return
		}
		c := x.AsComprehension()
		round := nodes(c.LoopCondition()) + nodes(c.LoopStep())
		ranged := fac.NewCall(next, each, c.IterRange(), fac.NewLiteral(next+1, types.Int(round)))
		next += 2
		x.SetKindCase(fac.NewComprehension(x.ID(), ranged, c.IterVar(), c.AccuVar(), c.AccuInit(), c.LoopCondition(), c.LoopStep(), c.Result()))
	}))
	return a
}

func nodes(x celast.Expr) int {
	n := 0
	celast.PreOrderVisit(x, celast.NewExprVisitor(func(celast.Expr) { n++ }))
	return n
}

// metered is a list or a map whose iterator charges for each round.
type metered struct {
	ref.Val
	meter *meter
	round int
}

func meteredRange(m *meter, v ref.Val, round ref.Val) ref.Val {
	if _, ok := v.(traits.Iterable); !ok {
		return v // not a list or a map: the macro says so itself
	}
	return &metered{Val: v, meter: m, round: int(round.(types.Int))}
}

// Iterator implements traits.Iterable.
func (r *metered) Iterator() traits.Iterator {
	return &meteredIterator{Iterator: r.Val.(traits.Iterable).Iterator(), of: r}
}

type meteredIterator struct {
	traits.Iterator
	of *metered
}

// Next implements traits.Iterator.
func (i *meteredIterator) Next() ref.Val {
	i.of.meter.use(i.of.round)
	return i.Iterator.Next()
}
