package kafka

import (
	"errors"
	"slices"
	"time"

	client "github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"reprieve.dev/pipeline"
)

// again holds messages whose produce batch the broker refused for the sake of some of them. They are sent again in halves,
// each with nothing else on its way, until a refused one stood alone: then the refusal is its own.
type again struct {
	busy   bool
	alone  ticket     // went in a produce batch of its own: the next report is about it
	fresh  []ticket   // refused since the last group left
	groups [][]ticket // still to go, in order
}

// takeReports is the sink's goroutine: it ends when Close says so.
func (s *Sink) takeReports() {
	defer close(s.ended)
	for !s.ending.Load() {
		if s.p.serve(serveEach) || s.unsettled.Load() {
			s.hear()
		}
	}
}

// hear takes what the library reported and said. The reports goroutine calls it, and who waited in a call of the library that
// takes reports itself.
func (s *Sink) hear() {
	s.judging.Lock()
	defer s.judging.Unlock()
	s.logs.drain(s.p)
	s.p.said(true, func(e note) { s.judge(&e.fault) })
	s.mu.Lock()
	s.p.reports(func(id int) { s.complete(s.flights[id]) },
		func(id, i int, code client.ErrorCode) { s.bad = append(s.bad, ticket{s.flights[id], i, code}) })
	bad := s.bad
	s.mu.Unlock()
	for _, t := range bad { // nobody else changes it: one goroutine hears
		s.failed(t)
	}
	s.mu.Lock()
	s.bad = s.bad[:0]
	s.settle()
	s.mu.Unlock()
}

// failed takes the report of a message that did not arrive.
func (s *Sink) failed(t ticket) {
	err := &fault{code: t.code}
	innocent := s.inTx && s.goesWithTheTransaction(err, &t.f.s.Msgs[t.i]) // may ask the broker
	s.mu.Lock()
	defer s.mu.Unlock()
	alone := s.again.alone.f == t.f && s.again.alone.i == t.i
	switch {
	case innocent:
		s.forget(t)
	case condemns(err) && !alone && !s.inTx:
		s.again.busy = true
		s.again.fresh = append(s.again.fresh, t)
	default:
		s.refuse(t, err)
	}
}

// goesWithTheTransaction tells whether a message of a transaction failed for no fault of its own. The first failure dooms the
// transaction: the library then holds back the rest until Abort, so we purge it, and each Sending completes at once. What is
// purged, by us or by the library, counts for nothing: it was taken back with the transaction.
func (s *Sink) goesWithTheTransaction(err error, m *pipeline.Message) bool {
	if s.doomed.CompareAndSwap(false, true) {
		s.p.purge(false)
	}
	if e, ok := errors.AsType[clientError](err); ok && (e.Code() == client.ErrPurgeQueue || e.Code() == client.ErrPurgeInflight) {
		return true
	}
	return condemns(err) && !s.guilty(m)
}

// batchOverhead is what a batch of one message has beside key, value and headers, at most.
const batchOverhead = 100

// guilty tells whether a message can have been the cause that its batch was refused. A transaction cannot find out by sending
// it alone: it is doomed already.
func (s *Sink) guilty(m *pipeline.Message) bool {
	if m.Key == nil {
		return true // the topic may be compacted
	}
	limit, known := s.limits[m.Topic]
	if !known {
		limit = s.ask(m.Topic)
		if s.limits == nil {
			s.limits = map[string]int64{}
		}
		s.limits[m.Topic] = limit
	}
	return limit <= 0 || int64(size(m)+batchOverhead) > limit
}

// ask reads the largest batch that a topic takes; 0 is unknown. Reports wait meanwhile: it happens once for a topic, after a
// refusal.
func (s *Sink) ask(topic string) int64 {
	a, err := NewAdmin(s.conf.Cluster)
	if err != nil {
		return 0
	}
	defer a.Close()
	out, err := a.a.DescribeConfigs(bounded{}, []client.ConfigResource{{Type: client.ResourceTopic, Name: topic}},
		client.SetAdminRequestTimeout(askTimeout))
	if err != nil || len(out) != 1 || out[0].Error.Code() != client.ErrNoError {
		return 0
	}
	return number(out[0].Config["max.message.bytes"].Value, 0)
}

const askTimeout = 3 * time.Second

// bounded is the context of a call that ends by its own timeout.
type bounded struct{}

func (bounded) Deadline() (t time.Time, ok bool) { return t, false }
func (bounded) Done() <-chan struct{}            { return nil }
func (bounded) Err() error                       { return nil }
func (bounded) Value(any) any                    { return nil }

// settle goes on with what waits. mu is held.
func (s *Sink) settle() {
	if len(s.waiting) > 0 || s.again.busy {
		s.move()
	}
	s.unsettled.Store(len(s.waiting) > 0 || s.again.busy)
}

// move hands over waiting flights, then, when nothing is on its way any more, the next group of the refused. mu is held.
func (s *Sink) move() {
	for len(s.waiting) > 0 {
		if !s.handOver(s.waiting[0]) {
			return
		}
		s.waiting[0] = nil
		s.waiting = s.waiting[1:]
	}
	s.waiting = nil
	for s.again.busy && s.p.aloft() == 0 {
		group := s.again.next()
		if group == nil {
			s.again = again{}
			return
		}
		s.again.alone = ticket{}
		if len(group) == 1 {
			s.again.alone = group[0]
		}
		for i, t := range group {
			if _, err := s.p.send(t.f.u, t.i, t.i+1); full(err) {
				// cannot be: the queue is empty and larger than any group; still, no message is forgotten
				s.again.groups = slices.Insert(s.again.groups, 0, group[i:])
				break
			} else if err != nil {
				s.turnedAway(t, err)
			}
		}
	}
}

// next splits what was refused since and takes the first group; nil: all is answered.
func (a *again) next() []ticket {
	if n := len(a.fresh); n > 0 {
		halves := [][]ticket{a.fresh[:(n+1)/2]}
		if n > 1 {
			halves = append(halves, a.fresh[(n+1)/2:])
		}
		a.groups = append(halves, a.groups...)
		a.fresh = nil
	}
	if len(a.groups) == 0 {
		return nil
	}
	g := a.groups[0]
	a.groups = a.groups[1:]
	return g
}

// judge takes an error that is not about a message. Brokers that refuse our credentials end the sink, as they end a source: the
// library would try them for ever, and messages would only time out.
func (s *Sink) judge(e clientError) {
	code := codeOf(e)
	if !e.IsFatal() && !credentials(e) {
		s.logs.to.Debug("client", "cluster", s.conf.Cluster.Name, "err", e.Error())
		return
	}
	if code != pipeline.CodeTxFenced && code != pipeline.CodeBrokerAuth {
		code = pipeline.CodeBrokerFatal
	}
	s.fatal.CompareAndSwap(nil, &pipeline.Error{Code: code, Place: s.place, Text: e.Error(), Cause: e})
}

// abandon refuses what the closed client never took, or never reported. mu is held.
func (s *Sink) abandon() {
	gone := &fault{code: client.ErrPurgeQueue, text: "the sink was closed before the message was sent"}
	for _, f := range s.flights {
		if f.s == nil {
			continue
		}
		for i := range f.s.Msgs {
			if f.u.unanswered(i) {
				s.refuse(ticket{f: f, i: i}, gone)
			}
			if f.s == nil {
				break // that was the last one that was open
			}
		}
	}
	s.waiting = nil
	s.again.groups = append(s.again.groups, s.again.fresh)
	for _, g := range s.again.groups {
		for _, t := range g {
			s.refuse(t, gone)
		}
	}
	s.again = again{}
}
