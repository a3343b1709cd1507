package config

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

// load reads a file of testdata the way its name says: worker*.yaml are worker files, the others pipelines.
func load(t *testing.T, name string) Problems {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	opt := Options{
		Env: func(name string) (string, bool) {
			if name == "PASSWORD" {
				return canary, true
			}
			return "", false
		},
		ReadFile: func(string) ([]byte, error) { return nil, os.ErrNotExist },
	}
	var ps Problems
	if strings.HasPrefix(name, "worker") {
		_, _, ps = LoadWorker(name, data, opt)
	} else {
		_, _, ps = LoadPipeline(name, data, opt)
	}
	return ps
}

// canary is what no problem, dump or digest may hold.
const canary = "canary-7c1e5d"

func files(t *testing.T, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", pattern))
	if err != nil || len(paths) == 0 {
		t.Fatal("no testdata", pattern, err)
	}
	names := make([]string, len(paths))
	for i, p := range paths {
		names[i] = filepath.Base(p)
	}
	return names
}

func TestGoodFilesLoad(t *testing.T) {
	for _, name := range files(t, "*.good.yaml") {
		t.Run(name, func(t *testing.T) {
			if ps := load(t, name); len(ps) != 0 {
				t.Errorf("problems:\n%s", ps.Error())
			}
		})
	}
}

// TestBrokenFilesAreExplained compares every problem of every broken file, with its code, to a text that a person wrote off
// as readable. Run with -update after a change and read the difference.
func TestBrokenFilesAreExplained(t *testing.T) {
	for _, name := range append(files(t, "*.bad.yaml"), files(t, "*.broken.yaml")...) {
		t.Run(name, func(t *testing.T) {
			ps := load(t, name)
			if len(ps) == 0 {
				t.Fatal("the file loads")
			}
			var b strings.Builder
			for _, p := range ps {
				b.WriteString(p.Code + " " + p.String() + "\n")
				if p.Line < 1 || p.Column < 1 {
					t.Errorf("no place: %s", p)
				}
			}
			if strings.Contains(b.String(), canary) {
				t.Errorf("the value of a variable is shown:\n%s", b.String())
			}
			golden := filepath.Join("testdata", strings.TrimSuffix(name, ".yaml")+".txt")
			if *update {
				if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), b.String()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
