package custody

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
)

// Account says what became of the records of one partition that a pipeline read: Received = Delivered + DeadLettered + Retried +
// Parked + Sealed + Ranged + Fallback, and To - From = Received + Gaps.
type Account struct {
	Pipeline     string `json:"pipeline"`
	Topic        string `json:"topic"`
	Partition    int32  `json:"partition"`
	From         int64  `json:"from,string"`
	To           int64  `json:"to,string"` // the committed offset, as far as settlements tell
	Received     int64  `json:"received,string"`
	Delivered    int64  `json:"delivered,string"`
	DeadLettered int64  `json:"dead_lettered,string"`
	Retried      int64  `json:"retried,string"`
	Parked       int64  `json:"parked,string"`
	Sealed       int64  `json:"sealed,string"`
	Ranged       int64  `json:"ranged,string"`
	Fallback     int64  `json:"fallback,string"`
	Gaps         int64  `json:"gaps,string"`          // offsets that hold no record: marks of transactions, compacted ones
	Gone         int64  `json:"gone,string"`          // offsets that the source does not retain any more: settlements alone speak of them
	Again        int64  `json:"settled_again,string"` // records that were read again after a crash and settled otherwise
}

// LetterLag is how far the ledger is behind one partition of dead letters.
type LetterLag struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Next      int64  `json:"next,string"` // of the ledger
	End       int64  `json:"end,string"`
}

// Accounts is the answer of Reconcile.
type Accounts struct {
	Accounts []Account   `json:"accounts"`
	Letters  []LetterLag `json:"letters"`
	Findings []ledger.Finding
}

func (a *Accounts) add(place, format string, args ...any) {
	if len(a.Findings) < 400 {
		a.Findings = append(a.Findings, ledger.Finding{Code: pipeline.CodeLedgerCorrupt, Place: place, Text: fmt.Sprintf(format, args...)})
	}
}

type accountKey struct {
	pipeline string
	tp       pipeline.TP
}

// settledRun is one settlement without its bitmaps.
type settledRun struct {
	from, to, next, delivered int64
	named                     pipeline.Offsets
}

// partitionAccount gathers the settlements of one partition. An offset that was settled twice counts as its last settlement says.
type partitionAccount struct {
	runs []settledRun
	sets [pipeline.Ranged + 1]pipeline.Offsets
}

// Reconcile compares the ledger with the topics of a cluster, position by position: that every letter of the dead-letter topics
// which the ledger has read is in it; that every offset that a settlement says was taken into custody has an item; and that what
// the sources hold is what settlements say became of it. It reads all of these topics once, tells t.Progress, and changes nothing. Codes:
// ERR_PERMISSION_DENIED, ERR_LEDGER_*, ERR_BROKER_*.
func (c *Items) Reconcile(ctx context.Context, who Actor, t Topics) (Accounts, error) {
	var a Accounts
	if err := c.CheckWhole(ctx, who, PermAudit); err != nil {
		return a, err
	}
	t.reading = &reading{tell: t.Progress}
	topics := slices.Clone(t.Letters)
	if t.Sources {
		topics = append(topics, deadletter.SettlementsTopic(t.Prefix))
	}
	if err := t.expect(ctx, topics...); err != nil {
		return a, err
	}
	taken, err := c.reconcileLetters(ctx, t, &a)
	if err != nil || !t.Sources {
		return a, err
	}
	parts, err := readSettlements(ctx, t, &a)
	if err != nil {
		return a, err
	}
	if err := t.expectPartitions(ctx, parts); err != nil {
		return a, err
	}
	for _, k := range slices.SortedFunc(maps.Keys(parts), func(x, y accountKey) int {
		return cmp.Or(cmp.Compare(x.pipeline, y.pipeline), cmp.Compare(x.tp.Topic, y.tp.Topic), cmp.Compare(x.tp.Partition, y.tp.Partition))
	}) {
		if err := c.reconcilePartition(ctx, t, k, parts[k], taken, &a); err != nil {
			return a, err
		}
	}
	return a, nil
}

// reconcileLetters looks for every message of the dead-letter topics in the ledger, and returns which source positions the letters
// that are there speak about.
func (c *Items) reconcileLetters(ctx context.Context, t Topics, a *Accounts) (map[pipeline.TP]*pipeline.Offsets, error) {
	taken := map[pipeline.TP]*pipeline.Offsets{}
	var intakes map[pipeline.TP]int64
	if err := c.db.Read(ctx, func(tx *ledger.Tx) (err error) {
		intakes, err = tx.Intakes(t.Cluster)
		return err
	}); err != nil {
		return nil, err
	}
	for _, topic := range t.Letters {
		have, err := c.letterOffsets(ctx, t.Cluster, topic)
		if err != nil {
			return nil, err
		}
		missing := map[pipeline.TP]*pipeline.Offsets{}
		parts, err := t.each(ctx, topic, func(tp pipeline.TP, r *pipeline.Record) error {
			if r.Offset >= intakes[tp] || deadletter.IsProbe(r) {
				return nil
			}
			if set := have[tp]; set == nil || !set.Has(r.Offset) {
				offsetsOf(missing, tp).Add(r.Offset)
				return nil
			}
			if l, err := deadletter.ParseAs(t.Adopt[topic].Dialect, topic, r, t.Ring); err == nil && l.At.Topic != "" && l.At.Offset >= 0 {
				offsetsOf(taken, l.At.TP).Add(l.At.Offset)
			}
			return nil
		})
		switch {
		case pipeline.CodeOf(err) == pipeline.CodeTopicMissing:
			for tp, next := range intakes {
				if tp.Topic == topic && next > 0 {
					a.add(tp.String(), "the dead-letter topic is gone; the ledger has read it to offset %d", next)
				}
			}
			continue
		case err != nil:
			return nil, err
		}
		for _, tp := range sortedTPs(slices.Collect(maps.Keys(missing))) {
			a.addRuns(tp, missing[tp], "letters that the ledger has read are not in it")
		}
		for tp, next := range intakes {
			if _, there := parts[tp.Partition]; tp.Topic == topic && !there && next > 0 {
				a.add(tp.String(), "the partition is gone; the ledger has read it to offset %d", next)
			}
		}
		for _, p := range slices.Sorted(maps.Keys(parts)) {
			tp := pipeline.TP{Topic: topic, Partition: p}
			next := max(intakes[tp], 0)
			a.Letters = append(a.Letters, LetterLag{topic, p, next, parts[p].Next})
			if next > parts[p].Next {
				a.add(tp.String(), "the partition was cut or made anew: it ends at offset %d and the ledger has read it to %d", parts[p].Next, next)
			}
		}
	}
	return taken, nil
}

func offsetsOf(m map[pipeline.TP]*pipeline.Offsets, tp pipeline.TP) *pipeline.Offsets {
	if m[tp] == nil {
		m[tp] = &pipeline.Offsets{}
	}
	return m[tp]
}

// addRuns names at most ten runs of offsets of a partition, and how many there are in all.
func (a *Accounts) addRuns(tp pipeline.TP, set *pipeline.Offsets, text string) {
	from, to, n := int64(-1), int64(-1), 0
	name := func() {
		if n++; from >= 0 && n <= 10 {
			a.add(fmt.Sprintf("%s/%d-%d", tp, from, to), "%s", text)
		}
	}
	for off := range set.All {
		if off != to+1 {
			if from >= 0 {
				name()
			}
			from = off
		}
		to = off
	}
	if from >= 0 {
		name()
	}
	if n > 10 {
		a.add(tp.String(), "%s: %d offsets in %d runs in all", text, set.Count(), n)
	}
}

// letterOffsets are the messages of a dead-letter topic that the ledger has: as the letter of an item, one more sighting, or raw.
func (c *Items) letterOffsets(ctx context.Context, cluster, topic string) (map[pipeline.TP]*pipeline.Offsets, error) {
	out := map[pipeline.TP]*pipeline.Offsets{}
	err := c.db.Read(ctx, func(tx *ledger.Tx) error {
		clear(out)
		return tx.Each(`SELECT letter_partition, letter_offset FROM items WHERE letter_topic = ?
			UNION SELECT partition, letter_offset FROM sightings WHERE topic = ?
			UNION SELECT partition, message_offset FROM raw_messages WHERE cluster = ? AND topic = ? ORDER BY 1, 2`, []any{topic, topic, cluster, topic}, func(scan func(...any) error) error {
			tp := pipeline.TP{Topic: topic}
			var off int64
			err := scan(&tp.Partition, &off)
			offsetsOf(out, tp).Add(off)
			return err
		})
	})
	return out, err
}

func readSettlements(ctx context.Context, t Topics, a *Accounts) (map[accountKey]*partitionAccount, error) {
	out := map[accountKey]*partitionAccount{}
	_, err := t.each(ctx, deadletter.SettlementsTopic(t.Prefix), func(tp pipeline.TP, r *pipeline.Record) error {
		s, err := deadletter.ParseSettlement(r, t.Ring)
		if err != nil {
			a.add(pipeline.Position{TP: tp, Offset: r.Offset}.String(), "%s", err)
			return nil
		}
		k := accountKey{s.Pipeline, s.TP}
		if out[k] == nil {
			out[k] = &partitionAccount{}
		}
		out[k].add(s)
		return nil
	})
	return out, err
}

func (p *partitionAccount) add(s *deadletter.Settlement) {
	run := settledRun{from: s.From, to: s.To, next: s.Next, delivered: s.Count(pipeline.Delivered)}
	for d := pipeline.Delivered + 1; d <= pipeline.Ranged; d++ {
		for off := range s.Offsets(d) {
			run.named.Add(off)
			p.sets[d].Add(off)
		}
	}
	p.runs = append(p.runs, run)
}

func (c *Items) reconcilePartition(ctx context.Context, t Topics, k accountKey, p *partitionAccount, taken map[pipeline.TP]*pipeline.Offsets, a *Accounts) error {
	place := k.pipeline + "/" + k.tp.String()
	slices.SortStableFunc(p.runs, func(x, y settledRun) int { return cmp.Compare(x.from, y.from) })
	acc := Account{Pipeline: k.pipeline, Topic: k.tp.Topic, Partition: k.tp.Partition, From: p.runs[0].from}
	var records pipeline.Offsets
	first, err := t.sourceOffsets(ctx, k.tp, &records)
	switch code := pipeline.CodeOf(err); {
	case code == pipeline.CodeTopicMissing:
		first = 1<<62 - 1 // everything is gone
	case err != nil:
		return err
	}
	acc.To = acc.From
	for _, r := range p.runs {
		acc.To = max(acc.To, r.next)
	}
	spoken := acc.From
	for _, r := range p.runs {
		if r.from > spoken && spoken < acc.To { // beyond it records may be in work
			a.add(fmt.Sprintf("%s/%d-%d", place, spoken, min(r.from, acc.To)-1), "no settlement says what became of these offsets")
		}
		spoken = max(spoken, r.to)
		if r.from < first {
			continue // the source does not retain what it speaks about
		}
		if have := between(&records, r.from, r.to) - r.named.Count(); have != r.delivered {
			a.add(fmt.Sprintf("%s/%d-%d", place, r.from, r.to-1), "the settlement counts %d delivered, and the source holds %d records that it does not name", r.delivered, have)
		}
	}
	have, err := c.itemOffsets(ctx, k.tp)
	if err != nil {
		return err
	}
	if more := taken[k.tp]; more != nil {
		for off := range more.All {
			have.Add(off)
		}
	}
	acc.count(p, &records, first, have, a)
	a.Accounts = append(a.Accounts, acc)
	return nil
}

// count gives every offset below To one disposition, custody before the others: a letter of it exists whatever came later. What was
// settled ahead is only looked for.
func (acc *Account) count(p *partitionAccount, records *pipeline.Offsets, first int64, items pipeline.Offsets, a *Accounts) {
	var counted, missing, phantom pipeline.Offsets
	for _, d := range []struct {
		d pipeline.Disposition
		n *int64
	}{{pipeline.DeadLettered, &acc.DeadLettered}, {pipeline.Sealed, &acc.Sealed}, {pipeline.InFallback, &acc.Fallback}, {pipeline.Parked, &acc.Parked},
		{pipeline.Ranged, &acc.Ranged}, {pipeline.Retried, &acc.Retried}} {
		for off := range p.sets[d.d].All {
			switch {
			case counted.Has(off):
				acc.Again++
				continue
			case off < acc.To:
				counted.Add(off)
				*d.n++
			}
			if off >= first && !records.Has(off) {
				phantom.Add(off)
			}
			if inCustody(d.d) && !items.Has(off) {
				missing.Add(off)
			}
		}
	}
	tp := pipeline.TP{Topic: acc.Pipeline + "/" + acc.Topic, Partition: acc.Partition}
	a.addRuns(tp, &missing, "settled as taken into custody, and no item of the ledger stands there")
	a.addRuns(tp, &phantom, "a settlement names what the source does not hold")
	named := counted.Count()
	kept := max(acc.From, min(first, acc.To))
	acc.Gone = kept - acc.From
	acc.Delivered = between(records, kept, acc.To) - between(&counted, kept, acc.To)
	covered := acc.From
	for _, r := range p.runs {
		if r.from < kept && r.from >= covered {
			acc.Delivered += r.delivered - max(0, between(records, kept, r.to)-between(&r.named, kept, r.to))
		}
		covered = max(covered, r.to)
	}
	acc.Received = acc.Delivered + named
	acc.Gaps = acc.To - acc.From - acc.Received
}

// between is how many offsets of [from, to) are in the set.
func between(set *pipeline.Offsets, from, to int64) int64 {
	if to <= from {
		return 0
	}
	low, high := set.Clone(), set.Clone()
	low.DropBelow(from)
	high.DropBelow(to)
	return low.Count() - high.Count()
}

// itemOffsets are the offsets of a partition that an item of the ledger stands for, now or in an earlier pass.
func (c *Items) itemOffsets(ctx context.Context, tp pipeline.TP) (pipeline.Offsets, error) {
	var out pipeline.Offsets
	err := c.db.Read(ctx, func(tx *ledger.Tx) error {
		out = pipeline.Offsets{}
		return tx.Each(`SELECT source_offset FROM items WHERE topic = ? AND partition = ?
			UNION SELECT at_offset FROM items WHERE at_topic = ? AND at_partition = ?
			UNION SELECT at_offset FROM sightings WHERE at_topic = ? AND at_partition = ? ORDER BY 1`,
			[]any{tp.Topic, tp.Partition, tp.Topic, tp.Partition, tp.Topic, tp.Partition}, func(scan func(...any) error) error {
				var off int64
				err := scan(&off)
				out.Add(off)
				return err
			})
	})
	return out, err
}
