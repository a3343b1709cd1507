package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/tests/conformance/script"
)

// life is one process of the bench. It dies when a stage sees "die": nothing of it is committed or acknowledged any more.
func (b *bench) life(exactly bool, seen func(*pipeline.Batch, int)) (died chan struct{}) {
	_ = b.src.Close()
	b.join()
	if exactly {
		b.exactlyOnce()
	}
	died = make(chan struct{})
	var once sync.Once
	block := make(chan struct{})
	b.t.Cleanup(func() { close(block) })
	b.stage = &wordStage{seen: func(batch *pipeline.Batch, i int) {
		if seen != nil {
			seen(batch, i)
		}
		if strings.HasPrefix(string(batch.Recs[i].Value), "die") {
			once.Do(func() { close(died) })
			<-block // for ever: the process is dead
		}
	}}
	b.o.Stages[0].Stage = b.stage
	b.ended = make(chan error, 1)
	b.start()
	return died
}

// kill ends a life as SIGKILL would: nothing more is committed, sent or acknowledged.
func (b *bench) kill() {
	_ = b.src.Close()
	b.sink.Fail(errBroken)
	b.cancel()
	b.after(time.Second)
}

// A record that kills the process is found in five crashes and quarantined with ERR_INFINITE_RETRY_ABORTED; every other record is
// delivered, with exactly_once none of them twice. (The real process dies in tests/chaos.)
func TestARecordThatKillsTheProcessIsQuarantined(t *testing.T) {
	for _, c := range []struct {
		exactly bool
		late    time.Duration
	}{{false, 0}, {true, 0}, {false, 10 * time.Second}, {true, 10 * time.Second}} {
		exactly := c.exactly
		t.Run(fmt.Sprintf("exactly_once=%v, the first records come after %v", exactly, c.late), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, 2)
				b.late = c.late
				const n = 700
				for i := range n {
					v := fmt.Sprint("a", i)
					if i == 333 {
						v = "die"
					}
					b.in(0, v)
					if i < 20 {
						b.in(1, fmt.Sprint("b", i))
					}
				}
				crashes := 0
				for {
					if crashes > 8 {
						t.Fatal("still dying")
					}
					died := b.life(exactly, nil)
					b.after(c.late + 20*time.Second)
					select {
					case <-died:
						crashes++
						b.kill()
						continue
					default:
					}
					break
				}
				if err := b.stop(); err != nil {
					t.Fatal(err)
				}
				if crashes != 5 {
					t.Errorf("%d crashes", crashes)
				}
				l := b.letters()
				if len(l) != 1 || l[0].Decision.Code != pipeline.CodeInfiniteRetry || string(l[0].Value) != "die" || l[0].Decision.Attempt != 0 {
					t.Errorf("letters %+v", l)
				}
				seen := map[string]int{}
				for _, v := range b.values("out") {
					seen[v]++
					if exactly && seen[v] > 1 {
						t.Errorf("%s is there twice", v)
					}
				}
				if len(seen) != n-1+20 || b.committed("in", 0) != n {
					t.Errorf("%d records are there, committed %d", len(seen), b.committed("in", 0))
				}
				if c := b.c.Committed("g")[pipeline.TP{Topic: "in"}]; c.Starts != 0 {
					t.Errorf("a mark is left after a clean end: %+v", c)
				}
			})
		})
	}
}

// lateSource gives no record of a partition before some time has passed: a broker under load.
type lateSource struct {
	*script.Source
	wait time.Duration
	held []pipeline.TP
	due  time.Time
}

func (s *lateSource) Poll(wait time.Duration) (pipeline.Event, error) {
	if s.held != nil && !time.Now().Before(s.due) {
		if err := s.Resume(s.held...); err != nil {
			return nil, err
		}
		s.held = nil
	}
	ev, err := s.Source.Poll(wait)
	if a, ok := ev.(pipeline.Assigned); ok {
		s.held, s.due = a.TPs, time.Now().Add(s.wait)
		err = s.Pause(s.held...)
	}
	return ev, err
}

// Nothing is worked before a mark says so; an idle partition and a clean end have none.
func TestMarksStandOnlyWhileSomethingIsInWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		tp := pipeline.TP{Topic: "in"}
		b.stage.seen = func(batch *pipeline.Batch, i int) {
			if c := b.c.Committed("g")[batch.TP]; c.Starts < 1 || c.InFlight > batch.Recs[i].Offset {
				t.Errorf("offset %d is worked under the mark %+v", batch.Recs[i].Offset, c)
			}
		}
		b.start()
		b.after(time.Second)
		b.in(0, "a", "b")
		b.after(100 * time.Millisecond)
		if c := b.c.Committed("g")[tp]; c.Starts != 1 {
			t.Errorf("in work: %+v", c)
		}
		b.after(5 * time.Second)
		if c := b.c.Committed("g")[tp]; c.Starts != 0 || c.Next != 2 {
			t.Errorf("idle: %+v", c)
		}
		b.in(0, "c")
		b.after(100 * time.Millisecond)
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		if c := b.c.Committed("g")[tp]; c.Starts != 0 || c.Next != 3 || !slices.Contains(b.values("out"), "c") {
			t.Errorf("after a clean end: %+v", c)
		}
	})
}

// A crash that no record is at fault for blames nobody, however often it happens.
func TestCrashesOfTheMachineBlameNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		n := 0
		for range 12 {
			for range 30 {
				b.in(0, fmt.Sprint("a", n))
				n++
			}
			b.life(false, nil)
			b.after(time.Duration(n) * time.Millisecond) // some time in the middle of it
			b.kill()
		}
		b.life(false, nil)
		b.after(20 * time.Second)
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, v := range b.values("out") {
			seen[v] = true
		}
		if len(b.letters()) != 0 || len(seen) != n {
			t.Errorf("%d letters, %d of %d records", len(b.letters()), len(seen), n)
		}
	})
}
