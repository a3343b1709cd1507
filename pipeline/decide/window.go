package decide

import "reprieve.dev/pipeline"

// Window knows which offsets of one partition are settled. The watermark advances over the settled prefix of what was received, into a
// run too that is settled in part, as far as no offset is missing in it. Offsets that never arrived (transaction markers, compaction)
// do not matter otherwise. It is owned by one goroutine.
//
// INV-COMMIT: Next never passes a record that was received and is not settled.
type Window struct {
	next     int64
	units    []unit // received runs that are not wholly settled, or stand behind one that is not; ascending
	ahead    pipeline.Offsets
	seen     int64 // highest offset received
	started  bool
	inFlight int // records received and not settled
}

type unit struct {
	first, last int64
	left        int // records not settled
	total       int
}

// Start sets the first offset that is not settled, and what lies settled beyond it, from a checkpoint.
func (w *Window) Start(c pipeline.Checkpoint) {
	*w = Window{next: c.Next, seen: c.Next - 1, ahead: c.Ahead.Clone(), started: true}
}

// Open records that a run of n records, offsets first to last, was received. Runs come in ascending order: the caller drops
// records at or below Seen first (a second read after a seek).
func (w *Window) Open(first, last int64, n int) {
	if !w.started {
		w.started, w.next = true, first
	}
	w.seen = last
	w.units = append(w.units, unit{first: first, last: last, left: n, total: n})
	w.inFlight += n
}

// Seen is the highest offset received; false before the first.
func (w *Window) Seen() (int64, bool) { return w.seen, w.started }

func (w *Window) find(off int64) int {
	lo, hi := 0, len(w.units)
	for lo < hi {
		m := (lo + hi) / 2
		if w.units[m].last < off {
			lo = m + 1
		} else {
			hi = m
		}
	}
	if lo == len(w.units) || w.units[lo].first > off {
		return -1
	}
	return lo
}

// Whole tells whether n records from first to last are one received run, of which nothing is settled.
func (w *Window) Whole(first, last int64, n int) bool {
	i := w.find(first)
	if i < 0 {
		return false
	}
	u := &w.units[i]
	return u.first == first && u.last == last && u.total == n && u.left == n
}

// SettleRun settles a whole run by its first offset.
func (w *Window) SettleRun(first int64) {
	i := w.find(first)
	if i < 0 {
		return
	}
	u := &w.units[i]
	w.inFlight -= u.left
	u.left = 0
	if i > 0 { // something before it is not settled
		w.ahead.AddRange(u.first, u.last+1)
	}
	w.advance()
}

// Settle settles one record. Settling it twice is a defect of the caller that would lose records: it panics.
func (w *Window) Settle(off int64) {
	i := w.find(off)
	if i < 0 {
		panic("decide: offset settled that was not received")
	}
	if w.units[i].left == 0 || off < w.next || w.ahead.Has(off) {
		panic("decide: offset settled twice")
	}
	w.units[i].left--
	w.inFlight--
	if w.units[i].total > 1 || i > 0 {
		w.ahead.Add(off)
	}
	w.advance()
}

// Again settles a record that the checkpoint already had ahead.
func (w *Window) Again(off int64) {
	if i := w.find(off); i >= 0 && w.units[i].left > 0 {
		w.units[i].left--
		w.inFlight--
		w.advance()
	}
}

func (w *Window) advance() {
	k := 0
	for k < len(w.units) && w.units[k].left == 0 {
		w.next = w.units[k].last + 1
		k++
	}
	if k > 0 {
		n := copy(w.units, w.units[k:])
		w.units = w.units[:n]
	}
	if w.ahead.Empty() {
		return
	}
	if len(w.units) > 0 {
		if to := w.ahead.RunFrom(max(w.next, w.units[0].first)); to > w.next {
			w.next = to
			k++
		}
	}
	if k > 0 {
		w.ahead.DropBelow(w.next)
	}
}

// Next is the watermark: what may be committed.
func (w *Window) Next() int64 { return w.next }

// Started tells whether a watermark is known.
func (w *Window) Started() bool { return w.started }

// Ahead is what is settled beyond the watermark.
func (w *Window) Ahead() pipeline.Offsets { return w.ahead }

// Lowest is the first offset that is received and not settled; false if there is none.
func (w *Window) Lowest() (int64, bool) {
	for i := range w.units {
		u := &w.units[i]
		if u.left == 0 {
			continue
		}
		for off := max(u.first, w.next); off <= u.last; off++ {
			if !w.ahead.Has(off) {
				return off, true
			}
		}
	}
	return 0, false
}

// InFlight is the number of records received and not settled.
func (w *Window) InFlight() int { return w.inFlight }
