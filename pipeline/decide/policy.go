package decide

import (
	"hash/fnv"
	"strconv"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/expr"
)

// Policy is one compiled policy file under the platform's bounds. It implements pipeline.Policy; it is immutable, pure and
// safe for concurrent use. Deciding with native conditions allocates nothing.
type Policy struct {
	reject    []rejectRule
	rules     []decideRule
	bounds    Bounds
	base      plan // what counts when no rule says otherwise
	topics    topics
	outage    bool
	unknown   UnknownBudget
	digest    pipeline.Digest
	canonical []byte
	clamped   []string
}

type topics struct{ retry, quarantine string }

// plan is how often and after which waits a record is retried.
type plan struct {
	attempts uint8
	backoff  Backoff
	extra    time.Duration // how much longer a wait may be because of Retry-After
}

type rejectRule struct {
	name   string
	when   *expr.Cond
	code   pipeline.Code
	params []pipeline.Param
}

type decideRule struct {
	name   string
	when   *expr.FactsCond
	action pipeline.Action // ActDeliver: not said, the code's own
	plan   plan
}

// Default is the policy of a pipeline without a policy file: every code's own action.
func Default(b Bounds, retryTopic, quarantineTopic string, backoff Backoff) *Policy {
	p, err := New(File{}, Options{Bounds: b, Retry: Retry{Topic: retryTopic, Backoff: backoff}, Quarantine: quarantineTopic})
	if err != nil {
		panic("decide: the empty policy is not valid: " + err.Error()) // a constant of the program
	}
	return p
}

// Digest names the version: sha256 over the canonical form of the file.
func (p *Policy) Digest() pipeline.Digest { return p.digest }

// Canonical is the canonical form, which Load reads back to a policy of the same digest. It must not be changed.
func (p *Policy) Canonical() []byte { return p.canonical }

// Clamped says, a line each, what the platform's bounds changed.
func (p *Policy) Clamped() []string { return p.clamped }

// UnknownBudget is the budget of unknown failures, within the platform's.
func (p *Policy) UnknownBudget() UnknownBudget { return p.unknown }

// Bounds are the limits that it was compiled under.
func (p *Policy) Bounds() Bounds { return p.bounds }

// Reads are the places of the view that the rules need, by the rule's place in the file: those that no has() guards.
func (p *Policy) Reads() map[string][]*pipeline.Path {
	out := map[string][]*pipeline.Path{}
	for k := range p.reject {
		if paths := p.reject[k].when.Paths(); len(paths) > 0 {
			out["reject["+strconv.Itoa(k)+"].when"] = paths
		}
	}
	return out
}

// Rules are how many rules of each section there are.
func (p *Policy) Rules() (reject, decide int) { return len(p.reject), len(p.rules) }

// Reject asks the business rules in their order; the first that holds gives the failure. A rule that cannot be evaluated is
// ERR_POLICY_RULE: a failure of the policy, whose cause names the place in the rule. A record without a view (a delete
// marker) is only asked what does not read the view.
func (p *Policy) Reject(b *pipeline.Batch, i int) (pipeline.Failure, bool) {
	for k := range p.reject {
		r := &p.reject[k]
		if b.Views[i] == nil && r.when.ReadsView() {
			continue
		}
		refused, err := r.when.Eval(b, i)
		if err != nil {
			return pipeline.Failure{Stage: "classify", Code: pipeline.CodePolicyRule, Params: []pipeline.Param{pipeline.Str("rule", r.name)}, Cause: err}, true
		}
		if refused {
			return pipeline.Failure{Stage: "classify", Code: r.code, Params: r.params}, true
		}
	}
	return pipeline.Failure{}, false
}

// Decide gives the one decision of a failure. It goes from the code's own action down: by the first rule that matches, by
// the rung of the ladder, by the bounds; never up (INV-LADDER).
func (p *Policy) Decide(f pipeline.Facts) pipeline.Decision {
	d := pipeline.Decision{Attempt: f.Attempt, Code: f.Code, Policy: p.digest}
	action, plan := ownAction(f), &p.base
	for k := range p.rules {
		r := &p.rules[k]
		ok, err := r.when.Eval(f)
		if err != nil { // the policy failed, not the record: nothing is decided by a rule that cannot be read
			d.Action, d.Code, d.Rule = pipeline.ActPause, pipeline.CodePolicyRule, r.name
			return d
		}
		if ok {
			action, plan = lower(action, r.action), &r.plan
			break
		}
	}
	action = lower(action, rungAction(f.Rung))
	if action == pipeline.ActRetry {
		if p.outage && f.Unhealthy && f.Rung <= 1 {
			action = pipeline.ActPause // a retry would only use up an attempt
		} else {
			action = p.retry(f, plan, &d)
		}
	}
	d.Action = action
	if action == pipeline.ActQuarantine {
		d.Topic = p.topics.quarantine
	}
	return d
}

// retry fills in the retry, or says why there is none.
//
// INV-ATTEMPTS: a retry is only given while fewer than plan.attempts, at most MaxAttempts, have failed.
func (p *Policy) retry(f pipeline.Facts, plan *plan, d *pipeline.Decision) pipeline.Action {
	if p.topics.retry == "" || plan.attempts == 0 {
		return pipeline.ActQuarantine
	}
	if f.Attempt >= plan.attempts {
		d.Code = pipeline.CodeRetryExhausted
		return pipeline.ActQuarantine
	}
	wait := plan.wait(f)
	if f.FirstMS > 0 && f.NowMS+wait-f.FirstMS > p.bounds.Age.Milliseconds() {
		d.Code = pipeline.CodeRetryAge
		return pipeline.ActQuarantine
	}
	d.Topic, d.Attempt, d.NotBefore = p.topics.retry, f.Attempt+1, f.NowMS+wait
	return pipeline.ActRetry
}

// wait is the delay in ms: the backoff, or as long as the dependency asked for, but not longer than the bounds leave.
func (pl *plan) wait(f pipeline.Facts) int64 {
	d := pl.backoff.Delay(int(f.Attempt), chance(f, pl.backoff.Jitter))
	if ask := time.Duration(min(max(f.RetryAfter, 0), int64(24*time.Hour/time.Millisecond))) * time.Millisecond; ask > d {
		d = min(ask, d+pl.extra)
	}
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// chance is the jitter's number from 0 to 1. It comes from the facts: the same facts decide the same.
func chance(f pipeline.Facts, jitter float64) float64 {
	if jitter == 0 {
		return 0
	}
	h := fnv.New64a()
	var b [25]byte
	for i := range 8 {
		b[i], b[8+i], b[16+i] = byte(f.NowMS>>(8*i)), byte(f.FirstMS>>(8*i)), byte(f.RetryAfter>>(8*i))
	}
	b[24] = f.Attempt
	h.Write(b[:])
	return float64(h.Sum64()>>11) / (1 << 53)
}

// ownAction is what the code itself leads to. An effect that may have happened is never tried again before somebody knows.
func ownAction(f pipeline.Facts) pipeline.Action {
	info := pipeline.Lookup(f.Code)
	switch info.Action {
	case pipeline.ActRetry:
		if info.Class != pipeline.Transient || f.Class != pipeline.ClassNone && f.Class != pipeline.Transient {
			return pipeline.ActQuarantine
		}
		return pipeline.ActRetry
	case pipeline.ActPause:
		return pipeline.ActPause
	}
	return pipeline.ActQuarantine
}

// ladder is how far down an action is.
func ladder(a pipeline.Action) int {
	switch a {
	case pipeline.ActDeliver:
		return 0
	case pipeline.ActRetry:
		return 1
	case pipeline.ActQuarantine:
		return 2
	}
	return 3
}

// lower is the one further down.
func lower(a, b pipeline.Action) pipeline.Action {
	if ladder(b) > ladder(a) {
		return b
	}
	return a
}

// rungAction is the highest action that a rung leaves.
func rungAction(rung uint8) pipeline.Action {
	switch rung {
	case 0, 1:
		return pipeline.ActRetry
	case 2:
		return pipeline.ActQuarantine
	}
	return pipeline.ActPause
}

// Rung is what Facts.Rung is after the send of a record's message was refused: 1 for an effect, 2 for a retry, 3 for a
// letter. 0 is for anything that is not sent.
func Rung(refused pipeline.Disposition) uint8 {
	switch refused {
	case pipeline.Delivered:
		return 1
	case pipeline.Retried:
		return 2
	case pipeline.DeadLettered, pipeline.Sealed, pipeline.InFallback, pipeline.Parked, pipeline.Ranged:
		return 3
	}
	return 0
}
