package engine

import (
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
)

// commitState is the one commit that may be under way.
type commitState struct {
	busy bool
	last time.Time
	idle time.Time // when marks of idle partitions were looked for
}

// commitTicket is a commit whose settlements are being written: offsets follow only when they are acknowledged.
type commitTicket struct {
	sending pipeline.Sending
	parts   []*part
	points  []pipeline.Checkpoint
	gen     uint32 // of its transaction
}

// tickCommit starts a commit when it is time and something moved.
func (e *Engine) tickCommit(now time.Time) error {
	if now.Sub(e.commit.idle) >= idleMark/4 {
		e.commit.idle = now
		e.unmarkIdle(now)
	}
	if e.tx != nil {
		return e.tickTx(now)
	}
	if e.commit.busy || now.Sub(e.commit.last) < e.lim.CommitEvery {
		return nil
	}
	e.commit.last = now
	return e.beginCommit(e.order)
}

// beginCommit writes settlements for each partition of which something was settled, as one Sending. The offsets are committed when
// it is complete, so whatever a committed checkpoint says is done is settled (DESIGN 4.6): below its watermark and ahead of it.
func (e *Engine) beginCommit(parts []*part) error {
	t := &commitTicket{}
	if e.tx != nil {
		t.gen = e.tx.gen
	}
	for _, p := range parts {
		if !p.window.Started() || p.gone {
			continue
		}
		ahead := p.window.Ahead()
		c := p.mark(pipeline.Checkpoint{Next: p.window.Next(), Ahead: ahead.Clone(), InFlight: -1}).Cut()
		if c.Next == p.committed && c.Ahead.Count() == p.aheadSeen && !(p.ended && p.written) {
			continue
		}
		if err := e.settlements(t, p, c); err != nil {
			return err
		}
		t.parts, t.points = append(t.parts, p), append(t.points, c)
	}
	if len(t.parts) == 0 && e.tx == nil {
		return nil
	}
	t.sending.Owner = t
	if len(t.sending.Msgs) == 0 {
		return e.commitOffsets(t)
	}
	if err := e.o.Sink.Send(&t.sending); err != nil {
		if pipeline.CodeOf(err) == pipeline.CodeSinkFull {
			return nil // next time
		}
		return err
	}
	e.commit.busy = true
	return nil
}

// settlements writes what became of the offsets that a commit of c settles: one message for each interval of them and each policy
// version that worked some of it. Almost always that is one.
func (e *Engine) settlements(t *commitTicket, p *part, c pipeline.Checkpoint) error {
	for from, to := range p.settlement.Due(c) {
		for from < to {
			end, policy := p.versions.next(from, to)
			if policy == "" { // nothing of it was worked: it was settled by an earlier life
				policy = e.o.Policy(p.tp).Digest()
			}
			part := p.settlement.Part(from, end, c.Next)
			part.Policy = policy
			m := pipeline.Message{Partition: -1, From: -1}
			if err := part.AppendMessage(&m, e.o.Route.Prefix, e.o.Ring); err != nil {
				return err
			}
			t.sending.Msgs = append(t.sending.Msgs, m)
			from = end
		}
	}
	return nil
}

// settlementsSent commits the offsets of a ticket once its settlements are acknowledged. Refused ones are written again with
// the next commit: nothing was committed.
func (e *Engine) settlementsSent(t *commitTicket, s *pipeline.Sending) {
	if e.tx != nil && (t.gen != e.tx.gen || !e.tx.open) {
		return // its transaction was aborted meanwhile
	}
	e.commit.busy = false
	if len(s.Bad) > 0 && e.tx != nil {
		if err := e.abortTx(pipeline.Errorf(pipeline.CodeTxAborted, s.Msgs[s.Bad[0].Msg].Topic, "a settlement was refused: %s", s.Bad[0].Failure.Reason())); err != nil {
			e.stop(err)
		}
		return
	}
	if len(s.Bad) > 0 {
		e.o.Log.Warn("settlements were refused; offsets are committed later", "pipeline", e.o.Pipeline,
			"topic", deadletter.SettlementsTopic(e.o.Route.Prefix), "code", s.Bad[0].Failure.Code)
		return
	}
	if err := e.commitOffsets(t); err != nil {
		e.stop(err)
	}
}

// commitOffsets commits what the ticket holds, less what is no longer ours.
//
// INV-EPOCH: a checkpoint of an older assignment is counted and dropped: the broker would accept it (kafka-facts 10).
func (e *Engine) commitOffsets(t *commitTicket) error {
	points := map[pipeline.TP]pipeline.Checkpoint{}
	for i, p := range t.parts {
		if p.gone || e.parts[p.tp] != p {
			e.metrics.stale.Add(1)
			continue
		}
		points[p.tp] = t.points[i]
	}
	if e.tx != nil {
		e.commitTx(t, points)
		return nil
	}
	if len(points) == 0 {
		return nil
	}
	if err := e.o.Source.Commit(points); err != nil {
		if pipeline.CodeOf(err) == pipeline.CodeCommitRefused {
			e.o.Log.Warn("commit refused; it is tried again", "pipeline", e.o.Pipeline, "cause", err.Error())
			return nil
		}
		return err
	}
	e.committed(t, points)
	return nil
}

// committed notes what the broker has now.
func (e *Engine) committed(t *commitTicket, points map[pipeline.TP]pipeline.Checkpoint) {
	for _, p := range t.parts {
		if c, ok := points[p.tp]; ok && !p.gone {
			p.committed, p.aheadSeen, p.origin = c.Next, c.Ahead.Count(), c
			p.committedMark(c)
			p.settlement.Advance(c)
			p.versions.drop(c.Next)
		}
	}
}

// commitNow commits the parts and waits for it: at a revoke and at the end.
func (e *Engine) commitNow(parts []*part, over <-chan time.Time) error {
	for range 3 { // one that was under way already, ours, and one more if settlements were refused
		for e.commit.busy {
			if !e.answer(nil, over) {
				return pipeline.Errorf(pipeline.CodeDrainTimeout, e.o.Pipeline, "the last commit was not acknowledged in time")
			}
		}
		if err := e.fatal(); err != nil {
			return err
		}
		if err := e.beginCommit(parts); err != nil {
			return err
		}
		if !e.commit.busy {
			return nil
		}
	}
	return nil
}
