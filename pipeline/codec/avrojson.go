package codec

import (
	"encoding/binary"
	"math"
	"strconv"
	"time"
	"unicode/utf8"
	"unsafe"
)

// AppendJSON appends the whole record as plain JSON: unions without their branch, numbers exactly, decimals as text
// ("2.55"), dates and timestamps as RFC 3339 text where the year has four digits and as numbers elsewhere, bytes and fixed
// as the text whose code points are the bytes (Avro's own rule, so any bytes survive), a float that is no number as "NaN",
// "Infinity" or "-Infinity". EncodeAvro reads what this writes.
func (v *avroView) AppendJSON(dst []byte) ([]byte, error) {
	r := &v.s.nav
	r.free(v.data)
	dst, _ = r.appendJSON(dst, v.root, v.body)
	return dst, nil
}

// appendJSON appends the value of type t at off, which was validated, and returns where the next one starts.
func (r *run) appendJSON(dst []byte, t *typ, off int) ([]byte, int) {
	data := r.data
	switch t.op {
	case opNull:
		return append(dst, "null"...), off
	case opBool:
		return strconv.AppendBool(dst, data[off] != 0), off + 1
	case opInt, opLong:
		n, end := r.varint(off)
		return appendInteger(dst, t, n), end
	case opFloat:
		return appendFloat(dst, float64(float32At(data, off)), 32), off + 4
	case opDouble:
		return appendFloat(dst, float64At(data, off), 64), off + 8
	case opString:
		n, start := r.length(off)
		return appendQuoted(dst, data[start:start+n]), start + n
	case opBytes:
		n, start := r.length(off)
		return appendLatin1(dst, data[start:start+n]), start + n
	case opFixed:
		b := data[off : off+t.size]
		switch t.logical {
		case logicalUUID:
			dst = appendUUID(append(dst, '"'), b)
			return append(dst, '"'), off + t.size
		case logicalDuration:
			dst = strconv.AppendUint(append(dst, `{"months":`...), uint64(binary.LittleEndian.Uint32(b)), 10)
			dst = strconv.AppendUint(append(dst, `,"days":`...), uint64(binary.LittleEndian.Uint32(b[4:])), 10)
			dst = strconv.AppendUint(append(dst, `,"millis":`...), uint64(binary.LittleEndian.Uint32(b[8:])), 10)
			return append(dst, '}'), off + t.size
		}
		return appendLatin1(dst, b), off + t.size
	case opDecimal:
		n, start := r.length(off)
		dst = AppendDecimal(append(dst, '"'), data[start:start+n], t.scale)
		return append(dst, '"'), start + n
	case opDecimalFixed:
		dst = AppendDecimal(append(dst, '"'), data[off:off+t.size], t.scale)
		return append(dst, '"'), off + t.size
	case opEnum:
		n, end := r.varint(off)
		return appendQuoted(dst, readOnly(t.symbols[n])), end
	case opOptional, opUnion:
		b, end := r.varint(off)
		return r.appendJSON(dst, t.branches[b], end)
	case opRecord:
		dst = append(dst, '{')
		for i := range t.fields {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendQuoted(dst, readOnly(t.fields[i].name))
			dst = append(dst, ':')
			dst, off = r.appendJSON(dst, t.fields[i].t, off)
		}
		return append(dst, '}'), off
	case opArray, opMap:
		return r.appendItems(dst, t, off)
	}
	return dst, off
}

func (r *run) appendItems(dst []byte, t *typ, off int) ([]byte, int) {
	open, end := byte('['), byte(']')
	if t.op == opMap {
		open, end = '{', '}'
	}
	dst = append(dst, open)
	for first := true; ; {
		count, _, body := r.block(off)
		off = body
		if count == 0 {
			return append(dst, end), off
		}
		for ; count > 0; count-- {
			if !first {
				dst = append(dst, ',')
			}
			first = false
			if t.op == opMap {
				n, start := r.length(off)
				dst = appendQuoted(dst, r.data[start:start+n])
				dst = append(dst, ':')
				off = start + n
			}
			dst, off = r.appendJSON(dst, t.item, off)
		}
	}
}

func appendInteger(dst []byte, t *typ, n int64) []byte {
	switch t.logical {
	case logicalDate:
		return appendTime(dst, n, n, 86400, "2006-01-02")
	case logicalTimestamp:
		return appendTime(dst, n, n, -t.units, time.RFC3339Nano)
	case logicalLocalTimestamp:
		return appendTime(dst, n, n, -t.units, "2006-01-02T15:04:05.999999999")
	case logicalTimeMillis, logicalTimeMicros:
		if n >= 0 && n < 86400*t.units {
			return appendTime(dst, n, n, -t.units, "15:04:05.999999")
		}
	}
	return strconv.AppendInt(dst, n, 10)
}

// appendTime appends an instant as text, or the number itself when the year does not have four digits. seconds is how many
// seconds a unit has, or minus how many units a second has.
func appendTime(dst []byte, raw, n, seconds int64, layout string) []byte {
	var sec, nano int64
	if seconds > 0 {
		if n > math.MaxInt64/seconds || n < math.MinInt64/seconds {
			return strconv.AppendInt(dst, raw, 10)
		}
		sec = n * seconds
	} else {
		units := -seconds
		sec, nano = n/units, n%units
		if nano < 0 {
			sec, nano = sec-1, nano+units
		}
		nano *= 1e9 / units
	}
	if sec < firstSecond || sec > lastSecond {
		return strconv.AppendInt(dst, raw, 10)
	}
	dst = time.Unix(sec, nano).UTC().AppendFormat(append(dst, '"'), layout)
	return append(dst, '"')
}

// The years 0001 to 9999, as seconds from 1970.
const (
	firstSecond = -62135596800
	lastSecond  = 253402300799
)

func appendFloat(dst []byte, f float64, bits int) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, `"NaN"`...)
	case math.IsInf(f, 1):
		return append(dst, `"Infinity"`...)
	case math.IsInf(f, -1):
		return append(dst, `"-Infinity"`...)
	}
	format := byte('f')
	if a := math.Abs(f); a != 0 && (a < 1e-6 || a >= 1e21) {
		format = 'e'
	}
	from := len(dst)
	dst = strconv.AppendFloat(dst, f, format, -1, bits)
	for _, c := range dst[from:] {
		if c == '.' || c == 'e' {
			return dst
		}
	}
	return append(dst, '.', '0') // still a float when it is read back
}

// AppendDecimal appends a decimal exactly: unscaled is big-endian two's complement, scale the digits behind the point.
func AppendDecimal(dst, unscaled []byte, scale int) []byte {
	b := trimSign(unscaled)
	var room [24]byte
	var digits []byte
	negative := len(b) > 0 && b[0] >= 0x80
	if len(b) <= 8 {
		v := small(b)
		u := uint64(v)
		if v < 0 {
			u = -u
		}
		digits = strconv.AppendUint(room[:0], u, 10)
	} else {
		n := bigNumber(b)
		digits = n.Abs(n).Append(room[:0], 10)
	}
	if negative {
		dst = append(dst, '-')
	}
	whole := len(digits) - scale
	if whole <= 0 {
		dst = append(dst, '0')
	} else {
		dst = append(dst, digits[:whole]...)
	}
	if scale == 0 {
		return dst
	}
	dst = append(dst, '.')
	for ; whole < 0; whole++ {
		dst = append(dst, '0')
	}
	return append(dst, digits[max(whole, 0):]...)
}

const hexDigits = "0123456789abcdef"

// appendQuoted appends a JSON string of valid UTF-8. Only what JSON demands is escaped: everything else stays byte for byte.
func appendQuoted(dst, b []byte) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(b); i++ {
		for i+8 <= len(b) && special(binary.LittleEndian.Uint64(b[i:])) == 0 {
			i += 8
		}
		if i == len(b) {
			break
		}
		c := b[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, b[from:i]...)
		dst = appendEscape(dst, c)
		from = i + 1
	}
	dst = append(dst, b[from:]...)
	return append(dst, '"')
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}

// appendLatin1 appends bytes as a JSON string of the code points 0 to 255.
func appendLatin1(dst, b []byte) []byte {
	dst = append(dst, '"')
	for _, c := range b {
		switch {
		case c < 0x20 || c == '"' || c == '\\':
			dst = appendEscape(dst, c)
		case c < 0x80:
			dst = append(dst, c)
		default:
			dst = utf8.AppendRune(dst, rune(c))
		}
	}
	return append(dst, '"')
}

func appendUUID(dst, b []byte) []byte {
	for i, c := range b[:16] {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			dst = append(dst, '-')
		}
		dst = append(dst, hexDigits[c>>4], hexDigits[c&15])
	}
	return dst
}

func float32At(b []byte, off int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(b[off:]))
}

func float64At(b []byte, off int) float64 {
	return math.Float64frombits(binary.LittleEndian.Uint64(b[off:]))
}

// readOnly is the bytes of a string without a copy. Nobody writes to what a view returns.
func readOnly(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }
