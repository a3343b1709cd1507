package expr

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/interpreter"

	"reprieve.dev/pipeline"
)

// Problem is one reason why an expression does not compile. Line and Column count from 1 within the expression, in code
// points.
type Problem struct {
	Line, Column int
	Text         string
	Suggestion   string // "" if there is none
}

// Problems is all that is wrong with one expression, in the order of its text. Its code is ERR_CONFIG_EXPRESSION.
type Problems []Problem

// Error is a line for each problem: "line:column: text (suggestion)".
func (p Problems) Error() string {
	var b strings.Builder
	for i, q := range p {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%d:%d: %s", q.Line, q.Column, q.Text)
		if q.Suggestion != "" {
			b.WriteString(" (" + q.Suggestion + ")")
		}
	}
	return b.String()
}

// ErrorCode is the code of every compile problem; pipeline.CodeOf reads it.
func (p Problems) ErrorCode() string { return string(pipeline.CodeConfigExpression) }

// EvalKind says what kind of evaluation error it is.
type EvalKind string

// The kinds: a field that is missing; a value of a type that the expression cannot use; a number that does not fit; the
// budget; anything else that CEL refuses.
const (
	EvalMissing EvalKind = "missing"
	EvalType    EvalKind = "type"
	EvalNumber  EvalKind = "number"
	EvalCost    EvalKind = "cost"
	EvalFailed  EvalKind = "failed"
)

// EvalError says why an evaluation has no result. Its text holds names of the expression, never a byte of the record; Unwrap
// gives CEL's own words, which may hold payload and are for restricted evidence only. It keeps nothing borrowed.
type EvalError struct {
	Kind         EvalKind
	Line, Column int    // in the expression; 0 is unknown
	Path         string // which field, when that is known
	text         string
	cause        error
}

// Error is "line:column: text".
func (e *EvalError) Error() string {
	if e.Line == 0 {
		return e.text
	}
	return fmt.Sprintf("%d:%d: %s", e.Line, e.Column, e.text)
}

// Unwrap returns CEL's error.
func (e *EvalError) Unwrap() error { return e.cause }

var errBadValue = &EvalError{Kind: EvalType, text: "a value that no expression can use"}

// evalError turns an error of cel-go into ours. The words are copied: they may borrow the record.
func (p *program) evalError(err error) error {
	out := &EvalError{Kind: EvalFailed, text: "a field is missing or has a type that does not fit", cause: errors.New(err.Error())}
	if own, ok := errors.AsType[*EvalError](err); ok {
		out.Kind, out.text = own.Kind, own.text
	}
	if stop, ok := errors.AsType[interpreter.EvalCancelledError](err); ok && stop.Cause == interpreter.CostLimitExceeded {
		out.Kind, out.text = EvalCost, "the expression takes too long on this record"
	}
	if at, ok := errors.AsType[*types.Err](err); ok && at.NodeID() != 0 {
		loc := p.ast.NativeRep().SourceInfo().GetStartLocation(at.NodeID())
		if loc.Line() > 0 {
			out.Line, out.Column = loc.Line(), loc.Column()+1
		}
	}
	return out
}

// problems reads what the parser or the checker found.
func (e *environment) problems(src string, issues *cel.Issues) error {
	if issues == nil || issues.Err() == nil {
		return nil
	}
	var out Problems
	for _, i := range issues.Errors() {
		p := Problem{Line: max(i.Location.Line(), 1), Column: max(i.Location.Column()+1, 1), Text: i.Message}
		p.Suggestion = spelling(src)
		out = append(out, p)
	}
	return out
}

// spelling recognises what people write who come from other languages.
func spelling(src string) string {
	words := strings.Fields(src)
	switch {
	case slices.Contains(words, "and") || slices.Contains(words, "AND"):
		return "write && for and"
	case slices.Contains(words, "or") || slices.Contains(words, "OR"):
		return "write || for or"
	case slices.Contains(words, "not") || slices.Contains(words, "NOT"):
		return "write ! for not"
	case slices.Contains(words, "="):
		return "write == to compare"
	case slices.Contains(words, "<>"):
		return "write != for not equal"
	}
	return ""
}

// undeclared finds names that no variable has, before the checker does: with the nearest known name.
func (e *environment) undeclared(a *cel.Ast) error {
	var out Problems
	info := a.NativeRep().SourceInfo()
	report := func(id int64, name, kind string, known []string) {
		loc := info.GetStartLocation(id)
		out = append(out, Problem{Line: max(loc.Line(), 1), Column: loc.Column() + 1,
			Text: "there is no " + kind + " " + name, Suggestion: e.suggest(name, kind, known)})
	}
	functions := make([]string, 0, 64)
	for name := range e.cel.Functions() {
		if name[0] != '_' && name[0] != '@' && name[0] != '!' && name[0] != '-' {
			functions = append(functions, name)
		}
	}
	slices.Sort(functions)
	var walk func(x celast.Expr, local []string)
	walk = func(x celast.Expr, local []string) {
		switch x.Kind() {
		case celast.IdentKind:
			name := x.AsIdent()
			if e.rootOf(name) == rootNone && !slices.Contains(local, name) && !typeIdent(name) && !strings.HasPrefix(name, "@") {
				report(x.ID(), name, "variable", e.names())
			}
		case celast.SelectKind:
			if base, ok := qualified(x); ok && strings.HasPrefix(base, "google.") {
				return
			}
			walk(x.AsSelect().Operand(), local)
		case celast.CallKind:
			c := x.AsCall()
			if name := c.FunctionName(); !e.cel.HasFunction(name) && !slices.Contains(macroNames, name) {
				report(x.ID(), name, "function", append(slices.Clone(macroNames), functions...))
			}
			if c.IsMemberFunction() {
				walk(c.Target(), local)
			}
			for _, arg := range c.Args() {
				walk(arg, local)
			}
		case celast.ListKind:
			for _, el := range x.AsList().Elements() {
				walk(el, local)
			}
		case celast.MapKind:
			for _, en := range x.AsMap().Entries() {
				walk(en.AsMapEntry().Key(), local)
				walk(en.AsMapEntry().Value(), local)
			}
		case celast.ComprehensionKind:
			c := x.AsComprehension()
			walk(c.IterRange(), local)
			inner := append(slices.Clone(local), c.IterVar(), c.AccuVar())
			if c.HasIterVar2() {
				inner = append(inner, c.IterVar2())
			}
			walk(c.AccuInit(), local)
			walk(c.LoopCondition(), inner)
			walk(c.LoopStep(), inner)
			walk(c.Result(), inner)
		}
	}
	walk(a.NativeRep().Expr(), nil)
	if out == nil {
		return nil
	}
	return out
}

var macroNames = []string{"has", "all", "exists", "exists_one", "map", "filter"}

// typeIdent tells whether name is a type of CEL, as in type(x) == int.
func typeIdent(name string) bool {
	switch name {
	case "bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint", "google":
		return true
	}
	return false
}

func qualified(x celast.Expr) (string, bool) {
	if x.Kind() == celast.IdentKind {
		return x.AsIdent(), true
	}
	if x.Kind() == celast.SelectKind {
		s := x.AsSelect()
		if base, ok := qualified(s.Operand()); ok {
			return base + "." + s.FieldName(), true
		}
	}
	return "", false
}

// suggest proposes the nearest known name; a variable that is none near may be a field of the record.
func (e *environment) suggest(name, kind string, known []string) string {
	best, distance := "", 3
	for _, k := range known {
		if d := editDistance(strings.ToLower(name), k); d < distance && d < len(name) {
			best, distance = k, d
		}
	}
	switch {
	case best != "":
		return "did you mean " + best + "?"
	case kind == "variable" && e.rootOf("view") != rootNone:
		return "a field of the record is view." + name
	}
	return "known: " + strings.Join(known[:min(len(known), 20)], ", ")
}

func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diag, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diag+cost)
		}
	}
	return row[len(b)]
}

func typeName(t *cel.Type) string {
	if t.Kind() == types.NullTypeKind {
		return "null"
	}
	return t.String()
}

func typeNames(ts []*cel.Type) string {
	out := make([]string, len(ts))
	for i, t := range ts {
		out[i] = typeName(t)
	}
	return strings.Join(out, " or ")
}
