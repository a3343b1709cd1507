package kafka

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	client "github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"reprieve.dev/pipeline"
)

// SinkConfig says where to write and how much may be on its way.
type SinkConfig struct {
	Cluster     Cluster
	ClientID    string
	MaxInFlight int // messages; 0 is 20,000
	// BatchBytes is the smallest max.message.bytes of the topics that are written to: a broker refuses whole batches that are
	// larger, and sending them again in parts is slow. 0 is the client's default of 1,000,000.
	BatchBytes int
	Log        *slog.Logger
}

// Sink implements pipeline.Sink with one idempotent producer: acks=all, order kept per partition, keys where Java
// producers send them. Send and Probe may be called by several goroutines. Each Sending comes back once (INV-KAFKA-ONCE).
type Sink struct {
	p      *client.Producer
	conf   SinkConfig
	place  string
	logs   logs
	inTx   bool
	done   chan *pipeline.Sending
	ended  chan struct{} // the reports goroutine is gone
	idle   chan struct{} // a flight has ended
	fatal  atomic.Pointer[pipeline.Error]
	aloft  atomic.Int64 // messages that the client has and did not report yet
	active atomic.Int64 // flights without completion

	doomed atomic.Bool // a message of the open transaction was refused: it can only be aborted

	mu      sync.Mutex // whoever hands messages to the client
	closed  bool
	waiting []*flight // not handed over completely yet
	again   again
	msg     client.Message  // scratch: the client copies
	headers []client.Header // scratch
	free    []*flight

	limits map[string]int64 // of topics, as far as they were asked for; only the reports goroutine
}

// flight is a Sending on its way.
type flight struct {
	s       *pipeline.Sending
	open    atomic.Int32 // messages without a final answer
	tickets []ticket
	next    int           // first message that the client does not have yet
	probe   chan struct{} // closed at completion; nil for what comes back over Done
}

// ticket is what a delivery report leads back to.
type ticket struct {
	f     *flight
	i     int
	alone bool // it went in a produce batch of its own: the answer is about this message
}

var _ pipeline.Sink = (*Sink)(nil)

const (
	defaultInFlight = 20_000
	maxFlights      = 4096 // completions that nobody took yet, at most
	queueSlack      = 1024 // room in the client for probes and messages that are sent again
	probeHeader     = "reprieve-probe"
)

// NewSink opens a producer and starts the goroutine that takes its reports; Close ends both. No broker need be there yet.
// Codes: ERR_BROKER_CONFIG.
func NewSink(conf SinkConfig) (*Sink, error) {
	s, err := newSink(conf, map[string]any{})
	if err != nil {
		return nil, err
	}
	go s.takeReports()
	return s, nil
}

func newSink(conf SinkConfig, must map[string]any) (*Sink, error) {
	if conf.MaxInFlight <= 0 {
		conf.MaxInFlight = defaultInFlight
	}
	s := &Sink{conf: conf, place: conf.Cluster.place(), logs: newLogs(conf.Log, conf.Cluster.Name),
		done: make(chan *pipeline.Sending, maxFlights), ended: make(chan struct{}), idle: make(chan struct{}, 1)}
	for k, v := range map[string]any{
		"acks":                         "all",
		"enable.idempotence":           true,
		"partitioner":                  "murmur2_random",
		"queue.buffering.max.messages": conf.MaxInFlight + queueSlack,
		"go.delivery.report.fields":    "none", // else each report copies key and value
		"go.events.channel.size":       4096,
		"go.produce.channel.size":      1,
	} {
		must[k] = v
	}
	if conf.ClientID != "" {
		must["client.id"] = conf.ClientID
	}
	if conf.BatchBytes > 0 {
		must["batch.size"] = conf.BatchBytes
	}
	m, err := conf.Cluster.settings(forProducer, must)
	if err != nil {
		return nil, err
	}
	s.logs.in(m)
	if s.p, err = client.NewProducer(&m); err != nil {
		return nil, pipeline.Errorf(pipeline.CodeBrokerConfig, "clusters."+conf.Cluster.Name, "%w", err)
	}
	return s, nil
}

// Send hands all messages over and never blocks. ErrFull: nothing was taken. Another error means that the sink is at its
// end. Codes: ERR_SINK_FULL, ERR_BROKER_FATAL, ERR_TX_FENCED.
func (s *Sink) Send(sending *pipeline.Sending) error {
	if e := s.fatal.Load(); e != nil {
		return e
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return pipeline.Errorf(pipeline.CodeBrokerFatal, s.place, "the sink is closed")
	}
	n := len(sending.Msgs)
	aloft := s.aloft.Load()
	switch {
	case int(s.active.Load())+len(s.done) >= maxFlights,
		len(s.waiting) > 0 || s.again.busy,
		aloft > 0 && aloft+int64(n) > int64(s.conf.MaxInFlight):
		return pipeline.ErrFull
	}
	sending.Bad = sending.Bad[:0]
	s.active.Add(1)
	f := s.flight(sending)
	if n == 0 || s.doomed.Load() {
		s.complete(f) // what is sent now would be aborted with the rest
		return nil
	}
	s.launch(f)
	return nil
}

// Done returns each Sending once.
func (s *Sink) Done() <-chan *pipeline.Sending { return s.done }

// Probe writes one message with the header reprieve-probe and waits for its acknowledgement. Its key lets a compacted
// topic take it. Codes: those of a refused send, with the topic as place.
func (s *Sink) Probe(ctx context.Context, topic string) error {
	if e := s.fatal.Load(); e != nil {
		return e
	}
	sending := &pipeline.Sending{Msgs: []pipeline.Message{{Topic: topic, Partition: -1, Key: []byte(probeHeader), From: -1,
		Headers: []pipeline.Header{{Name: probeHeader, Value: []byte("1")}}}}}
	ended := make(chan struct{})
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return pipeline.Errorf(pipeline.CodeBrokerFatal, s.place, "the sink is closed")
	}
	s.active.Add(1)
	f := s.flight(sending)
	f.probe = ended
	s.launch(f)
	s.mu.Unlock()
	select {
	case <-ctx.Done():
		return &pipeline.Error{Code: pipeline.CodeSendTimeout, Place: topic + " on " + s.place,
			Text: "no acknowledgement of a probe: " + ctx.Err().Error(), Cause: ctx.Err()}
	case <-ended:
	}
	if len(sending.Bad) > 0 {
		f := &sending.Bad[0].Failure
		return &pipeline.Error{Code: f.Code, Place: topic + " on " + s.place, Text: f.Reason(), Cause: f.Cause}
	}
	return nil
}

// flight takes one from the free list. mu is held.
func (s *Sink) flight(sending *pipeline.Sending) *flight {
	var f *flight
	if n := len(s.free); n > 0 {
		f, s.free = s.free[n-1], s.free[:n-1]
	} else {
		f = &flight{}
	}
	n := len(sending.Msgs)
	if cap(f.tickets) < n {
		f.tickets = make([]ticket, n)
	}
	f.s, f.next, f.probe, f.tickets = sending, 0, nil, f.tickets[:n]
	for i := range f.tickets {
		f.tickets[i] = ticket{f: f, i: i}
	}
	f.open.Store(int32(n)) // before the first message leaves: a report may come at once
	return f
}

// launch hands over what the client takes now. mu is held. What it does not take waits for reports, which make room.
func (s *Sink) launch(f *flight) {
	if len(s.waiting) > 0 {
		s.waiting = append(s.waiting, f) // order
		return
	}
	if !s.handOver(f) {
		s.waiting = append(s.waiting, f)
		if s.aloft.Load() == 0 {
			s.move() // no report will come to do it
		}
	}
}

// handOver tells whether the client has everything now.
func (s *Sink) handOver(f *flight) bool {
	for n := len(f.tickets); f.next < n; {
		if !s.produce(&f.tickets[f.next]) {
			return false
		}
		f.next++
		if f.next == n {
			return true // f may be complete and reused already
		}
	}
	return true
}

// produce gives one message to the client; false: its queue is full. mu is held.
func (s *Sink) produce(t *ticket) bool {
	m := &t.f.s.Msgs[t.i]
	s.msg.TopicPartition.Topic = &m.Topic
	s.msg.TopicPartition.Partition = m.Partition // -1 is PartitionAny
	s.msg.Key, s.msg.Value = m.Key, m.Value      // INV-KAFKA-NULL: nil is null
	s.msg.Timestamp = time.Time{}
	if m.TimeMS != 0 {
		s.msg.Timestamp = time.UnixMilli(m.TimeMS)
	}
	s.headers = s.headers[:0]
	for i := range m.Headers {
		s.headers = append(s.headers, client.Header{Key: m.Headers[i].Name, Value: m.Headers[i].Value})
	}
	s.msg.Headers = s.headers
	s.msg.Opaque = t
	s.aloft.Add(1)
	err := s.p.Produce(&s.msg, nil)
	if err == nil {
		return true
	}
	s.aloft.Add(-1)
	if e, ok := errors.AsType[client.Error](err); ok && e.Code() == client.ErrQueueFull {
		return false
	}
	if s.inTx && s.doomed.Load() {
		if t.f.open.Add(-1) == 0 {
			s.complete(t.f)
		}
		return true
	}
	s.refuse(t, err)
	return true
}

// refuse is the final answer no for one message. mu is held.
func (s *Sink) refuse(t *ticket, err error) {
	sending := t.f.s
	if e, ok := errors.AsType[client.Error](err); ok && !s.closed && (e.Code() == client.ErrPurgeQueue || e.Code() == client.ErrPurgeInflight) {
		if fatal, ok := errors.AsType[client.Error](s.p.GetFatalError()); ok {
			err = fatal // why the library gave everything up
		}
	}
	bad := pipeline.Bad{Msg: t.i, Failure: refusal(err, &sending.Msgs[t.i])}
	at := len(sending.Bad)
	for at > 0 && sending.Bad[at-1].Msg > bad.Msg {
		at--
	}
	sending.Bad = append(sending.Bad, pipeline.Bad{})
	copy(sending.Bad[at+1:], sending.Bad[at:])
	sending.Bad[at] = bad
	if t.f.open.Add(-1) == 0 {
		s.complete(t.f)
	}
}

// complete hands the Sending back (INV-KAFKA-ONCE: only whoever took open to 0 comes here). mu is held.
func (s *Sink) complete(f *flight) {
	if f.probe != nil {
		close(f.probe)
	} else {
		s.done <- f.s // has room: Send counted it
	}
	f.s, f.probe = nil, nil
	s.free = append(s.free, f)
	s.active.Add(-1)
	select {
	case s.idle <- struct{}{}:
	default:
	}
}

// Close waits until everything sent is acknowledged or refused, or ctx ends; what is left then is refused
// (ERR_SEND_TIMEOUT) though it may have arrived. Completions stay readable from Done. Codes: ERR_DRAIN_TIMEOUT.
func (s *Sink) Close(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		<-s.ended
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	var late error
	for late == nil && s.active.Load() > 0 {
		select {
		case <-s.idle:
		case <-ctx.Done():
			late = &pipeline.Error{Code: pipeline.CodeDrainTimeout, Place: s.place, Cause: ctx.Err(),
				Text: "messages were not acknowledged before the sink was closed"}
		}
	}
	if late != nil {
		_ = s.p.Purge(client.PurgeQueue | client.PurgeInFlight)
		s.p.Flush(1000) // only moves the reports of what was purged
	}
	s.p.Close()
	<-s.ended
	s.mu.Lock()
	defer s.mu.Unlock()
	s.abandon()
	s.logs.drain()
	return late
}
