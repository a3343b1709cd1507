package stage

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/call"
	"reprieve.dev/pipeline/codec"
)

// HTTPLookup is the section http of an enrich stage: a question for each record, whose JSON answer becomes headers.
type HTTPLookup struct {
	URL         string                   `yaml:"url" required:"true" doc:"URL template: {/path} is a field of the redacted record, {name} an identity field (event_id, entity, business_id, idempotency_token, version, tenant). The host is fixed."`
	Timeout     config.Duration          `yaml:"timeout" default:"1s" doc:"Time for one call, with waiting for its turn."`
	Headers     map[string]config.Secret `yaml:"headers" doc:"Headers to send."`
	TLS         config.TLS               `yaml:"tls" doc:"Certificates; files from the folder of the pipeline file."`
	Concurrency int                      `yaml:"concurrency" default:"16" doc:"Calls at once, of all partitions."`
	Cache       LookupCache              `yaml:"cache" doc:"How long answers are remembered."`
	Limit       config.Size              `yaml:"limit" default:"64KiB" doc:"Of one answer."`
	Take        map[string]string        `yaml:"take" doc:"Header name to JSON pointer into the answer. Later conditions and headers see it as headers. An answer is not redacted: take only what may leave."`
	Missing     `yaml:",inline"`
	Into        string `yaml:"into" doc:"Member of the value that takes the answer; needs route.encode, which is not available in this version."`
}

// LookupCache bounds what is remembered.
type LookupCache struct {
	TTL      config.Duration `yaml:"ttl" default:"60s" doc:"Of an answer."`
	Negative config.Duration `yaml:"negative" default:"10s" doc:"Of 'there is none' (404, 410, 204); not longer than ttl."`
	Entries  int             `yaml:"entries" default:"10000" doc:"Remembered at most."`
}

// Validate checks the template and the numbers.
func (h *HTTPLookup) Validate(n config.Node) (ps config.Problems) {
	bad := func(path, text, suggestion string) {
		ps = append(ps, n.Problem(path, config.CodeValue, text, suggestion))
	}
	if h.URL != "" {
		if _, err := call.ParseTemplate(h.URL); err != nil {
			text, remedy := err.Error(), "for example https://accounts/{/account_id}"
			if e, ok := err.(*pipeline.Error); ok {
				text, remedy = e.Text, e.Fix()
			}
			bad("url", text, remedy)
		}
	}
	if h.Timeout <= 0 || h.Timeout > config.Duration(time.Minute) {
		bad("timeout", "a call takes more than nothing and at most 1m: it holds its partition", "for example 200ms")
	}
	if h.Concurrency < 1 || h.Concurrency > 1000 {
		bad("concurrency", "calls at once are between 1 and 1000", "for example 16")
	}
	if h.Limit < 1 || h.Limit > 16<<20 {
		bad("limit", "an answer has between 1B and 16MiB", "for example 64KiB")
	}
	if h.Cache.Entries < 1 || h.Cache.Entries > 10_000_000 {
		bad("cache.entries", "between 1 and 10000000 answers are remembered", "write cache: {ttl: 0s} to remember none")
	}
	for _, name := range sorted(h.Headers) {
		if why := call.CheckHeader(name, h.Headers[name].Reveal()); why != "" {
			bad("headers."+name, "it cannot be sent: "+why, "")
		}
	}
	return append(append(ps, checkTake(n, h.Take, h.Into, true)...), h.check(n, h.Take)...)
}

// httpLookup asks a service about each record of a batch; what is not remembered is asked at once, not one after the other.
type httpLookup struct {
	outcome
	url      *call.Template
	id       *Identity // nil unless the template is Named
	ask      *call.Lookup[answer]
	parallel int
	healthy  func() bool
	slot     pipeline.Slot[httpScratch]
}

type httpScratch struct {
	url  []byte
	open []question // what must be asked, each once
	at   map[string]int
}

type question struct {
	url     string
	records []int
	answer  answer
	found   bool
	failure *pipeline.Failure
}

func buildHTTPLookup(h *HTTPLookup, env pipeline.Env) (*httpLookup, pipeline.Close, error) {
	t, err := call.ParseTemplate(h.URL)
	if err != nil {
		return nil, nil, err
	}
	l := &httpLookup{outcome: newOutcome(env.Name, h.Take, h.Into, h.Missing), url: t, parallel: h.Concurrency, healthy: func() bool { return true },
		slot: pipeline.NewSlot(env.Layout, func() *httpScratch { return &httpScratch{at: map[string]int{}} })}
	if t.Named() {
		if l.id, err = resource[*Identity](env, ResourceIdentity, ""); err != nil {
			return nil, nil, err
		}
	}
	parse, err := l.parser(int64(h.Limit))
	if err != nil {
		return nil, nil, err
	}
	var do call.Doer
	var shut pipeline.Close
	if r, err := env.Resource(ResourceHTTP, env.Name); err == nil && r != nil {
		do, _ = r.(call.Doer)
	} else if err != nil && pipeline.CodeOf(err) != pipeline.CodeConfigReference {
		return nil, nil, err
	}
	if do == nil {
		c, err := newClient(env, call.Options{Target: env.Name, Origin: t.Origin(), Timeout: h.Timeout.Std(), Concurrency: h.Concurrency, MaxAnswer: int64(h.Limit)}, h.Headers, h.TLS)
		if err != nil {
			return nil, nil, err
		}
		do, shut, l.healthy = c, c.Close, c.Healthy
	}
	l.ask = call.NewLookup(do, call.LookupOptions[answer]{TTL: h.Cache.TTL.Std(), Negative: min(h.Cache.Negative, h.Cache.TTL).Std(),
		Entries: h.Cache.Entries, Parse: parse}, env.Clock)
	return l, shut, nil
}

// parser reads the taken values of a JSON answer. What is not JSON is no answer: a proxy's page.
func (l *httpLookup) parser(limit int64) (func([]byte) (answer, *pipeline.Failure), error) {
	dec, err := codec.NewDecoder(codec.DecodeConfig{Format: "json", Limits: codec.Limits{Bytes: limit, Depth: 64, Items: 100_000, Expansion: 4 * limit}}, nil)
	if err != nil {
		return nil, err
	}
	paths, err := l.paths()
	if err != nil {
		return nil, err
	}
	return func(body []byte) (answer, *pipeline.Failure) {
		if body == nil {
			body = []byte{} // null would be a record without a value
		}
		var none context.Context // JSON asks no registry
		v, f := dec.Decode(none, codec.NewScratch(), body, nil)
		if f != nil {
			return nil, &pipeline.Failure{Code: pipeline.CodeHTTPAnswer, Params: []pipeline.Param{pipeline.Str("target", l.name), pipeline.Str("what", "not JSON")}}
		}
		return l.of(v, paths), nil
	}, nil
}

func (l *httpLookup) process(ctx context.Context, b *pipeline.Batch) {
	s := l.slot.Of(b)
	s.open = s.open[:0]
	clear(s.at) // a panic may have left some
	for i := range b.Recs {
		if !b.Live(i) || b.Views[i] == nil && l.url.ReadsView() {
			continue // a delete marker has no fields
		}
		var id pipeline.Identity
		if l.id != nil {
			if t := b.Recs[i].Trail; t != nil && t.Identity.Tenant != "" {
				id = t.Identity
			} else {
				id = l.id.Identify(b.TP.Topic, &b.Recs[i], b.Views[i])
			}
		}
		var at, why string
		if s.url, at, why = l.url.Append(s.url[:0], b.Views[i], &id); at != "" {
			l.none(b, i, at+" "+why)
			continue
		}
		a, found, known := l.ask.Cached(s.url)
		switch {
		case !known:
			s.later(i)
		case found:
			l.set(b, i, a)
		default:
			l.none(b, i, "no entry")
		}
	}
	if len(s.open) == 0 {
		return
	}
	l.answers(ctx, s.open)
	for k := range s.open {
		q := &s.open[k]
		for _, i := range q.records {
			switch {
			case q.failure != nil:
				f := *q.failure
				f.Stage = l.name
				b.Fail(i, f)
			case q.found:
				l.set(b, i, q.answer)
			default:
				l.none(b, i, "no entry")
			}
		}
	}
	clear(s.open)
	clear(s.at)
}

// later notes that record i waits for the answer to s.url.
func (s *httpScratch) later(i int) {
	k, ok := s.at[string(s.url)]
	if !ok {
		k = len(s.open)
		s.open = append(s.open, question{url: string(s.url)})
		s.at[s.open[k].url] = k
	}
	s.open[k].records = append(s.open[k].records, i)
}

// answers asks all questions, as many at once as the service may be asked. A panic of one ends the batch as if it had happened
// here, where the engine catches it.
func (l *httpLookup) answers(ctx context.Context, open []question) {
	var next atomic.Int64
	var broken atomic.Pointer[any]
	work := func() {
		defer func() {
			if v := recover(); v != nil {
				broken.CompareAndSwap(nil, &v)
			}
		}()
		for {
			k := int(next.Add(1)) - 1
			if k >= len(open) {
				return
			}
			q := &open[k]
			q.answer, q.found, q.failure = l.ask.Get(ctx, q.url)
		}
	}
	var wg sync.WaitGroup
	for range min(l.parallel, len(open)) - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
	if v := broken.Load(); v != nil {
		panic(*v)
	}
}
