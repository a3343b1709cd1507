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
// life before ended in the middle of it: it works what is suspect in groups, each alone and marked before, until the record at fault
// is known (decide.Suspect). Marks are plain commits of the offset that is committed already, also with transactions: they move
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

// tickMarks commits the marks that batches wait for, and starts the next piece of each partition that has some.
func (e *Engine) tickMarks(now time.Time) error {
	if now.Before(e.marksAfter) {
		return nil
	}
	var points map[pipeline.TP]pipeline.Checkpoint
	for _, p := range e.order {
		g := &p.guard
		switch {
		case len(g.pieces) > 0 && p.working == 0:
			if _, _, ok := g.suspect.Group(g.pieces[0].Recs[0].Offset); ok {
				break
			}
			e.startPiece(p) // nothing in it is suspect
			continue
		case len(p.queue) > 0 && !g.covers(p.queue[0]):
		default:
			continue
		}
		if points == nil {
			points = map[pipeline.TP]pipeline.Checkpoint{}
		}
		first := int64(0)
		if len(g.pieces) > 0 && p.working == 0 {
			first = g.pieces[0].Recs[0].Offset
		} else {
			first = slices.Min(g.firsts)
		}
		points[p.tp] = g.suspect.Mark(p.standing(), first)
	}
	if ok, err := e.writeMarks(points, now); !ok {
		return err
	}
	for tp, c := range points {
		p := e.parts[tp]
		p.marked, p.written, p.markAt = true, true, c.InFlight
		if len(p.pieces) > 0 && p.working == 0 {
			e.startPiece(p)
		}
		p.feed()
	}
	return nil
}

func (e *Engine) startPiece(p *part) {
	b := p.pieces[0]
	p.pieces = p.pieces[1:]
	if len(p.pieces) == 0 {
		e.resume(p, pauseSuspect)
	}
	if p.suspect.Crashes() > 0 && p.suspect.Over(b.Recs[0].Offset) {
		p.suspect, p.marked = decide.Suspect{}, false
	}
	e.launch(p, b)
}

// standing is what is committed for a partition, without a mark.
func (p *part) standing() pipeline.Checkpoint {
	if p.committed < 0 {
		return pipeline.Checkpoint{Next: p.settlement.From, InFlight: -1}
	}
	return decide.Clean(p.origin)
}

// writeMarks commits marks. A refused one, in the middle of a rebalance, is tried again soon; meanwhile nothing new is worked.
func (e *Engine) writeMarks(points map[pipeline.TP]pipeline.Checkpoint, now time.Time) (ok bool, err error) {
	if len(points) == 0 {
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
	case len(p.firsts) > 0:
		return p.suspect.Mark(c, max(slices.Min(p.firsts), c.Next))
	}
	next := c.Next
	if seen, ok := p.window.Seen(); ok && len(p.pieces) == 0 {
		next = max(next, seen+1)
	} else if len(p.pieces) > 0 {
		next = max(next, p.pieces[0].Recs[0].Offset)
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

// unmarkIdle takes away the marks of partitions that had nothing in work for a while. What is suspect and not worked yet stays so.
func (e *Engine) unmarkIdle(now time.Time) {
	e.unmark(e.order, func(p *part) bool {
		return len(p.firsts) == 0 && len(p.pieces) == 0 && now.Sub(p.active) > idleMark && p.window.Next() == p.committed &&
			(p.suspect.Crashes() == 0 || p.window.InFlight() == 0)
	})
}
