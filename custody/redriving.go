package custody

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

// What stands here is for redrive: every method works inside a transaction of the caller (Within), who has checked the
// permission of its actor with Check, and calls them together with its own rows.

// Lock loads items for change, in one order, so that two executors cannot wait for each other. Missing ids are missing.
func (c *Items) Lock(tx *ledger.Tx, ids []pipeline.ID) (map[pipeline.ID]*Item, error) {
	return load(tx, texts(ids), true)
}

// Load is Lock without the lock: for plans and dry runs.
func (c *Items) Load(tx *ledger.Tx, ids []pipeline.ID) (map[pipeline.ID]*Item, error) {
	return load(tx, texts(ids), false)
}

func texts(ids []pipeline.ID) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = string(id)
	}
	return out
}

// Sees tells whether the actor may know of items of a tenant.
func (c *Items) Sees(who Actor, tenant string) bool { return c.roles.sees(who, tenant) }

// Intent says what is about to be sent: one row for a window of items, written before the first of them is.
type Intent struct {
	ID       string // empty: made here
	Tenant   string
	Manifest pipeline.Digest
	Run      string
	Lease    ledger.Lease
	FromN    int64 // numbers in the manifest, inclusive
	ToN      int64
	Offsets  map[pipeline.TP]int64 // end offsets of the destination before the first send: a successor scans from here
}

// Accept says which marks the approval of a manifest has accepted.
type Accept struct {
	Unconfirmed bool // unconfirmed: accepted
	SameEvent   bool
	Rebuilt     bool
}

// Intend writes the intent and brings the items that may go to REDRIVING under the manifest, each with its next try. INV-INTENT:
// nothing is sent whose intent is not durable, so call the send only after the transaction has committed. Items that may
// not go are skipped with a code. Codes: ERR_REDRIVE_STATE (the lease is lost), ERR_LEDGER_*.
func (c *Items) Intend(tx *ledger.Tx, who Actor, in *Intent, ids []pipeline.ID, accept Accept) (ready []*Item, skips []Skip, err error) {
	items, err := c.Lock(tx, ids)
	if err != nil {
		return nil, nil, err
	}
	var go_ []*Item
	for _, id := range ids {
		it := items[id]
		if it == nil {
			skips = append(skips, Skip{Item: id, Code: pipeline.CodeItemUnknown, Text: "there is no such item"})
			continue
		}
		delete(items, id) // named twice: sent once
		if code := redrivable(it, in, accept); code != "" {
			skips = append(skips, Skip{id, it.State, code, pipeline.Lookup(code).Text})
			continue
		}
		go_ = append(go_, it)
	}
	moved, more, err := c.moveBy(tx, who, go_, func(it *Item) change {
		from, try := it.State, it.Try+1
		return change{ev: Redrive, event: string(from) + strconv.Itoa(int(try)), cols: []string{"redrive", "redrive_try", "sent_from"}, args: []any{in.Manifest, try, string(from)},
			detail: map[string]string{"redrive": string(in.Manifest), "run": in.Run, "try": strconv.Itoa(int(try))},
			keep:   func(it *Item) { it.Redrive, it.Try, it.SentFrom = in.Manifest, try, from }}
	})
	if err != nil {
		return nil, nil, err
	}
	skips = append(skips, more...)
	if in.Lease.Name != "" { // after the items, which take longest: what it locks, others of this holder want too
		if err := tx.Held(in.Lease); err != nil {
			return nil, nil, err
		}
	}
	if in.ID == "" {
		in.ID = randomID("n")
	}
	offsets, _ := json.Marshal(offsetTexts(in.Offsets))
	_, err = tx.Exec(`INSERT INTO intents (id, tenant, manifest, run, lease, epoch, from_n, to_n, items, state, offsets, written_ms, closed_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'open', ?, ?, 0)`,
		in.ID, in.Tenant, in.Manifest, in.Run, in.Lease.Name, in.Lease.Epoch, in.FromN, in.ToN, len(moved), string(offsets), tx.NowMS())
	if err != nil {
		return nil, nil, err
	}
	return moved, skips, nil // the intent's numbers and the items' state say which rows are on their way
}

func redrivable(it *Item, in *Intent, a Accept) pipeline.Code {
	as := *it
	if a.SameEvent {
		as.Flags &^= FlagSameEvent
	}
	if a.Rebuilt {
		as.Flags &^= FlagRebuilt
	}
	if a.Unconfirmed {
		as.Confirmed = IsConfirmed
	}
	if in.Tenant != "" && it.Tenant != in.Tenant {
		return pipeline.CodeRedriveTenant
	}
	return as.Redrivable()
}

func offsetTexts(m map[pipeline.TP]int64) map[string]string {
	out := make(map[string]string, len(m))
	for tp, n := range m {
		out[tp.String()] = strconv.FormatInt(n, 10)
	}
	return out
}

// Values of manifest_items.watched: the rows that a run looks for; 0 is every other.
const (
	WatchedForwarded = 1 // the retry lane has settled it, and its effect is asked about
	WatchedFailed    = 2 // it could not be sent, or failed again
)

// SentAt is where an item of a manifest was written.
type SentAt struct {
	N    int64 // its number in the manifest
	Item pipeline.ID
	At   pipeline.Position
}

// Sent notes where the acknowledged items of a window stand: all of them, or none and ERR_MANIFEST_DIGEST. They stay REDRIVING; an
// outcome that was faster than we are is kept. Rows are found by their numbers: a window's lie close together, and a range of the
// primary key is read however little a server knows yet about a manifest that was stored a moment ago.
func (c *Items) Sent(tx *ledger.Tx, manifest pipeline.Digest, tenant string, list []SentAt) error {
	if len(list) == 0 {
		return nil
	}
	const set = "UPDATE manifest_items SET state = CASE WHEN state IN ('planned', 'sending') THEN 'sent' ELSE state END, sent_ms = ?, attempts = attempts + 1, "
	noted := int64(0)
	if tx.Dialect() == ledger.Postgres { // one statement for the window: a round trip for each item would be the pace
		n := len(list)
		numbers, topics, partitions, offsets := make([]int64, n), make([]string, n), make([]int32, n), make([]int64, n)
		for i, s := range list {
			numbers[i], topics[i], partitions[i], offsets[i] = s.N, s.At.Topic, s.At.Partition, s.At.Offset
		}
		var err error
		if noted, err = tx.Exec(set+`sent_topic = v.topic, sent_partition = v.part, sent_offset = v.off
			FROM unnest(?::bigint[], ?::text[], ?::int[], ?::bigint[]) AS v(n, topic, part, off)
			WHERE manifest = ? AND tenant = ? AND manifest_items.n BETWEEN ? AND ? AND manifest_items.n = v.n`,
			tx.NowMS(), numbers, topics, partitions, offsets, manifest, tenant, slices.Min(numbers), slices.Max(numbers)); err != nil {
			return err
		}
	} else {
		for _, s := range list {
			n, err := tx.Exec(set+"sent_topic = ?, sent_partition = ?, sent_offset = ? WHERE manifest = ? AND tenant = ? AND n = ?",
				tx.NowMS(), s.At.Topic, s.At.Partition, s.At.Offset, manifest, tenant, s.N)
			if err != nil {
				return err
			}
			noted += n
		}
	}
	if noted != int64(len(list)) {
		return pipeline.Errorf(pipeline.CodeManifestDigest, string(manifest), "%d of %d items that were sent are not in it", int64(len(list))-noted, len(list))
	}
	return nil
}

// CloseIntent ends an intent: sent, withdrawn or failed.
func (c *Items) CloseIntent(tx *ledger.Tx, intent, state string) error {
	_, err := tx.Exec("UPDATE intents SET state = ?, closed_ms = ? WHERE id = ?", state, tx.NowMS(), intent)
	return err
}

// Withdraw brings items that are proven unsent back to where they came from; the try is taken back too. Items that are not
// REDRIVING under this manifest are skipped.
func (c *Items) Withdraw(tx *ledger.Tx, who Actor, manifest pipeline.Digest, ids []pipeline.ID, why string) (moved []*Item, skips []Skip, err error) {
	mine, skips, err := c.ofManifest(tx, manifest, ids)
	if err != nil {
		return nil, nil, err
	}
	moved, more, err := c.moveBy(tx, who, mine, func(it *Item) change {
		ch := change{ev: WithdrawTriaged, event: strconv.Itoa(int(it.Try)), cols: []string{"sent_from", "redrive_try"}, args: []any{"", max(0, int(it.Try)-1)}, detail: map[string]string{"redrive": string(manifest), "why": why},
			keep: func(it *Item) { it.SentFrom, it.Try = None, uint16(max(0, int(it.Try)-1)) }}
		if it.SentFrom == Repaired {
			ch.ev = WithdrawRepaired
		}
		return ch
	})
	if err != nil {
		return nil, nil, err
	}
	return moved, append(skips, more...), c.manifestItems(tx, moved, "withdrawn", "")
}

// FailRedrive says that items of a manifest cannot be sent for good: REDRIVE_FAILED, then TRIAGED with their ticket.
func (c *Items) FailRedrive(tx *ledger.Tx, who Actor, manifest pipeline.Digest, ids []pipeline.ID, code pipeline.Code, detail func(pipeline.ID) map[string]string) ([]Skip, error) {
	mine, skips, err := c.ofManifest(tx, manifest, ids)
	if err != nil {
		return nil, err
	}
	return skips, c.failRedrive(tx, who, mine, code, func(it *Item) map[string]string {
		d := map[string]string{"redrive": string(manifest), "code": string(code)}
		maps.Copy(d, detail(it.ID))
		return d
	})
}

// Reconciled closes redriven items on the evidence of each: the answers of a reconcile question.
func (c *Items) Reconciled(tx *ledger.Tx, who Actor, manifest pipeline.Digest, ids []pipeline.ID, result pipeline.Result, evidence func(pipeline.ID) string) ([]Skip, error) {
	mine, skips, err := c.ofManifest(tx, manifest, ids)
	if err != nil {
		return nil, err
	}
	moved, more, err := c.move(tx, who, mine, change{ev: Reconcile, cols: []string{"resolution"}, args: []any{string(result)},
		detail: map[string]string{"redrive": string(manifest), "result": string(result)}, each: func(it *Item) map[string]string { return map[string]string{"evidence": evidence(it.ID)} },
		keep: func(it *Item) { it.Resolution = string(result) }})
	if err != nil {
		return nil, err
	}
	return append(skips, more...), c.manifestItems(tx, moved, "reconciled", "")
}

// ResolveTx settles items that a manifest names and does not send, because their effect or a newer one is there: TRIAGED or REPAIRED
// -> RECONCILED, with the evidence of each. Items in another state are skipped.
func (c *Items) ResolveTx(tx *ledger.Tx, who Actor, ids []pipeline.ID, resolution string, manifest pipeline.Digest, evidence func(pipeline.ID) string) ([]Skip, error) {
	items, err := c.Lock(tx, ids)
	if err != nil {
		return nil, err
	}
	var list []*Item
	var skips []Skip
	for _, id := range ids {
		if it := items[id]; it != nil {
			list = append(list, it)
		} else {
			skips = append(skips, Skip{Item: id, Code: pipeline.CodeItemUnknown, Text: "there is no such item"})
		}
	}
	_, more, err := c.move(tx, who, list, change{ev: Resolve, cols: []string{"resolution"}, args: []any{resolution},
		detail: map[string]string{"resolution": resolution, "manifest": string(manifest)}, each: func(it *Item) map[string]string { return map[string]string{"evidence": evidence(it.ID)} },
		keep: func(it *Item) { it.Resolution = resolution }})
	return append(skips, more...), err
}

// ofManifest are the items that are REDRIVING under a manifest; the others are skipped.
func (c *Items) ofManifest(tx *ledger.Tx, manifest pipeline.Digest, ids []pipeline.ID) (mine []*Item, skips []Skip, err error) {
	items, err := c.Lock(tx, ids)
	if err != nil {
		return nil, nil, err
	}
	for _, id := range ids {
		it := items[id]
		switch {
		case it == nil:
			skips = append(skips, Skip{Item: id, Code: pipeline.CodeItemUnknown, Text: "there is no such item"})
		case it.State != Redriving || it.Redrive != manifest:
			skips = append(skips, Skip{id, it.State, pipeline.CodeStateInvalid, "it is not being redriven by this manifest"})
		default:
			mine = append(mine, it)
		}
	}
	return mine, skips, nil
}

// StoredRepair is the lineage of one repair: from which bytes, by what, to which bytes. N counts from 1 for each item.
type StoredRepair struct {
	ID           string
	Item         pipeline.ID
	Tenant       string
	N            int
	Transform    string // name
	Version      string
	Artifact     pipeline.Digest // of the code
	ConfigDigest pipeline.Digest
	Config       string
	Before       pipeline.Digest // keyed, of the faithful value
	After        pipeline.Digest // keyed, of the repaired value
	AtMS         int64
	By           string
	Report       string
	Faithful     bool   // made from faithful bytes
	NewIdentity  string // declared intent of a new logical id; empty: identity is kept
}

// NewRepair is a repair to be stored, with the bytes that it made.
type NewRepair struct {
	StoredRepair
	Bytes Bytes
}

// StoreRepairs keeps repairs and brings their items TRIAGED -> REPAIRED; a repaired item may be repaired anew (it is
// brought back to TRIAGED first). Digests After are made here. Repairs always start from the original bytes, so a second
// repair does not build on the first. The payload is sealed when the item's is, or when redaction changed it. Codes: ERR_SEAL_FAILED, ERR_LEDGER_*.
func (c *Items) StoreRepairs(tx *ledger.Tx, who Actor, list []NewRepair) (stored []*StoredRepair, skips []Skip, err error) {
	ids := make([]pipeline.ID, len(list))
	for i := range list {
		ids[i] = list[i].Item
	}
	items, err := c.Lock(tx, ids)
	if err != nil {
		return nil, nil, err
	}
	for len(list) > 0 { // an item that is named again is repaired anew: after what was stored of it
		n, named := 0, map[pipeline.ID]bool{}
		for n < len(list) && !named[list[n].Item] {
			named[list[n].Item] = true
			n++
		}
		done, not, err := c.storeRepairs(tx, who, items, list[:n])
		if err != nil {
			return nil, nil, err
		}
		stored, skips, list = append(stored, done...), append(skips, not...), list[n:]
	}
	return stored, skips, nil
}

// storeRepairs is StoreRepairs for locked items, each named once: a few statements for all of them.
func (c *Items) storeRepairs(tx *ledger.Tx, who Actor, items map[pipeline.ID]*Item, list []NewRepair) (stored []*StoredRepair, skips []Skip, err error) {
	var again, may []*Item
	of := make(map[pipeline.ID]*NewRepair, len(list))
	for i := range list {
		it := items[list[i].Item]
		if it == nil {
			skips = append(skips, Skip{Item: list[i].Item, Code: pipeline.CodeItemUnknown, Text: "there is no such item"})
			continue
		}
		if it.State == Repaired {
			again = append(again, it)
		} else if _, err := Next(it.State, Repair); err != nil {
			skips = append(skips, Skip{it.ID, it.State, pipeline.CodeOf(err), err.(*pipeline.Error).Text})
			continue
		}
		of[it.ID], may = &list[i], append(may, it)
	}
	if len(may) == 0 {
		return nil, skips, nil
	}
	if _, _, err := c.move(tx, who, again, change{ev: Unrepair, detail: map[string]string{"reason": "repaired anew"}}); err != nil {
		return nil, nil, err
	}
	last := map[pipeline.ID]int{}
	in, arg := tx.In("item", itemTexts(may))
	if err := tx.Each("SELECT item, max(n) FROM repairs WHERE "+in+" GROUP BY item", []any{arg}, func(scan func(...any) error) error {
		var id pipeline.ID
		var n int
		err := scan(&id, &n)
		last[id] = n
		return err
	}); err != nil {
		return nil, nil, err
	}
	var rows, payloads [][]any
	for _, it := range may {
		r := of[it.ID]
		s := &r.StoredRepair
		s.ID, s.Tenant, s.N, s.AtMS, s.By = randomID("x"), it.Tenant, last[it.ID]+1, tx.NowMS(), who.Subject
		s.After = pipeline.Digest(c.id.Digest(r.Bytes.Value))
		payload := []any{s.ID, it.ID, it.Tenant, r.Bytes.Key, r.Bytes.Value, packHeaders(r.Bytes.Headers), ""}
		sealed, enc, plain, err := c.sealRepair(it, s.ID, r.Bytes)
		if err != nil {
			return nil, nil, err
		}
		if !plain {
			payload = []any{s.ID, it.ID, it.Tenant, nil, sealed, packHeaders(nil), enc} // key and headers are in it
		}
		rows = append(rows, []any{s.ID, it.ID, it.Tenant, s.N, s.Transform, s.Version, s.Artifact, s.ConfigDigest, s.Config, s.Before, s.After, s.AtMS, s.By, s.Report, s.Faithful, s.NewIdentity})
		payloads, stored = append(payloads, payload), append(stored, s)
	}
	if err := tx.Insert("repairs", []string{"id", "item", "tenant", "n", "transform", "version", "artifact", "config_digest", "config", "before_digest", "after_digest", "at_ms", "actor", "report", "faithful", "new_identity"}, rows); err != nil {
		return nil, nil, err
	}
	if err := tx.Insert("repair_payloads", []string{"repair", "item", "tenant", "record_key", "value", "headers", "enc"}, payloads); err != nil {
		return nil, nil, err
	}
	_, _, err = c.move(tx, who, may, change{ev: Repair, own: "repair", ownOf: func(it *Item) string { return of[it.ID].ID }, keep: func(it *Item) { it.Repair = of[it.ID].ID },
		each: func(it *Item) map[string]string {
			s := &of[it.ID].StoredRepair
			return map[string]string{"repair": s.ID, "transform": s.Transform + "@" + s.Version, "artifact": string(s.Artifact), "config": string(s.ConfigDigest), "before": string(s.Before), "after": string(s.After)}
		}})
	return stored, skips, err
}

// RepairedBytes are the bytes of the repair that the item would be redriven with; their keyed digest is verified. Codes:
// ERR_PAYLOAD_MISSING (it has no repair, or its bytes are gone), ERR_LEDGER_CORRUPT, ERR_KEY_UNKNOWN.
func (c *Items) RepairedBytes(tx *ledger.Tx, it *Item) (Bytes, *StoredRepair, error) {
	missing := pipeline.Errorf(pipeline.CodePayloadMissing, string(it.ID), "it has no repair that could be sent")
	if it.Repair == "" {
		return Bytes{}, nil, missing
	}
	all, err := readRepairs(tx, it.ID)
	if err != nil {
		return Bytes{}, nil, err
	}
	for i := range all {
		if all[i].ID != it.Repair {
			continue
		}
		b := Bytes{TimeMS: it.OriginalMS, TimeType: it.TimeType}
		var headers []byte
		var enc string
		found, err := tx.Row("SELECT record_key, value, headers, enc FROM repair_payloads WHERE repair = ?", []any{it.Repair}, &b.Key, &b.Value, &headers, &enc)
		if err != nil {
			return Bytes{}, nil, err
		}
		if !found {
			return Bytes{}, nil, missing
		}
		if enc != "" {
			b, err = c.openRecord(it, it.Tenant, enc, b.Value, []byte(it.Repair))
		} else {
			b.Headers, err = unpackHeaders(headers)
		}
		if err != nil {
			return Bytes{}, nil, err
		}
		if got := pipeline.Digest(c.id.Digest(b.Value)); got != all[i].After {
			return Bytes{}, nil, pipeline.Errorf(pipeline.CodeLedgerCorrupt, string(it.ID), "the repaired bytes are not those of repair %s", it.Repair)
		}
		return b, &all[i], nil
	}
	return Bytes{}, nil, missing
}

func readRepairs(tx *ledger.Tx, id pipeline.ID) (out []StoredRepair, err error) {
	err = tx.Each("SELECT id, item, tenant, n, transform, version, artifact, config_digest, config, before_digest, after_digest, at_ms, actor, report, faithful, new_identity FROM repairs WHERE item = ? ORDER BY n", []any{id},
		func(scan func(...any) error) error {
			var r StoredRepair
			var faithful int64
			err := scan(&r.ID, &r.Item, &r.Tenant, &r.N, &r.Transform, &r.Version, &r.Artifact, &r.ConfigDigest, &r.Config, &r.Before, &r.After, &r.AtMS, &r.By, &r.Report, &faithful, &r.NewIdentity)
			r.Faithful = faithful == 1
			out = append(out, r)
			return err
		})
	return out, err
}

// CheckTx refuses what the actor may not do, without writing the refusal: for use inside a transaction, whose caller passes
// the error on to Refused when it has ended.
func (c *Items) CheckTx(who Actor, p Permission, tenant string) error {
	return c.roles.check(who, p, tenant)
}

// Refused writes a refusal of rights into the history and returns it; other errors it returns as they are.
func (c *Items) Refused(ctx context.Context, who Actor, action string, item pipeline.ID, tenant string, err error) error {
	return c.refused(ctx, who, action, string(item), tenant, err)
}
