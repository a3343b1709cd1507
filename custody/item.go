package custody

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
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

// ParseFlags reads marks by their words. Codes: ERR_INPUT_INVALID.
func ParseFlags(names []string) (f Flag, err error) {
	for _, n := range names {
		i := slices.Index(flagNames, n)
		if i < 0 {
			return 0, pipeline.Errorf(pipeline.CodeInputInvalid, n, "there is no such mark").With("the marks are " + strings.Join(flagNames, ", "))
		}
		f |= 1 << i
	}
	return f, nil
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
	Data           string // data class, as its pipeline said when it was admitted; "" is none
	KeepMS         int64  // how long it stays after its quarantine, as was said then; 0: whoever asks says it (Retention.Of)

	Rev        int64
	State      State
	At         pipeline.Position // what the last pass read: settlements speak about this position
	Flags      Flag
	Confirmed  Confirmed
	Sightings  int
	LastSeenMS int64
	ChangedMS  int64
	Regrouped  pipeline.ID // the group that a person put it into; "" is that of its fingerprint
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

// Group is the group that it is counted in.
func (it *Item) Group() pipeline.ID {
	if it.Regrouped != "" {
		return it.Regrouped
	}
	return it.Fingerprint
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

// itemColumns are the columns of an item in the order of row and scanItem.
const itemColumns = `id, tenant, rev, state, kind, dialect, pipeline, consumer, release, event_id, entity, business_id, token, version,
	cluster, topic, partition, source_offset, original_ms, time_type, at_topic, at_partition, at_offset, letter_topic, letter_partition, letter_offset,
	class, code, fingerprint, stage, schema_ref, policy, reason, reason_raw, exception, stack, attempts, digest_faithful, digest_redacted, faithful, enc,
	generation, quarantined_ms, taken_ms, payload_week, payload_digest, flags, confirmed, sightings, last_seen_ms, changed_ms, group_key, owner, ticket,
	held_from, sent_from, redrive, redrive_try, repair, resolution, legal_hold, expires_ms, data_class, keep_ms`

// row has NULL for what is the same as in another column, or zero, or empty where nobody selects by it: at most a byte for each.
func (it *Item) row() []any {
	exception := it.Exception
	if exception == ownException(it.Class, it.Code) {
		exception = ""
	}
	var atPartition, atOffset, lastSeen, changed, regrouped any
	at := it.At
	if at == it.Original {
		at = pipeline.Position{}
	} else {
		atPartition, atOffset = at.Partition, at.Offset
	}
	if it.LastSeenMS != it.QuarantinedMS {
		lastSeen = it.LastSeenMS
	}
	if it.ChangedMS != it.TakenMS {
		changed = it.ChangedMS
	}
	if it.Regrouped != "" {
		regrouped = string(it.Regrouped)
	}
	return []any{it.ID, it.Tenant, it.Rev, string(it.State), string(it.Kind), it.Dialect, it.Pipeline, it.Consumer, it.Release, it.EventID, it.Entity, it.BusinessID, it.Token, it.Version,
		it.Cluster, it.Original.Topic, it.Original.Partition, it.Original.Offset, it.OriginalMS, it.TimeType.String(), at.Topic, atPartition, atOffset,
		it.Letter.Topic, it.Letter.Partition, it.Letter.Offset,
		it.Class.String(), it.Code, it.Fingerprint, it.Stage, it.Schema, packDigest(it.Policy), it.Reason, it.ReasonRaw, textOrNull(exception), textOrNull(it.Stack), it.Attempts,
		packDigest(it.DigestFaithful), packDigest(it.DigestRedacted), string(it.Faithful), it.Enc, orNull(int64(it.Generation)), it.QuarantinedMS, it.TakenMS, it.PayloadWeek, it.PayloadDigest,
		int64(it.Flags), int64(it.Confirmed), it.Sightings, lastSeen, changed, regrouped, it.Owner, it.Ticket,
		textOrNull(string(it.HeldFrom)), textOrNull(string(it.SentFrom)), it.Redrive, it.Try, it.Repair, it.Resolution, it.LegalHold, orNull(it.ExpiresMS),
		textOrNull(it.Data), orNull(it.KeepMS)}
}

func textOrNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// deref is what p points to, or nothing.
func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func orNull(n int64) any {
	if n == 0 {
		return nil
	}
	return n
}

func scanItem(scan func(...any) error) (*Item, error) {
	it := &Item{}
	var timeType, class, atTopic string
	var atPartition *int32
	var atOffset, generation, lastSeen, changed, expires, keep *int64
	var regrouped *pipeline.ID
	var exception, stack, data *string
	var heldFrom, sentFrom *State
	err := scan(&it.ID, &it.Tenant, &it.Rev, &it.State, &it.Kind, &it.Dialect, &it.Pipeline, &it.Consumer, &it.Release, &it.EventID, &it.Entity, &it.BusinessID, &it.Token, &it.Version,
		&it.Cluster, &it.Original.Topic, &it.Original.Partition, &it.Original.Offset, &it.OriginalMS, &timeType, &atTopic, &atPartition, &atOffset,
		&it.Letter.Topic, &it.Letter.Partition, &it.Letter.Offset,
		&class, &it.Code, &it.Fingerprint, &it.Stage, &it.Schema, (*StoredDigest)(&it.Policy), &it.Reason, &it.ReasonRaw, &exception, &stack, &it.Attempts,
		(*StoredDigest)(&it.DigestFaithful), (*StoredDigest)(&it.DigestRedacted), &it.Faithful, &it.Enc, &generation, &it.QuarantinedMS, &it.TakenMS, &it.PayloadWeek, &it.PayloadDigest,
		&it.Flags, &it.Confirmed, &it.Sightings, &lastSeen, &changed, &regrouped, &it.Owner, &it.Ticket,
		&heldFrom, &sentFrom, &it.Redrive, &it.Try, &it.Repair, &it.Resolution, &it.LegalHold, &expires, &data, &keep)
	if err != nil {
		return nil, err
	}
	it.TimeType, _ = pipeline.ParseTimeType(timeType)
	it.Class, _ = pipeline.ParseClass(class)
	it.Exception, it.Stack, it.HeldFrom, it.SentFrom = deref(exception), deref(stack), deref(heldFrom), deref(sentFrom)
	if it.Exception == "" && it.Code != "" && it.Dialect == deadletter.Reprieve {
		it.Exception = ownException(it.Class, it.Code)
	}
	it.At, it.LastSeenMS, it.ChangedMS = it.Original, it.QuarantinedMS, it.TakenMS
	if atTopic != "" {
		it.At = pipeline.Position{TP: pipeline.TP{Topic: atTopic, Partition: deref(atPartition)}, Offset: deref(atOffset)}
	}
	if lastSeen != nil {
		it.LastSeenMS = *lastSeen
	}
	if changed != nil {
		it.ChangedMS = *changed
	}
	it.Generation, it.Regrouped, it.ExpiresMS = uint32(deref(generation)), deref(regrouped), deref(expires)
	it.Data, it.KeepMS = deref(data), deref(keep)
	return it, nil
}

// ownException is the exception class of our own failures. It follows from class and code, so it is not stored.
func ownException(class pipeline.Class, code pipeline.Code) string {
	return "reprieve." + class.String() + "." + string(code)
}

// StoredDigest reads a digest as the ledger keeps it (packDigest).
type StoredDigest pipeline.Digest

// Scan reads a column.
func (d *StoredDigest) Scan(src any) error {
	b, _ := src.([]byte)
	*d = StoredDigest(unpackDigest(b))
	return nil
}

// packDigest stores a digest in about half its text: 1 and 32 bytes of SHA-256; 2, the length of the key's name, the name and
// 32 bytes of a keyed one; 0 and any other text.
func packDigest(d pipeline.Digest) []byte {
	if d == "" {
		return nil
	}
	text := string(d)
	head := []byte{1}
	sum, ok := strings.CutPrefix(text, "sha256:")
	if keyed, is := strings.CutPrefix(text, "hmac256:"); is {
		i := strings.LastIndexByte(keyed, ':')
		if ok = i > 0 && i < 256; ok {
			head, sum = append([]byte{2, byte(i)}, keyed[:i]...), keyed[i+1:]
		}
	}
	if ok && len(sum) == 2*sha256.Size && sum == strings.ToLower(sum) {
		if b, err := hex.AppendDecode(head, []byte(sum)); err == nil {
			return b
		}
	}
	return append([]byte{0}, text...)
}

func unpackDigest(b []byte) pipeline.Digest {
	switch {
	case len(b) == 0:
		return ""
	case b[0] == 1:
		return pipeline.Digest("sha256:" + hex.EncodeToString(b[1:]))
	case b[0] == 2 && len(b) > 2+int(b[1]):
		n := 2 + int(b[1])
		return pipeline.Digest("hmac256:" + string(b[2:n]) + ":" + hex.EncodeToString(b[n:]))
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
// rewritten item shows. It is over LP of the fields, written into one buffer: it is taken of each item that is admitted or verified.
// INV-EVIDENCE.
func (it *Item) evidence() []byte {
	b := make([]byte, 0, 1536)
	s := func(texts ...string) {
		for _, v := range texts {
			b = append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
		}
	}
	raw := func(v []byte) { b = append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...) }
	n := func(v int64) {
		at := len(b)
		b = strconv.AppendInt(append(b, 0, 0, 0, 0), v, 10)
		binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	}
	s("evidence 1", string(it.ID), it.Tenant, string(it.Kind), it.Dialect, it.Pipeline, it.Consumer, it.Release,
		it.EventID, it.Entity, it.BusinessID, it.Token, it.Version, it.Cluster, it.Original.String())
	n(it.OriginalMS)
	s(it.TimeType.String(), it.Letter.String(), it.Class.String(), string(it.Code), string(it.Fingerprint), it.Stage, it.Schema, string(it.Policy), it.Reason)
	raw(it.ReasonRaw)
	s(it.Exception, it.Stack)
	n(int64(it.Attempts))
	s(string(it.DigestFaithful), string(it.DigestRedacted), string(it.Faithful), it.Enc)
	n(int64(it.Generation))
	n(it.QuarantinedMS)
	n(it.TakenMS)
	raw(it.PayloadDigest)
	if it.Data != "" || it.KeepMS != 0 { // items of ledgers before version 6 have none of it
		s("retention 1", it.Data)
		n(it.KeepMS)
	}
	sum := sha256.Sum256(b)
	return sum[:]
}
