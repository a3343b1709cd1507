package deadletter

import (
	"reprieve.dev/pipeline"
	"reprieve.dev/seal"
)

// Kind is what a message on a dead-letter topic stands for.
type Kind string

// The kinds.
const (
	KindLetter Kind = "letter" // a failed record
	KindSealed Kind = "sealed" // one that could not be redacted safely: its bytes are in the vault
	KindParked Kind = "parked" // one that did not fail: its key is blocked by another item
	KindRange  Kind = "range"  // many that are held in the source by an incident
)

// ParseKind reads a kind.
func ParseKind(s string) (Kind, bool) {
	switch k := Kind(s); k {
	case KindLetter, KindSealed, KindParked, KindRange:
		return k, true
	}
	return "", false
}

// Faithful says where the bytes are that the source held.
type Faithful string

// The places. Inline: redaction changed nothing, so the letter's value is it.
const (
	Inline  Faithful = "inline"
	Source  Faithful = "source"
	Vault   Faithful = "vault"
	Nowhere Faithful = "nowhere"
)

// ParseFaithful reads a place.
func ParseFaithful(s string) (Faithful, bool) {
	switch f := Faithful(s); f {
	case Inline, Source, Vault, Nowhere:
		return f, true
	}
	return "", false
}

// The dialects: how a system spells its dead letters.
const (
	Reprieve    = "reprieve"
	Connect     = "connect"
	Streams     = "streams"
	Share       = "share"
	Spring      = "spring"
	SpringCloud = "spring-cloud"
	SmallRye    = "smallrye"
	Karafka     = "karafka"
	Wolverine   = "wolverine"
	X           = "x"   // the eight X- headers from somebody else
	Raw         = "raw" // no family is there
)

// NoPosition is the Original of a letter that does not say where its record stood.
var NoPosition = pipeline.Position{TP: pipeline.TP{Partition: -1}, Offset: -1}

// Letter is one dead letter, ours or another system's, in our words. Key, Value and the values of Headers are borrowed: by
// Append from whoever calls it, after Parse from the record that was read.
type Letter struct {
	Kind       Kind
	Item       pipeline.ID       // quarantine id; "" in a foreign letter
	At         pipeline.Position // what this pass read; differs from Original on a retry or a redrive
	Original   pipeline.Position // where the record first stood; NoPosition is unknown
	Cluster    string            // id of the cluster of Original
	OriginalMS int64             // Unix ms; -1 with TimeNone
	TimeType   pipeline.TimeType

	Pipeline    string
	Data        string // data class of the record, as its pipeline's file says; "" is none
	Failure     pipeline.Failure
	Decision    pipeline.Decision
	Identity    pipeline.Identity
	Class       pipeline.Class // that of the code when ClassNone
	Fingerprint pipeline.ID
	Schema      string // "avro:7", "guid:..."

	DigestFaithful pipeline.Digest // keyed
	DigestRedacted pipeline.Digest
	Faithful       Faithful

	Attempts   []pipeline.Attempt // oldest first; a message carries the last MaxAttempts of them
	Generation uint32
	Redrive    pipeline.Digest
	Try        uint16
	Behind     pipeline.ID // of a parked record: the item that blocks its key

	QuarantinedMS int64  // Unix ms; of a foreign letter the time of the message
	Reason        string // redacted; made from Failure when empty
	Exception     string // the root cause's class; made from Failure when empty
	Stack         string // redacted; says the stage when empty

	Key, Value []byte            // redacted, or sealed when Enc is set; nil is null
	Headers    []pipeline.Header // what is carried on, in order
	Enc        string            // "hpke1;kid;..." when Value is sealed

	Dialect string // set by Parse
	Forged  bool   // set by Parse: it says reprieve-* without a valid signature; none of that is believed
}

// Profiles says what else Append writes, and how much.
type Profiles struct {
	Connect bool // the headers of Kafka Connect as well

	// HeaderBytes bounds the headers that we write; 0 is DefaultHeaderBytes.
	HeaderBytes int
	// MessageBytes bounds the whole message as the client counts it (Size); 0 is no bound. Append returns
	// ERR_RECORD_TOO_LARGE when identity and value alone exceed it.
	MessageBytes int
}

// DefaultHeaderBytes is the most that our headers take in a letter; long stacks shrink to it.
const DefaultHeaderBytes = 5632

// MaxAttempts is how many of the last attempts a message carries. The ledger has them all: each arrival brings its own.
const MaxAttempts = 16

// maxPointerKey is the longest key that a pointer carries.
const maxPointerKey = 4096

// Pointer is the letter that says where the record is and what it was, and carries nothing of it: no value, no header of the
// source, no key beyond 4 KiB. It is for records that fit into their own topic but not, with what a letter adds, into the
// dead-letter topic; the faithful bytes stay where they are: in the vault, else in the source. It always fits into 16 KiB.
func (l *Letter) Pointer() *Letter {
	p := *l
	p.Value, p.Headers, p.Enc = nil, nil, ""
	if p.Faithful != Vault {
		p.Faithful = Source
	}
	p.DigestRedacted = pipeline.Digest(seal.SHA256(nil))
	if len(p.Key) > maxPointerKey {
		p.Key = nil
	}
	return &p
}
