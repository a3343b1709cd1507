package pipeline

import (
	"strconv"
	"time"
)

// TP names one partition of one topic.
type TP struct {
	Topic     string
	Partition int32
}

// String is "topic/partition".
func (tp TP) String() string { return tp.Topic + "/" + strconv.Itoa(int(tp.Partition)) }

// Position is one offset of one partition.
type Position struct {
	TP
	Offset int64
}

// String is "topic/partition/offset", the form of the header reprieve-at and of every message for people.
func (p Position) String() string { return p.TP.String() + "/" + strconv.FormatInt(p.Offset, 10) }

// Header is one Kafka header. A nil Value is null, an empty one is empty. Names may repeat; order is kept.
type Header struct {
	Name  string
	Value []byte
}

// TimeType says what a record's timestamp means.
type TimeType uint8

// The timestamp types of the Kafka protocol.
const (
	TimeNone TimeType = iota
	TimeCreate
	TimeLogAppend
)

// String is the spelling of the record form: "none", "create", "log_append".
func (t TimeType) String() string {
	switch t {
	case TimeCreate:
		return "create"
	case TimeLogAppend:
		return "log_append"
	}
	return "none"
}

// ParseTimeType reads what String writes; anything else is TimeNone and false.
func ParseTimeType(s string) (TimeType, bool) {
	switch s {
	case "create":
		return TimeCreate, true
	case "log_append":
		return TimeLogAppend, true
	case "none", "":
		return TimeNone, true
	}
	return TimeNone, false
}

// Record is what arrived; nobody ever writes to it. Key, Value and Headers are borrowed from the batch: valid until
// Batch.Release, which the engine calls once every record is settled. To keep a byte longer, Clone.
// A nil Key or Value is null, one of length 0 is empty.
type Record struct {
	Offset   int64
	TimeMS   int64 // Unix milliseconds
	TimeType TimeType
	Key      []byte
	Value    []byte
	Headers  []Header
	Trail    *Trail // nil on the live lane; from signed headers only
}

// Clone copies the record and every byte it borrows.
func (r *Record) Clone() Record {
	c := *r
	c.Key, c.Value = CloneBytes(r.Key), CloneBytes(r.Value)
	if r.Headers != nil {
		c.Headers = make([]Header, len(r.Headers))
		for i, h := range r.Headers {
			c.Headers[i] = Header{Name: string(append([]byte(nil), h.Name...)), Value: CloneBytes(h.Value)}
		}
	}
	return c
}

// Header returns the value of the last header of that name; ok is false if there is none.
func (r *Record) Header(name string) (value []byte, ok bool) {
	for i := len(r.Headers) - 1; i >= 0; i-- {
		if r.Headers[i].Name == name {
			return r.Headers[i].Value, true
		}
	}
	return nil, false
}

// CloneBytes copies b and keeps null apart from empty.
func CloneBytes(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append(make([]byte, 0, len(b)), b...)
}

// Trail is a record's signed past (CONTRACTS 4): what earlier passes and redrives wrote into its headers. It is set only
// after the signature was verified.
type Trail struct {
	Attempt    uint8     // failed retries so far: 0 on a first redrive pass, 1 after the first failure
	Attempts   []Attempt // each failed pass, oldest first
	NotBefore  int64     // Unix ms; 0 is at once
	Item       ID        // set when the record is already in custody
	Redrive    Digest    // manifest digest of the redrive that sent it
	Try        uint16    // which redrive of the item this is, from 1
	Generation uint32
	Original   Position // where the record first stood
	At         Position // where the pass that wrote this trail read it
	OriginalMS int64
	TimeType   TimeType
	Identity   Identity // as it was read when the record first failed
}

// Attempt is one failed pass of a record.
type Attempt struct {
	N    int       `json:"n"`
	At   time.Time `json:"at"`
	Code Code      `json:"code"`
}

// ID is the text of a quarantine id (q...), a fingerprint (f1...), an incident (i...) or a run (r...).
type ID string

// Digest is "sha256:<hex>" or "hmac256:<kid>:<hex>" (CONTRACTS 1).
type Digest string

// Identity is who a record says it is, as the pipeline file declares where to look. An empty string is unknown.
type Identity struct {
	Consumer   string // source.group, never a release or a file name
	Release    string
	Tenant     string
	EventID    string
	Entity     string
	BusinessID string
	Token      string // idempotency token
	Version    string // entity version
}

// TenantUnassigned is the tenant of a record whose tenant cannot be read.
const TenantUnassigned = "unassigned"

// Clock tells the time. Time is passed in: only cmd reads the wall clock.
type Clock func() time.Time
