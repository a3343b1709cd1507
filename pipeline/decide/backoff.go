package decide

import (
	"math"
	"time"
)

// Backoff says how long to wait before retry n, from 0: the least of Initial * Factor^n and Max. The zero value waits as
// DefaultBackoff does; each field that is not set has its default.
type Backoff struct {
	Initial time.Duration
	Factor  float64
	Max     time.Duration
	Jitter  float64 // the part of a delay that may be taken away at random, 0 to 0.5
}

// The defaults: 100, 200, 400, 800, 1600 ms.
const (
	defaultInitial = 100 * time.Millisecond
	defaultFactor  = 2
	defaultMax     = time.Minute
	maxFactor      = 100
	maxJitter      = 0.5
)

// DefaultBackoff waits 100, 200, 400, 800 and 1600 ms, 3,100 ms in all.
func DefaultBackoff() Backoff {
	return Backoff{Initial: defaultInitial, Factor: defaultFactor, Max: defaultMax}
}

// normal fills in what is not set and brings the rest into its range.
func (b Backoff) normal() Backoff {
	if b.Initial <= 0 {
		b.Initial = defaultInitial
	}
	if b.Max <= 0 {
		b.Max = defaultMax
	}
	switch {
	case math.IsNaN(b.Factor) || b.Factor == 0:
		b.Factor = defaultFactor
	default:
		// whole thousandths: then the delays of two retries never differ by less than the error of the power
		b.Factor = math.Round(min(max(b.Factor, 1), maxFactor)*1000) / 1000
	}
	if math.IsNaN(b.Jitter) {
		b.Jitter = 0
	}
	b.Jitter = min(max(b.Jitter, 0), maxJitter)
	return b
}

// Delay is the wait before retry n. It is never 0 or less, never more than Max, and without jitter it never falls when n
// grows. rnd from 0 to 1 says how much of the jitter is taken: the result is between (1-Jitter) of the delay and the delay.
//
// The power is taken in floating point, where it overflows to infinity and is capped: a shift or a product of integers would
// come back negative, zero or small again (INV-BACKOFF).
func (b Backoff) Delay(n int, rnd float64) time.Duration {
	b = b.normal()
	d := b.Max
	if f := float64(b.Initial) * math.Pow(b.Factor, float64(max(n, 0))); f < float64(b.Max) {
		d = time.Duration(f)
	}
	if b.Jitter > 0 {
		if math.IsNaN(rnd) {
			rnd = 0
		}
		d -= time.Duration(float64(d) * b.Jitter * min(max(rnd, 0), 1))
	}
	return max(min(d, b.Max), 1)
}

// Sum is the most that the first n retries wait together; it stops at the largest duration.
func (b Backoff) Sum(n int) time.Duration {
	var sum time.Duration
	for i := range n {
		d := b.Delay(i, 0)
		if sum > math.MaxInt64-d {
			return math.MaxInt64
		}
		sum += d
	}
	return sum
}
