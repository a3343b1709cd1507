package decide

import (
	"strings"
	"testing"
	"time"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
)

func load(t *testing.T, text string, o Options) *Policy {
	t.Helper()
	p, problems := tryLoad(text, o)
	if len(problems) > 0 {
		t.Fatal(problems.Error())
	}
	return p
}

func tryLoad(text string, o Options) (*Policy, config.Problems) {
	doc, problems := config.Parse("policy.yaml", []byte(text), config.Options{})
	if len(problems) > 0 {
		return nil, problems
	}
	return Load(doc, o)
}

var usual = Options{Retry: Retry{Topic: "t.retry"}, Quarantine: "t.dlq"}

func facts(c pipeline.Code, attempt uint8) pipeline.Facts {
	return pipeline.Facts{Code: c, Class: pipeline.Lookup(c).Class, Attempt: attempt, NowMS: 1_790_000_000_000, FirstMS: 1_790_000_000_000 - 5}
}

func TestTransientIsRetriedFiveTimesAndThenQuarantined(t *testing.T) {
	p := Default(Bounds{}, "t.retry", "t.dlq", Backoff{})
	f := facts(pipeline.CodeHTTPTimeout, 0)
	for n, wait := range []int64{100, 200, 400, 800, 1600} {
		f.Attempt = uint8(n)
		want := pipeline.Decision{Action: pipeline.ActRetry, Topic: "t.retry", Attempt: uint8(n + 1), NotBefore: f.NowMS + wait,
			Code: pipeline.CodeHTTPTimeout, Policy: p.Digest()}
		if got := p.Decide(f); got != want {
			t.Errorf("after %d retries: got %+v, want %+v", n, got, want)
		}
	}
	f.Attempt = 5
	want := pipeline.Decision{Action: pipeline.ActQuarantine, Topic: "t.dlq", Attempt: 5, Code: pipeline.CodeRetryExhausted, Policy: p.Digest()}
	if got := p.Decide(f); got != want {
		t.Errorf("at the end: got %+v, want %+v", got, want)
	}
}

func TestEveryClassHasItsOwnAction(t *testing.T) {
	p := Default(Bounds{}, "t.retry", "t.dlq", Backoff{})
	for _, c := range []struct {
		code pipeline.Code
		want pipeline.Action
	}{
		{pipeline.CodeDecodeTruncated, pipeline.ActQuarantine},
		{pipeline.CodeRejected, pipeline.ActQuarantine},
		{pipeline.CodeRegistryDenied, pipeline.ActPause},
		{pipeline.CodeTenantRevoked, pipeline.ActQuarantine},
		{pipeline.CodePanic, pipeline.ActQuarantine},
		{pipeline.CodeHTTPAmbiguous, pipeline.ActQuarantine},
		{pipeline.CodeLimitDepth, pipeline.ActQuarantine},
		{pipeline.CodePolicyRule, pipeline.ActPause},
		{"ERR_NEVER_HEARD_OF", pipeline.ActQuarantine},
	} {
		t.Run(string(c.code), func(t *testing.T) {
			d := p.Decide(facts(c.code, 0))
			if d.Action != c.want || d.Attempt != 0 || d.Code != c.code {
				t.Errorf("got %+v", d)
			}
		})
	}
}

func TestARuleGoesDownAndNeverUp(t *testing.T) {
	p := load(t, `
decide:
  - {when: 'code == "ERR_HTTP_TIMEOUT" && !healthy', action: pause}
  - {when: 'code == "ERR_HTTP_TIMEOUT"', action: quarantine}
  - {when: 'code == "ERR_HTTP_UNAVAILABLE"', attempts: 2, backoff: {initial: 1s, factor: 3}}
  - {when: 'code == "ERR_SEND_TIMEOUT"', attempts: 0}
  - {when: 'true', action: retry, attempts: 200}
`, usual)
	for _, c := range []struct {
		name string
		f    pipeline.Facts
		want pipeline.Action
		code pipeline.Code
	}{
		{"a retry becomes a quarantine", facts(pipeline.CodeHTTPTimeout, 0), pipeline.ActQuarantine, pipeline.CodeHTTPTimeout},
		{"the first match wins", func() pipeline.Facts { f := facts(pipeline.CodeHTTPTimeout, 0); f.Unhealthy = true; return f }(), pipeline.ActPause, pipeline.CodeHTTPTimeout},
		{"fewer retries", facts(pipeline.CodeHTTPUnavailable, 2), pipeline.ActQuarantine, pipeline.CodeRetryExhausted},
		{"no retries is at once", facts(pipeline.CodeSendTimeout, 0), pipeline.ActQuarantine, pipeline.CodeSendTimeout},
		{"payload is never retried", facts(pipeline.CodeDecodeTruncated, 0), pipeline.ActQuarantine, pipeline.CodeDecodeTruncated},
		{"ambiguous is never retried", facts(pipeline.CodeHTTPAmbiguous, 0), pipeline.ActQuarantine, pipeline.CodeHTTPAmbiguous},
		{"a pause stays one", facts(pipeline.CodeRegistryDenied, 0), pipeline.ActPause, pipeline.CodeRegistryDenied},
		{"200 retries are five", facts(pipeline.CodeRegistryUnavailable, 5), pipeline.ActQuarantine, pipeline.CodeRetryExhausted},
	} {
		t.Run(c.name, func(t *testing.T) {
			if d := p.Decide(c.f); d.Action != c.want || d.Code != c.code {
				t.Errorf("got %+v", d)
			}
		})
	}
	if d := p.Decide(facts(pipeline.CodeHTTPUnavailable, 1)); d.NotBefore != facts("", 0).NowMS+3000 {
		t.Errorf("a rule's own backoff: got %+v", d)
	}
}

func TestThePlatformsBoundsClampEveryPolicy(t *testing.T) {
	five := uint8(5)
	o := Options{Bounds: Bounds{Attempts: 2, Delay: time.Second}, Retry: Retry{Topic: "t.retry", Attempts: &five}, Quarantine: "t.dlq"}
	p := load(t, `decide: [{name: eager, when: 'tenant == "acme"', attempts: 5, backoff: {initial: 10s, max: 1h}}]`, o)
	for _, tenant := range []string{"", "acme"} {
		f := facts(pipeline.CodeHTTPTimeout, 1)
		f.Tenant = tenant
		if d := p.Decide(f); d.Action != pipeline.ActRetry || d.NotBefore > f.NowMS+1000 {
			t.Errorf("%q: the second retry: got %+v", tenant, d)
		}
		f.Attempt = 2
		if d := p.Decide(f); d.Action != pipeline.ActQuarantine || d.Code != pipeline.CodeRetryExhausted || d.Attempt != 2 {
			t.Errorf("%q: after two: got %+v", tenant, d)
		}
	}
	if got := strings.Join(p.Clamped(), "\n"); !strings.Contains(got, "retry: 5 retries become 2") || !strings.Contains(got, "eager: waits of up to 1h0m0s become 1s") {
		t.Errorf("got %s", got)
	}
	short := load(t, "{}", Options{Bounds: Bounds{Cumulative: 350 * time.Millisecond}, Retry: Retry{Topic: "t.retry"}})
	if d := short.Decide(facts(pipeline.CodeHTTPTimeout, 2)); d.Code != pipeline.CodeRetryExhausted {
		t.Errorf("100 and 200 ms fit into 350, 400 does not: got %+v", d)
	}
}

func TestRetryAfterIsHonouredButBounded(t *testing.T) {
	p := Default(Bounds{Cumulative: 60 * time.Second}, "t.retry", "t.dlq", Backoff{})
	f := facts(pipeline.CodeHTTPUnavailable, 0)
	for _, c := range []struct{ ask, want int64 }{
		{0, 100}, {50, 100}, {7000, 7000}, {-5, 100}, {3_600_000, 100 + (60_000-3_100)/5}, {1 << 62, 100 + (60_000-3_100)/5},
	} {
		f.RetryAfter = c.ask
		if d := p.Decide(f); d.NotBefore-f.NowMS != c.want {
			t.Errorf("asked for %d ms: waits %d, want %d", c.ask, d.NotBefore-f.NowMS, c.want)
		}
	}
}

func TestARecordTooOldIsNotRetried(t *testing.T) {
	p := Default(Bounds{Age: time.Minute}, "t.retry", "t.dlq", Backoff{})
	f := facts(pipeline.CodeHTTPUnavailable, 0)
	f.FirstMS = f.NowMS - 59_950
	if d := p.Decide(f); d.Action != pipeline.ActQuarantine || d.Code != pipeline.CodeRetryAge {
		t.Errorf("got %+v", d)
	}
	f.FirstMS = 0
	if d := p.Decide(f); d.Action != pipeline.ActRetry {
		t.Errorf("an unknown age is no age: got %+v", d)
	}
}

func TestARefusedSendIsARungLower(t *testing.T) {
	p := Default(Bounds{}, "t.retry", "t.dlq", Backoff{})
	for refused, want := range map[pipeline.Disposition]pipeline.Action{
		pipeline.Delivered: pipeline.ActRetry, pipeline.Retried: pipeline.ActQuarantine, pipeline.DeadLettered: pipeline.ActPause,
	} {
		f := facts(pipeline.CodeSendTimeout, 0)
		f.Rung = Rung(refused)
		if d := p.Decide(f); d.Action != want {
			t.Errorf("%s refused: got %+v", refused, d)
		}
	}
}

func TestAnOutagePausesInsteadOfUsingUpAttempts(t *testing.T) {
	f := facts(pipeline.CodeHTTPUnavailable, 3)
	f.Unhealthy = true
	o := usual
	o.OutagePause = true
	if d := load(t, "{}", o).Decide(f); d.Action != pipeline.ActPause || d.Attempt != 3 {
		t.Errorf("got %+v", d)
	}
	if d := load(t, "{}", usual).Decide(f); d.Action != pipeline.ActRetry {
		t.Errorf("outage: quarantine keeps the per-record rule: got %+v", d)
	}
}

func TestARuleThatFailsIsAFailureOfThePolicy(t *testing.T) {
	p := load(t, `
reject: [{name: broken, when: 'view.missing.field > 1'}]
decide: [{when: '1 / attempt > 0', action: quarantine}]
`, usual)
	if d := p.Decide(facts(pipeline.CodeHTTPTimeout, 0)); d.Action != pipeline.ActPause || d.Code != pipeline.CodePolicyRule {
		t.Errorf("decide: got %+v", d)
	}
	b := &pipeline.Batch{Recs: make([]pipeline.Record, 2)}
	b.Begin(p)
	b.Views[0] = emptyView{}
	f, bad := p.Reject(b, 0)
	if !bad || f.Code != pipeline.CodePolicyRule || f.Cause == nil || f.Params[0].Value() != "broken" {
		t.Errorf("reject: got %+v", f)
	}
	if f, bad := p.Reject(b, 1); bad {
		t.Errorf("a delete marker has no view to ask about: got %+v", f)
	}
}

type emptyView struct{ pipeline.View }

func (emptyView) Get(*pipeline.Path) (pipeline.Value, bool) { return pipeline.Value{}, false }

func TestProblemsComeAllAtOnceWithTheirPlaces(t *testing.T) {
	_, problems := tryLoad(`
reject:
  - name: a
    when: 'amount > 5'
  - name: a
    when: 'view.amount >'
    code: ERR_HTTP_TIMEOUT
  - when: 'true'
decide:
  - when: 'cod == "x"'
    action: deliver
    attempts: -1
    backoff: {initial: 5s, max: 1s, factor: 1000}
  - action: pause
    atempts: 3
`, usual)
	text := problems.Error()
	for _, want := range []string{
		"policy.yaml:4:11: reject[0].when: at 1:1 of the expression: there is no variable amount (a field of the record is view.amount)",
		"reject[1].name: two rules are called a", "reject[1].when: at 1:14", "reject[1].code", "reject[2].name",
		"decide[0].when: at 1:1 of the expression: there is no variable cod (did you mean code?)", "decide[0].action",
		"decide[0].attempts", "decide[0].backoff.initial", "decide[0].backoff.factor", "decide[1].atempts", "decide[1].when",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
}

func TestTheCanonicalFormLoadsToTheSamePolicy(t *testing.T) {
	text := `
policy: billing
reject:
  - {name: inactive, when: 'view.state == "INACTIVE"', params: {field: state, area: profile}}
decide:
  - {when: 'attempt > 2', action: quarantine, attempts: 3, backoff: {initial: 1.5s, factor: 1.5, jitter: 0.1}}
`
	p := load(t, text, usual)
	again := load(t, string(p.Canonical()), Options{Bounds: Bounds{Attempts: 1}})
	if p.Digest() != again.Digest() || !strings.HasPrefix(string(p.Digest()), "sha256:") {
		t.Errorf("%s and %s", p.Digest(), again.Digest())
	}
	other := load(t, strings.Replace(text, "attempt > 2", "attempt > 3", 1), usual)
	if other.Digest() == p.Digest() {
		t.Error("another policy has the same digest")
	}
}

func TestABudgetOnlyNarrows(t *testing.T) {
	platform := UnknownBudget{Window: 1000, Tolerated: 10}
	for own, want := range map[UnknownBudget]UnknownBudget{
		{1000, 10}: {1000, 10}, {2000, 5}: {2000, 5}, {100, 5}: {1000, 5}, {2000, 50}: {2000, 10}, {10, 100}: {1000, 10},
	} {
		p, err := New(File{Unknown: &UnknownFile{own.Window, own.Tolerated}}, Options{Bounds: Bounds{Unknown: platform}, Quarantine: "q"})
		if err != nil || p.UnknownBudget() != want || (len(p.Clamped()) > 0) != (own != want) {
			t.Errorf("%v becomes %v (%v, %v), want %v", own, p.UnknownBudget(), p.Clamped(), err, want)
		}
	}
	if p, err := New(File{}, Options{Bounds: Bounds{Unknown: platform}, Quarantine: "q"}); err != nil || p.UnknownBudget() != platform {
		t.Errorf("without its own: %v, %v", p.UnknownBudget(), err)
	}
	if p, err := New(File{Unknown: &UnknownFile{50, 1}}, Options{Quarantine: "q"}); err != nil || p.UnknownBudget() != (UnknownBudget{50, 1}) {
		t.Errorf("without the platform's: %v, %v", p.UnknownBudget(), err)
	}
	if _, err := New(File{Unknown: &UnknownFile{0, -1}}, Options{Quarantine: "q"}); err == nil {
		t.Error("a budget that is none was taken")
	}
}
