package redrive

import (
	"context"
	"strconv"
	"strings"
	"time"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

// Rate is attempts a second.
type Rate int64

// ParseRate reads "50/s", also "600/m" when it is whole a second.
func ParseRate(s string) (Rate, error) {
	n, unit, ok := strings.Cut(s, "/")
	v, err := strconv.ParseInt(n, 10, 32)
	if ok && unit == "m" && err == nil && v%60 == 0 {
		v /= 60
		unit = "s"
	}
	if !ok || err != nil || unit != "s" || v <= 0 {
		return 0, pipeline.Errorf(pipeline.CodeInputInvalid, s, "a rate is a whole number of attempts a second, above 0").With("Write it with its time, as in 50/s or 600/m.")
	}
	return Rate(v), nil
}

// String is "50/s".
func (r Rate) String() string { return strconv.FormatInt(int64(r), 10) + "/s" }

// spacing is the time between two attempts: 1.02 over the rate, so that no half-open second holds more than the rate, not even
// the first one or one that starts at an attempt.
func (r Rate) spacing() time.Duration {
	return time.Duration(1_020_000_000 / int64(r))
}

// window is how many items may be in flight: one at 50/s or less, else what 1/64 s holds. A window leaves at once when its last
// slot has come, so the bound of spacing holds for bursts too: k + rate/1.02 <= rate for k <= rate/64.
func (r Rate) window(most int) int {
	n := int(r / 64)
	if r <= 50 {
		n = 1
	}
	return max(1, min(n, most, MaxWindow))
}

// MaxWindow is the most items of one intent.
const MaxWindow = 500

// paceRow is one row of the ledger that all executors take their slots from.
type paceRow struct {
	name string
	rate Rate
}

// take reserves n attempts of every row in one transaction and says when the last of them may be made. Attempts count when
// they are taken, whatever becomes of them (INV-PACE). A row starts at the present: there is no credit for idle time.
func take(tx *ledger.Tx, now time.Time, n int, rows ...paceRow) (time.Time, error) {
	starts, err := lockPace(tx, rows)
	if err != nil {
		return time.Time{}, err
	}
	at := now.UnixMicro()
	last := at
	for _, r := range rows {
		first := max(at, starts[r.name])
		last = max(last, first+int64(n-1)*r.rate.spacing().Microseconds())
	}
	var list strings.Builder
	var args []any
	for i, r := range rows {
		if i > 0 {
			list.WriteString(", ")
		}
		list.WriteString("(?, ?, ?, ?, 0, '', 1)")
		// The next window's first slot follows the last of this one: the rows stay in step with what really leaves.
		args = append(args, r.name, int64(r.rate), last+r.rate.spacing().Microseconds(), int64(n))
	}
	_, err = tx.Exec("INSERT INTO pace (name, rate, next_us, taken, until_ms, detail, rev) VALUES "+list.String()+
		" ON CONFLICT (name) DO UPDATE SET next_us = excluded.next_us, taken = pace.taken + excluded.taken, rate = excluded.rate, rev = pace.rev + 1", args...)
	return time.UnixMicro(last), err
}

// lockPace locks the rows, in the order of their names, and says when the next attempt of each may be made. Rows that are not there
// are made first: two executors must not both find nothing to lock.
func lockPace(tx *ledger.Tx, rows []paceRow) (map[string]int64, error) {
	names := make([]string, len(rows))
	for i, r := range rows {
		names[i] = r.name
	}
	in, arg := tx.In("name", names)
	for made := false; ; made = true {
		starts := make(map[string]int64, len(rows))
		err := tx.Each("SELECT name, next_us FROM pace WHERE "+in+" ORDER BY name"+tx.ForUpdate(), []any{arg}, func(scan func(...any) error) error {
			var name string
			var next int64
			err := scan(&name, &next)
			starts[name] = next
			return err
		})
		if err != nil || len(starts) == len(rows) || made {
			return starts, err
		}
		for _, r := range rows {
			if _, err := tx.Exec("INSERT INTO pace (name, rate, next_us, taken, until_ms, detail, rev) VALUES (?, ?, 0, 0, 0, '', 1) ON CONFLICT (name) DO NOTHING", r.name, int64(r.rate)); err != nil {
				return nil, err
			}
		}
	}
}

// untake gives back the count of attempts that were not made. The time of their slots is lost.
func untake(tx *ledger.Tx, n int, rows ...paceRow) error {
	names := make([]string, len(rows))
	for i, r := range rows {
		names[i] = r.name
	}
	in, arg := tx.In("name", names)
	_, err := tx.Exec("UPDATE pace SET taken = taken - ?, rev = rev + 1 WHERE "+in, int64(n), arg)
	return err
}

// waitUntil waits with the injected wait, so that tests own time.
func (s *Service) waitUntil(ctx context.Context, t time.Time) error {
	if d := t.Sub(s.clock()); d > 0 {
		return s.wait(ctx, d)
	}
	return ctx.Err()
}
