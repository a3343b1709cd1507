// Package conformance says what every pipeline.Source, Sink, Tx and Log must do, as suites that any implementation can run:
// the client of Kafka over a real and over the embedded broker, and the scripted cluster that engine tests use.
//
// It does not import testing. A test adapts its *testing.T in three lines:
//
//	type tt struct{ *testing.T }
//
//	func (t tt) Run(name string, f func(conformance.T)) bool {
//		return t.T.Run(name, func(t *testing.T) { f(tt{t}) })
//	}
package conformance

import (
	"context"
	"fmt"
	"time"

	"reprieve.dev/pipeline"
)

// T is what a suite needs of a test.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
	Skipf(format string, args ...any)
	Cleanup(func())
	Run(name string, f func(T)) bool
}

// Cluster is an implementation under test: it makes topics and opens clients. Whatever it opens it closes by Cleanup, if the
// suite did not; closing twice must be harmless.
type Cluster interface {
	// CreateTopic makes an empty topic with a new name and returns it.
	CreateTopic(t T, partitions int, configs map[string]string) string
	Source(t T, o SourceOptions) Source
	Sink(t T, o SinkOptions) Sink
	// Tx opens a transactional producer.
	Tx(t T, id string) Tx
	Log(t T) pipeline.Log
	// Committed returns what a group has committed, with metadata.
	Committed(t T, group string) map[pipeline.TP]pipeline.Checkpoint
	// Name returns a new name that starts with prefix: for groups and transactional ids.
	Name(prefix string) string
}

// Limited is a Cluster that says which of the following a broker of its kind does not do; what needs it is skipped.
type Limited interface{ Lacks(what string) bool }

// RefusesKeyless is that a compacted topic refuses a record without a key.
const RefusesKeyless = "a compacted topic refuses a record without a key"

func need(t T, c Cluster, what string) {
	t.Helper()
	if l, ok := c.(Limited); ok && l.Lacks(what) {
		t.Skipf("not on this broker: %s", what)
	}
}

// SourceOptions says what to open.
type SourceOptions struct {
	Group    string
	Topics   []string
	Retry    map[string]bool
	MaxBatch int
}

// SinkOptions says what to open.
type SinkOptions struct{ MaxInFlight int }

// Source is a pipeline.Source that can be closed.
type Source interface {
	pipeline.Source
	Close() error
	// Strangers is how many partitions of commits were refused because they were not assigned.
	Strangers() uint64
}

// Sink is a pipeline.Sink that can be closed.
type Sink interface {
	pipeline.Sink
	Close(context.Context) error
}

// Tx is a pipeline.Tx that can be closed.
type Tx interface {
	pipeline.Tx
	Close(context.Context) error
}

// All runs every suite.
func All(t T, c Cluster) {
	t.Run("source", func(t T) { RunSource(t, c) })
	t.Run("group", func(t T) { RunGroup(t, c) })
	t.Run("sink", func(t T) { RunSink(t, c) })
	t.Run("tx", func(t T) { RunTx(t, c) })
	t.Run("log", func(t T) { RunLog(t, c) })
}

const (
	patience = 60 * time.Second       // until something that must happen has happened
	step     = 20 * time.Millisecond  // of one Poll
	silence  = 600 * time.Millisecond // how long nothing must come
)

// poll calls s.Poll once and fails on an error.
func poll(t T, s Source) pipeline.Event {
	t.Helper()
	ev, err := s.Poll(step)
	if err != nil {
		t.Fatalf("Poll: %v", err)
	}
	return ev
}

// until calls try again and again until it is true.
func until(t T, what string, try func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		if try() {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// next polls until an event of type E comes, and hands every other event to other (nil: anything else but batches fails).
func next[E any](t T, s Source, other func(pipeline.Event)) (out E) {
	t.Helper()
	until(t, fmt.Sprintf("a %T", out), func() bool {
		ev := poll(t, s)
		if ev == nil {
			return false
		}
		if e, ok := ev.(E); ok {
			out = e
			return true
		}
		if other != nil {
			other(ev)
			return false
		}
		if b, ok := ev.(*pipeline.Batch); ok {
			b.Release()
			return false
		}
		t.Fatalf("%T came, want %T", ev, out)
		return false
	})
	return out
}

// assign polls until all n partitions are assigned and returns the checkpoints.
func assign(t T, s Source, n int) map[pipeline.TP]pipeline.Checkpoint {
	t.Helper()
	all := map[pipeline.TP]pipeline.Checkpoint{}
	for have := 0; have < n; {
		a := next[pipeline.Assigned](t, s, nil)
		have += len(a.TPs)
		for tp, cp := range a.Checkpoints {
			all[tp] = cp
		}
	}
	return all
}

// Read polls until n records came, and returns them by partition.
func Read(t T, s Source, n int) map[pipeline.TP][]pipeline.Record {
	t.Helper()
	got := map[pipeline.TP][]pipeline.Record{}
	count := 0
	until(t, fmt.Sprintf("%d records", n), func() bool {
		switch ev := poll(t, s).(type) {
		case *pipeline.Batch:
			for i := range ev.Recs {
				got[ev.TP] = append(got[ev.TP], ev.Recs[i].Clone())
			}
			count += len(ev.Recs)
			ev.Release()
		case pipeline.Assigned, nil:
		default:
			t.Fatalf("%T came among records", ev)
		}
		return count >= n
	})
	if count != n {
		t.Fatalf("%d records came, want %d", count, n)
	}
	return got
}

// quiet polls for a while in which no record may come.
func quiet(t T, s Source, why string) {
	t.Helper()
	for end := time.Now().Add(silence); time.Now().Before(end); {
		if b, ok := poll(t, s).(*pipeline.Batch); ok {
			t.Fatalf("%s: %d records of %v from %d came", why, len(b.Recs), b.TP, b.Recs[0].Offset)
		}
	}
}

// Write sends messages and waits until all are acknowledged.
func Write(t T, k pipeline.Sink, msgs ...pipeline.Message) *pipeline.Sending {
	t.Helper()
	s := send(t, k, msgs...)
	if len(s.Bad) > 0 {
		t.Fatalf("message %d was refused: %v (%v)", s.Bad[0].Msg, s.Bad[0].Failure.Reason(), s.Bad[0].Failure.Code)
	}
	return s
}

// send sends messages and waits for the completion.
func send(t T, k pipeline.Sink, msgs ...pipeline.Message) *pipeline.Sending {
	t.Helper()
	s := &pipeline.Sending{Msgs: msgs}
	if err := k.Send(s); err != nil {
		t.Fatalf("Send: %v", err)
	}
	if got := done(t, k); got != s {
		t.Fatalf("another Sending came back")
	}
	return s
}

// done waits for one completion.
func done(t T, k pipeline.Sink) *pipeline.Sending {
	t.Helper()
	select {
	case s := <-k.Done():
		return s
	case <-time.After(patience):
		t.Fatalf("no completion within %v", patience)
		return nil
	}
}

// numbered makes n messages for one partition whose value is their number.
func numbered(topic string, partition int32, from, n int) []pipeline.Message {
	out := make([]pipeline.Message, n)
	for i := range out {
		out[i] = pipeline.Message{Topic: topic, Partition: partition, Key: fmt.Appendf(nil, "k%d", from+i),
			Value: fmt.Appendf(nil, "%d", from+i), From: -1}
	}
	return out
}

func timeout() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience)
}
