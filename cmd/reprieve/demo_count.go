package main

import (
	"bytes"
	"context"
	"log/slog"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/deadletter"
)

// quietLog keeps lines about the story's commands out of the story; what matters comes back as an error.
func (a *app) quietLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

// ends is where every topic of the plan ends now.
func (w *world) ends(ctx context.Context) (map[pipeline.TP]int64, error) {
	out := map[pipeline.TP]int64{}
	for _, t := range w.plan.Topics(12) {
		ends, err := w.adm.EndOffsets(ctx, t.Topic)
		if err != nil {
			return nil, err
		}
		for p, end := range ends {
			out[pipeline.TP{Topic: t.Topic, Partition: p}] = end
		}
	}
	return out, nil
}

// until polls until done answers true.
func until(ctx context.Context, what string, done func() (bool, error)) error {
	deadline := time.NewTimer(2 * time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline.C:
			return pipeline.Errorf(pipeline.CodeInternal, "demo", "%s did not happen within 2 minutes", what).With("look into worker.log in the demo's folder")
		}
	}
}

// consumed waits until the pipelines have committed to the end of their source and retry topics.
func (w *world) consumed(ctx context.Context) error {
	return until(ctx, "the end of the source topics", func() (bool, error) {
		for _, pp := range w.plan.Pipelines {
			points, err := w.adm.Checkpoints(ctx, pp.Config.Source.Group)
			if err != nil {
				return false, err
			}
			for _, topic := range append([]string{pp.Config.Retry.Topic}, pp.Config.Source.Topics...) {
				ends, err := w.adm.EndOffsets(ctx, topic)
				if err != nil {
					return false, err
				}
				for p, end := range ends {
					tp := pipeline.TP{Topic: topic, Partition: p}
					if empty, err := w.empty(ctx, tp, points[tp].Next, end); err != nil || !empty {
						return false, err
					}
				}
			}
		}
		return true, nil
	})
}

// empty tells whether no record stands at [from, end) of a partition: the marks of transactions are never read.
func (w *world) empty(ctx context.Context, tp pipeline.TP, from, end int64) (bool, error) {
	if from >= end {
		return true, nil
	}
	empty := true
	err := w.log.Read(ctx, tp, func(yield func(int64) bool) {
		for off := from; off < end && yield(off); off++ {
		}
	}, func(b *pipeline.Batch) error {
		defer b.Release()
		empty = empty && len(b.Recs) == 0
		return nil
	})
	return empty, err
}

// each reads what a topic got since from.
func (w *world) each(ctx context.Context, topic string, from map[pipeline.TP]int64, f func(tp pipeline.TP, r *pipeline.Record) error) error {
	ends, err := w.adm.EndOffsets(ctx, topic)
	if err != nil {
		return err
	}
	for p, end := range ends {
		tp := pipeline.TP{Topic: topic, Partition: p}
		all := func(yield func(int64) bool) {
			for off := from[tp]; off < end; off++ {
				if !yield(off) {
					return
				}
			}
		}
		err := w.log.Read(ctx, tp, all, func(b *pipeline.Batch) error {
			defer b.Release()
			for i := range b.Recs {
				if err := f(tp, &b.Recs[i]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// letters are the dead letters since from.
func (w *world) letters(ctx context.Context, from map[pipeline.TP]int64) (out []letterAt, err error) {
	for _, pp := range w.plan.Pipelines {
		topic := pp.Config.Quarantine.Topic
		err := w.each(ctx, topic, from, func(tp pipeline.TP, r *pipeline.Record) error {
			if deadletter.IsProbe(r) {
				return nil
			}
			own := r.Clone()
			l, err := deadletter.Parse(topic, &own, w.keys.Ring)
			if err != nil {
				return err
			}
			out = append(out, letterAt{own, tp, l})
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// inCustody waits until the ledger has the items of this run, not of one before, and knows that their source has moved on.
func (w *world) inCustody(ctx context.Context, t *teller, letters []letterAt) error {
	mine := map[string]bool{}
	for _, l := range letters {
		mine[string(l.l.Item)] = true
	}
	quiet := *t
	quiet.quiet = true
	return until(ctx, "custody of the dead letters", func() (bool, error) {
		var found struct {
			Items []struct {
				ID string `json:"id"`
			} `json:"items"`
		}
		if err := quiet.typed(ctx, "operator", &found, "quarantine", "list", "state=DEAD_LETTERED confirmed=yes age<1h", "--limit", "500"); err != nil {
			return false, err
		}
		there := 0
		for _, it := range found.Items {
			if mine[it.ID] {
				there++
			}
		}
		return there == len(mine), nil
	})
}

// count reads every topic again and sums up what became of each record of this run.
func (w *world) count(ctx context.Context, from map[pipeline.TP]int64) (*counted, error) {
	c := &counted{}
	scratch := codec.NewScratch()
	avro, err := codec.NewDecoder(codec.DecodeConfig{Format: "avro"}, w.reg)
	if err != nil {
		return nil, err
	}
	plain, err := codec.NewDecoder(codec.DecodeConfig{Format: "json"}, nil)
	if err != nil {
		return nil, err
	}
	path, err := pipeline.NewPath("/event_id")
	if err != nil {
		return nil, err
	}
	event := func(r *pipeline.Record) string {
		scratch.Reset()
		dec := plain
		if len(r.Value) > 0 && r.Value[0] == 0 {
			dec = avro
		}
		v, f := dec.Decode(ctx, scratch, r.Value, r.Headers)
		if f != nil || v == nil {
			return ""
		}
		val, _ := v.Get(path)
		return string(val.Bytes)
	}

	out := map[string]int{} // event id -> how often it was delivered
	outputs := map[string]bool{}
	for _, pp := range w.plan.Pipelines {
		for _, topic := range pp.Targets {
			outputs[topic] = true
		}
	}
	for topic := range outputs {
		if err := w.each(ctx, topic, from, func(_ pipeline.TP, r *pipeline.Record) error {
			c.Delivered++
			out[event(r)]++
			return nil
		}); err != nil {
			return nil, err
		}
	}
	letters, err := w.letters(ctx, from)
	if err != nil {
		return nil, err
	}
	dead := map[pipeline.Position]int{}
	twice := map[pipeline.ID]int{}
	for _, l := range letters {
		c.DeadLettered++
		dead[l.l.Original]++
		twice[l.l.Item]++
	}
	redriven := map[pipeline.ID]bool{}
	var sent []redriveAt
	for _, pp := range w.plan.Pipelines {
		topic := pp.Config.Retry.Topic
		if err := w.each(ctx, topic, from, func(_ pipeline.TP, r *pipeline.Record) error {
			t, _, err := deadletter.ParseTrail(topic, r, w.keys.Ring)
			if err != nil {
				return err
			}
			if t.Redrive != "" {
				c.Redriven++
				redriven[t.Item] = true
				sent = append(sent, redriveAt{t.Original, pipeline.CloneBytes(r.Value)})
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	for _, s := range sent {
		same, err := w.same(ctx, s)
		if err != nil {
			return nil, err
		}
		if !same {
			c.Repaired++
		}
	}
	if err := w.each(ctx, deadletter.OutcomesTopic(w.plan.Config.Topics.Prefix), from, func(_ pipeline.TP, r *pipeline.Record) error {
		o, err := deadletter.ParseOutcome(r, w.keys.Ring)
		if err != nil {
			return err
		}
		if redriven[o.Item] {
			c.Reconciled++
			delete(redriven, o.Item)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	for _, n := range out {
		c.Duplicates += n - 1
	}
	for _, n := range twice {
		c.Duplicates += n - 1
	}
	for _, pp := range w.plan.Pipelines {
		for _, topic := range pp.Config.Source.Topics {
			if err := w.each(ctx, topic, from, func(tp pipeline.TP, r *pipeline.Record) error {
				c.RecordsIn++
				if dead[pipeline.Position{TP: tp, Offset: r.Offset}] == 0 && out[event(r)] == 0 {
					c.Lost++
				}
				return nil
			}); err != nil {
				return nil, err
			}
		}
	}
	return c, nil
}

// redriveAt is a redriven value and where its record first stood.
type redriveAt struct {
	original pipeline.Position
	value    []byte
}

// same tells whether a redriven value is what the source holds: it was not repaired.
func (w *world) same(ctx context.Context, s redriveAt) (same bool, err error) {
	one := func(yield func(int64) bool) { yield(s.original.Offset) }
	err = w.log.Read(ctx, s.original.TP, one, func(b *pipeline.Batch) error {
		defer b.Release()
		same = bytes.Equal(b.Recs[0].Value, s.value)
		return nil
	})
	return same, err
}
