package kafka

import (
	"testing"

	client "github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"reprieve.dev/pipeline"
)

// TestGatheringAllocatesNothing covers our own part of a record's way in; the client's wrapper makes its message before.
func TestGatheringAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	pool := pipeline.NewPool(&pipeline.Layout{})
	tp := pipeline.TP{Topic: "t"}
	s := &Source{conf: SourceConfig{Pool: pool, MaxBatch: 100}, logs: newLogs(nil, "x"), parts: map[pipeline.TP]*part{tp: {tp: tp}}}
	topic := "t"
	msg := &client.Message{TopicPartition: client.TopicPartition{Topic: &topic}, Value: []byte("v"),
		Headers: []client.Header{{Key: "a"}, {Key: "b"}}}
	run := func() {
		for range 100 {
			s.take(msg)
			msg.TopicPartition.Offset++
		}
		s.seal()
		b := s.ready[0]
		s.ready = s.ready[:0]
		if len(b.Recs) != 100 {
			t.Fatalf("%d records", len(b.Recs))
		}
		b.Release()
	}
	run()
	if n := testing.AllocsPerRun(200, run); n > 1 { // a slab of headers now and then
		t.Errorf("%v allocations for 100 records", n)
	}
}

func TestStaleRecordsAreDropped(t *testing.T) {
	tp := pipeline.TP{Topic: "t"}
	s := &Source{conf: SourceConfig{Pool: pipeline.NewPool(&pipeline.Layout{}), MaxBatch: 100}, logs: newLogs(nil, "x"),
		parts: map[pipeline.TP]*part{tp: {tp: tp, next: 10}}}
	topic, other := "t", "gone"
	s.take(&client.Message{TopicPartition: client.TopicPartition{Topic: &topic, Offset: 9}})
	s.take(&client.Message{TopicPartition: client.TopicPartition{Topic: &other, Offset: 9}})
	s.seal()
	if len(s.ready) != 0 {
		t.Errorf("%d batches of records that are not ours or not new", len(s.ready))
	}
}

func TestOnlySomeErrorsEndASource(t *testing.T) {
	for code, want := range map[client.ErrorCode]pipeline.Code{
		client.ErrAuthentication:           pipeline.CodeBrokerAuth,
		client.ErrSaslAuthenticationFailed: pipeline.CodeBrokerAuth,
		client.ErrGroupAuthorizationFailed: pipeline.CodeBrokerAuth,
		client.ErrUnknownTopicOrPart:       pipeline.CodeTopicMissing,
		client.ErrAllBrokersDown:           "",
		client.ErrTransport:                "",
		client.ErrTimedOut:                 "",
	} {
		s := &Source{place: "main", logs: newLogs(nil, "main")}
		if got := pipeline.CodeOf(s.judge(client.NewError(code, "x", false), "")); got != want {
			t.Errorf("%v ends the source with %q, want %q", code, got, want)
		}
	}
	s := &Source{place: "main", logs: newLogs(nil, "main")}
	if got := pipeline.CodeOf(s.judge(client.NewError(client.ErrFencedInstanceID, "x", true), "")); got != pipeline.CodeBrokerFatal || !s.broken {
		t.Errorf("a fatal error gives %q", got)
	}
}
