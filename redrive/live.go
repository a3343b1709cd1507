package redrive

import (
	"context"
	"math"
	"strconv"
	"time"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

// lane is what the live lane of a pipeline has to do.
type lane struct {
	waiting int64                 // records of the source topics that its group has not committed
	next    map[pipeline.TP]int64 // committed
	longest pipeline.Position     // the first waiting record of the partition with most of them; Topic "" is none
}

// live looks at the source topics of a pipeline and what its group has committed of them. A partition that it has committed nothing
// of counts whole.
func (s *Service) live(ctx context.Context, t *Target) (l lane, err error) {
	log, err := s.logOf(t.Cluster)
	if err != nil {
		return l, err
	}
	if l.next, err = log.Committed(ctx, t.Group); err != nil {
		return l, err
	}
	most := int64(0)
	for _, topic := range t.Sources {
		info, err := log.Info(ctx, topic)
		if err != nil {
			return l, err
		}
		for p, r := range info.Partitions {
			tp := pipeline.TP{Topic: topic, Partition: p}
			from := max(l.next[tp], r.First)
			n := r.Next - from
			if n <= 0 {
				continue
			}
			l.waiting += n
			if n > most {
				most, l.longest = n, pipeline.Position{TP: tp, Offset: from}
			}
		}
	}
	return l, nil
}

// Waiting is how many live records of a pipeline's source topics its group has not committed. Codes: ERR_CONFIG_REFERENCE,
// ERR_BROKER_*.
func (s *Service) Waiting(ctx context.Context, name string) (int64, error) {
	t, err := s.target(name)
	if err != nil {
		return 0, err
	}
	l, err := s.live(ctx, t)
	return l.waiting, err
}

// age is how long ago the record at a position was written; 0 when nothing stands there.
func (s *Service) age(ctx context.Context, t *Target, at pipeline.Position) (time.Duration, error) {
	log, err := s.logOf(t.Cluster)
	if err != nil || at.Topic == "" {
		return 0, err
	}
	var ms int64
	err = log.Read(ctx, at.TP, func(yield func(int64) bool) { yield(at.Offset) }, func(b *pipeline.Batch) error {
		defer b.Release()
		for i := range b.Recs {
			ms = b.Recs[i].TimeMS
		}
		return nil
	})
	if err != nil || ms <= 0 {
		return 0, err
	}
	return max(0, s.clock().Sub(time.UnixMilli(ms))), nil
}

// loadLook is how long a dry run watches the live lane.
const loadLook = 500 * time.Millisecond

// load estimates what a redrive adds to the live lane.
func (s *Service) load(ctx context.Context, t *Target, rate string) (Load, error) {
	none := Load{Waiting: -1, PerSecond: -1}
	from := s.clock()
	before, err := s.live(ctx, t)
	if err != nil {
		return none, err
	}
	if err := s.wait(ctx, loadLook); err != nil {
		return none, err
	}
	after, err := s.live(ctx, t)
	if err != nil {
		return none, err
	}
	done := int64(0)
	for tp, n := range after.next {
		if old, ok := before.next[tp]; ok {
			done += n - old
		}
	}
	l := Load{Waiting: after.waiting, PerSecond: -1}
	if d := s.clock().Sub(from).Seconds(); d > 0 {
		l.PerSecond = int64(math.Round(float64(done) / d))
	}
	if r, err := ParseRate(rate); err == nil && l.PerSecond > 0 {
		l.Share = "+" + strconv.FormatInt(int64(math.Ceil(100*float64(r)/float64(l.PerSecond))), 10) + " %"
	}
	return l, nil
}

// lookEvery is how often an executor looks at the live lane.
const lookEvery = time.Second

// yield waits while live records wait too long or too many of them do (redrive.yield). The lease is renewed meanwhile, and a stop or
// halt ends the wait.
func (e *executor) yield(ctx context.Context) error {
	y := e.t.Yield
	if y.Lag <= 0 && y.Latency <= 0 {
		return nil
	}
	for {
		if now := e.s.clock(); e.looked.IsZero() || now.Sub(e.looked) >= lookEvery {
			e.looked = now
			why, err := e.busy(ctx)
			if err != nil {
				return err
			}
			if err := e.say(ctx, why); err != nil {
				return err
			}
		}
		if e.yields == "" {
			return nil
		}
		if err := e.s.wait(ctx, poll); err != nil {
			return err
		}
		if err := e.s.db.Write(ctx, func(tx *ledger.Tx) error {
			_, err := e.guard(tx)
			return err
		}); err != nil {
			return err
		}
	}
}

// busy says why live records go first now, or "".
func (e *executor) busy(ctx context.Context) (string, error) {
	l, err := e.s.live(ctx, e.t)
	if err != nil {
		return "", err
	}
	y := e.t.Yield
	if y.Lag > 0 && l.waiting > y.Lag {
		return "yields to " + decimal(l.waiting) + " live records that wait, more than " + decimal(y.Lag), nil
	}
	if y.Latency > 0 {
		age, err := e.s.age(ctx, e.t, l.longest)
		if err != nil {
			return "", err
		}
		if age > y.Latency {
			return "yields to live records: the oldest has waited for " + age.Round(time.Second).String() + ", more than " + y.Latency.String(), nil
		}
	}
	return "", nil
}

// say shows on the manifest why a run sends nothing at the moment.
func (e *executor) say(ctx context.Context, why string) error {
	if (why == "") == (e.yields == "") {
		return nil
	}
	e.yields = why
	return e.move(ctx, e.state, why)
}
