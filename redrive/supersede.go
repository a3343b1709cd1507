package redrive

import (
	"context"
	"slices"
	"strconv"

	"reprieve.dev/custody"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

// versions are, for an effect that replaces what is there, the newest version of each entity: one that goes in the same plan, or has
// its effect already. Older ones are not sent: sending them would bring an old state back. A version that is no whole number says
// nothing about order, and such items are sent as they are.
type versions map[string]newest

type newest struct {
	version int64
	id      pipeline.ID
}

func (v versions) keep(entity, version string, id pipeline.ID) {
	n, err := strconv.ParseInt(version, 10, 64)
	if entity == "" || err != nil {
		return
	}
	if old, ok := v[entity]; !ok || n > old.version || n == old.version && id < old.id {
		v[entity] = newest{n, id}
	}
}

// over is the item that supersedes b, or "".
func (v versions) over(b *brief) pipeline.ID {
	n, err := strconv.ParseInt(b.version, 10, 64)
	if top, ok := v[b.entity]; ok && err == nil && b.entity != "" && n < top.version {
		return top.id
	}
	return ""
}

// done adds the versions of these entities that have their effect already.
func (v versions) done(tx *ledger.Tx, t *Target, tenant string, entities []string) error {
	for from := 0; from < len(entities); from += 1000 {
		in, arg := tx.In("entity", entities[from:min(from+1000, len(entities))])
		if err := tx.Each("SELECT id, entity, version FROM items WHERE tenant = ? AND pipeline = ? AND "+in+
			" AND state = 'RECONCILED' AND resolution IN ('applied', 'already_applied', 'delivered_live')", []any{tenant, t.Pipeline, arg}, func(scan func(...any) error) error {
			var id pipeline.ID
			var entity, version string
			err := scan(&id, &entity, &version)
			v.keep(entity, version, id)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// superseded resolves the items of a run whose newer state has its effect by now. Those whose newer state has none, and gets none
// from this run, are skipped: what follows for them is a person's decision.
func (e *executor) superseded(ctx context.Context) error {
	if !slices.ContainsFunc(e.lines, func(l Line) bool { return l.Newer != "" }) {
		return nil
	}
	return e.s.db.Write(ctx, func(tx *ledger.Tx) error {
		if err := e.mine(tx); err != nil {
			return err
		}
		type pair struct {
			item, newer pipeline.ID
			state       custody.State
			inRun       string
		}
		var list []pair
		if err := tx.Each(`SELECT m.item, m.newer, i.state, coalesce(o.state, '') FROM manifest_items m JOIN items i ON i.id = m.newer AND i.tenant = m.tenant
			LEFT JOIN manifest_items o ON o.manifest = m.manifest AND o.item = m.newer
			WHERE m.manifest = ? AND m.tenant = ? AND m.newer <> '' AND m.state = ? ORDER BY m.n`, []any{e.digest, e.m.Tenant, itemPlanned}, func(scan func(...any) error) error {
			var p pair
			err := scan(&p.item, &p.newer, &p.state, &p.inRun)
			list = append(list, p)
			return err
		}); err != nil {
			return err
		}
		var ids []pipeline.ID
		by := map[pipeline.ID]string{}
		for _, p := range list {
			switch {
			case p.state == custody.Reconciled:
				ids = append(ids, p.item)
				by[p.item] = string(p.newer)
			case p.inRun != itemPlanned && p.inRun != itemSending && p.inRun != itemSent && p.inRun != itemForwarded:
				if err := e.skip(tx, p.item, pipeline.CodeSuperseded); err != nil {
					return err
				}
			}
		}
		return e.settled(tx, ids, pipeline.Superseded, func(id pipeline.ID) string { return "the newer state " + by[id] + " has its effect" })
	})
}

// skip leaves an item of the run alone, for good and with its reason.
func (e *executor) skip(tx *ledger.Tx, item pipeline.ID, code pipeline.Code) error {
	_, err := tx.Exec("UPDATE manifest_items SET state = ?, code = ? WHERE manifest = ? AND tenant = ? AND item = ? AND state = ?",
		itemSkipped, string(code), e.digest, e.m.Tenant, item, itemPlanned)
	return err
}
