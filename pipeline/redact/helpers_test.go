package redact_test

import (
	"bytes"
	"context"
	"os"
	"testing"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/redact"
)

func mustNew(t testing.TB, cfg redact.Config, o redact.Options) *redact.Redactor {
	t.Helper()
	r, err := redact.New(cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// jsonView decodes a JSON value with the real codec.
func jsonView(t failer, value []byte) pipeline.View {
	t.Helper()
	d, err := codec.NewDecoder(codec.DecodeConfig{Format: codec.FormatJSON}, nil)
	if err != nil {
		t.Fatal(err)
	}
	v, f := d.Decode(context.Background(), codec.NewScratch(), value, nil)
	if f != nil {
		t.Fatalf("decode %q: %s", value, f.Reason())
	}
	return v
}

// decoded is jsonView, or nil when the codec refuses the value: repeated members.
func decoded(t testing.TB, value []byte) pipeline.View {
	t.Helper()
	d, err := codec.NewDecoder(codec.DecodeConfig{Format: codec.FormatJSON}, nil)
	if err != nil {
		t.Fatal(err)
	}
	v, f := d.Decode(context.Background(), codec.NewScratch(), value, nil)
	if f != nil {
		return nil
	}
	return v
}

// redactJSON runs Value and fails the test on an error.
func redactJSON(t testing.TB, r *redact.Redactor, value string) string {
	t.Helper()
	out, changed, err := r.Value(nil, jsonView(t, []byte(value)), r.NewEditor())
	if err != nil {
		t.Fatalf("%s: %v", value, err)
	}
	if !changed {
		return value
	}
	return string(out)
}

func sanitize(t testing.TB, r *redact.Redactor, rec *pipeline.Record, v pipeline.View) pipeline.Clean {
	t.Helper()
	c, err := r.Sanitize("orders", rec, v)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// everything is all bytes of a letter in one text, to look for what must be gone.
func everything(c pipeline.Clean) []byte {
	b := append([]byte{}, c.Key...)
	b = append(append(b, '\n'), c.Value...)
	for _, h := range c.Headers {
		b = append(append(append(append(b, '\n'), h.Name...), ": "...), h.Value...)
	}
	return b
}

func wantGone(t *testing.T, in []byte, canaries ...string) {
	t.Helper()
	for _, c := range canaries {
		if bytes.Contains(in, []byte(c)) {
			t.Errorf("%q is left in %q", c, in)
		}
	}
}

func wantThere(t *testing.T, in []byte, texts ...string) {
	t.Helper()
	for _, c := range texts {
		if !bytes.Contains(in, []byte(c)) {
			t.Errorf("%q is gone from %q", c, in)
		}
	}
}

// failer is what the helpers need of a test or a rapid check.
type failer interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}
