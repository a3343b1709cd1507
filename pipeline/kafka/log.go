package kafka

import (
	"context"
	"errors"
	"iter"
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
	idle   []*client.Consumer
}

var _ pipeline.Log = (*Log)(nil)

const (
	keptReaders = 2
	logBatch    = 500  // records
	seekBeyond  = 2000 // offsets to skip before a seek is cheaper than reading on
	readPollMS  = 100
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
// Release when it needs the bytes no longer. An error of each ends Read and is returned. Codes: ERR_TOPIC_MISSING,
// ERR_BROKER_*.
func (l *Log) Read(ctx context.Context, tp pipeline.TP, offsets iter.Seq[int64], each func(*pipeline.Batch) error) error {
	next, stop := iter.Pull(offsets)
	defer stop()
	want, ok := next()
	if !ok {
		return nil
	}
	r, err := l.reader()
	if err != nil {
		return err
	}
	defer func() {
		_ = r.Unassign()
		l.keep(r)
	}()
	var first, end int64
	err = within(ctx, r, func(ms int) (err error) {
		first, end, err = r.QueryWatermarkOffsets(tp.Topic, tp.Partition, ms)
		return err
	})
	if err != nil {
		return failed(err, tp.String()+" on "+l.place, "ask for the offsets")
	}
	for ok && want < first {
		want, ok = next()
	}
	if !ok || want >= end {
		return nil
	}
	if err := r.Assign([]client.TopicPartition{clientTP(tp, client.Offset(want))}); err != nil {
		return failed(err, tp.String()+" on "+l.place, "read")
	}
	w := walk{l: l, tp: tp, each: each, b: l.pool.Get()}
	defer w.drop()
	for ok && want < end {
		if err := ctx.Err(); err != nil {
			return failed(err, tp.String()+" on "+l.place, "read")
		}
		var at int64 // everything before at was seen
		switch e := r.Poll(readPollMS).(type) {
		case *client.Message:
			if e.TopicPartition.Error != nil {
				return failed(e.TopicPartition.Error, tp.String()+" on "+l.place, "read")
			}
			at = int64(e.TopicPartition.Offset)
			for ok && want < at {
				want, ok = next()
			}
			if ok && want == at {
				if err := w.add(e); err != nil {
					return err
				}
				want, ok = next()
				at++
			}
		case client.PartitionEOF:
			at = int64(e.Offset)
			for ok && want < at {
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
		if ok && want < end && want-at > seekBeyond {
			if _, err := r.SeekPartitions([]client.TopicPartition{clientTP(tp, client.Offset(want))}); err != nil {
				return failed(err, tp.String()+" on "+l.place, "seek")
			}
		}
	}
	return w.flush()
}

// walk fills batches.
type walk struct {
	l    *Log
	tp   pipeline.TP
	each func(*pipeline.Batch) error
	b    *pipeline.Batch
}

func (w *walk) add(m *client.Message) error {
	if w.b == nil {
		w.b = w.l.pool.Get()
	}
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

// reader takes an idle client or opens one.
func (l *Log) reader() (*client.Consumer, error) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil, pipeline.Errorf(pipeline.CodeBrokerFatal, l.place, "the log is closed")
	}
	if n := len(l.idle); n > 0 {
		r := l.idle[n-1]
		l.idle = l.idle[:n-1]
		l.mu.Unlock()
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
	return r, nil
}

func millis(m *client.Message) int64 {
	if m.TimestampType == client.TimestampNotAvailable {
		return -1
	}
	return m.Timestamp.UnixMilli()
}

// keep puts a client back, or closes it when there are enough.
func (l *Log) keep(r *client.Consumer) {
	l.mu.Lock()
	if !l.closed && len(l.idle) < keptReaders {
		l.idle = append(l.idle, r)
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	_ = r.Close()
}
