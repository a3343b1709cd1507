package kafka

import (
	"errors"
	"time"

	client "github.com/confluentinc/confluent-kafka-go/v2/kafka"

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
	tps   []client.TopicPartition
	coop  bool // incremental protocol
	told  bool // its event was returned: the next Poll answers
	known bool // checkpoints were read
	from  map[pipeline.TP]pipeline.Checkpoint
}

const committedTimeout = 5 * time.Second

// onRebalance is called by the client inside its Poll. The owner has to see the change before it is answered, and so does
// the owner's Commit; so the callback only records it.
func (s *Source) onRebalance(c *client.Consumer, ev client.Event) error {
	r := &rebalance{coop: c.GetRebalanceProtocol() == "COOPERATIVE"}
	switch e := ev.(type) {
	case client.AssignedPartitions:
		r.kind, r.tps = assigned, e.Partitions
	case client.RevokedPartitions:
		r.kind, r.tps = revoked, e.Partitions
		if c.AssignmentLost() {
			r.kind = lost
		}
	}
	s.pending = r
	if s.closing {
		return s.refuse()
	}
	s.deferAnswer(r.coop)
	return nil
}

// deferAnswer keeps the wrapper from answering in our place when the callback returns: it does so unless one of its assign
// methods was called meanwhile. The method of the other protocol is refused by the library without any effect, which leaves
// the rebalance open and the wrapper content.
func (s *Source) deferAnswer(coop bool) {
	if coop {
		_ = s.c.Assign([]client.TopicPartition{})
	} else {
		_ = s.c.IncrementalAssign([]client.TopicPartition{})
	}
}

// refuse answers the open rebalance with "none", for Close.
func (s *Source) refuse() error {
	r := s.pending
	s.pending = nil
	if !r.coop {
		return s.c.Unassign()
	}
	if r.kind == assigned {
		return s.c.IncrementalAssign([]client.TopicPartition{})
	}
	return s.c.IncrementalUnassign(r.tps)
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
			delete(s.parts, pipelineTP(tp))
		}
		return ev, nil
	}
}

// checkpoints reads what the group committed for the new partitions.
func (s *Source) checkpoints(r *rebalance, wait time.Duration) error {
	out, err := s.c.Committed(r.tps, int(wait/time.Millisecond))
	if err == nil {
		for _, tp := range out {
			if tp.Error != nil {
				err = tp.Error
				break
			}
		}
	}
	if err != nil {
		if e, ok := errors.AsType[client.Error](err); ok && !e.IsFatal() && codeOf(e) != pipeline.CodeBrokerAuth {
			s.logs.to.Warn("committed offsets cannot be read yet", "cluster", s.conf.Cluster.Name, "err", err.Error())
			return nil
		}
		return s.die(err, "read committed offsets")
	}
	r.from = make(map[pipeline.TP]pipeline.Checkpoint, len(out))
	for _, tp := range out {
		if tp.Offset < 0 {
			continue
		}
		meta := ""
		if tp.Metadata != nil {
			meta = *tp.Metadata
		}
		r.from[pipelineTP(tp)] = pipeline.ParseCheckpoint(int64(tp.Offset), meta)
	}
	r.known = true
	return nil
}

// begin makes the partitions ours and returns Assigned.
func (s *Source) begin(r *rebalance) pipeline.Event {
	s.epoch++
	ev := pipeline.Assigned{Epoch: s.epoch, TPs: make([]pipeline.TP, 0, len(r.tps)), Checkpoints: r.from}
	for _, ctp := range r.tps {
		tp := pipelineTP(ctp)
		p := &part{tp: tp, epoch: s.epoch, start: int64(client.OffsetBeginning)}
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
	s.last = nil
	r.told = true
	return ev
}

// end drops what was gathered of partitions that go and returns the event.
func (s *Source) end(r *rebalance, event func([]pipeline.TP) pipeline.Event) pipeline.Event {
	tps := make([]pipeline.TP, 0, len(r.tps))
	for _, ctp := range r.tps {
		tp := pipelineTP(ctp)
		if p := s.parts[tp]; p != nil {
			s.drop(p)
			tps = append(tps, tp)
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
	list := make([]client.TopicPartition, 0, len(r.tps))
	var run, stop []client.TopicPartition
	for _, ctp := range r.tps {
		p := s.parts[pipelineTP(ctp)]
		list = append(list, clientTP(p.tp, client.Offset(p.start)))
		if p.paused {
			stop = append(stop, clientTP(p.tp, client.OffsetInvalid))
		} else {
			run = append(run, clientTP(p.tp, client.OffsetInvalid))
		}
	}
	var err error
	if r.coop {
		err = s.c.IncrementalAssign(list)
	} else {
		err = s.c.Assign(list)
	}
	if err != nil {
		return err
	}
	// INV-KAFKA-PAUSE: the library keeps the pause of an earlier assignment, so both states are set
	if len(run) > 0 {
		if err := s.c.Resume(run); err != nil {
			return err
		}
	}
	if len(stop) > 0 {
		return s.c.Pause(stop)
	}
	return nil
}

// release gives partitions back.
func (s *Source) release(r *rebalance) error {
	for _, ctp := range r.tps {
		tp := pipelineTP(ctp)
		if p := s.parts[tp]; p != nil {
			p.gone = true
			delete(s.parts, tp)
		}
	}
	s.last = nil
	if r.coop {
		return s.c.IncrementalUnassign(r.tps)
	}
	return s.c.Unassign()
}

func pipelineTP(tp client.TopicPartition) pipeline.TP {
	return pipeline.TP{Topic: topicOf(tp), Partition: tp.Partition}
}
