package custody

import (
	"context"
	"errors"
	"sync"
	"time"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/seal"
)

// Spare is one message that a dead-letter topic did not take: a letter, or what belongs into the vault. It is kept whole, sealed as
// it was to be sent.
type Spare struct {
	ID       string // the same for the same record read again: it is kept once
	Pipeline string
	Item     pipeline.ID
	AtMS     int64
	Bytes    []byte // of packSpare
}

// FallbackStore keeps messages that a dead-letter topic does not take, until it does.
type FallbackStore interface {
	// Put returns nil once all are durable. One that is there already is written again.
	Put(ctx context.Context, list []Spare) error
	// List returns messages of a pipeline in the store's order, at most limit, those behind after; nil is from the first on. It ends
	// early, but not before the first, once it has read 16 MiB.
	List(ctx context.Context, pipelineName string, after *Spare, limit int) ([]Spare, error)
	// Drop forgets messages; one that is not there is no error.
	Drop(ctx context.Context, list []Spare) error
	// Erase forgets what it has of an item.
	Erase(ctx context.Context, pipelineName string, item pipeline.ID) error
	// Ready tells whether it would take something now.
	Ready(ctx context.Context) error
}

const spareForm = "fallback/1"

// listBytes is where List stops: what no topic takes is kept here, too.
const listBytes = 16 << 20

func newSpare(pipelineName string, m *pipeline.Message, nowMS int64) Spare {
	item := deadletter.ItemOf(m)
	about := [][]byte{[]byte(m.Topic), []byte(item)}
	for _, h := range m.Headers {
		if deadletter.IsPlace(h.Name) {
			about = append(about, h.Value)
		}
	}
	return Spare{ID: seal.SHA256(seal.LP(about...))[len("sha256:"):], Pipeline: pipelineName, Item: item, AtMS: nowMS,
		Bytes: seal.LP([]byte(spareForm), []byte(m.Topic), deadletter.PackRecord(m.Key, m.Value, m.Headers))}
}

// message is what is sent when the topic is back. Codes: ERR_LEDGER_CORRUPT.
func (s *Spare) message() (m pipeline.Message, err error) {
	fields, perr := seal.ParseLP(s.Bytes)
	if perr != nil || len(fields) != 3 || string(fields[0]) != spareForm {
		return m, pipeline.Errorf(pipeline.CodeLedgerCorrupt, "fallback "+s.ID, "it is not a message of this version")
	}
	m = pipeline.Message{Topic: string(fields[1]), Partition: -1, From: -1}
	m.Key, m.Value, m.Headers, err = deadletter.UnpackRecord(fields[2])
	return m, err
}

// Fallback is where an engine sends letters while their topic takes none: the first store that takes them. It implements pipeline.Sink;
// what every store refuses comes back as ERR_FALLBACK_FAILED.
type Fallback struct {
	ctx      context.Context
	pipeline string
	stores   []FallbackStore
	clock    pipeline.Clock
	done     chan *pipeline.Sending

	mu     sync.Mutex
	queue  []*pipeline.Sending
	flying int
	active bool
	wg     sync.WaitGroup
}

var _ pipeline.Sink = (*Fallback)(nil)

const (
	mostSpared    = 256 // sendings in flight
	sparePatience = 10 * time.Second
)

// NewFallback makes the sink of a pipeline. It starts nothing; calls of stores end with ctx.
func NewFallback(ctx context.Context, pipelineName string, stores []FallbackStore, clock pipeline.Clock) *Fallback {
	return &Fallback{ctx: ctx, pipeline: pipelineName, stores: stores, clock: clock, done: make(chan *pipeline.Sending, mostSpared)}
}

// Send takes x, or nothing while too much is in flight. Codes: ERR_SINK_FULL.
func (f *Fallback) Send(x *pipeline.Sending) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.flying+len(f.done) >= mostSpared {
		return pipeline.ErrFull
	}
	f.flying++
	f.queue = append(f.queue, x)
	if !f.active {
		f.active = true
		f.wg.Go(f.work)
	}
	return nil
}

// Done returns each Sending once.
func (f *Fallback) Done() <-chan *pipeline.Sending { return f.done }

// Probe tells whether a store would take something now. Codes: what the last store answers.
func (f *Fallback) Probe(ctx context.Context, _ string) (err error) {
	for _, s := range f.stores {
		if err = s.Ready(ctx); err == nil {
			return nil
		}
	}
	return err
}

// Close waits for what is in flight, at most until ctx ends. Send must not be called any more.
func (f *Fallback) Close(ctx context.Context) error {
	idle := make(chan struct{})
	go func() {
		f.wg.Wait()
		close(idle)
	}()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return pipeline.Errorf(pipeline.CodeDrainTimeout, "fallback of "+f.pipeline, "letters were not stored: %w", ctx.Err())
	}
}

func (f *Fallback) work() {
	for {
		f.mu.Lock()
		if len(f.queue) == 0 {
			f.active, f.queue = false, nil
			f.mu.Unlock()
			return
		}
		x := f.queue[0]
		f.queue = f.queue[1:]
		f.mu.Unlock()
		f.store(x)
		f.mu.Lock()
		f.flying--
		f.done <- x // has room: Send counted it
		f.mu.Unlock()
	}
}

func (f *Fallback) store(x *pipeline.Sending) {
	x.Bad = x.Bad[:0]
	now := f.clock().UnixMilli()
	list := make([]Spare, len(x.Msgs))
	for i := range x.Msgs {
		list[i] = newSpare(f.pipeline, &x.Msgs[i], now)
	}
	var err error
	for _, s := range f.stores {
		ctx, cancel := context.WithTimeout(f.ctx, sparePatience)
		err = s.Put(ctx, list)
		cancel()
		if err == nil {
			return
		}
	}
	for i := range x.Msgs {
		x.Bad = append(x.Bad, pipeline.Bad{Msg: i, Failure: pipeline.Failure{Index: x.Msgs[i].From, Stage: "send", Code: pipeline.CodeFallbackFailed, Cause: err}})
	}
}

// LedgerFallback keeps letters in a ledger, which is opened when it is first needed: it may be away while a pipeline starts.
type LedgerFallback struct {
	open func(context.Context) (*ledger.DB, error)

	mu sync.Mutex
	db *ledger.DB
}

// NewLedgerFallback makes a store of the ledger that open opens. Close it.
func NewLedgerFallback(open func(context.Context) (*ledger.DB, error)) *LedgerFallback {
	return &LedgerFallback{open: open}
}

// Close closes the ledger, if it was opened.
func (l *LedgerFallback) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.db == nil {
		return nil
	}
	return l.db.Close()
}

func (l *LedgerFallback) opened(ctx context.Context) (*ledger.DB, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var err error
	if l.db == nil {
		l.db, err = l.open(ctx)
	}
	return l.db, err
}

func (l *LedgerFallback) write(ctx context.Context, f func(*ledger.Tx) error) error {
	db, err := l.opened(ctx)
	if err != nil {
		return err
	}
	return db.Write(ctx, f)
}

func (l *LedgerFallback) read(ctx context.Context, f func(*ledger.Tx) error) error {
	db, err := l.opened(ctx)
	if err != nil {
		return err
	}
	return db.Read(ctx, f)
}

// Put writes all in one transaction. Codes: ERR_LEDGER_*.
func (l *LedgerFallback) Put(ctx context.Context, list []Spare) error {
	return l.write(ctx, func(tx *ledger.Tx) error {
		for _, s := range list {
			if _, err := tx.Exec(`INSERT INTO fallback (id, pipeline, item, at_ms, message) VALUES (?, ?, ?, ?, ?)
				ON CONFLICT (id) DO UPDATE SET message = excluded.message, at_ms = excluded.at_ms`, s.ID, s.Pipeline, s.Item, s.AtMS, s.Bytes); err != nil {
				return err
			}
		}
		return nil
	})
}

// List returns messages by their id. Codes: ERR_LEDGER_*.
func (l *LedgerFallback) List(ctx context.Context, pipelineName string, after *Spare, limit int) (list []Spare, err error) {
	last := ""
	if after != nil {
		last = after.ID
	}
	err = l.read(ctx, func(tx *ledger.Tx) error {
		list = nil
		size := 0
		err := tx.Each("SELECT id, item, at_ms, message FROM fallback WHERE pipeline = ? AND id > ? ORDER BY id LIMIT ?", []any{pipelineName, last, limit}, func(scan func(...any) error) error {
			s := Spare{Pipeline: pipelineName}
			if err := scan(&s.ID, &s.Item, &s.AtMS, &s.Bytes); err != nil {
				return err
			}
			list = append(list, s)
			if size += len(s.Bytes); size >= listBytes {
				return errFound
			}
			return nil
		})
		if errors.Is(err, errFound) {
			return nil
		}
		return err
	})
	return list, err
}

// Drop deletes messages that have not been written again since. Codes: ERR_LEDGER_*.
func (l *LedgerFallback) Drop(ctx context.Context, list []Spare) error {
	return l.write(ctx, func(tx *ledger.Tx) error {
		for _, s := range list {
			if _, err := tx.Exec("DELETE FROM fallback WHERE id = ? AND at_ms = ?", s.ID, s.AtMS); err != nil {
				return err
			}
		}
		return nil
	})
}

// Erase deletes what there is of an item. Codes: ERR_LEDGER_*.
func (l *LedgerFallback) Erase(ctx context.Context, _ string, item pipeline.ID) error {
	return l.write(ctx, func(tx *ledger.Tx) error {
		_, err := tx.Exec("DELETE FROM fallback WHERE item = ?", item)
		return err
	})
}

// Ready asks the ledger for nothing. Codes: ERR_LEDGER_*.
func (l *LedgerFallback) Ready(ctx context.Context) error {
	return l.read(ctx, func(tx *ledger.Tx) error {
		var one int64
		_, err := tx.Row("SELECT 1", nil, &one)
		return err
	})
}
