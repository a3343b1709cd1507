package plugins

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"reprieve.dev/pipeline"
	"reprieve.dev/plugins/sandbox"
)

// PackFolder packs what the section pack of a plugin.yaml names into the root folder of its artifact for this machine: the
// interpreter as /bin/NAME, the libraries that it and everything packed is linked with in /lib, the plugin's files in /app. Of
// Python it packs the standard library, compiled. It runs the interpreter and the system's loader, and nothing of the plugin.
// Codes: ERR_CONFIG_*, ERR_PLUGIN_UNKNOWN, ERR_PLUGIN_REFUSED.
func PackFolder(ctx context.Context, dir string) (*Package, error) {
	d, err := describe(dir)
	if err != nil {
		return nil, err
	}
	refuse := func(format string, args ...any) *pipeline.Error {
		return pipeline.Errorf(pipeline.CodePluginRefused, dir, format, args...)
	}
	here := func(a Artifact) bool { return a.OS == runtime.GOOS && a.Arch == runtime.GOARCH }
	at := slices.IndexFunc(d.Artifacts, func(a Artifact) bool { return here(a) && a.Packed() })
	switch {
	case d.Pack.Interpreter == "" && at < 0 && slices.ContainsFunc(d.Artifacts, here):
		return nil, refuse("it is a static program, which is not packed").With("build it as its README says; then judge it: reprieve conform " + dir)
	case d.Pack.Interpreter == "":
		return nil, refuse("plugin.yaml has no section pack").With("write pack: {interpreter: python3, files: ['*.py']}")
	case at < 0:
		return nil, refuse("plugin.yaml has no artifact for %s with run", Platform()).With("write artifacts: [{os: " + runtime.GOOS + ", arch: " + runtime.GOARCH + ", path: root.tar, run: [/bin/python3, /app/main.py]}]")
	}
	p := &packing{ctx: ctx, files: map[string]packed{}}
	if err := p.all(dir, &d.Pack); err != nil {
		return nil, refuse("%w", err)
	}
	var out bytes.Buffer
	if err := p.write(&out); err != nil {
		return nil, refuse("%w", err)
	}
	if err := replace(filepath.Join(dir, d.Artifacts[at].Path), out.Bytes(), 0o644); err != nil {
		return nil, refuse("%w", err)
	}
	return Read(dir)
}

// stale names a file of the plugin's folder that is not in its packed root folder as it stands there; nothing if all are, or if the
// folder has only what was packed.
func (p *Package) stale() (what string, err error) {
	if !p.Artifact.Packed() {
		return "", nil
	}
	found := map[string]bool{}
	err = sandbox.WalkTree(bytes.NewReader(p.program), func(e sandbox.TreeEntry, content io.Reader) error {
		name, ours := strings.CutPrefix(e.Path, "app/")
		if !ours || content == nil || what != "" {
			return nil
		}
		found[name] = true
		have, err := readLimited(filepath.Join(p.Dir, filepath.FromSlash(name)), maxArtifact)
		if err != nil {
			return nil // it is not there: the plugin came packed
		}
		was, err := io.ReadAll(content)
		if err == nil && !bytes.Equal(have, was) {
			what = name
		}
		return err
	})
	for _, pattern := range p.Descriptor.Pack.Files {
		there, _ := filepath.Glob(filepath.Join(p.Dir, pattern)) // a wrong pattern was found when it was packed
		for _, file := range there {
			name, err := filepath.Rel(p.Dir, file)
			if st, e := os.Stat(file); err != nil || e != nil || !st.Mode().IsRegular() || found[filepath.ToSlash(name)] || what != "" {
				continue
			}
			what = name
		}
	}
	return what, err
}

// packed is one name of the root folder: a folder, or bytes.
type packed struct {
	dir  bool
	exec bool
	data []byte
}

// packing gathers a root folder.
type packing struct {
	ctx   context.Context
	files map[string]packed // by path, relative
}

func (p *packing) all(dir string, what *Pack) error {
	program, err := exec.LookPath(what.Interpreter)
	if err != nil {
		return err
	}
	name := filepath.Base(program)
	if strings.HasPrefix(name, "python") {
		if program, err = p.python(program); err != nil {
			return err
		}
	}
	if program, err = filepath.EvalSymlinks(program); err != nil {
		return err
	}
	if err := p.file("bin/"+name, program, true); err != nil {
		return err
	}
	for _, folder := range what.Folders {
		if err := p.folder("lib/"+filepath.Base(folder), folder); err != nil {
			return err
		}
	}
	n := 0
	for _, pattern := range what.Files {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err == nil && len(found) == 0 {
			err = fmt.Errorf("pack.files names %s, which is not there", pattern)
		}
		if err != nil {
			return err
		}
		for _, f := range found {
			rel, err := filepath.Rel(dir, f)
			if err != nil || !filepath.IsLocal(rel) {
				return fmt.Errorf("%s is not in the folder of the plugin", f)
			}
			st, err := os.Stat(f)
			if err != nil {
				return err
			}
			to := "app/" + filepath.ToSlash(rel)
			if st.IsDir() {
				err = p.folder(to, f)
			} else {
				err = p.file(to, f, false)
			}
			if err != nil {
				return err
			}
			n++
		}
	}
	if n == 0 {
		return errors.New("pack.files names no file of the plugin")
	}
	return p.libraries(program)
}

// file packs one file of this machine.
func (p *packing) file(to, from string, program bool) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	p.put(to, packed{exec: program, data: data})
	return nil
}

func (p *packing) put(to string, e packed) {
	for dir := path.Dir(to); dir != "."; dir = path.Dir(dir) {
		p.files[dir] = packed{dir: true}
	}
	p.files[to] = e
}

// folder packs what is below a folder. Links are followed, so that none leads out of the root folder.
func (p *packing) folder(to, from string) error {
	return filepath.WalkDir(from, func(file string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, file)
		if err != nil {
			return err
		}
		st, err := os.Stat(file)
		if err != nil || !st.Mode().IsRegular() {
			return nil // a folder comes with its files; a broken link and a device are left out
		}
		return p.file(path.Join(to, filepath.ToSlash(rel)), file, false)
	})
}

// libraries packs the loader and every library that the program, or anything packed, is linked with.
func (p *packing) libraries(program string) error {
	f, err := elf.Open(program)
	if err != nil {
		return fmt.Errorf("%s: %w", program, err)
	}
	defer f.Close()
	loader := ""
	for _, s := range f.Progs {
		if s.Type == elf.PT_INTERP {
			b := make([]byte, s.Filesz)
			if _, err := s.ReadAt(b, 0); err != nil {
				return err
			}
			loader = strings.TrimRight(string(b), "\x00")
		}
	}
	if loader == "" {
		return nil // static
	}
	if err := p.file(strings.TrimPrefix(path.Clean(loader), "/"), loader, true); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "reprieve-pack-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	linked := []string{program}
	for name, e := range p.files {
		if bytes.HasPrefix(e.data, []byte(elf.ELFMAG)) && !e.exec {
			at := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
			if err := os.WriteFile(at, e.data, 0o755); err != nil {
				return err
			}
			linked = append(linked, at)
		}
	}
	slices.Sort(linked[1:])
	for _, l := range linked {
		if err := p.linked(loader, l); err != nil {
			return err
		}
	}
	return nil
}

// linked packs what the loader says that one file is linked with.
func (p *packing) linked(loader, file string) error {
	out, err := exec.CommandContext(p.ctx, loader, "--list", file).Output()
	if err != nil {
		return fmt.Errorf("%s: the loader cannot list its libraries: %w", filepath.Base(file), err)
	}
	for line := range strings.Lines(string(out)) {
		name, at, found := strings.Cut(strings.TrimSpace(line), " => ")
		at, _, _ = strings.Cut(at, " (")
		switch {
		case !found:
			continue // the loader itself, and what the kernel brings
		case strings.Contains(at, "not found"):
			return fmt.Errorf("%s needs %s, which is not on this machine", filepath.Base(file), name)
		}
		to := "lib/" + path.Base(name)
		if _, have := p.files[to]; have {
			continue
		}
		if err := p.file(to, at, false); err != nil {
			return err
		}
	}
	return nil
}

// write writes the tree in its order, with nothing of this machine: no owner, no time.
func (p *packing) write(out *bytes.Buffer) error {
	w := tar.NewWriter(out)
	for _, name := range slices.Sorted(maps.Keys(p.files)) {
		e := p.files[name]
		h := &tar.Header{Format: tar.FormatPAX, Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(e.data))}
		switch {
		case e.dir:
			h.Typeflag, h.Mode = tar.TypeDir, 0o755
		case e.exec:
			h.Mode = 0o755
		}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := w.Write(e.data); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	_, err := sandbox.ReadTree(bytes.NewReader(out.Bytes()), firstProgram(p.files))
	return err
}

func firstProgram(files map[string]packed) string {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasPrefix(name, "bin/") {
			return "/" + name
		}
	}
	return "/bin/none"
}
