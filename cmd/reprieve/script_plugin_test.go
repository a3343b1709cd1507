package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"reprieve.dev/plugins"
)

// buildProgram DIR [hostile] writes the example plugin in Go, or the hostile one of the conformance suite, built, with its descriptor.
func buildProgram(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: program DIR [hostile]")
	}
	dir := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(dir, 0o755))
	program, source := "normalize-currency", "reprieve.dev/examples/plugin-go"
	about, err := os.ReadFile(filepath.Join("..", "..", "examples", "plugin-go", plugins.DescriptorFile))
	ts.Check(err)
	if len(args) > 1 {
		program, source = "hostile", "reprieve.dev/tests/conformance/plugin/hostile"
		about = []byte("apiVersion: reprieve/v1\nname: acme/hostile\nversion: 1.0.0\ndoc: Misbehaves.\ndelivers: [transform, stage]\n" +
			"artifacts: [{os: linux, arch: " + runtime.GOARCH + ", path: hostile}]\n")
	}
	cmd := exec.Command("go", "build", "-o", filepath.Join(dir, program), source)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		ts.Fatalf("%v\n%s", err, out)
	}
	ts.Check(os.WriteFile(filepath.Join(dir, plugins.DescriptorFile), about, 0o644))
}

// appendByte FILE changes a program.
func appendByte(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: append FILE")
	}
	file := ts.MkAbs(args[0])
	b, err := os.ReadFile(file)
	ts.Check(err)
	ts.Check(os.WriteFile(file, append(b, 0), 0o755))
}

// hasSandbox tells whether plugins can be started on this machine.
var hasSandbox = sync.OnceValue(func() bool {
	h, err := plugins.Open(context.Background(), plugins.Options{Clock: time.Now})
	if err != nil {
		return false
	}
	h.Close()
	return true
})

// condition answers the conditions of scripts.
func condition(name string) (bool, error) {
	if name == "sandbox" {
		return hasSandbox(), nil
	}
	return false, nil
}
