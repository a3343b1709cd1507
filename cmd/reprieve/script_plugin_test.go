package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"reprieve.dev/plugins"
)

// buildProgram DIR writes the example plugin in Go, built, with its descriptor.
func buildProgram(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: program DIR")
	}
	dir := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(dir, 0o755))
	cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "normalize-currency"), "reprieve.dev/examples/plugin-go")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		ts.Fatalf("%v\n%s", err, out)
	}
	about, err := os.ReadFile(filepath.Join("..", "..", "examples", "plugin-go", plugins.DescriptorFile))
	ts.Check(err)
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
