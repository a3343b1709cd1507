package plugins

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
	"reprieve.dev/plugins/sandbox"
	"reprieve.dev/plugins/wire"
)

// Lock is the file plugins.lock: what may run. Nothing else runs.
type Lock struct {
	APIVersion string `yaml:"apiVersion" required:"true" enum:"reprieve/v1" doc:"Version of this form."`
	Plugins    []Pin  `yaml:"plugins" doc:"What may run."`
}

// Pin is one plugin of one version.
type Pin struct {
	Name       string            `yaml:"name" required:"true" doc:"Its name." json:"name"`
	Version    string            `yaml:"version" required:"true" doc:"Its exact version." json:"version"`
	Protocol   int               `yaml:"protocol" required:"true" doc:"Version of the protocol." json:"protocol"`
	Level      string            `yaml:"level" required:"true" enum:"process,restricted,isolated" doc:"Least sandbox level that it may run in." json:"level"`
	Descriptor string            `yaml:"descriptor" required:"true" doc:"Digest of plugin.yaml." json:"descriptor"`
	Artifacts  map[string]string `yaml:"artifacts" required:"true" doc:"Digest of the program by platform." json:"artifacts"`
}

// Ref is "name@version".
func (p *Pin) Ref() string { return p.Name + "@" + p.Version }

// Platform is this machine as locks spell it: "linux/amd64".
func Platform() string { return runtime.GOOS + "/" + runtime.GOARCH }

// Digest is what is pinned for this machine; empty: nothing.
func (p *Pin) Digest() pipeline.Digest { return pipeline.Digest(p.Artifacts[Platform()]) }

// ReadLock reads the lock file; a missing one is empty. Codes: ERR_CONFIG_* (as problems), ERR_PLUGIN_LOCK.
func ReadLock(file string) (*Lock, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return &Lock{APIVersion: "reprieve/v1"}, nil
	}
	if err != nil {
		return nil, pipeline.Errorf(pipeline.CodePluginLock, file, "%w", err)
	}
	l := &Lock{}
	doc, ps := config.Parse(file, text, config.Options{})
	if doc != nil {
		ps = append(ps, doc.Decode(l)...)
	}
	if len(ps) > 0 {
		return nil, ps
	}
	seen := map[string]bool{}
	for _, p := range l.Plugins {
		switch {
		case seen[p.Ref()]:
			return nil, pipeline.Errorf(pipeline.CodePluginLock, file, "%s is pinned twice", p.Ref()).With("keep one of the two")
		case !nameForm.MatchString(p.Name) || !versionForm.MatchString(p.Version):
			return nil, pipeline.Errorf(pipeline.CodePluginLock, file, "%s is not a name with an exact version", p.Ref())
		}
		seen[p.Ref()] = true
	}
	return l, nil
}

// Find returns the pin of "name@version".
func (l *Lock) Find(ref string) (*Pin, bool) {
	for i := range l.Plugins {
		if l.Plugins[i].Ref() == ref {
			return &l.Plugins[i], true
		}
	}
	return nil, false
}

// Set pins p; another pin of the same version is only kept for other platforms.
func (l *Lock) Set(p Pin) {
	if old, ok := l.Find(p.Ref()); ok {
		for platform, digest := range old.Artifacts {
			if _, has := p.Artifacts[platform]; !has && old.Descriptor == p.Descriptor {
				p.Artifacts[platform] = digest
			}
		}
		*old = p
		return
	}
	l.Plugins = append(l.Plugins, p)
	slices.SortFunc(l.Plugins, func(a, b Pin) int { return strings.Compare(a.Ref(), b.Ref()) })
}

// Write replaces the file as a whole.
func (l *Lock) Write(file string) error {
	var b strings.Builder
	b.WriteString("# What may run, by digest. reprieve plugin lock writes it; keep it under version control.\napiVersion: reprieve/v1\nplugins:\n")
	quote := func(s string) string {
		t, _ := json.Marshal(s) // a string cannot fail
		return string(t)
	}
	for _, p := range l.Plugins {
		fmt.Fprintf(&b, "  - name: %s\n    version: %s\n    protocol: %d\n    level: %s\n    descriptor: %s\n    artifacts:\n",
			quote(p.Name), quote(p.Version), p.Protocol, p.Level, quote(p.Descriptor))
		platforms := make([]string, 0, len(p.Artifacts))
		for platform := range p.Artifacts {
			platforms = append(platforms, platform)
		}
		slices.Sort(platforms)
		for _, platform := range platforms {
			fmt.Fprintf(&b, "      %s: %s\n", quote(platform), quote(p.Artifacts[platform]))
		}
	}
	if len(l.Plugins) == 0 {
		b.WriteString("  []\n")
	}
	tmp, err := os.CreateTemp(filepath.Dir(file), ".plugins.lock-*")
	if err != nil {
		return pipeline.Errorf(pipeline.CodePluginLock, file, "%w", err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.WriteString(b.String())
	err = errors.Join(err, tmp.Chmod(0o644), tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), file)
	}
	if err != nil {
		return pipeline.Errorf(pipeline.CodePluginLock, file, "%w", err)
	}
	return nil
}

// Pin makes the pin of a package. The level may not be below the author's.
func (p *Package) Pin(level sandbox.Level) Pin {
	return Pin{Name: p.Descriptor.Name, Version: p.Descriptor.Version, Protocol: p.Descriptor.Protocol, Level: level.String(),
		Descriptor: string(p.About), Artifacts: map[string]string{Platform(): string(p.Digest)}}
}

// Check compares a package with its pin. Codes: ERR_PLUGIN_LOCK, with both digests.
func (p *Pin) Check(pkg *Package) error {
	mismatch := func(what string, pinned, found string) error {
		e := pipeline.Errorf(pipeline.CodePluginLock, p.Ref(), "%s has changed: plugins.lock pins %s, the file has %s", what, pinned, found)
		return e.With("Install the pinned file again, or judge the new one (reprieve conform) and give it a new version; a version never changes.")
	}
	switch d := &pkg.Descriptor; {
	case d.Ref() != p.Ref():
		return pipeline.Errorf(pipeline.CodePluginLock, p.Ref(), "the folder holds %s", d.Ref())
	case p.Digest() == "":
		return pipeline.Errorf(pipeline.CodePluginLock, p.Ref(), "no program is pinned for %s", Platform()).With("run reprieve plugin lock " + p.Ref() + " on such a machine")
	case p.Digest() != pkg.Digest:
		return mismatch(pkg.Artifact.Path, string(p.Digest()), string(pkg.Digest))
	case p.Descriptor != string(pkg.About):
		return mismatch(DescriptorFile, p.Descriptor, string(pkg.About))
	}
	return nil
}

// speaks refuses a pin of another protocol. Codes: ERR_PLUGIN_LOCK.
func (p *Pin) speaks() error {
	if p.Protocol != wire.Protocol {
		return pipeline.Errorf(pipeline.CodePluginLock, p.Ref(), "it is pinned with protocol %d; the host speaks %d", p.Protocol, wire.Protocol)
	}
	return nil
}
