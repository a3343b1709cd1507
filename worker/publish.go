package worker

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/control"
)

const (
	publishEvery = time.Second
	mostTenants  = 10_000 // that get a key because items of theirs came; what is beyond is sealed to its pipeline's key
)

// checkKeeper opens the keeper that a custodian will need: better now than when somebody wants to open a letter.
func (w *Worker) checkKeeper(ctx context.Context) error {
	if !w.o.Plan.Vaulted() || !slices.Contains(w.o.Roles, RoleCustodian) {
		return nil
	}
	_, shut, err := w.o.Plan.Keeper(ctx)
	if err != nil {
		return err
	}
	return shut()
}

// superviseKeys publishes keys until ctx ends, and starts again after a failure.
func (w *Worker) superviseKeys(ctx context.Context) {
	w.again(ctx, "public keys cannot be published; it is tried again", func() error { return w.publishKeys(ctx) })
}

func (w *Worker) publishKeys(ctx context.Context) error {
	db, err := w.ledger(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	items := custody.New(db, custody.Options{Clock: w.o.Clock, Identity: w.keys.Identity, Ring: w.keys.Ring, Log: w.o.Log})
	v := w.o.Plan.OpenVault(ctx, items, w.o.Clock)
	defer func() { logClose(w, "custodian", "keeper", v.Close()) }()
	if err := v.Check(ctx); err != nil {
		return err
	}
	p, err := OpenPublisher(ctx, PublisherOptions{Plan: w.o.Plan, Keys: w.keys, Vault: v, Name: w.name(), Clock: w.o.Clock, Log: w.o.Log})
	if err != nil {
		return err
	}
	defer p.Close()
	for ctx.Err() == nil {
		if err := p.Publish(ctx); err != nil {
			return err
		}
		_ = wait(ctx, publishEvery) // the loop looks at ctx itself
	}
	return nil
}

// PublisherOptions are what OpenPublisher works with.
type PublisherOptions struct {
	Plan  *Plan
	Keys  Keys
	Vault *Vault
	Name  string // who publishes
	Clock pipeline.Clock
	Log   *slog.Logger
}

// Publisher makes the keys that pipelines need and says their public halves on the control topics of all source clusters. The owner of
// the ledger does so: a custodian, or a person who rotates a key.
type Publisher struct {
	o      PublisherOptions
	boards map[string]*control.Board // by cluster
	close  []func()
}

// OpenPublisher follows the control topics until they are read to their ends. Close it. Codes: ERR_CONFIG_*, ERR_BROKER_*,
// ERR_CONTROL_NOT_READY.
func OpenPublisher(ctx context.Context, o PublisherOptions) (_ *Publisher, err error) {
	p := &Publisher{o: o, boards: map[string]*control.Board{}}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	for _, pp := range o.Plan.Pipelines {
		cluster := pp.Config.Source.Cluster
		if p.boards[cluster] != nil {
			continue
		}
		c, err := o.Plan.Cluster(cluster)
		if err != nil {
			return nil, err
		}
		board, shut, err := openBoard(ctx, boardOptions{plan: o.Plan, ring: o.Keys.Ring, cluster: c, name: o.Name + "-keys", clock: o.Clock, log: o.Log})
		if err != nil {
			return nil, err
		}
		p.boards[cluster] = board
		p.close = append(p.close, shut)
	}
	ready, cancel := context.WithTimeout(ctx, keyWait)
	defer cancel()
	for _, board := range p.boards {
		if err := board.WaitReady(ready); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// Close ends what OpenPublisher started.
func (p *Publisher) Close() {
	for _, shut := range slices.Backward(p.close) {
		shut()
	}
	p.close = nil
}

// Publish makes what is missing and publishes what the topics do not have yet. When it returns nil, every topic has the newest key of
// every tenant and pipeline. Codes: ERR_LEDGER_*, ERR_SEAL_FAILED (the keeper), ERR_CONTROL_NOT_READY, ERR_BROKER_*.
func (p *Publisher) Publish(ctx context.Context) error {
	if err := p.make(ctx); err != nil {
		return err
	}
	keys, err := p.o.Vault.Keys.Public(ctx)
	if err != nil {
		return err
	}
	for _, cluster := range slices.Sorted(maps.Keys(p.boards)) {
		board := p.boards[cluster]
		s, err := board.Snapshot()
		if err != nil {
			return err
		}
		var news []control.Entry
		for _, k := range keys {
			if known, version := s.SealKey(k.Pipeline, k.Tenant); known == nil || version < k.Version {
				news = append(news, control.NewSealKey(k.Pipeline, k.Tenant, k.Key, k.Version, p.o.Name))
			}
		}
		for part := range slices.Chunk(news, 100) {
			if err := board.Publish(ctx, control.ByRing(p.o.Keys.Ring), part...); err != nil {
				return err
			}
		}
		if len(news) > 0 {
			p.o.Log.Info("public keys published", "cluster", cluster, "count", len(news))
		}
	}
	return nil
}

// make makes a first key for each pipeline, each tenant that a file names and each that has items.
func (p *Publisher) make(ctx context.Context) error {
	have, err := p.o.Vault.Keys.Public(ctx)
	if err != nil {
		return err
	}
	known := map[[2]string]bool{}
	for _, k := range have {
		known[[2]string{k.Pipeline, k.Tenant}] = true
	}
	tenants, err := p.o.Vault.Keys.Tenants(ctx, mostTenants)
	if err != nil {
		return err
	}
	for _, pp := range p.o.Plan.Pipelines {
		if name := pp.Config.Name; !known[[2]string{name, ""}] {
			if _, err := p.o.Vault.Keys.OfPipeline(ctx, name); err != nil {
				return err
			}
		}
		tenants = append(tenants, pp.Config.Source.Tenant.Value)
		for _, allowed := range pp.Config.Source.Tenant.Allow {
			tenants = append(tenants, allowed...)
		}
	}
	slices.Sort(tenants)
	for _, tenant := range slices.Compact(tenants) {
		if known[[2]string{"", tenant}] || !custody.HasKey(tenant) {
			continue
		}
		if _, err := p.o.Vault.Keys.Current(ctx, tenant); err != nil {
			return err
		}
	}
	return nil
}
