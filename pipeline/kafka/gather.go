package kafka

import (
	client "github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"reprieve.dev/pipeline"
)

// take puts one message behind the records of its partition.
func (s *Source) take(m *client.Message) {
	p := s.partOf(&m.TopicPartition)
	if p == nil {
		return // of an assignment that ended
	}
	off := int64(m.TopicPartition.Offset)
	if off < p.next {
		return // fetched before a seek or a pause
	}
	if s.down != nil {
		s.logs.to.Info("brokers can be reached again", "cluster", s.conf.Cluster.Name)
		s.down = nil
	}
	p.next = off + 1
	b := p.filling
	if b == nil {
		b = s.conf.Pool.Get()
		b.TP, b.Lane, b.Epoch = p.tp, p.lane, p.epoch
		b.Recs = b.Recs[:0]
		p.filling = b
		s.open = append(s.open, p)
	}
	// INV-KAFKA-NULL: the client gives nil for null and an empty slice for empty, and so do we
	b.Recs = append(b.Recs, pipeline.Record{
		Offset:   off,
		TimeMS:   millis(m),
		TimeType: pipeline.TimeType(m.TimestampType),
		Key:      m.Key,
		Value:    m.Value,
		Headers:  s.keep(m.Headers),
	})
}

func millis(m *client.Message) int64 {
	if m.TimestampType == client.TimestampNotAvailable {
		return -1
	}
	return m.Timestamp.UnixMilli()
}

// partOf finds the partition of a message; nil if it is not assigned.
func (s *Source) partOf(tp *client.TopicPartition) *part {
	if p := s.last; p != nil && p.tp.Partition == tp.Partition && p.tp.Topic == *tp.Topic && !p.gone {
		return p
	}
	p := s.parts[pipeline.TP{Topic: *tp.Topic, Partition: tp.Partition}]
	if p != nil {
		s.last = p
	}
	return p
}

// keep copies headers into a slab, so that they cost one allocation for many records.
func (s *Source) keep(hs []client.Header) []pipeline.Header {
	if len(hs) == 0 {
		return nil
	}
	if len(s.headers) < len(hs) {
		s.headers = make([]pipeline.Header, max(headerSlab, len(hs)))
	}
	out := s.headers[:len(hs):len(hs)]
	s.headers = s.headers[len(hs):]
	for i, h := range hs {
		out[i] = pipeline.Header{Name: h.Key, Value: h.Value}
	}
	return out
}

// seal ends the batches that are being filled: they are ready, or held if their partition is paused.
func (s *Source) seal() {
	for _, p := range s.open {
		b := p.filling
		p.filling = nil
		switch {
		case b == nil:
		case p.gone:
			b.Release()
		case p.paused:
			p.held = append(p.held, b)
		default:
			s.ready = append(s.ready, b)
		}
	}
	s.open = s.open[:0]
}

// nextReady takes the oldest batch.
func (s *Source) nextReady() *pipeline.Batch {
	if len(s.ready) == 0 {
		return nil
	}
	b := s.ready[0]
	s.ready[0] = nil
	s.ready = s.ready[1:]
	if len(s.ready) == 0 {
		s.ready = nil
	}
	return b
}

// unready takes the batches of p out of the ready list, in order.
func (s *Source) unready(p *part) (out []*pipeline.Batch) {
	kept := s.ready[:0]
	for _, b := range s.ready {
		if b.TP == p.tp && b.Epoch == p.epoch {
			out = append(out, b)
		} else {
			kept = append(kept, b)
		}
	}
	s.ready = kept
	return out
}

// drop forgets what was gathered of p: it will be read again, by us or by another.
func (s *Source) drop(p *part) {
	for _, b := range s.unready(p) {
		b.Release()
	}
	for _, b := range p.held {
		b.Release()
	}
	p.held = nil
	if p.filling != nil {
		p.filling.Release()
		p.filling = nil
	}
}
