package worker

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/kafka"
)

// followEvery is how often a followed topic is looked into.
const followEvery = time.Second

// follower implements stage.Follower over the clusters of the worker file.
type follower struct {
	ctx    context.Context
	plan   *Plan
	source string // cluster of the pipeline's source
	log    *slog.Logger
}

// Follow reads a topic to its end and then goes on in the background. Codes: see stage.Follower.
func (f *follower) Follow(cluster, topic string, each func(context.Context, *pipeline.Record) error) (pipeline.Close, error) {
	if cluster == "" {
		cluster = f.source
	}
	c, err := f.plan.Cluster(cluster)
	if err != nil {
		return nil, err
	}
	log, err := kafka.NewLog(c, nil)
	if err != nil {
		return nil, err
	}
	t := &followedTopic{kafka: log, topic: topic, each: each, next: map[int32]int64{}, end: map[int32]int64{}}
	if err = t.safe(f.ctx); err == nil {
		err = t.read(f.ctx)
	}
	if err != nil {
		log.Close()
		return nil, err
	}
	ctx, stop := context.WithCancel(f.ctx)
	var following sync.WaitGroup
	following.Go(func() { t.follow(ctx, f.log) })
	return func() error {
		stop()
		following.Wait()
		log.Close()
		return nil
	}, nil
}

// followedTopic is one topic, and how far it was read.
type followedTopic struct {
	kafka *kafka.Log
	topic string
	each  func(context.Context, *pipeline.Record) error
	next  map[int32]int64 // offset behind the last record
	end   map[int32]int64 // of the partition when it was read through: what is behind the last record has no record
}

// safe refuses a topic whose rows would go by themselves.
func (t *followedTopic) safe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	info, err := t.kafka.Info(ctx, t.topic)
	if err == nil && !info.Compacted && info.RetentionMS >= 0 {
		err = pipeline.Errorf(pipeline.CodeTopicUnsafe, t.topic, "the topic of a look-up is not compacted: its rows would expire").With("set cleanup.policy=compact on it")
	}
	return err
}

// read gives on what is new.
func (t *followedTopic) read(ctx context.Context) error {
	ranges, err := t.kafka.Offsets(ctx, t.topic)
	if err != nil {
		return err
	}
	for _, p := range slices.Sorted(maps.Keys(ranges)) {
		r := ranges[p]
		if r.Next == t.end[p] {
			continue
		}
		if r.Next < t.next[p] {
			return pipeline.Errorf(pipeline.CodeTopicUnsafe, t.topic, "its offsets went back: it is another topic of the same name").With("start the pipeline again")
		}
		err := t.kafka.Read(ctx, pipeline.TP{Topic: t.topic, Partition: p}, between(max(t.next[p], r.First), r.Next), func(b *pipeline.Batch) error {
			defer b.Release()
			for i := range b.Recs {
				if err := t.each(ctx, &b.Recs[i]); err != nil {
					return err
				}
				t.next[p] = b.Recs[i].Offset + 1
			}
			return nil
		})
		if err != nil {
			return err
		}
		t.end[p] = r.Next
	}
	return nil
}

func between(from, to int64) func(func(int64) bool) {
	return func(yield func(int64) bool) {
		for off := from; off < to && yield(off); off++ {
		}
	}
}

// follow looks into the topic until ctx ends. While it cannot be read, what is known stays.
func (t *followedTopic) follow(ctx context.Context, log *slog.Logger) {
	broken := false
	for wait(ctx, followEvery) == nil {
		err := t.read(ctx)
		if ctx.Err() != nil {
			return
		}
		switch {
		case err != nil && !broken:
			log.Warn("the topic of a look-up cannot be read: its rows stay as they are", "topic", t.topic, "code", pipeline.CodeOf(err), "cause", err.Error())
		case err == nil && broken:
			log.Info("the topic of a look-up is read again", "topic", t.topic)
		}
		broken = err != nil
	}
}
