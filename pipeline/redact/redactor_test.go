package redact_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/redact"
)

var testKey = []byte("0123456789abcdef0123456789abcdef")

func paths(t testing.TB, texts ...string) (ps []*pipeline.Path) {
	t.Helper()
	for _, s := range texts {
		p, err := pipeline.NewPath(s)
		if err != nil {
			t.Fatal(err)
		}
		ps = append(ps, p)
	}
	return ps
}

func TestFieldsGoByPathNameAndPattern(t *testing.T) {
	const doc = `{"customer":{"email":"erika@acme.example","name":"Erika","tags":["a","b"]},"lines":[{"sku":"A","price":1.10},{"sku":"B","price":2.20}],"active":true,"n":null,"ref":"TCK-123456 and TCK-654321"}`
	for _, c := range []struct {
		name string
		cfg  redact.Config
		want string
	}{
		{"one path is masked", redact.Config{Fields: []redact.Field{{Path: "/customer/email"}}},
			strings.Replace(doc, "erika@acme.example", "***", 1)},
		{"a star stands for every item", redact.Config{Fields: []redact.Field{{Path: "/lines/*/sku"}}},
			strings.NewReplacer(`"A"`, `"***"`, `"B"`, `"***"`).Replace(doc)},
		{"an index stands for one item", redact.Config{Fields: []redact.Field{{Path: "/lines/1/sku"}}},
			strings.Replace(doc, `"B"`, `"***"`, 1)},
		{"a number becomes 0", redact.Config{Fields: []redact.Field{{Path: "/lines/*/price"}}},
			strings.NewReplacer("1.10", "0", "2.20", "0").Replace(doc)},
		{"a composite goes with its leaves", redact.Config{Fields: []redact.Field{{Path: "/customer"}}},
			strings.NewReplacer("erika@acme.example", "***", "Erika", "***", `["a","b"]`, `["***","***"]`).Replace(doc)},
		{"two stars stand for any depth", redact.Config{Fields: []redact.Field{{Path: "/**/sku"}}},
			strings.NewReplacer(`"A"`, `"***"`, `"B"`, `"***"`).Replace(doc)},
		{"a name goes at any depth", redact.Config{Fields: []redact.Field{{Name: "SKU"}}},
			strings.NewReplacer(`"A"`, `"***"`, `"B"`, `"***"`).Replace(doc)},
		{"drop takes the member", redact.Config{Fields: []redact.Field{{Path: "/customer/email", Action: "drop"}}},
			strings.Replace(doc, `"email":"erika@acme.example",`, "", 1)},
		{"last4 keeps four signs", redact.Config{Fields: []redact.Field{{Path: "/customer/email", Action: "last4"}}},
			strings.Replace(doc, "erika@acme.example", "**************mple", 1)},
		{"a boolean becomes null", redact.Config{Fields: []redact.Field{{Path: "/active"}}},
			strings.Replace(doc, "true", "null", 1)},
		{"a pattern goes wherever it matches", redact.Config{Patterns: []redact.Pattern{{Name: "ticket", Match: `TCK-\d{6}`}}},
			strings.NewReplacer("TCK-123456", "***", "TCK-654321", "***").Replace(doc)},
		{"what is not there changes nothing", redact.Config{Fields: []redact.Field{{Path: "/nope"}, {Name: "nope"}}}, doc},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := mustNew(t, c.cfg, redact.Options{HashKey: testKey})
			if got := redactJSON(t, r, doc); got != c.want {
				t.Error(cmp.Diff(c.want, got))
			}
			// The same inside a string, and as bytes.
			q, err := json.Marshal(doc)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(c.name, "two") || strings.HasPrefix(c.name, "a name") || strings.HasPrefix(c.name, "a pattern") {
				var x struct{ Raw string }
				if err := json.Unmarshal([]byte(redactJSON(t, r, `{"raw":`+string(q)+`}`)), &x); err != nil {
					t.Fatal(err)
				}
				if x.Raw != c.want {
					t.Error(cmp.Diff(c.want, x.Raw))
				}
			}
		})
	}
}

func TestKeptPathsAreLeftAlone(t *testing.T) {
	r := mustNew(t, redact.Config{Keep: []string{"/meter/*"}}, redact.Options{})
	const doc = `{"meter":{"serialised":"4539578763621486","raw":"{\"x\":4539578763621486}"},"x":"4539578763621486"}`
	want := strings.Replace(doc, `"x":"4539578763621486"}`, `"x":"****************"}`, 1)
	if got := redactJSON(t, r, doc); got != want {
		t.Error(cmp.Diff(want, got))
	}
}

func TestActions(t *testing.T) {
	const doc = `{"note":"a 4539 5787 6362 1486 b","n":4539578763621486,"h":{"authorization":"Bearer canaryKEY003"},"cvv":"737"}`
	run := func(cfg redact.Config) map[string]any {
		return decodeJSON(t, []byte(redactJSON(t, mustNew(t, cfg, redact.Options{HashKey: testKey, HashKeyID: "k1"}), doc)))
	}
	t.Run("mask keeps the shape of a card and nothing of a token", func(t *testing.T) {
		m := run(redact.Config{})
		want := map[string]any{"note": "a **** **** **** **** b", "n": json.Number("0"), "h": map[string]any{"authorization": "Bearer ***"}, "cvv": "***"}
		if d := cmp.Diff(want, m); d != "" {
			t.Error(d)
		}
	})
	t.Run("last4", func(t *testing.T) {
		m := run(redact.Config{Actions: redact.Actions{PAN: "last4"}})
		if m["note"] != "a ************1486 b" || m["n"] != json.Number("1486") {
			t.Error(m)
		}
	})
	t.Run("drop", func(t *testing.T) {
		m := run(redact.Config{Actions: redact.Actions{PAN: "drop", CVV: "drop", Authorization: "drop"}})
		if _, ok := m["n"]; ok || m["note"] != "a  b" || m["cvv"] != nil {
			t.Error(m)
		}
	})
	t.Run("hash is keyed, the same for every spelling, and no card", func(t *testing.T) {
		m := run(redact.Config{Actions: redact.Actions{PAN: "hash", Authorization: "hash"}})
		note := m["note"].(string)
		if !strings.HasPrefix(note, "a hmac256:k1:") || len(note) != len("a hmac256:k1: b")+64 {
			t.Error(note)
		}
		other := mustNew(t, redact.Config{Actions: redact.Actions{PAN: "hash"}}, redact.Options{HashKey: testKey, HashKeyID: "k1"})
		if got := other.Text("a 4539-5787-6362-1486 b"); got != note {
			t.Errorf("%q and %q", got, note)
		}
		foreign := mustNew(t, redact.Config{Actions: redact.Actions{PAN: "hash"}}, redact.Options{HashKey: []byte("another key of 16"), HashKeyID: "k1"})
		if got := foreign.Text("a 4539-5787-6362-1486 b"); got == note {
			t.Error("another key makes the same hash")
		}
	})
	t.Run("a token is deterministic, keeps the length of a card and is none", func(t *testing.T) {
		cfg := redact.Config{Actions: redact.Actions{PAN: "tokenise", Authorization: "tokenise"}}
		m := run(cfg)
		note := strings.TrimSuffix(strings.TrimPrefix(m["note"].(string), "a "), " b")
		if len(note) != 16 || note != string(m["n"].(json.Number)) || passesLuhn(note) {
			t.Errorf("%q and %v", note, m["n"])
		}
		if d := cmp.Diff(m, run(cfg)); d != "" {
			t.Error(d)
		}
		auth := m["h"].(map[string]any)["authorization"].(string)
		if !strings.HasPrefix(auth, "Bearer tok_") {
			t.Error(auth)
		}
	})
	for _, a := range []string{"mask", "hash", "tokenise", "drop", "last4"} {
		t.Run("a second pass after "+a+" changes nothing", func(t *testing.T) {
			cfg := redact.Config{Actions: redact.Actions{PAN: a}, Fields: []redact.Field{{Path: "/s", Action: "mask"}}}
			if a != "last4" {
				cfg.Actions.Authorization = a
			}
			r := mustNew(t, cfg, redact.Options{HashKey: testKey})
			once := redactJSON(t, r, doc)
			if again := redactJSON(t, r, once); again != once {
				t.Errorf("%s became %s", once, again)
			}
		})
	}
}

func TestSecretsInIdentityAreRefused(t *testing.T) {
	r := mustNew(t, redact.Config{}, redact.Options{Identity: paths(t, "/event_id", "/order/id")})
	sealed := func(rec *pipeline.Record, v pipeline.View) {
		t.Helper()
		c, err := r.Sanitize("orders", rec, v)
		if pipeline.CodeOf(err) != pipeline.CodeRedactIdentity {
			t.Errorf("%+v: %v", rec, err)
		}
		if c.Key != nil || c.Value != nil || c.Headers != nil {
			t.Errorf("something is carried on: %+v", c)
		}
		if err != nil && strings.Contains(err.Error(), "4111") {
			t.Errorf("the error holds the card: %v", err)
		}
	}
	for _, doc := range []string{`{"event_id":"4111111111111111"}`, `{"order":{"id":4111111111111111}}`, `{"order":{"id":["x 4111-1111-1111-1111"]}}`} {
		sealed(&pipeline.Record{Value: []byte(doc)}, jsonView(t, []byte(doc)))
		sealed(&pipeline.Record{Value: []byte(doc)}, nil)
		out, changed, err := r.Value([]byte("before"), jsonView(t, []byte(doc)), r.NewEditor())
		if pipeline.CodeOf(err) != pipeline.CodeRedactIdentity || changed || string(out) != "before" {
			t.Errorf("Value: %q %t %v", out, changed, err)
		}
	}
	for _, key := range []string{"4111111111111111", "4111 1111 1111 1111", `{"card":"5555555555554444"}`, "Bearer abcdefghijklmnopqrst", "\x00\x00\x00\x00\x07\x204111111111111111"} {
		sealed(&pipeline.Record{Key: []byte(key), Value: []byte("{}")}, nil)
	}
	clean := &pipeline.Record{Key: []byte("47223179-9330-4259-b66c-f2db26efb20c"), Value: []byte(`{"event_id":"47223179-9330-4259-b66c-f2db26efb20c","card":"4111111111111111"}`)}
	c := sanitize(t, r, clean, jsonView(t, clean.Value))
	if string(c.Key) != string(clean.Key) || !c.Changed || bytes.Contains(c.Value, []byte("4111")) {
		t.Errorf("%s %s", c.Key, c.Value)
	}
}

func TestNullStaysNullAndEmptyStaysEmpty(t *testing.T) {
	r := mustNew(t, redact.Config{}, redact.Options{})
	c := sanitize(t, r, &pipeline.Record{Headers: []pipeline.Header{{Name: "a"}, {Name: "b", Value: []byte{}}}}, nil)
	if c.Key != nil || c.Value != nil || c.Changed || c.Headers[0].Value != nil || c.Headers[1].Value == nil {
		t.Errorf("%+v", c)
	}
	c = sanitize(t, r, &pipeline.Record{Key: []byte{}, Value: []byte{}}, nil)
	if c.Key == nil || c.Value == nil || c.Changed {
		t.Errorf("%+v", c)
	}
}

func TestHeadersAreRedactedByNameAndContent(t *testing.T) {
	r := mustNew(t, redact.Config{Fields: []redact.Field{{Name: "x-customer"}}}, redact.Options{})
	in := []pipeline.Header{
		{Name: "Authorization", Value: []byte("Bearer canaryKEY003")}, {Name: "authorization", Value: []byte("canaryKEY003")}, {Name: "Proxy-Authorization", Value: []byte("Basic YWNtZTpodW50ZXIy")},
		{Name: "Cookie", Value: []byte("sid=canaryKEY001; theme=dark")}, {Name: "Set-Cookie", Value: []byte("sid=canaryKEY001; Path=/")}, {Name: "X-Api-Key", Value: []byte("canaryKEY004")},
		{Name: "X-Customer", Value: []byte("Erika Mustermann")}, {Name: "note", Value: []byte("paid by 5555 5555 5555 4444")}, {Name: "raw", Value: []byte("\x00\x01\x204111111111111111\x02")},
		{Name: "card 4111111111111111", Value: []byte("x")}, {Name: "cvv", Value: []byte("737")}, {Name: "null"}, {Name: "note", Value: []byte("paid by 5555 5555 5555 4444")},
		{Name: "X-Original-Offset", Value: []byte("4111111111111111")}, {Name: "idempotency-key", Value: []byte("4539578763621486")}, {Name: "traceparent", Value: []byte("00-0af7651916cd43dd8448eb211c80319c-4539578763621486-01")},
		{Name: "reprieve-digest", Value: []byte("hmac256:k1:4539578763621486aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")}, {Name: "content-type", Value: []byte("application/json")},
	}
	before := append([]pipeline.Header(nil), in...)
	c := sanitize(t, r, &pipeline.Record{Headers: in}, nil)
	want := []string{"Bearer ***", "***", "Basic ***", "***", "***", "***", "***", "paid by **** **** **** ****", "\x00\x01\x20****************\x02", "x", "***", "",
		"paid by **** **** **** ****", "4111111111111111", "4539578763621486", string(in[15].Value), string(in[16].Value), "application/json"}
	for i, h := range c.Headers {
		if string(h.Value) != want[i] {
			t.Errorf("%s: %q, want %q", h.Name, h.Value, want[i])
		}
	}
	if c.Headers[9].Name != "card ****************" || c.Headers[11].Value != nil || c.Changed {
		t.Errorf("%q, %v, changed %t", c.Headers[9].Name, c.Headers[11].Value, c.Changed)
	}
	if d := cmp.Diff(before, in); d != "" {
		t.Errorf("the record was written to: %s", d)
	}
}

func TestCompressedBytesAreRefused(t *testing.T) {
	r := mustNew(t, redact.Config{}, redact.Options{})
	for _, magic := range []string{"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03", "\x28\xb5\x2f\xfd\x04\x00\x00\x00\x00", "PK\x03\x04\x14\x00\x00\x00\x08\x00", "\x04\x22\x4d\x18\x64\x40\xa7\x00\x00", "BZh91AY&SY0000"} {
		rec := &pipeline.Record{Value: []byte(magic + "....................")}
		if _, err := r.Sanitize("orders", rec, nil); pipeline.CodeOf(err) != pipeline.CodeRedactFailed {
			t.Errorf("%q: %v", magic, err)
		}
	}
}

func TestMemberNamesAreRedacted(t *testing.T) {
	r := mustNew(t, redact.Config{}, redact.Options{})
	for _, doc := range []string{`{"4111111111111111":"x","b":1}`, `{"a":{"4111111111111111":null}}`, `{"a":{"4111-1111-1111-1111":{}}}`, `{"4111111111111111":{"x":{"y":[1]}}}`, `{"4111111111111111":true}`, `{"4111111111111111":{"y":null}}`} {
		c := sanitize(t, r, &pipeline.Record{Value: []byte(doc)}, jsonView(t, []byte(doc)))
		if bytes.Contains(c.Value, []byte("1111")) || !json.Valid(c.Value) || !c.Changed {
			t.Errorf("%s became %s", doc, c.Value)
		}
		if out, changed, err := r.Value(nil, jsonView(t, []byte(doc)), r.NewEditor()); err == nil && (!changed || bytes.Contains(out, []byte("1111"))) || err != nil && pipeline.CodeOf(err) != pipeline.CodeRedactFailed {
			t.Errorf("%s: Value made %s, %t, %v", doc, out, changed, err)
		}
	}
}

func TestAvroRecordsAreRewrittenInPlace(t *testing.T) {
	dir := t.TempDir()
	schema := `{"type":"record","name":"Payment","fields":[{"name":"id","type":"string"},{"name":"number","type":"long"},{"name":"seen","type":"long"},{"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}},` +
		`{"name":"double","type":"double"},{"name":"note","type":["null","string"]},{"name":"email","type":"string","confluent:tags":["PII"]},{"name":"cvv","type":"int"},{"name":"blob","type":"bytes"},` +
		`{"name":"attrs","type":{"type":"map","values":"string"}},{"name":"dec","type":{"type":"bytes","logicalType":"decimal","precision":20,"scale":2}}]}`
	if err := os.WriteFile(filepath.Join(dir, "7.avsc"), []byte(schema), 0o600); err != nil {
		t.Fatal(err)
	}
	reg, err := codec.Folder(dir)
	if err != nil {
		t.Fatal(err)
	}
	d, err := codec.NewDecoder(codec.DecodeConfig{Format: codec.FormatAvro}, reg)
	if err != nil {
		t.Fatal(err)
	}
	s, f := reg.ByID(context.Background(), 7)
	if f != nil {
		t.Fatal(f.Reason())
	}
	body, err := codec.EncodeAvro(s, []byte(`{"id":"47223179-9330-4259-b66c-f2db26efb20c","number":4539578763621486,"seen":1789466400123,"at":1789466400123,"double":4539578763621486,"note":"card 4539 5787 6362 1486","email":"erika@acme.example","cvv":737,`+
		`"blob":"x4539578763621486y 4539578763621486 ","attrs":{"card":"4539578763621486","k":"v"},"dec":4539578763621486.00}`))
	if err != nil {
		t.Fatal(err)
	}
	if len(body) > 0 && body[0] != 0 {
		body = codec.Frame(7, body)
	}
	r := mustNew(t, redact.Config{Tags: []string{"pii"}}, redact.Options{})
	v, f := d.Decode(context.Background(), codec.NewScratch(), body, nil)
	if f != nil {
		t.Fatal(f.Reason())
	}
	rec := &pipeline.Record{Value: body}
	c := sanitize(t, r, rec, v)
	text, err := v.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	wantGone(t, text, "4539578763621486 ", "4539 5787", "erika", "737", `"number":4539578763621486`, `E15`, `"dec":45`)
	wantThere(t, text, "47223179-9330-4259-b66c-f2db26efb20c", "1789466400123", `"k":"v"`, "x4539578763621486y", `"number":0`, `"cvv":0`)
	if !c.Changed {
		t.Error("not changed")
	}
	v2, f := d.Decode(context.Background(), codec.NewScratch(), c.Value, nil)
	if f != nil {
		t.Fatalf("what was written cannot be read: %s", f.Reason())
	}
	if again := sanitize(t, r, &pipeline.Record{Value: c.Value}, v2); again.Changed {
		t.Error("a second pass changes it again")
	}

	// The same record cut short: no codec reads it, and no card is left all the same.
	cut := body[:len(body)-1]
	c = sanitize(t, r, &pipeline.Record{Value: cut}, nil)
	if len(c.Value) != len(cut) {
		t.Errorf("%d bytes became %d", len(cut), len(c.Value))
	}
	wantGone(t, c.Value, " 4539578763621486", "4539 5787", "\x204539578763621486")
	if bytes.Contains(c.Value, body[42:50]) && bytes.Contains(body[42:50], []byte{0x80}) {
		t.Errorf("the number is left in %x", c.Value)
	}
}

func TestSanitizeReadsSourceBytesWhateverTheViewReads(t *testing.T) {
	r := mustNew(t, redact.Config{}, redact.Options{})
	src := []byte(`{"card":"4111111111111111","id":7}`)
	v := jsonView(t, src)
	redacted, changed, err := r.Value(nil, v, r.NewEditor())
	if err != nil || !changed {
		t.Fatal(changed, err)
	}
	if err := v.Rebind(redacted); err != nil {
		t.Fatal(err)
	}
	c := sanitize(t, r, &pipeline.Record{Value: src}, v)
	if !c.Changed || !bytes.Equal(c.Value, redacted) {
		t.Errorf("%s, changed %t", c.Value, c.Changed)
	}
	after, err := v.AppendJSON(nil)
	if err != nil || bytes.Contains(after, []byte("4111")) {
		t.Errorf("the view reads %s, %v", after, err)
	}
}

func TestDetectorsCanBeChosen(t *testing.T) {
	const text = "card 4539578763621486 cvv 737 Authorization: Bearer canaryKEY003"
	for _, c := range []struct {
		on   string
		want string
	}{
		{"pan", "card **************** cvv 737 Authorization: Bearer canaryKEY003"},
		{"cvv", "card 4539578763621486 cvv *** Authorization: Bearer canaryKEY003"},
		{"authorization", "card 4539578763621486 cvv 737 Authorization: Bearer ***"},
	} {
		r := mustNew(t, redact.Config{Detectors: []string{c.on}}, redact.Options{})
		if got := r.Text(text); got != c.want {
			t.Errorf("%s: %q", c.on, got)
		}
	}
}

func TestConfigProblemsAreAllNamed(t *testing.T) {
	cfg := redact.Config{
		Detectors: []string{"pan", "pan", "iban"},
		Actions:   redact.Actions{PAN: "hash", CVV: "last4", Authorization: "last4"},
		Fields:    []redact.Field{{}, {Path: "customer.email"}, {Path: "/a", Name: "b"}, {Path: "/event_id"}, {Name: "Event-ID"}, {Path: "/x", Action: "blur"}, {Path: "/*"}},
		Tags:      []string{" "},
		Patterns:  []redact.Pattern{{Match: "("}, {Name: "all", Match: ".*"}, {Name: "long", Match: strings.Repeat("a", 2000)}, {Name: "back", Match: `(a)\1`}},
		Keep:      []string{"a.b"},
	}
	var got []string
	for _, p := range cfg.Check(redact.Options{Identity: paths(t, "/event_id")}) {
		if p.Text == "" {
			t.Errorf("%s has no text", p.Path)
		}
		got = append(got, p.Path+" "+string(p.Code))
	}
	want := []string{
		"detectors[1] ERR_CONFIG_VALUE", "detectors[2] ERR_CONFIG_VALUE", "actions.pan ERR_CONFIG_MISSING", "actions.cvv ERR_CONFIG_UNSAFE", "actions.authorization ERR_CONFIG_UNSAFE",
		"fields[0] ERR_CONFIG_MISSING", "fields[1].path ERR_PATH_INVALID", "fields[2] ERR_CONFIG_VALUE", "fields[3].path ERR_CONFIG_UNSAFE", "fields[4].name ERR_CONFIG_UNSAFE", "fields[5].action ERR_CONFIG_VALUE",
		"fields[6].path ERR_CONFIG_UNSAFE", "tags[0] ERR_CONFIG_VALUE", "patterns[0].name ERR_CONFIG_MISSING", "patterns[0].match ERR_CONFIG_VALUE", "patterns[1].match ERR_CONFIG_VALUE", "patterns[2].match ERR_CONFIG_VALUE",
		"patterns[3].match ERR_CONFIG_VALUE", "keep[0] ERR_PATH_INVALID",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	_, err := redact.New(cfg, redact.Options{})
	if pipeline.CodeOf(err) != pipeline.CodeConfigValue {
		t.Errorf("New: %v", err)
	}
}

func TestPatternsNeverBreakAnEscape(t *testing.T) {
	r := mustNew(t, redact.Config{Patterns: []redact.Pattern{{Name: "n", Match: `n?foo`}, {Name: "hex", Match: `0[0-9a-f]{2}`}}}, redact.Options{})
	for _, inner := range []string{`{"a":"x\nfoo","b":"\u00e9\n","c":"\\nfoo"}`, `{"a":"foo\u0041\u0042foo\nfoo"}`} {
		q, err := json.Marshal(inner)
		if err != nil {
			t.Fatal(err)
		}
		doc := `{"raw":` + string(q) + `}`
		var x struct{ Raw string }
		if err := json.Unmarshal([]byte(redactJSON(t, r, doc)), &x); err != nil || !json.Valid([]byte(x.Raw)) || strings.Contains(x.Raw, "foo") {
			t.Errorf("%s became %q, %v", inner, x.Raw, err)
		}
		c := sanitize(t, r, &pipeline.Record{Value: []byte(inner)}, nil)
		if !json.Valid(c.Value) || len(c.Value) != len(inner) {
			t.Errorf("%s became %s", inner, c.Value)
		}
	}
}

func TestSettingsAreReadStrictly(t *testing.T) {
	doc, ps := config.Parse("p.yaml", []byte("detectors: [pan, cvv, authorization]\nactions: {pan: last4}\nfields: [{path: /customer/email, action: mask}, {name: ssn}]\ntags: [PII]\ntag_action: drop\n"+
		"patterns: [{name: ticket, match: 'TCK-\\d{6}'}]\nkeep: [/meter/serial]\n"), config.Options{})
	if len(ps) > 0 {
		t.Fatal(ps)
	}
	var cfg redact.Config
	if ps := doc.Decode(&cfg); len(ps) > 0 {
		t.Fatal(ps)
	}
	want := redact.Config{Detectors: []string{"pan", "cvv", "authorization"}, Actions: redact.Actions{PAN: "last4"}, Fields: []redact.Field{{Path: "/customer/email", Action: "mask"}, {Name: "ssn", Action: "mask"}},
		Tags: []string{"PII"}, TagAction: "drop", Patterns: []redact.Pattern{{Name: "ticket", Match: `TCK-\d{6}`, Action: "mask"}}, Keep: []string{"/meter/serial"}}
	if d := cmp.Diff(want, cfg, cmp.Transformer("actions", func(a redact.Actions) string { return a.PAN })); d != "" {
		t.Error(d)
	}
	if _, err := redact.New(cfg, redact.Options{}); err != nil {
		t.Error(err)
	}
	doc, _ = config.Parse("p.yaml", []byte("detector: [pan]\n"), config.Options{})
	if ps := doc.Decode(&redact.Config{}); len(ps) == 0 {
		t.Error("an unknown key is read")
	}
}

// A key is never redacted: it would be another key. The record with it is refused.
func TestASecretInTheKeyIsRefused(t *testing.T) {
	r := mustNew(t, redact.Config{}, redact.Options{})
	e := r.NewEditor()
	for key, want := range map[string]pipeline.Code{
		"": "", "ACC-000001647": "", "7f1c8e64-0b1d-4c7a-9b63-0d2f5a1e9c11": "", "1748503543012": "",
		"4111111111111111": pipeline.CodeRedactIdentity, "card 4111 1111 1111 1111": pipeline.CodeRedactIdentity, `{"pan":"4111111111111111"}`: pipeline.CodeRedactIdentity,
		"cvv=737": pipeline.CodeRedactIdentity, "Bearer dGVzdC10b2tlbi1ub3QtcmVhbA": pipeline.CodeRedactIdentity, "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\x01": pipeline.CodeRedactFailed,
	} {
		if err := r.Key([]byte(key), e); pipeline.CodeOf(err) != want {
			t.Errorf("%q: %v, want %q", key, err, want)
		}
	}
}
