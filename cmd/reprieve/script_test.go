package main

import (
	"bytes"
	"errors"
	"flag"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"reprieve.dev/examples/billing"
)

// update writes what the program prints into the scripts and the generated pages, to be looked at before it is committed.
var update = flag.Bool("update", false, "write golden outputs and generated documentation")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"reprieve": main})
}

// TestScripts runs testdata/script: each is a folder in one text, with the commands that are typed in it and what they print.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               exampleFolder,
		Condition:           condition,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":   exits,
			"steady":  steady,
			"records": writeRecords,
			"ledger":  fillLedger,
			"person":  addPerson,
			"servers": startServers,
			"program": buildProgram,
			"append":  appendByte,
		},
	})
}

var keeperLine = regexp.MustCompile(`(?m)^  keeper:.*\n`)

// exampleFolder completes a script's folder with the billing example's files and keys, unless the script has its own.
func exampleFolder(e *testscript.Env) error {
	e.Vars = append(e.Vars, "REPRIEVE_BOOTSTRAP=127.0.0.1:1", "REPRIEVE_DLQ_BOOTSTRAP=127.0.0.1:1", "REPRIEVE_REGISTRY=http://127.0.0.1:1",
		"REPRIEVE_LEDGER=sqlite:reprieve.db", "REPRIEVE_HTTP=127.0.0.1:0", "NO_COLOR=1")
	files := map[string][]byte{
		"keys/hmac":      []byte("for tests only: signs headers\n"),
		"keys/identity":  []byte("for tests only: makes item ids\n"),
		"schemas/7.avsc": []byte(billing.Schema()),
	}
	err := fs.WalkDir(billing.Files(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files[path], err = fs.ReadFile(billing.Files(), path)
		// Sealed bytes differ each time: try_sealed looks at them, the others at what is written without a keeper.
		files[path] = bytes.Replace(files[path], []byte("encrypt: true"), []byte("encrypt: false"), 1)
		if path == "reprieve.yaml" {
			files[path] = keeperLine.ReplaceAll(files[path], nil)
		}
		return err
	})
	if err != nil {
		return err
	}
	for path, text := range files {
		full := filepath.Join(e.WorkDir, path)
		if _, err := os.Stat(full); err == nil {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(full, text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// exits CODE COMMAND... runs a command that must end with that exit code, and soon: nobody waits at night.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	begun := time.Now()
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d instead of %d", got, want)
	}
	if took := time.Since(begun); took > 2*time.Minute {
		ts.Fatalf("it took %s", took)
	}
}

// steady (stdout|stderr) FILE [PATTERN TEXT]... copies an output into FILE with what each pattern matches replaced, for what
// differs between runs.
func steady(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args)%2 != 0 {
		ts.Fatalf("usage: steady (stdout|stderr) FILE [PATTERN TEXT]...")
	}
	text := ts.ReadFile(args[0])
	for i := 2; i < len(args); i += 2 {
		re, err := regexp.Compile(args[i])
		ts.Check(err)
		text = re.ReplaceAllString(text, args[i+1])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(text), 0o644))
}
