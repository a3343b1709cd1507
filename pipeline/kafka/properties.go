package kafka

import (
	"log/slog"
	"maps"
	"slices"

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
		// how large a message may be is for its topic to say (max.message.bytes): refused here, below that, it would be too large for a
		// topic that has room for it. Batches stay bounded by batch.size.
		"message.max.bytes": "1000000000",
		// a destination that is away is a failure to act on after half a minute, not after five
		"message.timeout.ms": "30000",
	}
)

// settings merges what we tune, what the cluster says and what must be, for one kind of client.
func (c Cluster) settings(kind int, must map[string]string) (map[string]string, error) {
	if bad := c.Check(); len(bad) > 0 {
		return nil, bad[0]
	}
	m := maps.Clone(tuned)
	if kind == forConsumer {
		maps.Copy(m, tunedConsumer)
	} else {
		maps.Copy(m, tunedProducer)
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
	maps.Copy(m, must)
	return m, nil
}

// forClient is settings for confluent-kafka-go, which the administration and random access use. What the library would print
// on its own is in the errors that the calls return.
func forClient(m map[string]string) *client.ConfigMap {
	out := client.ConfigMap{}
	for k, v := range m {
		out[k] = v
	}
	out["log_level"] = 0
	return &out
}

// aliases maps the other spelling of a property that we tune.
var aliases = map[string]string{
	"queue.buffering.max.ms": "linger.ms",
	"compression.codec":      "compression.type",
	"delivery.timeout.ms":    "message.timeout.ms",
}

// logs hands on librdkafka's own messages. They wait in the binding until the owner passes by, so no goroutine is needed.
type logs struct {
	to      *slog.Logger
	cluster string
}

func newLogs(to *slog.Logger, cluster string) logs {
	if to == nil {
		to = slog.New(slog.DiscardHandler)
	}
	return logs{to: to, cluster: cluster}
}

// drain hands on what a client has said so far, by syslog's levels. Errors of single brokers are warnings: the library
// reconnects by itself.
func (l logs) drain(n *native) {
	n.said(false, func(e note) {
		say := l.to.Debug
		switch {
		case e.level <= 2:
			say = l.to.Error
		case e.level <= 4:
			say = l.to.Warn
		}
		if e.lost > 0 {
			l.to.Warn("lines of the library's log were lost", "cluster", l.cluster, "count", e.lost)
		}
		say(e.text, "part", "librdkafka", "cluster", l.cluster, "client", n.name(), "tag", e.about)
	})
}
