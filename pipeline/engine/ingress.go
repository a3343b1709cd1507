package engine

import (
	"context"
	"time"

	"reprieve.dev/pipeline"
)

// ingress is what is known of the dead-letter path.
type ingress struct {
	down    bool // the dead-letter topic does not take letters
	halted  bool // and no fallback store does
	aside   bool // something waits that only a fallback store can take
	probing bool
	next    time.Time
	backoff time.Duration
}

// probed is the answer of a probe: why the topics do not take letters, and if so, why the fallback store does not.
type probed struct{ topic, spare error }

// openIngress probes the dead-letter path before anything is read: a pipeline that could not quarantine must not start to
// fail records. It waits until the path answers; false when ctx ended first.
func (e *Engine) openIngress(ctx context.Context) bool {
	backoff := 100 * time.Millisecond
	for ctx.Err() == nil {
		p := e.probe(ctx, false)
		if p.topic == nil {
			e.setHealth(true, "", "")
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		if p.spare == nil {
			e.pathDown(e.o.Route.QuarantineTopic, pipeline.Failure{Code: pipeline.CodeOf(p.topic), Cause: p.topic}, false)
			return true
		}
		e.ingressAlert(p.topic, true)
		if sinkEnded(p.topic) {
			e.stop(p.topic)
			return false
		}
		t := time.NewTimer(backoff)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
		backoff = min(2*backoff, 5*time.Second)
	}
	return false
}

// probe asks the dead-letter path; with aside the fallback store must answer too.
func (e *Engine) probe(ctx context.Context, aside bool) (p probed) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	prober := e.o.Prober
	if prober == nil {
		prober = e.o.Letters
	}
	if p.topic = prober.Probe(ctx, e.o.Route.QuarantineTopic); p.topic == nil && e.o.Seal.Topic != "" {
		p.topic = prober.Probe(ctx, e.o.Seal.Topic)
	}
	if p.spare = p.topic; (p.topic != nil || aside) && e.o.Fallback != nil {
		p.spare = e.o.Fallback.Probe(ctx, e.o.Route.QuarantineTopic)
		if p.topic == nil {
			p.topic = p.spare
		}
	}
	return p
}

// sinkEnded tells whether a sink can never answer again: whoever runs the pipeline opens another one.
func sinkEnded(err error) bool {
	switch pipeline.CodeOf(err) {
	case pipeline.CodeBrokerAuth, pipeline.CodeBrokerFatal:
		return true
	}
	return false
}

// ingressAlert tells that the topic refuses letters, also when a fallback store takes them.
func (e *Engine) ingressAlert(err error, halted bool) {
	e.metrics.ingress.Add(1)
	code := pipeline.CodeIngressFailed
	if halted {
		code = pipeline.CodeFailureDomain
	}
	e.o.Log.Error(string(pipeline.CodeIngressFailed), "pipeline", e.o.Pipeline, "topic", e.o.Route.QuarantineTopic,
		"cause", err.Error(), "halted", halted, "code", code, "remedy", pipeline.Lookup(code).Remedy)
	e.setHealth(!halted, code, e.o.Route.QuarantineTopic)
}

// pathDown notes that the dead-letter topic refuses letters. Halted: no fallback store takes them either, and consumption halts. It
// resumes by itself when a probe succeeds. Nothing is dropped and no local queue is used: the batches wait in memory, their offsets
// uncommitted.
func (e *Engine) pathDown(topic string, f pipeline.Failure, halted bool) {
	if e.ingress.down && (e.ingress.halted || !halted) {
		return
	}
	next := e.o.Clock().Add(100 * time.Millisecond)
	e.ingress = ingress{down: true, halted: halted, aside: e.ingress.aside, probing: e.ingress.probing, backoff: 100 * time.Millisecond, next: next}
	e.ingressAlert(pipeline.Errorf(f.Code, topic, "%s", f.Reason()), halted)
	for _, p := range e.order {
		if halted {
			e.pause(p, pauseIngress)
		}
	}
}

// tickIngress starts a probe when it is time for one: soon while the path is down, now and then while it is idle.
func (e *Engine) tickIngress(ctx context.Context, now time.Time) {
	if e.ingress.probing || now.Before(e.ingress.next) {
		return
	}
	if !e.ingress.down && e.ingress.next.IsZero() {
		e.ingress.next = now.Add(e.lim.ProbeEvery)
		return
	}
	e.ingress.probing = true
	aside := e.ingress.aside
	e.wg.Go(func() { e.probes <- e.probe(ctx, aside) }) // the channel has room for the one probe that is under way
}

// probed takes the answer of a probe.
func (e *Engine) probed(p probed) {
	e.ingress.probing = false
	now := e.o.Clock()
	if p.topic != nil {
		if sinkEnded(p.topic) {
			e.stop(p.topic)
		}
		e.pathDown(e.o.Route.QuarantineTopic, pipeline.Failure{Code: pipeline.CodeOf(p.topic), Cause: p.topic}, p.spare != nil)
		e.ingress.backoff = min(2*max(e.ingress.backoff, 100*time.Millisecond), 5*time.Second)
		e.ingress.next = now.Add(e.ingress.backoff)
		if p.spare == nil && e.ingress.halted {
			e.o.Log.Info("the fallback store takes letters", "pipeline", e.o.Pipeline, "waiting_batches", len(e.waiting))
			e.goOn()
		}
		return
	}
	e.ingress.next = now.Add(e.lim.ProbeEvery)
	if !e.ingress.down {
		return
	}
	e.ingress.down = false
	e.o.Log.Info("the dead-letter path is back", "pipeline", e.o.Pipeline, "waiting_batches", len(e.waiting))
	e.goOn()
}

// goOn ends a halt: what waited is sent to where letters go now.
func (e *Engine) goOn() {
	e.ingress.halted, e.ingress.aside = false, false
	waiting := e.waiting
	e.waiting = nil
	for _, w := range waiting {
		w.part.waiting--
		if w.part.gone {
			e.finished(w.part, w.batch)
			continue
		}
		e.send(w)
	}
	for _, p := range e.order {
		e.resume(p, pauseIngress)
	}
	e.recovered()
}

// recovered says that we are ready again, unless something else is still wrong.
func (e *Engine) recovered() {
	if e.ingress.halted {
		return
	}
	for _, p := range e.order {
		if p.outage() || p.late {
			return
		}
	}
	if e.ingress.down {
		e.setHealth(true, pipeline.CodeIngressFailed, e.o.Route.QuarantineTopic)
		return
	}
	e.setHealth(true, "", "")
}

func (e *Engine) setHealth(ready bool, code pipeline.Code, place string) {
	e.health.Ready, e.health.Code, e.health.Place = ready, code, place
	e.observe()
}

func (e *Engine) observe() {
	if e.o.Observe != nil {
		e.o.Observe(e.health)
	}
}
