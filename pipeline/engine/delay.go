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
		if !ok || due > now.UnixMilli() || p.working >= e.lim.PerPart || len(p.stalled) > 0 || e.tooScattered(p, now) {
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
		if len(p.stalled) > 0 && (!found || p.again.UnixMilli() < first) {
			first, found = p.again.UnixMilli(), true
		}
	}
	return time.UnixMilli(first), found
}

// stalls keeps a batch of which at least one record may neither go on nor leave: our credentials are refused, a policy rule
// is broken, or a letter cannot be sanitised. Nothing of it was sent. The partition pauses and the batch is tried again, later
// and later, until somebody mended the cause.
func (e *Engine) stalls(w *work) {
	p := w.part
	f := w.stall
	p.stalled = append(p.stalled, w)
	p.backoff = min(max(2*p.backoff, time.Second), 30*time.Second)
	p.again = e.o.Clock().Add(p.backoff)
	e.pause(p, pauseOutage)
	at := pipeline.Position{TP: p.tp, Offset: w.batch.Recs[f.Index].Offset}
	e.metrics.stalls.Add(1)
	if f.Code == pipeline.CodePolicyRule {
		e.policyAlert(w, ruleOf(f))
	}
	e.o.Log.Error("partition paused: a record may neither go on nor leave", "pipeline", e.o.Pipeline, "code", f.Code,
		"stage", f.Stage, "at", at.String(), "text", pipeline.Lookup(f.Code).Text, "remedy", pipeline.Lookup(f.Code).Remedy,
		"again_in", p.backoff.String())
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

// restart sends stalled batches through the stages again when their time has come, or another policy version is in force.
func (e *Engine) restart(now time.Time) {
	for _, p := range e.order {
		if len(p.stalled) == 0 || p.inLoop > 0 {
			continue
		}
		policy := e.o.Policy(p.tp)
		if now.Before(p.again) && policy.Digest() == p.stalled[0].batch.Policy.Digest() {
			continue
		}
		again := make([]*pipeline.Batch, 0, len(p.stalled)+len(p.queue))
		for _, w := range p.stalled {
			again = append(again, w.batch)
		}
		p.stalled = nil
		p.queue = append(again, p.queue...)
		for _, b := range p.queue { // none of them is in the stages
			b.Policy = policy
		}
		e.resume(p, pauseOutage)
		p.feed()
		e.recovered()
	}
}
