package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

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

// poison measures both deliveries. The baseline is what a plain consumer of the source topic sees of the same records: the way
// through the broker and back alone.
func poison(ctx context.Context) ([]result, error) {
	var out []result
	for _, exactly := range []bool{false, true} {
		letters, source, err := poisonLeg(ctx, exactly)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(os.Stderr, "exactly_once %v: %d letters, p50 %.1f ms, p99 %.1f ms, max %.1f ms; source p50 %.1f ms, p99 %.1f ms\n", exactly, len(letters),
			quantile(letters, .5), quantile(letters, .99), quantile(letters, 1), quantile(source, .5), quantile(source, .99))
		r := result{Name: "poison_latency", What: fmt.Sprintf("p99 from sending a truncated invoice to its dead letter at a consumer, %d/s, at_least_once, beside reading the source topic", poisonRate),
			Unit: "ms", Value: quantile(letters, .99), Baseline: quantile(source, .99)}
		limit := float64(poisonP99)
		if exactly {
			r.Name, r.Value, r.Baseline, limit = "poison_latency_eos", quantile(letters, 1), quantile(source, 1), poisonMax
			r.What = fmt.Sprintf("longest time from sending a truncated invoice to its committed dead letter at a consumer, %d/s, exactly_once, beside reading the source topic", poisonRate)
		}
		r.Ratio = r.Value / r.Baseline
		out = append(out, r.atMost(limit))
	}
	return out, nil
}

// quantile of times in ms, sorted; 1 is the longest.
func quantile(ms []float64, q float64) float64 {
	if len(ms) == 0 {
		return 0
	}
	return ms[min(int(q*float64(len(ms))), len(ms)-1)]
}

// poisonLeg runs the billing pipeline, warm, over poison at an even rate, and returns the times of letters and of plain reading.
func poisonLeg(ctx context.Context, exactly bool) (letters, source []float64, err error) {
	const warm = 5000
	w, err := newWorld(ctx, lane{name: "poison", eos: exactly}, warm)
	if err != nil {
		return nil, nil, err
	}
	defer w.close()
	const name = "p"
	dir, topics, err := w.pipelineFiles(name)
	if err != nil {
		return nil, nil, err
	}
	file := filepath.Join(dir, "pipelines", "billing.yaml")
	if exactly { // letters of the same cluster are in the transaction
		text, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(file, []byte(strings.Replace(string(text), "cluster: dlq", "cluster: main", 1)), 0o600)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	if err := w.create(ctx, topics...); err != nil {
		return nil, nil, err
	}
	program, err := filepath.Abs(reprieve)
	if err != nil {
		return nil, nil, err
	}
	env := append(os.Environ(), "REPRIEVE_CONFIG="+filepath.Join(dir, "reprieve.yaml"), "REPRIEVE_BOOTSTRAP="+w.bootstrap,
		"REPRIEVE_DLQ_BOOTSTRAP="+w.bootstrap, "REPRIEVE_REGISTRY="+w.registry.URL(), "REPRIEVE_HTTP=127.0.0.1:0")
	migrate := exec.Command(program, "ledger", "migrate")
	migrate.Dir, migrate.Env = dir, env
	if text, err := migrate.CombinedOutput(); err != nil {
		return nil, nil, fmt.Errorf("ledger migrate: %w\n%s", err, text)
	}
	cmd := exec.Command(program, "run", file) // in all roles: the custodian publishes the keys that letters are sealed to
	cmd.Dir, cmd.Env = dir, env
	c, err := startChild(filepath.Join(w.dir, name+".log"), cmd)
	if err != nil {
		return nil, nil, err
	}
	defer c.stop()
	for limit := time.Now().Add(time.Minute); ; { // the pipeline is warm when it has passed on what was there
		n, err := w.count(ctx, w.ledger(name), w.large(name))
		if err == nil {
			err = c.ended()
		}
		switch {
		case err != nil:
			return nil, nil, err
		case n >= warm:
			return w.stream(ctx, w.id+"."+name+".dlq")
		case time.Now().After(limit):
			log, _ := os.ReadFile(filepath.Join(w.dir, name+".log")) // what there is of it
			return nil, nil, fmt.Errorf("%d of %d records were delivered in a minute:\n%s", n, warm, log[max(0, len(log)-2000):])
		}
		time.Sleep(50 * time.Millisecond) // between two looks at a broker
	}
}

// stream sends poison and waits for its letters.
func (w *world) stream(ctx context.Context, dlq string) (letters, source []float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	brokers := kgo.SeedBrokers(strings.Split(w.bootstrap, ",")...)
	consumer, err := kgo.NewClient(brokers, kgo.ConsumeTopics(w.source(), dlq), kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return nil, nil, err
	}
	defer consumer.Close()
	producer, err := kgo.NewClient(brokers, kgo.ProducerLinger(0), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return nil, nil, err
	}
	defer producer.Close()
	seconds := setting("SECONDS", poisonSeconds)
	n := poisonRate * seconds
	var mu sync.Mutex
	sent := make([]time.Time, n)
	seen := [2][]time.Duration{make([]time.Duration, n), make([]time.Duration, n)} // read from the source, as a letter
	left := n
	read := make(chan error, 1)
	go func() {
		for left > 0 {
			fs := consumer.PollFetches(ctx)
			now := time.Now()
			if err := ctx.Err(); err != nil {
				read <- fmt.Errorf("%d of %d letters did not come", left, n)
				return
			}
			mu.Lock()
			fs.EachRecord(func(r *kgo.Record) {
				k, err := strconv.Atoi(string(r.Key))
				if err != nil || k < 0 || k >= n || sent[k].IsZero() {
					return // a probe, a record from before
				}
				at := &seen[0][k]
				if r.Topic == dlq {
					if at = &seen[1][k]; *at == 0 {
						left--
					}
				}
				if *at == 0 {
					*at = now.Sub(sent[k])
				}
			})
			mu.Unlock()
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
			return nil, nil, ctx.Err()
		case <-tick.C:
		}
		for due := int(time.Since(begun).Seconds() * poisonRate); k < min(due, n); k++ {
			g.Invoice(&m, k)
			mu.Lock()
			sent[k] = time.Now()
			mu.Unlock()
			producer.Produce(ctx, &kgo.Record{Topic: w.source(), Partition: int32(k % partitions), Key: []byte(strconv.Itoa(k)), Value: m.Value[:len(m.Value)/2]}, nil)
		}
	}
	if err := <-read; err != nil {
		return nil, nil, err
	}
	from := 3 * poisonRate // the first seconds warm up
	if n <= from {
		return nil, nil, errors.New("SECONDS must be more than 3")
	}
	ms := func(ds []time.Duration) (out []float64) {
		for _, d := range ds[from:] {
			if d > 0 {
				out = append(out, float64(d)/float64(time.Millisecond))
			}
		}
		slices.Sort(out)
		return out
	}
	return ms(seen[1]), ms(seen[0]), nil
}
