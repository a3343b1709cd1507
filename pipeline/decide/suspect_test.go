package decide

import (
	"testing"

	"pgregory.net/rapid"

	"reprieve.dev/pipeline"
)

// Crashes that no record is at fault for do not add up: what was worked is not suspect any more.
func TestCrashesOfOthersBlameNobody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := pipeline.Checkpoint{InFlight: -1}
		at := int64(0)
		for range rapid.IntRange(1, 60).Draw(t, "crashes") {
			s := Resume(c)
			if off, blamed := s.Abort(); blamed {
				t.Fatalf("%d is blamed", off)
			}
			// each life works a little and dies, never twice in the same group
			for range rapid.IntRange(1, 5).Draw(t, "worked") {
				if from, to, ok := s.Group(at); ok {
					c = s.Mark(c, from)
					at = to
				} else {
					c = s.Mark(c, at)
					at += rapid.Int64Range(1, 500).Draw(t, "records")
				}
				c.Next = at
				if c.InFlight < at {
					c = s.Mark(c, at)
				}
			}
		}
	})
}

func TestACleanEndSuspectsNothing(t *testing.T) {
	c := Suspect{}.Mark(pipeline.Checkpoint{Next: 7}, 9)
	if s := Resume(c); s.Crashes() != 1 || s.Over(9+Span-1) || !s.Over(9+Span) {
		t.Errorf("%+v", s)
	}
	for _, c := range []pipeline.Checkpoint{Clean(c), {Next: 10, InFlight: 9, Starts: 3}, {Next: 4, InFlight: -1}} {
		if s := Resume(c); s.Crashes() != 0 {
			t.Errorf("%+v suspects %+v", c, s)
		}
		if _, _, ok := Resume(c).Group(9); ok {
			t.Errorf("%+v", c)
		}
	}
	if far := Resume(pipeline.Checkpoint{Next: 1, Starts: 1, InFlight: 1<<63 - 5}); far.Over(1<<63 - 2) {
		t.Error("the span overflows")
	}
	// what the mark says survives the metadata
	m := Suspect{first: 100, until: 612, crashes: 2}.Mark(pipeline.Checkpoint{Next: 90}, 120)
	if got := Resume(pipeline.ParseCheckpoint(m.Next, m.Metadata())); got != (Suspect{first: 116, until: 132, crashes: 3}) {
		t.Errorf("%+v", got)
	}
}
