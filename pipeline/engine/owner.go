package engine

import (
	"context"
	"slices"
	"time"

	"reprieve.dev/pipeline"
)

// run is the owner loop: the only goroutine that touches the source, the windows, the heaps and what is sent. It never blocks
// for long: stages run in the partition loops, sinks take and answer later.
func (e *Engine) run(ctx context.Context) (err error) {
	e.timer = time.NewTimer(0)
	loops, stop := context.WithCancel(context.WithoutCancel(ctx))
	e.ctx, e.loops = ctx, loops
	defer func() {
		stop()
		if aerr := e.leaveNoTx(ctx); aerr != nil && err == nil {
			err = aerr
		}
		for _, p := range e.order {
			p.close()
		}
		e.wg.Wait()
		e.giveBack()
	}()
	if !e.openControl(ctx) || !e.openIngress(ctx) {
		return e.fatal() // ended before the control topic and the dead-letter path were seen: nothing was read
	}
	for ctx.Err() == nil && e.exceeded == nil {
		e.collect()
		e.handFull()
		now := e.o.Clock()
		e.releaseDue(now)
		e.releaseHeld(now)
		e.tickControl(now)
		e.tickIngress(ctx, now)
		if err := e.tickMarks(now); err != nil {
			return err
		}
		if err := e.tickCommit(now); err != nil {
			return err
		}
		if err := e.fatal(); err != nil {
			return err
		}
		if e.busy() {
			if !e.wait(ctx, 100*time.Millisecond) { // full: answers first
				e.serveRebalance(loops)
			}
			continue
		}
		ev, err := e.poll(ctx, now)
		if err != nil {
			return err
		}
		if err := e.event(loops, ev); err != nil {
			return err
		}
	}
	err = e.drain(e.order)
	if e.exceeded != nil {
		return e.exceeded
	}
	return err
}

// giveBack releases, at the end, every batch that is not on its way to a sink: a source may have lent its memory. The loops
// have ended.
func (e *Engine) giveBack() {
	for len(e.results) > 0 {
		r := <-e.results
		r.work.batch.Release()
	}
	for _, p := range e.order {
		for b := range p.in {
			b.Release()
		}
		for _, b := range p.queue {
			b.Release()
		}
		p.queue = nil
	}
	waiting := e.waiting
	if e.tx != nil {
		waiting = append(waiting, e.tx.later...)
		e.tx.later = nil
	}
	for _, w := range waiting {
		w.batch.Release()
	}
	e.waiting = nil
}

// event handles one event of the source.
func (e *Engine) event(loops context.Context, ev pipeline.Event) error {
	switch ev := ev.(type) {
	case *pipeline.Batch:
		e.arrived(ev)
	case pipeline.Assigned:
		e.assigned(loops, ev)
	case pipeline.Revoked:
		return e.revoked(ev.TPs)
	case pipeline.Lost:
		e.drop(ev.TPs)
		switch {
		case e.tx == nil || !e.tx.open:
		case e.tx.ending: // whoever reads on from the committed offsets must see those that it holds
			e.awaitTxEnd()
		default: // it may hold outputs of what is not ours any more
			return e.abortTx(&pipeline.Error{Code: pipeline.CodeTxAborted, Place: e.o.Pipeline, Text: "partitions were lost"})
		}
	}
	return nil
}

// arrived hands a batch to its partition's loop. What was received before (a second read after a seek) is dropped.
func (e *Engine) arrived(b *pipeline.Batch) {
	p := e.parts[b.TP]
	if p == nil {
		e.stale(b)
		return
	}
	if seen, ok := p.window.Seen(); ok {
		k := 0
		for k < b.Len() && b.Recs[k].Offset <= seen {
			k++
		}
		if k > 0 {
			e.metrics.stale.Add(float64(k))
			b.Recs = append(b.Recs[:0], b.Recs[k:]...)
		}
	}
	if b.Len() == 0 {
		b.Release()
		return
	}
	if p.settlement == nil {
		p.begin(pipeline.Checkpoint{Next: b.Recs[0].Offset}, e.o.Pipeline)
	}
	p.window.Open(b.Recs[0].Offset, b.Recs[b.Len()-1].Offset, b.Len())
	e.metrics.received.Add(float64(b.Len()))
	e.start(p, b)
	if p.outage() {
		p.readOn = false
		e.pause(p, pauseOutage)
	}
}

func (e *Engine) stale(b *pipeline.Batch) {
	e.metrics.stale.Add(float64(b.Len()))
	b.Release()
}

// start queues a batch for its loop, unless it must wait for its turn among suspect records.
func (e *Engine) start(p *part, b *pipeline.Batch) {
	if !e.suspects(p, b) {
		e.launch(p, b)
	}
}

func (e *Engine) launch(p *part, b *pipeline.Batch) {
	e.working++
	e.records += b.Len()
	p.working++
	p.records += b.Len()
	p.work(b, e.o.Clock())
	b.Epoch = p.epoch
	b.Policy = e.o.Policy(p.tp)
	p.queue = append(p.queue, b)
	e.feed(p)
	if p.records >= e.lim.PartRecords {
		e.pause(p, pauseBackpressure)
	}
}

// busy tells whether as much is in work as may be.
func (e *Engine) busy() bool { return e.working >= e.lim.Batches || e.records >= e.lim.Records }

// finished is called once for each batch that leaves work, whatever became of it.
func (e *Engine) finished(p *part, b *pipeline.Batch) {
	if p.trial == b {
		e.tried(p)
	}
	p.done(b)
	e.records -= b.Len()
	p.records -= b.Len()
	b.Release()
	e.working--
	p.working--
	if p.records <= e.lim.PartRecords/2 {
		e.resume(p, pauseBackpressure)
	}
}

// collect takes all results and completions that are there, without waiting.
func (e *Engine) collect() {
	for {
		select {
		case r := <-e.results:
			e.result(r)
		case s := <-e.o.Sink.Done():
			e.completed(s)
		case s := <-e.letterDone():
			e.completed(s)
		case s := <-e.spareDone():
			e.completed(s)
		case s := <-e.callDone():
			e.completed(s)
		case end := <-e.endTx():
			e.txEnded(end)
		case p := <-e.probes:
			e.probed(p)
		default:
			return
		}
	}
}

// wait takes at least one result or completion, or returns false after d.
func (e *Engine) wait(ctx context.Context, d time.Duration) bool {
	e.timer.Reset(d)
	defer e.timer.Stop()
	return e.answer(ctx.Done(), e.timer.C)
}

// answer blocks for one result or completion; false when over fired first.
func (e *Engine) answer(done <-chan struct{}, over <-chan time.Time) bool {
	var again <-chan time.Time
	if len(e.full) > 0 { // a full sink with nothing of ours in flight never answers: ask it again
		t := time.NewTimer(10 * time.Millisecond)
		defer t.Stop()
		again = t.C
	}
	select {
	case <-again:
		e.handFull()
	case r := <-e.results:
		e.result(r)
	case s := <-e.o.Sink.Done():
		e.completed(s)
	case s := <-e.letterDone():
		e.completed(s)
	case s := <-e.spareDone():
		e.completed(s)
	case s := <-e.callDone():
		e.completed(s)
	case end := <-e.endTx():
		e.txEnded(end)
	case p := <-e.probes:
		e.probed(p)
	case <-over:
		return false
	case <-done:
	}
	return true
}

// letterDone is the completions of the dead-letter cluster, or nil (blocks for ever) if it is the source's.
func (e *Engine) letterDone() <-chan *pipeline.Sending {
	if e.o.Letters == e.o.Sink {
		return nil
	}
	return e.o.Letters.Done()
}

// spareDone is the completions of the fallback store, or nil (blocks for ever) if there is none.
func (e *Engine) spareDone() <-chan *pipeline.Sending {
	if e.o.Fallback == nil {
		return nil
	}
	return e.o.Fallback.Done()
}

// serveRebalance polls while nothing new may be taken: everything is paused, so that only rebalance events come, and the group
// keeps us.
func (e *Engine) serveRebalance(loops context.Context) {
	for _, p := range e.order {
		e.pause(p, pauseFull)
	}
	if ev, err := e.o.Source.Poll(0); err == nil && ev != nil {
		if b, ok := ev.(*pipeline.Batch); ok {
			e.arrived(b)
		} else {
			_ = e.event(loops, ev)
		}
	}
}

// poll asks the source. While answers are expected it waits for them rather than inside the source: there they would lie, and a
// processor with them.
func (e *Engine) poll(ctx context.Context, now time.Time) (pipeline.Event, error) {
	wait := e.pollWait(now)
	if e.working == 0 && !e.commit.busy {
		return e.o.Source.Poll(wait)
	}
	ev, err := e.o.Source.Poll(0)
	if ev == nil && err == nil {
		e.wait(ctx, wait)
	}
	return ev, err
}

// pollWait is how long a poll may take: short while answers are expected, else until the next thing that time brings.
func (e *Engine) pollWait(now time.Time) time.Duration {
	if !e.busy() {
		for _, p := range e.order {
			if p.paused&pauseFull != 0 {
				e.resume(p, pauseFull)
			}
		}
	}
	wait := 100 * time.Millisecond
	if e.working > 0 || e.commit.busy {
		wait = time.Millisecond
	}
	if e.tx != nil && e.tx.open && !e.tx.closing {
		wait = min(wait, max(0, e.tx.due().Sub(now)))
	}
	if due, ok := e.nextDue(); ok {
		wait = min(wait, max(0, due.Sub(now)))
	}
	return wait
}

// assigned makes a loop for each partition that is ours now.
func (e *Engine) assigned(loops context.Context, ev pipeline.Assigned) {
	e.epoch = ev.Epoch
	for _, tp := range ev.TPs {
		if old := e.parts[tp]; old != nil {
			e.drop([]pipeline.TP{tp})
		}
		p := newPart(tp, e.lane(tp), ev.Epoch)
		if c, ok := ev.Checkpoints[tp]; ok {
			p.window.Start(c)
			p.committed, p.origin = c.Next, c
			p.skip = c.Ahead.Clone()
			p.begin(c, e.o.Pipeline)
		}
		p.refused = e.refusals[tp]
		e.guardOf(p, p.origin)
		e.parts[tp] = p
		e.awaitControl(p)
		e.order = append(e.order, p)
		e.wg.Go(func() { e.loop(loops, p, e.results) })
		if e.ingress.halted {
			e.pause(p, pauseIngress)
		}
	}
	e.refusals = nil
	e.health.Assigned = len(e.parts)
	e.observe()
	e.o.Log.Info("partitions assigned", "pipeline", e.o.Pipeline, "count", len(ev.TPs), "epoch", ev.Epoch)
}

func (e *Engine) lane(tp pipeline.TP) pipeline.Lane {
	if tp.Topic == e.o.Route.RetryTopic {
		return pipeline.Retry
	}
	return pipeline.Live
}

// revoked finishes and commits partitions that are about to go away, then forgets them. They are ours until the next Poll.
func (e *Engine) revoked(tps []pipeline.TP) error {
	var parts []*part
	for _, tp := range tps {
		if p := e.parts[tp]; p != nil {
			parts = append(parts, p)
		}
	}
	err := e.drain(parts)
	e.drop(tps)
	if err != nil && pipeline.CodeOf(err) == pipeline.CodeDrainTimeout {
		e.o.Log.Warn("revoked before everything was finished; those records are read again", "pipeline", e.o.Pipeline)
		return nil
	}
	return err
}

// drop forgets partitions. Results of their batches are of an older epoch from now on: counted and dropped.
func (e *Engine) drop(tps []pipeline.TP) {
	for _, tp := range tps {
		p := e.parts[tp]
		if p == nil {
			continue
		}
		p.gone = true
		p.close()
		delete(e.parts, tp)
		for i, q := range e.order {
			if q == p {
				e.order = append(e.order[:i], e.order[i+1:]...)
				break
			}
		}
		for _, b := range p.queue {
			e.finished(p, b)
		}
		p.queue = nil
		for _, b := range p.pieces {
			b.Release()
		}
		e.alone.pieces -= len(p.pieces)
		p.pieces = nil
		if e.alone.turn == p {
			e.alone.turn = nil
		}
		if e.alone.dirty == p {
			e.alone.dirty = nil
		}
	}
	e.health.Assigned = len(e.parts)
	if e.observe(); !e.health.Ready {
		e.recovered() // what was wrong may have been theirs
	}
}

// drain waits until the parts have nothing in work, then commits them. Records that wait to be due, for a mended cause or for
// the dead-letter path stay uncommitted: they are read again.
func (e *Engine) drain(parts []*part) error {
	t := time.NewTimer(e.lim.Drain)
	defer t.Stop()
	over := t.C
	for _, p := range parts { // what no mark names is not worked any more
		if i := slices.IndexFunc(p.queue, func(b *pipeline.Batch) bool { return !p.covers(b) }); i >= 0 {
			for _, b := range p.queue[i:] {
				e.finished(p, b)
			}
			p.queue = p.queue[:i]
		}
	}
	if e.tx != nil {
		err := e.drainTx(parts, over)
		if err == nil {
			e.unmark(parts, func(*part) bool { return true })
		}
		return err
	}
	busy := func() bool {
		for _, p := range parts {
			if p.working > p.waiting || p.inLoop > 0 { // of a batch that was split, more may come
				return true
			}
		}
		return false
	}
	for busy() && e.fatal() == nil {
		if !e.answer(nil, over) {
			return pipeline.Errorf(pipeline.CodeDrainTimeout, e.o.Pipeline, "records were still in work after %s", e.lim.Drain)
		}
	}
	for _, p := range parts {
		p.ended = true
	}
	return e.commitNow(parts, over)
}

// drainTx commits what was sent. What is still in the stages was not sent: it is read again.
func (e *Engine) drainTx(parts []*part, over <-chan time.Time) error {
	for _, p := range parts {
		p.leaving = true
	}
	late := func() error {
		return pipeline.Errorf(pipeline.CodeDrainTimeout, e.o.Pipeline, "a transaction was still open after %s", e.lim.Drain)
	}
	if !e.tx.open {
		return nil
	}
	e.tx.closing = true
	for e.tx.open && e.tx.sending > 0 && e.fatal() == nil {
		if !e.answer(nil, over) {
			return late()
		}
	}
	if err := e.fatal(); err != nil || !e.tx.open {
		return err
	}
	gen := e.tx.gen
	if !e.commit.busy {
		if err := e.beginCommit(e.order); err != nil {
			return err
		}
	}
	for e.tx.open && e.tx.gen == gen && e.fatal() == nil {
		if !e.answer(nil, over) {
			return late()
		}
	}
	return e.fatal()
}
