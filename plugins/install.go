package plugins

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"reprieve.dev/pipeline"
	"reprieve.dev/plugins/sandbox"
	"reprieve.dev/seal"
)

// Install copies the plugin of a folder to where the host finds it, after it has shown that it starts and is what it says. The
// same version with other bytes is refused: a version never changes. Codes: ERR_PLUGIN_*, ERR_CONFIG_*.
func (h *Host) Install(ctx context.Context, dir string) (*Package, sandbox.Applied, error) {
	pkg, err := Read(dir)
	if err != nil {
		return nil, sandbox.Applied{}, err
	}
	ref := pkg.Descriptor.Ref()
	switch stale, err := pkg.stale(); {
	case err != nil:
		return nil, sandbox.Applied{}, pipeline.Errorf(pipeline.CodePluginRefused, ref, "%w", err)
	case stale != "":
		return nil, sandbox.Applied{}, pipeline.Errorf(pipeline.CodePluginRefused, ref, "%s is not what was packed", stale).With("pack it again: reprieve plugin pack " + dir)
	}
	program := bytes.Clone(pkg.program)
	to := h.Folder(ref)
	if old, err := Read(to); err == nil && (old.Digest != pkg.Digest || old.About != pkg.About) {
		return nil, sandbox.Applied{}, pipeline.Errorf(pipeline.CodePluginLock, ref, "this version is installed with other files: %s and %s, here %s and %s", old.About, old.Digest, pkg.About, pkg.Digest).
			With("A version never changes: raise it in plugin.yaml, or remove " + to + ".")
	}
	did, err := h.Register(ctx, pkg)
	if err != nil {
		return nil, did, err
	}
	_, about, err := readDescriptor(dir)
	if err != nil {
		return nil, did, err
	}
	if pipeline.Digest(seal.SHA256(about)) != pkg.About {
		return nil, did, pipeline.Errorf(pipeline.CodePluginRefused, ref, "plugin.yaml changed meanwhile")
	}
	file := filepath.Join(to, pkg.Artifact.Path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), replace(file, program, 0o755), replace(filepath.Join(to, DescriptorFile), about, 0o644)); err != nil {
		return nil, did, pipeline.Errorf(pipeline.CodePluginRefused, ref, "it cannot be copied: %w", err)
	}
	pkg.Dir = to
	return pkg, did, nil
}

// replace writes a file as a whole.
func replace(file string, b []byte, mode os.FileMode) error {
	tmp := file + ".new"
	if err := os.WriteFile(tmp, b, mode); err != nil {
		return err
	}
	return os.Rename(tmp, file)
}

// Installed are the references of the plugins below a folder, in order.
func Installed(dir string) ([]string, error) {
	var out []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && path == dir:
			return fs.SkipAll
		case err != nil:
			return err
		case e.Name() != DescriptorFile || e.IsDir():
			return nil
		}
		if d, err := describe(filepath.Dir(path)); err == nil && Folder(dir, d.Ref()) == filepath.Dir(path) {
			out = append(out, d.Ref())
		}
		return nil
	})
	if err != nil {
		return nil, pipeline.Errorf(pipeline.CodePluginUnknown, dir, "%w", err)
	}
	return out, nil
}
