package worker

import (
	"context"
	"sync"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/pipeline/kafka"
	"reprieve.dev/seal"
)

// intakes are the topics that custodians read, by cluster: dead letters of our pipelines and adopted ones, vaults, settlements and
// outcomes of the clusters that pipelines read from.
func (p *Plan) intakes(ctx context.Context) map[string]*intake {
	out := map[string]*intake{}
	of := func(cluster string) *intake {
		if out[cluster] == nil {
			out[cluster] = &intake{letters: map[string]bool{}, vaults: map[string]bool{}, adopt: map[string]custody.Adoption{}}
		}
		return out[cluster]
	}
	for _, pp := range p.Pipelines {
		of(pp.Config.Quarantine.Cluster).letters[pp.Config.Quarantine.Topic] = true
		if p.Vaulted() {
			of(pp.Config.Quarantine.Cluster).vaults[pp.Config.Quarantine.VaultTopic()] = true
		}
		of(pp.Config.Source.Cluster).own = true
	}
	for _, a := range p.Config.Custody.Adopt {
		in := of(a.Cluster)
		in.letters[a.Topic] = true
		ad := custody.Adoption{Dialect: a.Dialect, Consumer: a.Consumer, Data: a.Data}
		if id, err := adoptedIdentity(a); err == nil && id != nil { // check has told what is wrong with it
			ad.Identify = identify(ctx, id)
		}
		in.adopt[a.Topic] = ad
	}
	return out
}

type intake struct {
	letters map[string]bool
	vaults  map[string]bool
	adopt   map[string]custody.Adoption
	own     bool // settlements and outcomes are here
}

// custodians runs one custodian for each cluster until ctx ends.
func (w *Worker) custodians(ctx context.Context) {
	var wg sync.WaitGroup
	for name, in := range w.o.Plan.intakes(ctx) {
		wg.Go(func() {
			w.again(ctx, "the custodian stopped and is started again", func() error { return w.runCustodian(ctx, name, in) }, "cluster", name)
		})
	}
	wg.Wait()
}

// runCustodian opens what one custodian needs, runs it, and closes everything.
func (w *Worker) runCustodian(ctx context.Context, name string, in *intake) error {
	db, err := w.ledger(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	instance := ""
	if w.o.InstanceID != "" {
		instance = w.o.InstanceID + "-" + name
	}
	s, err := w.o.Plan.seat(ctx, name, in, seatOptions{keys: w.keys, log: w.o.Log, group: w.o.Plan.Config.Topics.Prefix + ".custodian", instance: instance})
	if err != nil {
		return err
	}
	defer func() { logClose(w, "custodian", "cluster "+name, s.Close()) }()
	large, closing := w.o.Plan.Large()
	defer closing()
	s.options.Items = custody.New(db, custody.Options{Large: large, Clock: w.o.Clock, Identity: w.keys.Identity, Ring: w.keys.Ring, Log: w.o.Log, Owner: w.o.Plan.Owner, Keep: w.o.Plan.Retention().Fix, Roles: w.o.Plan.Roles()})
	s.options.Meter = w.o.Meter
	if name == w.o.Plan.auditCluster() {
		sink, err := kafka.NewSink(kafka.SinkConfig{Cluster: s.cluster, ClientID: "reprieve-audit", Log: w.o.Log})
		if err != nil {
			return err
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			_ = sink.Close(ctx) // what was not acknowledged stays in the outbox
		}()
		s.options.Sink = sink
	}
	w.o.Log.Info("custodian starts", "cluster", name, "topics", s.topics)
	return custody.NewCustodian(s.options).Run(ctx)
}

// writersOf are the programs that may write outcomes. Codes: ERR_CONFIG_VALUE.
func writersOf(p *Plan) (map[string]deadletter.Writer, error) {
	out := map[string]deadletter.Writer{}
	for _, c := range p.Config.Keys.Writers {
		v, err := seal.ParseVerifier([]byte(c.Public))
		if err != nil {
			return nil, pipeline.Errorf(pipeline.CodeConfigValue, "keys.writers "+c.ID, "%w", err)
		}
		out[c.ID] = deadletter.Writer{Key: v, Consumer: c.Consumer}
	}
	return out, nil
}
