package config

// Encode is the setting route.encode: the word json, or a section that names an Avro subject. The zero value is not said.
type Encode struct {
	Format   string // "", "json", "avro"
	Subject  string // whose newest schema the value is written in; avro only
	Registry string // name of its registry; "" is that of the decode stage
}

type encodeForm struct {
	Avro     string `yaml:"avro" required:"true" doc:"Subject whose newest schema the value is written in."`
	Registry string `yaml:"registry" doc:"Name of the schema registry in the worker file; if not said the one of the decode stage."`
}

// UnmarshalConfig reads the word or the mapping.
func (e *Encode) UnmarshalConfig(n Node) Problems {
	if n.IsNull() {
		return nil
	}
	if text, ok := n.Text(); ok {
		if text != "json" {
			return Problems{n.Problem("", CodeValue, "it is no way to write a value", "write json, or {avro: SUBJECT}")}
		}
		e.Format = text
		return nil
	}
	var form encodeForm
	ps := n.Decode(&form)
	if form.Avro == "" && len(ps) == 0 {
		ps = append(ps, n.Problem("avro", CodeValue, "a subject has a name", "for example billing.ledger.v1-value"))
	}
	*e = Encode{Format: "avro", Subject: form.Avro, Registry: form.Registry}
	return ps
}

func (e Encode) configSchema() map[string]any { return eitherSchema(encodeForm{}, "json") }
