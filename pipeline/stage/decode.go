package stage

import (
	"context"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
)

// DecodeSettings of a decode stage.
type DecodeSettings struct {
	Format   string       `yaml:"format" required:"true" enum:"avro,json,jsonschema,protobuf,raw" doc:"What the value is."`
	Registry string       `yaml:"registry" doc:"Name of the schema registry in the worker file; avro, jsonschema and protobuf need one, unless the schema is a file."`
	Framing  string       `yaml:"framing" enum:"confluent,prefix,header,single_object,none" doc:"Where the schema id stands: confluent takes a header or the 5-byte prefix. Default: confluent with a registry, else none."`
	Indexes  string       `yaml:"indexes" enum:"zigzag,plain" doc:"How Protobuf message indexes are spelled: zigzag is what serializers write, plain what old ones wrote."`
	Schema   string       `yaml:"schema" doc:"File of the one writer schema, for framing none and single_object."`
	Message  string       `yaml:"message" doc:"Full name of the Protobuf message, for framing none."`
	Reader   string       `yaml:"reader" doc:"File of an Avro reader schema: every record is read as it says, with its defaults, aliases and promotions. The value that leaves keeps the writer's bytes."`
	Key      *DecodeKey   `yaml:"key" doc:"How keys are read: then key in a condition has the fields of the key, and a key that cannot be read fails its record. Without it a key is bytes."`
	Limits   DecodeLimits `yaml:"limits" doc:"What one value may cost, and one key."`
}

// DecodeKey says how keys are read.
type DecodeKey struct {
	Format   string `yaml:"format" required:"true" enum:"avro,json,jsonschema,protobuf" doc:"What the key is."`
	Registry string `yaml:"registry" doc:"Name of the schema registry in the worker file."`
	Framing  string `yaml:"framing" enum:"confluent,prefix,header,single_object,none" doc:"Where the schema id of the key stands."`
	Indexes  string `yaml:"indexes" enum:"zigzag,plain" doc:"How Protobuf message indexes are spelled."`
	Schema   string `yaml:"schema" doc:"File of the one writer schema, for framing none and single_object."`
	Message  string `yaml:"message" doc:"Full name of the Protobuf message, for framing none."`
}

// DecodeLimits bound what one value may cost.
type DecodeLimits struct {
	Bytes     config.Size `yaml:"bytes" default:"1MiB" doc:"Of a value, framing included."`
	Depth     int64       `yaml:"depth" default:"100" doc:"Of records, arrays and maps in each other."`
	Items     int64       `yaml:"items" default:"1000000" doc:"Of all arrays and maps of a value together."`
	Expansion config.Size `yaml:"expansion" default:"8MiB" doc:"Of the value as JSON."`
}

// Validate refuses limits that bound nothing.
func (l *DecodeLimits) Validate(n config.Node) config.Problems {
	var ps config.Problems
	for name, v := range map[string]int64{"bytes": int64(l.Bytes), "depth": l.Depth, "items": l.Items, "expansion": int64(l.Expansion)} {
		if v <= 0 {
			ps = append(ps, n.Problem(name, config.CodeValue, "a limit is more than 0", "leave it out for the default"))
		}
	}
	if l.Depth > 10_000 {
		ps = append(ps, n.Problem("depth", config.CodeValue, "deeper than 10,000 could end the process", "write 10000 or less"))
	}
	return ps.Sorted()
}

// Validate refuses what does not fit together.
func (s *DecodeSettings) Validate(n config.Node) config.Problems {
	ps := s.value().check(n)
	if s.Reader != "" && s.Format != "avro" && s.Format != "" {
		ps = append(ps, n.Problem("reader", config.CodeValue, "only avro has reader schemas", "leave it out"))
	}
	return ps
}

// Validate refuses what does not fit together.
func (k *DecodeKey) Validate(n config.Node) config.Problems { return k.part().check(n) }

// part is how a value or a key is written.
type part struct {
	format, registry, framing, indexes, schema, message string
	key                                                 bool
}

func (s *DecodeSettings) value() part {
	return part{s.Format, s.Registry, s.Framing, s.Indexes, s.Schema, s.Message, false}
}

func (k *DecodeKey) part() part {
	return part{k.Format, k.Registry, k.Framing, k.Indexes, k.Schema, k.Message, true}
}

func (p part) check(n config.Node) (ps config.Problems) {
	file := p.framing == codec.FramingNone || p.framing == codec.FramingSingle
	schemaless := p.format == "json" || p.format == "raw" || p.format == ""
	switch {
	case p.schema != "" && schemaless && p.format != "":
		ps = append(ps, n.Problem("schema", config.CodeValue, p.format+" has no schema", "leave it out"))
	case p.schema != "" && !file:
		ps = append(ps, n.Problem("schema", config.CodeValue, "a schema file is for values that do not name a schema of a registry", "write framing: none or framing: single_object"))
	case p.schema == "" && !schemaless && file:
		ps = append(ps, n.Problem("schema", config.CodeMissing, "framing "+p.framing+" needs the writer's schema", "write schema: FILE"))
	case p.registry == "" && !schemaless && !file:
		ps = append(ps, n.Problem("registry", config.CodeMissing, p.format+" needs a schema registry", "write registry: main"))
	}
	if p.message != "" && (p.format != "protobuf" || p.framing != codec.FramingNone) {
		ps = append(ps, n.Problem("message", config.CodeValue, "message is for protobuf with framing none: else the value names it", "leave it out"))
	}
	return ps
}

// Source is what decoders are made from: registries by name, and files by their path from the folder of the pipeline file.
type Source struct {
	Registry func(name string) (codec.Registry, error)
	File     func(path string) ([]byte, error)
}

// Decoder builds the decoder of the values; the registry is nil without one. Codes: ERR_CONFIG_*, ERR_SCHEMA_INVALID.
func (s *DecodeSettings) Decoder(from Source) (*codec.Decoder, codec.Registry, error) {
	c, reg, err := s.value().config(from, s.Limits)
	if err != nil {
		return nil, nil, err
	}
	if s.Reader != "" {
		text, err := from.File(s.Reader)
		if err != nil {
			return nil, nil, err
		}
		c.Reader = string(text)
	}
	dec, err := codec.NewDecoder(c, reg)
	return dec, reg, err
}

// KeyDecoder builds the decoder of the keys; nil if they are not to be read. Codes as Decoder.
func (s *DecodeSettings) KeyDecoder(from Source) (*codec.Decoder, error) {
	if s.Key == nil {
		return nil, nil
	}
	c, reg, err := s.Key.part().config(from, s.Limits)
	if err != nil {
		return nil, err
	}
	return codec.NewDecoder(c, reg)
}

// Registries are the names of the registries that the stage asks.
func (s *DecodeSettings) Registries() (names []string) {
	for _, p := range s.parts() {
		if p.registry != "" {
			names = append(names, p.registry)
		}
	}
	return names
}

func (s *DecodeSettings) parts() []part {
	if s.Key == nil {
		return []part{s.value()}
	}
	return []part{s.value(), s.Key.part()}
}

func (p part) config(from Source, l DecodeLimits) (c codec.DecodeConfig, reg codec.Registry, err error) {
	c = codec.DecodeConfig{Format: p.format, Framing: p.framing, Indexes: p.indexes, Message: p.message, Key: p.key, Limits: codec.Limits{
		Bytes: int64(l.Bytes), Depth: l.Depth, Items: l.Items, Expansion: int64(l.Expansion)}}
	if p.registry != "" {
		if reg, err = from.Registry(p.registry); err != nil {
			return c, nil, err
		}
	}
	if p.schema != "" {
		text, err := from.File(p.schema)
		if err != nil {
			return c, nil, err
		}
		c.Schema = string(text)
	}
	return c, reg, nil
}

func decodeKind() pipeline.Kind {
	return pipeline.Kind{
		Name: "decode", Phase: pipeline.PhaseDecode,
		Doc:      "Reads the value under its writer schema, so that later stages see fields. A record that cannot be read fails here.",
		Settings: func() any { return &DecodeSettings{} },
		Build:    buildDecode,
	}
}

type decode struct {
	name    string
	dec     *codec.Decoder
	key     *codec.Decoder // nil: keys stay bytes
	slot    pipeline.Slot[codec.Scratch]
	keySlot pipeline.Slot[codec.Scratch]
}

func buildDecode(settings any, env pipeline.Env) (pipeline.Stage, pipeline.Close, error) {
	s := settings.(*DecodeSettings)
	from := Source{
		Registry: func(name string) (codec.Registry, error) {
			return resource[codec.Registry](env, ResourceRegistry, name)
		},
		File: func(path string) ([]byte, error) { return resource[[]byte](env, ResourceFile, path) },
	}
	dec, _, err := s.Decoder(from)
	if err != nil {
		return nil, nil, err
	}
	key, err := s.KeyDecoder(from)
	if err != nil {
		return nil, nil, err
	}
	d := &decode{name: env.Name, dec: dec, key: key, slot: pipeline.NewSlot(env.Layout, codec.NewScratch)}
	if key != nil {
		d.keySlot = pipeline.NewSlot(env.Layout, codec.NewScratch)
	}
	return d, nil, nil
}

// Process sets the view of each live record, and that of its key if keys are read. A null value has none and passes: it is a
// delete marker.
func (d *decode) Process(ctx context.Context, b *pipeline.Batch) error {
	s := d.slot.Of(b)
	s.Reset()
	for i := range b.Recs {
		if !b.Live(i) {
			continue
		}
		v, f := d.dec.Decode(ctx, s, b.Recs[i].Value, b.Recs[i].Headers)
		if f != nil {
			f.Stage = d.name
			b.Fail(i, *f)
			continue
		}
		b.Views[i] = v
	}
	if d.key != nil {
		d.keys(ctx, b)
	}
	return nil
}

func (d *decode) keys(ctx context.Context, b *pipeline.Batch) {
	s := d.keySlot.Of(b)
	s.Reset()
	for i := range b.Recs {
		if !b.Live(i) {
			continue
		}
		v, f := d.key.Decode(ctx, s, b.Recs[i].Key, b.Recs[i].Headers)
		if f != nil {
			f.Stage, f.Params = d.name, append(f.Params, pipeline.Str("part", "key"))
			b.Fail(i, *f)
			continue
		}
		b.SetKeyView(i, v)
	}
}
