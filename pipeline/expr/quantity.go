package expr

import (
	"math/big"
	"strconv"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

// Quantity is an exact sum. The zero value is 0. It is a value: Add returns a new one.
type Quantity struct{ r *big.Rat }

func (q Quantity) rat() *big.Rat {
	if q.r == nil {
		return new(big.Rat)
	}
	return q.r
}

// Add is q + o, exactly.
func (q Quantity) Add(o Quantity) Quantity { return Quantity{new(big.Rat).Add(q.rat(), o.rat())} }

// Sub is q - o, exactly.
func (q Quantity) Sub(o Quantity) Quantity { return Quantity{new(big.Rat).Sub(q.rat(), o.rat())} }

// Cmp is -1, 0 or 1.
func (q Quantity) Cmp(o Quantity) int { return q.rat().Cmp(o.rat()) }

// Int is the number if it is integral and fits.
func (q Quantity) Int() (int64, bool) {
	r := q.rat()
	return r.Num().Int64(), r.IsInt() && r.Num().IsInt64()
}

// String is the number in decimal digits, without zeros at the end: "12.5".
func (q Quantity) String() string {
	prec, _ := q.rat().FloatPrec()
	return q.rat().FloatString(prec)
}

// ParseQuantity reads what String writes and every JSON number of moderate size.
func ParseQuantity(s string) (Quantity, bool) {
	x, ok := parseExact([]byte(s))
	if !ok {
		return Quantity{}, false
	}
	r, ok := x.rational()
	return Quantity{r}, ok
}

// quantity reads a result as a number.
func (p *program) quantity(v ref.Val) (Quantity, bool, error) {
	if v == types.NullValue {
		return Quantity{}, false, nil
	}
	var buf digitBuffer
	x, ok := exactOf(v, &buf)
	if !ok {
		return Quantity{}, false, &EvalError{Kind: EvalType, Line: 1, Column: 1, text: "the result is not a number"}
	}
	r, ok := x.rational()
	if !ok {
		return Quantity{}, false, errDecimalRange
	}
	return Quantity{r}, true, nil
}

// appendVal writes a result as text (Val.Append).
func (p *program) appendVal(dst []byte, v ref.Val) ([]byte, bool, error) {
	switch x := v.(type) {
	case types.Null:
		return dst, false, nil
	case types.String:
		return append(dst, x...), true, nil
	case types.Bytes:
		return append(dst, x...), true, nil
	case types.Bool:
		return strconv.AppendBool(dst, bool(x)), true, nil
	case types.Int:
		return strconv.AppendInt(dst, int64(x), 10), true, nil
	case types.Uint:
		return strconv.AppendUint(dst, uint64(x), 10), true, nil
	case types.Double:
		return strconv.AppendFloat(dst, float64(x), 'g', -1, 64), true, nil
	case *decimal:
		return append(dst, x.text...), true, nil
	case types.Timestamp:
		return x.Time.UTC().AppendFormat(dst, timeLayout), true, nil
	case types.Duration:
		return append(dst, time.Duration(x.Duration).String()...), true, nil
	}
	return dst, false, &EvalError{Kind: EvalType, Line: 1, Column: 1, text: "the result is a list or a map, which has no text"}
}
