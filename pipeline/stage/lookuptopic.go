package stage

import (
	"context"
	"sync"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
)

// Follower reads topics for look-ups. Cluster "" is that of the pipeline's source.
type Follower interface {
	// Follow gives each record of the topic to each, those of a partition in their order and never two at once: first all that stand
	// there, before it returns, and later ones until it is closed. A record that each answers with an error is given again. Codes:
	// ERR_TOPIC_MISSING, ERR_TOPIC_UNSAFE (rows would expire), ERR_CONFIG_REFERENCE, ERR_BROKER_*, what each answers.
	Follow(cluster, topic string, each func(context.Context, *pipeline.Record) error) (pipeline.Close, error)
}

// topicRow are the rows of a followed topic as they are now.
type topicRow struct {
	columns outcome
	paths   []*pipeline.Path
	dec     *codec.Decoder
	scratch *codec.Scratch // of the one that follows

	count   pipeline.Gauge
	refused pipeline.Counter

	mu    sync.RWMutex
	rows  map[string]answer
	bytes int
}

func followTopic(t *TableLookup, columns outcome, env pipeline.Env) (*topicRow, pipeline.Close, error) {
	r := &topicRow{columns: columns, scratch: codec.NewScratch(), rows: map[string]answer{},
		count: env.Meter.Gauge("reprieve_lookup_rows", "Rows of a topic that a look-up follows.", "pipeline", env.Pipeline, "lookup", env.Name),
		refused: env.Meter.Counter("reprieve_lookup_rows_refused_total",
			"Rows of a topic that a look-up could not keep: the value cannot be read, there is no key, or the table is full. What is looked up there has no answer.", "pipeline", env.Pipeline, "lookup", env.Name)}
	var err error
	if r.paths, err = columns.paths(); err != nil {
		return nil, nil, err
	}
	var reg codec.Registry
	if t.Registry != "" {
		if reg, err = resource[codec.Registry](env, ResourceRegistry, t.Registry); err != nil {
			return nil, nil, err
		}
	}
	if r.dec, err = codec.NewDecoder(codec.DecodeConfig{Format: t.format()}, reg); err != nil {
		return nil, nil, err
	}
	f, err := resource[Follower](env, ResourceTopic, env.Name)
	if err != nil {
		return nil, nil, err
	}
	shut, err := f.Follow(t.Cluster, t.Topic, r.take)
	return r, shut, err
}

// take puts a record's row in the place of the one that its key had. A row that cannot be kept is none: the one before is not true
// any more.
func (r *topicRow) take(ctx context.Context, rec *pipeline.Record) error {
	var a answer
	kept := len(rec.Key) > 0
	if rec.Value != nil && kept {
		r.scratch.Reset()
		v, f := r.dec.Decode(ctx, r.scratch, rec.Value, rec.Headers)
		switch {
		case f != nil && (f.Code == pipeline.CodeRegistryUnavailable || f.Code == pipeline.CodeRegistryDenied):
			return pipeline.Errorf(f.Code, r.columns.name, "a row needs its schema: %s", f.Reason())
		case f != nil:
			kept = false
		default:
			a = r.columns.of(v, r.paths)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	key := string(rec.Key)
	if old, ok := r.rows[key]; ok {
		r.bytes -= size(key, old)
		delete(r.rows, key)
	}
	if n := size(key, a); a != nil {
		if kept = len(r.rows) < maxTableRows && r.bytes+n <= maxTableBytes; kept {
			r.rows[key] = a
			r.bytes += n
		}
	}
	if !kept {
		r.refused.Add(1)
	}
	r.count.Set(float64(len(r.rows)))
	return nil
}

func size(key string, a answer) int {
	n := len(key)
	for _, v := range a {
		n += len(v)
	}
	return n
}

func (r *topicRow) row(key []byte) (answer, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	a, ok := r.rows[string(key)]
	return a, ok
}
