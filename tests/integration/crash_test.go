package integration

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/pipeline/engine"
	"reprieve.dev/pipeline/kafka"
	"reprieve.dev/worker"
)

// deadly is a stage that kills its process, as a fault in C or an exhausted machine does, when it sees one record.
type deadly struct{ byWord }

func (s deadly) Process(ctx context.Context, b *pipeline.Batch) error {
	for i := range b.Recs {
		if b.Live(i) && strings.Contains(string(b.Recs[i].Value), "die") {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // it comes at once, not at this instruction
		}
	}
	return s.byWord.Process(ctx, b)
}

// TestCrashingProcess is no test: it is the process that dies.
func TestCrashingProcess(t *testing.T) {
	bootstrap, delivery := os.Getenv("CRASH_BOOTSTRAP"), os.Getenv("CRASH_DELIVERY")
	if bootstrap == "" {
		t.Skip("it is run by another test")
	}
	c := kafka.Cluster{Name: "main", Properties: map[string]string{"bootstrap.servers": bootstrap}}
	ring, id := testRing(t)
	layout := &pipeline.Layout{}
	pool := pipeline.NewPool(layout)
	src, err := kafka.NewSource(kafka.SourceConfig{Cluster: c, Group: "g", Topics: []string{"in"}, RetryTopics: map[string]bool{"in.retry": true}, Pool: pool, Log: slog.Default(), InstanceID: "w1"})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	plain, err := kafka.NewSink(kafka.SinkConfig{Cluster: c, ClientID: "engine"})
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close(context.Background())
	o := engine.Options{
		Pipeline: "p", Cluster: "c1", Consumer: "g", Release: "r1", Source: src, Sink: plain, Letters: plain, Pool: pool, Layout: layout,
		Stages:   []engine.Stage{{Name: "word", Stage: deadly{byWord{"out"}}}},
		Policy:   func(pipeline.TP) pipeline.Policy { return byTable{"in.retry", "in.dlq"} },
		Identify: noIdentity{}, Sanitize: asItIs{}, Ring: ring, Identity: id,
		Route: engine.Route{RetryTopic: "in.retry", QuarantineTopic: "in.dlq", Prefix: "reprieve"},
		Clock: time.Now, Log: slog.Default(), Meter: worker.NewMeter(prometheus.NewRegistry()),
	}
	if delivery == "exactly_once" {
		tx, err := kafka.NewTx(t.Context(), kafka.TxConfig{Cluster: c, ClientID: "engine", TransactionalID: "p/w1", Log: slog.Default()})
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Close(context.Background())
		o.Sink, o.Letters, o.Tx, o.Prober = tx, tx, tx, plain
	}
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM)
	defer stop()
	if err := engine.New(o).Run(ctx); err != nil {
		t.Fatal(err)
	}
}

// ADV-IR-01: a record that kills every process that works it is in work at five crashes. Then it is a letter, and everything else
// is delivered: 0 lost, and with exactly_once 0 twice for readers of committed records.
func TestARecordThatKillsItsProcessIsQuarantinedAtFiveCrashes(t *testing.T) {
	for _, delivery := range []string{"at_least_once", "exactly_once"} {
		t.Run(delivery, func(t *testing.T) {
			c := startCluster(t)
			c.create(t, 3, "in", "in.retry", "in.dlq", "out", "reprieve.settlements", "reprieve.outcomes")
			const n = 6000
			var msgs []pipeline.Message
			for i := range n {
				word := "fine"
				switch {
				case i == 3456:
					word = "die"
				case i%500 == 3:
					word = "poison"
				}
				msgs = append(msgs, pipeline.Message{Topic: "in", Partition: -1, Key: fmt.Appendf(nil, "k%d", i%97), Value: fmt.Appendf(nil, "%08d-%s", i, word)})
			}
			c.write(t, msgs)
			crashes, done := 0, false
			for !done {
				if crashes > 7 {
					t.Fatalf("%d crashes and no end", crashes)
				}
				cmd := exec.Command(os.Args[0], "-test.run=^TestCrashingProcess$", "-test.timeout=120s")
				cmd.Env = append(os.Environ(), "CRASH_BOOTSTRAP="+c.Properties["bootstrap.servers"], "CRASH_DELIVERY="+delivery)
				var log strings.Builder
				cmd.Stdout, cmd.Stderr = &log, &log
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				exited := make(chan error, 1)
				go func() { exited <- cmd.Wait() }()
				deadline := time.Now().Add(90 * time.Second)
				for over := false; !over; {
					select {
					case <-exited:
						over = true
						if s := cmd.ProcessState.Sys().(syscall.WaitStatus); !s.Signaled() || s.Signal() != syscall.SIGKILL {
							t.Fatalf("the process ended by itself: %s\n%s", cmd.ProcessState, log.String())
						}
						crashes++
					default:
						if done = c.settled(t, "g", "in"); done || time.Now().After(deadline) {
							_ = cmd.Process.Signal(syscall.SIGTERM)
							if err := <-exited; err != nil || !done {
								t.Fatalf("done %v, ended with %v\n%s", done, err, log.String())
							}
							over = true
							break
						}
						time.Sleep(50 * time.Millisecond) // polling a broker with a deadline
					}
				}
			}
			if crashes != 5 {
				t.Errorf("%d crashes", crashes)
			}
			ring, _ := testRing(t)
			ended := map[string][]string{}
			for _, r := range c.read(t, "out") {
				ended[string(r.Value[:8])] = append(ended[string(r.Value[:8])], "out")
			}
			for _, r := range c.read(t, "in.dlq") {
				if deadletter.IsProbe(&r) {
					continue
				}
				l, err := deadletter.Parse("in.dlq", &r, ring)
				if err != nil {
					t.Fatal(err)
				}
				ended[string(r.Value[:8])] = append(ended[string(r.Value[:8])], string(l.Decision.Code))
			}
			twice := 0
			for _, m := range msgs {
				got := ended[string(m.Value[:8])]
				want := map[string]string{"fine": "out", "die": "ERR_INFINITE_RETRY_ABORTED", "poison": "ERR_DECODE_TRUNCATED"}[string(m.Value[9:])]
				if len(got) == 0 || got[0] != want {
					t.Errorf("%s ended as %v, want %s", m.Value, got, want)
				}
				twice += max(len(got)-1, 0)
			}
			if delivery == "exactly_once" && twice > 0 {
				t.Errorf("%d records are there twice", twice)
			}
			t.Logf("%d crashes, %d records done twice", crashes, twice)
			for tp, cp := range checkpoints(t, c, "g") {
				if cp.Starts > 0 {
					t.Errorf("%s has a mark after a clean end: %+v", tp, cp)
				}
			}
		})
	}
}

func checkpoints(t *testing.T, c *cluster, group string) map[pipeline.TP]pipeline.Checkpoint {
	t.Helper()
	points, err := c.admin.Checkpoints(t.Context(), group)
	if err != nil {
		t.Fatal(err)
	}
	return points
}
