package script

import (
	"context"

	"reprieve.dev/pipeline"
)

// SinkOptions says how a producer behaves.
type SinkOptions struct {
	MaxInFlight int  // messages; 0 is 20,000
	Hold        bool // completions come when the test releases them, not at once
}

// Sink is a scripted producer. What it accepts is in the topic at once (a broker has it before its answer arrives); the
// answer comes when it is released.
type Sink struct {
	c     *Cluster
	o     SinkOptions
	done  chan *pipeline.Sending
	tx    *Tx
	held  []*pipeline.Sending // taken, not answered yet
	aloft int
	full  bool
	err   error
	sends int
}

var _ pipeline.Sink = (*Sink)(nil)

// refusal is what a topic answers for a while.
type refusal struct {
	code  pipeline.Code
	times int // messages; -1 is for ever
}

// Sink opens a producer.
func (c *Cluster) Sink(o SinkOptions) *Sink {
	if o.MaxInFlight <= 0 {
		o.MaxInFlight = 20_000
	}
	return &Sink{c: c, o: o, done: make(chan *pipeline.Sending, 1<<16)}
}

// Refuse makes a topic refuse the next messages, for all sinks: times of them, or all with -1. 0 ends it.
func (c *Cluster) Refuse(topic string, code pipeline.Code, times int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if times == 0 {
		delete(c.refuse, topic)
		return
	}
	c.refuse[topic] = &refusal{code: code, times: times}
}

// Send takes s, or answers ErrFull, or the error that Fail set.
func (k *Sink) Send(s *pipeline.Sending) error {
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	switch {
	case k.err != nil:
		return k.err
	case k.full, k.aloft > 0 && k.aloft+len(s.Msgs) > k.o.MaxInFlight:
		return pipeline.ErrFull
	}
	k.sends++
	s.Bad = s.Bad[:0]
	for i := range s.Msgs {
		if code := k.write(&s.Msgs[i]); code != "" {
			s.Bad = append(s.Bad, pipeline.Bad{Msg: i, Failure: pipeline.Failure{Index: s.Msgs[i].From, Stage: "send",
				Code: code, Params: []pipeline.Param{pipeline.Str("topic", s.Msgs[i].Topic)}}})
		}
	}
	k.aloft += len(s.Msgs)
	k.held = append(k.held, s)
	if !k.o.Hold {
		k.release(len(k.held))
	}
	return nil
}

// write appends one message or says why not. mu is held.
func (k *Sink) write(m *pipeline.Message) pipeline.Code {
	c := k.c
	if r := c.refuse[m.Topic]; r != nil {
		if r.times > 0 {
			r.times--
		}
		if r.times == 0 {
			delete(c.refuse, m.Topic)
		}
		return r.code
	}
	t := c.topics[m.Topic]
	if t == nil {
		return pipeline.CodeSendTopicMissing
	}
	if m.Key == nil && t.configs["cleanup.policy"] == "compact" {
		return pipeline.CodeSendKeyless
	}
	if int64(len(m.Key)+len(m.Value)) > t.number("max.message.bytes", 1_000_000) {
		return pipeline.CodeTooLarge
	}
	p := m.Partition
	switch {
	case p >= int32(len(t.parts)):
		return pipeline.CodeSendTopicMissing
	case p >= 0:
	case m.Key == nil:
		p = t.round % int32(len(t.parts))
		t.round++
	default:
		p = pipeline.Partition(m.Key, int32(len(t.parts)))
	}
	var tx *transaction
	if k.tx != nil {
		if tx = k.tx.now; tx == nil {
			return pipeline.CodeSendFailed // outside of a transaction
		}
		k.tx.touched[pipeline.TP{Topic: m.Topic, Partition: p}] = true
	}
	m.Partition = p
	m.Offset = c.append(pipeline.TP{Topic: m.Topic, Partition: p},
		pipeline.Record{TimeMS: m.TimeMS, Key: m.Key, Value: m.Value, Headers: m.Headers}, tx)
	c.wake()
	return ""
}

// Done returns each Sending once.
func (k *Sink) Done() <-chan *pipeline.Sending { return k.done }

// Probe writes a probe at once.
func (k *Sink) Probe(_ context.Context, topic string) error {
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	if k.err != nil {
		return k.err
	}
	m := pipeline.Message{Topic: topic, Partition: -1, Key: []byte("reprieve-probe"), From: -1,
		Headers: []pipeline.Header{{Name: "reprieve-probe", Value: []byte("1")}}}
	if code := k.write(&m); code != "" {
		return pipeline.Errorf(code, topic, "the probe was refused")
	}
	return nil
}

// Hold makes completions wait for Release from now on.
func (k *Sink) Hold() {
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	k.o.Hold = true
}

// Release completes the oldest n held Sendings, all with -1, and tells how many it were.
func (k *Sink) Release(n int) int {
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	if n < 0 {
		n = len(k.held)
	}
	return k.release(n)
}

// Flow ends Hold and completes what is held.
func (k *Sink) Flow() {
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	k.o.Hold = false
	k.release(len(k.held))
}

func (k *Sink) release(n int) int {
	n = min(n, len(k.held))
	for _, s := range k.held[:n] {
		k.aloft -= len(s.Msgs)
		k.done <- s
	}
	k.held = k.held[n:]
	return n
}

// ReleaseLast completes the youngest held Sending: completions out of order.
func (k *Sink) ReleaseLast() bool {
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	n := len(k.held)
	if n == 0 {
		return false
	}
	s := k.held[n-1]
	k.held = k.held[:n-1]
	k.aloft -= len(s.Msgs)
	k.done <- s
	return true
}

// Held is how many Sendings wait for Release.
func (k *Sink) Held() int {
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	return len(k.held)
}

// Sends is how many Sendings were taken.
func (k *Sink) Sends() int {
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	return k.sends
}

// SetFull makes Send answer ErrFull until it is called with false.
func (k *Sink) SetFull(full bool) {
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	k.full = full
}

// Fail ends the sink: Send returns err from now on; nil mends it.
func (k *Sink) Fail(err error) {
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	k.err = err
}

// Close completes what is held.
func (k *Sink) Close(context.Context) error {
	k.Flow()
	k.Fail(pipeline.Errorf(pipeline.CodeBrokerFatal, "script", "the sink is closed"))
	return nil
}
