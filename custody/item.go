package custody

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/seal"
)

// Flag is a mark on an item that keeps it out of bulk redrive or tells how it came.
type Flag int64

// The flags.
const (
	FlagSameEvent Flag = 1 << iota // another item has the same event id with other bytes
	FlagRebuilt                    // it was rebuilt from topics: what persons did to it is not known
	FlagContested                  // a letter arrived after it was reconciled
	FlagConflict                   // a message with its id had other bytes
	FlagRaw                        // no dialect was recognised
	FlagForged                     // it said reprieve-* without a valid signature
	FlagErased                     // its payload was erased
	FlagExpired                    // its payload was dropped when its retention ended
)

var flagNames = []string{"same_event", "rebuilt", "contested", "conflict", "raw", "forged", "erased", "expired"}

// Names are the flags as words.
func (f Flag) Names() []string {
	out := []string{}
	for i, n := range flagNames {
		if f&(1<<i) != 0 {
			out = append(out, n)
		}
	}
	return out
}

// Confirmed tells whether the source has moved past an item.
type Confirmed int64

// Redrive refuses all but IsConfirmed; SourceUnknown ones need a manifest that accepts it. SettledOnly: a settlement says
// that it was dead-lettered, and the source's offset is not committed beyond it yet.
const (
	Unconfirmed Confirmed = iota
	IsConfirmed
	SourceUnknown
	SettledOnly
)

// String is "no", "yes" or "unknown".
func (c Confirmed) String() string { return [...]string{"no", "yes", "unknown", "no"}[c] }

// Item is one quarantined record. What stands above Rev never changes after it was admitted (but for a parked record that
// fails later); what is below is its present state. Payload bytes stand apart (Open).
type Item struct {
	ID       pipeline.ID
	Kind     deadletter.Kind
	Dialect  string
	Pipeline string
	pipeline.Identity
	Cluster    string            // of Original
	Original   pipeline.Position // where the record first stood
	OriginalMS int64
	TimeType   pipeline.TimeType
	Letter     pipeline.Position // where its dead letter stands

	Class       pipeline.Class
	Code        pipeline.Code
	Fingerprint pipeline.ID
	Stage       string
	Schema      string
	Policy      pipeline.Digest
	Reason      string
	ReasonRaw   []byte // the reason as it came, when it was not clean text
	Exception   string
	Stack       string // key into stacks; "" is none
	Attempts    int    // failed retries before custody

	DigestFaithful pipeline.Digest
	DigestRedacted pipeline.Digest
	Faithful       deadletter.Faithful
	Enc            string
	Generation     uint32
	QuarantinedMS  int64
	TakenMS        int64 // when the ledger had it
	PayloadWeek    int64
	PayloadDigest  []byte

	Rev        int64
	State      State
	At         pipeline.Position // what the last pass read: settlements speak about this position
	Flags      Flag
	Confirmed  Confirmed
	Sightings  int
	LastSeenMS int64
	ChangedMS  int64
	Owner      string
	Ticket     string
	HeldFrom   State
	SentFrom   State
	Redrive    pipeline.Digest // manifest of the last redrive
	Try        uint16
	Repair     string // id of the repair that a redrive would send
	Resolution string
	LegalHold  string
	ExpiresMS  int64 // 0: by the retention of its class
}

// Redrivable tells why an item cannot go into a bulk redrive, or "".
func (it *Item) Redrivable() pipeline.Code {
	switch {
	case it.State == PolicyHold || it.LegalHold != "":
		return pipeline.CodeItemHeld
	case it.State != Triaged && it.State != Repaired:
		return pipeline.CodeStateInvalid
	case it.Flags&(FlagSameEvent|FlagRebuilt|FlagConflict) != 0:
		return pipeline.CodeItemHeld
	case it.Flags&FlagErased != 0:
		return pipeline.CodeErased
	case it.Confirmed != IsConfirmed:
		return pipeline.CodeItemUnconfirmed
	}
	return ""
}

const itemColumns = `id, tenant, rev, state, kind, dialect, pipeline, consumer, release, event_id, entity, business_id, token, version,
	cluster, topic, partition, source_offset, original_ms, time_type, at_topic, at_partition, at_offset, letter_topic, letter_partition, letter_offset,
	class, code, fingerprint, stage, schema_ref, policy, reason, reason_raw, exception, stack, attempts, digest_faithful, digest_redacted, faithful, enc,
	generation, quarantined_ms, taken_ms, payload_week, payload_digest, flags, confirmed, sightings, last_seen_ms, changed_ms, owner, ticket,
	held_from, sent_from, redrive, redrive_try, repair, resolution, legal_hold, expires_ms`

// At is kept apart in the table only where it differs from Original: the two indexes then hold each item once.
func (it *Item) row() []any {
	at := it.At
	if at == it.Original {
		at = pipeline.Position{}
	}
	exception := it.Exception
	if exception == ownException(it.Class, it.Code) {
		exception = ""
	}
	return []any{it.ID, it.Tenant, it.Rev, string(it.State), string(it.Kind), it.Dialect, it.Pipeline, it.Consumer, it.Release, it.EventID, it.Entity, it.BusinessID, it.Token, it.Version,
		it.Cluster, it.Original.Topic, it.Original.Partition, it.Original.Offset, it.OriginalMS, it.TimeType.String(), at.Topic, at.Partition, at.Offset,
		it.Letter.Topic, it.Letter.Partition, it.Letter.Offset,
		it.Class.String(), it.Code, it.Fingerprint, it.Stage, it.Schema, packDigest(it.Policy), it.Reason, it.ReasonRaw, exception, it.Stack, it.Attempts,
		it.DigestFaithful, packDigest(it.DigestRedacted), string(it.Faithful), it.Enc, it.Generation, it.QuarantinedMS, it.TakenMS, it.PayloadWeek, it.PayloadDigest,
		int64(it.Flags), int64(it.Confirmed), it.Sightings, it.LastSeenMS, it.ChangedMS, it.Owner, it.Ticket,
		string(it.HeldFrom), string(it.SentFrom), it.Redrive, it.Try, it.Repair, it.Resolution, it.LegalHold, it.ExpiresMS}
}

func scanItem(scan func(...any) error) (*Item, error) {
	it := &Item{}
	var timeType, class string
	var at pipeline.Position
	var policy, redacted []byte
	err := scan(&it.ID, &it.Tenant, &it.Rev, &it.State, &it.Kind, &it.Dialect, &it.Pipeline, &it.Consumer, &it.Release, &it.EventID, &it.Entity, &it.BusinessID, &it.Token, &it.Version,
		&it.Cluster, &it.Original.Topic, &it.Original.Partition, &it.Original.Offset, &it.OriginalMS, &timeType, &at.Topic, &at.Partition, &at.Offset,
		&it.Letter.Topic, &it.Letter.Partition, &it.Letter.Offset,
		&class, &it.Code, &it.Fingerprint, &it.Stage, &it.Schema, &policy, &it.Reason, &it.ReasonRaw, &it.Exception, &it.Stack, &it.Attempts,
		&it.DigestFaithful, &redacted, &it.Faithful, &it.Enc, &it.Generation, &it.QuarantinedMS, &it.TakenMS, &it.PayloadWeek, &it.PayloadDigest,
		&it.Flags, &it.Confirmed, &it.Sightings, &it.LastSeenMS, &it.ChangedMS, &it.Owner, &it.Ticket,
		&it.HeldFrom, &it.SentFrom, &it.Redrive, &it.Try, &it.Repair, &it.Resolution, &it.LegalHold, &it.ExpiresMS)
	if err != nil {
		return nil, err
	}
	it.TimeType, _ = pipeline.ParseTimeType(timeType)
	it.Class, _ = pipeline.ParseClass(class)
	it.Policy, it.DigestRedacted = unpackDigest(policy), unpackDigest(redacted)
	if it.Exception == "" && it.Code != "" && it.Dialect == deadletter.Reprieve {
		it.Exception = ownException(it.Class, it.Code)
	}
	it.At = at
	if at.Topic == "" {
		it.At = it.Original
	}
	return it, nil
}

// ownException is the exception class of our own failures. It follows from class and code, so it is not stored.
func ownException(class pipeline.Class, code pipeline.Code) string {
	return "reprieve." + class.String() + "." + string(code)
}

// packDigest stores a sha256 digest in 33 bytes instead of 71; any other text as it is.
func packDigest(d pipeline.Digest) []byte {
	if rest, ok := strings.CutPrefix(string(d), "sha256:"); ok && len(rest) == 2*sha256.Size {
		if b, err := hex.AppendDecode([]byte{1}, []byte(rest)); err == nil && rest == strings.ToLower(rest) {
			return b
		}
	}
	if d == "" {
		return nil
	}
	return append([]byte{0}, d...)
}

func unpackDigest(b []byte) pipeline.Digest {
	switch {
	case len(b) == 0:
		return ""
	case b[0] == 1:
		return pipeline.Digest("sha256:" + hex.EncodeToString(b[1:]))
	}
	return pipeline.Digest(b[1:])
}

// load reads items by id, locked if the transaction will change them. Missing ones are missing.
func load(tx *ledger.Tx, ids []string, lock bool) (map[pipeline.ID]*Item, error) {
	in, arg := tx.In("id", ids)
	q := "SELECT " + itemColumns + " FROM items WHERE " + in + " ORDER BY id" // one order for all: no deadlock
	if lock {
		q += tx.ForUpdate()
	}
	out := make(map[pipeline.ID]*Item, len(ids))
	err := tx.Each(q, []any{arg}, func(scan func(...any) error) error {
		it, err := scanItem(scan)
		if err == nil {
			out[it.ID] = it
		}
		return err
	})
	return out, err
}

// evidence is the digest over everything about an item that never changes; the history row of its admission holds it, so a
// rewritten item shows. INV-EVIDENCE.
func (it *Item) evidence() []byte {
	n := func(v int64) []byte { return strconv.AppendInt(nil, v, 10) }
	s := func(v string) []byte { return []byte(v) }
	sum := sha256.Sum256(seal.LP(s("evidence 1"), s(string(it.ID)), s(it.Tenant), s(string(it.Kind)), s(it.Dialect), s(it.Pipeline), s(it.Consumer), s(it.Release),
		s(it.EventID), s(it.Entity), s(it.BusinessID), s(it.Token), s(it.Version), s(it.Cluster), s(it.Original.String()), n(it.OriginalMS), s(it.TimeType.String()),
		s(it.Letter.String()), s(it.Class.String()), s(string(it.Code)), s(string(it.Fingerprint)), s(it.Stage), s(it.Schema), s(string(it.Policy)), s(it.Reason), it.ReasonRaw,
		s(it.Exception), s(it.Stack), n(int64(it.Attempts)), s(string(it.DigestFaithful)), s(string(it.DigestRedacted)), s(string(it.Faithful)), s(it.Enc),
		n(int64(it.Generation)), n(it.QuarantinedMS), n(it.TakenMS), it.PayloadDigest))
	return sum[:]
}
