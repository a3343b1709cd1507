// Package pluginpython judges the example plugin in Python.
package pluginpython

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/plugins"
	"reprieve.dev/plugins/sandbox"
	"reprieve.dev/tests/conformance"
	"reprieve.dev/transforms"
)

func init() {
	if len(os.Args) > 1 && os.Args[1] == sandbox.Verb {
		sandbox.Main()
	}
}

type tt struct{ *testing.T }

func (t tt) Run(name string, f func(conformance.T)) bool {
	return t.T.Run(name, func(t *testing.T) { f(tt{t}) })
}

// packed copies the plugin into a folder and packs it there.
func packed(t testing.TB) string {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no python3")
	}
	dir := t.TempDir()
	for _, name := range []string{plugins.DescriptorFile, "main.py", "dates.py", "reprieve_plugin.py", "test_dates.py"} {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := plugins.PackFolder(context.Background(), dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestItsOwnTestsPass(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no python3")
	}
	cmd := exec.Command("python3", "-B", "-m", "unittest")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "OK") {
		t.Fatalf("%v\n%s", err, out)
	}
}

func TestItBringsTheFileThatNewPluginsGet(t *testing.T) {
	files, err := plugins.Scaffold("python", "acme/x", "")
	if err != nil {
		t.Fatal(err)
	}
	here, err := os.ReadFile("reprieve_plugin.py")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f.Name == "reprieve_plugin.py" && f.Text != string(here) {
			t.Error("reprieve_plugin.py is another one; copy plugins/scaffold/python/reprieve_plugin.py.tmpl")
		}
	}
}

func TestItConforms(t *testing.T) {
	dir := packed(t)
	conformance.RunPlugin(tt{t}, plugins.Options{Clock: time.Now, Start: 30 * time.Second, Call: 30 * time.Second}, dir)
}

// installed opens a host with the plugin installed at level isolated and returns its transform.
func installed(t testing.TB, dir string, config string) transforms.Transform {
	t.Helper()
	at := t.TempDir()
	ctx := context.Background()
	o := plugins.Options{Dir: filepath.Join(at, "plugins"), Lock: filepath.Join(at, "plugins.lock"), Clock: time.Now, Start: 30 * time.Second, Call: 30 * time.Second}
	h, err := plugins.Open(ctx, o)
	if err != nil {
		t.Skip("no sandbox level can be had here: ", err)
	}
	t.Cleanup(h.Close)
	if had, why := h.Level(); had < sandbox.Isolated {
		t.Skip("level isolated cannot be had here: ", why)
	}
	pkg, _, err := h.Install(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	lock := &plugins.Lock{APIVersion: "reprieve/v1"}
	lock.Set(pkg.Pin(sandbox.Isolated))
	if err := lock.Write(o.Lock); err != nil {
		t.Fatal(err)
	}
	lib := transforms.NewLibrary(transforms.Options{})
	kinds, err := h.Kinds(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds {
		if err := lib.Add(k); err != nil {
			t.Fatal(err)
		}
	}
	tr, err := lib.Parse("acme/iso-dates@1.0.2", []byte(config))
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func envelopes(values ...string) []transforms.Envelope {
	out := make([]transforms.Envelope, len(values))
	for i, v := range values {
		out[i] = transforms.Envelope{Item: pipeline.ID(fmt.Sprint("q", i)), Topic: "invoices", Schema: "json", Record: pipeline.Record{Key: []byte("k"), Value: []byte(v)}}
	}
	return out
}

func TestItRepairsInvoicesInTheSandbox(t *testing.T) {
	tr := installed(t, packed(t), `{"fields":["due_date","issued"]}`)
	out, err := transforms.Run(transforms.Twice(context.Background()), tr, nil,
		envelopes(`{"due_date": "31.12.2026", "issued":"2026-11-30", "net":1.50}`, `{"due_date":"soon","issued":"2026-11-30"}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(out[0].Value); got != `{"due_date": "2026-12-31", "issued":"2026-11-30", "net":1.50}` || len(out[0].Report.Changed) != 1 || out[0].Report.Changed[0] != "/due_date" {
		t.Errorf("%s %+v", got, out[0].Report)
	}
	if f := out[1].Failure; f == nil || f.Code != pipeline.CodeTransformFailed {
		t.Errorf("%+v", f)
	}
	avro := envelopes("\x00\x00\x00\x00\x07x")
	avro[0].Schema = "avro:7"
	if out, err = tr.Repair(context.Background(), avro); err != nil || out[0].Failure == nil || !strings.Contains(out[0].Failure.Reason(), "does not read avro") {
		t.Errorf("%v %+v", err, out[0].Failure)
	}
}

func TestAPackedTreeThatChangedIsRefused(t *testing.T) {
	dir := packed(t)
	before, err := plugins.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "dates.py"), []byte("import os\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	after, err := plugins.PackFolder(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if before.Digest == after.Digest || before.Tree == after.Tree {
		t.Error("another file gives the same digest")
	}
	pin := before.Pin(sandbox.Isolated)
	if err := pin.Check(after); pipeline.CodeOf(err) != pipeline.CodePluginLock || strings.Count(err.Error(), "sha256:") != 2 {
		t.Error(err)
	}
}

// invoice is 1.2 KiB with a date to be mended at its end.
func invoice() string {
	return `{"invoice_id":"inv-1","lines":[` + strings.Repeat(`{"sku":"a-100","quantity":2,"net_minor":"1250"},`, 23) + `{}],"due_date":"31.12.2026"}`
}

// BenchmarkRepairPlugin repairs batches of 64 through the isolated process.
func BenchmarkRepairPlugin(b *testing.B) {
	b.Run("isolated", func(b *testing.B) {
		const batch = 64
		tr := installed(b, packed(b), "{}")
		values := make([]string, batch)
		for i := range values {
			values[i] = invoice()
		}
		in := envelopes(values...)
		ctx := context.Background()
		b.ResetTimer()
		for b.Loop() {
			out, err := tr.Repair(ctx, in)
			if err != nil || out[batch-1].Failure != nil {
				b.Fatal(err, out[batch-1].Failure)
			}
		}
		b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "items/s")
	})
}
