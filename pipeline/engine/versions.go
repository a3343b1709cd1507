package engine

import (
	"slices"

	"reprieve.dev/pipeline"
)

// versions says by which policy version the offsets of a partition were worked that no commit covers yet: a settlement names
// one version, so a commit over two of them writes two. Almost always there is one.
type versions struct {
	runs []version // each up to the next one, ascending
	end  int64     // behind the last offset that was noted
}

type version struct {
	from   int64
	policy pipeline.Digest
}

// note says that [from, to) was worked by a version. What was noted of other offsets stays.
func (v *versions) note(from, to int64, policy pipeline.Digest) {
	if n := len(v.runs); n == 1 && v.runs[0].policy == policy && v.runs[0].from <= from {
		v.end = max(v.end, to)
		return
	}
	after, behind := pipeline.Digest(""), to < v.end
	if behind {
		after = v.at(to)
	}
	kept := v.runs[:0:0]
	for _, r := range v.runs {
		if r.from < from {
			kept = append(kept, r)
		}
	}
	kept = append(kept, version{from, policy})
	if behind {
		kept = append(kept, version{to, after})
	}
	for _, r := range v.runs {
		if r.from > to {
			kept = append(kept, r)
		}
	}
	v.runs = slices.CompactFunc(kept, func(a, b version) bool { return a.policy == b.policy })
	v.end = max(v.end, to)
}

// at is the version of an offset; of one below all that were noted, the first.
func (v *versions) at(off int64) pipeline.Digest {
	policy := pipeline.Digest("")
	for i, r := range v.runs {
		if i == 0 || r.from <= off {
			policy = r.policy
		}
	}
	return policy
}

// next is how far the version of from goes, at most to to.
func (v *versions) next(from, to int64) (int64, pipeline.Digest) {
	for _, r := range v.runs {
		if r.from > from && r.from < to && r.policy != v.at(from) {
			return r.from, v.at(from)
		}
	}
	return to, v.at(from)
}

// drop forgets what a commit covers.
func (v *versions) drop(below int64) {
	for len(v.runs) > 1 && v.runs[1].from <= below {
		v.runs = v.runs[1:]
	}
}
