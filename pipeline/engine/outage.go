package engine

import (
	"hash/fnv"
	"math"
	"slices"
	"time"

	"reprieve.dev/pipeline"
)

// Records that may neither go on nor leave are held back, one by one: the service behind them is known to be down (outage:
// pause), our credentials are refused, a policy rule is broken, a letter cannot be sanitised. Nothing of them was sent, no attempt
// is used up, and they stay unsettled. Everything else of their batch goes on: what is healthy is delivered, what is poison is
// quarantined.
//
// Their partition is slowed: it is not read while they wait. When their time has come they go through the stages again, and one
// more batch is read, so that poison behind them is found during the outage as well; what must wait then waits with them, up to
// heldMost. Each round is longer, unless the dependency says itself when to ask again, and each partition takes its own part of
// it: partitions do not all come back in the same moment.
//
// A service may look down because of one record that it always fails on. So those that were really tried least go first: one of
// them shows that the service is up. And one that was tried freeTries times in vain is no longer excused by the outage: what the
// policy says of a service that is up counts for it.

// The rounds of an outage, the most records of one partition that are held before it is read no further at all, and how often a
// held record is really tried before its attempts count.
const (
	firstRound = time.Second
	lastRound  = 30 * time.Second
	heldMost   = 2000
	freeTries  = 10
)

// heldRecord is a record of a batch that is held back. Real: the dependency was asked for it.
type heldRecord struct {
	index int32
	real  bool
}

// outage tells whether records of the partition are held back, or were and are being tried.
func (p *part) outage() bool { return p.held.Len() > 0 || p.trial != nil }

// atFault tells whether a record was tried too often for an outage to excuse it.
func (c *core) atFault(b *pipeline.Batch, f *pipeline.Failure) bool {
	tries := c.slot.Of(b).tries
	return !f.Unasked && int(f.Index) < len(tries) && tries[f.Index] >= freeTries
}

// holdBack takes the held records of a work out of their batch.
func (e *Engine) holdBack(w *work) {
	p := w.part
	if len(w.held) == 0 {
		return
	}
	if e.tx != nil && w.tx == 0 && e.scatters(w) {
		w.holdAll()
	}
	now := e.o.Clock()
	if p.backoff == 0 || !now.Before(p.again) {
		p.backoff = min(max(2*p.backoff, firstRound), lastRound)
		wait := jitter(p.tp, now, p.backoff)
		if ask := time.Duration(w.stall.RetryAfter) * time.Millisecond; w.stall.Unasked && ask > 0 {
			wait = min(ask, lastRound) + jitter(p.tp, now, firstRound) - firstRound/2
		}
		p.again = time.UnixMilli(now.Add(wait).UnixMilli()) // as the heap knows it: released sooner, they would come back at once
		e.alertHeld(w, wait)
	}
	w.single = true
	for _, h := range w.held {
		r := &w.batch.Recs[h.index]
		tries := uint8(0)
		if int(h.index) < len(w.tries) {
			tries = w.tries[h.index]
		}
		if h.real {
			tries++
		}
		if tries > 0 {
			if p.tries == nil {
				p.tries = map[int64]uint8{}
			}
			p.tries[r.Offset] = tries
		}
		p.held.Push(p.again.UnixMilli(), r.Clone())
	}
	p.heldBy = w.batch.Policy.Digest()
	w.held, w.stall = w.held[:0], nil
	if !p.readOn {
		e.pause(p, pauseOutage)
	}
}

// tried ends the trial of held records, and the outage of the partition when nothing waits any more.
func (e *Engine) tried(p *part) {
	e.slot.Of(p.trial).tries = nil
	p.trial = nil
	if p.gone || p.outage() {
		return
	}
	p.backoff, p.readOn = 0, false
	e.resume(p, pauseOutage)
	e.recovered()
}

// jitter is between half of d and d. It follows from the partition and the time, so that a test can repeat it.
func jitter(tp pipeline.TP, now time.Time, d time.Duration) time.Duration {
	h := fnv.New64a()
	_, _ = h.Write([]byte(tp.String() + now.Format(time.RFC3339Nano)))
	return d - time.Duration(h.Sum64()%uint64(d/2+1))
}

// scatters tells whether settling a batch without its held records and refused calls might leave more settled runs beyond the
// watermark than a checkpoint can hold. With transactions nothing may be done twice after a restart: then nothing of the batch is
// sent, and a call that was refused is retried rather than held.
func (e *Engine) scatters(w *work) bool {
	refused := map[int32]bool{}
	for _, b := range w.calls.Bad {
		refused[b.Failure.Index] = true
	}
	ahead := w.part.window.Ahead().Clone()
	for i := range w.batch.Recs {
		if w.what[i] != pipeline.Pending && !refused[int32(i)] {
			ahead.Add(w.batch.Recs[i].Offset)
		}
	}
	return ahead.Runs() > pipeline.MaxAheadRuns/2
}

// holdAll holds every record of a batch of which nothing was sent yet.
func (w *work) holdAll() {
	for i := range w.what {
		if w.what[i] != pipeline.Pending {
			w.what[i] = pipeline.Pending
			w.held = append(w.held, heldRecord{int32(i), false})
		}
	}
	for _, s := range w.sendings() {
		s.Msgs = s.Msgs[:0]
	}
}

func (e *Engine) alertHeld(w *work, wait time.Duration) {
	p, f := w.part, w.stall
	at := pipeline.Position{TP: p.tp, Offset: w.batch.Recs[f.Index].Offset}
	e.metrics.stalls.Add(1)
	text := "records are held back: they may neither go on nor leave"
	switch {
	case f.Code == pipeline.CodePolicyRule:
		e.policyAlert(w, ruleOf(f))
	case pipeline.Lookup(f.Code).Class == pipeline.Transient:
		text = string(pipeline.CodeDependencyDown)
	}
	e.o.Log.Error(text, "pipeline", e.o.Pipeline, "code", f.Code, "stage", f.Stage, "at", at.String(), "held", p.held.Len()+len(w.held),
		"text", pipeline.Lookup(f.Code).Text, "remedy", pipeline.Lookup(f.Code).Remedy, "again_in", wait.String())
	e.setHealth(false, f.Code, at.String())
}

// policyAlert says that the policy failed, not a record.
func (e *Engine) policyAlert(w *work, rule string) {
	e.metrics.policy.Add(1)
	e.o.Log.Error(string(pipeline.CodePolicyFailed), "pipeline", e.o.Pipeline, "partition", w.part.tp.String(), "rule", rule,
		"policy", w.batch.Policy.Digest(), "remedy", pipeline.Lookup(pipeline.CodePolicyFailed).Remedy)
}

// ruleOf is the rule that a failure of the policy names.
func ruleOf(f *pipeline.Failure) string {
	for _, p := range f.Params {
		if p.Name == "rule" {
			return p.Value()
		}
	}
	return ""
}

// releaseHeld sends held records through the stages again when their time has come or another policy version is in force, a
// batch at a time, and reads one more batch of their partition if there is room for what may have to wait.
func (e *Engine) releaseHeld(now time.Time) {
	for _, p := range e.order {
		due, ok := p.held.Next()
		if !ok || p.trial != nil || p.records >= e.lim.PartRecords || len(p.pieces) > 0 {
			continue
		}
		until := now.UnixMilli()
		if due > until {
			if e.o.Policy(p.tp).Digest() == p.heldBy {
				continue
			}
			until = math.MaxInt64
		}
		b := e.o.Pool.Get()
		b.TP, b.Lane = p.tp, p.lane
		b.Recs = p.held.Pop(b.Recs[:0], until, 500)
		least := uint8(255)
		for i := range b.Recs {
			least = min(least, p.tries[b.Recs[i].Offset])
		}
		b.Recs = slices.DeleteFunc(b.Recs, func(r pipeline.Record) bool {
			more := p.tries[r.Offset] > least
			if more {
				p.held.Push(now.UnixMilli(), r) // right after these
			}
			return more
		})
		w := e.slot.Of(b)
		w.tries = slices.Repeat([]uint8{least}, b.Len())
		for i := range b.Recs {
			delete(p.tries, b.Recs[i].Offset)
		}
		p.trial = b
		e.start(p, b)
		if p.held.Len() < heldMost && p.held.Bytes() < e.lim.DelayBytes {
			p.readOn = true
			e.resume(p, pauseOutage)
		}
	}
}
