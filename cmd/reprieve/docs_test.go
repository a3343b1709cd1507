package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheReferenceIsWhatTheCodeSays(t *testing.T) {
	pages, err := reference("../..")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range pages {
		path := filepath.Join("..", "..", "docs", "reference", name)
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		have, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(have)); diff != "" {
			t.Errorf("docs/reference/%s is not up to date: go run ./cmd/reprieve docs\n%s", name, diff)
		}
	}
}

func TestTheReferenceNamesWhatMatters(t *testing.T) {
	pages, err := reference("../..")
	if err != nil {
		t.Fatal(err)
	}
	for page, words := range map[string][]string{
		"codes.md":    {"| `ERR_DECODE_TRUNCATED` | payload |", "| `ERR_APPROVAL_SELF` | 4 |"},
		"settings.md": {"`clusters`", "`retry.backoff.initial` | duration | 100ms |", "`source.group` *", "`fields[].path`", "`rules[].when`"},
		"cli.md":      {"## reprieve quarantine groups", "## reprieve redrive dry-run", "--now"},
		"plugin.md":   {"| `name` * | text |", "`artifacts[].run`", "| `delivers` | list of transform, stage | transform |", "`plugins[].descriptor` *"},
		"metrics.md":  {"| `reprieve_records_total` | counter | pipeline, disposition |", "reprieve_custodian_lag_seconds"},
	} {
		for _, w := range words {
			if !strings.Contains(pages[page], w) {
				t.Errorf("%s does not say %q", page, w)
			}
		}
	}
	if strings.Contains(pages["cli.md"], "embedded") && strings.Contains(pages["cli.md"], "## reprieve embedded") {
		t.Error("a hidden verb is documented")
	}
}
