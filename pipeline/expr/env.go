package expr

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/google/cel-go/cel"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// root is a variable that expressions may name.
type root uint8

const (
	rootNone root = iota
	rootView
	rootHeaders
	rootHeaderList
	rootKey
	rootTopic
	rootPartition
	rootOffset
	rootTimestamp
	rootCode
	rootClass
	rootThreeWay
	rootStage
	rootAttempt
	rootRung
	rootAge
	rootRetryAfter
	rootRetryable
	rootSchema
	rootTenant
	rootRelease
	rootLane
	rootRedriven
	rootHealthy
	rootStatus
	rootBody
)

type variable struct {
	name string
	root root
	typ  *cel.Type
}

// environment is a CEL environment and its variables. It is immutable.
type environment struct {
	cel  *cel.Env
	vars []variable
}

func (e *environment) rootOf(name string) root {
	for _, v := range e.vars {
		if v.name == name {
			return v.root
		}
	}
	return rootNone
}

func (e *environment) names() []string {
	out := make([]string, len(e.vars))
	for i, v := range e.vars {
		out[i] = v.name
	}
	return out
}

// The four environments are constants that take some milliseconds to make.
var (
	recordEnv = sync.OnceValue(func() *environment {
		return newEnvironment(
			variable{"view", rootView, cel.DynType},
			variable{"headers", rootHeaders, cel.MapType(cel.StringType, cel.DynType)},
			variable{"header_list", rootHeaderList, cel.ListType(cel.MapType(cel.StringType, cel.DynType))},
			variable{"key", rootKey, cel.DynType},
			variable{"topic", rootTopic, cel.StringType},
			variable{"partition", rootPartition, cel.IntType},
			variable{"offset", rootOffset, cel.IntType},
			variable{"timestamp", rootTimestamp, cel.TimestampType})
	})
	factsEnv = sync.OnceValue(func() *environment {
		return newEnvironment(
			variable{"code", rootCode, cel.StringType},
			variable{"class", rootClass, cel.StringType},
			variable{"three_way", rootThreeWay, cel.StringType},
			variable{"stage", rootStage, cel.StringType},
			variable{"attempt", rootAttempt, cel.IntType},
			variable{"rung", rootRung, cel.IntType},
			variable{"age", rootAge, cel.DurationType},
			variable{"retry_after", rootRetryAfter, cel.DurationType},
			variable{"retryable", rootRetryable, cel.BoolType},
			variable{"schema", rootSchema, cel.StringType},
			variable{"tenant", rootTenant, cel.StringType},
			variable{"topic", rootTopic, cel.StringType},
			variable{"release", rootRelease, cel.StringType},
			variable{"lane", rootLane, cel.StringType},
			variable{"redriven", rootRedriven, cel.BoolType},
			variable{"healthy", rootHealthy, cel.BoolType})
	})
	answerEnv = sync.OnceValue(func() *environment {
		return newEnvironment(
			variable{"status", rootStatus, cel.IntType},
			variable{"body", rootBody, cel.DynType})
	})
	viewEnv = sync.OnceValue(func() *environment {
		return newEnvironment(variable{"view", rootView, cel.DynType})
	})
)

const sumName = "sum"

func newEnvironment(vars ...variable) *environment {
	opts := []cel.EnvOption{
		cel.ParserExpressionSizeLimit(MaxSource),
		cel.ParserRecursionLimit(MaxDepth),
		cel.ExpressionNodeLimit(MaxNodes),
		cel.DefaultUTCTimeZone(true),
		cel.CrossTypeNumericComparisons(true),
		cel.EagerlyValidateDeclarations(false),
		cel.Function("decimal",
			cel.Overload("reprieve_decimal_text", []*cel.Type{cel.StringType}, cel.DynType, cel.UnaryBinding(decimalOfText)),
			cel.Overload("reprieve_decimal_int", []*cel.Type{cel.IntType}, cel.DynType, cel.UnaryBinding(decimalOfNumber)),
			cel.Overload("reprieve_decimal_uint", []*cel.Type{cel.UintType}, cel.DynType, cel.UnaryBinding(decimalOfNumber)),
			cel.Overload("reprieve_decimal_double", []*cel.Type{cel.DoubleType}, cel.DynType, cel.UnaryBinding(decimalOfNumber)),
			cel.Overload("reprieve_decimal_decimal", []*cel.Type{decimalType}, cel.DynType, cel.UnaryBinding(decimalOfNumber))),
		cel.Function(sumName,
			cel.Overload("reprieve_sum_list", []*cel.Type{cel.ListType(cel.DynType)}, cel.DynType, cel.UnaryBinding(sumOf))),
		cel.Function("int", cel.Overload("reprieve_decimal_to_int", []*cel.Type{decimalType}, cel.IntType, convertTo(types.IntType))),
		cel.Function("uint", cel.Overload("reprieve_decimal_to_uint", []*cel.Type{decimalType}, cel.UintType, convertTo(types.UintType))),
		cel.Function("double", cel.Overload("reprieve_decimal_to_double", []*cel.Type{decimalType}, cel.DoubleType, convertTo(types.DoubleType))),
		cel.Function("string", cel.Overload("reprieve_decimal_to_string", []*cel.Type{decimalType}, cel.StringType, convertTo(types.StringType))),
	}
	for _, name := range []string{operators.Add, operators.Subtract, operators.Multiply, operators.Divide} {
		opts = append(opts, withDecimals(name))
	}
	for _, v := range vars {
		opts = append(opts, cel.Variable(v.name, v.typ))
	}
	env, err := cel.NewEnv(opts...)
	if err != nil {
		panic("expr: the environment is not valid: " + err.Error()) // a constant of the program; every test builds it
	}
	return &environment{cel: env, vars: vars}
}

// withDecimals lets the checker know that an operator also takes decimals. Without it the checker would take view.price * 2
// for an int, because an int times an int is the only multiplication that it knows with an int.
func withDecimals(operator string) cel.EnvOption {
	var opts []cel.FunctionOpt
	for _, t := range []*cel.Type{cel.IntType, cel.UintType, cel.DoubleType, decimalType} {
		opts = append(opts, cel.Overload("reprieve_"+operator+"_decimal_"+t.String(), []*cel.Type{decimalType, t}, cel.DynType))
		if t != decimalType {
			opts = append(opts, cel.Overload("reprieve_"+operator+"_"+t.String()+"_decimal", []*cel.Type{t, decimalType}, cel.DynType))
		}
	}
	return cel.Function(operator, opts...)
}

func convertTo(t ref.Type) cel.OverloadOpt {
	return cel.UnaryBinding(func(v ref.Val) ref.Val { return v.ConvertToType(t) })
}

func decimalOfText(v ref.Val) ref.Val {
	if s, ok := v.(types.String); ok && len(s) <= maxDigits {
		if d, ok := newDecimal(string(s)); ok {
			return d
		}
	}
	return types.WrapErr(errBadValue)
}

func decimalOfNumber(v ref.Val) ref.Val { return calculate('+', types.IntZero, v) }

// sumOf adds the numbers of a list exactly; the sum of an empty list is 0.
func sumOf(v ref.Val) ref.Val {
	l, ok := v.(traits.Lister)
	if !ok {
		return types.MaybeNoSuchOverloadErr(v)
	}
	var total ref.Val = types.IntZero
	add := arithmetic('+', traits.AdderType, func(a, b ref.Val) ref.Val { return a.(traits.Adder).Add(b) })
	for it := l.Iterator(); it.HasNext() == types.True; {
		item := it.Next()
		if _, number := numberOf(item); !number {
			return types.MaybeNoSuchOverloadErr(item)
		}
		if total = add(total, item); types.IsError(total) {
			return total
		}
	}
	return total
}

// compile parses, checks and plans src. The result must be of one of the types want, or dyn.
func (e *environment) compile(src string, want ...*cel.Type) (p *program, err error) {
	defer func() {
		if r := recover(); r != nil { // a defect of the compiler must not take the process with it
			p, err = nil, Problems{{Line: 1, Column: 1, Text: fmt.Sprintf("the expression cannot be compiled: %v", r)}}
		}
	}()
	parsed, issues := e.cel.Parse(src)
	if problems := e.problems(src, issues); problems != nil {
		return nil, problems
	}
	if problems := e.undeclared(parsed); problems != nil {
		return nil, problems
	}
	checked, issues := e.cel.Check(parsed)
	if problems := e.problems(src, issues); problems != nil {
		return nil, problems
	}
	if out := checked.OutputType(); !out.IsExactType(cel.DynType) && !slices.ContainsFunc(want, out.IsExactType) {
		return nil, Problems{{Line: 1, Column: 1, Text: "the expression gives " + typeName(out) + ", not " + typeNames(want)}}
	}
	run, err := e.plan(meterMacros(checked.NativeRep()))
	if err != nil {
		at := Problem{Line: 1, Column: 1, Text: err.Error()}
		if placed, ok := errors.AsType[*planError](err); ok {
			loc := checked.NativeRep().SourceInfo().GetStartLocation(placed.id)
			at = Problem{Line: max(loc.Line(), 1), Column: loc.Column() + 1, Text: placed.cause.Error()}
		}
		return nil, Problems{at}
	}
	return &program{src: src, ast: checked, run: run, paths: newPathSet(), env: e}, nil
}

// plan makes a program of a checked expression. Constant lists and maps are built once.
func (e *environment) plan(a *celast.AST) (cel.Program, error) {
	return e.cel.PlanProgram(a, cel.EvalOptions(cel.OptOptimize), cel.CustomDecoratorV2(e.decorate))
}
