package engine

import (
	"time"

	"reprieve.dev/pipeline"
)

// callOf is the call that a record leaves by. Of the record's headers it has only what the route stage chose: a source's headers
// are not for a service.
func callOf(w *work, i int) pipeline.Message {
	o := &w.batch.Outs[i]
	return pipeline.Message{Topic: o.To.Topic, Partition: -1, Key: o.Key, Value: o.Value, Headers: o.Add, From: int32(i)}
}

// again decides, a rung lower, about a record one of whose messages was refused because of f: retry or quarantine. There is no way
// up, and others of its batch are sent already: where a rule cannot be evaluated, and is named, the failure's own code decides. A
// call may wait, where its service is known to be down or refuses our credentials: nothing happened, and it is made later.
func (c *core) again(w *work, f *pipeline.Failure, rung uint8, now time.Time, mayWait bool) (d pipeline.Decision, rule string) {
	d = w.batch.Policy.Decide(c.facts(w.batch, f, rung, now))
	switch {
	case d.Code == pipeline.CodePolicyRule:
		rule, d.Code = d.Rule, f.Code
	case d.Action == pipeline.ActPause && mayWait, d.Action == pipeline.ActRetry:
		return d, ""
	}
	d.Action, d.Topic = pipeline.ActQuarantine, c.o.Route.QuarantineTopic
	return d, rule
}

// lower composes what follows from the decision about a refused message.
func (c *core) lower(w *work, f *pipeline.Failure, d pipeline.Decision, now time.Time) {
	if d.Action == pipeline.ActPause {
		w.hold(*f)
		return
	}
	c.failed(w, f, d, now)
}

// callDone is the completions of calls, or nil (blocks for ever) if there are none.
func (e *Engine) callDone() <-chan *pipeline.Sending {
	if e.o.Calls == nil {
		return nil
	}
	return e.o.Calls.Done()
}
