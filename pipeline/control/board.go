package control

import (
	"context"
	"iter"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"reprieve.dev/pipeline"
)

// Reader is the part of pipeline.Log that a Board needs.
type Reader interface {
	Read(ctx context.Context, tp pipeline.TP, offsets iter.Seq[int64], each func(*pipeline.Batch) error) error
	Info(ctx context.Context, topic string) (pipeline.TopicInfo, error)
}

// Options says what a Board works with.
type Options struct {
	Topic     string // deadletter.ControlTopic(prefix)
	Reader    Reader
	Sink      pipeline.Sink // the Board's own: it reads its completions. nil: the Board only reads
	Authority *Authority
	Clock     pipeline.Clock
	Interval  time.Duration // between two looks; 0 is 200 ms
	Log       *slog.Logger
	Meter     pipeline.Meter // nil is none
}

// Board keeps a Snapshot current and publishes entries. Run does all the work; every other method is safe for concurrent
// use.
type Board struct {
	o        Options
	tp       pipeline.TP
	requests chan *request

	mu      sync.Mutex // orders folds
	snap    atomic.Pointer[Snapshot]
	ready   chan struct{}
	changed chan struct{} // closed at the next change
	seenMS  int64         // when the end was last known to be read
	failure error         // of the last look
	counts  map[Refusal]int64

	// The reading goroutine's own.
	next     int64         // offset to read next
	target   int64         // the end that was seen at targetMS: once next is there, everything of that time is known
	targetMS int64         // 0: no target
	draft    *Snapshot     // what a cold board has read so far
	lost     map[Key]int64 // entries over which something was written that does not count, and where: compaction would keep only that
	nudge    chan struct{} // look now
}

// NewBoard makes a Board; nothing runs before Run.
func NewBoard(o Options) *Board {
	if o.Interval == 0 {
		o.Interval = 200 * time.Millisecond
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Board{o: o, tp: pipeline.TP{Topic: o.Topic}, requests: make(chan *request), ready: make(chan struct{}),
		changed: make(chan struct{}), counts: map[Refusal]int64{}, lost: map[Key]int64{}, nudge: make(chan struct{}, 1)}
}

// Run reads the topic to its end, follows it and publishes, until ctx ends. It owns every goroutine that it starts and may
// run once. Failures to read do not end it: it is not ready, or keeps what it knows, and tries again.
func (b *Board) Run(ctx context.Context) error {
	var wait sync.WaitGroup
	wait.Go(func() { b.publish(ctx) })
	b.follow(ctx)
	wait.Wait()
	return nil
}

// Ready tells whether the topic was read to its end once.
func (b *Board) Ready() bool { return b.snap.Load() != nil }

// WaitReady waits until the Board is ready. When ctx ends before: ERR_CONTROL_NOT_READY with what the last look said.
func (b *Board) WaitReady(ctx context.Context) error {
	select {
	case <-b.ready:
		return nil
	case <-ctx.Done():
		return b.notReady()
	}
}

// Snapshot is the latest state. ERR_CONTROL_NOT_READY while the Board is cold (INV-CONTROL-COLD).
func (b *Board) Snapshot() (*Snapshot, error) {
	if s := b.snap.Load(); s != nil {
		return s, nil
	}
	return nil, b.notReady()
}

// Changed returns a channel that is closed at the next change of the snapshot. Take it before looking at Snapshot.
func (b *Board) Changed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

// Stale is how long ago the snapshot was last known to be complete; a cold Board is stale without end. Redrives halt above
// 10 s.
func (b *Board) Stale() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.snap.Load() == nil {
		return time.Duration(1<<63 - 1)
	}
	return time.Duration(max(0, b.o.Clock().UnixMilli()-b.seenMS)) * time.Millisecond
}

// Covers tells whether everything that stood on the topic at a moment (Unix ms) is known. If it is not, the Board looks at once.
func (b *Board) Covers(ms int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.snap.Load() != nil && b.seenMS >= ms {
		return true
	}
	select {
	case b.nudge <- struct{}{}:
	default: // it is asked already
	}
	return false
}

// Err is what the last look at the topic failed with; nil if it did not.
func (b *Board) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failure
}

// Ignored counts the messages that were ignored, by reason.
func (b *Board) Ignored() map[Refusal]int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := make(map[Refusal]int64, len(b.counts))
	for r, c := range b.counts {
		n[r] = c
	}
	return n
}

func (b *Board) notReady() error {
	e := pipeline.Errorf(pipeline.CodeControlNotReady, b.o.Topic, "the control topic has not been read to its end")
	if err := b.Err(); err != nil {
		e = pipeline.Errorf(pipeline.CodeControlNotReady, b.o.Topic, "the control topic has not been read to its end: %w", err)
	}
	return e
}

// follow looks at the topic every interval.
func (b *Board) follow(ctx context.Context) {
	tick := time.NewTicker(b.o.Interval)
	defer tick.Stop()
	for {
		err := b.look(ctx)
		if ctx.Err() != nil {
			return
		}
		b.mu.Lock()
		before := b.failure
		b.failure = err
		b.mu.Unlock()
		switch {
		case err != nil && before == nil:
			b.o.Log.Warn("control topic cannot be read", "topic", b.o.Topic, "error", err)
		case err == nil && before != nil:
			b.o.Log.Info("control topic is read again", "topic", b.o.Topic)
		}
		select {
		case <-tick.C:
		case <-b.nudge:
		case <-ctx.Done():
			return
		}
	}
}

// look reads on from where the last look got to. It gets no further than what is committed: behind an open transaction of
// anybody, acknowledged entries are not visible yet. So what was covered is what Read asked for, not what the topic's end
// says, and the board counts as complete for the moment in which the end stood where it has got to by now.
func (b *Board) look(ctx context.Context) error {
	at := b.o.Clock().UnixMilli()
	info, err := b.o.Reader.Info(ctx, b.o.Topic)
	if err != nil {
		return err
	}
	r, ok := info.Partitions[0]
	if !ok || len(info.Partitions) != 1 {
		return pipeline.Errorf(pipeline.CodeTopicUnsafe, b.o.Topic, "the control topic has %d partitions; it needs exactly one", len(info.Partitions))
	}
	if r.Next < b.next {
		// Somebody made the topic anew: read it from its start, and keep what is known (INV-CONTROL-STICKY).
		b.o.Log.Warn("the control topic was made anew", "topic", b.o.Topic, "had", b.next, "has", r.Next)
		b.next, b.targetMS = 0, 0
	}
	if b.targetMS == 0 {
		b.target, b.targetMS = r.Next, at
	}
	covered := max(b.next, r.First)
	var entries []Entry
	lost := map[Key]int64{}
	if r.Next > covered {
		err := b.o.Reader.Read(ctx, b.tp, offsets(covered, r.Next, &covered), func(batch *pipeline.Batch) error {
			defer batch.Release()
			for i := range batch.Recs {
				rec := &batch.Recs[i]
				if e, ok := b.decode(rec); ok {
					entries = append(entries, e)
				} else if k, ok := ParseKey(string(rec.Key)); ok {
					lost[k] = rec.Offset
				}
			}
			return nil
		})
		if err != nil {
			return err // nothing of it is kept: the next look reads it again
		}
	}
	maps.Copy(b.lost, lost)
	b.next = covered
	complete := int64(0)
	switch {
	case covered >= r.Next:
		complete, b.targetMS = at, 0
	case covered >= b.target:
		complete, b.target, b.targetMS = b.targetMS, r.Next, at
	}
	b.read(entries, complete)
	if complete == 0 {
		return pipeline.Errorf(pipeline.CodeBrokerUnreachable, b.o.Topic, "offsets from %d to %d are not visible yet: a transaction is open, or the topic cannot be read on",
			covered, b.target)
	}
	return nil
}

// offsets yields [from, to) and keeps in covered how far they were asked for: all below it were looked at.
func offsets(from, to int64, covered *int64) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for off := from; off < to; off++ {
			*covered = off
			if !yield(off) {
				return
			}
		}
		*covered = to
	}
}

// decode upholds INV-CONTROL-SIGNED.
func (b *Board) decode(r *pipeline.Record) (Entry, bool) {
	if len(r.Headers) == 1 && r.Headers[0].Name == "reprieve-probe" {
		return Entry{}, false
	}
	e, why := Decode(b.o.Topic, r.Key, r.Value, b.o.Authority)
	if why != "" {
		b.count(why, 1, r.Offset)
		return Entry{}, false
	}
	e.offset = r.Offset
	return e, true
}

func (b *Board) count(why Refusal, n int64, off int64) {
	b.mu.Lock()
	b.counts[why] += n
	b.mu.Unlock()
	if b.o.Meter != nil {
		b.o.Meter.Counter("reprieve_control_ignored_total", "messages on the control topic that were ignored", "reason", string(why)).Add(float64(n))
	}
	b.o.Log.Warn("a control message is ignored", "code", pipeline.CodeControlForged, "reason", string(why), "topic", b.o.Topic, "offset", off)
}

// read takes what a look found. completeMS is the moment for which everything is known now; 0 is no new one.
func (b *Board) read(entries []Entry, completeMS int64) {
	if b.snap.Load() != nil {
		b.apply(entries, completeMS)
		b.heal(b.overwritten(b.snap.Load(), entries))
		return
	}
	b.draft, _ = Fold(b.draft, b.o.Authority, entries...) // INV-CONTROL-COLD: nobody sees it before it is complete
	if completeMS == 0 {
		return
	}
	b.mu.Lock()
	ready := b.draft
	b.snap.Store(ready)
	b.seenMS, b.draft = completeMS, nil
	close(b.ready)
	b.change()
	b.mu.Unlock()
	b.heal(b.overwritten(ready, entries))
}

// change wakes who waits for one; b.mu is held.
func (b *Board) change() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// apply folds entries into the snapshot of a warm board.
func (b *Board) apply(entries []Entry, completeMS int64) {
	b.mu.Lock()
	prev := b.snap.Load()
	next, replayed := Fold(prev, b.o.Authority, entries...)
	b.snap.Store(next)
	b.seenMS = max(b.seenMS, completeMS)
	if next != prev {
		b.change()
	}
	b.mu.Unlock()
	if len(replayed) > 0 {
		b.count(Replayed, int64(len(replayed)), replayed[0].offset)
		b.heal(older(next, entries))
	}
}

// overwritten are the winners over which something was written that does not count: a tombstone, an unsigned or a forged one.
// They are asked for again until somebody has written them behind it.
func (b *Board) overwritten(s *Snapshot, read []Entry) (again []Entry) {
	for _, e := range read {
		if off, ok := b.lost[e.Key]; ok && e.offset > off {
			delete(b.lost, e.Key)
		}
	}
	for k, off := range b.lost {
		if e, ok := s.Get(k); ok && e.offset < off {
			again = append(again, e)
		} else {
			delete(b.lost, k)
		}
	}
	return again
}
