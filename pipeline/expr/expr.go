// Package expr compiles the expressions of files once and evaluates them over records: conditions (when), values of enrich
// headers, conditions over the facts of a failure, answers of a reconcile question, and measures that redrive sums.
//
// The language is CEL (google/cel-go) with two differences that data demands:
//
//   - Numbers are exact. A JSON number is an int, a uint or, when it is neither, a decimal that keeps its text; a decimal
//     compares and calculates exactly. Between an integer and a double the comparison is exact too, and against a decimal a
//     double stands for its shortest text: view.price == 1.10 is true of the JSON numbers 1.1 and 1.10 and of nothing else.
//     Arithmetic of two kinds of number gives a decimal; of one kind it is as in CEL.
//   - Every evaluation has a budget. An expression that would take long ends with an error, whatever it and the data are.
//
// A condition that only compares single paths with constants is turned into a native predicate, which decides the same and
// allocates nothing (native.go; a differential test holds the two together). So is a value that is a path, a constant or a
// choice of these by such a condition (choice.go).
//
// Variables of a record: view (what decode made of it; null without a view), headers (the last value of each name as text),
// header_list (all headers in order, each with name and value), key (its bytes as text, or its fields where keys are decoded), topic, partition, offset, timestamp.
//
// Functions beside those of CEL: decimal(text or number), sum(list).
//
// A field that is missing, a type that does not fit, an overflow are errors of the evaluation (*EvalError), never a panic.
// Their text carries no payload.
package expr

import (
	"github.com/google/cel-go/cel"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types/ref"

	"reprieve.dev/pipeline"
)

// Limits of every expression. They are generous for what people write and small enough that nothing written by mistake or
// malice holds a partition for long.
const (
	MaxSource = 16 << 10  // code points
	MaxNodes  = 10_000    // after macros
	MaxDepth  = 64        // nesting of the source
	MaxRegexp = 1_000     // instructions of a regular expression
	MaxCost   = 2_000_000 // steps of one evaluation (meter.go): at most about 0.2 s
)

// Cond is a compiled condition over a record. It is immutable and safe for concurrent use.
type Cond struct {
	src    string
	prog   *program
	native *predicate
	view   bool
}

// Condition compiles src, which must give a bool. An error is Problems.
func Condition(src string) (*Cond, error) {
	p, err := recordEnv().compile(src, cel.BoolType)
	if err != nil {
		return nil, err
	}
	return &Cond{src: src, prog: p, native: p.predicate(), view: p.reads("view")}, nil
}

// Eval decides for record i of b. An error is an *EvalError; it says nothing about truth. A native condition allocates
// nothing, also when it errors. The view of the record is not kept.
func (c *Cond) Eval(b *pipeline.Batch, i int) (bool, error) {
	if c.native != nil {
		e := env{b: b, i: i}
		return c.native.eval(&e)
	}
	return c.prog.truth(&activation{b: b, i: i})
}

// Native tells whether the condition runs without CEL.
func (c *Cond) Native() bool { return c.native != nil }

// ReadsView tells whether the condition reads the view: without one (a delete marker) it has nothing to say.
func (c *Cond) ReadsView() bool { return c.view }

// String is the source.
func (c *Cond) String() string { return c.src }

// Val is a compiled expression whose result is written as text. It is immutable and safe for concurrent use.
type Val struct {
	src    string
	prog   *program
	native *choice
	view   bool
}

// ValueOf compiles src, which may give a string, a number, a bool, bytes, a time or null. An error is Problems.
func ValueOf(src string) (*Val, error) {
	p, err := recordEnv().compile(src, cel.StringType, cel.IntType, cel.UintType, cel.DoubleType, cel.BoolType, cel.BytesType,
		cel.TimestampType, cel.DurationType, cel.NullType)
	if err != nil {
		return nil, err
	}
	return &Val{src: src, prog: p, native: p.choice(), view: p.reads("view")}, nil
}

// Append appends the text of record i: strings as they are, numbers exactly, times as RFC 3339 with milliseconds. False is
// null: there is no text. A list or a map has no text and is an *EvalError. A native value allocates nothing beyond dst.
func (v *Val) Append(dst []byte, b *pipeline.Batch, i int) ([]byte, bool, error) {
	if v.native != nil {
		e := env{b: b, i: i}
		return v.native.append(dst, &e)
	}
	out, err := v.prog.eval(&activation{b: b, i: i})
	if err != nil {
		return dst, false, err
	}
	return v.prog.appendVal(dst, out)
}

// Native tells whether the value is made without CEL: a path, a constant, or a choice of these by a native condition.
func (v *Val) Native() bool { return v.native != nil }

// ReadsView tells whether the expression reads the view: without one (a delete marker) it has nothing to say.
func (v *Val) ReadsView() bool { return v.view }

// Reads tells whether the expression names a variable: view, headers, key, topic, partition, offset, timestamp.
func (v *Val) Reads(name string) bool { return v.prog.reads(name) }

// String is the source.
func (v *Val) String() string { return v.src }

// FactsCond is a compiled condition over the facts of a failure. It is immutable and safe for concurrent use.
type FactsCond struct {
	src    string
	prog   *program
	native *predicate
}

// FactsCondition compiles src over code, class, three_way, stage, attempt, rung, age, retry_after, retryable, schema, tenant,
// topic, release, lane, redriven, healthy; age and retry_after are durations, an unknown age is 0s. An error is Problems.
func FactsCondition(src string) (*FactsCond, error) {
	p, err := factsEnv().compile(src, cel.BoolType)
	if err != nil {
		return nil, err
	}
	return &FactsCond{src: src, prog: p, native: p.predicate()}, nil
}

// Eval decides for f. An error is an *EvalError.
func (c *FactsCond) Eval(f pipeline.Facts) (bool, error) {
	if c.native != nil {
		e := env{f: &f}
		return c.native.eval(&e)
	}
	g := f // only this copy goes to the heap
	return c.prog.truth(&activation{f: &g})
}

// Native tells whether the condition runs without CEL.
func (c *FactsCond) Native() bool { return c.native != nil }

// String is the source.
func (c *FactsCond) String() string { return c.src }

// AnswerCond is a compiled condition over the answer of a service: status (int) and body (a view, null if there is none).
type AnswerCond struct {
	src  string
	prog *program
}

// AnswerCondition compiles src over status and body, as in reconcile.http.applied. An error is Problems.
func AnswerCondition(src string) (*AnswerCond, error) {
	p, err := answerEnv().compile(src, cel.BoolType)
	if err != nil {
		return nil, err
	}
	return &AnswerCond{src: src, prog: p}, nil
}

// Eval decides for one answer. An error is an *EvalError.
func (c *AnswerCond) Eval(status int, body pipeline.View) (bool, error) {
	return c.prog.truth(&activation{status: int64(status), view: body, viewSet: true})
}

// String is the source.
func (c *AnswerCond) String() string { return c.src }

// AnswerNumber compiles a Measure over the body of an answer, as in reconcile.http.measures. An error is Problems.
func AnswerNumber(src string) (*Measure, error) {
	p, err := answerEnv().compile(src, cel.IntType, cel.UintType, cel.DoubleType)
	if err != nil {
		return nil, err
	}
	return &Measure{src: src, prog: p}, nil
}

// Measure is a compiled number over a view, for sums that must reconcile to the last digit.
type Measure struct {
	src  string
	prog *program
}

// Number compiles src over view alone; it must give a number. An error is Problems.
func Number(src string) (*Measure, error) {
	p, err := viewEnv().compile(src, cel.IntType, cel.UintType, cel.DoubleType)
	if err != nil {
		return nil, err
	}
	return &Measure{src: src, prog: p}, nil
}

// Eval measures one view exactly. A double counts as its shortest text. False is null: nothing to count. What is not a
// number is an *EvalError.
func (m *Measure) Eval(v pipeline.View) (Quantity, bool, error) {
	out, err := m.prog.eval(&activation{view: v, viewSet: true})
	if err != nil {
		return Quantity{}, false, err
	}
	return m.prog.quantity(out)
}

// String is the source.
func (m *Measure) String() string { return m.src }

// program is a checked expression with its plan.
type program struct {
	src   string
	ast   *cel.Ast
	run   cel.Program
	paths *pathSet
	env   *environment
}

// reads tells whether the expression names a variable.
func (p *program) reads(name string) bool {
	found := false
	celast.PreOrderVisit(p.ast.NativeRep().Expr(), celast.NewExprVisitor(func(e celast.Expr) {
		found = found || e.Kind() == celast.IdentKind && e.AsIdent() == name
	}))
	return found
}

// truth evaluates to a bool.
func (p *program) truth(a *activation) (bool, error) {
	out, err := p.eval(a)
	if err != nil {
		return false, err
	}
	t, ok := out.Value().(bool)
	if !ok {
		return false, &EvalError{Kind: EvalType, Line: 1, Column: 1, text: "the result is not a bool"}
	}
	return t, nil
}

// eval runs the plan once. A panic inside cel-go comes back as an error: its Eval recovers.
func (p *program) eval(a *activation) (ref.Val, error) {
	a.meter.left = MaxCost
	a.paths = p.paths
	out, _, err := p.run.Eval(a)
	if err != nil {
		return nil, p.evalError(err)
	}
	return out, nil
}
