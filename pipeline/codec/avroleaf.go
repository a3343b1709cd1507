package codec

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/big"
	"strconv"
	"time"
	"unicode/utf8"
)

// appendEmpty appends the emptiest value of a scalar: 0, false, "", the first symbol.
func appendEmpty(dst []byte, t *typ) []byte {
	switch t.op {
	case opNull:
		return dst
	case opFloat:
		return append(dst, 0, 0, 0, 0)
	case opDouble:
		return append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	case opFixed, opDecimalFixed:
		return append(dst, make([]byte, t.size)...)
	case opDecimal:
		return append(dst, 2, 0)
	}
	return append(dst, 0) // a number, false, a length, the first symbol
}

// appendLeaf appends text as a value of the scalar t. What does not fit becomes empty.
func appendLeaf(dst []byte, t *typ, text []byte) []byte {
	out, ok := encodeLeaf(dst, t, text)
	if !ok {
		return appendEmpty(dst, t)
	}
	return out
}

// encodeLeaf appends text as a value of the scalar t; false if it does not fit.
func encodeLeaf(dst []byte, t *typ, text []byte) ([]byte, bool) {
	switch t.op {
	case opBool:
		switch string(text) {
		case "true":
			return append(dst, 1), true
		case "false":
			return append(dst, 0), true
		}
	case opInt, opLong:
		if n, ok := integerOf(t, text); ok && (t.op == opLong || n == int64(int32(n))) {
			return binary.AppendVarint(dst, n), true
		}
	case opFloat:
		if f, ok := floatOf(text, 32); ok {
			return binary.LittleEndian.AppendUint32(dst, math.Float32bits(float32(f))), true
		}
	case opDouble:
		if f, ok := floatOf(text, 64); ok {
			return binary.LittleEndian.AppendUint64(dst, math.Float64bits(f)), true
		}
	case opString:
		if !utf8.Valid(text) {
			text = bytes.ToValidUTF8(text, []byte("\uFFFD"))
		}
		return append(binary.AppendVarint(dst, int64(len(text))), text...), true
	case opBytes:
		return append(binary.AppendVarint(dst, int64(len(text))), text...), true
	case opFixed:
		if len(text) == t.size {
			return append(dst, text...), true
		}
		if t.logical == logicalUUID {
			g, ok := parseGUID(string(text))
			return append(dst, g[:]...), ok
		}
	case opEnum:
		for i, s := range t.symbols {
			if s == string(text) {
				return binary.AppendVarint(dst, int64(i)), true
			}
		}
	case opDecimal, opDecimalFixed:
		n, what := decimalOf(string(text), t)
		if what != "" {
			return dst, false
		}
		b := twosComplement(n)
		if t.op == opDecimal {
			return append(binary.AppendVarint(dst, int64(len(b))), b...), true
		}
		if len(b) > t.size {
			return dst, false
		}
		sign := byte(0)
		if n.Sign() < 0 {
			sign = 0xff
		}
		for range t.size - len(b) {
			dst = append(dst, sign)
		}
		return append(dst, b...), true
	}
	return dst, false
}

// integerOf reads a number, or the text that AppendJSON writes for the logical type.
func integerOf(t *typ, text []byte) (int64, bool) {
	s := string(text)
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n, true
	}
	switch t.logical {
	case logicalDate:
		if x, err := time.Parse("2006-01-02", s); err == nil {
			return x.Unix() / 86400, x.Unix()%86400 == 0
		}
	case logicalTimestamp:
		if x, err := time.Parse(time.RFC3339Nano, s); err == nil {
			return instant(x, t.units)
		}
	case logicalLocalTimestamp:
		if x, err := time.Parse("2006-01-02T15:04:05.999999999", s); err == nil {
			return instant(x, t.units)
		}
	case logicalTimeMillis, logicalTimeMicros:
		if x, err := time.Parse("15:04:05.999999999", s); err == nil {
			midnight := time.Date(x.Year(), x.Month(), x.Day(), 0, 0, 0, 0, time.UTC)
			d := x.Sub(midnight).Nanoseconds()
			return d / (1e9 / t.units), d%(1e9/t.units) == 0
		}
	}
	return 0, false
}

// instant is x in units per second; false when it would lose digits or does not fit.
func instant(x time.Time, units int64) (int64, bool) {
	step := 1_000_000_000 / units
	nano := int64(x.Nanosecond())
	sec := x.Unix()
	if nano%step != 0 || sec > math.MaxInt64/units-1 || sec < math.MinInt64/units+1 {
		return 0, false
	}
	return sec*units + nano/step, true
}

func floatOf(text []byte, bits int) (float64, bool) {
	switch string(text) {
	case "NaN":
		return math.NaN(), true
	case "Infinity":
		return math.Inf(1), true
	case "-Infinity":
		return math.Inf(-1), true
	}
	for _, c := range text { // no hexadecimal, no underscores, no other names
		if (c < '0' || c > '9') && c != '.' && c != '-' && c != '+' && c != 'e' && c != 'E' {
			return 0, false
		}
	}
	f, err := strconv.ParseFloat(string(text), bits)
	return f, err == nil
}

// decimalOf reads a decimal exactly: digits that the scale cannot hold are an error ("scale"), never rounded; more than the
// precision is "precision"; anything else "number".
func decimalOf(text string, t *typ) (n *big.Int, what string) {
	rest, negative := text, false
	if len(rest) > 0 && (rest[0] == '-' || rest[0] == '+') {
		rest, negative = rest[1:], rest[0] == '-'
	}
	var digits []byte
	point, exp := -1, 0
	for i := 0; i < len(rest); i++ {
		c := rest[i]
		switch {
		case c >= '0' && c <= '9':
			digits = append(digits, c)
		case c == '.' && point < 0:
			point = len(digits)
		case (c == 'e' || c == 'E') && len(digits) > 0:
			e, err := strconv.Atoi(rest[i+1:])
			if err != nil {
				return nil, "number"
			}
			if e > 2*maxPrecision || e < -2*maxPrecision {
				return nil, "precision"
			}
			exp, i = e, len(rest)
		default:
			return nil, "number"
		}
	}
	if len(digits) == 0 {
		return nil, "number"
	}
	fraction := -exp
	if point >= 0 {
		fraction += len(digits) - point
	}
	for fraction > t.scale && len(digits) > 0 && digits[len(digits)-1] == '0' {
		digits = digits[:len(digits)-1]
		fraction--
	}
	if len(digits) == 0 {
		return new(big.Int), ""
	}
	if fraction > t.scale {
		return nil, "scale"
	}
	for len(digits) > 1 && digits[0] == '0' {
		digits = digits[1:]
	}
	if len(digits)+t.scale-fraction > t.precision && digits[0] != '0' {
		return nil, "precision"
	}
	for ; fraction < t.scale; fraction++ {
		digits = append(digits, '0')
	}
	n, ok := new(big.Int).SetString(string(digits), 10)
	if !ok {
		return nil, "number"
	}
	if negative {
		n.Neg(n)
	}
	return n, ""
}

// twosComplement is the shortest big-endian two's complement form; zero is one byte.
func twosComplement(n *big.Int) []byte {
	if n.Sign() >= 0 {
		b := n.Bytes()
		if len(b) == 0 || b[0] >= 0x80 {
			b = append([]byte{0}, b...)
		}
		return b
	}
	size := n.BitLen()/8 + 1
	x := new(big.Int).Add(n, new(big.Int).Lsh(big.NewInt(1), uint(size)*8))
	b := x.Bytes()
	for len(b) < size {
		b = append([]byte{0}, b...)
	}
	return trimSign(b)
}
