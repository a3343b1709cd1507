package script_test

import (
	"testing"

	"reprieve.dev/pipeline"
	"reprieve.dev/tests/conformance/script"
)

func poll[E any](t *testing.T, s *script.Source) E {
	t.Helper()
	ev, err := s.Poll(0)
	if err != nil {
		t.Fatal(err)
	}
	e, ok := ev.(E)
	if !ok {
		t.Fatalf("%T came, want %T", ev, e)
	}
	return e
}

func TestALossIsFollowedByANewAssignment(t *testing.T) {
	c := script.New(1)
	c.CreateTopic("t", 1, nil)
	tp := pipeline.TP{Topic: "t"}
	c.Append(tp, pipeline.Record{Value: []byte("a")}, pipeline.Record{Value: []byte("b")})
	s := c.Source(script.SourceOptions{Group: "g", Topics: []string{"t"}})
	first := poll[pipeline.Assigned](t, s)
	if b := poll[*pipeline.Batch](t, s); len(b.Recs) != 2 || b.Epoch != first.Epoch {
		t.Fatalf("%d records of epoch %d", len(b.Recs), b.Epoch)
	}
	s.Lose(tp)
	poll[pipeline.Lost](t, s)
	if err := s.Commit(map[pipeline.TP]pipeline.Checkpoint{tp: {Next: 2}}); err != nil {
		t.Fatal(err)
	}
	if s.Strangers() != 1 || len(c.Committed("g")) != 0 {
		t.Errorf("a lost partition was committed: %v", c.Committed("g"))
	}
	again := poll[pipeline.Assigned](t, s)
	if again.Epoch <= first.Epoch {
		t.Errorf("epoch %d after %d", again.Epoch, first.Epoch)
	}
	if b := poll[*pipeline.Batch](t, s); b.Recs[0].Offset != 0 || b.Epoch != again.Epoch {
		t.Errorf("it goes on at %d in epoch %d", b.Recs[0].Offset, b.Epoch)
	}
}

func TestCompletionsComeWhenTheyAreReleased(t *testing.T) {
	c := script.New(1)
	c.CreateTopic("t", 1, nil)
	k := c.Sink(script.SinkOptions{Hold: true, MaxInFlight: 2})
	one := &pipeline.Sending{Msgs: []pipeline.Message{{Topic: "t"}}}
	two := &pipeline.Sending{Msgs: []pipeline.Message{{Topic: "t"}}}
	for _, s := range []*pipeline.Sending{one, two} {
		if err := k.Send(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.Send(&pipeline.Sending{Msgs: []pipeline.Message{{Topic: "t"}}}); err != pipeline.ErrFull {
		t.Fatalf("a full sink answered %v", err)
	}
	select {
	case <-k.Done():
		t.Fatal("a completion came unasked")
	default:
	}
	if !k.ReleaseLast() || <-k.Done() != two {
		t.Error("the youngest did not come first")
	}
	if k.Release(1) != 1 || <-k.Done() != one || k.Held() != 0 {
		t.Error("the oldest did not come")
	}
}

func TestATopicRefusesForAWhile(t *testing.T) {
	c := script.New(1)
	c.CreateTopic("t", 1, nil)
	c.CreateTopic("u", 1, nil)
	c.Refuse("t", pipeline.CodeSendTimeout, 2)
	k := c.Sink(script.SinkOptions{})
	s := &pipeline.Sending{Msgs: []pipeline.Message{{Topic: "t", From: 4}, {Topic: "u"}, {Topic: "t", From: 6}, {Topic: "t"}}}
	if err := k.Send(s); err != nil {
		t.Fatal(err)
	}
	<-k.Done()
	if len(s.Bad) != 2 || s.Bad[0].Msg != 0 || s.Bad[1].Msg != 2 || s.Bad[1].Failure.Index != 6 || s.Bad[0].Failure.Code != pipeline.CodeSendTimeout {
		t.Errorf("refused: %+v", s.Bad)
	}
	if len(c.All("t")) != 1 || len(c.All("u")) != 1 {
		t.Errorf("%d and %d records arrived", len(c.All("t")), len(c.All("u")))
	}
}

func TestACommitThatFailsLeavesTheTransactionOpen(t *testing.T) {
	c := script.New(1)
	c.CreateTopic("t", 1, nil)
	x := c.Tx("id", script.SinkOptions{})
	if err := x.Begin(); err != nil {
		t.Fatal(err)
	}
	if err := x.Send(&pipeline.Sending{Msgs: []pipeline.Message{{Topic: "t"}}}); err != nil {
		t.Fatal(err)
	}
	<-x.Done()
	x.FailCommit(pipeline.Errorf(pipeline.CodeTxAborted, "id", "as the test says"))
	if err := x.Commit(t.Context(), nil, nil); pipeline.CodeOf(err) != pipeline.CodeTxAborted {
		t.Fatalf("Commit: %v", err)
	}
	if err := x.Abort(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(c.All("t")); n != 0 {
		t.Errorf("%d records of an aborted transaction are to be seen", n)
	}
	if commits, aborts := x.Counts(); commits != 0 || aborts != 1 {
		t.Errorf("%d commits and %d aborts", commits, aborts)
	}
}
