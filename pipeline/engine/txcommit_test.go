package engine_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"reprieve.dev/pipeline"
)

// While a transaction commits, records are read and go through the stages; nothing of them is sent before it has ended.
func TestStagesGoOnWhileATransactionCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 2)
		tx := b.exactlyOnce()
		tx.SlowCommit(2 * time.Second)
		var seen atomic.Int64
		b.stage.seen = func(*pipeline.Batch, int) { seen.Add(1) }
		b.start()
		for i := range 10 {
			b.in(int32(i%2), fmt.Sprintf("a%d", i))
		}
		b.after(500 * time.Millisecond) // the commit is under way
		for i := range 300 {
			b.in(int32(i%2), fmt.Sprintf("b%d", i))
			if i%30 == 29 {
				b.after(30 * time.Millisecond)
			}
		}
		if n := seen.Load(); n < 40 { // as many batches as may be in work, if each has one record
			t.Errorf("the stages saw only %d records until the broker answered", n)
		}
		if n := len(b.values("out")); n != 0 {
			t.Errorf("%d records are to be seen before their transaction ended", n)
		}
		b.after(10 * time.Second)
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		b.once(310)
		if commits, aborts := tx.Counts(); commits > 4 || aborts != 0 {
			t.Errorf("%d commits, %d aborts", commits, aborts)
		}
	})
}

// A mark is a commit of the offset before: written while a transaction with a later one ends, it would take that back.
func TestNoMarkIsWrittenWhileATransactionCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 2)
		tx := b.exactlyOnce()
		tx.SlowCommit(2 * time.Second)
		b.start()
		b.after(time.Second)
		b.in(0, "a")
		b.after(500 * time.Millisecond) // the commit is under way
		marks := b.src.Commits()
		b.in(1, "b") // nothing of its partition is marked yet
		b.after(time.Second)
		if n := b.src.Commits(); n != marks {
			t.Errorf("%d commits beside that of the transaction", n-marks)
		}
		b.after(10 * time.Second)
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		b.once(2)
	})
}

// A failure that came while a transaction was committing is in the next, which does not wait as long once more.
func TestAFailureWaitsForOneCommitAndItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		tx := b.exactlyOnce()
		tx.SlowCommit(100 * time.Millisecond)
		b.start()
		b.after(time.Second)
		b.in(0, "a")
		b.after(270 * time.Millisecond) // it commits
		b.in(0, "poison1")
		b.after(200 * time.Millisecond) // 80 of the first commit, in which it waited; 100 of its own
		if len(b.letters()) != 1 {
			t.Error("the letter waited for the commit before, and then anew")
		}
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// Whatever the group does while the broker commits, each record ends in one place.
func TestChangesOfTheGroupDuringACommit(t *testing.T) {
	for name, change := range map[string]func(b *bench){
		"revoked":      func(b *bench) { b.src.Revoke(pipeline.TP{Topic: "in"}) },
		"lost":         func(b *bench) { b.src.Lose(pipeline.TP{Topic: "in"}) },
		"ended":        func(b *bench) { b.cancel() },
		"commit fails": func(*bench) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, 2)
				tx := b.exactlyOnce()
				tx.SlowCommit(time.Second)
				if name == "commit fails" {
					tx.FailCommit(pipeline.Errorf(pipeline.CodeTxAborted, "test", "the coordinator moved"))
				}
				b.start()
				b.after(time.Second)
				for i := range 20 {
					b.in(int32(i%2), fmt.Sprintf("a%d", i))
				}
				b.in(0, "poison1")
				b.after(300 * time.Millisecond) // the commit is under way
				for i := range 20 {
					b.in(int32(i%2), fmt.Sprintf("b%d", i))
				}
				b.after(100 * time.Millisecond)
				change(b)
				b.after(10 * time.Second)
				if name == "ended" {
					if err := <-b.ended; err != nil {
						t.Fatal(err)
					}
					_ = b.src.Close()
					b.join()
					b.exactlyOnce()
					b.start()
					b.after(10 * time.Second)
				}
				if err := b.stop(); err != nil {
					t.Fatal(err)
				}
				b.once(41)
			})
		})
	}
}
