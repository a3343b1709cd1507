package expr

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// numberText draws the text of a JSON number.
func numberText(t *rapid.T, label string) string {
	return rapid.StringMatching(`-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,2})?`).Draw(t, label)
}

func TestNumbersCompareAsRationals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := numberText(t, "a"), numberText(t, "b")
		if rapid.Bool().Draw(t, "near") { // the same number with another spelling, or its neighbour
			b = a
			if strings.Contains(a, ".") && !strings.ContainsAny(a, "eE") {
				b += rapid.SampledFrom([]string{"", "0", "000", "01"}).Draw(t, "tail")
			}
		}
		x, okx := parseExact([]byte(a))
		y, oky := parseExact([]byte(b))
		ra, _ := new(big.Rat).SetString(a)
		rb, _ := new(big.Rat).SetString(b)
		if !okx || !oky {
			t.Fatalf("%s, %s: not read", a, b)
		}
		if got, want := compareExact(x, y), ra.Cmp(rb); got != want {
			t.Fatalf("%s to %s: got %d, want %d", a, b, got, want)
		}
		r, ok := x.rational()
		if !ok || r.Cmp(ra) != 0 {
			t.Fatalf("%s calculates as %v", a, r)
		}
	})
}

func TestTwosComplementReadsAsBigInt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		twos := rapid.SliceOfN(rapid.Byte(), 0, 70).Draw(t, "bytes")
		scale := rapid.Int64Range(-30, 90).Draw(t, "scale")
		n := new(big.Int).SetBytes(twos)
		if len(twos) > 0 && twos[0]&0x80 != 0 {
			n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(twos))))
		}
		want := new(big.Rat).SetInt(n)
		p := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(max(scale, -scale)), nil))
		if scale < 0 {
			want.Mul(want, p)
		} else {
			want.Quo(want, p)
		}
		var buf digitBuffer
		got, ok := exactTwos(twos, scale, &buf).rational()
		if !ok || got.Cmp(want) != 0 {
			t.Fatalf("%x scale %d: got %v, want %v", twos, scale, got, want)
		}
		text := decimalOfTwos(twos, scale).text
		if read, _ := new(big.Rat).SetString(text); read.Cmp(want) != 0 {
			t.Fatalf("%x scale %d is written as %s", twos, scale, text)
		}
	})
}

func TestIntegersCompareWithDoublesExactly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		i, u := rapid.Int64().Draw(t, "int"), rapid.Uint64().Draw(t, "uint")
		f := rapid.OneOf(rapid.Float64(), rapid.Just(float64(i)), rapid.Just(float64(u)), rapid.Just(math.Nextafter(float64(i), 0))).Draw(t, "double")
		if math.IsInf(f, 0) {
			return
		}
		exactly := new(big.Rat).SetFloat64(f)
		if got, want := compareIntFloat(i, f), new(big.Rat).SetInt64(i).Cmp(exactly); got != want {
			t.Fatalf("%d to %v: got %d, want %d", i, f, got, want)
		}
		if got, want := compareUintFloat(u, f), new(big.Rat).SetUint64(u).Cmp(exactly); got != want {
			t.Fatalf("%d to %v: got %d, want %d", u, f, got, want)
		}
	})
}

// operandOf draws a number of any kind with its exact value; a double against a decimal stands for its shortest text.
func operandOf(t *rapid.T, label string) (o operand, exactly, shortest *big.Rat) {
	switch rapid.IntRange(0, 3).Draw(t, label+" kind") {
	case 0:
		i := rapid.OneOf(rapid.Int64(), rapid.Int64Range(-3, 3)).Draw(t, label)
		r := new(big.Rat).SetInt64(i)
		return operand{kind: kindInt, i: i}, r, r
	case 1:
		u := rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 3)).Draw(t, label)
		r := new(big.Rat).SetUint64(u)
		return operand{kind: kindUint, u: u}, r, r
	case 2:
		f := rapid.OneOf(rapid.Float64Range(-1e25, 1e25), rapid.Float64Range(-3, 3), rapid.SampledFrom([]float64{0, 1, -1, 0.1, 1 << 63, 1 << 53})).Draw(t, label)
		short, _ := new(big.Rat).SetString(fmt.Sprint(f))
		return operand{kind: kindFloat, f: f}, new(big.Rat).SetFloat64(f), short
	}
	text := rapid.OneOf(rapid.StringMatching(`-?(0|[1-9][0-9]{0,22})\.[0-9]{1,4}`), rapid.SampledFrom([]string{"0.1", "1.0", "-1.0", "0.0"})).Draw(t, label)
	x, _ := parseExact([]byte(text))
	r, _ := new(big.Rat).SetString(text)
	return operand{kind: kindDec, x: x}, r, r
}

func TestNumbersOfAllKindsCompareAsRationals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for range 20 {
			a, exactA, shortA := operandOf(t, "a")
			b, exactB, shortB := operandOf(t, "b")
			want := exactA.Cmp(exactB)
			if a.kind == kindDec || b.kind == kindDec {
				want = shortA.Cmp(shortB)
			}
			got, ok := order(&a, &b)
			if !ok || got != want || equal(&a, &b) != (want == 0) {
				t.Fatalf("%+v to %+v: got %d, want %d", a, b, got, want)
			}
		}
	})
}

func TestHostileExponentsEndAtOnce(t *testing.T) {
	b := batchOf(rec("n", num("1E"+strings.Repeat("9", 100_000)), "m", num("1"+strings.Repeat("0", 1_000_000)), "z", num("0E99999999999")))
	start := time.Now()
	for src, want := range map[string]bool{
		`view.n > 1`: true, `view.n == view.n`: true, `view.m > 1.5`: true, `view.m < view.n`: true, `view.z == 0`: true, `view.z < 1`: true,
	} {
		c, err := Condition(src)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.Eval(b, 0); err != nil || got != want {
			t.Errorf("%s: got %v, %v", src, got, err)
		}
	}
	for _, src := range []string{`view.n + 1 > 0`, `view.m * 2 > 0`, `int(view.n) == 1`, `double(view.n) > 1.0`} {
		c, err := Condition(src)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.Eval(b, 0); err == nil {
			t.Errorf("%s: got %v", src, got)
		}
	}
	if d := time.Since(start); d > time.Minute {
		t.Errorf("took %s", d)
	}
}

func TestMeasuresAreExact(t *testing.T) {
	v := treeView{invoice()}
	for _, c := range []struct{ src, want string }{
		{`view.amount_minor`, "1000001"}, {`view.big`, "9007199254740993"}, {`view.huge`, "18446744073709551615"}, {`view.price`, "1.1"},
		{`view.sum`, "2.55"}, {`view.rate`, "0.5"}, {`sum(view.lines.map(l, l.amount * l.qty))`, "25.5"}, {`size(view.lines)`, "2"},
		{`view.big + view.huge`, "18455751272964292608"}, {`-view.price`, "-1.1"}, {`sum([])`, "0"},
	} {
		m, err := Number(c.src)
		if err != nil {
			t.Fatal(err)
		}
		q, ok, err := m.Eval(v)
		if err != nil || !ok || q.String() != c.want {
			t.Errorf("%s: got %s, %v, %v; want %s", c.src, q, ok, err, c.want)
		}
	}
	if m, _ := Number(`view.none`); m != nil {
		if _, ok, err := m.Eval(v); ok || err != nil {
			t.Errorf("null: got %v, %v", ok, err)
		}
	}
	for _, src := range []string{`view.invoice_id`, `view.missing`, `view.lines`, `double("NaN")`} {
		m, err := Number(src)
		if err != nil {
			t.Fatal(err)
		}
		if q, _, err := m.Eval(v); err == nil {
			t.Errorf("%s: got %s", src, q)
		}
	}
	if _, err := Number(`topic == "x"`); err == nil {
		t.Error("a measure has only the view")
	}
}

func TestQuantitiesAddWithoutLoss(t *testing.T) {
	var sum Quantity
	for range 1000 {
		q, ok := ParseQuantity("0.1")
		if !ok {
			t.Fatal("0.1 is not read")
		}
		sum = sum.Add(q)
	}
	if n, ok := sum.Int(); !ok || n != 100 || sum.String() != "100" {
		t.Errorf("got %s", sum)
	}
	if d := sum.Sub(sum); d.Cmp(Quantity{}) != 0 || fmt.Sprint(d) != "0" {
		t.Errorf("got %s", d)
	}
	if _, ok := ParseQuantity("1e999999999"); ok {
		t.Error("a hostile number is read")
	}
}

func FuzzParseExact(f *testing.F) {
	for _, s := range []string{"0", "-0", "1.10", "1E400", "1e-400", "-", ".", "1.", "00.1", "+5", "1e", "1e+", "12345678901234567890123", "0.0e5", "9.99E2"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		x, ok := parseExact(text)
		if !ok || len(text) > 100 {
			return
		}
		want, valid := new(big.Rat).SetString(string(text))
		if !valid || x.mag > 200 || x.mag < -200 {
			return
		}
		if got, ok := x.rational(); !ok || got.Cmp(want) != 0 {
			t.Errorf("%q reads as %v, not %v", text, got, want)
		}
	})
}

// A number keeps its text: -0 is no integer, because an integer has no such one.
func TestMinusZeroKeepsItsText(t *testing.T) {
	v, err := ValueOf("view.n")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"-0", "0", "-0.0", "-1"} {
		if got, ok, err := v.Append(nil, batchOf(rec("n", num(s))), 0); string(got) != s || !ok || err != nil {
			t.Errorf("%s is written as %s (%v, %v)", s, got, ok, err)
		}
	}
	for _, src := range []string{"view.n == 0", "view.n == -0", "!(view.n < 0)", "view.n + 1 == 1"} {
		c, err := Condition(src)
		if err != nil {
			t.Fatal(err)
		}
		if ok, err := c.Eval(batchOf(rec("n", num("-0"))), 0); !ok || err != nil {
			t.Errorf("%s of -0: %v, %v", src, ok, err)
		}
	}
}
