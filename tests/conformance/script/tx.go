package script

import (
	"context"
	"time"

	"reprieve.dev/pipeline"
)

// Tx is a scripted transactional producer. Readers see nothing of an open or aborted transaction.
type Tx struct {
	*Sink
	id      string
	now     *transaction
	touched map[pipeline.TP]bool
	fenced  bool
	fail    []error
	slow    time.Duration
	commits int
	aborts  int
}

var _ pipeline.Tx = (*Tx)(nil)

// Tx opens a transactional producer and fences whoever had the id.
func (c *Cluster) Tx(id string, o SinkOptions) *Tx {
	t := &Tx{Sink: c.Sink(o), id: id, touched: map[pipeline.TP]bool{}}
	t.Sink.tx = t
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.writers[id]; old != nil {
		old.end(true)
		old.fenced = true
		old.err = pipeline.Errorf(pipeline.CodeTxFenced, id, "another producer has the transactional id")
	}
	c.writers[id] = t
	return t
}

// end closes the open transaction. mu is held.
func (t *Tx) end(aborted bool) {
	if t.now == nil {
		return
	}
	t.now.open, t.now.aborted = false, aborted
	for tp := range t.touched {
		if to := t.c.topics[tp.Topic]; to != nil {
			to.parts[tp.Partition] = append(to.parts[tp.Partition], entry{marker: true})
		}
	}
	clear(t.touched)
	t.now = nil
	t.c.wake()
}

func (t *Tx) check() error {
	if t.fenced {
		return pipeline.Errorf(pipeline.CodeTxFenced, t.id, "another producer has the transactional id")
	}
	return nil
}

// Begin starts a transaction.
func (t *Tx) Begin() error {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	if err := t.check(); err != nil {
		return err
	}
	if t.now != nil {
		return pipeline.Errorf(pipeline.CodeBrokerFatal, t.id, "a transaction is open already")
	}
	t.now = &transaction{open: true}
	return nil
}

// Commit ends the transaction with offsets. Codes: ERR_TX_FENCED, and what FailCommit set.
func (t *Tx) Commit(_ context.Context, cps map[pipeline.TP]pipeline.Checkpoint, meta pipeline.GroupMeta) error {
	t.c.mu.Lock()
	if slow := t.slow; slow > 0 {
		t.c.mu.Unlock()
		time.Sleep(slow)
		t.c.mu.Lock()
	}
	defer t.c.mu.Unlock()
	if err := t.check(); err != nil {
		return err
	}
	if t.now == nil {
		return pipeline.Errorf(pipeline.CodeBrokerFatal, t.id, "no transaction is open")
	}
	if len(t.fail) > 0 {
		err := t.fail[0]
		t.fail = t.fail[1:]
		return err
	}
	if len(cps) > 0 {
		s, ok := meta.(*Source)
		if !ok {
			return pipeline.Errorf(pipeline.CodeBrokerFatal, t.id, "offsets need the group of a script source")
		}
		for tp, cp := range cps {
			s.g.committed[tp] = committed{next: cp.Next, metadata: cp.Metadata()}
		}
	}
	t.commits++
	t.release(len(t.held))
	t.end(false)
	return nil
}

// Abort undoes the transaction; what is held comes back.
func (t *Tx) Abort(context.Context) error {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	if err := t.check(); err != nil {
		return err
	}
	t.aborts++
	t.release(len(t.held))
	t.end(true)
	return nil
}

// FailCommit makes a coming Commit return err; the transaction stays open.
func (t *Tx) FailCommit(err error) {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	t.fail = append(t.fail, err)
}

// SlowCommit makes each Commit take d, as a broker may.
func (t *Tx) SlowCommit(d time.Duration) {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	t.slow = d
}

// Counts is how many transactions were committed and aborted.
func (t *Tx) Counts() (commits, aborts int) {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	return t.commits, t.aborts
}
