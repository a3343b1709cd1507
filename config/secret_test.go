package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// TestINVConfigSecretIsNeverPrinted holds INV-CONFIG-SECRET for every way that Go prints a value.
func TestINVConfigSecretIsNeverPrinted(t *testing.T) {
	s := NewSecret(canary)
	type hidden struct{ inner Secret }
	type shown struct {
		Password Secret
		Pointer  *Secret
		List     []Secret
		Map      map[string]Secret
		Client   Properties
		Any      any
		hidden   hidden
	}
	v := shown{s, &s, []Secret{s}, map[string]Secret{"a": s}, Properties{"sasl.password": canary, "client.id": "x"}, s, hidden{s}}
	var out bytes.Buffer
	fmt.Fprintf(&out, "%p %p %p\n", s, &s, map[string]any{"s": s, "h": hidden{s}}) // %p prints addresses
	for _, verb := range "vsdqxXobBcUtTeEfFgG" {
		for _, flags := range []string{"", "+", "#", "-20", "+#", "020", " "} {
			format := "%" + flags + string(verb)
			fmt.Fprintf(&out, format+format+format+format+"\n", s, &s, v, &v)
		}
	}
	for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(h).Info("m", "s", s, "v", v, "p", v.Client, slog.Group("g", "s", &s))
	}
	for _, x := range []any{s, &s, v, &v} {
		j, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(j)
	}
	y, err := yaml.Marshal(map[string]any{"s": s, "v": v.Client, "l": v.List})
	if err != nil {
		t.Fatal(err)
	}
	out.Write(y)
	fmt.Fprint(&out, fmt.Errorf("with %v and %w", s, Problems{{Text: fmt.Sprint(s)}}))
	if strings.Contains(out.String(), canary) {
		for line := range strings.Lines(out.String()) {
			if strings.Contains(line, canary) {
				t.Errorf("shown: %s", line)
			}
		}
	}
	if !strings.Contains(out.String(), "x") || !strings.Contains(out.String(), "***") {
		t.Error("nothing is printed")
	}
	if s.Reveal() != canary || !s.Equal(NewSecret(canary)) || s.Equal(NewSecret("")) || s.IsZero() || !(Secret{}).IsZero() {
		t.Error("the secret is lost")
	}
}

func TestINVConfigSecretStaysOutOfProblemsDumpsAndDigests(t *testing.T) {
	opt := func(value string) Options {
		return Options{
			Env:      func(string) (string, bool) { return value, true },
			ReadFile: func(string) ([]byte, error) { return []byte(value + "\n"), nil },
		}
	}
	const text = `# a comment
clusters: {main: {bootstrap.servers: "h:1", sasl.password: "${PW}", ssl.key.pem: "${file:key.pem}"}}
ledgers: {main: "sqlite:${PW}"}
registries: {main: {url: "http://r", password: "${PW}", token: literal-token-value}}
keys: {hmac: [{id: h1, secret: "${file:keys/hmac}"}]}
alerts: {webhook: {url: "${PW}", headers: {X-Key: "${PW}"}}}
http: {tokens: [{subject: a, token: "${PW}", roles: [r]}]}
`
	digest := func(value, text string) string {
		w, doc, ps := LoadWorker("w.yaml", []byte(text), opt(value))
		if len(ps) != 0 {
			t.Fatal(ps)
		}
		if w.Registries["main"].Password.Reveal() != value || w.Clusters["main"]["ssl.key.pem"] != value {
			t.Fatal("the value did not arrive")
		}
		if dump := string(doc.Dump()); strings.Contains(dump, value) || strings.Contains(dump, "literal-token-value") {
			t.Errorf("the dump shows a secret:\n%s", dump)
		}
		if all := fmt.Sprintf("%v %+v %#v", w, w, w); strings.Contains(all, value) || strings.Contains(all, "literal-token-value") {
			t.Error("printing the worker shows a secret")
		}
		return doc.Digest()
	}
	one := digest(canary+"-with-more-bytes", text)
	if other := digest(canary+"-rotated-bytes", text); other != one {
		t.Error("the digest depends on the value of a secret")
	}
	if other := digest(canary+"-with-more-bytes", strings.Replace(text, `password: "${PW}"`, `password: "${OTHER}"`, 1)); other == one {
		t.Error("the digest does not depend on the reference of a secret")
	}
	if other := digest(canary+"-with-more-bytes", strings.Replace(text, "literal-token-value", "another-literal", 1)); other != one {
		t.Error("the digest depends on a literal secret")
	}
}
