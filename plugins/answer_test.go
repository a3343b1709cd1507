package plugins

import (
	"strings"
	"testing"
	"unicode/utf8"

	"reprieve.dev/pipeline/redact"
	"reprieve.dev/plugins/wire"
)

// Words are redacted before they are cut: a number that is cut first is none that anybody knows (INV-PLUGIN-LOG).
func TestWordsAreRedactedBeforeTheyAreCut(t *testing.T) {
	red, err := redact.New(redact.Config{}, redact.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := &remote{h: &Host{redact: red.Text}}
	for pad := wire.TextMost - 40; pad <= wire.TextMost+4; pad++ {
		got := r.text(strings.Repeat("x", pad) + " 4111111111111111")
		if strings.Contains(got, "4111") || len(got) > wire.TextMost {
			t.Fatalf("after %d letters: %d bytes, ending in %q", pad, len(got), got[max(0, len(got)-20):])
		}
	}
	if got := r.text("line\nof \x1b[2J \xff words "); strings.ContainsAny(got, "\n\x1b") || !utf8.ValidString(got) || strings.HasSuffix(got, " ") {
		t.Errorf("%q", got)
	}
}
