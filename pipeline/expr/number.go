package expr

import (
	"bytes"
	"cmp"
	"math"
	"math/big"
	"strconv"
)

// exact is a decimal number by its digits: d.ddd * 10^mag. dig starts at the first significant digit and may hold one point,
// which is skipped; an empty dig is zero. It borrows the text that it was read from: comparing copies nothing.
type exact struct {
	neg bool
	mag int64
	dig []byte
}

// expLimit keeps hostile exponents (1E999999999999) in order without arithmetic on them.
const expLimit = 1 << 40

// parseExact reads the text of a JSON number.
func parseExact(text []byte) (exact, bool) {
	var x exact
	i := 0
	if i < len(text) && (text[i] == '-' || text[i] == '+') {
		x.neg = text[i] == '-'
		i++
	}
	start, point, first, digits := i, -1, -1, 0
scan:
	for ; i < len(text); i++ {
		switch c := text[i]; {
		case c >= '0' && c <= '9':
			digits++
			if c != '0' && first < 0 {
				first = i
			}
		case c == '.' && point < 0:
			point = i
		default:
			break scan
		}
	}
	end := i
	if digits == 0 || point == start {
		return exact{}, false
	}
	var e int64
	if i < len(text) {
		var ok bool
		if e, ok = parseExponent(text[i:]); !ok {
			return exact{}, false
		}
	}
	if first < 0 {
		return exact{}, true
	}
	intEnd := end
	if point >= 0 {
		intEnd = point
	}
	if first < intEnd {
		x.mag = int64(intEnd-first-1) + e
	} else {
		x.mag = int64(intEnd-first) + e // the point itself is between
	}
	x.dig = text[first:end]
	return x, true
}

func parseExponent(text []byte) (int64, bool) {
	if text[0] != 'e' && text[0] != 'E' {
		return 0, false
	}
	i, neg := 1, false
	if i < len(text) && (text[i] == '-' || text[i] == '+') {
		neg = text[i] == '-'
		i++
	}
	if i == len(text) {
		return 0, false
	}
	var e int64
	for ; i < len(text); i++ {
		c := text[i]
		if c < '0' || c > '9' {
			return 0, false
		}
		if e < expLimit {
			e = e*10 + int64(c-'0')
		}
	}
	if e > expLimit {
		e = expLimit
	}
	if neg {
		e = -e
	}
	return e, true
}

func (x exact) sign() int {
	switch {
	case len(x.dig) == 0:
		return 0
	case x.neg:
		return -1
	}
	return 1
}

// compareExact orders two numbers; it takes time in the number of digits, whatever the exponents are.
func compareExact(a, b exact) int {
	sa, sb := a.sign(), b.sign()
	if sa != sb || sa == 0 {
		return cmp.Compare(sa, sb)
	}
	if a.mag != b.mag {
		return sa * cmp.Compare(a.mag, b.mag)
	}
	i, j := 0, 0
	for i < len(a.dig) || j < len(b.dig) {
		da, db := byte('0'), byte('0')
		if i < len(a.dig) && a.dig[i] == '.' {
			i++
		}
		if i < len(a.dig) {
			da = a.dig[i]
			i++
		}
		if j < len(b.dig) && b.dig[j] == '.' {
			j++
		}
		if j < len(b.dig) {
			db = b.dig[j]
			j++
		}
		if da != db {
			return sa * cmp.Compare(da, db)
		}
	}
	return 0
}

// digitBuffer is scratch on the stack for the digits of a number: a 512-bit integer fits.
type digitBuffer [160]byte

// exactInt, exactUint and exactFloat write the number into buf and read it from there.
func exactInt(n int64, buf *digitBuffer) exact {
	x, _ := parseExact(strconv.AppendInt(buf[:0], n, 10))
	return x
}

func exactUint(n uint64, buf *digitBuffer) exact {
	x, _ := parseExact(strconv.AppendUint(buf[:0], n, 10))
	return x
}

// exactFloat reads a finite double as its shortest text.
func exactFloat(f float64, buf *digitBuffer) exact {
	x, _ := parseExact(strconv.AppendFloat(buf[:0], f, 'e', -1, 64))
	return x
}

// exactTwos reads a big-endian two's complement integer times 10^-scale: the decimal of Avro. Integers of up to 64 bytes
// allocate nothing.
func exactTwos(twos []byte, scale int64, buf *digitBuffer) exact {
	neg, text := twosDigits(twos, buf)
	x, _ := parseExact(text)
	x.neg = neg && len(x.dig) > 0
	x.mag -= scale
	return x
}

// twosDigits writes the decimal digits of the magnitude.
func twosDigits(twos []byte, buf *digitBuffer) (neg bool, digits []byte) {
	if len(twos) == 0 {
		return false, append(buf[:0], '0')
	}
	neg = twos[0]&0x80 != 0
	if len(twos) > 64 {
		n := new(big.Int).SetBytes(twos)
		if neg {
			n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(twos))))
		}
		return neg, n.Abs(n).Append(nil, 10)
	}
	var limb [16]uint32 // most significant first
	n := (len(twos) + 3) / 4
	pad := byte(0)
	if neg {
		pad = 0xff
	}
	for i := range n * 4 {
		c := pad
		if at := i - (n*4 - len(twos)); at >= 0 {
			c = twos[at]
		}
		limb[i/4] = limb[i/4]<<8 | uint32(c)
	}
	if neg {
		carry := uint64(1)
		for i := n - 1; i >= 0; i-- {
			s := uint64(^limb[i]) + carry
			limb[i], carry = uint32(s), s>>32
		}
	}
	at := len(buf)
	for first := 0; first < n; {
		var rem uint64
		for i := first; i < n; i++ {
			v := rem<<32 | uint64(limb[i])
			limb[i], rem = uint32(v/1e9), v%1e9
		}
		for range 9 {
			at--
			buf[at] = byte('0' + rem%10)
			rem /= 10
		}
		for first < n && limb[first] == 0 {
			first++
		}
	}
	text := bytes.TrimLeft(buf[at:], "0")
	if len(text) == 0 {
		text = buf[len(buf)-1:]
	}
	return neg, text
}

// integer reads the text of an integral number: false if it has a point, an exponent or does not fit.
func integer(text []byte) (i int64, u uint64, kind kind) {
	neg, at := false, 0
	if len(text) > 0 && text[0] == '-' {
		neg, at = true, 1
	}
	if at == len(text) || len(text)-at > 20 {
		return 0, 0, kindNone
	}
	for ; at < len(text); at++ {
		c := text[at] - '0'
		if c > 9 || u > math.MaxUint64/10 || u*10 > math.MaxUint64-uint64(c) {
			return 0, 0, kindNone
		}
		u = u*10 + uint64(c)
	}
	switch {
	case !neg && u <= math.MaxInt64:
		return int64(u), 0, kindInt
	case !neg:
		return 0, u, kindUint
	case u == 0: // -0 is no integer that keeps its text
	case u <= 1<<63:
		return -int64(u), 0, kindInt
	}
	return 0, 0, kindNone
}

// compareIntFloat orders exactly; f is not NaN.
func compareIntFloat(i int64, f float64) int {
	switch {
	case f >= 1<<63:
		return -1
	case f < -1<<63:
		return 1
	}
	t := math.Trunc(f)
	if c := cmp.Compare(i, int64(t)); c != 0 {
		return c
	}
	return cmp.Compare(t, f)
}

// compareUintFloat orders exactly; f is not NaN.
func compareUintFloat(u uint64, f float64) int {
	switch {
	case f >= 1<<64:
		return -1
	case f < 0:
		return 1
	}
	t := math.Trunc(f)
	if c := cmp.Compare(u, uint64(t)); c != 0 {
		return c
	}
	return cmp.Compare(t, f)
}
