package call_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/call"
)

// What each status means for a request that may be repeated and for one that may not.
func TestEachStatusHasItsCode(t *testing.T) {
	const ok, wait, rejected, denied, ambiguous, answer = "", pipeline.CodeHTTPUnavailable, pipeline.CodeHTTPRejected, pipeline.CodeHTTPDenied,
		pipeline.CodeHTTPAmbiguous, pipeline.CodeHTTPAnswer
	for _, c := range []struct {
		status int
		after  string
		read   pipeline.Code // may be repeated
		effect pipeline.Code // may not
		wait   int64
	}{
		{200, "", ok, ok, 0}, {201, "", ok, ok, 0}, {204, "", ok, ok, 0}, {299, "", ok, ok, 0},
		{304, "", answer, ambiguous, 0}, {302, "", answer, ambiguous, 0},
		{400, "", rejected, rejected, 0}, {404, "", rejected, rejected, 0}, {409, "", rejected, rejected, 0}, {418, "", rejected, rejected, 0},
		{422, "7", rejected, rejected, 0}, {499, "", rejected, rejected, 0},
		{401, "", denied, denied, 0}, {403, "", denied, denied, 0}, {407, "", denied, denied, 0},
		{408, "", wait, ambiguous, 0}, {408, "2", wait, ambiguous, 0},
		{425, "", wait, wait, 0}, {429, "", wait, wait, 0}, {429, "3", wait, wait, 3000},
		{500, "", wait, ambiguous, 0}, {502, "", wait, ambiguous, 0}, {503, "", wait, ambiguous, 0}, {504, "5", wait, ambiguous, 0}, {599, "", wait, ambiguous, 0},
		{503, "2", wait, wait, 2000}, {503, "0", wait, ambiguous, 0}, {503, "soon", wait, ambiguous, 0}, {503, "-1", wait, ambiguous, 0},
		{503, "99999999999999999999", wait, wait, 24 * 3600 * 1000},
	} {
		header := []string{}
		if c.after != "" {
			header = []string{"Retry-After", c.after}
		}
		url := serve(t, status(c.status, header...))
		cl := client(t, url, nil)
		for name, want := range map[string]pipeline.Code{"read": c.read, "effect": c.effect} {
			r := call.Request{URL: url, Repeatable: name == "read", Effect: name == "effect"}
			if name == "effect" {
				r.Method, r.Body = "POST", []byte("x")
			}
			a, f := cl.Do(t.Context(), r)
			if code(f) != want || a.Status != c.status {
				t.Errorf("%d %s as %s: %s, want %s (status %d)", c.status, c.after, name, code(f), want, a.Status)
			}
			if f != nil && f.Code == wait && c.wait > 0 && f.RetryAfter != c.wait {
				t.Errorf("%d: come back after %d ms, want %d", c.status, f.RetryAfter, c.wait)
			}
		}
	}
}

func TestRetryAfterMayBeATime(t *testing.T) {
	url := serve(t, status(503, "Date", "Tue, 15 Sep 2026 10:00:00 GMT", "Retry-After", "Tue, 15 Sep 2026 10:00:07 GMT"))
	_, f := client(t, url, nil).Do(t.Context(), call.Request{URL: url, Repeatable: true})
	if code(f) != pipeline.CodeHTTPUnavailable || f.RetryAfter != 7000 {
		t.Errorf("%+v", f)
	}
}

func TestNothingWasSentIsTransientAlways(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := "http://" + l.Addr().String()
	l.Close()
	tlsServer := httptest.NewTLSServer(status(200)) // whose certificate nobody trusts
	t.Cleanup(tlsServer.Close)
	for name, origin := range map[string]string{"refused": refused, "no name": "http://accounts.invalid", "no trust": tlsServer.URL} {
		_, f := client(t, origin, nil).Do(t.Context(), call.Request{Method: "POST", URL: origin, Body: []byte("x"), Effect: true})
		if code(f) != pipeline.CodeHTTPUnavailable {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// A server that speaks bytes: each connection is given to serve.
func raw(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				serve(c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return "http://" + l.Addr().String()
}

// INV-CALL-AMBIGUOUS: after the first byte nobody knows, unless the request may be repeated.
func TestWhatHappenedAfterTheFirstByteIsNotGuessed(t *testing.T) {
	until := func(c net.Conn) { _, _ = io.Copy(io.Discard, c) } // until the client goes away
	for name, s := range map[string]struct {
		serve        func(net.Conn)
		read, effect pipeline.Code
	}{
		"no answer": {until, pipeline.CodeHTTPTimeout, pipeline.CodeHTTPAmbiguous},
		"half a status line": {func(c net.Conn) {
			_, _ = http.ReadRequest(bufio.NewReader(c))
			fmt.Fprint(c, "HTTP/1.1 20")
			until(c)
		}, pipeline.CodeHTTPTimeout, pipeline.CodeHTTPAmbiguous},
		"closed without an answer": {func(c net.Conn) { _, _ = http.ReadRequest(bufio.NewReader(c)) }, pipeline.CodeHTTPUnavailable, pipeline.CodeHTTPAmbiguous},
		"not HTTP": {func(c net.Conn) {
			_, _ = http.ReadRequest(bufio.NewReader(c))
			fmt.Fprint(c, "220 smtp.example.com ready\r\n\r\n")
		}, pipeline.CodeHTTPUnavailable, pipeline.CodeHTTPAmbiguous},
		"half a body": {func(c net.Conn) {
			_, _ = http.ReadRequest(bufio.NewReader(c))
			fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"tier\":")
		}, pipeline.CodeHTTPAnswer, ""},
		"a body that drips": {func(c net.Conn) {
			_, _ = http.ReadRequest(bufio.NewReader(c))
			fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			for range tick.C {
				if _, err := c.Write([]byte("x")); err != nil {
					return
				}
			}
		}, pipeline.CodeHTTPTimeout, ""},
		"headers without end": {func(c net.Conn) {
			_, _ = http.ReadRequest(bufio.NewReader(c))
			fmt.Fprint(c, "HTTP/1.1 200 OK\r\n")
			for {
				if _, err := fmt.Fprintf(c, "X-Filler: %s\r\n", strings.Repeat("x", 1000)); err != nil {
					return
				}
			}
		}, pipeline.CodeHTTPUnavailable, pipeline.CodeHTTPAmbiguous},
		"a body without end": {func(c net.Conn) {
			_, _ = http.ReadRequest(bufio.NewReader(c))
			fmt.Fprint(c, "HTTP/1.1 200 OK\r\n\r\n")
			for {
				if _, err := c.Write(bytes.Repeat([]byte("x"), 64<<10)); err != nil {
					return
				}
			}
		}, pipeline.CodeHTTPAnswer, ""},
	} {
		t.Run(name, func(t *testing.T) {
			url := raw(t, s.serve)
			c := client(t, url, func(o *call.Options) { o.Timeout = 300 * time.Millisecond })
			if _, f := c.Do(t.Context(), call.Request{URL: url, Repeatable: true}); code(f) != s.read {
				t.Errorf("a read: %v, want %s", f, s.read)
			}
			if _, f := c.Do(t.Context(), call.Request{Method: "POST", URL: url, Body: []byte("x"), Effect: true}); code(f) != s.effect {
				t.Errorf("an effect: %v, want %s", f, s.effect)
			}
		})
	}
}

// The transport repeats what it takes for harmless on a used connection that breaks; an effect must not be.
func TestEffectIsNeverSentTwiceBehindTheCallersBack(t *testing.T) {
	for name, body := range map[string][]byte{"with a body": []byte("x"), "without a body": nil} {
		t.Run(name, func(t *testing.T) {
			var effects atomic.Int32
			url := raw(t, func(c net.Conn) {
				r := bufio.NewReader(c)
				for n := 0; ; n++ {
					req, err := http.ReadRequest(r)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, req.Body)
					if req.Header.Get("Idempotency-Key") != "" {
						effects.Add(1)
						return // it may have happened
					}
					fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				}
			})
			c := client(t, url, nil)
			if _, f := c.Do(t.Context(), call.Request{URL: url, Repeatable: true}); f != nil {
				t.Fatal(f.Reason())
			}
			_, f := c.Do(t.Context(), call.Request{Method: "POST", URL: url, Body: body, Effect: true,
				Headers: []pipeline.Header{{Name: "Idempotency-Key", Value: []byte("k1")}}})
			if code(f) != pipeline.CodeHTTPAmbiguous || effects.Load() != 1 {
				t.Errorf("%v after %d effects", f, effects.Load())
			}
		})
	}
}

func TestRedirectStaysWithinItsOrigin(t *testing.T) {
	var elsewhere atomic.Int32
	other := serve(t, func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) })
	var url string
	var posts atomic.Int32
	url = serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("%s came without its credentials", r.URL)
		}
		switch r.URL.Path {
		case "/moved":
			http.Redirect(w, r, "/here", http.StatusMovedPermanently)
		case "/here":
			fmt.Fprint(w, `{}`)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/login":
			http.Redirect(w, r, other, http.StatusFound)
		case "/user":
			http.Redirect(w, r, strings.Replace(url, "://", "://somebody@", 1), http.StatusFound)
		case "/port":
			http.Redirect(w, r, strings.Replace(url, "127.0.0.1", "localhost", 1), http.StatusFound)
		case "/nowhere":
			w.Header().Set("Location", "ht tp://%")
			w.WriteHeader(302)
		case "/effect":
			posts.Add(1)
			http.Redirect(w, r, "/here", http.StatusTemporaryRedirect)
		}
	})
	c := client(t, url, func(o *call.Options) { o.Headers = map[string]string{"Authorization": "Bearer secret"} })
	if a, f := c.Do(t.Context(), call.Request{URL: url + "/moved", Repeatable: true}); f != nil || string(a.Body) != "{}" {
		t.Errorf("within the origin: %v %s", f, a.Body)
	}
	for _, path := range []string{"/loop", "/login", "/user", "/port", "/nowhere"} {
		if _, f := c.Do(t.Context(), call.Request{URL: url + path, Repeatable: true}); code(f) != pipeline.CodeHTTPAnswer && code(f) != pipeline.CodeHTTPUnavailable {
			t.Errorf("%s: %v", path, f)
		}
	}
	if _, f := c.Do(t.Context(), call.Request{Method: "POST", URL: url + "/effect", Body: []byte("x"), Effect: true}); code(f) != pipeline.CodeHTTPAmbiguous || posts.Load() != 1 {
		t.Errorf("an effect: %v after %d", f, posts.Load())
	}
	if n := elsewhere.Load(); n != 0 {
		t.Errorf("another server was asked %d times", n)
	}
}

func TestAnotherOriginIsNotAsked(t *testing.T) {
	other := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("another server was asked") })
	own := serve(t, status(200))
	c := client(t, own, nil)
	for _, url := range []string{other, "http://accounts.invalid/", "file:///etc/passwd", "\x00", "http://x@" + strings.TrimPrefix(own, "http://")} {
		if _, f := c.Do(t.Context(), call.Request{URL: url, Repeatable: true}); code(f) != pipeline.CodeHTTPRequest {
			t.Errorf("%q: %v", url, f)
		}
	}
}

func TestHeaderCannotBeInjected(t *testing.T) {
	var seen atomic.Int32
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		seen.Add(1)
		if r.Header.Get("X-Evil") != "" || r.Host == "evil" {
			t.Errorf("injected: %v", r.Header)
		}
	})
	c := client(t, url, nil)
	for _, h := range []pipeline.Header{
		{Name: "Idempotency-Key", Value: []byte("a\r\nX-Evil: 1")}, {Name: "Idempotency-Key", Value: []byte("a\nb")}, {Name: "Idempotency-Key", Value: []byte("a\x00")},
		{Name: "A\r\nX-Evil", Value: []byte("1")}, {Name: "Host", Value: []byte("evil")}, {Name: "content-length", Value: []byte("0")}, {Name: "Transfer-Encoding", Value: []byte("chunked")},
		{Name: "", Value: nil}, {Name: "a b", Value: nil},
	} {
		if _, f := c.Do(t.Context(), call.Request{URL: url, Repeatable: true, Headers: []pipeline.Header{h}}); code(f) != pipeline.CodeHTTPRequest {
			t.Errorf("%q: %v", h, f)
		}
	}
	if seen.Load() != 0 {
		t.Errorf("%d requests were sent", seen.Load())
	}
	if _, err := call.New(call.Options{Origin: url, Headers: map[string]string{"Host": "evil"}}, time.Now); pipeline.CodeOf(err) != pipeline.CodeConfigValue {
		t.Errorf("a client sends Host: %v", err)
	}
}

func TestNoMoreCallsAtOnceThanAllowed(t *testing.T) {
	var now, most atomic.Int32
	full, open := make(chan struct{}, 100), make(chan struct{})
	url := serve(t, func(http.ResponseWriter, *http.Request) {
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		full <- struct{}{}
		<-open
		now.Add(-1)
	})
	c := client(t, url, func(o *call.Options) { o.Concurrency = 3 })
	var wg sync.WaitGroup
	for range 12 {
		wg.Go(func() {
			if _, f := c.Do(t.Context(), call.Request{URL: url, Repeatable: true}); f != nil {
				t.Error(f.Reason())
			}
		})
	}
	for range 3 {
		<-full
	}
	close(open)
	wg.Wait()
	if most.Load() != 3 {
		t.Errorf("%d at once", most.Load())
	}
}

func TestCallThatGetsNoTurnInTimeWasNotSent(t *testing.T) {
	open, in := make(chan struct{}), make(chan struct{}, 1)
	var effects atomic.Int32
	url := serve(t, func(http.ResponseWriter, *http.Request) { effects.Add(1); in <- struct{}{}; <-open })
	slow := client(t, url, func(o *call.Options) { o.Concurrency, o.Timeout = 1, 200*time.Millisecond })
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	wg.Go(func() { slow.Do(ctx, call.Request{Method: "POST", URL: url, Body: []byte("x"), Effect: true}) })
	<-in
	short, end := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer end()
	if _, f := slow.Do(short, call.Request{Method: "POST", URL: url, Body: []byte("x"), Effect: true}); code(f) != pipeline.CodeHTTPUnavailable {
		t.Errorf("%v", f)
	}
	cancel()
	wg.Wait()
	close(open)
	if effects.Load() != 1 {
		t.Errorf("%d effects", effects.Load())
	}
}

func TestServersAreBelievedByTheirCertificate(t *testing.T) {
	s := httptest.NewTLSServer(status(200))
	t.Cleanup(s.Close)
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	c := client(t, s.URL, func(o *call.Options) { o.CA = ca })
	if _, f := c.Do(t.Context(), call.Request{URL: s.URL, Repeatable: true}); f != nil {
		t.Error(f.Reason(), f.Cause)
	}
	for _, bad := range []call.Options{{Origin: s.URL, CA: "no certificate"}, {Origin: s.URL, Cert: "x", Key: "y"}, {Origin: "accounts"}, {}} {
		if _, err := call.New(bad, time.Now); pipeline.CodeOf(err) != pipeline.CodeConfigValue {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// hands is a clock that a test moves.
type hands struct {
	mu  sync.Mutex
	now time.Time
}

func (h *hands) clock() time.Time { h.mu.Lock(); defer h.mu.Unlock(); return h.now }
func (h *hands) move(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now = h.now.Add(d)
}

func TestServiceThatFailsIsLeftAloneAndFoundAgain(t *testing.T) {
	var asked atomic.Int32
	var answer atomic.Int32
	answer.Store(500)
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) { asked.Add(1); w.WriteHeader(int(answer.Load())) })
	h := &hands{now: time.Unix(1_800_000_000, 0)}
	c, err := call.New(call.Options{Target: "accounts", Origin: url, Failures: 3, Shortest: time.Second, Longest: 4 * time.Second, Timeout: patient}, h.clock)
	if err != nil {
		t.Fatal(err)
	}
	do := func() *pipeline.Failure {
		_, f := c.Do(t.Context(), call.Request{URL: url, Repeatable: true})
		return f
	}
	for range 3 {
		if !c.Healthy() {
			t.Fatal("unhealthy before the third failure")
		}
		do()
	}
	if c.Healthy() {
		t.Fatal("healthy after three failures")
	}
	for i, wait := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 4 * time.Second} {
		before := asked.Load()
		if f := do(); code(f) != pipeline.CodeHTTPUnavailable || f.RetryAfter != wait.Milliseconds() || asked.Load() != before {
			t.Fatalf("round %d: %+v, asked %d times", i, f, asked.Load()-before)
		}
		h.move(wait)
		do()
		if asked.Load() != before+1 {
			t.Fatalf("round %d: %d probes", i, asked.Load()-before)
		}
	}
	answer.Store(404) // an answer all the same
	h.move(4 * time.Second)
	if f := do(); code(f) != pipeline.CodeHTTPRejected || !c.Healthy() {
		t.Errorf("%v, healthy %v", f, c.Healthy())
	}
	answer.Store(429)
	for range 10 {
		do()
	}
	if !c.Healthy() {
		t.Error("a service that asks to slow down is not down")
	}
}

func TestOutcomesAreObserved(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]int{}
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			w.WriteHeader(404)
		}
	})
	c := client(t, url, func(o *call.Options) {
		o.Observe = func(result string, _ time.Duration) { mu.Lock(); defer mu.Unlock(); seen[result]++ }
	})
	c.Do(t.Context(), call.Request{URL: url + "/", Repeatable: true})
	c.Do(t.Context(), call.Request{URL: url + "/x", Repeatable: true})
	if seen["ok"] != 1 || seen["ERR_HTTP_REJECTED"] != 1 {
		t.Errorf("%v", seen)
	}
}

func TestFailureDoesNotShowWhatTheRecordHolds(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := "http://" + l.Addr().String()
	l.Close()
	hangs := raw(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	for _, origin := range []string{refused, hangs, serve(t, status(500)), serve(t, status(302, "Location", "/x?secret-of-the-record"))} {
		c := client(t, origin, func(o *call.Options) { o.Timeout = 100 * time.Millisecond })
		for _, u := range []string{origin + "/secret-of-the-record", origin + "/secret-of-the-record\x7f%zz"} {
			_, f := c.Do(t.Context(), call.Request{URL: u, Repeatable: true})
			if f == nil || strings.Contains(f.Reason()+fmt.Sprint(f.Cause), "secret-of-the-record") {
				t.Errorf("%s: %v %v", u, f, f.Cause)
			}
		}
	}
}
