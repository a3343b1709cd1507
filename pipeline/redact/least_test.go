package redact_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"reprieve.dev/examples/billing"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/redact"
)

// asked is an editor that is asked about every leaf.
type asked struct{ e *redact.Editor }

func (a asked) Plan(path, name string, kind pipeline.ValueKind, tags []string) pipeline.Rule {
	return a.e.Plan(path, name, kind, tags)
}
func (a asked) Edit(rule pipeline.Rule, leaf pipeline.Leaf) pipeline.Edit {
	return a.e.Edit(rule, leaf)
}

func TestALeafBelowTheLeastIsKept(t *testing.T) {
	r := mustNew(t, redact.Config{Fields: []redact.Field{{Name: "ssn"}}}, redact.Options{})
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"amount_minor", "cvv", "card_number", "phone", "password", "name", "value", "ssn", "authorization", "order_id", "4111111111111111", ""}).Draw(t, "name")
		path := "/a/" + name
		e := r.NewEditor()
		leaf := pipeline.Leaf{Path: path, Name: name}
		if rapid.Bool().Draw(t, "number") {
			leaf.Value = pipeline.Value{Kind: pipeline.KindInt, Int: rapid.Int64().Draw(t, "int") >> rapid.IntRange(0, 63).Draw(t, "shift")}
		} else {
			leaf.Value = pipeline.Value{Kind: pipeline.KindString, Bytes: []byte(rapid.StringN(0, 4, 8).Draw(t, "text"))}
		}
		rule := e.Plan(path, name, leaf.Value.Kind, nil)
		least := e.Least(rule, leaf.Value.Kind)
		v := leaf.Value
		if rule == 0 || v.Kind == pipeline.KindInt && (v.Int >= least || v.Int <= -least) || v.Kind == pipeline.KindString && int64(len(v.Bytes)) >= least {
			return
		}
		if got := e.Edit(rule, leaf); got.Kind != pipeline.Keep {
			t.Errorf("%s: %d %q is %d, but below %d", path, v.Int, v.Bytes, got.Kind, least)
		}
	})
}

func TestWhatIsNotAskedChangesNothing(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "7.avsc", billing.Schema())
	reg, err := codec.Folder(dir)
	if err != nil {
		t.Fatal(err)
	}
	d, err := codec.NewDecoder(codec.DecodeConfig{Format: codec.FormatAvro}, reg)
	if err != nil {
		t.Fatal(err)
	}
	r := mustNew(t, redact.Config{Fields: []redact.Field{{Path: "/customer/email"}, {Path: "/lines/*/amount_minor"}}, Tags: []string{"PII"}}, redact.Options{})
	g := billing.Generator{Seed: 3, Secrets: 0.3, SchemaID: 7}
	e, plain := r.NewEditor(), asked{r.NewEditor()}
	s := codec.NewScratch()
	var m pipeline.Message
	for i := range 500 {
		g.Invoice(&m, i)
		s.Reset()
		v, f := d.Decode(t.Context(), s, m.Value, nil)
		if f != nil {
			t.Fatal(f.Reason())
		}
		got, changed, err := v.Edit(nil, e)
		want, wantChanged, wantErr := v.Edit(nil, plain)
		if changed != wantChanged || err != nil || wantErr != nil || !bytes.Equal(got, want) {
			t.Fatalf("invoice %d: %v %v %v %v", i, changed, wantChanged, err, wantErr)
		}
	}
}

// What Keeps says of a text is what Edit does with it, for every spelling of the corpora and for texts made to lie between.
func TestAKeptTextIsKept(t *testing.T) {
	r := mustNew(t, redact.Config{}, redact.Options{})
	e := r.NewEditor()
	kept, all := 0, 0
	check := func(t interface{ Errorf(string, ...any) }, name, text string) {
		rule := e.Plan("/a/"+name, name, pipeline.KindString, nil)
		if least := e.Least(rule, pipeline.KindString); least == 0 || int64(len(text)) < least {
			return
		}
		all++
		is, ascii := e.Keeps([]byte(text))
		if ascii && strings.ContainsFunc(text, func(r rune) bool { return r >= 0x80 }) {
			t.Errorf("%q is said to be ASCII", text)
		}
		if !is {
			return
		}
		kept++
		leaf := pipeline.Leaf{Path: "/a/" + name, Name: name, Value: pipeline.Value{Kind: pipeline.KindString, Bytes: []byte(text)}}
		if got := e.Edit(rule, leaf); got.Kind != pipeline.Keep {
			t.Errorf("%s: %q is said to be kept and becomes %q", name, text, got.Text)
		}
	}
	names := []string{"note", "card_number", "phone", "order_id", "reference", "issued", "description"}
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		for _, s := range corpus(t, filepath.Base(file)) {
			for _, name := range names {
				check(t, name, s.input)
			}
		}
	}
	pieces := []string{"Bearer ", "basic ", "digest\t", "apikey+", "Negotiate ", "ntlm ", "hawk ", "4111111111111111", "4539 5787 6362 1486", "411111", "cvv 123", "security code is 123",
		"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", "dXNlcjpwYXNz", "abcdef0123456789abcdef", " ", "+", "\t", "é", "ü ", "-", ".", "/", "word ", "Straße 17", "a", "\u00a0", "\x00", "0", "12", "345"}
	rapid.Check(t, func(t *rapid.T) {
		text := ""
		for _, p := range rapid.SliceOfN(rapid.SampledFrom(pieces), 1, 8).Draw(t, "pieces") {
			text += p
		}
		check(t, rapid.SampledFrom(names).Draw(t, "name"), text)
	})
	if kept == 0 || kept == all {
		t.Errorf("%d of %d texts kept", kept, all)
	}
}

func write(t testing.TB, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A key that is soon known to be kept is one in which nothing would have been found.
func TestAKeyThatIsSoonKeptIsKept(t *testing.T) {
	quick := mustNew(t, redact.Config{}, redact.Options{})
	all := mustNew(t, redact.Config{Patterns: []redact.Pattern{{Name: "none", Match: "never-in-a-key"}}}, redact.Options{}) // always looks
	agree := func(t interface{ Errorf(string, ...any) }, key string) {
		a, b := quick.Key([]byte(key), quick.NewEditor()), all.Key([]byte(key), all.NewEditor())
		if (a == nil) != (b == nil) {
			t.Errorf("%q: %v, and %v when all of it is looked at", key, a, b)
		}
	}
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		for _, s := range corpus(t, filepath.Base(file)) {
			agree(t, s.input)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		pieces := []string{"inv-2024-", "4111111111111111", "4539 5787", " 6362 1486", "BZh91AY&SY1234", "\x1f\x8b\x08", "bearer ", "abcdef0123456789", "cvv=123", "\x00", "\x20", "é", "{", "}", `"a":1`, "12", "x"}
		key := ""
		for _, p := range rapid.SliceOfN(rapid.SampledFrom(pieces), 1, 5).Draw(t, "pieces") {
			key += p
		}
		agree(t, key)
	})
}
