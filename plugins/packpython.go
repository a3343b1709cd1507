package plugins

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// What of Python's standard library is not packed: tests, tools, what draws, and what needs what a sandbox does not give (other
// processes, the network's encryption, calls past the interpreter).
var (
	pythonWithout = []string{"__pycache__", "__phello__", "config", "ctypes", "curses", "dbm", "distutils", "ensurepip", "idlelib", "lib2to3", "multiprocessing",
		"pydoc_data", "site-packages", "dist-packages", "sqlite3", "test", "tests", "tkinter", "turtledemo", "venv", "wsgiref", "xmlrpc"}
	pythonModulesWithout = []string{"_ctypes", "_curses", "_dbm", "_gdbm", "_hashlib", "_multiprocessing", "_posixsubprocess", "_sqlite3", "_ssl", "_test",
		"_tkinter", "_xx", "nis", "ossaudiodev", "readline", "xx"}
)

const pythonAbout = `import json, os, sys, sysconfig
print(json.dumps({"program": sys.executable, "version": "%d.%d" % sys.version_info[:2], "library": sysconfig.get_path("stdlib"),
                  "modules": sysconfig.get_config_var("DESTSHARED") or ""}))`

// pythonCompile reads lines "source TAB compiled TAB name" and compiles. The result does not depend on when and where it is done.
const pythonCompile = `import py_compile, sys
for line in sys.stdin.read().splitlines():
    source, to, name = line.split("\t")
    try:
        py_compile.compile(source, cfile=to, dfile=name, doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    except py_compile.PyCompileError as e:
        print(name, e, file=sys.stderr)
`

// python packs the standard library of an interpreter, compiled, and returns the program itself.
func (p *packing) python(command string) (program string, err error) {
	out, err := exec.CommandContext(p.ctx, command, "-I", "-S", "-c", pythonAbout).Output()
	if err != nil {
		return "", fmt.Errorf("%s does not say where its library is: %w", command, err)
	}
	var about struct{ Program, Version, Library, Modules string }
	if err := json.Unmarshal(out, &about); err != nil {
		return "", err
	}
	if about.Library == "" {
		return "", errors.New("the interpreter has no standard library")
	}
	tmp, err := os.MkdirTemp("", "reprieve-pack-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	var sources strings.Builder
	compiled := map[string]string{} // where it is packed -> the compiled file
	lib := "lib/python" + about.Version
	err = filepath.WalkDir(about.Library, func(file string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(about.Library, file)
		if err != nil {
			return err
		}
		base := e.Name()
		if e.IsDir() {
			without := func(name string) bool { return base == name || strings.HasPrefix(base, name+"-") }
			if slices.ContainsFunc(pythonWithout, without) || base == "lib-dynload" {
				return fs.SkipDir
			}
			return nil
		}
		name, source := strings.CutSuffix(filepath.ToSlash(rel), ".py")
		if !source || strings.ContainsAny(file, "\t\n") {
			return nil
		}
		to := filepath.Join(tmp, fmt.Sprintf("%d.pyc", len(compiled)))
		fmt.Fprintf(&sources, "%s\t%s\t/%s/%s.py\n", file, to, lib, name)
		compiled[path.Join(lib, name+".pyc")] = to
		return nil
	})
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(p.ctx, command, "-I", "-S", "-c", pythonCompile)
	cmd.Stdin = strings.NewReader(sources.String())
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("the standard library cannot be compiled: %w: %s", err, text)
	}
	for to, from := range compiled {
		if err := p.file(to, from, false); errors.Is(err, fs.ErrNotExist) {
			continue // a file that is no Python of this version: templates and such
		} else if err != nil {
			return "", err
		}
	}
	modules := about.Modules
	if modules == "" {
		modules = filepath.Join(about.Library, "lib-dynload")
	}
	found, err := filepath.Glob(filepath.Join(modules, "*.so"))
	if err != nil {
		return "", err
	}
	for _, m := range found {
		base := filepath.Base(m)
		if slices.ContainsFunc(pythonModulesWithout, func(name string) bool { return strings.HasPrefix(base, name) }) {
			continue
		}
		if err := p.file(path.Join(lib, "lib-dynload", base), m, false); err != nil {
			return "", err
		}
	}
	p.files[path.Join(lib, "lib-dynload")] = packed{dir: true}
	return about.Program, nil
}
