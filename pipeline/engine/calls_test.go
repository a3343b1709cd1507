package engine_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/tests/conformance/script"
)

// calls gives the bench a service "pay": a topic of one partition, written by a sink of its own.
func (b *bench) calls() *script.Sink {
	b.c.CreateTopic("pay", 1, nil)
	s := b.c.Sink(script.SinkOptions{})
	b.o.Calls = s
	return s
}

func TestACallIsSettledWhenItIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		s := b.calls()
		s.Hold()
		b.c.Append(pipeline.TP{Topic: "in"}, pipeline.Record{Key: []byte("k"), Value: []byte("call 1"), Headers: []pipeline.Header{{Name: "secret", Value: []byte("x")}}})
		b.in(0, "a", "poison", "call 2")
		b.start()
		b.after(2 * time.Second)
		if got := b.committed("in", 0); got > 0 {
			t.Errorf("offset %d is committed before the service answered", got)
		}
		if join(b.values("out")) != "a" || len(b.letters()) != 1 {
			t.Errorf("others wait for the service: out %v, letters %d", b.values("out"), len(b.letters()))
		}
		s.Flow()
		b.after(time.Second)
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		if join(b.values("pay")) != "call 1 call 2" || b.committed("in", 0) != 4 || b.settled()["in delivered"] != 3 {
			t.Errorf("calls %v, committed %d, settled %v", b.values("pay"), b.committed("in", 0), b.settled())
		}
		if hs := b.c.All("pay")[0].Headers; len(hs) != 1 || hs[0].Name != "call-url" {
			t.Errorf("the headers of the source go to the service: %v", hs)
		}
	})
}

// The ladder of a call: a transient refusal is retried and called again, an ambiguous one is quarantined without a retry.
func TestARefusedCallGoesDownTheLadder(t *testing.T) {
	for _, exactly := range []bool{false, true} {
		t.Run(fmt.Sprintf("exactly_once=%v", exactly), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, 1)
				var tx *script.Tx
				if exactly {
					tx = b.exactlyOnce()
				}
				b.calls()
				b.c.Refuse("pay", pipeline.CodeHTTPUnavailable, 2)
				b.in(0, "call 1", "a", "call 2", "call 3", "poison")
				b.start()
				b.after(5 * time.Second)
				b.c.Refuse("pay", pipeline.CodeHTTPAmbiguous, 1)
				b.in(0, "call 4")
				b.after(5 * time.Second)
				if err := b.stop(); err != nil {
					t.Fatal(err)
				}
				if got := b.values("pay"); len(got) != 3 || !slices.Contains(got, "call 1") || !slices.Contains(got, "call 2") || slices.Contains(got, "call 4") {
					t.Errorf("calls %v", got)
				}
				l := b.letters()
				if len(l) != 2 || l[1].Decision.Code != pipeline.CodeHTTPAmbiguous || l[1].Decision.Attempt != 0 || l[1].Class != pipeline.Ambiguous {
					t.Errorf("letters %+v", l)
				}
				if join(b.values("out")) != "a" || b.committed("in", 0) != 6 || b.committed("in.retry", 0) != 2 {
					t.Errorf("out %v, committed %d and %d", b.values("out"), b.committed("in", 0), b.committed("in.retry", 0))
				}
				if s := b.settled(); s["in delivered"] != 2 || s["in retried"] != 2 || s["in dead_lettered"] != 2 || s["in.retry delivered"] != 2 {
					t.Errorf("settled %v", s)
				}
				if exactly {
					if _, aborts := tx.Counts(); aborts != 0 {
						t.Errorf("a refused call aborted %d transactions", aborts)
					}
				}
			})
		})
	}
}

// A transaction that aborts takes back what it wrote, not what it called: the call is made again, with the same key and body.
func TestAnAbortedTransactionRepeatsItsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		tx := b.exactlyOnce()
		b.calls()
		tx.FailCommit(pipeline.Errorf(pipeline.CodeTxAborted, "test", "the coordinator moved"))
		b.in(0, "call 1", "a", "poison")
		b.start()
		b.after(5 * time.Second)
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		if join(b.values("pay")) != "call 1 call 1" || join(b.values("out")) != "a" || len(b.letters()) != 1 || b.committed("in", 0) != 3 {
			t.Errorf("calls %v, out %v, letters %d, committed %d", b.values("pay"), b.values("out"), len(b.letters()), b.committed("in", 0))
		}
		all := b.c.All("pay")
		if string(all[0].Headers[0].Value) != string(all[1].Headers[0].Value) {
			t.Errorf("the repeated call is another one: %v", all)
		}
	})
}

// A message that is refused in the same batch dooms the transaction; the refused call beside it is not made again.
func TestARefusedCallIsRememberedWhenItsTransactionAborts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		tx := b.exactlyOnce()
		b.calls()
		b.c.Refuse("pay", pipeline.CodeHTTPRejected, 1)
		b.in(0, "call 1", "lost1", "a")
		b.start()
		b.after(5 * time.Second)
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		if len(b.values("pay")) != 0 || len(b.letters()) != 2 || join(b.values("out")) != "a" || b.committed("in", 0) != 3 {
			t.Errorf("calls %v, letters %d, out %v, committed %d", b.values("pay"), len(b.letters()), b.values("out"), b.committed("in", 0))
		}
		if _, aborts := tx.Counts(); aborts != 1 {
			t.Errorf("%d aborts", aborts)
		}
	})
}

// A service that takes no more is back-pressure: its partition is read no further, nothing fails, order is kept; the others go on.
func TestAFullServicePausesItsPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 2)
		s := b.calls()
		b.start()
		b.after(time.Second)
		s.SetFull(true)
		var want []string
		for i := range 50 {
			want = append(want, fmt.Sprintf("call %02d", i))
			b.in(0, want[i])
			b.in(1, fmt.Sprint("a", i))
			b.after(10 * time.Millisecond)
		}
		b.after(time.Second)
		if n := len(b.values("out")); n != 50 {
			t.Errorf("%d of 50 records of the other partition were delivered", n)
		}
		if n := b.src.Paused(); !slices.Contains(n, pipeline.TP{Topic: "in"}) || slices.Contains(n, pipeline.TP{Topic: "in", Partition: 1}) {
			t.Errorf("paused: %v", n)
		}
		s.SetFull(false)
		b.after(5 * time.Second)
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		if got := b.values("pay"); !slices.Equal(got, want) || len(b.letters()) != 0 {
			t.Errorf("calls %v, letters %d", got, len(b.letters()))
		}
	})
}

// What waits for a full sink when its partition goes is not sent by us any more, and takes no room.
func TestWhatWaitsForAFullServiceGoesWithItsPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		b.o.Limits.Batches = 2
		s := b.calls()
		b.start()
		b.after(time.Second)
		for i := range 5 {
			s.SetFull(true)
			b.in(0, fmt.Sprint("call ", i))
			b.after(100 * time.Millisecond)
			b.src.Lose(pipeline.TP{Topic: "in"})
			b.after(100 * time.Millisecond)
			s.SetFull(false)
			b.after(time.Second)
		}
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		if got := join(b.values("pay")); got != "call 0 call 1 call 2 call 3 call 4" || b.committed("in", 0) != 5 {
			t.Errorf("calls %q, committed %d", got, b.committed("in", 0))
		}
	})
}

func TestARedrivenCallBringsItsOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		s := b.calls()
		s.Hold()
		m := pipeline.Message{Topic: "in.retry", Value: []byte("call again"), Key: []byte("k")}
		trail := pipeline.Trail{Item: "qitem", Redrive: "sha256:m", Try: 1, Original: pipeline.Position{TP: pipeline.TP{Topic: "in"}}}
		if err := deadletter.AppendTrail(&m, &trail, pipeline.Identity{Tenant: "acme"}, nil, 0, testRing); err != nil {
			t.Fatal(err)
		}
		b.c.Append(pipeline.TP{Topic: "in.retry"}, pipeline.Record{Key: m.Key, Value: m.Value, Headers: m.Headers})
		b.start()
		b.after(2 * time.Second)
		if n := len(b.c.All("reprieve.outcomes")); n != 0 {
			t.Fatalf("%d outcomes before the service answered", n)
		}
		s.Flow()
		b.after(time.Second)
		_ = b.stop()
		recs := b.c.All("reprieve.outcomes")
		if len(recs) != 1 || len(b.values("pay")) != 1 {
			t.Fatalf("%d outcomes, %d calls", len(recs), len(b.values("pay")))
		}
		if o, err := deadletter.ParseOutcome(&recs[0], testRing); err != nil || o.Item != "qitem" || o.Result != pipeline.Forwarded {
			t.Errorf("outcome %+v, %v", o, err)
		}
	})
}
