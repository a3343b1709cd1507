package script

import (
	"context"
	"iter"
	"strings"

	"reprieve.dev/pipeline"
)

// Log is random access to a scripted cluster.
type Log struct {
	c    *Cluster
	pool *pipeline.Pool
}

var _ pipeline.Log = (*Log)(nil)

// Log opens random access; pool may be nil.
func (c *Cluster) Log(pool *pipeline.Pool) *Log {
	if pool == nil {
		pool = pipeline.NewPool(&pipeline.Layout{})
	}
	return &Log{c: c, pool: pool}
}

// Read calls each with batches of the wanted offsets; a batch is each's own. Codes: ERR_TOPIC_MISSING.
func (l *Log) Read(ctx context.Context, tp pipeline.TP, offsets iter.Seq[int64], each func(*pipeline.Batch) error) error {
	if n := l.c.Partitions(tp.Topic); n == 0 || int(tp.Partition) >= n {
		return pipeline.Errorf(pipeline.CodeTopicMissing, tp.String(), "the topic does not exist")
	}
	var b *pipeline.Batch
	flush := func() error {
		if b == nil {
			return nil
		}
		full := b
		b = nil
		return each(full)
	}
	for off := range offsets {
		if err := ctx.Err(); err != nil {
			return err
		}
		if b == nil {
			b = l.pool.Get()
			b.TP = tp
		}
		l.c.mu.Lock()
		l.c.walk(tp, off, func(r *pipeline.Record) bool {
			if r.Offset == off {
				b.Recs = append(b.Recs, *r)
			}
			return false
		})
		l.c.mu.Unlock()
		if len(b.Recs) == 500 {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if b != nil && len(b.Recs) == 0 {
		b.Release()
		return nil
	}
	return flush()
}

// Info describes a topic. Codes: ERR_TOPIC_MISSING.
func (l *Log) Info(_ context.Context, topic string) (pipeline.TopicInfo, error) {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	t := l.c.topics[topic]
	if t == nil {
		return pipeline.TopicInfo{}, pipeline.Errorf(pipeline.CodeTopicMissing, topic, "the topic does not exist")
	}
	info := pipeline.TopicInfo{Topic: topic, Partitions: map[int32]pipeline.Range{},
		RetentionMS: t.number("retention.ms", 7*24*3600*1000), KeepBytes: t.number("retention.bytes", -1), MaxMessage: t.number("max.message.bytes", 1048588),
		LogAppend: t.configs["message.timestamp.type"] == "LogAppendTime"}
	info.Compacted = strings.Contains(t.configs["cleanup.policy"], "compact")
	if info.Compacted && !strings.Contains(t.configs["cleanup.policy"], "delete") {
		info.RetentionMS, info.KeepBytes = -1, -1
	}
	for p := range t.parts {
		info.Partitions[int32(p)] = pipeline.Range{First: t.first[p], Next: t.end(int32(p))}
	}
	return info, nil
}

// Committed returns the committed offsets of a group.
func (l *Log) Committed(_ context.Context, group string) (map[pipeline.TP]int64, error) {
	out := map[pipeline.TP]int64{}
	for tp, cp := range l.c.Committed(group) {
		out[tp] = cp.Next
	}
	return out, nil
}
