package call_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/call"
	"reprieve.dev/pipeline/codec"
)

// patient is long enough that no test waits for it in vain.
const patient = 20 * time.Second

func client(t testing.TB, origin string, change func(*call.Options)) *call.Client {
	t.Helper()
	o := call.Options{Target: "accounts", Origin: origin, Timeout: patient, Failures: 1000}
	if change != nil {
		change(&o)
	}
	c, err := call.New(o, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func serve(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// view reads a JSON document.
func view(t testing.TB, doc string) pipeline.View {
	t.Helper()
	d, err := codec.NewDecoder(codec.DecodeConfig{Format: "json"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	v, f := d.Decode(t.Context(), codec.NewScratch(), []byte(doc), nil)
	if f != nil {
		t.Fatal(f.Reason())
	}
	return v
}

func code(f *pipeline.Failure) pipeline.Code {
	if f == nil {
		return ""
	}
	return f.Code
}

func status(n int, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(n)
		_, _ = w.Write([]byte(strconv.Itoa(n)))
	}
}
