package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/pipeline/engine"
	"reprieve.dev/tests/conformance/script"
)

func TestEachRecordEndsInOnePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		b.in(0, "a", "poison", "b", "flaky", "domain", "c", "nothing")
		b.start()
		b.after(10 * time.Second)
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		if got := join(b.values("out")); got != "a b c flaky" {
			t.Errorf("delivered %q", got)
		}
		if got := join(b.values("in.dlq")); got != "poison domain nothing" {
			t.Errorf("dead letters %q", got)
		}
		want := map[string]int64{"in delivered": 3, "in dead_lettered": 3, "in retried": 1, "in.retry retried": 1, "in.retry delivered": 1}
		if diff := cmp.Diff(want, b.settled()); diff != "" {
			t.Errorf("settlements (-want +got):\n%s", diff)
		}
		if b.committed("in", 0) != 7 || b.committed("in.retry", 0) != 2 {
			t.Errorf("committed %d and %d", b.committed("in", 0), b.committed("in.retry", 0))
		}
	})
}

// MC-FM-01: delivered once and retried at most five times, after 100, 200, 400, 800 and 1600 ms.
func TestTransientIsRetriedFiveTimesThenQuarantined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		var at []time.Duration
		begun := time.Now()
		b.stage.seen = func(*pipeline.Batch, int) { at = append(at, time.Since(begun)) }
		b.in(0, "down")
		b.start()
		b.after(30 * time.Second)
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		if len(at) != 6 {
			t.Fatalf("%d passes, want 6: %v", len(at), at)
		}
		for i, want := range []time.Duration{100, 200, 400, 800, 1600} {
			got := at[i+1] - at[i]
			if got < want*time.Millisecond || got > want*time.Millisecond+50*time.Millisecond {
				t.Errorf("wait %d was %s, want %d ms", i+1, got, want)
			}
		}
		l := b.letters()[0]
		if l.Decision.Code != pipeline.CodeRetryExhausted || l.Decision.Attempt != 5 || len(l.Attempts) != 6 {
			t.Errorf("letter %s attempt %d, %d attempts", l.Decision.Code, l.Decision.Attempt, len(l.Attempts))
		}
		if l.Original != (pipeline.Position{TP: pipeline.TP{Topic: "in"}, Offset: 0}) || l.At.Topic != "in.retry" {
			t.Errorf("original %s, at %s", l.Original, l.At)
		}
	})
}

func TestImmediateQuarantineHasAttemptZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		b.in(0, "poison")
		b.start()
		b.after(time.Second)
		_ = b.stop()
		l := b.letters()[0]
		if l.Decision.Attempt != 0 || l.Decision.Code != pipeline.CodeDecodeTruncated || l.Identity.Consumer != "g" || l.Faithful != deadletter.Inline {
			t.Errorf("letter %+v", l)
		}
	})
}

func TestCaseC34OneFailureNeverFailsItsBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		tp := pipeline.TP{Topic: "in"}
		b.in(0, slices.Repeat([]string{"old"}, 100)...)
		b.c.Trim(tp, 100)
		for i := 100; i < 110; i++ {
			switch i {
			case 103:
				b.in(0, "poison")
			case 107:
				b.in(0, "down")
			default:
				b.in(0, fmt.Sprint(i))
			}
		}
		b.start()
		b.after(50 * time.Millisecond) // before the first retry is due
		b.after(time.Second)
		if got := join(b.values("out")); got != "100 101 102 104 105 106 108 109" {
			t.Errorf("delivered %q", got)
		}
		l := b.letters()
		if len(l) != 1 || l[0].Original.Offset != 103 || l[0].Decision.Code != pipeline.CodeDecodeTruncated {
			t.Errorf("letters %v", l)
		}
		retries := b.c.All("in.retry")
		trail, _, err := deadletter.ParseTrail("in.retry", &retries[0], testRing)
		if err != nil || trail.Original.Offset != 107 || trail.Attempts[0].Code != pipeline.CodeRegistryUnavailable {
			t.Errorf("retry %+v, %v", trail, err)
		}
		if b.committed("in", 0) != 110 {
			t.Errorf("committed %d, want 110", b.committed("in", 0))
		}
		b.after(20 * time.Second)
		_ = b.stop()
		if len(b.values("out")) != 8 || len(b.letters()) != 2 {
			t.Errorf("written again: out %v, letters %d", b.values("out"), len(b.letters()))
		}
	})
}

func TestRefusedLetterHaltsAndResumesByItself(t *testing.T) { // ADV-FD-01
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 2)
		b.start()
		b.after(time.Second)
		b.c.Refuse("in.dlq", pipeline.CodeSendTimeout, -1)
		b.in(0, "a", "poison", "b")
		b.in(1, "c")
		b.after(3 * time.Second)
		if h := b.health.Load(); h.Ready || h.Code != pipeline.CodeFailureDomain {
			t.Errorf("health %+v", h)
		}
		if got := b.committed("in", 0); got > 0 {
			t.Errorf("offset %d is committed while a letter is nowhere", got)
		}
		b.in(0, "later")
		b.after(3 * time.Second)
		if slices.Contains(b.values("out"), "later") {
			t.Error("consumption went on while nothing can be quarantined")
		}
		b.c.Refuse("in.dlq", "", 0)
		b.after(10 * time.Second)
		if h := b.health.Load(); !h.Ready {
			t.Errorf("not ready again: %+v", h)
		}
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		if join(b.values("in.dlq")) != "poison" || !slices.Contains(b.values("out"), "later") || b.committed("in", 0) != 4 {
			t.Errorf("dlq %v, out %v, committed %d", b.values("in.dlq"), b.values("out"), b.committed("in", 0))
		}
	})
}

func TestNothingIsReadBeforeTheDeadLetterPathAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		b.c.Refuse("in.dlq", pipeline.CodeSendDenied, -1)
		b.in(0, "a")
		b.start()
		b.after(5 * time.Second)
		if len(b.values("out")) != 0 || b.health.Load().Ready {
			t.Error("records were read although nothing could be quarantined")
		}
		b.c.Refuse("in.dlq", "", 0)
		b.after(10 * time.Second)
		_ = b.stop()
		if join(b.values("out")) != "a" {
			t.Errorf("out %v", b.values("out"))
		}
	})
}

// endingProber answers as a sink that is at its end.
type endingProber struct {
	pipeline.Sink
	ended atomic.Bool
}

func (p *endingProber) Probe(ctx context.Context, topic string) error {
	if p.ended.Load() {
		return pipeline.Errorf(pipeline.CodeBrokerAuth, "letters", "the password is wrong")
	}
	return p.Sink.Probe(ctx, topic)
}

func TestASinkAtItsEndEndsThePipelineWithTheReason(t *testing.T) {
	for name, at := range map[string]time.Duration{"at the start": 0, "while idle": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, 1)
				prober := &endingProber{Sink: b.sink}
				prober.ended.Store(at == 0)
				b.o.Prober = prober
				b.start()
				b.after(at)
				prober.ended.Store(true)
				b.after(time.Minute)
				select {
				case err := <-b.ended:
					if pipeline.CodeOf(err) != pipeline.CodeBrokerAuth {
						t.Errorf("ended with %v", err)
					}
				default:
					t.Error("it asks a sink for ever that can answer no more")
					b.cancel()
					<-b.ended
				}
				_ = b.src.Close()
			})
		})
	}
}

func TestRefusedEffectGoesDownTheLadder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		b.in(0, "lost", "fine")
		b.start()
		b.after(time.Second)
		_ = b.stop()
		l := b.letters()
		if len(l) != 1 || l[0].Decision.Code != pipeline.CodeSendTopicMissing || join(b.values("out")) != "fine" || b.committed("in", 0) != 2 {
			t.Errorf("letters %v, out %v, committed %d", l, b.values("out"), b.committed("in", 0))
		}
	})
}

func TestRefusedRetryIsQuarantined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		b.c.Refuse("in.retry", pipeline.CodeSendTimeout, -1)
		b.in(0, "down")
		b.start()
		b.after(time.Second)
		_ = b.stop()
		if l := b.letters(); len(l) != 1 || b.committed("in", 0) != 1 {
			t.Errorf("letters %v, committed %d", l, b.committed("in", 0))
		}
	})
}

func TestLetterThatIsTooLargeLosesItsValueOnly(t *testing.T) { // case C29
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		b.c.DeleteTopic("in.dlq")
		b.c.CreateTopic("in.dlq", 1, map[string]string{"max.message.bytes": "4000"})
		b.in(0, "poison"+string(bytes.Repeat([]byte("x"), 5000)))
		b.start()
		b.after(time.Second)
		_ = b.stop()
		l := b.letters()
		if len(l) != 1 || l[0].Value != nil || l[0].Faithful != deadletter.Source || l[0].DigestFaithful == "" || b.committed("in", 0) != 1 {
			t.Fatalf("letters %+v, committed %d", l, b.committed("in", 0))
		}
		if h := b.health.Load(); !h.Ready {
			t.Error("too large was taken for an outage")
		}
	})
}

func TestPanicCostsOnlyItsRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		b.in(0, "a", "panic", "b", "poison", "flaky")
		b.start()
		b.after(5 * time.Second)
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		if join(b.values("out")) != "a b flaky" {
			t.Errorf("out %v", b.values("out"))
		}
		l := b.letters()
		if len(l) != 2 || l[0].Decision.Code != pipeline.CodePanic || !bytes.Contains([]byte(l[0].Stack), []byte("engine_test")) {
			t.Errorf("letters %+v", l[0])
		}
		if b.committed("in", 0) != 5 {
			t.Errorf("committed %d", b.committed("in", 0))
		}
	})
}

func TestARecordThatMayNeitherGoOnNorLeaveWaitsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 2)
		b.stage.denied.Store(true)
		b.in(0, "a", "denied", "b")
		b.in(1, "c")
		b.start()
		b.after(5 * time.Second)
		if got := b.values("out"); len(got) != 3 || slices.Contains(got, "denied") || b.committed("in", 0) != 1 {
			t.Errorf("out %v, committed %d", got, b.committed("in", 0))
		}
		if h := b.health.Load(); h.Ready || h.Code != pipeline.CodeRegistryDenied {
			t.Errorf("health %+v", h)
		}
		if len(b.letters()) != 0 {
			t.Error("the topic is drained into the dead-letter topic")
		}
		b.stage.denied.Store(false)
		b.after(60 * time.Second)
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		if got := b.values("out"); len(got) != 4 || !slices.Contains(got, "denied") || b.committed("in", 0) != 3 || !b.health.Load().Ready {
			t.Errorf("out %v, committed %d", b.values("out"), b.committed("in", 0))
		}
	})
}

func TestRevokedPartitionIsFinishedAndCommittedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		b.start()
		b.after(time.Second)
		b.sink.Hold()
		b.in(0, "a", "b")
		b.after(100 * time.Millisecond)
		b.src.Revoke(pipeline.TP{Topic: "in"})
		time.AfterFunc(2*time.Second, b.sink.Flow)
		b.after(5 * time.Second)
		if b.committed("in", 0) != 2 || join(b.values("out")) != "a b" {
			t.Errorf("committed %d, out %v", b.committed("in", 0), b.values("out"))
		}
		_ = b.stop()
	})
}

func TestCaseC28LateWorkOfALostPartitionIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		b.start()
		b.after(time.Second)
		b.sink.Hold()
		b.in(0, "a")
		b.after(100 * time.Millisecond)
		other := b.c.Source(script.SourceOptions{Group: "g", Topics: []string{"in"}})
		b.src.Lose(pipeline.TP{Topic: "in"})
		b.after(100 * time.Millisecond)
		// the taker commits far beyond
		for range 20 {
			ev, err := other.Poll(0)
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := ev.(pipeline.Assigned); ok {
				break
			}
		}
		_ = other.Commit(map[pipeline.TP]pipeline.Checkpoint{{Topic: "in"}: {Next: 61}})
		taken := b.committed("in", 0)
		b.sink.Flow() // the late acknowledgement
		b.after(5 * time.Second)
		if got := b.committed("in", 0); got < taken {
			t.Errorf("committed fell from %d to %d", taken, got)
		}
		_ = b.stop()
		if b.src.Strangers() != 0 {
			t.Error("a commit for a foreign partition was tried")
		}
	})
}

func TestRestartDoesNothingTwiceInTheRetryLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		b.in(0, "down")
		b.start()
		b.after(1600 * time.Millisecond) // its fifth retry is due 1.6 s from now
		b.in(0, "flaky", "flaky2")       // their retries stand behind it and are due before it
		b.after(600 * time.Millisecond)
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		if got := join(b.values("out")); got != "flaky flaky2" {
			t.Fatalf("out %q", got)
		}
		cp := b.c.Committed("g")[pipeline.TP{Topic: "in.retry"}]
		if cp.Ahead.Empty() {
			t.Fatal("nothing is settled ahead: the test shows nothing")
		}
		b.join()
		b.start()
		b.after(20 * time.Second)
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		if got := join(b.values("out")); got != "flaky flaky2" {
			t.Errorf("out %q: something was done twice", got)
		}
		for _, l := range b.letters() {
			if l.Decision.Attempt != 5 || l.Decision.Code != pipeline.CodeRetryExhausted {
				t.Errorf("letter %s attempt %d", l.Decision.Code, l.Decision.Attempt)
			}
		}
		if len(b.letters()) != 1 {
			t.Errorf("%d letters", len(b.letters()))
		}
	})
}

func TestUnsignedRetryRecordIsNotBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		b.c.Append(pipeline.TP{Topic: "in.retry"}, pipeline.Record{Value: []byte("a"), Headers: []pipeline.Header{
			{Name: "X-Attempt-Count", Value: []byte("4")}, {Name: "reprieve-quarantine-id", Value: []byte("qforged")}}})
		b.start()
		b.after(time.Second)
		_ = b.stop()
		l := b.letters()
		if len(l) != 1 || l[0].Decision.Code != pipeline.CodeLineage || l[0].Decision.Attempt != 0 || l[0].Item == "qforged" {
			t.Errorf("letters %+v", l)
		}
	})
}

func TestRedrivenRecordBringsItsOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		m := pipeline.Message{Topic: "in.retry", Value: []byte("mended"), Key: []byte("k")}
		trail := pipeline.Trail{Item: "qitem", Redrive: "sha256:m", Try: 2, Original: pipeline.Position{TP: pipeline.TP{Topic: "in"}, Offset: 5}}
		if err := deadletter.AppendTrail(&m, &trail, pipeline.Identity{Tenant: "acme"}, nil, 0, testRing); err != nil {
			t.Fatal(err)
		}
		b.c.Append(pipeline.TP{Topic: "in.retry"}, pipeline.Record{Key: m.Key, Value: m.Value, Headers: m.Headers})
		b.start()
		b.after(2 * time.Second)
		_ = b.stop()
		recs := b.c.All("reprieve.outcomes")
		if len(recs) != 1 {
			t.Fatalf("%d outcomes", len(recs))
		}
		o, err := deadletter.ParseOutcome(&recs[0], testRing)
		if err != nil || o.Item != "qitem" || o.Try != 2 || o.Result != pipeline.Forwarded || o.At.Topic != "in.retry" {
			t.Errorf("outcome %+v, %v", o, err)
		}
		out := b.c.All("out")
		if len(out) != 1 || len(out[0].Headers) != 0 {
			t.Errorf("the signed trail left with the record: %v", out[0].Headers)
		}
		if b.committed("in.retry", 0) != 1 {
			t.Errorf("committed %d", b.committed("in.retry", 0))
		}
	})
}

func TestOutcomeIsWrittenBeforeTheOffset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		m := pipeline.Message{Topic: "in.retry", Value: []byte("mended")}
		trail := pipeline.Trail{Item: "qitem", Redrive: "sha256:m", Try: 1, Original: pipeline.Position{TP: pipeline.TP{Topic: "in"}}}
		_ = deadletter.AppendTrail(&m, &trail, pipeline.Identity{Tenant: "acme"}, nil, 0, testRing)
		b.c.Append(pipeline.TP{Topic: "in.retry"}, pipeline.Record{Value: m.Value, Headers: m.Headers})
		b.c.Refuse("reprieve.outcomes", pipeline.CodeSendTimeout, 3)
		b.start()
		b.after(20 * time.Second)
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		if len(b.c.All("reprieve.outcomes")) != 1 || len(b.values("out")) != 1 || b.committed("in.retry", 0) != 1 {
			t.Errorf("outcomes %d, out %v, committed %d", len(b.c.All("reprieve.outcomes")), b.values("out"), b.committed("in.retry", 0))
		}
	})
}

func TestFullSinkIsBackPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 2)
		b.start()
		b.after(time.Second)
		b.sink.SetFull(true)
		for i := range 200 {
			b.in(int32(i%2), fmt.Sprint(i))
		}
		b.after(time.Second)
		b.sink.SetFull(false)
		b.after(5 * time.Second)
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		if n := len(b.values("out")); n != 200 {
			t.Errorf("%d of 200 delivered", n)
		}
	})
}

func TestDrainThatTakesTooLongSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		b.start()
		b.after(time.Second)
		b.sink.Hold()
		b.in(0, "a")
		b.after(time.Second)
		if err := b.stop(); pipeline.CodeOf(err) != pipeline.CodeDrainTimeout {
			t.Errorf("ended with %v", err)
		}
		if b.committed("in", 0) > 0 {
			t.Error("an unacknowledged record is committed")
		}
		b.sink.Flow()
	})
}

func TestStageErrorEndsThePipeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		b.o.Stages = append([]engine.Stage{{Name: "bad", Stage: failing{}}}, b.o.Stages...)
		b.in(0, "a")
		b.start()
		if err := <-b.ended; err != errBroken {
			t.Errorf("ended with %v", err)
		}
	})
}

type failing struct{}

func (failing) Process(context.Context, *pipeline.Batch) error { return errBroken }

func TestConditionalStageSkipsOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		b.o.Stages = append([]engine.Stage{{Name: "only-x", Stage: refuseAll{}, When: startsWith("x")}}, b.o.Stages...)
		b.in(0, "a", "x1", "b", "err")
		b.start()
		b.after(time.Second)
		_ = b.stop()
		l := b.letters()
		if join(b.values("out")) != "a b" || len(l) != 2 || l[1].Decision.Code != pipeline.CodeStageCondition {
			t.Errorf("out %v, letters %v", b.values("out"), l)
		}
	})
}

type refuseAll struct{}

func (refuseAll) Process(_ context.Context, b *pipeline.Batch) error {
	for i := range b.Recs {
		if b.Live(i) {
			b.Fail(i, pipeline.Failure{Stage: "x", Code: pipeline.CodeRejected})
		}
	}
	return nil
}

type startsWith string

func (startsWith) ReadsView() bool { return false }

func (s startsWith) Eval(b *pipeline.Batch, i int) (bool, error) {
	if bytes.HasPrefix(b.Recs[i].Value, []byte("err")) {
		return false, errBroken
	}
	return bytes.HasPrefix(b.Recs[i].Value, []byte(s)), nil
}
