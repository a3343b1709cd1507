package redact

import (
	"fmt"
	"strings"
	"testing"
)

// A list is as long as it likes: every card number in it goes, whatever stands before it.
func TestListsOfNumbersHideNoCard(t *testing.T) {
	r, err := New(Config{}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	const a, b = "4111111111111111", "5555555555554444"
	check := func(name, text string) {
		t.Helper()
		out := r.Text(text)
		if strings.Contains(out, a) || strings.Contains(out, b) {
			t.Errorf("%s: a card number is left: %.200s", name, out)
		}
	}
	for n := 1; n <= 80; n++ {
		check(fmt.Sprint(n, " cards"), strings.Repeat(a+" ", n))
		check(fmt.Sprint(n, " alternating"), strings.Repeat(a+" "+b+" ", n))
		check(fmt.Sprint(n, " numbers before one"), strings.Repeat("12345 ", n)+a)
		check(fmt.Sprint(n, " joined by dashes"), strings.TrimSuffix(strings.Repeat(a+"-", n), "-"))
	}
	check("joined by a dot", a+"."+b)
	check("with month and check digits", a+"-1227-123")
	for _, keep := range []string{"id 6ba7b810-9dad-11d1-80b4-00c04fd430c8", "2026-11-30", "order 4111111111111111-01"} {
		if out := r.Text(keep); out != keep {
			t.Errorf("%q became %q", keep, out)
		}
	}
}
