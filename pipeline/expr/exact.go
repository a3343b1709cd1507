package expr

import (
	"math"

	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// exactNumbers replaces the operators of a plan by ones that treat numbers as the package comment says. On values that CEL
// itself compares or calculates exactly they do what CEL does.
func exactNumbers(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	call, ok := i.(interpreter.InterpretableCall)
	if !ok || len(call.Args()) != 2 {
		return i, nil
	}
	var apply func(l, r ref.Val) ref.Val
	id := call.OverloadID()
	switch call.Function() {
	case operators.Equals:
		apply = func(l, r ref.Val) ref.Val { return types.Bool(equalVals(l, r)) }
	case operators.NotEquals:
		apply = func(l, r ref.Val) ref.Val { return types.Bool(!equalVals(l, r)) }
	case operators.Less:
		apply = ordering(func(c types.Int) bool { return c < 0 })
	case operators.LessEquals:
		apply = ordering(func(c types.Int) bool { return c <= 0 })
	case operators.Greater:
		apply = ordering(func(c types.Int) bool { return c > 0 })
	case operators.GreaterEquals:
		apply = ordering(func(c types.Int) bool { return c >= 0 })
	case operators.In:
		apply = inVal
		id = inExact // not CEL's own id: its optimiser would turn the call into a hash set, which finds no decimal
	case operators.Add:
		apply = arithmetic('+', traits.AdderType, func(l, r ref.Val) ref.Val { return l.(traits.Adder).Add(r) })
	case operators.Subtract:
		apply = arithmetic('-', traits.SubtractorType, func(l, r ref.Val) ref.Val { return l.(traits.Subtractor).Subtract(r) })
	case operators.Multiply:
		apply = arithmetic('*', traits.MultiplierType, func(l, r ref.Val) ref.Val { return l.(traits.Multiplier).Multiply(r) })
	case operators.Divide:
		apply = arithmetic('/', traits.DividerType, func(l, r ref.Val) ref.Val { return l.(traits.Divider).Divide(r) })
	default:
		return i, nil
	}
	return &exactCall{InterpretableCall: call, args: call.Args(), id: id, apply: apply}, nil
}

// inExact is the overload id of our own membership test; its cost is the length of the list (cost.go).
const inExact = "reprieve_in"

// exactCall is a binary call with operands of any types.
type exactCall struct {
	interpreter.InterpretableCall
	args  []interpreter.InterpretableV2
	id    string
	apply func(l, r ref.Val) ref.Val
}

// OverloadID implements interpreter.InterpretableCall.
func (c *exactCall) OverloadID() string { return c.id }

// Exec implements interpreter.InterpretableV2. It is strict from left to right, as CEL's own calls are.
func (c *exactCall) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	l := c.args[0].Exec(frame)
	if types.IsUnknownOrError(l) {
		return l
	}
	r := c.args[1].Exec(frame)
	if types.IsUnknownOrError(r) {
		return r
	}
	return types.LabelErrNode(c.ID(), c.apply(l, r))
}

// Eval implements interpreter.Interpretable.
func (c *exactCall) Eval(a interpreter.Activation) ref.Val { return c.Exec(interpreter.AsFrame(a)) }

// numberOf reads any number of CEL as an operand.
func numberOf(v ref.Val) (operand, bool) {
	switch n := v.(type) {
	case types.Int:
		return operand{kind: kindInt, i: int64(n)}, true
	case types.Uint:
		return operand{kind: kindUint, u: uint64(n)}, true
	case types.Double:
		return operand{kind: kindFloat, f: float64(n)}, true
	case *decimal:
		return operand{kind: kindDec, x: n.x}, true
	}
	return operand{}, false
}

// compareVals is the answer of traits.Comparer for any two values.
func compareVals(l, r ref.Val) ref.Val {
	a, oka := numberOf(l)
	b, okb := numberOf(r)
	switch {
	case oka && okb:
		c, ok := order(&a, &b)
		if !ok {
			return types.NewErr("NaN values cannot be ordered")
		}
		return types.Int(c)
	case !oka && !okb && l.Type().HasTrait(traits.ComparerType):
		return l.(traits.Comparer).Compare(r)
	}
	return types.MaybeNoSuchOverloadErr(r)
}

func ordering(holds func(types.Int) bool) func(l, r ref.Val) ref.Val {
	return func(l, r ref.Val) ref.Val {
		c := compareVals(l, r)
		if n, ok := c.(types.Int); ok {
			return types.Bool(holds(n))
		}
		return c
	}
}

// equalVals is CEL's heterogeneous equality with exact numbers, also inside lists and maps.
func equalVals(l, r ref.Val) bool {
	a, oka := numberOf(l)
	b, okb := numberOf(r)
	if oka || okb {
		return oka && okb && equal(&a, &b)
	}
	switch x := l.(type) {
	case traits.Lister:
		y, ok := r.(traits.Lister)
		if !ok || x.Size() != y.Size() {
			return false
		}
		for i, j := x.Iterator(), y.Iterator(); i.HasNext() == types.True && j.HasNext() == types.True; {
			if !equalVals(i.Next(), j.Next()) {
				return false
			}
		}
		return true
	case traits.Mapper:
		y, ok := r.(traits.Mapper)
		if !ok || x.Size() != y.Size() {
			return false
		}
		for i := x.Iterator(); i.HasNext() == types.True; {
			k := i.Next()
			v, _ := x.Find(k)
			w, found := y.Find(k)
			if !found || v == nil || w == nil || !equalVals(v, w) {
				return false
			}
		}
		return true
	}
	return types.Equal(l, r) == types.True
}

// containsVal looks for v among the items of l.
func containsVal(l traits.Lister, v ref.Val) bool {
	for i := l.Iterator(); i.HasNext() == types.True; {
		if equalVals(v, i.Next()) {
			return true
		}
	}
	return false
}

func inVal(l, r ref.Val) ref.Val {
	switch c := r.(type) {
	case traits.Lister:
		return types.Bool(containsVal(c, l))
	case traits.Container:
		return c.Contains(l)
	}
	return types.NewErr("no such overload")
}

// arithmetic calculates two numbers of different kinds exactly and leaves everything else to CEL.
func arithmetic(op byte, trait int, own func(l, r ref.Val) ref.Val) func(l, r ref.Val) ref.Val {
	return func(l, r ref.Val) ref.Val {
		a, oka := numberOf(l)
		b, okb := numberOf(r)
		if oka && okb && a.kind != b.kind && !notFinite(a) && !notFinite(b) {
			return calculate(op, l, r)
		}
		if !l.Type().HasTrait(trait) {
			return types.NewErr("no such overload")
		}
		return own(l, r)
	}
}

func notFinite(o operand) bool {
	return o.kind == kindFloat && (math.IsNaN(o.f) || math.IsInf(o.f, 0))
}

// listSize is the cost of looking through r.
func listSize(r ref.Val) uint64 {
	if s, ok := r.(traits.Sizer); ok {
		if n, ok := s.Size().(types.Int); ok && n > 0 {
			return uint64(n)
		}
	}
	return 1
}

// costs adds what CEL's own accounting does not know.
type costs struct{}

// CallCost implements interpreter.ActualCostEstimator; nil leaves the cost to CEL.
func (costs) CallCost(_, overload string, args []ref.Val, _ ref.Val) *uint64 {
	switch overload {
	case inExact:
		n := listSize(args[1])
		return &n
	case overloadSum:
		n := listSize(args[0])
		return &n
	case overloads.AddList:
		n := 1 + (listSize(args[0])+listSize(args[1]))/8
		return &n
	}
	return nil
}
