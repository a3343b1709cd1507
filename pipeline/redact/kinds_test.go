package redact

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"reprieve.dev/pipeline"
)

// cardOf makes the n-th number of a range with a length that passes Luhn.
func cardOf(r *issuerRange, length, n int) string {
	d := fmt.Sprintf("%06d", int(r.from)+n%int(r.to-r.from+1))
	for i := 0; len(d) < length-1; i++ {
		d += string("7302918465"[(i*3+n+length)%10])
	}
	for c := '0'; c <= '9'; c++ {
		if luhn([]byte(d + string(c))) {
			return d + string(c)
		}
	}
	panic("no digit passes")
}

// grouped writes a number in groups of four, American Express's in 4-6-5.
func grouped(card, sep string) string {
	var parts []string
	sizes := []int{4, 4, 4, 4, 4}
	if len(card) == 15 {
		sizes = []int{4, 6, 5}
	}
	for _, n := range sizes {
		n = min(n, len(card))
		if n > 0 {
			parts = append(parts, card[:n])
		}
		card = card[n:]
	}
	return strings.Join(parts, sep)
}

func escaped(card string) string {
	var b strings.Builder
	for _, c := range card {
		fmt.Fprintf(&b, `\u%04x`, c)
	}
	return b.String()
}

// Every range of the table, in every length of it, in every spelling and every place: recall 1. The same number with another check
// digit behind a word that says what it is: precision 1.
func TestEveryIssuerRangeGoesInEverySpelling(t *testing.T) {
	r, err := New(Config{}, Options{HashKey: make([]byte, 32)})
	if err != nil {
		t.Fatal(err)
	}
	quote := func(s string) string { b, _ := json.Marshal(s); return string(b) } // a text always has a form
	spellings := map[string]func(card string) string{
		"plain":            func(c string) string { return "card number: " + c },
		"spaces":           func(c string) string { return "card number " + grouped(c, " ") },
		"dashes":           func(c string) string { return "card: " + grouped(c, "-") + "." },
		"no-break spaces":  func(c string) string { return "card " + grouped(c, "\u00a0") },
		"thin spaces":      func(c string) string { return "card " + grouped(c, "\u2009") },
		"a member":         func(c string) string { return `{"card_number":"` + c + `"}` },
		"a grouped member": func(c string) string { return `{"pan":"` + grouped(c, " ") + `"}` },
		"a number":         func(c string) string { return `{"cardNumber":` + c + `}` },
		"escapes":          func(c string) string { return `{"card_number":"` + escaped(c) + `"}` },
		"nested JSON":      func(c string) string { return `{"raw":` + quote(`{"card_number":"`+c+`"}`) + `}` },
		"twice nested":     func(c string) string { return `{"raw":` + quote(`{"raw":`+quote(`{"pan":"`+c+`"}`)+`}`) + `}` },
		"a query":          func(c string) string { return "GET https://pay.example.com/charge?card_number=" + c + "&amount=100" },
		"an encoded query": func(c string) string {
			return "https://pay.example.com/?pan=" + url.QueryEscape(grouped(c, " ")) + "&x=1"
		},
		"a form": func(c string) string { return "card_number=" + c + "&expiry=1230" },
		"XML":    func(c string) string { return "<payment><cardNumber>" + c + "</cardNumber></payment>" },
		"diagnostics": func(c string) string {
			return "java.lang.IllegalArgumentException: invalid card " + c + " at Pay.java:42"
		},
	}
	ways := map[string]func(string) string{
		"text": r.Text,
		"value": func(s string) string {
			c, err := r.Sanitize("t", &pipeline.Record{Value: []byte(s)}, nil)
			if err != nil {
				return err.Error()
			}
			return string(c.Value)
		},
		"header": func(s string) string {
			c, err := r.Sanitize("t", &pipeline.Record{Headers: []pipeline.Header{{Name: "note", Value: []byte(s)}}}, nil)
			if err != nil {
				return err.Error()
			}
			return string(c.Headers[0].Value)
		},
	}
	plainDigits := func(s string) string {
		return strings.Map(func(c rune) rune {
			if c >= '0' && c <= '9' {
				return c
			}
			return -1
		}, s)
	}
	positive, negative := 0, 0
	table := issuers()
	for i := range table {
		for length := 12; length <= 19; length++ {
			if table[i].lengths&(1<<length) == 0 {
				continue
			}
			card := cardOf(&table[i], length, i*31+length)
			for name, spell := range spellings {
				text := spell(card)
				for way, run := range ways {
					positive++
					if out := run(text); strings.Contains(plainDigits(out), card) || strings.Contains(out, escaped(card)) {
						t.Errorf("%s as %s in a %s is left: %s", card, name, way, out)
					}
				}
			}
			wrong := card[:len(card)-1] + string('0'+(card[len(card)-1]-'0'+1)%10)
			for _, text := range []string{"order " + wrong + " was shipped", `{"order_id":"` + wrong + `"}`, "https://shop.example.com/orders/" + wrong + "?page=2"} {
				for way, run := range ways {
					negative++
					if out := run(text); out != text {
						t.Errorf("%s in a %s became %s", text, way, out)
					}
				}
			}
			// As the key of a record it is refused: in another key it would be another record.
			if err := r.Key([]byte("card "+card), r.NewEditor()); pipeline.CodeOf(err) != pipeline.CodeRedactIdentity {
				t.Errorf("the key %s: %v", card, err)
			}
			if err := r.Key([]byte("order-"+wrong), r.NewEditor()); err != nil {
				t.Errorf("the key order-%s: %v", wrong, err)
			}
		}
	}
	if positive < 300 || negative < 300 {
		t.Errorf("only %d positive and %d negative spellings", positive, negative)
	}
	t.Logf("%d positive and %d negative spellings", positive, negative)
}

// Every scheme in every case, with tokens whose tails masking likes to stop at, in every place: nothing of a token is left.
func TestEveryCredentialGoesWithItsTail(t *testing.T) {
	r, err := New(Config{}, Options{HashKey: make([]byte, 32)})
	if err != nil {
		t.Fatal(err)
	}
	tokens := []string{"Zm9vYmFyYmF6+cXV4eHl6/Kzl0YWls==", "abcDEF123.ghiJKL456-mnoPQR789_tailEnd", "QWxhZGRpbjpvcGVuIHNlc2FtZQ==", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b"}
	cases := []func(string) string{strings.ToLower, strings.ToUpper, func(s string) string { return s }}
	quote := func(s string) string { b, _ := json.Marshal(s); return string(b) } // a text always has a form
	var texts []struct{ text, token string }
	add := func(token, format string, args ...any) {
		texts = append(texts, struct{ text, token string }{fmt.Sprintf(format, args...), token})
	}
	for _, token := range tokens {
		for _, scheme := range []string{"Bearer", "Basic", "ApiKey", "Negotiate"} {
			for _, in := range cases {
				credentials := in(scheme) + " " + token
				add(token, "Authorization: %s", credentials)
				add(token, "proxy-authorization: %s\r\nHost: api.example.com", credentials)
				add(token, `{"Authorization":%s,"status":200}`, quote(credentials))
				add(token, `{"raw":%s}`, quote(`{"authorization":`+quote(credentials)+`}`))
				add(token, "curl -H 'Authorization: %s' https://api.example.com/v1", credentials)
			}
		}
		for _, name := range []string{"access_token", "ACCESS_TOKEN", "authorization", "api_key", "client_secret", "token"} {
			add(token, "GET https://api.example.com/v1/charge?x=1&%s=%s&y=2", name, url.QueryEscape(token))
			add(token, `POST failed: 401 for "https://api.example.com/?%s=%s"`, name, token)
		}
	}
	for _, x := range texts {
		for way, run := range map[string]func(string) string{
			"text": r.Text,
			"value": func(s string) string {
				c, err := r.Sanitize("t", &pipeline.Record{Value: []byte(s)}, nil)
				if err != nil {
					return err.Error()
				}
				return string(c.Value)
			},
			"header": func(s string) string {
				c, err := r.Sanitize("t", &pipeline.Record{Headers: []pipeline.Header{{Name: "note", Value: []byte(s)}}}, nil)
				if err != nil {
					return err.Error()
				}
				return string(c.Headers[0].Value)
			},
		} {
			out := run(x.text)
			for i := 0; i+6 <= len(x.token); i++ {
				if part := x.token[i : i+6]; strings.Contains(out, part) {
					t.Errorf("%s in a %s: %q is left: %s", x.text, way, part, out)
					break
				}
			}
			if host := "api.example.com"; strings.Contains(x.text, host) && !strings.Contains(out, host) {
				t.Errorf("%s in a %s lost its host: %s", x.text, way, out)
			}
		}
	}
	t.Logf("%d spellings", len(texts))
}
