package codec

import (
	"os"
	"testing"

	"reprieve.dev/pipeline"
)

func readCase(t testing.TB, file string) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/cases/" + file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func jsonDecoder(t testing.TB, l Limits) *Decoder {
	t.Helper()
	d, err := NewDecoder(DecodeConfig{Format: FormatJSON, Limits: l}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// editorFunc is an editor made of two functions.
type editorFunc struct {
	plan func(path string) bool
	edit func(pipeline.Leaf) pipeline.Edit
}

func (e editorFunc) Plan(path, name string, kind pipeline.ValueKind, tags []string) pipeline.Rule {
	if e.plan(path) {
		return 1
	}
	return 0
}

func (e editorFunc) Edit(_ pipeline.Rule, l pipeline.Leaf) pipeline.Edit { return e.edit(l) }

func writeFile(t testing.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
