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
		return 0, pipeline.Errorf(pipeline.CodeRedriveRate, s, "a rate is a whole number of attempts a second").With("Write it with its time, as in 50/s.")
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
	at := now.UnixMicro()
	starts := make([]int64, len(rows))
	for i, r := range rows {
		if _, err := tx.Exec("INSERT INTO pace (name, rate, next_us, taken, until_ms, detail, rev) VALUES (?, ?, 0, 0, 0, '', 1) ON CONFLICT (name) DO NOTHING", r.name, int64(r.rate)); err != nil {
			return time.Time{}, err
		}
		if _, err := tx.Row("SELECT next_us FROM pace WHERE name = ?"+tx.ForUpdate(), []any{r.name}, &starts[i]); err != nil {
			return time.Time{}, err
		}
	}
	last := at
	for i, r := range rows {
		step := r.rate.spacing().Microseconds()
		first := max(at, starts[i])
		last = max(last, first+int64(n-1)*step)
	}
	for _, r := range rows {
		// The next window's first slot follows the last of this one: the rows stay in step with what really leaves.
		if _, err := tx.Exec("UPDATE pace SET next_us = ?, taken = taken + ?, rate = ?, rev = rev + 1 WHERE name = ?", last+r.rate.spacing().Microseconds(), int64(n), int64(r.rate), r.name); err != nil {
			return time.Time{}, err
		}
	}
	return time.UnixMicro(last), nil
}

// untake gives back the count of attempts that were not made. The time of their slots is lost.
func untake(tx *ledger.Tx, n int, rows ...paceRow) error {
	for _, r := range rows {
		if _, err := tx.Exec("UPDATE pace SET taken = taken - ?, rev = rev + 1 WHERE name = ?", int64(n), r.name); err != nil {
			return err
		}
	}
	return nil
}

// waitUntil waits with the injected wait, so that tests own time.
func (s *Service) waitUntil(ctx context.Context, t time.Time) error {
	if d := t.Sub(s.clock()); d > 0 {
		return s.wait(ctx, d)
	}
	return ctx.Err()
}
