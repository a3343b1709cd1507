package engine

import (
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
)

// work is the engine's slot in every batch: the decisions about it and the messages made from it.
type work struct {
	batch  *pipeline.Batch
	part   *part // nil in Try
	single bool  // settled record by record (retry lane, or split after a panic)
	extra  bool  // one more in work than was handed to the loop

	decisions []pipeline.Decision    // parallel to batch.Failures()
	what      []pipeline.Disposition // parallel to batch.Recs; Pending: held or skipped
	hdrs      []pipeline.Header      // backing of header lists
	effects   pipeline.Sending       // what is delivered and retried
	letters   pipeline.Sending
	spare     pipeline.Sending  // letters that go to the fallback store
	calls     pipeline.Sending  // what is delivered by a call
	open      int               // sendings not complete
	tx        uint32            // the transaction that it is sent in; 0 is none
	told      bool              // the effects are acknowledged; what is sent now are outcomes of redriven records
	stall     *pipeline.Failure // why the first record of held may neither go on nor leave
	held      []heldRecord      // records that may not: they stay unsettled and go through the stages again later
	tries     []uint8           // of a batch of records that were held: how often each was really tried
	shapes    map[int32]shape   // of letters that were refused as too large
	aside     []int32           // records that are too large for their topics: they leave by way of the fallback store alone
	hidden    []int32           // records that could not be redacted: nothing of them is shown
}

func (w *work) reset(b *pipeline.Batch, p *part) {
	w.batch, w.part, w.single, w.extra = b, p, b.Lane == pipeline.Retry, false
	w.decisions, w.what = w.decisions[:0], w.what[:0]
	clear(w.hdrs)
	w.hdrs, w.open, w.stall, w.told, w.tx, w.held = w.hdrs[:0], 0, nil, false, 0, w.held[:0]
	w.shapes, w.hidden, w.aside = nil, w.hidden[:0], w.aside[:0]
	for _, s := range w.sendings() {
		clear(s.Msgs)
		s.Msgs, s.Bad, s.Batch, s.Owner = s.Msgs[:0], s.Bad[:0], b, w
	}
}

// sendings are what a batch sends at once, a group for each sink.
func (w *work) sendings() [4]*pipeline.Sending {
	return [...]*pipeline.Sending{&w.effects, &w.letters, &w.spare, &w.calls}
}

// decide makes the decision of each failed record and composes all messages. It is pure but for the clock value.
func (c *core) decide(w *work, now time.Time) {
	b := w.batch
	w.decisions = w.decisions[:0]
	for i := range b.Failures() {
		f := &b.Failures()[i]
		rung := uint8(0)
		if w.part != nil {
			rung = w.part.refused[b.Recs[f.Index].Offset].rung
		}
		d := b.Policy.Decide(c.facts(b, f, rung, now))
		w.decisions = append(w.decisions, d)
	}
	c.compose(w, now)
}

// facts is what the policy may know of a failed record.
func (c *core) facts(b *pipeline.Batch, f *pipeline.Failure, rung uint8, now time.Time) pipeline.Facts {
	i := int(f.Index)
	r := &b.Recs[i]
	facts := pipeline.Facts{
		Code: f.Code, Class: pipeline.Lookup(f.Code).Class, Stage: f.Stage, Lane: b.Lane, Rung: rung, NowMS: now.UnixMilli(),
		FirstMS: r.TimeMS, RetryAfter: f.RetryAfter, Topic: b.TP.Topic, Release: c.o.Release,
	}
	if t := r.Trail; t != nil {
		facts.Attempt, facts.FirstMS, facts.Topic = t.Attempt, t.OriginalMS, t.Original.Topic
		facts.Redriven = t.Redrive != ""
		if t.Redrive != "" && len(t.Attempts) > 0 {
			facts.FirstMS = t.Attempts[0].At.UnixMilli() // a redrive is young however old the record is
		} else if t.Redrive != "" {
			facts.FirstMS = now.UnixMilli()
		}
	}
	if v := b.Views[i]; v != nil {
		facts.Schema = v.Schema().String()
	}
	facts.Tenant = c.identity(b, i).Tenant
	facts.Unhealthy = facts.Class == pipeline.Transient && c.o.Unhealthy != nil && !c.atFault(b, f) && c.o.Unhealthy(f)
	return facts
}

// compose turns the batch and its decisions into messages. Pure: what it makes is only memory.
func (c *core) compose(w *work, now time.Time) {
	b := w.batch
	if cap(w.what) < b.Len() {
		w.what = make([]pipeline.Disposition, b.Len())
	}
	w.what = w.what[:b.Len()]
	next := 0
	for i := range b.Recs {
		w.what[i] = pipeline.Pending
		switch b.Mark(i) {
		case pipeline.MarkLive:
			w.what[i] = pipeline.Delivered
			switch b.Outs[i].To.Kind {
			case pipeline.TargetTopic:
				w.effects.Msgs = append(w.effects.Msgs, c.effect(w, i))
			case pipeline.TargetCall:
				w.calls.Msgs = append(w.calls.Msgs, callOf(w, i))
			}
		case pipeline.MarkFailed:
			f, d := &b.Failures()[next], w.decisions[next]
			next++
			if d.Action == pipeline.ActPause {
				held := *f
				if d.Code == pipeline.CodePolicyRule && f.Code != d.Code { // a rule about failures could not be evaluated
					held = pipeline.Failure{Index: f.Index, Stage: f.Stage, Code: d.Code, Params: []pipeline.Param{pipeline.Str("rule", d.Rule)}}
				}
				w.hold(held)
				break
			}
			c.failed(w, f, d, now)
		}
	}
}

// effect is the message of a record that goes on. Headers are the record's own, then what enrich added; no copy is made when
// there is nothing to add.
func (c *core) effect(w *work, i int) pipeline.Message {
	r, o := &w.batch.Recs[i], &w.batch.Outs[i]
	m := pipeline.Message{Topic: o.To.Topic, Partition: o.To.Partition, Key: o.Key, Value: o.Value, Headers: o.Headers, From: int32(i)}
	if len(o.Add) == 0 && r.Trail == nil {
		return m
	}
	at := len(w.hdrs)
	if r.Trail != nil {
		w.hdrs = deadletter.PassHeaders(w.hdrs, o.Headers, true)
	} else {
		w.hdrs = append(w.hdrs, o.Headers...)
	}
	w.hdrs = append(w.hdrs, o.Add...)
	m.Headers = w.hdrs[at:len(w.hdrs):len(w.hdrs)]
	return m
}

// failed composes the retry or the letter of one failed record.
func (c *core) failed(w *work, f *pipeline.Failure, d pipeline.Decision, now time.Time) {
	i := int(f.Index)
	r := &w.batch.Recs[i]
	switch d.Action {
	case pipeline.ActRetry:
		m := pipeline.Message{Topic: d.Topic, Partition: -1, Key: r.Key, Value: r.Value, From: f.Index}
		m.Headers = deadletter.PassHeaders(make([]pipeline.Header, 0, len(r.Headers)+24), r.Headers, r.Trail != nil)
		t := c.trail(w.batch, r, f, d, now)
		if err := deadletter.AppendTrail(&m, &t, t.Identity, f, d.NotBefore, c.o.Ring); err != nil {
			w.stalls(f, pipeline.CodeSealFailed, err)
			return
		}
		w.effects.Msgs = append(w.effects.Msgs, m)
		w.what[i] = pipeline.Retried
	default:
		s := w.shapes[f.Index]
		if w.part != nil {
			known := w.part.refused[r.Offset].shape
			s.bare, s.unvaulted = s.bare || known.bare, s.unvaulted || known.unvaulted
		}
		c.quarantine(w, f, d, now, s)
	}
}

func (w *work) stalls(f *pipeline.Failure, code pipeline.Code, err error) {
	if c := pipeline.CodeOf(err); c != "" {
		code = c
	}
	w.hold(pipeline.Failure{Index: f.Index, Stage: f.Stage, Code: code, Cause: err})
}

// hold keeps a record back that may neither go on nor leave; the others of its batch do.
func (w *work) hold(f pipeline.Failure) {
	w.what[f.Index] = pipeline.Pending
	w.held = append(w.held, heldRecord{f.Index, !f.Unasked})
	if w.stall == nil {
		w.stall = &f
	}
}

// identity is who the record is: what was signed at its first failure, else what can be read now.
func (c *core) identity(b *pipeline.Batch, i int) pipeline.Identity {
	r := &b.Recs[i]
	if r.Trail != nil && r.Trail.Identity.Tenant != "" {
		id := r.Trail.Identity
		id.Consumer, id.Release = c.o.Consumer, c.o.Release
		return id
	}
	id := c.o.Identify.Identify(b.TP.Topic, r, b.Views[i])
	id.Consumer, id.Release = c.o.Consumer, c.o.Release
	return id
}

// trail is the signed past that a retry carries.
func (c *core) trail(b *pipeline.Batch, r *pipeline.Record, f *pipeline.Failure, d pipeline.Decision, now time.Time) pipeline.Trail {
	var t pipeline.Trail
	if r.Trail != nil {
		t = *r.Trail
	} else {
		t = pipeline.Trail{Original: pipeline.Position{TP: b.TP, Offset: r.Offset}, OriginalMS: r.TimeMS, TimeType: r.TimeType}
	}
	t.Identity = c.identity(b, int(f.Index))
	t.Attempt, t.NotBefore = d.Attempt, d.NotBefore
	t.Attempts = append(t.Attempts[:len(t.Attempts):len(t.Attempts)],
		pipeline.Attempt{N: len(t.Attempts), At: now.UTC().Truncate(time.Millisecond), Code: f.Code})
	if t.Item == "" {
		t.Item = deadletter.QuarantineID(c.o.Identity, t.Identity, c.o.Cluster, t.Original, r.Value)
	}
	t.At = pipeline.Position{TP: b.TP, Offset: r.Offset}
	return t
}

// letter is the dead letter of one failed record, sanitised from source bytes, and what of it goes to the vault; nil is nothing.
func (c *core) letter(w *work, f *pipeline.Failure, d pipeline.Decision, now time.Time) (*deadletter.Letter, *pipeline.Clean) {
	b, i := w.batch, int(f.Index)
	r := &b.Recs[i]
	v := b.Views[i]
	if d.Code != "" && d.Code != f.Code { // the decision says more than the last failure: retries are exhausted
		last := *f
		last.Code, last.Params = d.Code, append([]pipeline.Param{pipeline.Str("cause", string(f.Code))}, f.Params...)
		f = &last
	}
	if v != nil {
		if err := v.Rebind(r.Value); err != nil {
			v = nil
		}
	}
	at := pipeline.Position{TP: b.TP, Offset: r.Offset}
	own := *r
	if r.Trail != nil { // what we signed ourselves at the last pass is written anew
		own.Headers = deadletter.PassHeaders(nil, r.Headers, true)
	}
	id := c.identity(b, i)
	l := &deadletter.Letter{
		Kind: deadletter.KindLetter, At: at, Original: at, Cluster: c.o.Cluster, OriginalMS: r.TimeMS, TimeType: r.TimeType,
		Pipeline: c.o.Pipeline, Data: c.o.Data, Failure: *f, Decision: d, Identity: id, Class: pipeline.Lookup(d.Code).Class, QuarantinedMS: now.UnixMilli(),
		DigestFaithful: pipeline.Digest(c.o.Identity.Digest(r.Value)),
		Stack:          c.o.Sanitize.Text(f.Stack), Reason: c.o.Sanitize.Text(f.Reason()), Exception: f.Origin,
	}
	if v != nil {
		l.Schema = v.Schema().String()
	} else {
		l.Schema = schemaParam(f)
	}
	if t := r.Trail; t != nil {
		l.Original, l.OriginalMS, l.TimeType = t.Original, t.OriginalMS, t.TimeType
		l.Attempts, l.Item, l.Redrive, l.Try, l.Generation = t.Attempts, t.Item, t.Redrive, t.Try, t.Generation
	}
	l.Attempts = append(l.Attempts[:len(l.Attempts):len(l.Attempts)],
		pipeline.Attempt{N: len(l.Attempts), At: now.UTC().Truncate(time.Millisecond), Code: f.Code})
	l.Fingerprint = deadletter.Fingerprint(c.o.Consumer, f)
	if l.Item == "" {
		l.Item = deadletter.QuarantineID(c.o.Identity, id, c.o.Cluster, l.Original, r.Value)
	}
	return l, c.sanitize(w, l, i, &own, v)
}

// schemaParam is the schema that a decode failure names: the record itself could not be read.
func schemaParam(f *pipeline.Failure) string {
	for _, p := range f.Params {
		if p.Name == "schema" {
			return p.Value()
		}
	}
	return ""
}
