package conformance_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/tests/conformance"
	"reprieve.dev/transforms"
)

type tt struct{ *testing.T }

func (t tt) Run(name string, f func(conformance.T)) bool {
	return t.T.Run(name, func(t *testing.T) { f(tt{t}) })
}

func envelopes(values ...string) []transforms.Envelope {
	out := make([]transforms.Envelope, len(values))
	for i, v := range values {
		out[i] = transforms.Envelope{Item: pipeline.ID(fmt.Sprintf("q%d", i)), Topic: "invoices", Schema: "json",
			Record: pipeline.Record{Key: []byte("k"), Headers: []pipeline.Header{{Name: "h", Value: nil}, {Name: "h", Value: []byte{}}}}}
		if v != "null" {
			out[i].Record.Value = []byte(v)
		}
	}
	return out
}

func TestBuiltInsConform(t *testing.T) {
	dec, err := codec.NewDecoder(codec.DecodeConfig{Format: codec.FormatJSON}, nil)
	if err != nil {
		t.Fatal(err)
	}
	lib := transforms.NewLibrary(transforms.Options{Decoder: dec})
	for ref, config := range map[string]string{
		"set@1.0.0": `{"values":{"/currency":"EUR"}}`, "rename@1.0.0": `{"names":{"/currency":"cur"}}`, "remove@1.0.0": `{"paths":["/net"]}`,
		"cast@1.0.0": `{"fields":{"/net":"string"}}`, "upcast@1.0.0": `{"defaults":{"/region":"eu"}}`,
		"json-patch@1.0.0": `{"patch":[{"op":"replace","path":"/net","value":2}]}`, "merge-patch@1.0.0": `{"patch":{"currency":null}}`,
		"cel@1.0.0": `{"values":{"/currency":"view.currency + 'X'"}}`, "headers@1.0.0": `{"set":{"region":"eu"}}`,
	} {
		t.Run(ref, func(t *testing.T) {
			conformance.RunTransform(tt{t}, conformance.Repair{
				New: func(t conformance.T) transforms.Transform {
					tr, err := lib.Parse(ref, []byte(config))
					if err != nil {
						t.Fatalf("%v", err)
					}
					return tr
				},
				Envelopes: envelopes(`{"currency":"eur","net":1.50}`, `{"net":1}`, `{`, "null", `{"currency":"EUR","net":"1"}`),
			})
		})
	}
}

// recorder is a test that notes its failures.
type recorder struct {
	*testing.T
	failed *atomic.Int64
	names  *[]string
}

type fatal struct{}

func (r recorder) Errorf(string, ...any) { r.failed.Add(1) }
func (r recorder) Fatalf(string, ...any) { r.failed.Add(1); panic(fatal{}) }
func (r recorder) Run(name string, f func(conformance.T)) bool {
	if strings.Contains(name, "many at once") {
		return true // what is impure races with itself, which the race detector would blame on this test
	}
	before := r.failed.Load()
	func() {
		defer func() {
			if v := recover(); v != nil {
				if _, ours := v.(fatal); !ours {
					panic(v)
				}
			}
		}()
		f(r)
	}()
	if r.failed.Load() > before {
		*r.names = append(*r.names, name)
	}
	return r.failed.Load() == before
}

// impure counts the envelopes that it has seen, writes into them, or loses one.
type impure struct {
	how  string
	seen int
}

func (i *impure) Info() transforms.Info {
	return transforms.Info{Name: "impure", Version: "1.0.0", Artifact: "sha256:a", Config: "sha256:c", Level: "builtin"}
}

func (i *impure) Repair(_ context.Context, in []transforms.Envelope) ([]transforms.Result, error) {
	var out []transforms.Result
	for k := range in {
		e := &in[k]
		r := transforms.Result{Key: e.Record.Key, Value: e.Record.Value, Headers: e.Record.Headers, Schema: e.Schema}
		switch i.how {
		case "counts":
			i.seen++
			r.Value = fmt.Append(nil, i.seen)
		case "writes":
			if len(e.Record.Value) > 0 {
				e.Record.Value[0] ^= 1
			}
		case "loses":
			if k == len(in)-1 {
				continue
			}
		}
		out = append(out, r)
	}
	return out, nil
}

func TestWhatIsImpureIsFound(t *testing.T) {
	for how, want := range map[string]string{"counts": "any grouping and order", "writes": "not written to", "loses": "one result for each"} {
		t.Run(how, func(t *testing.T) {
			r := recorder{t, new(atomic.Int64), new([]string)}
			func() {
				defer func() { _ = recover() }()
				conformance.RunTransform(r, conformance.Repair{New: func(conformance.T) transforms.Transform { return &impure{how: how} }, Envelopes: envelopes(`{}`, `[]`, `{"a":1}`)})
			}()
			if !strings.Contains(strings.Join(*r.names, "; "), want) {
				t.Errorf("found only %v", *r.names)
			}
		})
	}
}
