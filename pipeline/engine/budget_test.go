package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/decide"
)

// budget gives the bench a policy with a budget of unknown failures.
func (b *bench) budget(window, tolerated int) {
	b.t.Helper()
	p, err := decide.New(decide.File{Unknown: &decide.UnknownFile{Window: window, Tolerated: tolerated}}, decide.Options{Retry: decide.Retry{Topic: "in.retry"}, Quarantine: "in.dlq"})
	if err != nil {
		b.t.Fatal(err)
	}
	b.o.Policy = func(pipeline.TP) pipeline.Policy { return p }
}

// Case C22: it halts when failures in the last outcomes exceed the tolerated number. What was in work is finished and committed,
// nothing more is read, and the error names code and place.
func TestCaseC22TheEngineHaltsWhenTheBudgetIsExceeded(t *testing.T) {
	for _, c := range []struct {
		window, tolerated int
		outcomes          string // A ok, F a defect of ours, P poison
		stops             int    // index; -1: never
	}{
		{1, 0, "AAF", 2}, {5, 2, "AFFAF", 4}, {5, 2, "FAAAAFF", -1}, {5, 2, "FFAAAF", -1}, {5, 2, "FFAAF", 4}, {5, 5, "FFFFFFFF", -1},
		{3, 1, "FAAFAAFAAF", -1}, {3, 1, "FAF", 2}, {3, 0, "APPPPA", -1}, {600, 1, "F" + strings.Repeat("A", 700) + "F", -1}, {800, 1, "F" + strings.Repeat("A", 700) + "F", 701},
	} {
		for _, exactly := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, 1)
				if exactly {
					b.exactlyOnce()
				}
				b.budget(c.window, c.tolerated)
				b.start()
				b.after(time.Second)
				for i, o := range c.outcomes {
					b.in(0, map[rune]string{'A': "a", 'F': "panic", 'P': "poison"}[o]+fmt.Sprint(i))
					if len(c.outcomes) < 20 {
						b.after(300 * time.Millisecond)
					}
				}
				b.after(2 * time.Second)
				if c.stops < 0 {
					if err := b.stop(); err != nil {
						t.Errorf("%+v: %v", c, err)
					}
					b.once(len(c.outcomes))
					return
				}
				err := <-b.ended
				if pipeline.CodeOf(err) != pipeline.CodeErrorBudget || !strings.Contains(err.Error(), fmt.Sprintf("in/0/%d:", c.stops)) {
					t.Errorf("%+v ended with %v", c, err)
				}
				b.once(c.stops + 1)
				if got := b.committed("in", 0); got != int64(c.stops+1) {
					t.Errorf("%+v: committed %d", c, got)
				}
				_ = b.src.Close()
			})
		}
	}
}

// Within a batch the rest is finished; records that wait for a mended cause have no outcome and are not counted.
func TestTheBudgetCountsOutcomesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		b.budget(100, 1)
		b.stage.denied.Store(true)
		b.in(0, "denied1", "denied2", "denied3", "a", "panic1")
		b.start()
		b.after(2 * time.Minute) // many rounds
		select {
		case err := <-b.ended:
			t.Fatalf("halted: %v", err)
		default:
		}
		b.in(0, "panic2", "b", "c")
		err := <-b.ended
		if pipeline.CodeOf(err) != pipeline.CodeErrorBudget {
			t.Errorf("ended with %v", err)
		}
		b.once(5)
	})
}
