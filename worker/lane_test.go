package worker_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"reprieve.dev/config"
	"reprieve.dev/examples/billing"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/engine"
	"reprieve.dev/pipeline/stage"
	"reprieve.dev/seal"
	"reprieve.dev/worker"
)

const laneSchema = 7

// lane assembles the stages of a pipeline of the billing example as run does, over a folder of schemas.
func lane(t testing.TB, file string) engine.Options {
	t.Helper()
	dir := t.TempDir()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(os.CopyFS(dir, billing.Files()))
	check(os.MkdirAll(filepath.Join(dir, "keys"), 0o700))
	check(os.MkdirAll(filepath.Join(dir, "schemas"), 0o700))
	check(seal.WriteSecret(filepath.Join(dir, "keys", "hmac"), 32))
	check(seal.WriteSecret(filepath.Join(dir, "keys", "identity"), 32))
	check(os.WriteFile(filepath.Join(dir, "schemas", "7.avsc"), []byte(billing.Schema()), 0o600))
	opt := config.Options{
		Env: func(string) (string, bool) { return "", false },
		ReadFile: func(path string) ([]byte, error) {
			if !filepath.IsAbs(path) {
				path = filepath.Join(dir, path)
			}
			return os.ReadFile(path)
		},
	}
	plan, ps := worker.Load(worker.Files{Worker: filepath.Join(dir, "reprieve.yaml"), Pipelines: []string{filepath.Join(dir, "pipelines", file)}},
		stage.Kinds(), opt)
	if len(ps) > 0 {
		t.Fatal(ps)
	}
	keys, err := worker.NewKeys(plan.Config.Keys)
	check(err)
	env := pipeline.Env{Log: slog.New(slog.DiscardHandler), Meter: worker.NewMeter(prometheus.NewRegistry()), Clock: time.Now}
	o, shut, err := plan.Pipelines[0].Assemble(t.Context(), plan, keys, env, func(string) (codec.Registry, error) {
		return codec.Folder(filepath.Join(dir, "schemas"))
	})
	check(err)
	t.Cleanup(func() { check(shut()) })
	return o
}

// arrived are n healthy records of one partition, as a source lends them.
func arrived(n int, make func(m *pipeline.Message, i int) billing.Label) []pipeline.Record {
	out := []pipeline.Record{}
	for i := range n {
		var m pipeline.Message
		make(&m, i)
		out = append(out, pipeline.Record{Offset: int64(i), Key: m.Key, Value: m.Value, TimeMS: 1,
			Headers: append(m.Headers, pipeline.Header{Name: "traceparent", Value: []byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")})})
	}
	return out
}

// The whole stage list of the billing pipelines costs a healthy record no allocation: decode, classify by the policy, redact,
// enrich and route, with the email of every invoice masked.
func TestTheBillingStagesAllocateNothing(t *testing.T) {
	g := billing.Generator{Seed: 1, SchemaID: laneSchema}
	for _, c := range []struct {
		file, topic string
		one         func(*pipeline.Message, int) billing.Label
	}{{"billing.yaml", billing.InvoicesTopic, g.Invoice}, {"adjustments.yaml", billing.AdjustmentsTopic, g.Adjustment}} {
		t.Run(c.file, func(t *testing.T) {
			o := lane(t, c.file)
			recs := arrived(500, c.one)
			policy := o.Policy(pipeline.TP{Topic: c.topic})
			round := func() {
				b := o.Pool.Get()
				b.TP = pipeline.TP{Topic: c.topic}
				b.Recs = append(b.Recs, recs...)
				b.Begin(policy)
				for _, s := range o.Stages {
					if err := s.Stage.Process(t.Context(), b); err != nil {
						t.Fatal(err)
					}
				}
				if f := b.Failures(); len(f) > 0 {
					t.Fatalf("record %d: %s %s", f[0].Index, f[0].Code, f[0].Reason())
				}
				if to := b.Outs[0].To.Topic; to != billing.LedgerTopic && to != billing.LargeTopic {
					t.Fatalf("goes to %q", to)
				}
				b.Release()
			}
			for range 5 {
				round()
			}
			if n := testing.AllocsPerRun(50, round); n > 0 && !raceEnabled {
				t.Errorf("%v allocations for %d healthy records", n, len(recs))
			}
		})
	}
}

// BenchmarkBillingStages measures each stage of the billing pipeline over a batch, and all of them: ns/record.
func BenchmarkBillingStages(b *testing.B) {
	g := billing.Generator{Seed: 1, SchemaID: laneSchema}
	o := lane(b, "billing.yaml")
	recs := arrived(1000, g.Invoice)
	policy := o.Policy(pipeline.TP{Topic: billing.InvoicesTopic})
	spent := make([]time.Duration, len(o.Stages))
	b.ReportAllocs()
	for b.Loop() {
		batch := o.Pool.Get()
		batch.TP = pipeline.TP{Topic: billing.InvoicesTopic}
		batch.Recs = append(batch.Recs, recs...)
		batch.Begin(policy)
		for i, s := range o.Stages {
			from := time.Now()
			if err := s.Stage.Process(b.Context(), batch); err != nil {
				b.Fatal(err)
			}
			spent[i] += time.Since(from)
		}
		batch.Release()
	}
	records := float64(b.N * len(recs))
	for i, s := range o.Stages {
		b.ReportMetric(float64(spent[i].Nanoseconds())/records, s.Name+"-ns/record")
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/records, "ns/record")
}
