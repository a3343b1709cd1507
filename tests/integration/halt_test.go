package integration

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/pipeline/engine"
	"reprieve.dev/seal"
	"reprieve.dev/worker"
)

const haltPipeline = `
apiVersion: reprieve/v1
pipeline: orders
owner: shop
source: {topics: [in], group: g, tenant: {from: fixed, value: acme}, identity: {event_id: /id}}
stages:
  - decode: {format: json}
  - redact: {detectors: [pan]}
  - route: {rules: [{when: '100 / view.n > 1', topic: out}]}
retry: {topic: in.retry}
quarantine: {topic: in.dlq}
`

// A route rule that fails on many records is a defect of ours that nobody has classified: beyond the budget the pipeline halts, and
// a restart does not help. A person's signature does.
func TestAPipelineThatHaltedStaysHaltedUntilAPersonResumesIt(t *testing.T) {
	broker := startCluster(t)
	broker.create(t, 1, "in", "in.retry", "in.dlq", "out")
	broker.platform(t, "in.dlq")
	person, err := seal.GenerateSigner("finn@example.com")
	if err != nil {
		t.Fatal(err)
	}
	plan := loadFiles(t, strings.Replace(effectsWorker, "BOOTSTRAP", broker.Properties["bootstrap.servers"], 1)+
		"bounds: {unknown_errors: {window: 100, tolerated: 3}}\napprovers: [{subject: finn@example.com, public: '"+person.Verifier().Text()+"', roles: [approver]}]\n", haltPipeline)
	send := func(values ...int) {
		var msgs []pipeline.Message
		for _, n := range values {
			msgs = append(msgs, pipeline.Message{Topic: "in", Partition: 0, Value: fmt.Appendf(nil, `{"id":"e%d","n":%d}`, n, n)})
		}
		broker.write(t, msgs)
	}
	start := func() (*worker.Worker, func()) {
		w, err := worker.New(worker.Options{Plan: plan, Roles: []worker.Role{worker.RolePipelines}, Host: "w1", Clock: time.Now, Log: slog.Default(),
			Meter: worker.NewMeter(prometheus.NewRegistry()), Limits: engine.Limits{CommitEvery: 50 * time.Millisecond}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		return w, func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	count := func(topic string) (n int) {
		for _, r := range broker.read(t, topic) {
			if !deadletter.IsProbe(&r) {
				n++
			}
		}
		return n
	}
	halted := func(w *worker.Worker) bool {
		s := w.Pipelines()[0]
		return s.State == pipeline.StateHalted && s.Code == pipeline.CodeErrorBudget && !s.Ready && strings.Contains(s.Text, "in/0/")
	}
	first, stop := start()
	send(1, 0, 0, 2, 0)
	until(t, "the records within the budget", func() bool { return count("out") == 2 && count("in.dlq") == 3 })
	send(0, 3)
	until(t, "the halt", func() bool { return halted(first) })
	stop()
	second, stop := start()
	defer func() { stop() }()
	send(4)
	until(t, "the halt after a restart", func() bool { return halted(second) })

	keys, err := worker.NewKeys(plan.Config.Keys)
	if err != nil {
		t.Fatal(err)
	}
	desk, err := worker.OpenHalt(t.Context(), plan, "orders", keys, time.Now, slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer desk.Close()
	if s, err := desk.State(); err != nil || !s.Halted || s.By != "w1" || s.Code != pipeline.CodeErrorBudget {
		t.Errorf("the halt as people see it: %+v, %v", s, err)
	}
	if _, err := desk.Resume(t.Context(), person, ""); pipeline.CodeOf(err) != pipeline.CodeReasonMissing {
		t.Errorf("resumed without a reason: %v", err)
	}
	if n := count("out") + count("in.dlq"); n > 7 {
		t.Errorf("%d records were worked although it is halted", n)
	}
	if ok, err := desk.Resume(t.Context(), person, "the rule is mended"); !ok || err != nil {
		t.Fatalf("%v %v", ok, err)
	}
	until(t, "the rest", func() bool { return count("out") == 4 && count("in.dlq") == 4 })
	if ok, err := desk.Resume(t.Context(), person, "again"); ok || err != nil {
		t.Errorf("resumed what is not halted: %v %v", ok, err)
	}
}
