package engine_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
)

// What went on past a record that waits is settled with the commit that says it is done: the life that reads on knows nothing of it,
// and custody would take a letter for delivered that no settlement names.
func TestWhatIsCommittedAheadIsSettled(t *testing.T) {
	for _, exactly := range []bool{false, true} {
		t.Run(fmt.Sprintf("exactly_once=%v", exactly), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, 1)
				b.stage.denied.Store(true)
				life := func(during func()) {
					if exactly {
						b.exactlyOnce()
					}
					b.start()
					b.after(5 * time.Second)
					during()
					b.after(30 * time.Second)
					if err := b.stop(); err != nil {
						t.Fatal(err)
					}
					b.join()
				}
				var waiting []string
				life(func() { b.in(0, "denied", "poison1", "a", "denied2", "poison2", "b") })
				life(func() { b.in(0, "c", "denied3", "poison3") })
				for _, r := range b.c.All("in") {
					waiting = append(waiting, string(r.Value))
				}
				if b.committed("in", 0) != 0 || len(b.letters()) != 3 || len(b.values("out")) != 3 {
					t.Fatalf("committed %d, %d letters, out %v: nothing went on past what waits, and the test shows nothing", b.committed("in", 0), len(b.letters()), b.values("out"))
				}
				life(func() { b.stage.denied.Store(false) })

				want, got := map[int64]string{}, map[int64]string{}
				for off, word := range waiting {
					want[int64(off)] = pipeline.Delivered.String()
					if word[0] == 'p' {
						want[int64(off)] = pipeline.DeadLettered.String()
					}
				}
				delivered := int64(0)
				for _, r := range b.c.All("reprieve.settlements") {
					s, err := deadletter.ParseSettlement(&r, testRing)
					if err != nil {
						t.Fatal(err)
					}
					delivered += s.Count(pipeline.Delivered)
					for off := s.From; off < s.To; off++ {
						d, _ := s.Disposition(off)
						got[off] += d.String() // told twice, it is no word that is wanted
					}
				}
				if diff := cmp.Diff(want, got); diff != "" || delivered != 6 {
					t.Errorf("%d delivered; what settlements say of each offset (-want +got):\n%s", delivered, diff)
				}
			})
		})
	}
}
