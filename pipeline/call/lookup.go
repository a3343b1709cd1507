package call

import (
	"context"
	"net/http"
	"sync"
	"time"

	"reprieve.dev/pipeline"
)

// LookupOptions are the settings of a Lookup.
type LookupOptions[V any] struct {
	TTL      time.Duration // how long an answer counts; 0 is not at all
	Negative time.Duration // how long "there is none" counts; 0 is not at all
	Entries  int           // remembered at most (10,000)
	Parse    func(body []byte) (V, *pipeline.Failure)
}

// Lookup asks a service by URL and remembers the answers. Each URL is asked once at a time; who asks meanwhile waits for the
// same answer. 404, 410 and 204 are "there is none". Failures are not remembered: the client's circuit spares a service that
// fails. It is safe for concurrent use.
type Lookup[V any] struct {
	do    Doer
	o     LookupOptions[V]
	clock pipeline.Clock

	mu      sync.Mutex
	flights map[string]*flight[V]
	young   map[string]entry[V] // two generations: when young has half of Entries, it becomes old, and old is forgotten
	old     map[string]entry[V]
}

type entry[V any] struct {
	found bool
	value V
	until time.Time
}

type flight[V any] struct {
	done    chan struct{}
	found   bool
	value   V
	failure *pipeline.Failure
	left    bool // who asked went away before there was an answer
}

// NewLookup makes a look-up over d.
func NewLookup[V any](d Doer, o LookupOptions[V], clock pipeline.Clock) *Lookup[V] {
	if o.Entries <= 0 {
		o.Entries = 10_000
	}
	return &Lookup[V]{do: d, o: o, clock: clock, flights: map[string]*flight[V]{}, young: map[string]entry[V]{}}
}

// Cached returns what is remembered of a URL; known is false if it must be asked. It allocates nothing unless an old answer is
// kept for longer.
func (l *Lookup[V]) Cached(url []byte) (v V, found, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cached(url)
}

func (l *Lookup[V]) cached(url []byte) (v V, found, known bool) {
	e, ok := l.young[string(url)]
	if !ok {
		if e, ok = l.old[string(url)]; !ok {
			return v, false, false
		}
	}
	if !l.clock().Before(e.until) {
		delete(l.young, string(url))
		delete(l.old, string(url))
		return v, false, false
	}
	if _, young := l.young[string(url)]; !young {
		l.keep(string(url), e)
	}
	return e.value, e.found, true
}

func (l *Lookup[V]) keep(url string, e entry[V]) {
	if len(l.young) >= max(1, l.o.Entries/2) {
		l.old, l.young = l.young, make(map[string]entry[V], len(l.young))
	}
	l.young[url] = e
}

// Get returns the answer to a URL, asking if it must. Found false without a failure: there is none. Codes: those of Client.Do
// and Parse.
func (l *Lookup[V]) Get(ctx context.Context, url string) (v V, found bool, f *pipeline.Failure) {
	for {
		l.mu.Lock()
		if v, found, known := l.cached([]byte(url)); known {
			l.mu.Unlock()
			return v, found, nil
		}
		fl, flying := l.flights[url]
		if !flying {
			fl = &flight[V]{done: make(chan struct{})}
			l.flights[url] = fl
			l.mu.Unlock()
			l.fly(ctx, url, fl)
			return fl.value, fl.found, copyOf(fl.failure)
		}
		l.mu.Unlock()
		select {
		case <-fl.done:
		case <-ctx.Done():
			return v, false, &pipeline.Failure{Code: pipeline.CodeHTTPUnavailable, Cause: ctx.Err()}
		}
		if fl.left { // who asked went away: ask again, ourselves
			continue
		}
		return fl.value, fl.found, copyOf(fl.failure)
	}
}

// copyOf gives each record a failure of its own: stages write their name into it.
func copyOf(f *pipeline.Failure) *pipeline.Failure {
	if f == nil {
		return nil
	}
	c := *f
	return &c
}

func (l *Lookup[V]) fly(ctx context.Context, url string, fl *flight[V]) {
	fl.left = true // until there is an answer, also if Do or Parse panics
	defer func() {
		l.mu.Lock()
		delete(l.flights, url)
		if ttl := l.ttl(fl); fl.failure == nil && !fl.left && ttl > 0 {
			l.keep(url, entry[V]{fl.found, fl.value, l.clock().Add(ttl)})
		}
		l.mu.Unlock()
		close(fl.done)
	}()
	a, f := l.do.Do(ctx, Request{URL: url, Repeatable: true})
	switch {
	case a.Status == http.StatusNotFound || a.Status == http.StatusGone || f == nil && a.Status == http.StatusNoContent:
		f = nil
	case f == nil:
		fl.value, f = l.o.Parse(a.Body)
		fl.found = f == nil
	}
	fl.failure = f
	fl.left = ctx.Err() != nil && f != nil
}

func (l *Lookup[V]) ttl(fl *flight[V]) time.Duration {
	if fl.found {
		return l.o.TTL
	}
	return l.o.Negative
}
