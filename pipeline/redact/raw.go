package redact

import (
	"bytes"
	"encoding/binary"
	"unicode/utf8"

	"reprieve.dev/pipeline"
)

// Texts are read in windows, so that scratch stays small however long a value or a line is.
const (
	window  = 64 << 10
	overlap = 1 << 10
)

// windows is scan for texts of any length.
func (e *Editor) windows(b []byte, m meaning) {
	if len(b) <= window {
		e.scan(b, m)
		return
	}
	for start, size := 0, window; start < len(b); {
		end := min(start+size, len(b))
		from := len(e.hits)
		e.scan(b[start:end], m)
		e.shift(from, start)
		if end == len(b) {
			break
		}
		if n := len(e.hits); n > from && e.hits[n-1].to >= end-1 { // what was found may go on: look at twice as much
			e.hits = e.hits[:from]
			size *= 2
			continue
		}
		start, size = end-overlap, window
	}
}

// raw masks in place what is found in bytes that no codec could read: as a document if they are one, as text, and as binary:
// numbers behind a length, numbers as varints. Every position and length stays. What is compressed cannot be looked into:
// e.fail (INV-REDACT-SURE).
func (e *Editor) raw(dst, b []byte) (out []byte, changed bool) {
	if c := compressed(b); c != "" {
		e.refuse(pipeline.CodeRedactFailed, "", "the bytes are compressed ("+c+") and cannot be looked into")
		return dst, false
	}
	mark := len(e.hits)
	head := frame(b)
	ok := false
	for _, from := range [...]int{0, head} {
		if i := blank(b, from); i < len(b) && (b[i] == '{' || b[i] == '[') {
			if ok = e.document(b[from:], 0); ok {
				e.shift(mark, from)
				break
			}
			e.hits = e.hits[:mark]
		}
		if head == 0 {
			break
		}
	}
	if !ok {
		e.binary(b, means)
	}
	if len(e.hits) == mark {
		return dst, false
	}
	out = e.render(dst, b, e.hits[mark:], true)
	return out, !bytes.Equal(out[len(dst):], b)
}

// keepsRaw is the quick answer for short text, as keys are: raw would find nothing. False says nothing.
func (e *Editor) keepsRaw(b []byte) bool {
	if len(e.r.patterns) > 0 || b[0] == 'B' { // bzip2 begins as text does
		return false
	}
	kept, ascii := e.Keeps(b)
	return kept && ascii && plain(b)
}

// binary finds what goes in bytes that may be text, binary or both.
func (e *Editor) binary(b []byte, m meaning) {
	mark := len(e.hits)
	e.value(b, m, "", 0, false)
	if plain(b) || !e.r.pan {
		return
	}
	e.prefixed(b, m)
	e.varints(b, m)
	if bytes.Count(b, []byte{0})*3 > len(b) {
		e.wide(b, m)
	}
	e.settle(mark)
}

// plain says that b is text and nothing else.
func plain(b []byte) bool {
	for _, c := range b {
		if c < ' ' && c != '\n' && c != '\r' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return utf8.Valid(b)
}

// prefixed finds card numbers that stand behind their length, as Avro (twice the length) and Protobuf write strings. What
// stands beside them may be letters or digits of other fields.
func (e *Editor) prefixed(b []byte, m meaning) {
	for i := 1; i+minDigits <= len(b); i++ {
		if !digit(b[i]) || digit(b[i-1]) && i > 1 && digit(b[i-2]) { // in the middle of a number
			continue
		}
		for _, n := range [...]int{int(b[i-1]) / 2, int(b[i-1])} {
			if n < minDigits || n > 27 || i+n > len(b) || n == int(b[i-1])/2 && b[i-1]&1 != 0 || !plain(b[i:i+n]) {
				continue
			}
			t := reading{b: b[i : i+n], n: n}
			from := len(e.hits)
			e.pans(&t, m)
			e.shift(from, i)
		}
	}
	for i := 1; i+minDigits <= len(b); i++ { // longer strings: only the sign before them misleads
		n := int(b[i-1]) / 2
		if !digit(b[i]) || n < 28 || i+n > len(b) || !plain(b[i:i+n]) {
			continue
		}
		t := reading{b: b[i : i+n], n: n}
		from := len(e.hits)
		e.pans(&t, m)
		e.shift(from, i)
	}
}

// varints finds card numbers written as variable-length integers, zigzag (Avro) or plain (Protobuf), and a value of eight
// bytes that is one big-endian number. The mask is a zero of the same length.
func (e *Editor) varints(b []byte, m meaning) {
	if len(b) == 8 {
		e.integer(b, 0, 8, binary.BigEndian.Uint64(b), m)
	}
	for i := 0; i < len(b); i++ {
		if b[i] < 0x80 {
			continue
		}
		u, n := binary.Uvarint(b[i:])
		if n < 6 || n > 10 {
			continue
		}
		if u&1 == 0 && e.integer(b, i, i+n, u>>1, m) || e.integer(b, i, i+n, u, m) {
			i += n - 1
		}
	}
}

// integer notes a number that is a card number of a usual length.
func (e *Editor) integer(b []byte, from, to int, v uint64, m meaning) bool {
	if v < 1e13 || v >= 1e16 && m != meansCard && v >= 1e17 {
		return false
	}
	d := e.digits[:0]
	for ; v > 0; v /= 10 {
		d = append(d, byte('0'+v%10))
	}
	for i, j := 0, len(d)-1; i < j; i, j = i+1, j-1 {
		d[i], d[j] = d[j], d[i]
	}
	if len(d) > 19 || !e.r.isCard(d, m, false) {
		return false
	}
	e.hits = append(e.hits, hit{from: from, to: to, kind: kindPAN, digits: uint8(len(d)), varint: b[to-1] < 0x80 && b[from] >= 0x80})
	return true
}

// wide reads UTF-16: every other byte is zero.
func (e *Editor) wide(b []byte, m meaning) {
	e.norm, e.pos = e.norm[:0], e.pos[:0]
	for i, c := range b {
		if c != 0 {
			e.norm, e.pos = append(e.norm, c), append(e.pos, int32(i))
		}
	}
	e.pos = append(e.pos, int32(len(b)))
	t := reading{b: e.norm, pos: e.pos, n: len(b), src: b}
	e.pans(&t, m)
	e.pairs(&t)
	if e.r.auth {
		e.schemes(&t)
	}
	if e.r.cvv {
		e.spokenCodes(&t)
	}
}

// compressed names the compression that bytes start with, "" for none.
func compressed(b []byte) string {
	for _, c := range [...]struct{ magic, name string }{
		{"\x1f\x8b\x08", "gzip"}, {"\x28\xb5\x2f\xfd", "zstd"}, {"\x04\x22\x4d\x18", "lz4"}, {"\xff\x06\x00\x00sNaPpY", "snappy"},
		{"\x82SNAPPY\x00", "snappy"}, {"\xfd7zXZ\x00", "xz"}, {"PK\x03\x04", "zip"}, {"BZh", "bzip2"},
	} {
		if len(b) > len(c.magic)+4 && string(b[:len(c.magic)]) == c.magic {
			if c.name == "bzip2" && string(b[4:8]) != "1AY&" {
				continue
			}
			return c.name
		}
	}
	return ""
}

// header finds what goes in a header. Numbers that clients and we write stay (INV-DLQ-04: a masked idempotency key would
// break it).
func (e *Editor) header(h *pipeline.Header) (name string, value []byte, changed bool) {
	name, value = h.Name, h.Value
	if len(name) >= minDigits {
		e.begin()
		e.scan([]byte(name), means)
		if len(e.hits) > 0 {
			name, changed = string(e.render(nil, []byte(name), e.hits, true)), true
		}
	}
	if len(value) == 0 || protocolNumber(h.Name) && identifier(value) {
		return name, value, changed
	}
	e.begin()
	if rule := e.r.byName(h.Name); rule != 0 {
		if !masked(value) {
			return name, e.appendHit(nil, value, &hit{kind: kindField, rule: rule}), true
		}
		return name, value, changed
	}
	if !plain(value) {
		if out, hit := e.raw(nil, value); hit {
			return name, out, true
		}
		return name, value, changed
	}
	m := nameMeaning(h.Name, false)
	e.value(value, m, "", 0, false)
	if len(e.hits) > 0 {
		return name, e.render(nil, value, e.hits, false), true
	}
	return name, value, changed
}

// identifier says that a value is one word of digits, letters and dashes.
func identifier(v []byte) bool {
	for _, c := range v {
		if !alnum(c) && c != '-' && c != '_' && c != ',' && c != '=' && c != ':' {
			return false
		}
	}
	return true
}
