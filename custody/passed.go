package custody

import (
	"context"
	"errors"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

// Passed tells whether the ledger has everything below these offsets of a cluster's dead-letter, settlement and outcome topics.
// log, if there is one, is asked whether what is missing holds any record at all: the marks of transactions are never read.
// It works in any process that has the ledger. Codes: ERR_LEDGER_*, ERR_BROKER_*.
func (c *Items) Passed(ctx context.Context, cluster string, log pipeline.Log, ends map[pipeline.TP]int64) (bool, error) {
	var next map[pipeline.TP]int64
	if err := c.db.Read(ctx, func(tx *ledger.Tx) (err error) {
		next, err = tx.Intakes(cluster)
		return err
	}); err != nil {
		return false, err
	}
	for tp, end := range ends {
		from := max(next[tp], 0)
		if from >= end {
			continue
		}
		if log == nil {
			return false, nil
		}
		empty, err := holdsNothing(ctx, log, tp, from, end)
		if err != nil || !empty {
			return false, err
		}
	}
	return true, nil
}

func holdsNothing(ctx context.Context, log pipeline.Log, tp pipeline.TP, from, end int64) (bool, error) {
	empty := true
	all := func(yield func(int64) bool) {
		for off := from; off < end; off++ {
			if !yield(off) {
				return
			}
		}
	}
	err := log.Read(ctx, tp, all, func(b *pipeline.Batch) error {
		defer b.Release()
		if len(b.Recs) > 0 {
			empty = false
			return errFound
		}
		return nil
	})
	if errors.Is(err, errFound) {
		err = nil
	}
	return empty, err
}
