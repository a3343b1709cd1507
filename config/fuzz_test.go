package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// FuzzParse holds INV-CONFIG-BOUND and INV-CONFIG-SECRET: no text makes the reader panic, hang or show a variable, and what
// is shown to people reads as the same data.
func FuzzParse(f *testing.F) {
	paths, _ := filepath.Glob("testdata/*.yaml")
	for _, p := range paths {
		if data, err := os.ReadFile(p); err == nil {
			f.Add(string(data))
		}
	}
	for _, s := range []string{"", "a", "- a\n- b", "? a\n: b", "a: !!binary aGk=", "a: |\n  b\n", "%YAML 1.1\n---\na: b", "a: 2001-12-14t21:59:43.10-05:00", "a: [", "\ufeffa: b",
		"<<: {a: b}", "a: &a b\n*a : c", "a: 1e999\nb: -0\nc: .5\nd: 0b1\ne: 1_0", "a: \"\\u0000\\U0010ffff\"", "a: $${X} ${V:-d} ${file:x}", "? |\n  k\n: v", "a: ~\nnull: b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		opt := Options{
			Env:      func(string) (string, bool) { return canary, true },
			ReadFile: func(string) ([]byte, error) { return []byte(canary), nil },
		}
		start := time.Now()
		doc, ps := Parse("f.yaml", []byte(text), opt)
		clean := len(ps) == 0
		for _, load := range []func() Problems{
			func() Problems { _, _, ps := LoadPipeline("f.yaml", []byte(text), opt); return ps },
			func() Problems { _, _, ps := LoadWorker("f.yaml", []byte(text), opt); return ps },
		} {
			ps = append(ps, load()...)
		}
		if shown := ps.Error(); strings.Contains(shown, canary) && !strings.Contains(text, canary) {
			t.Errorf("a value is shown:\n%s", shown)
		}
		for _, p := range ps {
			if p.Code == "" || p.Text == "" || strings.Contains(p.Text, "\n") && !strings.Contains(text, "\n") {
				t.Errorf("half a problem: %#v", p)
			}
		}
		if doc != nil {
			digest, dump := doc.Digest(), doc.Dump()
			doc.Root().Value()
			again, ps := Parse("dump.yaml", dump, Options{})
			if !clean || strings.Contains(text, "$") || strings.Contains(string(dump), mask) {
				return
			}
			if again == nil || len(ps) != 0 && doc.root.kind != kindNull {
				t.Errorf("what is shown does not read: %v\n%s", ps, dump)
			} else if len(ps) == 0 && again.Digest() != digest {
				t.Errorf("what is shown is not the same data\n%s\n%s", text, dump)
			}
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// TestINVConfigBoundHoldsForHostileFiles holds INV-CONFIG-BOUND for shapes that cost readers of YAML dearly.
func TestINVConfigBoundHoldsForHostileFiles(t *testing.T) {
	const size = maxFileBytes
	fill := func(head, unit, tail string) string {
		return head + strings.Repeat(unit, (size-len(head)-len(tail))/len(unit)) + tail
	}
	var keys strings.Builder
	for i := 0; keys.Len() < size-20; i++ {
		keys.WriteString("k")
		keys.WriteString(Duration(i).String())
		keys.WriteString(": 1\n")
	}
	list := func(unit string) string { // distinct items
		var b strings.Builder
		for i := 0; b.Len() < size/2; i++ {
			b.WriteString(strings.ReplaceAll(unit, "%", Duration(i).String()))
		}
		return b.String()
	}
	for name, text := range map[string]string{
		"distinct topics": "source: {group: a, topics: [" + list("t%,") + "]}", "distinct stages": "stages: [" + list("{decode: , name: s%},") + "]",
		"distinct tenants": "source: {topics: [" + list("t%,")[:100000] + "x], tenant: {from: topic, allow: {" + list("x%: [a],")[:150000] + "z: [a]}}}",
		"distinct routes":  "source: {topics: [" + list("t%,")[:150000] + "x]}\nstages: [{route: {rules: [" + list("{topic: t%},")[:200000] + "}]}}]",
		"open brackets":    fill("", "[", ""), "open braces": fill("", "{", ""), "brackets": fill("a: ", "[", "")[:50000] + strings.Repeat("]", 49997), "many items": fill("[", "1,", "1]"),
		"many lines": fill("", "- a\n", ""), "many keys": keys.String(), "nested lines": nested(400), "comments": fill("", "#\n", "a: b\n"), "blank lines": fill("", "\n", "a: b\n"),
		"one long text": fill("a: ", "x", ""), "one long key": fill("", "k", ": 1"), "question marks": fill("", "? ", ""), "colons": fill("", ": ", ""), "dashes": fill("", "- ", ""),
		"quotes": fill("a: ", "'", ""), "anchors": fill("", "- &a b\n", ""), "aliases": fill("a: &a b\nl: [", "*a,", "]"), "documents": fill("", "---\n", ""), "tags": fill("", "- !t b\n", ""),
		"variables": fill("a: \"", "${A}", "\""), "broken variables": fill("", "- ${A\n", ""), "dollars": fill("a: \"", "$$", "\""), "percent": fill("", "%A\n", ""), "folded": fill("a: >\n", " b\n\n", ""),
		"merge keys": fill("a: &a {b: c}\nl: [", "{<<: *a},", "{}]"), "zero bytes": fill("", "\x00", ""), "too large": fill("a: ", "x", "") + "xxxxxxxxxxxxxx",
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			opt := Options{Env: func(string) (string, bool) { return strings.Repeat("v", 100), true }}
			_, _, ps := LoadPipeline("f.yaml", []byte(text), opt)
			if len(ps) == 0 {
				t.Error("accepted")
			}
			if len(ps) > 2*maxProblems {
				t.Errorf("%d problems", len(ps))
			}
			if took := time.Since(start); took > 20*time.Second && !raceEnabled {
				t.Errorf("took %v", took)
			} else if took > 500*time.Millisecond {
				t.Logf("took %v", took)
			}
		})
	}
}

func nested(depth int) string {
	var b strings.Builder
	for i := range depth {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}
