package redrive

import (
	"context"
	"crypto/rand"
	"log/slog"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/seal"
	"reprieve.dev/transforms"
)

// Topic is a topic on a cluster.
type Topic struct{ Cluster, Topic string }

// Target is what redrive has to know of one pipeline; the worker makes it from the pipeline's file.
type Target struct {
	Pipeline    string
	Group       string          // its consumer group
	Cluster     string          // of source and retry topic: its name or its id, as Options.Source takes it
	Sources     []string        // its primary topics
	Outputs     []string        // topics and services that its route writes to: never a destination
	Destination string          // its retry topic
	Ceiling     Rate            // redrive.ceiling
	Reconcile   string          // here, outcomes, http, person
	Ordered     bool            // ordering.scope: key
	State       bool            // effect.kind: state: a newer version of an entity supersedes an older one
	Compensates bool            // effect.compensates
	Dual        bool            // redrive.approval: dual
	Quotas      map[string]Rate // of its destination and of tenants: "destination/TOPIC", "tenant/NAME"
	Yield       Yield
	Watched     []Topic // dead-letter, outcomes, settlements topics: a run is judged when the custodian has passed their ends
	Horizon     Horizon
	Measures    []Measure
	Decoder     *codec.Decoder      // nil: records are bytes
	Library     *transforms.Library // nil: nothing can be repaired
	Rules       transforms.Rules
	// Trial runs records through the pipeline's own stages, without effects, and says for each by which code it would fail, or "". nil:
	// a dry run decodes and checks only.
	Trial func(ctx context.Context, list []Trial) ([]pipeline.Code, error)
	// Ask puts the reconcile question of one item. nil: the pipeline has none.
	Ask func(ctx context.Context, it *custody.Item) (Answer, error)
}

// Answer is what the reconcile question says about one item.
type Answer struct {
	Result   pipeline.Result   // applied, already_applied, superseded, corrected, absent, or unknown
	Evidence string            // a short text without payload
	Effect   map[string]string // measures of the effect, by the names of Target.Measures: exact decimals
}

// Trial is one record for a dry run of the stages.
type Trial struct {
	Item     pipeline.ID
	Original pipeline.Position
	Identity pipeline.Identity
	Bytes    custody.Bytes
}

// Yield says when a redrive steps back for live records: 0 is never.
type Yield struct {
	Lag     int64         // live records that wait
	Latency time.Duration // age of the oldest of them
}

// Horizon is how long the effect's deduplication remembers, as the pipeline's effect section says.
type Horizon struct {
	Known bool          // an effect section stands in the file
	For   time.Duration // 0 with Known: for ever
	Last  bool          // it counts from the last delivery, not from the first
	Store string        // what remembers, for reports
}

// Approver is a registered key of a person, or of a console that has authenticated one.
type Approver struct {
	Key     *seal.Verifier
	Roles   []string
	Console bool // may sign for other subjects
}

// Sender opens the sink of one lease. A sink that is also a pipeline.Tx is used in one transaction a window; its transactional id
// must follow from lease.Name alone, so that opening it fences whoever had the lease before.
type Sender func(ctx context.Context, t *Target, lease ledger.Lease) (sink pipeline.Sink, done func(context.Context) error, err error)

// Options are what a Service is made with.
type Options struct {
	Items    *custody.Items
	Name     string                                           // of this executor: stable
	Clock    pipeline.Clock                                   // required
	Wait     func(ctx context.Context, d time.Duration) error // required: waits d or until ctx is done
	Ring     *seal.Ring                                       // signs trails
	Identity *seal.IdentityKey                                // keyed digests
	Targets  func(pipeline string) (*Target, bool)
	Log      *slog.Logger
	Source   func(cluster string) (pipeline.Log, bool) // random access to topics
	// ClusterID says by which id the ledger knows a cluster of Targets; nil: by the same text.
	ClusterID func(ctx context.Context, cluster string) (string, error)
	Send      Sender
	Fenced    bool  // Send gives transactional sinks: a killed run is continued by itself
	Board     Board // nil: only the ledger's own halt counts
	Approvers []Approver
	Bound     Rate // platform bound; 0 is 50/s
	// Lease is how long a lease lasts without renewal. Default 30 s.
	Lease time.Duration
	// Settle is how long a canary or a run may take to be reconciled before it stops as it is. Default 10 minutes.
	Settle time.Duration
}

// Service runs redrives over custody. It starts nothing by itself; it is safe for concurrent use, and several processes may
// share the work through one ledger.
type Service struct {
	items     *custody.Items
	db        *ledger.DB
	name      string
	clock     pipeline.Clock
	wait      func(context.Context, time.Duration) error
	ring      *seal.Ring
	id        *seal.IdentityKey
	targets   func(string) (*Target, bool)
	log       *slog.Logger
	source    func(string) (pipeline.Log, bool)
	clusterID func(context.Context, string) (string, error)
	send      Sender
	fenced    bool
	board     Board
	approvers []Approver
	bound     Rate
	lease     time.Duration
	settle    time.Duration
}

// New makes a service.
func New(o Options) *Service {
	s := &Service{items: o.Items, db: o.Items.Ledger(), name: o.Name, clock: o.Clock, wait: o.Wait, ring: o.Ring, id: o.Identity,
		targets: o.Targets, log: o.Log, source: o.Source, clusterID: o.ClusterID, send: o.Send, fenced: o.Fenced, board: o.Board, approvers: o.Approvers, bound: o.Bound,
		lease: o.Lease, settle: o.Settle}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.source == nil {
		s.source = func(string) (pipeline.Log, bool) { return nil, false }
	}
	if s.clusterID == nil {
		s.clusterID = func(_ context.Context, cluster string) (string, error) { return cluster, nil }
	}
	if s.bound <= 0 {
		s.bound = 50
	}
	if s.lease <= 0 {
		s.lease = 30 * time.Second
	}
	if s.settle <= 0 {
		s.settle = 10 * time.Minute
	}
	return s
}

func (s *Service) target(name string) (*Target, error) {
	if t, ok := s.targets(name); ok {
		return t, nil
	}
	return nil, pipeline.Errorf(pipeline.CodeConfigReference, name, "no pipeline of this name is known here").
		With("Give its file: the redrive must know its retry topic and its ceiling.")
}

func (s *Service) logOf(cluster string) (pipeline.Log, error) {
	if l, ok := s.source(cluster); ok {
		return l, nil
	}
	return nil, pipeline.Errorf(pipeline.CodeConfigReference, cluster, "no cluster of this name is configured")
}

// refused writes every refusal into the history and returns it.
func (s *Service) refused(ctx context.Context, who custody.Actor, action, manifest, tenant string, err error) error {
	code := pipeline.CodeOf(err)
	if err == nil || code == "" || ctx.Err() != nil {
		return err
	}
	if werr := s.db.Write(ctx, func(tx *ledger.Tx) error {
		tx.Append(ledger.Entry{Tenant: tenant, Event: "redrive_refused", Actor: who.Subject,
			Detail: map[string]string{"action": action, "manifest": manifest, "code": string(code), "via": who.Via}})
		return nil
	}); werr != nil {
		s.log.Warn("a refusal could not be written to the ledger", "action", action, "code", code, "ledger", pipeline.CodeOf(werr))
	}
	return err
}

// stamp is RFC 3339, UTC, milliseconds.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func stampMS(ms int64) string { return stamp(time.UnixMilli(ms)) }

func randomID(prefix string) string {
	b := make([]byte, 15)
	rand.Read(b)
	return prefix + seal.Base32(b)
}
