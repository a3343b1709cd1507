package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"reprieve.dev/embedded"
	"reprieve.dev/examples/billing"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/pipeline/kafka"
	"reprieve.dev/seal"
	"reprieve.dev/tests/services"
)

const (
	partitions = 12
	reprieve   = "bin/reprieve" // scripts/bench.sh builds it
)

// world is a broker with the source topic filled, and a registry with its schema.
type world struct {
	dir       string
	id        string // prefix of every topic and group
	bootstrap string
	records   int
	broker    *services.KafkaServer // nil: somebody else's
	registry  *embedded.Registry
	admin     *kafka.Admin
	schema    int32
}

type topic struct {
	name       string
	partitions int
}

func newWorld(ctx context.Context, records int) (w *world, err error) {
	if st, err := os.Stat("/dev/shm"); err == nil && st.IsDir() {
		// the broker's data in memory: a disk would be measured else
		if err := os.Setenv("TMPDIR", "/dev/shm"); err != nil {
			return nil, err
		}
	}
	id := make([]byte, 4)
	_, _ = rand.Read(id) // never fails
	w = &world{id: "bench" + hex.EncodeToString(id), records: records, bootstrap: os.Getenv("REPRIEVE_TEST_KAFKA")}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if w.dir, err = os.MkdirTemp("", "reprieve-bench-"); err != nil {
		return w, err
	}
	if w.bootstrap == "" {
		if w.broker, err = services.StartKafka(services.KafkaOptions{Properties: "log.segment.delete.delay.ms=500"}); err != nil {
			return w, err
		}
		w.bootstrap = w.broker.Bootstrap
	}
	if w.registry, err = embedded.StartRegistry(embedded.RegistryConfig{Dir: filepath.Join(w.dir, "registry")}); err != nil {
		return w, err
	}
	cluster := kafka.Cluster{Name: "main", Properties: map[string]string{"bootstrap.servers": w.bootstrap}}
	if w.admin, err = kafka.NewAdmin(cluster); err != nil {
		return w, err
	}
	cache, err := codec.NewRegistry(codec.RegistryConfig{Name: "main", URL: w.registry.URL()}, time.Now)
	if err != nil {
		return w, err
	}
	if w.schema, err = cache.Register(ctx, billing.Subject, billing.Schema(), "avro"); err != nil {
		return w, err
	}
	if err := w.create(ctx, topic{w.source(), partitions}); err != nil {
		return w, err
	}
	return w, w.fill(ctx, cluster)
}

// fill writes healthy invoices; one in a hundred carries a secret that has to be found.
func (w *world) fill(ctx context.Context, cluster kafka.Cluster) error {
	sink, err := kafka.NewSink(kafka.SinkConfig{Cluster: cluster, ClientID: "bench"})
	if err != nil {
		return err
	}
	defer func() { _ = sink.Close(ctx) }()
	g := billing.Generator{Seed: 1, Secrets: 0.01, Partitions: partitions, SchemaID: w.schema}
	msgs := make([]pipeline.Message, 5000)
	for at := 0; at < w.records; at += len(msgs) {
		msgs = msgs[:min(len(msgs), w.records-at)]
		for i := range msgs {
			g.Invoice(&msgs[i], at+i)
			msgs[i].Topic = w.source()
		}
		if err := sink.Send(&pipeline.Sending{Msgs: msgs}); err != nil {
			return err
		}
		select {
		case done := <-sink.Done():
			if len(done.Bad) > 0 {
				return errors.New("refused: " + done.Bad[0].Failure.Reason())
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	n, err := w.count(ctx, w.source())
	if err == nil && n != int64(w.records) {
		err = fmt.Errorf("the source topic has %d of %d records", n, w.records)
	}
	return err
}

func (w *world) close() {
	if w.admin != nil {
		w.remove(topic{w.source(), partitions})
		w.admin.Close()
	}
	if w.registry != nil {
		_ = w.registry.Close() // its folder goes
	}
	if w.broker != nil {
		_ = w.broker.Stop() // its folder goes with it
	}
	_ = os.RemoveAll(w.dir)
}

func (w *world) source() string            { return w.id + ".invoices" }
func (w *world) ledger(name string) string { return w.id + "." + name + ".ledger" }
func (w *world) large(name string) string  { return w.id + "." + name + ".large" }

// create makes topics and waits until every partition has a leader that answers.
func (w *world) create(ctx context.Context, topics ...topic) error {
	var specs []kafka.TopicSpec
	var names []string
	for _, t := range topics {
		specs = append(specs, kafka.TopicSpec{Name: t.name, Partitions: t.partitions, Replicas: 1, Configs: map[string]string{"retention.ms": "-1"}})
		names = append(names, t.name)
	}
	if err := w.admin.CreateTopics(ctx, specs...); err != nil {
		return err
	}
	for limit := time.Now().Add(20 * time.Second); ; {
		_, err := w.count(ctx, names...)
		if err == nil || time.Now().After(limit) || ctx.Err() != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond) // between two looks at a broker
	}
}

func (w *world) remove(topics ...topic) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, t := range topics {
		_ = w.admin.DeleteTopics(ctx, t.name) // a broker of our own goes anyway
	}
}

// count adds up what stands in the topics. There are no transactions, so every offset is a record.
func (w *world) count(ctx context.Context, topics ...string) (n int64, err error) {
	for _, t := range topics {
		ends, err := w.admin.EndOffsets(ctx, t)
		if err != nil {
			return 0, err
		}
		for end := range maps.Values(ends) {
			n += end
		}
	}
	return n, nil
}

// size adds up the bytes of the topics' logs.
func (w *world) size(ctx context.Context, topics ...string) (n int64, err error) {
	c, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(w.bootstrap, ",")...))
	if err != nil {
		return 0, err
	}
	defer c.Close()
	dirs, err := kadm.NewClient(c).DescribeAllLogDirs(ctx, nil)
	if err != nil {
		return 0, err
	}
	dirs.Each(func(d kadm.DescribedLogDir) {
		d.Topics.Each(func(p kadm.DescribedLogDirPartition) {
			if slices.Contains(topics, p.Topic) {
				n += p.Size
			}
		})
	})
	return n, nil
}

// pipelineFiles writes the billing example with topics and a group of its own, and returns the folder and the topics to create.
func (w *world) pipelineFiles(name string) (string, []topic, error) {
	dir := filepath.Join(w.dir, name)
	if err := os.MkdirAll(filepath.Join(dir, "keys"), 0o700); err != nil {
		return "", nil, err
	}
	for _, k := range []string{"hmac", "identity"} {
		if err := seal.WriteSecret(filepath.Join(dir, "keys", k), 32); err != nil {
			return "", nil, err
		}
	}
	own := w.id + "." + name
	prefix := own + ".reprieve"
	names := strings.NewReplacer("billing.invoices.v1.retry", own+".retry", "billing.invoices.v1.dlq", own+".dlq", "billing.invoices.v1", w.source(),
		"billing.ledger.v1", w.ledger(name), "billing.large.v1", w.large(name), "group: ", "group: "+own+".")
	err := fs.WalkDir(billing.Files(), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			return os.MkdirAll(filepath.Join(dir, path), 0o755)
		}
		text, err := fs.ReadFile(billing.Files(), path)
		if err != nil {
			return err
		}
		s := string(text)
		switch {
		case strings.HasPrefix(path, "pipelines/"):
			s = names.Replace(s)
		case path == "reprieve.yaml":
			s += "topics: {prefix: " + prefix + "}\n"
		}
		return os.WriteFile(filepath.Join(dir, path), []byte(s), 0o644)
	})
	return dir, []topic{{w.ledger(name), partitions}, {w.large(name), partitions}, {own + ".retry", partitions}, {own + ".dlq", 6},
		{deadletter.SettlementsTopic(prefix), 1}, {deadletter.OutcomesTopic(prefix), 1}}, err
}
