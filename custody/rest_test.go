package custody

import "testing"

func TestRestKeepsTheCauseAndBlanksTheRecord(t *testing.T) {
	same := [][2]string{
		{"timeout calling 10.0.0.7:8080 after 2000 ms", "timeout calling 10.0.0.9:8081 after 2000 ms"},
		{"no account 9f86d081-884c-4d63-a5f1-0123456789ab", "no account 1b4e28ba-2fa1-11d2-883f-b9a761bde3fb"},
		{"order 1234567 is unknown", "order 7654321 is unknown"},
		{"at 2026-01-01T10:00:00.123Z it failed", "at 2026-02-03T11:12:13Z it failed"},
		{`field "a" is wrong`, `field "b" is wrong`},
		{"invoice INV-17: amount 12.50 EUR exceeds limit 1,000.00", "invoice INV-9920: amount 7.05 USD exceeds limit 9.99"},
		{"Index 7 out of bounds for length 7", "Index 12 out of bounds for length 12"},
		{"no customer cus_9s6XKzkNRiZ8i3", "no customer cus_QwErTzUiOpAsDf"},
		{"db-07.internal:5432 closed the connection", "db-11.internal:5433 closed the connection"},
	}
	for _, p := range same {
		if rest(p[0]) != rest(p[1]) {
			t.Errorf("%q and %q are two causes: %q, %q", p[0], p[1], rest(p[0]), rest(p[1]))
		}
	}
	apart := [][2]string{
		{"HTTP 404 from accounts", "HTTP 500 from accounts"},
		{"status 502", "status 404"},
		{"cents missing", "due missing"},
		{"ORA-00942: it failed", "ORA-01400: it failed"},
		{"KeyError 'tenant'", "KeyError 'invoice_id'"},
		{"unexpected status 502 after 3.1s", "unexpected status 409 after 3.1s"},
		{"POST https://a.example/v1/charges failed", "POST https://a.example/v1/refunds failed"},
	}
	for _, p := range apart {
		if rest(p[0]) == rest(p[1]) {
			t.Errorf("%q and %q are one cause", p[0], p[1])
		}
	}
	if n := len([]rune(rest(string(make([]rune, 5000))))); n > maxRest {
		t.Errorf("%d characters", n)
	}
}
