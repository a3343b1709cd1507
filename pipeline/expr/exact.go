package expr

import (
	"math"

	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// exactOperator is an operator that treats numbers as the package comment says, or nil for other functions. On values that
// CEL itself compares or calculates exactly it does what CEL does.
func exactOperator(name string) func(*meter, []ref.Val) ref.Val {
	switch name {
	case operators.Equals:
		return func(m *meter, a []ref.Val) ref.Val { return types.Bool(equalVals(m, a[0], a[1])) }
	case operators.NotEquals:
		return func(m *meter, a []ref.Val) ref.Val { return types.Bool(!equalVals(m, a[0], a[1])) }
	case operators.Less:
		return ordering(func(c types.Int) bool { return c < 0 })
	case operators.LessEquals:
		return ordering(func(c types.Int) bool { return c <= 0 })
	case operators.Greater:
		return ordering(func(c types.Int) bool { return c > 0 })
	case operators.GreaterEquals:
		return ordering(func(c types.Int) bool { return c >= 0 })
	case operators.In:
		return func(m *meter, a []ref.Val) ref.Val { return inVal(m, a[0], a[1]) }
	case operators.Add:
		return meteredArithmetic('+', traits.AdderType, func(l, r ref.Val) ref.Val { return l.(traits.Adder).Add(r) })
	case operators.Subtract:
		return meteredArithmetic('-', traits.SubtractorType, func(l, r ref.Val) ref.Val { return l.(traits.Subtractor).Subtract(r) })
	case operators.Multiply:
		return meteredArithmetic('*', traits.MultiplierType, func(l, r ref.Val) ref.Val { return l.(traits.Multiplier).Multiply(r) })
	case operators.Divide:
		return meteredArithmetic('/', traits.DividerType, func(l, r ref.Val) ref.Val { return l.(traits.Divider).Divide(r) })
	case each:
		return func(m *meter, a []ref.Val) ref.Val { return meteredRange(m, a[0], a[1]) }
	}
	return nil
}

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

func ordering(holds func(types.Int) bool) func(*meter, []ref.Val) ref.Val {
	return func(m *meter, a []ref.Val) ref.Val {
		m.use(1 + min(weigh(a[0]), weigh(a[1])))
		c := compareVals(a[0], a[1])
		if n, ok := c.(types.Int); ok {
			return types.Bool(holds(n))
		}
		return c
	}
}

// equalVals is CEL's heterogeneous equality with exact numbers, also inside lists and maps. Each pair of items is charged to
// m, which may be nil where CEL itself compares.
func equalVals(m *meter, l, r ref.Val) bool {
	if m != nil {
		m.use(1 + min(weigh(l), weigh(r)))
	}
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
			if !equalVals(m, i.Next(), j.Next()) {
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
			if !found || v == nil || w == nil || !equalVals(m, v, w) {
				return false
			}
		}
		return true
	}
	return types.Equal(l, r) == types.True
}

// containsVal looks for v among the items of l.
func containsVal(m *meter, l traits.Lister, v ref.Val) bool {
	for i := l.Iterator(); i.HasNext() == types.True; {
		if equalVals(m, v, i.Next()) {
			return true
		}
	}
	return false
}

func inVal(m *meter, l, r ref.Val) ref.Val {
	m.use(1 + weigh(l))
	switch c := r.(type) {
	case traits.Lister:
		return types.Bool(containsVal(m, c, l))
	case traits.Container:
		return c.Contains(l)
	}
	return types.NewErr("no such overload")
}

// meteredArithmetic charges for texts that are put together and for the items that a list is extended by.
func meteredArithmetic(op byte, trait int, own func(l, r ref.Val) ref.Val) func(*meter, []ref.Val) ref.Val {
	apply := arithmetic(op, trait, own)
	return func(m *meter, a []ref.Val) ref.Val {
		cost := 1 + weigh(a[0]) + weigh(a[1])
		if l, ok := a[1].(traits.Lister); ok {
			cost += size(l)
		}
		m.use(cost)
		return apply(a[0], a[1])
	}
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
