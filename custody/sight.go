package custody

import (
	"strconv"
	"strings"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
)

func columnList(s string) []string {
	cols := strings.Split(s, ",")
	for i := range cols {
		cols[i] = strings.TrimSpace(cols[i])
	}
	return cols
}

// sighting is one more arrival of an item that is known.
type sighting struct {
	it *Item
	a  *Arrival
}

// eventUnvaulted in an item's history: a later letter says that the vault topic did not take its bytes.
const eventUnvaulted = "unvaulted"

// seeAgain records arrivals of known items. A message that was counted before changes nothing: INV-ADMIT-ONCE.
func (c *Items) seeAgain(tx *ledger.Tx, who Actor, list []sighting, sum *Admitted) error {
	if len(list) == 0 {
		return nil
	}
	type mark struct {
		item   pipeline.ID
		stands pipeline.Position
	}
	ids := make([]string, len(list))
	for i, s := range list {
		ids[i] = string(s.it.ID)
	}
	seen := map[mark]bool{}
	in, arg := tx.In("item", ids)
	err := tx.Each("SELECT item, topic, partition, letter_offset FROM sightings WHERE "+in, []any{arg}, func(scan func(...any) error) error {
		var m mark
		if err := scan(&m.item, &m.stands.Topic, &m.stands.Partition, &m.stands.Offset); err != nil {
			return err
		}
		seen[m] = true
		return nil
	})
	if err != nil {
		return err
	}
	for _, s := range list {
		m := mark{s.it.ID, s.a.Stands}
		if s.it.Letter == s.a.Stands || seen[m] {
			sum.Repeated++
			continue
		}
		if c.stranger(s) {
			if err := c.keepStranger(tx, who, s); err != nil {
				return err
			}
			continue
		}
		seen[m] = true
		sum.Seen++
		if err := c.see(tx, who, s, sum); err != nil {
			return err
		}
	}
	return nil
}

// stranger tells whether a letter that somebody else than a pipeline of ours wrote names another tenant than its item: a quarantine id
// that was made of a position does not say whose it is, and who hands over a record of theirs must not touch what is not. A pipeline may
// read the tenant in one pass and not in another.
func (c *Items) stranger(s sighting) bool {
	l := s.a.Letter
	return l.Decision.Policy == "" && l.Kind != deadletter.KindParked && tenantOf(l) != s.it.Tenant
}

// keepStranger keeps such a letter as a message of its own tenant, and says in the item's history that it came. The item stays as it is.
func (c *Items) keepStranger(tx *ledger.Tx, who Actor, s sighting) error {
	l := s.a.Letter
	if err := keepRaw(tx, s.a.Cluster, s.a.Stands, tenantOf(l), s.a.TimeMS, pipeline.CodeCustodyConflict, "the record was taken into custody for another tenant", l.Key, l.Value, l.Headers); err != nil {
		return err
	}
	tx.Append(ledger.Entry{Tenant: s.it.Tenant, Item: string(s.it.ID), Event: "conflict", Actor: who.Subject, Detail: map[string]string{"letter": s.a.Stands.String(), "tenant": "another"}})
	return nil
}

func (c *Items) see(tx *ledger.Tx, who Actor, s sighting, sum *Admitted) error {
	it, l := s.it, s.a.Letter
	at := l.At
	if at.Topic == "" || at.Offset < 0 {
		at = it.At
	}
	atMS := l.QuarantinedMS
	if atMS <= 0 {
		atMS = s.a.TimeMS
	}
	if _, err := tx.Exec(`INSERT INTO sightings (item, tenant, topic, partition, letter_offset, at_topic, at_partition, at_offset, at_ms, code, release, redrive, redrive_try)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, it.ID, it.Tenant, s.a.Stands.Topic, s.a.Stands.Partition, s.a.Stands.Offset,
		at.Topic, at.Partition, at.Offset, atMS, l.Failure.Code, ledger.Cut(l.Identity.Release, maxName), l.Redrive, l.Try); err != nil {
		return err
	}
	for _, row := range appendAttempts(nil, it, l) {
		if _, err := tx.Exec("INSERT INTO attempts (item, tenant, redrive_try, n, at_ms, code) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (item, redrive_try, n) DO NOTHING", row...); err != nil {
			return err
		}
	}
	flags := it.Flags
	if it.State == Reconciled && atMS > it.ChangedMS {
		flags |= FlagContested // it is said to be done, and failed again after that
	}
	if l.Redrive == "" && l.DigestFaithful != "" && it.DigestFaithful != "" && l.DigestFaithful != it.DigestFaithful {
		flags |= FlagConflict
		if err := keepRaw(tx, s.a.Cluster, s.a.Stands, it.Tenant, atMS, pipeline.CodeCustodyConflict, "other bytes under the id "+string(it.ID), l.Key, l.Value, l.Headers); err != nil {
			return err
		}
		tx.Append(ledger.Entry{Tenant: it.Tenant, Item: string(it.ID), Event: "conflict", Actor: who.Subject, Detail: map[string]string{"letter": s.a.Stands.String()}})
	}
	if it.Faithful == deadletter.Vault && l.Faithful == deadletter.Source && l.Dialect == deadletter.Reprieve && !l.Forged {
		// The vault topic refused what the letter before this one promises: its bytes are in the source alone.
		tx.Append(ledger.Entry{Tenant: it.Tenant, Item: string(it.ID), Event: eventUnvaulted, Actor: who.Subject, Detail: map[string]string{"letter": s.a.Stands.String()}})
	}
	it.Sightings++
	it.LastSeenMS = max(it.LastSeenMS, atMS)
	it.Flags = flags
	if _, err := tx.Exec("UPDATE items SET sightings = ?, last_seen_ms = ?, flags = ?, rev = rev + 1 WHERE id = ?", it.Sightings, it.LastSeenMS, int64(it.Flags), it.ID); err != nil {
		return err
	}
	it.Rev++
	switch {
	case it.State == Parked && l.Kind != deadletter.KindParked:
		return c.unpark(tx, who, s)
	case it.State == Redriving && l.Redrive == it.Redrive && l.Try == it.Try && l.Redrive != "":
		sum.Failed++
		return c.cameBack(tx, who, s, at)
	}
	return nil
}

// unpark: a record that waited behind a blocked key failed when its turn came. Only now it has a cause.
func (c *Items) unpark(tx *ledger.Tx, who Actor, s sighting) error {
	n := c.newItem(s.it.ID, s.a, tx.NowMS(), s.it.PayloadWeek)
	if err := regroupNew(tx, []*Item{n}); err != nil {
		return err
	}
	it := s.it
	ch := change{ev: DeadLetter,
		cols: []string{"kind", "class", "code", "fingerprint", "stage", "schema_ref", "policy", "reason", "reason_raw", "exception", "attempts",
			"letter_topic", "letter_partition", "letter_offset", "quarantined_ms", "confirmed", "data_class", "keep_ms", "group_key"},
		args: []any{string(n.Kind), n.Class.String(), n.Code, n.Fingerprint, n.Stage, n.Schema, packDigest(n.Policy), n.Reason, n.ReasonRaw, n.Exception, n.Attempts,
			n.Letter.Topic, n.Letter.Partition, n.Letter.Offset, n.QuarantinedMS, int64(Unconfirmed), textOrNull(n.Data), orNull(n.KeepMS), nil},
	}
	if n.Regrouped != "" {
		ch.args[len(ch.args)-1] = string(n.Regrouped)
	}
	// Counted away under the old cause, and here under the new one.
	tx.Count(it.Tenant, string(it.Group()), string(it.State), it.Owner, it.QuarantinedMS, -1)
	to, err := Next(it.State, DeadLetter)
	if err != nil {
		return err
	}
	if err := c.update(tx, []*Item{it}, it.State, append([]string{"state"}, ch.cols...), append([]any{string(to)}, ch.args...)); err != nil {
		return err
	}
	from := it.State
	it.State, it.Kind, it.Class, it.Code, it.Fingerprint, it.Stage, it.Schema, it.Policy = to, n.Kind, n.Class, n.Code, n.Fingerprint, n.Stage, n.Schema, n.Policy
	it.Reason, it.ReasonRaw, it.Exception, it.Attempts, it.Letter, it.QuarantinedMS, it.Confirmed = n.Reason, n.ReasonRaw, n.Exception, n.Attempts, n.Letter, n.QuarantinedMS, Unconfirmed
	it.Regrouped, it.Data, it.KeepMS = n.Regrouped, n.Data, n.KeepMS
	tx.Count(it.Tenant, string(it.Group()), string(it.State), it.Owner, it.QuarantinedMS, 1)
	tx.Append(ledger.Entry{Tenant: it.Tenant, Item: string(it.ID), Event: string(DeadLetter), From: string(from), To: string(to), AtMS: it.QuarantinedMS, Actor: who.Subject, Evidence: it.evidence()})
	return c.countGroups(tx, []*Item{it})
}

// cameBack: the redriven record failed again. REDRIVE_FAILED and TRIAGED follow each other; ticket and owner stay.
func (c *Items) cameBack(tx *ledger.Tx, who Actor, s sighting, at pipeline.Position) error {
	l := s.a.Letter
	detail := map[string]string{"code": string(l.Failure.Code), "letter": s.a.Stands.String(), "redrive": string(l.Redrive), "try": strconv.Itoa(int(l.Try)), "attempts": strconv.Itoa(int(l.Decision.Attempt))}
	if err := c.failRedrive(tx, who, []*Item{s.it}, l.Failure.Code, func(*Item) map[string]string { return detail }); err != nil {
		return err
	}
	return c.standsAt(tx, s.it, at)
}

// standsAt says where the last pass read the item: the next settlement of that partition confirms it.
func (c *Items) standsAt(tx *ledger.Tx, it *Item, at pipeline.Position) error {
	it.At, it.Confirmed = at, Unconfirmed
	if err := c.confirm(tx, []*Item{it}, nil, Actor{}); err != nil {
		return err
	}
	if at == it.Original {
		at = pipeline.Position{}
	}
	_, err := tx.Exec("UPDATE items SET at_topic = ?, at_partition = ?, at_offset = ?, confirmed = ? WHERE id = ?", at.Topic, at.Partition, at.Offset, int64(it.Confirmed), it.ID)
	return err
}

// failRedrive brings REDRIVING items over REDRIVE_FAILED to TRIAGED and says so in their manifest.
func (c *Items) failRedrive(tx *ledger.Tx, who Actor, items []*Item, code pipeline.Code, each func(*Item) map[string]string) error {
	moved, _, err := c.move(tx, who, items, change{ev: Fail, each: each})
	if err != nil {
		return err
	}
	if _, _, err := c.move(tx, who, moved, change{ev: Return, cols: []string{"sent_from"}, args: []any{""}, keep: func(it *Item) { it.SentFrom = None }}); err != nil {
		return err
	}
	return c.manifestItems(tx, moved, "failed", code)
}

// manifestItems writes what became of items into the rows of the manifest that sent them. What a run looks for among them is marked: an
// index over the state would be written to for every change of it.
func (c *Items) manifestItems(tx *ledger.Tx, items []*Item, state string, code pipeline.Code) error {
	watched := map[string]int{"forwarded": WatchedForwarded, "failed": WatchedFailed}[state]
	by := map[pipeline.Digest][]string{}
	for _, it := range items {
		if it.Redrive != "" {
			by[it.Redrive] = append(by[it.Redrive], string(it.ID))
		}
	}
	for manifest, ids := range by {
		in, arg := tx.In("item", ids)
		if _, err := tx.Exec("UPDATE manifest_items SET state = ?, code = ?, watched = ? WHERE manifest = ? AND "+in, state, code, watched, manifest, arg); err != nil {
			return err
		}
	}
	return nil
}

// keepRaw keeps a message that is no item, or not the one it says, with all its bytes.
func keepRaw(tx *ledger.Tx, cluster string, at pipeline.Position, tenant string, atMS int64, code pipeline.Code, reason string, key, value []byte, headers []pipeline.Header) error {
	_, err := tx.Exec(`INSERT INTO raw_messages (cluster, topic, partition, message_offset, tenant, at_ms, code, reason, record_key, value, headers)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (cluster, topic, partition, message_offset) DO NOTHING`,
		cluster, at.Topic, at.Partition, at.Offset, tenant, atMS, code, ledger.Cut(reason, maxReason), key, value, packHeaders(headers))
	return err
}
