package custody

import (
	"context"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
)

// Erased says what an erasure did, and what it could not reach.
type Erased struct {
	Items    int64
	Gone     []pipeline.ID // those of Items: what other stores have of them is the caller's to erase
	Held     []pipeline.ID // under legal hold: not touched
	Running  []pipeline.ID // being redriven: erase again when that is decided
	Topics   []TopicCopy   // where copies stay until the topic's retention ends or the tenant's key is destroyed
	Previous int64         // items that were erased before
}

// TopicCopy is a place outside the ledger that still has bytes of erased items.
type TopicCopy struct {
	Cluster, Topic string
	N              int64
	LastMS         int64 // the newest of them: it goes at LastMS + the topic's retention
}

// EraseItems deletes the payloads and repaired bytes of items at once, and the private columns of their history (who, why); ids,
// digests and the chain stay. With ERR_PAYLOAD_UNAVAILABLE the ledger has nothing of them any more, and the bucket of large values still has
// some: erase again. Codes: ERR_REASON_MISSING, ERR_SNAPSHOT_REQUIRED, ERR_PERMISSION_DENIED, ERR_PAYLOAD_UNAVAILABLE, ERR_LEDGER_*.
func (c *Items) EraseItems(ctx context.Context, who Actor, ids []pipeline.ID, reason string) (Erased, error) {
	var sum Erased
	if err := firstOf(needs(pipeline.CodeReasonMissing, reason, "a reason"), c.Check(ctx, who, PermErase, "")); err != nil {
		return sum, err
	}
	for len(ids) > 0 {
		n := min(len(ids), c.chunk)
		if err := c.eraseChunk(ctx, who, ids[:n], reason, &sum); err != nil {
			return sum, err
		}
		ids = ids[n:]
	}
	_, err := c.sweep(ctx)
	return sum, err
}

// EraseEntity erases all items of one entity of a tenant. Codes: as EraseItems, and ERR_TENANT_FORBIDDEN, ERR_ITEM_UNKNOWN (it
// has none).
func (c *Items) EraseEntity(ctx context.Context, who Actor, tenant, entity, reason string) (Erased, error) {
	if err := firstOf(needs(pipeline.CodeReasonMissing, reason, "a reason"), needs(pipeline.CodeInputInvalid, entity, "the entity"), c.Check(ctx, who, PermErase, tenant)); err != nil {
		return Erased{}, err
	}
	var ids []pipeline.ID
	if err := c.db.Read(ctx, func(tx *ledger.Tx) error {
		ids = nil
		return tx.Each("SELECT id FROM items WHERE tenant = ? AND entity = ? AND entity <> '' ORDER BY id", []any{tenant, entity}, func(scan func(...any) error) error {
			var id pipeline.ID
			err := scan(&id)
			ids = append(ids, id)
			return err
		})
	}); err != nil {
		return Erased{}, err
	}
	if len(ids) == 0 {
		return Erased{}, pipeline.Errorf(pipeline.CodeItemUnknown, entity, "no item of this tenant has that entity")
	}
	return c.EraseItems(ctx, who, ids, reason)
}

func (c *Items) eraseChunk(ctx context.Context, who Actor, ids []pipeline.ID, reason string, sum *Erased) error {
	var one Erased
	var hidden *Item
	err := c.db.Write(ctx, func(tx *ledger.Tx) error {
		one, hidden = Erased{}, nil
		items, err := load(tx, texts(ids), true)
		if err != nil {
			return err
		}
		var gone []*Item
		copies := map[TopicCopy]*TopicCopy{}
		for _, id := range ids {
			it := items[id]
			switch {
			case it == nil:
				return pipeline.Errorf(pipeline.CodeItemUnknown, string(id), "there is no such item")
			case !c.roles.sees(who, it.Tenant):
				hidden = it
				return pipeline.Errorf(pipeline.CodeTenantForbidden, who.Subject, "items of this tenant are not theirs to erase")
			case it.LegalHold != "":
				one.Held = append(one.Held, id)
			case it.State == Redriving:
				one.Running = append(one.Running, id)
			case it.Flags&FlagErased != 0:
				one.Previous++
			default:
				gone = append(gone, it)
				places := []pipeline.Position{it.Letter, it.Original}
				if it.Faithful == deadletter.Vault {
					places = append(places, pipeline.Position{TP: pipeline.TP{Topic: deadletter.VaultTopic(it.Letter.Topic)}})
				}
				for _, p := range places {
					k := TopicCopy{Cluster: it.Cluster, Topic: p.Topic}
					if copies[k] == nil {
						copies[k] = &TopicCopy{Cluster: k.Cluster, Topic: k.Topic}
					}
					copies[k].N++
					copies[k].LastMS = max(copies[k].LastMS, it.QuarantinedMS)
				}
			}
		}
		one.Items = int64(len(gone))
		for _, it := range gone {
			one.Gone = append(one.Gone, it.ID)
		}
		for _, copied := range copies {
			one.Topics = append(one.Topics, *copied)
		}
		return c.eraseRows(tx, who, gone, reason)
	})
	if err != nil {
		tenant := ""
		if hidden != nil {
			tenant = hidden.Tenant
		}
		return c.refused(ctx, who, string(PermErase), "", tenant, err)
	}
	sum.Items += one.Items
	sum.Gone = append(sum.Gone, one.Gone...)
	sum.Previous += one.Previous
	sum.Held = append(sum.Held, one.Held...)
	sum.Running = append(sum.Running, one.Running...)
	for _, t := range one.Topics {
		sum.addTopic(t)
	}
	return nil
}

func (e *Erased) addTopic(t TopicCopy) {
	for i := range e.Topics {
		if x := &e.Topics[i]; x.Cluster == t.Cluster && x.Topic == t.Topic {
			x.N += t.N
			x.LastMS = max(x.LastMS, t.LastMS)
			return
		}
	}
	e.Topics = append(e.Topics, t)
}

// eraseRows: the evidence digest of an item covers its payload's keyed digest and not its bytes, so what is left verifies.
func (c *Items) eraseRows(tx *ledger.Tx, who Actor, items []*Item, reason string) error {
	if len(items) == 0 {
		return nil
	}
	if err := dropPayloads(tx, items); err != nil {
		return err
	}
	ids := make([]string, len(items))
	for i, it := range items {
		ids[i] = string(it.ID)
	}
	in, arg := tx.In("item", ids)
	if _, err := tx.Exec("DELETE FROM fallback WHERE "+in, arg); err != nil { // a letter of it that its topic did not take yet
		return err
	}
	if err := tx.EraseHistory(ids, []string{"revealed", "refused"}); err != nil { // who has seen them stays
		return err
	}
	seq, err := tx.Next("erasure_log", int64(len(items)))
	if err != nil {
		return err
	}
	rows := make([][]any, len(items))
	for i, it := range items {
		rows[i] = []any{seq + int64(i), it.Tenant, "item", string(it.ID), who.Subject, ledger.Cut(reason, maxReason), tx.NowMS()}
	}
	if err := tx.Insert("erasure_log", []string{"seq", "tenant", "kind", "subject", "actor", "reason", "at_ms"}, rows); err != nil {
		return err
	}
	for flags, its := range byFlags(items) {
		flags |= FlagErased
		if err := c.set(tx, who, its, change{event: "erased", cols: []string{"flags"}, args: []any{int64(flags)}, detail: map[string]string{"reason": reason}, keep: func(it *Item) { it.Flags = flags }}); err != nil {
			return err
		}
	}
	return nil
}
