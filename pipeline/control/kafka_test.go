package control_test

import (
	"context"
	"os"
	"testing"
	"time"

	"reprieve.dev/embedded"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/control"
	"reprieve.dev/pipeline/kafka"
)

// TestBoardOverKafka runs two Boards over librdkafka: on the embedded broker, and on a real one where REPRIEVE_TEST_KAFKA
// names it.
func TestBoardOverKafka(t *testing.T) {
	brokers := map[string]func(t *testing.T) string{
		"embedded": func(t *testing.T) string {
			b, err := embedded.StartBroker(embedded.BrokerConfig{Dir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = b.Close() })
			return b.Bootstrap()
		},
		"real": func(t *testing.T) string {
			addr := os.Getenv("REPRIEVE_TEST_KAFKA")
			if addr == "" {
				t.Skip("REPRIEVE_TEST_KAFKA names no broker")
			}
			return addr
		},
	}
	for name, start := range brokers {
		t.Run(name, func(t *testing.T) {
			at := start(t)
			t.Run("boards publish, follow and start late", func(t *testing.T) { boardOver(t, at) })
			t.Run("an open transaction hides nothing for good", func(t *testing.T) { boardBehindTransaction(t, at) })
		})
	}
}

func boardOver(t *testing.T, bootstrap string) {
	f := newFixture(t)
	cluster := kafka.Cluster{Name: "main", Properties: map[string]string{"bootstrap.servers": bootstrap}}
	name := "control-test-" + time.Now().Format("150405.000000")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	open := func() (*control.Board, func()) {
		log, err := kafka.NewLog(cluster, nil)
		if err != nil {
			t.Fatal(err)
		}
		sink, err := kafka.NewSink(kafka.SinkConfig{Cluster: cluster, ClientID: "board"})
		if err != nil {
			t.Fatal(err)
		}
		board := control.NewBoard(control.Options{Topic: name, Reader: log, Sink: sink, Authority: f.authority, Clock: time.Now})
		run, stop := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() { defer close(done); _ = board.Run(run) }()
		return board, func() { stop(); <-done; _ = sink.Close(ctx); log.Close() }
	}
	admin, err := kafka.NewAdmin(cluster)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	cold, stopCold := open()
	short, cancelShort := context.WithTimeout(ctx, time.Second)
	if err := cold.WaitReady(short); pipeline.CodeOf(err) != pipeline.CodeControlNotReady {
		t.Errorf("without a topic: %v", err)
	}
	cancelShort()
	if err := admin.CreateTopics(ctx, kafka.TopicSpec{Name: name, Partitions: 1, Configs: map[string]string{"cleanup.policy": "compact"}}); err != nil {
		t.Fatal(err)
	}
	if err := cold.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	two, stopTwo := open()
	if err := two.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	changed := two.Changed()
	if err := cold.Halt(ctx, f.worker, "worker-1", "billing", "count mismatch"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
	case <-ctx.Done():
		t.Fatal("the other board never learned of the halt")
	}
	s, err := two.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if h, ok := s.Halted("billing"); !ok || h.HaltState().Reason != "count mismatch" {
		t.Errorf("got %+v %v", h, ok)
	}
	changed = cold.Changed()
	if err := two.Lift(ctx, f.ann, "ann", "billing", "mended"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
	case <-ctx.Done():
		t.Fatal("the other board never learned of the lift")
	}
	stopCold()
	stopTwo()
	late, stopLate := open()
	defer stopLate()
	if err := late.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	if s, err = late.Snapshot(); err != nil || s.Len() != 2 || s.Check("billing") != nil {
		t.Errorf("a board that starts later: %v, %+v", err, s)
	}
	if n := late.Ignored(); len(n) != 0 {
		t.Errorf("ignored %v", n)
	}
}

// boardBehindTransaction: somebody's open transaction on the topic keeps acknowledged entries invisible. A board must not
// step over them, nor call itself complete meanwhile.
func boardBehindTransaction(t *testing.T, bootstrap string) {
	f := newFixture(t)
	cluster := kafka.Cluster{Name: "main", Properties: map[string]string{"bootstrap.servers": bootstrap}}
	name := "control-tx-" + time.Now().Format("150405.000000")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	log, err := kafka.NewLog(cluster, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(log.Close) // after the boards, which are closed first
	if err := log.CreateTopics(ctx, kafka.TopicSpec{Name: name, Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	open := func() *control.Board {
		sink, err := kafka.NewSink(kafka.SinkConfig{Cluster: cluster, ClientID: "board"})
		if err != nil {
			t.Fatal(err)
		}
		board := control.NewBoard(control.Options{Topic: name, Reader: log, Sink: sink, Authority: f.authority, Clock: time.Now})
		run, stop := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() { defer close(done); _ = board.Run(run) }()
		t.Cleanup(func() { stop(); <-done; _ = sink.Close(context.Background()) })
		return board
	}
	one, two := open(), open()
	for _, b := range []*control.Board{one, two} {
		if err := b.WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
	}
	tx, err := kafka.NewTx(ctx, kafka.TxConfig{Cluster: cluster, TransactionalID: name})
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Begin(); err != nil {
		t.Fatal(err)
	}
	if err := tx.Send(&pipeline.Sending{Msgs: []pipeline.Message{{Topic: name, Key: []byte("x"), Value: []byte("y"), From: -1}}}); err != nil {
		t.Fatal(err)
	}
	<-tx.Done()
	if err := one.Halt(ctx, f.worker, "worker-1", "billing", "behind the transaction"); err != nil {
		t.Fatal(err)
	}
	for two.Err() == nil || two.Stale() < time.Second {
		if ctx.Err() != nil {
			t.Fatal("the other board calls itself complete though an acknowledged entry is hidden")
		}
		time.Sleep(50 * time.Millisecond) // the deadline is ctx's
	}
	cold := open()
	short, cancelShort := context.WithTimeout(ctx, 2*time.Second)
	defer cancelShort()
	if err := cold.WaitReady(short); err == nil {
		t.Error("a cold board is ready without what is hidden")
	}
	if err := tx.Abort(ctx); err != nil {
		t.Fatal(err)
	}
	if err := cold.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	for _, b := range []*control.Board{one, two, cold} {
		for {
			changed := b.Changed()
			s, err := b.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := s.Halted("billing"); ok {
				break
			}
			select {
			case <-changed:
			case <-ctx.Done():
				t.Fatal("the halt was stepped over")
			}
		}
	}
}
