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
	Registry string       `yaml:"registry" doc:"Name of the schema registry in the worker file; avro, jsonschema and protobuf need one."`
	Framing  string       `yaml:"framing" enum:"confluent,prefix,header,single_object,none" doc:"Where the schema id stands: confluent takes a header or the 5-byte prefix. Default: confluent with a registry, else none."`
	Indexes  string       `yaml:"indexes" enum:"zigzag,plain" doc:"How Protobuf message indexes are spelled: zigzag is what serializers write, plain what old ones wrote."`
	Limits   DecodeLimits `yaml:"limits" doc:"What one value may cost."`
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

// Validate refuses a format that needs a registry and names none.
func (s *DecodeSettings) Validate(n config.Node) config.Problems {
	if s.Registry == "" && s.Format != "" && s.Format != "json" && s.Format != "raw" {
		return config.Problems{n.Problem("registry", config.CodeMissing, s.Format+" needs a schema registry", "write registry: main")}
	}
	return nil
}

func (s *DecodeSettings) codec() codec.DecodeConfig {
	return codec.DecodeConfig{Format: s.Format, Framing: s.Framing, Indexes: s.Indexes, Limits: codec.Limits{
		Bytes: int64(s.Limits.Bytes), Depth: s.Limits.Depth, Items: s.Limits.Items, Expansion: int64(s.Limits.Expansion)}}
}

func decodeKind() pipeline.Kind {
	return pipeline.Kind{
		Name: "decode", Phase: pipeline.PhaseDecode,
		Doc:      "Reads the value under its writer schema, so that later stages see fields. A record that cannot be read fails here.",
		Settings: func() any { return &DecodeSettings{} },
		Build:    buildDecode,
	}
}

// Decoder builds the decoder of the settings; the registry is nil without one. lookup opens registries by name.
func (s *DecodeSettings) Decoder(lookup func(name string) (codec.Registry, error)) (*codec.Decoder, codec.Registry, error) {
	var reg codec.Registry
	if s.Registry != "" {
		var err error
		if reg, err = lookup(s.Registry); err != nil {
			return nil, nil, err
		}
	}
	dec, err := codec.NewDecoder(s.codec(), reg)
	return dec, reg, err
}

type decode struct {
	name string
	dec  *codec.Decoder
	slot pipeline.Slot[codec.Scratch]
}

func buildDecode(settings any, env pipeline.Env) (pipeline.Stage, pipeline.Close, error) {
	s := settings.(*DecodeSettings)
	dec, _, err := s.Decoder(func(name string) (codec.Registry, error) {
		return resource[codec.Registry](env, ResourceRegistry, name)
	})
	if err != nil {
		return nil, nil, err
	}
	return &decode{env.Name, dec, pipeline.NewSlot(env.Layout, codec.NewScratch)}, nil, nil
}

// Process sets the view of each live record. A null value has none and passes: it is a delete marker.
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
	return nil
}
