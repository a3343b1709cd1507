package engine_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/tests/conformance/script"
)

// Source and dead-letter topic have their own counts: no partition number is carried over, equal keys stay together, and the
// original one is told. With more letters than the case has, for every pair of counts.
func TestCaseC31LettersGoByTheirKeys(t *testing.T) {
	for _, counts := range [][2]int{{12, 6}, {12, 1}, {3, 12}} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, counts[0])
			b.c.DeleteTopic("in.dlq")
			b.c.CreateTopic("in.dlq", counts[1], nil)
			want := 0
			for p := range counts[0] {
				for n := range 3 {
					r := pipeline.Record{Key: fmt.Appendf(nil, "inv-%d", (p+n)%5), Value: fmt.Appendf(nil, "poison %d/%d", p, n), TimeMS: time.Now().UnixMilli(), TimeType: pipeline.TimeCreate}
					if n == 2 {
						r.Key = nil
					}
					b.c.Append(pipeline.TP{Topic: "in", Partition: int32(p)}, r)
					want++
				}
			}
			b.start()
			b.after(5 * time.Second)
			if err := b.stop(); err != nil {
				t.Fatal(err)
			}
			where := map[string]int32{}
			got := 0
			for p := range int32(counts[1]) {
				for _, r := range b.c.Records(pipeline.TP{Topic: "in.dlq", Partition: p}) {
					if deadletter.IsProbe(&r) {
						continue
					}
					l, err := deadletter.Parse("in.dlq", &r, testRing)
					if err != nil {
						t.Fatal(err)
					}
					got++
					if text := fmt.Sprintf("poison %d/", l.Original.Partition); string(l.Value[:len(text)]) != text {
						t.Errorf("%q says it came from %d", l.Value, l.Original.Partition)
					}
					if h, _ := r.Header("X-Original-Partition"); string(h) != fmt.Sprint(l.Original.Partition) {
						t.Errorf("X-Original-Partition %s of %q", h, l.Value)
					}
					if l.Key == nil {
						continue
					}
					if was, known := where[string(l.Key)]; known && was != p {
						t.Errorf("key %s is in partitions %d and %d", l.Key, was, p)
					}
					where[string(l.Key)] = p
				}
			}
			if got != want {
				t.Errorf("%d letters, want %d", got, want)
			}
		})
	}
}

// The times of retries are in their records: an owner that comes later keeps them, and what the partition was paused for
// before is nothing to it. A takes part, B comes and goes, and a new record is worked at once.
func TestCaseC26TheDueTimeTravelsAndThePauseDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 2)
		start := time.Now()
		b.in(0, "down 0")
		b.in(1, "down 1")
		b.o.Limits.DelayBytes = 1 // whatever waits pauses its partition
		b.start()
		b.after(time.Second)
		other := b.c.Source(script.SourceOptions{Group: "g", Topics: []string{"in"}, Retry: map[string]bool{"in.retry": true}, Idle: idle})
		for range 50 { // B takes its part and reads nothing of it
			if _, err := other.Poll(10 * time.Millisecond); err != nil {
				t.Fatal(err)
			}
		}
		b.after(2 * time.Second)
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
		b.after(time.Second)
		b.in(0, "new 0")
		b.in(1, "new 1")
		b.after(2 * time.Second)
		out := b.values("out")
		if !slices.Contains(out, "new 0") || !slices.Contains(out, "new 1") {
			t.Errorf("two seconds after it came a new record is not worked: %v", out)
		}
		b.after(30 * time.Second)
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		if n := len(b.letters()); n != 2 {
			t.Errorf("%d letters", n)
		}
		for _, l := range b.letters() {
			if len(l.Attempts) != 6 || l.Decision.Code != pipeline.CodeRetryExhausted {
				t.Errorf("%q: %s after %d", l.Value, l.Decision.Code, len(l.Attempts))
			}
			waits := []time.Duration{100, 200, 400, 800, 1600}
			for i := 1; i < len(l.Attempts); i++ {
				if waited := l.Attempts[i].At.Sub(l.Attempts[i-1].At); waited < waits[i-1]*time.Millisecond {
					t.Errorf("%q: try %d came after %s", l.Value, i, waited)
				}
			}
		}
		if time.Since(start) < 3100*time.Millisecond {
			t.Error("the retries did not wait")
		}
	})
}

// Whatever of a batch fails, and however: each record ends in exactly one place with its own reason, and nothing is written twice.
func TestCaseC34AnyMixOfABatch(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		words := rapid.SliceOfN(rapid.SampledFrom([]string{"good", "poison", "domain", "down", "flaky", "panic", "nothing", "lost"}), 1, 30).Draw(rt, "batch")
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, 1)
			for i, w := range words {
				b.in(0, fmt.Sprintf("%s %d", w, i))
			}
			b.start()
			b.after(30 * time.Second)
			if err := b.stop(); err != nil {
				t.Fatal(err)
			}
			places := map[string]int{}
			for _, v := range b.values("out") {
				places[v]++
			}
			codes := map[string]pipeline.Code{}
			for _, l := range b.letters() {
				places[string(l.Value)]++
				codes[string(l.Value)] = l.Decision.Code
			}
			want := map[string]pipeline.Code{"poison": pipeline.CodeDecodeTruncated, "domain": pipeline.CodeRejected, "down": pipeline.CodeRetryExhausted,
				"panic": pipeline.CodePanic, "nothing": pipeline.CodeRouteNone}
			for i, w := range words {
				v := fmt.Sprintf("%s %d", w, i)
				if places[v] != 1 {
					t.Errorf("%q is in %d places", v, places[v])
				}
				if code, fails := want[w]; fails && codes[v] != code {
					t.Errorf("%q ended with %s, want %s", v, codes[v], code)
				}
				if (w == "good" || w == "flaky") && codes[v] != "" {
					t.Errorf("%q ended with %s", v, codes[v])
				}
			}
			if got := b.committed("in", 0); got != int64(len(words)) {
				t.Errorf("committed %d of %d", got, len(words))
			}
		})
		if t.Failed() {
			rt.Fatalf("batch %v", words)
		}
	})
}
