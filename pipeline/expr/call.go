package expr

import (
	"fmt"
	"regexp"
	"regexp/syntax"

	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// call is a function call of a plan, metered. It takes the place of cel-go's own.
type call struct {
	id    int64
	args  []interpreter.InterpretableV2
	apply func(m *meter, args []ref.Val) ref.Val
}

// ID implements interpreter.Interpretable.
func (c *call) ID() int64 { return c.id }

// Exec implements interpreter.InterpretableV2: strict, from left to right.
func (c *call) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	var few [3]ref.Val
	args := few[:0]
	for _, a := range c.args {
		v := a.Exec(frame)
		if types.IsUnknownOrError(v) {
			return v
		}
		args = append(args, v)
	}
	return types.LabelErrNode(c.id, c.apply(meterOf(frame), args))
}

// Eval implements interpreter.Interpretable.
func (c *call) Eval(a interpreter.Activation) ref.Val { return c.Exec(interpreter.AsFrame(a)) }

// planError says where in the expression the plan could not be made.
type planError struct {
	id    int64
	cause error
}

func (e *planError) Error() string { return e.cause.Error() }

func (e *planError) Unwrap() error { return e.cause }

// decorate replaces the calls of a plan: numbers become exact (exact.go) and every call is metered.
func (e *environment) decorate(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	theirs, ok := i.(interpreter.InterpretableCall)
	if !ok {
		return i, nil
	}
	ours := &call{id: theirs.ID(), args: theirs.Args()}
	name := theirs.Function()
	switch name {
	case operators.LogicalNot, operators.NotStrictlyFalse, operators.Conditional, operators.Index:
		return i, nil // constant cost, and not all of them are strict
	case overloads.Matches:
		apply, err := matching(ours.args)
		if err != nil {
			return nil, &planError{ours.id, err}
		}
		ours.apply = apply
	default:
		if ours.apply = exactOperator(name); ours.apply == nil {
			impl, err := e.implementation(name, theirs.OverloadID())
			if err != nil {
				return nil, &planError{ours.id, err}
			}
			ours.apply = invoke(name, theirs.OverloadID(), impl)
		}
	}
	if name == each {
		return ours, nil // it holds the meter of one evaluation
	}
	return fold(ours, name)
}

// fold calculates a call of constants at once.
func fold(c *call, name string) (interpreter.InterpretableV2, error) {
	for _, a := range c.args {
		if _, constant := a.(interpreter.InterpretableConst); !constant {
			return c, nil
		}
	}
	v := c.Eval(interpreter.EmptyActivation())
	if err, failed := v.(*types.Err); failed {
		if overloads.IsTypeConversionFunction(name) {
			return nil, &planError{c.id, err}
		}
		return c, nil // only when it is reached
	}
	return interpreter.NewConstValue(c.id, v), nil
}

// implementation finds what the environment binds to an overload, or to a name when the checker left the overload open.
func (e *environment) implementation(name, overload string) (*functions.Overload, error) {
	decl, ok := e.cel.Functions()[name]
	if !ok {
		return nil, fmt.Errorf("there is no function %s", name)
	}
	bound, err := decl.Bindings()
	if err != nil {
		return nil, err
	}
	var byName *functions.Overload
	for _, o := range bound {
		switch o.Operator {
		case overload:
			return o, nil
		case name:
			byName = o
		}
	}
	if byName == nil {
		return nil, fmt.Errorf("the function %s is not bound", name)
	}
	return byName, nil
}

// invoke calls a bound function as cel-go does: by its implementation when the first operand has what it needs, else as a
// method of the first operand.
func invoke(name, overload string, impl *functions.Overload) func(*meter, []ref.Val) ref.Val {
	return func(m *meter, args []ref.Val) ref.Val {
		cost := 1
		for _, a := range args {
			cost += weigh(a)
		}
		if name == sumName {
			cost += size(args[0])
		}
		if len(args) == 2 && args[0].Type() == types.TimestampType {
			cost += zoneCost
		}
		m.use(cost)
		if len(args) > 0 && impl.OperandTrait != 0 && !args[0].Type().HasTrait(impl.OperandTrait) {
			return receive(name, overload, args)
		}
		switch {
		case len(args) == 1 && impl.Unary != nil:
			return impl.Unary(args[0])
		case len(args) == 2 && impl.Binary != nil:
			return impl.Binary(args[0], args[1])
		case impl.Function != nil:
			return impl.Function(args...)
		}
		return receive(name, overload, args)
	}
}

// zoneCost is what looking up a time zone costs: it is read from the zone database each time.
const zoneCost = 500

func receive(name, overload string, args []ref.Val) ref.Val {
	if len(args) > 0 && args[0].Type().HasTrait(traits.ReceiverType) {
		return args[0].(traits.Receiver).Receive(name, overload, args[1:])
	}
	return types.NewErr("no such overload: %s", name)
}

// size is the number of items of a list or a map.
func size(v ref.Val) int {
	if s, ok := v.(traits.Sizer); ok {
		if n, ok := s.Size().(types.Int); ok {
			return int(n)
		}
	}
	return 0
}

// matching is matches(text, pattern). A constant pattern is compiled once.
func matching(args []interpreter.InterpretableV2) (func(*meter, []ref.Val) ref.Val, error) {
	var once *pattern
	if c, ok := args[1].(interpreter.InterpretableConst); ok {
		if text, ok := c.Value().(types.String); ok {
			p, err := newPattern(string(text))
			if err != nil {
				return nil, err
			}
			once = p
		}
	}
	return func(m *meter, args []ref.Val) ref.Val {
		text, ok := args[0].(types.String)
		source, also := args[1].(types.String)
		if !ok || !also {
			return types.NewErr("no such overload: matches")
		}
		p := once
		if p == nil {
			m.use(patternCost + 50*len(source))
			var err error
			if p, err = newPattern(string(source)); err != nil {
				return types.WrapErr(err)
			}
		}
		m.use(1 + len(text)*(1+p.size/32)) // a step of an automaton for each byte, as slow as one of ours
		return types.Bool(p.MatchString(string(text)))
	}, nil
}

// patternCost is what compiling a pattern that is not constant costs at least.
const patternCost = 1000

type pattern struct {
	*regexp.Regexp
	size int
}

func newPattern(text string) (*pattern, error) {
	if len(text) > MaxRegexp {
		return nil, &EvalError{Kind: EvalCost, text: "the pattern is too long"}
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("the pattern is not a regular expression: %w", err)
	}
	prog, err := syntax.Compile(parsed.Simplify()) // a{4} cannot be compiled as it stands
	if err != nil {
		return nil, err
	}
	if len(prog.Inst) > MaxRegexp {
		return nil, &EvalError{Kind: EvalCost, text: "the pattern is too large"}
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, err
	}
	return &pattern{re, len(prog.Inst)}, nil
}
