package custody

import (
	"maps"
	"slices"
	"strings"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

// Skip is an item that a change left alone, and why.
type Skip struct {
	Item  pipeline.ID   `json:"item"`
	State State         `json:"state,omitempty"`
	Code  pipeline.Code `json:"code"`
	Text  string        `json:"text,omitempty"`
}

// change is one event for many items: the same columns get the same values.
type change struct {
	ev     Event
	cols   []string // set besides state, rev and changed_ms
	args   []any
	detail map[string]string
	each   func(*Item) map[string]string // more detail of one item; may be nil
	keep   func(*Item)                   // brings the struct in line with cols; may be nil
	event  string                        // name in the history; ev if empty
	own    string                        // one more column, in which each item has a value of its own; may be empty
	ownOf  func(*Item) string
}

// move applies one event to loaded and locked items. What Next refuses is skipped. The update repeats the expected state and
// revision, so a change that somebody else made meanwhile is seen and nothing is overwritten. Codes: ERR_STATE_CHANGED.
func (c *Items) move(tx *ledger.Tx, who Actor, items []*Item, ch change) (moved []*Item, skips []Skip, err error) {
	by := map[State][]*Item{}
	var order []State
	for _, it := range items {
		if _, err := Next(it.State, ch.ev); err != nil {
			skips = append(skips, Skip{it.ID, it.State, pipeline.CodeOf(err), err.(*pipeline.Error).Text})
			continue
		}
		if by[it.State] == nil {
			order = append(order, it.State)
		}
		by[it.State] = append(by[it.State], it)
	}
	for _, from := range order {
		to, _ := Next(from, ch.ev)
		if err := c.updateOwn(tx, by[from], from, append([]string{"state"}, ch.cols...), append([]any{string(to)}, ch.args...), ch.own, ch.ownOf); err != nil {
			return nil, nil, err
		}
		for _, it := range by[from] {
			tx.Count(it.Tenant, string(it.Group()), string(from), it.Owner, it.QuarantinedMS, -1)
			it.State = to
			if ch.keep != nil {
				ch.keep(it)
			}
			tx.Count(it.Tenant, string(it.Group()), string(to), it.Owner, it.QuarantinedMS, 1)
			c.note(tx, who, it, ch, from, to)
			moved = append(moved, it)
		}
	}
	return moved, skips, nil
}

// set changes columns that are not about the state.
func (c *Items) set(tx *ledger.Tx, who Actor, items []*Item, ch change) error {
	by := map[State][]*Item{}
	for _, it := range items {
		by[it.State] = append(by[it.State], it)
	}
	for from, its := range by {
		if len(ch.cols) > 0 {
			if err := c.update(tx, its, from, ch.cols, ch.args); err != nil {
				return err
			}
		}
		for _, it := range its {
			if ch.keep != nil {
				ch.keep(it)
			}
			c.note(tx, who, it, ch, "", "")
		}
	}
	return nil
}

// update repeats the expected state: INV-STATE holds also against a writer that did not lock.
func (c *Items) update(tx *ledger.Tx, items []*Item, from State, cols []string, args []any) error {
	return c.updateOwn(tx, items, from, cols, args, "", nil)
}

// updateOwn is update with one more column, own, whose value differs from item to item; without it if own is empty.
func (c *Items) updateOwn(tx *ledger.Tx, items []*Item, from State, cols []string, args []any, own string, of func(*Item) string) error {
	ids := itemTexts(items)
	set := "UPDATE items SET rev = rev + 1, changed_ms = ?, " + strings.Join(cols, " = ?, ") + " = ?"
	all := append([]any{tx.NowMS()}, args...)
	var n int64
	var err error
	switch {
	case own == "":
		in, arg := tx.In("id", ids)
		n, err = tx.Exec(set+" WHERE "+in+" AND state = ?", append(all, arg, string(from))...)
	case tx.Dialect() == ledger.Postgres:
		values := make([]string, len(items))
		for i, it := range items {
			values[i] = ledger.Clean(of(it))
		}
		n, err = tx.Exec(set+", "+own+" = v.own FROM unnest(?::text[], ?::text[]) AS v(item, own) WHERE id = v.item AND state = ?", append(all, ids, values, string(from))...)
	default:
		for _, it := range items {
			one, err := tx.Exec(set+", "+own+" = ? WHERE id = ? AND state = ?", append(slices.Clone(all), of(it), it.ID, string(from))...)
			if err != nil {
				return err
			}
			n += one
		}
	}
	if err != nil {
		return err
	}
	if n != int64(len(items)) {
		return pipeline.Errorf(pipeline.CodeStateChanged, ids[0], "%d of %d items were changed by somebody else", int64(len(items))-n, len(items))
	}
	for _, it := range items {
		it.Rev++
		it.ChangedMS = tx.NowMS()
	}
	return nil
}

func itemTexts(items []*Item) []string {
	out := make([]string, len(items))
	for i, it := range items {
		out[i] = string(it.ID)
	}
	return out
}

func (c *Items) note(tx *ledger.Tx, who Actor, it *Item, ch change, from, to State) {
	detail := ch.detail
	if ch.each != nil {
		detail = maps.Clone(detail)
		if detail == nil {
			detail = map[string]string{}
		}
		maps.Copy(detail, ch.each(it))
	}
	event := ch.event
	if event == "" {
		event = string(ch.ev)
	}
	tx.Append(ledger.Entry{Tenant: it.Tenant, Item: string(it.ID), Event: event, From: string(from), To: string(to), Actor: who.Subject, Detail: detail})
}
