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
	"regexp"
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
	lane      lane
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
	compact    bool
}

func newWorld(ctx context.Context, l lane, records int) (w *world, err error) {
	if st, err := os.Stat("/dev/shm"); err == nil && st.IsDir() {
		// the broker's data in memory: a disk would be measured else
		if err := os.Setenv("TMPDIR", "/dev/shm"); err != nil {
			return nil, err
		}
	}
	id := make([]byte, 4)
	_, _ = rand.Read(id) // never fails
	w = &world{lane: l, id: "bench" + hex.EncodeToString(id), records: records, bootstrap: os.Getenv("REPRIEVE_TEST_KAFKA")}
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
	if w.schema, err = cache.Register(ctx, billing.Subject, l.schema(), "avro"); err != nil {
		return w, err
	}
	if err := w.create(ctx, topic{name: w.source(), partitions: partitions}); err != nil {
		return w, err
	}
	return w, w.fill(ctx, cluster)
}

// write sends as many messages as the world has records; each makes the k-th in place of one that was sent.
func (w *world) write(ctx context.Context, cluster kafka.Cluster, each func(m *pipeline.Message, k int)) error {
	sink, err := kafka.NewSink(kafka.SinkConfig{Cluster: cluster, ClientID: "bench"})
	if err != nil {
		return err
	}
	defer func() { _ = sink.Close(ctx) }()
	msgs := make([]pipeline.Message, 5000)
	for at := 0; at < w.records; at += len(msgs) {
		msgs = msgs[:min(len(msgs), w.records-at)]
		for i := range msgs {
			each(&msgs[i], at+i)
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
	return nil
}

// fill writes healthy invoices; one in a hundred carries a secret that has to be found.
func (w *world) fill(ctx context.Context, cluster kafka.Cluster) error {
	g := billing.Generator{Seed: 1, Secrets: 0.01, Partitions: partitions, SchemaID: w.schema}
	if err := w.write(ctx, cluster, func(m *pipeline.Message, k int) {
		if g.Invoice(m, k); w.lane.small {
			shorten(m, w.schema, k)
		}
		m.Topic = w.source()
	}); err != nil {
		return err
	}
	n, err := w.count(ctx, w.source())
	if err == nil && n != int64(w.records) {
		err = fmt.Errorf("the source topic has %d of %d records", n, w.records)
	}
	return err
}

func (w *world) close() {
	if w.admin != nil {
		w.remove(topic{name: w.source(), partitions: partitions})
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
		configs := map[string]string{"retention.ms": "-1"}
		if t.compact {
			configs["cleanup.policy"] = "compact"
		}
		specs = append(specs, kafka.TopicSpec{Name: t.name, Partitions: t.partitions, Replicas: 1, Configs: configs})
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

// progress is how many records were written so far. In transactions offsets are no count, since their ends take some too: there
// the group's own offsets are, which rise together with the records.
func (w *world) progress(ctx context.Context, name, group string) (n int64, err error) {
	if !w.lane.eos {
		return w.count(ctx, w.ledger(name), w.large(name))
	}
	cps, err := w.admin.Checkpoints(ctx, group)
	if pipeline.CodeOf(err) == pipeline.CodeBrokerFatal {
		return 0, nil // a transaction is ending: it tells at the next look
	}
	for tp, cp := range cps {
		if tp.Topic == w.source() {
			n += cp.Next
		}
	}
	return n, err
}

// visible reads the topics to their ends as a read_committed consumer and counts the records.
func (w *world) visible(ctx context.Context, topics ...string) (n int64, err error) {
	ends := map[string]map[int32]kgo.Offset{}
	open := map[pipeline.TP]int64{}
	for _, t := range topics {
		offsets, err := w.admin.EndOffsets(ctx, t)
		if err != nil {
			return 0, err
		}
		ends[t] = map[int32]kgo.Offset{}
		for p, end := range offsets {
			ends[t][p] = kgo.NewOffset().At(0)
			if end > 0 {
				open[pipeline.TP{Topic: t, Partition: p}] = end
			}
		}
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(w.bootstrap, ",")...), kgo.ConsumePartitions(ends),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	if err != nil {
		return 0, err
	}
	defer c.Close()
	for len(open) > 0 {
		fs := c.PollFetches(ctx)
		if err := errors.Join(fs.Err(), ctx.Err()); err != nil {
			return n, err
		}
		fs.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				n++
			}
			if tp := (pipeline.TP{Topic: r.Topic, Partition: r.Partition}); r.Offset+1 >= open[tp] {
				delete(open, tp)
			}
		})
	}
	return n, nil
}

// count adds up what stands in the topics: every offset is a record where there are no transactions.
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

// keeperLine is what asks for a custodian: without one nobody publishes the keys that a pipeline would seal to.
var keeperLine = regexp.MustCompile(`(?m)^  keeper:.*\n`)

// pipelineFiles writes the billing example with topics and a group of its own, and returns the folder and the topics to create.
func (w *world) pipelineFiles(name string) (string, []topic, error) {
	dir := filepath.Join(w.dir, name)
	if err := os.MkdirAll(filepath.Join(dir, "keys"), 0o700); err != nil {
		return "", nil, err
	}
	for _, k := range []string{"hmac", "identity", "keeper"} {
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
			s = strings.Replace(names.Replace(s), "encrypt: true", "encrypt: false", 1) // nothing fails here, so nothing is sealed
			if w.lane.eos {
				s = strings.Replace(s, "delivery: at_least_once", "delivery: exactly_once", 1)
			}
		case path == "reprieve.yaml":
			s = keeperLine.ReplaceAllString(s, "") + "topics: {prefix: " + prefix + "}\n"
		}
		return os.WriteFile(filepath.Join(dir, path), []byte(s), 0o644)
	})
	return dir, []topic{{name: w.ledger(name), partitions: partitions}, {name: w.large(name), partitions: partitions},
		{name: own + ".retry", partitions: partitions}, {name: own + ".dlq", partitions: 6}, {name: own + ".dlq.vault", partitions: 6},
		{name: deadletter.SettlementsTopic(prefix), partitions: 1}, {name: deadletter.OutcomesTopic(prefix), partitions: 1},
		{name: deadletter.ControlTopic(prefix), partitions: 1, compact: true}}, err
}
