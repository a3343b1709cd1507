package codec_test

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"reprieve.dev/examples/billing"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
)

// masks replaces strings by others of the same or a lesser length.
type masks struct{ keep func(path string) bool }

func (masks) Plan(_, _ string, kind pipeline.ValueKind, _ []string) pipeline.Rule {
	if kind == pipeline.KindString {
		return 1
	}
	return 0
}

func (m masks) Edit(_ pipeline.Rule, leaf pipeline.Leaf) pipeline.Edit {
	if m.keep(leaf.Path) {
		return pipeline.Edit{}
	}
	return pipeline.Edit{Kind: pipeline.Replace, Text: bytes.Repeat([]byte("*"), len(leaf.Value.Bytes)/2)}
}

// A view that is made to read what its Edit wrote reads it as a view does that validated it anew; any other bytes are validated.
func TestAViewReadsWhatItsEditWrote(t *testing.T) {
	schema, f := codec.ParseSchema(pipeline.SchemaRef{Format: codec.FormatAvro, ID: 7}, billing.Schema())
	if f != nil {
		t.Fatal(f.Cause)
	}
	d, err := codec.NewDecoder(codec.DecodeConfig{Format: codec.FormatAvro, Framing: codec.FramingNone, Schema: billing.Schema()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var paths []*pipeline.Path
	for _, p := range schema.Places() {
		if path, err := pipeline.NewPath(p.Path); err == nil {
			paths = append(paths, path)
		}
	}
	for _, text := range []string{"/lines/0/sku", "/lines/1/amount_minor", "/attributes/x", "/customer", "/notes"} {
		path, err := pipeline.NewPath(text)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	g := billing.Generator{Seed: 5, Secrets: 0.3, SchemaID: 7}
	rapid.Check(t, func(rt *rapid.T) {
		var m pipeline.Message
		g.Invoice(&m, rapid.IntRange(0, 5000).Draw(rt, "invoice"))
		value := m.Value[5:]
		hidden := map[string]bool{}
		for _, p := range rapid.SliceOfDistinct(rapid.SampledFrom(schema.Places()), func(p codec.Place) string { return p.Path }).Draw(rt, "hidden") {
			hidden[p.Path] = true
		}
		deep := rapid.Bool().Draw(rt, "lines")
		s := codec.NewScratch()
		v, f := d.Decode(t.Context(), s, value, nil)
		if f != nil {
			rt.Fatal(f.Reason())
		}
		out, changed, err := v.Edit(nil, masks{func(path string) bool { return !hidden[path] && !(deep && len(path) > 7 && path[:7] == "/lines/") }})
		if err != nil {
			rt.Fatal(err)
		}
		if !changed {
			return
		}
		fresh, f := d.Decode(t.Context(), codec.NewScratch(), slices.Clone(out), nil)
		if f != nil {
			rt.Fatal(f.Reason())
		}
		if rapid.Bool().Draw(rt, "damaged") { // the same length, other bytes at another place: not what Edit wrote
			bad := slices.Clone(out)
			bad = append(bad[:0], bad[1:]...)
			bad = append(bad, 0xff)
			_, f := d.Decode(t.Context(), codec.NewScratch(), slices.Clone(bad), nil)
			if err := v.Rebind(bad); (f == nil) != (err == nil) {
				rt.Fatalf("rebind to other bytes: %v, decoding them: %v", err, f)
			}
			return
		}
		if err := v.Rebind(out); err != nil {
			rt.Fatal(err)
		}
		want, err1 := fresh.AppendJSON(nil)
		got, err2 := v.AppendJSON(nil)
		if err1 != nil || err2 != nil || !bytes.Equal(got, want) {
			rt.Fatalf("%s\n%s\n%v %v", got, want, err1, err2)
		}
		for _, p := range paths {
			a, okA := v.Get(p)
			b, okB := fresh.Get(p)
			if okA != okB || a.Kind != b.Kind || a.Int != b.Int || !bytes.Equal(a.Bytes, b.Bytes) {
				rt.Fatalf("%s: %+v %v, want %+v %v", p, a, okA, b, okB)
			}
		}
		again, changedA, errA := v.Edit(nil, masks{func(path string) bool { return path != "/notes" && path != "/reference" }})
		wanted, changedB, errB := fresh.Edit(nil, masks{func(path string) bool { return path != "/notes" && path != "/reference" }})
		if changedA != changedB || errA != nil || errB != nil || !bytes.Equal(again, wanted) {
			rt.Fatal("a second edit gives something else")
		}
	})
}
