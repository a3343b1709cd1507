package engine

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/pipeline/decide"
)

// part is the owner's state of one assigned partition.
type part struct {
	tp      pipeline.TP
	lane    pipeline.Lane
	epoch   uint32
	gone    bool
	leaving bool // about to go: nothing more is sent for it
	in      chan *pipeline.Batch
	closed  bool
	queue   []*pipeline.Batch // waits for the loop
	inLoop  int               // handed to the loop and not answered
	working int               // batches of this partition in work
	records int               // of those
	waiting int               // of those, how many wait for the dead-letter path
	window  decide.Window
	skip    pipeline.Offsets // settled by an earlier life; read by the loop, never changed
	delay   decide.Delay
	paused  pauseBit
	since   time.Time       // when it became ours
	late    bool            // it was told that it waits for the control topic
	held    decide.Delay    // records that may neither go on nor leave yet
	tries   map[int64]uint8 // of held records, by offset: how often each was really tried
	trial   *pipeline.Batch // of records that were held, in work again
	heldBy  pipeline.Digest // policy version that held the last ones
	readOn  bool            // one more batch is read although records are held
	again   time.Time       // when held ones are tried again
	backoff time.Duration

	committed  int64                  // what the broker has; -1 is nothing
	origin     pipeline.Checkpoint    // as it was committed
	refused    map[int64]refusal      // by an aborted transaction; never changed once the loop runs
	aheadSeen  int64                  // count of Ahead at the last commit
	settlement *deadletter.Settlement // of what is not committed yet; nil before the first record
	versions   versions
	guard
}

// loopDepth batches may stand in front of a loop, so that it never waits for the owner.
const loopDepth = 2

func newPart(tp pipeline.TP, lane pipeline.Lane, epoch uint32) *part {
	return &part{tp: tp, lane: lane, epoch: epoch, in: make(chan *pipeline.Batch, loopDepth), committed: -1}
}

// give moves the first queued batch to the loop.
func (p *part) give() {
	p.in <- p.queue[0]
	p.inLoop++
	n := copy(p.queue, p.queue[1:])
	p.queue[n] = nil
	p.queue = p.queue[:n]
}

// begin starts the settlement of what is not committed yet.
func (p *part) begin(last pipeline.Checkpoint, name string) {
	p.settlement = deadletter.NewSettlement(name, p.tp, p.epoch, last)
}

// firstOffset is where reading began, if anything was read and nothing committed.
func (p *part) firstOffset() (int64, bool) {
	if p.settlement == nil {
		return 0, false
	}
	return p.settlement.From, true
}

func (p *part) close() {
	if !p.closed {
		p.closed = true
		close(p.in)
	}
}

// result is one batch that went through the stages. last tells that it is the whole answer to what the loop was given, of.
type result struct {
	part *part
	work *work
	last bool
	of   *pipeline.Batch
}

// core is what partition loops and Try share: stages, decisions, composing. It has no effects and is safe for concurrent use
// on different batches.
type core struct {
	o    Options
	slot pipeline.Slot[work]
	err  *atomic.Pointer[error]
}

func newCore(o Options) core {
	return core{o: o, slot: pipeline.NewSlot(o.Layout, func() *work { return &work{} }), err: new(atomic.Pointer[error])}
}

func (c *core) fatal() error {
	if e := c.err.Load(); e != nil {
		return *e
	}
	return nil
}

// loop runs the stages of one partition, a batch at a time, until its channel closes.
func (c *core) loop(ctx context.Context, p *part, out chan<- result) {
	send := func(r result) bool {
		select {
		case out <- r:
			return true
		case <-ctx.Done():
			return false
		}
	}
	for b := range p.in {
		w := c.slot.Of(b)
		w.reset(b, p)
		if err := c.process(ctx, w); err == nil {
			if !send(result{p, w, true, b}) {
				b.Release()
				return
			}
			continue
		}
		// A stage panicked somewhere in the batch. Each record goes alone now, so that only the one at fault fails.
		ones := make([]*pipeline.Batch, b.Len())
		for i := range b.Recs {
			one := c.o.Pool.Get()
			one.TP, one.Lane, one.Epoch, one.Policy = b.TP, b.Lane, b.Epoch, b.Policy
			one.Recs = append(one.Recs[:0], b.Recs[i].Clone())
			ones[i] = one
		}
		b.Release() // everything in it was cloned; the first single stands for it in the owner's count
		for i, one := range ones {
			ow := c.slot.Of(one)
			ow.reset(one, p)
			ow.single, ow.extra = true, i > 0
			if err := c.process(ctx, ow); err != nil {
				c.isolate(ow, err)
			}
			if !send(result{p, ow, i == len(ones)-1, b}) {
				return
			}
		}
	}
}

// panicked is what process returns when a stage panicked.
type panicked struct {
	stage string
	value any
	stack string
}

func (p *panicked) Error() string { return fmt.Sprintf("stage %s panicked: %v", p.stage, p.value) }

// process runs the stages over the batch, decides about failures and composes messages. The only error is a panic.
func (c *core) process(ctx context.Context, w *work) (err error) {
	b, stage := w.batch, "engine"
	defer func() {
		if v := recover(); v != nil {
			err = &panicked{stage, v, string(debug.Stack())}
		}
	}()
	b.Begin(b.Policy)
	now := c.o.Clock()
	if w.part != nil {
		c.admit(b, w.part, now.UnixMilli())
	}
	for i := range c.o.Stages {
		s := &c.o.Stages[i]
		stage = s.Name
		if s.When != nil {
			c.runWhen(ctx, s, b)
			continue
		}
		if err := s.Stage.Process(ctx, b); err != nil {
			c.stop(err)
			return nil
		}
	}
	stage = "engine"
	for i := range b.Recs {
		if b.Live(i) && b.Outs[i].To.Kind == pipeline.TargetNone {
			b.Fail(i, pipeline.Failure{Stage: "route", Code: pipeline.CodeRouteNone})
		}
	}
	c.decide(w, now)
	return nil
}

// stop records the error that ends the pipeline; the owner sees it at its next turn.
func (c *core) stop(err error) { c.err.CompareAndSwap(nil, &err) }

// admit checks what arrived on the retry topic, and takes out what is settled or not due.
func (c *core) admit(b *pipeline.Batch, p *part, now int64) {
	for i := range b.Recs {
		r := &b.Recs[i]
		if !p.skip.Empty() && p.skip.Has(r.Offset) {
			b.Skip(i)
			continue
		}
		if f, known := p.refused[r.Offset]; known && f.failure.Code != "" {
			defer b.Fail(i, f.failure) // after its trail is read
		}
		if b.Lane != pipeline.Retry {
			continue
		}
		if r.Trail == nil {
			t, id, err := deadletter.ParseTrail(b.TP.Topic, r, c.o.Ring)
			if err != nil {
				b.Fail(i, pipeline.Failure{Stage: "trail", Code: pipeline.CodeLineage, Cause: err})
				continue
			}
			t.Identity = id
			r.Trail = t
		}
		if r.Trail.NotBefore > now {
			b.Hold(i)
		}
	}
}

// runWhen runs a conditional stage over the records that it applies to: the others are held for its time.
func (c *core) runWhen(ctx context.Context, s *Stage, b *pipeline.Batch) {
	var out []int
	for i := range b.Recs {
		if !b.Live(i) {
			continue
		}
		if b.Views[i] == nil && s.When.ReadsView() {
			out = append(out, i) // a delete marker has no fields: a condition over them does not hold
			continue
		}
		ok, err := s.When.Eval(b, i)
		if err != nil {
			b.Fail(i, pipeline.Failure{Stage: s.Name, Code: pipeline.CodeStageCondition,
				Params: []pipeline.Param{pipeline.Str("rule", s.Name)}, Cause: err})
		} else if !ok {
			out = append(out, i)
		}
	}
	for _, i := range out {
		b.Hold(i)
	}
	err := s.Stage.Process(ctx, b)
	for _, i := range out {
		b.Unhold(i)
	}
	if err != nil {
		c.stop(err)
	}
}

// isolate makes a letter of the record that panicked, without running a stage again.
func (c *core) isolate(w *work, err error) {
	b := w.batch
	b.Begin(b.Policy)
	p, _ := err.(*panicked)
	f := pipeline.Failure{Stage: p.stage, Code: pipeline.CodePanic, Params: []pipeline.Param{pipeline.Str("where", p.stage)},
		Stack: p.stack, Cause: err}
	b.Fail(0, f)
	c.decide(w, c.o.Clock())
}
