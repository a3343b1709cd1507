package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/kafka"
	"reprieve.dev/tests/services"
)

//go:embed peers/ParseJson.java
var parseJSON string

// peersBudget is what is promised beside Kafka Connect.
const peersBudget = 3

var livePeers = lane{name: "live_peers", warm: true}

func peersEntry() entry {
	var names []string
	for _, line := range []string{"_records", "_cpu", "_memory", "_bytes", "_broker", "_control"} {
		names = append(names, livePeers.name+line)
	}
	return entry{names: names, run: runPeers}
}

// runPeers alternates the billing pipeline over Avro invoices with a worker of Kafka Connect over JSON records of as many bytes: it
// reads, parses, leaves delete markers out, masks two fields, adds a header, renames the topic, writes JSON. That is the same pipe in
// the single message transformations that come with Kafka, but for what they do not have: rules, detectors, a route by content, dead
// letters. Both are measured from
// the first quarter of the records on, when a JVM has compiled what it runs.
func runPeers(ctx context.Context) ([]result, error) {
	w, err := newWorld(ctx, livePeers, setting("RECORDS", minRecords))
	if err != nil {
		return nil, err
	}
	defer w.close()
	if err := w.fillJSON(ctx); err != nil {
		return nil, err
	}
	classes := filepath.Join(w.dir, "classes")
	if err := services.ConnectClasses(classes, map[string]string{"dev/reprieve/bench/ParseJson.java": parseJSON,
		"META-INF/services/org.apache.kafka.connect.transforms.Transformation": "dev.reprieve.bench.ParseJson\n"}); err != nil {
		return nil, err
	}
	var ours, theirs []leg
	for r := 0; r <= setting("ROUNDS", 3); r++ {
		a, err := w.pipelineLeg(ctx, r)
		if err != nil {
			return nil, err
		}
		b, err := w.connectLeg(ctx, r, classes)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(os.Stderr, "round %d: reprieve %s; Kafka Connect %s\n", r, a, b)
		if r > 0 {
			ours, theirs = append(ours, a), append(theirs, b)
		}
	}
	out := livePeers.judge(ours, theirs, w.records)
	for i := range out {
		r := &out[i]
		switch r.Name {
		case "live_peers_records":
			r.What = fmt.Sprintf("billing pipeline, full stage list, %d invoices of 1.2 KiB in Avro, beside Kafka Connect with transformations over as much JSON, two tasks", w.records)
			*r = r.atLeast(peersBudget)
		case "live_peers_cpu":
			r.What = "CPU of reprieve run for a record, beside Kafka Connect"
		case "live_peers_memory":
			r.What = "most memory resident of reprieve run, beside Kafka Connect with a heap of 1 GiB"
		case "live_peers_bytes":
			r.What = "bytes of a record in the output topics, beside Kafka Connect's"
		case "live_peers_broker":
			r.What = "CPU of the broker for a record, beside Kafka Connect's"
		case "live_peers_control":
			r.What = "fastest round of Kafka Connect by its slowest: how quiet the machine was"
		}
	}
	return out, nil
}

func (w *world) documents() string { return w.id + ".documents" }

// fillJSON writes as many JSON records as there are invoices, each about as large as one in Avro.
func (w *world) fillJSON(ctx context.Context) error {
	if err := w.create(ctx, topic{name: w.documents(), partitions: partitions}); err != nil {
		return err
	}
	cluster := kafka.Cluster{Name: "main", Properties: map[string]string{"bootstrap.servers": w.bootstrap}}
	return w.write(ctx, cluster, func(m *pipeline.Message, k int) {
		*m = pipeline.Message{Topic: w.documents(), Partition: int32(k % partitions), Key: fmt.Appendf(nil, "ACC-%06d", k%5000), Value: document(m.Value[:0], k), From: -1}
	})
}

// documentBytes is how large a document is at least: as an invoice in Avro.
const documentBytes = 1200

func document(b []byte, i int) []byte {
	b = fmt.Appendf(b, `{"event_id":"evt-%024x","invoice_id":"INV-%09d","account_id":"ACC-%06d","tenant":"acme","token":"tok-%012x","seq":%d,"kind":"INVOICE","account_status":"ACTIVE",`+
		`"currency":"EUR","amount_minor":%d,"country":"DE","customer_name":"Customer of ACC-%06d","customer_email":"billing-%d@customer.example","customer_phone":"+49 30 5550 1234","lines":[`,
		i, i, i%5000, i, i, 10_000+i%900_000, i%5000, i%1000)
	for n := 0; len(b) < documentBytes; n++ {
		if n > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `{"sku":"SKU-%05d","text":"hours of service","quantity":%d,"price_minor":%d,"tax":19}`, (i+n)%10_000, n+1, 1000+n)
	}
	return append(b, "]}"...)
}

// connectLeg runs a worker of Kafka Connect.
func (w *world) connectLeg(ctx context.Context, round int, classes string) (leg, error) {
	name := fmt.Sprintf("c%d", round)
	topics := []topic{{name: w.ledger(name), partitions: partitions}, {name: w.large(name), partitions: partitions}}
	if err := w.create(ctx, topics...); err != nil {
		return leg{}, err
	}
	defer w.remove(topics...)
	dir := filepath.Join(w.dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return leg{}, err
	}
	cmd, err := services.ConnectCommand(dir, services.ConnectOptions{Bootstrap: w.bootstrap, Name: w.id + "-" + name, Classes: classes,
		JVM: []string{"-Xms1g", "-Xmx1g", "-XX:+UseParallelGC"},
		Settings: map[string]string{
			"connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector", "tasks.max": strconv.Itoa(2), "topics": w.documents(),
			"source.cluster.alias": name, "target.cluster.alias": "there", "source.cluster.bootstrap.servers": w.bootstrap, "target.cluster.bootstrap.servers": w.bootstrap,
			"replication.factor": "1", "sync.topic.configs.enabled": "false", "sync.topic.acls.enabled": "false",
			"refresh.topics.enabled": "false", "emit.offset-syncs.enabled": "false",
			"value.converter": "org.apache.kafka.connect.json.JsonConverter", "value.converter.schemas.enable": "false",
			"producer.override.linger.ms": "5", "producer.override.batch.size": "262144", "producer.override.acks": "all",
			"transforms":            "parse,live,mask,region,route",
			"transforms.parse.type": "dev.reprieve.bench.ParseJson",
			"transforms.live.type":  "org.apache.kafka.connect.transforms.Filter", "transforms.live.predicate": "deleted",
			"predicates": "deleted", "predicates.deleted.type": "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
			"transforms.mask.type": "org.apache.kafka.connect.transforms.MaskField$Value", "transforms.mask.fields": "customer_email,customer_phone", "transforms.mask.replacement": "***",
			"transforms.region.type": "org.apache.kafka.connect.transforms.InsertHeader", "transforms.region.header": "region", "transforms.region.value.literal": "eu",
			"transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter", "transforms.route.regex": ".*", "transforms.route.replacement": w.ledger(name),
		}})
	if err != nil {
		return leg{}, err
	}
	return w.drain(ctx, name, "", cmd)
}
