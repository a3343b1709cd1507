package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"reprieve.dev/examples/billing"
	"reprieve.dev/pipeline"
)

// What is promised of the time from the arrival of a record that nobody can decode to its dead letter.
const (
	poisonRate    = 1800 // records/s, every one of them poison
	poisonSeconds = 20   // SECONDS; the first three are not counted
	poisonP99     = 20   // ms, at_least_once
	poisonMax     = 200  // ms, exactly_once
)

func poisonEntry() entry {
	return entry{names: []string{"poison_latency", "poison_latency_eos"}, run: poison}
}

// poison measures both deliveries. A record has arrived when the broker appended it to the source topic, by the broker's clock, and a
// letter is there when it was appended to its topic; in transactions, when a consumer has it, for it is not to be seen before the
// commit. The baseline is how long a plain consumer of the source waits for the same records.
func poison(ctx context.Context) ([]result, error) {
	var out []result
	for _, exactly := range []bool{false, true} {
		p, err := poisonLeg(ctx, exactly)
		if err != nil {
			return nil, err
		}
		letters := p.appended
		r := result{Name: "poison_latency", Unit: "ms", What: fmt.Sprintf("p99 from the arrival of a truncated invoice in the source topic to its letter in the dead-letter topic, %d/s, at_least_once, beside a consumer's wait for the source", poisonRate)}
		q, limit := .99, float64(poisonP99)
		if exactly {
			r.Name = "poison_latency_eos"
			r.What = fmt.Sprintf("longest time from the arrival of a truncated invoice to its committed letter at a consumer, %d/s, exactly_once, beside a consumer's wait for the source", poisonRate)
			letters, q, limit = p.letters, 1, poisonMax
		}
		r.Value, r.Baseline = quantile(letters, q), quantile(p.source, q)
		r.Ratio = r.Value / r.Baseline
		fmt.Fprintf(os.Stderr, "exactly_once %v: %d letters; appended p50 %.1f ms, p99 %.1f ms, max %.1f ms; at a consumer p50 %.1f ms, p99 %.1f ms, max %.1f ms; source at a consumer p50 %.1f ms, p99 %.1f ms\n",
			exactly, len(p.letters), quantile(p.appended, .5), quantile(p.appended, .99), quantile(p.appended, 1),
			quantile(p.letters, .5), quantile(p.letters, .99), quantile(p.letters, 1), quantile(p.source, .5), quantile(p.source, .99))
		out = append(out, r.atMost(limit))
	}
	return out, nil
}

// waits are times from the arrival of each record, in ms, sorted.
type waits struct {
	appended []float64 // of its letter, to its topic
	letters  []float64 // of its letter, to a consumer
	source   []float64 // of itself, to a consumer
}

// quantile of times in ms, sorted; 1 is the longest.
func quantile(ms []float64, q float64) float64 {
	if len(ms) == 0 {
		return 0
	}
	return ms[min(int(q*float64(len(ms))), len(ms)-1)]
}

// poisonLeg runs the billing pipeline, warm, over poison at an even rate.
func poisonLeg(ctx context.Context, exactly bool) (*waits, error) {
	const warm = 5000
	w, err := newWorld(ctx, lane{name: "poison", eos: exactly}, warm)
	if err != nil {
		return nil, err
	}
	defer w.close()
	const name = "p"
	dir, topics, err := w.pipelineFiles(name)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "pipelines", "billing.yaml")
	if exactly { // letters of the same cluster are in the transaction
		text, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(file, []byte(strings.Replace(string(text), "cluster: dlq", "cluster: main", 1)), 0o600)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := w.create(ctx, topics...); err != nil {
		return nil, err
	}
	dlq := w.id + "." + name + ".dlq"
	if err := w.stamped(ctx, w.source(), dlq); err != nil {
		return nil, err
	}
	program, err := filepath.Abs(reprieve)
	if err != nil {
		return nil, err
	}
	env := append(os.Environ(), "REPRIEVE_CONFIG="+filepath.Join(dir, "reprieve.yaml"), "REPRIEVE_BOOTSTRAP="+w.bootstrap,
		"REPRIEVE_DLQ_BOOTSTRAP="+w.bootstrap, "REPRIEVE_REGISTRY="+w.registry.URL(), "REPRIEVE_HTTP=127.0.0.1:0")
	migrate := exec.Command(program, "ledger", "migrate")
	migrate.Dir, migrate.Env = dir, env
	if text, err := migrate.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("ledger migrate: %w\n%s", err, text)
	}
	cmd := exec.Command(program, "run", file) // in all roles: the custodian publishes the keys that letters are sealed to
	cmd.Dir, cmd.Env = dir, env
	c, err := startChild(filepath.Join(w.dir, name+".log"), cmd)
	if err != nil {
		return nil, err
	}
	defer c.stop()
	for limit := time.Now().Add(time.Minute); ; { // the pipeline is warm when it has passed on what was there
		n, err := w.count(ctx, w.ledger(name), w.large(name))
		if err == nil {
			err = c.ended()
		}
		switch {
		case err != nil:
			return nil, err
		case n >= warm:
			return w.stream(ctx, dlq)
		case time.Now().After(limit):
			log, _ := os.ReadFile(filepath.Join(w.dir, name+".log")) // what there is of it
			return nil, fmt.Errorf("%d of %d records were delivered in a minute:\n%s", n, warm, log[max(0, len(log)-2000):])
		}
		time.Sleep(50 * time.Millisecond) // between two looks at a broker
	}
}

// stream sends poison and waits for its letters.
func (w *world) stream(ctx context.Context, dlq string) (*waits, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	brokers := kgo.SeedBrokers(strings.Split(w.bootstrap, ",")...)
	consumer, err := kgo.NewClient(brokers, kgo.ConsumeTopics(w.source(), dlq), kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	producer, err := kgo.NewClient(brokers, kgo.ProducerLinger(0), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	seconds := setting("SECONDS", poisonSeconds)
	n := poisonRate * seconds
	type sighting struct{ appended, seen time.Time }
	var source, letters = make([]sighting, n), make([]sighting, n)
	left := 2 * n
	read := make(chan error, 1)
	go func() {
		for left > 0 {
			fs := consumer.PollFetches(ctx)
			now := time.Now()
			if err := ctx.Err(); err != nil {
				read <- fmt.Errorf("%d of %d records and letters did not come", left, 2*n)
				return
			}
			fs.EachRecord(func(r *kgo.Record) {
				k, err := strconv.Atoi(string(r.Key))
				if err != nil || k < 0 || k >= n {
					return // a probe
				}
				at := &source[k]
				if r.Topic == dlq {
					at = &letters[k]
				}
				if at.seen.IsZero() {
					*at = sighting{r.Timestamp, now}
					left--
				}
			})
		}
		read <- nil
	}()
	time.Sleep(time.Second) // the consumer stands at the end by then
	g := billing.Generator{Seed: 5, Partitions: partitions, SchemaID: w.schema}
	var m pipeline.Message
	begun := time.Now()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for k := 0; k < n; {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
		for due := int(time.Since(begun).Seconds() * poisonRate); k < min(due, n); k++ {
			g.Invoice(&m, k)
			producer.Produce(ctx, &kgo.Record{Topic: w.source(), Partition: int32(k % partitions), Key: []byte(strconv.Itoa(k)), Value: m.Value[:len(m.Value)/2]}, nil)
		}
	}
	if err := <-read; err != nil {
		return nil, err
	}
	from := 3 * poisonRate // the first seconds warm up
	if n <= from {
		return nil, errors.New("SECONDS must be more than 3")
	}
	var out waits
	for k := from; k < n; k++ {
		since := func(t time.Time) float64 { return float64(t.Sub(source[k].appended)) / float64(time.Millisecond) }
		out.appended = append(out.appended, since(letters[k].appended))
		out.letters = append(out.letters, since(letters[k].seen))
		out.source = append(out.source, since(source[k].seen))
	}
	for _, ms := range [][]float64{out.appended, out.letters, out.source} {
		slices.Sort(ms)
	}
	return &out, nil
}

// stamped makes the broker write its own time on what it appends to the topics.
func (w *world) stamped(ctx context.Context, topics ...string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(w.bootstrap, ",")...))
	if err != nil {
		return err
	}
	defer client.Close()
	admin, kind := kadm.NewClient(client), "LogAppendTime"
	answers, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: "message.timestamp.type", Value: &kind}}, topics...)
	for _, a := range answers {
		err = cmp.Or(err, a.Err)
	}
	return err
}
