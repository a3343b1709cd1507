package lab

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Demo is a running `reprieve demo`.
type Demo struct {
	t    testing.TB
	cmd  *exec.Cmd
	out  string
	done chan struct{}
}

// StartDemo starts a demo in a folder.
func StartDemo(t testing.TB, dir string, args ...string) *Demo {
	t.Helper()
	d := &Demo{t: t, out: filepath.Join(t.TempDir(), "demo.out"), done: make(chan struct{})}
	f, err := os.Create(d.out)
	if err != nil {
		t.Fatal(err)
	}
	d.cmd = exec.Command(Binary(t), append([]string{"demo", "--dir", dir}, args...)...)
	d.cmd.Stdout, d.cmd.Stderr = f, f
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(d.done)
		_ = d.cmd.Wait() // the state tells
		_ = f.Close()
	}()
	t.Cleanup(func() {
		_ = d.cmd.Process.Kill() // it may be gone already
		<-d.done
	})
	return d
}

// Output is what it printed so far.
func (d *Demo) Output() string {
	text, _ := os.ReadFile(d.out) // it was created by StartDemo
	return string(text)
}

// Await waits until it printed text.
func (d *Demo) Await(text string) {
	d.t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for !strings.Contains(d.Output(), text) {
		select {
		case <-d.done:
			d.t.Fatalf("the demo ended:\n%s", d.Output())
		case <-time.After(100 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			d.t.Fatalf("the demo did not print %q:\n%s", text, d.Output())
		}
	}
}

// Interrupt presses Ctrl-C and returns the exit code.
func (d *Demo) Interrupt() int {
	_ = d.cmd.Process.Signal(os.Interrupt) // it may be gone already
	return d.Wait()
}

// Wait waits for its end and returns the exit code.
func (d *Demo) Wait() int {
	<-d.done
	return d.cmd.ProcessState.ExitCode()
}
