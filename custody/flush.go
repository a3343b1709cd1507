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

// read is what a lot of messages says, ready for the ledger. Bytes are borrowed from its batches.
type read struct {
	arrivals []Arrival
	settled  []Settled
	outcomes []TakenOutcome
	vaulted  []TakenVault
	raw      []rawMessage

	settledAt, outcomeAt []pipeline.Position
}

// since leaves out what stands below these offsets of its partition.
func (r *read) since(from map[pipeline.TP]int64) *read {
	out := &read{}
	old := func(at pipeline.Position) bool { return at.Offset < from[at.TP] }
	for i := range r.arrivals {
		if !old(r.arrivals[i].Stands) {
			out.arrivals = append(out.arrivals, r.arrivals[i])
		}
	}
	for i, at := range r.settledAt {
		if !old(at) {
			out.settled = append(out.settled, r.settled[i])
		}
	}
	for i, at := range r.outcomeAt {
		if !old(at) {
			out.outcomes = append(out.outcomes, r.outcomes[i])
		}
	}
	for i := range r.vaulted {
		if !old(r.vaulted[i].Stands) {
			out.vaulted = append(out.vaulted, r.vaulted[i])
		}
	}
	for i := range r.raw {
		if !old(r.raw[i].at) {
			out.raw = append(out.raw, r.raw[i])
		}
	}
	return out
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

// lot is what one transaction brings into the ledger: batches of messages, read, and where they end.
type lot struct {
	batches []*pipeline.Batch
	read    *read
	tps     []pipeline.TP
	starts  map[pipeline.TP]int64
	ends    map[pipeline.TP]int64
	epochs  map[pipeline.TP]int64 // of our take-overs
	after   map[pipeline.TP]int64 // where the ledger stands once it has the lots before
}

// without leaves partitions that are no longer ours to whoever has them.
func (l *lot) without(tps []pipeline.TP) {
	for _, tp := range tps {
		if _, there := l.epochs[tp]; there {
			l.epochs[tp] = -1
		}
	}
}

func (l *lot) release() {
	for _, b := range l.batches {
		b.Release()
	}
	l.batches = nil
}

// flight is a lot on its way to the ledger.
type flight struct {
	lot    *lot
	done   chan struct{} // closed when it has landed; what follows is then set
	err    error
	fenced []pipeline.TP
	behind []pipeline.TP // where the ledger stands before what it has said that it had
	sum    Admitted
}

// prepare makes a lot of what is held.
func (k *Custodian) prepare() *lot {
	l := &lot{batches: k.held, starts: map[pipeline.TP]int64{}, ends: map[pipeline.TP]int64{}, epochs: map[pipeline.TP]int64{}, after: map[pipeline.TP]int64{}}
	k.held, k.records = nil, 0
	for _, b := range l.batches {
		for i := range b.Recs {
			off := b.Recs[i].Offset
			if _, known := l.ends[b.TP]; !known {
				l.tps = append(l.tps, b.TP)
				l.starts[b.TP], l.epochs[b.TP], l.after[b.TP] = off, k.owned[b.TP].epoch, k.owned[b.TP].sent
			}
			l.starts[b.TP], l.ends[b.TP] = min(l.starts[b.TP], off), max(l.ends[b.TP], off+1)
		}
	}
	for tp, end := range l.ends {
		k.owned[tp].sent = end
	}
	l.tps = sortedTPs(l.tps)
	l.read = k.read(l.batches)
	return l
}

// fly reads what is held, waits for the lot that is on its way, and sends the next one off.
func (k *Custodian) fly(ctx context.Context) error {
	if len(k.held) > 0 {
		k.lots = append(k.lots, k.prepare())
	}
	if err := k.land(); err != nil || len(k.lots) == 0 {
		return err
	}
	for len(k.lots) > 0 {
		f := &flight{lot: k.lots[0], done: make(chan struct{})}
		k.lots, k.flight = k.lots[1:], f
		go func() {
			defer close(f.done)
			if f.err = k.flush(ctx, f); f.err == nil {
				k.progress()
			}
		}()
		if len(k.lots) == 0 {
			return nil
		}
		if err := k.land(); err != nil {
			return err
		}
	}
	return nil
}

// land waits for the lot that is on its way. One that the ledger did not take is the next to be sent.
func (k *Custodian) land() error {
	f := k.flight
	if f == nil {
		return nil
	}
	<-f.done
	k.flight = nil
	if f.err != nil {
		k.lots = append([]*lot{f.lot}, k.lots...)
		return f.err
	}
	for _, tp := range f.fenced {
		if in := k.owned[tp]; in != nil && in.epoch == f.lot.epochs[tp] && !in.fenced {
			in.fenced = true
			k.o.Log.Warn("another custodian has taken the partition over", "partition", tp.String())
		}
	}
	var back []pipeline.TP
	for _, tp := range f.behind {
		if in := k.owned[tp]; in != nil && in.taken && in.epoch == f.lot.epochs[tp] {
			back = append(back, tp)
		}
	}
	if err := k.goBack(back); err != nil {
		return err
	}
	commits := map[pipeline.TP]pipeline.Checkpoint{}
	for _, tp := range f.lot.tps {
		if in := k.owned[tp]; in != nil && in.taken && !in.fenced {
			in.next = max(in.next, f.lot.ends[tp])
			commits[tp] = pipeline.Checkpoint{Next: in.next, InFlight: -1}
		}
	}
	now := k.o.Items.clock().UnixMilli()
	for _, b := range f.lot.batches {
		if n := len(b.Recs); n > 0 && k.owned[b.TP] != nil {
			k.meters.lagSeconds(b.TP, max(0, float64(now-b.Recs[n-1].TimeMS)/1000))
		}
	}
	k.meters.took(f.sum)
	f.lot.release()
	if err := k.o.Source.Commit(commits); err != nil {
		k.o.Log.Debug("the group's offsets could not be committed; the ledger's count", "code", pipeline.CodeOf(err)) // for people who look at the group only
	}
	return nil
}

// goBack takes partitions over once more where the ledger has lost what it had: it failed over to a replica that was behind. They are read
// again from where the ledger stands now.
func (k *Custodian) goBack(tps []pipeline.TP) error {
	if len(tps) == 0 {
		return nil
	}
	for _, tp := range tps {
		k.owned[tp] = &intake{next: -1, sent: -1}
		k.o.Log.Warn("the ledger has lost what it had of the partition; it is read again", "partition", tp.String(), "code", pipeline.CodeLedgerUnavailable)
	}
	k.drop(tps)
	for _, l := range k.lots {
		l.without(tps)
	}
	return k.o.Source.Pause(tps...)
}

// reviewPlaces notices a ledger that has lost what it had also of partitions that nobody writes to. While a lot is on its way, its flush
// does.
func (k *Custodian) reviewPlaces(ctx context.Context) error {
	if k.flight != nil || len(k.lots) > 0 {
		return nil
	}
	var stands map[pipeline.TP]int64
	if err := k.o.Items.db.Read(ctx, func(tx *ledger.Tx) (err error) {
		stands, err = tx.Intakes(k.o.Cluster)
		return err
	}); err != nil {
		return err
	}
	var back []pipeline.TP
	for tp, in := range k.owned {
		if next, known := stands[tp]; in.taken && !in.fenced && (!known || next < in.sent) {
			back = append(back, tp)
		}
	}
	return k.goBack(back)
}

// giveUp waits for what is on its way and frees everything.
func (k *Custodian) giveUp() {
	if k.flight != nil {
		<-k.flight.done
		k.flight.lot.release()
	}
	for _, l := range k.lots {
		l.release()
	}
	k.drop(nil)
}

// flush writes a lot in one transaction with its offsets. INV-INTAKE: each message counts once: what is below the ledger's offset
// was taken before, a partition that another custodian took over is left to it, and nothing is written behind a hole. It runs beside the loop and touches nothing
// of it.
func (k *Custodian) flush(ctx context.Context, f *flight) error {
	l := f.lot
	if err := k.o.Items.putAside(ctx, l.read.arrivals); err != nil {
		return err
	}
	return k.o.Items.db.Write(ctx, func(tx *ledger.Tx) error {
		f.fenced, f.behind, f.sum = nil, nil, Admitted{}
		from := map[pipeline.TP]int64{}
		whole := true
		stands, err := tx.LockIntakes(k.o.Cluster, l.tps)
		if err != nil {
			return err
		}
		var further []ledger.Intake
		for _, tp := range l.tps {
			switch next, epoch := stands[tp].Next, stands[tp].Epoch; {
			case epoch < l.epochs[tp], epoch == l.epochs[tp] && next < l.after[tp]:
				f.behind = append(f.behind, tp)
				from[tp] = l.ends[tp]
			case epoch != l.epochs[tp]:
				f.fenced = append(f.fenced, tp)
				from[tp] = l.ends[tp]
			case next < l.ends[tp]:
				from[tp] = next
				further = append(further, ledger.Intake{Cluster: k.o.Cluster, TP: tp, Next: l.ends[tp], Epoch: epoch})
			default:
				from[tp] = l.ends[tp]
			}
			whole = whole && from[tp] <= l.starts[tp]
		}
		if _, err := tx.Advance(further); err != nil { // they are locked, and what each may become was judged above
			return err
		}
		r := l.read
		if !whole {
			r = r.since(from)
		}
		for _, m := range r.raw {
			if err := keepRaw(tx, k.o.Cluster, m.at, pipeline.TenantUnassigned, m.atMS, m.code, m.reason, m.key, m.value, m.headers); err != nil {
				return err
			}
		}
		if err := k.o.Items.VaultTx(tx, r.vaulted); err != nil {
			return err
		}
		if f.sum, err = k.o.Items.AdmitTx(tx, k.who, r.arrivals); err != nil {
			return err
		}
		if err := k.o.Items.SettleTx(tx, k.who, r.settled); err != nil {
			return err
		}
		return k.o.Items.OutcomesTx(tx, k.who, r.outcomes)
	})
}

// read sorts messages by what they are. It is pure but for the sanitizer.
func (k *Custodian) read(batches []*pipeline.Batch) *read {
	r := &read{}
	settlements, outcomes := deadletter.SettlementsTopic(k.o.Prefix), deadletter.OutcomesTopic(k.o.Prefix)
	for _, b := range batches {
		for i := range b.Recs {
			rec := &b.Recs[i]
			if deadletter.IsProbe(rec) {
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
				r.settled, r.settledAt = append(r.settled, Settled{Settlement: s, AtMS: rec.TimeMS}), append(r.settledAt, at)
			case outcomes:
				o, consumer, err := deadletter.ParseOutcomeBy(rec, k.o.Ring, k.o.Writers)
				if err != nil {
					k.damaged(r, at, rec, err)
					continue
				}
				r.outcomes, r.outcomeAt = append(r.outcomes, TakenOutcome{o, consumer}), append(r.outcomeAt, at)
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
	a := Arrival{Letter: l, Stands: at, TimeMS: rec.TimeMS, Cluster: k.o.Cluster, Rebuilt: k.o.Rebuild}
	k.o.Items.ready(&a)
	r.arrivals = append(r.arrivals, a)
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
	if a.Identify != nil {
		id := a.Identify(at.Topic, &pipeline.Record{Offset: rec.Offset, TimeMS: rec.TimeMS, TimeType: rec.TimeType, Key: l.Key, Value: l.Value, Headers: l.Headers})
		for _, f := range [...]struct {
			to *string
			v  string
		}{{&l.Identity.Tenant, id.Tenant}, {&l.Identity.EventID, id.EventID}, {&l.Identity.Entity, id.Entity}, {&l.Identity.BusinessID, id.BusinessID},
			{&l.Identity.Token, id.Token}, {&l.Identity.Version, id.Version}} {
			set(f.to, f.v)
		}
	}
	set(&l.Identity.Consumer, a.Consumer)
	set(&l.Identity.Tenant, a.Tenant)
	set(&l.Identity.Release, a.Release)
	set(&l.Pipeline, a.Pipeline)
	set(&l.Data, a.Data)
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
