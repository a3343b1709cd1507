package plugins

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
)

// described is a folder with a plugin.yaml for this machine; more is added to it.
func described(t *testing.T, program, more string) string {
	t.Helper()
	dir := t.TempDir()
	text := "apiVersion: reprieve/v1\nname: acme/x\nversion: 1.0.0\ndoc: Repairs.\nartifacts:\n  - {os: " + runtime.GOOS + ", arch: " + runtime.GOARCH + ", " + program + "}\n" + more
	write(t, filepath.Join(dir, DescriptorFile), text)
	return dir
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// What an error says in full.
func told(err error) string {
	text := err.Error()
	if e, ok := errors.AsType[*pipeline.Error](err); ok {
		text += " | " + e.Fix()
	}
	return text
}

func TestADescriptorIsAFileOfItsOwnAndNotALargeOne(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	write(t, secret, "password hunter2: [\n")
	for name, make := range map[string]func(file string) error{
		"a link":   func(file string) error { return os.Symlink(secret, file) },
		"a folder": func(file string) error { return os.Mkdir(file, 0o755) },
		"a large file": func(file string) error {
			return os.WriteFile(file, bytes.Repeat([]byte("# hunter2\n"), maxDescriptor/10+1), 0o644)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := make(filepath.Join(dir, DescriptorFile)); err != nil {
				t.Fatal(err)
			}
			_, err := Read(dir)
			if pipeline.CodeOf(err) != pipeline.CodePluginUnknown || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%v", err)
			}
			if found, err := Installed(dir); err != nil || len(found) != 0 {
				t.Error(found, err)
			}
		})
	}
}

func TestWhatADescriptorSaysIsTextAndNoNameOfTheHosts(t *testing.T) {
	for name, c := range map[string]struct {
		program, more string
		ok            bool
	}{
		"a program":                      {"path: x", "", true},
		"a program below":                {"path: bin/stopped", "", true},
		"the file of a stop":             {"path: stopped", "", false},
		"the same, written otherwise":    {"path: ./a/../stopped", "", false},
		"its own descriptor":             {"path: plugin.yaml", "", false},
		"a descriptor that comes":        {"path: plugin.yaml.new", "", false},
		"words":                          {"path: x", "author: Åsa of Acme, \"one\"\n", true},
		"an escape for terminals":        {"path: x", `author: "\e[2J trusted"` + "\n", false},
		"a line that looks like another": {"path: x", `license: "MIT\nacme/y@1.0.0  verified"` + "\n", false},
		"text that runs backwards":       {"path: x", `author: "\u202eemca"` + "\n", false},
	} {
		dir := described(t, c.program, c.more)
		_, err := describe(dir)
		var ps config.Problems
		if c.ok != (err == nil) || !c.ok && !errors.As(err, &ps) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLimitsThatAreAskedForHaveABound(t *testing.T) {
	for limits, ok := range map[string]bool{"{files: 256}": true, "{files: 257}": false, "{files: -1}": false, "{threads: -1}": false} {
		dir := described(t, "path: x", "limits: "+limits+"\n")
		_, err := describe(dir)
		var ps config.Problems
		if ok != (err == nil) || !ok && !errors.As(err, &ps) {
			t.Errorf("%s: %v", limits, err)
		}
	}
}

func TestAProgramThatCannotRunAloneIsToldHowItCould(t *testing.T) {
	dynamic := ""
	for _, name := range []string{"true", "ls", "sh"} {
		at, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		if f, err := elf.Open(at); err == nil {
			if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
				dynamic = at
			}
			f.Close()
		}
	}
	linked, err := os.ReadFile(dynamic)
	if err != nil {
		t.Log("this machine has no program that is linked dynamically: ", err)
	}
	for name, c := range map[string]struct{ program, what, remedy string }{
		"bash":             {"#!/bin/bash\necho 1\n", "it is a script", "run: [/bin/bash, /app/x]"},
		"by env":           {"#!/usr/bin/env python3 -S\n", "it is a script", "pack: {interpreter: python3, files: [x]}; then reprieve plugin pack "},
		"a strange line":   {"#! \x00; rm -rf\n", "it is a script", "interpreter: bash"},
		"text":             {"hello", "not an ELF file", "-static in C"},
		"linked to others": {string(linked), "linked dynamically", "-static in C"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.program == "" {
				t.Skip("there is none")
			}
			dir := described(t, "path: x", "")
			write(t, filepath.Join(dir, "x"), c.program)
			_, err := Read(dir)
			if pipeline.CodeOf(err) != pipeline.CodePluginRefused || !strings.Contains(told(err), c.what) || !strings.Contains(told(err), c.remedy) {
				t.Errorf("%s", told(err))
			}
		})
	}
	t.Run("a static one is not packed", func(t *testing.T) {
		dir := described(t, "path: x", "")
		if _, err := PackFolder(context.Background(), dir); err == nil || !strings.Contains(told(err), "a static program, which is not packed") || !strings.Contains(told(err), "reprieve conform "+dir) {
			t.Errorf("%v", err)
		}
	})
}

// packedOf is a root folder with a program and files of the plugin.
func packedOf(t *testing.T, app map[string]string) string {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	put := func(name string, kind byte, mode int64, text string) {
		if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: kind, Mode: mode, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	put("app", tar.TypeDir, 0o755, "")
	names := []string{}
	for name := range app {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		put("app/"+name, tar.TypeReg, 0o644, app[name])
	}
	put("bin", tar.TypeDir, 0o755, "")
	put("bin/x", tar.TypeReg, 0o755, elf.ELFMAG+"...")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestAnOldRootFolderIsNoticed(t *testing.T) {
	for name, c := range map[string]struct {
		folder map[string]string // what stands beside plugin.yaml
		stale  string
	}{
		"as it was packed":         {map[string]string{"main.py": "one", "other.txt": "x"}, ""},
		"it came packed":           {nil, ""},
		"a file was changed":       {map[string]string{"main.py": "two"}, "main.py"},
		"a file has come since":    {map[string]string{"main.py": "one", "new.py": "1"}, "new.py"},
		"a file of another folder": {map[string]string{"README": "x"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := described(t, "path: root.tar, run: [/bin/x, /app/main.py]", "pack: {interpreter: x, files: ['*.py']}\n")
			write(t, filepath.Join(dir, "root.tar"), packedOf(t, map[string]string{"main.py": "one"}))
			for file, text := range c.folder {
				write(t, filepath.Join(dir, file), text)
			}
			p, err := Read(dir)
			if err != nil {
				t.Fatal(err)
			}
			if what, err := p.stale(); err != nil || what != c.stale {
				t.Errorf("%q %v", what, err)
			}
		})
	}
}
