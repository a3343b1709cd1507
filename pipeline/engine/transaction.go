package engine

import (
	"context"
	"slices"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/decide"
)

// txState is the one transaction of an exactly_once pipeline: outputs, retries, same-cluster letters, settlements and offsets
// of whole batches. Batches go on through the stages while it commits; what they send waits for the next one.
type txState struct {
	tx      pipeline.Tx
	gen     uint32 // of the transaction: works of an aborted one do not count in the next
	open    bool
	closing bool      // nothing new is sent: what was sent is being acknowledged, then it commits
	since   time.Time // of its first message
	urgent  time.Time // since when a failure in it waits for the commit, which then comes sooner; zero is none
	next    time.Time // the same of what waits for the transaction after it
	sending int       // works sent in it that are not settled
	later   []*work
	ending  bool       // the broker is asked to commit it
	ended   chan txEnd // the answer
}

// txEnd is the answer to a commit.
type txEnd struct {
	ticket *commitTicket
	points map[pipeline.TP]pipeline.Checkpoint
	err    error
}

// The commit rule (DESIGN 4.8): the longest that a transaction stays open, without and with a failure in it.
const (
	txHealthy = 250 * time.Millisecond
	txFailure = 50 * time.Millisecond
	txAnswer  = 30 * time.Second // for a commit or an abort
)

// admitTx takes a work into the open transaction, or begins one. False: it waits for the next.
func (e *Engine) admitTx(w *work) bool {
	t := e.tx
	if t == nil || w.tx == t.gen && t.open {
		return true
	}
	urgent := &t.urgent
	if t.closing {
		urgent = &t.next
	}
	if urgent.IsZero() && len(w.batch.Failures()) > 0 {
		*urgent = e.o.Clock()
	}
	if t.closing {
		t.later = append(t.later, w)
		return false
	}
	if !t.open {
		if err := t.tx.Begin(); err != nil {
			e.stop(err)
			return false
		}
		t.gen++
		t.open, t.since, t.sending = true, e.o.Clock(), 0
	}
	w.tx = t.gen
	t.sending++
	return true
}

// leaveTx counts a work of the open transaction as settled.
func (e *Engine) leaveTx(w *work) {
	if t := e.tx; t != nil && w.tx == t.gen && t.open {
		t.sending--
	}
	w.tx = 0
}

// due is when the open transaction is to be committed. A failure that waited for the one before counts that time too.
func (t *txState) due() time.Time {
	due := t.since.Add(txHealthy)
	if t.urgent.IsZero() {
		return due
	}
	if soon := t.urgent.Add(txFailure); soon.Before(due) {
		return soon
	}
	return due
}

// tickTx closes the transaction when it is time, and commits it once all of it is acknowledged.
func (e *Engine) tickTx(now time.Time) error {
	t := e.tx
	if !t.open || e.commit.busy {
		return nil
	}
	if !now.Before(t.due()) {
		t.closing = true
	}
	if !t.closing || t.sending > 0 {
		return nil
	}
	e.commit.last = now
	return e.beginCommit(e.order)
}

// commitTx asks the broker to end the transaction with the offsets of what was sent in it. Meanwhile records are read and go
// through the stages; what they send waits for the next.
func (e *Engine) commitTx(c *commitTicket, points map[pipeline.TP]pipeline.Checkpoint) {
	t, group := e.tx, e.o.Source.Group()
	t.ending, e.commit.busy = true, true
	e.wg.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(e.ctx), txAnswer)
		defer cancel()
		t.ended <- txEnd{c, points, t.tx.Commit(ctx, points, group)} // has room: one commit at a time
	})
}

// txEnded takes the answer to a commit. What waited goes into the next transaction.
func (e *Engine) txEnded(end txEnd) {
	t := e.tx
	t.ending, e.commit.busy = false, false
	err := end.err
	switch {
	case pipeline.CodeOf(err) == pipeline.CodeTxAborted:
		err = e.abortTx(err)
	case err == nil:
		t.open, t.closing = false, false
		e.committed(end.ticket, end.points)
		e.sendLater()
	}
	if err != nil {
		e.stop(err)
	}
}

// awaitTxEnd waits for the answer to a commit that is under way.
func (e *Engine) awaitTxEnd() {
	for e.tx.ending && e.fatal() == nil {
		e.answer(nil, nil) // the commit has a limit of its own
	}
}

// endTx is where the answer to a commit comes from; nil (blocks for ever) without transactions.
func (e *Engine) endTx() <-chan txEnd {
	if e.tx == nil {
		return nil
	}
	return e.tx.ended
}

// leaveNoTx undoes, at the end, a transaction that nobody commits any more: the broker would hold readers back until it times
// out.
func (e *Engine) leaveNoTx(ctx context.Context) error {
	if e.tx == nil {
		return nil
	}
	if e.tx.ending {
		if end := <-e.tx.ended; end.err == nil {
			return nil
		}
	}
	if !e.tx.open {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), txAnswer)
	defer cancel()
	return e.tx.tx.Abort(ctx)
}

// sendLater sends what waited for the transaction before to end.
func (e *Engine) sendLater() {
	later := e.tx.later
	e.tx.later = nil
	e.tx.urgent, e.tx.next = e.tx.next, time.Time{}
	for _, w := range later {
		if w.part.gone || w.part.leaving {
			e.finished(w.part, w.batch)
			continue
		}
		e.send(w)
	}
}

// abortTx undoes the transaction and reads every partition again from what is committed. What is in work belongs to the past:
// its results are dropped.
//
// INV-EXACTLY-ONCE: an output is visible to read_committed readers only together with the offsets that it was made from.
func (e *Engine) abortTx(why error) error {
	t := e.tx
	e.o.Log.Warn("transaction aborted; its records are read again", "pipeline", e.o.Pipeline, "code", pipeline.CodeOf(why), "cause", why.Error())
	e.metrics.aborts.Add(1)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.ctx), txAnswer)
	defer cancel()
	if err := t.tx.Abort(ctx); err != nil {
		return err
	}
	later := t.later
	t.open, t.closing, t.later = false, false, nil
	t.urgent, t.next = time.Time{}, time.Time{}
	e.commit.busy = false
	old := append([]*part(nil), e.order...)
	again := pipeline.Assigned{Epoch: e.epoch + 1, Checkpoints: map[pipeline.TP]pipeline.Checkpoint{}}
	for _, p := range old {
		again.TPs = append(again.TPs, p.tp)
		if p.committed >= 0 {
			again.Checkpoints[p.tp] = decide.Clean(p.origin)
		}
		if off, aborts := p.suspect.Abort(); aborts {
			if e.refusals == nil {
				e.refusals = map[pipeline.TP]map[int64]refusal{}
			}
			if e.refusals[p.tp] == nil {
				e.refusals[p.tp] = map[int64]refusal{off: p.refused[off]}
			}
		}
		if p.paused != 0 && !p.gone { // the new part begins with no reason to pause
			if err := e.o.Source.Resume(p.tp); err != nil {
				return err
			}
		}
		p.paused = 0
	}
	e.drop(again.TPs)
	for _, w := range later { // never sent
		e.finished(w.part, w.batch)
	}
	e.assigned(e.loops, again)
	for _, was := range old {
		p := e.parts[was.tp]
		if was.suspect.Crashes() > 0 { // it is suspect still
			p.suspect, p.marked, p.written, p.markAt = was.suspect, true, true, was.markAt
		}
		p.written = was.written
		switch first, known := was.firstOffset(); {
		case was.committed >= 0:
			if err := e.o.Source.Seek(p.tp, was.origin.Next); err != nil {
				return err
			}
		case known:
			start := pipeline.Checkpoint{Next: first}
			p.window.Start(start)
			p.begin(start, e.o.Pipeline)
			if err := e.o.Source.Seek(p.tp, first); err != nil {
				return err
			}
		}
	}
	return nil
}

// refusal is what is known of a record whose message doomed a transaction: the next pass decides a rung lower, or leaves the
// value out of the letter, or the vault message away.
type refusal struct {
	failure pipeline.Failure
	rung    uint8
	shape   shape
}

// refusedTx notes the records that are at fault and aborts. A refused letter is no record's fault: the path is down.
// spare says which were refused by the fallback store.
func (e *Engine) refusedTx(bad []pipeline.Message, why []pipeline.Failure, spare map[int]bool, w *work) {
	notes := map[int64]refusal{}
	for off, r := range w.part.refused {
		notes[off] = r
	}
	for k := range bad {
		f := why[k]
		i := bad[k].From
		if w.told || i < 0 {
			continue // an outcome: tried again with the rest
		}
		off := w.batch.Recs[i].Offset
		switch {
		case !isLetter(w.what[i]):
			f.Index, f.Cause = 0, nil
			notes[off] = refusal{failure: f, rung: rungOf(w.what[i])}
		case f.Code == pipeline.CodeTooLarge && bad[k].Value != nil:
			r := notes[off]
			r.shape = r.shape.without(e.isVault(&bad[k]))
			notes[off] = r
		default:
			e.pathDown(bad[k].Topic, f, spare[k] || e.o.Fallback == nil)
			e.ingress.aside = e.ingress.aside || spare[k] && slices.Contains(w.aside, i)
		}
	}
	w.part.refused = notes
	refusedBefore := map[pipeline.TP]map[int64]refusal{}
	for _, p := range e.order {
		refusedBefore[p.tp] = p.refused
	}
	e.refusals = refusedBefore
	if err := e.abortTx(&pipeline.Error{Code: pipeline.CodeTxAborted, Place: w.part.tp.String(), Text: "a message was refused"}); err != nil {
		e.stop(err)
	}
	e.finished(w.part, w.batch)
}
