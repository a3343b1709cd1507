package plugins

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
	"reprieve.dev/plugins/sandbox"
	"reprieve.dev/plugins/wire"
	"reprieve.dev/seal"
)

// DescriptorFile is the name of a plugin's descriptor.
const DescriptorFile = "plugin.yaml"

// maxArtifact is how large a program may be, in bytes.
const maxArtifact = 256 << 20

// Descriptor is the file plugin.yaml, which the author writes.
type Descriptor struct {
	APIVersion string     `yaml:"apiVersion" required:"true" enum:"reprieve/v1" doc:"Version of this form."`
	Name       string     `yaml:"name" required:"true" doc:"acme/normalize-currency."`
	Version    string     `yaml:"version" required:"true" doc:"major.minor.patch."`
	Doc        string     `yaml:"doc" required:"true" doc:"One sentence: what it repairs."`
	License    string     `yaml:"license" doc:"SPDX name."`
	Protocol   int        `yaml:"protocol" default:"1" doc:"Version of the protocol."`
	Artifacts  []Artifact `yaml:"artifacts" required:"true" doc:"The programs."`
	Sandbox    Needs      `yaml:"sandbox" doc:"What it runs in."`
	Vectors    []Vector   `yaml:"vectors" doc:"Records with what they become, for reprieve conform."`
}

// Artifact is one program.
type Artifact struct {
	OS   string `yaml:"os" required:"true" doc:"linux."`
	Arch string `yaml:"arch" required:"true" doc:"amd64."`
	Path string `yaml:"path" required:"true" doc:"File beside plugin.yaml; a static program."`
}

// Needs is the section sandbox of a descriptor. It may ask for more than the worker does, never for less.
type Needs struct {
	Level string `yaml:"level" default:"restricted" enum:"restricted,isolated" doc:"Least level that the author accepts."`
}

// Vector is one record and what it becomes.
type Vector struct {
	Name     string `yaml:"name" required:"true" doc:"What it shows."`
	Config   string `yaml:"config" default:"{}" doc:"Configuration, JSON."`
	Value    string `yaml:"value" doc:"Value of the record."`
	Expect   string `yaml:"expect" doc:"Value after the repair."`
	Rejected bool   `yaml:"rejected" doc:"It cannot be repaired."`
}

var (
	nameForm    = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?(/[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?)?$`)
	versionForm = regexp.MustCompile(`^(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})(-[0-9A-Za-z.-]{1,64})?$`)
)

// Validate implements config.Validator.
func (d *Descriptor) Validate(n config.Node) config.Problems {
	var ps config.Problems
	add := func(at, text, suggestion string) {
		ps = append(ps, n.Problem(at, config.CodeValue, text, suggestion))
	}
	if d.Name != "" && !nameForm.MatchString(d.Name) {
		add("name", "a name is publisher/name, of a-z, 0-9 and -", "write it like acme/normalize-currency")
	}
	if d.Version != "" && !versionForm.MatchString(d.Version) {
		add("version", "a version is major.minor.patch", "write it like 1.4.2")
	}
	if d.Protocol != wire.Protocol {
		add("protocol", "the host speaks protocol 1", "build the plugin against the library of this release")
	}
	for _, a := range d.Artifacts {
		if a.Path != "" && !filepath.IsLocal(a.Path) {
			add("artifacts", "an artifact is a file below the folder of plugin.yaml", "write a path without .. and without a leading /")
		}
	}
	return ps
}

// Ref is "name@version".
func (d *Descriptor) Ref() string { return d.Name + "@" + d.Version }

// Package is a folder that holds a plugin, read and hashed.
type Package struct {
	Dir        string
	Descriptor Descriptor
	About      pipeline.Digest // of plugin.yaml
	Artifact   Artifact        // for this machine
	Digest     pipeline.Digest // of the program for this machine
	program    []byte
}

// describe reads the descriptor of a folder.
func describe(dir string) (*Descriptor, error) {
	file := filepath.Join(dir, DescriptorFile)
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, pipeline.Errorf(pipeline.CodePluginUnknown, file, "there is no plugin here: %w", err).With("name the folder that holds " + DescriptorFile)
	}
	return parse(file, text)
}

func parse(file string, text []byte) (*Descriptor, error) {
	d := &Descriptor{}
	doc, ps := config.Parse(file, text, config.Options{})
	if doc != nil {
		ps = append(ps, doc.Decode(d)...)
	}
	if len(ps) > 0 {
		return nil, ps
	}
	return d, nil
}

// Read reads the plugin in a folder: its descriptor and its program for this machine. Codes: ERR_CONFIG_* (as problems),
// ERR_PLUGIN_UNKNOWN, ERR_PLUGIN_REFUSED.
func Read(dir string) (*Package, error) {
	file := filepath.Join(dir, DescriptorFile)
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, pipeline.Errorf(pipeline.CodePluginUnknown, file, "there is no plugin here: %w", err).With("name the folder that holds " + DescriptorFile)
	}
	d, err := parse(file, text)
	if err != nil {
		return nil, err
	}
	p := &Package{Dir: dir, Descriptor: *d, About: pipeline.Digest(seal.SHA256(text))}
	var known []string
	for _, a := range p.Descriptor.Artifacts {
		if a.OS == runtime.GOOS && a.Arch == runtime.GOARCH {
			p.Artifact = a
		}
		known = append(known, a.OS+"/"+a.Arch)
	}
	if p.Artifact.Path == "" {
		return nil, pipeline.Errorf(pipeline.CodePluginRefused, file, "it has no program for %s/%s, only for %s", runtime.GOOS, runtime.GOARCH, strings.Join(known, ", "))
	}
	program := filepath.Join(dir, p.Artifact.Path)
	st, err := os.Stat(program)
	if err != nil {
		return nil, pipeline.Errorf(pipeline.CodePluginUnknown, program, "the program is missing: %w", err).With("build it first: see the plugin's README")
	}
	if !st.Mode().IsRegular() || st.Size() > maxArtifact {
		return nil, pipeline.Errorf(pipeline.CodePluginRefused, program, "a program is a file of at most 256 MiB")
	}
	if p.program, err = os.ReadFile(program); err != nil {
		return nil, pipeline.Errorf(pipeline.CodePluginUnknown, program, "%w", err)
	}
	if what := checkProgram(p.program); what != "" {
		return nil, pipeline.Errorf(pipeline.CodePluginRefused, program, "%s", what).With("build a static program: CGO_ENABLED=0 go build")
	}
	p.Digest = pipeline.Digest(seal.SHA256(p.program))
	return p, nil
}

// Level is the least level that the author accepts.
func (p *Package) Level() sandbox.Level {
	if p.Descriptor.Sandbox.Level == sandbox.Isolated.String() {
		return sandbox.Isolated
	}
	return sandbox.Restricted
}
