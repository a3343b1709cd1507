package engine_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/pipeline/engine"
	"reprieve.dev/tests/conformance/script"
)

// exactlyOnce makes the bench transactional.
func (b *bench) exactlyOnce() *script.Tx {
	tx := b.c.Tx("p/w", script.SinkOptions{})
	b.sink = tx.Sink
	b.o.Sink, b.o.Letters, b.o.Tx = tx, tx, tx
	b.o.Prober = b.c.Sink(script.SinkOptions{})
	return tx
}

// once fails unless every input ended in exactly one visible place.
func (b *bench) once(want int) {
	b.t.Helper()
	seen := map[string]int{}
	for _, v := range append(b.values("out"), b.values("in.dlq")...) {
		seen[v]++
	}
	for v, n := range seen {
		if n != 1 {
			b.t.Errorf("%q is there %d times", v, n)
		}
	}
	if len(seen) != want {
		b.t.Errorf("%d of %d records ended somewhere", len(seen), want)
	}
}

func TestExactlyOnceDeliversRetriesAndQuarantines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 2)
		tx := b.exactlyOnce()
		b.in(0, "a", "poison1", "flaky1", "down1", "b")
		b.in(1, "c", "domain1")
		b.start()
		b.after(20 * time.Second)
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		b.once(7)
		if commits, aborts := tx.Counts(); commits == 0 || aborts != 0 {
			t.Errorf("%d commits, %d aborts", commits, aborts)
		}
		if b.committed("in", 0) != 5 || b.committed("in", 1) != 2 || b.src.Moves() != 0 {
			t.Errorf("committed %d and %d, %d offsets moved outside of a transaction", b.committed("in", 0), b.committed("in", 1), b.src.Moves())
		}
		if got := b.settled()["in dead_lettered"]; got != 2 {
			t.Errorf("settlements %v", b.settled())
		}
	})
}

func TestAbortedTransactionIsDoneAgainWithoutATrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 2)
		tx := b.exactlyOnce()
		for range 3 {
			tx.FailCommit(pipeline.Errorf(pipeline.CodeTxAborted, "test", "the coordinator moved"))
		}
		for i := range 400 {
			b.in(int32(i%2), fmt.Sprintf("r%d", i))
		}
		b.in(0, "flakyx", "poisonx")
		b.start()
		b.after(20 * time.Second)
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		b.once(402)
		if _, aborts := tx.Counts(); aborts != 3 {
			t.Errorf("%d aborts", aborts)
		}
	})
}

func TestRefusedMessageDoomsItsTransactionOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		tx := b.exactlyOnce()
		b.in(0, "a", "lost1", "b", "lost2")
		b.start()
		b.after(20 * time.Second)
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		b.once(4)
		l := b.letters()
		if len(l) != 2 || l[0].Decision.Code != pipeline.CodeSendTopicMissing {
			t.Errorf("letters %v", l)
		}
		if _, aborts := tx.Counts(); aborts < 1 || aborts > 2 {
			t.Errorf("%d aborts", aborts)
		}
		if b.committed("in", 0) != 4 {
			t.Errorf("committed %d", b.committed("in", 0))
		}
	})
}

func TestRevokeEndsTheTransactionFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 2)
		b.exactlyOnce()
		b.start()
		b.after(time.Second)
		for i := range 100 {
			b.in(int32(i%2), fmt.Sprintf("r%d", i))
		}
		b.after(10 * time.Millisecond)
		b.src.Revoke(pipeline.TP{Topic: "in"})
		b.in(0, "late")
		b.after(10 * time.Second)
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		b.once(101)
	})
}

func TestLostPartitionAbortsWhatItSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 2)
		tx := b.exactlyOnce()
		b.start()
		b.after(time.Second)
		b.sink.Hold()
		b.in(0, "a")
		b.in(1, "b")
		b.after(20 * time.Millisecond)
		b.src.Lose(pipeline.TP{Topic: "in"})
		b.after(20 * time.Millisecond)
		b.sink.Flow()
		b.after(10 * time.Second)
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		b.once(2)
		if _, aborts := tx.Counts(); aborts == 0 {
			t.Error("nothing was aborted")
		}
	})
}

func TestSuccessorFencesAndNothingIsThereTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		b.exactlyOnce()
		b.start()
		b.after(time.Second)
		b.sink.Hold()
		b.in(0, "a", "b")
		b.after(100 * time.Millisecond) // written, not acknowledged, not committed: then the process hangs
		old, oldSrc, oldSink := b.ended, b.src, b.sink
		_ = oldSrc.Close()
		b.join()
		b.exactlyOnce()
		b.ended = make(chan error, 1)
		b.start()
		b.after(5 * time.Second)
		oldSink.Flow()
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		if err := <-old; err == nil {
			t.Error("the fenced engine ended as if nothing had happened")
		}
		b.once(2)
	})
}

func TestReadersSeeOnlyWhatIsCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		tx := b.exactlyOnce()
		b.start()
		b.after(time.Second)
		b.sink.Hold()
		b.in(0, "a")
		b.after(time.Second)
		if len(b.values("out")) != 0 {
			t.Error("an open transaction is visible")
		}
		b.sink.Flow()
		b.after(time.Second)
		if join(b.values("out")) != "a" {
			t.Errorf("out %v", b.values("out"))
		}
		// a failure is committed within 50 ms, not 250
		before, _ := tx.Counts()
		b.in(0, "poisonq")
		b.after(100 * time.Millisecond)
		if after, _ := tx.Counts(); after == before || !slices.Contains(b.values("in.dlq"), "poisonq") {
			t.Error("a failure waits longer than the commit rule says")
		}
		_ = b.stop()
	})
}

func TestRedrivenOutcomeIsInTheSameTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		tx := b.exactlyOnce()
		tx.FailCommit(pipeline.Errorf(pipeline.CodeTxAborted, "test", "aborted"))
		m := pipeline.Message{Topic: "in.retry", Value: []byte("mended")}
		trail := pipeline.Trail{Item: "qitem", Redrive: "sha256:m", Try: 1, Original: pipeline.Position{TP: pipeline.TP{Topic: "in"}}}
		_ = deadletter.AppendTrail(&m, &trail, pipeline.Identity{Tenant: "acme"}, nil, 0, testRing)
		b.c.Append(pipeline.TP{Topic: "in.retry"}, pipeline.Record{Value: m.Value, Headers: m.Headers})
		b.start()
		b.after(5 * time.Second)
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		if len(b.c.All("reprieve.outcomes")) != 1 || len(b.values("out")) != 1 {
			t.Errorf("%d outcomes, out %v", len(b.c.All("reprieve.outcomes")), b.values("out"))
		}
	})
}

func TestAbortsUseUpNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 2)
		tx := b.exactlyOnce()
		b.o.Limits = engine.Limits{Batches: 2, PartRecords: 1}
		b.start()
		const each = 8 // more batches in aborted transactions than may be in work
		for i := range each {
			b.in(int32(i%2), fmt.Sprintf("lost%d", i), fmt.Sprintf("r%d", i))
			b.after(5 * time.Second)
		}
		for i := range each {
			tx.FailCommit(pipeline.Errorf(pipeline.CodeTxAborted, "test", "the coordinator moved"))
			b.in(0, fmt.Sprintf("s%d", i))
			b.in(1, fmt.Sprintf("u%d", i))
			b.after(5 * time.Second)
		}
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		b.once(4 * each)
		if _, aborts := tx.Counts(); aborts < 2*each {
			t.Errorf("%d aborts", aborts)
		}
	})
}
