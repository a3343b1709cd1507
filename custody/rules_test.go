package custody_test

import (
	"testing"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/custody/custodytest"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

func TestARuleNeedsTwoPeopleAndEnds(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		fp := e.Letter(0).Fingerprint
		rule := custody.Rule{Tenant: "acme", Fingerprint: fp, Owner: "finance", Ticket: "OPS-5", Repair: "set@1.0.0", Artifact: "sha256:aa", Mute: true, ExpiresMS: custodytest.Start.Add(24 * time.Hour).UnixMilli()}
		for name, change := range map[string]func(*custody.Rule){
			"no fingerprint":              func(r *custody.Rule) { r.Fingerprint = "" },
			"nothing to do":               func(r *custody.Rule) { *r = custody.Rule{Tenant: r.Tenant, Fingerprint: fp, ExpiresMS: r.ExpiresMS} },
			"a repair without a ticket":   func(r *custody.Rule) { r.Ticket = "" },
			"a repair that is not pinned": func(r *custody.Rule) { r.Artifact = "" },
			"an end that is past":         func(r *custody.Rule) { r.ExpiresMS = 1 },
			"no end":                      func(r *custody.Rule) { r.ExpiresMS = custodytest.Start.Add(365 * 24 * time.Hour).UnixMilli() },
			"an unknown id":               func(r *custody.Rule) { r.ID = "unone" },
		} {
			bad := rule
			change(&bad)
			if _, err := e.Items.ProposeRule(e.Ctx, custodytest.Owner, bad); pipeline.CodeOf(err) != pipeline.CodeRuleInvalid {
				t.Errorf("%s: %v", name, err)
			}
		}
		r, err := e.Items.ProposeRule(e.Ctx, custodytest.Owner, rule)
		if err != nil {
			t.Fatal(err)
		}
		first := e.Admit(t, 0, 1)[0]
		if s := e.Show(t, first); s.Item.State != custody.DeadLettered {
			t.Fatal("a proposed rule works already")
		}
		if err := e.Items.ApproveRule(e.Ctx, custodytest.Owner, r.ID, 1); pipeline.CodeOf(err) != pipeline.CodeApprovalSelf {
			t.Fatal(err)
		}
		if err := e.Items.ApproveRule(e.Ctx, custodytest.Operator, r.ID, 1); pipeline.CodeOf(err) != pipeline.CodePermissionDenied {
			t.Fatal(err)
		}
		if err := e.Items.ApproveRule(e.Ctx, custodytest.Admin, r.ID, 1); err != nil {
			t.Fatal(err)
		}
		ids := e.Admit(t, 1, 251)
		samples := 0
		for _, id := range ids {
			switch it := e.Show(t, id).Item; it.State {
			case custody.DeadLettered:
				samples++
			case custody.Triaged:
				if it.Owner != "finance" || it.Ticket != "OPS-5" {
					t.Fatalf("%+v", it)
				}
			default:
				t.Fatal("a rule brought an item to", it.State)
			}
		}
		if samples != 2 {
			t.Errorf("%d of 250 are left to a person", samples)
		}
		if err := e.Items.Within(e.Ctx, func(tx *ledger.Tx) error {
			work, rules, err := e.Items.RuleWork(tx, 1000)
			if len(rules) != 1 || len(work[r.ID]) != 248 {
				t.Errorf("%d rules, %d items", len(rules), len(work[r.ID]))
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		// The next version takes the place of the first, once approved.
		rule.ID, rule.Ticket = r.ID, "OPS-6"
		if r, err = e.Items.ProposeRule(e.Ctx, custodytest.Owner, rule); err != nil || r.Version != 2 {
			t.Fatal(r, err)
		}
		if err := e.Items.ApproveRule(e.Ctx, custodytest.Admin, r.ID, 2); err != nil {
			t.Fatal(err)
		}
		if it := e.Show(t, e.Admit(t, 300, 301)[0]).Item; it.Ticket != "OPS-6" {
			t.Fatalf("%+v", it)
		}
		if err := e.Items.RemoveRule(e.Ctx, custodytest.Owner, r.ID, 2, "it groups too much"); err != nil {
			t.Fatal(err)
		}
		if it := e.Show(t, e.Admit(t, 301, 302)[0]).Item; it.State != custody.DeadLettered {
			t.Fatalf("%+v", it)
		}
		active, err := e.Items.Rules(e.Ctx, custodytest.Viewer, false)
		all, err2 := e.Items.Rules(e.Ctx, custodytest.Viewer, true)
		if err != nil || err2 != nil || len(active) != 0 || len(all) != 2 || all[0].Matched+all[1].Matched != 251 {
			t.Fatal(active, all, err, err2)
		}
		mustVerify(t, e)
	})
}

func TestARuleThatHasEndedDoesNothing(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		r, err := e.Items.ProposeRule(e.Ctx, custodytest.Owner, custody.Rule{Tenant: "acme", Fingerprint: e.Letter(0).Fingerprint, Owner: "finance", ExpiresMS: custodytest.Start.Add(time.Hour).UnixMilli()})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Items.ApproveRule(e.Ctx, custodytest.Admin, r.ID, r.Version); err != nil {
			t.Fatal(err)
		}
		if it := e.Show(t, e.Admit(t, 0, 1)[0]).Item; it.Owner != "finance" || it.State != custody.DeadLettered {
			t.Fatalf("%+v", it)
		}
		e.Turn(2 * time.Hour)
		if it := e.Show(t, e.Admit(t, 1, 2)[0]).Item; it.Owner != "" {
			t.Fatalf("%+v", it)
		}
	})
}
