package redact

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"
)

// kind is what a detector found.
type kind uint8

const (
	kindNone kind = iota
	kindPAN
	kindCVV
	kindAuth
	kindField   // named by path, name or tag
	kindPattern // the user's own
)

// hit is one span to be replaced, in bytes of the source. rule is the pattern or field that asked for it.
type hit struct {
	from, to int
	kind     kind
	rule     uint16
	digits   uint8 // of a card number
	literal  bool  // a JSON number: what stands there must be one too
	varint   bool  // a number in binary: a zero of the same length
}

// What one byte is to the cheap look.
const (
	isDigit   = 1 << 0
	isJoin    = 1 << 1 // may stand between the digits of one number
	isEscape  = 1 << 2 // may hide another sign
	isAssign  = 1 << 3 // stands between a name and a value
	isSpace   = 1 << 4
	isCapital = 1 << 5 // J: the third letter of every JSON web token
)

// classes is built once for a Redactor: what each byte is.
func classes() (t [256]uint8) {
	for c := '0'; c <= '9'; c++ {
		t[c] = isDigit
	}
	for _, c := range " \t-._+\x00,/:|\r\n" {
		t[c] |= isJoin
	}
	for _, c := range `\%&` {
		t[c] |= isEscape
	}
	// Of other signs only those that may stand for a digit, a separator or nothing: not the letters of Latin (C3 to CA),
	// Greek, Cyrillic and Hebrew (CE to D7) or Han (E4 to E9), whose bytes are boundaries as they are.
	for c := 0xC0; c < 0x100; c++ {
		if c >= 0xC3 && c <= 0xCA || c >= 0xCE && c <= 0xD7 || c >= 0xE4 && c <= 0xE9 {
			continue
		}
		t[c] |= isEscape
	}
	for _, c := range ":=<>" {
		t[c] |= isAssign
	}
	for _, c := range " \t\n\r" {
		t[c] |= isSpace
	}
	t['J'] |= isCapital
	return t
}

// minDigits is the length of the shortest card number.
const minDigits = 12

// Eight bytes at once: each byte of these constants stands for one of the text.
const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080

	letters = 'a' * ones
)

// flag is k if x marks a byte.
func flag(x uint64, k uint8) uint8 {
	if x&highs != 0 {
		return k
	}
	return 0
}

// atLeast marks, in the highest bit of each byte below 0x80 of x, those that are c or more.
func atLeast(x uint64, c byte) uint64 { return x + ones*uint64(0x80-c) }

// equal marks the bytes below 0x80 of x that are c.
func equal(x uint64, c byte) uint64 {
	y := x ^ ones*uint64(c)
	return ^(y + ones*0x7f) & ^y
}

// look is the cheap first pass over one text: which detectors must read it. run says that twelve digits may belong together,
// few that there are at least three. Most texts end here.
func (r *Redactor) look(s []byte) (seen uint8, few, run bool) {
	digits := 0
	for i := 0; i < len(s); i += 8 {
		var x uint64
		switch rest := len(s) - i; {
		case rest >= 8:
			x = binary.LittleEndian.Uint64(s[i:])
		case len(s) >= 8: // the last eight bytes, what was read already shifted out, letters shifted in
			x = binary.LittleEndian.Uint64(s[len(s)-8:])>>(64-8*rest) | letters<<(8*rest)
		default:
			for _, c := range s {
				k := r.class[c]
				seen |= k
				digits += int(k & isDigit)
			}
			return seen, digits >= 3 || seen&isEscape != 0, seen&isEscape != 0
		}
		if x&highs != 0 {
			for _, c := range s[i:min(i+8, len(s))] {
				k := r.class[c]
				seen |= k
				digits += int(k & isDigit)
			}
			continue
		}
		colon := atLeast(x, ':')
		digits += bits.OnesCount64(atLeast(x, '0') & ^colon & highs)
		assign := colon & ^atLeast(x, '?') // : ; < = >
		space := ^atLeast(x, ' '+1)        // space and controls
		escape := atLeast(x, '%')&^atLeast(x, '&'+1) | equal(x, '\\')
		seen |= flag(assign, isAssign) | flag(space, isSpace) | flag(escape, isEscape) | flag(equal(x, 'J'), isCapital)
	}
	if seen&isEscape != 0 {
		return seen, true, true
	}
	return seen, digits >= 3, digits >= minDigits && r.chained(s)
}

// chained says that twelve digits stand in s with nothing between them but separators.
func (r *Redactor) chained(s []byte) bool {
	n := 0
	for _, c := range s {
		if k := r.class[c]; k&isDigit != 0 {
			if n++; n >= minDigits {
				return true
			}
		} else if k&isJoin == 0 {
			n = 0
		}
	}
	return false
}

// scan appends to e.hits what the detectors find in s. m is what the name beside s means. Hits are ordered and apart. It
// allocates nothing once e's scratch has grown.
func (e *Editor) scan(s []byte, m meaning) {
	if len(s) < 3 || m == meansKept {
		return
	}
	seen, few, run := e.r.look(s)
	if seen&isEscape == 0 {
		if !run && seen&(isAssign|isSpace|isCapital) == 0 && len(e.r.patterns) == 0 {
			return
		}
		e.read = reading{b: s, n: len(s)}
	} else {
		e.norm, e.pos = unescape(s, e.norm, e.pos)
		e.read = reading{b: e.norm, pos: e.pos, n: len(s), src: s}
		seen, few, run = e.r.look(e.norm)
	}
	from := len(e.hits)
	if run && e.r.pan {
		e.pans(&e.read, m)
	}
	if seen&isAssign != 0 {
		e.pairs(&e.read)
	}
	if seen&isSpace != 0 && e.r.auth {
		e.schemes(&e.read)
	}
	if few && seen&(isAssign|isSpace) != 0 && e.r.cvv {
		e.spokenCodes(&e.read)
	}
	if seen&isCapital != 0 && e.r.auth {
		e.jwts(&e.read)
	}
	if len(e.r.patterns) > 0 {
		e.matchPatterns(s)
	}
	e.settle(from)
}

// add notes a hit over signs [from, to) of t.
func (e *Editor) add(t *reading, from, to int, h hit) {
	h.from, h.to = t.at(from), t.at(to)
	if h.to > h.from {
		e.hits = append(e.hits, h)
		e.covered = max(e.covered, to)
	}
}

// settle orders e.hits[from:] and joins what overlaps: the wider kind of the first wins.
func (e *Editor) settle(from int) {
	h := e.hits[from:]
	if len(h) < 2 {
		return
	}
	slices.SortFunc(h, func(a, b hit) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(b.to, a.to)) })
	k := 0
	for i := 1; i < len(h); i++ {
		if h[i].from < h[k].to {
			if h[i].to > h[k].to {
				h[k].to, h[k].kind, h[k].digits = h[i].to, h[i].kind, 0
			}
			continue
		}
		k++
		h[k] = h[i]
	}
	e.hits = e.hits[:from+k+1]
}
