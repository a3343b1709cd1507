package ledger

import (
	"context"
	"fmt"
)

// WeekMS is a week in milliseconds: payloads are kept by the week in which the ledger took them.
const WeekMS = 7 * DayMS

// Week is the number of the week of a time.
func Week(ms int64) int64 { return Day(ms) / 7 }

// PayloadWeek makes sure that payloads of a week have a place of their own, which expiry can drop whole. Nothing to do on
// SQLite. It must be the first thing that a transaction does with payloads.
func (t *Tx) PayloadWeek(week int64) error {
	if t.db.dialect != Postgres {
		return nil
	}
	t.db.mu.Lock()
	known := t.db.weeks[week]
	t.db.mu.Unlock()
	if known {
		return nil
	}
	if err := t.Lock("payload weeks"); err != nil {
		return err
	}
	name := fmt.Sprintf("payloads_w%d", week)
	var n int64
	if _, err := t.Row("SELECT count(*) FROM pg_class WHERE relname = ? AND relnamespace = current_schema()::regnamespace", []any{name}, &n); err != nil {
		return err
	}
	if n == 0 {
		if _, err := t.Exec(fmt.Sprintf("CREATE TABLE %s PARTITION OF payloads FOR VALUES FROM (%d) TO (%d)", name, week, week+1)); err != nil {
			return err
		}
		return nil // remembered by the next caller, once this transaction is known to have held
	}
	t.db.mu.Lock()
	t.db.weeks[week] = true
	t.db.mu.Unlock()
	return nil
}

// DropEmptyWeeks drops the places of past weeks that hold no payload any more. Nothing to do on SQLite, which reuses the
// pages. It waits for nobody: a week that is in use is left for the next time. Codes: ERR_LEDGER_*.
func (db *DB) DropEmptyWeeks(ctx context.Context) error {
	if db.dialect != Postgres {
		return nil
	}
	return db.Write(ctx, func(t *Tx) error {
		if err := t.Lock("payload weeks"); err != nil {
			return err
		}
		var weeks []int64
		if err := t.Each("SELECT substring(relname from 11)::bigint FROM pg_class WHERE relname ~ '^payloads_w[0-9]+$' AND relkind = 'r' AND relnamespace = current_schema()::regnamespace ORDER BY 1", nil, func(scan func(...any) error) error {
			var w int64
			err := scan(&w)
			weeks = append(weeks, w)
			return err
		}); err != nil {
			return err
		}
		for _, w := range weeks {
			if w >= Week(t.nowMS)-1 {
				continue // a transaction that knows it may still write there
			}
			var n int64
			if _, err := t.Row(fmt.Sprintf("SELECT count(*) FROM (SELECT 1 FROM payloads_w%d LIMIT 1) x", w), nil, &n); err != nil {
				return err
			}
			if n == 0 {
				if _, err := t.Exec(fmt.Sprintf("DROP TABLE payloads_w%d", w)); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
