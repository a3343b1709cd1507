package worker

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/control"
	"reprieve.dev/pipeline/decide"
	"reprieve.dev/pipeline/kafka"
	"reprieve.dev/seal"
)

// PolicyDesk is where a person sees and changes which policy version is in force for one pipeline.
type PolicyDesk struct {
	followed
	plan     *Plan
	clock    pipeline.Clock
	compiled map[string]compiled
}

type compiled struct {
	policy   *decide.Policy
	problems config.Problems
}

// OpenPolicies follows the control topic of the pipeline's source cluster. name is of the client. Codes: ERR_CONFIG_*,
// ERR_BROKER_*, ERR_CONTROL_NOT_READY.
func OpenPolicies(ctx context.Context, plan *Plan, pipelineName, name string, keys Keys, clock pipeline.Clock, log *slog.Logger) (*PolicyDesk, error) {
	f, err := follow(ctx, pipelineName, boardOptions{plan: plan, ring: keys.Ring, name: name, clock: clock, log: log})
	if err != nil {
		return nil, err
	}
	return &PolicyDesk{followed: f, plan: plan, clock: clock, compiled: map[string]compiled{}}, nil
}

// The states of a version.
const (
	PolicyActive   = "active"
	PolicyCanary   = "canary"
	PolicyEarlier  = "earlier"
	PolicyUnusable = "unusable"
	PolicyUnread   = "not activated" // the version of the pipeline file, if another one is in force
)

// PolicyVersion is one version as people see it.
type PolicyVersion struct {
	Version  string          `json:"version"` // digest
	State    string          `json:"state"`
	Percent  int             `json:"percent,omitempty"` // of the partitions; of the active one and a canary
	File     bool            `json:"file"`              // it is that of the pipeline file
	By       string          `json:"by,omitempty"`
	At       string          `json:"at,omitempty"`
	Reason   string          `json:"reason,omitempty"`
	Previous string          `json:"previous,omitempty"` // where a rollback of it goes
	Reject   int             `json:"reject_rules"`
	Decide   int             `json:"decide_rules"`
	Clamped  []string        `json:"clamped,omitempty"`
	Problems config.Problems `json:"problems,omitempty"`

	Canonical []byte `json:"-"`
}

// compile compiles a version once.
func (d *PolicyDesk) compile(a *control.Activation) compiled {
	if a == nil || a.Version == control.FileVersion || a.Version == string(d.pp.Policy.Digest()) {
		return compiled{policy: d.pp.Policy}
	}
	c, known := d.compiled[a.Version]
	if !known {
		if c.policy, c.problems = d.pp.compileText(a.Version, a.Text); len(c.problems) > 0 {
			c.policy = nil
		}
		d.compiled[a.Version] = c
	}
	return c
}

// state is what is on the topic now.
func (d *PolicyDesk) state() (acts []control.Activation, active, canary *control.Activation, err error) {
	s, err := d.board.Snapshot()
	if err != nil {
		return nil, nil, nil, err
	}
	acts, _ = s.Activations(d.pp.Config.Name)
	active, canary = control.InForce(acts, func(a *control.Activation) bool { return d.compile(a).policy != nil })
	return acts, active, canary, nil
}

// List are all versions, the latest act first, and the version of the file if nobody activated it.
func (d *PolicyDesk) List() ([]PolicyVersion, error) {
	acts, active, canary, err := d.state()
	if err != nil {
		return nil, err
	}
	var out []PolicyVersion
	add := func(v PolicyVersion) {
		if !slices.ContainsFunc(out, func(o PolicyVersion) bool { return o.Version == v.Version && o.File == v.File }) {
			out = append(out, v)
		}
	}
	for i := range acts {
		a := &acts[i]
		v := d.describe(a)
		switch {
		case a == active:
			v.State, v.Percent = PolicyActive, 100
			if canary != nil {
				v.Percent -= int(canary.Share)
			}
		case a == canary:
			v.State, v.Percent = PolicyCanary, int(canary.Share)
		case d.compile(a).policy == nil:
			v.State = PolicyUnusable
		}
		add(v)
	}
	file := d.describe(nil)
	file.State = PolicyUnread
	if active == nil {
		file.State, file.Percent = PolicyActive, 100
		if canary != nil {
			file.Percent -= int(canary.Share)
		}
	}
	add(file)
	return out, nil
}

// describe says what is known of a version; of nil, the file's.
func (d *PolicyDesk) describe(a *control.Activation) PolicyVersion {
	c := d.compile(a)
	v := PolicyVersion{State: PolicyEarlier, Problems: c.problems}
	if a != nil {
		v.Version, v.By, v.Reason, v.Previous, v.Canonical = a.Version, a.By, a.Reason, a.Previous, a.Text
		v.At = time.UnixMilli(a.AtMS).UTC().Format("2006-01-02T15:04:05.000Z")
	}
	if c.policy != nil {
		v.Version, v.Canonical, v.Clamped = string(c.policy.Digest()), c.policy.Canonical(), c.policy.Clamped()
		v.Reject, v.Decide = c.policy.Rules()
		v.File = c.policy == d.pp.Policy
	}
	return v
}

// Find is one version by its digest or the beginning of it, "file", or "" for the one in force. Codes: ERR_POLICY_UNKNOWN,
// ERR_USAGE (several begin so).
func (d *PolicyDesk) Find(text string) (PolicyVersion, error) {
	all, err := d.List()
	if err != nil {
		return PolicyVersion{}, err
	}
	var found []PolicyVersion
	for _, v := range all {
		switch {
		case text == "" && v.State == PolicyActive, text == control.FileVersion && v.File:
			return v, nil
		case text != "" && strings.HasPrefix(strings.TrimPrefix(v.Version, "sha256:"), strings.TrimPrefix(text, "sha256:")):
			found = append(found, v)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return PolicyVersion{}, pipeline.Errorf(pipeline.CodePolicyUnknown, text, "the pipeline %s has no such policy version", d.pp.Config.Name)
	}
	return PolicyVersion{}, pipeline.Errorf(pipeline.CodeUsage, text, "%d policy versions begin so", len(found)).With("give more of the digest")
}

// PolicyChange is what became of an act.
type PolicyChange struct {
	Pipeline   string             `json:"pipeline"`
	Version    string             `json:"version"`
	Percent    int                `json:"percent"`
	Before     string             `json:"before"` // in force for all partitions
	By         string             `json:"by"`
	Partitions map[string][]int32 `json:"canary_partitions,omitempty"`
	Changed    bool               `json:"changed"` // false: it was so already, and nothing was written
	Clamped    []string           `json:"clamped,omitempty"`
}

// Activate puts a version into force for a share of the partitions, in percent; "file" is the version of each worker's own
// file. The person signs it. Codes: ERR_REASON_MISSING, ERR_INPUT_INVALID (a share that is none, or reaches no partition),
// ERR_PERMISSION_DENIED, ERR_CONTROL_NOT_READY, ERR_BROKER_*, and of the send.
func (d *PolicyDesk) Activate(ctx context.Context, by *seal.Signer, version string, p *decide.Policy, share int, reason string) (PolicyChange, error) {
	_, active, _, err := d.state()
	if err != nil {
		return PolicyChange{}, err
	}
	previous := control.FileVersion
	if active != nil {
		previous = active.Version
		if active.Version == version {
			previous = active.Previous
		}
	} else if version == control.FileVersion {
		previous = ""
	}
	return d.publish(ctx, by, version, p, share, previous, reason)
}

// Rollback goes back: from a canary to the version in force, else to the version before, or to the one that is named. Codes:
// those of Activate, and ERR_POLICY_UNKNOWN.
func (d *PolicyDesk) Rollback(ctx context.Context, by *seal.Signer, version, reason string) (PolicyChange, error) {
	acts, active, canary, err := d.state()
	if err != nil {
		return PolicyChange{}, err
	}
	inForce := control.Activation{Version: control.FileVersion}
	if active != nil {
		inForce = *active
	}
	if version == "" {
		if version = inForce.Previous; canary != nil {
			version = inForce.Version
		}
	}
	if version == "" {
		return PolicyChange{}, pipeline.Errorf(pipeline.CodePolicyUnknown, d.pp.Config.Name, "no policy version was in force before this one").
			With("name one: reprieve policy list " + d.pp.Config.Name)
	}
	to := control.Activation{Version: version}
	if i := slices.IndexFunc(acts, func(a control.Activation) bool { return a.Version == version }); i >= 0 {
		to = acts[i]
	} else if version != control.FileVersion {
		return PolicyChange{}, pipeline.Errorf(pipeline.CodePolicyUnknown, version, "the version is not on the control topic any more").
			With("name one: reprieve policy list " + d.pp.Config.Name)
	}
	c := d.compile(&to)
	if c.policy == nil {
		return PolicyChange{}, c.problems
	}
	return d.publish(ctx, by, version, c.policy, 100, to.Previous, reason)
}

func (d *PolicyDesk) publish(ctx context.Context, by *seal.Signer, version string, p *decide.Policy, share int, previous, reason string) (PolicyChange, error) {
	_, active, canary, err := d.state()
	switch {
	case err != nil:
		return PolicyChange{}, err
	case strings.TrimSpace(reason) == "":
		return PolicyChange{}, pipeline.Errorf(pipeline.CodeReasonMissing, "", "a reason is missing")
	case share < 1 || share > 100:
		return PolicyChange{}, pipeline.Errorf(pipeline.CodeInputInvalid, "canary", "a share is from 1 to 100 percent of the partitions")
	}
	out := PolicyChange{Pipeline: d.pp.Config.Name, Version: version, Percent: share, Before: control.FileVersion, By: by.Subject(), Clamped: p.Clamped()}
	if active != nil {
		out.Before = active.Version
	}
	if share < 100 {
		if out.Partitions, err = d.reach(ctx, p, share); err != nil {
			return PolicyChange{}, err
		}
	}
	if share == 100 && canary == nil && out.Before == version || canary != nil && canary.Version == version && int(canary.Share) == share {
		return out, nil
	}
	s, err := d.board.Snapshot()
	if err != nil {
		return PolicyChange{}, err
	}
	var text []byte
	if version != control.FileVersion {
		text = p.Canonical()
	}
	if err := d.board.Publish(ctx, by, s.NewActivation(d.pp.Config.Name, by.Subject(), version, uint8(share), text, previous, reason)); err != nil {
		return PolicyChange{}, err
	}
	out.Changed = true
	return out, nil
}

// reach are the partitions that a canary would decide for, by topic. Codes: ERR_INPUT_INVALID (none), ERR_BROKER_*.
func (d *PolicyDesk) reach(ctx context.Context, p *decide.Policy, share int) (map[string][]int32, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	admin, err := kafka.NewAdmin(d.cluster)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	have, err := admin.Topics(ctx)
	if err != nil {
		return nil, err
	}
	set := decide.Set{Canary: p, Share: uint8(share)}
	out := map[string][]int32{}
	for _, topic := range d.pp.Config.Source.Topics {
		for n := range int32(have[topic]) {
			if set.For(pipeline.TP{Topic: topic, Partition: n}) == p {
				out[topic] = append(out[topic], n)
			}
		}
	}
	if len(out) == 0 {
		return nil, pipeline.Errorf(pipeline.CodeInputInvalid, "canary", "%d percent of the partitions of %s reach none", share, strings.Join(d.pp.Config.Source.Topics, ", ")).
			With("ask for a larger share")
	}
	return out, nil
}

// Compiled is the policy of a version that List or Find gave.
func (d *PolicyDesk) Compiled(v PolicyVersion) (*decide.Policy, config.Problems) {
	if v.File {
		return d.pp.Policy, nil
	}
	return d.pp.compileText(v.Version, v.Canonical)
}

// Check finds what is wrong with a policy for the pipeline beyond its form, with the schemas of its registries.
func (d *PolicyDesk) Check(ctx context.Context, p *decide.Policy, doc *config.Doc) (config.Problems, []string) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	return d.pp.CheckPolicy(ctx, p, doc, func(name string) (codec.Registry, error) { return d.plan.Registry(name, d.clock) })
}

// Pipeline is the pipeline of the desk.
func (d *PolicyDesk) Pipeline() *PipelinePlan { return d.pp }
