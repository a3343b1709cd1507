package script

import (
	"slices"
	"time"

	"reprieve.dev/pipeline"
)

// SourceOptions says what a consumer reads, and how it behaves.
type SourceOptions struct {
	Group    string
	Topics   []string
	Retry    map[string]bool // topics of the retry lane
	MaxBatch int             // 0 is 1,000
	Pool     *pipeline.Pool
	// Idle is what Poll does when it has nothing: it may wait up to wait for changed to be closed, then Poll looks once more.
	// nil returns at once.
	Idle func(wait time.Duration, changed <-chan struct{})
}

// Source is a scripted consumer: what a group would do, and what a test injects.
type Source struct {
	c    *Cluster
	o    SourceOptions
	g    *group
	gone bool

	epoch     uint32
	parts     map[pipeline.TP]*reading
	order     []pipeline.TP // whose turn it is
	told      pipeline.Event
	inject    []func() pipeline.Event
	errs      []error
	commitErr []error
	strangers uint64
	commits   int
	moves     int
}

type reading struct {
	epoch  uint32
	next   int64
	paused bool
}

var _ pipeline.Source = (*Source)(nil)

// Source joins a group. Its first Poll returns what it was assigned.
func (c *Cluster) Source(o SourceOptions) *Source {
	if o.MaxBatch <= 0 {
		o.MaxBatch = 1000
	}
	if o.Pool == nil {
		o.Pool = pipeline.NewPool(&pipeline.Layout{})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &Source{c: c, o: o, g: c.group(o.Group), parts: map[pipeline.TP]*reading{}}
	s.g.members = append(s.g.members, s)
	c.plan(s.g)
	c.wake()
	return s
}

func (s *Source) reads(topic string) bool {
	return slices.Contains(s.o.Topics, topic) || s.o.Retry[topic]
}

// Poll returns the next event. Errors are only those that FailPoll set.
func (s *Source) Poll(wait time.Duration) (pipeline.Event, error) {
	s.c.mu.Lock()
	ev, err := s.poll()
	changed := s.c.changed
	s.c.mu.Unlock()
	if ev != nil || err != nil || s.o.Idle == nil || wait <= 0 {
		return ev, err
	}
	s.o.Idle(wait, changed)
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.poll()
}

func (s *Source) poll() (pipeline.Event, error) {
	if s.gone {
		return nil, pipeline.Errorf(pipeline.CodeBrokerFatal, s.o.Group, "the source is closed")
	}
	s.answer()
	if len(s.errs) > 0 {
		err := s.errs[0]
		s.errs = s.errs[1:]
		return nil, err
	}
	if len(s.inject) > 0 {
		make := s.inject[0]
		s.inject = s.inject[1:]
		s.told = make()
		return s.told, nil
	}
	if ev := s.rebalance(); ev != nil {
		s.told = ev
		return ev, nil
	}
	if b := s.batch(); b != nil {
		return b, nil
	}
	return nil, nil
}

// answer ends what the Poll before returned.
func (s *Source) answer() {
	ev := s.told
	s.told = nil
	if r, ok := ev.(pipeline.Revoked); ok {
		for _, tp := range r.TPs {
			s.leave(tp)
		}
		s.c.wake()
	}
}

// leave gives a partition up.
func (s *Source) leave(tp pipeline.TP) {
	delete(s.parts, tp)
	s.order = slices.DeleteFunc(s.order, func(o pipeline.TP) bool { return o == tp })
	if s.g.owner[tp] == s {
		delete(s.g.owner, tp)
	}
}

// rebalance is what the group asks for: first to give, then to take what others have given.
func (s *Source) rebalance() pipeline.Event {
	var give, take []pipeline.TP
	for tp := range s.parts {
		if s.g.target[tp] != s {
			give = append(give, tp)
		}
	}
	if len(give) > 0 {
		slices.SortFunc(give, compareTP)
		return pipeline.Revoked{TPs: give}
	}
	for tp, to := range s.g.target {
		if to == s && s.g.owner[tp] == nil {
			take = append(take, tp)
		}
	}
	if len(take) == 0 {
		return nil
	}
	slices.SortFunc(take, compareTP)
	return s.take(take)
}

func (s *Source) take(tps []pipeline.TP) pipeline.Event {
	s.epoch++
	ev := pipeline.Assigned{Epoch: s.epoch, TPs: tps, Checkpoints: map[pipeline.TP]pipeline.Checkpoint{}}
	for _, tp := range tps {
		p := &reading{epoch: s.epoch}
		if m, ok := s.g.committed[tp]; ok {
			cp := pipeline.ParseCheckpoint(m.next, m.metadata)
			ev.Checkpoints[tp] = cp
			p.next = cp.Next
		}
		s.parts[tp] = p
		s.order = append(s.order, tp)
		s.g.owner[tp] = s
	}
	return ev
}

// batch takes a run of one partition; partitions take turns.
func (s *Source) batch() *pipeline.Batch {
	for i, tp := range s.order {
		p := s.parts[tp]
		if p.paused {
			continue
		}
		var b *pipeline.Batch
		p.next = s.c.walk(tp, p.next, func(r *pipeline.Record) bool {
			if b == nil {
				b = s.o.Pool.Get()
				b.TP, b.Epoch, b.Lane = tp, p.epoch, pipeline.Live
				if s.o.Retry[tp.Topic] {
					b.Lane = pipeline.Retry
				}
			}
			if len(b.Recs) == s.o.MaxBatch {
				return false
			}
			b.Recs = append(b.Recs, *r)
			return true
		})
		if b != nil {
			s.order = append(slices.Delete(s.order, i, i+1), tp)
			return b
		}
	}
	return nil
}

// Seek sets the next offset of an assigned partition.
func (s *Source) Seek(tp pipeline.TP, off int64) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	p := s.parts[tp]
	if p == nil {
		return pipeline.Errorf(pipeline.CodeBrokerFatal, tp.String(), "seek: the partition is not assigned")
	}
	p.next = off
	s.c.wake()
	return nil
}

// Pause stops reading.
func (s *Source) Pause(tps ...pipeline.TP) error { return s.setPaused(true, tps) }

// Resume goes on reading.
func (s *Source) Resume(tps ...pipeline.TP) error { return s.setPaused(false, tps) }

func (s *Source) setPaused(to bool, tps []pipeline.TP) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for _, tp := range tps {
		if p := s.parts[tp]; p != nil {
			p.paused = to
		}
	}
	s.c.wake()
	return nil
}

// Commit writes checkpoints of assigned partitions; others are counted. An error is only what FailCommit set.
func (s *Source) Commit(cps map[pipeline.TP]pipeline.Checkpoint) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if len(s.commitErr) > 0 {
		err := s.commitErr[0]
		s.commitErr = s.commitErr[1:]
		return err
	}
	s.commits++
	for tp, cp := range cps {
		if s.parts[tp] == nil {
			s.strangers++
			continue
		}
		if was, ok := s.g.committed[tp]; cp.Next != was.next && (ok || cp.Next != s.c.topics[tp.Topic].first[tp.Partition]) {
			s.moves++
		}
		s.g.committed[tp] = committed{next: cp.Next, metadata: cp.Metadata()}
	}
	return nil
}

// Group is what Tx.Commit needs.
func (s *Source) Group() pipeline.GroupMeta { return s }

// Close leaves the group.
func (s *Source) Close() error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.gone {
		return nil
	}
	s.gone = true
	for tp := range s.parts {
		if s.g.owner[tp] == s {
			delete(s.g.owner, tp)
		}
	}
	clear(s.parts)
	s.g.members = slices.DeleteFunc(s.g.members, func(m *Source) bool { return m == s })
	s.c.plan(s.g)
	s.c.wake()
	return nil
}

// Strangers is how many partitions of commits were refused because they were not this source's.
func (s *Source) Strangers() uint64 {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.strangers
}

// Commits is how many commits were taken.
func (s *Source) Commits() int {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.commits
}

// Moves is how many commits moved an offset: others only changed its metadata.
func (s *Source) Moves() int {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.moves
}

// Paused lists the assigned partitions that are paused, in order.
func (s *Source) Paused() (out []pipeline.TP) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for tp, p := range s.parts {
		if p.paused {
			out = append(out, tp)
		}
	}
	slices.SortFunc(out, compareTP)
	return out
}

// Revoke takes partitions away at the next Poll, and gives them back afterwards unless another member wants them.
func (s *Source) Revoke(tps ...pipeline.TP) {
	s.script(func() pipeline.Event { return pipeline.Revoked{TPs: tps} })
}

// Lose says at the next Poll that partitions are gone; from then on nothing can be committed for them. They are assigned
// again afterwards.
func (s *Source) Lose(tps ...pipeline.TP) {
	s.script(func() pipeline.Event {
		for _, tp := range tps {
			s.leave(tp)
		}
		return pipeline.Lost{TPs: tps}
	})
}

func (s *Source) script(event func() pipeline.Event) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.inject = append(s.inject, event)
	s.c.wake()
}

// FailPoll makes a coming Poll return err.
func (s *Source) FailPoll(err error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.errs = append(s.errs, err)
	s.c.wake()
}

// FailCommit makes a coming Commit return err and commit nothing.
func (s *Source) FailCommit(err error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.commitErr = append(s.commitErr, err)
}
