package custody

import (
	"cmp"
	"context"
	"slices"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
)

func sortedTPs(tps []pipeline.TP) []pipeline.TP {
	return slices.SortedFunc(slices.Values(tps), func(a, b pipeline.TP) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
}

// read is what a batch of messages says, ready for the ledger. Bytes are borrowed from the held batches.
type read struct {
	arrivals []Arrival
	settled  []Settled
	outcomes []TakenOutcome
	vaulted  []TakenVault
	raw      []rawMessage
}

type rawMessage struct {
	at      pipeline.Position
	atMS    int64
	code    pipeline.Code
	reason  string
	key     []byte
	value   []byte
	headers []pipeline.Header
}

// flush writes everything that is held in one transaction with its offsets. INV-INTAKE: each message counts once: what is below
// the ledger's offset was taken before, and a partition that another custodian took over is left to it.
func (k *Custodian) flush(ctx context.Context) error {
	ends := map[pipeline.TP]int64{}
	for _, b := range k.held {
		for i := range b.Recs {
			ends[b.TP] = max(ends[b.TP], b.Recs[i].Offset+1)
		}
	}
	tps := make([]pipeline.TP, 0, len(ends))
	for tp := range ends {
		tps = append(tps, tp)
	}
	tps = sortedTPs(tps)
	var fenced []pipeline.TP
	var sum Admitted
	err := k.o.Items.db.Write(ctx, func(tx *ledger.Tx) error {
		fenced, sum = nil, Admitted{}
		from := map[pipeline.TP]int64{}
		for _, tp := range tps {
			in := k.owned[tp]
			next, epoch, err := tx.Intake(k.o.Cluster, tp)
			switch {
			case err != nil:
				return err
			case epoch != in.epoch:
				fenced = append(fenced, tp)
				from[tp] = ends[tp]
			case next < ends[tp]:
				from[tp] = next
				if _, err := tx.Advance(ledger.Intake{Cluster: k.o.Cluster, TP: tp, Next: ends[tp], Epoch: in.epoch}); err != nil {
					return err
				}
			default:
				from[tp] = ends[tp]
			}
		}
		r := k.read(from)
		for _, m := range r.raw {
			if err := keepRaw(tx, k.o.Cluster, m.at, pipeline.TenantUnassigned, m.atMS, m.code, m.reason, m.key, m.value, m.headers); err != nil {
				return err
			}
		}
		var err error
		if err := k.o.Items.VaultTx(tx, r.vaulted); err != nil {
			return err
		}
		if sum, err = k.o.Items.AdmitTx(tx, k.who, r.arrivals); err != nil {
			return err
		}
		if err := k.o.Items.SettleTx(tx, k.who, r.settled); err != nil {
			return err
		}
		return k.o.Items.OutcomesTx(tx, k.who, r.outcomes)
	})
	if err != nil {
		return err
	}
	for _, tp := range fenced {
		k.owned[tp].fenced = true
		k.o.Log.Warn("another custodian has taken the partition over", "partition", tp.String())
	}
	commits := map[pipeline.TP]pipeline.Checkpoint{}
	for _, tp := range tps {
		if in := k.owned[tp]; !in.fenced {
			in.next = max(in.next, ends[tp])
			commits[tp] = pipeline.Checkpoint{Next: in.next, InFlight: -1}
		}
	}
	now := k.o.Items.clock().UnixMilli()
	for _, b := range k.held {
		if n := len(b.Recs); n > 0 {
			k.meters.lagSeconds(b.TP, max(0, float64(now-b.Recs[n-1].TimeMS)/1000))
		}
	}
	k.meters.took(sum)
	if err := k.o.Source.Commit(commits); err != nil {
		k.o.Log.Debug("the group's offsets could not be committed; the ledger's count", "code", pipeline.CodeOf(err)) // for people who look at the group only
	}
	k.progress()
	return nil
}

// read sorts held messages by what they are. It is pure but for the sanitizer.
func (k *Custodian) read(from map[pipeline.TP]int64) *read {
	r := &read{}
	settlements, outcomes := deadletter.SettlementsTopic(k.o.Prefix), deadletter.OutcomesTopic(k.o.Prefix)
	for _, b := range k.held {
		for i := range b.Recs {
			rec := &b.Recs[i]
			if rec.Offset < from[b.TP] || deadletter.IsProbe(rec) {
				continue
			}
			at := pipeline.Position{TP: b.TP, Offset: rec.Offset}
			switch b.TP.Topic {
			case settlements:
				s, err := deadletter.ParseSettlement(rec, k.o.Ring)
				if err != nil {
					k.damaged(r, at, rec, err)
					continue
				}
				r.settled = append(r.settled, Settled{Settlement: s, AtMS: rec.TimeMS})
			case outcomes:
				o, consumer, err := deadletter.ParseOutcomeBy(rec, k.o.Ring, k.o.Writers)
				if err != nil {
					k.damaged(r, at, rec, err)
					continue
				}
				r.outcomes = append(r.outcomes, TakenOutcome{o, consumer})
			default:
				if k.o.Vaults[b.TP.Topic] {
					k.vaulted(r, at, rec)
					continue
				}
				k.letter(r, at, rec)
			}
		}
	}
	return r
}

// vaulted takes a sealed record. One that nobody of ours signed is kept as damaged, without its bytes: they are no evidence.
func (k *Custodian) vaulted(r *read, at pipeline.Position, rec *pipeline.Record) {
	v, err := deadletter.ParseVaulted(at.Topic, rec, k.o.Ring)
	if err != nil {
		k.meters.damaged()
		r.raw = append(r.raw, rawMessage{at: at, atMS: rec.TimeMS, code: pipeline.CodeOf(err), reason: err.Error()})
		return
	}
	r.vaulted = append(r.vaulted, TakenVault{Vaulted: v, Stands: at, TimeMS: rec.TimeMS, Cluster: k.o.Cluster})
}

func (k *Custodian) letter(r *read, at pipeline.Position, rec *pipeline.Record) {
	l, err := deadletter.ParseAs(k.o.Adopt[at.Topic].Dialect, at.Topic, rec, k.o.Ring)
	switch {
	case err != nil:
		k.damaged(r, at, rec, err)
		return
	case l.Kind == deadletter.KindRange:
		k.damaged(r, at, rec, pipeline.Errorf(pipeline.CodeNotYet, at.String(), "a range stands for many records: it belongs to its incident"))
		return
	}
	if l.Dialect != deadletter.Reprieve && !k.adopt(l, at, rec) {
		k.damaged(r, at, rec, pipeline.Errorf(pipeline.CodeRedactFailed, at.String(), "a foreign letter could not be redacted safely"))
		return
	}
	r.arrivals = append(r.arrivals, Arrival{Letter: l, Stands: at, TimeMS: rec.TimeMS, Cluster: k.o.Cluster, Rebuilt: k.o.Rebuild})
}

// adopt completes a foreign letter by what the worker file says of its topic, and redacts it: nothing reaches the ledger
// that was not. The keyed digest of the bytes as they came is taken before; they stay where they are.
func (k *Custodian) adopt(l *deadletter.Letter, at pipeline.Position, rec *pipeline.Record) bool {
	a := k.o.Adopt[at.Topic]
	set := func(to *string, v string) {
		if *to == "" {
			*to = v
		}
	}
	set(&l.Identity.Consumer, a.Consumer)
	set(&l.Identity.Tenant, a.Tenant)
	set(&l.Identity.Release, a.Release)
	set(&l.Pipeline, a.Pipeline)
	set(&l.Cluster, a.Cluster)
	set(&l.Cluster, k.o.Cluster)
	id := k.o.Items.id
	l.Item = foreignID(k.o.Items, l, at, k.o.Cluster)
	pointer := l.Faithful == deadletter.Source && l.Key == nil && l.Value == nil // it only says where its record stands
	if !pointer {
		l.DigestFaithful = pipeline.Digest(id.Digest(l.Value))
	}
	if k.o.Sanitizer == nil {
		return true
	}
	clean, err := k.o.Sanitizer.Sanitize(at.Topic, &pipeline.Record{Offset: rec.Offset, TimeMS: rec.TimeMS, TimeType: rec.TimeType, Key: l.Key, Value: l.Value, Headers: l.Headers}, nil)
	if err != nil {
		return false
	}
	l.Key, l.Value, l.Headers = clean.Key, clean.Value, clean.Headers
	l.Reason, l.Stack = k.o.Sanitizer.Text(l.Reason), k.o.Sanitizer.Text(l.Stack)
	if l.Faithful = deadletter.Inline; clean.Changed || pointer {
		l.Faithful = deadletter.Source
	}
	return true
}

func foreignID(c *Items, l *deadletter.Letter, at pipeline.Position, cluster string) pipeline.ID {
	was := l.Item
	l.Item = "" // a foreign letter has no signed id
	a := Arrival{Letter: l, Stands: at, Cluster: cluster}
	id := c.itemID(&a)
	l.Item = was
	return id
}

// damaged keeps a message that cannot be read, redacted; when that is not possible, without its bytes: they stay in the topic.
func (k *Custodian) damaged(r *read, at pipeline.Position, rec *pipeline.Record, err error) {
	m := rawMessage{at: at, atMS: rec.TimeMS, code: pipeline.CodeOf(err), reason: err.Error()}
	if m.code == "" {
		m.code = pipeline.CodeLetterInvalid
	}
	if k.o.Sanitizer != nil {
		if clean, err := k.o.Sanitizer.Sanitize(at.Topic, rec, nil); err == nil {
			m.key, m.value, m.headers = clean.Key, clean.Value, clean.Headers
		}
	}
	k.meters.damaged()
	r.raw = append(r.raw, m)
}
