package worker

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"reprieve.dev/config"
	"reprieve.dev/custody"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/control"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/pipeline/kafka"
	"reprieve.dev/pipeline/stage"
	"reprieve.dev/redrive"
	"reprieve.dev/seal"
	"reprieve.dev/transforms"
)

// Target is what redrive has to know of a pipeline. registry opens schema registries by name. Codes: ERR_CONFIG_REFERENCE.
func (pp *PipelinePlan) Target(p *Plan, registry func(string) (codec.Registry, error)) (*redrive.Target, error) {
	c := pp.Config
	t := &redrive.Target{
		Pipeline: c.Name, Group: c.Source.Group, Cluster: c.Source.Cluster, Sources: c.Source.Topics, Outputs: pp.Targets,
		Destination: c.Redrive.Destination, Ceiling: redrive.Rate(c.Redrive.Ceiling.PerSecond()), Reconcile: c.Reconcile.Mode,
		Ordered: c.Source.Ordering.Scope == "key", State: c.Effect.Kind == "state", Compensates: c.Effect.Compensates, Dual: c.Redrive.Approval == "dual",
		Quotas: quotas(&p.Config.Bounds.Quotas), Yield: redrive.Yield{Lag: c.Redrive.Yield.Lag, Latency: c.Redrive.Yield.Latency.Std()},
		Watched: []redrive.Topic{{Cluster: c.Quarantine.Cluster, Topic: c.Quarantine.Topic},
			{Cluster: c.Source.Cluster, Topic: deadletter.OutcomesTopic(p.Config.Topics.Prefix)},
			{Cluster: c.Source.Cluster, Topic: deadletter.SettlementsTopic(p.Config.Topics.Prefix)}},
		Horizon: redrive.Horizon{Known: c.Effect.Kind != "", For: c.Effect.Dedup.Horizon.Std(), Last: c.Effect.Dedup.From == "last_delivery", Store: c.Effect.Dedup.Store},
		Rules: transforms.Rules{EventID: c.Source.Identity.EventID, Entity: c.Source.Identity.Entity, BusinessID: c.Source.Identity.BusinessID,
			Token: c.Source.Identity.Token, Version: c.Source.Identity.Version},
	}
	for _, name := range slices.Sorted(maps.Keys(c.Redrive.Measures)) {
		t.Measures = append(t.Measures, redrive.Measure{Name: name, CEL: c.Redrive.Measures[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(c.Redrive.Invariants)) {
		t.Rules.Invariants = append(t.Rules.Invariants, transforms.Invariant{Name: name, CEL: c.Redrive.Invariants[name]})
	}
	t.Rules.MaxBytes = c.Redrive.MaxRepaired.Bytes()
	if t.Reconcile == "" {
		t.Reconcile = "person"
	}
	switch c.Source.Tenant.From {
	case "payload":
		t.Rules.Tenant = c.Source.Tenant.Path
	case "header":
		t.Rules.TenantHeader = c.Source.Tenant.Header
	}
	o := transforms.Options{}
	for _, s := range pp.Stages {
		set, ok := s.Settings.(*stage.DecodeSettings)
		if !ok {
			continue
		}
		dec, reg, err := set.Decoder(stage.Source{Registry: registry, File: pp.readFile})
		if err != nil {
			return nil, err
		}
		t.Decoder, o.Decoder, o.Registry = dec, dec, reg
		break
	}
	t.Library = transforms.NewLibrary(o)
	return t, nil
}

// quotas names the rows of the ledger that redrives share.
func quotas(q *config.Quotas) map[string]redrive.Rate {
	out := map[string]redrive.Rate{}
	for name, r := range q.Tenants {
		out["tenant/"+name] = redrive.Rate(r.PerSecond())
	}
	for name, r := range q.Destinations {
		out["destination/"+name] = redrive.Rate(r.PerSecond())
	}
	return out
}

// Desk joins what a person needs for redrives: the service, and how to close what it opened.
type Desk struct {
	Service *redrive.Service
	Board   *control.Board // nil when the control topic cannot be had
	Targets map[string]*redrive.Target
	close   []func()
}

// Close ends what the desk started.
func (d *Desk) Close() {
	for i := len(d.close) - 1; i >= 0; i-- {
		d.close[i]()
	}
	d.close = nil
}

// DeskOptions are what NewDesk works with.
type DeskOptions struct {
	Plan   *Plan
	Keys   Keys
	Items  *custody.Items
	Name   string // of this executor
	By     string // who acts: a halt is theirs, and they may not lift it
	Clock  pipeline.Clock
	Log    *slog.Logger
	Source func(cluster string) (pipeline.Log, bool)
	Board  bool // follow the control topic: needed to run, halt and lift
}

// NewDesk joins redrive over the pipelines of a plan. With Board it follows the control topic and is refused while that cannot
// be read. Codes: ERR_CONFIG_*, ERR_BROKER_*, ERR_CONTROL_NOT_READY.
func NewDesk(ctx context.Context, o DeskOptions) (_ *Desk, err error) {
	d := &Desk{Targets: map[string]*redrive.Target{}}
	defer func() {
		if err != nil {
			d.Close()
		}
	}()
	kinds, closing, err := pluginKinds(ctx, PluginOptions(o.Plan.File, o.Plan.Config.Sandbox, o.Clock, o.Log))
	if err != nil {
		return nil, err
	}
	d.close = append(d.close, closing)
	registries := map[string]codec.Registry{}
	lookup := func(name string) (codec.Registry, error) {
		if r, ok := registries[name]; ok {
			return r, nil
		}
		r, err := o.Plan.Registry(name, o.Clock)
		registries[name] = r
		return r, err
	}
	for _, pp := range o.Plan.Pipelines {
		t, err := pp.Target(o.Plan, lookup)
		if err != nil {
			return nil, err
		}
		for _, k := range kinds {
			if err := t.Library.Add(k); err != nil {
				return nil, err
			}
		}
		if pp.Config.Reconcile.Mode == "http" {
			q, err := pp.question(o.Items, t.Decoder, o.Clock)
			if err != nil {
				return nil, err
			}
			t.Ask = q.ask
			d.close = append(d.close, func() { _ = q.client.Close() })
		}
		tr := &trial{plan: o.Plan, pp: pp, keys: o.Keys, clock: o.Clock, lookup: lookup}
		t.Trial = tr.run
		d.close = append(d.close, tr.close)
		d.Targets[pp.Config.Name] = t
	}
	so := redrive.Options{
		Items: o.Items, Name: o.Name, Clock: o.Clock, Wait: wait, Ring: o.Keys.Ring, Identity: o.Keys.Identity, Log: o.Log, Source: o.Source,
		Targets:   func(name string) (*redrive.Target, bool) { t, ok := d.Targets[name]; return t, ok },
		Bound:     redrive.Rate(o.Plan.Config.Bounds.Redrive.PerSecond()),
		Send:      sender(o),
		Fenced:    true,
		ClusterID: clusterIDs(o.Plan),
	}
	approvers, err := o.Plan.approvers()
	if err != nil {
		return nil, err
	}
	so.Approvers = approvers
	if o.Board {
		if err := d.openBoard(ctx, o); err != nil {
			return nil, err
		}
		so.Board = redrive.ControlBoard{Board: d.Board, By: control.ByRing(o.Keys.Ring), Writer: o.By}
	}
	d.Service = redrive.New(so)
	return d, nil
}

// clusterIDs answers by which id the ledger knows a cluster, and asks each cluster once.
func clusterIDs(p *Plan) func(context.Context, string) (string, error) {
	var mu sync.Mutex
	known := map[string]string{}
	return func(ctx context.Context, name string) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		if id, ok := known[name]; ok {
			return id, nil
		}
		c, err := p.Cluster(name)
		if err != nil {
			return "", err
		}
		id, err := ClusterID(ctx, c)
		if err == nil {
			known[name] = id
		}
		return id, err
	}
}

// wait passes d of real time, or ends early with ctx.
func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// openTx is how long an executor waits for the brokers when it opens its transactional id.
const openTx = 30 * time.Second

// sender opens the producer of one lease: transactional, under an id that follows from the lease alone. Opening it fences whoever
// had the lease before, so what the destination holds then is what was sent.
func sender(o DeskOptions) redrive.Sender {
	return func(ctx context.Context, t *redrive.Target, l ledger.Lease) (pipeline.Sink, func(context.Context) error, error) {
		c, err := o.Plan.Cluster(t.Cluster)
		if err != nil {
			return nil, nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, openTx)
		defer cancel()
		tx, err := kafka.NewTx(ctx, kafka.TxConfig{Cluster: c, ClientID: "reprieve-redrive-" + o.Name,
			TransactionalID: o.Plan.Config.Topics.Prefix + "." + l.Name, Log: o.Log})
		if err != nil {
			return nil, nil, err
		}
		return tx, tx.Close, nil
	}
}

// approvers are the persons of the worker file. Codes: ERR_CONFIG_VALUE.
func (p *Plan) approvers() ([]redrive.Approver, error) {
	var out []redrive.Approver
	for i, a := range p.Config.Approvers {
		v, err := seal.ParseVerifier([]byte(a.Public))
		if err != nil {
			return nil, pipeline.Errorf(pipeline.CodeConfigValue, fmt.Sprintf("approvers[%d].public", i), "%w", err)
		}
		out = append(out, redrive.Approver{Key: v.For(a.Subject), Roles: a.Roles})
	}
	return out, nil
}

// openBoard follows the control topic of the first pipeline's cluster until it is read to its end.
func (d *Desk) openBoard(ctx context.Context, o DeskOptions) error {
	if len(o.Plan.Pipelines) == 0 {
		return pipeline.Errorf(pipeline.CodeConfigReference, o.Plan.File, "no pipeline is known, so neither is the cluster of the control topic")
	}
	f, err := follow(ctx, o.Plan.Pipelines[0].Config.Name, boardOptions{plan: o.Plan, ring: o.Keys.Ring, name: o.Name, clock: o.Clock, log: o.Log})
	if err != nil {
		return err
	}
	d.Board = f.board
	d.close = append(d.close, f.close)
	return nil
}

// Lift writes a person's lift of the halt on the control topic. Codes: ERR_REDRIVE_STATE (no halt stands), ERR_PERMISSION_DENIED,
// ERR_REASON_MISSING, ERR_CONTROL_NOT_READY.
func (d *Desk) Lift(ctx context.Context, signer *seal.Signer, name, reason string) error {
	return d.Board.Lift(ctx, signer, signer.Subject(), name, reason)
}
