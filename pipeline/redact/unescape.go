package redact

import (
	"unicode"
	"unicode/utf8"
)

// reading is one text as the detectors read it: ASCII, one byte a sign, escapes and foreign digits resolved. pos maps each
// sign to where it starts in the source; nil means that the source is read as it is.
type reading struct {
	b   []byte
	pos []int32
	n   int // bytes of the source
	src []byte
}

// at is where sign i starts in the source; i may be one past the end.
func (r *reading) at(i int) int {
	if r.pos == nil {
		return i
	}
	if i >= len(r.pos) {
		return r.n
	}
	return int(r.pos[i])
}

// encoded says that sign i is written in percent encoding.
func (r *reading) encoded(i int) bool { return r.src[r.pos[i]] == '%' && r.b[i] != '%' }

// opaque stands for a sign that is neither letter, digit nor separator. It is a boundary for every detector.
const opaque = 0x1a

// unescape reads src into dst and pos, which it reuses. It resolves JSON and C escapes at any depth of nesting (\u0034,
// \\u0034, \x34, \n, \"), percent encoding (also doubled), numeric character references, digits of other scripts, wide and
// zero-width signs. Linear; no sign is read twice.
func unescape(src, dst []byte, pos []int32) ([]byte, []int32) {
	dst, pos = dst[:0], pos[:0]
	for i := 0; i < len(src); {
		c := src[i]
		out, n := c, 1
		switch {
		case c == '\\':
			out, n = backslash(src[i:])
		case c == '%':
			out, n = percent(src[i:])
		case c == '&':
			out, n = reference(src[i:])
		case c >= utf8.RuneSelf:
			out, n = foreign(src[i:])
		}
		if out != skipped {
			dst, pos = append(dst, out), append(pos, int32(i))
		}
		i += n
	}
	return dst, append(pos, int32(len(src)))
}

// skipped marks a sign that is not there for a reader: a zero-width one.
const skipped = 0xff

func backslash(s []byte) (byte, int) {
	k := 1
	for k < len(s) && s[k] == '\\' {
		k++
	}
	if k == len(s) {
		return '\\', k
	}
	switch s[k] {
	case 'u', 'U':
		if k+5 <= len(s) {
			if v, ok := hexValue(s[k+1 : k+5]); ok {
				return signOf(rune(v)), k + 5
			}
		}
	case 'x', 'X':
		if k+3 <= len(s) {
			if v, ok := hexValue(s[k+1 : k+3]); ok {
				return signOf(rune(v)), k + 3
			}
		}
	case 'n', 'r':
		return '\n', k + 1
	case 't', 'b', 'f':
		return '\t', k + 1
	case '"', '/', '\'':
		return s[k], k + 1
	}
	return '\\', k
}

func percent(s []byte) (byte, int) {
	if len(s) > 2+minDigits && s[1]|0x20 == 'b' && digit(s[2]) && digit(s[3]) && digit(s[4]) && digit(s[5]) && digit(s[6]) {
		return '%', 1 // %B4111...: the start of a magnetic track
	}
	n := 1
	for {
		if n+2 > len(s) {
			break
		}
		v, ok := hexValue(s[n : n+2])
		if !ok {
			break
		}
		if v == '%' {
			n += 2
			continue
		}
		if v >= utf8.RuneSelf {
			return opaque, n + 2
		}
		return signOf(rune(v)), n + 2
	}
	return '%', n
}

func reference(s []byte) (byte, int) {
	if len(s) > 3 && s[1] == '#' {
		v, i := 0, 2
		if s[2] == 'x' || s[2] == 'X' {
			for i = 3; i < len(s) && i < 10; i++ {
				h, ok := hexDigit(s[i])
				if !ok {
					break
				}
				v = v<<4 | h
			}
		} else {
			for ; i < len(s) && i < 10 && s[i] >= '0' && s[i] <= '9'; i++ {
				v = v*10 + int(s[i]-'0')
			}
		}
		if i < len(s) && s[i] == ';' && v <= unicode.MaxRune {
			return signOf(rune(v)), i + 1
		}
		return '&', 1
	}
	for _, e := range [...]struct {
		name string
		sign byte
	}{{"&nbsp;", ' '}, {"&quot;", '"'}, {"&apos;", '\''}, {"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&ensp;", ' '}, {"&thinsp;", ' '}, {"&shy;", skipped}} {
		if len(s) >= len(e.name) && string(s[:len(e.name)]) == e.name {
			return e.sign, len(e.name)
		}
	}
	return '&', 1
}

func foreign(s []byte) (byte, int) {
	r, n := utf8.DecodeRune(s)
	if r == utf8.RuneError && n <= 1 {
		return opaque, 1
	}
	return signOf(r), n
}

// signOf is the ASCII sign that a rune stands for.
func signOf(r rune) byte {
	switch {
	case r < utf8.RuneSelf:
		return byte(r)
	case r >= 0xFF01 && r <= 0xFF5E: // full width
		return byte(r - 0xFF01 + '!')
	case r == 0x200B, r == 0x200C, r == 0x200D, r == 0x2060, r == 0xFEFF, r == 0x00AD, r == 0x180E, r >= 0xFE00 && r <= 0xFE0F, r == 0x20E3,
		r >= 0x200E && r <= 0x200F, r >= 0x202A && r <= 0x202E, r >= 0x2066 && r <= 0x2069:
		return skipped
	case r == 0x00A0, r >= 0x2000 && r <= 0x200A, r == 0x202F, r == 0x205F, r == 0x3000, r == 0x1680:
		return ' '
	case r >= 0x2010 && r <= 0x2013, r == 0x2212, r == 0xFE63, r == 0x2043:
		return '-'
	case r == 0x00B7, r == 0x2022, r == 0x2024, r == 0x30FB, r == 0x2219, r == 0x22C5:
		return '.'
	case r == 0x2028, r == 0x2029, r == 0x0085:
		return '\n'
	case r >= 0x1D7CE && r <= 0x1D7FF: // mathematical digits, five styles
		return byte('0' + (r-0x1D7CE)%10)
	case r == 0x2070, r >= 0x2074 && r <= 0x2079:
		return byte('0' + r - 0x2070)
	case r >= 0x2080 && r <= 0x2089:
		return byte('0' + r - 0x2080)
	case r == 0x00B9, r == 0x00B2, r == 0x00B3:
		if r == 0x00B9 {
			return '1'
		}
		return byte('0' + r - 0x00B0)
	case r >= 0x2460 && r <= 0x2468: // circled
		return byte('1' + r - 0x2460)
	case r == 0x24EA:
		return '0'
	case unicode.Is(unicode.Nd, r):
		return digitOf(r)
	}
	return opaque
}

// digitOf is the value of a decimal digit of any script: Unicode gives each script its ten digits in a row.
func digitOf(r rune) byte {
	for _, t := range unicode.Nd.R16 {
		if rune(t.Lo) <= r && r <= rune(t.Hi) {
			return byte('0' + (r-rune(t.Lo))%10)
		}
	}
	for _, t := range unicode.Nd.R32 {
		if rune(t.Lo) <= r && r <= rune(t.Hi) {
			return byte('0' + (r-rune(t.Lo))%10)
		}
	}
	return opaque
}

func hexDigit(c byte) (int, bool) {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0'), true
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10, true
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10, true
	}
	return 0, false
}

func hexValue(s []byte) (v int, ok bool) {
	for _, c := range s {
		h, ok := hexDigit(c)
		if !ok {
			return 0, false
		}
		v = v<<4 | h
	}
	return v, true
}
