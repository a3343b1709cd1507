package redrive

import (
	"context"
	"sync"
	"testing"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/custody/custodytest"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/seal"
)

// The failure that must be impossible, at one hundredth of its size: 20,000 payment events, a quarter of them committed at the
// provider already, selected by a filter that goes on growing, by two operators who both redrive "everything that matches". Each
// payment ends with one effect, under its own id, and what arrived later is not touched.
func TestTwoOperatorsAFilterThatGrowsAndCommittedPayments(t *testing.T) {
	items, late := int64(20_000), int64(2_000)
	if raced {
		items, late = 4_000, 400
	}
	second, err := seal.GenerateSigner("berta")
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, sqliteStore(t), func(o *Options) {
		o.Bound = 32_000 // windows of 500
		o.Approvers = append(o.Approvers, Approver{Key: second.Verifier(), Roles: []string{"approver"}})
	})
	b.target.Ceiling = 32_000
	var mu sync.Mutex
	effects := map[pipeline.ID]int{}
	ambiguous := func(n int64, l *deadletter.Letter) {
		l.Class, l.Failure.Code, l.Decision.Code = pipeline.Ambiguous, pipeline.CodeHTTPAmbiguous, pipeline.CodeHTTPAmbiguous
	}
	var ids []pipeline.ID
	for from := int64(0); from < items; from += 2000 {
		ids = append(ids, b.letters(from, from+2000, ambiguous)...)
	}
	for n, id := range ids {
		if n%4 == 0 {
			effects[id] = 1
		}
	}
	b.target.Reconcile = "http"
	b.target.Ask = func(_ context.Context, it *custody.Item) (Answer, error) {
		mu.Lock()
		defer mu.Unlock()
		if effects[it.ID] > 0 {
			return Answer{Result: pipeline.Applied, Evidence: "200"}, nil
		}
		return Answer{Result: pipeline.Absent, Evidence: "404"}, nil
	}
	b.outcome = func(tr *pipeline.Trail) pipeline.Result {
		mu.Lock()
		defer mu.Unlock()
		effects[tr.Item]++
		return pipeline.Forwarded
	}
	plan := func(ticket string) *Planned {
		return b.plan(func(r *PlanRequest) { r.Rate, r.Ticket = 32_000, ticket })
	}
	first, other := plan("OPS-1"), plan("OPS-2")
	for _, p := range []*Planned{first, other} {
		if p.Manifest.Selection.Count != items {
			t.Fatalf("planned %d, excluded %v", p.Manifest.Selection.Count, p.Manifest.Selection.Excluded)
		}
		b.approve(p)
	}
	// While the first runs, more payments fail that match the filter as well; then somebody pauses it.
	ctx, pause := context.WithCancel(b.Ctx)
	defer pause()
	grown := false
	b.onWait = func(time.Duration) {
		if !grown && int64(b.sentCount()) > items/8 {
			grown = true
			b.letters(items, items+late, ambiguous)
			pause()
		}
	}
	if _, err := b.svc.Run(ctx, custodytest.Operator, first.Digest); err == nil {
		t.Fatal("it was not paused")
	}
	st, err := b.svc.Status(b.Ctx, custodytest.Operator, first.Digest)
	if err != nil || st.State != StateStopped || st.Counts.Planned == 0 || st.Counts.Sending != 0 {
		t.Fatalf("%v %s %q %+v", err, st.State, st.Detail, st.Counts)
	}
	// The other operator runs theirs: what the first has sent is skipped, the rest goes. Then the first goes on.
	o := b.opts
	o.Name = "exec-2"
	for _, run := range []struct {
		svc *Service
		p   *Planned
	}{{New(o), other}, {b.svc, first}} {
		st, err := run.svc.Run(b.Ctx, custodytest.Operator, run.p.Digest)
		if err != nil || !st.State.Final() || st.Counts.Total() != items {
			t.Fatalf("%v %s %q %+v", err, st.State, st.Detail, st.Counts)
		}
	}
	sent := map[pipeline.ID]int{}
	for _, r := range b.kafka.All(retry) {
		tr, id, err := deadletter.ParseTrail(retry, &r, b.Ring)
		if err != nil || id.EventID == "" {
			t.Fatalf("%v, sent as %q", err, id.EventID)
		}
		sent[tr.Item]++
	}
	for n, id := range ids {
		want := 1
		if n%4 == 0 {
			want = 0 // it was committed: closed without a send
		}
		if sent[id] != want || effects[id] != 1 {
			t.Fatalf("payment %d was sent %d times and has %d effects", n, sent[id], effects[id])
		}
	}
	if int64(len(sent)) != items*3/4 {
		t.Errorf("%d payments were sent: some of them were in no plan", len(sent))
	}
	counts := map[custody.State]int{}
	for _, id := range ids {
		counts[b.Show(t, id).Item.State]++
	}
	if int64(counts[custody.Reconciled]) != items {
		t.Errorf("%v", counts)
	}
}
