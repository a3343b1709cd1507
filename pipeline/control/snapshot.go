package control

import (
	"cmp"
	"iter"
	"maps"
	"slices"
)

// Snapshot is the state of the control topic at one moment. It is immutable and safe for concurrent use.
type Snapshot struct {
	entries map[Key]Entry
	halts   []Entry // in effect, oldest first
}

// Fold returns prev with more entries in it. It is pure: prev is not changed, the order of entries does not matter, and an
// entry that is there already changes nothing (then prev itself is returned). Entries that somebody wrote after the known one
// of their key and with a lower seq are left out and returned as replayed.
func Fold(prev *Snapshot, a *Authority, entries ...Entry) (next *Snapshot, replayed []Entry) {
	if prev == nil {
		prev = &Snapshot{}
	}
	var all map[Key]Entry
	for _, e := range entries {
		known, ok := prev.entries[e.Key]
		if all != nil {
			known, ok = all[e.Key]
		}
		switch {
		case ok && e.Seq < known.Seq:
			if e.offset > known.offset {
				replayed = append(replayed, e)
			}
			continue
		case ok && e.Seq == known.Seq && !wins(&e, &known):
			continue
		}
		if all == nil {
			all = maps.Clone(prev.entries)
			if all == nil {
				all = map[Key]Entry{}
			}
		}
		all[e.Key] = e
	}
	if all == nil {
		return prev, replayed
	}
	next = &Snapshot{entries: all, halts: haltsIn(all, a)}
	return next, replayed
}

// wins decides between two entries of one key with one seq, which an honest writer never makes: the same one everywhere,
// whatever order they are read in.
func wins(e, known *Entry) bool {
	return cmp.Or(cmp.Compare(e.AtMS, known.AtMS), slices.Compare(e.value, known.value)) > 0
}

// Get is the entry of a key.
func (s *Snapshot) Get(k Key) (Entry, bool) {
	e, ok := s.entries[k]
	return e, ok
}

// Of are the entries of one kind for one pipeline, those for all pipelines included, in the order of their keys.
func (s *Snapshot) Of(kind Kind, pipelineName string) iter.Seq[Entry] {
	var found []Entry
	for k, e := range s.entries {
		if k.Kind == kind && (k.Pipeline == "" || k.Pipeline == pipelineName) {
			found = append(found, e)
		}
	}
	slices.SortFunc(found, func(a, b Entry) int { return cmp.Compare(a.Key.String(), b.Key.String()) })
	return slices.Values(found)
}

// Len is the number of entries.
func (s *Snapshot) Len() int { return len(s.entries) }

// nextSeq is what the writer of k writes next.
func (s *Snapshot) nextSeq(k Key) int64 { return s.entries[k].Seq + 1 }
