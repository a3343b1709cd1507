package expr

import (
	"fmt"
	"math"
	"math/big"
	"reflect"
	"strconv"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"reprieve.dev/pipeline"
)

// decimalType is what type() says of a number that is neither an int, a uint nor a double.
var decimalType = types.NewOpaqueType("decimal").WithTraits(traits.AdderType | traits.ComparerType | traits.DividerType |
	traits.MultiplierType | traits.NegatorType | traits.SubtractorType)

// decimal is an exact number as a CEL value. It keeps the text that it was read from.
type decimal struct {
	x    exact
	text string
}

// Limits of decimal arithmetic: beyond them a calculation is an error (comparisons have no limits).
const (
	maxDigits   = 2_000
	maxExponent = 2_000
)

var (
	errDecimalRange = &EvalError{Kind: EvalNumber, text: "a decimal is too large to calculate with"}
	errDivision     = &EvalError{Kind: EvalNumber, text: "a division by zero"}
	errQuotient     = &EvalError{Kind: EvalNumber, text: "a quotient that no decimal can hold exactly"}
)

// newDecimal reads the text of a number.
func newDecimal(text string) (*decimal, bool) {
	x, ok := parseExact([]byte(text))
	if !ok {
		return nil, false
	}
	return &decimal{x: x, text: text}, true
}

// decimalOfTwos reads an Avro decimal and writes it out with its scale.
func decimalOfTwos(twos []byte, scale int64) *decimal {
	var buf digitBuffer
	neg, digits := twosDigits(twos, &buf)
	d, _ := newDecimal(string(appendScaled(nil, neg, digits, scale)))
	return d
}

// appendScaled writes digits * 10^-scale: plainly, or with an exponent when the zeros would be many.
func appendScaled(dst []byte, neg bool, digits []byte, scale int64) []byte {
	if neg {
		dst = append(dst, '-')
	}
	switch n := int64(len(digits)); {
	case scale == 0:
		return append(dst, digits...)
	case scale < 0 || scale > n+64:
		dst = append(dst, digits...)
		dst = append(dst, 'e')
		return strconv.AppendInt(dst, -scale, 10)
	case scale >= n:
		dst = append(dst, "0."...)
		for range scale - n {
			dst = append(dst, '0')
		}
		return append(dst, digits...)
	default:
		dst = append(dst, digits[:n-scale]...)
		dst = append(dst, '.')
		return append(dst, digits[n-scale:]...)
	}
}

// rational is the number for calculation.
func (x exact) rational() (*big.Rat, bool) {
	if len(x.dig) == 0 {
		return new(big.Rat), true
	}
	if len(x.dig) > maxDigits || x.mag > maxExponent || x.mag < -maxExponent {
		return nil, false
	}
	digits := make([]byte, 0, len(x.dig))
	for _, c := range x.dig {
		if c != '.' {
			digits = append(digits, c)
		}
	}
	n, _ := new(big.Int).SetString(string(digits), 10)
	if x.neg {
		n.Neg(n)
	}
	r := new(big.Rat).SetInt(n)
	e := x.mag - int64(len(digits)-1)
	p := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(max(e, -e)), nil))
	if e < 0 {
		return r.Quo(r, p), true
	}
	return r.Mul(r, p), true
}

// decimalOfRat writes a rational that has a finite decimal form.
func decimalOfRat(r *big.Rat) ref.Val {
	prec, finite := r.FloatPrec()
	if !finite {
		return types.WrapErr(errQuotient)
	}
	if prec > 2*maxExponent {
		return types.WrapErr(errDecimalRange)
	}
	d, _ := newDecimal(r.FloatString(prec))
	return d
}

// exactOf reads any number.
func exactOf(v ref.Val, buf *digitBuffer) (exact, bool) {
	switch n := v.(type) {
	case types.Int:
		return exactInt(int64(n), buf), true
	case types.Uint:
		return exactUint(uint64(n), buf), true
	case types.Double:
		if f := float64(n); !math.IsNaN(f) && !math.IsInf(f, 0) {
			return exactFloat(f, buf), true
		}
	case *decimal:
		return n.x, true
	}
	return exact{}, false
}

// calculate applies one of + - * / to two numbers of any kinds, exactly.
func calculate(op byte, a, b ref.Val) ref.Val {
	var ba, bb digitBuffer
	xa, oka := exactOf(a, &ba)
	xb, okb := exactOf(b, &bb)
	if !oka || !okb {
		return types.MaybeNoSuchOverloadErr(b)
	}
	ra, oka := xa.rational()
	rb, okb := xb.rational()
	if !oka || !okb {
		return types.WrapErr(errDecimalRange)
	}
	switch op {
	case '+':
		return decimalOfRat(ra.Add(ra, rb))
	case '-':
		return decimalOfRat(ra.Sub(ra, rb))
	case '*':
		return decimalOfRat(ra.Mul(ra, rb))
	}
	if rb.Sign() == 0 {
		return types.WrapErr(errDivision)
	}
	return decimalOfRat(ra.Quo(ra, rb))
}

// Add, Subtract, Multiply, Divide and Negate implement the arithmetic traits.
func (d *decimal) Add(o ref.Val) ref.Val      { return calculate('+', d, o) }
func (d *decimal) Subtract(o ref.Val) ref.Val { return calculate('-', d, o) }
func (d *decimal) Multiply(o ref.Val) ref.Val { return calculate('*', d, o) }
func (d *decimal) Divide(o ref.Val) ref.Val   { return calculate('/', d, o) }
func (d *decimal) Negate() ref.Val            { return calculate('-', types.IntZero, d) }

// Compare implements traits.Comparer.
func (d *decimal) Compare(o ref.Val) ref.Val { return compareVals(d, o) }

// Equal implements ref.Val.
func (d *decimal) Equal(o ref.Val) ref.Val { return types.Bool(equalVals(nil, d, o)) }

// ConvertToNative implements ref.Val: there is no Go type for it.
func (d *decimal) ConvertToNative(t reflect.Type) (any, error) {
	return nil, fmt.Errorf("a decimal is not a %v", t)
}

// ConvertToType implements ref.Val: to text, and to the other numbers where nothing is lost but what CEL cuts off itself.
func (d *decimal) ConvertToType(t ref.Type) ref.Val {
	switch t {
	case types.StringType:
		return types.String(d.text)
	case types.TypeType:
		return decimalType
	case types.DoubleType:
		f, err := strconv.ParseFloat(d.text, 64)
		if err != nil {
			return types.WrapErr(errDecimalRange)
		}
		return types.Double(f)
	case types.IntType, types.UintType:
		r, ok := d.x.rational()
		if !ok {
			return types.WrapErr(errDecimalRange)
		}
		n := new(big.Int).Quo(r.Num(), r.Denom()) // towards zero, as int(1.9) does
		switch {
		case t == types.IntType && n.IsInt64():
			return types.Int(n.Int64())
		case t == types.UintType && n.IsUint64():
			return types.Uint(n.Uint64())
		}
		return types.WrapErr(errDecimalRange)
	}
	return types.NewErr("a decimal does not convert to %v", t)
}

// Type implements ref.Val.
func (d *decimal) Type() ref.Type { return decimalType }

// Value implements ref.Val: the text.
func (d *decimal) Value() any { return d.text }

// scalar makes a CEL value of a scalar of a view; nil for composites.
func scalar(v pipeline.Value) ref.Val {
	switch v.Kind {
	case pipeline.KindNull:
		return types.NullValue
	case pipeline.KindBool:
		return types.Bool(v.Int != 0)
	case pipeline.KindInt:
		return types.Int(v.Int)
	case pipeline.KindFloat:
		return types.Double(v.Float)
	case pipeline.KindString, pipeline.KindEnum:
		return types.String(borrow(v.Bytes))
	case pipeline.KindBytes:
		return types.Bytes(v.Bytes)
	case pipeline.KindNumber:
		switch i, u, k := integer(v.Bytes); k {
		case kindInt:
			return types.Int(i)
		case kindUint:
			return types.Uint(u)
		}
		if d, ok := newDecimal(borrow(v.Bytes)); ok {
			return d
		}
		return types.WrapErr(errBadValue)
	case pipeline.KindDecimal:
		return decimalOfTwos(v.Bytes, v.Int)
	case pipeline.KindTimestamp:
		if o := fromTime(v.Int, v.Scale); o.kind == kindTime {
			return timestamp(o)
		}
		return types.WrapErr(errBadValue)
	}
	return nil
}
