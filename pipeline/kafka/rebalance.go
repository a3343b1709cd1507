package kafka

import (
	"errors"
	"time"

	"reprieve.dev/pipeline"
)

type rebalanceKind uint8

const (
	assigned rebalanceKind = iota
	revoked
	lost
)

// rebalance is one change of the assignment that the group asked for and that is not answered yet. The client waits for
// the answer, and with it the group.
type rebalance struct {
	kind  rebalanceKind
	tps   []placed
	coop  bool // incremental protocol
	told  bool // its event was returned: the next Poll answers
	known bool // checkpoints were read
	from  map[pipeline.TP]pipeline.Checkpoint
}

const committedTimeout = 5 * time.Second

// nextChange takes the next change that the library recorded, if the one before is answered.
func (s *Source) nextChange() {
	if s.pending == nil {
		s.pending = s.n.change()
	}
}

// refuse answers the open rebalance with "none", for Close.
func (s *Source) refuse() error {
	r := s.pending
	s.pending = nil
	switch {
	case !r.coop:
		return s.n.assign(nil, whole)
	case r.kind == assigned:
		return s.n.assign(nil, more)
	}
	return s.n.assign(r.tps, less)
}

// tell returns the event of the open rebalance. For an assignment the committed offsets are read first; if that fails, it
// is tried again at the next Poll.
func (s *Source) tell(wait time.Duration) (pipeline.Event, error) {
	r := s.pending
	if len(r.tps) == 0 { // a cooperative group tells also that nothing changed
		r.told = true
		return nil, s.answer()
	}
	switch r.kind {
	case assigned:
		if !r.known {
			if err := s.checkpoints(r, max(wait, committedTimeout)); err != nil {
				return nil, err
			}
			if !r.known {
				return nil, nil
			}
		}
		return s.begin(r), nil
	case revoked:
		return s.end(r, func(tps []pipeline.TP) pipeline.Event { return pipeline.Revoked{TPs: tps} }), nil
	default:
		ev := s.end(r, func(tps []pipeline.TP) pipeline.Event { return pipeline.Lost{TPs: tps} })
		for _, tp := range r.tps { // INV-KAFKA-OWN: they belong to somebody else already
			delete(s.parts, tp.tp)
		}
		return ev, nil
	}
}

// checkpoints reads what the group committed for the new partitions.
func (s *Source) checkpoints(r *rebalance, wait time.Duration) error {
	out, err := s.n.committed(r.tps, wait)
	if err != nil {
		if e, ok := errors.AsType[clientError](err); ok && !e.IsFatal() && codeOf(e) != pipeline.CodeBrokerAuth {
			s.logs.to.Warn("committed offsets cannot be read yet", "cluster", s.conf.Cluster.Name, "err", err.Error())
			return nil
		}
		return s.die(err, "read committed offsets")
	}
	r.from = make(map[pipeline.TP]pipeline.Checkpoint, len(out))
	for _, tp := range out {
		if tp.offset >= 0 {
			r.from[tp.tp] = pipeline.ParseCheckpoint(tp.offset, tp.meta)
		}
	}
	r.known = true
	return nil
}

// begin makes the partitions ours and returns Assigned.
func (s *Source) begin(r *rebalance) pipeline.Event {
	s.epoch++
	ev := pipeline.Assigned{Epoch: s.epoch, TPs: make([]pipeline.TP, 0, len(r.tps)), Checkpoints: r.from}
	for _, at := range r.tps {
		tp := at.tp
		p := &part{tp: tp, epoch: s.epoch, start: offsetBeginning}
		if s.conf.RetryTopics[tp.Topic] {
			p.lane = pipeline.Retry
		}
		if cp, ok := r.from[tp]; ok {
			p.start = cp.Next
		}
		if old := s.parts[tp]; old != nil { // an eager group gives again what it did not take
			s.drop(old)
			old.gone = true
		}
		s.parts[tp] = p
		ev.TPs = append(ev.TPs, tp)
	}
	clear(s.places)
	r.told = true
	return ev
}

// end drops what was gathered of partitions that go and returns the event.
func (s *Source) end(r *rebalance, event func([]pipeline.TP) pipeline.Event) pipeline.Event {
	tps := make([]pipeline.TP, 0, len(r.tps))
	for _, at := range r.tps {
		if p := s.parts[at.tp]; p != nil {
			s.drop(p)
			tps = append(tps, at.tp)
		}
	}
	r.told = true
	return event(tps)
}

// answer tells the client what the owner has seen (INV-KAFKA-ANSWER), and sets the pause state of new partitions.
func (s *Source) answer() error {
	r := s.pending
	s.pending = nil
	if r.kind != assigned {
		return s.release(r)
	}
	list := make([]placed, 0, len(r.tps))
	var run, stop []pipeline.TP
	for _, at := range r.tps {
		p := s.parts[at.tp]
		list = append(list, placed{tp: p.tp, offset: p.start})
		if p.paused {
			stop = append(stop, p.tp)
		} else {
			run = append(run, p.tp)
		}
	}
	how := whole
	if r.coop {
		how = more
	}
	if err := s.n.assign(list, how); err != nil {
		return err
	}
	// INV-KAFKA-PAUSE: the library keeps the pause of an earlier assignment, so both states are set
	if len(run) > 0 {
		if err := s.n.pause(run, false); err != nil {
			return err
		}
	}
	if len(stop) > 0 {
		return s.n.pause(stop, true)
	}
	return nil
}

// release gives partitions back.
func (s *Source) release(r *rebalance) error {
	for _, at := range r.tps {
		if p := s.parts[at.tp]; p != nil {
			p.gone = true
			delete(s.parts, at.tp)
		}
	}
	clear(s.places)
	if r.coop {
		return s.n.assign(r.tps, less)
	}
	return s.n.assign(nil, whole)
}
