package expr

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/cel-go/cel"
	"pgregory.net/rapid"

	"reprieve.dev/pipeline"
)

// generated draws the parts of expressions and records. Plain records hold only what CEL itself compares exactly: numbers
// that are multiples of a quarter below 2^53.
type generated struct {
	t     *rapid.T
	plain bool
}

func (g generated) pick(label string, from ...string) string {
	return rapid.SampledFrom(from).Draw(g.t, label)
}

var paths = []string{
	`view.a`, `view.b`, `view.c`, `view.missing`, `view.m.a`, `view.m.b`, `view.m.missing`, `view.m.n.a`, `view["a"]`,
	`view["m"]["b"]`, `view.l[0]`, `view.l[1]`, `view.l[7]`, `view.l[0].a`, `view.m[0]`, `view.a.b`, `view.a[0]`, `view.l.a`,
	`view`, `view.m`, `view.l`, `headers.h`, `headers["null"]`, `headers.missing`, `headers`, `key`, `topic`, `partition`,
	`offset`, `timestamp`,
}

func (g generated) path() string { return g.pick("path", paths...) }

func (g generated) constant() string {
	plain := []string{
		`null`, `true`, `false`, `0`, `1`, `-1`, `2`, `7`, `1.0`, `0.5`, `-0.25`, `1u`, `7u`, `"a"`, `"b"`, `""`, `"h"`, `b"a"`, `b""`,
		`timestamp("2026-09-15T10:00:00.123Z")`, `timestamp("1969-12-31T23:59:59.750Z")`, `duration("1s")`, `1 + 1`, `-(2)`,
		`[1]`, `[]`, `{}`, `{"a": 1}`,
	}
	if g.plain {
		return g.pick("constant", plain...)
	}
	return g.pick("constant", append(plain, `9007199254740993`, `9007199254740992.0`, `-9007199254740993`, `9223372036854775807`,
		`-9223372036854775808`, `9223372036854775808.0`, `18446744073709551615u`, `9223372036854775808u`, `18446744073709551616.0`,
		`1.1`, `0.1`, `1e300`, `-1e300`, `1e-300`, `decimal("1.10")`, `decimal("1e400")`, `decimal("0.0")`, `decimal("-0.30")`)...)
}

func (g generated) leaf() string {
	switch p := g.path(); rapid.IntRange(0, 9).Draw(g.t, "leaf") {
	case 0:
		return p
	case 1:
		return "has(" + g.pick("has", `view.a`, `view.missing`, `view.m.a`, `view.m.missing`, `view.missing.a`, `view.a.b`, `view.l.a`,
			`view.l[0].a`, `view.m.n.a`, `headers.h`, `headers.missing`, `view.l[9].a`) + ")"
	case 2, 3:
		n := rapid.IntRange(0, 3).Draw(g.t, "items")
		items := make([]string, n)
		for i := range items {
			items[i] = g.constant()
		}
		return p + " in [" + strings.Join(items, ", ") + "]"
	case 4:
		return p + "." + g.pick("text", "startsWith", "endsWith", "contains") + "(" + g.pick("arg", `"a"`, `""`, `"h"`) + ")"
	case 5:
		return g.pick("name", `"h"`, `"null"`, `"zz"`) + " in headers"
	default:
		op := " " + g.pick("op", "==", "!=", "<", "<=", ">", ">=") + " "
		if rapid.Bool().Draw(g.t, "mirrored") {
			return g.constant() + op + p
		}
		return p + op + g.constant()
	}
}

func (g generated) expr(depth int) string {
	if depth == 0 {
		return g.leaf()
	}
	switch rapid.IntRange(0, 4).Draw(g.t, "shape") {
	case 0:
		return "!(" + g.expr(depth-1) + ")"
	case 1:
		return "(" + g.expr(depth-1) + ") && (" + g.expr(depth-1) + ")"
	case 2:
		return "(" + g.expr(depth-1) + ") || (" + g.expr(depth-1) + ")"
	case 3:
		return g.pick("literal", "true", "false")
	}
	return g.leaf()
}

func (g generated) value(depth int) any {
	plain := []any{
		null(), boolVal(true), boolVal(false), integral(0), integral(1), integral(-1), integral(7), float(0.5), float(-0.25), float(1),
		num("1"), num("2"), num("-0"), str("a"), str("ab"), str(""), str("h"), enum("b"), raw([]byte("a")), raw([]byte{}),
		millis(1789466400123), millis(-250),
	}
	n := len(plain)
	if !g.plain {
		plain = append(plain, float(math.NaN()), float(math.Inf(1)), float(math.Inf(-1)), float(1.1), float(9007199254740992), float(1<<63),
			integral(math.MaxInt64), integral(math.MinInt64), integral(9007199254740993), num("9007199254740993"), num("18446744073709551615"),
			num("9223372036854775808"), num("18446744073709551616"), num("-9223372036854775809"), num("1.10"), num("1.1000000000000000001"),
			num("0.0"), num("-0.3"), num("1E400"), num("1e-400"), num("1e0"), num("10E-1"), num("-"), dec([]byte{0x6e}, 2), dec([]byte{0xff}, 2), dec(nil, 0),
			dec([]byte{0x01, 0, 0, 0, 0, 0, 0, 0, 0}, 0), dec([]byte{0xe2}, 2), millis(math.MaxInt64), millis(math.MinInt64),
			pipeline.Value{Kind: pipeline.KindTimestamp, Int: 1, Scale: 0}, dec([]byte{1}, -400), dec([]byte{1}, math.MinInt32))
		n = len(plain)
	}
	at := rapid.IntRange(0, n+3).Draw(g.t, "value")
	switch {
	case at < n:
		return plain[at]
	case depth == 0:
		return plain[0]
	case at%2 == 0:
		return g.record(depth - 1)
	}
	list := make([]any, rapid.IntRange(0, 2).Draw(g.t, "length"))
	for i := range list {
		list[i] = g.value(depth - 1)
	}
	return list
}

func (g generated) record(depth int) *tree {
	t := rec()
	for _, name := range []string{"a", "b", "c", "m", "l", "n"} {
		if !rapid.Bool().Draw(g.t, name) {
			continue
		}
		v := g.value(depth)
		switch {
		case depth > 0 && (name == "m" || name == "n") && rapid.Bool().Draw(g.t, "as record"):
			v = g.record(depth - 1)
		case depth > 0 && name == "l" && rapid.Bool().Draw(g.t, "as list"):
			v = []any{g.value(depth - 1), g.record(depth - 1)}
		}
		t.names, t.kids[name] = append(t.names, name), v
	}
	return t
}

func (g generated) batch() *pipeline.Batch {
	var top any
	if rapid.IntRange(0, 9).Draw(g.t, "view") > 0 {
		top = g.record(3)
	}
	b := &pipeline.Batch{TP: pipeline.TP{Topic: "a", Partition: 7}}
	b.Recs = []pipeline.Record{{Offset: 1, TimeMS: 1789466400123, Headers: []pipeline.Header{{Name: "h", Value: []byte("a")}, {Name: "null"}}}}
	if rapid.Bool().Draw(g.t, "key") {
		b.Recs[0].Key = []byte("a")
	}
	b.Begin(nil)
	if top != nil {
		b.Views[0] = treeView{top}
	}
	return b
}

// A native predicate says what its own CEL program says: the same truth, an error for an error.
func TestNativeDecidesAsCEL(t *testing.T) {
	native := 0
	rapid.Check(t, func(t *rapid.T) {
		g := generated{t: t}
		src := g.expr(rapid.IntRange(0, 2).Draw(t, "depth"))
		c, err := Condition(src)
		if err != nil || c.native == nil {
			return // a list or a map as a constant
		}
		native++
		for range 10 {
			b := g.batch()
			got, gotErr := c.Eval(b, 0)
			want, wantErr := c.prog.truth(&activation{b: b})
			if got != want || (gotErr != nil) != (wantErr != nil) {
				t.Fatalf("%s over %s: native %v, %v; cel %v, %v", src, show(b), got, gotErr, want, wantErr)
			}
		}
	})
	if native == 0 {
		t.Error("no expression was native")
	}
}

// choice draws a value: a path, a constant, or a choice of these.
func (g generated) choice(depth int) string {
	if depth > 0 && rapid.IntRange(0, 2).Draw(g.t, "choice") > 0 {
		return "(" + g.expr(1) + ") ? (" + g.choice(depth-1) + ") : (" + g.choice(depth-1) + ")"
	}
	if rapid.Bool().Draw(g.t, "constant branch") {
		return g.constant()
	}
	return g.path()
}

// A native value writes what its own CEL program writes: the same text, null for null, an error for an error.
func TestNativeValuesAreWrittenAsCELWritesThem(t *testing.T) {
	native, choices := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		g := generated{t: t}
		src := g.choice(rapid.IntRange(0, 2).Draw(t, "depth"))
		v, err := ValueOf(src)
		if err != nil || v.native == nil {
			return // a list or a map as a constant, branches of two types
		}
		native++
		if v.native.when != nil {
			choices++
		}
		for range 10 {
			b := g.batch()
			got, gotOK, gotErr := v.Append([]byte("> "), b, 0)
			want, wantOK, wantErr := (&Val{prog: v.prog}).Append([]byte("> "), b, 0)
			if string(got) != string(want) || gotOK != wantOK || (gotErr != nil) != (wantErr != nil) {
				t.Fatalf("%s over %s: native %q, %v, %v; cel %q, %v, %v", src, show(b), got, gotOK, gotErr, want, wantOK, wantErr)
			}
		}
	})
	if native == 0 || choices == 0 {
		t.Errorf("%d expressions were native, %d of them choices", native, choices)
	}
}

// On what CEL compares exactly itself, the program (and so the native predicate) says what an untouched cel-go says.
func TestProgramsDecideAsPlainCEL(t *testing.T) {
	env, err := cel.NewEnv(cel.Variable("view", cel.DynType), cel.Variable("headers", cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable("key", cel.DynType), cel.Variable("topic", cel.StringType), cel.Variable("partition", cel.IntType),
		cel.Variable("offset", cel.IntType), cel.Variable("timestamp", cel.TimestampType), cel.CrossTypeNumericComparisons(true))
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		g := generated{t: t, plain: true}
		src := g.expr(rapid.IntRange(0, 2).Draw(t, "depth"))
		c, err := Condition(src)
		ast, issues := env.Compile(src)
		condition := issues.Err() == nil && (ast.OutputType().IsExactType(cel.BoolType) || ast.OutputType().IsExactType(cel.DynType))
		if (err == nil) != condition {
			t.Fatalf("%s: ours %v, cel %v", src, err, issues.Err())
		}
		if err != nil {
			return
		}
		run, err := env.Program(ast)
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			b := g.batch()
			got, gotErr := c.Eval(b, 0)
			out, _, wantErr := run.Eval(plainVars(b))
			want := false
			if wantErr == nil {
				var isBool bool
				if want, isBool = out.Value().(bool); !isBool {
					wantErr = fmt.Errorf("%s is not a bool", out.Type())
				}
			}
			if got != want || (gotErr != nil) != (wantErr != nil) {
				t.Fatalf("%s over %s: ours %v, %v; cel %v, %v", src, show(b), got, gotErr, want, wantErr)
			}
		}
	})
}

// plainVars gives a record to cel-go as Go values.
func plainVars(b *pipeline.Batch) map[string]any {
	r := b.Recs[0]
	vars := map[string]any{
		"view": nil, "headers": map[string]any{"h": "a", "null": nil}, "key": nil, "topic": b.TP.Topic, "partition": int64(b.TP.Partition),
		"offset": r.Offset, "timestamp": time.UnixMilli(r.TimeMS).UTC(),
	}
	if b.Views[0] != nil {
		vars["view"] = plainValue(b.Views[0].(treeView).top)
	}
	if r.Key != nil {
		vars["key"] = string(r.Key)
	}
	return vars
}

func plainValue(v any) any {
	switch x := v.(type) {
	case *tree:
		m := map[string]any{}
		for name, kid := range x.kids {
			m[name] = plainValue(kid)
		}
		return m
	case []any:
		l := make([]any, len(x))
		for i := range x {
			l[i] = plainValue(x[i])
		}
		return l
	}
	switch x := v.(pipeline.Value); x.Kind {
	case pipeline.KindBool:
		return x.Int != 0
	case pipeline.KindInt:
		return x.Int
	case pipeline.KindFloat:
		return x.Float
	case pipeline.KindString, pipeline.KindEnum:
		return string(x.Bytes)
	case pipeline.KindBytes:
		return x.Bytes
	case pipeline.KindNumber:
		n, err := strconv.ParseInt(string(x.Bytes), 10, 64)
		if err != nil {
			panic(err)
		}
		return n
	case pipeline.KindTimestamp:
		return time.UnixMilli(x.Int).UTC()
	}
	return nil
}

// show writes a record for a failing test.
func show(b *pipeline.Batch) string {
	if b.Views[0] == nil {
		return "no view"
	}
	return showValue(b.Views[0].(treeView).top)
}

func showValue(v any) string {
	switch x := v.(type) {
	case *tree:
		var parts []string
		for _, n := range x.names {
			parts = append(parts, n+": "+showValue(x.kids[n]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []any:
		var parts []string
		for _, n := range x {
			parts = append(parts, showValue(n))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return fmt.Sprintf("%+v", v)
}
