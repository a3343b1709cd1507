package engine_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A record that waits holds the watermark at itself, wherever it stands in what was read together: what came before it is
// committed, and so confirmed to the ledger, instead of waiting with it.
func TestWhatStandsBeforeAHeldRecordIsCommitted(t *testing.T) {
	all := []string{"a", "b", "c", "d", "e"}
	for at := range all {
		for _, exactly := range []bool{false, true} {
			t.Run(fmt.Sprintf("at=%d/exactly_once=%v", at, exactly), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBench(t, 1)
					if exactly {
						b.exactlyOnce()
					}
					values := slices.Clone(all)
					values[at] = "denied"
					b.stage.denied.Store(true)
					b.in(0, values...)
					b.start()
					b.after(5 * time.Second)
					if got := b.values("out"); len(got) != 4 || b.committed("in", 0) != int64(at) {
						t.Errorf("out %v, committed %d", got, b.committed("in", 0))
					}
					b.stage.denied.Store(false)
					b.after(60 * time.Second)
					if err := b.stop(); err != nil {
						t.Fatal(err)
					}
					if got := b.values("out"); len(got) != 5 || b.committed("in", 0) != 5 {
						t.Errorf("afterwards: out %v, committed %d", got, b.committed("in", 0))
					}
				})
			})
		}
	}
}
