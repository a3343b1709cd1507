package codec

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"reprieve.dev/pipeline"
)

// schemaBase is where schemas stand for the compiler: references are resolved against it, and nothing else can be loaded.
const schemaBase = "registry:///"

// closedLoader refuses to load: everything that a schema names comes with it.
type closedLoader struct{}

// Load refuses.
func (closedLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("reference %s is not registered with the schema", url)
}

func (s *Schema) parseJSONSchema() error {
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft7) // what the registry assumes without $schema
	c.UseLoader(closedLoader{})
	docs := map[string]any{}
	for _, r := range s.refs {
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(r.Text))
		if err != nil {
			return fmt.Errorf("reference %s: %w", r.Name, err)
		}
		url := r.Name
		if !strings.Contains(url, "://") {
			url = schemaBase + strings.TrimPrefix(url, "/")
		}
		docs[r.Name] = doc
		if err := c.AddResource(url, doc); err != nil {
			return fmt.Errorf("reference %s: %w", r.Name, err)
		}
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(s.text))
	if err != nil {
		return err
	}
	const root = schemaBase + "schema.json"
	if err := c.AddResource(root, doc); err != nil {
		return err
	}
	if s.json, err = c.Compile(root); err != nil {
		return err
	}
	w := tagWalk{root: doc, docs: docs, tags: map[string][]string{}}
	w.walk(doc, "", 0)
	s.tags = w.tags
	return nil
}

// validateJSON judges a document that is valid JSON. The failure names the place in the schema, never a name or value that
// only the document has.
func (s *Schema) validateJSON(b []byte) *pipeline.Failure {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err == nil {
		err = s.json.Validate(v)
	}
	if err == nil {
		return nil
	}
	place, what := "", "schema"
	if e, ok := err.(*jsonschema.ValidationError); ok {
		for len(e.Causes) > 0 {
			e = e.Causes[0]
		}
		keyword := e.ErrorKind.KeywordPath()
		_, fragment, _ := strings.Cut(e.SchemaURL, "#")
		place = schemaPlace(strings.Split(strings.TrimPrefix(fragment, "/"), "/"))
		if len(keyword) > 0 {
			what = keyword[0]
		}
		if r, ok := e.ErrorKind.(*kind.Required); ok && len(r.Missing) > 0 {
			place += "/" + escapeSeg(r.Missing[0])
		}
	}
	return &pipeline.Failure{Code: pipeline.CodeSchemaMismatch, Cause: err, Params: []pipeline.Param{
		pipeline.Str("schema", s.ref.String()), pipeline.Str("field", place), pipeline.Str("what", what)}}
}

// schemaPlace turns /properties/a/items/properties/b into /a/*/b.
func schemaPlace(segs []string) string {
	var b strings.Builder
	for i := 0; i < len(segs); i++ {
		switch segs[i] {
		case "properties", "patternProperties":
			if i+1 < len(segs) {
				i++
				b.WriteString("/" + segs[i])
			}
		case "items", "additionalProperties":
			b.WriteString("/*")
		}
	}
	return b.String()
}

// tagWalk collects confluent:tags of properties by their place.
type tagWalk struct {
	root any
	docs map[string]any
	tags map[string][]string
	left int
}

func (w *tagWalk) walk(doc any, place string, depth int) {
	o, ok := doc.(map[string]any)
	if !ok || depth > 32 || w.left > 10_000 {
		return
	}
	w.left++
	if list, ok := o["confluent:tags"].([]any); ok {
		for _, x := range list {
			if s, ok := x.(string); ok {
				w.tags[place] = append(w.tags[place], s)
			}
		}
	}
	if props, ok := o["properties"].(map[string]any); ok {
		for name, p := range props {
			w.walk(p, place+"/"+escapeSeg(name), depth+1)
		}
	}
	switch items := o["items"].(type) {
	case map[string]any:
		w.walk(items, place+"/*", depth+1)
	case []any:
		for _, x := range items {
			w.walk(x, place+"/*", depth+1)
		}
	}
	for _, key := range [...]string{"allOf", "anyOf", "oneOf"} {
		if list, ok := o[key].([]any); ok {
			for _, x := range list {
				w.walk(x, place, depth+1)
			}
		}
	}
	if ref, ok := o["$ref"].(string); ok {
		w.walk(w.follow(ref), place, depth+1)
	}
}

// follow finds what a reference names: a place in this document or another document as a whole.
func (w *tagWalk) follow(ref string) any {
	file, fragment, _ := strings.Cut(ref, "#")
	at := w.root
	if file != "" {
		at = w.docs[file]
	}
	for _, seg := range strings.Split(strings.TrimPrefix(fragment, "/"), "/") {
		if seg == "" {
			continue
		}
		o, ok := at.(map[string]any)
		if !ok {
			return nil
		}
		at = o[strings.ReplaceAll(strings.ReplaceAll(seg, "~1", "/"), "~0", "~")]
	}
	return at
}

func (s *Schema) tagsAt(path string) []string {
	if s == nil {
		return nil
	}
	return s.tags[path]
}

func validUTF8(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }
