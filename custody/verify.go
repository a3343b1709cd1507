package custody

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/seal"
)

// Verified is the answer of Verify: how much was looked at, and what does not hold.
type Verified struct {
	HistoryRows int64
	Items       int64
	Heads       int64
	Findings    []ledger.Finding

	weeks map[int64]int // payloads that are missing, by week
}

// OK tells whether everything holds.
func (v Verified) OK() bool { return len(v.Findings) == 0 }

// Verify checks the whole ledger: the history chain against its head and against every signed head (those kept here and
// those given, from the audit topic), the evidence of every item against its history row, payloads against their digests,
// states against the history, and roll-ups against a count. At most 100 findings of each kind. Codes: ERR_PERMISSION_DENIED,
// ERR_LEDGER_*. Cost: one scan of everything.
func (c *Items) Verify(ctx context.Context, who Actor, heads []SignedHead) (Verified, error) {
	var v Verified
	if err := c.Check(ctx, who, PermAudit, ""); err != nil {
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
	// The chain and the items are two scans that need nothing of each other.
	type walked struct {
		rows  int64
		found []ledger.Finding
		err   error
	}
	chain := make(chan walked, 1)
	go func() {
		var w walked
		w.rows, w.found, w.err = c.db.Verify(ctx, trusted)
		chain <- w
	}()
	var rest Verified
	err = c.db.Read(ctx, func(tx *ledger.Tx) error {
		rest = Verified{}
		if err := c.verifyItems(tx, &rest); err != nil {
			return err
		}
		return verifyRolls(tx, &rest)
	})
	w := <-chain
	v.HistoryRows, v.Items = w.rows, rest.Items
	v.Findings = append(append(v.Findings, w.found...), rest.Findings...)
	return v, firstOf(w.err, err)
}

func (v *Verified) add(place, format string, args ...any) {
	if len(v.Findings) < 400 {
		v.Findings = append(v.Findings, ledger.Finding{Code: pipeline.CodeLedgerCorrupt, Place: place, Text: fmt.Sprintf(format, args...)})
	}
}

// vaultMS is how long a letter may be in the ledger before its vault message: they stand on two topics.
const vaultMS = 60_000

// verifyChunk is how many items are compared with their history at once.
const verifyChunk = 2000

func (c *Items) verifyItems(tx *ledger.Tx, v *Verified) error {
	for after := ""; ; {
		n, last, err := c.verifyItemsBehind(tx, v, after)
		if err != nil {
			return err
		}
		if n < verifyChunk {
			break
		}
		after = last
	}
	if err := v.dropped(tx); err != nil {
		return err
	}
	if err := tx.Each("SELECT i.id FROM items i LEFT JOIN vault x ON x.item = i.id WHERE i.faithful = 'vault' AND x.item IS NULL AND (i.flags & "+strconv.Itoa(int(FlagErased|FlagExpired))+") = 0 AND i.taken_ms < ? ORDER BY i.id LIMIT 100",
		[]any{tx.NowMS() - vaultMS},
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

// missing names a payload that is gone; of very many in one week the week, too: a partition of the table was dropped.
func (v *Verified) missing(it *Item) {
	if v.weeks == nil {
		v.weeks = map[int64]int{}
	}
	if v.weeks[it.PayloadWeek]++; v.weeks[it.PayloadWeek] <= 20 {
		v.add("payloads/"+string(it.ID), "the payload is missing")
	}
}

// dropped names the weeks of which no payload is left.
func (v *Verified) dropped(tx *ledger.Tx) error {
	for _, week := range slices.Sorted(maps.Keys(v.weeks)) {
		var left int64
		if _, err := tx.Row("SELECT count(*) FROM (SELECT 1 FROM payloads WHERE week = ? LIMIT 1) x", []any{week}, &left); err != nil {
			return err
		}
		if n := v.weeks[week]; left == 0 {
			v.add("payloads_w"+strconv.FormatInt(week, 10), "all payloads of the week that begins on %s are gone, %d of items that need theirs: the partition was dropped",
				time.UnixMilli(week*ledger.WeekMS).UTC().Format(time.DateOnly), n)
		} else if n > 20 {
			v.add("payloads", "and %d more payloads of one week are missing", n-20)
		}
	}
	return nil
}

// verifying is an item with what its payload says of itself.
type verifying struct {
	it      *Item
	payload bool
	intact  bool // the payload's digest holds
}

// verifyItemsBehind compares the next items with their payloads and with the last state and evidence of their history.
func (c *Items) verifyItemsBehind(tx *ledger.Tx, v *Verified, after string) (n int, last string, err error) {
	var list []verifying
	if err := tx.Each("SELECT "+itemColumns+`, p_item, record_key, value, headers FROM items
		LEFT JOIN (SELECT item AS p_item, week AS p_week, record_key, value, headers FROM payloads) p ON p_item = items.id AND p_week = items.payload_week WHERE id > ? ORDER BY id LIMIT ?`,
		[]any{after, verifyChunk}, func(scan func(...any) error) error {
			var pItem *string
			var key, value, headers []byte
			it, err := scanItem(func(dest ...any) error { return scan(append(dest, &pItem, &key, &value, &headers)...) })
			if err != nil {
				return err
			}
			list = append(list, verifying{it, pItem != nil, pItem != nil && bytes.Equal(payloadDigest(c.id, key, value, headers), it.PayloadDigest)})
			return nil
		}); err != nil || len(list) == 0 {
		return 0, "", err
	}
	last = string(list[len(list)-1].it.ID)
	states, evidence := map[pipeline.ID]State{}, map[pipeline.ID][]byte{}
	if err := tx.Each("SELECT item, to_state, evidence FROM dlq_message_custody_ledger WHERE item > ? AND item <= ? ORDER BY item, seq", []any{after, last}, func(scan func(...any) error) error {
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
		return 0, "", err
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
	return len(list), last, nil
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

// SignedHead is the end of the history at some time, signed: kept in the ledger and on the audit topic.
type SignedHead struct {
	Seq   int64
	Hash  []byte
	AtMS  int64
	KeyID string
	MAC   []byte
}

func (h *SignedHead) message() []byte {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(h.Seq))
	binary.BigEndian.PutUint64(b[8:], uint64(h.AtMS))
	return seal.LP([]byte("reprieve head 1"), b[:], h.Hash)
}

// headJSON is the value of a message on the audit topic.
type headJSON struct {
	V    int    `json:"v"`
	Seq  string `json:"seq"`
	Hash string `json:"hash"`
	At   string `json:"at"`
	KID  string `json:"kid"`
	Sig  string `json:"sig"`
}

// ParseHead reads a message of the audit topic; its signature is checked by Verify. Codes: ERR_INPUT_INVALID.
func ParseHead(value []byte) (SignedHead, error) {
	var j headJSON
	var h SignedHead
	bad := pipeline.Errorf(pipeline.CodeInputInvalid, "audit", "the message is not a signed head")
	if json.Unmarshal(value, &j) != nil || j.V != 1 {
		return h, bad
	}
	at, err := time.Parse(time.RFC3339Nano, j.At)
	if _, err2 := fmt.Sscan(j.Seq, &h.Seq); err != nil || err2 != nil {
		return h, bad
	}
	var err2 error
	if h.Hash, err = hex.DecodeString(j.Hash); err != nil {
		return h, bad
	}
	if h.MAC, err2 = hex.DecodeString(j.Sig); err2 != nil {
		return h, bad
	}
	h.AtMS, h.KeyID = at.UnixMilli(), j.KID
	return h, nil
}

// Heads are signed after so many rows, or so long after the last one.
const (
	headRows = 1000
	headMS   = 60_000
)

// SignHead signs the head of the history when it is due and hands it to the outbox for the audit topic: cutting or
// rewriting the history then shows. False: nothing was due, or there is no key. Codes: ERR_LEDGER_*.
func (c *Items) SignHead(ctx context.Context, topic string) (bool, error) {
	if c.ring == nil {
		return false, nil
	}
	signed := false
	err := c.db.Write(ctx, func(tx *ledger.Tx) error {
		signed = false
		var h SignedHead
		var last, lastMS int64
		if _, err := tx.Row("SELECT seq, hash, signed_seq, signed_ms FROM history_head WHERE id = 1"+tx.ForUpdate(), nil, &h.Seq, &h.Hash, &last, &lastMS); err != nil {
			return err
		}
		if h.Seq == last || h.Seq-last < headRows && tx.NowMS()-lastMS < headMS {
			return nil
		}
		h.AtMS = tx.NowMS()
		h.KeyID, h.MAC = c.ring.Sign(h.message())
		if err := tx.Insert("signed_heads", []string{"seq", "hash", "at_ms", "kid", "mac"}, [][]any{{h.Seq, h.Hash, h.AtMS, h.KeyID, h.MAC}}); err != nil {
			return err
		}
		if _, err := tx.Exec("UPDATE history_head SET signed_seq = ?, signed_ms = ? WHERE id = 1", h.Seq, h.AtMS); err != nil {
			return err
		}
		value, err := json.Marshal(headJSON{1, fmt.Sprint(h.Seq), hex.EncodeToString(h.Hash), time.UnixMilli(h.AtMS).UTC().Format("2006-01-02T15:04:05.000Z"), h.KeyID, hex.EncodeToString(h.MAC)})
		if err != nil {
			return err
		}
		signed = true
		return Publish(tx, topic, "", []byte("head"), value, nil)
	})
	return signed, err
}

// Publish puts a message into the outbox of the ledger: it is sent once the transaction has committed, at least once.
func Publish(tx *ledger.Tx, topic, tenant string, key, value []byte, headers []pipeline.Header) error {
	seq, err := tx.Next("outbox", 1)
	if err != nil {
		return err
	}
	return tx.Insert("outbox", []string{"seq", "tenant", "topic", "record_key", "value", "headers", "at_ms", "sent_ms"},
		[][]any{{seq, tenant, topic, key, value, packHeaders(headers), tx.NowMS(), int64(0)}})
}
