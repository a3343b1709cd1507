package kafka

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strconv"
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
//
// A Sending crosses to the library once, and is reported once. Values that are a record's own bytes, lent by a Source, are
// sent from where they stand; others are copied at Send.
type Sink struct {
	p         *native
	conf      SinkConfig
	place     string
	logs      logs
	inTx      bool
	done      chan *pipeline.Sending
	ended     chan struct{} // the reports goroutine is gone
	ending    atomic.Bool   // it is to go
	unsettled atomic.Bool   // messages wait for room, or for their turn to be sent again
	idle      chan struct{} // a flight has ended
	fatal     atomic.Pointer[pipeline.Error]
	active    atomic.Int64 // flights without completion

	doomed atomic.Bool  // a message of the open transaction was refused: it can only be aborted
	life   sync.RWMutex // held by who uses p without mu; to free it takes both

	mu      sync.Mutex // whoever hands messages to the client
	closed  bool
	topics  topics
	flights []*flight // all that were made, by id
	free    []*flight
	waiting []*flight // not handed over completely yet
	again   again
	bad     []ticket // failed, and not judged yet

	judging sync.Mutex       // one goroutine hears and judges
	limits  map[string]int64 // of topics, as far as they were asked for
}

// flight is a Sending on its way.
type flight struct {
	id    int
	s     *pipeline.Sending
	u     unit
	next  int           // first message that the client does not have yet
	probe chan struct{} // closed at completion; nil for what comes back over Done
}

// ticket is one message of a flight.
type ticket struct {
	f    *flight
	i    int
	code client.ErrorCode // of the last report
}

var _ pipeline.Sink = (*Sink)(nil)

const (
	defaultInFlight = 20_000
	maxFlights      = 4096 // completions that nobody took yet, at most
	queueSlack      = 1024 // room in the client for probes and messages that are sent again
	keptBytes       = 4 << 20
	serveEach       = 100 * time.Millisecond
	probeHeader     = "reprieve-probe"
)

// NewSink opens a producer and starts the goroutine that takes its reports; Close ends both. No broker need be there yet.
// Codes: ERR_BROKER_CONFIG.
func NewSink(conf SinkConfig) (*Sink, error) {
	s, err := newSink(conf, map[string]string{})
	if err != nil {
		return nil, err
	}
	go s.takeReports()
	return s, nil
}

func newSink(conf SinkConfig, must map[string]string) (*Sink, error) {
	if conf.MaxInFlight <= 0 {
		conf.MaxInFlight = defaultInFlight
	}
	s := &Sink{conf: conf, place: conf.Cluster.place(), logs: newLogs(conf.Log, conf.Cluster.Name),
		done: make(chan *pipeline.Sending, maxFlights), ended: make(chan struct{}), idle: make(chan struct{}, 1)}
	maps.Copy(must, map[string]string{
		"acks":                         "all",
		"enable.idempotence":           "true",
		"partitioner":                  "murmur2_random",
		"queue.buffering.max.messages": strconv.Itoa(conf.MaxInFlight + queueSlack),
	})
	if conf.ClientID != "" {
		must["client.id"] = conf.ClientID
	}
	if conf.BatchBytes > 0 {
		must["batch.size"] = strconv.Itoa(conf.BatchBytes)
	}
	m, err := conf.Cluster.settings(forProducer, must)
	if err != nil {
		return nil, err
	}
	if s.p, err = openNative(true, m); err != nil {
		return nil, pipeline.Errorf(pipeline.CodeBrokerConfig, "clusters."+conf.Cluster.Name, "%w", err)
	}
	s.topics = topics{n: s.p, refs: map[string]topicRef{}}
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
	aloft := s.p.aloft()
	switch {
	case int(s.active.Load())+len(s.done) >= maxFlights,
		len(s.waiting) > 0 || s.again.busy,
		aloft > 0 && aloft+int64(n) > int64(s.conf.MaxInFlight):
		return pipeline.ErrFull
	}
	sending.Bad = sending.Bad[:0]
	f, err := s.flight(sending)
	if err != nil {
		return err
	}
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
	f, err := s.flight(sending)
	if err == nil {
		f.probe = ended
		s.launch(f)
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
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

// flight takes one from the free list and writes the messages into its unit. mu is held.
func (s *Sink) flight(sending *pipeline.Sending) (*flight, error) {
	var f *flight
	if n := len(s.free); n > 0 {
		f, s.free = s.free[n-1], s.free[:n-1]
	} else {
		f = &flight{id: len(s.flights), u: newUnit(len(s.flights))}
		s.flights = append(s.flights, f)
	}
	var lent []pipeline.Record
	if b := sending.Batch; b != nil && b.Lent() {
		lent = b.Recs
	}
	if !f.u.fill(&s.topics, sending.Msgs, lent) {
		s.free = append(s.free, f)
		return nil, pipeline.Errorf(pipeline.CodeBrokerFatal, s.place, "no memory for %d messages", len(sending.Msgs))
	}
	f.s, f.next, f.probe = sending, 0, nil
	f.u.setOpen(len(sending.Msgs)) // before the first message leaves: a report may come at once
	s.active.Add(1)
	return f, nil
}

// launch hands over what the client takes now. mu is held. What it does not take waits for reports, which make room.
func (s *Sink) launch(f *flight) {
	if len(s.waiting) == 0 && s.handOver(f) {
		return
	}
	s.waiting = append(s.waiting, f) // order
	s.unsettled.Store(true)
	if s.p.aloft() == 0 {
		s.settle() // no report will come to do it
	}
}

// handOver tells whether the client has everything now. mu is held. f may be complete after the last message.
func (s *Sink) handOver(f *flight) bool {
	for n := len(f.s.Msgs); f.next < n; {
		next, err := s.p.send(f.u, f.next, n)
		f.next = next
		if err == nil {
			return true
		}
		if full(err) {
			return false
		}
		f.next++
		s.turnedAway(ticket{f: f, i: next}, err)
		if f.s == nil {
			return true // that was the last one that was open
		}
	}
	return true
}

// full tells whether the client's queue has no room.
func full(err error) bool {
	e, ok := errors.AsType[clientError](err)
	return ok && e.Code() == client.ErrQueueFull
}

// turnedAway takes the answer for a message that the client did not take. mu is held.
func (s *Sink) turnedAway(t ticket, err error) {
	if s.inTx && s.doomed.Load() {
		s.forget(t)
		return
	}
	s.refuse(t, err)
}

// forget is the final answer for a message that counts for nothing. mu is held.
func (s *Sink) forget(t ticket) {
	t.f.u.refused(t.i, client.ErrPurgeQueue)
	if t.f.u.answered() {
		s.complete(t.f)
	}
}

// refuse is the final answer no for one message. mu is held.
func (s *Sink) refuse(t ticket, err error) {
	sending := t.f.s
	e, ok := errors.AsType[clientError](err)
	if ok && !s.closed && (e.Code() == client.ErrPurgeQueue || e.Code() == client.ErrPurgeInflight) {
		if fatal := s.p.fatal(); fatal != nil {
			err = fatal // why the library gave everything up
		}
	}
	t.f.u.refused(t.i, client.ErrFail)
	bad := pipeline.Bad{Msg: t.i, Failure: refusal(err, &sending.Msgs[t.i])}
	at := len(sending.Bad)
	for at > 0 && sending.Bad[at-1].Msg > bad.Msg {
		at--
	}
	sending.Bad = slices.Insert(sending.Bad, at, bad)
	if t.f.u.answered() {
		s.complete(t.f)
	}
}

// complete hands the Sending back (INV-KAFKA-ONCE: only whoever took open to 0 comes here). mu is held.
func (s *Sink) complete(f *flight) {
	f.u.acknowledged(f.s.Msgs)
	if f.probe != nil {
		close(f.probe)
	} else {
		s.done <- f.s // has room: Send counted it
	}
	f.s, f.probe = nil, nil
	if f.u.bytes() > keptBytes {
		f.u.shrink()
	}
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
		s.p.purge(true)
		s.p.flush(time.Second) // only moves the reports of what was purged
	}
	s.ending.Store(true)
	s.p.wake()
	<-s.ended
	s.hear()
	s.life.Lock()
	defer s.life.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logs.drain(s.p)
	s.p.free() // it points at nothing of the flights any more
	s.abandon()
	for _, f := range s.flights {
		f.u.free()
	}
	s.flights, s.free = nil, nil
	return late
}
