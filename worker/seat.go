package worker

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"

	"reprieve.dev/custody"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/kafka"
	"reprieve.dev/pipeline/redact"
)

// seat is what a custodian reads with: one cluster's topics, opened.
type seat struct {
	options custody.CustodianOptions // but for Items, Sink and Meter
	cluster kafka.Cluster
	topics  []string
	close   []func() error
}

type seatOptions struct {
	keys  Keys
	log   *slog.Logger
	group string
	// instance is static membership of the group: a restart keeps its partitions. Each cluster has its own member, also where two
	// names stand for one cluster. "" is dynamic.
	instance string
}

// seat opens what one custodian reads with. Codes: ERR_CONFIG_*, ERR_BROKER_*.
func (p *Plan) seat(ctx context.Context, name string, in *intake, o seatOptions) (_ *seat, err error) {
	s := &seat{}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if s.cluster, err = p.Cluster(name); err != nil {
		return nil, err
	}
	id, err := ClusterID(ctx, s.cluster)
	if err != nil {
		return nil, err
	}
	t := p.topicsOf(in)
	s.topics = custody.RebuildTopics(t)
	src, err := kafka.NewSource(kafka.SourceConfig{Cluster: s.cluster, Group: o.group, Topics: s.topics, Pool: pipeline.NewPool(&pipeline.Layout{}), MaxBatch: 500, InstanceID: o.instance, Log: o.log})
	if err != nil {
		return nil, err
	}
	s.close = append(s.close, src.Close)
	log, err := kafka.NewLog(s.cluster, nil)
	if err != nil {
		return nil, err
	}
	s.close = append(s.close, func() error { log.Close(); return nil })
	sanitize, err := redact.New(redact.Config{}, redact.Options{HashKey: o.keys.Hash})
	if err != nil {
		return nil, err
	}
	writers, err := writersOf(p)
	if err != nil {
		return nil, err
	}
	s.options = custody.CustodianOptions{Source: src, Cluster: id, Prefix: t.Prefix, Adopt: in.adopt, Vaults: in.vaults, Ring: o.keys.Ring, Writers: writers,
		Sanitizer: sanitize, Kafka: log, Log: o.log}
	return s, nil
}

// Close closes what was opened, the last first.
func (s *seat) Close() error {
	var errs []error
	for _, f := range slices.Backward(s.close) {
		errs = append(errs, f())
	}
	s.close = nil
	return errors.Join(errs...)
}

// topicsOf are the topics of an intake, without the cluster that they are on.
func (p *Plan) topicsOf(in *intake) custody.Topics {
	return custody.Topics{Prefix: p.Config.Topics.Prefix, Letters: slices.Sorted(maps.Keys(in.letters)), Vaults: slices.Sorted(maps.Keys(in.vaults)), Sources: in.own, Adopt: in.adopt}
}

// auditCluster is where the audit topic is: the cluster of the first pipeline's dead letters, else of the first adopted topic.
func (p *Plan) auditCluster() string {
	if len(p.Pipelines) > 0 {
		return p.Pipelines[0].Config.Quarantine.Cluster
	}
	if len(p.Config.Custody.Adopt) > 0 {
		return p.Config.Custody.Adopt[0].Cluster
	}
	return ""
}

// Accounts compares the ledger with the topics of every cluster that custodians read, after Heads of the audit topic have been
// given to Verify. progress, if not nil, is told how many of how many messages were read, of those that are known of so far. Codes: as
// custody.Reconcile, ERR_CONFIG_*.
func (p *Plan) Accounts(ctx context.Context, items *custody.Items, who custody.Actor, keys Keys, progress func(done, total int64)) (out custody.Accounts, heads []custody.SignedHead, err error) {
	var before, last int64 // what earlier reads had in all
	err = p.eachCluster(ctx, func(name string, in *intake, t custody.Topics) error {
		t.Ring = keys.Ring
		if progress != nil {
			t.Progress = func(done, total int64) {
				last = before + total
				progress(before+done, last)
			}
		}
		if name == p.auditCluster() {
			h, err := t.Heads(ctx)
			before = last
			if err != nil {
				return err
			}
			heads = append(heads, h...)
		}
		a, err := items.Reconcile(ctx, who, t)
		before = last
		out.Accounts, out.Letters, out.Findings = append(out.Accounts, a.Accounts...), append(out.Letters, a.Letters...), append(out.Findings, a.Findings...)
		return err
	})
	return out, heads, err
}

func (p *Plan) eachCluster(ctx context.Context, f func(name string, in *intake, t custody.Topics) error) error {
	all := p.intakes(ctx)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		c, err := p.Cluster(name)
		if err != nil {
			return err
		}
		t := p.topicsOf(all[name])
		if t.Cluster, err = ClusterID(ctx, c); err != nil {
			return err
		}
		log, err := kafka.NewLog(c, nil)
		if err != nil {
			return err
		}
		t.Log = log
		err = f(name, all[name], t)
		log.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// Rebuild fills an empty ledger from the topics of every cluster that custodians read. Codes: as custody.Rebuild, ERR_CONFIG_*.
func (p *Plan) Rebuild(ctx context.Context, items *custody.Items, who custody.Actor, keys Keys, log *slog.Logger, group string, progress func(cluster string, done, total int64)) (out custody.Rebuilt, err error) {
	all := p.intakes(ctx)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		s, err := p.seat(ctx, name, all[name], seatOptions{keys: keys, log: log, group: group})
		if err != nil {
			return out, err
		}
		s.options.Items = items
		r, err := custody.Rebuild(ctx, who, s.options, s.topics, func(done, total int64) { progress(name, done, total) })
		if cerr := s.Close(); err == nil {
			err = cerr
		}
		out.Items, out.Raw, out.Missing = out.Items+r.Items, out.Raw+r.Raw, append(out.Missing, r.Missing...)
		if err != nil {
			return out, err
		}
	}
	return out, nil
}
