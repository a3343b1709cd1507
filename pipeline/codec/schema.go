package codec

import (
	"fmt"
	"strings"

	"github.com/hamba/avro/v2"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"google.golang.org/protobuf/reflect/protoreflect"

	"reprieve.dev/pipeline"
)

// The formats of values and schemas.
const (
	FormatAvro       = "avro"
	FormatJSON       = "json" // without a schema
	FormatJSONSchema = "jsonschema"
	FormatProtobuf   = "protobuf"
	FormatRaw        = "raw"
)

// Reference is a schema that another one names: Name is the full name (Avro), the $ref (JSON Schema) or the import path
// (Protobuf).
type Reference struct {
	Name, Subject string
	Version       int
	Text          string
	Format        string
}

// Schema is one schema, parsed and compiled. It is immutable and safe for concurrent use.
type Schema struct {
	ref    pipeline.SchemaRef
	text   string
	refs   []Reference
	latest bool // answered as the newest of a subject

	warnings []string
	avro     avro.Schema // for its canonical form
	root     *typ
	json     *jsonschema.Schema
	tags     map[string][]string // JSON Schema: tags by schema place
	proto    protoreflect.FileDescriptor
}

// ParseSchema compiles a schema. references come in an order in which each one only needs those before it. The registry id
// names it (INV-SCHEMA-BY-ID): two schemas of the same full name never meet, because each is parsed into a cache of its own.
// Codes: ERR_SCHEMA_INVALID.
func ParseSchema(ref pipeline.SchemaRef, text string, references ...Reference) (*Schema, *pipeline.Failure) {
	s := &Schema{ref: ref, text: text, refs: references}
	if strings.TrimSpace(text) == "" {
		return nil, invalidSchema(ref, fmt.Errorf("the schema is empty"))
	}
	var err error
	switch ref.Format {
	case FormatAvro:
		err = s.parseAvro()
	case FormatJSONSchema:
		err = s.parseJSONSchema()
	case FormatProtobuf:
		err = s.parseProto()
	default:
		err = fmt.Errorf("unknown schema format %q", ref.Format)
	}
	if err != nil {
		return nil, invalidSchema(ref, err)
	}
	return s, nil
}

func invalidSchema(ref pipeline.SchemaRef, err error) *pipeline.Failure {
	return &pipeline.Failure{Code: pipeline.CodeSchemaInvalid, Cause: err,
		Params: []pipeline.Param{pipeline.Str("schema", ref.String())}}
}

func (s *Schema) parseAvro() (err error) {
	defer func() {
		if p := recover(); p != nil { // the library panics on some schemas
			err = fmt.Errorf("schema cannot be parsed: %v", p)
		}
	}()
	cache := &avro.SchemaCache{}
	texts := make([]string, 0, len(s.refs)+1)
	for _, r := range s.refs {
		if r.Format != "" && r.Format != FormatAvro {
			return fmt.Errorf("reference %s is %s, not avro", r.Name, r.Format)
		}
		if _, err := avro.ParseWithCache(r.Text, "", cache); err != nil {
			return fmt.Errorf("reference %s: %w", r.Name, err)
		}
		texts = append(texts, r.Text)
	}
	if s.avro, err = avro.ParseWithCache(s.text, "", cache); err != nil {
		return err
	}
	s.root, s.warnings, err = compileAvro(s.avro, append(texts, s.text)...)
	return err
}

// Ref names the schema.
func (s *Schema) Ref() pipeline.SchemaRef { return s.ref }

// Text is the schema as it was registered.
func (s *Schema) Text() string { return s.text }

// References are the schemas that it names, in order.
func (s *Schema) References() []Reference { return s.refs }

// Warnings are what was ignored in the schema: logical types that do not fit.
func (s *Schema) Warnings() []string { return s.warnings }

// Fingerprint is the CRC-64-AVRO of the canonical form, as the single-object encoding uses it; 0 for other formats.
func (s *Schema) Fingerprint() uint64 {
	if s.avro == nil {
		return 0
	}
	return crc64Avro(canonicalAvro(nil, s.avro, map[string]bool{}))
}
