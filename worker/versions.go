package worker

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/control"
	"reprieve.dev/pipeline/decide"
)

// versions are the policy versions of one pipeline as the control topic says: the one in force and a canary. Every worker that
// has read the same topic to its end has the same. Safe for concurrent use.
type versions struct {
	pp    *PipelinePlan
	board *control.Board
	log   *slog.Logger

	now      atomic.Pointer[current]
	mu       sync.Mutex
	compiled map[string]*decide.Policy // by version; nil: it cannot be used here
	told     map[control.Key]int64     // entries that were alarmed, by seq

	refused  pipeline.Counter
	canaries pipeline.Gauge
	changes  pipeline.Counter
}

// current is what follows from one snapshot of the topic.
type current struct {
	of  *control.Snapshot // nil: the topic is not read yet
	set decide.Set
}

func newVersions(pp *PipelinePlan, board *control.Board, log *slog.Logger, m pipeline.Meter) *versions {
	name := pp.Config.Name
	v := &versions{pp: pp, board: board, log: log, compiled: map[string]*decide.Policy{}, told: map[control.Key]int64{},
		refused: m.Counter("reprieve_policy_entries_refused_total", "Policy versions on the control topic that this worker cannot use (ALERT_POLICY_UNUSABLE).",
			"pipeline", name),
		canaries: m.Gauge("reprieve_policy_canary_percent", "Share of the partitions for which a canary of the policy decides.", "pipeline", name),
		changes:  m.Counter("reprieve_policy_changes_total", "Times another policy version came into force.", "pipeline", name),
	}
	v.now.Store(&current{set: decide.Set{Active: pp.Policy}})
	return v
}

// policy is the version for a partition. The engine's owner asks once a batch: that costs a comparison unless the topic has
// changed.
func (v *versions) policy(tp pipeline.TP) pipeline.Policy { return v.latest().set.For(tp) }

// Covers tells whether everything that stood on the topic at a moment is known.
func (v *versions) Covers(ms int64) bool { return v.board.Covers(ms) }

// status names the versions for people: the one in force, and the canary with its share.
func (v *versions) status() (active, canary string) {
	set := v.now.Load().set
	if set.Canary != nil {
		canary = string(set.Canary.Digest())
	}
	return string(set.Active.Digest()), canary
}

// follow keeps the versions current while no record comes, so that alarms and figures are in time.
func (v *versions) follow(ctx context.Context) {
	for {
		changed := v.board.Changed()
		v.latest()
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

func (v *versions) latest() *current {
	c := v.now.Load()
	s, err := v.board.Snapshot()
	if err != nil || s == c.of { // cold: nothing is read yet
		return c
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if c = v.now.Load(); c.of == s {
		return c
	}
	next := v.fold(s)
	if next.set != c.set {
		v.tell(c.of == nil, &c.set, &next.set)
	}
	v.now.Store(next)
	return next
}

// fold finds the versions in force. What cannot be used counts as not there, and is alarmed.
func (v *versions) fold(s *control.Snapshot) *current {
	acts, damaged := s.Activations(v.pp.Config.Name)
	for _, e := range damaged {
		v.alarm(e, "its text is not that of its version, or a number of it is not possible")
	}
	active, canary := control.InForce(acts, func(a *control.Activation) bool { return v.of(a) != nil })
	next := &current{of: s, set: decide.Set{Active: v.pp.Policy}}
	if active != nil {
		next.set.Active = v.of(active)
	}
	if canary != nil {
		next.set.Canary, next.set.Share = v.of(canary), canary.Share
	}
	return next
}

// of compiles a version once, under this worker's bounds.
func (v *versions) of(a *control.Activation) *decide.Policy {
	if a.Version == control.FileVersion || a.Version == string(v.pp.Policy.Digest()) {
		return v.pp.Policy
	}
	p, known := v.compiled[a.Version]
	if known {
		return p
	}
	p, ps := v.pp.compileText(a.Version, a.Text)
	if len(ps) > 0 {
		p = nil
		v.alarm(a.Entry, ps.Error())
	}
	v.compiled[a.Version] = p
	return p
}

func (v *versions) alarm(e control.Entry, what string) {
	if v.told[e.Key] == e.Seq {
		return
	}
	v.told[e.Key] = e.Seq
	v.refused.Add(1)
	v.log.Error(string(pipeline.CodePolicyUnusable), "pipeline", v.pp.Config.Name, "version", e.Subject, "by", e.By, "cause", what,
		"remedy", pipeline.Lookup(pipeline.CodePolicyUnusable).Remedy)
}

func (v *versions) tell(first bool, was, is *decide.Set) {
	v.canaries.Set(float64(is.Share))
	canary := ""
	if is.Canary != nil {
		canary = string(is.Canary.Digest())
	}
	if !first {
		v.changes.Add(1)
	}
	v.log.Info("the policy in force", "pipeline", v.pp.Config.Name, "version", is.Active.Digest(), "before", was.Active.Digest(),
		"canary", canary, "canary_percent", is.Share, "clamped", is.Active.Clamped())
	if is.Active.Digest() != v.pp.Policy.Digest() && v.pp.policyFile != "" {
		v.log.Warn("the policy file is not in force: another version was activated", "pipeline", v.pp.Config.Name, "file", v.pp.policyFile,
			"file_version", v.pp.Policy.Digest(), "version", is.Active.Digest(), "remedy", "reprieve policy activate "+v.pp.Config.Name)
	}
}

// openVersions follows the control topics of all pipelines until closing is called. Codes: ERR_BROKER_CONFIG, ERR_CONFIG_*.
func (w *Worker) openVersions(ctx context.Context) (closing func(), err error) {
	boards := map[string]*control.Board{}
	var closers []func()
	var wg sync.WaitGroup
	ctx, stop := context.WithCancel(ctx)
	closing = func() {
		stop()
		wg.Wait()
		for _, f := range closers {
			f()
		}
	}
	all := map[string]*versions{}
	for _, pp := range w.o.Plan.Pipelines {
		name := pp.Config.Source.Cluster
		if boards[name] == nil {
			c, err := w.o.Plan.Cluster(name)
			if err != nil {
				closing()
				return nil, err
			}
			board, shut, err := openBoard(ctx, boardOptions{plan: w.o.Plan, ring: w.keys.Ring, cluster: c, name: w.name(), clock: w.o.Clock, log: w.o.Log, meter: w.o.Meter})
			if err != nil {
				closing()
				return nil, err
			}
			boards[name], closers = board, append(closers, shut)
		}
		v := newVersions(pp, boards[name], w.o.Log, w.o.Meter)
		all[pp.Config.Name] = v
		wg.Go(func() { v.follow(ctx) })
	}
	w.mu.Lock()
	w.versions = all
	w.mu.Unlock()
	return closing, nil
}
