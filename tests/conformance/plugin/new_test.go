package plugin

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"reprieve.dev/plugins"
)

// A new plugin of each language builds, passes its own tests and conforms, as `plugin new` promises.
func TestNewPluginsBuildPassTheirTestsAndConform(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for lang, c := range map[string]struct {
		tools    []string
		commands [][]string
		pack     bool
	}{
		"go":         {[]string{"go", "make"}, [][]string{{"go", "mod", "tidy"}, {"go", "test", "./..."}, {"make"}}, false},
		"python":     {[]string{"python3"}, [][]string{{"python3", "-m", "unittest"}}, true},
		"rust":       {[]string{"cargo"}, [][]string{{"cargo", "test", "--offline", "--quiet"}, {"cargo", "build", "--offline", "--quiet", "--release"}}, false},
		"typescript": {[]string{"node", "npm"}, [][]string{{"npm", "install", "--no-audit", "--no-fund"}, {"npm", "test"}}, true},
	} {
		t.Run(lang, func(t *testing.T) {
			for _, tool := range c.tools {
				if _, err := exec.LookPath(tool); err != nil {
					t.Skipf("there is no %s", tool)
				}
			}
			dir := filepath.Join(t.TempDir(), "fix-dates")
			files, err := plugins.Scaffold(lang, "acme/fix-dates", root)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				file := filepath.Join(dir, filepath.FromSlash(f.Name))
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(f.Text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if lang == "go" { // the sums of a module that is not published yet
				sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, "go.sum"), sum, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			for _, command := range c.commands {
				cmd := exec.Command(command[0], command[1:]...)
				cmd.Dir = dir
				if out, err := cmd.CombinedOutput(); err != nil {
					if strings.Join(command[:2], " ") == "npm install" {
						t.Skipf("npm cannot install: %s", out)
					}
					t.Fatalf("%v: %v\n%s", command, err, out)
				}
			}
			if c.pack {
				if _, err := plugins.PackFolder(context.Background(), dir); err != nil {
					t.Fatal(err)
				}
			}
			rep, err := plugins.Conform(context.Background(), plugins.Options{Start: 20 * time.Second, Call: 20 * time.Second, Clock: time.Now}, dir)
			if err != nil {
				t.Skip("no sandbox level can be had here: ", err)
			}
			if !rep.OK {
				t.Fatal(failed(rep))
			}
		})
	}
}
