package call

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"

	"reprieve.dev/pipeline"
)

// The headers by which a message for a Sink says what to call. They are made by the route stage, which has the record's fields,
// and are never sent.
const (
	HeaderURL = "reprieve-call-url"
	HeaderKey = "reprieve-call-key" // the idempotency key of this record
)

// Effect is one destination that is called rather than written to.
type Effect struct {
	Client      Doer
	Method      string // "" is POST
	Repeatable  bool   // idempotent: true, with a key
	KeyHeader   string // "" is Idempotency-Key
	ContentType string // "" is application/octet-stream
}

// SinkOptions are the settings of a Sink.
type SinkOptions struct {
	Effects     map[string]Effect // by the topic of the messages
	Stage       string            // that failures name
	Lanes       int               // calls at once, and at most one for each key (64)
	MaxInFlight int               // messages taken and not answered (4,096)
}

// Sink makes an HTTP call of each message: keys in lanes, so that calls of one key are made one after the other, in the order of
// sending, while others go on. A message without a key is in no order. It implements pipeline.Sink.
//
// What is not answered when ctx ends is told as it stands: not sent, or ambiguous.
type Sink struct {
	ctx  context.Context
	o    SinkOptions
	done chan *pipeline.Sending
	seed maphash.Seed

	mu     sync.Mutex
	wg     sync.WaitGroup
	lanes  []lane
	flying int
	next   int // lane of the next message without a key
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
	if o.Lanes <= 0 {
		o.Lanes = 64
	}
	if o.MaxInFlight <= 0 {
		o.MaxInFlight = 4096
	}
	return &Sink{ctx: ctx, o: o, seed: maphash.MakeSeed(), lanes: make([]lane, o.Lanes),
		done: make(chan *pipeline.Sending, o.MaxInFlight+1)} // one for each message in flight: lanes never wait for their owner
}

// Done returns each Sending once all its messages are answered.
func (s *Sink) Done() <-chan *pipeline.Sending { return s.done }

// Probe is nil: what is called cannot be asked without an effect.
func (s *Sink) Probe(context.Context, string) error { return nil }

// Send takes all messages of x or none. Codes: ERR_SINK_FULL.
func (s *Sink) Send(x *pipeline.Sending) error {
	n := len(x.Msgs)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flying > 0 && s.flying+max(n, 1) > s.o.MaxInFlight {
		return pipeline.ErrFull
	}
	s.flying += max(n, 1)
	l := &left{n: n}
	if n == 0 {
		s.finish(x, l)
		return nil
	}
	for i := range x.Msgs {
		at := s.next
		if key := x.Msgs[i].Key; key != nil {
			at = int(maphash.Bytes(s.seed, key) % uint64(len(s.lanes)))
		} else {
			s.next = (s.next + 1) % len(s.lanes)
		}
		ln := &s.lanes[at]
		ln.queue = append(ln.queue, job{x, i, l})
		if !ln.working {
			ln.working = true
			s.wg.Go(func() { s.work(ln) })
		}
	}
	return nil
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
			f.Stage, f.Index = s.o.Stage, j.s.Msgs[j.msg].From
			j.left.bad = append(j.left.bad, pipeline.Bad{Msg: j.msg, Failure: *f})
		}
		if j.left.n--; j.left.n == 0 {
			s.finish(j.s, j.left)
		}
		s.mu.Unlock()
	}
}

func (s *Sink) call(m *pipeline.Message) *pipeline.Failure {
	unfit := func(what string) *pipeline.Failure {
		return &pipeline.Failure{Code: pipeline.CodeHTTPRequest, Params: []pipeline.Param{pipeline.Str("target", m.Topic), pipeline.Str("what", what)}}
	}
	e, ok := s.o.Effects[m.Topic]
	if !ok {
		return unfit("no such effect")
	}
	r := Request{Method: e.Method, Body: m.Value, Repeatable: e.Repeatable, Effect: true}
	if r.Method == "" {
		r.Method = "POST"
	}
	content := e.ContentType
	if content == "" {
		content = "application/octet-stream"
	}
	r.Headers = append(r.Headers, pipeline.Header{Name: "Content-Type", Value: []byte(content)})
	keyed := false
	for _, h := range m.Headers {
		switch h.Name {
		case HeaderURL:
			r.URL = string(h.Value)
		case HeaderKey:
			name := e.KeyHeader
			if name == "" {
				name = "Idempotency-Key"
			}
			keyed = len(h.Value) > 0
			r.Headers = append(r.Headers, pipeline.Header{Name: name, Value: h.Value})
		case "traceparent", "tracestate":
			if CheckHeader(h.Name, string(h.Value)) == "" { // a record's own: not a reason to fail
				r.Headers = append(r.Headers, h)
			}
		}
	}
	switch {
	case r.URL == "":
		return unfit("url")
	case e.Repeatable && !keyed: // INV-CALL-AMBIGUOUS: without a key nothing makes it repeatable
		return unfit("idempotency key")
	}
	_, f := e.Client.Do(s.ctx, r)
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
		return pipeline.Errorf(pipeline.CodeDrainTimeout, s.o.Stage, "calls did not end: %w", ctx.Err())
	}
}
