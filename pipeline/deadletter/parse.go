package deadletter

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"reprieve.dev/pipeline"
	"reprieve.dev/seal"
)

// Parse reads one message of a dead-letter topic, whoever wrote it: ours by its verified signature, another system's by the
// family of its headers, never by guessing from values. What has no family is a raw letter: only its bytes are known.
//
// A message that says reprieve-* without a valid signature of v is Forged: nothing of that is believed, and it is read like
// any other system's. Key, Value and header values of the letter are borrowed from r. Codes: ERR_LETTER_INVALID (signed, but
// not a letter of this version; keep it raw). Cost: one HMAC, then one pass over the headers a field.
func Parse(topic string, r *pipeline.Record, v *seal.Ring) (*Letter, error) {
	return ParseAs("", topic, r, v)
}

// ParseAs is Parse where somebody said how the topic's letters are spelled: of the foreign dialects only that one is looked
// for, and a message without its headers is raw. Our own letters are read as ever. "" is Parse.
func ParseAs(dialect, topic string, r *pipeline.Record, v *seal.Ring) (*Letter, error) {
	ours := false
	for i := range r.Headers {
		if isOurs(r.Headers[i].Name) {
			ours = true
			break
		}
	}
	if ours && verify(topic, r, v) {
		return parseOwn(topic, r)
	}
	l := parseForeign(dialect, r)
	l.Forged = ours
	return l, nil
}

// fields reads header values. The first value that cannot be read is kept as bad; reading goes on.
type fields struct {
	hs  []pipeline.Header
	bad string
}

func (f *fields) fail(name string) {
	if f.bad == "" {
		f.bad = name
	}
}

// text is the last value of name as valid UTF-8; absent and null are "".
func (f *fields) text(name string) string {
	b, _ := find(f.hs, name)
	return cleanText(string(b))
}

// decimal is the number of name; absent is -1, anything but a decimal int64 is -1 and bad.
func (f *fields) decimal(name string) int64 {
	b, ok := find(f.hs, name)
	if !ok || b == nil {
		return -1
	}
	if n, ok := parseDecimal(b); ok {
		return n
	}
	f.fail(name)
	return -1
}

// decimal32 is decimal for a partition: 0 to 2^31-1, else -1.
func (f *fields) decimal32(name string) int32 {
	n := f.decimal(name)
	if n < -1 || n > 1<<31-1 {
		f.fail(name)
		return -1
	}
	return int32(n)
}

// count is decimal with 0 for absent, bounded by most.
func (f *fields) count(name string, most int64) int64 {
	if _, ok := find(f.hs, name); !ok {
		return 0
	}
	n := f.decimal(name)
	if n < 0 || n > most {
		f.fail(name)
		return 0
	}
	return n
}

func parseDecimal(b []byte) (int64, bool) {
	if len(b) == 0 || len(b) > 20 || b[0] == '+' {
		return 0, false
	}
	n, err := strconv.ParseInt(string(b), 10, 64)
	return n, err == nil
}

func (f *fields) position(name string) pipeline.Position {
	b, ok := find(f.hs, name)
	if !ok {
		return NoPosition
	}
	p, ok := ParsePosition(string(b))
	if !ok {
		f.fail(name)
	}
	return p
}

// ParsePosition reads "topic/partition/offset"; false and NoPosition if it is something else. A topic has no slash.
func ParsePosition(s string) (pipeline.Position, bool) {
	topic, rest, ok := strings.Cut(s, "/")
	partition, offset, ok2 := strings.Cut(rest, "/")
	p, ok3 := parseDecimal([]byte(partition))
	o, ok4 := parseDecimal([]byte(offset))
	if !ok || !ok2 || !ok3 || !ok4 || topic == "" || p < 0 || p > 1<<31-1 || o < 0 || !utf8.ValidString(topic) {
		return NoPosition, false
	}
	return pipeline.Position{TP: pipeline.TP{Topic: topic, Partition: int32(p)}, Offset: o}, true
}

// time reads what appendTime wrote: RFC 3339, or a decimal number of ms.
func (f *fields) time(name string, absent int64) int64 {
	b, ok := find(f.hs, name)
	if !ok {
		return absent
	}
	if t, err := time.Parse(timeLayout, string(b)); err == nil {
		return t.UnixMilli()
	}
	if n, ok := parseDecimal(b); ok {
		return n
	}
	f.fail(name)
	return absent
}

func (f *fields) identity() pipeline.Identity {
	return pipeline.Identity{
		Consumer: f.text(headerConsumer), Release: f.text(headerRelease), Tenant: f.text(headerTenant),
		EventID: f.text(headerEventID), Entity: f.text(headerEntity), BusinessID: f.text(headerBusinessID),
		Token: f.text(headerToken), Version: f.text(headerVersion),
	}
}

func (f *fields) attempts() []pipeline.Attempt {
	b, ok := find(f.hs, headerAttempts)
	if !ok {
		return nil
	}
	var as []pipeline.Attempt
	if err := json.Unmarshal(b, &as); err != nil || len(as) > MaxAttempts {
		f.fail(headerAttempts)
		return nil
	}
	for i := range as {
		as[i].At = as[i].At.UTC()
	}
	return as
}

func (f *fields) original() (int64, pipeline.TimeType) {
	t, ok := pipeline.ParseTimeType(f.text(headerTimeType))
	if !ok {
		f.fail(headerTimeType)
	}
	if t == pipeline.TimeNone {
		return -1, t
	}
	return f.time(headerTime, -1), t
}

func (f *fields) class(name string) pipeline.Class {
	s := f.text(name)
	if s == "" {
		return pipeline.ClassNone
	}
	c, ok := pipeline.ParseClass(s)
	if !ok {
		f.fail(name)
	}
	return c
}

// origin is the position in the X- headers.
func (f *fields) origin() pipeline.Position {
	p := pipeline.Position{TP: pipeline.TP{Topic: f.text(HeaderTopic), Partition: f.decimal32(HeaderPartition)}, Offset: f.decimal(HeaderOffset)}
	if p.Topic == "" {
		return NoPosition
	}
	return p
}

// parseOwn reads a verified letter. What it cannot read was signed by a version that it does not know, or by nobody who
// writes letters: it is refused whole, never read in part.
func parseOwn(topic string, r *pipeline.Record) (*Letter, error) {
	f := fields{hs: r.Headers}
	if v := f.text(headerV); v != "1" {
		return nil, letterError(topic, r, "it has the version %q; this program reads 1", v)
	}
	l := &Letter{Dialect: Reprieve, Key: r.Key, Value: r.Value}
	var ok bool
	if l.Kind, ok = ParseKind(f.text(headerKind)); !ok {
		f.fail(headerKind)
	}
	l.Item = pipeline.ID(f.text(headerItem))
	l.Identity = f.identity()
	l.Pipeline = f.text(headerPipeline)
	l.Data = f.text(headerData)
	l.Class = f.class(headerClass)
	l.Fingerprint = pipeline.ID(f.text(headerFingerprint))
	l.Schema = f.text(headerSchema)
	l.DigestFaithful = pipeline.Digest(f.text(headerDigest))
	l.DigestRedacted = pipeline.Digest(f.text(headerRedacted))
	if s := f.text(headerFaithful); s != "" {
		if l.Faithful, ok = ParseFaithful(s); !ok {
			f.fail(headerFaithful)
		}
	}
	l.Attempts = f.attempts()
	l.OriginalMS, l.TimeType = f.original()
	l.Cluster = f.text(headerCluster)
	l.Generation = uint32(f.count(headerGeneration, 1<<32-1))
	l.Redrive = pipeline.Digest(f.text(headerRedrive))
	l.Try = uint16(f.count(headerTry, 1<<16-1))
	l.Behind = pipeline.ID(f.text(headerBehind))
	l.Enc = f.text(headerEnc)
	l.Original = f.origin()
	l.At = f.position(headerAt)
	l.QuarantinedMS = f.time(HeaderQuarantined, 0)
	l.Reason, l.Exception, l.Stack = f.text(HeaderReason), f.text(HeaderException), f.text(HeaderStack)
	l.Failure = pipeline.Failure{Stage: f.text(headerStage), Code: pipeline.Code(f.text(headerCode)), Stack: l.Stack}
	if !strings.HasPrefix(l.Exception, "reprieve.") {
		l.Failure.Origin = l.Exception
	}
	l.Decision = pipeline.Decision{Action: action(l.Kind), Topic: topic, Attempt: uint8(f.count(HeaderAttemptCount, 1<<8-1)),
		Code: l.Failure.Code, Policy: pipeline.Digest(f.text(headerPolicy))}
	if f.bad != "" {
		return nil, letterError(topic, r, "its header %s cannot be read", f.bad)
	}
	profile := f.text(headerProfile) == Connect
	for _, h := range r.Headers {
		if isOurs(h.Name) || isDeath(h.Name) || profile && strings.HasPrefix(h.Name, connectPrefix) {
			continue
		}
		l.Headers = append(l.Headers, h)
	}
	return l, nil
}

func action(k Kind) pipeline.Action {
	switch k {
	case KindParked:
		return pipeline.ActPark
	case KindRange:
		return pipeline.ActRange
	}
	return pipeline.ActQuarantine
}

func letterError(topic string, r *pipeline.Record, format string, args ...any) error {
	place := topic + " offset " + strconv.FormatInt(r.Offset, 10)
	return pipeline.Errorf(pipeline.CodeLetterInvalid, place, "a signed letter is not readable: "+format, args...)
}

// equalText tells whether a header has exactly this text.
func equalText(hs []pipeline.Header, name, text string) bool {
	b, ok := find(hs, name)
	return ok && bytes.Equal(b, []byte(text))
}
