package plugin

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"reprieve.dev/plugins"
	"reprieve.dev/tests/conformance"
)

type tt struct{ *testing.T }

func (t tt) Run(name string, f func(conformance.T)) bool {
	return t.T.Run(name, func(t *testing.T) { f(tt{t}) })
}

// A plugin that was written from the documentation alone, in a language that has no example and no library for it, conforms: the
// documentation is enough.
func TestAPluginWrittenFromTheDocumentationAloneConforms(t *testing.T) {
	if _, err := exec.LookPath("perl"); err != nil {
		t.Skip("there is no perl")
	}
	if _, err := os.Stat("/usr/lib/x86_64-linux-gnu/perl-base"); err != nil {
		t.Skip("perl keeps its modules elsewhere")
	}
	dir := t.TempDir()
	for _, name := range []string{"main.pl", plugins.DescriptorFile} {
		b, err := os.ReadFile(filepath.Join("newcomer", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := plugins.PackFolder(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	conformance.RunPlugin(tt{t}, plugins.Options{Start: 20 * time.Second, Call: 20 * time.Second, Clock: time.Now}, dir)
}
