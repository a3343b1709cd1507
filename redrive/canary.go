package redrive

import (
	"context"
	"slices"
)

// traits are what a canary has to cover.
type traits struct {
	partition   int32
	fingerprint string
}

// canaryChain is how many earlier items of one key a canary takes along to cover one more trait: an item never goes before an
// earlier one of its key, not even in a canary.
const canaryChain = 50

// canarySet chooses which items go first: few items that a greedy pass finds so that each partition and each fingerprint is
// covered, with every earlier item of their keys. It is deterministic: the same lines give the same set. It returns indexes in
// sending order; at least one if any is sent, at most limit (0: as many as it takes).
func canarySet(lines []Line, of []traits, limit int) []int {
	if len(lines) == 0 {
		return nil
	}
	c := canary{lines: lines, of: of, limit: limit, chains: map[string][]int{}, taken: map[string]int{}, parts: map[int32]bool{}, prints: map[string]bool{}}
	c.depth = make([]int, len(lines))
	first := -1
	for i := range lines {
		if lines[i].Newer != "" {
			continue // never sent
		}
		if first < 0 {
			first = i
		}
		if k := lines[i].Order; k != "" {
			c.depth[i] = len(c.chains[k])
			c.chains[k] = append(c.chains[k], i)
		}
		c.parts[of[i].partition], c.prints[of[i].fingerprint] = true, true
	}
	c.in = make([]bool, len(lines))
	// Items that cover two traits first, then what is left, then what costs a chain: the set stays small without a search.
	for i := range lines {
		if c.parts[of[i].partition] && c.prints[of[i].fingerprint] && c.fits(i, 1) {
			c.take(i)
		}
	}
	for i := range lines {
		if (c.parts[of[i].partition] || c.prints[of[i].fingerprint]) && c.fits(i, 1) {
			c.take(i)
		}
	}
	for len(c.parts)+len(c.prints) > 0 {
		best := -1
		for i := range lines {
			if !c.in[i] && (c.parts[of[i].partition] || c.prints[of[i].fingerprint]) && c.fits(i, canaryChain+1) && (best < 0 || c.cost(i) < c.cost(best)) {
				best = i
			}
		}
		if best < 0 || !c.take(best) {
			break
		}
	}
	if c.n == 0 && first >= 0 {
		c.in[first] = true
	}
	var out []int
	for i, in := range c.in {
		if in {
			out = append(out, i)
		}
	}
	slices.Sort(out)
	return out
}

type canary struct {
	lines  []Line
	of     []traits
	limit  int
	n      int
	in     []bool
	depth  []int            // earlier items of the same key
	chains map[string][]int // items of each key, in order
	taken  map[string]int   // how many of each chain are in: always its beginning
	parts  map[int32]bool   // not covered yet
	prints map[string]bool
}

// fits tells whether i can be sent and takes at most n items.
func (c *canary) fits(i, n int) bool { return c.lines[i].Newer == "" && c.cost(i) <= n }

// cost is how many items taking i takes.
func (c *canary) cost(i int) int {
	k := c.lines[i].Order
	if k == "" {
		return 1
	}
	return c.depth[i] - c.taken[k] + 1
}

// take puts i and every earlier item of its key into the set, if there is room.
func (c *canary) take(i int) bool {
	if c.in[i] || c.limit > 0 && c.n+c.cost(i) > c.limit {
		return false
	}
	chain := []int{i}
	if k := c.lines[i].Order; k != "" {
		chain = c.chains[k][c.taken[k] : c.depth[i]+1]
		c.taken[k] = c.depth[i] + 1
	}
	for _, j := range chain {
		c.in[j] = true
		c.n++
		delete(c.parts, c.of[j].partition)
		delete(c.prints, c.of[j].fingerprint)
	}
	return true
}

// canary sends a few first and waits for their evidence. Items that cannot be sent at all are no evidence of anything: others take
// their place, until the thresholds say stop.
func (e *executor) canary(ctx context.Context, states []string, of []traits) error {
	set := canarySet(e.lines, of, e.m.Canary.N)
	for len(set) > 0 {
		if err := e.sendAll(ctx, set, states); err != nil {
			return err
		}
		proven, err := e.awaitCanary(ctx, set)
		if err != nil || proven {
			return err
		}
		if err := e.askAhead(ctx, states); err != nil {
			return err
		}
		var at []int
		var lines []Line
		var rest []traits
		for i := range e.lines {
			if states[i] == itemPlanned && e.lines[i].Newer == "" {
				at, lines, rest = append(at, i), append(lines, e.lines[i]), append(rest, of[i])
			}
		}
		set = canarySet(lines, rest, e.m.Canary.N)
		for i := range set {
			set[i] = at[set[i]]
		}
	}
	return nil
}

// askAhead asks about the next items, a window at a time, until one is found that would be sent: when many effects are there already,
// a canary of each few would take for ever. What would be sent is asked about again then.
func (e *executor) askAhead(ctx context.Context, states []string) error {
	var at []int
	var lines []Line
	for i := range e.lines {
		if states[i] != itemPlanned || e.lines[i].Newer != "" {
			continue
		}
		if !e.lines[i].Ask {
			return nil
		}
		at, lines = append(at, i), append(lines, e.lines[i])
		if len(lines) < MaxWindow {
			continue
		}
		kept, err := e.askFirst(ctx, lines)
		if err != nil {
			return err
		}
		stays := map[int64]bool{}
		for _, l := range kept {
			stays[l.N] = true
		}
		for k, i := range at {
			if !stays[lines[k].N] {
				states[i] = itemReconciled // or left for a person: not ours any more
			}
		}
		if len(kept) > 0 {
			return nil
		}
		at, lines = at[:0], lines[:0]
	}
	return nil
}
