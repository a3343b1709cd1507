package custody_test

import (
	"testing"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/custody/custodytest"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
)

// settle says of one offset what became of it, and commits beyond it.
func settle(t *testing.T, e *custodytest.Env, at pipeline.Position, d pipeline.Disposition) {
	t.Helper()
	settleOnly(t, e, at, d)
	if err := e.Items.Committed(e.Ctx, custodytest.Worker, "billing-event-processor", map[pipeline.TP]int64{at.TP: at.Offset + 1}); err != nil {
		t.Fatal(err)
	}
}

func settleOnly(t *testing.T, e *custodytest.Env, at pipeline.Position, d pipeline.Disposition) {
	t.Helper()
	s := deadletter.NewSettlement("billing", at.TP, 1, pipeline.Checkpoint{Next: at.Offset})
	s.Add(at.Offset, d)
	s.To, s.Next = at.Offset+1, at.Offset+1
	if err := e.Items.Settle(e.Ctx, custodytest.Worker, []custody.Settled{{Settlement: s, AtMS: e.Clock().UnixMilli()}}); err != nil {
		t.Fatal(err)
	}
}

func TestAnItemIsConfirmedWhenSettledAndCommittedInAnyOrder(t *testing.T) {
	admit := func(t *testing.T, e *custodytest.Env) { e.Admit(t, 1, 2) }
	settled := func(t *testing.T, e *custodytest.Env) { settleOnly(t, e, e.Letter(1).At, pipeline.DeadLettered) }
	committed := func(t *testing.T, e *custodytest.Env) {
		at := e.Letter(1).At
		if err := e.Items.Committed(e.Ctx, custodytest.Worker, "billing-event-processor", map[pipeline.TP]int64{at.TP: 2}); err != nil {
			t.Fatal(err)
		}
	}
	for name, steps := range map[string][]func(*testing.T, *custodytest.Env){
		"letter, settlement, commit": {admit, settled, committed},
		"letter, commit, settlement": {admit, committed, settled},
		"settlement, letter, commit": {settled, admit, committed},
		"settlement, commit, letter": {settled, committed, admit},
		"commit, letter, settlement": {committed, admit, settled},
		"commit, settlement, letter": {committed, settled, admit},
	} {
		t.Run(name, func(t *testing.T) {
			custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
				e.Turn(time.Minute)
				for i, step := range steps {
					step(t, e)
					f, err := e.Items.Find(e.Ctx, custodytest.Operator, custody.Selection{}, custody.Page{})
					if err != nil {
						t.Fatal(err)
					}
					if len(f.Items) == 1 && (f.Items[0].Confirmed == custody.IsConfirmed) != (i == 2) {
						t.Fatalf("after step %d: confirmed %s", i+1, f.Items[0].Confirmed)
					}
				}
				waiting, err := e.Items.Waiting(e.Ctx)
				if err != nil || len(waiting) != 0 {
					t.Fatal(waiting, err)
				}
			})
		})
	}
}

func TestARecordThatSucceedsLaterClosesItsItem(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		ids := e.Admit(t, 0, 9)
		e.Triage(t, ids[3:]...)
		if _, err := e.Items.Hold(e.Ctx, custodytest.Operator, custody.One(ids[6]), "wait"); err != nil {
			t.Fatal(err)
		}
		if err := e.Items.Within(e.Ctx, func(tx *ledger.Tx) error {
			_, _, err := e.Items.Intend(tx, custodytest.Operator, &custody.Intent{Manifest: manifest}, ids[7:8], custody.Accept{Unconfirmed: true})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		// A settlement older than the letters says nothing about them.
		settle(t, e, e.Letter(0).At, pipeline.Delivered)
		if s := e.Show(t, ids[0]); s.Item.State != custody.DeadLettered {
			t.Fatal(s.Item.State)
		}
		e.Turn(time.Hour)
		for n := range int64(8) {
			settle(t, e, e.Letter(n).At, pipeline.Delivered)
		}
		settle(t, e, e.Letter(8).At, pipeline.Retried)
		want := []custody.State{custody.Reconciled, custody.Reconciled, custody.Reconciled, custody.Reconciled, custody.Reconciled, custody.Reconciled, custody.Reconciled, custody.Redriving, custody.Triaged}
		for i, id := range ids {
			it := e.Show(t, id).Item
			if it.State != want[i] || it.State == custody.Reconciled && it.Resolution != "delivered_live" {
				t.Errorf("%d is %s %s, want %s", i, it.State, it.Resolution, want[i])
			}
		}
		// The re-poll came first, and its settlement: the letter that the crashed pass had written closes at once.
		late := e.Letter(30)
		e.Turn(time.Hour)
		settle(t, e, late.At, pipeline.Delivered)
		if _, err := e.Items.Admit(e.Ctx, custodytest.Worker, []custody.Arrival{custodytest.Arrival(late, 30)}); err != nil {
			t.Fatal(err)
		}
		if it := e.Show(t, late.Item).Item; it.State != custody.Reconciled || it.Resolution != "delivered_live" {
			t.Fatalf("%+v", it)
		}
		mustVerify(t, e)
	})
}

func TestSettlementsThatFollowEachOtherAreOneRow(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		tp := pipeline.TP{Topic: "billing.invoices.v1", Partition: 1}
		for n := int64(0); n < 60; n++ {
			d := pipeline.Delivered
			if n == 31 {
				d = pipeline.DeadLettered
			}
			settleOnly(t, e, pipeline.Position{TP: tp, Offset: n}, d)
		}
		var rows int
		if err := e.Store.SQL(t).QueryRow("SELECT count(*) FROM settlements").Scan(&rows); err != nil || rows != 1 {
			t.Fatal(rows, err)
		}
		e.Admit(t, 31, 32)
		if it := e.Show(t, e.Letter(31).Item).Item; it.Confirmed != custody.SettledOnly {
			t.Fatal(it.Confirmed)
		}
	})
}

func TestOutcomesApplyOnlyToTheCurrentTry(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		ids := e.Admit(t, 0, 8)
		e.Triage(t, ids...)
		if err := e.Items.Within(e.Ctx, func(tx *ledger.Tx) error {
			if err := tx.Insert("manifests", []string{"digest", "tenant", "pipeline", "requester", "ticket", "state", "run", "reconcile", "destination", "snapshot", "items", "bytes", "created_ms", "changed_ms", "body", "dry_run", "dry_run_ms", "detail", "rev"},
				[][]any{{"sha256:here", "acme", "billing", "ana", "OPS-1", "running", "r1", custody.ReconcileHere, "t", "s", 1, 1, 1, 1, []byte("{}"), "", 0, "", 1}}); err != nil {
				return err
			}
			_, _, err := e.Items.Intend(tx, custodytest.Operator, &custody.Intent{Manifest: manifest}, ids[:6], custody.Accept{Unconfirmed: true})
			if err == nil {
				_, _, err = e.Items.Intend(tx, custodytest.Operator, &custody.Intent{Manifest: "sha256:here"}, ids[6:7], custody.Accept{Unconfirmed: true})
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		o := func(i int, m pipeline.Digest, try uint16, r pipeline.Result) custody.TakenOutcome {
			return custody.TakenOutcome{Outcome: pipeline.Outcome{Item: ids[i], Redrive: m, Try: try, Result: r, Writer: "w", EffectRef: "row 5"}}
		}
		stranger := o(5, manifest, 1, pipeline.Applied)
		stranger.Consumer = "somebody-else"
		err := e.Items.Outcomes(e.Ctx, custodytest.Worker, []custody.TakenOutcome{
			o(0, manifest, 1, pipeline.Forwarded), o(1, manifest, 1, pipeline.Superseded), o(2, manifest, 1, pipeline.FailedOutcome), o(3, manifest, 2, pipeline.Applied), o(4, "sha256:old", 1, pipeline.Applied),
			stranger, o(6, "sha256:here", 1, pipeline.Forwarded), o(7, manifest, 1, pipeline.Applied), {Outcome: pipeline.Outcome{Item: "qnone", Result: pipeline.Applied}}})
		if err != nil {
			t.Fatal(err)
		}
		want := []custody.State{custody.Redriving, custody.Reconciled, custody.Triaged, custody.Redriving, custody.Redriving, custody.Redriving, custody.Reconciled, custody.Triaged}
		for i, id := range ids {
			s := e.Show(t, id)
			if s.Item.State != want[i] || len(s.Outcomes) != 1 || s.Outcomes[0].EffectRef != "row 5" {
				t.Errorf("%d is %s, want %s, %+v", i, s.Item.State, want[i], s.Outcomes)
			}
		}
		if r := e.Show(t, ids[6]).Item.Resolution; r != "applied" {
			t.Error(r)
		}
		mustVerify(t, e)
	})
}

func TestAParkedRecordFailsWhenItsTurnComes(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		parked := *e.Letter(4)
		parked.Kind, parked.Behind, parked.Failure, parked.Class, parked.Fingerprint = deadletter.KindParked, "qfirst", pipeline.Failure{}, 0, ""
		if _, err := e.Items.Admit(e.Ctx, custodytest.Worker, []custody.Arrival{custodytest.Arrival(&parked, 1)}); err != nil {
			t.Fatal(err)
		}
		if it := e.Show(t, parked.Item).Item; it.State != custody.Parked {
			t.Fatal(it.State)
		}
		if _, err := e.Items.Triage(e.Ctx, custodytest.Operator, custody.One(parked.Item), "T"); pipeline.CodeOf(err) != pipeline.CodeStateInvalid {
			t.Fatal(err)
		}
		if _, err := e.Items.Admit(e.Ctx, custodytest.Worker, []custody.Arrival{custodytest.Arrival(e.Letter(4), 2)}); err != nil {
			t.Fatal(err)
		}
		s := e.Show(t, parked.Item)
		if s.Item.State != custody.DeadLettered || s.Item.Code != pipeline.CodeDecodeTruncated || s.Item.Fingerprint != e.Letter(4).Fingerprint || s.History[0].Detail["behind"] != "qfirst" {
			t.Fatalf("%+v", s.Item)
		}
		mustVerify(t, e)
	})
}
