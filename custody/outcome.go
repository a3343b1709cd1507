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
	if err := c.Check(ctx, who, PermQuarantine, ""); err != nil {
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
	items, err := load(tx, ids, true)
	if err != nil {
		return err
	}
	here := map[pipeline.Digest]bool{}
	for i := range list {
		o := &list[i]
		it := items[o.Item]
		if it == nil {
			tx.Append(ledger.Entry{Event: "outcome_unknown_item", Actor: who.Subject, Detail: map[string]string{"item": string(o.Item), "result": string(o.Result), "writer": o.Writer}})
			continue
		}
		if err := c.outcome(tx, who, it, o, here); err != nil {
			return err
		}
	}
	return nil
}

func (c *Items) outcome(tx *ledger.Tx, who Actor, it *Item, o *TakenOutcome, here map[pipeline.Digest]bool) error {
	mine := o.Consumer == "" || o.Consumer == it.Consumer // a writer registered for another consumer says nothing about this item
	current := mine && it.State == Redriving && o.Redrive == it.Redrive && o.Try == it.Try && o.Redrive != ""
	n, err := tx.Exec(`INSERT INTO outcomes (item, tenant, redrive, redrive_try, result, writer, effect_ref, code, at_ms, applied) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (item, redrive, redrive_try, result, writer) DO NOTHING`,
		it.ID, it.Tenant, o.Redrive, o.Try, string(o.Result), o.Writer, ledger.Cut(o.EffectRef, maxName), o.Code, o.AtMS, current)
	if err != nil || n == 0 {
		return err // it was taken before
	}
	detail := map[string]string{"result": string(o.Result), "writer": o.Writer, "effect": o.EffectRef, "redrive": string(o.Redrive), "try": strconv.Itoa(int(o.Try)), "code": string(o.Code)}
	if o.At.Topic != "" {
		detail["at"] = o.At.String()
	}
	note := func() error {
		return c.set(tx, who, []*Item{it}, change{event: "outcome", detail: detail})
	}
	if !current {
		return note()
	}
	switch o.Result {
	case pipeline.Applied, pipeline.AlreadyApplied, pipeline.Superseded, pipeline.Corrected:
		return c.reconcile(tx, who, it, string(o.Result), detail)
	case pipeline.Forwarded:
		last, known := here[o.Redrive]
		if !known {
			var reconcile string
			if _, err := tx.Row("SELECT reconcile FROM manifests WHERE digest = ?", []any{o.Redrive}, &reconcile); err != nil {
				return err
			}
			last = reconcile == ReconcileHere
			here[o.Redrive] = last
		}
		if last {
			return c.reconcile(tx, who, it, string(pipeline.Applied), detail)
		}
		if err := c.manifestItems(tx, []*Item{it}, "forwarded", ""); err != nil {
			return err
		}
		return note()
	case pipeline.FailedOutcome:
		return c.failRedrive(tx, who, []*Item{it}, o.Code, detail)
	}
	return note()
}

func (c *Items) reconcile(tx *ledger.Tx, who Actor, it *Item, resolution string, detail map[string]string) error {
	moved, _, err := c.move(tx, who, []*Item{it}, change{ev: Reconcile, cols: []string{"resolution"}, args: []any{resolution}, detail: detail,
		keep: func(it *Item) { it.Resolution = resolution }})
	if err != nil {
		return err
	}
	return c.manifestItems(tx, moved, "reconciled", "")
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
