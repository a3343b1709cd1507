package control

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strconv"
	"strings"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/seal"
)

// Kind is what an entry is about. Kinds that this version does not know are kept and passed over, so workers of two versions
// can share a topic.
type Kind string

// The kinds.
const (
	KindHalt    Kind = "halt"
	KindLift    Kind = "lift"
	KindBreaker Kind = "breaker"
	KindBlocked Kind = "blocked"
	KindPolicy  Kind = "policy"
	KindRate    Kind = "rate"
	KindTenant  Kind = "tenant-key"
)

// Key names an entry: the topic keeps the last message of each. Pipeline is "" for all pipelines.
type Key struct {
	Kind     Kind
	Pipeline string
	Subject  string // what of the pipeline
	Writer   string // who says it: a worker's name or a person's subject
}

// String is the message key, "kind/pipeline/subject/writer", each part escaped as in a URL path.
func (k Key) String() string {
	return url.PathEscape(string(k.Kind)) + "/" + url.PathEscape(k.Pipeline) + "/" + url.PathEscape(k.Subject) + "/" + url.PathEscape(k.Writer)
}

// ParseKey reads what String writes and no other spelling.
func ParseKey(s string) (Key, bool) {
	parts := strings.Split(s, "/")
	if len(parts) != 4 {
		return Key{}, false
	}
	for i, p := range parts {
		u, err := url.PathUnescape(p)
		if err != nil {
			return Key{}, false
		}
		parts[i] = u
	}
	k := Key{Kind(parts[0]), parts[1], parts[2], parts[3]}
	return k, k.Kind != "" && k.Writer != "" && k.String() == s
}

// Entry is one statement of one writer. It is immutable.
type Entry struct {
	Key
	Seq   int64 // the highest of a key wins
	AtMS  int64 // Unix ms, the writer's clock
	By    string
	State json.RawMessage // a JSON object of the kind's own
	KID   string          // which key signed it
	// Person is the approver whose key signed it; "" is a worker's.
	Person string

	value  []byte // as read: it can be published again without the writer's key
	offset int64  // where it stands
}

// WorkerLease is how long what a worker says about itself counts without being said again.
const WorkerLease = 30 * time.Second

// Leased tells whether the entry still counts at nowMS: what a worker says expires with its lease, unless it is a halt
// (INV-CONTROL-STICKY) or a public key, which is to be sealed to while no custodian runs; what a person says does not.
func (e Entry) Leased(nowMS int64) bool {
	return e.Person != "" || e.Kind == KindHalt || e.Kind == KindTenant || nowMS-e.AtMS <= WorkerLease.Milliseconds()
}

// value is the message value (CONTRACTS 5): canonical JSON, 64-bit numbers as text.
type value struct {
	V     int             `json:"v"`
	Seq   string          `json:"seq"`
	At    string          `json:"at"`
	By    string          `json:"by"`
	State json.RawMessage `json:"state"`
	KID   string          `json:"kid"`
	Sig   string          `json:"sig,omitempty"`
}

// Signer signs entries: a key ring through ByRing, or a person's *seal.Signer.
type Signer interface {
	KeyID() string
	Sign(msg []byte) []byte
}

type ringSigner struct{ ring *seal.Ring }

// ByRing signs with the ring's first key: what workers do.
func ByRing(r *seal.Ring) Signer { return ringSigner{r} }

func (s ringSigner) KeyID() string { return s.ring.KeyIDs()[0] }

func (s ringSigner) Sign(msg []byte) []byte {
	_, mac := s.ring.Sign(msg)
	return mac
}

// maxEntry is the most that an entry may weigh: a policy of 256 KiB in JSON text fits.
const maxEntry = 512 << 10

// Encode makes m the entry on topic, signed by s. The signature covers topic, key and all of the value. Codes:
// ERR_INPUT_INVALID.
func Encode(m *pipeline.Message, topic string, e *Entry, s Signer) error {
	v := value{V: 1, Seq: strconv.FormatInt(e.Seq, 10), At: strconv.FormatInt(e.AtMS, 10), By: e.By, State: e.State, KID: s.KeyID()}
	if len(v.State) == 0 {
		v.State = json.RawMessage("{}")
	}
	key := e.Key.String()
	if _, ok := ParseKey(key); !ok || e.Seq <= 0 || e.By == "" {
		return pipeline.Errorf(pipeline.CodeInputInvalid, key, "an entry needs a kind, a writer, a positive seq and who says it")
	}
	text, err := seal.Canonical(v)
	if err != nil {
		return pipeline.Errorf(pipeline.CodeInputInvalid, key, "the entry has no canonical form: %w", err)
	}
	v.Sig = base64.RawURLEncoding.EncodeToString(s.Sign(signedText(topic, key, text)))
	text, err = seal.Canonical(v)
	if err != nil || len(text) > maxEntry {
		return pipeline.Errorf(pipeline.CodeInputInvalid, key, "the entry has %d bytes; %d are allowed", len(text), maxEntry)
	}
	*m = pipeline.Message{Topic: topic, Partition: 0, Key: []byte(key), Value: text, From: -1}
	return nil
}

func signedText(topic, key string, text []byte) []byte {
	return seal.LP([]byte("control/v1"), []byte(topic), []byte(key), text)
}

// Refusal says why a message on the control topic is ignored; "" is not ignored.
type Refusal string

// The refusals.
const (
	Unsigned   Refusal = "unsigned"   // no signature at all, tombstones included
	Forged     Refusal = "forged"     // a signature that does not verify
	Unreadable Refusal = "unreadable" // not an entry of version 1
	Forbidden  Refusal = "forbidden"  // signed by somebody who may not say this
	Replayed   Refusal = "replayed"   // older than what is known of its key
)

// Decode reads one message. What is not signed by a key of a is refused, never believed in part; Entry is valid only with
// the refusal "". It borrows nothing.
func Decode(topic string, key, text []byte, a *Authority) (Entry, Refusal) {
	if len(text) > maxEntry || len(key) > 4096 {
		return Entry{}, Unreadable
	}
	if text == nil {
		return Entry{}, Unsigned
	}
	k, ok := ParseKey(string(key))
	var v value
	if !ok || json.Unmarshal(text, &v) != nil {
		return Entry{}, Unreadable
	}
	if v.Sig == "" {
		return Entry{}, Unsigned
	}
	sig, err := base64.RawURLEncoding.Strict().DecodeString(v.Sig)
	if err != nil {
		return Entry{}, Forged
	}
	v.Sig = ""
	plain, err := seal.Canonical(v)
	if err != nil {
		return Entry{}, Unreadable
	}
	person, ok := a.verify(v.KID, signedText(topic, string(key), plain), sig)
	if !ok {
		return Entry{}, Forged
	}
	seq, err1 := strconv.ParseInt(v.Seq, 10, 64)
	at, err2 := strconv.ParseInt(v.At, 10, 64)
	if v.V != 1 || err1 != nil || err2 != nil || seq <= 0 || v.By == "" || len(v.State) == 0 || v.State[0] != '{' {
		return Entry{}, Unreadable
	}
	e := Entry{Key: k, Seq: seq, AtMS: at, By: v.By, State: v.State, KID: v.KID, Person: person, value: append([]byte(nil), text...)}
	if !a.allows(&e) {
		return Entry{}, Forbidden
	}
	return e, ""
}
