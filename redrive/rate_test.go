package redrive

import (
	"testing"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/custody/custodytest"
	"reprieve.dev/pipeline"
	"reprieve.dev/seal"
)

func TestRateAboveTheBoundTakesTwoPeople(t *testing.T) {
	store := sqliteStore(t)
	berta, err := seal.GenerateSigner("berta")
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, store, func(o *Options) {
		o.Bound, o.Lease = 50, 2*time.Hour
		o.Approvers = append(o.Approvers, Approver{Key: berta.Verifier(), Roles: []string{"approver"}})
	})
	b.target.Ceiling = 500
	b.ready(60)
	asBerta := custody.Actor{Subject: "berta", Roles: []string{"approver"}, Tenants: []string{custody.AllTenants}, Via: "cli"}
	soon := b.Clock().Add(10 * time.Minute)
	refused := func(why string) {
		t.Helper()
		_, err := b.svc.Plan(b.Ctx, custodytest.Operator, b.request(func(r *PlanRequest) { r.Rate = 200 }))
		if pipeline.CodeOf(err) != pipeline.CodeRedriveRate {
			t.Errorf("%s: %v", why, err)
		}
	}
	refused("nobody signed")
	for n := range time.Duration(2) {
		if err := b.svc.ApproveRate(b.Ctx, b.anton, SignRate(b.signer, "billing", 400, "approver", soon.Add(n*time.Second))); err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, b.svc.ApproveRate(b.Ctx, b.anton, SignRate(b.signer, "billing", 400, "approver", soon)), pipeline.CodeApprovalInvalid)
	refused("one person signed twice")
	wantCode(t, b.svc.ApproveRate(b.Ctx, asBerta, SignRate(b.signer, "billing", 400, "approver", soon)), pipeline.CodeApprovalInvalid)
	wantCode(t, b.svc.ApproveRate(b.Ctx, asBerta, SignRate(berta, "billing", 501, "approver", soon)), pipeline.CodeRedriveRate)
	wantCode(t, b.svc.ApproveRate(b.Ctx, asBerta, SignRate(berta, "billing", 400, "approver", b.Clock())), pipeline.CodeApprovalExpired)
	wantCode(t, b.svc.ApproveRate(b.Ctx, custodytest.Operator, SignRate(berta, "billing", 400, "approver", soon)), pipeline.CodePermissionDenied)
	ofAcme := asBerta
	ofAcme.Tenants = []string{"acme"}
	wantCode(t, b.svc.ApproveRate(b.Ctx, ofAcme, SignRate(berta, "billing", 400, "approver", soon)), pipeline.CodeTenantForbidden) // the rate is everybody's
	if err := b.svc.ApproveRate(b.Ctx, asBerta, SignRate(berta, "billing", 100, "approver", soon)); err != nil {
		t.Fatal(err)
	}
	refused("two agree on 100/s")
	if _, err := store.SQL(t).Exec("UPDATE approvals SET rate = '400/s' WHERE subject = 'berta'"); err != nil {
		t.Fatal(err)
	}
	refused("a row that nobody signed")
	if err := b.svc.ApproveRate(b.Ctx, asBerta, SignRate(berta, "billing", 200, "approver", soon)); err != nil {
		t.Fatal(err)
	}
	p := b.plan(func(r *PlanRequest) { r.Rate = 200 })
	b.approve(p)
	// It runs out in the middle of the run: nothing more is sent at that rate.
	turned := false
	b.onWait = func(time.Duration) {
		if !turned && b.sentCount() >= 30 {
			turned = true
			b.Turn(20 * time.Minute)
		}
	}
	st, err := b.svc.Run(b.Ctx, custodytest.Operator, p.Digest)
	wantCode(t, err, pipeline.CodeRedriveRate)
	if st.State != StateStopped || b.sentCount() > 33 || st.Counts.Sending != 0 {
		t.Errorf("%s %q, %d sent", st.State, st.Detail, b.sentCount())
	}
}
