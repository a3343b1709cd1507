package embedded_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"reprieve.dev/embedded"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/tests/services"
)

const (
	v1       = `{"type":"record","name":"Invoice","fields":[{"name":"id","type":"string"}]}`
	v1Spaced = `{"type": "record", "name": "Invoice", "fields": [{"name": "id", "type": "string"}]}`
	v2       = `{"type":"record","name":"Invoice","fields":[{"name":"id","type":"string"},{"name":"cents","type":"long","default":0}]}`
	v2Bad    = `{"type":"record","name":"Invoice","fields":[{"name":"id","type":"string"},{"name":"cents","type":"long"}]}`
	v3       = `{"type":"record","name":"Invoice","fields":[{"name":"id","type":"string"},{"name":"cents","type":"long"},{"name":"note","type":"string","default":""}]}`
)

func start(t *testing.T, dir string) *embedded.Registry {
	t.Helper()
	r, err := embedded.StartRegistry(embedded.RegistryConfig{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// call makes one request; text is a schema to be sent as {"schema": text}, or a whole body when it starts with "=".
func call(t *testing.T, base, method, path, text string) (status int, out map[string]any, raw string) {
	t.Helper()
	var body io.Reader
	if rest, ok := strings.CutPrefix(text, "="); ok {
		body = strings.NewReader(rest)
	} else if text != "" {
		b, err := json.Marshal(map[string]string{"schema": text})
		if err != nil {
			t.Fatal(err)
		}
		body = strings.NewReader(string(b))
	}
	req, err := http.NewRequestWithContext(t.Context(), method, base+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/vnd.schemaregistry.v1+json")
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	_ = json.Unmarshal(b, &out)
	return r.StatusCode, out, strings.TrimSpace(string(b))
}

// answers is a table of calls in order, with the answer of both kinds of registry: status, and error code if it is one.
var answers = []struct {
	method, path, text string
	status             int
	code               float64
}{
	{"GET", "/subjects/S-value/versions", "", 404, 40401},
	{"POST", "/subjects/S-value/versions", v1, 200, 0},
	{"POST", "/subjects/S-value/versions", v1, 200, 0},
	{"POST", "/subjects/S-value/versions", v2Bad, 409, 409},
	{"POST", "/subjects/S-value/versions", v2, 200, 0},
	{"POST", "/subjects/S-value/versions", `{"type":"recor`, 422, 42201},
	{"POST", "/subjects/S-value", v1, 200, 0},
	{"POST", "/subjects/S-value", v3, 404, 40403},
	{"POST", "/subjects/S-other", v1, 404, 40401},
	{"GET", "/subjects/S-value/versions/1", "", 200, 0},
	{"GET", "/subjects/S-value/versions/latest", "", 200, 0},
	{"GET", "/subjects/S-value/versions/9", "", 404, 40402},
	{"GET", "/schemas/ids/2147483600", "", 404, 40403},
	{"GET", "/schemas/types", "", 200, 0},
	{"POST", "/compatibility/subjects/S-value/versions/latest", v2Bad, 200, 0},
	{"PUT", "/config/S-value", `={"compatibility":"NONE"}`, 200, 0},
	{"GET", "/config/S-value", "", 200, 0},
	{"PUT", "/config/S-value", `={"compatibility":"SIDEWAYS"}`, 422, 42203},
	{"POST", "/subjects/S-value/versions", v2Bad, 200, 0},
	{"DELETE", "/subjects/S-value/versions/3", "", 200, 0},
	{"GET", "/subjects/S-value/versions/3", "", 404, 40402},
	{"DELETE", "/subjects/S-value", "", 200, 0},
	{"GET", "/subjects/S-value/versions", "", 404, 40401},
	{"DELETE", "/subjects/S-value?permanent=true", "", 200, 0},
}

func hold(t *testing.T, base string) {
	subject := fmt.Sprintf("s%d", time.Now().UnixNano())
	for i, a := range answers {
		status, out, raw := call(t, base, a.method, strings.ReplaceAll(a.path, "S", subject), a.text)
		code, _ := out["error_code"].(float64)
		if status != a.status || code != a.code {
			t.Errorf("call %d, %s %s: %d with code %v (%s), want %d with %v", i, a.method, a.path, status, code, raw, a.status, a.code)
		}
	}
}

func TestAnswersLikeARealRegistry(t *testing.T) {
	t.Run("embedded", func(t *testing.T) { hold(t, start(t, t.TempDir()).URL()) })
	t.Run("real", func(t *testing.T) {
		if testing.Short() {
			t.Skip("short: starts a JVM")
		}
		hold(t, services.Registry(t))
	})
}

func TestOurClientWorksWithIt(t *testing.T) {
	r := start(t, t.TempDir())
	c, err := codec.NewRegistry(codec.RegistryConfig{Name: "main", URL: r.URL()}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	id, err := c.Register(ctx, "invoices-value", v1, codec.FormatAvro)
	if err != nil {
		t.Fatal(err)
	}
	s, f := c.ByID(ctx, id)
	if f != nil || s.Text() != v1 {
		t.Fatalf("by id: %v, %v", s, f)
	}
	_, out, _ := call(t, r.URL(), "GET", "/subjects/invoices-value/versions/1", "")
	if s, f = c.ByGUID(ctx, out["guid"].(string)); f != nil || s.Text() != v1 {
		t.Fatalf("by GUID: %v, %v", s, f)
	}
	if _, err := c.Register(ctx, "invoices-value", v2Bad, codec.FormatAvro); err == nil {
		t.Errorf("an incompatible schema was taken")
	}
	if again, err := c.Register(ctx, "copies-value", v1Spaced, codec.FormatAvro); err != nil || again != id {
		t.Errorf("the same schema in another subject got id %d, %v, want %d", again, err, id)
	}
}

func TestAFolderGivesTheSameIdsAgain(t *testing.T) {
	dir := t.TempDir()
	r, err := embedded.StartRegistry(embedded.RegistryConfig{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	call(t, r.URL(), "POST", "/subjects/a/versions", v1)
	call(t, r.URL(), "POST", "/subjects/a/versions", v2)
	call(t, r.URL(), "PUT", "/config/a", `={"compatibility":"FULL"}`)
	_, one, _ := call(t, r.URL(), "GET", "/subjects/a/versions/2", "")
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	// a change whose line was cut by a crash was never answered
	f, err := os.OpenFile(filepath.Join(dir, "registry.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"version":{"subject":"a","ver`); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	r = start(t, dir)
	_, two, _ := call(t, r.URL(), "GET", "/subjects/a/versions/2", "")
	if d := cmp.Diff(one, two); d != "" {
		t.Errorf("after a restart (-before +after):\n%s", d)
	}
	_, out, _ := call(t, r.URL(), "POST", "/subjects/b/versions", v3)
	if out["id"] != float64(3) {
		t.Errorf("the next id is %v, want 3", out["id"])
	}
	if _, _, raw := call(t, r.URL(), "GET", "/config/a", ""); !strings.Contains(raw, "FULL") {
		t.Errorf("the level came back as %s", raw)
	}
}

func TestCompatibilityLevels(t *testing.T) {
	r := start(t, t.TempDir())
	without := `{"type":"record","name":"Invoice","fields":[]}`
	for i, c := range []struct {
		level  string
		chain  []string
		next   string
		status int
	}{
		{"BACKWARD", []string{v1}, v2, 200},
		{"BACKWARD", []string{v1}, v2Bad, 409},
		{"BACKWARD", []string{v1, v2}, v2Bad, 200},
		{"BACKWARD_TRANSITIVE", []string{v1, v2}, v2Bad, 409},
		{"FORWARD", []string{v1}, v2Bad, 200},
		{"FORWARD", []string{v1}, without, 409},
		{"FULL", []string{v1}, v2, 200},
		{"FULL", []string{v1}, v2Bad, 409},
		{"NONE", []string{v1}, `"string"`, 200},
	} {
		s := fmt.Sprintf("/subjects/c%d/versions", i)
		for _, v := range c.chain {
			if status, _, raw := call(t, r.URL(), "POST", s, v); status != 200 {
				t.Fatalf("%d: %s", i, raw)
			}
		}
		call(t, r.URL(), "PUT", fmt.Sprintf("/config/c%d", i), fmt.Sprintf(`={"compatibility":%q}`, c.level))
		if status, _, raw := call(t, r.URL(), "POST", s, c.next); status != c.status {
			t.Errorf("%s after %d versions: %d (%s), want %d", c.level, len(c.chain), status, raw, c.status)
		}
	}
}

func TestReferencesAreResolvedAndProtected(t *testing.T) {
	r := start(t, t.TempDir())
	money := `{"type":"record","name":"Money","namespace":"acme","fields":[{"name":"cents","type":"long"}]}`
	call(t, r.URL(), "POST", "/subjects/money/versions", money)
	body := `={"schema":"{\"type\":\"record\",\"name\":\"I\",\"fields\":[{\"name\":\"total\",\"type\":\"acme.Money\"}]}",` +
		`"references":[{"name":"acme.Money","subject":"money","version":1}]}`
	status, out, raw := call(t, r.URL(), "POST", "/subjects/i/versions", body)
	if status != 200 {
		t.Fatal(raw)
	}
	_, got, _ := call(t, r.URL(), "GET", fmt.Sprintf("/schemas/ids/%v", out["id"]), "")
	if refs, _ := got["references"].([]any); len(refs) != 1 {
		t.Errorf("references came back as %v", got["references"])
	}
	if status, out, _ := call(t, r.URL(), "DELETE", "/subjects/money", ""); status != 422 || out["error_code"] != float64(42206) {
		t.Errorf("a schema that another one needs was deleted: %d %v", status, out)
	}
	if status, _, _ := call(t, r.URL(), "POST", "/subjects/x/versions", strings.ReplaceAll(body, `"version":1`, `"version":7`)); status != 422 {
		t.Errorf("a reference to nothing was taken: %d", status)
	}
}

func TestOtherFormatsAreParsed(t *testing.T) {
	r := start(t, t.TempDir())
	for _, c := range []struct {
		kind, text string
		status     int
	}{
		{"JSON", `{\"type\":\"object\",\"properties\":{\"id\":{\"type\":\"string\"}}}`, 200},
		{"JSON", `{\"type\":7}`, 422},
		{"PROTOBUF", `syntax = \"proto3\"; message Invoice { string id = 1; }`, 200},
		{"PROTOBUF", `syntax = \"proto3\"; message {`, 422},
		{"XML", `<a/>`, 422},
	} {
		status, out, raw := call(t, r.URL(), "POST", "/subjects/f-"+c.kind+"/versions", `={"schemaType":"`+c.kind+`","schema":"`+c.text+`"}`)
		if status != c.status {
			t.Errorf("%s %s: %d (%s), want %d", c.kind, c.text, status, raw, c.status)
			continue
		}
		if status == 200 {
			if _, got, _ := call(t, r.URL(), "GET", fmt.Sprintf("/schemas/ids/%v", out["id"]), ""); got["schemaType"] != c.kind {
				t.Errorf("the type came back as %v, want %s", got["schemaType"], c.kind)
			}
		}
	}
}

func TestASecondRegistryOverTheSameFolderIsRefused(t *testing.T) {
	dir := t.TempDir()
	start(t, dir)
	if r, err := embedded.StartRegistry(embedded.RegistryConfig{Dir: dir}); err == nil {
		_ = r.Close()
		t.Fatal("two registries share a folder")
	}
}

// httpIdle closes the connections that the test's own client keeps.
func httpIdle() { http.DefaultClient.CloseIdleConnections() }
