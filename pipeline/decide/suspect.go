package decide

import "reprieve.dev/pipeline"

// MaxCrashes is how many crashes a record may be in work at. At the last one it is quarantined with
// ERR_INFINITE_RETRY_ABORTED (ADV-IR-01): it never reports a failure itself.
const MaxCrashes = 5

// Suspect is the crash-loop guard of one partition, made from its checkpoint at each assignment. The marks in the commit
// metadata are all that it needs:
//
//   - while records are in work, each commit carries Mark: InFlight is the first offset in work, Starts how many starts have
//     had it as the first;
//   - a clean end commits Clean, which has no mark. So a mark that is found at an assignment was left by a crash;
//   - after a crash the records that may have been in work are worked one at a time (Alone), each marked before it is worked.
//     The one that crashes again is then known, and the others of its batch go on.
//
// The zero value suspects nothing.
type Suspect struct {
	first   int64 // the first offset in work at the last crash
	until   int64 // no record from here on can have been in work
	crashes int64 // crashes in a row with first as the first offset in work; 0 is none
}

// Resume reads a checkpoint. span is how many offsets beyond the first the engine may have in work at once.
func Resume(c pipeline.Checkpoint, span int64) Suspect {
	if c.Starts <= 0 || c.InFlight < c.Next {
		return Suspect{}
	}
	until := c.InFlight + max(span, 1)
	if until < c.InFlight {
		until = 1<<63 - 1
	}
	return Suspect{first: c.InFlight, until: until, crashes: c.Starts}
}

// Crashes is how many crashes in a row left their mark.
func (s Suspect) Crashes() int64 { return s.crashes }

// Alone tells whether the record must be worked by itself, with its mark committed before and its result after.
func (s Suspect) Alone(offset int64) bool {
	return s.crashes > 0 && offset >= s.first && offset < s.until
}

// Abort tells whether the record was in work at MaxCrashes crashes: it is quarantined, not worked again.
func (s Suspect) Abort(offset int64) bool { return s.crashes >= MaxCrashes && offset == s.first }

// Mark is what is committed while the record at working is the first in work. A record that was not the first at the last
// crash may have been in work at that one crash, so it starts with one.
func (s Suspect) Mark(c pipeline.Checkpoint, working int64) pipeline.Checkpoint {
	c.InFlight = working
	switch {
	case s.crashes > 0 && working == s.first:
		c.Starts = s.crashes + 1
	case s.Alone(working):
		c.Starts = 2
	default:
		c.Starts = 1
	}
	return c
}

// Clean is what is committed when nothing is in work: at a clean end, a revoke, an idle partition.
func Clean(c pipeline.Checkpoint) pipeline.Checkpoint {
	c.Starts, c.InFlight = 0, -1
	return c
}
