package control

import (
	"context"
	"errors"
	"time"

	"reprieve.dev/pipeline"
)

// request is one call of Publish on its way through the publishing goroutine.
type request struct {
	entries []Entry
	by      Signer
	raw     bool // republish as they are
	done    chan error
}

// fullWait is how long a sink that is full is left alone.
const fullWait = 10 * time.Millisecond

// Publish signs the entries, writes them and waits until all are acknowledged; then they are in the snapshot. Seq and time
// are set here. Nothing else of an entry is changed. Codes: ERR_CONTROL_NOT_READY (nothing was written: without the topic's
// end the next seq is unknown), ERR_INPUT_INVALID, ERR_PERMISSION_DENIED (by may not say this), and the code of a refused
// send. If ctx ends while a send is in flight, the entries may or may not be written.
func (b *Board) Publish(ctx context.Context, by Signer, entries ...Entry) error {
	if b.o.Sink == nil {
		return pipeline.Errorf(pipeline.CodePermissionDenied, b.o.Topic, "this board only reads")
	}
	if _, err := b.Snapshot(); err != nil {
		return err
	}
	return b.ask(ctx, &request{entries: entries, by: by, done: make(chan error, 1)})
}

// Halt stops redrive of a pipeline, of all with "". Any worker's or person's key will do.
func (b *Board) Halt(ctx context.Context, by Signer, writer, pipelineName, reason string) error {
	return b.Publish(ctx, by, NewHalt(pipelineName, writer, reason))
}

// Lift ends the halts of exactly this pipeline, as far as this person alone may: a halt of all pipelines takes
// Authority.Lifters of them. The snapshot says afterwards whether it is over. Codes as of Publish, and ERR_REDRIVE_STATE
// when nothing is halted.
func (b *Board) Lift(ctx context.Context, by Signer, person, pipelineName, reason string) error {
	s, err := b.Snapshot()
	if err != nil {
		return err
	}
	e, ok := s.NewLift(pipelineName, person, reason)
	if !ok {
		return pipeline.Errorf(pipeline.CodeRedriveState, b.o.Topic, "nothing is halted")
	}
	return b.Publish(ctx, by, e)
}

// heal writes winners again after somebody wrote over them: the topic is compacted, and a worker that starts cold would find
// only what came last. The bytes are as they were signed, so this needs no key of the writer.
func (b *Board) heal(again []Entry) {
	if b.o.Sink == nil || len(again) == 0 {
		return
	}
	select {
	case b.requests <- &request{entries: again, raw: true, done: make(chan error, 1)}:
	default: // the publishing goroutine is at work; the next look or replay asks again
	}
}

// older are the winners over which the entries that were just read wrote older ones. A key whose last message is the winner
// already was healed by another worker.
func older(s *Snapshot, read []Entry) (again []Entry) {
	last := map[Key]Entry{}
	for _, e := range read {
		if l, ok := last[e.Key]; !ok || e.offset > l.offset {
			last[e.Key] = e
		}
	}
	for k, l := range last {
		if e, ok := s.Get(k); ok && l.Seq < e.Seq && l.offset > e.offset {
			again = append(again, e)
		}
	}
	return again
}

func (b *Board) ask(ctx context.Context, r *request) error {
	select {
	case b.requests <- r:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// publish is the only caller of the sink: one request in flight at a time.
func (b *Board) publish(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-b.requests:
			r.done <- b.write(ctx, r)
		}
	}
}

func (b *Board) write(ctx context.Context, r *request) error {
	s, err := b.Snapshot()
	if err != nil {
		return err
	}
	msgs, entries, err := b.compose(s, r)
	if err != nil {
		return err
	}
	sending := &pipeline.Sending{Msgs: msgs}
	for {
		err := b.o.Sink.Send(sending)
		if err == nil {
			break
		}
		if !errors.Is(err, pipeline.ErrFull) {
			return err
		}
		wait := time.NewTimer(fullWait)
		select {
		case <-b.o.Sink.Done():
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return ctx.Err()
		}
		wait.Stop()
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case done := <-b.o.Sink.Done():
			if done != sending {
				continue
			}
			if len(done.Bad) > 0 {
				f := done.Bad[0].Failure
				return pipeline.Errorf(f.Code, string(msgs[done.Bad[0].Msg].Key), "%d of %d control entries were not written: %s", len(done.Bad), len(msgs), f.Reason())
			}
			for i := range entries {
				entries[i].offset = done.Msgs[i].Offset
			}
			b.apply(entries, 0)
			return nil
		}
	}
}

// compose gives each entry its seq and signature. What the Board itself would ignore is not written.
func (b *Board) compose(s *Snapshot, r *request) (msgs []pipeline.Message, entries []Entry, err error) {
	now := b.o.Clock().UnixMilli()
	for _, e := range r.entries {
		var m pipeline.Message
		if r.raw {
			m = pipeline.Message{Topic: b.o.Topic, Partition: 0, Key: []byte(e.Key.String()), Value: e.value, From: -1}
		} else {
			e.Seq, e.AtMS = s.nextSeq(e.Key), now
			if err := Encode(&m, b.o.Topic, &e, r.by); err != nil {
				return nil, nil, err
			}
		}
		checked, why := Decode(b.o.Topic, m.Key, m.Value, b.o.Authority)
		if why != "" {
			return nil, nil, pipeline.Errorf(pipeline.CodePermissionDenied, e.Key.String(), "this key may not write the entry: it would be ignored as %s", why)
		}
		msgs, entries = append(msgs, m), append(entries, checked)
	}
	return msgs, entries, nil
}
