package codec

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"reprieve.dev/pipeline"
)

func TestCaseC19RegistryAnswersAreClassified(t *testing.T) {
	var rows []struct{ Answer, Class, Note string }
	loadCase(t, "C19/table.json", &rows)
	refused := httptest.NewServer(nil)
	refused.Close()
	half := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = w.Write([]byte(`{"schema":"{\"type\":\"rec`))
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	want := map[string]pipeline.Class{"OK": pipeline.ClassNone, "FATAL": pipeline.Payload, "POLICY": pipeline.Authorization, "TRANSIENT": pipeline.Transient}
	for _, row := range rows {
		t.Run(row.Answer, func(t *testing.T) {
			server := newFakeRegistry(t)
			url := server.URL
			status, body := 0, ""
			_, _ = fmt.Sscanf(row.Answer, "%d", &status)
			if i := strings.IndexByte(row.Answer, '{'); i >= 0 {
				body = row.Answer[i:]
			}
			handler := reply(status, body)
			class := strings.Fields(row.Class)[0]
			switch {
			case strings.Contains(row.Answer, "HTML"):
				handler = reply(404, "<html><body>no such page</body></html>")
			case strings.Contains(row.Answer, "Retry-After"):
				handler = func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Retry-After", "7")
					w.WriteHeader(status)
				}
			case row.Answer == "connection refused":
				url = refused.URL
			case strings.HasPrefix(row.Answer, "TLS"):
				tls := httptest.NewUnstartedServer(server) // nobody trusts its certificate
				tls.Config.ErrorLog = log.New(io.Discard, "", 0)
				tls.StartTLS()
				defer tls.Close()
				url, class = tls.URL, "TRANSIENT"
			case strings.HasPrefix(row.Answer, "timeout"):
				handler = half
			case strings.Contains(row.Answer, "schemaType JSON"):
				handler = reply(200, schemaBody(`{"type":"object"}`, "JSON"))
			}
			server.answer("/schemas/ids/7", handler)
			c, err := NewRegistry(RegistryConfig{URL: url, Timeout: 5 * time.Second}, time.Now)
			if err != nil {
				t.Fatal(err)
			}
			d, err := NewDecoder(DecodeConfig{Format: FormatAvro}, c)
			if err != nil {
				t.Fatal(err)
			}
			var first int
			for range 3 {
				_, f := d.Decode(t.Context(), NewScratch(), []byte{0, 0, 0, 0, 7, 2, 'a'}, nil)
				got := pipeline.ClassNone
				if f != nil {
					got = pipeline.Lookup(f.Code).Class
				}
				if got != want[class] {
					t.Fatalf("class %s, want %s: %v", got, want[class], f)
				}
				if strings.Contains(row.Answer, "Retry-After") && f.RetryAfter < 6000 {
					t.Errorf("RetryAfter %d ms, want about 7,000", f.RetryAfter)
				}
				if n := server.calls("/schemas/ids/7"); first == 0 {
					first = n
				} else if n != first {
					t.Errorf("asked again at once: %d requests", n)
				}
			}
			if class != "TRANSIENT" && first > 1 {
				t.Errorf("%d requests for an answer that is final", first)
			}
		})
	}
}

func TestUnknownIDIsAskedAgainWhenTheNegativeAnswerIsOver(t *testing.T) {
	server := newFakeRegistry(t)
	h := &hand{now: time.Unix(1e9, 0)}
	c, err := NewRegistry(RegistryConfig{URL: server.URL}, h.clock())
	if err != nil {
		t.Fatal(err)
	}
	ask := func() *pipeline.Failure {
		_, f := c.ByID(t.Context(), 9)
		return f
	}
	if f := ask(); f == nil || f.Code != pipeline.CodeSchemaUnknown {
		t.Fatal(f)
	}
	server.id("9", `"string"`)
	h.move(4900 * time.Millisecond)
	if f := ask(); f == nil {
		t.Error("asked again within 5 s")
	}
	h.move(5200 * time.Millisecond)
	if f := ask(); f != nil {
		t.Errorf("still unknown after 10 s: %s", f.Reason())
	}
	h.move(time.Hour)
	server.Close()
	if f := ask(); f != nil {
		t.Errorf("a known id needs the registry: %s", f.Reason())
	}
}

func TestManyWaitersMakeOneRequest(t *testing.T) {
	server := newFakeRegistry(t)
	open := make(chan struct{})
	server.answer("/schemas/ids/5", func(w http.ResponseWriter, r *http.Request) {
		<-open
		reply(200, schemaBody(`"string"`, ""))(w, r)
	})
	c := server.cache(t)
	var wg sync.WaitGroup
	results := make(chan *pipeline.Failure, 64)
	for range 64 {
		wg.Go(func() {
			_, f := c.ByID(t.Context(), 5)
			results <- f
		})
	}
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	if _, f := c.ByID(impatient, 5); f == nil || f.Code != pipeline.CodeRegistryUnavailable {
		t.Errorf("a caller that gave up: %v", f)
	}
	close(open)
	wg.Wait()
	close(results)
	for f := range results {
		if f != nil {
			t.Error(f.Reason())
		}
	}
	if n := server.calls("/schemas/ids/5"); n != 1 {
		t.Errorf("%d requests", n)
	}
}

func TestDeadRegistryOpensTheCircuitAndKnownIDsGoOn(t *testing.T) {
	server := newFakeRegistry(t)
	server.id("1", `"string"`)
	h := &hand{now: time.Unix(1e9, 0)}
	c, err := NewRegistry(RegistryConfig{URL: server.URL}, h.clock())
	if err != nil {
		t.Fatal(err)
	}
	if _, f := c.ByID(t.Context(), 1); f != nil {
		t.Fatal(f.Reason())
	}
	server.mu.Lock()
	for id := 100; id < 120; id++ {
		server.answers[fmt.Sprint("/schemas/ids/", id)] = reply(503, "")
	}
	server.mu.Unlock()
	for id := int32(100); id < 120; id++ {
		if _, f := c.ByID(t.Context(), id); f == nil || f.Code != pipeline.CodeRegistryUnavailable {
			t.Fatalf("id %d: %v", id, f)
		}
	}
	if c.Healthy() {
		t.Error("counts as healthy")
	}
	asked := 0
	for id := 100; id < 120; id++ {
		asked += server.calls(fmt.Sprint("/schemas/ids/", id))
	}
	if asked > circuitAfter*attempts {
		t.Errorf("%d requests to a dead registry", asked)
	}
	if _, f := c.ByID(t.Context(), 1); f != nil {
		t.Errorf("a known id: %s", f.Reason())
	}
	server.id("119", `"long"`)
	h.move(time.Minute)
	if _, f := c.ByID(t.Context(), 119); f != nil || !c.Healthy() {
		t.Errorf("after it came back: %v, healthy %t", f, c.Healthy())
	}
}

func TestEmptyAndForeignAnswersAreNoSchema(t *testing.T) {
	rows := map[string]pipeline.Code{
		`{}`:                                    pipeline.CodeRegistryUnavailable,
		`{"schema":""}`:                         pipeline.CodeSchemaInvalid,
		`<html>login</html>`:                    pipeline.CodeRegistryUnavailable,
		`{"schema":"\"string\""`:                pipeline.CodeRegistryUnavailable,
		`{"schema":"\"nosuch\""}`:               pipeline.CodeSchemaInvalid,
		`{"schema":"{}","schemaType":"THRIFT"}`: pipeline.CodeSchemaInvalid,
	}
	for body, code := range rows {
		server := newFakeRegistry(t)
		server.answer("/schemas/ids/1", reply(200, body))
		if _, f := server.cache(t).ByID(t.Context(), 1); f == nil || f.Code != code {
			t.Errorf("%s: %v, want %s", body, f, code)
		}
	}
}

func TestGUIDsCredentialsAndRegistration(t *testing.T) {
	server := newFakeRegistry(t)
	guid := "4f7a1b2c-0011-2233-4455-66778899aabb"
	server.answer("/schemas/guids/"+guid, func(w http.ResponseWriter, r *http.Request) {
		if u, p, ok := r.BasicAuth(); !ok || u != "ann" || p != "" {
			w.WriteHeader(401)
			return
		}
		reply(200, schemaBody(`{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}`, ""))(w, r)
	})
	server.answer("/subjects/orders-value/versions", func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Schema string }
		if json.NewDecoder(r.Body).Decode(&in) != nil || in.Schema == `"bad"` {
			reply(422, `{"error_code":42201,"message":"Invalid schema"}`)(w, r)
			return
		}
		server.id("77", in.Schema)
		reply(200, `{"id":77}`)(w, r)
	})
	c, err := NewRegistry(RegistryConfig{URL: server.URL, User: "ann"}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	d, err := NewDecoder(DecodeConfig{Format: FormatAvro}, c)
	if err != nil {
		t.Fatal(err)
	}
	g, _ := parseGUID(guid)
	frame := append([]byte{1}, g[:]...)
	v, f := d.Decode(t.Context(), NewScratch(), append(frame, 14), nil)
	if f != nil || get(t, v, "/a") != "7" || v.Schema().String() != "guid:"+guid {
		t.Errorf("prefix GUID: %v", f)
	}
	v, f = d.Decode(t.Context(), NewScratch(), []byte{14}, []pipeline.Header{{Name: HeaderValueSchema, Value: frame}})
	if f != nil || get(t, v, "/a") != "7" {
		t.Errorf("header GUID: %v", f)
	}
	if id, err := c.Register(t.Context(), "orders-value", `"string"`, FormatAvro); err != nil || id != 77 {
		t.Errorf("register: %d %v", id, err)
	}
	if _, err := c.Register(t.Context(), "orders-value", `"bad"`, FormatAvro); pipeline.CodeOf(err) != pipeline.CodeSchemaInvalid {
		t.Errorf("register a bad one: %v", err)
	}
	if _, err := NewRegistry(RegistryConfig{URL: "http://ann:secret@localhost"}, time.Now); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("credentials in the URL: %v", err)
	}
	anonymous := server.cache(t)
	if _, f := anonymous.ByGUID(t.Context(), guid); f == nil || f.Code != pipeline.CodeRegistryDenied {
		t.Errorf("without credentials: %v", f)
	}
}

func TestFramings(t *testing.T) {
	schema := `{"type":"record","name":"R","namespace":"x","fields":[{"name":"a","type":"int"}]}`
	dir := t.TempDir()
	writeFile(t, dir+"/7.avsc", schema)
	reg, err := Folder(dir)
	if err != nil {
		t.Fatal(err)
	}
	single, err := NewDecoder(DecodeConfig{Format: FormatAvro, Framing: FramingSingle}, reg)
	if err != nil {
		t.Fatal(err)
	}
	s, _ := reg.ByID(t.Context(), 7)
	fp := s.Fingerprint()
	value := []byte{0xc3, 1, byte(fp), byte(fp >> 8), byte(fp >> 16), byte(fp >> 24), byte(fp >> 32), byte(fp >> 40), byte(fp >> 48), byte(fp >> 56), 14}
	for range 2 {
		if v, f := decode(t, single, value); f != nil || get(t, v, "/a") != "7" {
			t.Errorf("single object: %v", f)
		}
	}
	value[2]++
	if _, f := decode(t, single, value); f == nil || f.Code != pipeline.CodeSchemaUnknown {
		t.Errorf("unknown fingerprint: %v", f)
	}
	header, err := NewDecoder(DecodeConfig{Format: FormatAvro, Framing: FramingHeader, Key: true}, reg)
	if err != nil {
		t.Fatal(err)
	}
	h := []pipeline.Header{{Name: HeaderKeySchema, Value: []byte{0, 0, 0, 0, 7}}}
	if v, f := header.Decode(t.Context(), NewScratch(), []byte{14}, h); f != nil || get(t, v, "/a") != "7" {
		t.Errorf("key header: %v", f)
	}
	for name, h := range map[string][]pipeline.Header{"none": nil, "other": {{Name: HeaderValueSchema, Value: h[0].Value}}, "short": {{Name: HeaderKeySchema, Value: []byte{0, 0}}}, "long": {{Name: HeaderKeySchema, Value: []byte{0, 0, 0, 0, 7, 1}}}, "null": {{Name: HeaderKeySchema}}} {
		if _, f := header.Decode(t.Context(), NewScratch(), []byte{14}, h); f == nil || f.Code != pipeline.CodeDecodeFraming {
			t.Errorf("header %s: %v", name, f)
		}
	}
}
