package redrive

import (
	"context"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

// late is how far behind its slot a window may leave, half of what the spacing has to spare in a second. Later it takes a new
// slot: two windows that bunch up would exceed the rate in some half-open second (INV-PACE).
const late = 10 * time.Millisecond

// A window asks the ledger once more before it leaves, so early that the answer is there when its slot comes. A fast run, whose
// windows wait for milliseconds only, does so when one has waited for longWait: until then what was read with its intent is
// recent enough for the bound of one second (INV-HALT).
const (
	longWait = 100 * time.Millisecond
	fastRate = Rate(200)
	mostLead = 500 * time.Millisecond // how early it asks at most
	mostLate = 20                     // slots that one window may miss
)

// depart waits for the slot and looks once more whether it may go. A window that missed its slot takes another one, further
// ahead each time: a slow ledger costs speed, never exactness.
func (e *executor) depart(ctx context.Context, f *flight) error {
	for missed := 0; ; missed++ {
		if err := e.s.waitUntil(ctx, f.slot.Add(-e.lead)); err != nil {
			return err
		}
		if now := e.s.clock(); missed == 0 && e.rate <= fastRate || now.Sub(f.asked) >= longWait {
			if err := e.s.db.Write(ctx, func(tx *ledger.Tx) error { return e.allowed(tx) }); err != nil {
				return err
			}
			f.asked = now
			e.lead = min(max(e.lead, e.s.clock().Sub(now)), mostLead)
		}
		if err := e.s.waitUntil(ctx, f.slot); err != nil {
			return err
		}
		if err := e.s.boardHalted(e.m.Pipeline); err != nil { // INV-HALT
			return err
		}
		behind := e.s.clock().Sub(f.slot)
		if behind <= late {
			e.lead -= e.lead / 8
			return nil
		}
		if missed == mostLate {
			return &stopped{StateStopped, pipeline.Errorf(pipeline.CodeRedriveRate, string(e.digest), "the ledger is too slow to keep %s exactly", e.rate)}
		}
		e.lead = min(2*max(e.lead, behind), mostLead)
		if err := e.s.db.Write(ctx, func(tx *ledger.Tx) (err error) {
			f.asked = e.s.clock()
			if err = e.allowed(tx); err != nil {
				return err
			}
			if err = untake(tx, len(f.items), f.rows...); err == nil {
				f.rows = e.rows
				f.slot, err = take(tx, f.asked.Add(e.lead), len(f.items), f.rows...)
			}
			return err
		}); err != nil {
			return err
		}
	}
}

// allowed refuses to go on when the lease is lost, the run was stopped, redrives are halted, no approval is valid any more, or its
// rate is not (INV-APPROVED, INV-HALT).
func (e *executor) allowed(tx *ledger.Tx) error {
	if _, err := e.guard(tx); err != nil {
		return err
	}
	if _, err := e.s.approved(tx, e.m, e.digest); err != nil {
		return err
	}
	if e.rate > e.s.bound {
		return e.paced(tx)
	}
	return nil
}

// send hands the window over and waits for its completion, also when ctx ends meanwhile: what is in flight completes.
func (e *executor) send(ctx context.Context, f *flight) error {
	done := context.WithoutCancel(ctx)
	at := e.s.clock()
	msgs, of := f.msgs, f.of
	for i := range msgs { // the present as its time, or the broker's retention would take it away
		msgs[i].TimeMS = at.UnixMilli()
	}
	for {
		if e.tx != nil {
			if err := e.tx.Begin(); err != nil {
				return e.unsent(done, f, err)
			}
		}
		sending := &pipeline.Sending{Msgs: msgs}
		for {
			err := e.sink.Send(sending)
			if err == nil {
				break
			}
			if err != pipeline.ErrFull {
				e.abort(done)
				return e.unsent(done, f, err)
			}
			if err := e.s.wait(done, 5*time.Millisecond); err != nil {
				e.abort(done)
				return e.unsent(done, f, err)
			}
		}
		back, err := e.completed(done, sending)
		if err != nil {
			return err // the intent stays open
		}
		good, goodOf, refusedNow, unsure := e.sort(back, of, f)
		if e.tx == nil {
			e.slow = max(e.slow, e.s.clock().Sub(at))
			if err := e.record(done, f, f.sentAt(good, goodOf), "sent"); err != nil {
				return err
			}
			if unsure > 0 {
				return pipeline.Errorf(pipeline.CodeRedriveUncertain, string(e.digest), "%d items were not acknowledged: they may have been sent", unsure)
			}
			return nil
		}
		if refusedNow+unsure > 0 { // all or nothing: again without those that were refused
			if err := e.tx.Abort(done); err != nil {
				return pipeline.Errorf(pipeline.CodeRedriveUncertain, string(e.digest), "the transaction could not be aborted: %w", err)
			}
			if unsure > 0 {
				return e.unsent(done, f, pipeline.Errorf(pipeline.CodeTxAborted, string(e.digest), "the destination did not acknowledge; the transaction was aborted"))
			}
			if len(good) == 0 {
				return e.record(done, f, nil, "failed")
			}
			msgs, of = good, goodOf
			continue
		}
		if err := e.tx.Commit(done, nil, nil); err != nil {
			if pipeline.CodeOf(err) == pipeline.CodeTxAborted {
				return e.unsent(done, f, err)
			}
			return pipeline.Errorf(pipeline.CodeRedriveUncertain, string(e.digest), "the transaction's end is not known: %w", err)
		}
		e.slow = max(e.slow, e.s.clock().Sub(at))
		return e.record(done, f, f.sentAt(good, goodOf), "sent")
	}
}

func (e *executor) abort(ctx context.Context) {
	if e.tx != nil {
		if err := e.tx.Abort(ctx); err != nil {
			e.s.log.Warn("a transaction could not be aborted", "manifest", e.digest, "code", pipeline.CodeOf(err))
		}
	}
}

// completed waits for one Sending. The producer's own timeout ends it; if even that does not come, the lease does.
func (e *executor) completed(ctx context.Context, want *pipeline.Sending) (*pipeline.Sending, error) {
	limit, cancel := context.WithCancel(ctx)
	defer cancel()
	expired := make(chan struct{})
	go func() {
		defer close(expired)
		e.s.wait(limit, 2*e.s.lease)
	}()
	for {
		select {
		case s := <-e.sink.Done():
			if s == want {
				cancel()
				<-expired
				return s, nil
			}
		case <-expired:
			return nil, pipeline.Errorf(pipeline.CodeRedriveUncertain, string(e.digest), "the destination did not answer: its items may have been sent")
		}
	}
}

// sort parts a completed Sending: acknowledged messages, those that the broker refused for good (noted in f), and how many may
// or may not have been written.
func (e *executor) sort(s *pipeline.Sending, of []*custody.Item, f *flight) (good []pipeline.Message, goodOf []*custody.Item, refused, unsure int) {
	bad := 0
	for i := range s.Msgs {
		if bad < len(s.Bad) && s.Bad[bad].Msg == i {
			fail := &s.Bad[bad].Failure
			bad++
			switch c := pipeline.Lookup(fail.Code); c.Class {
			case pipeline.Transient, pipeline.Ambiguous:
				unsure++
			default:
				refused++
				f.failed = append(f.failed, failedItem{of[i].ID, fail.Code, fail.Reason()})
			}
			continue
		}
		good = append(good, s.Msgs[i])
		goodOf = append(goodOf, of[i])
	}
	return good, goodOf, refused, unsure
}

func (f *flight) sentAt(msgs []pipeline.Message, of []*custody.Item) []custody.SentAt {
	out := make([]custody.SentAt, len(msgs))
	for i := range msgs {
		out[i] = custody.SentAt{N: f.lines[of[i].ID].N, Item: of[i].ID, At: pipeline.Position{TP: pipeline.TP{Topic: msgs[i].Topic, Partition: msgs[i].Partition}, Offset: msgs[i].Offset}}
	}
	return out
}
