package engine

import (
	"fmt"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/decide"
)

// budgeted is a policy with a budget of unknown failures.
type budgeted interface{ UnknownBudget() decide.UnknownBudget }

// spend counts the outcomes of a batch against the budget of the policy that decided them. A failure that nobody has classified,
// and one that is our own defect, says that something is wrong that no rule knows. When there are more of them than are tolerated
// the pipeline halts: what is in work is finished and committed, and nothing more is read (case C22).
func (e *Engine) spend(w *work) {
	policy, ok := w.batch.Policy.(budgeted)
	if !ok {
		return
	}
	limit := policy.UnknownBudget()
	if limit.Window == 0 {
		return
	}
	b := e.budgets[limit]
	if b == nil {
		b = decide.NewBudget(limit.Window, limit.Tolerated)
		e.budgets[limit] = b
	}
	if len(w.batch.Failures()) == 0 && !w.single {
		b.Spare(w.batch.Len())
		return
	}
	healthy, next := 0, 0
	for i := range w.batch.Recs {
		switch {
		case w.what[i] == pipeline.Pending: // it has no outcome yet
			if w.batch.Mark(i) == pipeline.MarkFailed {
				next++
			}
			continue
		case w.batch.Mark(i) != pipeline.MarkFailed:
			healthy++
			continue
		}
		f := &w.batch.Failures()[next]
		next++
		if !decide.Unknown(f.Code) {
			healthy++
			continue
		}
		b.Spare(healthy)
		healthy = 0
		if b.Observe(true) && e.exceeded == nil {
			at := pipeline.Position{TP: w.batch.TP, Offset: w.batch.Recs[i].Offset}
			e.exceeded = pipeline.Errorf(pipeline.CodeErrorBudget, at.String(), "%d of the last %d outcomes are failures that nobody has classified or defects of ours, %d are tolerated; the last is %s in %s",
				b.Failed(), limit.Window, limit.Tolerated, f.Code, f.Stage)
			e.metrics.budget.Add(1)
			e.o.Log.Error(fmt.Sprintf("%s: the pipeline halts", pipeline.CodeErrorBudget), "pipeline", e.o.Pipeline, "at", at.String(), "code", f.Code, "stage", f.Stage,
				"failed", b.Failed(), "window", limit.Window, "tolerated", limit.Tolerated, "remedy", pipeline.Lookup(pipeline.CodeErrorBudget).Remedy)
		}
	}
	b.Spare(healthy)
}
