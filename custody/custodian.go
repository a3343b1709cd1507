package custody

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/seal"
)

// Adoption says about a dead-letter topic of somebody else what its letters do not say themselves.
type Adoption struct {
	Dialect  string // how its letters are spelled; found out if empty
	Consumer string
	Tenant   string
	Pipeline string
	Data     string // data class of its records
	Cluster  string // where the original topics are; empty: the cluster of the dead-letter topic
	Release  string
	// Identify reads names that stand in the record or its headers; nil: only those that the letter says itself. One goroutine calls
	// it at a time.
	Identify func(topic string, r *pipeline.Record) pipeline.Identity
}

// CustodianOptions are what a custodian works with.
type CustodianOptions struct {
	Items     *Items
	Source    pipeline.Source // subscribed to all topics below; the custodian commits to it only to show its progress
	Cluster   string          // id of the cluster that Source reads
	Prefix    string          // of settlements and outcomes topics; default "reprieve"
	Adopt     map[string]Adoption
	Vaults    map[string]bool              // topics that hold sealed records
	Ring      *seal.Ring                   // verifies letters, settlements and outcomes
	Writers   map[string]deadletter.Writer // by id: who else may write outcomes
	Sanitizer pipeline.Sanitizer           // redacts foreign and damaged messages before they reach the ledger; nil: they are kept without their value
	// Kafka answers what consumer groups have committed and where topics end; nil: items are not confirmed and the lag in
	// records is not known.
	Kafka pipeline.Log
	// Sink sends what the ledger has for other topics, signed heads for the audit topic first of all; the custodian's own. nil:
	// they wait in the ledger.
	Sink  pipeline.Sink
	Meter pipeline.Meter // nil: no metrics
	Log   *slog.Logger   // nil: silent
	// Backoff is how long to wait after the n-th failure in a row of the ledger, from 1. Default 100 ms doubled up to 10 s.
	Backoff func(n int) time.Duration
	// Rebuild marks every item as rebuilt: the ledger was lost, and what persons did to its items is not in the topics.
	Rebuild bool
	// Batch is the most messages of one ledger transaction. Default 500.
	Batch int
	// Idle is how long one poll waits. Default 100 ms.
	Idle time.Duration
	// Review is how often committed offsets are asked for while items wait for them. Default 1 s.
	Review time.Duration
}

// Custodian reads dead letters, settlements and outcomes into the ledger, each message once: its offsets stand in the ledger
// and are written in the transaction that writes what was read. One custodian is one member of a consumer group; start as many
// as you like.
type Custodian struct {
	o       CustodianOptions
	who     Actor
	owned   map[pipeline.TP]*intake
	held    []*pipeline.Batch // polled, not yet read
	records int
	lots    []*lot  // read, not yet on their way to the ledger
	flight  *flight // on its way
	stopped bool    // all partitions are paused because the ledger does not take anything
	fails   int
	quiet   map[string]pipeline.Code // what was told last about work between batches
	review  time.Time
	out     outbox
	meters  custodianMeters

	mu     sync.Mutex
	next   map[pipeline.TP]int64
	signal chan struct{}
}

type intake struct {
	next, epoch int64
	sent        int64 // what was read up to here is with the ledger or on its way
	taken       bool  // TakeOver has succeeded
	fenced      bool  // another custodian has it: nothing of ours is written any more
}

// NewCustodian makes a custodian; Run works.
func NewCustodian(o CustodianOptions) *Custodian {
	if o.Prefix == "" {
		o.Prefix = "reprieve"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Batch <= 0 {
		o.Batch = 500
	}
	if o.Idle <= 0 {
		o.Idle = 100 * time.Millisecond
	}
	if o.Review <= 0 {
		o.Review = time.Second
	}
	if o.Backoff == nil {
		o.Backoff = func(n int) time.Duration {
			return min(100*time.Millisecond<<min(n-1, 10), 10*time.Second)
		}
	}
	return &Custodian{o: o, out: outbox{items: o.Items, sink: o.Sink}, who: System("custodian"), owned: map[pipeline.TP]*intake{}, next: map[pipeline.TP]int64{}, quiet: map[string]pipeline.Code{},
		signal: make(chan struct{}), meters: newCustodianMeters(o.Meter)}
}

// CustodianTopics are the topics that a custodian of these dead-letter and vault topics subscribes to.
func CustodianTopics(prefix string, letters []string) []string {
	return append(append([]string(nil), letters...), deadletter.SettlementsTopic(prefix), deadletter.OutcomesTopic(prefix))
}

// Run reads until ctx is done, which is no error, or the source cannot go on. While the ledger is unavailable it reads nothing
// further, keeps what it has and its place in the group, and tries again with Backoff. What it had not written is read again
// by the next custodian. Codes: ERR_BROKER_*, ERR_LEDGER_VERSION, ERR_LEDGER_CORRUPT.
func (k *Custodian) Run(ctx context.Context) error {
	defer k.giveUp()
	for ctx.Err() == nil {
		wait := k.o.Idle
		if k.fails > 0 {
			wait = k.o.Backoff(k.fails)
		}
		ev, err := k.o.Source.Poll(wait)
		if err != nil {
			return err
		}
		idle := false
		switch ev := ev.(type) {
		case *pipeline.Batch:
			k.take(ev)
			if k.records < k.o.Batch && k.fails == 0 {
				more, err := k.gather()
				if err == nil && more != nil {
					err = k.event(ctx, more)
				}
				if err != nil {
					return err
				}
			}
		case nil:
			idle = true
		default:
			if err := k.event(ctx, ev); err != nil {
				return err
			}
		}
		if err := k.write(ctx); err != nil {
			return err
		}
		if k.fails == 0 {
			k.after(ctx, idle)
		}
	}
	return nil
}

// gather adds what the source has ready, up to one ledger batch; an event that is not a batch ends it and is returned.
func (k *Custodian) gather() (pipeline.Event, error) {
	for k.records < k.o.Batch {
		ev, err := k.o.Source.Poll(0)
		if err != nil || ev == nil {
			return nil, err
		}
		b, ok := ev.(*pipeline.Batch)
		if !ok {
			return ev, nil
		}
		k.take(b)
	}
	return nil, nil
}

func (k *Custodian) take(b *pipeline.Batch) {
	if in := k.owned[b.TP]; in == nil || in.fenced || !in.taken {
		b.Release() // one that is not taken over is read from where the ledger will say
		return
	}
	k.held = append(k.held, b)
	k.records += len(b.Recs)
}

func (k *Custodian) event(ctx context.Context, ev pipeline.Event) error {
	switch ev := ev.(type) {
	case pipeline.Assigned:
		k.assigned(ev)
	case pipeline.Revoked:
		// Still ours until the next poll: what was read is written now, or read again by the next custodian.
		err := k.write(ctx)
		if err == nil {
			err = k.write(ctx) // lands what the first one sent off
		}
		k.gone(ev.TPs)
		return err
	case pipeline.Lost:
		k.gone(ev.TPs)
	}
	return nil
}

// assigned starts every partition paused: it is read once the ledger has said from where.
func (k *Custodian) assigned(a pipeline.Assigned) {
	for _, tp := range a.TPs {
		k.owned[tp] = &intake{next: -1, sent: -1}
		if err := k.o.Source.Pause(tp); err != nil {
			k.o.Log.Warn("pause", "partition", tp.String(), "code", pipeline.CodeOf(err))
		}
	}
}

func (k *Custodian) gone(tps []pipeline.TP) {
	k.drop(tps)
	_ = k.land() // a lot that was not taken is sent again, without them
	for _, l := range k.lots {
		l.without(tps)
	}
	for _, tp := range tps {
		delete(k.owned, tp)
		k.meters.forget(tp)
	}
}

// drop releases held batches of these partitions, or all.
func (k *Custodian) drop(tps []pipeline.TP) {
	kept := k.held[:0]
	k.records = 0
	for _, b := range k.held {
		mine := tps == nil
		for _, tp := range tps {
			mine = mine || b.TP == tp
		}
		if mine {
			b.Release()
			continue
		}
		kept = append(kept, b)
		k.records += len(b.Recs)
	}
	k.held = kept
}

// write brings everything that is owed to the ledger: take-overs of new partitions, then what was read. One lot is on its way while
// the next one is polled and read.
func (k *Custodian) write(ctx context.Context) error {
	err := k.takeOver(ctx)
	if err == nil {
		err = k.fly(ctx)
	}
	switch {
	case err == nil && k.flight != nil && k.fails > 0:
		return nil // whether the ledger takes it shows when it lands
	case err == nil:
		if k.fails > 0 {
			k.o.Log.Info("the ledger takes letters again", "ledger", k.o.Items.db.Place(), "failures", k.fails)
		}
		k.fails = 0
		return k.resume()
	case ctx.Err() != nil:
		return nil
	}
	switch pipeline.CodeOf(err) {
	case pipeline.CodeLedgerUnavailable, pipeline.CodeLedgerBusy, pipeline.CodeLedgerFull, pipeline.CodeLedgerReadOnly:
	default:
		return err
	}
	k.fails++
	k.meters.failure()
	if k.fails == 1 {
		k.o.Log.Warn("the ledger does not take letters; the custodian waits", "ledger", k.o.Items.db.Place(), "code", pipeline.CodeOf(err))
	}
	return k.stop()
}

// stop pauses everything: what is not read cannot pile up here.
func (k *Custodian) stop() error {
	if k.stopped {
		return nil
	}
	k.stopped = true
	return k.o.Source.Pause(k.readable()...)
}

func (k *Custodian) resume() error {
	if !k.stopped {
		return nil
	}
	k.stopped = false
	return k.o.Source.Resume(k.readable()...)
}

func (k *Custodian) readable() []pipeline.TP {
	var tps []pipeline.TP
	for tp, in := range k.owned {
		if in.taken && !in.fenced {
			tps = append(tps, tp)
		}
	}
	return tps
}

// takeOver fences the custodians that had our new partitions before, and seeks to where they had come.
func (k *Custodian) takeOver(ctx context.Context) error {
	var todo []pipeline.TP
	for tp, in := range k.owned {
		if !in.taken {
			todo = append(todo, tp)
		}
	}
	if len(todo) == 0 {
		return nil
	}
	got := map[pipeline.TP]intake{}
	err := k.o.Items.db.Write(ctx, func(tx *ledger.Tx) error {
		for _, tp := range sortedTPs(todo) {
			next, epoch, err := tx.TakeOver(k.o.Cluster, tp)
			if err != nil {
				return err
			}
			got[tp] = intake{next: next, epoch: epoch, sent: next, taken: true}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, tp := range todo {
		in := got[tp]
		*k.owned[tp] = in
		// The ledger's offset counts, not the group's. Nothing read yet: from the beginning, whatever the group says.
		if err := k.o.Source.Seek(tp, max(in.next, 0)); err != nil {
			return err
		}
	}
	if k.stopped {
		return nil // resume comes with the first success
	}
	return k.o.Source.Resume(todo...)
}

// after does what is due between batches: progress, committed offsets, signed heads, lag.
func (k *Custodian) after(ctx context.Context, idle bool) {
	now := k.o.Items.clock()
	if idle {
		for tp := range k.owned {
			k.meters.lagSeconds(tp, 0)
		}
	}
	if now.Sub(k.review) < k.o.Review {
		return
	}
	k.review = now
	k.tell(ctx, "where the ledger stands could not be read", k.reviewPlaces(ctx))
	k.tell(ctx, "committed offsets could not be taken", k.reviewCommits(ctx))
	_, err := k.o.Items.SignHead(ctx, deadletter.AuditTopic(k.o.Prefix))
	k.tell(ctx, "the head of the history could not be signed", err)
	k.tell(ctx, "the outbox of the ledger could not be sent", k.out.step(ctx))
	if err := k.lag(ctx); err != nil && ctx.Err() == nil {
		k.o.Log.Debug("the lag is not known", "code", pipeline.CodeOf(err))
	}
}

// tell warns once about what stays the same.
func (k *Custodian) tell(ctx context.Context, what string, err error) {
	code := pipeline.CodeOf(err)
	if err != nil && ctx.Err() == nil && k.quiet[what] != code {
		k.o.Log.Warn(what, "code", code, "cause", err.Error())
	}
	k.quiet[what] = code
}

// reviewCommits asks for the committed offsets of groups whose items wait for them.
func (k *Custodian) reviewCommits(ctx context.Context) error {
	if k.o.Kafka == nil {
		return nil
	}
	groups, err := k.o.Items.Waiting(ctx)
	if err != nil {
		return err
	}
	for _, g := range groups {
		offsets, err := k.o.Kafka.Committed(ctx, g)
		if err != nil {
			return err
		}
		if err := k.o.Items.Committed(ctx, k.who, g, offsets); err != nil {
			return err
		}
	}
	return nil
}

func (k *Custodian) lag(ctx context.Context) error {
	if k.o.Kafka == nil || !k.meters.on() {
		return nil
	}
	topics := map[string]pipeline.TopicInfo{}
	for tp, in := range k.owned {
		info, ok := topics[tp.Topic]
		if !ok {
			var err error
			if info, err = k.o.Kafka.Info(ctx, tp.Topic); err != nil {
				return err
			}
			topics[tp.Topic] = info
		}
		if r, ok := info.Partitions[tp.Partition]; ok {
			k.meters.lagRecords(tp, r.Next-max(in.next, r.First))
		}
	}
	return nil
}

// Passed returns once everything below these offsets is in the ledger. Offsets that hold no record (the marks of transactions)
// count as passed. It may be called from any goroutine while Run works; ctx bounds it.
func (k *Custodian) Passed(ctx context.Context, ends map[pipeline.TP]int64) error {
	return k.passed(ctx, ends, nil)
}

// progress tells those who wait.
func (k *Custodian) progress() {
	k.mu.Lock()
	defer k.mu.Unlock()
	close(k.signal)
	k.signal = make(chan struct{})
}
