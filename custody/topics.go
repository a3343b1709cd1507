package custody

import (
	"context"
	"maps"
	"slices"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/seal"
)

// Topics are what an account reads of one cluster.
type Topics struct {
	Cluster string       // its id, as items carry it
	Log     pipeline.Log // required
	Prefix  string       // of the settlements and audit topics
	Letters []string     // dead-letter topics
	Vaults  []string     // topics of sealed records
	Sources bool         // settlements and sources are here too
	Ring    *seal.Ring
	Adopt   map[string]Adoption // how foreign topics spell their letters
	// Progress, if not nil, is told now and then how many of how many messages were read: of those that are known of, which sources join
	// when their settlements have been read.
	Progress func(done, total int64)

	reading *reading
}

// reading is how far topics were read. Offsets that hold no record count as read.
type reading struct {
	tell        func(done, total int64)
	done, total int64
}

func (r *reading) more(n int64) {
	if r != nil {
		r.total += n
	}
}

func (r *reading) read(n int64) {
	if r == nil || r.tell == nil || n <= 0 {
		return
	}
	r.done += n
	r.tell(r.done, max(r.total, r.done)) // more come meanwhile
}

// expect adds topics that will be read. One that is not there has nothing to read.
func (t Topics) expect(ctx context.Context, topics ...string) error {
	if t.Progress == nil {
		return nil
	}
	for _, topic := range topics {
		info, err := t.Log.Info(ctx, topic)
		if err != nil && pipeline.CodeOf(err) != pipeline.CodeTopicMissing {
			return err
		}
		for _, r := range info.Partitions {
			t.reading.more(r.Next - r.First)
		}
	}
	return nil
}

// expectPartitions adds the partitions that settlements speak of, each of them as often as it will be read.
func (t Topics) expectPartitions(ctx context.Context, parts map[accountKey]*partitionAccount) error {
	if t.Progress == nil {
		return nil
	}
	asked := map[string]pipeline.TopicInfo{}
	for k := range parts {
		info, known := asked[k.tp.Topic]
		if !known {
			var err error
			if info, err = t.Log.Info(ctx, k.tp.Topic); err != nil && pipeline.CodeOf(err) != pipeline.CodeTopicMissing {
				return err
			}
			asked[k.tp.Topic] = info
		}
		r := info.Partitions[k.tp.Partition]
		t.reading.more(r.Next - r.First)
	}
	return nil
}

// partition reads a partition from end to end.
func (t Topics) partition(ctx context.Context, tp pipeline.TP, r pipeline.Range, f func(*pipeline.Record) error) error {
	all := func(yield func(int64) bool) {
		for off := r.First; off < r.Next && yield(off); off++ {
		}
	}
	at := r.First
	to := func(next int64) {
		t.reading.read(next - at)
		at = max(at, next)
	}
	err := t.Log.Read(ctx, tp, all, func(b *pipeline.Batch) error {
		defer b.Release()
		for i := range b.Recs {
			if err := f(&b.Recs[i]); err != nil {
				return err
			}
		}
		if n := len(b.Recs); n > 0 {
			to(b.Recs[n-1].Offset + 1)
		}
		return nil
	})
	if err == nil {
		to(r.Next)
	}
	return err
}

// each reads a whole topic, partition by partition.
func (t Topics) each(ctx context.Context, topic string, f func(pipeline.TP, *pipeline.Record) error) (map[int32]pipeline.Range, error) {
	info, err := t.Log.Info(ctx, topic)
	if err != nil {
		return nil, err
	}
	for _, p := range slices.Sorted(maps.Keys(info.Partitions)) {
		tp := pipeline.TP{Topic: topic, Partition: p}
		if err := t.partition(ctx, tp, info.Partitions[p], func(r *pipeline.Record) error { return f(tp, r) }); err != nil {
			return nil, err
		}
	}
	return info.Partitions, nil
}

// sourceOffsets reads which offsets a partition of a source holds, and where it begins.
func (t Topics) sourceOffsets(ctx context.Context, tp pipeline.TP, into *pipeline.Offsets) (first int64, err error) {
	info, err := t.Log.Info(ctx, tp.Topic)
	if err != nil {
		return 0, err
	}
	r, ok := info.Partitions[tp.Partition]
	if !ok {
		return 0, pipeline.Errorf(pipeline.CodeTopicMissing, tp.String(), "there is no such partition")
	}
	return r.First, t.partition(ctx, tp, r, func(rec *pipeline.Record) error {
		into.Add(rec.Offset)
		return nil
	})
}

// Heads reads the signed heads of the history from the audit topic, for Verify, and tells t.Progress. A topic that is not there has
// none. Codes: ERR_BROKER_*.
func (t Topics) Heads(ctx context.Context) (heads []SignedHead, err error) {
	audit := deadletter.AuditTopic(t.Prefix)
	t.reading = &reading{tell: t.Progress}
	if err := t.expect(ctx, audit); err != nil {
		return nil, err
	}
	_, err = t.each(ctx, audit, func(_ pipeline.TP, r *pipeline.Record) error {
		if h, err := ParseHead(r.Value); err == nil {
			heads = append(heads, h)
		}
		return nil
	})
	if pipeline.CodeOf(err) == pipeline.CodeTopicMissing {
		err = nil
	}
	return heads, err
}
