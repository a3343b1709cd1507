package call

import (
	"sync"
	"time"
)

// circuit stops calls to a service that fails: after limit failures in a row it is open for wait, then one call probes; each
// failed probe doubles the wait up to longest. It is safe for concurrent use.
type circuit struct {
	limit             int
	shortest, longest time.Duration

	mu      sync.Mutex
	row     int // failures in a row
	open    bool
	probing bool
	wait    time.Duration
	until   time.Time
}

// health is what one call said about the service.
type health uint8

const (
	unknown health = iota // the call was not made, or somebody else ended it
	good
	bad
)

// enter asks whether a call may be made now; if not, after tells when to ask again.
func (c *circuit) enter(now time.Time) (probe bool, after time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.open:
		return false, 0, true
	case now.Before(c.until):
		return false, c.until.Sub(now), false
	case c.probing:
		return false, c.shortest, false
	}
	c.probing = true
	return true, 0, true
}

// leave reports how a call that entered ended.
func (c *circuit) leave(now time.Time, probe bool, h health) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if probe {
		c.probing = false
	}
	switch {
	case h == good:
		c.row, c.open, c.wait = 0, false, 0
	case h == bad && probe:
		c.wait = min(2*c.wait, c.longest)
		c.until = now.Add(c.wait)
	case h == bad && !c.open:
		if c.row++; c.row >= c.limit {
			c.open, c.wait = true, c.shortest
			c.until = now.Add(c.wait)
		}
	}
}

func (c *circuit) healthy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.open
}
