package engine

import (
	"context"

	"reprieve.dev/pipeline"
)

// Tried is what a pipeline would do with one record: nothing was sent.
type Tried struct {
	Record   *pipeline.Record
	Failure  *pipeline.Failure // nil: it goes on
	Decision pipeline.Decision
	What     pipeline.Disposition
	Held     bool // not due yet
	View     pipeline.View
	Messages []pipeline.Message // Topic, Key, Value, Headers as they would be written; borrowed from the batch
	Stalled  *pipeline.Failure  // the partition would pause here, and why
}

// Trial runs batches through the same stages, decisions and composing as Run, without source, sinks and offsets.
type Trial struct{ core }

// NewTrial builds a trial. Source, Sink and Letters of o are not used.
func NewTrial(o Options) *Trial { return &Trial{newCore(o)} }

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
		for _, s := range [...]*pipeline.Sending{&w.effects, &w.letters} {
			for k := range s.Msgs {
				if s.Msgs[k].From == int32(i) {
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
