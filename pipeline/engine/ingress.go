package engine

import (
	"context"
	"time"

	"reprieve.dev/pipeline"
)

// ingress is what is known of the dead-letter path.
type ingress struct {
	down    bool
	probing bool
	next    time.Time
	backoff time.Duration
}

// openIngress probes the dead-letter path before anything is read: a pipeline that could not quarantine must not start to
// fail records. It waits until the path answers; false when ctx ended first.
func (e *Engine) openIngress(ctx context.Context) bool {
	backoff := 100 * time.Millisecond
	for ctx.Err() == nil {
		err := e.probe(ctx)
		if err == nil {
			e.setHealth(true, "", "")
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		e.ingressAlert(err)
		if sinkEnded(err) {
			e.stop(err)
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

func (e *Engine) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	prober := e.o.Prober
	if prober == nil {
		prober = e.o.Letters
	}
	if err := prober.Probe(ctx, e.o.Route.QuarantineTopic); err != nil || e.o.Seal.Topic == "" {
		return err
	}
	return prober.Probe(ctx, e.o.Seal.Topic)
}

// sinkEnded tells whether a sink can never answer again: whoever runs the pipeline opens another one.
func sinkEnded(err error) bool {
	switch pipeline.CodeOf(err) {
	case pipeline.CodeBrokerAuth, pipeline.CodeBrokerFatal:
		return true
	}
	return false
}

func (e *Engine) ingressAlert(err error) {
	e.metrics.ingress.Add(1)
	e.o.Log.Error(string(pipeline.CodeIngressFailed), "pipeline", e.o.Pipeline, "topic", e.o.Route.QuarantineTopic,
		"cause", err.Error(), "halted", pipeline.CodeFailureDomain,
		"remedy", pipeline.Lookup(pipeline.CodeFailureDomain).Remedy)
	e.setHealth(false, pipeline.CodeFailureDomain, e.o.Route.QuarantineTopic)
}

// pathDown halts consumption: neither the dead-letter topic nor a fallback takes failing records. It resumes by itself when a
// probe succeeds. Nothing is dropped and no local queue is used: the batches wait in memory, their offsets uncommitted.
func (e *Engine) pathDown(topic string, f pipeline.Failure) {
	if e.ingress.down {
		return
	}
	e.ingress = ingress{down: true, backoff: 100 * time.Millisecond, next: e.o.Clock().Add(100 * time.Millisecond)}
	e.ingressAlert(pipeline.Errorf(f.Code, topic, "%s", f.Reason()))
	for _, p := range e.order {
		e.pause(p, pauseIngress)
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
	e.wg.Go(func() { e.probes <- e.probe(ctx) }) // the channel has room for the one probe that is under way
}

// probed takes the answer of a probe.
func (e *Engine) probed(err error) {
	e.ingress.probing = false
	now := e.o.Clock()
	if err != nil {
		if sinkEnded(err) {
			e.stop(err)
		}
		if !e.ingress.down {
			e.pathDown(e.o.Route.QuarantineTopic, pipeline.Failure{Code: pipeline.CodeOf(err), Cause: err})
		}
		e.ingress.backoff = min(2*max(e.ingress.backoff, 100*time.Millisecond), 5*time.Second)
		e.ingress.next = now.Add(e.ingress.backoff)
		return
	}
	e.ingress.next = now.Add(e.lim.ProbeEvery)
	if !e.ingress.down {
		return
	}
	e.ingress.down = false
	e.o.Log.Info("the dead-letter path is back", "pipeline", e.o.Pipeline, "waiting_batches", len(e.waiting))
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
	if e.ingress.down {
		return
	}
	for _, p := range e.order {
		if p.outage() || p.late {
			return
		}
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
