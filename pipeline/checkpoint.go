package pipeline

import (
	"encoding/base64"
	"encoding/binary"
	"slices"
)

// MaxCheckpointText is the most commit metadata that we write: 2 KiB of base64 text (a broker takes 4,096 bytes by default;
// raw bytes do not survive, so it is text).
const MaxCheckpointText = 2048

// Checkpoint is what is committed for a partition: the watermark, and what lies settled beyond it, so that a restart needs no
// database.
type Checkpoint struct {
	Next     int64   // the first offset not settled
	Ahead    Offsets // settled beyond Next (retry lane): not done again
	Starts   int64   // unclean starts with InFlight as the first offset (crash-loop guard)
	InFlight int64   // first offset in work when this was written; -1 is none
}

// Metadata is the text form. Ahead is cut from its end when it does not fit: those records are then done again, which
// at_least_once allows.
func (c Checkpoint) Metadata() string {
	text, _ := c.metadata()
	return text
}

// Cut is the checkpoint as its metadata says it: what does not fit is not ahead.
func (c Checkpoint) Cut() Checkpoint {
	if c.Ahead.Runs() > MaxAheadRuns {
		_, n := c.metadata()
		c.Ahead = Offsets{runs: c.Ahead.runs[:n:n]}
	}
	return c
}

func (c Checkpoint) metadata() (text string, runs int) {
	if c.Ahead.Empty() && c.Starts == 0 {
		return "", 0
	}
	for n := len(c.Ahead.runs); ; n = n * 3 / 4 {
		b := []byte{1}
		b = binary.AppendVarint(b, c.Starts)
		b = binary.AppendVarint(b, c.InFlight)
		b = Offsets{runs: c.Ahead.runs[:n]}.AppendBinary(b, c.Next)
		if s := base64.RawStdEncoding.EncodeToString(b); len(s) <= MaxCheckpointText || n == 0 {
			return s, n
		}
	}
}

// MaxAheadRuns is how many runs of Ahead always fit into the metadata.
const MaxAheadRuns = 70

// ParseCheckpoint reads a committed offset and its metadata. Foreign or damaged metadata is no error: the offset stands alone.
func ParseCheckpoint(next int64, metadata string) Checkpoint {
	c := Checkpoint{Next: next, InFlight: -1}
	b, err := base64.RawStdEncoding.DecodeString(metadata)
	if err != nil || len(b) < 3 || b[0] != 1 {
		return c
	}
	b = b[1:]
	starts, n := binary.Varint(b)
	if n <= 0 {
		return c
	}
	inFlight, m := binary.Varint(b[n:])
	if m <= 0 {
		return c
	}
	ahead, ok := ParseOffsets(b[n+m:], next)
	if !ok {
		return c
	}
	c.Starts, c.InFlight, c.Ahead = starts, inFlight, ahead
	return c
}

type offsetRun struct{ from, to int64 } // [from, to)

// Offsets is a sorted set of offsets, kept as runs.
type Offsets struct{ runs []offsetRun }

// Empty tells whether the set has no offset.
func (o Offsets) Empty() bool { return len(o.runs) == 0 }

// Count is the number of offsets.
func (o Offsets) Count() (n int64) {
	for _, r := range o.runs {
		n += r.to - r.from
	}
	return n
}

// Has tells whether off is in the set.
func (o Offsets) Has(off int64) bool {
	_, found := o.find(off)
	return found
}

// find is the run that holds off.
func (o Offsets) find(off int64) (int, bool) {
	return slices.BinarySearchFunc(o.runs, off, func(r offsetRun, off int64) int {
		switch {
		case r.to <= off:
			return -1
		case r.from > off:
			return 1
		}
		return 0
	})
}

// RunFrom is the first offset from off on that is not in the set; off itself if that is not.
func (o Offsets) RunFrom(off int64) int64 {
	i, found := o.find(off)
	if !found {
		return off
	}
	return o.runs[i].to
}

// Add puts off into the set.
func (o *Offsets) Add(off int64) {
	n := len(o.runs)
	if n > 0 && o.runs[n-1].to == off { // ascending adds are the rule
		o.runs[n-1].to++
		return
	}
	i, _ := slices.BinarySearchFunc(o.runs, off, func(r offsetRun, off int64) int {
		if r.to < off {
			return -1
		}
		if r.from > off {
			return 1
		}
		return 0
	})
	switch {
	case i < n && o.runs[i].from <= off && off < o.runs[i].to:
		return
	case i < n && o.runs[i].to == off:
		o.runs[i].to++
	case i < n && o.runs[i].from == off+1:
		o.runs[i].from--
	default:
		o.runs = slices.Insert(o.runs, i, offsetRun{off, off + 1})
		return
	}
	if i+1 < len(o.runs) && o.runs[i].to == o.runs[i+1].from {
		o.runs[i].to = o.runs[i+1].to
		o.runs = slices.Delete(o.runs, i+1, i+2)
	}
}

// AddRange puts all offsets of [from, to) into the set.
func (o *Offsets) AddRange(from, to int64) {
	if from >= to {
		return
	}
	i, _ := slices.BinarySearchFunc(o.runs, from, func(r offsetRun, from int64) int {
		if r.to < from {
			return -1
		}
		return 1
	})
	j := i
	for j < len(o.runs) && o.runs[j].from <= to {
		from, to = min(from, o.runs[j].from), max(to, o.runs[j].to)
		j++
	}
	o.runs = slices.Replace(o.runs, i, j, offsetRun{from, to})
}

// DropRange removes all offsets of [from, to).
func (o *Offsets) DropRange(from, to int64) {
	kept := o.runs[:0:0]
	for _, r := range o.runs {
		if left := (offsetRun{r.from, min(r.to, from)}); left.from < left.to {
			kept = append(kept, left)
		}
		if right := (offsetRun{max(r.from, to), r.to}); right.from < right.to && to > from {
			kept = append(kept, right)
		}
	}
	o.runs = kept
}

// Intervals calls yield for each run [from, to) of neighbouring offsets, ascending (an iterator).
func (o Offsets) Intervals(yield func(from, to int64) bool) {
	for _, r := range o.runs {
		if !yield(r.from, r.to) {
			return
		}
	}
}

// Runs is the number of runs of neighbouring offsets: what the set costs.
func (o Offsets) Runs() int { return len(o.runs) }

// DropBelow removes all offsets lower than off.
func (o *Offsets) DropBelow(off int64) {
	i := 0
	for i < len(o.runs) && o.runs[i].to <= off {
		i++
	}
	o.runs = o.runs[i:]
	if len(o.runs) > 0 && o.runs[0].from < off {
		o.runs = slices.Clone(o.runs)
		o.runs[0].from = off
	}
}

// Clone copies the set.
func (o Offsets) Clone() Offsets { return Offsets{runs: slices.Clone(o.runs)} }

// All calls yield for each offset in order (an iterator).
func (o Offsets) All(yield func(int64) bool) {
	for _, r := range o.runs {
		for off := r.from; off < r.to; off++ {
			if !yield(off) {
				return
			}
		}
	}
}

// AppendBinary appends the runs as varint distances from base.
func (o Offsets) AppendBinary(b []byte, base int64) []byte {
	for _, r := range o.runs {
		b = binary.AppendUvarint(b, uint64(r.from-base))
		b = binary.AppendUvarint(b, uint64(r.to-r.from))
		base = r.to
	}
	return b
}

// ParseOffsets reads what AppendBinary wrote; false if it is damaged.
func ParseOffsets(b []byte, base int64) (o Offsets, ok bool) {
	for len(b) > 0 {
		gap, n := binary.Uvarint(b)
		if n <= 0 {
			return Offsets{}, false
		}
		size, m := binary.Uvarint(b[n:])
		if m <= 0 || size == 0 || gap > 1<<62 || size > 1<<62 {
			return Offsets{}, false
		}
		from := base + int64(gap)
		to := from + int64(size)
		if from < base || to <= from {
			return Offsets{}, false
		}
		o.runs = append(o.runs, offsetRun{from, to})
		base, b = to, b[n+m:]
	}
	return o, true
}
