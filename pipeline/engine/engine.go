// Package engine runs one pipeline: it owns the consumer, runs the stages, decides what becomes of records that fail, writes
// messages and commits offsets. It sees ports only: neither stages, codec, redact nor custody.
//
// The data flows owner.go -> partition.go -> compose.go -> send.go -> commit.go.
package engine

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/pipeline/decide"
	"reprieve.dev/seal"
)

// Stage is one built stage of the pipeline, in file order.
type Stage struct {
	Name  string
	Stage pipeline.Stage
	When  Condition // nil is always
}

// Condition tells whether a stage applies to a record. An error fails the record with ERR_STAGE_CONDITION. One that reads the
// view does not hold for a record without one (a delete marker).
type Condition interface {
	ReadsView() bool
	Eval(b *pipeline.Batch, i int) (bool, error)
}

// Identifier reads who a record says it is. v may be nil.
type Identifier interface {
	Identify(topic string, r *pipeline.Record, v pipeline.View) pipeline.Identity
}

// Route is where failing records go.
type Route struct {
	RetryTopic      string // empty: no retries, transient failures are quarantined
	QuarantineTopic string
	Profiles        deadletter.Profiles
	Prefix          string // of the topics for settlements and outcomes
}

// Limits bound memory and time. Zero fields take the defaults.
type Limits struct {
	Batches     int           // in work at once, all partitions (1,024)
	Records     int           // in work at once, all partitions; the last batch may exceed it (20,000)
	PartRecords int           // in work at once for one partition (a quarter of Records): beyond it is paused, and what was prefetched read again
	DelayBytes  int64         // of records waiting to be due, all retry partitions (64 MiB)
	CommitEvery time.Duration // (250 ms)
	Drain       time.Duration // at a revoke and at the end (10 s)
	ProbeEvery  time.Duration // of the dead-letter path when idle (30 s)
}

func (l Limits) withDefaults() Limits {
	set := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	dur := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	set(&l.Batches, 1024)
	set(&l.Records, 20_000)
	set(&l.PartRecords, max(1, l.Records/4))
	if l.DelayBytes == 0 {
		l.DelayBytes = 64 << 20
	}
	dur(&l.CommitEvery, 250*time.Millisecond)
	dur(&l.Drain, 10*time.Second)
	dur(&l.ProbeEvery, 30*time.Second)
	return l
}

// Options are the parts of one pipeline, joined by the worker.
type Options struct {
	Pipeline string
	Cluster  string // id of the source cluster
	Consumer string // source.group
	Release  string
	Data     string // data class of the records: letters carry it
	Source   pipeline.Source
	Sink     pipeline.Sink // on the source's cluster: effects, retries, settlements, outcomes
	Letters  pipeline.Sink // on the dead-letter cluster; the same Sink if it is the same cluster
	Fallback pipeline.Sink // takes letters while the dead-letter topic does not; nil: there is none
	Calls    pipeline.Sink // makes the calls of routes to services; nil: there are none
	Tx       pipeline.Tx   // exactly_once: the same object as Sink; nil is at_least_once
	Prober   pipeline.Sink // asks whether the dead-letter path is open; Letters if nil (a transaction cannot probe)
	Pool     *pipeline.Pool
	Layout   *pipeline.Layout // New reserves the engine's own slot: before the Pool hands out a batch
	Stages   []Stage
	Policy   func(pipeline.TP) pipeline.Policy // the active version; the owner asks once a batch
	Control  Control                           // nil: nothing must be known before reading
	Identify Identifier
	Sanitize pipeline.Sanitizer
	Seal     Sealing
	Ring     *seal.Ring
	Identity *seal.IdentityKey
	Route    Route
	Limits   Limits
	Clock    pipeline.Clock
	Log      *slog.Logger
	Meter    pipeline.Meter
	Observe  func(Health)
	// Unhealthy tells whether the dependency behind a transient failure is known to be down; nil: never known.
	Unhealthy func(*pipeline.Failure) bool
}

// Health is what readiness and alerts are told of.
type Health struct {
	Ready     bool
	Code      pipeline.Code // why not, or ""
	Place     string
	Assigned  int
	LastErrMS int64
}

// Engine runs one pipeline. Make it with New, run it once.
type Engine struct {
	core
	lim     Limits
	metrics metrics

	parts   map[pipeline.TP]*part
	order   []*part // stable order for fair release of due records
	results chan result
	epoch   uint32
	working int // batches in work: in a loop, being sent, or waiting for the dead-letter path
	records int // of those batches, here and by partition

	full       []*pipeline.Sending // what a full sink did not take, in order
	waiting    []*work             // batches whose letters wait for the dead-letter path
	wg         sync.WaitGroup
	ingress    ingress
	alone      alone
	marksAfter time.Time // a mark was refused: none is written before
	budgets    map[decide.UnknownBudget]*decide.Budget
	exceeded   error // a budget was exceeded: the pipeline ends with it
	commit     commitState
	tx         *txState                          // nil: at_least_once
	refusals   map[pipeline.TP]map[int64]refusal // by an aborted transaction, for the parts to come
	ctx        context.Context                   // of Run
	loops      context.Context                   // of the partition loops
	probes     chan probed
	timer      *time.Timer // of wait, which the owner calls
	health     Health
}

// New builds the engine. It starts nothing.
func New(o Options) *Engine {
	e := &Engine{
		core: newCore(o), lim: o.Limits.withDefaults(),
		parts: map[pipeline.TP]*part{}, probes: make(chan probed, 1), budgets: map[decide.UnknownBudget]*decide.Budget{},
	}
	e.results = make(chan result, e.lim.Batches*2)
	e.metrics = newMetrics(o)
	if o.Tx != nil {
		e.tx = &txState{tx: o.Tx, ended: make(chan txEnd, 1)}
	}
	return e
}

// Run reads, processes and commits until ctx ends, then drains: records in work are finished and committed within
// Limits.Drain. It owns every goroutine that it starts. Nil after a clean drain. Codes: ERR_DRAIN_TIMEOUT, ERR_BROKER_*,
// ERR_ERROR_BUDGET_EXCEEDED (drained as well: a person must look before it is run again), and what a stage returned.
//
// INV-DLQ-01: a failing record never blocks its partition: it leaves by retry or letter while later records go on.
func (e *Engine) Run(ctx context.Context) error {
	return e.run(ctx)
}
