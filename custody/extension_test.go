package custody_test

import (
	"slices"
	"testing"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/custody/custodytest"
	"reprieve.dev/pipeline"
)

// One person asks for another end, another approves it; until then nothing changes, and nobody approves what they asked for.
func TestAnExtensionTakesTwoPeople(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		ids := e.Admit(t, 0, 4)
		until := custodytest.Start.Add(60 * 24 * time.Hour)
		asker := custody.Actor{Subject: "pia", Roles: []string{"admin"}, Tenants: []string{custody.AllTenants}, Via: "cli"}
		elsewhere := custody.Actor{Subject: "greta", Roles: []string{"owner"}, Tenants: []string{"globex"}, Via: "cli"}
		refused := func(what string, want pipeline.Code, err error) {
			t.Helper()
			if pipeline.CodeOf(err) != want {
				t.Errorf("%s: %v", what, err)
			}
		}
		end := func(n int) int64 { return e.Show(t, ids[n]).Item.ExpiresMS }

		propose := func(who custody.Actor, target custody.Target, until time.Time, reason string) (custody.Extension, error) {
			return e.Items.ProposeExtension(e.Ctx, who, target, until, reason)
		}
		_, err := propose(custodytest.Operator, custody.One(ids[0]), until, "waits")
		refused("an operator asks", pipeline.CodePermissionDenied, err)
		_, err = propose(asker, custody.One(ids[0]), until, "")
		refused("without a reason", pipeline.CodeReasonMissing, err)
		_, err = propose(asker, custody.One(ids[0]), custodytest.Start.Add(-time.Hour), "waits")
		refused("a past end", pipeline.CodeInputInvalid, err)
		_, err = propose(asker, custody.One("qnobody"), until, "waits")
		refused("an unknown item", pipeline.CodeItemUnknown, err)
		_, err = propose(asker, custody.Target{Selection: "state=open"}, until, "waits")
		refused("a selection that nobody froze", pipeline.CodeSnapshotRequired, err)
		s, err := e.Items.TakeSnapshot(e.Ctx, asker, selection(t, "state=open"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = propose(asker, custody.Target{Snapshot: s.ID, Count: s.Count + 1, Digest: s.Digest}, until, "waits")
		refused("another snapshot than was seen", pipeline.CodeSnapshotChanged, err)

		x, err := propose(asker, custody.Target{Items: ids[:3]}, until, "waits for the vendor")
		if err != nil || x.Items != 3 || x.State != custody.ExtensionProposed || !slices.Equal(x.Tenants, []string{"acme"}) {
			t.Fatalf("%+v %v", x, err)
		}
		if end(0) != 0 {
			t.Fatal("a proposal moved the end")
		}
		approve := func(who custody.Actor, id string) error {
			_, err := e.Items.ApproveExtension(e.Ctx, who, id, nil)
			return err
		}
		refused("the author approves", pipeline.CodeApprovalSelf, approve(asker, x.ID))
		refused("an operator approves", pipeline.CodePermissionDenied, approve(custodytest.Operator, x.ID))
		refused("another tenant's owner approves", pipeline.CodeTenantForbidden, approve(elsewhere, x.ID))
		refused("an unknown extension", pipeline.CodeApprovalInvalid, approve(custodytest.Owner, "enothing"))
		if list, err := e.Items.Extensions(e.Ctx, elsewhere, true); err != nil || len(list) != 0 {
			t.Errorf("another tenant's owner sees %+v %v", list, err)
		}
		if list, err := e.Items.Extensions(e.Ctx, custodytest.Viewer, false); err != nil || len(list) != 1 || list[0].ID != x.ID {
			t.Errorf("%+v %v", list, err)
		}
		if end(0) != 0 {
			t.Fatal("a refused approval moved the end")
		}

		r, err := e.Items.ApproveExtension(e.Ctx, custodytest.Owner, x.ID, nil)
		if err != nil || r.Selected != 3 || r.Changed != 3 {
			t.Fatalf("%+v %v", r, err)
		}
		if end(0) != until.UnixMilli() || end(2) != until.UnixMilli() || end(3) != 0 {
			t.Errorf("ends: %d %d %d", end(0), end(2), end(3))
		}
		h := e.Show(t, ids[1]).History
		if last := h[len(h)-1]; last.Event != "extend" || last.Actor != custodytest.Owner.Subject || last.Detail["proposed_by"] != "pia" || last.Detail["extension"] != x.ID {
			t.Errorf("%+v", last)
		}
		// Again, as after an interruption: nothing is done twice. Nobody else can take the approval over.
		if r, err := e.Items.ApproveExtension(e.Ctx, custodytest.Owner, x.ID, nil); err != nil || r.Changed != 0 || r.SkippedCount != 3 {
			t.Errorf("%+v %v", r, err)
		}
		refused("it is approved", pipeline.CodeApprovalInvalid, approve(custodytest.Admin, x.ID))
		if list, err := e.Items.Extensions(e.Ctx, asker, false); err != nil || len(list) != 0 {
			t.Errorf("%+v %v", list, err)
		}

		late, err := propose(asker, custody.Of(s), custodytest.Start.Add(time.Hour), "ends early")
		if err != nil || late.Items != 4 {
			t.Fatalf("%+v %v", late, err)
		}
		e.Turn(2 * time.Hour)
		refused("an end that has gone by", pipeline.CodeApprovalInvalid, approve(custodytest.Owner, late.ID))
		mustVerify(t, e)
	})
}
