package custody

import (
	"context"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

// Target says which items a change is for: either their ids, or a snapshot with the count and digest that somebody saw. A
// selection alone is refused: what matches when it runs is not what was seen.
type Target struct {
	Items     []pipeline.ID
	Snapshot  string
	Count     int64
	Digest    pipeline.Digest
	Selection string // only to be refused
	// Progress, if not nil, is told after each chunk how many of how many items were looked at.
	Progress func(done, total int64)
}

// One is the target of one item.
func One(id pipeline.ID) Target { return Target{Items: []pipeline.ID{id}} }

// Of is the target of a snapshot.
func Of(s Snapshot) Target { return Target{Snapshot: s.ID, Count: s.Count, Digest: s.Digest} }

// Report says what a change did: Changed + SkippedCount = Selected. Skipped holds the first 1,000.
type Report struct {
	Selected, Changed, SkippedCount int64
	Skipped                         []Skip
	ByCode                          map[pipeline.Code]int64
}

const maxSkips = 1000

func (r *Report) skip(s Skip) {
	r.SkippedCount++
	if len(r.Skipped) < maxSkips {
		r.Skipped = append(r.Skipped, s)
	}
	if r.ByCode == nil {
		r.ByCode = map[pipeline.Code]int64{}
	}
	r.ByCode[s.Code]++
}

// act changes loaded and locked items; it may be called again for the same chunk.
type act func(tx *ledger.Tx, items []*Item) (moved []*Item, skips []Skip, err error)

// apply runs a change over a target: chunk by chunk, each chunk in one transaction, so that a change of very many items may be
// repeated after an interruption and then skips what is done. Exactly one named item that is skipped is an error.
func (c *Items) apply(ctx context.Context, who Actor, perm Permission, t Target, do act) (Report, error) {
	var r Report
	if err := c.Check(ctx, who, perm, ""); err != nil {
		return r, err
	}
	total := int64(len(t.Items))
	run := func(ids []pipeline.ID) error {
		err := c.applyChunk(ctx, who, perm, ids, do, &r)
		if err == nil && t.Progress != nil {
			t.Progress(r.Selected, total)
		}
		return err
	}
	switch {
	case t.Snapshot != "":
		var s Snapshot
		err := c.db.Read(ctx, func(tx *ledger.Tx) (err error) {
			s, err = readSnapshot(tx, t.Snapshot)
			return err
		})
		if err != nil {
			return r, err
		}
		if err := s.is(t); err != nil {
			return r, err
		}
		total = s.Count
		return r, c.SnapshotItems(ctx, t.Snapshot, c.chunk, run)
	case t.Selection != "" || len(t.Items) == 0:
		return r, pipeline.Errorf(pipeline.CodeSnapshotRequired, "", "a change of many items names a snapshot, its count and its digest")
	}
	for ids := t.Items; len(ids) > 0; {
		n := min(len(ids), c.chunk)
		if err := run(ids[:n]); err != nil {
			return r, err
		}
		ids = ids[n:]
	}
	if len(t.Items) == 1 && len(r.Skipped) == 1 {
		s := r.Skipped[0]
		return r, &pipeline.Error{Code: s.Code, Place: string(s.Item), Text: s.Text}
	}
	return r, nil
}

func (c *Items) applyChunk(ctx context.Context, who Actor, perm Permission, ids []pipeline.ID, do act, r *Report) error {
	var moved []*Item
	var skips []Skip
	var hidden []*Item
	err := c.db.Write(ctx, func(tx *ledger.Tx) error {
		moved, skips, hidden = nil, nil, nil
		names := make([]string, len(ids))
		for i, id := range ids {
			names[i] = string(id)
		}
		found, err := load(tx, names, true)
		if err != nil {
			return err
		}
		var items []*Item
		seen := map[pipeline.ID]bool{}
		for _, id := range ids {
			it := found[id]
			switch {
			case seen[id]:
				skips = append(skips, Skip{Item: id, Code: pipeline.CodeStateChanged, Text: "it was named twice"})
			case it == nil:
				skips = append(skips, Skip{Item: id, Code: pipeline.CodeItemUnknown, Text: "there is no such item"})
			case !c.roles.sees(who, it.Tenant):
				skips = append(skips, Skip{Item: id, Code: pipeline.CodeTenantForbidden, Text: "items of this tenant are not theirs to change"})
				hidden = append(hidden, it)
			default:
				items = append(items, it)
			}
			seen[id] = true
		}
		if len(items) == 0 {
			return nil
		}
		m, s, err := do(tx, items)
		moved, skips = m, append(skips, s...)
		return err
	})
	if err != nil {
		return err
	}
	r.Selected += int64(len(ids))
	r.Changed += int64(len(moved))
	for _, s := range skips {
		r.skip(s)
	}
	for _, it := range hidden {
		c.refused(ctx, who, string(perm), string(it.ID), it.Tenant, pipeline.Errorf(pipeline.CodeTenantForbidden, who.Subject, "not theirs"))
	}
	return nil
}
