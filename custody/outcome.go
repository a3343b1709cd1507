package custody

import (
	"context"
	"strconv"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

// StoredOutcome is evidence about a redriven item, as it was taken.
type StoredOutcome struct {
	Redrive   pipeline.Digest
	Try       uint16
	Result    pipeline.Result
	Writer    string
	EffectRef string
	Code      pipeline.Code
	AtMS      int64
	Applied   bool // it changed the item; else it is a note
}

// ReconcileHere is the value of manifests.reconcile of a pipeline that is itself the last step: forwarded is then applied.
const ReconcileHere = "here"

// TakenOutcome is an outcome and whom its writer may speak about: the consumer of a registered writer, or "" for all.
type TakenOutcome struct {
	pipeline.Outcome
	Consumer string
}

// Outcomes takes evidence about redriven items. It is applied only while the item is REDRIVING under the same manifest and
// try; anything else is a note in the history. forwarded keeps REDRIVING, unless the pipeline is the last step (ReconcileHere);
// failed brings the item back to TRIAGED; absent and unknown are notes: whether to ask or to send again is the redrive's
// decision. The same outcome twice changes nothing. Codes: ERR_PERMISSION_DENIED, ERR_LEDGER_*.
func (c *Items) Outcomes(ctx context.Context, who Actor, list []TakenOutcome) error {
	if err := c.CheckWhole(ctx, who, PermQuarantine); err != nil {
		return err
	}
	return c.db.Write(ctx, func(tx *ledger.Tx) error { return c.OutcomesTx(tx, who, list) })
}

// OutcomesTx is Outcomes inside a transaction of the caller, who has checked the permission.
func (c *Items) OutcomesTx(tx *ledger.Tx, who Actor, list []TakenOutcome) error {
	if len(list) == 0 {
		return nil
	}
	ids := make([]string, len(list))
	for i := range list {
		ids[i] = string(list[i].Item)
	}
	items, err := loadSent(tx, ids)
	if err != nil {
		return err
	}
	fresh, err := c.storeOutcomes(tx, items, list)
	if err != nil {
		return err
	}
	t := taking{done: map[pipeline.ID]bool{}, reconcile: map[string][]told{}, failed: map[pipeline.Code][]told{}, here: map[pipeline.Digest]bool{}}
	for _, o := range fresh {
		it := items[o.Item]
		if it == nil {
			tx.Append(ledger.Entry{Event: "outcome_unknown_item", Actor: who.Subject, Detail: map[string]string{"item": string(o.Item), "result": string(o.Result), "writer": o.Writer}})
			continue
		}
		if err := t.sort(tx, it, o); err != nil {
			return err
		}
	}
	return t.write(c, tx, who)
}

// loadSent locks items and reads what an outcome is judged by and changes, a fifth of their columns: a fast redrive is as fast as this.
func loadSent(tx *ledger.Tx, ids []string) (map[pipeline.ID]*Item, error) {
	in, arg := tx.In("id", ids)
	out := make(map[pipeline.ID]*Item, len(ids))
	err := tx.Each("SELECT id, tenant, consumer, rev, state, fingerprint, group_key, quarantined_ms, owner, sent_from, redrive, redrive_try FROM items WHERE "+in+" ORDER BY id"+tx.ForUpdate(),
		[]any{arg}, func(scan func(...any) error) error {
			it := &Item{}
			var regrouped *pipeline.ID
			var sentFrom *State
			err := scan(&it.ID, &it.Tenant, &it.Consumer, &it.Rev, &it.State, &it.Fingerprint, &regrouped, &it.QuarantinedMS, &it.Owner, &sentFrom, &it.Redrive, &it.Try)
			it.Regrouped, it.SentFrom = deref(regrouped), deref(sentFrom)
			out[it.ID] = it
			return err
		})
	return out, err
}

// current tells whether an outcome is about what is going on with the item now. A writer that is registered for another
// consumer says nothing about it.
func (o *TakenOutcome) current(it *Item) bool {
	return (o.Consumer == "" || o.Consumer == it.Consumer) && it.State == Redriving && o.Redrive == it.Redrive && o.Try == it.Try && o.Redrive != ""
}

// storeOutcomes keeps those that are new, and returns them in their order.
func (c *Items) storeOutcomes(tx *ledger.Tx, items map[pipeline.ID]*Item, list []TakenOutcome) ([]*TakenOutcome, error) {
	type key struct {
		item    pipeline.ID
		redrive pipeline.Digest
		try     uint16
		result  pipeline.Result
		writer  string
	}
	seen := map[key]bool{}
	ids := make([]string, 0, len(items))
	for id := range items {
		ids = append(ids, string(id))
	}
	in, arg := tx.In("item", ids)
	known := "SELECT item, redrive, redrive_try, result, writer FROM outcomes WHERE " + in
	if tx.Dialect() == ledger.Postgres { // a join: its planner may compare each row of a young table with each id of a long array
		known, arg = "SELECT o.item, redrive, redrive_try, result, writer FROM unnest(?::text[]) AS w(item) JOIN outcomes o ON o.item = w.item", ids
	}
	if err := tx.Each(known, []any{arg}, func(scan func(...any) error) error {
		var k key
		err := scan(&k.item, &k.redrive, &k.try, &k.result, &k.writer)
		seen[k] = true
		return err
	}); err != nil {
		return nil, err
	}
	var fresh []*TakenOutcome
	var rows [][]any
	for i := range list {
		o := &list[i]
		o.Writer = ledger.Cut(o.Writer, maxName)
		k := key{o.Item, o.Redrive, o.Try, o.Result, o.Writer}
		if seen[k] {
			continue
		}
		seen[k] = true
		fresh = append(fresh, o)
		if it := items[o.Item]; it != nil {
			rows = append(rows, []any{it.ID, it.Tenant, o.Redrive, o.Try, string(o.Result), o.Writer, ledger.Cut(o.EffectRef, maxName), o.Code, o.AtMS, o.current(it)})
		}
	}
	return fresh, tx.Insert("outcomes", []string{"item", "tenant", "redrive", "redrive_try", "result", "writer", "effect_ref", "code", "at_ms", "applied"}, rows)
}

// told is what an outcome tells about an item.
type told struct {
	it     *Item
	detail map[string]string
}

// taking sorts the outcomes of a batch by what they do, so that each kind is one statement.
type taking struct {
	done      map[pipeline.ID]bool // decided by an earlier outcome of this batch: what follows is a note
	notes     []told
	forwarded []told
	reconcile map[string][]told
	failed    map[pipeline.Code][]told
	here      map[pipeline.Digest]bool // manifests whose pipeline is the last step
}

func (t *taking) sort(tx *ledger.Tx, it *Item, o *TakenOutcome) error {
	detail := map[string]string{"result": string(o.Result), "writer": o.Writer, "effect": o.EffectRef, "redrive": string(o.Redrive), "try": strconv.Itoa(int(o.Try)), "code": string(o.Code)}
	if o.At.Topic != "" {
		detail["at"] = o.At.String()
	}
	say := told{it, detail}
	result := o.Result
	if result == pipeline.Forwarded && o.current(it) {
		last, known := t.here[o.Redrive]
		if !known {
			var reconcile string
			if _, err := tx.Row("SELECT reconcile FROM manifests WHERE digest = ?", []any{o.Redrive}, &reconcile); err != nil {
				return err
			}
			last = reconcile == ReconcileHere
			t.here[o.Redrive] = last
		}
		if last {
			result = pipeline.Applied
		}
	}
	switch {
	case !o.current(it) || t.done[it.ID]:
		t.notes = append(t.notes, say)
	case result == pipeline.Applied, result == pipeline.AlreadyApplied, result == pipeline.Superseded, result == pipeline.Corrected:
		t.done[it.ID] = true
		t.reconcile[string(result)] = append(t.reconcile[string(result)], say)
	case result == pipeline.FailedOutcome:
		t.done[it.ID] = true
		t.failed[o.Code] = append(t.failed[o.Code], say)
	case result == pipeline.Forwarded:
		t.forwarded = append(t.forwarded, say)
	default:
		t.notes = append(t.notes, say)
	}
	return nil
}

func (t *taking) write(c *Items, tx *ledger.Tx, who Actor) error {
	for _, n := range append(t.notes, t.forwarded...) {
		c.note(tx, who, n.it, change{event: "outcome", detail: n.detail}, "", "")
	}
	items, _ := split(t.forwarded)
	if err := c.manifestItems(tx, items, "forwarded", ""); err != nil {
		return err
	}
	for resolution, list := range t.reconcile {
		items, each := split(list)
		moved, _, err := c.move(tx, who, items, change{ev: Reconcile, cols: []string{"resolution"}, args: []any{resolution}, each: each, keep: func(it *Item) { it.Resolution = resolution }})
		if err != nil {
			return err
		}
		if err := c.manifestItems(tx, moved, "reconciled", ""); err != nil {
			return err
		}
	}
	for code, list := range t.failed {
		items, each := split(list)
		if err := c.failRedrive(tx, who, items, code, each); err != nil {
			return err
		}
	}
	return nil
}

func split(list []told) ([]*Item, func(*Item) map[string]string) {
	items := make([]*Item, len(list))
	details := make(map[pipeline.ID]map[string]string, len(list))
	for i, s := range list {
		items[i] = s.it
		details[s.it.ID] = s.detail
	}
	return items, func(it *Item) map[string]string { return details[it.ID] }
}

func readOutcomes(tx *ledger.Tx, id pipeline.ID) (out []StoredOutcome, err error) {
	err = tx.Each("SELECT redrive, redrive_try, result, writer, effect_ref, code, at_ms, applied FROM outcomes WHERE item = ? ORDER BY at_ms, redrive_try, result", []any{id}, func(scan func(...any) error) error {
		var o StoredOutcome
		var applied int64
		err := scan(&o.Redrive, &o.Try, &o.Result, &o.Writer, &o.EffectRef, &o.Code, &o.AtMS, &applied)
		o.Applied = applied == 1
		out = append(out, o)
		return err
	})
	return out, err
}
