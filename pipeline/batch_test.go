package pipeline_test

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"reprieve.dev/pipeline"
)

func records(n int) []pipeline.Record {
	out := make([]pipeline.Record, n)
	for i := range out {
		out[i] = pipeline.Record{Offset: int64(100 + i), Key: []byte{byte(i)}, Value: []byte{byte(i), 1}, Headers: []pipeline.Header{{Name: "h", Value: []byte("v")}}}
	}
	return out
}

// Failures are in the order of their records, whichever came first; the first failure of a record wins.
func TestFailuresAreInTheOrderOfTheRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 30).Draw(t, "records")
		b := &pipeline.Batch{Recs: records(n)}
		b.Begin(nil)
		model := map[int]string{}
		for range rapid.IntRange(0, 60).Draw(t, "failures") {
			i, stage := rapid.IntRange(0, n-1).Draw(t, "record"), rapid.SampledFrom([]string{"decode", "classify", "route"}).Draw(t, "stage")
			if _, failed := model[i]; !failed {
				model[i] = stage
			}
			b.Fail(i, pipeline.Failure{Stage: stage, Code: pipeline.CodeRejected, Index: 77})
		}
		if len(b.Failures()) != len(model) {
			t.Fatalf("%d failures, want %d", len(b.Failures()), len(model))
		}
		last := int32(-1)
		for _, f := range b.Failures() {
			if f.Index <= last || model[int(f.Index)] != f.Stage {
				t.Fatalf("failure %d of %s after %d, want %s", f.Index, f.Stage, last, model[int(f.Index)])
			}
			last = f.Index
		}
		for i := range n {
			stage, failed := model[i]
			f := b.Failure(i)
			if (f != nil) != failed || failed && (f.Stage != stage || b.Live(i) || b.Mark(i) != pipeline.MarkFailed) || !failed && !b.Live(i) {
				t.Fatalf("record %d: failure %v, mark %v", i, f, b.Mark(i))
			}
		}
	})
}

func TestOnlyALiveRecordFails(t *testing.T) {
	b := &pipeline.Batch{Recs: records(3)}
	b.Begin(nil)
	b.Hold(0)
	b.Skip(1)
	for i := range 2 {
		b.Fail(i, pipeline.Failure{Code: pipeline.CodeRejected})
	}
	if len(b.Failures()) != 0 || b.Mark(0) != pipeline.MarkHeld || b.Mark(1) != pipeline.MarkSkipped {
		t.Errorf("got %v, %v, %v", b.Failures(), b.Mark(0), b.Mark(1))
	}
	b.Unhold(0)
	b.Fail(0, pipeline.Failure{Code: pipeline.CodeRejected})
	if f := b.Failure(0); f == nil || b.Failure(2) != nil {
		t.Errorf("got %v", b.Failures())
	}
}

func TestBeginForgetsTheLastBatch(t *testing.T) {
	b := &pipeline.Batch{Recs: records(4)}
	b.Begin(nil)
	b.Fail(2, pipeline.Failure{Code: pipeline.CodeRejected})
	b.Outs[1].Add = append(b.Outs[1].Add, pipeline.Header{Name: "old"})
	b.Outs[3].To = pipeline.Target{Kind: pipeline.TargetTopic, Topic: "old"}
	for _, n := range []int{2, 4, 9} {
		b.Recs = records(n)
		b.Begin(nil)
		if b.Len() != n || len(b.Outs) != n || len(b.Views) != n || len(b.Failures()) != 0 {
			t.Fatalf("%d records: %d outs, %d views, %d failures", n, len(b.Outs), len(b.Views), len(b.Failures()))
		}
		for i := range n {
			o, r := &b.Outs[i], &b.Recs[i]
			if !b.Live(i) || b.Views[i] != nil || len(o.Add) != 0 || o.To != (pipeline.Target{Partition: -1}) || !bytes.Equal(o.Key, r.Key) ||
				&o.Value[0] != &r.Value[0] || len(o.Headers) != 1 {
				t.Errorf("record %d of %d starts as %+v", i, n, *o)
			}
		}
	}
}

// What Alloc, AllocTail and Keep hand out never overlaps and is never moved: bytes written once stay as they are.
func TestArenaBytesNeverAlias(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := &pipeline.Batch{}
		type piece struct {
			bytes []byte
			fill  byte
		}
		var kept []piece
		fill := byte(0)
		take := func(p []byte) {
			fill++
			for i := range p {
				p[i] = fill
			}
			kept = append(kept, piece{p, fill})
		}
		size := rapid.SampledFrom([]int{0, 1, 7, 100, 4096, 40_000, 70_000, 200_000})
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			n := size.Draw(t, "size")
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				p := b.Alloc(n)
				if len(p) != n || cap(p) != n {
					t.Fatalf("Alloc(%d) gave %d of %d", n, len(p), cap(p))
				}
				take(p)
			case 1: // scratch that is not kept
				tail := b.AllocTail(n)
				if len(tail) != 0 || cap(tail) < n {
					t.Fatalf("AllocTail(%d) gave %d of %d", n, len(tail), cap(tail))
				}
				_ = append(tail, bytes.Repeat([]byte{0xee}, n)...)
			case 2: // kept, as large as asked for or larger or smaller
				tail := b.AllocTail(n)
				tail = append(tail, make([]byte, size.Draw(t, "written"))...)
				p := b.Keep(tail)
				if len(p) != len(tail) || cap(p) != len(p) {
					t.Fatalf("Keep gave %d of %d", len(p), cap(p))
				}
				take(p)
			case 3: // appending to what was handed out does not run into what comes next
				if len(kept) > 0 {
					k := kept[rapid.IntRange(0, len(kept)-1).Draw(t, "piece")]
					_ = append(k.bytes, 0xdd)
				}
			}
			for i, k := range kept {
				if j := slices.IndexFunc(k.bytes, func(c byte) bool { return c != k.fill }); j >= 0 {
					t.Fatalf("piece %d was changed at %d: %#x", i, j, k.bytes[j])
				}
			}
		}
	})
}

func TestKeepingBytesThatAreNotTheTailLeavesTheArena(t *testing.T) {
	b := &pipeline.Batch{}
	first := b.Alloc(4)
	copy(first, "abcd")
	b.AllocTail(10)
	own := b.Keep([]byte("elsewhere"))
	next := b.Alloc(4)
	copy(next, "wxyz")
	if string(first) != "abcd" || string(own) != "elsewhere" || string(next) != "wxyz" {
		t.Errorf("got %q, %q, %q", first, own, next)
	}
}

type scratch struct{ n int }

func TestEachPooledBatchHasItsOwnSlots(t *testing.T) {
	var l pipeline.Layout
	made := 0
	slot := pipeline.NewSlot(&l, func() *scratch { made++; return &scratch{n: made} })
	other := pipeline.NewSlot(&l, func() *[]byte { return new([]byte) })
	pool := pipeline.NewPool(&l)
	a, b := pool.Get(), pool.Get()
	if slot.Of(a) == slot.Of(b) || other.Of(a) == other.Of(b) {
		t.Error("two batches share a slot")
	}
	first := slot.Of(a)
	released := 0
	a.Lend(func(got *pipeline.Batch) {
		if released++; got != a {
			t.Error("another batch was released")
		}
	})
	a.Recs = append(a.Recs, records(2)...)
	a.Begin(nil)
	a.Fail(1, pipeline.Failure{Code: pipeline.CodeRejected})
	a.Outs[0].Add = append(a.Outs[0].Add, pipeline.Header{Name: "n", Value: []byte("v")})
	a.Release()
	if c := pool.Get(); c != a || slot.Of(c) != first || released != 1 || c.Len() != 0 || len(c.Failures()) != 0 || made != 2 {
		t.Errorf("a batch came back as %+v; released %d times", c, released)
	}
}

func TestAReleasedBatchKeepsNothingBorrowed(t *testing.T) {
	var l pipeline.Layout
	pool := pipeline.NewPool(&l)
	b := pool.Get()
	b.Recs = append(b.Recs, records(3)...)
	b.Begin(nil)
	b.Outs[0].Add = append(b.Outs[0].Add, pipeline.Header{Name: "n", Value: []byte("v")})
	recs, outs, add := b.Recs, b.Outs, b.Outs[0].Add
	b.Release()
	for i := range recs {
		if recs[i].Key != nil || recs[i].Value != nil || recs[i].Headers != nil || outs[i].Key != nil || outs[i].Value != nil || outs[i].Headers != nil {
			t.Errorf("record %d is still held", i)
		}
	}
	if add[0].Value != nil {
		t.Error("an added header is still held")
	}
}

func TestACleanBatchThatIsReusedAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	var l pipeline.Layout
	slot := pipeline.NewSlot(&l, func() *scratch { return &scratch{} })
	pool := pipeline.NewPool(&l)
	recs := records(500)
	pass := func() {
		b := pool.Get()
		b.Recs = append(b.Recs, recs...)
		b.Begin(nil)
		slot.Of(b).n++
		for i := range b.Recs {
			if !b.Live(i) || b.Failure(i) != nil {
				t.Error("a clean record is not live")
			}
			v := b.Alloc(40)
			v[0] = 1
			b.Outs[i].Value = v
			tail := append(b.AllocTail(16), "region"...)
			b.Outs[i].Add = append(b.Outs[i].Add, pipeline.Header{Name: "region", Value: b.Keep(tail)})
			b.Outs[i].To = pipeline.Target{Kind: pipeline.TargetTopic, Topic: "t", Partition: -1}
		}
		b.Release()
	}
	pass()
	pass()
	if n := testing.AllocsPerRun(50, pass); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestClonesShareNoByte(t *testing.T) {
	r := pipeline.Record{Key: []byte{}, Value: []byte("value"), Headers: []pipeline.Header{{Name: "a", Value: []byte("1")}, {Name: "a"}, {Name: "b", Value: []byte{}}}}
	c := r.Clone()
	r.Value[0], r.Headers[0].Value[0] = 'X', 'X'
	r.Headers[1].Name = "changed"
	if string(c.Value) != "value" || string(c.Headers[0].Value) != "1" || c.Headers[1].Name != "a" {
		t.Errorf("got %+v", c)
	}
	if c.Key == nil || c.Headers[1].Value != nil || c.Headers[2].Value == nil {
		t.Error("null and empty were mixed up")
	}
	if v, ok := c.Header("a"); !ok || v != nil {
		t.Error("the last of two headers is the one that counts")
	}
	if _, ok := c.Header("missing"); ok {
		t.Error("a header was found that is not there")
	}
}
