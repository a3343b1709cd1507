package custody

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/seal"
)

// Limits of texts that are kept in an item.
const (
	maxReason = 512  // characters
	maxStack  = 2048 // characters
	maxName   = 1024 // characters of any identity field: more is a payload, not a name
)

// Arrival is one dead letter as it was read from its topic.
type Arrival struct {
	Letter  *deadletter.Letter
	Stands  pipeline.Position // of the message on the dead-letter topic
	TimeMS  int64             // of the message
	Cluster string            // of the dead-letter topic
	Rebuilt bool              // the ledger is being rebuilt: what persons did to the item is not known

	ready *readied
}

// readied is what follows from an arrival alone. The custodian computes it while the lot before is on its way to the ledger.
type readied struct {
	id      pipeline.ID
	headers []byte // packed
	digest  []byte // of the payload
	object  string // in the bucket, where the value is; "": it goes into the ledger
}

// ready computes it once; the letter must not change any more.
func (c *Items) ready(a *Arrival) *readied {
	if a.ready == nil {
		l := a.Letter
		headers := packHeaders(l.Headers)
		a.ready = &readied{id: c.itemID(a), headers: headers, digest: payloadDigest(c.id, l.Key, l.Value, headers)}
	}
	return a.ready
}

const dayMS = 24 * 60 * 60 * 1000

// Admitted counts what became of arrivals: New items, Seen again, Repeated (the same message once more: nothing changed).
type Admitted struct{ New, Seen, Repeated, Failed int }

// Admit takes custody of a batch in one transaction. It may be called again with the same arrivals, and then changes nothing.
// When it returns nil, every item is durable. It keeps neither letters nor their bytes. Codes: ERR_PERMISSION_DENIED,
// ERR_LEDGER_* (nothing was written). Cost: about 100 us an item, less in batches of 500.
func (c *Items) Admit(ctx context.Context, who Actor, arrivals []Arrival) (Admitted, error) {
	if err := c.CheckWhole(ctx, who, PermQuarantine); err != nil {
		return Admitted{}, err
	}
	if err := c.putAside(ctx, arrivals); err != nil {
		return Admitted{}, err
	}
	var sum Admitted
	err := c.db.Write(ctx, func(tx *ledger.Tx) (err error) {
		sum, err = c.AdmitTx(tx, who, arrivals)
		return err
	})
	return sum, err
}

// AdmitTx is Admit inside a transaction of the caller, who has checked the permission.
func (c *Items) AdmitTx(tx *ledger.Tx, who Actor, arrivals []Arrival) (Admitted, error) {
	var sum Admitted
	if len(arrivals) == 0 {
		return sum, nil
	}
	// Two custodians that meet the same item follow each other here: the second finds what the first wrote.
	if err := tx.Lock("admit"); err != nil {
		return sum, err
	}
	ids := make([]string, len(arrivals))
	for i := range arrivals {
		ids[i] = string(c.ready(&arrivals[i]).id)
	}
	known, err := load(tx, ids, true)
	if err != nil {
		return sum, err
	}
	a := admission{c: c, tx: tx, who: who, week: ledger.Week(tx.NowMS())}
	fresh, again := apart(arrivals, ids, known)
	sum.New = len(fresh)
	if err := a.admit(fresh); err != nil {
		return sum, err
	}
	for i, f := range fresh {
		known[f.id] = a.items[i]
	}
	list := make([]sighting, len(again))
	for i, g := range again {
		list[i] = sighting{known[g.id], g.arrival}
	}
	return sum, c.seeAgain(tx, who, list, &sum)
}

// arriving is an arrival with the id of its item.
type arriving struct {
	id      pipeline.ID
	arrival *Arrival
}

// apart tells arrivals of new items, the first of each, from those that were seen before.
func apart(arrivals []Arrival, ids []string, known map[pipeline.ID]*Item) (fresh, again []arriving) {
	first := map[pipeline.ID]bool{}
	for i := range arrivals {
		a := arriving{pipeline.ID(ids[i]), &arrivals[i]}
		if known[a.id] != nil || first[a.id] {
			again = append(again, a)
			continue
		}
		first[a.id] = true
		fresh = append(fresh, a)
	}
	return fresh, again
}

// itemID is the signed id of the letter, else made of what it says about itself (CONTRACTS 2).
func (c *Items) itemID(a *Arrival) pipeline.ID {
	l := a.Letter
	if l.Item != "" {
		return l.Item
	}
	at, cluster := l.Original, l.Cluster
	if at.Offset < 0 {
		at, cluster = a.Stands, a.Cluster // nothing is known but where the letter stands
	}
	id := l.Identity
	id.Tenant = tenantOf(l)
	return deadletter.QuarantineID(c.id, id, cluster, at, l.Value)
}

func tenantOf(l *deadletter.Letter) string {
	if l.Identity.Tenant == "" {
		return pipeline.TenantUnassigned
	}
	return ledger.Cut(l.Identity.Tenant, maxName)
}

// admission gathers the rows of new items, so that each table is written once, in the order of their ids: the ids are as good as random,
// and an index that takes 500 of them in order walks through its pages once.
type admission struct {
	c     *Items
	tx    *ledger.Tx
	who   Actor
	week  int64
	items []*Item

	attempts, stacks [][]any
	history          []ledger.Entry
}

// admit writes new items. Their payloads go to the store while the rest is computed.
func (a *admission) admit(fresh []arriving) error {
	if len(fresh) == 0 {
		return nil
	}
	if err := a.tx.PayloadWeek(a.week); err != nil {
		return err
	}
	payloads := make([][]any, len(fresh))
	for i, f := range slices.SortedFunc(slices.Values(fresh), func(x, y arriving) int { return cmp.Compare(x.id, y.id) }) {
		payloads[i] = f.arrival.payloadRow(a.week)
	}
	wait := a.tx.InsertBeside("payloads", []string{"item", "week", "tenant", "record_key", "value", "headers", "object", "object_bytes"}, payloads)
	var err error
	for _, f := range fresh {
		if err = a.add(f.arrival); err != nil {
			break
		}
	}
	if werr := wait(); err == nil {
		err = werr
	}
	if err != nil {
		return err
	}
	return a.write()
}

// add makes a new item of a letter and its history so far: DELIVERED and RETRYING are back-filled from the signed attempts.
func (a *admission) add(ar *Arrival) error {
	it := a.c.newItem(ar.ready.id, ar, a.tx.NowMS(), a.week)
	it.PayloadDigest = ar.ready.digest
	it.Stack = a.stack(it.Tenant, ar.Letter.Stack)
	a.attempts = appendAttempts(a.attempts, it, ar.Letter)

	step := func(ev Event, atMS int64) error {
		to, err := Next(it.State, ev)
		if err != nil {
			return err
		}
		e := ledger.Entry{Tenant: it.Tenant, Item: string(it.ID), Event: string(ev), From: string(it.State), To: string(to), AtMS: atMS, Actor: a.who.Subject}
		it.State = to
		a.history = append(a.history, e)
		return nil
	}
	if it.Kind == deadletter.KindParked {
		if err := step(Park, it.QuarantinedMS); err != nil {
			return err
		}
		if b := ar.Letter.Behind; b != "" {
			a.history[len(a.history)-1].Detail = map[string]string{"behind": string(b)}
		}
	} else {
		delivered := it.OriginalMS
		if delivered <= 0 {
			delivered = it.QuarantinedMS
		}
		if err := step(Deliver, delivered); err != nil {
			return err
		}
		if n := len(ar.Letter.Attempts); it.Attempts > 0 && n > 0 {
			if err := step(Retry, ar.Letter.Attempts[0].At.UnixMilli()); err != nil {
				return err
			}
		}
		if err := step(DeadLetter, it.QuarantinedMS); err != nil {
			return err
		}
	}
	a.history[len(a.history)-1].Evidence = it.evidence()
	a.items = append(a.items, it)
	return nil
}

// newItem translates a letter. Texts are cut and cleaned here, so that the digest of the evidence is over what is stored.
func (c *Items) newItem(id pipeline.ID, ar *Arrival, nowMS, week int64) *Item {
	l := ar.Letter
	name := func(s string) string { return ledger.Cut(s, maxName) }
	it := &Item{
		ID: id, Kind: l.Kind, Dialect: l.Dialect, Pipeline: name(l.Pipeline), Cluster: name(l.Cluster),
		Identity: pipeline.Identity{Consumer: name(l.Identity.Consumer), Release: name(l.Identity.Release), Tenant: tenantOf(l), EventID: name(l.Identity.EventID),
			Entity: name(l.Identity.Entity), BusinessID: name(l.Identity.BusinessID), Token: name(l.Identity.Token), Version: name(l.Identity.Version)},
		Original: l.Original, OriginalMS: l.OriginalMS, TimeType: l.TimeType, Letter: ar.Stands,
		Class: l.Class, Code: l.Failure.Code, Fingerprint: l.Fingerprint, Stage: name(l.Failure.Stage), Schema: name(l.Schema), Policy: l.Decision.Policy,
		Exception: name(l.Exception), Attempts: int(l.Decision.Attempt), DigestFaithful: l.DigestFaithful, DigestRedacted: l.DigestRedacted,
		Faithful: l.Faithful, Enc: l.Enc, Generation: l.Generation, QuarantinedMS: l.QuarantinedMS, TakenMS: nowMS, PayloadWeek: week,
		Rev: 1, At: l.At, ChangedMS: nowMS, Sightings: 1, Redrive: l.Redrive, Try: l.Try,
	}
	if it.Kind == "" {
		it.Kind = deadletter.KindLetter
	}
	if it.Original.Offset < 0 {
		it.Original, it.Cluster = ar.Stands, ar.Cluster
	}
	it.Original.Topic = name(it.Original.Topic)
	if it.Data = name(l.Data); c.keep != nil {
		data, keep := c.keep(it)
		it.Data, it.KeepMS = name(data), keep.Milliseconds()
	}
	if c.owner != nil {
		it.Owner = name(c.owner(it))
	}
	if it.At.Topic == "" || it.At.Offset < 0 {
		it.At = it.Original
	}
	if it.QuarantinedMS <= 0 || it.QuarantinedMS > nowMS+dayMS { // a foreign letter's time is its producer's word
		it.QuarantinedMS = cmp.Or(min(max(ar.TimeMS, 0), nowMS), nowMS)
	}
	it.LastSeenMS = it.QuarantinedMS
	if it.Code == "" && it.Kind != deadletter.KindParked {
		it.Code = pipeline.CodeForeignFailure
	}
	if it.Class == pipeline.ClassNone && it.Code != "" {
		it.Class = pipeline.Lookup(it.Code).Class
	}
	if it.Fingerprint == "" {
		f := l.Failure
		f.Code = it.Code
		it.Fingerprint = deadletter.Fingerprint(it.Consumer, &f)
		if l.Dialect != deadletter.Reprieve && it.Exception != "" {
			// Somebody else's failures have one code in common: what their exception says tells them apart.
			class, message, place := cause(l)
			fields := [][]byte{[]byte("foreign"), []byte(it.Consumer), []byte(it.Stage), []byte(class), []byte(message)}
			if place != "" {
				fields = append(fields, []byte(place))
			}
			it.Fingerprint = pipeline.ID(seal.Fingerprint(fields...))
		}
	}
	reason := l.Reason
	if reason == "" {
		reason = l.Failure.Reason()
	}
	if it.Reason = ledger.Cut(reason, maxReason); ledger.Clean(reason) != reason {
		it.ReasonRaw = []byte(reason)
	}
	if it.Faithful == "" {
		it.Faithful = deadletter.Inline
	}
	// Bytes that redaction did not change have the keyed digest alone: a plain one of what is not redacted could be guessed.
	if it.Faithful == deadletter.Inline {
		it.DigestRedacted = ""
	} else if it.DigestRedacted == "" {
		it.DigestRedacted = pipeline.Digest(seal.SHA256(l.Value))
	}
	if it.DigestFaithful == "" && it.Faithful == deadletter.Inline {
		it.DigestFaithful = pipeline.Digest(c.id.Digest(l.Value))
	}
	switch {
	case l.Dialect == deadletter.Raw:
		it.Flags |= FlagRaw
		it.Confirmed = SourceUnknown
	case l.Dialect != deadletter.Reprieve && (it.Consumer == "" || l.Original.Offset < 0):
		it.Confirmed = SourceUnknown
	}
	if it.Exception == "" && it.Code != "" && it.Dialect == deadletter.Reprieve {
		it.Exception = ownException(it.Class, it.Code)
	}
	if l.Forged {
		it.Flags |= FlagForged
	}
	if ar.Rebuilt {
		it.Flags |= FlagRebuilt
	}
	return it
}

// stack keeps a stack once for all items that have it.
func (a *admission) stack(tenant, text string) string {
	if text == "" {
		return ""
	}
	text = ledger.Cut(text, maxStack)
	sum := sha256.Sum256([]byte(text))
	hash := hex.EncodeToString(sum[:12])
	a.stacks = append(a.stacks, []any{tenant, hash, text})
	return hash
}

func appendAttempts(rows [][]any, it *Item, l *deadletter.Letter) [][]any {
	seen := map[int]bool{}
	for _, at := range l.Attempts {
		if !seen[at.N] {
			seen[at.N] = true
			rows = append(rows, []any{it.ID, it.Tenant, l.Try, at.N, at.At.UnixMilli(), at.Code})
		}
	}
	return rows
}

func (a *admission) write() error {
	tx := a.tx
	if err := a.c.sameEvents(tx, a.who, a.items, &a.history); err != nil {
		return err
	}
	if err := a.c.confirmNew(tx, a.items, &a.history, a.who); err != nil {
		return err
	}
	if err := regroupNew(tx, a.items); err != nil {
		return err
	}
	if err := a.c.applyRules(tx, a.who, a.items, &a.history); err != nil {
		return err
	}
	rows := make([][]any, len(a.items))
	for i, it := range slices.SortedFunc(slices.Values(a.items), func(x, y *Item) int { return cmp.Compare(x.ID, y.ID) }) {
		rows[i] = it.row()
		tx.Count(it.Tenant, string(it.Group()), string(it.State), it.Owner, it.QuarantinedMS, 1)
	}
	if err := tx.Insert("items", columnList(itemColumns), rows); err != nil {
		return err
	}
	if err := insertAttempts(tx, a.attempts); err != nil {
		return err
	}
	if err := insertStacks(tx, a.stacks); err != nil {
		return err
	}
	slices.SortStableFunc(a.history, func(x, y ledger.Entry) int { return cmp.Compare(x.Item, y.Item) })
	for _, e := range a.history {
		tx.Append(e)
	}
	return a.c.countGroups(tx, a.items)
}

// insertAttempts is for new items, whose rows cannot be there yet.
func insertAttempts(tx *ledger.Tx, rows [][]any) error {
	return tx.Insert("attempts", []string{"item", "tenant", "redrive_try", "n", "at_ms", "code"}, rows)
}

func insertStacks(tx *ledger.Tx, rows [][]any) error {
	slices.SortFunc(rows, func(a, b []any) int {
		return cmp.Or(cmp.Compare(a[0].(string), b[0].(string)), cmp.Compare(a[1].(string), b[1].(string)))
	})
	for i, r := range rows {
		if i > 0 && r[0] == rows[i-1][0] && r[1] == rows[i-1][1] {
			continue
		}
		if _, err := tx.Exec("INSERT INTO stacks (tenant, hash, text) VALUES (?, ?, ?) ON CONFLICT (tenant, hash) DO NOTHING", r...); err != nil {
			return err
		}
	}
	return nil
}

// sameEvents links items with the same event id and other bytes: both are flagged and held out of bulk redrive.
func (c *Items) sameEvents(tx *ledger.Tx, who Actor, items []*Item, history *[]ledger.Entry) error {
	type key struct{ tenant, consumer string }
	wanted := map[key]map[string][]*Item{}
	for _, it := range items {
		if it.EventID == "" {
			continue
		}
		k := key{it.Tenant, it.Consumer}
		if wanted[k] == nil {
			wanted[k] = map[string][]*Item{}
		}
		wanted[k][it.EventID] = append(wanted[k][it.EventID], it)
	}
	link := func(it *Item, other string) {
		it.Flags |= FlagSameEvent
		*history = append(*history, ledger.Entry{Tenant: it.Tenant, Item: string(it.ID), Event: "same_event", Actor: who.Subject, Detail: map[string]string{"other": other}})
	}
	for k, events := range wanted {
		names := make([]string, 0, len(events))
		for e, its := range events {
			names = append(names, e)
			for i := range its[1:] {
				link(its[i], string(its[i+1].ID))
				link(its[i+1], string(its[i].ID))
			}
		}
		slices.Sort(names)
		in, arg := tx.In("event_id", names)
		var old []string
		err := tx.Each("SELECT id, event_id, flags FROM items WHERE tenant = ? AND consumer = ? AND event_id <> '' AND "+in+" ORDER BY id"+tx.ForUpdate(), []any{k.tenant, k.consumer, arg},
			func(scan func(...any) error) error {
				var id, event string
				var flags Flag
				if err := scan(&id, &event, &flags); err != nil {
					return err
				}
				for _, it := range events[event] {
					link(it, id)
				}
				if flags&FlagSameEvent == 0 {
					old = append(old, id)
					*history = append(*history, ledger.Entry{Tenant: k.tenant, Item: id, Event: "same_event", Actor: who.Subject, Detail: map[string]string{"other": string(events[event][0].ID)}})
				}
				return nil
			})
		if err != nil {
			return err
		}
		if len(old) == 0 {
			continue
		}
		in, arg = tx.In("id", old)
		if _, err := tx.Exec("UPDATE items SET flags = flags | "+strconv.Itoa(int(FlagSameEvent))+", rev = rev + 1, changed_ms = ? WHERE "+in, tx.NowMS(), arg); err != nil {
			return err
		}
	}
	return nil
}
