package decide

import "reprieve.dev/pipeline"

// Budget watches the last Window outcomes and says stop when more of them failed than are tolerated: 0 tolerated stops at
// the first failure, window 0 never stops. The window slides. It belongs to one goroutine; memory is a bit an outcome.
type Budget struct {
	tolerated int
	size      int
	ring      []uint64
	at        int
	failed    int
}

// NewBudget makes a budget: tolerated counts what may fail, not what stops.
func NewBudget(window, tolerated int) *Budget {
	window = max(window, 0)
	return &Budget{tolerated: max(tolerated, 0), size: window, ring: make([]uint64, (window+63)/64)}
}

// Observe adds one outcome and tells whether the budget is exceeded now.
func (b *Budget) Observe(failed bool) (stop bool) {
	if b.size == 0 {
		return false
	}
	word, bit := b.at/64, uint64(1)<<(b.at%64)
	if b.ring[word]&bit != 0 {
		b.failed--
	}
	b.ring[word] &^= bit
	if failed {
		b.ring[word] |= bit
		b.failed++
	}
	if b.at++; b.at == b.size {
		b.at = 0
	}
	return b.failed > b.tolerated
}

// Spare adds n outcomes that did not fail.
func (b *Budget) Spare(n int) {
	switch {
	case b.failed == 0 && b.size > 0: // nothing to forget: only the place moves
		b.at = (b.at + n) % b.size
	case n >= b.size:
		b.Reset()
	default:
		for range n {
			b.Observe(false)
		}
	}
}

// Failed is how many of the outcomes in the window failed.
func (b *Budget) Failed() int { return b.failed }

// Reset forgets all outcomes: after a person resumed the pipeline.
func (b *Budget) Reset() {
	clear(b.ring)
	b.at, b.failed = 0, 0
}

// Unknown tells whether a failure counts against the budget: nobody has classified it, or it is a defect of the consumer.
func Unknown(c pipeline.Code) bool {
	return !pipeline.Known(c) || pipeline.Lookup(c).Class == pipeline.ConsumerDefect
}
