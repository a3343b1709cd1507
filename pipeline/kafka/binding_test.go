package kafka_test

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/kafka"
	"reprieve.dev/tests/conformance"
)

// inventory is what the binding holds in C memory; tests of this package do not run in parallel.
func inventory() string {
	c, b, l, u := kafka.Counts()
	return fmt.Sprintf("%d clients, %d batches, %d records lent, %d units", c, b, l, u)
}

func mustBatch(t *testing.T, s pipeline.Source) *pipeline.Batch {
	t.Helper()
	var b *pipeline.Batch
	deadline(t, "a batch", func() bool {
		ev, err := s.Poll(20 * time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		b, _ = ev.(*pipeline.Batch)
		return b != nil
	})
	return b
}

func open(t *testing.T, a adapter, topics ...string) *kafka.Source {
	t.Helper()
	s, err := kafka.NewSource(kafka.SourceConfig{Cluster: a.cluster, Group: a.Name("g"), Topics: topics, MaxBatch: 200})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func withHeaders(topic string, n int) (msgs []pipeline.Message) {
	for i := range n {
		msgs = append(msgs, pipeline.Message{Topic: topic, Partition: int32(i % 2), Key: fmt.Append(nil, "k", i), Value: fmt.Append(nil, "value ", i),
			Headers: []pipeline.Header{{Name: "n", Value: fmt.Append(nil, i)}, {Name: "n"}}, From: -1})
	}
	return msgs
}

func TestEverythingThatWasLentComesBack(t *testing.T) {
	a := newAdapter(startEmbedded(t), nil)
	topic := a.CreateTopic(tt{t}, 2, nil)
	before := inventory()
	k, err := kafka.NewSink(kafka.SinkConfig{Cluster: a.cluster})
	if err != nil {
		t.Fatal(err)
	}
	conformance.Write(tt{t}, k, withHeaders(topic, 1000)...)
	s := open(t, a, topic)
	for n := 0; n < 1000; {
		b := mustBatch(t, s)
		n += b.Len()
		out := &pipeline.Sending{Batch: b} // back to where it came from, from where it stands
		for i := range b.Recs {
			r := &b.Recs[i]
			out.Msgs = append(out.Msgs, pipeline.Message{Topic: topic, Partition: -1, Key: r.Key, Value: r.Value, Headers: r.Headers, From: int32(i)})
		}
		if err := k.Send(out); err != nil {
			t.Fatal(err)
		}
		if <-k.Done(); len(out.Bad) > 0 {
			t.Fatalf("refused: %v", out.Bad[0].Failure.Reason())
		}
		b.Release()
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := k.Close(within(tt{t})); err != nil {
		t.Fatal(err)
	}
	if got := inventory(); got != before {
		t.Errorf("there is %s, before there was %s", got, before)
	}
}

func TestABatchOutlivesItsSource(t *testing.T) {
	a := newAdapter(startEmbedded(t), nil)
	topic := a.CreateTopic(tt{t}, 2, nil)
	conformance.Write(tt{t}, a.Sink(tt{t}, conformance.SinkOptions{}), withHeaders(topic, 10)...)
	before := inventory()
	s := open(t, a, topic)
	b := mustBatch(t, s)
	want := b.Recs[0].Clone()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if inventory() == before {
		t.Error("nothing is lent though a batch is not released")
	}
	if r := b.Recs[0]; !bytes.Equal(r.Value, want.Value) || !bytes.Equal(r.Headers[0].Value, want.Headers[0].Value) || r.Headers[1].Value != nil {
		t.Errorf("the record is %+v now, was %+v", r, want)
	}
	b.Release()
	if got := inventory(); got != before {
		t.Errorf("there is %s, before there was %s", got, before)
	}
}

func TestAForgottenBatchIsFoundByTheGarbageCollector(t *testing.T) {
	a := newAdapter(startEmbedded(t), nil)
	topic := a.CreateTopic(tt{t}, 2, nil)
	conformance.Write(tt{t}, a.Sink(tt{t}, conformance.SinkOptions{}), withHeaders(topic, 10)...)
	before := inventory()
	s := open(t, a, topic)
	mustBatch(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = nil
	deadline(t, "it is found", func() bool { runtime.GC(); return inventory() == before })
}

func TestARecordCostsNoAllocation(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	const n = 40_000
	a := newAdapter(startEmbedded(t), nil)
	in, out := a.CreateTopic(tt{t}, 2, nil), a.CreateTopic(tt{t}, 2, nil)
	k := a.Sink(tt{t}, conformance.SinkOptions{})
	for range n / 1000 {
		conformance.Write(tt{t}, k, withHeaders(in, 1000)...)
	}
	s := a.Source(tt{t}, conformance.SourceOptions{Group: a.Name("g"), Topics: []string{in}})
	sendings := map[*pipeline.Batch]*pipeline.Sending{}
	copied := 0
	turn := func() {
		b := mustBatch(t, s)
		sending := sendings[b]
		if sending == nil {
			sending = &pipeline.Sending{Batch: b, Msgs: make([]pipeline.Message, 0, 1000)}
			sendings[b] = sending
		}
		sending.Msgs = sending.Msgs[:0]
		for i := range b.Recs {
			r := &b.Recs[i]
			sending.Msgs = append(sending.Msgs, pipeline.Message{Topic: out, Partition: -1, Key: r.Key, Value: r.Value, Headers: r.Headers, From: int32(i)})
		}
		if err := k.Send(sending); err != nil {
			t.Fatal(err)
		}
		<-k.Done()
		copied += b.Len()
		b.Release()
	}
	for copied < n/4 {
		turn()
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	from := copied
	for copied < n {
		turn()
	}
	runtime.ReadMemStats(&after)
	// the broker runs in this process too: it allocates for batches, not for records
	per := float64(after.Mallocs-before.Mallocs) / float64(copied-from)
	t.Logf("%.3f allocations a record", per)
	if per > 0.2 {
		t.Errorf("%.3f allocations a record, with 2 headers each", per)
	}
}
