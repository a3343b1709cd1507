package custody

import (
	"context"
	"strconv"
	"strings"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

// Regrouping says that items of a fingerprint are counted in another group: all of them (Selection is empty), or those that a
// selection has. The first that fits counts. Fingerprints are evidence and stay.
type Regrouping struct {
	Tenant      string
	Fingerprint pipeline.ID
	N           int64
	Group       pipeline.ID
	Selection   string
	By, Reason  string
	AtMS        int64
}

// Split takes the items of a group that a selection has out of it, those that are there and those that will come, into a group of
// their own, whose id comes back with how many items moved. The selection may only ask for what never changes after an item was
// taken (code, release, schema, entity and so on). Codes: ERR_REASON_MISSING, ERR_SELECTION_INVALID, ERR_ITEM_UNKNOWN (no such
// group), ERR_PERMISSION_DENIED, ERR_TENANT_FORBIDDEN.
func (c *Items) Split(ctx context.Context, who Actor, tenant string, group pipeline.ID, sel Selection, reason string) (pipeline.ID, int64, error) {
	if len(sel.Terms) == 0 {
		return "", 0, selectionError("", "say which of its items belong apart")
	}
	if err := firstOf(needs(pipeline.CodeReasonMissing, reason, "a reason"), sel.onlySettled()); err != nil {
		return "", 0, err
	}
	apart := pipeline.ID(randomID("g"))
	n, err := c.regroup(ctx, who, tenant, group, apart, sel, "group_split", reason)
	return apart, n, err
}

// Join counts all items of a group, those that are there and those that will come, in another one of the same tenant. Joining what a
// split took apart into the group that it came from takes the split back. Codes: ERR_REASON_MISSING, ERR_INPUT_INVALID (into
// itself), ERR_ITEM_UNKNOWN (no such group), ERR_PERMISSION_DENIED, ERR_TENANT_FORBIDDEN.
func (c *Items) Join(ctx context.Context, who Actor, tenant string, group, into pipeline.ID, reason string) (int64, error) {
	if err := needs(pipeline.CodeReasonMissing, reason, "a reason"); err != nil {
		return 0, err
	}
	if group == into {
		return 0, pipeline.Errorf(pipeline.CodeInputInvalid, string(into), "a group cannot be joined into itself")
	}
	return c.regroup(ctx, who, tenant, group, into, Selection{}, "group_join", reason)
}

// regroup moves what is there and writes down what becomes of what will come. Which fingerprints a group is made of is known from its
// items and from earlier regroupings.
func (c *Items) regroup(ctx context.Context, who Actor, tenant string, group, into pipeline.ID, sel Selection, event, reason string) (moved int64, err error) {
	if err := c.Check(ctx, who, PermTriage, tenant); err != nil {
		return 0, err
	}
	err = c.db.Write(ctx, func(tx *ledger.Tx) error {
		moved = 0
		if err := tx.Lock("admit"); err != nil { // items that are being admitted go by the old grouping wholly or by the new one
			return err
		}
		from, found, err := readGroup(tx, tenant, string(group))
		if err != nil {
			return err
		}
		if _, target, err := readGroup(tx, tenant, string(into)); err != nil {
			return err
		} else if !found || event == "group_join" && !target {
			return pipeline.Errorf(pipeline.CodeItemUnknown, string(group)+" "+string(into), "there is no such group of this tenant")
		}
		fps, err := fingerprintsOf(tx, tenant, group)
		if err != nil {
			return err
		}
		for _, fp := range fps {
			if err := storeRegrouping(tx, who, tenant, fp, group, into, sel, reason); err != nil {
				return err
			}
		}
		var first, last *Item
		if moved, first, last, err = moveGroup(tx, tenant, group, into, sel); err != nil {
			return err
		}
		if event == "group_split" {
			if first == nil {
				return selectionError(sel.String(), "no item of the group has that")
			}
			if err := newGroupRow(tx, &from, into, first, last); err != nil {
				return err
			}
		}
		tx.Append(ledger.Entry{Tenant: tenant, Event: event, Actor: who.Subject, Detail: map[string]string{"group": string(group), "into": string(into),
			"selection": sel.String(), "items": strconv.FormatInt(moved, 10), "reason": reason}})
		return nil
	})
	return moved, err
}

func fingerprintsOf(tx *ledger.Tx, tenant string, group pipeline.ID) (out []pipeline.ID, err error) {
	err = tx.Each(`SELECT DISTINCT fingerprint FROM items WHERE tenant = ? AND (group_key = ? OR (group_key IS NULL AND fingerprint = ?))
		UNION SELECT fingerprint FROM regroupings WHERE tenant = ? AND group_key = ? ORDER BY fingerprint`, []any{tenant, group, group, tenant, group}, func(scan func(...any) error) error {
		var fp pipeline.ID
		err := scan(&fp)
		out = append(out, fp)
		return err
	})
	return out, err
}

// storeRegrouping writes the regroupings of one fingerprint anew. What led to the group leads on, for what the selection has; the
// group of the fingerprint itself gets a regrouping behind all others, which is about what no other one is about.
func storeRegrouping(tx *ledger.Tx, who Actor, tenant string, fp, group, into pipeline.ID, sel Selection, reason string) error {
	was, err := readRegroupings(tx, tenant, fp)
	if err != nil {
		return err
	}
	var now []Regrouping
	whole := false // one of them is about all items
	step := func(before string) Regrouping {
		text := strings.TrimSpace(before + " " + sel.String())
		return Regrouping{Group: into, Selection: text, By: who.Subject, Reason: ledger.Cut(reason, maxReason), AtMS: tx.NowMS()}
	}
	for _, r := range was {
		whole = whole || r.Selection == ""
		if r.Group == group {
			now = append(now, step(r.Selection))
			if len(sel.Terms) == 0 {
				continue // nothing is left for it
			}
		}
		now = append(now, r)
	}
	if fp == group && !whole {
		now = append(now, step(""))
	}
	if _, err := tx.Exec("DELETE FROM regroupings WHERE tenant = ? AND fingerprint = ?", tenant, fp); err != nil {
		return err
	}
	rows := make([][]any, 0, len(now))
	for _, r := range now {
		if r.Selection == "" && r.Group == fp {
			continue // that is where they go anyway
		}
		rows = append(rows, []any{tenant, fp, len(rows) + 1, r.Group, r.Selection, r.By, r.Reason, r.AtMS})
	}
	return tx.Insert("regroupings", []string{"tenant", "fingerprint", "n", "group_key", "selection", "actor", "reason", "at_ms"}, rows)
}

func readRegroupings(tx *ledger.Tx, tenant string, fp pipeline.ID) (out []Regrouping, err error) {
	err = tx.Each("SELECT n, group_key, selection, actor, reason, at_ms FROM regroupings WHERE tenant = ? AND fingerprint = ? ORDER BY n", []any{tenant, fp}, func(scan func(...any) error) error {
		r := Regrouping{Tenant: tenant, Fingerprint: fp}
		err := scan(&r.N, &r.Group, &r.Selection, &r.By, &r.Reason, &r.AtMS)
		out = append(out, r)
		return err
	})
	return out, err
}

// moveGroup changes the items that are there, in chunks, with their roll-ups.
func moveGroup(tx *ledger.Tx, tenant string, group, into pipeline.ID, sel Selection) (moved int64, first, last *Item, err error) {
	cond, args := sel.where(tx)
	for after := ""; ; {
		var items []*Item
		if err := tx.Each("SELECT "+itemColumns+" FROM items WHERE tenant = ? AND (group_key = ? OR (group_key IS NULL AND fingerprint = ?)) AND id > ? AND "+cond+" ORDER BY id LIMIT 1000"+tx.ForUpdate(),
			append([]any{tenant, group, group, after}, args...), func(scan func(...any) error) error {
				it, err := scanItem(scan)
				items = append(items, it)
				return err
			}); err != nil || len(items) == 0 {
			return moved, first, last, err
		}
		ids := make([]string, len(items))
		for i, it := range items {
			ids[i] = string(it.ID)
			tx.Count(tenant, string(group), string(it.State), it.Owner, it.QuarantinedMS, -1)
			tx.Count(tenant, string(into), string(it.State), it.Owner, it.QuarantinedMS, 1)
			if first == nil || it.QuarantinedMS < first.QuarantinedMS {
				first = it
			}
			if last == nil || it.QuarantinedMS >= last.QuarantinedMS {
				last = it
			}
		}
		after = ids[len(ids)-1]
		in, arg := tx.In("id", ids)
		n, err := tx.Exec("UPDATE items SET group_key = NULLIF(?, fingerprint), rev = rev + 1 WHERE "+in, into, arg)
		if err != nil {
			return 0, nil, nil, err
		}
		moved += n
	}
}

// newGroupRow makes the row of a group that was split off.
func newGroupRow(tx *ledger.Tx, from *Group, id pipeline.ID, first, last *Item) error {
	return tx.Insert("groups", []string{"tenant", "fingerprint", "pipeline", "consumer", "class", "code", "stage", "reason", "first_ms", "first_release", "first_schema", "first_item",
		"last_ms", "last_release", "last_schema", "last_item", "owner", "ticket", "note", "muted_until_ms", "muted_by", "rev"},
		[][]any{{from.Tenant, id, first.Pipeline, first.Consumer, first.Class.String(), first.Code, first.Stage, first.Reason, first.QuarantinedMS, first.Release, first.Schema, first.ID,
			last.QuarantinedMS, last.Release, last.Schema, last.ID, from.Owner, "", "", int64(0), "", int64(1)}})
}

// regroupNew puts new items where the regroupings of their fingerprints say.
func regroupNew(tx *ledger.Tx, items []*Item) error {
	seen := map[string]bool{}
	var fps []string
	for _, it := range items {
		if fp := string(it.Fingerprint); !seen[fp] {
			seen[fp] = true
			fps = append(fps, fp)
		}
	}
	type key struct {
		tenant string
		fp     pipeline.ID
	}
	type target struct {
		sel  Selection
		into pipeline.ID
	}
	all := map[key][]target{}
	in, arg := tx.In("fingerprint", fps)
	err := tx.Each("SELECT tenant, fingerprint, selection, group_key FROM regroupings WHERE "+in+" ORDER BY n", []any{arg}, func(scan func(...any) error) error {
		var k key
		var t target
		var text string
		err := scan(&k.tenant, &k.fp, &text, &t.into)
		if err == nil {
			t.sel, err = ParseSelection(text)
		}
		all[k] = append(all[k], t)
		return err
	})
	if err != nil || len(all) == 0 {
		return err
	}
	for _, it := range items {
		for _, t := range all[key{it.Tenant, it.Fingerprint}] {
			if t.sel.Matches(it, tx.NowMS()) {
				if it.Regrouped = t.into; t.into == it.Fingerprint {
					it.Regrouped = ""
				}
				break
			}
		}
	}
	return nil
}
