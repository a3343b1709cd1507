package redrive

import (
	"cmp"
	"slices"

	"reprieve.dev/pipeline"
)

// platformRow is what all redrives of an installation share.
const platformRow = "platform"

// quotas are the rows that the redrives of a tenant to this destination share with those of other pipelines.
func (t *Target) quotas(tenant string) []paceRow {
	var out []paceRow
	for _, name := range []string{"destination/" + t.Destination, "tenant/" + tenant} {
		if r, ok := t.Quotas[name]; ok {
			out = append(out, paceRow{name, r})
		}
	}
	return out
}

// rows are all that a run takes its slots from, in one order, so that two executors cannot wait for each other: the platform's, its
// pipeline's, its own, and quotas: those of its manifest, and those of today where they are lower. most is what its pipeline may
// send now. A run that two people have signed a rate for takes its slots at that rate; slots of others keep their distance.
func (s *Service) rows(t *Target, m *Manifest, digest pipeline.Digest, most Rate) ([]paceRow, error) {
	own, err := ParseRate(m.Pace.Rate)
	if err != nil {
		return nil, err
	}
	rows := []paceRow{{platformRow, max(s.bound, own)}, {"pipeline/" + t.Pipeline, most}, {"run/" + string(digest), own}}
	quota := map[string]Rate{}
	for name, text := range m.Pace.Quotas {
		if quota[name], err = ParseRate(text); err != nil {
			return nil, err
		}
	}
	for _, q := range t.quotas(m.Tenant) {
		if old, ok := quota[q.name]; !ok || q.rate < old {
			quota[q.name] = q.rate
		}
	}
	for name, r := range quota {
		rows = append(rows, paceRow{name, r})
	}
	slices.SortFunc(rows, func(a, b paceRow) int { return cmp.Compare(a.name, b.name) })
	return rows, nil
}

// compensation refuses an effect that undoes another one unless its result can be asked for or is told, and two people decide
// (ADV-UC-01). Codes: ERR_UNTESTED_COMPENSATION_BLOCKED.
func (t *Target) compensation() error {
	if !t.Compensates {
		return nil
	}
	contract := t.Reconcile == "http" && t.Ask != nil || t.Reconcile == "outcomes"
	switch {
	case !contract:
		return pipeline.Errorf(pipeline.CodeCompensation, t.Pipeline, "its effect compensates, and nothing proves what became of it: reconcile is %q", t.Reconcile)
	case !t.Dual:
		return pipeline.Errorf(pipeline.CodeCompensation, t.Pipeline, "its effect compensates, and one person alone decides: redrive.approval is not dual")
	}
	return nil
}
