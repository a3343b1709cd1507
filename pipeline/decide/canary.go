package decide

import "reprieve.dev/pipeline"

// Set is the policy versions that are active at once: one, or one and a canary for a share of the partitions. It is a value.
type Set struct {
	Active *Policy
	Canary *Policy // nil: none
	Share  uint8   // percent of the partitions that the canary decides for, 0 to 100
}

// For is the version for a partition. It depends on the set and the partition only, so every worker, and the same worker
// after a restart, gives the same answer. Of 100 partitions in a row exactly Share get the canary, spread evenly; which ones
// differs from canary to canary and from topic to topic. A topic with fewer than 100/Share partitions may have none.
func (s Set) For(tp pipeline.TP) *Policy {
	if s.Canary == nil {
		return s.Active
	}
	share := int64(min(s.Share, 100))
	n := int64(tp.Partition) + int64(fnv32a(fnv32a(2166136261, string(s.Canary.Digest())), tp.Topic)%100)
	if (n+1)*share/100 > n*share/100 {
		return s.Canary
	}
	return s.Active
}

// fnv32a goes on with the FNV-1a hash h over s, without allocating: it is asked for each batch.
func fnv32a(h uint32, s string) uint32 {
	for i := range len(s) {
		h = (h ^ uint32(s[i])) * 16777619
	}
	return h
}
