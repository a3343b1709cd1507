package pipeline

import (
	"context"
	"iter"
	"time"
)

// Event is what Source.Poll returns: a *Batch, Assigned, Revoked or Lost.
type Event any

// Assigned says that partitions are ours from now on. Until the next Poll, Seek sets where a partition starts (by default
// its checkpoint's Next, else the earliest offset) and Pause makes it start paused.
type Assigned struct {
	Epoch       uint32
	TPs         []TP
	Checkpoints map[TP]Checkpoint // only partitions that have one
}

// Revoked says that partitions go away. They are still ours until the next Poll: finish, commit, then poll.
type Revoked struct{ TPs []TP }

// Lost says that partitions are gone already: nothing may be committed for them.
type Lost struct{ TPs []TP }

// Source is a Kafka consumer. Only the owner goroutine calls it.
type Source interface {
	// Poll returns the next event, or nil after wait. An error means that the source cannot go on. Codes: ERR_BROKER_*.
	Poll(wait time.Duration) (Event, error)
	// Seek sets the next offset to read of an assigned partition.
	Seek(TP, int64) error
	// Pause stops reading; what was prefetched is not returned until Resume.
	Pause(...TP) error
	Resume(...TP) error
	// Commit writes explicit offsets with metadata. It never commits a partition that is not assigned.
	Commit(map[TP]Checkpoint) error
	// Group is what Tx.Commit needs.
	Group() GroupMeta
}

// GroupMeta is opaque: the source's client knows what it is.
type GroupMeta any

// Message is one message to be written.
type Message struct {
	Topic     string
	Partition int32 // -1: murmur2 of the key, the Java default; round robin for a null key
	Key       []byte
	Value     []byte
	Headers   []Header
	TimeMS    int64 // CreateTime; 0 is now
	From      int32 // record index in the batch; -1 is none
	Offset    int64 // set when acknowledged, with Partition
}

// Bad is one message of a Sending that was refused.
type Bad struct {
	Msg     int // index into Msgs
	Failure Failure
}

// Sending is everything that one batch sends at once. It has one completion, never one for each record. Its bytes stay
// the sink's until then.
type Sending struct {
	Batch *Batch
	Msgs  []Message
	Bad   []Bad // sparse, ascending by Msg; empty when all were acknowledged
	Owner any   // the sender's own; untouched
}

// Sink writes messages. Send hands over and never blocks.
type Sink interface {
	// Send takes s. ErrFull: nothing was taken, try again after a completion.
	Send(s *Sending) error
	// Done returns each Sending once all its messages are acknowledged or refused.
	Done() <-chan *Sending
	// Probe writes one message with the header reprieve-probe to topic and waits for its acknowledgement.
	Probe(ctx context.Context, topic string) error
}

// ErrFull says that a sink has as much in flight as it may: back-pressure, not a failure.
var ErrFull = &Error{Code: CodeSinkFull, Text: "the sink has as much in flight as it may"}

// Tx is a transactional producer: the same sink between Begin and Commit. Opening it fences its predecessor.
type Tx interface {
	Sink
	Begin() error
	// Commit ends the transaction with the offsets of whole batches. Codes: ERR_TX_FENCED, ERR_TX_ABORTED.
	Commit(context.Context, map[TP]Checkpoint, GroupMeta) error
	Abort(context.Context) error
}

// TopicInfo is what a broker says of a topic.
type TopicInfo struct {
	Topic       string
	Partitions  map[int32]Range
	RetentionMS int64 // -1 is for ever
	KeepBytes   int64 // of a partition (retention.bytes): beyond it the oldest go whatever their age; -1 is without bound
	Compacted   bool
	MaxMessage  int64 // bytes
	LogAppend   bool  // message.timestamp.type=LogAppendTime
}

// Range is [First, Next).
type Range struct{ First, Next int64 }

// Log is random access to topics: replay of ranges, faithful bytes from the source, verify and rebuild.
type Log interface {
	// Read calls each with batches that hold the wanted offsets, ascending. Offsets that are gone are left out.
	Read(ctx context.Context, tp TP, offsets iter.Seq[int64], each func(*Batch) error) error
	// Info describes a topic. Codes: ERR_TOPIC_MISSING.
	Info(ctx context.Context, topic string) (TopicInfo, error)
	// Committed returns the committed offsets of a group.
	Committed(ctx context.Context, group string) (map[TP]int64, error)
}

// Clean is what a letter may carry of a record: redacted from source bytes.
type Clean struct {
	Key, Value []byte
	Headers    []Header
	Changed    bool // redaction changed the value or the key: the letter is not faithful
}

// Sanitizer redacts what leaves for a dead-letter topic, a ledger, a log or a page. v may be nil (decode failed). An error
// means that it could not be sure: fail closed. Codes: ERR_REDACT_FAILED.
type Sanitizer interface {
	Sanitize(topic string, r *Record, v View) (Clean, error)
	// Text redacts diagnostics: a reason, a stack, a log line.
	Text(s string) string
}

// Sealer encrypts for a tenant (CONTRACTS 4).
type Sealer interface {
	Seal(tenant string, plain, aad []byte) (sealed []byte, enc string, err error)
}
