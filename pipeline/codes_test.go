package pipeline_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"reprieve.dev/pipeline"
)

// declared are the code constants of codes.go, read from its source: a constant without a row cannot hide.
func declared(t *testing.T) map[string]pipeline.Code {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "codes.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]pipeline.Code{}
	for _, d := range file.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, s := range g.Specs {
			v := s.(*ast.ValueSpec)
			if id, ok := v.Type.(*ast.Ident); !ok || id.Name != "Code" {
				continue
			}
			text, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			out[v.Names[0].Name] = pipeline.Code(text)
		}
	}
	if len(out) < 50 {
		t.Fatalf("only %d constants were read", len(out))
	}
	return out
}

func TestEveryCodeHasOneRow(t *testing.T) {
	rows := map[pipeline.Code]int{}
	for _, c := range pipeline.Codes() {
		rows[c.Code]++
	}
	names := map[pipeline.Code]string{}
	for name, c := range declared(t) {
		if rows[c] != 1 {
			t.Errorf("%s (%s) has %d rows", name, c, rows[c])
		}
		if other, twice := names[c]; twice {
			t.Errorf("%s and %s are both %s", name, other, c)
		}
		names[c] = name
		if !pipeline.Known(c) {
			t.Errorf("%s is not known", c)
		}
	}
	for c := range rows {
		if names[c] == "" {
			t.Errorf("%s has a row and no constant", c)
		}
	}
}

func TestEveryRowSaysWhatHappenedAndWhatToDo(t *testing.T) {
	form := regexp.MustCompile(`^(ERR|ALERT)(_[A-Z0-9]+)+$`)
	param := regexp.MustCompile(`^[a-z_]+$`)
	for _, c := range pipeline.Codes() {
		t.Run(string(c.Code), func(t *testing.T) {
			if !form.MatchString(string(c.Code)) {
				t.Error("the code is not ERR_AREA_CONDITION or ALERT_AREA_CONDITION")
			}
			if c.Text == "" || strings.HasSuffix(c.Text, ".") || strings.ContainsAny(c.Text, "\n%") {
				t.Errorf("text %q", c.Text)
			}
			if c.Remedy == "" || !strings.HasSuffix(c.Remedy, ".") || strings.ContainsAny(c.Remedy, "\n%") {
				t.Errorf("remedy %q", c.Remedy)
			}
			if c.Exit < pipeline.ExitRuntime || c.Exit > pipeline.ExitRefused {
				t.Errorf("exit %d", c.Exit)
			}
			for _, p := range c.Identifying {
				if !param.MatchString(p) {
					t.Errorf("param %q", p)
				}
			}
		})
	}
}

func TestTheDefaultActionFollowsFromTheClass(t *testing.T) {
	for _, c := range pipeline.Codes() {
		want := map[pipeline.Class][]pipeline.Action{
			pipeline.ClassNone:      {pipeline.ActPause, pipeline.ActQuarantine},
			pipeline.Transient:      {pipeline.ActRetry, pipeline.ActQuarantine},
			pipeline.Payload:        {pipeline.ActQuarantine},
			pipeline.Domain:         {pipeline.ActQuarantine},
			pipeline.Authorization:  {pipeline.ActPause, pipeline.ActQuarantine},
			pipeline.ConsumerDefect: {pipeline.ActPause, pipeline.ActQuarantine},
			pipeline.Ambiguous:      {pipeline.ActQuarantine}, // never retried before somebody knows
			pipeline.Resource:       {pipeline.ActQuarantine},
		}[c.Class]
		ok := false
		for _, a := range want {
			ok = ok || a == c.Action
		}
		if !ok {
			t.Errorf("%s: class %s and action %s", c.Code, c.Class, c.Action)
		}
		if c.Retryable() != (c.Action == pipeline.ActRetry) {
			t.Errorf("%s: retryable is %v with action %s", c.Code, c.Retryable(), c.Action)
		}
	}
}

func TestTheTableCannotBeChangedFromOutside(t *testing.T) {
	all := pipeline.Codes()
	first := all[0]
	all[0] = pipeline.CodeInfo{}
	if got := pipeline.Codes()[0]; got.Code != first.Code {
		t.Errorf("got %v", got)
	}
}

func TestAnUnknownCodeIsAConsumerDefectThatIsQuarantined(t *testing.T) {
	c := pipeline.Lookup("ERR_FROM_ELSEWHERE")
	if c.Class != pipeline.ConsumerDefect || c.Action != pipeline.ActQuarantine || c.Retryable() || c.Text != "ERR_FROM_ELSEWHERE" || pipeline.Known(c.Code) {
		t.Errorf("got %+v", c)
	}
}

func TestWordsReadBackAsTheyAreWritten(t *testing.T) {
	for c := pipeline.Transient; c <= pipeline.Resource; c++ {
		if got, ok := pipeline.ParseClass(c.String()); !ok || got != c {
			t.Errorf("class %s reads as %v, %v", c, got, ok)
		}
	}
	for _, bad := range []string{"", "none", "Transient", "x"} {
		if got, ok := pipeline.ParseClass(bad); ok {
			t.Errorf("class %q reads as %v", bad, got)
		}
	}
	for a := pipeline.ActDeliver; a <= pipeline.ActPause; a++ {
		if got, ok := pipeline.ParseAction(a.String()); !ok || got != a {
			t.Errorf("action %s reads as %v, %v", a, got, ok)
		}
	}
	for _, tt := range []pipeline.TimeType{pipeline.TimeNone, pipeline.TimeCreate, pipeline.TimeLogAppend} {
		if got, ok := pipeline.ParseTimeType(tt.String()); !ok || got != tt {
			t.Errorf("time type %s reads as %v, %v", tt, got, ok)
		}
	}
	seen := map[string]bool{}
	for d := pipeline.Pending; d <= pipeline.Ranged; d++ {
		if s := d.String(); s == "" || seen[s] {
			t.Errorf("disposition %d is called %q", d, s)
		} else {
			seen[s] = true
		}
	}
}

func TestTheThreeWayViewCoversEveryClass(t *testing.T) {
	want := map[pipeline.Class]string{
		pipeline.Transient: "transient", pipeline.Ambiguous: "transient", pipeline.Payload: "poison", pipeline.ConsumerDefect: "poison",
		pipeline.Resource: "poison", pipeline.Domain: "rejection", pipeline.Authorization: "rejection",
	}
	for c, view := range want {
		if c.ThreeWay() != view {
			t.Errorf("%s is %s", c, c.ThreeWay())
		}
	}
}

func TestReasonsHoldTheParamsInTheirOrder(t *testing.T) {
	f := pipeline.Failure{Code: pipeline.CodeDecodeTruncated, Params: []pipeline.Param{pipeline.Str("schema", "avro:7"), pipeline.Int("at", 17)}}
	if got := f.Reason(); got != "the bytes end before the record does (schema=avro:7, at=17)" {
		t.Errorf("got %q", got)
	}
	if got := (&pipeline.Failure{Code: pipeline.CodeDecodeEmpty}).Reason(); strings.ContainsAny(got, "()") {
		t.Errorf("got %q", got)
	}
}

func TestErrorsKeepCodePlaceAndCause(t *testing.T) {
	err := fmt.Errorf("outer: %w", pipeline.Errorf(pipeline.CodeTopicMissing, "t/3", "no answer: %w", io.EOF))
	if pipeline.CodeOf(err) != pipeline.CodeTopicMissing || !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
	var e *pipeline.Error
	if !errors.As(err, &e) || e.Error() != "ERR_TOPIC_MISSING t/3: no answer: EOF" || e.Fix() != pipeline.Lookup(pipeline.CodeTopicMissing).Remedy {
		t.Errorf("got %v", e)
	}
	if got := e.With("do this").Fix(); got != "do this" {
		t.Errorf("got %q", got)
	}
	if pipeline.CodeOf(io.EOF) != "" || pipeline.CodeOf(nil) != "" {
		t.Error("an error without a code has one")
	}
}
