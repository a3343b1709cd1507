package engine

import (
	"testing"

	"pgregory.net/rapid"

	"reprieve.dev/pipeline"
)

// Whatever was noted, in whatever order, each offset has its last version, and the runs cover an interval without a gap.
func TestVersionsRememberEachOffset(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var v versions
		want := map[int64]pipeline.Digest{}
		low, high := int64(1000), int64(0)
		for range rapid.IntRange(1, 12).Draw(rt, "batches") {
			from := rapid.Int64Range(0, 60).Draw(rt, "from")
			to := from + rapid.Int64Range(1, 20).Draw(rt, "len")
			d := pipeline.Digest(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "version"))
			v.note(from, to, d)
			for off := from; off < to; off++ {
				want[off] = d
			}
			low, high = min(low, from), max(high, to)
		}
		for off, d := range want {
			if got := v.at(off); got != d {
				rt.Fatalf("offset %d: %s, want %s in %+v", off, got, d, v.runs)
			}
		}
		next := rapid.Int64Range(low, high).Draw(rt, "next")
		for from := low; from < next; {
			to, d := v.next(from, next)
			if to <= from || to > next {
				rt.Fatalf("from %d to %d", from, to)
			}
			for off := from; off < to; off++ {
				if w, ok := want[off]; ok && w != d {
					rt.Fatalf("offset %d is in a part of %s, want %s", off, d, w)
				}
			}
			from = to
		}
		v.drop(next)
		for off, d := range want {
			if off >= next && v.at(off) != d {
				rt.Fatalf("offset %d after the drop: %s, want %s", off, v.at(off), d)
			}
		}
	})
}

func TestOneVersionCostsNothing(t *testing.T) {
	var v versions
	v.note(0, 10, "a")
	off := int64(10)
	if n := testing.AllocsPerRun(100, func() {
		v.note(off, off+10, "a")
		v.drop(off)
		if _, d := v.next(off, off+10); d != "a" {
			t.Fatal(d)
		}
		off += 10
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if len(v.runs) != 1 {
		t.Errorf("%d runs of one version", len(v.runs))
	}
}
