package expr

import (
	"bytes"
	"cmp"
	"math"
	"unsafe"

	"reprieve.dev/pipeline"
)

// kind is the type of an operand, as expressions see it.
type kind uint8

const (
	kindNone kind = iota
	kindNull
	kindBool
	kindInt
	kindUint
	kindFloat
	kindDec
	kindString
	kindBytes
	kindTime
	kindDuration
	kindList
	kindMap
	kindBad // a value that no expression can use: a damaged number, a time beyond year 9999
)

func (k kind) number() bool { return k >= kindInt && k <= kindDec }

// operand is one scalar, read from a record or made from a constant. It borrows.
type operand struct {
	kind kind
	i    int64 // Bool, Int, Time (Unix seconds), Duration (ns), length of List and Map
	u    uint64
	f    float64
	ns   int64 // of Time
	s    []byte
	x    exact
}

// The years that CEL times may have: 0001-01-01 to 9999-12-31.
const (
	minSeconds = -62135596800
	maxSeconds = 253402300799
)

// fromValue reads a value of a view. buf is scratch that the operand borrows.
func fromValue(v pipeline.Value, buf *digitBuffer) operand {
	switch v.Kind {
	case pipeline.KindNull:
		return operand{kind: kindNull}
	case pipeline.KindBool:
		return operand{kind: kindBool, i: v.Int}
	case pipeline.KindInt:
		return operand{kind: kindInt, i: v.Int}
	case pipeline.KindFloat:
		return operand{kind: kindFloat, f: v.Float}
	case pipeline.KindString, pipeline.KindEnum:
		return operand{kind: kindString, s: v.Bytes}
	case pipeline.KindBytes:
		return operand{kind: kindBytes, s: v.Bytes}
	case pipeline.KindNumber:
		if i, u, k := integer(v.Bytes); k != kindNone {
			return operand{kind: k, i: i, u: u}
		}
		x, ok := parseExact(v.Bytes)
		if !ok {
			return operand{kind: kindBad}
		}
		return operand{kind: kindDec, x: x, s: v.Bytes}
	case pipeline.KindDecimal:
		return operand{kind: kindDec, x: exactTwos(v.Bytes, v.Int, buf)}
	case pipeline.KindTimestamp:
		return fromTime(v.Int, v.Scale)
	case pipeline.KindArray:
		return operand{kind: kindList, i: v.Int}
	case pipeline.KindMap, pipeline.KindRecord:
		return operand{kind: kindMap, i: v.Int}
	}
	return operand{kind: kindBad}
}

// fromTime splits n units into seconds and nanoseconds.
func fromTime(n, scale int64) operand {
	if scale <= 0 || scale > 1e9 {
		return operand{kind: kindBad}
	}
	sec, rest := n/scale, n%scale
	if rest < 0 {
		sec, rest = sec-1, rest+scale
	}
	if sec < minSeconds || sec > maxSeconds {
		return operand{kind: kindBad}
	}
	return operand{kind: kindTime, i: sec, ns: rest * 1e9 / scale}
}

// fromString borrows s: an operand never writes.
func fromString(s string) operand {
	return operand{kind: kindString, s: unsafe.Slice(unsafe.StringData(s), len(s))}
}

// equal is CEL's ==: values of different types are not equal, numbers are compared across their types.
func equal(a, b *operand) bool {
	if a.kind.number() && b.kind.number() {
		if a.kind == kindFloat && math.IsNaN(a.f) || b.kind == kindFloat && math.IsNaN(b.f) {
			return false
		}
		return compareNumbers(a, b) == 0
	}
	if a.kind != b.kind {
		return false
	}
	switch a.kind {
	case kindNull:
		return true
	case kindBool, kindDuration:
		return a.i == b.i
	case kindTime:
		return a.i == b.i && a.ns == b.ns
	case kindString, kindBytes:
		return bytes.Equal(a.s, b.s)
	}
	return false
}

// order is CEL's < and its like: false if the two have no order.
func order(a, b *operand) (int, bool) {
	if a.kind.number() && b.kind.number() {
		if a.kind == kindFloat && math.IsNaN(a.f) || b.kind == kindFloat && math.IsNaN(b.f) {
			return 0, false
		}
		return compareNumbers(a, b), true
	}
	if a.kind != b.kind {
		return 0, false
	}
	switch a.kind {
	case kindBool, kindDuration:
		return cmp.Compare(a.i, b.i), true
	case kindTime:
		if c := cmp.Compare(a.i, b.i); c != 0 {
			return c, true
		}
		return cmp.Compare(a.ns, b.ns), true
	case kindString, kindBytes:
		return bytes.Compare(a.s, b.s), true
	}
	return 0, false
}

// compareNumbers orders two numbers of any kinds; neither is NaN.
func compareNumbers(a, b *operand) int {
	if a.kind > b.kind {
		return -compareNumbers(b, a)
	}
	switch a.kind {
	case kindInt:
		switch b.kind {
		case kindInt:
			return cmp.Compare(a.i, b.i)
		case kindUint:
			if a.i < 0 {
				return -1
			}
			return cmp.Compare(uint64(a.i), b.u)
		case kindFloat:
			return compareIntFloat(a.i, b.f)
		}
		var buf digitBuffer
		return compareExact(exactInt(a.i, &buf), b.x)
	case kindUint:
		switch b.kind {
		case kindUint:
			return cmp.Compare(a.u, b.u)
		case kindFloat:
			return compareUintFloat(a.u, b.f)
		}
		var buf digitBuffer
		return compareExact(exactUint(a.u, &buf), b.x)
	case kindFloat:
		if b.kind == kindFloat {
			return cmp.Compare(a.f, b.f)
		}
		if math.IsInf(a.f, 0) {
			if a.f > 0 {
				return 1
			}
			return -1
		}
		var buf digitBuffer
		return compareExact(exactFloat(a.f, &buf), b.x)
	}
	return compareExact(a.x, b.x)
}
