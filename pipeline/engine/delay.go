package engine

import (
	"time"

	"reprieve.dev/pipeline"
)

// hold moves the records of a retry batch that are not due yet into the partition's heap. They stay unsettled.
func (e *Engine) hold(w *work) {
	p, b := w.part, w.batch
	if p.lane != pipeline.Retry {
		return
	}
	for i := range b.Recs {
		if b.Mark(i) == pipeline.MarkHeld {
			p.delay.Push(b.Recs[i].Trail.NotBefore, b.Recs[i].Clone())
		}
	}
	if p.delay.Bytes() > e.lim.DelayBytes {
		e.pause(p, pauseDelay)
	}
}

// releaseDue makes batches of the records whose time has come. Live batches that are queued go first: the heap only adds one
// batch for each partition at a time.
func (e *Engine) releaseDue(now time.Time) {
	for _, p := range e.order {
		due, ok := p.delay.Next()
		if !ok || due > now.UnixMilli() || p.records >= e.lim.PartRecords || len(p.pieces) > 0 || e.tooScattered(p, now) {
			continue
		}
		b := e.o.Pool.Get()
		b.TP, b.Lane, b.Epoch = p.tp, pipeline.Retry, p.epoch
		b.Recs = p.delay.Pop(b.Recs[:0], now.UnixMilli(), 500)
		e.start(p, b)
		if p.delay.Bytes() <= e.lim.DelayBytes/2 {
			e.resume(p, pauseDelay)
		}
	}
}

// tooScattered tells whether releasing what is due would settle more offsets beyond the watermark than a checkpoint can hold.
// With transactions nothing may be done twice, so the partition then waits for its oldest record.
func (e *Engine) tooScattered(p *part, now time.Time) bool {
	if e.tx == nil {
		return false
	}
	ahead := p.window.Ahead()
	if ahead.Runs() < pipeline.MaxAheadRuns {
		return false
	}
	lowest, ok := p.window.Lowest()
	return ok && !p.delay.Due(lowest, now.UnixMilli())
}

// nextDue is when the first waiting record of any partition is due.
func (e *Engine) nextDue() (time.Time, bool) {
	var first int64
	found := false
	for _, p := range e.order {
		if due, ok := p.delay.Next(); ok && (!found || due < first) {
			first, found = due, true
		}
		if due, ok := p.held.Next(); ok && p.trial == nil && (!found || due < first) {
			first, found = due, true
		}
	}
	return time.UnixMilli(first), found
}
