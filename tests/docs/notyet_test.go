package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"reprieve.dev/config"
	"reprieve.dev/examples/billing"
	"reprieve.dev/pipeline"
	"reprieve.dev/worker"
)

// The README names what a file may not ask for yet. It stays honest in both directions: what it names is refused, and what it
// does not name is taken.
func TestTheReadmeNamesWhatIsRefused(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(readme), "| not yet | meanwhile |")
	table, _, ok2 := strings.Cut(table, "\n\n")
	if !ok || !ok2 {
		t.Fatal("the README has no table of what does not run yet")
	}
	for _, c := range []struct{ named, from, to string }{
		{"`delivery: exactly_once`", "delivery: at_least_once", "delivery: exactly_once"},
		{"`encrypt`", "encrypt: true", "encrypt: true, partitions: 6"},
		{"`seal_originals`", "encrypt: true", "seal_originals: true"},
		{"fallback stores", "encrypt: true", "fallback: [{blob: 's3://acme-letters'}]"},
		{"`ordering`", "  identity:", "  ordering: {scope: key, on_quarantine: block_key}\n  identity:"},
		{"breakers", "outage:", "breaker: {window: 10s}\noutage:"},
		{"plugin stages", "  - route:", "  - plugin: {ref: acme/normalise@1.0.0}\n  - route:"},
		{"reconcile questions", "reconcile:  here", "reconcile: {http: {url: 'http://127.0.0.1:1/{event_id}', applied: 'status == 200', absent: 'status == 404'}}"},
	} {
		t.Run(strings.Trim(c.named, "`"), func(t *testing.T) {
			refused := notYet(t, c.from, c.to)
			if named := strings.Contains(table, c.named); named != refused {
				t.Errorf("the README names it: %v, check refuses it: %v", named, refused)
			}
		})
	}
}

// notYet tells whether check says of the billing pipeline with from replaced that something is not available.
func notYet(t *testing.T, from, to string) bool {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("keys/hmac", "for tests only: signs headers")
	write("keys/identity", "for tests only: makes item ids")
	err := fs.WalkDir(billing.Files(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(billing.Files(), path)
		if path == "pipelines/billing.yaml" {
			if !strings.Contains(string(text), from) {
				t.Fatalf("the example does not say %q", from)
			}
			text = []byte(strings.Replace(string(text), from, to, 1))
		}
		write(path, string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	files := worker.Files{Worker: filepath.Join(dir, "reprieve.yaml"), Pipelines: []string{filepath.Join(dir, "pipelines", "billing.yaml")}}
	_, ps := worker.Load(files, worker.Kinds(), config.Options{
		Env: func(string) (string, bool) { return "", false },
		ReadFile: func(path string) ([]byte, error) {
			if !filepath.IsAbs(path) {
				path = filepath.Join(dir, path)
			}
			return os.ReadFile(path)
		},
	})
	for _, p := range ps {
		if p.Code == string(pipeline.CodeNotYet) {
			return true
		}
		t.Logf("beside: %s", p)
	}
	return false
}
