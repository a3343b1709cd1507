package expr

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"reprieve.dev/pipeline"
)

func TestCompileProblemsSayWhereAndWhatIsKnown(t *testing.T) {
	for _, c := range []struct {
		src, want string
	}{
		{`amount > 5`, "1:1: there is no variable amount (a field of the record is view.amount)"},
		{`view.a == 1 && header.x == "y"`, "1:16: there is no variable header (did you mean headers?)"},
		{"view.a == 1 &&\n  topik == \"y\"", "2:3: there is no variable topik (did you mean topic?)"},
		{`view.a.startWith("x")`, "there is no function startWith (did you mean startsWith?)"},
		{`frobnicate(view.a)`, "there is no function frobnicate (known: "},
		{`view.l.all(x, y > 1)`, "1:15: there is no variable y"},
		{`view.a = 1`, "(write == to compare)"},
		{`view.a > 1 and view.b > 1`, "(write && for and)"},
		{`view.a <> 1`, "(write != for not equal)"},
		{`view.a >`, "1:9: "},
		{``, "1:1: "},
		{`partition == "x"`, "1:11: found no matching overload"},
		{`partition + 1`, "1:1: the expression gives int, not bool"},
		{`view.s.matches("(")`, "1:15: the pattern is not a regular expression"},
		{`é == 1 && topc == "x"`, "1:1: "},
	} {
		t.Run(c.src, func(t *testing.T) {
			_, err := Condition(c.src)
			var p Problems
			if !errors.As(err, &p) || len(p) == 0 {
				t.Fatalf("got %v", err)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %s, want %s", err, c.want)
			}
			for _, q := range p {
				if q.Line < 1 || q.Column < 1 || q.Text == "" {
					t.Errorf("got %+v", q)
				}
			}
			if pipeline.CodeOf(err) != pipeline.CodeConfigExpression {
				t.Errorf("code %s", pipeline.CodeOf(err))
			}
		})
	}
}

func TestAllProblemsComeAtOnce(t *testing.T) {
	_, err := Condition(`amount > 5 && currency == "EUR"`)
	var p Problems
	if !errors.As(err, &p) || len(p) != 2 || p[0].Column != 1 || p[1].Column != 15 {
		t.Errorf("got %v", err)
	}
}

// Errors go to logs and pages: they hold names of the expression, no byte of the record.
func TestEvaluationErrorsHoldNoPayload(t *testing.T) {
	const secret = "4111111111111111"
	b := batchOf(rec("pan", str(secret), "n", num("12345678901234567890123.5"), "l", []any{str(secret)}, "m", rec(secret, integral(1))))
	b.Recs[0].Key = []byte(secret)
	for _, src := range []string{
		`int(view.pan + "x") == 1`, `view.pan < 5`, `view[view.pan] == 1`, `view.m[view.l[0]].x == 1`, `timestamp(view.pan) > timestamp`,
		`duration(key) > duration("1s")`, `view.pan.matches(view.pan + "(")`, `view.l[view.n] == 1`, `headers[key] == "x"`,
		`view.l.all(x, x > 5)`, `int(view.n) == 1`, `view.m.all(k, view.m[k] > "x")`, `bool(view.pan)`, `view.pan`, `decimal(view.pan + "x") > 1`,
	} {
		t.Run(src, func(t *testing.T) {
			c, err := Condition(src)
			if err != nil {
				t.Fatal(err)
			}
			_, err = c.Eval(b, 0)
			var e *EvalError
			if !errors.As(err, &e) {
				t.Fatalf("got %v", err)
			}
			for _, text := range []string{e.Error(), fmt.Sprintf("%v", e), e.Path, string(e.Kind)} {
				if strings.Contains(text, secret) || strings.Contains(text, "12345678901234567890123") {
					t.Errorf("%q holds payload", text)
				}
			}
			if e.Error() == "" {
				t.Error("the error says nothing")
			}
		})
	}
}

func TestEvaluationErrorsOutliveTheRecord(t *testing.T) {
	bytes := []byte("the name of a member")
	b := batchOf(rec("name", pipeline.Value{Kind: pipeline.KindString, Bytes: bytes}, "m", rec()))
	c, err := Condition(`view.m[view.name].x == 1`)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Eval(b, 0)
	before := errors.Unwrap(err).Error()
	for i := range bytes { // the batch is released and its bytes are used again
		bytes[i] = '#'
	}
	if after := errors.Unwrap(err).Error(); after != before || !strings.Contains(before, "the name of a member") {
		t.Errorf("the cause was %q and is %q", before, after)
	}
}

func TestEvaluationErrorsSayWhichFieldAndWhere(t *testing.T) {
	b := batchOf(invoice())
	for src, want := range map[string]string{
		`view.customer.phone == "1"`:        "missing view.customer.phone: there is no view.customer.phone",
		`view.status > 5`:                   "type view.status: view.status has a type that does not fit",
		`headers.tenant == "acme"`:          "missing headers.tenant: there is no headers.tenant",
		`view.price / 3 == 1.0`:             "number : 1:12: a quotient that no decimal can hold exactly",
		`size(view.lines) > 0 && view.x.y`:  "failed : 1:31: a field is missing or has a type that does not fit",
		`view.lines.exists(l, l.qty > "x")`: "failed : 1:28: a field is missing or has a type that does not fit",
	} {
		c, err := Condition(src)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Eval(b, 0)
		var e *EvalError
		if !errors.As(err, &e) {
			t.Errorf("%s: got %v", src, err)
		} else if got := fmt.Sprintf("%s %s: %s", e.Kind, e.Path, e); got != want {
			t.Errorf("%s: got %q, want %q", src, got, want)
		}
	}
}

func FuzzCondition(f *testing.F) {
	for _, s := range []string{
		`view.a == 1`, `has(view.m.a) && view.l[0].a in [1, "a", null]`, `view.l.all(x, x.a > 1)`, `sum(view.l.map(x, x.n)) > decimal("1.5")`,
		`headers["h"].startsWith("a") || !(key == topic)`, `view.s.matches("^a{3}$")`, `timestamp < timestamp("2026-01-01T00:00:00Z")`,
		`[1, 2].map(x, x * view.a)[view.i] == {"a": view.m}.a`, `view == view && type(view) == map`, `view.a ? view.b : view.c`, `-view.n / 0.1 > 1u`,
		`view.?a`, "`a`", `{1: 2}[view.a]`, `b"\xff" + view.b`, `"\ud800"`, `view.l.exists_one(x, x == 1.5)`, `dyn(1) / 0 == 1`, `view.l.filter(x, false) + view.l == []`,
	} {
		f.Add(s)
	}
	b := batchOf(rec("a", integral(1), "b", raw([]byte{0xff}), "s", str("aaa"), "n", num("1.50"), "i", num("0"), "m", rec("a", null(), "n", float(1)),
		"l", []any{rec("a", integral(7), "n", num("0.1")), str("x"), null()}, "c", boolVal(true), "t", millis(1)))
	f.Fuzz(func(t *testing.T, src string) {
		c, err := Condition(src)
		if err != nil {
			var p Problems
			if !errors.As(err, &p) || len(p) == 0 {
				t.Fatalf("%q: %v", src, err)
			}
			return
		}
		got, err := c.Eval(b, 0)
		if err != nil {
			var e *EvalError
			if !errors.As(err, &e) || got {
				t.Fatalf("%q: %v, %v", src, got, err)
			}
		}
		if c.native != nil {
			want, wantErr := c.prog.truth(&activation{b: b})
			if got != want || (err != nil) != (wantErr != nil) {
				t.Fatalf("%q: native %v, %v; cel %v, %v", src, got, err, want, wantErr)
			}
		}
	})
}
