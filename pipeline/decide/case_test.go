package decide

import (
	"encoding/json"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"reprieve.dev/pipeline"
)

func readCase(t *testing.T, name string, into any) {
	t.Helper()
	data, err := os.ReadFile("testdata/cases/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
}

// Registry trouble is retried or stops the pipeline; only what is wrong with the record itself is quarantined.
func TestCaseC19RegistryAnswersAreDecidedByTheirKind(t *testing.T) {
	var table []struct {
		Answer, Class string
		Retry         bool
	}
	readCase(t, "C19", &table)
	p := Default(Bounds{}, "t.retry", "t.dlq", Backoff{})
	for _, row := range table {
		t.Run(row.Answer, func(t *testing.T) {
			var codes []pipeline.Code // what codec makes of such an answer
			switch {
			case row.Class == "OK":
				return
			case strings.HasPrefix(row.Class, "FATAL schema"):
				codes = []pipeline.Code{pipeline.CodeSchemaUnknown, pipeline.CodeSchemaInvalid, pipeline.CodeSchemaMismatch}
			case row.Class == "POLICY":
				codes = []pipeline.Code{pipeline.CodeRegistryDenied}
			default:
				codes = []pipeline.Code{pipeline.CodeRegistryUnavailable}
			}
			for _, code := range codes {
				f := facts(code, 0)
				if strings.Contains(row.Answer, "Retry-After: 7") {
					f.RetryAfter = 7000
				}
				d := p.Decide(f)
				switch {
				case row.Retry && d.Action != pipeline.ActRetry:
					t.Errorf("%s: got %+v, want a retry", code, d)
				case row.Class == "POLICY" && d.Action != pipeline.ActPause:
					t.Errorf("%s: got %+v, want the pipeline to stop and nothing to be dead-lettered", code, d)
				case strings.HasPrefix(row.Class, "FATAL") && (d.Action != pipeline.ActQuarantine || d.Attempt != 0):
					t.Errorf("%s: got %+v, want quarantine at once", code, d)
				}
				if f.RetryAfter > 0 && d.NotBefore < f.NowMS+f.RetryAfter {
					t.Errorf("%s: waits %d ms, less than asked for", code, d.NotBefore-f.NowMS)
				}
			}
		})
	}
}

func TestCaseC22TheBudgetCountsWhatIsTolerated(t *testing.T) {
	var table []struct {
		Window    int    `json:"window"`
		Tolerated int    `json:"tolerated"`
		Outcomes  string `json:"outcomes_A_ok_F_failed"`
		Stops     *int   `json:"stops_at_index"`
	}
	readCase(t, "C22", &table)
	for _, row := range table {
		b := NewBudget(row.Window, row.Tolerated)
		stops := -1
		for i, o := range row.Outcomes {
			if b.Observe(o == 'F') {
				stops = i
				break
			}
		}
		want := -1
		if row.Stops != nil {
			want = *row.Stops
		}
		if stops != want {
			t.Errorf("window %d, tolerated %d, %s: stops at %d, want %d", row.Window, row.Tolerated, row.Outcomes, stops, want)
		}
	}
}

func TestTheBudgetIsASlidingWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window, tolerated := rapid.IntRange(0, 150).Draw(t, "window"), rapid.IntRange(0, 20).Draw(t, "tolerated")
		b := NewBudget(window, tolerated)
		var all []bool
		for range rapid.IntRange(0, 400).Draw(t, "outcomes") {
			if rapid.IntRange(0, 99).Draw(t, "reset") == 0 {
				b.Reset()
				all = nil
			}
			failed := rapid.IntRange(0, 4).Draw(t, "failed") == 0
			all = append(all, failed)
			n := 0
			for _, f := range all[max(0, len(all)-window):] {
				if f {
					n++
				}
			}
			if got, want := b.Observe(failed), window > 0 && n > tolerated; got != want {
				t.Fatalf("after %d outcomes: stop is %v, want %v (%d failed)", len(all), got, want, n)
			}
		}
	})
}

// A group is made from the code and its identifying params. Records that break the same rule with other values are one
// group; other rules are other groups; no value of a record gets into it.
func TestCaseC23FailuresOfARuleAreOneGroupWithoutPayload(t *testing.T) {
	p := load(t, `
reject:
  - {name: cents-not-a-number, when: 'type(view.cents) != int', params: {field: cents}}
  - {name: due-not-a-date, when: '!view.due.matches("^[0-9]{4}-[0-9]{2}-[0-9]{2}$")', params: {field: due}}
`, usual)
	refuse := func(cents, due string) pipeline.Failure {
		b := &pipeline.Batch{Recs: make([]pipeline.Record, 1)}
		b.Begin(p)
		b.Views[0] = fields{"/cents": cents, "/due": due}
		f, refused := p.Reject(b, 0)
		if !refused {
			t.Fatalf("%s, %s is not refused", cents, due)
		}
		return f
	}
	group := func(f pipeline.Failure) string {
		key := string(f.Code)
		for _, name := range pipeline.Lookup(f.Code).Identifying {
			for _, q := range f.Params {
				if q.Name == name {
					key += "/" + q.Value()
				}
			}
		}
		return key
	}
	a, b, c := refuse("12,50", "2026-01-01"), refuse("7,00", "2026-01-02"), refuse("7", "31.02.2026")
	if group(a) != group(b) {
		t.Errorf("%s and %s are two groups", group(a), group(b))
	}
	if group(a) == group(c) {
		t.Errorf("cents and due are one group: %s", group(a))
	}
	for _, f := range []pipeline.Failure{a, b, c} {
		for _, payload := range []string{"12,50", "7,00", "31.02"} {
			if strings.Contains(f.Reason(), payload) || strings.Contains(group(f), payload) {
				t.Errorf("%s holds payload", f.Reason())
			}
		}
	}
}

// fields is a flat view of texts; digits alone are a number.
type fields map[string]string

func (v fields) Get(p *pipeline.Path) (pipeline.Value, bool) {
	s, ok := v[p.Text]
	if !ok {
		return pipeline.Value{}, false
	}
	kind := pipeline.KindString
	if s != "" && strings.Trim(s, "0123456789") == "" {
		kind = pipeline.KindNumber
	}
	return pipeline.Value{Kind: kind, Bytes: []byte(s)}, true
}

func (v fields) Keys(*pipeline.Path) []string          { return nil }
func (v fields) AppendJSON(dst []byte) ([]byte, error) { return dst, nil }
func (v fields) Schema() pipeline.SchemaRef            { return pipeline.SchemaRef{} }
func (v fields) Edit(dst []byte, _ pipeline.Editor) (out []byte, _ bool, _ error) {
	return dst, false, nil
}
func (v fields) Rebind([]byte) error { return nil }

func TestCaseC25TheBackoffNeverOverflows(t *testing.T) {
	var table []struct {
		Base  int64 `json:"base_ms"`
		Cap   int64 `json:"cap_ms"`
		Index int   `json:"retry_index_from_0"`
		Delay int64 `json:"delay_before_jitter_ms"`
	}
	readCase(t, "C25", &table)
	for _, row := range table {
		b := Backoff{Initial: time.Duration(row.Base) * time.Millisecond, Factor: 2, Max: time.Duration(row.Cap) * time.Millisecond}
		if got := b.Delay(row.Index, 0.7); got != time.Duration(row.Delay)*time.Millisecond {
			t.Errorf("base %d ms, index %d: got %s, want %d ms", row.Base, row.Index, got, row.Delay)
		}
	}
}

// INV-BACKOFF holds for every backoff that can be written, sensible or not.
func TestEveryDelayIsPositiveCappedAndRising(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := Backoff{
			Initial: time.Duration(rapid.Int64().Draw(t, "initial")), Max: time.Duration(rapid.Int64().Draw(t, "max")),
			Factor: rapid.OneOf(rapid.Float64(), rapid.Float64Range(1, 3), rapid.Just(math.NaN())).Draw(t, "factor"),
			Jitter: rapid.OneOf(rapid.Float64(), rapid.Float64Range(0, 1), rapid.Just(math.NaN())).Draw(t, "jitter"),
		}
		n := rapid.OneOf(rapid.IntRange(0, 70), rapid.Int()).Draw(t, "n")
		rnd := rapid.OneOf(rapid.Float64(), rapid.Float64Range(0, 1), rapid.Just(math.NaN())).Draw(t, "rnd")
		d, next := b.Delay(n, 0), b.Delay(max(n, 0)+1, 0)
		limit := b.normal().Max
		if d <= 0 || d > limit || next < d && n < math.MaxInt {
			t.Fatalf("%+v: retry %d waits %s, the next %s", b, n, d, next)
		}
		if j := b.Delay(n, rnd); j <= 0 || j > d || j < d/2-time.Nanosecond {
			t.Fatalf("%+v: jitter makes %s of %s", b, j, d)
		}
	})
	tiny := Backoff{Initial: time.Second, Max: 1, Jitter: 0.5}
	for _, rnd := range []float64{0, 0.5, 1} {
		if d := tiny.Delay(3, rnd); d != 1 {
			t.Errorf("a cap of 1 ns waits %s", d)
		}
	}
}

func TestTheDefaultWaitsAre3100Milliseconds(t *testing.T) {
	if got := DefaultBackoff().Sum(MaxAttempts); got != 3100*time.Millisecond {
		t.Errorf("got %s", got)
	}
	if !reflect.DeepEqual(DefaultBackoff().normal(), Backoff{}.normal()) {
		t.Error("the zero value is another backoff")
	}
}

func TestUnknownFailuresAreThoseThatNobodyClassified(t *testing.T) {
	for c, want := range map[pipeline.Code]bool{"ERR_ELSEWHERE": true, pipeline.CodePanic: true, pipeline.CodeForeignFailure: true,
		pipeline.CodeRejected: false, pipeline.CodeHTTPTimeout: false, pipeline.CodeDecodeTruncated: false} {
		if Unknown(c) != want {
			t.Errorf("%s: got %v", c, !want)
		}
	}
}

func TestTheCanaryGetsItsShareOfThePartitions(t *testing.T) {
	active, canary := load(t, "policy: one", usual), load(t, "policy: two", usual)
	for _, share := range []uint8{0, 1, 5, 10, 33, 50, 99, 100, 200} {
		s := Set{Active: active, Canary: canary, Share: share}
		for _, topic := range []string{"a", "billing.invoices.v1"} {
			n, run, longest := 0, 0, 0
			for p := range int32(200) {
				got := s.For(pipeline.TP{Topic: topic, Partition: p})
				if again := s.For(pipeline.TP{Topic: topic, Partition: p}); again != got {
					t.Fatal("two answers for one partition")
				}
				if run++; got == canary {
					n, run = n+1, 0
				}
				longest = max(longest, run)
			}
			want := 2 * int(min(share, 100))
			if n != want {
				t.Errorf("%d %%: %d of 200 partitions", share, n)
			}
			if share > 0 && longest > 100/int(min(share, 100))+1 {
				t.Errorf("%d %%: %d partitions in a row without the canary", share, longest)
			}
		}
	}
	if got := (Set{Active: active, Share: 100}).For(pipeline.TP{}); got != active {
		t.Error("without a canary the active one decides")
	}
	other := load(t, "policy: three", usual)
	var a, b []bool
	for p := range int32(100) {
		tp := pipeline.TP{Topic: "a", Partition: p}
		a = append(a, Set{active, canary, 10}.For(tp) == canary)
		b = append(b, Set{active, other, 10}.For(tp) == other)
	}
	if slices.Equal(a, b) {
		t.Error("two canaries have the same partitions")
	}
}

// Outcomes that did not fail may be added many at once: it is the same window.
func TestSparingManyIsSparingEach(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window, tolerated := rapid.IntRange(1, 100).Draw(t, "window"), rapid.IntRange(0, 5).Draw(t, "tolerated")
		many, each := NewBudget(window, tolerated), NewBudget(window, tolerated)
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			n := rapid.IntRange(0, 150).Draw(t, "healthy")
			many.Spare(n)
			for range n {
				each.Observe(false)
			}
			if a, b := many.Observe(true), each.Observe(true); a != b || many.Failed() != each.Failed() {
				t.Fatalf("stop %v and %v, failed %d and %d", a, b, many.Failed(), each.Failed())
			}
		}
	})
}
