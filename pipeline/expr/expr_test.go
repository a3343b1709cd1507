package expr

import (
	"errors"
	"testing"
)

// invoice is the record of most tests.
func invoice() *tree {
	return rec(
		"invoice_id", str("inv-1"),
		"amount_minor", integral(1_000_001),
		"big", num("9007199254740993"),
		"huge", num("18446744073709551615"),
		"price", num("1.10"),
		"enormous", num("1E400"),
		"rate", float(0.5),
		"active", boolVal(true),
		"status", enum("PAID"),
		"due", millis(1_790_000_000_000),
		"old", millis(-1500),
		"sum", dec([]byte{0x00, 0xff}, 2), // 2.55
		"none", null(),
		"hash", raw([]byte{0xff, 0x00}),
		"customer", rec("email", str("a@example.com"), "country", str("DE"), "address", null()),
		"lines", []any{
			rec("sku", str("x"), "amount", num("10.25"), "qty", integral(2)),
			rec("sku", str("y"), "amount", num("5"), "qty", integral(1)),
		},
		"tags", []any{str("a"), str("b"), num("1.50")},
		"0", str("digit name"),
	)
}

func TestConditionsOverARecord(t *testing.T) {
	b := batchOf(invoice())
	for _, c := range []struct {
		src    string
		want   bool
		native bool
	}{
		{`view.amount_minor > 1000000`, true, true},
		{`view.amount_minor == 1000001.0`, true, true},
		{`view.customer.country == "DE"`, true, true},
		{`view["customer"]["country"] != "FR"`, true, true},
		{`"DE" == view.customer.country`, true, true},
		{`view.status in ["OPEN", "PAID"]`, true, true},
		{`view.status.startsWith("PA") && !view.status.endsWith("X") || view.status.contains("zzz")`, true, true},
		{`has(view.customer.email)`, true, true},
		{`has(view.customer.phone)`, false, true},
		{`has(view.customer.address)`, true, true},
		{`has(view.customer.address.street)`, false, true},
		{`view.none == null`, true, true},
		{`view.active`, true, true},
		{`!view.active`, false, true},
		{`view.big == 9007199254740993`, true, true},
		{`view.big == 9007199254740992`, false, true},
		{`view.big > 9007199254740992.0`, true, true},
		{`view.huge == 18446744073709551615u`, true, true},
		{`view.huge > 9223372036854775807`, true, true},
		{`view.price == 1.1`, true, true},
		{`view.price == decimal("1.10")`, true, true},
		{`view.price > 1.1000000001`, false, true},
		{`10 > view.price`, true, true},
		{`view.enormous > 1.7e308`, true, true},
		{`view.sum == 2.55`, true, true},
		{`view.rate < 1`, true, true},
		{`view.due > timestamp("2026-01-01T00:00:00Z")`, true, true},
		{`view.old == timestamp("1969-12-31T23:59:58.500Z")`, true, true},
		{`view.hash == b"\xff\x00"`, true, true},
		{`view.lines[1].qty == 1`, true, true},
		{`view.lines[0].amount == 10.25`, true, true},
		{`headers.region == "eu" && "null" in headers && !("x" in headers)`, true, true},
		{`headers["content-type"].startsWith("application/")`, true, true},
		{`headers["null"] == null`, true, true},
		{`key == "acct-7" && topic == "billing.invoices.v1" && partition == 3 && offset >= 42`, true, true},
		{`timestamp > timestamp("2020-01-01T00:00:00Z")`, true, true},
		{`60 * 1000 < view.amount_minor`, true, true},
		{`view.lines.all(l, l.qty > 0)`, true, false},
		{`view.lines.exists(l, l.sku == "y" && l.amount == 5)`, true, false},
		{`size(view.lines) == 2 && size(view.customer) == 3`, true, false},
		{`sum(view.lines.map(l, l.amount)) == 15.25`, true, false},
		{`view.price * 2 == 2.2 && 2 * view.price == 2.20 && 1 + view.price == 2.1`, true, false},
		{`view.price / 4 == 0.275`, true, false},
		{`view.lines[0].amount > view.lines[1].amount && view.lines[1].amount < view.lines[0].amount`, true, false},
		{`"a" in view.tags && 1.5 in view.tags && !(2 in view.tags)`, true, false},
		{`["a", "b", 1.5] == view.tags && view.tags == ["a", "b", 1.5]`, true, false},
		{`"email" in view.customer`, true, false},
		{`view.customer == {"email": "a@example.com", "country": "DE", "address": null}`, true, false},
		{`view["0"] == "digit name"`, true, false},
		{`header_list.filter(h, h.name == "region").map(h, h.value) == ["us", "eu"]`, true, false},
		{`view.due.getFullYear() == 2026`, true, false},
		{`int(view.price) == 1 && string(view.price) == "1.10" && type(view.price) != int`, true, false},
		{`view.tags[0] == "a"`, true, true},
		{`"2026-01-02".matches("^[0-9]{4}-[0-9]{2}-[0-9]{2}$") && view.status.matches("^P[A-Z]{3}$")`, true, false},
		{`!view.status.matches("^" + view.tags[0] + "{3}")`, true, false},
		{`view.lines.map(l, l.sku) == ["x", "y"]`, true, false},
	} {
		t.Run(c.src, func(t *testing.T) {
			cond, err := Condition(c.src)
			if err != nil {
				t.Fatal(err)
			}
			got, err := cond.Eval(b, 0)
			if err != nil || got != c.want {
				t.Errorf("got %v, %v", got, err)
			}
			if cond.Native() != c.native {
				t.Errorf("native is %v", cond.Native())
			}
		})
	}
}

func TestMismatchesAreErrorsNeverPanics(t *testing.T) {
	b := batchOf(invoice())
	for _, src := range []string{
		`view.nothing == 1`, `view.customer.nothing.deeper == 1`, `view.none.x == 1`, `view.amount_minor < "x"`,
		`view.status`, `!view.status`, `has(view.nothing.x)`, `view.amount_minor.startsWith("x")`, `headers.nothing == "x"`,
		`view.lines[2].qty == 1`, `view.lines["sku"] == 1`, `view.customer[0] == 1`, `view.lines.all(l, l.nothing)`,
		`view.price + "x" == "y"`, `view.price / 0 == 1`, `view.price / 3 == 1`, `view.huge * 1.5 * decimal("1e1999") * decimal("1e1999") > 1`,
		`9223372036854775807 + view.amount_minor > 0`, `int(view.status) == 1`, `view.customer < 1`, `sum(view.tags) == 1`,
		`view.tags[view.amount_minor] == 1`, `has(view.lines.sku)`,
	} {
		t.Run(src, func(t *testing.T) {
			cond, err := Condition(src)
			if err != nil {
				t.Fatal(err)
			}
			got, err := cond.Eval(b, 0)
			var e *EvalError
			if !errors.As(err, &e) || got {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}

func TestWithoutAViewTheViewIsNull(t *testing.T) {
	b := batchOf(nil)
	for src, want := range map[string]bool{`view == null`: true, `has(view.x)`: false, `view != null && view.x == 1`: false,
		`type(view) == null_type`: true} {
		cond, err := Condition(src)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := cond.Eval(b, 0); err != nil || got != want {
			t.Errorf("%s: got %v, %v", src, got, err)
		}
	}
}
