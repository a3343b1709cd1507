package redact

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"

	"reprieve.dev/seal"
)

// action is what is done with a hit.
type action uint8

const (
	actMask action = iota
	actHash
	actToken
	actDrop
	actLast4
)

// parseAction reads an action as files spell it; empty is mask.
func parseAction(s string) (action, bool) {
	switch s {
	case "", "mask":
		return actMask, true
	case "hash":
		return actHash, true
	case "tokenise":
		return actToken, true
	case "drop":
		return actDrop, true
	case "last4":
		return actLast4, true
	}
	return 0, false
}

// hiddenText stands where something of a length that is nobody's business was.
const hiddenText = "***"

// action is what the file asks for a hit.
func (r *Redactor) action(h *hit) action {
	switch h.kind {
	case kindPAN:
		return r.actPAN
	case kindCVV:
		return r.actCVV
	case kindAuth:
		return r.actAuth
	case kindPattern:
		return r.patterns[h.rule-1].action
	}
	return r.fields[h.rule-1].action
}

// render appends s with its hits replaced. same keeps every length and position: raw bytes (INV-REDACT-IN-PLACE). Everything
// that is no hit stays byte for byte (INV-REDACT-ALL-AND-ONLY).
func (e *Editor) render(dst, s []byte, hits []hit, same bool) []byte {
	last := 0
	for i := range hits {
		h := &hits[i]
		dst = append(dst, s[last:h.from]...)
		if same {
			dst = appendSame(dst, s[h.from:h.to], h)
		} else {
			dst = e.appendHit(dst, s[h.from:h.to], h)
		}
		last = h.to
	}
	return append(dst, s[last:]...)
}

// appendSame appends a mask of exactly the length of v. A JSON number becomes 0 and spaces, so a document stays one.
func appendSame(dst, v []byte, h *hit) []byte {
	if h.varint {
		for range len(v) - 1 {
			dst = append(dst, 0x80)
		}
		return append(dst, 0)
	}
	if h.literal {
		dst = append(dst, '0')
		for range len(v) - 1 {
			dst = append(dst, ' ')
		}
		return dst
	}
	for _, c := range v {
		if h.kind == kindPAN && (c == ' ' || c == '-') {
			dst = append(dst, c)
			continue
		}
		dst = append(dst, '*')
	}
	return dst
}

// appendHit appends what stands for v. It is ASCII without quotes or backslashes, so it may stand at any depth of nesting.
func (e *Editor) appendHit(dst, v []byte, h *hit) []byte {
	switch a := e.r.action(h); a {
	case actDrop:
		if h.literal {
			return append(dst, "null"...)
		}
		return dst
	case actHash:
		sum := e.keyed("hash", v, h)
		if h.literal {
			return appendDigits(dst, sum[:], 15)
		}
		dst = append(append(dst, "hmac256:"...), e.r.hashKeyID...)
		return hex.AppendEncode(append(dst, ':'), sum[:])
	case actToken:
		sum := e.keyed("token", v, h)
		if h.kind == kindPAN {
			return appendDigits(dst, sum[:], int(h.digits))
		}
		if h.literal {
			return appendDigits(dst, sum[:], min(len(v), 18))
		}
		n := min(max(12, (len(v)+7)/8*8), 56)
		text := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:])
		dst = append(dst, "tok_"...)
		for i := 0; i < n-4; i++ {
			c := text[i%len(text)]
			if c >= 'A' {
				c += 'a' - 'A'
			}
			dst = append(dst, c)
		}
		return dst
	case actLast4:
		return e.appendLast4(dst, v, h)
	}
	if h.literal {
		return append(dst, '0')
	}
	if h.kind != kindPAN {
		return append(dst, hiddenText...)
	}
	if plainASCII(v) {
		for _, c := range v {
			if digit(c) || letter(c) {
				c = '*'
			}
			dst = append(dst, c)
		}
		return dst
	}
	for range h.digits {
		dst = append(dst, '*')
	}
	return dst
}

// appendLast4 keeps the last four signs of what has at least twelve digits or signs, else nothing.
func (e *Editor) appendLast4(dst, v []byte, h *hit) []byte {
	plain, _ := unescape(v, nil, nil)
	if h.kind == kindPAN {
		plain = onlyDigits(plain)
	}
	if len(plain) < 8 {
		if h.literal {
			return append(dst, '0')
		}
		return append(dst, hiddenText...)
	}
	tail := plain[len(plain)-4:]
	if h.literal {
		for len(tail) > 1 && (tail[0] == '0' || !digit(tail[0])) {
			tail = tail[1:]
		}
		if !digit(tail[0]) {
			return append(dst, '0')
		}
		return append(dst, tail...)
	}
	for range len(plain) - 4 {
		dst = append(dst, '*')
	}
	for _, c := range tail {
		if c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			c = '*'
		}
		dst = append(dst, c)
	}
	return dst
}

// prune takes back hits on what an earlier pass wrote: hashes and tokens of this Redactor.
func (e *Editor) prune(s []byte, from int) {
	k := from
	for i := from; i < len(e.hits); i++ {
		h := e.hits[i]
		if a := e.r.action(&h); (a == actHash || a == actToken) && h.kind != kindPAN && e.r.made(s[h.from:h.to]) {
			continue
		}
		e.hits[k] = h
		k++
	}
	e.hits = e.hits[:k]
}

// made says that v is a hash or a token as this Redactor writes them.
func (r *Redactor) made(v []byte) bool {
	if rest, ok := bytes.CutPrefix(v, []byte("tok_")); ok {
		for _, c := range rest {
			if (c < 'a' || c > 'z') && (c < '2' || c > '7') {
				return false
			}
		}
		return len(v) == 12 || len(v)%8 == 0 && len(v) > 12 && len(v) <= 56
	}
	rest, ok := bytes.CutPrefix(v, []byte("hmac256:"))
	if ok {
		rest, ok = bytes.CutPrefix(rest, []byte(r.hashKeyID+":"))
	}
	if !ok || len(rest) != 2*sha256.Size {
		return false
	}
	_, ok = hexValue(rest)
	return ok
}

func plainASCII(v []byte) bool {
	for _, c := range v {
		if c >= 0x80 || c == '\\' || c == '%' || c == '&' || c < ' ' {
			return false
		}
	}
	return true
}

func onlyDigits(v []byte) []byte {
	k := 0
	for _, c := range v {
		if digit(c) {
			v[k] = c
			k++
		}
	}
	return v[:k]
}

// keyed is the HMAC of what was found under a key of its own for each use. The spelling of a card number does not matter.
func (e *Editor) keyed(use string, v []byte, h *hit) (sum [sha256.Size]byte) {
	if h.kind == kindPAN {
		plain, _ := unescape(v, nil, nil)
		v = onlyDigits(plain)
	}
	m := hmac.New(sha256.New, e.r.hashKey)
	m.Write(seal.LP([]byte("reprieve/redact/v1"), []byte(use), v))
	m.Sum(sum[:0])
	return sum
}

// appendDigits appends n digits that are made from sum and are no card number: the first is 1 and Luhn fails.
func appendDigits(dst, sum []byte, n int) []byte {
	if n < 1 {
		n = 1
	}
	from := len(dst)
	dst = append(dst, '1')
	for i := 1; i < n; i++ {
		dst = append(dst, '0'+sum[i%len(sum)]%10)
	}
	if d := dst[from:]; n >= minDigits && luhn(d) {
		d[n-1] = '0' + (d[n-1]-'0'+1)%10
	}
	return dst
}
