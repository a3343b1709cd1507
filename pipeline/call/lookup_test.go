package call_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/call"
)

func lookup(d call.Doer, clock pipeline.Clock, entries int) *call.Lookup[string] {
	return call.NewLookup(d, call.LookupOptions[string]{TTL: time.Minute, Negative: 10 * time.Second, Entries: entries,
		Parse: func(b []byte) (string, *pipeline.Failure) {
			if len(b) == 0 {
				return "", &pipeline.Failure{Code: pipeline.CodeHTTPAnswer}
			}
			return string(b), nil
		}}, clock)
}

func TestAnswersAreRememberedForTheirTime(t *testing.T) {
	var asked atomic.Int32
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		n := asked.Add(1)
		if r.URL.Path == "/none" {
			w.WriteHeader(404)
			return
		}
		fmt.Fprintf(w, "answer %d", n)
	})
	h := &hands{now: time.Unix(1_800_000_000, 0)}
	l := lookup(client(t, url, nil), h.clock, 0)
	get := func(path, want string, wantFound bool, wantAsked int32) {
		t.Helper()
		v, found, f := l.Get(t.Context(), url+path)
		if v != want || found != wantFound || f != nil || asked.Load() != wantAsked {
			t.Fatalf("%s: %q %v %v after %d questions", path, v, found, f, asked.Load())
		}
	}
	get("/a", "answer 1", true, 1)
	get("/none", "", false, 2)
	h.move(9 * time.Second)
	get("/a", "answer 1", true, 2)
	get("/none", "", false, 2)
	h.move(time.Second) // what was not there may be there now
	get("/none", "", false, 3)
	get("/a", "answer 1", true, 3)
	h.move(50 * time.Second)
	get("/a", "answer 4", true, 4)
	if v, found, known := l.Cached([]byte(url + "/a")); v != "answer 4" || !found || !known {
		t.Errorf("%q %v %v", v, found, known)
	}
	if _, _, known := l.Cached([]byte(url + "/b")); known {
		t.Error("never asked, and known")
	}
}

func TestFailuresAreNotRemembered(t *testing.T) {
	var asked atomic.Int32
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 1 {
			w.WriteHeader(500)
			return
		}
		fmt.Fprint(w, "here")
	})
	l := lookup(client(t, url, nil), time.Now, 0)
	if _, _, f := l.Get(t.Context(), url); code(f) != pipeline.CodeHTTPUnavailable {
		t.Fatal(f)
	}
	if v, found, f := l.Get(t.Context(), url); v != "here" || !found || f != nil {
		t.Errorf("%q %v %v", v, found, f)
	}
}

func TestOneFlightAKey(t *testing.T) {
	var asked atomic.Int32
	open, in := make(chan struct{}), make(chan struct{}, 100)
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		in <- struct{}{}
		<-open
		w.WriteHeader(503)
	})
	l := lookup(client(t, url, nil), time.Now, 0)
	var wg sync.WaitGroup
	var failures sync.Map
	for i := range 50 {
		wg.Go(func() {
			_, _, f := l.Get(t.Context(), url)
			if code(f) != pipeline.CodeHTTPUnavailable {
				t.Error(f)
				return
			}
			f.Stage = fmt.Sprint(i) // each record has its own
			failures.Store(f, i)
		})
	}
	<-in
	close(open)
	wg.Wait()
	n := 0
	failures.Range(func(any, any) bool { n++; return true })
	if n != 50 {
		t.Errorf("%d failures for 50 records", n)
	}
	if got := asked.Load(); got == 50 {
		t.Errorf("asked %d times", got)
	}
}

func TestWhoWaitsDoesNotDependOnWhoAsked(t *testing.T) {
	var asked atomic.Int32
	in := make(chan struct{}, 2)
	hold := make(chan struct{})
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 1 {
			in <- struct{}{}
			select {
			case <-r.Context().Done():
			case <-hold:
			}
			return
		}
		fmt.Fprint(w, "here")
	})
	defer close(hold)
	l := lookup(client(t, url, nil), time.Now, 0)
	first, leave := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { l.Get(first, url) })
	<-in
	wg.Go(func() {
		if v, found, f := l.Get(t.Context(), url); v != "here" || !found || f != nil {
			t.Errorf("%q %v %v", v, found, f)
		}
	})
	leave()
	wg.Wait()
}

func TestCacheIsBoundedAndKeepsWhatIsUsed(t *testing.T) {
	var asked atomic.Int32
	d := doer(func(call.Request) (call.Answer, *pipeline.Failure) {
		asked.Add(1)
		return call.Answer{Status: 200, Body: []byte("x")}, nil
	})
	l := lookup(d, time.Now, 100)
	for i := range 10_000 {
		if _, _, f := l.Get(t.Context(), fmt.Sprint("k", i)); f != nil {
			t.Fatal(f)
		}
		if _, _, f := l.Get(t.Context(), "hot"); f != nil {
			t.Fatal(f)
		}
	}
	if asked.Load() != 10_001 {
		t.Errorf("what is used all the time was asked %d times", asked.Load()-10_000)
	}
	known := 0
	for i := range 10_000 {
		if _, _, k := l.Cached([]byte(fmt.Sprint("k", i))); k {
			known++
		}
	}
	if known > 100 {
		t.Errorf("%d entries are kept", known)
	}
}

type doer func(call.Request) (call.Answer, *pipeline.Failure)

func (d doer) Do(_ context.Context, r call.Request) (call.Answer, *pipeline.Failure) { return d(r) }

func TestARememberedAnswerAllocatesNothing(t *testing.T) {
	l := lookup(doer(func(call.Request) (call.Answer, *pipeline.Failure) {
		return call.Answer{Status: 200, Body: []byte("x")}, nil
	}), time.Now, 100)
	key := []byte("https://accounts/A-1")
	if _, _, f := l.Get(t.Context(), string(key)); f != nil {
		t.Fatal(f)
	}
	if n := testing.AllocsPerRun(100, func() { l.Cached(key) }); n > 0 && !raceEnabled {
		t.Errorf("%v allocations", n)
	}
}
