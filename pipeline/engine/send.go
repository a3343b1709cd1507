package engine

import (
	"errors"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/pipeline/decide"
)

// result takes a batch that went through the stages: held records go to the delay heap, messages to the sinks.
func (e *Engine) result(r result) {
	p, w := r.part, r.work
	if w.extra {
		e.working++
		p.working++
	}
	if r.last {
		p.inLoop--
	}
	switch {
	case p.gone:
		e.metrics.stale.Add(float64(w.batch.Len()))
		e.finished(p, w.batch)
	case e.fatal() != nil: // a stage cannot go on: the batch is not decided, and nothing of it is settled
		e.finished(p, w.batch)
	case w.stall != nil:
		e.stalls(w)
	default:
		p.backoff = 0
		e.hold(w)
		e.send(w)
	}
	p.feed()
}

// send hands the messages of a batch to the sinks: one Sending and one completion for each sink. With nothing to send the batch
// settles at once.
func (e *Engine) send(w *work) {
	if !e.admitTx(w) {
		return
	}
	if e.o.Letters == e.o.Sink && len(w.letters.Msgs) > 0 {
		w.effects.Msgs = append(w.effects.Msgs, w.letters.Msgs...) // one cluster: one group
		w.letters.Msgs = w.letters.Msgs[:0]
	}
	groups := [2]*pipeline.Sending{&w.effects, &w.letters}
	w.open = 0
	for _, s := range groups {
		if len(s.Msgs) > 0 {
			w.open++
		}
	}
	if w.open == 0 {
		e.sent(w)
		return
	}
	for _, s := range groups {
		if len(s.Msgs) > 0 {
			e.hand(w, s)
		}
	}
}

// hand gives one Sending to its sink. A full sink is back-pressure: it is tried again after the next completion.
func (e *Engine) hand(w *work, s *pipeline.Sending) {
	sink := e.o.Sink
	if s == &w.letters {
		sink = e.o.Letters
	}
	switch err := sink.Send(s); {
	case err == nil:
	case errors.Is(err, pipeline.ErrFull):
		e.full = append(e.full, s)
	default:
		e.stop(err)
	}
}

// handFull tries again, in order, what full sinks did not take.
func (e *Engine) handFull() {
	full := e.full
	e.full = nil
	for _, s := range full {
		e.hand(s.Owner.(*work), s)
	}
}

// completed takes a Sending whose messages are all acknowledged or refused.
func (e *Engine) completed(s *pipeline.Sending) {
	switch o := s.Owner.(type) {
	case *commitTicket:
		e.settlementsSent(o, s)
	case *work:
		o.open--
		if o.open == 0 {
			e.sent(o)
		}
	}
	if len(e.full) > 0 {
		e.handFull()
	}
}

// sent goes on with a batch all of whose messages are answered: refused ones are decided again, outcomes follow effects, and
// then the batch is settled.
func (e *Engine) sent(w *work) {
	switch {
	case w.part.gone:
		e.settle(w)
	case len(w.effects.Bad)+len(w.letters.Bad) > 0:
		e.refused(w)
	case w.batch.Lane == pipeline.Retry && !w.told && e.composeOutcomes(w):
		w.told = true
		e.send(w)
	default:
		e.settle(w)
	}
}

// refused decides again, a rung lower, about each record whose message was refused: effect, retry, quarantine. A refused
// letter is the end of the ladder: it waits until the dead-letter path is back, and nothing new is read meanwhile.
func (e *Engine) refused(w *work) {
	now := e.o.Clock()
	var bad []pipeline.Message
	var why []pipeline.Failure
	for _, s := range []*pipeline.Sending{&w.effects, &w.letters} {
		for _, b := range s.Bad {
			bad, why = append(bad, s.Msgs[b.Msg]), append(why, b.Failure)
		}
		s.Msgs, s.Bad = s.Msgs[:0], s.Bad[:0]
	}
	if e.tx != nil {
		e.refusedTx(bad, why, w)
		return
	}
	down := false
	for k := range bad {
		m, f := bad[k], why[k]
		switch {
		case w.told: // an outcome: the effect is acknowledged, only the news of it is not
			w.effects.Msgs = append(w.effects.Msgs, m)
			e.pathDown(m.Topic, f)
			down = true
			continue
		case w.what[m.From] == pipeline.DeadLettered:
			if f.Code == pipeline.CodeTooLarge && m.Value != nil {
				e.bare(w, m.From) // too large is not an outage
				continue
			}
			e.pathDown(m.Topic, f)
			down = true
			w.letters.Msgs = append(w.letters.Msgs, m)
			continue
		}
		f.Index, f.Stage = m.From, "send"
		d := e.decideAgain(w, &f, rungOf(w.what[m.From]), now)
		e.failed(w, &f, d, now)
		if w.stall != nil {
			at := pipeline.Position{TP: w.batch.TP, Offset: w.batch.Recs[m.From].Offset}
			e.stop(pipeline.Errorf(w.stall.Code, at.String(), "the letter of a refused record could not be made: %w", w.stall.Cause))
			return
		}
	}
	if down {
		e.waiting = append(e.waiting, w)
		w.part.waiting++
		return
	}
	e.send(w)
}

// rungOf is the rung that a refused message of a record leaves to.
func rungOf(refused pipeline.Disposition) uint8 { return decide.Rung(refused) }

// bare composes the letter of record i again, without its value.
func (e *Engine) bare(w *work, i int32) {
	now := e.o.Clock()
	f := pipeline.Failure{Index: i, Stage: "send", Code: pipeline.CodeTooLarge}
	if first := w.batch.Failure(int(i)); first != nil {
		f = *first
	}
	e.quarantine(w, &f, e.decideAgain(w, &f, rungOf(pipeline.DeadLettered), now), now, true)
}

// decideAgain decides about a record one of whose messages was refused: retry or quarantine. There is no way up, and others of
// its batch are sent already, so it cannot wait: where a rule cannot be evaluated the failure's own code decides.
func (e *Engine) decideAgain(w *work, f *pipeline.Failure, rung uint8, now time.Time) pipeline.Decision {
	d := w.batch.Policy.Decide(e.facts(w.batch, f, rung, now))
	if d.Code == pipeline.CodePolicyRule {
		e.policyAlert(w, d.Rule)
		d.Code = f.Code
	}
	if d.Action != pipeline.ActRetry {
		d.Action, d.Topic = pipeline.ActQuarantine, e.o.Route.QuarantineTopic
	}
	return d
}

// composeOutcomes makes a forwarded outcome for each redriven record of the batch that was delivered. It reuses the effects
// Sending, whose messages are acknowledged. False: there is none.
func (e *Engine) composeOutcomes(w *work) bool {
	w.effects.Msgs, w.letters.Msgs = w.effects.Msgs[:0], w.letters.Msgs[:0]
	b := w.batch
	for i := range b.Recs {
		t := b.Recs[i].Trail
		if t == nil || t.Redrive == "" || w.what[i] != pipeline.Delivered {
			continue
		}
		o := pipeline.Outcome{
			Pipeline: e.o.Pipeline, Item: t.Item, Redrive: t.Redrive, Try: t.Try, AtMS: e.o.Clock().UnixMilli(),
			At: pipeline.Position{TP: b.TP, Offset: b.Recs[i].Offset}, Result: pipeline.Forwarded, Writer: e.o.Consumer,
		}
		m := pipeline.Message{Topic: deadletter.OutcomesTopic(e.o.Route.Prefix), Partition: -1, From: int32(i)}
		if err := deadletter.AppendOutcome(&m, &o, e.o.Ring); err != nil {
			e.stop(err)
			return false
		}
		w.effects.Msgs = append(w.effects.Msgs, m)
	}
	return len(w.effects.Msgs) > 0
}

// settle records the disposition of every record of the batch in its window, and gives the batch back.
//
// INV-NOLOSS: only here does a record become settled, and only after its destination acknowledged it.
func (e *Engine) settle(w *work) {
	p, b := w.part, w.batch
	e.leaveTx(w)
	if p.gone {
		e.metrics.stale.Add(float64(b.Len()))
		e.finished(p, b)
		return
	}
	if b.Lane == pipeline.Live {
		p.versions.note(b.Recs[0].Offset, b.Recs[b.Len()-1].Offset+1, b.Policy.Digest())
	}
	var count [pipeline.Ranged + 1]int
	for i := range b.Recs {
		off := b.Recs[i].Offset
		switch what := w.what[i]; what {
		case pipeline.Pending:
			if b.Mark(i) == pipeline.MarkSkipped {
				p.window.Again(off)
				w.single = true
			}
			continue
		default:
			p.settlement.Add(off, what)
			count[what]++
			if b.Lane == pipeline.Retry {
				p.versions.note(off, off+1, b.Policy.Digest())
			}
		}
	}
	for what, n := range count {
		if n > 0 {
			e.metrics.disposed[what].Add(float64(n))
		}
	}
	if w.single || b.Lane == pipeline.Retry {
		for i := range b.Recs {
			if w.what[i] != pipeline.Pending {
				p.window.Settle(b.Recs[i].Offset)
			}
		}
	} else {
		p.window.SettleRun(b.Recs[0].Offset)
	}
	e.finished(p, b)
}
