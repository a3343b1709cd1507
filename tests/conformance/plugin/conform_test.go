package plugin

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/plugins"
	"reprieve.dev/plugins/sandbox"
	"reprieve.dev/transforms"
)

func conform(t *testing.T, dir string) *plugins.Conformance {
	t.Helper()
	rep, err := plugins.Conform(context.Background(), plugins.Options{Start: 2 * time.Second, Call: time.Second, Clock: time.Now}, dir)
	if pipeline.CodeOf(err) == pipeline.CodePluginSandbox {
		t.Skip("no sandbox level can be had here")
	}
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

func failed(rep *plugins.Conformance) string {
	var out []string
	for _, c := range rep.Checks {
		if c.Result == "fail" {
			out = append(out, c.Name+": "+c.Evidence)
		}
	}
	return strings.Join(out, "\n")
}

// example builds examples/plugin-go into a folder.
func example(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "normalize-currency"), "reprieve.dev/examples/plugin-go")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile("../../../examples/plugin-go/plugin.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, plugins.DescriptorFile), text, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestTheExampleConforms(t *testing.T) {
	rep := conform(t, example(t))
	if !rep.OK || len(rep.Checks) < 12 {
		t.Fatal(failed(rep))
	}
	for _, c := range rep.Checks {
		t.Logf("%d %s %s: %s", c.Number, c.Result, c.Name, c.Evidence)
	}
}

func TestWhatDoesNotConformIsFoundByTheRightCheck(t *testing.T) {
	for value, check := range map[string]string{
		"random": "gives the same answers", "exit": "gives the same answers", "big": "gives the same answers", "lie: count": "gives the same answers",
		"lie: path": "stands any record", "hang": "gives the same answers",
	} {
		t.Run(value, func(t *testing.T) {
			dir := folder(t, "hostile")
			f, err := os.OpenFile(filepath.Join(dir, plugins.DescriptorFile), os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteString("vectors:\n  - {name: v, value: '" + value + "', expect: fixed}\n"); err != nil {
				t.Fatal(err)
			}
			f.Close()
			rep := conform(t, dir)
			if rep.OK || !strings.Contains(failed(rep), check) {
				t.Fatalf("found only:\n%s", failed(rep))
			}
		})
	}
	for name, check := range map[string]string{"junk-first": "before the handshake", "silent": "start limit", "mute": "does not say"} {
		t.Run(name, func(t *testing.T) {
			if rep := conform(t, folder(t, name)); rep.OK || !strings.Contains(failed(rep), check) {
				t.Fatalf("found only:\n%s", failed(rep))
			}
		})
	}
	t.Run("another name", func(t *testing.T) {
		dir := folder(t, "hostile")
		file := filepath.Join(dir, plugins.DescriptorFile)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(strings.Replace(string(text), "acme/hostile", "acme/kind", 1)), 0o644); err != nil {
			t.Fatal(err)
		}
		if rep := conform(t, dir); rep.OK || !strings.Contains(failed(rep), "says that it is acme/hostile@1.0.0") {
			t.Fatalf("found only:\n%s", failed(rep))
		}
	})
}

func TestARepairThroughThePluginPassesTheChecksOfEveryRepair(t *testing.T) {
	w := open(t, nil)
	pkg, _, err := w.Install(context.Background(), example(t))
	if err != nil {
		t.Fatal(err)
	}
	lock := &plugins.Lock{APIVersion: "reprieve/v1"}
	lock.Set(pkg.Pin(sandbox.Restricted))
	if err := lock.Write(w.o.Lock); err != nil {
		t.Fatal(err)
	}
	lib := transforms.NewLibrary(transforms.Options{})
	kinds, err := w.Kinds(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds {
		if err := lib.Add(k); err != nil {
			t.Fatal(err)
		}
	}
	tr, err := lib.Parse("acme/normalize-currency@1.4.2", []byte(`{"names":{"kroner":"NOK"}}`))
	if err != nil {
		t.Fatal(err)
	}
	out, err := transforms.Run(context.Background(), tr, nil, envelopes(`{"currency":"Kroner","net_minor":1}`, `{"currency":"?"}`))
	if err != nil {
		t.Fatal(err)
	}
	if string(out[0].Value) != `{"currency":"NOK","net_minor":1}` || len(out[0].Report.Changed) != 1 || out[0].Report.Changed[0] != "/currency" {
		t.Fatalf("%+v", out[0])
	}
	if code(&out[1]) != pipeline.CodeTransformFailed {
		t.Fatalf("%+v", out[1])
	}
}
