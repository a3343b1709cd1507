package custody

import "testing"

func TestRestKeepsTheCauseAndBlanksTheRecord(t *testing.T) {
	same := [][2]string{
		{"timeout calling 10.0.0.7:8080 after 2000 ms", "timeout calling 10.0.0.9:8081 after 2000 ms"},
		{"no account 9f86d081-884c-4d63-a5f1-0123456789ab", "no account 1b4e28ba-2fa1-11d2-883f-b9a761bde3fb"},
		{"order 1234567 is unknown", "order 7654321 is unknown"},
		{"at 2026-01-01T10:00:00.123Z it failed", "at 2026-02-03T11:12:13Z it failed"},
		{`field "a" is wrong`, `field "b" is wrong`},
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
