package engine_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/decide"
)

// outagePause is the policy of outage: pause.
func outagePause(t *testing.T) func(pipeline.TP) pipeline.Policy {
	t.Helper()
	p, err := decide.New(decide.File{}, decide.Options{Retry: decide.Retry{Topic: "in.retry"}, Quarantine: "in.dlq", OutagePause: true})
	if err != nil {
		t.Fatal(err)
	}
	return func(pipeline.TP) pipeline.Policy { return p }
}

// knownDown makes the bench know of the outage.
func (b *bench) knownDown(t *testing.T) {
	b.o.Policy = outagePause(t)
	b.o.Unhealthy = func(*pipeline.Failure) bool { return b.stage.outage.Load() }
}

// While a dependency is down, what needs it waits without using up attempts, what does not goes on, and poison is quarantined:
// that which was read before and that which comes later. Afterwards everything is there once.
func TestOutageHoldsBackWhatNeedsTheServiceOnly(t *testing.T) {
	for _, exactly := range []bool{false, true} {
		t.Run(fmt.Sprintf("exactly_once=%v", exactly), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, 2)
				if exactly {
					b.exactlyOnce()
				}
				b.knownDown(t)
				b.stage.outage.Store(true)
				b.in(0, "a", "needs1", "poison1", "b", "needs2")
				b.in(1, "c")
				b.start()
				b.after(5 * time.Second)
				if got := b.values("out"); len(got) != 3 || len(b.letters()) != 1 || b.committed("in", 0) != 1 {
					t.Errorf("out %v, %d letters, committed %d", got, len(b.letters()), b.committed("in", 0))
				}
				if h := b.health.Load(); h.Ready || h.Code != pipeline.CodeRegistryUnavailable {
					t.Errorf("health %+v", h)
				}
				b.in(0, "needs3", "poison2", "d")
				b.in(1, "e")
				b.after(2 * time.Minute)
				if got := join(b.values("out")); !strings.Contains(got, "d") || !strings.Contains(got, "e") || len(b.letters()) != 2 {
					t.Errorf("during the outage: out %v, %d letters", got, len(b.letters()))
				}
				b.stage.outage.Store(false)
				b.after(40 * time.Second)
				if h := b.health.Load(); !h.Ready {
					t.Errorf("not ready again: %+v", h)
				}
				b.in(0, "f")
				b.after(time.Second)
				if err := b.stop(); err != nil {
					t.Fatal(err)
				}
				b.once(11)
				if n := len(b.values("in.retry")); n != 0 {
					t.Errorf("%d attempts were used up", n)
				}
				if b.committed("in", 0) != 9 || b.settled()["in delivered"] != 9 || b.settled()["in dead_lettered"] != 2 {
					t.Errorf("committed %d, settled %v", b.committed("in", 0), b.settled())
				}
			})
		})
	}
}

// A worker that is stopped or restarted in the middle of an outage does nothing twice: however the waiting records lie between
// those that went on.
func TestRestartInAnOutageDoesNothingTwice(t *testing.T) {
	for _, exactly := range []bool{false, true} {
		t.Run(fmt.Sprintf("exactly_once=%v", exactly), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, 1)
				if exactly {
					b.exactlyOnce()
				}
				b.knownDown(t)
				b.stage.outage.Store(true)
				n := 60
				if exactly {
					n = 600 // more runs than a checkpoint can hold
				}
				for i := range n / 2 {
					b.in(0, fmt.Sprint("a", i), fmt.Sprint("needs", i))
				}
				b.start()
				b.after(10 * time.Second)
				if err := b.stop(); err != nil {
					t.Fatal(err)
				}
				b.join()
				if exactly {
					b.exactlyOnce()
				}
				b.knownDown(t)
				b.start()
				b.after(10 * time.Second)
				b.stage.outage.Store(false)
				b.after(40 * time.Second)
				if err := b.stop(); err != nil {
					t.Fatal(err)
				}
				b.once(n)
			})
		})
	}
}

// However long an outage lasts, memory has a bound: beyond it the partition is read no further, and the others are.
func TestOutageReadsOnWithinABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 2)
		b.knownDown(t)
		b.stage.outage.Store(true)
		b.start()
		for i := range 100 {
			for k := range 100 {
				b.in(0, fmt.Sprintf("needs%d", i*100+k))
			}
			b.in(1, fmt.Sprint("a", i))
			b.after(time.Minute)
		}
		if n := len(b.values("out")); n != 100 {
			t.Errorf("the other partition delivered %d", n)
		}
		if !slices.Contains(b.src.Paused(), pipeline.TP{Topic: "in"}) {
			t.Error("it is still read")
		}
		if n := b.stage.calls.Load(); n > 3000 {
			t.Errorf("%d batches went through the stages", n)
		}
		b.stage.outage.Store(false)
		b.after(5 * time.Minute)
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		b.once(10_100)
	})
}

func TestPartitionsComeBackAtDifferentMoments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 8)
		b.knownDown(t)
		b.stage.outage.Store(true)
		var mu sync.Mutex
		at := map[int32][]time.Time{}
		b.stage.seen = func(batch *pipeline.Batch, _ int) {
			mu.Lock()
			defer mu.Unlock()
			at[batch.TP.Partition] = append(at[batch.TP.Partition], time.Now())
		}
		b.start()
		for p := range int32(8) {
			b.in(p, "needs")
		}
		b.after(1100 * time.Millisecond)
		mu.Lock()
		seen := maps.Clone(at)
		mu.Unlock()
		if len(seen) != 8 {
			t.Errorf("%d partitions were tried", len(seen))
		}
		again := map[time.Time]bool{}
		for p, times := range seen {
			if len(times) < 2 || times[1].Sub(times[0]) < 400*time.Millisecond || times[1].Sub(times[0]) > 1100*time.Millisecond {
				t.Errorf("partition %d was tried at %v", p, times)
				continue
			}
			again[times[1].Truncate(time.Millisecond)] = true
		}
		if len(again) < 4 {
			t.Errorf("8 partitions come back in %d moments", len(again))
		}
		_ = b.stop()
	})
}

// A call whose service is down is made later, not retried; one that refuses our credentials stops its records, not the topic into
// the dead-letter topic.
func TestACallWaitsForItsService(t *testing.T) {
	for code, known := range map[pipeline.Code]bool{pipeline.CodeHTTPUnavailable: true, pipeline.CodeHTTPDenied: false} {
		t.Run(string(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, 1)
				b.knownDown(t)
				b.stage.outage.Store(known)
				b.calls()
				b.c.Refuse("pay", code, -1)
				b.in(0, "call 1", "a", "poison", "call 2")
				b.start()
				b.after(20 * time.Second)
				if join(b.values("out")) != "a" || len(b.letters()) != 1 || len(b.values("in.retry")) != 0 || b.committed("in", 0) > 0 {
					t.Errorf("out %v, %d letters, %d retries, committed %d", b.values("out"), len(b.letters()), len(b.values("in.retry")), b.committed("in", 0))
				}
				b.c.Refuse("pay", "", 0)
				b.stage.outage.Store(false)
				b.after(40 * time.Second)
				if err := b.stop(); err != nil {
					t.Fatal(err)
				}
				if join(b.values("pay")) != "call 1 call 2" || len(b.letters()) != 1 || b.committed("in", 0) != 4 || !b.health.Load().Ready {
					t.Errorf("calls %v, %d letters, committed %d, health %+v", b.values("pay"), len(b.letters()), b.committed("in", 0), b.health.Load())
				}
			})
		})
	}
}

// An outage excuses a record for so long: one that its dependency really failed on again and again is retried and quarantined as
// if the dependency were up, so that it does not make the service look down for ever.
func TestARecordThatFailsAnywayIsNotExcusedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		b.knownDown(t)
		b.stage.outage.Store(true)
		var tries atomic.Int64
		b.stage.seen = func(batch *pipeline.Batch, i int) {
			if strings.HasPrefix(string(batch.Recs[i].Value), "down") {
				tries.Add(1)
			}
		}
		b.in(0, "down1", "needs1")
		b.start()
		b.after(2 * time.Minute)
		if n := len(b.letters()) + len(b.values("in.retry")); n > 0 {
			t.Errorf("after %d tries it is excused no more", tries.Load())
		}
		b.after(3 * time.Hour)
		l := b.letters()
		if len(l) != 1 || l[0].Decision.Code != pipeline.CodeRetryExhausted || l[0].Decision.Attempt != 5 {
			t.Errorf("after %d tries: letters %v", tries.Load(), l)
		}
		b.stage.outage.Store(false)
		b.after(2 * time.Minute)
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		b.once(2)
	})
}
