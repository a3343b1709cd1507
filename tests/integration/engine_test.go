// Package integration runs whole parts together over real brokers.
package integration

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"reprieve.dev/embedded"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/pipeline/engine"
	"reprieve.dev/pipeline/kafka"
	"reprieve.dev/seal"
	"reprieve.dev/worker"
)

// cluster is an embedded broker with an administrator.
type cluster struct {
	kafka.Cluster
	admin *kafka.Admin
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	b, err := embedded.StartBroker(embedded.BrokerConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	c := &cluster{Cluster: kafka.Cluster{Name: "main", Properties: map[string]string{"bootstrap.servers": b.Bootstrap()}}}
	if c.admin, err = kafka.NewAdmin(c.Cluster); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.admin.Close)
	return c
}

func (c *cluster) create(t *testing.T, partitions int, topics ...string) {
	t.Helper()
	var specs []kafka.TopicSpec
	for _, n := range topics {
		specs = append(specs, kafka.TopicSpec{Name: n, Partitions: partitions, Replicas: 1})
	}
	if err := c.admin.CreateTopics(t.Context(), specs...); err != nil {
		t.Fatal(err)
	}
}

// write sends messages and waits for all of them.
func (c *cluster) write(t *testing.T, msgs []pipeline.Message) {
	t.Helper()
	sink, err := kafka.NewSink(kafka.SinkConfig{Cluster: c.Cluster, ClientID: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close(context.Background())
	for len(msgs) > 0 {
		n := min(5000, len(msgs))
		s := &pipeline.Sending{Msgs: msgs[:n]}
		if err := sink.Send(s); err != nil {
			t.Fatal(err)
		}
		if done := <-sink.Done(); len(done.Bad) > 0 {
			t.Fatalf("refused: %+v", done.Bad[0])
		}
		msgs = msgs[n:]
	}
}

// read returns all records of a topic.
func (c *cluster) read(t *testing.T, topic string) (out []pipeline.Record) {
	t.Helper()
	log, err := kafka.NewLog(c.Cluster, pipeline.NewPool(&pipeline.Layout{}))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	ranges, err := c.admin.Offsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	for p, r := range ranges {
		all := func(yield func(int64) bool) {
			for off := r.First; off < r.Next; off++ {
				if !yield(off) {
					return
				}
			}
		}
		err := log.Read(t.Context(), pipeline.TP{Topic: topic, Partition: p}, all, func(b *pipeline.Batch) error {
			for i := range b.Recs {
				out = append(out, b.Recs[i].Clone())
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// byTable decides as the code table says, with five retries.
type byTable struct{ retry, dlq string }

func (byTable) Reject(*pipeline.Batch, int) (pipeline.Failure, bool) {
	return pipeline.Failure{}, false
}
func (byTable) Digest() pipeline.Digest { return "sha256:test" }
func (p byTable) Decide(f pipeline.Facts) pipeline.Decision {
	d := pipeline.Decision{Code: f.Code, Attempt: f.Attempt, Policy: p.Digest()}
	if pipeline.Lookup(f.Code).Retryable() && f.Attempt < 5 {
		d.Action, d.Topic, d.Attempt, d.NotBefore = pipeline.ActRetry, p.retry, f.Attempt+1, f.NowMS+20
		return d
	}
	d.Action, d.Topic = pipeline.ActQuarantine, p.dlq
	return d
}

type noIdentity struct{}

func (noIdentity) Identify(_ string, r *pipeline.Record, _ pipeline.View) pipeline.Identity {
	return pipeline.Identity{Tenant: "acme", EventID: string(r.Value[:min(12, len(r.Value))])}
}

type asItIs struct{}

func (asItIs) Sanitize(_ string, r *pipeline.Record, _ pipeline.View) (pipeline.Clean, error) {
	return pipeline.Clean{Key: r.Key, Value: r.Value, Headers: r.Headers}, nil
}
func (asItIs) Text(s string) string { return s }

// byWord fails records as their text says.
type byWord struct{ to string }

func (s byWord) Process(_ context.Context, b *pipeline.Batch) error {
	for i := range b.Recs {
		if !b.Live(i) {
			continue
		}
		v := string(b.Recs[i].Value)
		attempt := uint8(0)
		if t := b.Recs[i].Trail; t != nil {
			attempt = t.Attempt
		}
		switch {
		case strings.Contains(v, "poison"):
			b.Fail(i, pipeline.Failure{Stage: "word", Code: pipeline.CodeDecodeTruncated})
		case strings.Contains(v, "flaky") && attempt < 3, strings.Contains(v, "down"):
			b.Fail(i, pipeline.Failure{Stage: "word", Code: pipeline.CodeRegistryUnavailable})
		case strings.Contains(v, "panic"):
			panic("a hostile record")
		default:
			b.Outs[i].To = pipeline.Target{Kind: pipeline.TargetTopic, Topic: s.to, Partition: -1}
		}
	}
	return nil
}

func testRing(t *testing.T) (*seal.Ring, *seal.IdentityKey) {
	t.Helper()
	ring, err := seal.NewRing([]seal.Key{{ID: "k1", Secret: bytes.Repeat([]byte{7}, 32)}})
	if err != nil {
		t.Fatal(err)
	}
	id, err := seal.NewIdentityKey("i1", bytes.Repeat([]byte{9}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return ring, id
}

func TestEngineSettlesEveryRecordExactlyOnce(t *testing.T) {
	c := startCluster(t)
	c.create(t, 6, "in", "in.retry", "in.dlq", "out", "reprieve.settlements", "reprieve.outcomes")
	const n = 20_000
	var msgs []pipeline.Message
	want := map[string]string{}
	for i := range n {
		word := "fine"
		switch {
		case i%1000 == 3:
			word = "poison"
		case i%1000 == 5:
			word = "flaky"
		case i%1000 == 7:
			word = "down"
		case i == 4321:
			word = "panic"
		}
		v := fmt.Sprintf("%08d-%s-%s", i, word, strings.Repeat("x", 300))
		want[v[:8]] = word
		msgs = append(msgs, pipeline.Message{Topic: "in", Partition: -1, Key: fmt.Appendf(nil, "k%d", i%997), Value: []byte(v),
			Headers: []pipeline.Header{{Name: "trace", Value: []byte("t")}, {Name: "nullh"}}})
	}
	c.write(t, msgs)

	ring, id := testRing(t)
	layout := &pipeline.Layout{}
	pool := pipeline.NewPool(layout)
	src, err := kafka.NewSource(kafka.SourceConfig{Cluster: c.Cluster, Group: "g", Topics: []string{"in"}, RetryTopics: map[string]bool{"in.retry": true}, Pool: pool, Log: slog.Default()})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	sink, err := kafka.NewSink(kafka.SinkConfig{Cluster: c.Cluster, ClientID: "engine"})
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close(context.Background())
	reg := prometheus.NewRegistry()
	e := engine.New(engine.Options{
		Pipeline: "p", Cluster: "c1", Consumer: "g", Release: "r1", Source: src, Sink: sink, Letters: sink, Pool: pool, Layout: layout,
		Stages:   []engine.Stage{{Name: "word", Stage: byWord{"out"}}},
		Policy:   func(pipeline.TP) pipeline.Policy { return byTable{"in.retry", "in.dlq"} },
		Identify: noIdentity{}, Sanitize: asItIs{}, Ring: ring, Identity: id,
		Route: engine.Route{RetryTopic: "in.retry", QuarantineTopic: "in.dlq", Prefix: "reprieve"},
		Clock: time.Now, Log: slog.Default(), Meter: worker.NewMeter(reg),
		Limits: engine.Limits{CommitEvery: 50 * time.Millisecond},
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()

	deadline := time.Now().Add(60 * time.Second)
	for {
		if time.Now().After(deadline) {
			t.Fatal("the records were not settled in time")
		}
		if c.settled(t, "g", "in", "in.retry") {
			break
		}
		time.Sleep(50 * time.Millisecond) // polling a broker with a deadline
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}

	got := map[string]string{}
	for _, r := range c.read(t, "out") {
		k := string(r.Value[:8])
		if got[k] != "" {
			t.Errorf("%s was delivered twice", k)
		}
		got[k] = "out"
		if len(r.Headers) != 2 || r.Headers[1].Value != nil {
			t.Fatalf("headers changed: %v", r.Headers)
		}
	}
	for _, r := range c.read(t, "in.dlq") {
		if deadletter.IsProbe(&r) {
			continue
		}
		l, err := deadletter.Parse("in.dlq", &r, ring)
		if err != nil {
			t.Fatal(err)
		}
		k := string(r.Value[:8])
		if got[k] != "" {
			t.Errorf("%s is in %s and in the dead-letter topic", k, got[k])
		}
		got[k] = string(l.Decision.Code) + fmt.Sprint(l.Decision.Attempt)
	}
	for k, word := range want {
		expect := map[string]string{"fine": "out", "flaky": "out", "poison": "ERR_DECODE_TRUNCATED0", "panic": "ERR_CONSUMER_PANIC0",
			"down": "ERR_REGISTRY_UNAVAILABLE5"}[word]
		if got[k] != expect {
			t.Errorf("%s (%s) ended as %q, want %q", k, word, got[k], expect)
		}
	}
	counts := map[pipeline.Disposition]int64{}
	var received int64
	for _, r := range c.read(t, "reprieve.settlements") {
		s, err := deadletter.ParseSettlement(&r, ring)
		if err != nil {
			t.Fatal(err)
		}
		received += s.To - s.From
		for d := pipeline.Delivered; d <= pipeline.Ranged; d++ {
			counts[d] += s.Count(d)
		}
	}
	t.Logf("settled %d offsets: %v", received, counts)
	if counts[pipeline.DeadLettered] != 41 || counts[pipeline.Retried] != 20*3+20*5 || counts[pipeline.Delivered] != n-41 {
		t.Errorf("settlements count %v", counts)
	}
}

// settled tells whether the group has committed to the end of every partition of the topics.
func (c *cluster) settled(t *testing.T, group string, topics ...string) bool {
	t.Helper()
	points, err := c.admin.Checkpoints(t.Context(), group)
	if err != nil {
		return false
	}
	for _, topic := range topics {
		ends, err := c.admin.EndOffsets(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		for p, end := range ends {
			if end > 0 && points[pipeline.TP{Topic: topic, Partition: p}].Next != end {
				return false
			}
		}
	}
	return true
}
