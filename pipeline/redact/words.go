package redact

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// pairs reads one text for names with values (`cvv=123`, `"Authorization": "Bearer x"`, `<password>x</password>`) and for
// user information in URLs.
func (e *Editor) pairs(t *reading) {
	b := t.b
	for _, sep := range [...]byte{':', '=', '>'} {
		e.covered = 0
		for i := 0; i < len(b); i++ {
			n := bytes.IndexByte(b[i:], sep)
			if n < 0 {
				break
			}
			i += n
			switch {
			case i == 0 || i < e.covered: // inside of what goes already: each sign is read once
			case sep != ':':
				e.assigned(t, i)
			case i+2 < len(b) && b[i+1] == '/' && b[i+2] == '/':
				if e.r.auth {
					e.userinfo(t, i+3)
				}
			case digit(b[i-1]) && i > 1 && !letter(b[i-2]): // a time
			default:
				e.assigned(t, i)
			}
		}
	}
}

// The last four letters of the schemes of schemeOf, as a little-endian number.
const (
	tailBearer    = 'a' | 'r'<<8 | 'e'<<16 | 'r'<<24
	tailBasic     = 'a' | 's'<<8 | 'i'<<16 | 'c'<<24
	tailDigest    = 'g' | 'e'<<8 | 's'<<16 | 't'<<24
	tailAPIKey    = 'i' | 'k'<<8 | 'e'<<16 | 'y'<<24
	tailNegotiate = 'i' | 'a'<<8 | 't'<<16 | 'e'<<24
	tailNTLM      = 'n' | 't'<<8 | 'l'<<16 | 'm'<<24
	tailHawk      = 'h' | 'a'<<8 | 'w'<<16 | 'k'<<24
)

// schemes reads one text for schemes with credentials (`Bearer x`): at each space, by the end of the word before it.
func (e *Editor) schemes(t *reading) {
	b := t.b
	e.covered = 0
	for i := schemeEnd(b, 4); i < len(b); i = schemeEnd(b, i+1) {
		if i < e.covered {
			continue
		}
		if from, to := credentials(b, i); from < to {
			e.add(t, from, to, hit{kind: kindAuth})
		}
	}
}

// showsCredentials tells whether schemes would find something in s.
func showsCredentials(s []byte) bool {
	for i := schemeEnd(s, 4); i < len(s); i = schemeEnd(s, i+1) {
		if from, to := credentials(s, i); from < to {
			return true
		}
	}
	return false
}

// schemeEnd is the next space, tab or plus from i, at least 4, before which a word ends as the name of a scheme does; len(b) if
// there is none.
func schemeEnd(b []byte, i int) int {
	for ; len(b)-i >= 8; i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		for at := ^atLeast(x&^highs, ',') & highs &^ x; at != 0; at &= at - 1 { // below ',': most of them are spaces
			if j := i + bits.TrailingZeros64(at)/8; schemeTail(b[j-4:]) && schemeGap(b[j]) {
				return j
			}
		}
	}
	for ; i < len(b); i++ {
		if schemeGap(b[i]) && schemeTail(b[i-4:]) {
			return i
		}
	}
	return len(b)
}

func schemeGap(c byte) bool { return c == ' ' || c == '\t' || c == '+' }

// tailSpread maps the tails to bits of a word: most other endings meet none of them.
const (
	tailSpread = 0x9e3779b1
	tailBits   = 1<<(tailBearer*tailSpread>>26&63) | 1<<(tailBasic*tailSpread>>26&63) | 1<<(tailDigest*tailSpread>>26&63) | 1<<(tailAPIKey*tailSpread>>26&63) |
		1<<(tailNegotiate*tailSpread>>26&63) | 1<<(tailNTLM*tailSpread>>26&63) | 1<<(tailHawk*tailSpread>>26&63)
)

func schemeTail(b []byte) bool {
	tail := binary.LittleEndian.Uint32(b) | 0x20202020
	if uint64(tailBits)>>(tail*tailSpread>>26)&1 == 0 {
		return false
	}
	switch tail {
	case tailBearer, tailBasic, tailDigest, tailAPIKey, tailNegotiate, tailNTLM, tailHawk:
		return true
	}
	return false
}

// spokenCodes reads one text for verification values named in prose (`security code is 123`): at each word, by its first
// letter.
func (e *Editor) spokenCodes(t *reading) {
	b := t.b
	for i := 0; i < len(b); i++ {
		c := b[i]
		if !alnum(c) {
			continue
		}
		from := i
		for i < len(b) && alnum(b[i]) {
			i++
		}
		switch c | 0x20 {
		case 'c', 's', 'v':
			if n := i - from; n >= 3 && n <= 12 && i < len(b) {
				e.spoken(t, from, i)
			}
		}
	}
}

// namesCode says that a word stands in s after which spokenCodes looks for a verification value.
func namesCode(s []byte) bool {
	for i := 0; i < len(s); i++ {
		first := wordSigns[s[i]]
		if first == 0 {
			continue
		}
		from := i
		for i++; i < len(s) && wordSigns[s[i]] != 0; {
			i++
		}
		if first == startsCode {
			if w := s[from:i]; spokenCode(w) || fold(w, "security") || fold(w, "verification") || fold(w, "validation") {
				return true
			}
		}
	}
	return false
}

const startsCode = 2

// wordSigns are the letters and digits; with c, s and v the words of namesCode begin.
var wordSigns = func() (t [256]uint8) {
	for c := range t {
		if alnum(byte(c)) {
			t[c] = 1
		}
		switch byte(c) | 0x20 {
		case 'c', 's', 'v':
			if letter(byte(c)) {
				t[c] = startsCode
			}
		}
	}
	return t
}()

// assigned judges the name before the separator at i and, if it means something, the value after it.
func (e *Editor) assigned(t *reading, i int) {
	b := t.b
	name := nameBefore(b, i)
	if len(name) < 2 {
		return
	}
	at := i - len(name) - 1
	if b[i] == ':' && e.r.auth && at >= 2 && b[at] == ' ' && b[at-1] == 'u' && b[at-2] == '-' { // curl -u user:password
		if to := valueEnd(b, i+1, 0); to > i+1 {
			e.add(t, i+1, to, hit{kind: kindAuth})
		}
		return
	}
	query := b[i] == '=' && at >= 0 && (b[at] == '?' || b[at] == '&')
	m := nameMeaning(text(name), query)
	if m == means && len(name) == 3 && (string(name) == "key" || string(name) == "Key" || string(name) == "KEY") && apiBefore(b, i-len(name)) {
		m = meansSecret
	}
	from, quote := valueStart(b, i)
	if from >= len(b) {
		return
	}
	if e.r.named {
		if rule := e.r.byName(text(name)); rule != 0 {
			if to := valueEnd(b, from, quote); to > from && !masked(b[from:to]) && string(b[from:to]) != "0" {
				e.add(t, from, to, hit{kind: kindField, rule: rule, literal: quote == 0 && number(b[from:to]) && quoted(b, from)})
			}
			return
		}
	}
	switch m {
	case meansCode:
		if e.r.cvv {
			e.codeValue(t, from, quote == 0 && b[i] == ':')
		}
	case meansAuth:
		if e.r.auth {
			e.authValue(t, from, quote)
		}
	case meansCookie:
		if e.r.auth {
			e.cookieValue(t, from, quote)
		}
	case meansSecret:
		if e.r.auth {
			e.secretValue(t, from, quote, b[i] == ':')
		}
	case meansMaybe:
		if e.r.auth {
			e.maybeValue(t, from, quote)
		}
	}
}

// apiBefore: "api key: x".
func apiBefore(b []byte, i int) bool {
	return i >= 4 && (b[i-1] == ' ' || b[i-1] == '-') && b[i-2]|0x20 == 'i' && b[i-3]|0x20 == 'p' && b[i-4]|0x20 == 'a'
}

// valueStart passes the separator at i and what opens a value. quote is the quotation mark that the value stands in, 0 for
// none.
func valueStart(b []byte, i int) (from int, quote byte) {
	from = i + 1
	for n := 0; from < len(b) && n < 12; n++ {
		switch c := b[from]; c {
		case ' ', '\t', '=', '>', ':', '[', '(', '{':
			from++
			continue
		case '\n', '\r':
			if quote == 0 && n == 0 {
				return len(b), 0
			}
		case '"', '\'', '`':
			quote = c
			from++
			continue
		}
		break
	}
	return from, quote
}

// valueEnd is where a value that starts at from ends: at its quotation mark, else at the first sign that ends a word.
func valueEnd(b []byte, from int, quote byte) int {
	i := from
	if quote != 0 {
		for i < len(b) && b[i] != quote {
			i++
		}
		return i
	}
	for i < len(b) {
		switch b[i] {
		case ' ', '\t', '\n', '\r', ',', ';', '&', '"', '\'', '`', '<', '>', ')', ']', '}', '|', opaque, 0:
			return i
		}
		i++
	}
	return i
}

// masked says that a value is already gone, or never was one.
func masked(v []byte) bool {
	for _, c := range v {
		switch c {
		case '*', 'x', 'X', ' ', '.', '[', ']', '#', '-', '<', '>', '_':
		default:
			return string(v) == "REDACTED" || string(v) == "redacted" || string(v) == "masked" || string(v) == "null" || string(v) == "[REDACTED]" || string(v) == "nil" ||
				string(v) == "true" || string(v) == "false" || string(v) == "undefined" || string(v) == "none" || string(v) == "None"
		}
	}
	return true
}

// number says that v reads as a JSON number.
func number(v []byte) bool {
	if len(v) == 0 {
		return false
	}
	for i, c := range v {
		if !digit(c) && !(i == 0 && c == '-') && c != '.' && c != 'e' && c != 'E' && c != '+' {
			return false
		}
	}
	return true
}
