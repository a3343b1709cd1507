package kafka

import (
	"log/slog"
	"maps"
	"slices"
	"strings"

	client "github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"reprieve.dev/pipeline"
)

// Cluster names a Kafka cluster and how to reach it. Properties have librdkafka's names; those of consumers and of producers
// may stand together.
type Cluster struct {
	Name       string
	Properties map[string]string
}

// Check tells what is wrong with the properties, all at once: a name that librdkafka does not know (with the nearest that
// it does), and one that Reprieve sets itself. Values are checked by the library when a client is opened. Codes:
// ERR_BROKER_CONFIG.
func (c Cluster) Check() []*pipeline.Error {
	var bad []*pipeline.Error
	for _, name := range slices.Sorted(maps.Keys(c.Properties)) {
		place := "clusters." + c.Name + "." + name
		if fix, ok := ours[name]; ok {
			bad = append(bad, pipeline.Errorf(pipeline.CodeBrokerConfig, place, "Reprieve sets %s itself", name).With(fix))
			continue
		}
		if kindOf(name) == 0 {
			e := pipeline.Errorf(pipeline.CodeBrokerConfig, place, "librdkafka knows no property %q", name)
			if n := nearest(name); n != "" {
				e.Remedy = "did you mean " + n + "?"
			}
			bad = append(bad, e)
		}
	}
	if c.Properties["bootstrap.servers"] == "" && c.Properties["metadata.broker.list"] == "" {
		bad = append(bad, pipeline.Errorf(pipeline.CodeBrokerConfig, "clusters."+c.Name, "bootstrap.servers is missing").
			With("Write bootstrap.servers: host:port[,host:port]"))
	}
	return bad
}

// bootstrap is where the cluster is, for messages.
func (c Cluster) bootstrap() string {
	if s := c.Properties["bootstrap.servers"]; s != "" {
		return s
	}
	return c.Properties["metadata.broker.list"]
}

// place names the cluster in an error.
func (c Cluster) place() string { return c.Name + " (" + c.bootstrap() + ")" }

// Settings that were measured to matter; a file may change them.
var (
	tuned = map[string]string{
		"client.id":                          "reprieve",
		"topic.metadata.refresh.interval.ms": "10000", // a topic created late is found in seconds, not in five minutes
		"topic.metadata.propagation.max.ms":  "3000",  // a missing topic is known as missing sooner
		"socket.keepalive.enable":            "true",
		"log.connection.close":               "false",
	}
	tunedConsumer = map[string]string{
		"auto.offset.reset":             "earliest",
		"check.crcs":                    "true",
		"fetch.queue.backoff.ms":        "5", // the default stops fetching for a second when the local queue is full
		"queued.max.messages.kbytes":    "16384",
		"partition.assignment.strategy": "cooperative-sticky",
		"isolation.level":               "read_committed",
	}
	tunedProducer = map[string]string{
		"linger.ms":        "5",
		"retry.backoff.ms": "50",
		"compression.type": "none",
		// a destination that is away is a failure to act on after half a minute, not after five
		"message.timeout.ms": "30000",
	}
)

// settings merges what we tune, what the cluster says and what must be, for one kind of client.
func (c Cluster) settings(kind int, must map[string]any) (client.ConfigMap, error) {
	if bad := c.Check(); len(bad) > 0 {
		return nil, bad[0]
	}
	m := client.ConfigMap{}
	put := func(from map[string]string) {
		for k, v := range from {
			m[k] = v
		}
	}
	put(tuned)
	if kind == forConsumer {
		put(tunedConsumer)
	} else {
		put(tunedProducer)
	}
	if c.Properties["group.protocol"] == "consumer" {
		// the broker assigns and keeps the session: librdkafka refuses these beside it
		delete(m, "partition.assignment.strategy")
	}
	for k, v := range c.Properties {
		if kindOf(k)&kind == 0 {
			continue
		}
		if alias, ok := aliases[k]; ok {
			delete(m, alias) // else the default would compete with what the file says
		}
		m[k] = v
	}
	for k, v := range must {
		m[k] = v
	}
	return m, nil
}

// aliases maps the other spelling of a property that we tune.
var aliases = map[string]string{
	"queue.buffering.max.ms": "linger.ms",
	"compression.codec":      "compression.type",
	"delivery.timeout.ms":    "message.timeout.ms",
}

// logs takes librdkafka's own messages. They go through a channel that is emptied wherever the owner passes by, so no
// goroutine of ours is needed.
type logs struct {
	ch   chan client.LogEvent
	to   *slog.Logger
	name string
}

func newLogs(to *slog.Logger, cluster string) logs {
	if to == nil {
		to = slog.New(slog.DiscardHandler)
	}
	return logs{ch: make(chan client.LogEvent, 256), to: to, name: cluster}
}

func (l logs) in(m client.ConfigMap) {
	m["go.logs.channel.enable"] = true
	m["go.logs.channel"] = l.ch
}

// drain hands on what has come so far.
func (l logs) drain() {
	for {
		select {
		case e := <-l.ch:
			l.write(e)
		default:
			return
		}
	}
}

// write maps syslog levels. Errors of single brokers are warnings: the library reconnects by itself.
func (l logs) write(e client.LogEvent) {
	if e.Tag == "ASSIGN" && strings.Contains(e.Message, "incremental_assign()") {
		return // how a rebalance is left open until the owner answers it (Source.deferAnswer)
	}
	say := l.to.Debug
	switch {
	case e.Level <= 2:
		say = l.to.Error
	case e.Level <= 4:
		say = l.to.Warn
	}
	say(e.Message, "part", "librdkafka", "cluster", l.name, "client", e.Name, "tag", e.Tag)
}
