package redrive

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/custody/custodytest"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/seal"
	"reprieve.dev/tests/conformance/script"
)

func digestOf(b []byte) string { return seal.SHA256(b) }

// commit makes the pipeline's group have committed the whole retry topic.
func (b *bench) commit() {
	b.t.Helper()
	src := b.kafka.Source(script.SourceOptions{Group: "billing-event-processor", Topics: []string{retry}})
	defer src.Close()
	for {
		ev, err := src.Poll(0)
		if err != nil {
			b.t.Fatal(err)
		}
		if a, ok := ev.(pipeline.Assigned); ok {
			cps := map[pipeline.TP]pipeline.Checkpoint{}
			for _, tp := range a.TPs {
				cps[tp] = pipeline.Checkpoint{Next: int64(len(b.kafka.Records(tp))), InFlight: -1}
			}
			if err := src.Commit(cps); err != nil {
				b.t.Fatal(err)
			}
			return
		}
	}
}

// An item that was sent and settled, and of which nothing was ever heard, trips the halt; but only when the custodian has read
// everything that could have spoken of it.
func TestSilentItemTripsTheHalt(t *testing.T) {
	b := newBench(t, sqliteStore(t), func(o *Options) {
		o.Settle = 10 * time.Second
		o.ClusterID = func(_ context.Context, name string) (string, error) { return "id-of-" + name, nil }
	})
	ids := b.ready(30)
	p := b.plan()
	b.approve(p)
	lost := ids[29]
	b.outcome = func(tr *pipeline.Trail) pipeline.Result {
		if tr.Item == lost {
			return ""
		}
		return pipeline.Forwarded
	}
	// The outcome topic ends at 1, and the custodian has not read it.
	b.kafka.Append(pipeline.TP{Topic: "reprieve.outcomes"}, pipeline.Record{Value: []byte("{}")})
	st := b.run(p)
	if st.State != StateSettling || st.Counts.Sent != 1 {
		t.Fatalf("before the retry lane has settled: %s %+v", st.State, st.Counts)
	}
	b.commit()
	st, err := b.svc.Judge(b.Ctx, custodytest.Operator, p.Digest)
	if err != nil || st.State != StateSettling {
		t.Fatalf("before the custodian has passed: %v %+v", err, st)
	}
	if err := b.DB.Write(b.Ctx, func(tx *ledger.Tx) error {
		_, err := tx.Exec("INSERT INTO intake_offsets (cluster, topic, partition, next, epoch) VALUES ('id-of-cluster-1', 'reprieve.outcomes', 0, 1, 1)")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	_, err = b.svc.Judge(b.Ctx, custodytest.Operator, p.Digest)
	wantCode(t, err, pipeline.CodeRedriveMismatch)
	if st, err = b.svc.Status(b.Ctx, custodytest.Operator, p.Digest); err != nil || st.State != StateMismatch || st.Halt == nil {
		t.Errorf("%v %+v", err, st)
	}
	other := b.letters2(30, 31)
	_, err = b.svc.Run(b.Ctx, custodytest.Operator, other.Digest)
	wantCode(t, err, pipeline.CodeRedriveHalted)
}

func TestJudgeAllEndsWhatIsComplete(t *testing.T) {
	b := newBench(t, sqliteStore(t), func(o *Options) { o.Settle = 2 * time.Second })
	ids := b.ready(12)
	p := b.plan()
	b.approve(p)
	late := ids[11]
	b.outcome = func(tr *pipeline.Trail) pipeline.Result {
		if tr.Item == late {
			return ""
		}
		return pipeline.Forwarded
	}
	if st := b.run(p); st.State != StateSettling {
		t.Fatalf("%s %+v", st.State, st.Counts)
	}
	if n, err := b.svc.JudgeAll(b.Ctx, custodytest.Operator); n != 0 || err != nil {
		t.Errorf("judged too early: %d, %v", n, err)
	}
	b.outcome = nil
	b.engine()
	if n, err := b.svc.JudgeAll(b.Ctx, custodytest.Operator); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if st, err := b.svc.Status(b.Ctx, custodytest.Operator, p.Digest); err != nil || st.State != StateDone {
		t.Errorf("%v %+v", err, st)
	}
}

func (b *bench) letters2(from, to int64) *Planned {
	ids := b.Admit(b.t, from, to)
	b.Confirm(b.t, from, to)
	b.Triage(b.t, ids...)
	p := b.plan()
	b.approve(p)
	return p
}

// With evidence that others give, the run waits for it, and the question is asked where there is one.
func TestForwardedIsNoEvidence(t *testing.T) {
	b := newBench(t, sqliteStore(t), func(o *Options) { o.Settle = 20 * time.Second })
	b.target.Reconcile = "http"
	ids := b.ready(4)
	p := b.plan()
	b.approve(p)
	st, err := b.svc.Status(b.Ctx, custodytest.Operator, p.Digest)
	if err != nil {
		t.Fatal(err)
	}
	absent := ids[0]
	for _, id := range ids {
		if !slices.Contains(st.DryRun.Canary, id) {
			absent = id
		}
	}
	st, err = b.svc.Run(b.Ctx, custodytest.Operator, p.Digest)
	wantCode(t, err, pipeline.CodeRedriveThreshold)
	if st.Counts.Forwarded == 0 || st.Counts.Reconciled != 0 {
		t.Fatalf("%s %+v", st.State, st.Counts)
	}
	var asked atomic.Int64
	b.target.Ask = func(_ context.Context, it *custody.Item) (Answer, error) {
		asked.Add(1)
		if it.ID == absent {
			return Answer{Result: pipeline.Absent, Evidence: "404"}, nil
		}
		return Answer{Result: pipeline.Applied, Evidence: "200"}, nil
	}
	st, err = b.svc.Run(b.Ctx, custodytest.Operator, p.Digest)
	wantCode(t, err, pipeline.CodeRedriveMismatch) // the lane says delivered, the provider says absent
	if asked.Load() < 4 || st.Counts.Reconciled != 3 || st.Counts.Returned != 1 {
		t.Errorf("%d asked, %s %+v", asked.Load(), st.State, st.Counts)
	}
	if it := b.Show(t, absent).Item; it.State != custody.Triaged {
		t.Errorf("the absent one is %s", it.State)
	}
}

func TestStopOrHaltWhileAwaitingEvidence(t *testing.T) {
	b := newBench(t, sqliteStore(t))
	b.ready(4)
	p := b.plan()
	b.approve(p)
	b.outcome = func(*pipeline.Trail) pipeline.Result { return "" }
	n := 0
	b.onWait = func(time.Duration) {
		if n++; n == 10 {
			if err := b.svc.Halt(b.Ctx, custodytest.Operator, "billing", "smoke"); err != nil {
				t.Error(err)
			}
		}
	}
	st, err := b.svc.Run(b.Ctx, custodytest.Operator, p.Digest)
	wantCode(t, err, pipeline.CodeRedriveHalted)
	if st.State != StateStopped {
		t.Errorf("it is %s", st.State)
	}
}

func TestRepairResultsPerItem(t *testing.T) {
	eachBench(t, func(t *testing.T, b *bench) {
		ids := b.ready(5)
		untriaged := b.Admit(t, 5, 6)[0]
		all := append(append([]pipeline.ID{}, ids...), untriaged, "qunknown", ids[0])
		r, err := b.svc.Repair(b.Ctx, custodytest.Operator, RepairRequest{Pipeline: "billing", Items: all, Ref: "json-patch@1.0.0",
			Config: []byte(`{"patch":[{"op":"test","path":"/amount_minor","value":102},{"op":"add","path":"/currency","value":"EUR"}]}`)})
		if err != nil {
			t.Fatal(err)
		}
		if r.Selected != 8 || r.Changed != 1 || r.Failed != 4 || r.Skipped != 3 || r.Changed+r.Failed+r.Skipped != r.Selected {
			t.Errorf("%+v", r)
		}
		for i, id := range ids {
			want, code := custody.Triaged, pipeline.CodeTransformFailed
			if i == 2 {
				want, code = custody.Repaired, ""
			}
			if it := b.Show(t, id).Item; it.State != want || r.Items[i].Code != code {
				t.Errorf("item %d: %s, %s", i, it.State, r.Items[i].Code)
			}
		}
		s := b.Show(t, ids[2])
		if len(s.Repairs) != 1 || s.Repairs[0].Transform != "json-patch" || s.Repairs[0].Before != s.Item.DigestFaithful {
			t.Errorf("lineage %+v", s.Repairs)
		}
		p := b.plan()
		dry, err := b.svc.DryRun(b.Ctx, custodytest.Operator, p.Digest)
		if err != nil {
			t.Fatal(err)
		}
		if dry.Repaired != 1 || dry.WouldSend != 5 || len(dry.CannotGo) != 0 {
			t.Errorf("%+v", dry)
		}
		b.approve(p)
		if st := b.run(p); st.State != StateDone {
			t.Errorf("%s %+v", st.State, st.Counts)
		}
		found := false
		for _, rec := range b.kafka.All(retry) {
			found = found || string(rec.Value) == `{"invoice_id":"INV-2","amount_minor":102,"currency":"EUR"}`
		}
		if !found {
			t.Error("the repaired bytes were not sent")
		}
	})
}

// Of two who selected the same items before either repaired them, the second repairs nothing unseen.
func TestARepairIsNotReplacedByAnOlderSelection(t *testing.T) {
	eachBench(t, func(t *testing.T, b *bench) {
		ids := b.ready(3)
		repair := func(s custody.Snapshot, currency string) *Repaired {
			t.Helper()
			b.Turn(time.Second)
			r, err := b.svc.Repair(b.Ctx, custodytest.Operator, RepairRequest{Pipeline: "billing", Snapshot: s.ID, Count: s.Count, Digest: string(s.Digest), Ref: "set@1.0.0",
				Config: []byte(`{"values":{"/currency":"` + currency + `"}}`)})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		first, second := b.snapshot("state=TRIAGED"), b.snapshot("state=TRIAGED")
		if r := repair(first, "EUR"); r.Changed != 3 {
			t.Fatalf("%+v", r)
		}
		if r := repair(second, "USD"); r.Changed != 0 || r.Skipped != 3 || r.Items[0].Code != pipeline.CodeStateChanged {
			t.Errorf("%+v", r)
		}
		if s := b.Show(t, ids[0]); len(s.Repairs) != 1 {
			t.Errorf("%d repairs", len(s.Repairs))
		}
		b.Turn(time.Second)
		if r := repair(b.snapshot("state=REPAIRED"), "USD"); r.Changed != 3 {
			t.Errorf("whoever saw the first repair makes it anew: %+v", r)
		}
	})
}

// A run that stopped because its canary came back can be closed; what it did not send is free for another plan.
func TestAFailedRunCanBeClosed(t *testing.T) {
	b := newBench(t, sqliteStore(t))
	b.ready(12)
	p := b.plan()
	b.approve(p)
	b.outcome = func(*pipeline.Trail) pipeline.Result { return pipeline.FailedOutcome }
	st, err := b.svc.Run(b.Ctx, custodytest.Operator, p.Digest)
	wantCode(t, err, pipeline.CodeRedriveThreshold)
	if !st.Failed() || st.Counts.Planned == 0 {
		t.Fatalf("%s %+v", st.State, st.Counts)
	}
	if err := b.svc.Deny(b.Ctx, b.anton, p.Digest, "the cause is not mended"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.svc.Run(b.Ctx, custodytest.Operator, p.Digest); err == nil {
		t.Error("it runs again")
	}
	again := b.plan()
	b.approve(again)
	b.outcome = nil
	if st := b.run(again); st.State != StateDone {
		t.Errorf("%s %+v", st.State, st.Counts)
	}
}

// A repair that is made anew between plan and run is not what was approved.
func TestRepairChangedAfterThePlanIsNotSent(t *testing.T) {
	b := newBench(t, sqliteStore(t))
	ids := b.ready(12)
	set := func(id pipeline.ID, config string) {
		t.Helper()
		if r, err := b.svc.Repair(b.Ctx, custodytest.Operator, RepairRequest{Pipeline: "billing", Items: []pipeline.ID{id}, Ref: "set@1.0.0", Config: []byte(config)}); err != nil || r.Changed != 1 {
			t.Fatal(err, r)
		}
	}
	set(ids[11], `{"values":{"/amount_minor":1}}`)
	p := b.plan()
	b.approve(p)
	set(ids[11], `{"values":{"/amount_minor":2}}`)
	st := b.run(p)
	if st.State != StatePartial || st.Counts.Reconciled != 11 || b.sentCount() != 11 {
		t.Errorf("%s %+v, %d sent", st.State, st.Counts, b.sentCount())
	}
}

func TestEveryRefusalIsAudited(t *testing.T) {
	b := newBench(t, sqliteStore(t))
	b.ready(2)
	p := b.plan()
	b.svc.Run(b.Ctx, custodytest.Operator, p.Digest)
	b.svc.Approve(b.Ctx, b.anton, Sign(b.signer, p.Digest, "approver", 8000, b.Clock().Add(time.Hour)))
	b.svc.Plan(b.Ctx, custodytest.Operator, b.request(func(r *PlanRequest) { r.Destination = source }))
	want := map[string]int{"ERR_DRY_RUN_REQUIRED": 2, "ERR_REDRIVE_PRIMARY": 1}
	if err := b.DB.Read(b.Ctx, func(tx *ledger.Tx) error {
		events, err := tx.Events(0, 1000, nil)
		for _, e := range events {
			if e.Event == "redrive_refused" {
				want[e.Detail["code"]]--
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for code, n := range want {
		if n != 0 {
			t.Errorf("%s: %d missing", code, n)
		}
	}
}
