package kafka

import (
	"time"

	"reprieve.dev/pipeline"
)

// gather takes one fetch and makes batches of it, a partition each. Then it looks at what else the library had to say.
func (s *Source) gather(wait time.Duration) error {
	f := s.vault.take()
	err := s.vault.fetch(f, wait)
	if err == nil {
		s.vault.describe(f)
		for r := range f.spans {
			s.take(f, r)
		}
		s.seal()
	}
	s.vault.done(f)
	if err != nil {
		return s.die(err, "fetch")
	}
	return s.listen()
}

// listen takes errors and changes of the assignment, if there are any.
func (s *Source) listen() (err error) {
	if !s.n.told() {
		return nil
	}
	s.logs.drain(s.n)
	s.n.said(true, func(e note) {
		if jerr := s.judge(&e.fault, e.about); err == nil {
			err = jerr
		}
	})
	s.nextChange()
	return err
}

// take puts a run of records behind those of its partition. Records that nobody waits for go back at once.
func (s *Source) take(f *fetched, r span) {
	p := s.partOf(r.place)
	if p == nil { // of an assignment that ended
		f.release(r)
		return
	}
	if s.down != nil {
		s.logs.to.Info("brokers can be reached again", "cluster", s.conf.Cluster.Name)
		s.down = nil
	}
	recs := f.records(r)
	for len(recs) > 0 && int64(recs[0].offset) < p.next { // fetched before a seek or a pause
		recs = recs[1:]
	}
	if len(recs) == 0 {
		f.release(r)
		return
	}
	b := p.filling
	if b == nil {
		b = s.conf.Pool.Get()
		b.TP, b.Lane, b.Epoch = p.tp, p.lane, p.epoch
		b.Recs = b.Recs[:0]
		p.filling, p.loan = b, s.vault.loan(f)
		b.Lend(p.loan.release)
		s.open = append(s.open, p)
	}
	p.loan.runs = append(p.loan.runs, r)
	for i := range recs {
		b.Recs = append(b.Recs, f.record(&recs[i]))
	}
	p.next = b.Recs[len(b.Recs)-1].Offset + 1
}

// partOf finds the partition of a run; nil if it is not assigned.
func (s *Source) partOf(at place) *part {
	if p, ok := s.places[at]; ok && !p.gone {
		return p
	}
	p := s.parts[pipeline.TP{Topic: s.n.keepTopic(at.topic), Partition: at.partition}]
	if p == nil {
		delete(s.places, at)
		return nil
	}
	s.places[at] = p
	return p
}

// seal ends the batches that are being filled: they are ready, or held if their partition is paused.
func (s *Source) seal() {
	for _, p := range s.open {
		b := p.filling
		p.filling, p.loan = nil, nil
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
		p.filling, p.loan = nil, nil
	}
}
