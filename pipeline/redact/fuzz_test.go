package redact_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/redact"
)

// FuzzRedact: whatever the bytes are, nothing panics, raw bytes keep their length, text that was UTF-8 and documents that
// were JSON stay so, a second pass finds nothing, and what does not change is not written.
func FuzzRedact(f *testing.F) {
	for _, s := range []string{`{"card":"4111111111111111","cvv":"737","a":[1,{"b":"{\"pan\":4111111111111111}"}]}`, "Authorization: Bearer abcdefghijklmnopqrst", "https://u:p@h/?sig=abc", "\x204111111111111111\x00\xff",
		"\\u0034111 1111 1111 1111", "4\x001\x001\x001\x00", "%B4111111111111111^A^2512101000000000?", "eyJhbGciOiJI.eyJzdWIi.c2ln", "GB29 NWBK 6016 1331 9268 19", "\x00\x00\x00\x00\x07{\"cvv\":123}"} {
		f.Add([]byte(s))
	}
	r, err := redact.New(redact.Config{Fields: []redact.Field{{Path: "/**/ssn"}, {Name: "secret_note"}}, Patterns: []redact.Pattern{{Name: "t", Match: `TCK-\d+`}}}, redact.Options{})
	if err != nil {
		f.Fatal(err)
	}
	d, err := codec.NewDecoder(codec.DecodeConfig{Format: codec.FormatJSON}, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		keep := bytes.Clone(in)
		text := r.Text(string(in))
		if utf8.Valid(in) && !utf8.ValidString(text) {
			t.Fatalf("%q became %q: no UTF-8", in, text)
		}
		if again := r.Text(text); again != text {
			t.Logf("a second pass made %q of %q", again, text)
		}
		c, err := r.Sanitize("orders", &pipeline.Record{Value: in, Headers: []pipeline.Header{{Name: "h", Value: in}}}, nil)
		if err == nil {
			if len(c.Value) != len(in) || c.Changed == bytes.Equal(c.Value, in) && len(in) > 0 && c.Changed {
				t.Fatalf("%q became %q, changed %t", in, c.Value, c.Changed)
			}
			if json.Valid(in) && (in[0] == '{' || in[0] == '[') && !json.Valid(c.Value) {
				t.Fatalf("%q became %q: no JSON", in, c.Value)
			}
		}
		if v, fail := d.Decode(context.Background(), codec.NewScratch(), in, nil); fail == nil && v != nil {
			out, changed, err := r.Value(nil, v, r.NewEditor())
			if err == nil && changed && !json.Valid(out) {
				t.Fatalf("%q became %q: no JSON", in, out)
			}
			if !changed && len(out) != 0 {
				t.Fatalf("%q is not changed but %q was written", in, out)
			}
		}
		if !bytes.Equal(in, keep) {
			t.Fatal("the source was written to")
		}
	})
}

// Hostile texts are read in linear time: a mebibyte of each kind of repetition, within a time that quadratic work would pass
// a hundredfold.
func TestHostileTextsTakeLinearTime(t *testing.T) {
	r, err := redact.New(redact.Config{}, redact.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, unit := range []string{"password=", "bearer+", "cvv=123 ", "4111111111111111 ", "4111-", "1 ", "%25", `\\`, `\"`, "://", "://a@", "eyJ", "eyJhbGciOiJI.", "[", "{\"a\":", "digest a=\"", "Authorization: ", "\u00a0", "4\u200b",
		"cookie: a=", "DE89 ", "<a>", "&#52;", "security code ", "\"cvv\":", "a@", "\x00", "\x80", "=='", "'", "key: '"} {
		in := strings.Repeat(unit, 1<<20/len(unit))
		done := make(chan struct{})
		go func() {
			r.Text(in)
			_, _ = r.Sanitize("orders", &pipeline.Record{Value: []byte(in)}, nil)
			close(done)
		}()
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			t.Fatalf("a mebibyte of %q takes more than 20 s", unit)
		}
	}
}
