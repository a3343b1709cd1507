package custody

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

// Verified is the answer of Verify: how much was looked at, and what does not hold.
type Verified struct {
	HistoryRows int64
	Items       int64
	Heads       int64
	Findings    []ledger.Finding

	lost map[int64]int64         // how many payloads are missing, by week
	gone map[int64][]pipeline.ID // and some of them
}

// OK tells whether everything holds.
func (v Verified) OK() bool { return len(v.Findings) == 0 }

// Verify checks the whole ledger: the history chain against its head and against every signed head (those kept here and
// those given, from the audit topic), the evidence of every item against its history row, payloads against their digests,
// states against the history, and roll-ups against a count. At most 100 findings of each kind. progress, if not nil, is told now and then
// how many of how many history rows and items were looked at, one call at a time. Codes: ERR_PERMISSION_DENIED, ERR_LEDGER_*. Cost:
// one scan of everything.
func (c *Items) Verify(ctx context.Context, who Actor, heads []SignedHead, progress func(done, total int64)) (Verified, error) {
	var v Verified
	if err := c.CheckWhole(ctx, who, PermAudit); err != nil {
		return v, err
	}
	var kept []SignedHead
	err := c.db.Read(ctx, func(tx *ledger.Tx) error {
		kept = nil
		return tx.Each("SELECT seq, hash, at_ms, kid, mac FROM signed_heads ORDER BY seq", nil, func(scan func(...any) error) error {
			var h SignedHead
			err := scan(&h.Seq, &h.Hash, &h.AtMS, &h.KeyID, &h.MAC)
			kept = append(kept, h)
			return err
		})
	})
	if err != nil {
		return v, err
	}
	var trusted []ledger.Head
	for _, h := range append(kept, heads...) {
		v.Heads++
		if c.ring == nil || !c.ring.Verify(h.KeyID, h.message(), h.MAC) {
			v.add(fmt.Sprintf("signed_heads/%d", h.Seq), "the signature of the head does not verify with keys.hmac")
			continue
		}
		trusted = append(trusted, ledger.Head{Seq: h.Seq, Hash: h.Hash})
	}
	looked, err := c.lookedAt(ctx, progress)
	if err != nil {
		return v, err
	}
	// The chain, what concerns the ledger as a whole, and the items are scans that need nothing of each other.
	var whole Verified
	var chainErr, wholeErr error
	var beside sync.WaitGroup
	beside.Go(func() {
		var found []ledger.Finding
		v.HistoryRows, found, chainErr = c.db.Verify(ctx, trusted, looked)
		v.Findings = append(v.Findings, found...)
		if chainErr != nil {
			return
		}
		wholeErr = c.db.Read(ctx, func(tx *ledger.Tx) error {
			whole = Verified{}
			if err := verifyWhole(tx, &whole); err != nil {
				return err
			}
			return verifyRolls(tx, &whole)
		})
	})
	items, err := c.verifyItems(ctx, looked)
	beside.Wait()
	if err := firstOf(err, chainErr, wholeErr); err != nil {
		return v, err
	}
	err = c.db.Read(ctx, func(tx *ledger.Tx) error { return items.dropped(tx) })
	v.Items = items.Items
	v.Findings = slices.Concat(v.Findings, items.Findings, whole.Findings)
	return v, err
}

// lookedAt adds up what several scans have looked at, of all that there is.
func (c *Items) lookedAt(ctx context.Context, progress func(done, total int64)) (func(n int64), error) {
	if progress == nil {
		return func(int64) {}, nil
	}
	var rows, items, done int64
	if err := c.db.Read(ctx, func(tx *ledger.Tx) error {
		if _, err := tx.Row("SELECT seq FROM history_head WHERE id = 1", nil, &rows); err != nil {
			return err
		}
		_, err := tx.Row("SELECT count(*) FROM items", nil, &items)
		return err
	}); err != nil {
		return nil, err
	}
	var one sync.Mutex
	return func(n int64) {
		one.Lock()
		defer one.Unlock()
		done += n
		progress(done, max(rows+items, done)) // more come meanwhile
	}, nil
}

const maxFindings = 400

func (v *Verified) add(place, format string, args ...any) {
	if len(v.Findings) < maxFindings {
		v.Findings = append(v.Findings, ledger.Finding{Code: pipeline.CodeLedgerCorrupt, Place: place, Text: fmt.Sprintf(format, args...)})
	}
}

// vaultMS is how long a letter may be in the ledger before its vault message: they stand on two topics.
const vaultMS = 60_000

// verifyChunk is how many items are compared with their history at once, and verifyWalkers how many chunks at a time: what they
// read goes again at once, whatever the size of the ledger. A walker has a view of the ledger of its own.
const (
	verifyChunk   = 2000
	verifyWalkers = 2
)

// verifyItems compares every item with its payload and its history, chunks of ids at a time.
func (c *Items) verifyItems(ctx context.Context, looked func(int64)) (*Verified, error) {
	var next sync.Mutex // guards after and done: where the next chunk begins
	after, done := "", false
	take := func(tx *ledger.Tx) (from, to string, err error) {
		next.Lock()
		defer next.Unlock()
		if done {
			return "", "", nil
		}
		from = after
		err = tx.Each("SELECT id FROM items WHERE id > ? ORDER BY id LIMIT 1 OFFSET ?", []any{from, verifyChunk - 1}, func(scan func(...any) error) error { return scan(&to) })
		if err == nil && to == "" { // the last ones
			_, err = tx.Row("SELECT coalesce(max(id), '') FROM items WHERE id > ?", []any{from}, &to)
			done = true
		}
		after = to
		return from, to, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	parts, errs := make([]Verified, verifyWalkers), make([]error, verifyWalkers)
	var walkers sync.WaitGroup
	for w := range parts {
		walkers.Go(func() {
			errs[w] = c.db.Read(ctx, func(tx *ledger.Tx) error {
				for {
					from, to, err := take(tx)
					if err != nil || to == "" {
						return err
					}
					before := parts[w].Items
					if err := c.verifyItemsOf(tx, &parts[w], from, to); err != nil {
						return err
					}
					looked(parts[w].Items - before)
				}
			})
			if errs[w] != nil {
				cancel() // the others need not go on
			}
		})
	}
	walkers.Wait()
	sum := &Verified{}
	for i := range parts {
		sum.take(&parts[i])
	}
	slices.SortStableFunc(sum.Findings, func(a, b ledger.Finding) int { return cmp.Compare(a.Place, b.Place) })
	return sum, firstCause(errs)
}

// firstCause is the error that the others followed from.
func firstCause(errs []error) error {
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
	return firstOf(errs...)
}

// take adds what another walker has found.
func (v *Verified) take(o *Verified) {
	v.Items += o.Items
	v.Findings = append(v.Findings, o.Findings[:min(len(o.Findings), maxFindings-len(v.Findings))]...)
	for week, gone := range o.gone {
		if v.gone == nil {
			v.gone = map[int64][]pipeline.ID{}
			v.lost = map[int64]int64{}
		}
		v.gone[week] = append(v.gone[week], gone...)
		v.lost[week] += o.lost[week]
	}
}

// verifyWhole looks for what no item shows: bytes that the vault does not have, and items that are gone themselves.
func verifyWhole(tx *ledger.Tx, v *Verified) error {
	if err := tx.Each("SELECT i.id FROM items i LEFT JOIN vault x ON x.item = i.id WHERE i.faithful = 'vault' AND x.item IS NULL AND (i.flags & "+strconv.Itoa(int(FlagErased|FlagExpired))+") = 0 AND i.taken_ms < ? AND NOT EXISTS (SELECT 1 FROM dlq_message_custody_ledger h WHERE h.item = i.id AND h.event = ?) ORDER BY i.id LIMIT 100",
		[]any{tx.NowMS() - vaultMS, eventUnvaulted},
		func(scan func(...any) error) error {
			var item string
			err := scan(&item)
			v.add("vault/"+item, "its letter says that its bytes are in the vault, and they are not in the ledger")
			return err
		}); err != nil {
		return err
	}
	return tx.Each("SELECT h.item, min(h.seq) FROM dlq_message_custody_ledger h LEFT JOIN items i ON i.id = h.item WHERE h.item <> '' AND h.event IN ('dead_letter', 'park') AND i.id IS NULL GROUP BY h.item ORDER BY h.item LIMIT 100", nil,
		func(scan func(...any) error) error {
			var item string
			var seq int64
			err := scan(&item, &seq)
			v.add("items/"+item, "the item is gone and its history (row %d) is not", seq)
			return err
		})
}

// maxNamed is how many missing payloads of one week are named one by one.
const maxNamed = 20

// missing counts a payload that is gone, and keeps the first of a week to name.
func (v *Verified) missing(it *Item) {
	if v.gone == nil {
		v.gone, v.lost = map[int64][]pipeline.ID{}, map[int64]int64{}
	}
	v.lost[it.PayloadWeek]++
	if len(v.gone[it.PayloadWeek]) < maxNamed {
		v.gone[it.PayloadWeek] = append(v.gone[it.PayloadWeek], it.ID)
	}
}

// dropped names payloads that are gone; of very many in one week the week, too: a partition of the table was dropped.
func (v *Verified) dropped(tx *ledger.Tx) error {
	for _, week := range slices.Sorted(maps.Keys(v.lost)) {
		ids := v.gone[week]
		slices.Sort(ids)
		for _, id := range ids[:min(len(ids), maxNamed)] {
			v.add("payloads/"+string(id), "the payload is missing")
		}
		var left int64
		if _, err := tx.Row("SELECT count(*) FROM (SELECT 1 FROM payloads WHERE week = ? LIMIT 1) x", []any{week}, &left); err != nil {
			return err
		}
		if n := v.lost[week]; left == 0 {
			v.add("payloads_w"+strconv.FormatInt(week, 10), "all payloads of the week that begins on %s are gone, %d of items that need theirs: the partition was dropped",
				time.UnixMilli(week*ledger.WeekMS).UTC().Format(time.DateOnly), n)
		} else if n > maxNamed {
			v.add("payloads", "and %d more payloads of one week are missing", n-maxNamed)
		}
	}
	return nil
}

// verifying is an item with what its payload says of itself.
type verifying struct {
	it      *Item
	payload bool
	intact  bool        // the payload's digest holds
	aside   *asideValue // its value stands in the bucket
}

// asideValue is a payload without its value.
type asideValue struct {
	key, headers []byte
	object       *string
}

// verifyItemsOf compares the items of (from, to] with their payloads and with the last state and evidence of their history.
func (c *Items) verifyItemsOf(tx *ledger.Tx, v *Verified, from, to string) error {
	var list []verifying
	if err := tx.Each("SELECT "+itemColumns+`, p_item, record_key, value, headers, object FROM items
		LEFT JOIN (SELECT item AS p_item, week AS p_week, record_key, value, headers, object FROM payloads) p ON p_item = items.id AND p_week = items.payload_week
		AND p_item > ? AND p_item <= ? WHERE id > ? AND id <= ? ORDER BY id`, // twice: PostgreSQL would read all payloads for each chunk
		[]any{from, to, from, to}, func(scan func(...any) error) error {
			var pItem, object *string
			var key, value, headers sql.RawBytes
			it, err := scanItem(func(dest ...any) error { return scan(append(dest, &pItem, &key, &value, &headers, &object)...) })
			if err != nil {
				return err
			}
			x := verifying{it: it, payload: pItem != nil}
			if object != nil {
				x.aside = &asideValue{bytes.Clone(key), bytes.Clone(headers), object}
			} else {
				x.intact = x.payload && bytes.Equal(payloadDigest(c.id, key, value, headers), it.PayloadDigest)
			}
			list = append(list, x)
			return nil
		}); err != nil || len(list) == 0 {
		return err
	}
	for i := range list {
		x := &list[i]
		if x.aside == nil {
			continue
		}
		value, err := c.valueOf(tx.Context(), nil, x.aside.object)
		switch {
		case pipeline.CodeOf(err) == pipeline.CodePayloadMissing:
			x.payload = false
		case err != nil:
			return err // nothing is known of it
		default:
			x.intact = bytes.Equal(payloadDigest(c.id, x.aside.key, value, x.aside.headers), x.it.PayloadDigest)
		}
	}
	states, evidence := make(map[pipeline.ID]State, len(list)), make(map[pipeline.ID][]byte, len(list))
	if err := tx.Each("SELECT item, to_state, evidence FROM dlq_message_custody_ledger WHERE item > ? AND item <= ? ORDER BY item, seq", []any{from, to}, func(scan func(...any) error) error {
		var id pipeline.ID
		var to State
		var e []byte
		err := scan(&id, &to, &e)
		if to != "" {
			states[id] = to
		}
		if len(e) > 0 {
			evidence[id] = e
		}
		return err
	}); err != nil {
		return err
	}
	for _, x := range list {
		v.Items++
		place := "items/" + string(x.it.ID)
		switch e := evidence[x.it.ID]; {
		case e == nil:
			v.add(place, "its history has no row of its admission")
		case !bytes.Equal(e, x.it.evidence()):
			v.add(place, "its evidence was rewritten: the digest is not the one of its admission")
		}
		if s := states[x.it.ID]; s != "" && s != x.it.State {
			v.add(place, "its state is %s and its history says %s", x.it.State, s)
		}
		switch {
		case !x.payload && x.it.Flags&(FlagErased|FlagExpired) == 0:
			v.missing(x.it)
		case x.payload && !x.intact:
			v.add("payloads/"+string(x.it.ID), "the payload was changed: its digest does not hold")
		}
	}
	return nil
}

func verifyRolls(tx *ledger.Tx, v *Verified) error {
	type row struct{ table, tenant, key, state string }
	counted := map[row]int64{}
	read := func(sign int64, table, q string) error {
		return tx.Each(q, nil, func(scan func(...any) error) error {
			r := row{table: table}
			var n int64
			err := scan(&r.tenant, &r.key, &r.state, &n)
			counted[r] += sign * n
			return err
		})
	}
	// Days are whole numbers, rounded down: quarantine times before 1970 do not happen.
	day := "quarantined_ms / 86400000"
	cast := "CAST(" + day + " AS TEXT)"
	for _, s := range []struct {
		sign     int64
		table, q string
	}{
		{1, "group_rollup", "SELECT tenant, fingerprint, state, n FROM group_rollup"},
		{-1, "group_rollup", "SELECT tenant, coalesce(group_key, fingerprint), state, count(*) FROM items GROUP BY tenant, coalesce(group_key, fingerprint), state"},
		{1, "age_rollup", "SELECT tenant, owner || '/' || CAST(day AS TEXT), state, n FROM age_rollup"},
		{-1, "age_rollup", "SELECT tenant, owner || '/' || " + cast + ", state, count(*) FROM items GROUP BY tenant, owner, " + day + ", state"},
	} {
		if err := read(s.sign, s.table, s.q); err != nil {
			return err
		}
	}
	for r, n := range counted {
		if n != 0 {
			v.add(r.table+"/"+r.tenant+"/"+r.key+"/"+r.state, "the roll-up is off by %d", n)
		}
	}
	return nil
}
