package redact_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/redact"
)

// drawHarmless makes a value that is no secret, of a kind that systems write: times in every unit, ids, digests, amounts,
// coordinates, telephone numbers, versions, addresses.
func drawHarmless(t *rapid.T) any {
	digits := func(n int) string { return rapid.StringMatching(fmt.Sprintf("[0-9]{%d}", n)).Draw(t, "digits") }
	at := time.Unix(rapid.Int64Range(946_684_800, 1_990_000_000).Draw(t, "time"), rapid.Int64Range(0, 999_999_999).Draw(t, "nano")).UTC()
	switch rapid.IntRange(0, 18).Draw(t, "what") {
	case 0:
		return at.UnixMilli()
	case 1:
		return at.UnixMicro()
	case 2:
		return at.UnixNano()
	case 3:
		return strconv.FormatInt(at.UnixMilli(), 10)
	case 4:
		return at.Format(time.RFC3339Nano)
	case 5:
		return at.Format("2006-01-02 15:04:05.000000")
	case 6:
		return rapid.StringMatching(`[0-9a-f]{8}-[0-9a-f]{4}-[1-7][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}`).Draw(t, "uuid")
	case 7: // a UUID of digits only
		return digits(8) + "-" + digits(4) + "-" + digits(4) + "-" + digits(4) + "-" + digits(12)
	case 8:
		return rapid.StringMatching(`[0-9a-f]{63}[a-f]`).Draw(t, "digest")
	case 9:
		return rapid.Float64Range(-180, 180).Draw(t, "degrees")
	case 10:
		return fmt.Sprintf("ORD-%s-%s", digits(4), digits(16))
	case 11:
		return "+49" + digits(10)
	case 12: // ticks of .NET
		return at.Unix()*10_000_000 + 621_355_968_000_000_000 + int64(at.Nanosecond()/100)
	case 13:
		return digits(3) + "." + digits(3) + "." + digits(2) + "." + digits(1)
	case 14: // passes Luhn, belongs to no issuer
		d := rapid.SampledFrom([]string{"10", "13", "16", "17", "19", "70", "73", "78", "84", "93"}).Draw(t, "prefix") + digits(13)
		for c := '0'; c <= '9'; c++ {
			if passesLuhn(d + string(c)) {
				return d + string(c)
			}
		}
	case 15: // does not pass
		d := drawCard(t)
		return d[:len(d)-1] + string('0'+(d[len(d)-1]-'0'+byte(rapid.IntRange(1, 9).Draw(t, "off")))%10)
	case 16:
		return at.Format("20060102150405")
	case 17:
		return rapid.Uint32().Draw(t, "number")
	}
	return rapid.StringMatching(`[0-9A-HJKMNP-TV-Z]{25}[A-H]`).Draw(t, "ulid")
}

// INV-REDACT-ONLY: what systems write besides secrets is left byte for byte, as a number, a string, a text, a header, bytes.
func TestHarmlessValuesAreLeft(t *testing.T) {
	r := mustNew(t, redact.Config{}, redact.Options{})
	rapid.Check(t, func(t *rapid.T) {
		v := drawHarmless(t)
		name := rapid.SampledFrom([]string{"x", "value", "note", "id", "created", "amount", "data"}).Draw(t, "name")
		doc, err := json.Marshal(map[string]any{name: v, "list": []any{v, fmt.Sprint(v)}, "text": "seen " + fmt.Sprint(v) + " here", "raw": fmt.Sprintf(`{"a":[%q]}`, fmt.Sprint(v))})
		if err != nil {
			t.Fatal(err)
		}
		for way, view := range map[string]pipeline.View{"decoded": jsonView(t, doc), "raw": nil} {
			c, err := r.Sanitize("orders", &pipeline.Record{Value: doc, Headers: []pipeline.Header{{Name: "x", Value: []byte(fmt.Sprint(v))}}}, view)
			if err != nil || c.Changed || string(c.Headers[0].Value) != fmt.Sprint(v) {
				t.Fatalf("%s: %s became %s, %v", way, doc, c.Value, err)
			}
		}
		if s := strings.Repeat(fmt.Sprint(v)+"; ", 2); r.Text(s) != s {
			t.Fatalf("%q became %q", s, r.Text(s))
		}
	})
}
