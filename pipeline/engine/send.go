package engine

import (
	"errors"
	"maps"
	"slices"
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
		p.work(w.batch, e.o.Clock())
	}
	if r.last {
		p.inLoop--
		if e.alone.turn == p {
			e.alone.turn = nil
		}
		if r.of == p.trial {
			p.trial = w.batch // of a batch that was split, the last record stands for it
		}
	}
	switch {
	case p.gone:
		e.metrics.stale.Add(float64(w.batch.Len()))
		e.finished(p, w.batch)
	case e.fatal() != nil: // a stage cannot go on: the batch is not decided, and nothing of it is settled
		e.finished(p, w.batch)
	default:
		e.hold(w)
		e.holdBack(w)
		e.spend(w)
		e.send(w)
	}
	e.feed(p)
}

// send hands the messages of a batch to the sinks: one Sending and one completion for each sink. With nothing to send the batch
// settles at once.
func (e *Engine) send(w *work) {
	if !e.admitTx(w) {
		return
	}
	if e.ingress.down && e.o.Fallback != nil { // the topic is known not to take them
		w.spare.Msgs = append(w.spare.Msgs, w.letters.Msgs...)
		w.letters.Msgs = w.letters.Msgs[:0]
	}
	if e.o.Letters == e.o.Sink && len(w.letters.Msgs) > 0 {
		w.effects.Msgs = append(w.effects.Msgs, w.letters.Msgs...) // one cluster: one group
		w.letters.Msgs = w.letters.Msgs[:0]
	}
	groups := w.sendings()
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

// hand gives one Sending to its sink. A full sink is back-pressure: its partition pauses, and what it sends waits, in order, for
// a completion.
func (e *Engine) hand(w *work, s *pipeline.Sending) {
	sink := e.sinkOf(w, s)
	for _, f := range e.full { // what was refused first goes first: keys keep their order
		if o := f.Owner.(*work); o.part == w.part && e.sinkOf(o, f) == sink {
			e.full = append(e.full, s)
			return
		}
	}
	switch err := sink.Send(s); {
	case err == nil:
	case errors.Is(err, pipeline.ErrFull):
		e.full = append(e.full, s)
		e.pause(w.part, pauseLane)
	default:
		e.stop(err)
	}
}

func (e *Engine) sinkOf(w *work, s *pipeline.Sending) pipeline.Sink {
	switch s {
	case &w.letters:
		return e.o.Letters
	case &w.spare:
		return e.o.Fallback
	case &w.calls:
		return e.o.Calls
	}
	return e.o.Sink
}

// handFull tries again, in order, what full sinks did not take. What belongs to a partition that is gone is not sent any more.
func (e *Engine) handFull() {
	full := e.full
	if len(full) == 0 {
		return
	}
	e.full = nil
	for _, s := range full {
		if w := s.Owner.(*work); !w.part.gone {
			e.hand(w, s)
		} else if w.open--; w.open == 0 {
			e.sent(w)
		}
	}
	for _, p := range e.order {
		if p.paused&pauseLane != 0 && !slices.ContainsFunc(e.full, func(s *pipeline.Sending) bool { return s.Owner.(*work).part == p }) {
			e.resume(p, pauseLane)
		}
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
	w.keptSpare()
	switch {
	case w.part.gone:
		e.settle(w)
	case len(w.effects.Bad)+len(w.letters.Bad)+len(w.spare.Bad)+len(w.calls.Bad) > 0:
		e.refused(w)
	case w.batch.Lane == pipeline.Retry && !w.told && e.composeOutcomes(w):
		w.told = true
		e.send(w)
	default:
		e.settle(w)
	}
}

// keptSpare gives their disposition to records of which something stands in the fallback store now.
func (w *work) keptSpare() {
	bad := w.spare.Bad
	for i := range w.spare.Msgs {
		if len(bad) > 0 && bad[0].Msg == i {
			bad = bad[1:]
			continue
		}
		w.what[w.spare.Msgs[i].From] = pipeline.InFallback
	}
}

// refused decides again, a rung lower, about each record whose message was refused: effect, retry, quarantine. A refused letter goes
// to the fallback store. Where there is none, or it refuses too, that is the end of the ladder: the letter waits until the dead-letter
// path is back, and nothing new is read meanwhile.
//
// A call is no part of a transaction: what follows from a refused one goes into the transaction that is open.
func (e *Engine) refused(w *work) {
	now := e.o.Clock()
	doomed := e.tx != nil && len(w.effects.Bad)+len(w.letters.Bad)+len(w.spare.Bad) > 0
	var bad []pipeline.Message
	var why []pipeline.Failure
	calls, spare := 0, map[int]bool{} // the last ones; those that the fallback store refused
	mayWait := e.tx == nil || !e.scatters(w)
	for _, s := range w.sendings() {
		for _, b := range s.Bad {
			spare[len(bad)] = s == &w.spare
			bad, why = append(bad, s.Msgs[b.Msg]), append(why, b.Failure)
		}
		calls = len(s.Bad)
		s.Msgs, s.Bad = s.Msgs[:0], s.Bad[:0]
	}
	if doomed {
		e.refusedTx(bad, why, spare, w)
		return
	}
	again := map[int32]bool{} // too large is not an outage: these letters are composed anew
	for k := range bad {
		m := &bad[k]
		if !w.told && why[k].Code == pipeline.CodeTooLarge && m.Value != nil && isLetter(w.what[m.From]) {
			if w.shapes == nil {
				w.shapes = map[int32]shape{}
			}
			w.shapes[m.From] = w.shapes[m.From].without(e.isVault(m))
			again[m.From] = true
		}
	}
	down := false
	for k := range bad {
		m, f := bad[k], why[k]
		switch {
		case w.told: // an outcome: the effect is acknowledged, only the news of it is not
			w.effects.Msgs = append(w.effects.Msgs, m)
			e.pathDown(m.Topic, f, true)
			down = true
			continue
		case again[m.From]:
			continue
		case isLetter(w.what[m.From]):
			last := spare[k] || e.o.Fallback == nil
			e.pathDown(m.Topic, f, last)
			down = down || last
			if spare[k] && slices.Contains(w.aside, m.From) { // its topic cannot take it
				e.ingress.aside = true
				w.spare.Msgs = append(w.spare.Msgs, m)
				continue
			}
			w.letters.Msgs = append(w.letters.Msgs, m)
			continue
		}
		f.Index = m.From
		e.lower(w, &f, e.decideAgain(w, &f, rungOf(w.what[m.From]), now, mayWait && k >= len(bad)-calls), now)
	}
	for _, i := range slices.Sorted(maps.Keys(again)) {
		e.anew(w, i, now)
	}
	e.holdBack(w)
	if down {
		e.waiting = append(e.waiting, w)
		w.part.waiting++
		return
	}
	e.send(w)
}

// rungOf is the rung that a refused message of a record leaves to.
func rungOf(refused pipeline.Disposition) uint8 { return decide.Rung(refused) }

// isLetter tells whether a record left as a letter: what is refused of it then is the end of the ladder.
func isLetter(what pipeline.Disposition) bool {
	return what == pipeline.DeadLettered || what == pipeline.Sealed || what == pipeline.InFallback
}

func (e *Engine) isVault(m *pipeline.Message) bool {
	return e.o.Seal.Topic != "" && m.Topic == e.o.Seal.Topic
}

// without is the shape after one of its messages was too large: the vault's, or the letter.
func (s shape) without(vault bool) shape {
	if vault {
		s.unvaulted = true
	} else {
		s.bare = true
	}
	return s
}

// anew composes the letter of record i again, in the shape that is left to it.
func (e *Engine) anew(w *work, i int32, now time.Time) {
	f := pipeline.Failure{Index: i, Stage: "send", Code: pipeline.CodeTooLarge}
	if first := w.batch.Failure(int(i)); first != nil {
		f = *first
	}
	e.quarantine(w, &f, e.decideAgain(w, &f, rungOf(pipeline.DeadLettered), now, false), now, w.shapes[i])
}

// decideAgain is again, and says so when the policy failed.
func (e *Engine) decideAgain(w *work, f *pipeline.Failure, rung uint8, now time.Time, mayWait bool) pipeline.Decision {
	d, rule := e.again(w, f, rung, now, mayWait)
	if rule != "" {
		e.policyAlert(w, rule)
	}
	return d
}

// composeOutcomes makes a forwarded outcome for each redriven record of the batch that was delivered. It reuses the effects
// Sending, whose messages are acknowledged. False: there is none.
func (e *Engine) composeOutcomes(w *work) bool {
	for _, s := range w.sendings() {
		s.Msgs = s.Msgs[:0]
	}
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
	if w.single || !p.window.Whole(b.Recs[0].Offset, b.Recs[b.Len()-1].Offset, b.Len()) {
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
