package custody

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

// Retention says how long items stay. What is said of the data class counts before what is said of the failure class, and that before
// the default. It is fixed when an item is admitted (Fix); an item's own ExpiresMS (an Extension) and a legal hold win over all.
type Retention struct {
	Default  time.Duration                    // 0: 30 days
	Class    map[pipeline.Class]time.Duration // by failure class
	Data     map[string]time.Duration         // by data class
	Pipeline map[string]string                // the data class by pipeline, "" is none: for items whose letter does not say it
	Warn     time.Duration                    // how long before the end its owner is told; 0: 5 days
	Archive  Bucket                           // where items go before their payloads are dropped; nil: nowhere
}

const defaultRetention = 30 * 24 * time.Hour

// Fix is the data class of an item and how long it stays after its quarantine, for good: what Options.Keep asks. 0: nobody here knows
// what its pipeline says, or what its class asks for.
func (r Retention) Fix(it *Item) (data string, keep time.Duration) {
	data, keep, sure := r.rule(it)
	if !sure {
		keep = 0
	}
	return data, keep
}

// rule is what is said of an item here. Not sure: its data may ask for longer.
func (r Retention) rule(it *Item) (data string, keep time.Duration, sure bool) {
	said, known := r.Pipeline[it.Pipeline]
	data = cmp.Or(it.Data, said)
	keep = cmp.Or(r.Data[data], r.Class[it.Class], r.Default, defaultRetention)
	if data != "" {
		return data, keep, r.Data[data] != 0
	}
	return "", keep, known || it.Pipeline == ""
}

// Of is how long an item stays after its quarantine. What was not fixed when it was admitted, and what its data asks for is not known
// here, stays as long as any data asks.
func (r Retention) Of(it *Item) time.Duration {
	if it.KeepMS != 0 {
		return time.Duration(it.KeepMS) * time.Millisecond
	}
	_, keep, sure := r.rule(it)
	if !sure {
		for _, d := range r.Data {
			keep = max(keep, d)
		}
	}
	return keep
}

// warning is how long before the end its owner is told.
func (r Retention) warning() time.Duration { return cmp.Or(r.Warn, 5*24*time.Hour) }

// EndMS is when the item may go; 0 is never.
func (r Retention) EndMS(it *Item) int64 {
	switch {
	case it.LegalHold != "":
		return 0
	case it.ExpiresMS != 0:
		return it.ExpiresMS
	}
	return it.QuarantinedMS + r.Of(it).Milliseconds()
}

// ownEnd is the end that an item carries itself; 0: it has none.
func (it *Item) ownEnd() int64 {
	if it.ExpiresMS == 0 && it.KeepMS != 0 {
		return it.QuarantinedMS + it.KeepMS
	}
	return it.ExpiresMS
}

// shortest is the least that any rule says.
func (r Retention) shortest() time.Duration {
	d := cmp.Or(r.Default, defaultRetention)
	for _, x := range r.Class {
		d = min(d, x)
	}
	for _, x := range r.Data {
		d = min(d, x)
	}
	return d
}

// endsBefore is the condition that an item may end before a time, by the shortest rule where nothing is fixed, and the argument before
// that time.
const endsBefore = "coalesce(expires_ms, quarantined_ms + coalesce(keep_ms, ?)) < ?"

// Expiry counts what an expiry did.
type Expiry struct {
	Expired  int64 `json:"expired,string"`  // open items that are lost: the loss is in their history
	Payloads int64 `json:"payloads,string"` // payloads of closed items that were dropped
	Held     int64 `json:"held,string"`     // items that a legal hold kept
}

// ExpiryBatch is how many items one transaction of Expire takes.
const ExpiryBatch = 500

// Expire ends what is over: an open item becomes EXPIRED, which records the loss; a closed one keeps its state; either way the
// payloads and repaired bytes go, and metadata and history stay. REDRIVING items wait until their redrive is decided. It may
// be interrupted and repeated. progress, if not nil, is told after each chunk how many of how many items were looked at. Codes:
// ERR_PERMISSION_DENIED, ERR_LEDGER_*.
func (c *Items) Expire(ctx context.Context, who Actor, r Retention, progress func(done, total int64)) (Expiry, error) {
	var sum Expiry
	if err := c.CheckWhole(ctx, who, PermRetention); err != nil {
		return sum, err
	}
	var done, total int64
	if progress != nil {
		if err := c.db.Read(ctx, func(tx *ledger.Tx) error {
			_, err := tx.Row("SELECT count(*) FROM items WHERE "+expirable, []any{r.shortest().Milliseconds(), tx.NowMS(), int64(FlagErased)}, &total)
			return err
		}); err != nil {
			return sum, err
		}
	}
	after := ""
	for {
		var n int
		var last string
		var one Expiry
		archived, err := c.archiveChunk(ctx, r, after)
		if err != nil {
			return sum, err
		}
		err = c.db.Write(ctx, func(tx *ledger.Tx) (err error) {
			one = Expiry{}
			n, last, err = c.expireChunk(tx, who, r, after, archived, &one)
			return err
		})
		if err != nil {
			return sum, err
		}
		sum.Expired += one.Expired
		sum.Payloads += one.Payloads
		sum.Held += one.Held
		if done += int64(n); progress != nil {
			progress(done, max(total, done)) // more come to their end meanwhile
		}
		if n < ExpiryBatch {
			_, serr := c.sweep(ctx) // after all is done: what the bucket does not delete now is deleted the next time
			return sum, firstOf(c.db.DropEmptyWeeks(ctx), serr)
		}
		after = last
	}
}

// candidates are the ids of the next chunk.
func (r Retention) candidates(tx *ledger.Tx, after string) (ids []string, err error) {
	err = tx.Each("SELECT id FROM items WHERE "+expirable+" AND id > ? ORDER BY id LIMIT ?",
		[]any{r.shortest().Milliseconds(), tx.NowMS(), int64(FlagErased), after, ExpiryBatch}, func(scan func(...any) error) error {
			var id string
			err := scan(&id)
			ids = append(ids, id)
			return err
		})
	return ids, err
}

// archiveChunk archives what the next chunk will drop, before a transaction begins: a bucket is slow.
func (c *Items) archiveChunk(ctx context.Context, r Retention, after string) (map[string][]any, error) {
	if r.Archive == nil {
		return nil, nil
	}
	var going []*Item
	if err := c.db.Read(ctx, func(tx *ledger.Tx) error {
		going = nil
		ids, err := r.candidates(tx, after)
		if err != nil {
			return err
		}
		items, err := load(tx, ids, false)
		for _, id := range ids {
			var unused Expiry
			if it := items[pipeline.ID(id)]; it != nil && unused.count(r, it, tx.NowMS()) {
				going = append(going, it)
			}
		}
		return err
	}); err != nil {
		return nil, err
	}
	rows, err := c.archive(ctx, r.Archive, going)
	out := map[string][]any{}
	for _, row := range rows {
		out[string(row[0].(pipeline.ID))] = row
	}
	return out, err
}

func (c *Items) expireChunk(tx *ledger.Tx, who Actor, r Retention, after string, archived map[string][]any, sum *Expiry) (n int, last string, err error) {
	now := tx.NowMS()
	ids, err := r.candidates(tx, after)
	if err != nil || len(ids) == 0 {
		return 0, "", err
	}
	items, err := load(tx, ids, true)
	if err != nil {
		return 0, "", err
	}
	var open, gone []*Item
	var kept [][]any
	for _, id := range ids {
		it := items[pipeline.ID(id)]
		if row := archived[id]; row != nil {
			kept = append(kept, row)
		} else if r.Archive != nil && it.LegalHold == "" {
			continue // it was not due a moment ago: the next time
		}
		if !sum.count(r, it, now) {
			continue
		}
		if gone = append(gone, it); it.State.Open() {
			open = append(open, it)
		}
	}
	_, _, err = c.move(tx, who, open, change{ev: Expire, cols: []string{"resolution"}, args: []any{"expired"}, keep: func(it *Item) { it.Resolution = "expired" },
		each: func(it *Item) map[string]string {
			loss := "the payload was dropped unprocessed"
			if r.Archive != nil {
				loss = "the payload was archived unprocessed"
			}
			return map[string]string{"loss": loss, "after_days": strconv.FormatInt((now-it.QuarantinedMS)/ledger.DayMS, 10), "owner": it.Owner}
		}})
	if err != nil {
		return 0, "", err
	}
	for flags, its := range byFlags(gone) {
		flags |= FlagExpired
		if err := c.set(tx, who, its, change{event: "payload_expired", cols: []string{"flags"}, args: []any{int64(flags)}, keep: func(it *Item) { it.Flags = flags }}); err != nil {
			return 0, "", err
		}
	}
	if err := keepArchives(tx, kept); err != nil {
		return 0, "", err
	}
	return len(ids), ids[len(ids)-1], dropPayloads(tx, gone)
}

func byFlags(items []*Item) map[Flag][]*Item {
	out := map[Flag][]*Item{}
	for _, it := range items {
		out[it.Flags] = append(out[it.Flags], it)
	}
	return out
}

// dropPayloads deletes what the ledger holds of items, repaired bytes and the vault's included.
func dropPayloads(tx *ledger.Tx, items []*Item) error {
	byWeek := map[int64][]string{}
	var all []string
	for _, it := range items {
		byWeek[it.PayloadWeek] = append(byWeek[it.PayloadWeek], string(it.ID))
		all = append(all, string(it.ID))
	}
	for week, ids := range byWeek {
		if err := dropObjects(tx, week, ids); err != nil {
			return err
		}
		in, arg := tx.In("item", ids)
		if _, err := tx.Exec("DELETE FROM payloads WHERE week = ? AND "+in, week, arg); err != nil {
			return err
		}
	}
	if len(all) == 0 {
		return nil
	}
	in, arg := tx.In("item", all)
	for _, table := range [...]string{"repair_payloads", "vault"} {
		if _, err := tx.Exec("DELETE FROM "+table+" WHERE "+in, arg); err != nil {
			return err
		}
	}
	return nil
}

// WouldExpire counts what Expire would do now, and changes nothing. Codes: ERR_PERMISSION_DENIED, ERR_LEDGER_*.
func (c *Items) WouldExpire(ctx context.Context, who Actor, r Retention) (Expiry, error) {
	var sum Expiry
	if err := c.Check(ctx, who, PermRead, ""); err != nil {
		return sum, err
	}
	err := c.db.Read(ctx, func(tx *ledger.Tx) error {
		sum = Expiry{}
		now := tx.NowMS()
		cond, args := c.roles.visible(tx, who, "tenant")
		return tx.Each("SELECT "+itemColumns+" FROM items WHERE "+cond+" AND "+expirable, append(args, r.shortest().Milliseconds(), now, int64(FlagErased)), func(scan func(...any) error) error {
			it, err := scanItem(scan)
			if err == nil {
				sum.count(r, it, now)
			}
			return err
		})
	})
	return sum, err
}

// count says what expiry does with an item, and counts it.
func (e *Expiry) count(r Retention, it *Item, nowMS int64) (ends bool) {
	switch end := r.EndMS(it); {
	case it.LegalHold != "":
		e.Held++
	case end > nowMS || it.State == Redriving:
	case it.State.Open():
		e.Expired++
		return true
	default:
		e.Payloads++
		return true
	}
	return false
}

// expirable are candidates by the shortest rule; which of them are over, the rules say.
const expirable = endsBefore + ` AND state NOT IN ('REDRIVING', 'PARKED', 'EXPIRED') AND flags & ? = 0
	AND EXISTS (SELECT 1 FROM payloads p WHERE p.item = items.id AND p.week = items.payload_week)`

// Ending is how many open items of an owner end soon.
type Ending struct {
	Tenant   string `json:"tenant"`
	Owner    string `json:"owner"`
	Pipeline string `json:"pipeline"`
	N        int64  `json:"items,string"`
	FirstMS  int64  `json:"first_ms,string"` // when the first of them ends
}

// EndingSoon counts open items whose end comes within r.Warn, by tenant, owner and pipeline: those to tell. Codes:
// ERR_PERMISSION_DENIED.
func (c *Items) EndingSoon(ctx context.Context, who Actor, r Retention) ([]Ending, error) {
	if err := c.Check(ctx, who, PermRead, ""); err != nil {
		return nil, err
	}
	warn := r.warning()
	type key struct{ tenant, owner, pipeline string }
	sums := map[key]*Ending{}
	var out []Ending
	err := c.db.Read(ctx, func(tx *ledger.Tx) error {
		clear(sums)
		out = nil
		cond, args := c.roles.visible(tx, who, "tenant")
		now := tx.NowMS()
		var order []key
		err := tx.Each("SELECT "+itemColumns+" FROM items WHERE "+cond+" AND state IN "+openStates+" AND "+endsBefore+" ORDER BY tenant, owner, pipeline",
			append(args, r.shortest().Milliseconds(), now+warn.Milliseconds()), func(scan func(...any) error) error {
				it, err := scanItem(scan)
				if err != nil {
					return err
				}
				end := r.EndMS(it)
				if end == 0 || end > now+warn.Milliseconds() {
					return nil
				}
				k := key{it.Tenant, it.Owner, it.Pipeline}
				if sums[k] == nil {
					sums[k] = &Ending{Tenant: k.tenant, Owner: k.owner, Pipeline: k.pipeline, FirstMS: end}
					order = append(order, k)
				}
				sums[k].N++
				sums[k].FirstMS = min(sums[k].FirstMS, end)
				return nil
			})
		for _, k := range order {
			out = append(out, *sums[k])
		}
		return err
	})
	return out, err
}
