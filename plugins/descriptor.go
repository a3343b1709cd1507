package plugins

import (
	"bytes"
	"errors"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"unicode"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
	"reprieve.dev/plugins/sandbox"
	"reprieve.dev/plugins/wire"
	"reprieve.dev/seal"
)

// DescriptorFile is the name of a plugin's descriptor.
const DescriptorFile = "plugin.yaml"

// How large a descriptor and a program may be, in bytes.
const (
	maxDescriptor = 1 << 20
	maxArtifact   = 256 << 20
)

// filesMost is how many open files a plugin may ask for: each may be a pipe, whose bytes the kernel keeps for it.
const filesMost = 256

// Descriptor is the file plugin.yaml, which the author writes.
type Descriptor struct {
	APIVersion string      `yaml:"apiVersion" required:"true" enum:"reprieve/v1" doc:"Version of this form."`
	Name       string      `yaml:"name" required:"true" doc:"acme/normalize-currency."`
	Version    string      `yaml:"version" required:"true" doc:"major.minor.patch."`
	Doc        string      `yaml:"doc" required:"true" doc:"One sentence: what it repairs."`
	Author     string      `yaml:"author" doc:"Who answers for it: a name or an address."`
	License    string      `yaml:"license" doc:"SPDX name."`
	Protocol   int         `yaml:"protocol" default:"1" doc:"Version of the protocol."`
	Delivers   []string    `yaml:"delivers" default:"transform" enum:"transform,stage" doc:"What it serves: repairs of quarantined records, a stage of the live lane, or both."`
	Reads      []string    `yaml:"reads" enum:"avro,json,jsonschema,protobuf,raw" doc:"Formats that it repairs; others are rejected without asking it. Empty: any."`
	Config     config.Node `yaml:"config" doc:"JSON Schema (2020-12) of its configuration; a configuration that does not satisfy it is refused before it starts."`
	Limits     Asked       `yaml:"limits" doc:"What it needs; the worker file says what it may have."`
	Artifacts  []Artifact  `yaml:"artifacts" required:"true" doc:"The programs."`
	Pack       Pack        `yaml:"pack" doc:"What reprieve plugin pack puts into the root folder of an interpreted plugin."`
	Sandbox    Needs       `yaml:"sandbox" doc:"What it runs in."`
	Vectors    []Vector    `yaml:"vectors" doc:"Records with what they become, for reprieve conform."`
}

// What a plugin delivers.
const (
	DeliversTransform = "transform"
	DeliversStage     = "stage"
)

// Delivering tells whether it delivers a transform or a stage.
func (d *Descriptor) Delivering(what string) bool { return slices.Contains(d.Delivers, what) }

// Asked is the section limits of a descriptor. Zero: what the worker file gives to every plugin.
type Asked struct {
	Memory  config.Size `yaml:"memory" doc:"Memory of one process. More than the worker file allows is refused, less is what it gets."`
	Threads int         `yaml:"threads" doc:"Threads of one process."`
	Files   int         `yaml:"files" doc:"Open files of one process; at most 256."`
}

// Artifact is one program: a static one, or a root folder with an interpreter.
type Artifact struct {
	OS   string            `yaml:"os" required:"true" doc:"linux."`
	Arch string            `yaml:"arch" required:"true" doc:"amd64."`
	Path string            `yaml:"path" required:"true" doc:"File beside plugin.yaml: a static program, or with run the packed root folder (a tar file)."`
	Run  []string          `yaml:"run" doc:"What is started in the packed root folder: a program of it by its absolute path, and arguments."`
	Env  map[string]string `yaml:"env" doc:"Environment of that program, for its interpreter."`
}

// Packed tells whether the artifact is a root folder.
func (a *Artifact) Packed() bool { return len(a.Run) > 0 }

// Pack is the section pack of a descriptor.
type Pack struct {
	Interpreter string   `yaml:"interpreter" doc:"Program of this machine that is packed as /bin/NAME with the libraries that it is linked with: python3, perl, /opt/node/bin/node."`
	Files       []string `yaml:"files" doc:"Files of the plugin, patterns from the folder of plugin.yaml; they are packed below /app."`
	Folders     []string `yaml:"folders" doc:"Folders of this machine that are packed below /lib/NAME, for libraries of the interpreter."`
}

// Needs is the section sandbox of a descriptor. It may ask for more than the worker does, never for less.
type Needs struct {
	Level string `yaml:"level" default:"restricted" enum:"restricted,isolated" doc:"Least level that the author accepts; a packed root folder needs isolated."`
}

// Vector is one record and what it becomes.
type Vector struct {
	Name     string `yaml:"name" required:"true" doc:"What it shows."`
	Config   string `yaml:"config" default:"{}" doc:"Configuration, JSON."`
	Value    string `yaml:"value" doc:"Value of the record."`
	Expect   string `yaml:"expect" doc:"Value after the repair."`
	Rejected bool   `yaml:"rejected" doc:"It cannot be repaired."`
	Stage    *Marks `yaml:"stage" doc:"What a stage says of the record, instead of a repair."`
}

// Marks is what a stage is to say of a vector's record. Fields and headers as text.
type Marks struct {
	Reject  string            `yaml:"reject" doc:"Rule that it is rejected by; empty: it goes on."`
	Fields  map[string]string `yaml:"fields" doc:"Fields that are added."`
	Headers map[string]string `yaml:"headers" doc:"Headers that are added."`
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
	for at, text := range map[string]string{"doc": d.Doc, "author": d.Author, "license": d.License} {
		if strings.ContainsFunc(strings.TrimSpace(text), unshown) {
			add(at, "it has characters that are no text and may make a terminal show something else", "write one line of plain text")
		}
	}
	if d.Protocol != wire.Protocol {
		add("protocol", "the host speaks protocol 1", "build the plugin against the library of this release")
	}
	for _, a := range d.Artifacts {
		if at := filepath.Clean(a.Path); at == StoppedFile || strings.HasPrefix(at, DescriptorFile) {
			add("artifacts", at+" is a name of the host's beside a program", "name the program otherwise")
		}
		if a.Path != "" && !filepath.IsLocal(a.Path) {
			add("artifacts", "an artifact is a file below the folder of plugin.yaml", "write a path without .. and without a leading /")
		}
		if a.Packed() && !path.IsAbs(a.Run[0]) {
			add("artifacts", "run names a program by its path in the packed root folder", "write run: [/bin/python3, /app/main.py]")
		}
		for name := range a.Env {
			if reservedEnv(name) || !a.Packed() {
				add("artifacts", "the environment "+name+" is not the plugin's to set", "only a packed program has an environment of its own, without names of the protocol")
			}
		}
	}
	if l := d.Limits; l.Memory < 0 || l.Threads < 0 || l.Files < 0 || l.Files > filesMost {
		add("limits", "limits are not negative, and files at most 256", "leave out what the worker file may decide")
	}
	if d.Config.Exists() {
		if _, err := schemaOf(d.Config); err != nil {
			add("config", "it is not a JSON Schema: "+err.Error(), "write config: {type: object, properties: {...}}")
		}
	}
	return ps
}

// unshown tells whether a character has no form of its own: controls, and what turns the direction of writing.
func unshown(r rune) bool {
	return unicode.IsControl(r) || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// reservedEnv are names of the host, of the protocol and of the loader's debugging.
func reservedEnv(name string) bool {
	return name == "" || strings.ContainsAny(name, "=\x00") || strings.HasPrefix(name, "PLUGIN_") || strings.HasPrefix(name, "REPRIEVE_") || slices.ContainsFunc(fixedEnv, func(e string) bool {
		return strings.HasPrefix(e, name+"=")
	})
}

// Ref is "name@version".
func (d *Descriptor) Ref() string { return d.Name + "@" + d.Version }

// Package is a folder that holds a plugin, read and hashed.
type Package struct {
	Dir        string
	Descriptor Descriptor
	About      pipeline.Digest // of plugin.yaml
	Artifact   Artifact        // for this machine
	Digest     pipeline.Digest // of the program for this machine; of a packed one: of its tree and what is run in it
	Tree       pipeline.Digest // of the root folder of a packed one
	program    []byte
	tree       sandbox.Tree       // of a packed one
	config     *jsonschema.Schema // nil: any
}

// describe reads the descriptor of a folder.
func describe(dir string) (*Descriptor, error) {
	file, text, err := readDescriptor(dir)
	if err != nil {
		return nil, err
	}
	return parse(file, text)
}

// readDescriptor reads the file plugin.yaml of a folder. It may be somebody else's folder, so a link is not followed: what it leads to
// would stand in problems that quote it. Codes: ERR_PLUGIN_UNKNOWN.
func readDescriptor(dir string) (file string, text []byte, err error) {
	file = filepath.Join(dir, DescriptorFile)
	st, err := os.Lstat(file)
	if err == nil && !st.Mode().IsRegular() {
		err = errors.New("it is not a file itself")
	}
	if err == nil {
		text, err = readLimited(file, maxDescriptor)
	}
	if err != nil {
		return file, nil, pipeline.Errorf(pipeline.CodePluginUnknown, file, "there is no plugin here: %w", err).With("name the folder that holds " + DescriptorFile)
	}
	return file, text, nil
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
	file, text, err := readDescriptor(dir)
	if err != nil {
		return nil, err
	}
	d, err := parse(file, text)
	if err != nil {
		return nil, err
	}
	p := &Package{Dir: dir, Descriptor: *d, About: pipeline.Digest(seal.SHA256(text))}
	if d.Config.Exists() {
		if p.config, err = schemaOf(d.Config); err != nil {
			return nil, pipeline.Errorf(pipeline.CodePluginRefused, file, "config: %w", err)
		}
	}
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
		remedy := "build it first: see the plugin's README"
		if p.Artifact.Packed() {
			remedy = "pack it first: reprieve plugin pack " + dir
		}
		return nil, pipeline.Errorf(pipeline.CodePluginUnknown, program, "the program is missing: %w", err).With(remedy)
	}
	if !st.Mode().IsRegular() || st.Size() > maxArtifact {
		return nil, pipeline.Errorf(pipeline.CodePluginRefused, program, "a program is a file of at most 256 MiB")
	}
	if p.program, err = readLimited(program, maxArtifact); err != nil {
		return nil, pipeline.Errorf(pipeline.CodePluginUnknown, program, "%w", err)
	}
	if p.Artifact.Packed() {
		return p, p.measure(program)
	}
	if what, remedy := checkProgram(dir, p.Artifact.Path, p.program); what != "" {
		return nil, pipeline.Errorf(pipeline.CodePluginRefused, program, "%s", what).With(remedy)
	}
	p.Digest = pipeline.Digest(seal.SHA256(p.program))
	return p, nil
}

// measure reads the tree of a packed program. Its digest and what is run in it are the digest of the artifact.
func (p *Package) measure(file string) error {
	tree, err := sandbox.ReadTree(bytes.NewReader(p.program), p.Artifact.Run[0])
	if err != nil {
		return pipeline.Errorf(pipeline.CodePluginRefused, file, "%w", err).With("pack it again: reprieve plugin pack " + p.Dir)
	}
	p.tree, p.Tree = tree, tree.Digest
	digest, err := seal.Digest(map[string]any{"tree": string(tree.Digest), "run": p.Artifact.Run, "env": p.Artifact.Env})
	if err != nil {
		return pipeline.Errorf(pipeline.CodePluginRefused, file, "%w", err)
	}
	p.Digest = pipeline.Digest(digest)
	return nil
}

// CheckConfig compares a configuration with the author's schema of it. Codes: ERR_TRANSFORM_CONFIG.
func (p *Package) CheckConfig(config []byte) error {
	if p.config == nil {
		return nil
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(config))
	if err == nil {
		err = p.config.Validate(v)
	}
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		return pipeline.Errorf(pipeline.CodeTransformConfig, p.Descriptor.Ref(), "%s", firstProblem(e))
	}
	return pipeline.Errorf(pipeline.CodeTransformConfig, p.Descriptor.Ref(), "%w", err)
}

// firstProblem is the innermost problem of a validation, with its place.
func firstProblem(e *jsonschema.ValidationError) string {
	for len(e.Causes) > 0 {
		e = e.Causes[0]
	}
	lines := strings.Split(strings.TrimSpace(e.Error()), "\n")
	return strings.TrimPrefix(strings.TrimSpace(lines[len(lines)-1]), "- ")
}

func schemaOf(n config.Node) (*jsonschema.Schema, error) {
	text, err := n.JSON()
	if err != nil {
		return nil, err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(noLoader{})
	if err := c.AddResource("config.json", doc); err != nil {
		return nil, err
	}
	return c.Compile("config.json")
}

// noLoader keeps schemas from reading files and the network.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, errors.New("a schema may not refer to " + url)
}

// Level is the least level that the author accepts.
func (p *Package) Level() sandbox.Level {
	if p.Descriptor.Sandbox.Level == sandbox.Isolated.String() || p.Artifact.Packed() {
		return sandbox.Isolated
	}
	return sandbox.Restricted
}
