package kafka

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"

	client "github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"reprieve.dev/pipeline"
)

// Log implements pipeline.Log. It is safe for concurrent use: each Read has its own client, and two idle ones are kept.
type Log struct {
	*Admin
	cluster Cluster
	pool    *pipeline.Pool

	mu     sync.Mutex
	closed bool
	idle   []*reader
}

var _ pipeline.Log = (*Log)(nil)

const (
	keptReaders = 2
	logBatch    = 500  // records
	seekBeyond  = 2000 // offsets to skip before a seek is cheaper than reading on
	readPollMS  = 100
	goesOn      = 50 // records: who reads so many of a partition goes on there
)

// NewLog opens random access to the topics of a cluster. pool may be nil. Codes: ERR_BROKER_CONFIG.
func NewLog(c Cluster, pool *pipeline.Pool) (*Log, error) {
	a, err := NewAdmin(c)
	if err != nil {
		return nil, err
	}
	if pool == nil {
		pool = pipeline.NewPool(&pipeline.Layout{})
	}
	return &Log{Admin: a, cluster: c, pool: pool}, nil
}

// Close frees all clients. No Read may be running.
func (l *Log) Close() {
	l.mu.Lock()
	idle := l.idle
	l.idle, l.closed = nil, true
	l.mu.Unlock()
	for _, r := range idle {
		_ = r.Close()
	}
	l.Admin.Close()
}

// Committed returns the committed offsets of a group. Codes: ERR_BROKER_*.
func (l *Log) Committed(ctx context.Context, group string) (map[pipeline.TP]int64, error) {
	cps, err := l.Checkpoints(ctx, group)
	if err != nil {
		return nil, err
	}
	out := make(map[pipeline.TP]int64, len(cps))
	for tp, cp := range cps {
		out[tp] = cp.Next
	}
	return out, nil
}

// Read calls each with batches of at most 500 records that hold the wanted offsets, ascending. Offsets that are gone
// (deleted, compacted, aborted) are left out; offsets not written yet end the read. Each batch is each's own: it calls
// Release when it needs the bytes no longer. An error of each ends Read and is returned. Who goes on where a long Read of the same
// partition has ended goes on with its client, and with what that has fetched already. Codes: ERR_TOPIC_MISSING, ERR_BROKER_*.
func (l *Log) Read(ctx context.Context, tp pipeline.TP, offsets iter.Seq[int64], each func(*pipeline.Batch) error) (err error) {
	next, stop := iter.Pull(offsets)
	defer stop()
	want, ok := next()
	if !ok {
		return nil
	}
	r, err := l.reader(tp, want)
	if err != nil {
		return err
	}
	w := walk{l: l, tp: tp, each: each}
	defer func() {
		w.drop()
		if err != nil || w.n < goesOn { // one record of many is not where somebody goes on
			r.leave()
		}
		l.keep(r)
	}()
	known := false // where the partition ends now
	look := func() error {
		known = true
		var first int64
		if err := within(ctx, r.Consumer, func(ms int) (err error) {
			first, r.end, err = r.QueryWatermarkOffsets(tp.Topic, tp.Partition, ms)
			return err
		}); err != nil {
			return failed(err, tp.String()+" on "+l.place, "ask for the offsets")
		}
		for ok && want < first {
			want, ok = next()
		}
		return nil
	}
	if r.at < 0 {
		if err := look(); err != nil || !ok || want >= r.end {
			return err
		}
		if err := r.Assign([]client.TopicPartition{clientTP(tp, client.Offset(want))}); err != nil {
			return failed(err, tp.String()+" on "+l.place, "read")
		}
		r.tp, r.at = tp, want
	}
	for ok {
		if want >= r.end {
			if known {
				break
			}
			if err := look(); err != nil {
				return err
			}
			continue
		}
		if err := ctx.Err(); err != nil {
			return failed(err, tp.String()+" on "+l.place, "read")
		}
		switch e := r.Poll(readPollMS).(type) { // everything before r.at was seen
		case *client.Message:
			if e.TopicPartition.Error != nil {
				return failed(e.TopicPartition.Error, tp.String()+" on "+l.place, "read")
			}
			r.at = int64(e.TopicPartition.Offset)
			for ok && want < r.at {
				want, ok = next()
			}
			if ok && want == r.at {
				if err := w.add(e); err != nil {
					return err
				}
				want, ok = next()
			}
			r.at++
		case client.PartitionEOF:
			r.at = int64(e.Offset)
			for ok && want < r.at {
				want, ok = next()
			}
		case client.Error:
			if code := codeOf(e); e.IsFatal() || code == pipeline.CodeTopicMissing || code == pipeline.CodeBrokerAuth {
				return failed(e, tp.String()+" on "+l.place, "read")
			}
			continue
		default:
			continue
		}
		if ok && want < r.end && want-r.at > seekBeyond {
			if _, err := r.SeekPartitions([]client.TopicPartition{clientTP(tp, client.Offset(want))}); err != nil {
				return failed(err, tp.String()+" on "+l.place, "seek")
			}
			r.at = want
		}
	}
	return w.flush()
}

// reader is a client of one Read at a time.
type reader struct {
	*client.Consumer
	tp  pipeline.TP
	at  int64 // everything before it was given; -1: it reads nothing
	end int64 // of the partition, when it was last asked for
}

// leave stops what it reads.
func (r *reader) leave() {
	_ = r.Unassign() // it is assigned anew, or closed
	r.at = -1
}

// walk fills batches.
type walk struct {
	l    *Log
	tp   pipeline.TP
	each func(*pipeline.Batch) error
	b    *pipeline.Batch
	n    int // records
}

func (w *walk) add(m *client.Message) error {
	if w.b == nil {
		w.b = w.l.pool.Get()
	}
	w.n++
	w.b.TP, w.b.Lane, w.b.Epoch = w.tp, pipeline.Live, 0
	var hs []pipeline.Header
	for _, h := range m.Headers {
		hs = append(hs, pipeline.Header{Name: h.Key, Value: h.Value})
	}
	w.b.Recs = append(w.b.Recs, pipeline.Record{Offset: int64(m.TopicPartition.Offset), TimeMS: millis(m),
		TimeType: pipeline.TimeType(m.TimestampType), Key: m.Key, Value: m.Value, Headers: hs})
	if len(w.b.Recs) >= logBatch {
		return w.flush()
	}
	return nil
}

func (w *walk) flush() error {
	b := w.b
	if b == nil || len(b.Recs) == 0 {
		return nil
	}
	w.b = nil
	return w.each(b)
}

func (w *walk) drop() {
	if w.b != nil {
		w.b.Release()
		w.b = nil
	}
}

// reader takes the idle client that comes by want of a partition next, or any, or opens one.
func (l *Log) reader(tp pipeline.TP, want int64) (*reader, error) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil, pipeline.Errorf(pipeline.CodeBrokerFatal, l.place, "the log is closed")
	}
	if n := len(l.idle); n > 0 {
		i := slices.IndexFunc(l.idle, func(r *reader) bool { return r.at >= 0 && r.tp == tp && r.at <= want && want-r.at <= seekBeyond })
		on := i >= 0
		if !on {
			i = n - 1
		}
		r := l.idle[i]
		l.idle = slices.Delete(l.idle, i, i+1)
		l.mu.Unlock()
		if !on && r.at >= 0 {
			r.leave()
		}
		return r, nil
	}
	l.mu.Unlock()
	m, err := l.cluster.settings(forConsumer, map[string]string{
		"group.id":                 "reprieve-log", // the client wants one; nothing is ever committed under it
		"enable.auto.commit":       "false",
		"enable.auto.offset.store": "false",
		"enable.partition.eof":     "true",
		"fetch.wait.max.ms":        "10", // the next partition waits for the answer of the one before
		"auto.offset.reset":        "earliest",
	})
	if err != nil {
		return nil, err
	}
	r, err := client.NewConsumer(forClient(m))
	if err != nil {
		if e, ok := errors.AsType[clientError](err); ok {
			return nil, pipeline.Errorf(pipeline.CodeBrokerConfig, "clusters."+l.cluster.Name, "%w", e)
		}
		return nil, failed(err, l.place, "open a reader")
	}
	return &reader{Consumer: r, at: -1}, nil
}

func millis(m *client.Message) int64 {
	if m.TimestampType == client.TimestampNotAvailable {
		return -1
	}
	return m.Timestamp.UnixMilli()
}

// keep puts a client back, or closes it when there are enough.
func (l *Log) keep(r *reader) {
	l.mu.Lock()
	if !l.closed && len(l.idle) < keptReaders {
		l.idle = append(l.idle, r)
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	_ = r.Close()
}
