package redact_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/redact"
)

// signs are what an editor would hide or change in a corpus line.
var signs = strings.NewReplacer("{nl}", "\n", "{cr}", "\r", "{tab}", "\t", "{nbsp}", "\u00a0", "{thin}", "\u2009", "{nnbsp}", "\u202f",
	"{endash}", "\u2013", "{hyphen}", "\u2010", "{nbhyphen}", "\u2011", "{minus}", "\u2212", "{fwspace}", "\u3000", "{zwsp}", "\u200b", "{zwj}", "\u200d",
	"{shy}", "\u00ad", "{bom}", "\ufeff", "{wj}", "\u2060")

// spelling is one line of a corpus: pieces that must be left, and between them what must go.
type spelling struct {
	line  int
	input string
	left  []string
	gone  []string
}

func corpus(t testing.TB, name string) []spelling {
	t.Helper()
	var all []spelling
	s := bufio.NewScanner(bytes.NewReader(readFile(t, "testdata/"+name)))
	for n := 1; s.Scan(); n++ {
		text := s.Text()
		if text == "" || strings.HasPrefix(text, "# ") {
			continue
		}
		text = signs.Replace(text)
		sp := spelling{line: n, input: strings.NewReplacer("⟦", "", "⟧", "").Replace(text)}
		for {
			before, rest, found := strings.Cut(text, "⟦")
			sp.left = append(sp.left, before)
			if !found {
				break
			}
			gone, after, ok := strings.Cut(rest, "⟧")
			if !ok {
				t.Fatalf("%s:%d: a mark is not closed", name, n)
			}
			sp.gone = append(sp.gone, gone)
			text = after
		}
		all = append(all, sp)
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// check wants every piece that must be left in place and none of what must go.
func (s *spelling) check(out string) string {
	rest := out
	for i, piece := range s.left {
		if i == 0 {
			if !strings.HasPrefix(rest, piece) {
				return "the beginning changed"
			}
			rest = rest[len(piece):]
			continue
		}
		at := strings.Index(rest, piece)
		if i == len(s.left)-1 {
			if !strings.HasSuffix(rest, piece) {
				return "the end changed"
			}
			at = len(rest) - len(piece)
		}
		if at < 0 {
			return "something that must be left is gone"
		}
		mask := rest[:at]
		if gone := s.gone[i-1]; mask == gone || leaks(mask, gone) {
			return "something that must go is left"
		}
		rest = rest[at+len(piece):]
	}
	return ""
}

// leaks says that four signs in a row of a secret, separators aside, are left in what replaced it.
func leaks(mask, secret string) bool {
	word := func(s string) string {
		return strings.Map(func(r rune) rune {
			if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
				return r
			}
			return -1
		}, s)
	}
	m, w := word(mask), word(secret)
	for i := 0; i+3 <= len(w); i++ {
		if strings.Contains(m, w[i:i+3]) {
			return true
		}
	}
	return false
}

// Every spelling goes through each way that a text can come: diagnostics, a member of a document, a document inside a
// string, bytes that no codec could read, a header. Recall and precision are 1.
func TestCorpusOfTexts(t *testing.T) {
	r := mustNew(t, redact.Config{}, redact.Options{})
	positive, negative := corpus(t, "text.positive.txt"), corpus(t, "text.negative.txt")
	if len(positive) < 300 || len(negative) < 300 {
		t.Fatalf("the corpus has %d and %d lines, want 300 each", len(positive), len(negative))
	}
	quote := func(s string) string {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(s); err != nil {
			t.Fatal(err)
		}
		return strings.TrimSuffix(b.String(), "\n")
	}
	unquote := func(s string) string {
		var x struct{ Note string }
		if err := json.Unmarshal([]byte(s), &x); err != nil {
			t.Fatalf("%v in %s", err, s)
		}
		return x.Note
	}
	ways := map[string]func(string) string{
		"diagnostics": r.Text,
		"member":      func(s string) string { return unquote(redactJSON(t, r, `{"note":`+quote(s)+`}`)) },
		"nested": func(s string) string {
			var x struct{ Raw string }
			out := redactJSON(t, r, `{"raw":`+quote(`{"note": `+quote(s)+`}`)+`}`)
			if err := json.Unmarshal([]byte(out), &x); err != nil {
				t.Fatalf("%v in %s", err, out)
			}
			return unquote(x.Raw)
		},
		"bytes": func(s string) string {
			c := sanitize(t, r, &pipeline.Record{Value: []byte(s)}, nil)
			if len(c.Value) != len(s) {
				t.Errorf("%q has another length", s)
			}
			return string(c.Value)
		},
		"header": func(s string) string {
			c := sanitize(t, r, &pipeline.Record{Headers: []pipeline.Header{{Name: "note", Value: []byte(s)}}}, nil)
			return string(c.Headers[0].Value)
		},
	}
	for way, run := range ways {
		t.Run(way, func(t *testing.T) {
			missed, wrong := 0, 0
			for _, s := range positive {
				out := run(s.input)
				if what := s.check(out); what != "" {
					missed++
					t.Errorf("text.positive.txt:%d: %s: %q became %q", s.line, what, s.input, out)
				} else if again := run(out); again != out {
					t.Errorf("text.positive.txt:%d: a second pass made %q of %q", s.line, again, out)
				}
			}
			for _, s := range negative {
				if out := run(s.input); out != s.input {
					wrong++
					t.Errorf("text.negative.txt:%d: %q became %q", s.line, s.input, out)
				}
			}
			t.Logf("recall %d/%d, precision: %d of %d changed", len(positive)-missed, len(positive), wrong, len(negative))
		})
	}
}

// Documents go through the codec, as bytes that no codec read, as a document inside a string and as a line of a log. They
// stay valid JSON.
func TestCorpusOfDocuments(t *testing.T) {
	r := mustNew(t, redact.Config{}, redact.Options{})
	positive, negative := corpus(t, "json.positive.txt"), corpus(t, "json.negative.txt")
	if len(positive) < 300 || len(negative) < 300 {
		t.Fatalf("the corpus has %d and %d lines, want 300 each", len(positive), len(negative))
	}
	ways := map[string]func(string) string{
		"decoded": func(s string) string {
			c, err := r.Sanitize("orders", &pipeline.Record{Value: []byte(s)}, decoded(t, []byte(s)))
			if err != nil {
				return err.Error()
			}
			return string(c.Value)
		},
		"bytes": func(s string) string {
			c := sanitize(t, r, &pipeline.Record{Value: []byte(s)}, nil)
			if len(c.Value) != len(s) {
				t.Errorf("%q has another length", s)
			}
			return string(c.Value)
		},
		"framed bytes": func(s string) string {
			c := sanitize(t, r, &pipeline.Record{Value: append([]byte{0, 0, 0, 0, 9}, s...)}, nil)
			return string(c.Value[5:])
		},
		"line": r.Text,
		"header": func(s string) string {
			c := sanitize(t, r, &pipeline.Record{Headers: []pipeline.Header{{Name: "copy", Value: []byte(s)}}}, nil)
			return string(c.Headers[0].Value)
		},
	}
	for way, run := range ways {
		t.Run(way, func(t *testing.T) {
			missed, wrong := 0, 0
			for _, s := range positive {
				out := run(s.input)
				if what := s.check(out); what != "" {
					missed++
					t.Errorf("json.positive.txt:%d: %s: %s became %s", s.line, what, s.input, out)
				} else if json.Valid([]byte(s.input)) && !digits(s.input) && !json.Valid([]byte(out)) {
					t.Errorf("json.positive.txt:%d: no JSON any more: %s", s.line, out)
				} else if again := run(out); again != out {
					t.Errorf("json.positive.txt:%d: a second pass made %s of %s", s.line, again, out)
				}
			}
			for _, s := range negative {
				if out := run(s.input); out != s.input {
					wrong++
					t.Errorf("json.negative.txt:%d: %s became %s", s.line, s.input, out)
				}
			}
			t.Logf("recall %d/%d, precision: %d of %d changed", len(positive)-missed, len(positive), wrong, len(negative))
		})
	}
}

// digits says that a document is one bare number, which as a text is none.
func digits(s string) bool { return strings.Trim(s, "0123456789") == "" }
