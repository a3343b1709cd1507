package control

import (
	"slices"

	"reprieve.dev/seal"
)

// Approver is a registered public key: a person's own, or the console's, which authenticates persons and signs for them.
type Approver struct {
	Subject string
	Key     *seal.Verifier
	// Speaks says that the key may sign for other subjects (the console's).
	Speaks bool
	// Activates says that the key may put policies into force.
	Activates bool
}

// Authority says whose signatures count. It is immutable after it was made.
type Authority struct {
	Ring      *seal.Ring // of workers
	Approvers []Approver // of persons
	// Lifters is how many different approvers must lift a halt of all pipelines; one is enough for a single pipeline's. 0 is 2.
	Lifters int
}

// verify returns who signed: the approver's subject, or "" for a worker.
func (a *Authority) verify(kid string, msg, sig []byte) (person string, ok bool) {
	for i := range a.Approvers {
		if p := &a.Approvers[i]; p.Key.KeyID() == kid {
			return p.Subject, p.Key.Verify(msg, sig)
		}
	}
	return "", a.Ring != nil && a.Ring.Verify(kid, msg, sig)
}

// allows holds the rules of who may say what: a person speaks as itself and under its own key (the console for others),
// lifts, rates and policies are for persons only, policies for those whose key activates.
func (a *Authority) allows(e *Entry) bool {
	if e.Person != "" {
		i := slices.IndexFunc(a.Approvers, func(p Approver) bool { return p.Key.KeyID() == e.KID })
		p := &a.Approvers[i] // verify found it
		return e.By == e.Writer && (e.By == e.Person || p.Speaks) && (e.Kind != KindPolicy || p.Activates)
	}
	switch e.Kind {
	case KindLift, KindPolicy, KindRate:
		return false
	}
	return true
}

func (a *Authority) lifters(pipelineName string) int {
	switch {
	case pipelineName != "":
		return 1
	case a.Lifters > 0:
		return a.Lifters
	}
	return 2
}
