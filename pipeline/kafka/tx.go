package kafka

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"time"

	"reprieve.dev/pipeline"
)

// TxConfig says where to write, and under which transactional id: stable for a worker and pipeline, so that a successor
// fences its predecessor.
type TxConfig struct {
	Cluster         Cluster
	ClientID        string
	TransactionalID string
	MaxInFlight     int           // messages; 0 is 100,000
	BatchBytes      int           // as in SinkConfig; here a larger batch dooms its transaction each time it is tried
	Timeout         time.Duration // how long the broker keeps a transaction open; 0 is 60 s
	Log             *slog.Logger
}

// Tx implements pipeline.Tx. Between Begin and Commit it is a Sink; outside of it a Send is refused by each message. A
// refused message dooms its transaction: Commit then answers ERR_TX_ABORTED, and the owner calls Abort and reads again. Bad
// holds only messages that are at fault themselves, not their neighbours in a refused produce batch, which go with the
// transaction anyway. After a refused message the library loses count of its sequence numbers: the transaction that follows
// may be aborted too (ERR_TX_ABORTED, nothing Bad), the one after it goes.
type Tx struct {
	*Sink
	id string
}

var _ pipeline.Tx = (*Tx)(nil)

const defaultTxInFlight = 100_000

// NewTx opens the producer, and fences whoever had the same id. It waits for the brokers as long as ctx lasts. Codes: ERR_BROKER_CONFIG,
// ERR_BROKER_UNREACHABLE, ERR_BROKER_AUTH, ERR_BROKER_FATAL.
func NewTx(ctx context.Context, conf TxConfig) (*Tx, error) {
	if conf.MaxInFlight <= 0 {
		conf.MaxInFlight = defaultTxInFlight
	}
	if conf.Timeout <= 0 {
		conf.Timeout = time.Minute
	}
	must := map[string]string{
		"transactional.id":       conf.TransactionalID,
		"transaction.timeout.ms": strconv.Itoa(int(conf.Timeout / time.Millisecond)),
	}
	if conf.Cluster.Properties["message.timeout.ms"] == "" && conf.Cluster.Properties["delivery.timeout.ms"] == "" {
		// librdkafka refuses a message that may outlive its transaction
		must["message.timeout.ms"] = strconv.Itoa(int(min(conf.Timeout, 30*time.Second) / time.Millisecond))
	}
	s, err := newSink(SinkConfig{Cluster: conf.Cluster, ClientID: conf.ClientID, MaxInFlight: conf.MaxInFlight,
		BatchBytes: conf.BatchBytes, Log: conf.Log}, must)
	if err != nil {
		return nil, err
	}
	s.inTx = true
	go s.takeReports()
	t := &Tx{Sink: s, id: conf.TransactionalID}
	if err := t.retry(ctx, func() error { return t.init(ctx) }); err != nil {
		err := t.txError(err, "open the transactional id")
		_ = s.Close(ended{ctx})
		return nil, err
	}
	return t, nil
}

// init asks for the transactional id for a while: brokers that turn us away are known in between.
func (t *Tx) init(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	err := t.p.tx(ctx, txInit)
	t.hear()
	return err
}

// ended is a context that waits for nothing.
type ended struct{ context.Context }

func (ended) Done() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

func (ended) Err() error { return context.Canceled }

// Begin starts a transaction. Codes: ERR_TX_FENCED, ERR_BROKER_FATAL.
func (t *Tx) Begin() error {
	if err := t.use(func() error { return t.p.tx(bounded{}, txBegin) }); err != nil {
		return t.txError(err, "begin")
	}
	return nil
}

// Commit ends the transaction with the offsets of whole batches. When it returns nil, all of it holds. After
// ERR_TX_ABORTED the owner must Abort; after ERR_TX_FENCED the Tx is at its end. ERR_BROKER_UNREACHABLE when ctx ended
// first: Commit may be called again with the same arguments.
func (t *Tx) Commit(ctx context.Context, offsets map[pipeline.TP]pipeline.Checkpoint, group pipeline.GroupMeta) error {
	if len(offsets) > 0 {
		member, ok := group.(membership)
		if !ok {
			return pipeline.Errorf(pipeline.CodeBrokerFatal, t.id, "offsets need the group of a kafka source, not %T", group)
		}
		list := make([]placed, 0, len(offsets))
		for tp, cp := range offsets {
			list = append(list, placed{tp: tp, offset: cp.Next, meta: cp.Metadata()})
		}
		if err := t.retry(ctx, func() error { return t.p.txOffsets(ctx, list, member) }); err != nil {
			return t.txError(err, "send offsets")
		}
	}
	if err := t.step(ctx, txCommit); err != nil {
		return t.txError(err, "commit")
	}
	return nil
}

// Abort undoes the transaction. What was sent and not answered yet comes back over Done, with no Bad for what was taken
// back. Codes: ERR_TX_FENCED,
// ERR_BROKER_UNREACHABLE.
func (t *Tx) Abort(ctx context.Context) error {
	if err := t.step(ctx, txAbort); err != nil {
		return t.txError(err, "abort")
	}
	// The purge that was begun when the first message was refused runs in the library's threads: one that waits for them comes
	// behind it, else it could take messages of the next transaction. And all reports of this one are heard before the next
	// begins, else one of them would doom it.
	return t.use(func() error {
		if t.doomed.Load() {
			t.p.purge(true)
		}
		t.p.flush(time.Second)
		t.hear()
		t.doomed.Store(false)
		return nil
	})
}

// use makes one call of the library, unless the Tx is closed. A call that waits for the brokers takes reports meanwhile.
func (t *Tx) use(call func() error) error {
	t.life.RLock()
	defer t.life.RUnlock()
	t.mu.Lock()
	closed := t.closed
	t.mu.Unlock()
	if closed {
		return pipeline.Errorf(pipeline.CodeBrokerFatal, t.id+" on "+t.place, "the transactional producer is closed")
	}
	return call()
}

// step is a call that ends or opens something.
func (t *Tx) step(ctx context.Context, what rune) error {
	return t.retry(ctx, func() error {
		err := t.p.tx(ctx, what)
		t.hear()
		return err
	})
}

// retry repeats what the library says may be repeated, until the sink is at its end; each call waits by itself.
func (t *Tx) retry(ctx context.Context, call func() error) error {
	for {
		err := t.use(call)
		if err == nil {
			return nil
		}
		if why := t.fatal.Load(); why != nil && why.Code == pipeline.CodeBrokerAuth {
			return why
		}
		if e, ok := errors.AsType[clientError](err); !ok || !e.IsRetriable() || ctx.Err() != nil {
			return err
		}
	}
}

// failed sorts an error of a transaction.
func (t *Tx) txError(err error, doing string) error {
	place := t.id + " on " + t.place
	e, ok := errors.AsType[clientError](err)
	if !ok {
		return failed(err, place, doing)
	}
	out := &pipeline.Error{Code: codeOf(e), Place: place, Text: doing + ": " + e.Error(), Cause: e}
	switch {
	case e.IsFatal():
		if out.Code != pipeline.CodeTxFenced && out.Code != pipeline.CodeBrokerAuth {
			out.Code = pipeline.CodeBrokerFatal
		}
		t.fatal.CompareAndSwap(nil, out)
	case e.TxnRequiresAbort():
		out.Code = pipeline.CodeTxAborted
	}
	return out
}
