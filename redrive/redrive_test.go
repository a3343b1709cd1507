package redrive

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"reprieve.dev/custody"
	"reprieve.dev/custody/custodytest"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
)

func TestRedriveFromPlanToReconciled(t *testing.T) {
	eachBench(t, func(t *testing.T, b *bench) {
		ids := b.ready(20)
		p := b.plan(func(r *PlanRequest) { r.Rate = 50 })
		if len(b.lines(p)) != 20 || p.Manifest.Selection.Count != 20 || len(p.Excluded) != 0 {
			t.Fatalf("planned %d, excluded %v", len(b.lines(p)), p.Excluded)
		}
		r, err := b.svc.DryRun(b.Ctx, custodytest.Operator, p.Digest)
		if err != nil {
			t.Fatal(err)
		}
		if r.WouldSend != 20 || len(r.CannotGo) != 0 || len(r.Canary) == 0 || b.sentCount() != 0 {
			t.Errorf("dry run %+v", r)
		}
		b.approve(p)
		st := b.run(p)
		if st.State != StateDone || st.Counts.Reconciled != 20 || st.Counts.Attempts != 20 {
			t.Errorf("status %+v", st)
		}
		for _, id := range ids {
			if s := b.Show(t, id).Item; s.State != custody.Reconciled || s.Try != 1 || s.Redrive != p.Digest {
				t.Errorf("%s is %s, try %d", id, s.State, s.Try)
			}
		}
		// What was sent is the record as it was, with its signed past.
		letters := map[pipeline.ID]*deadletter.Letter{}
		for n := range int64(20) {
			l := b.Letter(n)
			letters[l.Item] = l
		}
		found := 0
		for part := range int32(3) {
			for _, rec := range b.kafka.Records(pipeline.TP{Topic: retry, Partition: part}) {
				tr, id, err := deadletter.ParseTrail(retry, &rec, b.Ring)
				if err != nil {
					t.Fatal(err)
				}
				l := letters[tr.Item]
				found++
				if !bytes.Equal(rec.Key, l.Key) || !bytes.Equal(rec.Value, l.Value) {
					t.Errorf("%s was sent as %q %q", tr.Item, rec.Key, rec.Value)
				}
				if diff := cmp.Diff(l.Headers, rec.Headers[:3]); diff != "" {
					t.Errorf("headers: %s", diff)
				}
				if tr.Redrive != p.Digest || tr.Try != 1 || tr.Attempt != 0 || tr.Original != l.Original || tr.OriginalMS != l.OriginalMS || id.EventID != l.Identity.EventID {
					t.Errorf("trail %+v of %+v", tr, l)
				}
				if part != Partition(l.Key, 3, 0) {
					t.Errorf("%s went to partition %d", rec.Key, part)
				}
				if rec.TimeMS < b.Clock().UnixMilli()-3600_000 {
					t.Errorf("written with the time %d", rec.TimeMS)
				}
			}
		}
		if found != 20 {
			t.Errorf("%d records on the retry topic", found)
		}
	})
}

func TestOrderOfKeyIsKept(t *testing.T) {
	b := newBench(t, sqliteStore(t))
	b.ready(40)
	p := b.plan()
	b.approve(p)
	b.run(p)
	for part := range int32(3) {
		last := map[string]int64{}
		for _, rec := range b.kafka.Records(pipeline.TP{Topic: retry, Partition: part}) {
			tr, _, _ := deadletter.ParseTrail(retry, &rec, b.Ring)
			k := string(rec.Key) + tpText(tr.Original.TP)
			if tr.Original.Offset < last[k] {
				t.Errorf("%s: offset %d after %d", k, tr.Original.Offset, last[k])
			}
			last[k] = tr.Original.Offset
		}
	}
}

func TestRefusalsBeforeASend(t *testing.T) {
	b := newBench(t, sqliteStore(t))
	ids := b.ready(6)
	op := custodytest.Operator
	now := b.Clock()
	t.Run("NoSnapshot", func(t *testing.T) {
		_, err := b.svc.Plan(b.Ctx, op, PlanRequest{Pipeline: "billing", Ticket: "OPS-1"})
		wantCode(t, err, pipeline.CodeSnapshotRequired)
	})
	t.Run("OtherCountThanShown", func(t *testing.T) {
		_, err := b.svc.Plan(b.Ctx, op, b.request(func(r *PlanRequest) { r.Count = 5 }))
		wantCode(t, err, pipeline.CodeSnapshotChanged)
	})
	t.Run("NoTicket", func(t *testing.T) {
		_, err := b.svc.Plan(b.Ctx, op, b.request(func(r *PlanRequest) { r.Ticket = "" }))
		wantCode(t, err, pipeline.CodeTicketMissing)
	})
	t.Run("PrimaryTopic", func(t *testing.T) {
		for _, topic := range []string{source, "billing.ledger.v1", "anything.else"} {
			_, err := b.svc.Plan(b.Ctx, op, b.request(func(r *PlanRequest) { r.Destination = topic }))
			wantCode(t, err, pipeline.CodeRedrivePrimary)
		}
	})
	t.Run("RateAboveTheCeiling", func(t *testing.T) {
		_, err := b.svc.Plan(b.Ctx, op, b.request(func(r *PlanRequest) { r.Rate = 8001 }))
		wantCode(t, err, pipeline.CodeRedriveRate)
	})
	t.Run("Viewer", func(t *testing.T) {
		_, err := b.svc.Plan(b.Ctx, custodytest.Viewer, b.request())
		wantCode(t, err, pipeline.CodePermissionDenied)
	})
	p := b.plan()
	sign := func(digest pipeline.Digest, role string, rate Rate, expires time.Time) Approval {
		return Sign(b.signer, digest, role, rate, expires)
	}
	t.Run("NotDryRun", func(t *testing.T) {
		wantCode(t, b.svc.Approve(b.Ctx, b.anton, sign(p.Digest, "approver", 8000, now.Add(time.Hour))), pipeline.CodeDryRunRequired)
		_, err := b.svc.Run(b.Ctx, op, p.Digest)
		wantCode(t, err, pipeline.CodeDryRunRequired)
	})
	if _, err := b.svc.DryRun(b.Ctx, op, p.Digest); err != nil {
		t.Fatal(err)
	}
	t.Run("NotApproved", func(t *testing.T) {
		_, err := b.svc.Run(b.Ctx, op, p.Digest)
		wantCode(t, err, pipeline.CodeApprovalMissing)
	})
	ana := op
	ana.Roles = []string{"owner"}
	for name, c := range map[string]struct {
		who  custody.Actor
		a    Approval
		code pipeline.Code
	}{
		"Requester": {ana, func() Approval {
			a := sign(p.Digest, "approver", 8000, now.Add(time.Hour))
			a.Subject = "ana"
			return a
		}(), pipeline.CodeApprovalSelf},
		"Expired": {b.anton, sign(p.Digest, "approver", 8000, now), pipeline.CodeApprovalExpired},
		"TooLong": {b.anton, sign(p.Digest, "approver", 8000, now.Add(30*24*time.Hour)), pipeline.CodeApprovalInvalid},
		"OtherDigest": {b.anton, func() Approval {
			a := sign("sha256:00", "approver", 8000, now.Add(time.Hour))
			a.Manifest = p.Digest
			return a
		}(), pipeline.CodeApprovalInvalid},
		"LowerRate":      {b.anton, sign(p.Digest, "approver", 50, now.Add(time.Hour)), pipeline.CodeRedriveRate},
		"RoleNotTheirs":  {b.anton, sign(p.Digest, "owner", 8000, now.Add(time.Hour)), pipeline.CodeApprovalInvalid},
		"RoleMayNot":     {b.anton, sign(p.Digest, "viewer", 8000, now.Add(time.Hour)), pipeline.CodeApprovalInvalid},
		"ChangedAfter":   {b.anton, func() Approval { a := sign(p.Digest, "approver", 100, now.Add(time.Hour)); a.Rate = "8000/s"; return a }(), pipeline.CodeApprovalInvalid},
		"SomebodyElse":   {custody.Actor{Subject: "berta", Roles: []string{"approver"}, Tenants: []string{"*"}}, sign(p.Digest, "approver", 8000, now.Add(time.Hour)), pipeline.CodeApprovalInvalid},
		"OtherTenant":    {custody.Actor{Subject: "anton", Roles: []string{"approver"}, Tenants: []string{"globex"}}, sign(p.Digest, "approver", 8000, now.Add(time.Hour)), pipeline.CodeTenantForbidden},
		"UnknownKey":     {b.anton, func() Approval { a := sign(p.Digest, "approver", 8000, now.Add(time.Hour)); a.KID = "x"; return a }(), pipeline.CodeApprovalInvalid},
		"NoPermission":   {op, sign(p.Digest, "approver", 8000, now.Add(time.Hour)), pipeline.CodePermissionDenied},
		"UnknownPlanned": {b.anton, sign("sha256:ff", "approver", 8000, now.Add(time.Hour)), pipeline.CodeManifestUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			wantCode(t, b.svc.Approve(b.Ctx, c.who, c.a), c.code)
			_, err := b.svc.Run(b.Ctx, op, p.Digest)
			wantCode(t, err, pipeline.CodeApprovalMissing)
		})
	}
	t.Run("Revoked", func(t *testing.T) {
		if err := b.svc.Approve(b.Ctx, b.anton, sign(p.Digest, "approver", 8000, now.Add(time.Hour))); err != nil {
			t.Fatal(err)
		}
		if err := b.svc.Revoke(b.Ctx, b.anton, p.Digest, "second thoughts"); err != nil {
			t.Fatal(err)
		}
		_, err := b.svc.Run(b.Ctx, op, p.Digest)
		wantCode(t, err, pipeline.CodeApprovalRevoked)
	})
	t.Run("ExpiredMeanwhile", func(t *testing.T) {
		if err := b.svc.Approve(b.Ctx, b.anton, sign(p.Digest, "approver", 8000, now.Add(90*time.Minute))); err != nil {
			t.Fatal(err)
		}
		b.Turn(2 * time.Hour)
		_, err := b.svc.Run(b.Ctx, op, p.Digest)
		wantCode(t, err, pipeline.CodeApprovalExpired)
	})
	t.Run("Denied", func(t *testing.T) {
		if err := b.svc.Deny(b.Ctx, b.anton, p.Digest, "no"); err != nil {
			t.Fatal(err)
		}
		_, err := b.svc.Run(b.Ctx, op, p.Digest)
		wantCode(t, err, pipeline.CodeRedriveState)
	})
	if b.sentCount() != 0 {
		t.Errorf("%d records were sent", b.sentCount())
	}
	for _, id := range ids {
		if s := b.Show(t, id).Item; s.State != custody.Triaged {
			t.Errorf("%s is %s", id, s.State)
		}
	}
}

func TestManifestChangedInTheLedgerIsRefused(t *testing.T) {
	for name, sql := range map[string]string{
		"AnotherItem":      "UPDATE manifest_items SET item = 'qother' WHERE n = 3",
		"NotAskedFirst":    "UPDATE manifest_items SET ask = 1 WHERE n = 2",
		"Superseded":       "UPDATE manifest_items SET newer = 'qother' WHERE n = 2",
		"AnotherRepair":    "UPDATE manifest_items SET repair = 'xother' WHERE n = 3",
		"AnotherDigest":    "UPDATE manifest_items SET digest = 'hmac256:id1:00' WHERE n = 1",
		"OneMore":          "INSERT INTO manifest_items SELECT manifest, 99, tenant, 'qmore', state, code, repair, digest, order_key, attempts, measures, sent_topic, sent_partition, sent_offset, sent_ms, ask, newer, effect, watched FROM manifest_items WHERE n = 1",
		"OneLess":          "DELETE FROM manifest_items WHERE n = 6",
		"ForgedApproval":   "UPDATE approvals SET subject = 'berta'",
		"LongerApproval":   "UPDATE approvals SET expires_ms = expires_ms + 1",
		"BodyOfManifest":   "UPDATE manifests SET body = replace(body, 'OPS-1', 'OPS-2')",
		"TenantOfManifest": "UPDATE manifests SET tenant = 'globex'",
	} {
		t.Run(name, func(t *testing.T) {
			store := sqliteStore(t)
			b := newBench(t, store)
			b.ready(6)
			p := b.plan()
			b.approve(p)
			if _, err := store.SQL(t).Exec(sql); err != nil {
				t.Fatal(err)
			}
			_, err := b.svc.Run(b.Ctx, custodytest.Operator, p.Digest)
			switch code := pipeline.CodeOf(err); code {
			case pipeline.CodeManifestDigest, pipeline.CodeApprovalInvalid:
			default:
				t.Errorf("got %v", err)
			}
			if b.sentCount() != 0 {
				t.Error("it was sent")
			}
		})
	}
}

func TestExcludedItemsAreNamedWithReasons(t *testing.T) {
	b := newBench(t, sqliteStore(t))
	ids := b.Admit(t, 0, 8)
	b.Confirm(t, 0, 7) // the eighth is not confirmed
	b.Triage(t, ids[1:]...)
	if _, err := b.Items.Hold(b.Ctx, custodytest.Operator, custody.One(ids[2]), "legal"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Items.Discard(b.Ctx, custodytest.Owner, custody.One(ids[3]), "test", "mail"); err != nil {
		t.Fatal(err)
	}
	p := b.plan()
	want := map[string]int64{"state_DEAD_LETTERED": 1, "held": 1, "state_DISCARDED": 1, "unconfirmed": 1}
	if diff := cmp.Diff(want, p.Manifest.Selection.Excluded); diff != "" {
		t.Error(diff)
	}
	if p.Manifest.Selection.Selected != 8 || p.Manifest.Selection.Count != 4 || len(p.Excluded) != 4 {
		t.Errorf("%+v", p.Manifest.Selection)
	}
}

func TestHaltStopsBeforeTheNextWindow(t *testing.T) {
	eachBench(t, func(t *testing.T, b *bench) {
		b.ready(30)
		p := b.plan(func(r *PlanRequest) { r.Rate = 50 })
		b.approve(p)
		sentAtHalt, waits := -1, 0
		b.onWait = func(time.Duration) {
			if waits++; waits == 20 {
				if err := b.svc.Halt(b.Ctx, custodytest.Operator, "", "smoke"); err != nil {
					t.Error(err)
				}
				sentAtHalt = b.sentCount()
			}
		}
		st, err := b.svc.Run(b.Ctx, custodytest.Operator, p.Digest)
		wantCode(t, err, pipeline.CodeRedriveHalted)
		if st.State != StateStopped || sentAtHalt < 1 || b.sentCount() > sentAtHalt {
			t.Errorf("%s: %d sent at the halt, %d after it", st.State, sentAtHalt, b.sentCount())
		}
		if st.Counts.Sending != 0 || st.Counts.Total() != 30 {
			t.Errorf("counts %+v", st.Counts)
		}
		_, err = b.svc.Run(b.Ctx, custodytest.Operator, p.Digest)
		wantCode(t, err, pipeline.CodeRedriveHalted)
		if err := b.svc.Lift(b.Ctx, custodytest.Operator, "", "over"); pipeline.CodeOf(err) != pipeline.CodePermissionDenied {
			t.Errorf("an operator lifted: %v", err)
		}
		ana := custodytest.Admin
		ana.Subject = "ana"
		wantCode(t, b.svc.Lift(b.Ctx, ana, "", "over"), pipeline.CodeApprovalSelf)
		wantCode(t, b.svc.Lift(b.Ctx, custodytest.Admin, "", ""), pipeline.CodeReasonMissing)
		if err := b.svc.Lift(b.Ctx, custodytest.Admin, "", "over"); err != nil {
			t.Fatal(err)
		}
		b.onWait = nil
		if st := b.run(p); st.State != StateDone || st.Counts.Reconciled != 30 || b.sentCount() != 30 {
			t.Errorf("after the halt: %s, %+v, %d sent", st.State, st.Counts, b.sentCount())
		}
	})
}

func TestStopByOperator(t *testing.T) {
	b := newBench(t, sqliteStore(t))
	b.ready(30)
	p := b.plan(func(r *PlanRequest) { r.Rate = 50 })
	b.approve(p)
	waits := 0
	b.onWait = func(time.Duration) {
		if waits++; waits == 20 {
			if err := b.svc.Stop(b.Ctx, custodytest.Operator, p.Digest, "lunch"); err != nil {
				t.Error(err)
			}
		}
	}
	st, err := b.svc.Run(b.Ctx, custodytest.Operator, p.Digest)
	wantCode(t, err, pipeline.CodeRedriveState)
	if st.State != StateStopped || st.Detail != "lunch" || b.sentCount() >= 30 {
		t.Errorf("%s %q, %d sent", st.State, st.Detail, b.sentCount())
	}
	if st := b.run(p); st.State != StateDone || b.sentCount() != 30 {
		t.Errorf("afterwards %s, %d sent", st.State, b.sentCount())
	}
}

func TestThresholdStops(t *testing.T) {
	b := newBench(t, sqliteStore(t))
	b.ready(60)
	p := b.plan(func(r *PlanRequest) { r.Rate, r.Stop = 50, &Stop{Failures: 2, Duplicates: -1} })
	b.approve(p)
	n := 0
	b.outcome = func(*pipeline.Trail) pipeline.Result {
		if n++; n > 10 {
			return pipeline.FailedOutcome
		}
		return pipeline.Forwarded
	}
	st, err := b.svc.Run(b.Ctx, custodytest.Operator, p.Digest)
	wantCode(t, err, pipeline.CodeRedriveThreshold)
	if st.State != StateStopped || st.Counts.Returned < 3 || st.Counts.Returned > 4 || st.Counts.Planned == 0 {
		t.Errorf("%s, %+v", st.State, st.Counts)
	}
}

func TestCanaryThatFailsStopsTheRest(t *testing.T) {
	b := newBench(t, sqliteStore(t))
	b.ready(60)
	p := b.plan(func(r *PlanRequest) { r.Canary = 3 })
	b.approve(p)
	b.outcome = func(*pipeline.Trail) pipeline.Result { return pipeline.FailedOutcome }
	st, err := b.svc.Run(b.Ctx, custodytest.Operator, p.Digest)
	wantCode(t, err, pipeline.CodeRedriveThreshold)
	if st.State != StateStopped || b.sentCount() > 3 || st.Counts.Planned < 57 {
		t.Errorf("%s, %d sent, %+v", st.State, b.sentCount(), st.Counts)
	}
}

func TestSilentCanaryStopsTheRest(t *testing.T) {
	b := newBench(t, sqliteStore(t))
	b.ready(60)
	p := b.plan(func(r *PlanRequest) { r.Canary = 3 })
	b.approve(p)
	b.outcome = func(*pipeline.Trail) pipeline.Result { return "" }
	st, err := b.svc.Run(b.Ctx, custodytest.Operator, p.Digest)
	wantCode(t, err, pipeline.CodeRedriveThreshold)
	if st.State != StateStopped || b.sentCount() > 3 {
		t.Errorf("%s, %d sent", st.State, b.sentCount())
	}
}
