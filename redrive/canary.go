package redrive

import "slices"

// traits are what a canary has to cover.
type traits struct {
	partition   int32
	fingerprint string
}

// canarySet chooses which items go first: the fewest that a greedy pass finds so that each partition and each fingerprint is
// covered, and never an item before an earlier one of its key (order). It is deterministic: the same lines give the same
// set. It returns indexes in sending order; at least one, at most limit (0: no limit beyond the cover).
func canarySet(lines []Line, of []traits, limit int) []int {
	if len(lines) == 0 {
		return nil
	}
	before := make([]int, len(lines)) // index of the earlier item of the same key, or -1
	last := map[string]int{}
	for i := range lines {
		before[i] = -1
		if lines[i].Order != "" {
			if j, ok := last[lines[i].Order]; ok {
				before[i] = j
			}
			last[lines[i].Order] = i
		}
	}
	parts, prints := map[int32]bool{}, map[string]bool{}
	for _, t := range of {
		parts[t.partition], prints[t.fingerprint] = true, true
	}
	taken := map[int]bool{}
	cover := func(i int) {
		delete(parts, of[i].partition)
		delete(prints, of[i].fingerprint)
		taken[i] = true
	}
	// First items that cover two at once, then whatever is left: two passes keep the set small without a search.
	for _, need := range []int{2, 1} {
		for i := range lines {
			if len(parts)+len(prints) == 0 || limit > 0 && len(taken) >= limit {
				break
			}
			if taken[i] || before[i] >= 0 && !taken[before[i]] {
				continue
			}
			n := 0
			if parts[of[i].partition] {
				n++
			}
			if prints[of[i].fingerprint] {
				n++
			}
			if n >= need {
				cover(i)
			}
		}
	}
	if len(taken) == 0 {
		taken[0] = true
	}
	out := make([]int, 0, len(taken))
	for i := range taken {
		out = append(out, i)
	}
	slices.Sort(out)
	return out
}
