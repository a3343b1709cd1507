package transforms

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/seal"
)

// Options are what the built-ins of one pipeline read records with.
type Options struct {
	Decoder  *codec.Decoder // of the pipeline's decode stage; nil: only transforms that need no view work
	Registry codec.Registry // nil: Avro records can only be edited in place
}

// Kind is one transform that a library can configure.
type Kind struct {
	Name, Version string
	Doc           string          // one sentence
	Artifact      pipeline.Digest // of what runs
	Level         string          // "builtin" or a sandbox level
	// Build makes the transform of a configuration (JSON). Codes: ERR_TRANSFORM_CONFIG.
	Build func(info Info, config []byte) (Transform, error)
}

// Ref is "name@version".
func (k Kind) Ref() string { return k.Name + "@" + k.Version }

// Library knows transforms by name and exact version. Safe for concurrent use once it is filled.
type Library struct{ kinds map[string]Kind }

// NewLibrary makes a library that holds the built-ins for records as o reads them.
func NewLibrary(o Options) *Library {
	l := &Library{kinds: map[string]Kind{}}
	for _, b := range builtins(&tools{dec: o.Decoder, reg: o.Registry}) {
		k := Kind{Name: b.name, Version: b.version, Doc: b.doc, Level: "builtin", Artifact: builtinDigest(b.name, b.version)}
		k.Build = func(info Info, config []byte) (Transform, error) { return b.build(info, config) }
		l.kinds[k.Ref()] = k
	}
	return l
}

// Add makes a third-party transform known. The version must be exact and new. Codes: ERR_TRANSFORM_UNKNOWN,
// ERR_TRANSFORM_CONFIG.
func (l *Library) Add(k Kind) error {
	if _, _, err := splitRef(k.Ref()); err != nil {
		return err
	}
	if _, ok := l.kinds[k.Ref()]; ok {
		return pipeline.Errorf(pipeline.CodeTransformConfig, k.Ref(), "this version is known already; versions never change")
	}
	l.kinds[k.Ref()] = k
	return nil
}

// List returns all kinds by name, then version.
func (l *Library) List() []Kind {
	out := make([]Kind, 0, len(l.kinds))
	for _, k := range l.kinds {
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b Kind) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), compareVersions(a.Version, b.Version))
	})
	return out
}

// Parse configures the transform ref ("name@version") with config (JSON; empty is {}). A version is always exact. Codes:
// ERR_TRANSFORM_UNKNOWN, ERR_TRANSFORM_CONFIG.
func (l *Library) Parse(ref string, config []byte) (Transform, error) {
	name, version, err := splitRef(ref)
	if err != nil {
		return nil, err
	}
	k, ok := l.kinds[ref]
	if !ok {
		e := pipeline.Errorf(pipeline.CodeTransformUnknown, ref, "there is no transform %s of version %s", name, version)
		if known := l.versions(name); len(known) > 0 {
			e.With("Known versions of " + name + ": " + strings.Join(known, ", ") + ".")
		}
		return nil, e
	}
	if len(config) == 0 {
		config = []byte("{}")
	}
	digest, err := ConfigDigest(config)
	if err != nil {
		text := err.Error()
		if e, ok := errors.AsType[*pipeline.Error](err); ok {
			text = e.Text
		}
		return nil, pipeline.Errorf(pipeline.CodeTransformConfig, ref, "the configuration is not valid JSON: %s", text)
	}
	return k.Build(Info{Name: name, Version: version, Artifact: k.Artifact, Config: digest, Level: k.Level}, slices.Clone(config))
}

func (l *Library) versions(name string) (out []string) {
	for _, k := range l.List() {
		if k.Name == name {
			out = append(out, k.Version)
		}
	}
	return out
}

// splitRef reads "name@major.minor.patch".
func splitRef(ref string) (name, version string, err error) {
	i := strings.LastIndexByte(ref, '@')
	if i <= 0 || !exact(ref[i+1:]) {
		e := pipeline.Errorf(pipeline.CodeTransformUnknown, ref, "a transform is named with its exact version, as in set@1.0.0")
		return "", "", e.With("Write name@major.minor.patch; latest is not a version.")
	}
	return ref[:i], ref[i+1:], nil
}

// exact tells whether v is major.minor.patch, with an optional -prerelease.
func exact(v string) bool {
	v, pre, has := strings.Cut(v, "-")
	if has && pre == "" {
		return false
	}
	parts := strings.Split(v, ".")
	if len(parts) != 3 {
		return false
	}
	for _, p := range parts {
		if _, ok := index(p, 1<<30); !ok {
			return false
		}
	}
	return true
}

func compareVersions(a, b string) int {
	an, ap, _ := strings.Cut(a, "-")
	bn, bp, _ := strings.Cut(b, "-")
	as, bs := strings.Split(an, "."), strings.Split(bn, ".")
	for i := range min(len(as), len(bs)) {
		if c := cmp.Or(cmp.Compare(len(as[i]), len(bs[i])), strings.Compare(as[i], bs[i])); c != 0 {
			return c
		}
	}
	switch {
	case ap == bp:
		return 0
	case ap == "":
		return 1
	case bp == "":
		return -1
	}
	return strings.Compare(ap, bp)
}

func builtinDigest(name, version string) pipeline.Digest {
	b, _ := seal.Digest(map[string]string{"builtin": name, "version": version}) // strings only: cannot fail
	return pipeline.Digest(b)
}

// ConfigDigest is the digest of a configuration: canonical, with numbers as their text, so that 12.50 and 12.5 are two
// configurations. The text must be strict JSON.
func ConfigDigest(config []byte) (pipeline.Digest, error) {
	d, what := parseDocument(config)
	if what != "" {
		return "", pipeline.Errorf(pipeline.CodeTransformConfig, "", "%s", what)
	}
	s, err := seal.Digest(tagged(d.root))
	return pipeline.Digest(s), err
}

// tagged turns numbers into text that cannot be mistaken for a string.
func tagged(n *node) any {
	switch n.kind {
	case '{':
		m := make(map[string]any, len(n.members))
		for _, e := range n.members {
			m[e.name] = tagged(e.v)
		}
		return m
	case '[':
		a := []any{"array"}
		for _, e := range n.items {
			a = append(a, tagged(e.v))
		}
		return a
	case '"':
		return unquote(n.src)
	case '0':
		return []any{"number", string(n.src)}
	case 't':
		return n.src[0] == 't'
	}
	return nil
}

// builtin describes one built-in; make compiles a configuration into what is done to one envelope.
type builtinKind struct {
	name, version, doc string
	make               func(c *settings) (func(ctx context.Context, w *work, e *Envelope) Result, error)
}

func (b builtinKind) build(info Info, config []byte) (Transform, error) {
	d, what := parseDocument(config)
	if what != "" || d.root.kind != '{' {
		return nil, pipeline.Errorf(pipeline.CodeTransformConfig, info.Ref(), "the configuration must be a JSON object")
	}
	c := &settings{ref: info.Ref(), doc: d}
	fn, err := b.make(c)
	if err == nil {
		err = c.err
	}
	if err != nil {
		return nil, err
	}
	return &builtin{info: info, fn: fn}, nil
}

// settings is a configuration being read; the first problem stays.
type settings struct {
	ref string
	doc *document
	err error
}

func (c *settings) fail(format string, args ...any) error {
	if c.err == nil {
		c.err = pipeline.Errorf(pipeline.CodeTransformConfig, c.ref, format, args...)
	}
	return c.err
}

// only refuses members that are not named.
func (c *settings) only(names ...string) {
	for _, m := range c.doc.root.members {
		if !slices.Contains(names, m.name) {
			c.fail("unknown key %q; known: %s", m.name, strings.Join(names, ", "))
		}
	}
}

func (c *settings) get(name string) *node { return c.doc.at(pointer{name}) }

// decode reads one member into a Go value; a missing one changes nothing.
func (c *settings) decode(name string, into any) {
	if n := c.get(name); n != nil {
		if err := json.Unmarshal(n.src, into); err != nil {
			c.fail("%s has the wrong type", name)
		}
	}
}

// fields reads an object whose names are JSON pointers, in the order of the file.
func (c *settings) fields(name string) (out []field) {
	n := c.get(name)
	if n == nil || n.kind != '{' || len(n.members) == 0 {
		c.fail("%s must be an object from JSON pointer to value, with at least one member", name)
		return nil
	}
	for _, m := range n.members {
		p, ok := parsePointer(m.name)
		if !ok || len(p) == 0 {
			c.fail("%s: %q is not a JSON pointer into the record, as in /customer/name", name, m.name)
			return nil
		}
		out = append(out, newField(p, m.name, m.v))
	}
	return out
}

// field is a pointer and what belongs to it.
type field struct {
	path  pointer
	text  string         // the pointer as written
	at    *pipeline.Path // the same for a view
	value *node
	plain string // the text of a string value
}

func newField(p pointer, text string, value *node) field {
	f := field{path: p, text: text, value: value, at: &pipeline.Path{Segs: p, Text: text}}
	if value.kind == '"' {
		f.plain = unquote(value.src)
	}
	return f
}

// builtin is a configured built-in.
type builtin struct {
	info Info
	fn   func(context.Context, *work, *Envelope) Result
	pool sync.Pool // *work
}

// Info implements Transform.
func (b *builtin) Info() Info { return b.info }

// Repair implements Transform. It only returns an error when ctx is done.
func (b *builtin) Repair(ctx context.Context, in []Envelope) ([]Result, error) {
	w, _ := b.pool.Get().(*work)
	if w == nil {
		w = newWork()
	}
	defer b.pool.Put(w)
	out := make([]Result, len(in))
	for i := range in {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		out[i] = b.one(ctx, w, &in[i])
	}
	return out, nil
}

// one keeps a panic of one envelope from the others.
func (b *builtin) one(ctx context.Context, w *work, e *Envelope) (r Result) {
	defer func() {
		if recover() != nil {
			r = unchanged(e)
			r.Failure = refuse(pipeline.CodeTransformFailed, "panic")
		}
	}()
	return b.fn(ctx, w, e)
}
