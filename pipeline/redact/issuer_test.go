package redact

import (
	"os"
	"regexp"
	"testing"

	"pgregory.net/rapid"
)

func TestPublishedTestNumbersAreCards(t *testing.T) {
	src, err := os.ReadFile("issuer.go")
	if err != nil {
		t.Fatal(err)
	}
	table := issuers()
	n := 0
	for _, m := range regexp.MustCompile(`"(\d{12,19})"`).FindAllSubmatch(src, -1) {
		n++
		if !publishedTest(m[1]) {
			t.Errorf("%s is not known", m[1])
		}
		if !luhn(m[1]) || issuerOf(table, m[1]) != issued {
			t.Errorf("%s: luhn %t, issuer %d", m[1], luhn(m[1]), issuerOf(table, m[1]))
		}
	}
	if n < 60 {
		t.Errorf("only %d numbers", n)
	}
}

// The quick no for a bare number never says no to a number of an issuer in use.
func TestMayStartCardCoversTheTable(t *testing.T) {
	for _, r := range issuers() {
		if r.rank != issued {
			continue
		}
		for p := r.from; p <= r.to; p++ {
			if a, b := byte('0'+p/100000), byte('0'+p/10000%10); !mayStartCard(a, b) {
				t.Fatalf("%06d is refused", p)
			}
		}
	}
}

func TestLuhnFindsEverySingleWrongDigit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := []byte(rapid.StringMatching(`[0-9]{11,18}`).Draw(t, "digits"))
		d = append(d, '0')
		for !luhn(d) {
			d[len(d)-1]++
		}
		if d[len(d)-1] > '9' {
			t.Fatalf("no last digit makes %s pass", d)
		}
		i := rapid.IntRange(0, len(d)-1).Draw(t, "at")
		was := d[i]
		d[i] = '0' + (was-'0'+byte(rapid.IntRange(1, 9).Draw(t, "by")))%10
		if luhn(d) {
			t.Fatalf("%s passes with digit %d changed from %c", d, i, was)
		}
	})
}

// The eight-byte look agrees with the table, byte for byte.
func TestLookAgreesWithTheTable(t *testing.T) {
	r := &Redactor{class: classes()}
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.SliceOfN(rapid.Byte(), 0, 40), rapid.Custom(func(t *rapid.T) []byte {
			return []byte(rapid.StringMatching(`[0-9 a-zA-Z:=<>%&.\\J/_-]{0,40}`).Draw(t, "text"))
		})).Draw(t, "s")
		var want uint8
		digits := 0
		for _, c := range s {
			k := r.class[c]
			if c < ' ' || c == ' ' {
				k |= isSpace // a control character counts as one
			}
			if c == ';' {
				k |= isAssign
			}
			want |= k
			digits += int(k & isDigit)
		}
		seen, few, run := r.look(s)
		const compared = isEscape | isAssign | isCapital
		if seen&compared&^want != 0 || want&compared&^(seen|isAssign) != 0 {
			t.Fatalf("%q: seen %b, want %b", s, seen, want)
		}
		for _, c := range s {
			if k := r.class[c]; k&(isAssign|isSpace|isCapital|isEscape)&^seen != 0 {
				t.Fatalf("%q: %q is not seen", s, c)
			}
		}
		if digits >= 3 && !few || r.chained(s) && digits >= minDigits && !run {
			t.Fatalf("%q: few %t, run %t with %d digits", s, few, run, digits)
		}
	})
}

func TestNameMeanings(t *testing.T) {
	for name, want := range map[string]meaning{
		"cvv": meansCode, "CVV2": meansCode, "cardCvc": meansCode, "card_verification_value": meansCode, "security_code": meansCode, "X-CVV": meansCode, "cvvNumber": meansCode,
		"cvv_result": means, "cvvResult": means, "cvc_check": means, "room": means, "verification_code": means, "cid": means,
		"Authorization": meansAuth, "proxy-authorization": meansAuth, "HTTP_AUTHORIZATION": meansAuth, "authorization_code": means,
		"Cookie": meansCookie, "set-cookie": meansCookie, "X-Api-Key": meansSecret, "apiKey": meansSecret, "accessToken": meansSecret, "password": meansSecret,
		"token": means, "idempotency_token": meansReference, "password_reset_at": meansTime,
		"pan": meansCard, "cardNumber": meansCard, "CreditCardNo": meansCard, "card_created_at": meansTime, "card_id": means,
		"order": meansReference, "invoiceId": meansReference, "X-Original-Offset": meansTime, "traceId": meansReference, "created_at": meansTime,
		"phoneNumber": meansPhone, "order_note": means, "note": means, "": means, "___": means,
	} {
		if got := nameMeaning(name, false); got != want {
			t.Errorf("%q means %d, want %d", name, got, want)
		}
	}
	for name, want := range map[string]meaning{"sig": meansSecret, "token": meansSecret, "key": meansMaybe, "ref": means, "access_token": meansSecret} {
		if got := nameMeaning(name, true); got != want {
			t.Errorf("query %q means %d, want %d", name, got, want)
		}
	}
}
