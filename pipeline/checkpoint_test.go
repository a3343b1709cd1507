package pipeline_test

import (
	"encoding/base64"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"reprieve.dev/pipeline"
)

func offsetsOf(o pipeline.Offsets) []int64 {
	var all []int64
	for off := range o.All {
		all = append(all, off)
	}
	return all
}

// Offsets behave as a set of numbers does.
func TestOffsetsAreASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o pipeline.Offsets
		model := map[int64]bool{}
		off := rapid.Int64Range(0, 40)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				n := off.Draw(t, "offset")
				o.Add(n)
				model[n] = true
			},
			"add a run": func(t *rapid.T) {
				from := off.Draw(t, "from")
				for n := from; n < from+rapid.Int64Range(1, 5).Draw(t, "length"); n++ {
					o.Add(n)
					model[n] = true
				}
			},
			"drop below": func(t *rapid.T) {
				n := off.Draw(t, "offset")
				before, kept := o.Clone(), offsetsOf(o)
				o.DropBelow(n)
				for k := range model {
					if k < n {
						delete(model, k)
					}
				}
				if !slices.Equal(offsetsOf(before), kept) {
					t.Fatal("dropping changed a clone")
				}
			},
			"clone": func(t *rapid.T) {
				c := o.Clone()
				c.Add(99)
				if o.Has(99) {
					t.Fatal("a clone shares its offsets")
				}
			},
			"": func(t *rapid.T) {
				var want []int64
				for k := range model {
					want = append(want, k)
				}
				slices.Sort(want)
				if got := offsetsOf(o); !slices.Equal(got, want) {
					t.Fatalf("got %v, want %v", got, want)
				}
				if o.Count() != int64(len(want)) || o.Empty() != (len(want) == 0) {
					t.Fatalf("count %d, empty %v, want %d", o.Count(), o.Empty(), len(want))
				}
				for n := int64(-1); n < 50; n++ {
					if o.Has(n) != model[n] {
						t.Fatalf("has %d is %v", n, o.Has(n))
					}
				}
				read, ok := pipeline.ParseOffsets(o.AppendBinary(nil, -3), -3)
				if !ok || !slices.Equal(offsetsOf(read), want) {
					t.Fatalf("read back %v, %v", offsetsOf(read), ok)
				}
			},
		})
	})
}

func TestStoppingAnIterationStopsIt(t *testing.T) {
	var o pipeline.Offsets
	for n := range int64(10) {
		o.Add(n)
	}
	seen := 0
	for range o.All {
		if seen++; seen == 3 {
			break
		}
	}
	if seen != 3 {
		t.Errorf("saw %d", seen)
	}
}

// A checkpoint comes back from the text of its metadata: whole when it fits, else without offsets at the end of Ahead, which
// are then done again. Nothing that was not settled comes back as settled.
func TestCheckpointsComeBackFromTheirMetadata(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := pipeline.Checkpoint{Next: rapid.Int64Range(0, 1<<40).Draw(t, "next"), InFlight: -1}
		if rapid.Bool().Draw(t, "marked") {
			c.Starts, c.InFlight = rapid.Int64Range(1, 9).Draw(t, "starts"), c.Next+rapid.Int64Range(0, 3).Draw(t, "in flight")
		}
		at := c.Next
		for range rapid.IntRange(0, 2500).Draw(t, "runs") {
			at += 2 + rapid.Int64Range(0, 300).Draw(t, "gap")
			c.Ahead.Add(at)
		}
		text := c.Metadata()
		if len(text) > pipeline.MaxCheckpointText {
			t.Fatalf("%d bytes of text", len(text))
		}
		back := pipeline.ParseCheckpoint(c.Next, text)
		if c.Ahead.Empty() && c.Starts == 0 {
			if text != "" {
				t.Fatalf("a checkpoint without marks has metadata %q", text)
			}
			return
		}
		if back.Next != c.Next || back.Starts != c.Starts || back.InFlight != c.InFlight {
			t.Fatalf("got %+v, want %+v", back, c)
		}
		want, got := offsetsOf(c.Ahead), offsetsOf(back.Ahead)
		if len(got) > len(want) || !slices.Equal(got, want[:len(got)]) {
			t.Fatalf("%d offsets came back of %d, not the first ones", len(got), len(want))
		}
		if len(want) <= 300 && len(got) != len(want) {
			t.Fatalf("only %d of %d offsets came back", len(got), len(want))
		}
	})
}

func TestTheLargestNumbersFit(t *testing.T) {
	c := pipeline.Checkpoint{Next: math.MaxInt64 - 10, Starts: math.MaxInt64, InFlight: math.MaxInt64 - 1}
	c.Ahead.Add(math.MaxInt64 - 5)
	back := pipeline.ParseCheckpoint(c.Next, c.Metadata())
	if back.Starts != c.Starts || back.InFlight != c.InFlight || !slices.Equal(offsetsOf(back.Ahead), []int64{math.MaxInt64 - 5}) {
		t.Errorf("got %+v", back)
	}
}

func TestForeignMetadataIsNoError(t *testing.T) {
	whole := pipeline.Checkpoint{Next: 10, Starts: 2, InFlight: 10}
	whole.Ahead.Add(12)
	good, err := base64.RawStdEncoding.DecodeString(whole.Metadata())
	if err != nil {
		t.Fatal(err)
	}
	text := base64.RawStdEncoding.EncodeToString
	for name, metadata := range map[string]string{
		"empty": "", "words": "committed by another tool", "other version": text(append([]byte{9}, good[1:]...)), "cut": text(good[:len(good)-1]),
		"only a version": text([]byte{1}), "a run of nothing": text([]byte{1, 0, 1, 1, 0}), "an endless number": text([]byte{1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}),
		"beyond the last offset": text([]byte{1, 0, 1, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}),
	} {
		t.Run(name, func(t *testing.T) {
			c := pipeline.ParseCheckpoint(10, metadata)
			if c.Next != 10 || c.Starts != 0 || c.InFlight != -1 || !c.Ahead.Empty() {
				t.Errorf("got %+v", c)
			}
		})
	}
}

func FuzzParseCheckpoint(f *testing.F) {
	c := pipeline.Checkpoint{Next: 10, Starts: 2, InFlight: 10}
	c.Ahead.Add(12)
	f.Add(int64(10), c.Metadata())
	f.Add(int64(0), "")
	f.Add(int64(math.MaxInt64), "AQAAAQE")
	f.Fuzz(func(t *testing.T, next int64, metadata string) {
		c := pipeline.ParseCheckpoint(next, metadata)
		if c.Next != next {
			t.Fatalf("the offset became %d", c.Next)
		}
		last := next
		n := 0
		for off := range c.Ahead.All {
			if off < last {
				t.Fatalf("%d comes after %d", off, last)
			}
			if last = off; n > 1000 {
				break
			}
			n++
		}
		again := pipeline.ParseCheckpoint(next, c.Metadata())
		if again.Starts != c.Starts && c.Starts != 0 {
			t.Fatalf("starts %d came back as %d", c.Starts, again.Starts)
		}
	})
}
