package engine

import (
	"maps"
	"slices"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/decide"
)

// The crash-loop guard (ADV-IR-01). A record that kills the process never fails; it would be read again for ever. So nothing of a
// partition is worked before a mark in its commit metadata says what is in work, and a start that finds such a mark knows that the
// life before ended in the middle of it: it works what is suspect in groups, each alone in the whole engine and marked before, until
// the record at fault is known (decide.Suspect). The mark of a group that was worked is taken back before anything else is: what
// dies later is not held against it. Marks are plain commits of the offset that is committed already, also with transactions: they move
// nothing.

// idleMark is how long a partition has nothing in work before its mark is taken away: a mark for each lull would cost a commit each.
const idleMark = 2 * time.Second

// guard is the state of the crash-loop guard of one partition.
type guard struct {
	suspect decide.Suspect
	pieces  []*pipeline.Batch // groups of suspect records, and what must wait behind them: worked one at a time
	firsts  []int64           // first offsets of the batches in work
	marked  bool              // a mark of this life is committed, from markAt on
	markAt  int64
	written bool      // a mark stands at the broker
	ended   bool      // nothing more is worked: the next commit takes the mark away
	active  time.Time // when something was worked last
}

// guardOf begins the guard of a new partition from its checkpoint.
func (e *Engine) guardOf(p *part, c pipeline.Checkpoint) {
	g := &p.guard
	g.suspect = decide.Resume(c)
	if g.suspect.Crashes() == 0 {
		return
	}
	g.marked, g.written, g.markAt = true, true, c.InFlight
	e.metrics.unclean.Add(1)
	off, aborts := g.suspect.Abort()
	at := pipeline.Position{TP: p.tp, Offset: c.InFlight}
	if !aborts {
		e.o.Log.Warn("the life before ended while records were in work; they are worked in groups", "pipeline", e.o.Pipeline, "at", at.String(), "crashes", g.suspect.Crashes())
		return
	}
	e.o.Log.Error(string(pipeline.CodeInfiniteRetry), "pipeline", e.o.Pipeline, "at", at.String(), "crashes", g.suspect.Crashes(), "remedy", pipeline.Lookup(pipeline.CodeInfiniteRetry).Remedy)
	p.refused = maps.Clone(p.refused)
	if p.refused == nil {
		p.refused = map[int64]refusal{}
	}
	p.refused[off] = refusal{failure: pipeline.Failure{Stage: "engine", Code: pipeline.CodeInfiniteRetry, Params: []pipeline.Param{pipeline.Int("crashes", g.suspect.Crashes())}}}
}

// covers tells whether a batch may be worked: a mark that names it is committed.
func (g *guard) covers(b *pipeline.Batch) bool {
	return g.marked && b.Recs[b.Len()-1].Offset < g.markAt+decide.Span
}

// suspects takes a batch that holds suspect records, or comes behind some, apart into pieces. False: nothing in it is suspect.
func (e *Engine) suspects(p *part, b *pipeline.Batch) bool {
	g := &p.guard
	if len(g.pieces) == 0 {
		if g.suspect.Crashes() > 0 && g.suspect.Over(b.Recs[0].Offset) {
			g.suspect, g.marked = decide.Suspect{}, false
		}
		if g.suspect.Crashes() == 0 {
			return false
		}
	}
	var piece *pipeline.Batch
	last := int64(-1)
	for i := range b.Recs {
		group, _, ok := g.suspect.Group(b.Recs[i].Offset)
		if !ok {
			group = -2 // before or behind what is suspect
			if g.suspect.Over(b.Recs[i].Offset) {
				group = -3
			}
		}
		if piece == nil || group != last {
			piece = e.o.Pool.Get()
			piece.TP, piece.Lane = b.TP, b.Lane
			g.pieces = append(g.pieces, piece)
			e.alone.pieces++
			last = group
		}
		piece.Recs = append(piece.Recs, b.Recs[i].Clone())
	}
	if p.trial == b {
		p.trial = piece
	}
	b.Release()
	e.pause(p, pauseSuspect)
	return true
}

// work notes that a batch is in work.
func (g *guard) work(b *pipeline.Batch, now time.Time) {
	g.firsts = append(g.firsts, b.Recs[0].Offset)
	g.active = now
}

// done notes that it is not any more.
func (g *guard) done(b *pipeline.Batch) {
	if i := slices.Index(g.firsts, b.Recs[0].Offset); i >= 0 {
		g.firsts = slices.Delete(g.firsts, i, i+1)
	}
}

// alone is the turn of suspect records: while some wait for it, nothing else is given to the stages.
type alone struct {
	pieces int   // that wait, of all partitions
	turn   *part // whose piece is in its loop
	dirty  *part // whose mark still says that a group is in work which is not any more
}

// feed moves queued batches of a partition to its loop, as far as a mark names them and nobody must be alone.
func (e *Engine) feed(p *part) {
	for len(p.queue) > 0 && p.inLoop < loopDepth && !p.closed && p.covers(p.queue[0]) {
		if e.alone.turn != nil || e.alone.pieces > 0 || e.alone.dirty != nil {
			return
		}
		p.give()
	}
}

// tickMarks commits the marks that batches wait for, and gives the next piece of suspect records its turn.
func (e *Engine) tickMarks(now time.Time) error {
	if now.Before(e.marksAfter) || e.alone.turn != nil {
		return nil
	}
	points := map[pipeline.TP]pipeline.Checkpoint{}
	next, busy := (*part)(nil), false
	for _, p := range e.order {
		busy = busy || p.inLoop > 0
		if next == nil && len(p.pieces) > 0 && p.working == 0 {
			next = p
		}
	}
	if d := e.alone.dirty; d != nil && !d.gone {
		points[d.tp] = d.unworked(d.standing())
	}
	switch {
	case e.alone.pieces > 0 && (busy || next == nil):
		return nil // the stages or the sinks answer first
	case e.alone.pieces > 0:
		if _, _, ok := next.suspect.Group(next.pieces[0].Recs[0].Offset); ok {
			points[next.tp] = next.suspect.Mark(next.standing(), next.pieces[0].Recs[0].Offset)
		}
	default:
		for _, p := range e.order {
			if len(p.queue) > 0 && !p.covers(p.queue[0]) {
				points[p.tp] = p.suspect.Mark(p.standing(), slices.Min(p.firsts))
			}
		}
	}
	if len(points) > 0 {
		if ok, err := e.writeMarks(points, now); !ok {
			return err
		}
	}
	e.alone.dirty = nil
	for tp, c := range points {
		e.parts[tp].committedMark(c)
	}
	if e.alone.pieces > 0 {
		e.startPiece(next)
		return nil
	}
	for _, p := range e.order {
		e.feed(p)
	}
	return nil
}

// startPiece gives the next piece of a partition its turn. Behind what was suspect its batches are like any others again.
func (e *Engine) startPiece(p *part) {
	first := p.pieces[0].Recs[0].Offset
	if p.suspect.Over(first) {
		p.suspect, p.marked = decide.Suspect{}, false
		rest := p.pieces
		p.pieces = nil
		e.alone.pieces -= len(rest)
		e.resume(p, pauseSuspect)
		for _, b := range rest {
			e.launch(p, b)
		}
		return
	}
	b := p.pieces[0]
	p.pieces = p.pieces[1:]
	e.alone.pieces--
	if len(p.pieces) == 0 {
		e.resume(p, pauseSuspect)
	}
	if _, _, ok := p.suspect.Group(first); ok {
		e.alone.dirty = p
	}
	e.alone.turn = p
	e.launch(p, b)
	p.give()
}

// standing is what is committed for a partition, without a mark.
func (p *part) standing() pipeline.Checkpoint {
	if p.committed < 0 {
		return pipeline.Checkpoint{Next: p.settlement.From, InFlight: -1}
	}
	return decide.Clean(p.origin)
}

// writeMarks commits marks. A refused one, in the middle of a rebalance, is tried again soon; meanwhile nothing new is worked. None
// is written while the broker ends a transaction: the offset of the mark is the one before, and it would come after the offset of the
// transaction and win, so that a later start would do again what was committed.
func (e *Engine) writeMarks(points map[pipeline.TP]pipeline.Checkpoint, now time.Time) (ok bool, err error) {
	if len(points) == 0 || e.tx != nil && e.tx.ending {
		return false, nil
	}
	if err := e.o.Source.Commit(points); err != nil {
		if pipeline.CodeOf(err) != pipeline.CodeCommitRefused {
			return false, err
		}
		e.marksAfter = now.Add(100 * time.Millisecond)
		e.o.Log.Warn("a mark was refused; it is tried again", "pipeline", e.o.Pipeline, "cause", err.Error())
		return false, nil
	}
	return true, nil
}

// mark is a checkpoint with what is in work.
func (p *part) mark(c pipeline.Checkpoint) pipeline.Checkpoint {
	switch {
	case p.ended || p.leaving || !p.marked:
		return decide.Clean(c)
	case len(p.firsts) > 0 && (p.suspect.Crashes() == 0 || p.inLoop > 0):
		return p.suspect.Mark(c, max(slices.Min(p.firsts), c.Next))
	}
	return p.unworked(c)
}

// unworked is a checkpoint of a partition of which nothing is in its loop.
func (p *part) unworked(c pipeline.Checkpoint) pipeline.Checkpoint {
	next := c.Next
	if len(p.pieces) > 0 {
		next = max(next, p.pieces[0].Recs[0].Offset)
	} else if seen, ok := p.window.Seen(); ok {
		next = max(next, seen+1)
	}
	return p.suspect.Waiting(c, next)
}

// committedMark notes which mark stands at the broker after a commit.
func (p *part) committedMark(c pipeline.Checkpoint) {
	p.written = c.Starts > 0
	if p.marked = p.written; p.marked {
		p.markAt = c.InFlight
	}
}

// unmark takes away the marks of partitions that have nothing in work: at the end, or when they are idle.
func (e *Engine) unmark(parts []*part, idle func(*part) bool) {
	points := map[pipeline.TP]pipeline.Checkpoint{}
	for _, p := range parts {
		if p.written && !p.gone && p.settlement != nil && idle(p) {
			points[p.tp] = p.standing()
		}
	}
	if ok, err := e.writeMarks(points, e.o.Clock()); !ok {
		if err != nil {
			e.o.Log.Warn("marks were not taken away; the next start takes this end for a crash", "pipeline", e.o.Pipeline, "cause", err.Error())
		}
		return
	}
	for tp := range points {
		p := e.parts[tp]
		p.marked, p.written, p.suspect = false, false, decide.Suspect{}
	}
}

// unmarkIdle takes away the marks of partitions that had nothing in work for a while. What is suspect and not worked yet stays so,
// also while its first record is still on its way here: else a slow fetch would begin the count of crashes anew.
func (e *Engine) unmarkIdle(now time.Time) {
	e.unmark(e.order, func(p *part) bool {
		seen, _ := p.window.Seen()
		return len(p.firsts) == 0 && len(p.pieces) == 0 && now.Sub(p.active) > idleMark && p.window.Next() == p.committed &&
			(p.suspect.Crashes() == 0 || p.window.InFlight() == 0 && p.suspect.Reached(seen))
	})
}
