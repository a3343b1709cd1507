package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"reprieve.dev/pipeline"
)

// RunSink holds a Sink to its contract.
func RunSink(t T, c Cluster) {
	t.Run("one completion for each Sending, with partition and offset", func(t T) { completes(t, c) })
	t.Run("an empty Sending completes", func(t T) { emptyCompletes(t, c) })
	t.Run("C41: keys go where Java producers send them", func(t T) { CaseC41(t, c) })
	t.Run("times are kept, none is now", func(t T) { times(t, c) })
	t.Run("only the too large message is refused, not its neighbours", func(t T) { tooLarge(t, c) })
	t.Run("what is too large for the client is refused too", func(t T) { clientTooLarge(t, c) })
	t.Run("a missing topic is refused by its own code", func(t T) { topicMissing(t, c) })
	t.Run("C44: a compacted topic refuses only what has no key", func(t T) { CaseC44(t, c) })
	t.Run("ErrFull takes nothing, and a completion makes room", func(t T) { backPressure(t, c) })
	t.Run("order per partition is kept over Sendings", func(t T) { sendOrder(t, c) })
	t.Run("probe", func(t T) { probes(t, c) })
	t.Run("close completes what was sent", func(t T) { closeCompletes(t, c) })
}

func completes(t T, c Cluster) {
	topic := c.CreateTopic(t, 3, nil)
	k := c.Sink(t, SinkOptions{})
	owner := "mine"
	sent := map[*pipeline.Sending]bool{}
	for i := range 5 {
		s := &pipeline.Sending{Owner: owner, Msgs: numbered(topic, -1, i*100, 100)}
		for j := range s.Msgs {
			s.Msgs[j].From = int32(j)
		}
		if err := k.Send(s); err != nil {
			t.Fatalf("Send: %v", err)
		}
		sent[s] = true
	}
	at := map[pipeline.Position]string{}
	for range 5 {
		s := done(t, k)
		if !sent[s] {
			t.Fatalf("a Sending came back that is not on its way")
		}
		delete(sent, s)
		if len(s.Bad) > 0 || s.Owner != owner || len(s.Msgs) != 100 {
			t.Errorf("%d bad, owner %v, %d messages: want 0, %v, 100", len(s.Bad), s.Owner, len(s.Msgs), owner)
		}
		for j := range s.Msgs {
			m := &s.Msgs[j]
			pos := pipeline.Position{TP: pipeline.TP{Topic: topic, Partition: m.Partition}, Offset: m.Offset}
			if m.Partition < 0 || at[pos] != "" || m.From != int32(j) {
				t.Fatalf("message %d is at %v, from %d", j, pos, m.From)
			}
			at[pos] = string(m.Value)
		}
	}
	select {
	case <-k.Done():
		t.Errorf("more completions than Sendings")
	default:
	}
	got := Read(t, c.Source(t, SourceOptions{Group: c.Name("completes"), Topics: []string{topic}}), 500)
	for tp, recs := range got {
		for _, r := range recs {
			if want := at[pipeline.Position{TP: tp, Offset: r.Offset}]; string(r.Value) != want {
				t.Errorf("%v/%d holds %q, was acknowledged as %q", tp, r.Offset, r.Value, want)
			}
		}
	}
}

func emptyCompletes(t T, c Cluster) {
	send(t, c.Sink(t, SinkOptions{}))
}

// CaseC41: the partition of a key is that of a Java producer.
func CaseC41(t T, c Cluster) {
	// key, number of partitions, where a Java producer puts it
	table := []struct {
		key  string
		n, p int32
	}{{"TT0124", 15, 10}, {"354afe16-939a-4ea8-8e17-8bb0840b6886", 10, 4}, {"f562ac3b-2224-4e25-a0ab-56094e10c239", 10, 5},
		{"fd7af248-ce5c-46a5-93d7-1c0c9005b99d", 32, 26}, {"inv-1001", 12, 0}, {"inv-1002", 12, 7}, {"inv-1003", 12, 4},
		{"inv-1001", 6, 0}, {"inv-1002", 6, 1}, {"inv-1003", 6, 4}}
	topics := map[int32]string{}
	k := c.Sink(t, SinkOptions{})
	var msgs []pipeline.Message
	for _, row := range table {
		if topics[row.n] == "" {
			topics[row.n] = c.CreateTopic(t, int(row.n), nil)
		}
		msgs = append(msgs, pipeline.Message{Topic: topics[row.n], Partition: -1, Key: []byte(row.key), From: -1})
	}
	s := Write(t, k, msgs...)
	for i, row := range table {
		if got := s.Msgs[i].Partition; got != row.p {
			t.Errorf("%s of %d partitions went to %d, want %d", row.key, row.n, got, row.p)
		}
	}
}

func times(t T, c Cluster) {
	topic := c.CreateTopic(t, 1, nil)
	k := c.Sink(t, SinkOptions{})
	Write(t, k, pipeline.Message{Topic: topic, TimeMS: 1_700_000_000_123, From: -1}, pipeline.Message{Topic: topic, From: -1})
	got := Read(t, c.Source(t, SourceOptions{Group: c.Name("times"), Topics: []string{topic}}), 2)[pipeline.TP{Topic: topic}]
	if got[0].TimeMS != 1_700_000_000_123 {
		t.Errorf("time %d came back, want 1700000000123", got[0].TimeMS)
	}
	if got[1].TimeMS <= got[0].TimeMS {
		t.Errorf("a message without a time got %d, want now", got[1].TimeMS)
	}
}

// oneBad checks that exactly message i was refused with code and the rest arrived.
func oneBad(t T, s *pipeline.Sending, i int, code pipeline.Code) {
	t.Helper()
	if len(s.Bad) != 1 {
		for _, b := range s.Bad {
			t.Logf("message %d: %v", b.Msg, b.Failure.Reason())
		}
		t.Fatalf("%d messages were refused, want 1", len(s.Bad))
	}
	if b := s.Bad[0]; b.Msg != i || b.Failure.Code != code || b.Failure.Index != s.Msgs[i].From {
		t.Errorf("message %d (record %d) was refused with %s, want %d (%d) with %s", b.Msg, b.Failure.Index, b.Failure.Code, i,
			s.Msgs[i].From, code)
	}
}

func tooLarge(t T, c Cluster) {
	topic := c.CreateTopic(t, 1, map[string]string{"max.message.bytes": "4000"})
	k := c.Sink(t, SinkOptions{})
	msgs := numbered(topic, 0, 0, 41)
	for i := range msgs {
		msgs[i].From = int32(i)
	}
	msgs[17].Value = bytes.Repeat([]byte("x"), 20_000)
	s := send(t, k, msgs...)
	oneBad(t, s, 17, pipeline.CodeTooLarge)
	got := Read(t, c.Source(t, SourceOptions{Group: c.Name("toolarge"), Topics: []string{topic}}), 40)
	seen := map[string]bool{}
	for _, r := range got[pipeline.TP{Topic: topic}] {
		seen[string(r.Value)] = true
	}
	if len(seen) != 40 {
		t.Errorf("%d different neighbours arrived, want 40", len(seen))
	}
}

func clientTooLarge(t T, c Cluster) {
	topic := c.CreateTopic(t, 1, nil)
	k := c.Sink(t, SinkOptions{})
	s := send(t, k, pipeline.Message{Topic: topic, Value: []byte("a"), From: 4},
		pipeline.Message{Topic: topic, Value: make([]byte, 5_000_000), From: 5}, pipeline.Message{Topic: topic, Value: []byte("b"), From: 6})
	oneBad(t, s, 1, pipeline.CodeTooLarge)
}

func topicMissing(t T, c Cluster) {
	topic := c.CreateTopic(t, 1, nil)
	k := c.Sink(t, SinkOptions{})
	s := send(t, k, pipeline.Message{Topic: topic, Value: []byte("a"), From: -1},
		pipeline.Message{Topic: c.Name("missing"), Partition: -1, Value: []byte("b"), From: -1})
	oneBad(t, s, 1, pipeline.CodeSendTopicMissing)
	if v := s.Bad[0].Failure.Params[0]; v.Name != "topic" || v.Text != s.Msgs[1].Topic {
		t.Errorf("the failure names %v, want the topic %s", v, s.Msgs[1].Topic)
	}
}

// CaseC44: a record without a key cannot go to a compacted topic; its neighbours can, and so can a delete marker.
func CaseC44(t T, c Cluster) {
	need(t, c, RefusesKeyless)
	topic := c.CreateTopic(t, 1, map[string]string{"cleanup.policy": "compact"})
	k := c.Sink(t, SinkOptions{})
	s := send(t, k, pipeline.Message{Topic: topic, Key: nil, Value: []byte("{}"), From: -1},
		pipeline.Message{Topic: topic, Key: []byte("inv-1"), Value: []byte("{}"), From: -1},
		pipeline.Message{Topic: topic, Key: []byte("inv-1"), Value: nil, From: -1})
	oneBad(t, s, 0, pipeline.CodeSendKeyless)
	got := Read(t, c.Source(t, SourceOptions{Group: c.Name("keyless"), Topics: []string{topic}}), 2)[pipeline.TP{Topic: topic}]
	if got[1].Value != nil {
		t.Errorf("the delete marker arrived as %s, want null", show(got[1].Value))
	}
}

func backPressure(t T, c Cluster) {
	topic := c.CreateTopic(t, 1, nil)
	k := c.Sink(t, SinkOptions{MaxInFlight: 200})
	accepted, full := 0, 0
	value := bytes.Repeat([]byte("v"), 500)
	mk := func() *pipeline.Sending {
		s := &pipeline.Sending{Msgs: numbered(topic, 0, 0, 50)}
		for i := range s.Msgs {
			s.Msgs[i].Value = value
		}
		return s
	}
	open := 0
	for n := 0; n < 100; {
		s := mk()
		switch err := k.Send(s); {
		case err == nil:
			accepted += 50
			open++
			n++
		case errors.Is(err, pipeline.ErrFull):
			full++
			if open == 0 {
				t.Fatalf("full though nothing is on its way")
			}
			done(t, k)
			open--
		default:
			t.Fatalf("Send: %v", err)
		}
	}
	for ; open > 0; open-- {
		if s := done(t, k); len(s.Bad) > 0 {
			t.Fatalf("refused: %v", s.Bad[0].Failure.Reason())
		}
	}
	if got := Read(t, c.Source(t, SourceOptions{Group: c.Name("full"), Topics: []string{topic}}), accepted); len(got) != 1 {
		t.Errorf("%d partitions were read", len(got))
	}
	// one that is larger than all that may be on its way still goes when it is alone
	Write(t, k, numbered(topic, 0, 0, 1000)...)
	t.Logf("full %d times", full)
}

func sendOrder(t T, c Cluster) {
	topic := c.CreateTopic(t, 2, nil)
	k := c.Sink(t, SinkOptions{})
	for i := range 20 {
		if err := k.Send(&pipeline.Sending{Msgs: append(numbered(topic, 0, i*50, 50), numbered(topic, 1, i*50, 50)...)}); err != nil {
			t.Fatalf("Send: %v", err)
		}
	}
	for range 20 {
		done(t, k)
	}
	got := Read(t, c.Source(t, SourceOptions{Group: c.Name("sendorder"), Topics: []string{topic}}), 2000)
	for tp, recs := range got {
		for i, r := range recs {
			if string(r.Value) != fmt.Sprint(i) {
				t.Fatalf("%v: %q stands at %d", tp, r.Value, i)
			}
		}
	}
}

func probes(t T, c Cluster) {
	topic, compacted := c.CreateTopic(t, 2, nil), c.CreateTopic(t, 1, map[string]string{"cleanup.policy": "compact"})
	k := c.Sink(t, SinkOptions{})
	ctx, cancel := timeout()
	defer cancel()
	for _, to := range []string{topic, compacted} {
		if err := k.Probe(ctx, to); err != nil {
			t.Fatalf("Probe: %v", err)
		}
	}
	for _, recs := range Read(t, c.Source(t, SourceOptions{Group: c.Name("probe"), Topics: []string{topic}}), 1) {
		if _, ok := recs[0].Header("reprieve-probe"); !ok {
			t.Errorf("the probe has no header reprieve-probe: %v", recs[0].Headers)
		}
	}
	err := k.Probe(ctx, c.Name("missing"))
	if pipeline.CodeOf(err) != pipeline.CodeSendTopicMissing {
		t.Errorf("a probe of a missing topic answered %v", err)
	}
	select {
	case <-k.Done():
		t.Errorf("a probe came back over Done")
	default:
	}
}

func closeCompletes(t T, c Cluster) {
	topic := c.CreateTopic(t, 1, nil)
	k := c.Sink(t, SinkOptions{})
	for range 10 {
		if err := k.Send(&pipeline.Sending{Msgs: numbered(topic, 0, 0, 20)}); err != nil {
			t.Fatalf("Send: %v", err)
		}
	}
	ctx, cancel := timeout()
	defer cancel()
	if err := k.Close(ctx); err != nil {
		t.Fatalf("Close: %v", err)
	}
	for range 10 {
		if s := done(t, k); len(s.Bad) > 0 {
			t.Errorf("refused at Close: %v", s.Bad[0].Failure.Reason())
		}
	}
	if err := k.Send(&pipeline.Sending{Msgs: numbered(topic, 0, 0, 1)}); err == nil || errors.Is(err, pipeline.ErrFull) {
		t.Errorf("Send after Close answered %v", err)
	}
	if err := k.Close(context.Background()); err != nil {
		t.Errorf("the second Close: %v", err)
	}
}
