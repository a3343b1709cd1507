package redact_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/redact"
)

func decodeJSON(t *testing.T, b []byte) map[string]any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var m map[string]any
	if err := d.Decode(&m); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	return m
}

func TestCaseC14OnlyTheCardGoes(t *testing.T) {
	value := readFile(t, "testdata/cases/C14/value.json")
	var headers map[string]string
	if err := json.Unmarshal(readFile(t, "testdata/cases/C14/headers.json"), &headers); err != nil {
		t.Fatal(err)
	}
	var want struct {
		Unchanged map[string]any
		Gone      []string
		Lookalike []string `json:"luhn_valid_but_not_cards"`
	}
	d := json.NewDecoder(bytes.NewReader(readFile(t, "testdata/cases/C14/expected.json")))
	d.UseNumber()
	if err := d.Decode(&want); err != nil {
		t.Fatal(err)
	}
	r := mustNew(t, redact.Config{}, redact.Options{})
	rec := &pipeline.Record{Key: []byte("47223179-9330-4259-b66c-f2db26efb20c"), Value: value}
	for _, n := range []string{"X-Original-Offset", "idempotency-key"} {
		rec.Headers = append(rec.Headers, pipeline.Header{Name: n, Value: []byte(headers[n])})
	}
	for name, v := range map[string]pipeline.View{"as a document": jsonView(t, value), "as bytes": nil} {
		t.Run(name, func(t *testing.T) {
			c := sanitize(t, r, rec, v)
			if !c.Changed {
				t.Error("nothing changed")
			}
			wantGone(t, everything(c), want.Gone...)
			wantGone(t, everything(c), "4111111111111111")
			got := decodeJSON(t, c.Value)
			for k, v := range want.Unchanged {
				if h, ok := headers[k]; ok {
					for _, x := range c.Headers {
						if x.Name == k && string(x.Value) != h {
							t.Errorf("header %s is %q", k, x.Value)
						}
					}
					continue
				}
				if fmt.Sprint(got[k]) != fmt.Sprint(v) {
					t.Errorf("%s is %v, want %v", k, got[k], v)
				}
			}
			if string(c.Key) != string(rec.Key) {
				t.Errorf("key is %q", c.Key)
			}
		})
	}
	for _, l := range want.Lookalike {
		l, _, _ = strings.Cut(l, " ")
		for _, text := range []string{"at " + l, l, "seen " + l + " twice"} {
			if strings.HasPrefix(l, "4722") {
				text = "47223179-9330-4259-b66c-f2db26efb20c"
			}
			if got := r.Text(text); got != text {
				t.Errorf("%q became %q", text, got)
			}
		}
	}
}

func TestCaseC16NoTailOfATokenIsLeft(t *testing.T) {
	var texts []string
	if err := json.Unmarshal(readFile(t, "testdata/cases/C16/texts.json"), &texts); err != nil {
		t.Fatal(err)
	}
	var want struct {
		Canaries []string `json:"canaries_none_may_remain"`
		Readable []string `json:"must_stay_readable"`
	}
	if err := json.Unmarshal(readFile(t, "testdata/cases/C16/expected.json"), &want); err != nil {
		t.Fatal(err)
	}
	r := mustNew(t, redact.Config{}, redact.Options{})
	check := func(place, in, out string) {
		t.Helper()
		wantGone(t, []byte(out), want.Canaries...)
		for _, s := range want.Readable {
			if strings.Contains(in, s) && !strings.Contains(out, s) {
				t.Errorf("%s: %q is not readable in %q", place, s, out)
			}
		}
		if strings.EqualFold(in[:min(len(in), 5)], "autho") && !strings.Contains(out, in[:14]) {
			t.Errorf("%s: the name of the header is gone from %q", place, out)
		}
	}
	for _, s := range texts {
		check("diagnostics", s, r.Text(s))
		check("stack", s, r.Text("panic: "+s+"\n\tmain.go:17 +0x1d"))
		quoted, err := json.Marshal(map[string]any{"error": s, "id": 7})
		if err != nil {
			t.Fatal(err)
		}
		out := redactJSON(t, r, string(quoted))
		var doc map[string]any
		if err := json.Unmarshal([]byte(out), &doc); err != nil {
			t.Fatalf("%v in %s", err, out)
		}
		check("member", s, doc["error"].(string))
		c := sanitize(t, r, &pipeline.Record{Value: []byte(s), Headers: []pipeline.Header{
			{Name: "X-Death-Reason", Value: []byte(s)}, {Name: "X-Exception-Stack", Value: []byte(s)}}}, nil)
		for _, h := range c.Headers {
			check(h.Name, s, string(h.Value))
		}
		check("bytes", s, string(c.Value))
		if len(c.Value) != len(s) {
			t.Errorf("%q: length %d became %d", s, len(s), len(c.Value))
		}
		wantGone(t, []byte(r.Text(string(quoted))), want.Canaries...)
	}
}

func TestCaseC17GoneAtEveryDepth(t *testing.T) {
	value := readFile(t, "testdata/cases/C17/value.json")
	var policy struct {
		Fields []string `json:"redact_fields"`
	}
	if err := json.Unmarshal(readFile(t, "testdata/cases/C17/policy.json"), &policy); err != nil {
		t.Fatal(err)
	}
	var want struct {
		Gone []string `json:"gone_everywhere"`
		Kept map[string]any
	}
	if err := json.Unmarshal(readFile(t, "testdata/cases/C17/expected.json"), &want); err != nil {
		t.Fatal(err)
	}
	var cfg redact.Config
	for _, f := range policy.Fields {
		cfg.Fields = append(cfg.Fields, redact.Field{Name: f})
	}
	for name, r := range map[string]*redact.Redactor{
		"by the fields named":   mustNew(t, cfg, redact.Options{}),
		"by the detectors only": mustNew(t, redact.Config{Fields: []redact.Field{{Path: "/*/ssn"}}}, redact.Options{}),
	} {
		for _, structured := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, document %t", name, structured), func(t *testing.T) {
				rec := &pipeline.Record{Value: value}
				var v pipeline.View
				if structured {
					v = jsonView(t, value)
				}
				c := sanitize(t, r, rec, v)
				wantGone(t, c.Value, want.Gone...)
				doc := decodeJSON(t, c.Value)
				at := func(path string) any {
					var x any = doc
					for _, s := range strings.Split(path, ".") {
						x = x.(map[string]any)[s]
					}
					return x
				}
				for _, p := range []string{"before.card.cvv", "after.card.cvv"} {
					if s := fmt.Sprint(at(p)); strings.Contains(s, "123") {
						t.Errorf("%s is %q", p, s)
					}
				}
				raw := decodeJSON(t, []byte(at("raw").(string)))
				if s := fmt.Sprint(raw["card"].(map[string]any)["cvv"]); strings.Contains(s, "123") {
					t.Errorf("raw cvv is %q", s)
				}
				for p, v := range want.Kept {
					if fmt.Sprint(at(p)) != fmt.Sprint(v) {
						t.Errorf("%s is %v, want %v", p, at(p), v)
					}
				}
			})
		}
	}
}

// C35 is about cutting; redaction must not break a character either, and must not touch a clean reason.
func TestCaseC35ReasonsKeepTheirCharacters(t *testing.T) {
	r := mustNew(t, redact.Config{}, redact.Options{})
	for _, f := range []string{"reason.txt", "reason_long.txt"} {
		s := string(readFile(t, "testdata/cases/C35/"+f))
		if got := r.Text(s); got != s {
			t.Errorf("%s changed", f)
		}
		got := r.Text(s + " card 4111111111111111 " + s)
		if !utf8.ValidString(got) || strings.Contains(got, "4111") || !strings.HasPrefix(got, s) || !strings.HasSuffix(got, s) {
			t.Errorf("%s with a card became %q", f, got)
		}
	}
	bad := "bad byte \xff\xfe\x00 here\x00 end"
	if got := r.Text(bad); got != bad {
		t.Errorf("%q became %q", bad, got)
	}
}

func TestCaseC52PluginLinesAreRedacted(t *testing.T) {
	r := mustNew(t, redact.Config{}, redact.Options{})
	line := `2026-09-15T10:00:00.123Z got record {"invoice":"inv-7","card":"4111111111111111","cvv":"123","amount":1250} from topic billing`
	got := r.Text(line)
	wantGone(t, []byte(got), "4111111111111111", `"123"`)
	wantThere(t, []byte(got), "2026-09-15T10:00:00.123Z", "inv-7", "1250", "topic billing")

	long := strings.Repeat("x y ", 3<<20/4) + "4111111111111111" + strings.Repeat(" z", 1<<20)
	if got := r.Text(long); strings.Contains(got, "4111111111111111") || len(got) != len(long) {
		t.Error("a card in a line of several MiB stays")
	}
}
