package billing_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"reprieve.dev/config"
	"reprieve.dev/examples/billing"
	"reprieve.dev/worker"
)

// The example's own tests hold, in a folder without keys, as a build server has it.
func TestExampleSuitesPass(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, billing.Files()); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "tests", "*_test.yaml"))
	if err != nil || len(files) != 2 {
		t.Fatalf("%v, %v", files, err)
	}
	opt := config.Options{ReadFile: os.ReadFile}
	for _, file := range files {
		s, ps := worker.LoadSuite(file, opt)
		report(t, ps)
		r, ps := worker.RunSuite(t.Context(), s, worker.SuiteOptions{Files: opt, Kinds: worker.Kinds(), Meter: worker.NewMeter(prometheus.NewRegistry()), Clock: time.Now})
		report(t, ps)
		if len(r.Tests) < 4 {
			t.Errorf("%s ran %d tests", file, len(r.Tests))
		}
		for _, one := range r.Tests {
			if !one.OK {
				t.Errorf("%s: %s: %s %+v", filepath.Base(file), one.Name, one.Error, one.Differences)
			}
		}
	}
}
