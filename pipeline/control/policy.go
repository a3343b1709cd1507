package control

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"

	"reprieve.dev/pipeline"
	"reprieve.dev/seal"
)

// FileVersion is the version that stands for the policy of each worker's own pipeline file.
const FileVersion = "file"

// Activation puts a policy version into force for a share of the partitions of one pipeline. Going back to an earlier version
// is the same act. There is one entry for each version and person, so the topic keeps every version that was ever in force.
type Activation struct {
	Order    int64  // one more than the latest act that its person knew
	Version  string // digest of Text, or FileVersion
	Share    uint8  // percent of the partitions, 1 to 100; below 100 the version is a canary beside the one in force
	Previous string // the version that a rollback goes back to; "" is none
	Reason   string
	Text     []byte // canonical form of the policy; nil with FileVersion
	By       string
	AtMS     int64
	Entry    Entry
}

// activation is the state of an entry of kind policy.
type activation struct {
	Order    string          `json:"order"`
	Share    string          `json:"share"`
	Previous string          `json:"previous"`
	Reason   string          `json:"reason"`
	Policy   json.RawMessage `json:"policy,omitempty"`
}

// NewActivation is the entry by which a person puts a version into force now: text is its canonical form, nil for FileVersion.
func (s *Snapshot) NewActivation(pipelineName, person, version string, share uint8, text []byte, previous, reason string) Entry {
	order := int64(1)
	for e := range s.Of(KindPolicy, pipelineName) {
		if a, ok := e.activation(); ok {
			order = max(order, a.Order+1)
		}
	}
	return Entry{Key: Key{KindPolicy, pipelineName, version, person}, By: person, State: stateOf(activation{
		Order: strconv.FormatInt(order, 10), Share: strconv.Itoa(int(share)), Previous: previous, Reason: reason, Policy: text})}
}

// Activations are the acts for one pipeline, the latest first, and the entries that are none: their text is not that of their
// version, or a number of theirs is not possible.
func (s *Snapshot) Activations(pipelineName string) (acts []Activation, damaged []Entry) {
	for e := range s.Of(KindPolicy, pipelineName) {
		if a, ok := e.activation(); ok && e.Pipeline == pipelineName {
			acts = append(acts, a)
		} else {
			damaged = append(damaged, e)
		}
	}
	slices.SortFunc(acts, func(a, b Activation) int { // two persons at one moment: the same one wins everywhere
		return cmp.Or(cmp.Compare(b.Order, a.Order), cmp.Compare(b.AtMS, a.AtMS), cmp.Compare(b.Entry.Key.String(), a.Entry.Key.String()))
	})
	return acts, damaged
}

// maxOrder leaves room for more acts than anybody makes.
const maxOrder = 1 << 40

func (e Entry) activation() (Activation, bool) {
	var v activation
	if json.Unmarshal(e.State, &v) != nil {
		return Activation{}, false
	}
	order, err1 := strconv.ParseInt(v.Order, 10, 64)
	share, err2 := strconv.ParseUint(v.Share, 10, 8)
	a := Activation{Order: order, Version: e.Subject, Share: uint8(share), Previous: v.Previous, Reason: v.Reason, By: e.By, AtMS: e.AtMS, Entry: e}
	if err1 != nil || err2 != nil || order < 1 || order > maxOrder || share < 1 || share > 100 {
		return Activation{}, false
	}
	if e.Subject == FileVersion {
		return a, len(v.Policy) == 0
	}
	text, err := seal.CanonicalBytes(v.Policy)
	if err != nil || string(pipeline.Digest(seal.SHA256(text))) != e.Subject {
		return Activation{}, false
	}
	a.Text = text
	return a, true
}

// InForce picks from acts, the latest first: the last one for all partitions, and the canary that came after it, if there is
// one. What is not usable counts as not done, so a version that a worker cannot use changes nothing for it. Nil is FileVersion
// by nobody, and no canary.
func InForce(acts []Activation, usable func(*Activation) bool) (active, canary *Activation) {
	for i := range acts {
		a := &acts[i]
		switch {
		case a.Share < 100 && canary != nil || !usable(a):
		case a.Share < 100:
			canary = a
		default:
			return a, other(a.Version, canary)
		}
	}
	return nil, other(FileVersion, canary)
}

// other is the canary unless it is the version in force.
func other(version string, canary *Activation) *Activation {
	if canary != nil && canary.Version == version {
		return nil
	}
	return canary
}
