package codec

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"reprieve.dev/pipeline"
)

// fakeRegistry is a real HTTP server that answers as it is told.
type fakeRegistry struct {
	*httptest.Server
	mu      sync.Mutex
	answers map[string]http.HandlerFunc
	asked   map[string]int
}

func newFakeRegistry(t testing.TB) *fakeRegistry {
	r := &fakeRegistry{answers: map[string]http.HandlerFunc{}, asked: map[string]int{}}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *fakeRegistry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	r.asked[req.URL.Path]++
	h := r.answers[req.URL.Path]
	r.mu.Unlock()
	if h == nil {
		w.WriteHeader(404)
		_, _ = w.Write([]byte(`{"error_code":40403,"message":"Schema not found"}`))
		return
	}
	h(w, req)
}

func (r *fakeRegistry) answer(path string, h http.HandlerFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers[path] = h
}

func (r *fakeRegistry) calls(path string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked[path]
}

func reply(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

func schemaBody(text, kind string, refs ...json.RawMessage) string {
	m := map[string]any{"schema": text}
	if kind != "" {
		m["schemaType"] = kind
	}
	if len(refs) > 0 {
		m["references"] = refs
	}
	b, _ := json.Marshal(m)
	return string(b)
}

func (r *fakeRegistry) id(id, text string, refs ...json.RawMessage) {
	r.answer("/schemas/ids/"+id, reply(200, schemaBody(text, "", refs...)))
}

func (r *fakeRegistry) subject(subject, version, text string) {
	r.answer("/subjects/"+subject+"/versions/"+version, reply(200, schemaBody(text, "")))
}

func (r *fakeRegistry) cache(t testing.TB) *Cache {
	t.Helper()
	c, err := NewRegistry(RegistryConfig{Name: "main", URL: r.URL, Timeout: 2 * time.Second}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// hand is a clock that is moved by hand.
type hand struct {
	mu  sync.Mutex
	now time.Time
}

func (h *hand) clock() pipeline.Clock {
	return func() time.Time {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.now
	}
}

func (h *hand) move(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now = h.now.Add(d)
}
