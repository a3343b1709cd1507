package kafka_test

import (
	"context"
	"fmt"
	"maps"
	"sync/atomic"
	"testing"
	"time"

	"reprieve.dev/embedded"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/kafka"
	"reprieve.dev/tests/conformance"
	"reprieve.dev/tests/services"
)

type tt struct{ *testing.T }

func (t tt) Run(name string, f func(conformance.T)) bool {
	return t.T.Run(name, func(t *testing.T) { f(tt{t}) })
}

// names makes what tests create unlike what other tests of this and of other processes create on the same broker.
var names = new(atomic.Int64)

// adapter opens our clients over one cluster for the suites.
type adapter struct {
	cluster kafka.Cluster
	stamp   string
	lacks   string
}

func (a adapter) Lacks(what string) bool { return a.lacks == what }

func newAdapter(bootstrap string, properties map[string]string) adapter {
	c := kafka.Cluster{Name: "main", Properties: map[string]string{"bootstrap.servers": bootstrap,
		"topic.metadata.propagation.max.ms": "2000"}}
	maps.Copy(c.Properties, properties)
	return adapter{cluster: c, stamp: fmt.Sprint(time.Now().UnixNano())}
}

func (a adapter) Name(prefix string) string {
	return fmt.Sprintf("%s-%s-%d", prefix, a.stamp, names.Add(1))
}

func (a adapter) admin(t conformance.T) *kafka.Admin {
	t.Helper()
	ad, err := kafka.NewAdmin(a.cluster)
	if err != nil {
		t.Fatalf("NewAdmin: %v", err)
	}
	t.Cleanup(ad.Close)
	return ad
}

func (a adapter) CreateTopic(t conformance.T, partitions int, configs map[string]string) string {
	t.Helper()
	name := a.Name("topic")
	if err := a.admin(t).CreateTopics(within(t), kafka.TopicSpec{Name: name, Partitions: partitions, Configs: configs}); err != nil {
		t.Fatalf("CreateTopics: %v", err)
	}
	return name
}

func within(t conformance.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func (a adapter) Source(t conformance.T, o conformance.SourceOptions) conformance.Source {
	t.Helper()
	s, err := kafka.NewSource(kafka.SourceConfig{Cluster: a.cluster, Group: o.Group, Topics: o.Topics, RetryTopics: o.Retry,
		MaxBatch: o.MaxBatch})
	if err != nil {
		t.Fatalf("NewSource: %v", err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func (a adapter) Sink(t conformance.T, o conformance.SinkOptions) conformance.Sink {
	t.Helper()
	k, err := kafka.NewSink(kafka.SinkConfig{Cluster: a.cluster, MaxInFlight: o.MaxInFlight})
	if err != nil {
		t.Fatalf("NewSink: %v", err)
	}
	t.Cleanup(func() { _ = k.Close(within(t)) })
	return k
}

func (a adapter) Tx(t conformance.T, id string) conformance.Tx {
	t.Helper()
	x, err := kafka.NewTx(within(t), kafka.TxConfig{Cluster: a.cluster, TransactionalID: id})
	if err != nil {
		t.Fatalf("NewTx: %v", err)
	}
	t.Cleanup(func() { _ = x.Close(within(t)) })
	return x
}

func (a adapter) Log(t conformance.T) pipeline.Log {
	t.Helper()
	l, err := kafka.NewLog(a.cluster, nil)
	if err != nil {
		t.Fatalf("NewLog: %v", err)
	}
	t.Cleanup(l.Close)
	return l
}

func (a adapter) Committed(t conformance.T, group string) map[pipeline.TP]pipeline.Checkpoint {
	t.Helper()
	cps, err := a.admin(t).Checkpoints(within(t), group)
	if err != nil {
		t.Fatalf("Checkpoints: %v", err)
	}
	return cps
}

// protocols are the ways in which a group may be kept.
var protocols = map[string]map[string]string{
	"range":       {"partition.assignment.strategy": "range", "heartbeat.interval.ms": "200", "session.timeout.ms": "6000"},
	"cooperative": {"heartbeat.interval.ms": "200", "session.timeout.ms": "6000"},
	"kip848":      {"group.protocol": "consumer"},
}

func startEmbedded(t *testing.T) string {
	t.Helper()
	b, err := embedded.StartBroker(embedded.BrokerConfig{Dir: t.TempDir(),
		Configs: map[string]string{"group.consumer.heartbeat.interval.ms": "200"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b.Bootstrap()
}

// conform runs all suites; those about groups once for each protocol.
func conform(t *testing.T, bootstrap, lacks string) {
	a := newAdapter(bootstrap, nil)
	a.lacks = lacks
	t.Run("source", func(t *testing.T) { conformance.RunSource(tt{t}, a) })
	t.Run("sink", func(t *testing.T) { conformance.RunSink(tt{t}, a) })
	t.Run("tx", func(t *testing.T) { conformance.RunTx(tt{t}, a) })
	t.Run("log", func(t *testing.T) { conformance.RunLog(tt{t}, a) })
	for name, properties := range protocols {
		t.Run("group over "+name, func(t *testing.T) { conformance.RunGroup(tt{t}, newAdapter(bootstrap, properties)) })
	}
}

func TestConformsOverTheEmbeddedBroker(t *testing.T) {
	conform(t, startEmbedded(t), conformance.RefusesKeyless)
}

func TestConformsOverApacheKafka(t *testing.T) {
	if testing.Short() {
		t.Skip("short: a real broker is left out")
	}
	conform(t, services.Kafka(t), "")
}
