package redact

import (
	"bytes"
	"encoding/binary"
	"math/bits"

	"reprieve.dev/pipeline"
)

// Least says which leaves are kept without being looked at: numbers of fewer digits than a card number has, and strings of
// fewer signs than anything that is looked for, unless their name or their place says more.
func (e *Editor) Least(rule pipeline.Rule, kind pipeline.ValueKind) int64 {
	if rule>>ruleField != 0 || rule&rulePath != 0 || len(e.r.patterns) > 0 {
		return 0
	}
	switch m := meaning(rule&ruleMeaning) - 1; m {
	case meansCode, meansAuth, meansCookie, meansSecret, meansPairName, meansPairValue:
		return 0
	}
	switch kind {
	case pipeline.KindInt, pipeline.KindFloat:
		return 100_000_000_000 // the first number of minDigits digits
	case pipeline.KindString:
		return 3 // look, in Edit
	case pipeline.KindNumber:
		return minDigits
	}
	return 0
}

// Dull are the signs of which the detectors look at no more than their number: letters, digits, and what may stand between the
// words of a name. Fewer than a card number has are kept.
func (e *Editor) Dull() (signs *[256]uint8, fewer int) { return &e.r.dull, minDigits }

// dullSigns are ASCII and of no class but the digits and what may join them; a document does not begin with them.
func dullSigns(class *[256]uint8) (t [256]uint8) {
	for c := ' ' + 1; c < 0x80; c++ {
		if class[c]&^(isDigit|isJoin) == 0 && c != '{' && c != '[' && c != '"' {
			t[c] = 1
		}
	}
	return t
}

// Sift finds in src what Keeps looks for, and the ends of words before which a scheme may stand.
func (e *Editor) Sift(src []byte, into *pipeline.Sieve) bool { return sift(src, into) }

// Keeps is the cheap look at a text, all of which is read: most texts end here.
func (e *Editor) Keeps(s []byte) (kept, ascii bool) {
	var signs, spaces, tokens, high uint64
	var classes uint8
	digits := 0
	r := e.r
	for i := 0; i < len(s); i += 8 {
		var x uint64
		switch rest := len(s) - i; {
		case rest >= 8:
			x = binary.LittleEndian.Uint64(s[i:])
		case len(s) >= 8: // the last eight bytes, what was read already shifted out, letters shifted in
			x = binary.LittleEndian.Uint64(s[len(s)-8:])>>(64-8*rest) | letters<<(8*rest)
		case len(s) >= 4: // the bytes in the middle twice
			x = uint64(binary.LittleEndian.Uint32(s)) | uint64(binary.LittleEndian.Uint32(s[len(s)-4:]))<<32
		default:
			x = letters&^0xffffff | uint64(s[0])<<16 | uint64(s[len(s)/2])<<8 | uint64(s[len(s)-1])
		}
		if high |= x; x&highs != 0 {
			for _, c := range s[i:min(i+8, len(s))] {
				k := r.class[c]
				classes |= k
				digits += int(k & isDigit)
				if c < ' ' {
					spaces = highs
				}
			}
			continue
		}
		colon := atLeast(x, ':')
		digits += bits.OnesCount64(atLeast(x, '0') & ^colon & highs)
		signs |= colon&^atLeast(x, '?') | atLeast(x, '%')&^atLeast(x, '&'+1) | equal(x, '\\')
		tokens |= equal(x, 'J')
		spaces |= ^atLeast(x, ' '+1)
	}
	if high&highs == 0 {
		if (signs|spaces|tokens)&highs == 0 && digits < minDigits && len(s) >= 3 {
			c := s[0]
			return c != '{' && c != '[' && c != '"' && len(s) <= window, true
		}
		return r.harmless(s, digits, signs&highs != 0, spaces&highs != 0, tokens&highs != 0), true
	}
	return r.harmless(s, digits, signs&highs != 0 || classes&(isEscape|isAssign) != 0, spaces&highs != 0 || classes&isSpace != 0,
		tokens&highs != 0 || classes&isCapital != 0), false
}

// harmless is the answer of Keeps for a text with signs of a secret. digits may be more than there are. True is what Edit would
// find after looking closely, in a field whose name says nothing, or that it holds a number.
func (r *Redactor) harmless(s []byte, digits int, signs, spaces, tokens bool) bool {
	if len(s) < 3 {
		return true
	}
	if c := s[0]; signs || c <= ' ' || c == '{' || c == '[' || c == '"' || len(s) > window { // it may be a document
		return false
	}
	if digits >= minDigits && r.chained(s) || tokens && r.auth && bytes.Contains(s, []byte("eyJ")) {
		return false
	}
	if !spaces {
		return true
	}
	return !(digits >= 3 && r.cvv && namesCode(s)) && !(r.auth && showsCredentials(s))
}
