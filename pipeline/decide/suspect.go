package decide

import "reprieve.dev/pipeline"

// MaxCrashes is how many crashes a record may be in work at. At the last one it is quarantined with
// ERR_INFINITE_RETRY_ABORTED (ADV-IR-01): it never reports a failure itself.
const MaxCrashes = 5

// Span is how many offsets beyond the first in work a partition may be worked before another mark is committed.
const Span = 1 << 14

// groups are how many offsets are worked together after so many crashes in a row: each crash narrows what is suspect to one of
// them, and from the fourth start on a record is alone.
var groups = [...]int64{Span, 512, 16, 1}

// Suspect is the crash-loop guard of one partition, made from its checkpoint at each assignment. The marks in the commit
// metadata are all that it needs:
//
//   - while records are in work, each commit carries Mark: InFlight is the first offset in work, Starts how many starts in a row
//     have worked what is suspect;
//   - a clean end commits Clean, which has no mark. So a mark that is found at an assignment was left by a crash;
//   - after a crash the offsets that may have been in work are worked in groups that become smaller with each crash, each marked
//     before it is worked and alone in its process, until the record at fault is alone. The others go on. Only what was alone in
//     work at a crash is held against it.
//
// A crash that is nobody's fault (the machine lost power) costs a commit for each group once. The zero value suspects nothing.
type Suspect struct {
	first   int64 // the first offset in work at the last crash
	until   int64 // no record from here on can have been in work
	crashes int64 // crashes in a row; 0 is none
}

// group is the number of offsets of a group after so many crashes.
func group(crashes int64) int64 { return groups[min(crashes, int64(len(groups))-1)] }

// Resume reads a checkpoint.
func Resume(c pipeline.Checkpoint) Suspect {
	if c.Starts <= 0 || c.InFlight < c.Next {
		return Suspect{}
	}
	until := c.InFlight + group(c.Starts-1)
	if until < c.InFlight {
		until = 1<<63 - 1
	}
	return Suspect{first: c.InFlight, until: until, crashes: c.Starts}
}

// Crashes is how many crashes in a row left their mark; 0 suspects nothing.
func (s Suspect) Crashes() int64 { return s.crashes }

// Over tells whether an offset lies behind everything that is suspect.
func (s Suspect) Over(offset int64) bool { return offset >= s.until }

// Reached tells whether an offset is suspect or lies behind everything that is.
func (s Suspect) Reached(offset int64) bool { return offset >= s.first }

// Group is where the group of an offset begins and ends: it is worked alone, with its mark committed before. False: the offset is
// not suspect.
func (s Suspect) Group(offset int64) (from, to int64, ok bool) {
	if s.crashes == 0 || offset < s.first || offset >= s.until {
		return 0, 0, false
	}
	n := group(s.crashes)
	from = s.first + (offset-s.first)/n*n
	return from, min(from+n, s.until), true
}

// Abort is the record that was alone in work at MaxCrashes crashes: it is quarantined, not worked again.
func (s Suspect) Abort() (offset int64, ok bool) { return s.first, s.crashes >= MaxCrashes }

// Mark is what is committed while working is the first offset in work. What was worked before the suspect offsets leaves the mark
// as it was found.
func (s Suspect) Mark(c pipeline.Checkpoint, working int64) pipeline.Checkpoint {
	from, _, suspect := s.Group(working)
	switch {
	case suspect:
		c.InFlight, c.Starts = max(from, c.Next), s.crashes+1
	case s.crashes > 0 && working < s.first:
		c.InFlight, c.Starts = s.first, s.crashes
	default:
		c.InFlight, c.Starts = working, 1
	}
	return c
}

// Waiting is what is committed while nothing is in work and at is the next offset to come: what is suspect stays so.
func (s Suspect) Waiting(c pipeline.Checkpoint, at int64) pipeline.Checkpoint {
	if c.InFlight, c.Starts = at, 1; s.crashes > 0 && at < s.until {
		c.InFlight, c.Starts = max(at, s.first), s.crashes
	}
	return c
}

// Clean is what is committed when nothing is in work: at a clean end, a revoke, an idle partition.
func Clean(c pipeline.Checkpoint) pipeline.Checkpoint {
	c.Starts, c.InFlight = 0, -1
	return c
}
