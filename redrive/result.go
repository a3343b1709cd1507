package redrive

import (
	"context"
	"maps"
	"slices"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

// record writes the result of a window: positions, failures, and the end of the intent unless some items are in doubt.
func (e *executor) record(ctx context.Context, f *flight, sent []custody.SentAt, state string) error {
	return e.s.db.Write(ctx, func(tx *ledger.Tx) error {
		if err := e.mine(tx); err != nil {
			return err
		}
		if err := e.fail(tx, f.failed); err != nil {
			return err
		}
		if err := e.s.items.Sent(tx, e.digest, e.m.Tenant, sent); err != nil {
			return err
		}
		if len(sent)+len(f.failed) < len(f.items) {
			return nil // INV-UNCERTAIN: the intent stays open for those in doubt
		}
		return e.s.items.CloseIntent(tx, f.intent.ID, state)
	})
}

// fail notes the items of a window that could not be sent, those of one code together.
func (e *executor) fail(tx *ledger.Tx, failed []failedItem) error {
	ids := map[pipeline.Code][]pipeline.ID{}
	why := make(map[pipeline.ID]string, len(failed))
	for _, x := range failed {
		ids[x.code] = append(ids[x.code], x.id)
		why[x.id] = x.why
	}
	for _, code := range slices.Sorted(maps.Keys(ids)) {
		if _, err := e.s.items.FailRedrive(tx, e.who, e.digest, ids[code], code, func(id pipeline.ID) map[string]string {
			return map[string]string{"why": why[id], "run": e.run}
		}); err != nil {
			return err
		}
		in, arg := tx.In("item", idTexts(ids[code]))
		if _, err := tx.Exec("UPDATE manifest_items SET attempts = attempts + 1 WHERE manifest = ? AND tenant = ? AND "+in, e.digest, e.m.Tenant, arg); err != nil {
			return err
		}
	}
	return nil
}

// mine refuses to write results when somebody else took the lease since: they decide about the window then. A lease that only ran
// out, because a send took long, is still ours.
func (e *executor) mine(tx *ledger.Tx) error {
	var holder string
	var epoch int64
	if _, err := tx.Row("SELECT holder, epoch FROM leases WHERE name = ?"+tx.ForUpdate(), []any{e.lease.Name}, &holder, &epoch); err != nil {
		return err
	}
	if holder != e.lease.Holder || epoch != e.lease.Epoch {
		return pipeline.Errorf(pipeline.CodeRedriveState, string(e.digest), "the lease went to %s", holder)
	}
	return nil
}

// unsent withdraws a window of which nothing was taken, and stops the run with cause.
func (e *executor) unsent(ctx context.Context, f *flight, cause error) error {
	if err := e.withdraw(ctx, f, "the sink did not take it"); err != nil {
		return err
	}
	return cause
}

// withdraw brings the items of a window that provably did not leave back to where they came from: a later run may send them.
func (e *executor) withdraw(ctx context.Context, f *flight, why string) error {
	failed := map[pipeline.ID]bool{}
	for _, x := range f.failed {
		failed[x.id] = true
	}
	ids := make([]pipeline.ID, 0, len(f.items))
	for _, it := range f.items {
		if !failed[it.ID] {
			ids = append(ids, it.ID)
		}
	}
	if err := e.s.db.Write(ctx, func(tx *ledger.Tx) error {
		if err := e.mine(tx); err != nil {
			return err
		}
		if _, _, err := e.s.items.Withdraw(tx, e.who, e.digest, ids, why); err != nil {
			return err
		}
		if err := untake(tx, len(ids), f.rows...); err != nil {
			return err
		}
		in, arg := tx.In("item", idTexts(ids))
		if _, err := tx.Exec("UPDATE manifest_items SET state = ? WHERE manifest = ? AND tenant = ? AND "+in, itemPlanned, e.digest, e.m.Tenant, arg); err != nil {
			return err
		}
		if len(f.failed) > 0 {
			return nil // record closes the intent
		}
		return e.s.items.CloseIntent(tx, f.intent.ID, "withdrawn")
	}); err != nil {
		return err
	}
	if len(f.failed) > 0 {
		f.items = f.items[:0]
		return e.record(ctx, f, nil, "withdrawn")
	}
	return nil
}

func idTexts(ids []pipeline.ID) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = string(id)
	}
	return out
}

// thresholds stops the run before the next window when a rule of the manifest is crossed.
func (e *executor) thresholds(ctx context.Context) error {
	if e.stop.Latency != "" {
		if most, err := time.ParseDuration(e.stop.Latency); err == nil && e.slow > most {
			return e.crossed("an acknowledgement took %s, more than %s", e.slow, most)
		}
	}
	var failed, twice int64
	watch := e.stop.Duplicates >= 0 && e.s.clock().Sub(e.watched) >= time.Second
	if err := e.s.db.Read(ctx, func(tx *ledger.Tx) (err error) {
		if _, err = tx.Row("SELECT count(*) FROM manifest_items WHERE manifest = ? AND tenant = ? AND watched <> 0 AND watched = ?", []any{e.digest, e.m.Tenant, custody.WatchedFailed}, &failed); err != nil || !watch {
			return err
		}
		_, err = tx.Row("SELECT count(*) FROM outcomes WHERE redrive = ? AND tenant = ? AND result = 'already_applied'", []any{e.digest, e.m.Tenant}, &twice)
		return err
	}); err != nil {
		return err
	}
	if watch {
		e.watched = e.s.clock()
	}
	if e.stop.Failures >= 0 && failed > e.stop.Failures {
		return e.crossed("%d items failed, more than the tolerated %d", failed, e.stop.Failures)
	}
	if e.stop.Duplicates >= 0 && twice > e.stop.Duplicates {
		return e.crossed("%d effects existed already, more than the tolerated %d", twice, e.stop.Duplicates)
	}
	return nil
}

func (e *executor) crossed(format string, args ...any) error {
	return &stopped{StateStopped, pipeline.Errorf(pipeline.CodeRedriveThreshold, string(e.digest), format, args...)}
}
