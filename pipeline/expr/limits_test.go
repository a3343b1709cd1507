package expr

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"reprieve.dev/pipeline"
)

// doubled puts a text together with itself n times over.
func doubled(n int) string {
	src := "a" + strconv.Itoa(n)
	for i := n; i > 0; i-- {
		v := "a" + strconv.Itoa(i-1)
		src = "[" + v + " + " + v + "].map(a" + strconv.Itoa(i) + ", " + src + ")"
	}
	return "[view.s].map(a0, " + src + ").exists(x, size(x) < 0)"
}

// wide is a record with a list of n items and a text of n bytes.
func wide(n int) *tree {
	items := make([]any, n)
	for i := range items {
		items[i] = rec("a", integral(int64(i)), "b", rec("c", str("x")))
	}
	return rec("l", items, "s", str(strings.Repeat("a", n)), "r", rec("l", items))
}

func TestWhatTakesTooLongEndsSoonWithAnError(t *testing.T) {
	b := batchOf(wide(20_000))
	for _, src := range []string{
		`view.l.all(x, view.l.all(y, view.l.all(z, x.a <= y.a || z.a > 0)))`,
		`view.l.all(x, view.l == view.l)`,
		`view.l.all(x, view.r == view.r)`,
		`view.l.all(x, view.s.contains("b") == false)`,
		`view.l.all(x, !view.s.matches("(a+)+b"))`,
		`view.l.exists(x, x in view.l.map(y, y.a + 1) && x.a < 0)`,
		`view.l.map(x, view.l + view.l).exists(x, size(x) < 0)`,
		doubled(20),
		`sum(view.l.map(x, sum(view.l.map(y, y.a)))) < 0`,
		`view.l.map(x, string(x.a) + view.s).exists(x, x == "")`,
		`[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, [1,2,3,4,5,6,7,8,9,10].all(f, [1,2,3,4,5,6,7,8,9,10].filter(g, false) == []))))))`,
		`[view.l.map(x, [1,2,3,4,5,6,7,8,9,10])].all(a, view.l.all(x, a == a))`,
		`[view.s].all(s, view.l.all(x, !s.matches("(a|b|c|d|e|f)*(a|b|c)+z")))`,
		`view.l.all(x, !"aaaaaaaaaa".matches("(a+)+" + string(x.a)))`,
		`view.l.all(x, timestamp.getHours("America/New_York") >= 0)`,
	} {
		t.Run(src, func(t *testing.T) {
			c, err := Condition(src)
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			_, err = c.Eval(b, 0)
			took := time.Since(start)
			var e *EvalError
			if !errors.As(err, &e) {
				t.Errorf("got %v", err)
			} else if e.Kind != EvalCost {
				t.Errorf("got %s: %v", e.Kind, e)
			}
			if took > time.Minute { // without the budget it takes hours; a busy machine must not fail it
				t.Errorf("took %s", took)
			}
			t.Logf("%s", took)
		})
	}
}

func TestHonestExpressionsOverLongListsAreWithinTheBudget(t *testing.T) {
	b := batchOf(wide(3_000))
	for _, src := range []string{`view.l.all(x, x.a >= 0 && x.b.c == "x")`, `size(view.l.filter(x, x.a > 10)) > 1`, `sum(view.l.map(x, x.a)) == 4498500`} {
		c, err := Condition(src)
		if err != nil {
			t.Fatal(err)
		}
		if ok, err := c.Eval(b, 0); err != nil || !ok {
			t.Errorf("%s: got %v, %v", src, ok, err)
		}
	}
}

func TestWhatIsTooLargeDoesNotCompile(t *testing.T) {
	for name, src := range map[string]string{
		"long":          `view.a == "` + strings.Repeat("a", MaxSource) + `"`,
		"deep":          strings.Repeat("(", 200) + "true" + strings.Repeat(")", 200),
		"nested lists":  strings.Repeat("[", 200) + strings.Repeat("]", 200) + " == []",
		"huge pattern":  `view.s.matches("(a{40}){30}")`,
		"huger pattern": `view.s.matches("(((a{30}){30}){30})")`,
		"long pattern":  `view.s.matches("` + strings.Repeat("a", MaxRegexp+1) + `")`,
		"nested macros": `view.a` + strings.Repeat(`.map(x, [x]`, 70) + strings.Repeat(`)`, 70) + ` == []`,
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			_, err := Condition(src)
			var p Problems
			if !errors.As(err, &p) {
				t.Errorf("got %v", err)
			}
			if d := time.Since(start); d > time.Minute {
				t.Errorf("took %s", d)
			}
		})
	}
}

func TestNativeConditionsAllocateNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	b := batchOf(invoice())
	for _, src := range []string{
		`view.amount_minor > 1000000`, `view.big == 9007199254740993`, `view.price == 1.1 && view.price < 2`, `view.sum >= 2.55`,
		`view.enormous > 1e300`, `view.huge > 1.5`, `view.customer.country in ["DE", "FR"]`, `has(view.customer.phone) || view.status == "PAID"`,
		`view.due > timestamp("2026-01-01T00:00:00Z")`, `headers.region == "eu" && topic.startsWith("billing.")`, `view.missing == 1`,
		`view.status < 5`, `view.lines[0].amount > 10`, `key == "acct-7" && !(offset < 10)`, `view.rate == 0.5`,
	} {
		c, err := Condition(src)
		if err != nil || !c.Native() {
			t.Fatalf("%s: %v", src, err)
		}
		if n := testing.AllocsPerRun(200, func() { c.Eval(b, 0) }); n != 0 {
			t.Errorf("%s: %v allocations", src, n)
		}
	}
	f, err := FactsCondition(`class == "transient" && attempt >= 2 && age > duration("10m") && !healthy && code in ["ERR_HTTP_TIMEOUT"] && retryable`)
	if err != nil || !f.Native() {
		t.Fatal(err)
	}
	facts := pipeline.Facts{Code: pipeline.CodeHTTPTimeout, Class: pipeline.Transient, Attempt: 2, NowMS: 10_000_000, FirstMS: 1, Unhealthy: true}
	if n := testing.AllocsPerRun(200, func() {
		if ok, err := f.Eval(facts); !ok || err != nil {
			t.Error(ok, err)
		}
	}); n != 0 {
		t.Errorf("facts: %v allocations", n)
	}
}

func TestNativeValuesAllocateNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	b := batchOf(invoice())
	dst := make([]byte, 0, 64)
	for _, src := range []string{
		`view.price`, `"eu"`, `view.customer.country == "DE" ? "eu" : "row"`, `view.customer.country == "FR" ? "fr" : view.status == "PAID" ? view.invoice_id : null`,
		`view.missing == 1 ? "a" : "b"`, `has(view.customer.phone) ? view.customer.phone : "none"`,
	} {
		v, err := ValueOf(src)
		if err != nil || !v.Native() {
			t.Fatalf("%s: %v", src, err)
		}
		if n := testing.AllocsPerRun(200, func() { v.Append(dst, b, 0) }); n != 0 {
			t.Errorf("%s: %v allocations", src, n)
		}
	}
}

func TestEachEvaluationHasABudgetOfItsOwn(t *testing.T) {
	c, err := Condition(`[1, 2, 3].all(x, x > 0 && [x].all(y, y == x))`)
	if err != nil {
		t.Fatal(err)
	}
	b := batchOf(nil)
	for i := range MaxCost / 20 { // together far more than one budget
		if ok, err := c.Eval(b, 0); !ok || err != nil {
			t.Fatalf("evaluation %d: got %v, %v", i, ok, err)
		}
	}
}

func TestOneConditionServesManyGoroutines(t *testing.T) {
	for _, src := range []string{`[1, 2, 3].all(x, x > 0)`, `view.amount_minor > 1000000 && has(view.customer.email)`, `view.lines.all(l, l.qty > 0) && sum(view.lines.map(l, l.amount)) == 15.25`} {
		c, err := Condition(src)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				b := batchOf(invoice())
				for range 50 {
					if ok, err := c.Eval(b, 0); !ok || err != nil {
						t.Errorf("%s: got %v, %v", src, ok, err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
}

func BenchmarkNativeCondition(bench *testing.B) {
	b := batchOf(invoice())
	c, err := Condition(`view.amount_minor > 1000000 && view.customer.country in ["DE", "FR"]`)
	if err != nil {
		bench.Fatal(err)
	}
	bench.ReportAllocs()
	for bench.Loop() {
		c.Eval(b, 0)
	}
}

func BenchmarkGeneralCondition(bench *testing.B) {
	b := batchOf(invoice())
	c, err := Condition(`view.lines.all(l, l.qty > 0)`)
	if err != nil {
		bench.Fatal(err)
	}
	bench.ReportAllocs()
	for bench.Loop() {
		c.Eval(b, 0)
	}
}
