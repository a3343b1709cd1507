package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

const (
	memoryBudget = 400 << 20
	minRecords   = 400_000
)

// lane is a form of the live benchmark: what is promised in records a second beside the loop that does the same.
type lane struct {
	name   string
	what   string
	budget float64 // 0: none
	eos    bool    // exactly once, beside the loop in transactions
	small  bool    // records of 200 B
	warm   bool    // measured from the first quarter on
}

var lanes = []lane{
	{name: "live", what: "invoices of 1.2 KiB, 12 partitions, beside a tuned confluent-kafka-go copy loop", budget: 1.3},
	{name: "live_eos", what: "invoices of 1.2 KiB, 12 partitions, exactly once, beside the copy loop in transactions of 250 ms", budget: 1.2, eos: true},
	{name: "live_200b", what: "invoices of 200 B, 12 partitions, beside a tuned confluent-kafka-go copy loop", small: true},
}

func liveEntries() (out []entry) {
	for _, l := range lanes {
		var names []string
		for _, line := range []string{"_records", "_cpu", "_memory", "_bytes", "_broker", "_control"} {
			names = append(names, l.name+line)
		}
		out = append(out, entry{names: names, run: l.run})
	}
	return out
}

// leg is one run over all records: of the pipeline or of the loop.
type leg struct {
	rate   float64 // records/s between the first record that was written and the last
	cpu    float64 // us a record of the process, in the same time
	broker float64 // us a record of the broker; 0 when it is not ours
	peak   float64 // bytes resident at most
	bytes  float64 // a record, in the logs of the output topics
}

// run alternates the pipeline and the loop over the same records, with a fresh group and fresh topics each time. The first
// round of each is dropped; it tells how many bytes masking takes away, which the loop then leaves out too.
func (l lane) run(ctx context.Context) ([]result, error) {
	w, err := newWorld(ctx, l, setting("RECORDS", minRecords))
	if err != nil {
		return nil, err
	}
	defer w.close()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var ours, loops []leg
	rounds := setting("ROUNDS", 3)
	cut := 0
	for r := 0; r <= rounds; r++ {
		a, err := w.pipelineLeg(ctx, r)
		if err != nil {
			return nil, err
		}
		b, err := w.loopLeg(ctx, self, r, cut)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(os.Stderr, "round %d: reprieve %s; loop %s\n", r, a, b)
		if r == 0 {
			cut = max(0, int(math.Round(b.bytes-a.bytes))) // masked fields are shorter
			continue
		}
		ours, loops = append(ours, a), append(loops, b)
	}
	return l.judge(ours, loops, w.records), nil
}

func (l leg) String() string {
	return fmt.Sprintf("%.0f records/s, %.2f us, broker %.2f us, %.0f MiB", l.rate, l.cpu, l.broker, l.peak/(1<<20))
}

func (v lane) judge(ours, loops []leg, records int) []result {
	pick := func(ls []leg, f func(leg) float64) (out []float64) {
		for _, l := range ls {
			out = append(out, f(l))
		}
		return out
	}
	var ratios []float64 // of each pair: the host's speed changes between rounds
	for i := range ours {
		ratios = append(ratios, ours[i].rate/loops[i].rate)
	}
	line := func(name, what, unit string, f func(leg) float64, scale float64) result {
		r := result{Name: v.name + name, What: what, Unit: unit, Value: median(pick(ours, f)) / scale, Baseline: median(pick(loops, f)) / scale, OK: true}
		r.Ratio = r.Value / r.Baseline
		return r
	}
	rate := func(l leg) float64 { return l.rate }
	speed := line("_records", fmt.Sprintf("billing pipeline, full stage list, %d %s", records, v.what), "records/s", rate, 1)
	speed.Ratio = median(ratios)
	if v.budget > 0 {
		speed = speed.atLeast(v.budget)
	}
	out := []result{
		speed,
		line("_cpu", "CPU of reprieve run for a record, beside the loop", "us/record", func(l leg) float64 { return l.cpu }, 1),
		line("_memory", "most memory resident of reprieve run, beside the loop", "MiB", func(l leg) float64 { return l.peak }, 1<<20).atMost(memoryBudget >> 20),
		line("_bytes", "bytes of a record in the output topics, beside the loop's: that both do the same work", "B/record", func(l leg) float64 { return l.bytes }, 1),
		line("_broker", "CPU of the broker for a record, beside the loop", "us/record", func(l leg) float64 { return l.broker }, 1),
	}
	if out[4].Value == 0 { // a broker that is not ours
		out = out[:4]
	}
	low, high := loops[0].rate, loops[0].rate
	for _, l := range loops {
		low, high = min(low, l.rate), max(high, l.rate)
	}
	return append(out, result{Name: v.name + "_control", What: "fastest round of the loop by its slowest: how quiet the machine was", Unit: "ratio",
		Value: high, Baseline: low, Ratio: high / low, OK: true})
}

// pipelineLeg runs `reprieve run` with the billing pipeline.
func (w *world) pipelineLeg(ctx context.Context, round int) (leg, error) {
	name := fmt.Sprintf("a%d", round)
	dir, topics, err := w.pipelineFiles(name)
	if err != nil {
		return leg{}, err
	}
	if err := w.create(ctx, topics...); err != nil {
		return leg{}, err
	}
	defer w.remove(topics...)
	program, err := filepath.Abs(reprieve)
	if err != nil {
		return leg{}, err
	}
	pipeline := filepath.Join(dir, "pipelines", "billing.yaml")
	cmd := exec.Command(program, "run", pipeline, "--roles", "pipelines")
	if out := os.Getenv("PROFILE"); out != "" {
		self, err := os.Executable()
		if err != nil {
			return leg{}, err
		}
		cmd = exec.Command(self, "profile", "--out", out, pipeline)
	}
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "REPRIEVE_CONFIG="+filepath.Join(dir, "reprieve.yaml"), "REPRIEVE_BOOTSTRAP="+w.bootstrap,
		"REPRIEVE_DLQ_BOOTSTRAP="+w.bootstrap, "REPRIEVE_REGISTRY="+w.registry.URL(), "REPRIEVE_HTTP=127.0.0.1:0")
	return w.drain(ctx, name, w.id+"."+name+".billing-event-processor", cmd)
}

// loopLeg runs the copy loop.
func (w *world) loopLeg(ctx context.Context, self string, round, cut int) (leg, error) {
	name := fmt.Sprintf("b%d", round)
	topics := []topic{{name: w.ledger(name), partitions: partitions}, {name: w.large(name), partitions: partitions}}
	if err := w.create(ctx, topics...); err != nil {
		return leg{}, err
	}
	defer w.remove(topics...)
	cmd := exec.Command(self, "copy", "--bootstrap", w.bootstrap, "--group", w.id+"."+name, "--from", w.source(),
		"--to", w.ledger(name), "--large", w.large(name), "--cut", strconv.Itoa(cut), fmt.Sprintf("--transactional=%v", w.lane.eos))
	// what glibc is told to keep: the loop is tuned
	cmd.Env = append(os.Environ(), "MALLOC_TRIM_THRESHOLD_=268435456", "MALLOC_TOP_PAD_=67108864", "MALLOC_MMAP_THRESHOLD_=1073741824",
		"MALLOC_ARENA_MAX=2")
	return w.drain(ctx, name, w.id+"."+name, cmd)
}

// drain starts the process and measures it from the first record in its output topics to the last.
func (w *world) drain(ctx context.Context, name, group string, cmd *exec.Cmd) (l leg, err error) {
	c, err := startChild(filepath.Join(w.dir, name+".log"), cmd)
	if err != nil {
		return l, err
	}
	defer c.stop()
	type point struct {
		at     time.Time
		n      int64
		of     usage
		broker usage
	}
	look := func() (p point, err error) {
		if err := c.ended(); err != nil {
			return p, err
		}
		if p.n, err = w.progress(ctx, name, group); err != nil {
			return p, err
		}
		p.at = time.Now()
		if w.broker != nil {
			if p.broker, err = usageOf(w.broker.Pid()); err != nil {
				return p, err
			}
		}
		if p.of, err = usageOf(c.cmd.Process.Pid); errors.Is(err, fs.ErrNotExist) {
			err = errors.Join(c.gone(), err)
		}
		return p, err
	}
	var first point
	every := time.NewTicker(25 * time.Millisecond)
	defer every.Stop()
	limit := time.Now().Add(5 * time.Minute)
	for {
		select {
		case <-ctx.Done():
			return l, ctx.Err()
		case <-every.C:
		}
		p, err := look()
		switch {
		case err != nil:
			return l, err
		case time.Now().After(limit):
			return l, fmt.Errorf("%s wrote %d of %d records in 5 minutes", name, p.n, w.records)
		case p.n > int64(w.records):
			return l, fmt.Errorf("%s wrote %d records of %d", name, p.n, w.records)
		case first.n == 0 && w.lane.warm && p.n < int64(w.records/4):
		case first.n == 0:
			first = p
		case p.n == int64(w.records):
			n := float64(p.n - first.n)
			if w.lane.eos {
				if seen, err := w.visible(ctx, w.ledger(name), w.large(name)); err != nil || seen != int64(w.records) {
					return l, fmt.Errorf("%d of %d records are to be seen: %w", seen, w.records, err)
				}
			}
			size, err := w.size(ctx, w.ledger(name), w.large(name))
			if err != nil {
				return l, err
			}
			return leg{bytes: float64(size) / float64(w.records), rate: n / p.at.Sub(first.at).Seconds(), cpu: micros(p.of.cpu-first.of.cpu) / n,
				broker: micros(p.broker.cpu-first.broker.cpu) / n, peak: float64(p.of.peak)}, nil
		}
	}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
