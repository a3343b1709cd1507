package custody

import (
	"context"
	"errors"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

// outbox sends what the ledger has for other topics (signed heads for the audit topic), in order, at least once: a row is
// marked only after its message was acknowledged. It never waits: the custodian's loop steps it.
type outbox struct {
	items *Items
	sink  pipeline.Sink // its own: nobody else reads Done
	busy  bool
	rows  []int64
}

const outboxBatch = 100

// step takes a completion, if there is one, and sends the next rows, if none is under way. Codes: ERR_LEDGER_*, ERR_SEND_*.
func (o *outbox) step(ctx context.Context) error {
	if o.sink == nil {
		return nil
	}
	select {
	case s := <-o.sink.Done():
		o.busy = false
		if err := o.mark(ctx, s); err != nil {
			return err
		}
	default:
	}
	if o.busy {
		return nil
	}
	return o.send(ctx)
}

// mark forgets the rows before the first refused message: order is kept.
func (o *outbox) mark(ctx context.Context, s *pipeline.Sending) error {
	n := len(o.rows)
	var refused error
	if len(s.Bad) > 0 {
		n = s.Bad[0].Msg
		f := s.Bad[0].Failure
		refused = pipeline.Errorf(f.Code, s.Msgs[n].Topic, "%s", f.Reason())
	}
	if n > 0 {
		if err := o.items.db.Write(ctx, func(tx *ledger.Tx) error {
			if _, err := tx.Exec("UPDATE outbox SET sent_ms = ? WHERE sent_ms = 0 AND seq <= ?", tx.NowMS(), o.rows[n-1]); err != nil {
				return err
			}
			_, err := tx.Exec("DELETE FROM outbox WHERE sent_ms > 0 AND sent_ms < ?", tx.NowMS()-dayMS) // a day of what was sent, for those who look
			return err
		}); err != nil {
			return err // sent again later
		}
	}
	return refused
}

func (o *outbox) send(ctx context.Context) error {
	s := &pipeline.Sending{}
	err := o.items.db.Read(ctx, func(tx *ledger.Tx) error {
		s.Msgs, o.rows = nil, nil
		return tx.Each("SELECT seq, topic, record_key, value, headers FROM outbox WHERE sent_ms = 0 ORDER BY seq LIMIT ?", []any{outboxBatch}, func(scan func(...any) error) error {
			m := pipeline.Message{Partition: -1, From: -1}
			var seq int64
			var headers []byte
			if err := scan(&seq, &m.Topic, &m.Key, &m.Value, &headers); err != nil {
				return err
			}
			var err error
			m.Headers, err = unpackHeaders(headers)
			s.Msgs, o.rows = append(s.Msgs, m), append(o.rows, seq)
			return err
		})
	})
	if err != nil || len(s.Msgs) == 0 {
		return err
	}
	err = o.sink.Send(s)
	if errors.Is(err, pipeline.ErrFull) {
		return nil
	}
	o.busy = err == nil
	return err
}

// Publish puts a message into the outbox of the ledger: it is sent once the transaction has committed, at least once.
func Publish(tx *ledger.Tx, topic, tenant string, key, value []byte, headers []pipeline.Header) error {
	seq, err := tx.Next("outbox", 1)
	if err != nil {
		return err
	}
	return tx.Insert("outbox", []string{"seq", "tenant", "topic", "record_key", "value", "headers", "at_ms", "sent_ms"},
		[][]any{{seq, tenant, topic, key, value, packHeaders(headers), tx.NowMS(), int64(0)}})
}
