package control_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/control"
	"reprieve.dev/seal"
	"reprieve.dev/tests/conformance/script"
)

// bench is a scripted cluster with Boards on it, in a bubble of its own time.
type bench struct {
	t *testing.T
	*fixture
	c      *script.Cluster
	cancel []context.CancelFunc
}

func newBench(t *testing.T, create bool) *bench {
	b := &bench{t: t, fixture: newFixture(t), c: script.New(1760000000000)}
	if create {
		b.c.CreateTopic(topic, 1, map[string]string{"cleanup.policy": "compact"})
	}
	return b
}

func (b *bench) board() (*control.Board, *script.Sink, func()) {
	sink := b.c.Sink(script.SinkOptions{})
	board := control.NewBoard(control.Options{Topic: topic, Reader: b.c.Log(nil), Sink: sink, Authority: b.authority, Clock: time.Now})
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = board.Run(ctx) }()
	stop := func() { cancel(); <-done }
	b.cancel = append(b.cancel, stop)
	return board, sink, stop
}

func (b *bench) close() {
	for _, c := range b.cancel {
		c()
	}
}

func (b *bench) ready(board *control.Board) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	if err := board.WaitReady(ctx); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) snapshot(board *control.Board) *control.Snapshot {
	b.t.Helper()
	s, err := board.Snapshot()
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

func scene(t *testing.T, create bool, f func(t *testing.T, b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, create)
		defer b.close()
		f(t, b)
	})
}

func TestBoardPublishesAndOthersFollow(t *testing.T) {
	scene(t, true, func(t *testing.T, b *bench) {
		one, _, _ := b.board()
		two, _, _ := b.board()
		b.ready(one)
		b.ready(two)
		changed := two.Changed()
		if err := one.Halt(t.Context(), b.worker, "worker-1", "", "count mismatch"); err != nil {
			t.Fatal(err)
		}
		if _, ok := b.snapshot(one).Halted("x"); !ok {
			t.Error("the publisher does not know what it published")
		}
		start := time.Now()
		<-changed
		if took := time.Since(start); took > time.Second {
			t.Errorf("the other learned of it after %v", took)
		}
		h, ok := b.snapshot(two).Halted("x")
		if !ok || h.By != "worker-1" || h.HaltState().Reason != "count mismatch" || h.Seq != 1 {
			t.Errorf("got %+v %v", h, ok)
		}
		if err := two.Halt(t.Context(), b.worker, "worker-1", "", "again"); err != nil {
			t.Fatal(err)
		}
		if h, _ := b.snapshot(two).Halted("x"); h.Seq != 2 {
			t.Errorf("seq %d after the second halt", h.Seq)
		}
		time.Sleep(time.Second) // who lifts has seen the halt: a lift names what it lifts
		for _, p := range []struct {
			name string
			key  *seal.Signer
		}{{"ann", b.ann}, {"bob", b.bob}} {
			if err := one.Lift(t.Context(), p.key, p.name, "", "mended"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		for _, board := range []*control.Board{one, two} {
			if err := b.snapshot(board).Check("x"); err != nil {
				t.Error(err)
			}
			if n := board.Ignored(); len(n) != 0 {
				t.Errorf("ignored %v", n)
			}
		}
		if err := one.Lift(t.Context(), b.ann, "ann", "", "more"); pipeline.CodeOf(err) != pipeline.CodeRedriveState {
			t.Errorf("lifting nothing: %v", err)
		}
	})
}

func TestStartReadsToTheEndFirst(t *testing.T) {
	scene(t, true, func(t *testing.T, b *bench) {
		one, _, stop := b.board()
		b.ready(one)
		for range 1200 { // more than one batch
			if err := one.Halt(t.Context(), b.worker, "worker-1", "a", "r"); err != nil {
				t.Fatal(err)
			}
		}
		stop()
		two, _, _ := b.board()
		b.ready(two)
		if h, ok := b.snapshot(two).Halted("a"); !ok || h.Seq != 1200 {
			t.Errorf("ready with seq %d", h.Seq)
		}
		if err := two.Halt(t.Context(), b.worker, "worker-1", "a", "r"); err != nil {
			t.Fatal(err)
		}
		if h, _ := b.snapshot(two).Halted("a"); h.Seq != 1201 {
			t.Errorf("after a restart seq %d", h.Seq)
		}
	})
}

func TestColdAndUnreadableIsNotReady(t *testing.T) {
	scene(t, false, func(t *testing.T, b *bench) {
		board, _, _ := b.board()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err := board.WaitReady(ctx)
		if pipeline.CodeOf(err) != pipeline.CodeControlNotReady || !strings.Contains(err.Error(), string(pipeline.CodeTopicMissing)) {
			t.Errorf("got %v", err)
		}
		if _, err := board.Snapshot(); pipeline.CodeOf(err) != pipeline.CodeControlNotReady {
			t.Errorf("a snapshot of a cold board: %v", err)
		}
		if err := board.Halt(t.Context(), b.worker, "worker-1", "", "r"); pipeline.CodeOf(err) != pipeline.CodeControlNotReady {
			t.Errorf("published while cold: %v", err)
		}
		if board.Stale() < time.Hour {
			t.Error("a cold board is not stale")
		}
		b.c.CreateTopic(topic, 1, nil)
		b.ready(board)
	})
}

func TestWarmKeepsWhatItKnowsAndSaysHowOldItIs(t *testing.T) {
	scene(t, true, func(t *testing.T, b *bench) {
		board, _, _ := b.board()
		b.ready(board)
		if err := board.Halt(t.Context(), b.worker, "worker-1", "", "r"); err != nil {
			t.Fatal(err)
		}
		b.c.DeleteTopic(topic)
		time.Sleep(11 * time.Second)
		if _, ok := b.snapshot(board).Halted("x"); !ok {
			t.Error("it forgot the halt")
		}
		if board.Stale() < 10*time.Second || board.Err() == nil {
			t.Errorf("stale %v, error %v", board.Stale(), board.Err())
		}
		b.c.CreateTopic(topic, 1, nil)
		time.Sleep(time.Second)
		if _, ok := b.snapshot(board).Halted("x"); !ok {
			t.Error("a new empty topic ended the halt")
		}
		if board.Stale() > time.Second || board.Err() != nil {
			t.Errorf("stale %v, error %v", board.Stale(), board.Err())
		}
	})
}

func TestManyPartitionsAreRefused(t *testing.T) {
	scene(t, false, func(t *testing.T, b *bench) {
		b.c.CreateTopic(topic, 3, nil)
		board, _, _ := b.board()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := board.WaitReady(ctx); err == nil || !strings.Contains(err.Error(), string(pipeline.CodeTopicUnsafe)) {
			t.Errorf("got %v", err)
		}
	})
}

func TestForgedEntriesAreCountedAndChangeNothing(t *testing.T) {
	scene(t, true, func(t *testing.T, b *bench) {
		board, _, _ := b.board()
		b.ready(board)
		if err := board.Halt(t.Context(), b.worker, "worker-1", "", "r"); err != nil {
			t.Fatal(err)
		}
		real := b.c.All(topic)[0]
		tp := pipeline.TP{Topic: topic}
		b.c.Append(tp,
			pipeline.Record{Key: real.Key},
			pipeline.Record{Key: []byte("x"), Value: []byte("y")},
			pipeline.Record{Key: real.Key, Value: bytes.Replace(real.Value, []byte(`"seq":"1"`), []byte(`"seq":"9"`), 1)},
			pipeline.Record{Headers: []pipeline.Header{{Name: "reprieve-probe", Value: []byte("1")}}})
		time.Sleep(time.Second)
		n := board.Ignored()
		if n[control.Unsigned] != 1 || n[control.Unreadable] != 1 || n[control.Forged] != 1 || len(n) != 3 {
			t.Errorf("ignored %v", n)
		}
		if h, ok := b.snapshot(board).Halted(""); !ok || h.Seq != 1 {
			t.Errorf("%+v %v", h, ok)
		}
	})
}

// Somebody who may write to the topic, but has no key, writes an older signed entry again: compaction would keep only that.
func TestReplayedBytesAreHealed(t *testing.T) {
	scene(t, true, func(t *testing.T, b *bench) {
		one, _, stop1 := b.board()
		two, _, stop2 := b.board()
		b.ready(one)
		b.ready(two)
		for range 2 {
			if err := one.Halt(t.Context(), b.worker, "worker-1", "", "r"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		older := b.c.All(topic)[0]
		b.c.Append(pipeline.TP{Topic: topic}, pipeline.Record{Key: older.Key, Value: older.Value})
		time.Sleep(5 * time.Second)
		recs := b.c.All(topic)
		last := recs[len(recs)-1]
		if e, why := control.Decode(topic, last.Key, last.Value, b.authority); why != "" || e.Seq != 2 {
			t.Errorf("what compaction keeps has seq %d (%s)", e.Seq, why)
		}
		if len(recs) > 5 {
			t.Errorf("%d messages: the boards heal each other for ever", len(recs))
		}
		if one.Ignored()[control.Replayed] == 0 {
			t.Error("the replay is not counted")
		}
		stop1()
		stop2()
		cold, _, _ := b.board()
		b.ready(cold)
		if h, _ := b.snapshot(cold).Halted(""); h.Seq != 2 {
			t.Errorf("a cold board finds seq %d", h.Seq)
		}
	})
}

func TestPublishWaitsForTheAcknowledgement(t *testing.T) {
	scene(t, true, func(t *testing.T, b *bench) {
		board, sink, _ := b.board()
		b.ready(board)
		sink.Hold()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := board.Halt(ctx, b.worker, "worker-1", "", "r"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("returned %v before the acknowledgement", err)
		}
		sink.Flow()
		time.Sleep(time.Second)
		if err := board.Halt(t.Context(), b.worker, "worker-1", "", "r"); err != nil {
			t.Error(err)
		}
	})
}

func TestRefusedPublishIsSaid(t *testing.T) {
	scene(t, true, func(t *testing.T, b *bench) {
		board, sink, _ := b.board()
		b.ready(board)
		b.c.Refuse(topic, pipeline.CodeSendDenied, 1)
		if err := board.Halt(t.Context(), b.worker, "worker-1", "", "r"); pipeline.CodeOf(err) != pipeline.CodeSendDenied {
			t.Errorf("got %v", err)
		}
		if _, ok := b.snapshot(board).Halted(""); ok {
			t.Error("a refused entry counts")
		}
		lift := control.Entry{Key: control.Key{Kind: control.KindLift, Subject: control.SubjectRedrive, Writer: "w"}, By: "w"}
		if err := board.Publish(t.Context(), b.worker, lift); pipeline.CodeOf(err) != pipeline.CodePermissionDenied {
			t.Errorf("a lift by a worker: %v", err)
		}
		sink.SetFull(true)
		go func() { time.Sleep(time.Second); sink.SetFull(false) }()
		if err := board.Halt(t.Context(), b.worker, "worker-1", "", "r"); err != nil {
			t.Errorf("after back-pressure: %v", err)
		}
	})
}
