package seal

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	maxSafeInteger    = 1 << 53
	maxCanonicalDepth = 512
)

// Canonical is the canonical JSON of v (RFC 8785 with our narrowing): v as encoding/json writes it, members in the order of
// their UTF-16 code units, no white space, no floats, no integer beyond 2^53 either way (write it as a string), no member
// twice, text byte for byte. What cannot be written so is refused, never changed. Codes: ERR_INPUT_INVALID.
func Canonical(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, &Error{Code: codeInput, Text: "the value has no JSON form: " + err.Error(), Cause: err}
	}
	// encoding/json writes the escape where a string is not valid UTF-8, and the character itself where it was there: two
	// different values would get one digest.
	if replaced(buf.Bytes()) {
		return nil, refuse(codeInput, "", "a text is not valid UTF-8")
	}
	return CanonicalBytes(bytes.TrimSuffix(buf.Bytes(), []byte{'\n'}))
}

// replaced tells whether a JSON text has the escape of U+FFFD; "\\\\ufffd" is a backslash and five letters.
func replaced(text []byte) bool {
	for at := 0; ; at++ {
		n := bytes.IndexByte(text[at:], '\\')
		if n < 0 {
			return false
		}
		at += n
		if bytes.HasPrefix(text[at:], []byte(`\ufffd`)) {
			return true
		}
		at++ // whatever is escaped
	}
}

// CanonicalBytes is the canonical form of one JSON text. It refuses what Canonical refuses, and what is not strict JSON
// (RFC 8259), unpaired surrogates included, deeper than 512 or followed by more. Cost: one pass and one sort a object; memory
// is a small multiple of the text. Codes: ERR_INPUT_INVALID with the byte position as place.
func CanonicalBytes(jsonText []byte) ([]byte, error) {
	p := canon{src: jsonText}
	p.space()
	root, err := p.value(0)
	if err != nil {
		return nil, err
	}
	p.space()
	if p.at != len(p.src) {
		return nil, p.refuse("something follows the value")
	}
	return root.append(make([]byte, 0, len(jsonText))), nil
}

// IsCanonical tells whether the text is byte for byte its own canonical form, as manifest files must be.
func IsCanonical(jsonText []byte) bool {
	c, err := CanonicalBytes(jsonText)
	return err == nil && bytes.Equal(c, jsonText)
}

// Digest is SHA256 over Canonical(v). Codes: ERR_INPUT_INVALID.
func Digest(v any) (string, error) {
	c, err := Canonical(v)
	if err != nil {
		return "", err
	}
	return SHA256(c), nil
}

// canonValue is a parsed value: a scalar in its canonical text, or items, or members.
type canonValue struct {
	kind    byte // 's' scalar, '[' items, '{' members
	text    []byte
	items   []canonValue
	members []canonMember
}

type canonMember struct {
	key   string
	value canonValue
}

func (v *canonValue) append(dst []byte) []byte {
	switch v.kind {
	case '[':
		dst = append(dst, '[')
		for i := range v.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = v.items[i].append(dst)
		}
		return append(dst, ']')
	case '{':
		dst = append(dst, '{')
		for i := range v.members {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendString(dst, v.members[i].key)
			dst = append(dst, ':')
			dst = v.members[i].value.append(dst)
		}
		return append(dst, '}')
	}
	return append(dst, v.text...)
}

// canon reads strict JSON.
type canon struct {
	src []byte
	at  int
}

func (p *canon) refuse(text string) error {
	return refuse(codeInput, "byte "+strconv.Itoa(p.at), "%s", text)
}

func (p *canon) space() {
	for p.at < len(p.src) {
		switch p.src[p.at] {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return
		}
	}
}

func (p *canon) value(depth int) (canonValue, error) {
	if depth > maxCanonicalDepth {
		return canonValue{}, p.refuse("nested deeper than 512")
	}
	if p.at >= len(p.src) {
		return canonValue{}, p.refuse("a value is missing")
	}
	switch c := p.src[p.at]; {
	case c == '{':
		return p.object(depth)
	case c == '[':
		return p.array(depth)
	case c == '"':
		s, err := p.str()
		if err != nil {
			return canonValue{}, err
		}
		return canonValue{kind: 's', text: appendString(nil, s)}, nil
	case c == '-' || c >= '0' && c <= '9':
		return p.number()
	}
	for _, word := range [...]string{"null", "true", "false"} {
		if len(p.src)-p.at >= len(word) && string(p.src[p.at:p.at+len(word)]) == word {
			p.at += len(word)
			return canonValue{kind: 's', text: []byte(word)}, nil
		}
	}
	return canonValue{}, p.refuse("not a JSON value")
}

func (p *canon) array(depth int) (canonValue, error) {
	v := canonValue{kind: '['}
	p.at++
	p.space()
	if p.at < len(p.src) && p.src[p.at] == ']' {
		p.at++
		return v, nil
	}
	for {
		p.space()
		item, err := p.value(depth + 1)
		if err != nil {
			return v, err
		}
		v.items = append(v.items, item)
		if done, err := p.next(']'); done || err != nil {
			return v, err
		}
	}
}

func (p *canon) object(depth int) (canonValue, error) {
	v := canonValue{kind: '{'}
	p.at++
	p.space()
	if p.at < len(p.src) && p.src[p.at] == '}' {
		p.at++
		return v, nil
	}
	for {
		p.space()
		if p.at >= len(p.src) || p.src[p.at] != '"' {
			return v, p.refuse("a member name is missing")
		}
		key, err := p.str()
		if err != nil {
			return v, err
		}
		p.space()
		if p.at >= len(p.src) || p.src[p.at] != ':' {
			return v, p.refuse("a colon is missing")
		}
		p.at++
		p.space()
		item, err := p.value(depth + 1)
		if err != nil {
			return v, err
		}
		v.members = append(v.members, canonMember{key, item})
		done, err := p.next('}')
		if err != nil {
			return v, err
		}
		if done {
			break
		}
	}
	slices.SortFunc(v.members, func(a, b canonMember) int { return compareUTF16(a.key, b.key) })
	for i := 1; i < len(v.members); i++ {
		if v.members[i].key == v.members[i-1].key {
			return v, p.refuse("an object has the same member twice")
		}
	}
	return v, nil
}

// next reads a comma, or the end of the array or object.
func (p *canon) next(end byte) (done bool, err error) {
	p.space()
	if p.at < len(p.src) {
		switch p.src[p.at] {
		case ',':
			p.at++
			return false, nil
		case end:
			p.at++
			return true, nil
		}
	}
	return false, p.refuse("a comma or the end is missing")
}

func (p *canon) number() (canonValue, error) {
	start := p.at
	if p.src[p.at] == '-' {
		p.at++
	}
	digits := p.at
	for p.at < len(p.src) && p.src[p.at] >= '0' && p.src[p.at] <= '9' {
		p.at++
	}
	switch {
	case p.at == digits:
		return canonValue{}, p.refuse("a number has no digits")
	case p.src[digits] == '0' && p.at-digits > 1:
		return canonValue{}, p.refuse("a number has a leading zero")
	case p.at < len(p.src) && (p.src[p.at] == '.' || p.src[p.at] == 'e' || p.src[p.at] == 'E'):
		return canonValue{}, p.refuse("a number that is not an integer has no canonical form: write it as a string")
	}
	n, err := strconv.ParseInt(string(p.src[start:p.at]), 10, 64)
	if err != nil || n > maxSafeInteger || n < -maxSafeInteger {
		return canonValue{}, p.refuse("an integer beyond 2^53 has no canonical form: write it as a string")
	}
	return canonValue{kind: 's', text: strconv.AppendInt(nil, n, 10)}, nil
}

func (p *canon) str() (string, error) {
	p.at++
	start := p.at
	for p.at < len(p.src) { // the usual text has no escape and is taken as it stands
		c := p.src[p.at]
		if c == '"' {
			s := p.src[start:p.at]
			if !utf8.Valid(s) {
				return "", p.refuse("a text is not valid UTF-8")
			}
			p.at++
			return string(s), nil
		}
		if c == '\\' {
			return p.escaped(append([]byte(nil), p.src[start:p.at]...))
		}
		if c < 0x20 {
			return "", p.refuse("a control character stands in a text")
		}
		p.at++
	}
	return "", p.refuse("a text does not end")
}

func (p *canon) escaped(out []byte) (string, error) {
	for p.at < len(p.src) {
		c := p.src[p.at]
		p.at++
		switch {
		case c == '"':
			if !utf8.Valid(out) {
				return "", p.refuse("a text is not valid UTF-8")
			}
			return string(out), nil
		case c < 0x20:
			return "", p.refuse("a control character stands in a text")
		case c != '\\':
			out = append(out, c)
			continue
		}
		if p.at >= len(p.src) {
			break
		}
		c = p.src[p.at]
		p.at++
		switch c {
		case '"', '\\', '/':
			out = append(out, c)
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r, ok := p.hex4()
			if ok && utf16.IsSurrogate(r) {
				ok = p.at+1 < len(p.src) && p.src[p.at] == '\\' && p.src[p.at+1] == 'u'
				if ok {
					p.at += 2
					var low rune
					low, ok = p.hex4()
					r = utf16.DecodeRune(r, low)
					ok = ok && r != utf8.RuneError
				}
			}
			if !ok {
				return "", p.refuse("a \\u escape is broken or an unpaired surrogate")
			}
			out = utf8.AppendRune(out, r)
		default:
			return "", p.refuse("an escape is unknown")
		}
	}
	return "", p.refuse("a text does not end")
}

func (p *canon) hex4() (rune, bool) {
	if len(p.src)-p.at < 4 {
		return 0, false
	}
	var r rune
	for _, c := range p.src[p.at : p.at+4] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	p.at += 4
	return r, true
}

const hexLower = "0123456789abcdef"

// appendString writes a text as RFC 8785 does: only what JSON cannot hold is escaped.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c >= 0x20:
			dst = append(dst, c)
		case c == '\b':
			dst = append(dst, '\\', 'b')
		case c == '\t':
			dst = append(dst, '\\', 't')
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c == '\f':
			dst = append(dst, '\\', 'f')
		case c == '\r':
			dst = append(dst, '\\', 'r')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexLower[c>>4], hexLower[c&15])
		}
	}
	return append(dst, '"')
}

// compareUTF16 orders as RFC 8785 wants: by UTF-16 code units, which differs from bytes beyond U+FFFF.
func compareUTF16(a, b string) int {
	for a != "" && b != "" {
		ra, na := utf8.DecodeRuneInString(a)
		rb, nb := utf8.DecodeRuneInString(b)
		if ra != rb {
			return int(firstUnit(ra, rb)) - int(firstUnit(rb, ra))
		}
		a, b = a[na:], b[nb:]
	}
	return len(a) - len(b)
}

// firstUnit is the code unit of r that decides against other.
func firstUnit(r, other rune) rune {
	if r < 0x10000 {
		return r
	}
	hi, lo := utf16.EncodeRune(r)
	if other >= 0x10000 {
		if ohi, _ := utf16.EncodeRune(other); ohi == hi {
			return lo
		}
	}
	return hi
}
