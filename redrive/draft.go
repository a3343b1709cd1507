package redrive

import (
	"context"
	"maps"
	"slices"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

// draft is a plan in the making. Items come one after another in sending order and none stays in memory: a plan may have millions.
type draft struct {
	s   *Service
	t   *Target
	req *PlanRequest
	now time.Time

	tenant   string
	selected int64                            // items of the snapshot
	newer    versions                         // of an effect that replaces what is there
	blocked  map[string]map[pipeline.TP]int64 // by entity: where an item stands that is not ours and comes first

	n, bytes int64 // of the lines
	lines    spool
	chunks   chunker
	excluded []Excluded
	classes  map[string]int64
	reasons  map[string]int64
	sources  map[string]bool
	schemas  map[string]bool
	repairs  map[string]bool
	plain    bool // an item goes as it was
}

// read takes the items of the snapshot over one view of the ledger.
func (d *draft) read(ctx context.Context, tx *ledger.Tx, who custody.Actor) error {
	snapshot := d.req.Snapshot
	var digest, last string
	found, err := tx.Row("SELECT count, digest FROM snapshots WHERE id = ?", []any{snapshot}, &d.selected, &digest)
	if err != nil {
		return err
	}
	if !found {
		return pipeline.Errorf(pipeline.CodeSnapshotRequired, snapshot, "there is no such snapshot")
	}
	if d.req.Count >= 0 && d.req.Count != d.selected || d.req.Digest != "" && d.req.Digest != digest {
		return pipeline.Errorf(pipeline.CodeSnapshotChanged, snapshot, "its count or its digest is not the one that was named")
	}
	if d.selected == 0 {
		return pipeline.Errorf(pipeline.CodeManifestEmpty, snapshot, "the snapshot has no item")
	}
	if _, err := tx.Row("SELECT coalesce(min(tenant), ''), coalesce(max(tenant), '') FROM snapshot_items WHERE snapshot = ?", []any{snapshot}, &d.tenant, &last); err != nil {
		return err
	}
	if d.tenant != last {
		return pipeline.Errorf(pipeline.CodeRedriveTenant, snapshot, "the snapshot has items of several tenants")
	}
	if err := d.s.items.Check(ctx, who, custody.PermPlan, d.tenant); err != nil {
		return err
	}
	d.req.alone = d.selected == 1
	if err := d.survey(tx); err != nil {
		return err
	}
	seen := int64(0)
	if err := eachOfSnapshot(tx, snapshot, func(b *brief) error {
		seen++
		return d.take(b)
	}); err != nil {
		return err
	}
	if seen != d.selected {
		return pipeline.Errorf(pipeline.CodeSnapshotChanged, snapshot, "%d of its %d items are gone", d.selected-seen, d.selected)
	}
	return nil
}

// survey looks at the entities of what would be sent, where that matters: which newer states there are, and what would be overtaken.
func (d *draft) survey(tx *ledger.Tx) error {
	if !d.t.State && !d.t.Ordered {
		return nil
	}
	d.newer = versions{}
	ours, entities := map[pipeline.ID]bool{}, map[string]bool{}
	if err := eachOfSnapshot(tx, d.req.Snapshot, func(b *brief) error {
		if b.entity != "" && b.exclude(d.t, d.req, d.now.UnixMilli()) == nil {
			ours[b.id], entities[b.entity] = true, true
			d.newer.keep(b.entity, b.version, b.id)
		}
		return nil
	}); err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(entities))
	if !d.t.State {
		d.newer = nil
	} else if err := d.newer.done(tx, d.t, d.tenant, names); err != nil {
		return err
	}
	if !d.t.Ordered {
		return nil
	}
	var err error
	d.blocked, err = earlierOpen(tx, d.tenant, names, ours)
	return err
}

// take gives an item its line, or says why it is left out.
func (d *draft) take(b *brief) error {
	why := b.exclude(d.t, d.req, d.now.UnixMilli())
	if why == nil && b.entity != "" {
		if first, ok := d.blocked[b.entity][b.original.TP]; ok && first < b.original.Offset {
			why = &exclusion{"order", pipeline.CodeRedriveOpenOrder}
		}
	}
	if why != nil {
		d.reasons[why.Reason]++
		d.excluded = append(d.excluded, Excluded{b.id, b.state, *why})
		return nil
	}
	d.n++
	newer := d.newer.over(b)
	l := Line{N: d.n, Item: b.id, Repair: b.repair, Digest: b.digest, Order: d.s.orderOf(b), Ask: b.ask && newer == "", Newer: newer}
	d.chunks.add(&l)
	d.bytes += b.bytes
	d.classes[b.class]++
	d.sources[b.original.Topic] = true
	if b.schema != "" {
		d.schemas[b.schema] = true
	}
	if b.repair != "" {
		d.repairs[b.repair] = true
	} else {
		d.plain = true
	}
	return d.lines.add(&l)
}

// manifest freezes what was taken.
func (d *draft) manifest(ctx context.Context, who custody.Actor, rate Rate) (*Manifest, error) {
	req, t := d.req, d.t
	m := &Manifest{V: 1, Pipeline: t.Pipeline, Tenant: d.tenant, Requester: who.Subject, Ticket: req.Ticket, Created: stamp(d.now), Destination: t.Destination,
		Reenter: "first", Identity: IdentityRule{Policy: "keep"}, Order: Order{By: "key", Suffix: "excluded"},
		Pace:   Pace{Rate: rate.String(), Concurrency: 1, Budget: req.Budget, Quotas: map[string]string{}, Window: rate.window(MaxWindow)},
		Canary: Canary{N: req.Canary, Expect: "reconciled"}, Measures: t.Measures, Reconcile: t.Reconcile, Unconfirmed: "refused", Horizon: "kept", Loop: "refused", Abort: "keep",
		Selection: Selected{Snapshot: req.Snapshot, Selected: d.selected, Count: d.n, Bytes: decimal(d.bytes), Classes: d.classes, Excluded: d.reasons},
		Source:    slices.AppendSeq([]string{}, maps.Keys(d.sources)), Schemas: slices.AppendSeq([]string{}, maps.Keys(d.schemas))}
	slices.Sort(m.Source)
	slices.Sort(m.Schemas)
	m.Selection.Chunks, m.Selection.Merkle = d.chunks.end()
	for _, q := range t.quotas(d.tenant) {
		m.Pace.Quotas[q.name] = q.rate.String()
		m.Pace.Window = min(m.Pace.Window, q.rate.window(MaxWindow))
	}
	if req.Unconfirmed == accepted {
		m.Unconfirmed = accepted
	}
	if req.Horizon == accepted {
		m.Horizon = accepted
	}
	if req.Loop == accepted {
		m.Loop = accepted
	}
	if req.Identity == identityNew {
		m.Identity = IdentityRule{Policy: identityNew, Intent: req.Intent}
	}
	if m.Measures == nil {
		m.Measures = []Measure{}
	}
	m.Stop = Stop{Failures: max(10, d.n/20), Duplicates: -1}
	if req.Stop != nil {
		m.Stop = *req.Stop
		if _, err := time.ParseDuration(m.Stop.Latency); m.Stop.Latency != "" && err != nil {
			return nil, pipeline.Errorf(pipeline.CodeManifestInvalid, m.Stop.Latency, "stop.latency is a duration, as in 2s")
		}
	}
	if m.Pace.Budget == 0 {
		m.Pace.Budget = d.n
	}
	if d.plain {
		return m, nil
	}
	var err error
	m.Transform, err = d.s.transformOf(ctx, d.repairs, d.tenant)
	return m, err
}
