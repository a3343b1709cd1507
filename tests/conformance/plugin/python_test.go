package plugin

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
)

// packedVillain packs a plugin in Python that attacks as the value of a record says.
func packedVillain(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no python3")
	}
	dir := t.TempDir()
	files, err := plugins.Scaffold("python", "acme/hostile", "")
	if err != nil {
		t.Fatal(err)
	}
	villain, err := os.ReadFile("hostile/villain.py")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text := f.Text
		switch f.Name {
		case "repair.py":
			text = string(villain)
		case "plugin.yaml":
			text = strings.Replace(text, "version: 0.1.0", "version: 1.0.0", 1)
			text, _, _ = strings.Cut(text, "vectors:")
		case "main.py":
			text = strings.Replace(text, `"0.1.0"`, `"1.0.0"`, 1)
			text = strings.ReplaceAll(text, "Trim", "Villain")
		}
		if err := os.WriteFile(filepath.Join(dir, f.Name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := plugins.PackFolder(context.Background(), dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestAPackedInterpreterIsContained(t *testing.T) {
	dir := packedVillain(t)
	w := open(t, func(o *plugins.Options) { o.Call, o.Start = 10*time.Second, 30*time.Second })
	if had, why := w.Level(); had < sandbox.Isolated {
		t.Skipf("level isolated cannot be had here: %v", why)
	}
	pkg, _, err := w.Install(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	lock := &plugins.Lock{APIVersion: "reprieve/v1"}
	lock.Set(pkg.Pin(sandbox.Isolated))
	if err := lock.Write(w.o.Lock); err != nil {
		t.Fatal(err)
	}
	tr, err := w.transform("")
	if err != nil {
		t.Fatal(err)
	}
	v := victims(t)
	for name, attack := range map[string]string{
		"TCP of the host": v["TCP of the host"].value, "UDP of the host": v["UDP of the host"].value, "Unix socket of the host": v["Unix socket of the host"].value,
		"abstract socket of the host": v["abstract socket of the host"].value, "a file that all may read": v["a file that all may read"].value, "password file": "read: /etc/passwd",
		"environment of process 1": "read: /proc/1/environ", "processes": "list: /proc", "its own program": "write: /app/repair.py", "its own interpreter": "write: /bin/python3",
		"a new file": "write: /new", "a file in its folder": "fill: ", "fork": "fork: ", "spawn": "spawn: /bin/python3", "execute its interpreter": "exec: /bin/python3",
		"calls past the interpreter": "ctypes: ", "signal process 1": "kill: 1", "symbolic link": "symlink: ", "shared memory": "shared: ", "4 GiB of memory": "memory: ",
		"threads": "threads: ", "root folder": "chroot: ", "devices": "read: /dev/mem", "mount points": "read: /proc/self/mounts", "exit": "exit: ", "recursion": "recurse: ",
	} {
		t.Run(name, func(t *testing.T) {
			repair(t, tr, "fine")
			was := w.now(t)
			out := repair(t, tr, attack, "after")
			switch c := code(&out[0]); {
			case c == pipeline.CodePluginCrashed || c == pipeline.CodePluginTimeout || c == pipeline.CodePluginAnswer:
			case c == pipeline.CodeTransformFailed && strings.Contains(fmt.Sprint(out[0].Failure.Params), "blocked"):
			default:
				t.Errorf("code %q, value %q", c, out[0].Value)
			}
			if out[1].Failure != nil || string(out[1].Value) != "fixed" {
				t.Errorf("another record paid for it: %+v", out[1].Failure)
			}
			repair(t, tr, "fine")
			w.back(t, was)
		})
	}
	t.Run("its root folder holds what was packed and nothing else", func(t *testing.T) {
		out := repair(t, tr, "see: /")
		if got := string(out[0].Value); got != "app bin lib lib64 sock" {
			t.Errorf("%s", got)
		}
	})
	t.Run("time and randomness are fixed", func(t *testing.T) {
		out := repair(t, tr, "probe: ")
		if got := string(out[0].Value); !strings.HasPrefix(got, "1000000000.0 ") {
			t.Errorf("%s", got)
		}
	})
}

// Elsewhere it is the loader of a packed root folder that hides the clock from the interpreter.
func TestAPackedInterpreterThatLooksAtTheDateIsFound(t *testing.T) {
	dir := packedVillain(t)
	f, err := os.OpenFile(filepath.Join(dir, plugins.DescriptorFile), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("vectors:\n  - {name: v, value: year, expect: fixed}\n"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	rep := conform(t, dir, 60*time.Second, 20*time.Second)
	if skips(rep, elsewhere) {
		t.Skip("another time cannot be had here")
	}
	if rep.OK || !strings.Contains(failed(rep), elsewhere+": in ") {
		t.Fatalf("found only:\n%s", failed(rep))
	}
}
