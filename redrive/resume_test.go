package redrive

import (
	"context"
	"runtime"
	"testing"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/custody/custodytest"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/tests/conformance/script"
)

// until polls with a deadline: the run under test is another goroutine.
func until(t testing.TB, what string, f func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !f() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		runtime.Gosched()
	}
}

// stuck starts a run whose sink stops answering after some windows, as a killed executor leaves it: the broker has the last
// window, the ledger has its intent, nobody has the answer.
func (b *bench) stuck(p *Planned, after int, hold func(), held func() int) (done chan error) {
	done = make(chan error, 1)
	b.onWait = func(time.Duration) {
		if b.sentCount() >= after {
			hold()
		}
	}
	go func() {
		_, err := b.svc.Run(b.Ctx, custodytest.Operator, p.Digest)
		done <- err
	}()
	until(b.t, "the sink holds a window", func() bool { return held() > 0 })
	b.mu.Lock()
	b.onWait = nil
	b.mu.Unlock()
	return done
}

func TestKilledRunIsOnlyContinuedByResume(t *testing.T) {
	eachBench(t, func(t *testing.T, b *bench) {
		b.ready(20)
		p := b.plan(func(r *PlanRequest) { r.Rate = 50 })
		b.approve(p)
		done := b.stuck(p, 10, b.sink.Hold, b.sink.Held)
		sent := b.sentCount()

		other := b.opts
		other.Name = "exec-2"
		second := b.kafka.Sink(script.SinkOptions{})
		other.Send = func(context.Context, *Target, ledger.Lease) (pipeline.Sink, func(context.Context) error, error) {
			return second, nil, nil
		}
		svc := New(other)
		_, err := svc.Run(b.Ctx, custodytest.Operator, p.Digest)
		wantCode(t, err, pipeline.CodeRedriveState) // it may still live
		b.Turn(time.Minute)
		_, err = svc.Run(b.Ctx, custodytest.Operator, p.Digest)
		wantCode(t, err, pipeline.CodeRedriveUncertain)
		doubts, err := svc.Doubts(b.Ctx, custodytest.Operator, p.Digest)
		if err != nil {
			t.Fatal(err)
		}
		if len(doubts) != 1 || doubts[0].Found == nil {
			t.Fatalf("in doubt: %+v", doubts)
		}
		_, err = svc.Resume(b.Ctx, custodytest.Operator, p.Digest, Decision{Reason: "it was killed"})
		wantCode(t, err, pipeline.CodeRedriveUncertain)
		_, err = svc.Resume(b.Ctx, custodytest.Operator, p.Digest, Decision{Scan: true})
		wantCode(t, err, pipeline.CodeReasonMissing)
		if _, err := svc.Resume(b.Ctx, custodytest.Operator, p.Digest, Decision{Scan: true, Reason: "it was killed"}); err != nil {
			t.Fatal(err)
		}
		// The zombie hears its answer now: the window is not its own any more.
		b.sink.Flow()
		wantCode(t, <-done, pipeline.CodeRedriveState)
		if b.sentCount() != sent {
			t.Error("the zombie sent")
		}
		st, err := svc.Run(b.Ctx, custodytest.Operator, p.Digest)
		if err != nil {
			t.Fatal(err)
		}
		if st.State != StateDone || b.sentCount() != 20 || st.Counts.Attempts != 20 {
			t.Errorf("%s %+v, %d sent", st.State, st.Counts, b.sentCount())
		}
	})
}

// What a killed run was sending may be reconciled before anybody resumes it: nothing is in doubt then, and the manifest runs on.
func TestEvidenceLeavesNothingInDoubt(t *testing.T) {
	eachBench(t, func(t *testing.T, b *bench) {
		b.outcome = func(*pipeline.Trail) pipeline.Result { return pipeline.Applied }
		b.ready(20)
		p := b.plan(func(r *PlanRequest) { r.Rate = 50 })
		b.approve(p)
		done := b.stuck(p, 10, b.sink.Hold, b.sink.Held)
		b.engine() // it reads the record whose answer the killed run never had
		other := b.opts
		other.Name = "exec-2"
		second := b.kafka.Sink(script.SinkOptions{})
		other.Send = func(context.Context, *Target, ledger.Lease) (pipeline.Sink, func(context.Context) error, error) {
			return second, nil, nil
		}
		svc := New(other)
		_, err := svc.Run(b.Ctx, custodytest.Operator, p.Digest)
		wantCode(t, err, pipeline.CodeRedriveState) // the first may still live
		b.Turn(time.Minute)
		doubts, err := svc.Doubts(b.Ctx, custodytest.Operator, p.Digest)
		if err != nil || len(doubts) != 0 {
			t.Fatalf("in doubt: %+v %v", doubts, err)
		}
		_, err = svc.Resume(b.Ctx, custodytest.Operator, p.Digest, Decision{Scan: true, Reason: "it was killed"})
		wantCode(t, err, pipeline.CodeRedriveState) // nothing to decide: run it
		st, err := svc.Run(b.Ctx, custodytest.Operator, p.Digest)
		if err != nil {
			t.Fatal(err)
		}
		if st.State != StateDone || b.sentCount() != 20 || st.Counts.Reconciled != 20 || st.Counts.Sending != 0 {
			t.Errorf("%s %+v, %d sent", st.State, st.Counts, b.sentCount())
		}
		b.sink.Flow()
		wantCode(t, <-done, pipeline.CodeRedriveState)
	})
}

func TestResumeByDecision(t *testing.T) {
	b := newBench(t, sqliteStore(t))
	b.ready(5)
	p := b.plan(func(r *PlanRequest) { r.Rate = 50 })
	b.approve(p)
	done := b.stuck(p, 2, b.sink.Hold, b.sink.Held)
	b.Turn(time.Minute)
	doubts, err := b.svc.Doubts(b.Ctx, custodytest.Operator, p.Digest)
	if err != nil || len(doubts) != 1 {
		t.Fatalf("%v %+v", err, doubts)
	}
	id := doubts[0].Item
	if _, err := b.svc.Resume(b.Ctx, custodytest.Operator, p.Digest, Decision{Unsent: []pipeline.ID{id}, Reason: "the broker lost it"}); err != nil {
		t.Fatal(err)
	}
	if it := b.Show(t, id).Item; it.State != custody.Triaged || it.Try != 0 {
		t.Errorf("decided unsent: %s, try %d", it.State, it.Try)
	}
	_, err = b.svc.Resume(b.Ctx, custodytest.Operator, p.Digest, Decision{Scan: true, Reason: "again"})
	wantCode(t, err, pipeline.CodeRedriveState)
	b.sink.Flow()
	<-done
}

func TestFencedRunContinuesByItself(t *testing.T) {
	for name, inTopic := range map[string]bool{"CommittedButUnknown": true, "OpenTransaction": false} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, sqliteStore(t))
			b.ready(20)
			p := b.plan(func(r *PlanRequest) { r.Rate = 50 })
			b.approve(p)
			var opened []*script.Tx
			sender := func(_ context.Context, _ *Target, l ledger.Lease) (pipeline.Sink, func(context.Context) error, error) {
				tx := b.kafka.Tx("reprieve-"+l.Name, script.SinkOptions{})
				b.mu.Lock()
				opened = append(opened, tx)
				b.mu.Unlock()
				return tx, nil, nil
			}
			b.opts.Send, b.opts.Fenced = sender, true
			b.svc = New(b.opts)
			first := func() *script.Tx {
				b.mu.Lock()
				defer b.mu.Unlock()
				return opened[0]
			}
			done := b.stuck(p, 10, func() { first().Hold() }, func() int {
				b.mu.Lock()
				n := len(opened)
				b.mu.Unlock()
				if n == 0 {
					return 0
				}
				return first().Held()
			})
			if inTopic { // it was killed after its commit and before it wrote so into the ledger
				if err := first().Commit(b.Ctx, nil, nil); err != nil {
					t.Fatal(err)
				}
			}
			b.Turn(time.Minute)
			other := b.opts
			other.Name = "exec-2"
			st, err := New(other).Run(b.Ctx, custodytest.Operator, p.Digest)
			if err != nil {
				t.Fatal(err)
			}
			if st.State != StateDone || b.sentCount() != 20 {
				t.Errorf("%s %+v, %d records", st.State, st.Counts, b.sentCount())
			}
			first().Flow()
			<-done
			if b.sentCount() != 20 {
				t.Errorf("the zombie wrote: %d records", b.sentCount())
			}
		})
	}
}

func TestTransactionLeavesOutWhatIsRefused(t *testing.T) {
	b := newBench(t, sqliteStore(t))
	ids := b.ready(400)
	b.opts.Send = func(_ context.Context, _ *Target, l ledger.Lease) (pipeline.Sink, func(context.Context) error, error) {
		return b.kafka.Tx(l.Name, script.SinkOptions{}), nil, nil
	}
	b.svc = New(b.opts)
	p := b.plan(func(r *PlanRequest) { r.Rate = 6400 })
	b.approve(p)
	once := false
	b.onWait = func(time.Duration) {
		if !once && b.sentCount() > 100 {
			once = true
			b.kafka.Refuse(retry, pipeline.CodeTooLarge, 1)
		}
	}
	st := b.run(p)
	if st.State != StatePartial || st.Counts.Reconciled != int64(len(ids)-1) || st.Counts.Unsendable != 1 || b.sentCount() != len(ids)-1 {
		t.Errorf("%s %+v, %d sent", st.State, st.Counts, b.sentCount())
	}
}

func TestRefusedSinkWithdrawsTheWindow(t *testing.T) {
	b := newBench(t, sqliteStore(t))
	ids := b.ready(5)
	p := b.plan(func(r *PlanRequest) { r.Rate = 50 })
	b.approve(p)
	b.sink.Fail(pipeline.Errorf(pipeline.CodeBrokerFatal, "script", "gone"))
	st, err := b.svc.Run(b.Ctx, custodytest.Operator, p.Digest)
	wantCode(t, err, pipeline.CodeBrokerFatal)
	if st.State != StateStopped || st.Counts.Planned != 5 || st.Counts.Sending != 0 {
		t.Errorf("%s %+v", st.State, st.Counts)
	}
	for _, id := range ids {
		if it := b.Show(t, id).Item; it.State != custody.Triaged || it.Try != 0 {
			t.Errorf("%s is %s, try %d", id, it.State, it.Try)
		}
	}
	b.sink.Fail(nil)
	if st := b.run(p); st.State != StateDone || b.sentCount() != 5 {
		t.Errorf("afterwards %s %+v", st.State, st.Counts)
	}
}

func TestUnansweredSendIsInDoubt(t *testing.T) {
	b := newBench(t, sqliteStore(t))
	b.ready(5)
	p := b.plan(func(r *PlanRequest) { r.Rate = 50 })
	b.approve(p)
	b.onWait = func(time.Duration) {
		if b.sentCount() == 2 {
			b.kafka.Refuse(retry, pipeline.CodeSendTimeout, 1)
		}
	}
	st, err := b.svc.Run(b.Ctx, custodytest.Operator, p.Digest)
	wantCode(t, err, pipeline.CodeRedriveUncertain)
	if st.State != StateUnclear || st.Counts.Sending != 1 {
		t.Errorf("%s %+v", st.State, st.Counts)
	}
	b.onWait = nil
	_, err = b.svc.Run(b.Ctx, custodytest.Operator, p.Digest)
	wantCode(t, err, pipeline.CodeRedriveUncertain)
	list, err := b.svc.Resume(b.Ctx, custodytest.Operator, p.Digest, Decision{Scan: true, Reason: "looked"})
	if err != nil || len(list) != 1 || list[0].Found != nil {
		t.Fatalf("%v %+v", err, list)
	}
	if st := b.run(p); st.State != StateDone || b.sentCount() != 5 {
		t.Errorf("afterwards %s %+v, %d sent", st.State, st.Counts, b.sentCount())
	}
}
