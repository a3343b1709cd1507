package decide

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/expr"
	"reprieve.dev/seal"
)

// MaxFile is the most that the canonical form of a policy may have: it travels in one control entry.
const MaxFile = 256 << 10

// File is a policy file.
type File struct {
	APIVersion string       `yaml:"apiVersion" json:"apiVersion,omitempty" enum:"reprieve/v1" doc:"The version of this form."`
	Policy     string       `yaml:"policy" json:"policy,omitempty" doc:"What the policy is called."`
	Reject     []RejectRule `yaml:"reject" json:"reject,omitempty" doc:"Business rules over the record, in order: the first that holds refuses it."`
	Decide     []DecideRule `yaml:"decide" json:"decide,omitempty" doc:"What follows from a failure, in order: the first that matches counts; without one, the code's own action."`
	Unknown    *UnknownFile `yaml:"unknown_errors" json:"unknown_errors,omitempty" doc:"A narrower budget of failures that nobody has classified than the platform's: beyond it the pipeline is halted until a person resumes it."`
}

// UnknownFile is the unknown-error budget of a policy.
type UnknownFile struct {
	Window    int `yaml:"window" json:"window" required:"true" doc:"How many outcomes of records, the last ones, are looked at."`
	Tolerated int `yaml:"tolerated" json:"tolerated" doc:"How many of them may be failures without a class, or defects of ours; 0 halts at the first."`
}

// RejectRule refuses records.
type RejectRule struct {
	Name   string            `yaml:"name" json:"name" required:"true" doc:"Names the rule in the failure and its fingerprint."`
	When   string            `yaml:"when" json:"when" required:"true" doc:"A CEL condition over view, headers, key, topic, partition, offset and timestamp."`
	Code   string            `yaml:"code" json:"code,omitempty" doc:"The code of the failure; ERR_DOMAIN_REJECTED if it is not given."`
	Params map[string]string `yaml:"params" json:"params,omitempty" doc:"Further details of the reason: fixed texts, never values of the record."`
}

// DecideRule changes what follows from failures, within the platform's bounds: it can only go down the ladder retry,
// quarantine, pause, and retry fewer times.
type DecideRule struct {
	Name     string       `yaml:"name" json:"name,omitempty" doc:"Names the rule for people."`
	When     string       `yaml:"when" json:"when" required:"true" doc:"A CEL condition over code, class, three_way, stage, attempt, rung, age, retry_after, retryable, schema, tenant, topic, release, lane, redriven and healthy."`
	Action   string       `yaml:"action" json:"action,omitempty" enum:"retry,quarantine,pause" doc:"The most that is done; the code's own action if it is not given."`
	Attempts *int         `yaml:"attempts" json:"attempts,omitempty" doc:"How many retries, at most five."`
	Backoff  *BackoffFile `yaml:"backoff" json:"backoff,omitempty" doc:"How long to wait before each retry."`
}

// BackoffFile is a backoff as files write it.
type BackoffFile struct {
	Initial config.Duration `yaml:"initial" json:"initial,omitempty" doc:"The first wait, 100ms by default."`
	Factor  Number          `yaml:"factor" json:"factor,omitempty" doc:"How much longer each further wait is, 1 to 100; 2 by default."`
	Max     config.Duration `yaml:"max" json:"max,omitempty" doc:"The longest wait, 1m by default."`
	Jitter  Number          `yaml:"jitter" json:"jitter,omitempty" doc:"The part of a wait that is taken away at random, 0 to 0.5."`
}

// Number is a decimal number that is kept as its text: canonical forms have no floats.
type Number string

// Float is its value; 0 if it is not set.
func (n Number) Float() float64 {
	f, _ := strconv.ParseFloat(string(n), 64)
	return f
}

// Backoff is the backoff that the file describes.
func (f *BackoffFile) Backoff() Backoff {
	if f == nil {
		return Backoff{}
	}
	return Backoff{Initial: f.Initial.Std(), Factor: f.Factor.Float(), Max: f.Max.Std(), Jitter: f.Jitter.Float()}
}

// Options is what the pipeline and the platform say beside the file.
type Options struct {
	Bounds     Bounds
	Retry      Retry
	Quarantine string // topic
	// OutagePause is outage: pause. While the dependency that failed is known to be down, what would be retried pauses.
	OutagePause bool
}

// Retry is the pipeline's retry section. Without a topic nothing is retried.
type Retry struct {
	Topic    string
	Attempts *uint8 // nil: as many as the bounds allow
	Backoff  Backoff
}

// Load reads a policy file, YAML or its canonical form. All problems come at once, with their places.
func Load(doc *config.Doc, o Options) (*Policy, config.Problems) {
	var f File
	problems := doc.Decode(&f)
	told := map[string]bool{}
	for _, q := range problems {
		told[q.Path] = true
	}
	p := compile(f, o, func(path, code, text, suggestion string) {
		if !told[path] && !doc.At(path).Broken() {
			problems = append(problems, doc.Problem(path, code, text, suggestion))
		}
	})
	if len(problems) > 0 {
		return nil, problems.Sorted()
	}
	return p, nil
}

// New compiles a policy from values. The error is config.Problems without places in a file.
func New(f File, o Options) (*Policy, error) {
	var problems config.Problems
	p := compile(f, o, func(path, code, text, suggestion string) {
		problems = append(problems, config.Problem{Path: path, Code: code, Text: text, Suggestion: suggestion})
	})
	if len(problems) > 0 {
		return nil, problems
	}
	return p, nil
}

type report func(path, code, text, suggestion string)

func compile(f File, o Options, tell report) *Policy {
	bounds := o.Bounds.normal()
	p := &Policy{bounds: bounds, topics: topics{o.Retry.Topic, o.Quarantine}, outage: o.OutagePause}
	attempts := bounds.Attempts
	if o.Retry.Attempts != nil {
		attempts = *o.Retry.Attempts
	}
	p.base = p.plan("retry", attempts, o.Retry.Backoff)
	names := map[string]bool{}
	for i, r := range f.Reject {
		path := fmt.Sprintf("reject[%d]", i)
		if names[r.Name] && r.Name != "" {
			tell(path+".name", config.CodeValue, "two rules are called "+r.Name, "give each rule a name of its own")
		}
		names[r.Name] = true
		p.reject = append(p.reject, compileReject(path, r, tell))
	}
	for i, r := range f.Decide {
		p.rules = append(p.rules, p.compileDecide(fmt.Sprintf("decide[%d]", i), r, o, tell))
	}
	p.unknown = bounds.Unknown
	if u := f.Unknown; u != nil {
		if u.Window < 1 || u.Window > 10_000_000 {
			tell("unknown_errors.window", config.CodeValue, "outcomes that are looked at are between 1 and 10000000", "for example 1000")
		}
		if u.Tolerated < 0 {
			tell("unknown_errors.tolerated", config.CodeValue, "a number of failures is not negative", "0 halts at the first")
		}
		own := UnknownBudget{u.Window, u.Tolerated}
		if p.unknown = bounds.Unknown.Clamp(own); p.unknown != own {
			p.clamped = append(p.clamped, fmt.Sprintf("unknown_errors: %d of %d become %d of %d", own.Tolerated, own.Window, p.unknown.Tolerated, p.unknown.Window))
		}
	}
	canonical, err := seal.Canonical(f)
	switch {
	case err != nil:
		tell("", config.CodeValue, "the policy has no canonical form: "+err.Error(), "")
	case len(canonical) > MaxFile:
		tell("", config.CodeValue, fmt.Sprintf("the policy has %d bytes in its canonical form; at most %d can be activated", len(canonical), MaxFile), "split it among pipelines")
	}
	p.canonical, p.digest = canonical, pipeline.Digest(seal.SHA256(canonical))
	return p
}

// plan clamps a number of retries and their backoff, and notes what was taken away.
func (p *Policy) plan(who string, attempts uint8, back Backoff) plan {
	n, b := p.bounds.Clamp(attempts, back)
	if n < attempts {
		p.clamped = append(p.clamped, fmt.Sprintf("%s: %d retries become %d", who, attempts, n))
	}
	if back.Max > b.Max {
		p.clamped = append(p.clamped, fmt.Sprintf("%s: waits of up to %s become %s", who, back.Max, b.Max))
	}
	return plan{attempts: n, backoff: b, extra: p.bounds.retryAfter(n, b)}
}

func compileReject(path string, r RejectRule, tell report) rejectRule {
	out := rejectRule{name: r.Name, code: pipeline.CodeRejected, params: []pipeline.Param{pipeline.Str("rule", r.Name)}}
	if r.Name == "" {
		tell(path+".name", config.CodeMissing, "a rule needs a name", "")
	}
	if r.Code != "" {
		out.code = pipeline.Code(r.Code)
		if !rejectable(out.code) {
			tell(path+".code", config.CodeValue, r.Code+" is not a code that a rule may give", "leave it out for "+string(pipeline.CodeRejected)+", and say more with params")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Params)) {
		if name == "rule" {
			tell(path+".params.rule", config.CodeValue, "the name of the rule is always there", "leave it out")
			continue
		}
		out.params = append(out.params, pipeline.Str(name, r.Params[name]))
	}
	out.when = condition(path+".when", r.When, expr.Condition, tell)
	return out
}

// rejectable are the codes that say something about the record.
func rejectable(c pipeline.Code) bool {
	if !pipeline.Known(c) {
		return false
	}
	switch pipeline.Lookup(c).Class {
	case pipeline.Payload, pipeline.Domain, pipeline.Authorization, pipeline.Resource:
		return true
	}
	return false
}

func (p *Policy) compileDecide(path string, r DecideRule, o Options, tell report) decideRule {
	out := decideRule{name: r.Name}
	if r.Name == "" {
		out.name = path
	}
	switch a, ok := pipeline.ParseAction(r.Action); {
	case r.Action == "":
	case !ok || ladder(a) == 0 || a == pipeline.ActPark || a == pipeline.ActRange:
		tell(path+".action", config.CodeValue, r.Action+" is not an action of a rule", "write retry, quarantine or pause")
	default:
		out.action = a
	}
	attempts := p.base.attempts
	if r.Attempts != nil {
		if *r.Attempts < 0 || *r.Attempts > 255 {
			tell(path+".attempts", config.CodeValue, "the number of retries must be between 0 and "+strconv.Itoa(MaxAttempts), "")
		}
		attempts = min(uint8(min(max(*r.Attempts, 0), 255)), p.base.attempts) // the pipeline's own number is a bound too
	}
	back := o.Retry.Backoff
	if r.Backoff != nil {
		checkBackoff(path+".backoff", r.Backoff, tell)
		back = r.Backoff.Backoff()
	}
	out.plan = p.plan(out.name, attempts, back)
	out.when = condition(path+".when", r.When, expr.FactsCondition, tell)
	return out
}

func checkBackoff(path string, b *BackoffFile, tell report) {
	number := func(key string, n Number, low, high float64) {
		if n == "" {
			return
		}
		if f, err := strconv.ParseFloat(string(n), 64); err != nil || !(f >= low && f <= high) {
			tell(path+"."+key, config.CodeValue, fmt.Sprintf("%s must be a number from %g to %g", key, low, high), "")
		}
	}
	number("factor", b.Factor, 1, maxFactor)
	number("jitter", b.Jitter, 0, maxJitter)
	if b.Max > 0 && b.Initial > b.Max {
		tell(path+".initial", config.CodeValue, "the first wait is longer than max", "")
	}
}

// condition compiles an expression; its problems keep their place within it.
func condition[C any](path, src string, compile func(string) (*C, error), tell report) *C {
	if src == "" {
		tell(path, config.CodeMissing, "a rule needs a condition", "write when: 'true' for always")
		return nil
	}
	c, err := compile(src)
	if problems, ok := err.(expr.Problems); ok {
		for _, q := range problems {
			tell(path, string(pipeline.CodeConfigExpression), fmt.Sprintf("at %d:%d of the expression: %s", q.Line, q.Column, q.Text), q.Suggestion)
		}
		return nil
	}
	return c
}
