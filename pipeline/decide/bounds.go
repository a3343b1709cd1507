package decide

import "time"

// MaxAttempts is how often a record is retried at most, whatever anybody configures: delivered once, then five retries.
const MaxAttempts = 5

// Bounds are the platform's limits. They clamp every policy: a pipeline can narrow them, never widen (INV-BOUNDS). A field
// that is 0 has its default.
type Bounds struct {
	Attempts   uint8         // retries of a record; at most and by default MaxAttempts
	Age        time.Duration // since the record first stood in the source; no retry is planned beyond it. Default 7 days
	Cumulative time.Duration // all waits of a record together, Retry-After included. Default 1 hour
	Delay      time.Duration // one wait without Retry-After. Default 1 minute
	Unknown    UnknownBudget
}

// UnknownBudget is how many of the last Window outcomes may be unknown failures (Budget). Window 0: no budget.
type UnknownBudget struct{ Window, Tolerated int }

// Clamp brings the budget of a pipeline within the platform's: it stops whenever that would. So it looks at least as far back and
// tolerates no more.
func (b UnknownBudget) Clamp(p UnknownBudget) UnknownBudget {
	switch {
	case b.Window == 0:
		return p
	case p.Window == 0:
		return b
	}
	return UnknownBudget{Window: max(b.Window, p.Window), Tolerated: min(b.Tolerated, p.Tolerated)}
}

const (
	defaultAge        = 7 * 24 * time.Hour
	defaultCumulative = time.Hour
)

// DefaultBounds are the bounds of a platform that says nothing.
func DefaultBounds() Bounds { return Bounds{}.normal() }

func (b Bounds) normal() Bounds {
	if b.Attempts == 0 || b.Attempts > MaxAttempts {
		b.Attempts = MaxAttempts
	}
	if b.Age <= 0 {
		b.Age = defaultAge
	}
	if b.Cumulative <= 0 {
		b.Cumulative = defaultCumulative
	}
	if b.Delay <= 0 {
		b.Delay = defaultMax
	}
	return b
}

// Clamp brings a number of retries and their backoff within the bounds: fewer retries when the waits would last too long
// together.
func (b Bounds) Clamp(attempts uint8, back Backoff) (uint8, Backoff) {
	b, back = b.normal(), back.normal()
	back.Max = min(back.Max, b.Delay)
	attempts = min(attempts, b.Attempts)
	for attempts > 0 && back.Sum(int(attempts)) > b.Cumulative {
		attempts--
	}
	return attempts, back
}

// retryAfter is how much longer than its backoff one retry may wait because the dependency asks for it: what the waits leave
// of Cumulative, shared among all retries. So no answer, repeated or not, makes a record wait longer than Cumulative in all.
func (b Bounds) retryAfter(attempts uint8, back Backoff) time.Duration {
	if attempts == 0 {
		return 0
	}
	return (b.Cumulative - back.Sum(int(attempts))) / time.Duration(attempts)
}
