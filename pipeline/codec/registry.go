package codec

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/riferrei/srclient"

	"reprieve.dev/pipeline"
)

// How long answers count.
const (
	negativeFor  = 5 * time.Second // "unknown": 5 to 10 s, so that many workers do not ask in step
	latestFor    = time.Minute
	firstWait    = 200 * time.Millisecond // after a transient failure, doubling
	longestWait  = 10 * time.Second
	longestAsked = 5 * time.Minute // that Retry-After is believed
	circuitAfter = 5               // failed look-ups in a row, of any ids
	attempts     = 3
)

// Cache is a schema registry over HTTP behind a cache. A schema is kept for good under its id; one flight per id however
// many wait; "unknown" is kept 5 to 10 s; an id that fails for a passing reason is left alone for a growing while, and five
// such failures in a row of any ids open a circuit, so that a dead registry costs nothing. An id that is cached never waits.
// It is safe for concurrent use.
type Cache struct {
	name  string
	http  *registryHTTP
	clock pipeline.Clock

	mu     sync.Mutex
	ids    map[int32]*entry
	guids  map[string]*entry
	latest map[string]*entry

	failed int // look-ups in a row
	until  time.Time
	why    *pipeline.Failure
}

// entry is what is known of one id. done is set while somebody asks.
type entry struct {
	schema  *Schema
	failure *pipeline.Failure
	until   time.Time // when a failure, or "latest", has to be asked for again; zero is never
	wait    time.Duration
	done    chan struct{}
}

// NewRegistry makes a cache over cfg; it opens no connection. Codes: ERR_CONFIG_VALUE.
func NewRegistry(cfg RegistryConfig, clock pipeline.Clock) (*Cache, error) {
	h, err := newRegistryHTTP(cfg)
	if err != nil {
		return nil, err
	}
	return &Cache{name: cfg.Name, http: h, clock: clock, ids: map[int32]*entry{}, guids: map[string]*entry{}, latest: map[string]*entry{}}, nil
}

// Name is the name in the worker file.
func (c *Cache) Name() string { return c.name }

// Healthy tells whether the last look-ups reached the registry.
func (c *Cache) Healthy() bool { return c.Trouble() == nil }

// Trouble is why the registry counts as down, or nil.
func (c *Cache) Trouble() *pipeline.Failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.why
}

// ByID returns the schema of an id. Codes: ERR_SCHEMA_UNKNOWN, ERR_SCHEMA_INVALID, ERR_REGISTRY_UNAVAILABLE (with
// RetryAfter), ERR_REGISTRY_DENIED.
func (c *Cache) ByID(ctx context.Context, id int32) (*Schema, *pipeline.Failure) {
	return cached(c, ctx, c.ids, id, func(ctx context.Context) (*Schema, *pipeline.Failure) {
		return c.fetch(ctx, pipeline.SchemaRef{ID: id}, func(s *srclient.SchemaRegistryClient) (*srclient.Schema, error) {
			return s.GetSchema(int(id))
		})
	})
}

// ByGUID returns the schema of a GUID. Codes as ByID.
func (c *Cache) ByGUID(ctx context.Context, guid string) (*Schema, *pipeline.Failure) {
	return cached(c, ctx, c.guids, guid, func(ctx context.Context) (*Schema, *pipeline.Failure) {
		return c.fetchGUID(ctx, guid)
	})
}

// Latest returns the newest schema of a subject, at most a minute old. Codes as ByID.
func (c *Cache) Latest(ctx context.Context, subject string) (*Schema, *pipeline.Failure) {
	return cached(c, ctx, c.latest, subject, func(ctx context.Context) (*Schema, *pipeline.Failure) {
		return c.fetch(ctx, pipeline.SchemaRef{}, func(s *srclient.SchemaRegistryClient) (*srclient.Schema, error) {
			return s.GetLatestSchema(subject)
		})
	})
}

// Register registers a schema under a subject and returns its id. Codes: ERR_REGISTRY_UNAVAILABLE, ERR_REGISTRY_DENIED,
// ERR_SCHEMA_INVALID when the registry refuses it.
func (c *Cache) Register(ctx context.Context, subject, text, format string, references ...Reference) (int32, error) {
	kind := srclient.Avro
	switch format {
	case FormatJSONSchema:
		kind = srclient.Json
	case FormatProtobuf:
		kind = srclient.Protobuf
	}
	refs := make([]srclient.Reference, 0, len(references))
	for _, r := range references {
		refs = append(refs, srclient.Reference{Name: r.Name, Subject: r.Subject, Version: r.Version})
	}
	var got *srclient.Schema
	f := c.http.call(ctx, 0, "subject:"+subject, func(s *srclient.SchemaRegistryClient) (err error) {
		got, err = s.CreateSchema(subject, text, kind, refs...)
		return err
	})
	if f != nil {
		return 0, asError(f)
	}
	return int32(got.ID()), nil
}

// askFunc asks the registry for one thing.
type askFunc = func(context.Context) (*Schema, *pipeline.Failure)

// getFunc is one call of the client library.
type getFunc = func(*srclient.SchemaRegistryClient) (*srclient.Schema, error)

// cached answers from the map or joins or starts the one flight of that key.
func cached[K comparable](c *Cache, ctx context.Context, m map[K]*entry, key K, ask askFunc) (*Schema, *pipeline.Failure) {
	for {
		c.mu.Lock()
		e := m[key]
		if e == nil {
			e = &entry{}
			m[key] = e
		}
		now := c.clock()
		if e.done == nil {
			if e.schema != nil && (e.until.IsZero() || now.Before(e.until)) {
				c.mu.Unlock()
				return e.schema, nil
			}
			if e.failure != nil && now.Before(e.until) {
				f := again(e.failure, e.until.Sub(now))
				c.mu.Unlock()
				return nil, f
			}
			if c.why != nil && now.Before(c.until) {
				f := again(c.why, c.until.Sub(now))
				c.mu.Unlock()
				return nil, f
			}
			if c.why != nil { // half open: the others wait for what this one finds
				c.until = now.Add(firstWait)
			}
			e.done = make(chan struct{})
			c.mu.Unlock()
			return fly(c, ctx, m, e, ask)
		}
		done := e.done
		c.mu.Unlock()
		select {
		case <-done:
		case <-ctx.Done():
			return nil, unavailable("interrupted", ctx.Err())
		}
	}
}

// fly asks the registry. Those who wait share the answer, so it does not end when the first of them gives up.
func fly[K comparable](c *Cache, ctx context.Context, m map[K]*entry, e *entry, ask askFunc) (*Schema, *pipeline.Failure) {
	type answer struct {
		s *Schema
		f *pipeline.Failure
	}
	out := make(chan answer, 1)
	go func() {
		s, f := ask(context.WithoutCancel(ctx))
		s, f = c.settle(e, s, f)
		if f != nil && f.Code == pipeline.CodeSchemaUnknown {
			c.bound(func() { boundMap(m, c.clock()) })
		}
		out <- answer{s, f}
	}()
	select {
	case a := <-out:
		return a.s, a.f
	case <-ctx.Done():
		return nil, unavailable("interrupted", ctx.Err())
	}
}

// settle keeps an answer.
func (c *Cache) settle(e *entry, s *Schema, f *pipeline.Failure) (*Schema, *pipeline.Failure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock()
	if f != nil && e.schema != nil && f.Code == pipeline.CodeRegistryUnavailable { // the newest that we know is better than none
		f, s = nil, e.schema
	}
	e.schema, e.failure = s, f
	switch {
	case f == nil:
		e.until, e.wait = time.Time{}, 0
		if s.latest {
			e.until = now.Add(latestFor)
		}
	case f.Code == pipeline.CodeRegistryUnavailable || f.Code == pipeline.CodeRegistryDenied:
		e.wait = min(max(2*e.wait, firstWait), longestWait)
		wait := max(jitter(e.wait), min(time.Duration(f.RetryAfter)*time.Millisecond, longestAsked))
		e.until = now.Add(wait)
		if c.failed++; c.failed >= circuitAfter {
			c.why, c.until = f, now.Add(wait)
		}
	case f.Code == pipeline.CodeSchemaInvalid: // of this id for good, but the registry may be mended by hand
		e.until = now.Add(time.Minute)
	default:
		e.until = now.Add(negativeFor + rand.N(negativeFor))
	}
	if f == nil || f.Code != pipeline.CodeRegistryUnavailable && f.Code != pipeline.CodeRegistryDenied {
		c.failed, c.why = 0, nil
	}
	close(e.done)
	e.done = nil
	return s, f
}

func (c *Cache) bound(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// boundMap drops refusals that are over once there are many: made-up ids must not fill the memory.
func boundMap[K comparable](m map[K]*entry, now time.Time) {
	if len(m) < 10_000 {
		return
	}
	for k, e := range m {
		if e.done == nil && e.schema == nil && now.After(e.until) {
			delete(m, k)
		}
	}
}

func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

// again is a failure that was kept: how long to wait still is the only difference.
func again(f *pipeline.Failure, left time.Duration) *pipeline.Failure {
	g := *f
	g.Unasked = true
	if g.Code == pipeline.CodeRegistryUnavailable {
		g.RetryAfter = left.Milliseconds() + 1
	}
	return &g
}

func unavailable(what string, cause error) *pipeline.Failure {
	return &pipeline.Failure{Code: pipeline.CodeRegistryUnavailable, Cause: cause, Params: []pipeline.Param{pipeline.Str("what", what)}}
}

// fetch asks for one schema and for those that it names.
func (c *Cache) fetch(ctx context.Context, ref pipeline.SchemaRef, get getFunc) (*Schema, *pipeline.Failure) {
	var got *srclient.Schema
	if f := c.http.call(ctx, attempts, "id:"+strconv.Itoa(int(ref.ID)), func(s *srclient.SchemaRegistryClient) (err error) {
		got, err = get(s)
		return err
	}); f != nil {
		return nil, f
	}
	ref.Format = formatOf(got.SchemaType())
	if ref.ID == 0 {
		ref.ID = int32(got.ID())
		s, f := c.build(ctx, ref, got.Schema(), got.References())
		if f == nil {
			s.latest = true
		}
		return s, f
	}
	return c.build(ctx, ref, got.Schema(), got.References())
}

func (c *Cache) build(ctx context.Context, ref pipeline.SchemaRef, text string, names []srclient.Reference) (*Schema, *pipeline.Failure) {
	var refs []Reference
	if f := c.references(ctx, names, &refs, map[string]bool{}, 0); f != nil {
		return nil, f
	}
	return ParseSchema(ref, text, refs...)
}

// references fetches what a schema names, deepest first.
func (c *Cache) references(ctx context.Context, names []srclient.Reference, into *[]Reference, seen map[string]bool, depth int) *pipeline.Failure {
	for _, n := range names {
		key := fmt.Sprint(n.Name, "\x00", n.Subject, "\x00", n.Version)
		if seen[key] {
			continue
		}
		if seen[key] = true; len(seen) > 1000 || depth > 100 {
			return invalidSchema(pipeline.SchemaRef{}, fmt.Errorf("too many references"))
		}
		var got *srclient.Schema
		f := c.http.call(ctx, attempts, fmt.Sprint(n.Subject, "/", n.Version), func(s *srclient.SchemaRegistryClient) (err error) {
			got, err = s.GetSchemaByVersion(n.Subject, n.Version)
			return err
		})
		if f != nil {
			return f
		}
		if f := c.references(ctx, got.References(), into, seen, depth+1); f != nil {
			return f
		}
		*into = append(*into, Reference{Name: n.Name, Subject: n.Subject, Version: n.Version, Text: got.Schema(), Format: formatOf(got.SchemaType())})
	}
	return nil
}

func formatOf(t *srclient.SchemaType) string {
	switch {
	case t == nil, *t == srclient.Avro, *t == "":
		return FormatAvro
	case *t == srclient.Json:
		return FormatJSONSchema
	case *t == srclient.Protobuf:
		return FormatProtobuf
	}
	return string(*t)
}
