package kafka

import (
	"errors"
	"log/slog"
	"slices"
	"time"

	client "github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"reprieve.dev/pipeline"
)

// SourceConfig says what to read, as whom.
type SourceConfig struct {
	Cluster     Cluster
	Group       string
	Topics      []string
	RetryTopics map[string]bool // topics whose batches are of the retry lane; those not among Topics are read too
	InstanceID  string          // static membership: a restart keeps its partitions; "" is dynamic
	Pool        *pipeline.Pool
	MaxBatch    int // records; 0 is 1,000
	Log         *slog.Logger
}

// Source implements pipeline.Source over the batch binding: one crossing fetches a batch, and its records stand in memory
// that the library lends until the batch is released. One goroutine calls it.
type Source struct {
	n     *native
	vault *vault
	conf  SourceConfig
	place string
	logs  logs

	parts   map[pipeline.TP]*part
	places  map[place]*part // the same, as the library names them
	epoch   uint32
	pending *rebalance
	ready   []*pipeline.Batch // gathered and not yet returned, oldest first
	open    []*part           // partitions that have a batch being filled, in the order of their first record

	fatal     error
	down      error // why no broker could be reached last; nil when one answers
	strangers uint64
	closed    bool
}

// part is one assigned partition.
type part struct {
	tp      pipeline.TP
	lane    pipeline.Lane
	epoch   uint32
	next    int64 // the lowest offset that is still new to us: what is below it is stale
	start   int64 // where it begins, until the assignment is answered
	paused  bool
	gone    bool // revoked: what is still gathered of it is dropped
	filling *pipeline.Batch
	loan    *loan             // of filling
	held    []*pipeline.Batch // gathered before the pause
}

var _ pipeline.Source = (*Source)(nil)

const defaultBatch = 1000

// NewSource opens a consumer and joins its group at the first Poll. No broker need be there yet. Codes: ERR_BROKER_CONFIG.
func NewSource(conf SourceConfig) (*Source, error) {
	if conf.MaxBatch <= 0 {
		conf.MaxBatch = defaultBatch
	}
	if conf.Pool == nil {
		conf.Pool = pipeline.NewPool(&pipeline.Layout{})
	}
	s := &Source{conf: conf, place: conf.Cluster.place(), logs: newLogs(conf.Log, conf.Cluster.Name),
		parts: map[pipeline.TP]*part{}, places: map[place]*part{}}
	must := map[string]string{
		"group.id":                 conf.Group,
		"enable.auto.commit":       "false",
		"enable.auto.offset.store": "false",
		"enable.partition.eof":     "false",
	}
	if conf.InstanceID != "" {
		must["group.instance.id"] = conf.InstanceID
	}
	m, err := conf.Cluster.settings(forConsumer, must)
	if err != nil {
		return nil, err
	}
	topics := slices.Clone(conf.Topics)
	for t, retry := range conf.RetryTopics {
		if retry && !slices.Contains(topics, t) {
			topics = append(topics, t)
		}
	}
	if s.n, err = openNative(false, m); err != nil {
		return nil, pipeline.Errorf(pipeline.CodeBrokerConfig, "clusters."+conf.Cluster.Name, "%w", err)
	}
	s.vault = newVault(s.n, conf.MaxBatch)
	if err := s.n.subscribe(topics); err != nil {
		_ = s.Close()
		return nil, failed(err, s.place, "subscribe")
	}
	return s, nil
}

// Poll returns the next event; see pipeline.Source. It answers the rebalance that the Poll before returned, hands out what
// is gathered already, else waits up to wait for a first record and takes what else lies ready, without waiting for more.
// It may return nil early. Codes: ERR_BROKER_AUTH, ERR_BROKER_FATAL, ERR_TOPIC_MISSING.
func (s *Source) Poll(wait time.Duration) (pipeline.Event, error) {
	if s.closed {
		return nil, pipeline.Errorf(pipeline.CodeBrokerFatal, s.place, "the source is closed")
	}
	if s.fatal != nil {
		return nil, s.fatal
	}
	if s.pending != nil && s.pending.told {
		if err := s.answer(); err != nil {
			return nil, s.die(err, "answer a rebalance")
		}
	}
	if s.pending == nil {
		if b := s.nextReady(); b != nil {
			return b, nil
		}
		if err := s.gather(wait); err != nil {
			s.fatal = err
			return nil, err
		}
	}
	if s.pending != nil {
		return s.tell(wait)
	}
	if b := s.nextReady(); b != nil {
		return b, nil
	}
	return nil, nil
}

// judge decides whether an error of the client ends the source. A broker that is away does not: the library comes back to it.
func (s *Source) judge(err error, topic string) error {
	e, ok := errors.AsType[clientError](err)
	if !ok {
		return s.die(err, "poll")
	}
	place := s.place
	if topic != "" {
		place = topic + " on " + place
	}
	switch code := codeOf(e); {
	case e.IsFatal():
		return &pipeline.Error{Code: pipeline.CodeBrokerFatal, Place: place, Text: e.Error(), Cause: e,
			Remedy: fatalRemedy(e)}
	case code == pipeline.CodeTopicMissing, code == pipeline.CodeBrokerAuth:
		return &pipeline.Error{Code: code, Place: place, Text: e.Error(), Cause: e}
	case e.Code() == client.ErrAllBrokersDown:
		if s.down == nil {
			s.logs.to.Warn("no broker can be reached", "cluster", s.conf.Cluster.Name, "err", e.Error())
		}
		s.down = &pipeline.Error{Code: pipeline.CodeBrokerUnreachable, Place: place, Text: e.Error(), Cause: e}
	default:
		s.logs.to.Debug("client", "cluster", s.conf.Cluster.Name, "err", e.Error())
	}
	return nil
}

func fatalRemedy(e clientError) string {
	switch e.Code() {
	case client.ErrFencedInstanceID, client.ErrUnreleasedInstanceID:
		return "Another worker has the same name: give each its own name in the worker file."
	}
	return ""
}

func (s *Source) die(err error, doing string) error {
	s.fatal = failed(err, s.place, doing)
	return s.fatal
}

// Health says why no broker can be reached at the moment, or nil. Codes: ERR_BROKER_UNREACHABLE.
func (s *Source) Health() error { return s.down }

// Strangers is how many partitions of commits were refused because they were not ours (INV-KAFKA-OWN).
func (s *Source) Strangers() uint64 { return s.strangers }

// Group is the membership that Tx.Commit needs, as it is now; nil before the first assignment.
func (s *Source) Group() pipeline.GroupMeta {
	if s.closed {
		return nil
	}
	g, err := s.n.group()
	if err != nil || g == nil {
		return nil
	}
	return g
}

// closePatience is how long leaving the group may take.
const closePatience = 30 * time.Second

// Close leaves the group and frees everything. Rebalances that come meanwhile are answered (INV-KAFKA-ANSWER); nothing is
// committed. Batches already handed out stay valid: the client itself goes with the last of them. After a fatal error of the
// library (another member with our name) the group is not told. Codes: ERR_DRAIN_TIMEOUT.
func (s *Source) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	for ; s.pending != nil; s.nextChange() {
		if err := s.refuse(); err != nil {
			s.logs.to.Debug("answer at close", "err", err.Error())
		}
	}
	for _, p := range s.parts {
		s.drop(p)
	}
	s.ready, s.open = nil, nil
	clear(s.parts)
	clear(s.places)
	err := s.n.leave(closePatience)
	s.logs.drain(s.n)
	e, ok := errors.AsType[clientError](err)
	switch {
	case err == nil, ok && e.IsFatal(): // the library refuses to leave, and is freed as it is
		s.vault.close()
	case ok && e.Code() == client.ErrInProgress:
		// the group is left; to free the client would wait for a call that never comes back
		s.logs.to.Warn("the client library left its group and keeps a call open; its memory stays", "cluster", s.conf.Cluster.Name)
	case ok && e.Code() == client.ErrTimedOut:
		// to free it would wait for the group again, perhaps for ever
		return pipeline.Errorf(pipeline.CodeDrainTimeout, s.place, "the consumer did not leave its group within %v", closePatience)
	default:
		s.vault.close()
		return failed(err, s.place, "close the consumer")
	}
	return nil
}
