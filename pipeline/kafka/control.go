package kafka

import (
	"errors"

	"reprieve.dev/pipeline"
)

// Seek sets the next offset to read. Between Assigned and the next Poll it sets where the partition starts. What was read
// ahead of it is forgotten. A partition that is not ours: ERR_BROKER_FATAL. It waits for the client's own thread only.
func (s *Source) Seek(tp pipeline.TP, off int64) error {
	p := s.parts[tp]
	if p == nil {
		return pipeline.Errorf(pipeline.CodeBrokerFatal, tp.String(), "seek: the partition is not assigned")
	}
	if s.starting(p) {
		p.start = off
		return nil
	}
	s.drop(p)
	p.next = 0
	if err := s.n.seek(placed{tp: tp, offset: off}); err != nil {
		return failed(err, tp.String(), "seek")
	}
	return nil
}

// starting tells whether p belongs to an assignment that is not answered yet.
func (s *Source) starting(p *part) bool {
	return s.pending != nil && s.pending.kind == assigned && p.epoch == s.epoch
}

// Pause stops reading. What was gathered or prefetched is not returned until Resume. A partition that is not ours is
// skipped: it was lost a moment ago.
func (s *Source) Pause(tps ...pipeline.TP) error {
	var list []pipeline.TP
	for _, tp := range tps {
		p := s.parts[tp]
		if p == nil || p.paused {
			continue
		}
		p.paused = true
		if s.starting(p) {
			continue
		}
		p.held = append(p.held, s.unready(p)...)
		list = append(list, tp)
	}
	if len(list) == 0 {
		return nil
	}
	if err := s.n.pause(list, true); err != nil {
		return failed(err, s.place, "pause")
	}
	return nil
}

// Resume goes on reading; what was held back comes first.
func (s *Source) Resume(tps ...pipeline.TP) error {
	var list []pipeline.TP
	for _, tp := range tps {
		p := s.parts[tp]
		if p == nil || !p.paused {
			continue
		}
		p.paused = false
		if s.starting(p) {
			continue
		}
		s.ready = append(s.ready, p.held...)
		p.held = nil
		list = append(list, tp)
	}
	if len(list) == 0 {
		return nil
	}
	if err := s.n.pause(list, false); err != nil {
		return failed(err, s.place, "resume")
	}
	return nil
}

// Commit writes offsets with metadata and waits for the broker. Partitions that are not assigned are left out and counted
// (Strangers): the broker would accept them and so overwrite what their owner committed. Codes: ERR_COMMIT_REFUSED,
// ERR_BROKER_UNREACHABLE.
func (s *Source) Commit(cps map[pipeline.TP]pipeline.Checkpoint) error {
	if s.closed {
		return pipeline.Errorf(pipeline.CodeBrokerFatal, s.place, "commit: the source is closed")
	}
	list := make([]placed, 0, len(cps))
	for tp, cp := range cps {
		p := s.parts[tp]
		if p == nil { // INV-KAFKA-OWN
			s.strangers++
			continue
		}
		list = append(list, placed{tp: tp, offset: cp.Next, meta: cp.Metadata()})
	}
	if len(list) == 0 {
		return nil
	}
	if topic, err := s.n.commit(list); topic != "" {
		return commitError(err, topic+" on "+s.place)
	} else if err != nil {
		return commitError(err, s.place)
	}
	return nil
}

func commitError(err error, place string) error {
	code := pipeline.CodeCommitRefused
	if e, ok := errors.AsType[clientError](err); ok {
		if c := codeOf(e); c == pipeline.CodeBrokerUnreachable || c == pipeline.CodeBrokerAuth {
			code = c
		}
	}
	return &pipeline.Error{Code: code, Place: place, Text: "commit: " + err.Error(), Cause: err}
}
