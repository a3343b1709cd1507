package kafka

import (
	"errors"
	"time"

	client "github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"reprieve.dev/pipeline"
)

// again holds messages whose produce batch the broker refused for the sake of some of them. They are sent again in halves,
// each with nothing else on its way, until a refused one stood alone: then the refusal is its own.
type again struct {
	busy   bool
	fresh  []*ticket   // refused since the last group left
	groups [][]*ticket // still to go, in order
}

// takeReports is the sink's goroutine: it ends when Close closed the client.
func (s *Sink) takeReports() {
	defer close(s.ended)
	for {
		select {
		case ev, ok := <-s.p.Events():
			if !ok {
				return
			}
			switch e := ev.(type) {
			case *client.Message:
				s.report(e)
			case client.Error:
				s.judge(e)
			}
		case e := <-s.logs.ch:
			s.logs.write(e)
		}
	}
}

// report takes the answer for one message. The good case takes no lock until the last message of a flight.
func (s *Sink) report(m *client.Message) {
	t, ok := m.Opaque.(*ticket)
	if !ok {
		return
	}
	left := s.aloft.Add(-1)
	err := m.TopicPartition.Error
	if err == nil {
		msg := &t.f.s.Msgs[t.i]
		msg.Partition, msg.Offset = m.TopicPartition.Partition, int64(m.TopicPartition.Offset)
		if f := t.f; f.open.Add(-1) == 0 {
			s.mu.Lock()
			s.complete(f)
			s.settle(left)
			s.mu.Unlock()
			return
		}
		if left == 0 || left%64 == 0 { // room was made: now and then is enough
			s.mu.Lock()
			s.settle(left)
			s.mu.Unlock()
		}
		return
	}
	innocent := s.inTx && s.goesWithTheTransaction(err, &t.f.s.Msgs[t.i])
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case innocent:
		if t.f.open.Add(-1) == 0 {
			s.complete(t.f)
		}
	case condemns(err) && !t.alone && !s.inTx:
		s.again.busy = true
		s.again.fresh = append(s.again.fresh, t)
	default:
		s.refuse(t, err)
	}
	s.settle(left)
}

// goesWithTheTransaction tells whether a message of a transaction failed for no fault of its own. The first failure dooms the
// transaction: the library then holds back the rest until Abort, so we purge it, and each Sending completes at once. What is
// purged, by us or by the library, counts for nothing: it was taken back with the transaction.
func (s *Sink) goesWithTheTransaction(err error, m *pipeline.Message) bool {
	if s.doomed.CompareAndSwap(false, true) {
		_ = s.p.Purge(client.PurgeQueue | client.PurgeInFlight | client.PurgeNonBlocking)
	}
	if e, ok := errors.AsType[client.Error](err); ok && (e.Code() == client.ErrPurgeQueue || e.Code() == client.ErrPurgeInflight) {
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
	a, err := client.NewAdminClientFromProducer(s.p)
	if err != nil {
		return 0
	}
	defer a.Close() // leaves the producer alone
	out, err := a.DescribeConfigs(bounded{}, []client.ConfigResource{{Type: client.ResourceTopic, Name: topic}},
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
func (s *Sink) settle(int64) {
	if len(s.waiting) > 0 || s.again.busy {
		s.move()
	}
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
	for s.again.busy && s.aloft.Load() == 0 {
		group := s.again.next()
		if group == nil {
			s.again.busy = false
			return
		}
		for i, t := range group {
			t.alone = len(group) == 1
			if !s.produce(t) {
				// cannot be: the queue is empty and larger than any group; still, no message is forgotten
				s.again.groups = append([][]*ticket{group[i:]}, s.again.groups...)
				break
			}
		}
	}
}

// next splits what was refused since and takes the first group; nil: all is answered.
func (a *again) next() []*ticket {
	if n := len(a.fresh); n > 0 {
		halves := [][]*ticket{a.fresh[:(n+1)/2]}
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

// judge takes an error that is not about a message.
func (s *Sink) judge(e client.Error) {
	if !e.IsFatal() {
		s.logs.to.Debug("client", "cluster", s.conf.Cluster.Name, "err", e.Error())
		return
	}
	code := codeOf(e)
	if code != pipeline.CodeTxFenced && code != pipeline.CodeBrokerAuth {
		code = pipeline.CodeBrokerFatal
	}
	s.fatal.CompareAndSwap(nil, &pipeline.Error{Code: code, Place: s.place, Text: e.Error(), Cause: e})
}

// abandon refuses what the closed client never took. mu is held.
func (s *Sink) abandon() {
	gone := client.NewError(client.ErrPurgeQueue, "the sink was closed before the message was sent", false)
	for _, f := range s.waiting {
		for n := len(f.tickets); f.next < n; {
			f.next++
			last := f.next == n
			s.refuse(&f.tickets[f.next-1], gone)
			if last {
				break
			}
		}
	}
	s.waiting = nil
	for _, t := range s.again.fresh {
		s.refuse(t, gone)
	}
	for _, g := range s.again.groups {
		for _, t := range g {
			s.refuse(t, gone)
		}
	}
	s.again = again{}
}
