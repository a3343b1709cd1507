package engine_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/pipeline/decide"
	"reprieve.dev/pipeline/engine"
	"reprieve.dev/seal"
	"reprieve.dev/tests/conformance/script"
)

// bench is one pipeline over a scripted cluster, in a bubble of its own time.
type bench struct {
	t      *testing.T
	c      *script.Cluster
	src    *script.Source
	sink   *script.Sink
	layout *pipeline.Layout
	pool   *pipeline.Pool
	stage  *wordStage
	o      engine.Options
	health atomic.Pointer[engine.Health]
	cancel context.CancelFunc
	ended  chan error
	late   time.Duration // the first records of an assignment come so much later
}

// wordStage does what the text of a record says.
type wordStage struct {
	calls  atomic.Int64
	denied atomic.Bool // "denied" is held while it is set
	outage atomic.Bool // "needs" fails while it is set
	seen   func(b *pipeline.Batch, i int)
}

func (s *wordStage) Process(_ context.Context, b *pipeline.Batch) error {
	s.calls.Add(1)
	for i := range b.Recs {
		if !b.Live(i) {
			continue
		}
		if s.seen != nil {
			s.seen(b, i)
		}
		v := b.Recs[i].Value
		attempt := uint8(0)
		if t := b.Recs[i].Trail; t != nil {
			attempt = t.Attempt
		}
		switch {
		case bytes.HasPrefix(v, []byte("poison")):
			b.Fail(i, pipeline.Failure{Stage: "word", Code: pipeline.CodeDecodeTruncated, Params: []pipeline.Param{pipeline.Str("schema", "avro:7")}})
		case bytes.HasPrefix(v, []byte("domain")):
			b.Fail(i, pipeline.Failure{Stage: "word", Code: pipeline.CodeRejected, Params: []pipeline.Param{pipeline.Str("rule", "r")}})
		case bytes.HasPrefix(v, []byte("down")), bytes.HasPrefix(v, []byte("flaky")) && attempt < 2:
			b.Fail(i, pipeline.Failure{Stage: "word", Code: pipeline.CodeRegistryUnavailable})
		case bytes.HasPrefix(v, []byte("denied")) && s.denied.Load():
			b.Fail(i, pipeline.Failure{Stage: "word", Code: pipeline.CodeRegistryDenied})
		case bytes.HasPrefix(v, []byte("needs")) && s.outage.Load():
			b.Fail(i, pipeline.Failure{Stage: "word", Code: pipeline.CodeRegistryUnavailable, Unasked: true})
		case bytes.HasPrefix(v, []byte("panic")):
			panic("a hostile record")
		case bytes.HasPrefix(v, []byte("lost")):
			b.Outs[i].To = pipeline.Target{Kind: pipeline.TargetTopic, Topic: "nowhere", Partition: -1}
		case bytes.HasPrefix(v, []byte("call")):
			b.Outs[i].Add = append(b.Outs[i].Add, pipeline.Header{Name: "call-url", Value: append([]byte("https://pay/"), v...)})
			b.Outs[i].To = pipeline.Target{Kind: pipeline.TargetCall, Topic: "pay", Partition: -1}
		case bytes.HasPrefix(v, []byte("nothing")):
		default:
			b.Outs[i].To = pipeline.Target{Kind: pipeline.TargetTopic, Topic: "out", Partition: -1}
		}
	}
	return nil
}

type plain struct{}

func (plain) Sanitize(_ string, r *pipeline.Record, _ pipeline.View) (pipeline.Clean, error) {
	return pipeline.Clean{Key: r.Key, Value: r.Value, Headers: r.Headers}, nil
}
func (plain) Text(s string) string { return s }

type acme struct{}

func (acme) Identify(_ string, r *pipeline.Record, _ pipeline.View) pipeline.Identity {
	return pipeline.Identity{Tenant: "acme", EventID: string(r.Value)}
}

type noMeter struct{}
type noMetric struct{}

func (noMetric) Add(float64)                                                      {}
func (noMetric) Set(float64)                                                      {}
func (noMetric) Observe(float64)                                                  {}
func (noMeter) Counter(string, string, ...string) pipeline.Counter                { return noMetric{} }
func (noMeter) Gauge(string, string, ...string) pipeline.Gauge                    { return noMetric{} }
func (noMeter) Histogram(string, string, []float64, ...string) pipeline.Histogram { return noMetric{} }

var (
	testRing     = must(seal.NewRing([]seal.Key{{ID: "k1", Secret: bytes.Repeat([]byte{7}, 32)}}))
	testIdentity = must(seal.NewIdentityKey("i1", bytes.Repeat([]byte{9}, 32)))
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// newBench makes the topics in, in.retry, in.dlq, out and the platform's own.
func newBench(t *testing.T, partitions int) *bench {
	b := &bench{t: t, c: script.New(time.Now().UnixMilli()), stage: &wordStage{}, ended: make(chan error, 1)}
	for _, topic := range []string{"in", "in.retry", "out", "reprieve.settlements", "reprieve.outcomes"} {
		b.c.CreateTopic(topic, partitions, nil)
	}
	b.c.CreateTopic("in.dlq", 2, nil)
	b.join()
	return b
}

// join makes a fresh consumer, producer and options: what a new process has.
func (b *bench) join() {
	b.layout = &pipeline.Layout{}
	b.pool = pipeline.NewPool(b.layout)
	b.src = b.c.Source(script.SourceOptions{Group: "g", Topics: []string{"in"}, Retry: map[string]bool{"in.retry": true}, Pool: b.pool, Idle: idle})
	b.sink = b.c.Sink(script.SinkOptions{})
	b.o = engine.Options{
		Pipeline: "p", Cluster: "c1", Consumer: "g", Release: "g@1", Source: b.src, Sink: b.sink, Letters: b.sink, Layout: b.layout, Pool: b.pool,
		Stages:   []engine.Stage{{Name: "word", Stage: b.stage}},
		Policy:   func(pipeline.TP) pipeline.Policy { return testPolicy },
		Identify: acme{}, Sanitize: plain{}, Ring: testRing, Identity: testIdentity,
		Route: engine.Route{RetryTopic: "in.retry", QuarantineTopic: "in.dlq", Prefix: "reprieve"},
		Clock: time.Now, Log: slog.New(slog.DiscardHandler), Meter: noMeter{},
		Observe: func(h engine.Health) { b.health.Store(&h) },
	}
	if b.late > 0 {
		b.o.Source = &lateSource{Source: b.src, wait: b.late}
	}
}

var testPolicy = decide.Default(decide.Bounds{}, "in.retry", "in.dlq", decide.Backoff{})

func idle(wait time.Duration, changed <-chan struct{}) {
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-changed:
	}
}

func (b *bench) start() {
	ctx, cancel := context.WithCancel(context.Background())
	b.cancel = cancel
	e := engine.New(b.o)
	ended := b.ended
	go func() { ended <- e.Run(ctx) }()
}

// after lets d pass and everything come to rest.
func (b *bench) after(d time.Duration) {
	time.Sleep(d) // the bubble's time
	synctest.Wait()
}

// stop drains the engine.
func (b *bench) stop() error {
	b.cancel()
	err := <-b.ended
	_ = b.src.Close()
	return err
}

// in appends the values at once: the engine finds all of them or none.
func (b *bench) in(partition int32, values ...string) {
	recs := make([]pipeline.Record, len(values))
	for i, v := range values {
		recs[i] = pipeline.Record{Key: []byte("k"), Value: []byte(v), TimeMS: time.Now().UnixMilli(), TimeType: pipeline.TimeCreate}
	}
	b.c.Append(pipeline.TP{Topic: "in", Partition: partition}, recs...)
}

func (b *bench) values(topic string) (out []string) {
	for _, r := range b.c.All(topic) {
		if !deadletter.IsProbe(&r) {
			out = append(out, string(r.Value))
		}
	}
	return out
}

func (b *bench) letters() (out []*deadletter.Letter) {
	b.t.Helper()
	for _, r := range b.c.All("in.dlq") {
		if deadletter.IsProbe(&r) {
			continue
		}
		l, err := deadletter.Parse("in.dlq", &r, testRing)
		if err != nil {
			b.t.Fatal(err)
		}
		out = append(out, l)
	}
	return out
}

func (b *bench) committed(topic string, partition int32) int64 {
	c, ok := b.c.Committed("g")[pipeline.TP{Topic: topic, Partition: partition}]
	if !ok {
		return -1
	}
	return c.Next
}

// settled sums the settlements that were written.
func (b *bench) settled() map[string]int64 {
	b.t.Helper()
	out := map[string]int64{}
	for _, r := range b.c.All("reprieve.settlements") {
		s, err := deadletter.ParseSettlement(&r, testRing)
		if err != nil {
			b.t.Fatal(err)
		}
		for d := pipeline.Delivered; d <= pipeline.Ranged; d++ {
			if n := s.Count(d); n > 0 {
				out[s.TP.Topic+" "+d.String()] += n
			}
		}
	}
	return out
}

func join(list []string) string { return strings.Join(list, " ") }

var errBroken = errors.New("broken")
