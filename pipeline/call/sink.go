package call

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"

	"reprieve.dev/pipeline"
)

// SinkOptions are the settings of a Sink.
type SinkOptions struct {
	Effects     map[string]Effect // by the topic of the messages
	MaxInFlight int               // messages taken and not answered, of all effects (4,096)
	Depth       int               // messages that wait in one lane before it is full (256)
}

// Sink makes an HTTP call of each message. Each effect has its own lanes: calls of one key are made one after the other, in the
// order of sending, while others go on. A message without a key is in no order. It implements pipeline.Sink.
//
// What is not answered when ctx ends is told as it stands: not sent, or ambiguous.
type Sink struct {
	ctx  context.Context
	o    SinkOptions
	done chan *pipeline.Sending
	seed maphash.Seed

	mu     sync.Mutex
	wg     sync.WaitGroup
	lanes  map[string]*lanes // by effect
	flying int
}

// lanes are those of one effect.
type lanes struct {
	list []lane
	next int // lane of the next message without a key
}

// lane is a queue that a goroutine works off while there is something in it.
type lane struct {
	queue   []job
	working bool
}

type job struct {
	s    *pipeline.Sending
	msg  int
	left *left
}

// left counts the messages of a Sending that have no answer.
type left struct {
	n   int
	bad []pipeline.Bad
}

// NewSink makes a sink. It starts nothing; calls end with ctx.
func NewSink(ctx context.Context, o SinkOptions) *Sink {
	if o.MaxInFlight <= 0 {
		o.MaxInFlight = 4096
	}
	if o.Depth <= 0 {
		o.Depth = 256
	}
	s := &Sink{ctx: ctx, o: o, seed: maphash.MakeSeed(), lanes: map[string]*lanes{"": {list: make([]lane, 1)}}, // "": what no effect is for
		done: make(chan *pipeline.Sending, o.MaxInFlight+1)} // one for each message in flight: lanes never wait for their owner
	for name, e := range o.Effects {
		n := e.Lanes
		if n <= 0 {
			n = 64
		}
		s.lanes[name] = &lanes{list: make([]lane, n)}
	}
	return s
}

// Done returns each Sending once all its messages are answered.
func (s *Sink) Done() <-chan *pipeline.Sending { return s.done }

// Probe is nil: what is called cannot be asked without an effect.
func (s *Sink) Probe(context.Context, string) error { return nil }

// Send takes all messages of x or none: none while a lane that it needs is full. Codes: ERR_SINK_FULL.
func (s *Sink) Send(x *pipeline.Sending) error {
	n := len(x.Msgs)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flying > 0 && s.flying+max(n, 1) > s.o.MaxInFlight {
		return pipeline.ErrFull
	}
	for i := range x.Msgs {
		if m := &x.Msgs[i]; m.Key != nil && len(s.lane(m).queue) >= s.o.Depth {
			return pipeline.ErrFull
		}
	}
	s.flying += max(n, 1)
	l := &left{n: n}
	if n == 0 {
		s.finish(x, l)
		return nil
	}
	for i := range x.Msgs {
		ln := s.lane(&x.Msgs[i])
		ln.queue = append(ln.queue, job{x, i, l})
		if !ln.working {
			ln.working = true
			s.wg.Go(func() { s.work(ln) })
		}
	}
	return nil
}

// lane is where a message waits: one without a key goes round. The lock is held.
func (s *Sink) lane(m *pipeline.Message) *lane {
	ls := s.lanes[m.Topic]
	if ls == nil {
		ls = s.lanes[""]
	}
	if m.Key != nil {
		return &ls.list[maphash.Bytes(s.seed, m.Key)%uint64(len(ls.list))]
	}
	ls.next = (ls.next + 1) % len(ls.list)
	return &ls.list[ls.next]
}

// finish hands x back. The lock is held; done has room for all that may be in flight. A sending larger than MaxInFlight is only
// taken alone.
func (s *Sink) finish(x *pipeline.Sending, l *left) {
	slices.SortFunc(l.bad, func(a, b pipeline.Bad) int { return a.Msg - b.Msg })
	x.Bad = append(x.Bad[:0], l.bad...)
	s.flying -= max(len(x.Msgs), 1)
	s.done <- x
}

func (s *Sink) work(ln *lane) {
	for {
		s.mu.Lock()
		if len(ln.queue) == 0 {
			ln.working, ln.queue = false, nil
			s.mu.Unlock()
			return
		}
		j := ln.queue[0]
		ln.queue = ln.queue[1:]
		s.mu.Unlock()
		f := s.call(&j.s.Msgs[j.msg])
		s.mu.Lock()
		if f != nil {
			f.Index = j.s.Msgs[j.msg].From
			j.left.bad = append(j.left.bad, pipeline.Bad{Msg: j.msg, Failure: *f})
		}
		if j.left.n--; j.left.n == 0 {
			s.finish(j.s, j.left)
		}
		s.mu.Unlock()
	}
}

func (s *Sink) call(m *pipeline.Message) *pipeline.Failure {
	e, ok := s.o.Effects[m.Topic]
	if !ok {
		return e.unfit(m, "no such effect")
	}
	r, f := e.Request(m)
	if f == nil {
		_, f = e.Client.Do(s.ctx, r)
	}
	if f != nil {
		f.Stage = e.Stage
	}
	return f
}

// Close waits for the calls in work, at most until ctx ends. Send must not be called any more.
func (s *Sink) Close(ctx context.Context) error {
	idle := make(chan struct{})
	go func() {
		s.wg.Wait()
		close(idle)
	}()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return pipeline.Errorf(pipeline.CodeDrainTimeout, "effects", "calls did not end: %w", ctx.Err())
	}
}
