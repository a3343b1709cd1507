package decide_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/decide"
)

// The model: a list of received offsets and a set of settled ones. The watermark is the first received offset that is not
// settled, or one past the last received.
func TestWindowNeverPassesAnUnsettledRecord(t *testing.T) { // INV-COMMIT
	rapid.Check(t, func(t *rapid.T) {
		var w decide.Window
		start := rapid.Int64Range(0, 1000).Draw(t, "start")
		next := start
		mostGap := rapid.SampledFrom([]int64{0, 3}).Draw(t, "most gap")
		if rapid.Bool().Draw(t, "checkpoint") {
			w.Start(pipeline.Checkpoint{Next: start})
		}
		var received []int64
		var firsts []int64 // of whole runs
		runs := map[int64][]int64{}
		settled := map[int64]bool{}
		check := func() {
			want := start
			for _, off := range received {
				if !settled[off] {
					want = off
					break
				}
				want = off + 1
			}
			if len(received) == 0 {
				return
			}
			got := w.Next()
			// A gap holds it in a run that is not wholly settled.
			if got > want || got < want && mostGap == 0 {
				t.Fatalf("watermark %d, and the first unsettled offset is %d", got, want)
			}
			inFlight := 0
			for _, off := range received {
				if !settled[off] {
					inFlight++
				}
				if settled[off] && off >= got && !w.Ahead().Has(off) && len(runs) == 0 {
					t.Fatalf("offset %d is settled beyond the watermark %d and not ahead", off, got)
				}
			}
			if inFlight != w.InFlight() {
				t.Fatalf("in flight %d, want %d", w.InFlight(), inFlight)
			}
			if inFlight == 0 && got != want {
				t.Fatalf("everything is settled and the watermark is %d, want %d", got, want)
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 2).Draw(t, "step") {
			case 0:
				n := rapid.IntRange(1, 6).Draw(t, "n")
				var run []int64
				for range n {
					next += rapid.Int64Range(0, mostGap).Draw(t, "gap")
					run = append(run, next)
					next++
				}
				w.Open(run[0], run[n-1], n)
				received = append(received, run...)
				firsts = append(firsts, run[0])
				runs[run[0]] = run
			case 1:
				if len(firsts) == 0 {
					continue
				}
				f := rapid.SampledFrom(firsts).Draw(t, "run")
				for _, off := range runs[f] {
					settled[off] = true
				}
				w.SettleRun(f)
			case 2:
				var open []int64
				for _, off := range received {
					if !settled[off] {
						open = append(open, off)
					}
				}
				if len(open) == 0 {
					continue
				}
				off := rapid.SampledFrom(open).Draw(t, "record")
				settled[off] = true
				w.Settle(off)
			}
			check()
		}
		for _, off := range received {
			if !settled[off] {
				settled[off] = true
				w.Settle(off)
			}
		}
		check()
	})
}

func TestWindowRefusesToSettleTwice(t *testing.T) {
	var w decide.Window
	w.Open(5, 7, 3)
	w.Settle(6)
	defer func() {
		if recover() == nil {
			t.Fatal("settling offset 6 twice went unseen")
		}
	}()
	w.Settle(6)
}

func TestWindowKeepsAheadOverARestart(t *testing.T) {
	var w decide.Window
	w.Open(10, 14, 5)
	w.Settle(12)
	w.Settle(10)
	c := pipeline.ParseCheckpoint(w.Next(), pipeline.Checkpoint{Next: w.Next(), Ahead: w.Ahead()}.Metadata())
	if c.Next != 11 {
		t.Fatalf("committed %d", c.Next)
	}
	var again decide.Window
	again.Start(c)
	again.Open(11, 14, 4) // what is committed is not read again
	for _, off := range []int64{11, 12, 13, 14} {
		if c.Ahead.Has(off) {
			again.Again(off)
		} else {
			again.Settle(off)
		}
	}
	if again.Next() != 15 || again.InFlight() != 0 {
		t.Fatalf("next %d, in flight %d", again.Next(), again.InFlight())
	}
}

func TestDelayReleasesWhatIsDueInOffsetOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d decide.Delay
		type rec struct{ due, off int64 }
		var all []rec
		for off := range rapid.Int64Range(1, 50).Draw(t, "count") {
			due := rapid.Int64Range(0, 20).Draw(t, "due")
			all = append(all, rec{due, off})
			d.Push(due, pipeline.Record{Offset: off, Value: []byte("x")})
		}
		for now := int64(0); now <= 20; now += rapid.Int64Range(1, 5).Draw(t, "tick") {
			var want []int64
			all = slices.DeleteFunc(all, func(r rec) bool {
				if r.due <= now {
					want = append(want, r.off)
				}
				return r.due <= now
			})
			slices.Sort(want)
			var got []int64
			for _, r := range d.Pop(nil, now, 1000) {
				got = append(got, r.Offset)
			}
			if !slices.Equal(got, want) {
				t.Fatalf("at %d released %v, want %v", now, got, want)
			}
			if due, ok := d.Next(); ok && due <= now {
				t.Fatalf("something due at %d is left at %d", due, now)
			}
		}
		d.Pop(nil, 1<<60, 1000)
		if d.Len() != 0 || d.Bytes() != 0 {
			t.Fatalf("%d records, %d bytes are left", d.Len(), d.Bytes())
		}
	})
}

func TestOneThatIsNotDueNeverHoldsUpOneThatIs(t *testing.T) { // INV-DLQ-01
	var d decide.Delay
	d.Push(1600, pipeline.Record{Offset: 1})
	d.Push(100, pipeline.Record{Offset: 2})
	got := d.Pop(nil, 100, 10)
	if len(got) != 1 || got[0].Offset != 2 {
		t.Fatalf("released %v", got)
	}
}
