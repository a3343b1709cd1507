package engine

import (
	"context"
	"slices"
	"sync"

	"reprieve.dev/pipeline"
	"reprieve.dev/seal"
)

// Tried is what a pipeline would do with one record: nothing was sent.
type Tried struct {
	Record   *pipeline.Record
	Failure  *pipeline.Failure // nil: it goes on
	Decision pipeline.Decision
	What     pipeline.Disposition
	Held     bool               // not due yet
	View     pipeline.View      // nil also when the record could not be redacted: nothing of it is shown
	Messages []pipeline.Message // Topic, Key, Value, Headers as they would be written; borrowed from the batch
	Calls    []pipeline.Message // what would be called, as Options.Calls is given it; borrowed from the batch
	Stalled  *pipeline.Failure  // the partition would pause here, and why
}

// Trial runs batches through the same stages, decisions and composing as Run, without source, sinks and offsets.
type Trial struct {
	core
	// Answer stands for the services of routes: what a call is refused with, or nil. Without it calls are not made.
	Answer func(*pipeline.Message) *pipeline.Failure
}

// NewTrial builds a trial. Source and sinks of o are not used, and what it seals is sealed to a key that nobody has: it needs neither a
// ledger nor a control topic.
func NewTrial(o Options) *Trial {
	key := sync.OnceValues(func() (*seal.PrivateKey, error) { return seal.GeneratePrivateKey("throwaway") })
	o.Seal.Sealer = seal.NewSealer(func(string) (*seal.PublicKey, error) {
		k, err := key()
		if err != nil {
			return nil, err
		}
		return k.Public(), nil
	}, seal.SealerOptions{Clock: o.Clock})
	return &Trial{core: newCore(o)}
}

// Try processes b and calls each for its records in order. It releases the batch. The error is a stage that cannot go on.
func (t *Trial) Try(ctx context.Context, b *pipeline.Batch, each func(Tried) error) error {
	defer b.Release()
	w := t.slot.Of(b)
	p := newPart(b.TP, b.Lane, 0)
	w.reset(b, p)
	b.Policy = t.o.Policy(b.TP)
	if err := t.process(ctx, w); err != nil {
		if b.Len() != 1 {
			return err
		}
		t.isolate(w, err)
	}
	if err := t.fatal(); err != nil {
		return err
	}
	refused := t.answers(w)
	next := 0
	for i := range b.Recs {
		r := Tried{Record: &b.Recs[i], View: b.Views[i], Held: b.Mark(i) == pipeline.MarkHeld, Stalled: w.stall}
		if i < len(w.what) {
			r.What = w.what[i]
		}
		if b.Mark(i) == pipeline.MarkFailed {
			r.Failure, r.Decision = &b.Failures()[next], w.decisions[next]
			next++
		}
		if slices.Contains(w.hidden, int32(i)) || r.View != nil && (r.Failure != nil || r.Held || r.Stalled != nil) && !t.shows(b.TP.Topic, &r) {
			r.View = nil
		}
		if l, ok := refused[int32(i)]; ok {
			r.Failure, r.Decision = &l.failure, l.decision
		}
		for _, s := range w.sendings() {
			for k := range s.Msgs {
				switch {
				case s.Msgs[k].From != int32(i):
				case s == &w.calls:
					r.Calls = append(r.Calls, s.Msgs[k])
				default:
					r.Messages = append(r.Messages, s.Msgs[k])
				}
			}
		}
		if err := each(r); err != nil {
			return err
		}
	}
	return nil
}

// shows makes the view of a record that did not get to its end read what may be shown: the redact stage may not have seen it.
func (t *Trial) shows(topic string, r *Tried) bool {
	_, err := t.o.Sanitize.Sanitize(topic, r.Record, r.View)
	return err == nil
}

// lowered is a record whose call was refused.
type lowered struct {
	failure  pipeline.Failure
	decision pipeline.Decision
}

// answers asks what stands for the services, and decides again about records whose call was refused.
func (t *Trial) answers(w *work) map[int32]lowered {
	if t.Answer == nil || w.stall != nil {
		return nil
	}
	out := map[int32]lowered{}
	for k := range w.calls.Msgs {
		if f := t.Answer(&w.calls.Msgs[k]); f != nil {
			f.Index = w.calls.Msgs[k].From
			now := t.o.Clock()
			d, _ := t.again(w, f, rungOf(w.what[f.Index]), now, true)
			t.lower(w, f, d, now)
			out[f.Index] = lowered{*f, d}
		}
	}
	return out
}
