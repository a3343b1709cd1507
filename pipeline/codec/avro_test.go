package codec

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"reprieve.dev/pipeline"
)

func parse(t testing.TB, text string, refs ...Reference) *Schema {
	t.Helper()
	s, f := ParseSchema(pipeline.SchemaRef{Format: FormatAvro, ID: 1}, text, refs...)
	if f != nil {
		t.Fatalf("schema: %s: %v", f.Reason(), f.Cause)
	}
	return s
}

func bare(t testing.TB, schema string, cfg DecodeConfig) *Decoder {
	t.Helper()
	cfg.Format, cfg.Framing, cfg.Schema = FormatAvro, FramingNone, schema
	d, err := NewDecoder(cfg, nil)
	if err != nil {
		t.Fatalf("decoder: %v: %v", err, err.(*pipeline.Error).Cause)
	}
	return d
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func decode(t testing.TB, d *Decoder, value []byte) (pipeline.View, *pipeline.Failure) {
	t.Helper()
	return d.Decode(t.Context(), NewScratch(), value, nil)
}

func text(t testing.TB, v pipeline.View) string {
	t.Helper()
	b, err := v.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func path(t testing.TB, s string) *pipeline.Path {
	t.Helper()
	p, err := pipeline.NewPath(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func get(t testing.TB, v pipeline.View, p string) string {
	t.Helper()
	x, ok := v.Get(path(t, p))
	if !ok {
		return "(none)"
	}
	if x.Kind == pipeline.KindDecimal {
		return string(AppendDecimal(nil, x.Bytes, int(x.Int)))
	}
	return string(x.AppendText(nil))
}

// caseRecord is a row of a case's records.json.
type caseRecord struct {
	Offset int64           `json:"offset"`
	Value  *string         `json:"value_hex"`
	Format string          `json:"format"`
	Expect json.RawMessage `json:"expect"`
	Gen    *struct {
		Prefix, Repeat, Suffix string
		Times                  int
	} `json:"-"`
	Generator json.RawMessage `json:"generator"`
}

func (r caseRecord) bytes(t testing.TB) []byte {
	t.Helper()
	if r.Generator != nil {
		var g struct {
			Prefix string `json:"prefix_hex"`
			Repeat string `json:"repeat_hex"`
			Times  int    `json:"times"`
			Suffix string `json:"suffix_hex"`
		}
		if err := json.Unmarshal(r.Generator, &g); err != nil {
			t.Fatal(err)
		}
		return unhex(t, g.Prefix+strings.Repeat(g.Repeat, g.Times)+g.Suffix)
	}
	if r.Value == nil {
		return nil
	}
	b := unhex(t, *r.Value)
	if b == nil {
		b = []byte{}
	}
	return b
}

func loadCase(t testing.TB, file string, into any) {
	t.Helper()
	b, err := os.ReadFile("testdata/cases/" + file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatal(err)
	}
}

// caseRegistry is a folder registry of a case's registry.json.
func caseRegistry(t testing.TB, id string) Registry {
	t.Helper()
	var schemas map[string]json.RawMessage
	loadCase(t, id+"/registry.json", &schemas)
	dir := t.TempDir()
	for name, text := range schemas {
		if err := os.WriteFile(dir+"/"+name+".avsc", text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Folder(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func caseDecoder(t testing.TB, id string, cfg DecodeConfig) *Decoder {
	t.Helper()
	if cfg.Format == "" {
		cfg.Format = FormatAvro
	}
	d, err := NewDecoder(cfg, caseRegistry(t, id))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func param(f *pipeline.Failure, name string) string {
	for _, p := range f.Params {
		if p.Name == name {
			return p.Value()
		}
	}
	return ""
}
