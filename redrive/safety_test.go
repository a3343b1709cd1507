package redrive

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/custody/custodytest"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/seal"
)

func same(int64, *deadletter.Letter) {}

func TestASignatureCountsOnce(t *testing.T) {
	b := newBench(t, sqliteStore(t))
	b.ready(3)
	p := b.plan()
	if _, err := b.svc.DryRun(b.Ctx, custodytest.Operator, p.Digest); err != nil {
		t.Fatal(err)
	}
	signed := Sign(b.signer, p.Digest, "approver", 8000, b.Clock().Add(time.Hour))
	if err := b.svc.Approve(b.Ctx, b.anton, signed); err != nil {
		t.Fatal(err)
	}
	wantCode(t, b.svc.Approve(b.Ctx, b.anton, signed), pipeline.CodeApprovalInvalid)
	if err := b.svc.Revoke(b.Ctx, b.anton, p.Digest, "wrong day"); err != nil {
		t.Fatal(err)
	}
	wantCode(t, b.svc.Approve(b.Ctx, b.anton, signed), pipeline.CodeApprovalInvalid) // a revoked one does not come back
	_, err := b.svc.Run(b.Ctx, custodytest.Operator, p.Digest)
	wantCode(t, err, pipeline.CodeApprovalRevoked)
	if err := b.svc.Approve(b.Ctx, b.anton, Sign(b.signer, p.Digest, "approver", 8000, b.Clock().Add(2*time.Hour))); err != nil {
		t.Fatal(err)
	}
	if st := b.run(p); st.State != StateDone {
		t.Errorf("%s %+v", st.State, st.Counts)
	}
}

// An item that comes back again and again finds its own item each time, and after that only a person sends it, alone.
func TestLoopGuardLeavesTheItemToAPerson(t *testing.T) {
	b := newBench(t, sqliteStore(t))
	ids := b.ready(2)
	stubborn := ids[0]
	b.outcome = func(tr *pipeline.Trail) pipeline.Result {
		if tr.Item == stubborn {
			return ""
		}
		return pipeline.Forwarded
	}
	b.onWait = func(time.Duration) {
		if it := b.Show(t, stubborn).Item; it.State == custody.Redriving {
			for p := range int32(3) {
				for _, r := range b.kafka.Records(pipeline.TP{Topic: retry, Partition: p}) {
					if tr, _, err := deadletter.ParseTrail(retry, &r, b.Ring); err == nil && tr.Item == stubborn && !b.seen[pipeline.Position{TP: pipeline.TP{Topic: retry, Partition: p}, Offset: r.Offset}] {
						b.comesBack(stubborn, pipeline.CodeDecodeTruncated)
						return
					}
				}
			}
		}
	}
	for try := 1; try <= maxTries; try++ {
		p := b.plan(func(r *PlanRequest) { r.Stop = &Stop{Failures: 100, Duplicates: -1} })
		b.approve(p)
		_, err := b.svc.Run(b.Ctx, custodytest.Operator, p.Digest)
		if err != nil && pipeline.CodeOf(err) != pipeline.CodeRedriveThreshold { // a canary that fails again stops the run
			t.Fatal(err)
		}
		if it := b.Show(t, stubborn).Item; it.State != custody.Triaged || int(it.Try) != try {
			t.Fatalf("after try %d: %s, try %d", try, it.State, it.Try)
		}
		if n := countItems(t, b); n != 2 {
			t.Fatalf("%d items: a record that came back made one of its own", n)
		}
	}
	plan := func(with func(*PlanRequest)) (*Planned, error) {
		return b.svc.Plan(b.Ctx, custodytest.Operator, b.request(with))
	}
	p, err := plan(func(*PlanRequest) {})
	wantCode(t, err, pipeline.CodeManifestEmpty)
	if p == nil || !slices.ContainsFunc(p.Excluded, func(x Excluded) bool { return x.Code == pipeline.CodeLoop }) {
		t.Errorf("the reason is not named: %+v", p)
	}
	_, err = plan(func(r *PlanRequest) { r.Loop = accepted }) // two items: not alone
	wantCode(t, err, pipeline.CodeManifestEmpty)
	s := b.snapshot("id=" + string(stubborn))
	p, err = b.svc.Plan(b.Ctx, custodytest.Operator, PlanRequest{Pipeline: "billing", Snapshot: s.ID, Count: 1, Ticket: "OPS-1", Loop: accepted})
	if err != nil || len(b.lines(p)) != 1 || p.Manifest.Loop != accepted {
		t.Fatalf("a person alone may send it: %v", err)
	}
}

func countItems(t *testing.T, b *bench) (n int) {
	t.Helper()
	if err := b.DB.Read(b.Ctx, func(tx *ledger.Tx) error {
		_, err := tx.Row("SELECT count(*) FROM items", nil, &n)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestQuotasOfTenantAndDestinationHold(t *testing.T) {
	for name, row := range map[string]string{"Tenant": "tenant/acme", "Destination": "destination/" + retry} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, sqliteStore(t))
			b.target.Quotas = map[string]Rate{row: 20, "tenant/globex": 1}
			b.ready(50)
			p := b.plan(func(r *PlanRequest) { r.Rate = 6400 })
			if p.Manifest.Pace.Quotas[row] != "20/s" || len(p.Manifest.Pace.Quotas) != 1 {
				t.Errorf("the manifest says %v", p.Manifest.Pace.Quotas)
			}
			b.approve(p)
			b.run(p)
			var at []time.Time
			for _, r := range b.kafka.All(retry) {
				at = append(at, time.UnixMilli(r.TimeMS))
			}
			slices.SortFunc(at, time.Time.Compare)
			if len(at) != 50 || busiest(at) > 20 {
				t.Errorf("%d records, %d in the busiest second", len(at), busiest(at))
			}
		})
	}
}

func TestAllRedrivesShareThePlatformsBound(t *testing.T) {
	b := newBench(t, sqliteStore(t), func(o *Options) { o.Bound = 50 })
	other := *b.target
	other.Pipeline = "adjustments"
	var at []time.Time
	for range 60 {
		for _, target := range []*Target{b.target, &other} {
			m := &Manifest{Pipeline: target.Pipeline, Tenant: "acme", Pace: Pace{Rate: "50/s"}}
			rows, err := b.svc.rows(target, m, pipeline.Digest("sha256:"+target.Pipeline), 50)
			if err != nil {
				t.Fatal(err)
			}
			if err := b.DB.Write(b.Ctx, func(tx *ledger.Tx) error {
				slot, err := take(tx, b.Clock(), 1, rows...)
				at = append(at, slot)
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	slices.SortFunc(at, time.Time.Compare)
	if n := busiest(at); n > 50 {
		t.Errorf("two pipelines sent %d in one second", n)
	}
}

func TestCompensationNeedsAContractAndTwoPeople(t *testing.T) {
	for name, c := range map[string]struct {
		reconcile string
		dual      bool
		ask       bool
		code      pipeline.Code
	}{
		"NoContract":        {"here", true, false, pipeline.CodeCompensation},
		"PersonOnly":        {"person", true, false, pipeline.CodeCompensation},
		"QuestionMissing":   {"http", true, false, pipeline.CodeCompensation},
		"OnePerson":         {"outcomes", false, false, pipeline.CodeCompensation},
		"SignedOutcomes":    {"outcomes", true, false, ""},
		"QuestionAndPeople": {"http", true, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, sqliteStore(t))
			b.ready(2)
			b.target.Reconcile, b.target.Dual = c.reconcile, c.dual
			if c.ask {
				b.target.Ask = func(context.Context, *custody.Item) (Answer, error) { return Answer{Result: pipeline.Absent}, nil }
			}
			p := b.plan()
			b.approve(p)
			b.target.Compensates = true
			_, err := b.svc.Plan(b.Ctx, custodytest.Operator, b.request())
			wantCode(t, err, c.code)
			if c.code != "" { // a plan from before does not run either
				_, err = b.svc.Run(b.Ctx, custodytest.Operator, p.Digest)
				wantCode(t, err, c.code)
				if b.sentCount() != 0 {
					t.Errorf("%d records were sent", b.sentCount())
				}
			}
		})
	}
}

// provider is an effect that can be asked about.
type provider struct {
	mu     sync.Mutex
	says   map[pipeline.ID]pipeline.Result
	asked  map[pipeline.ID]int
	effect map[pipeline.ID]map[string]string
}

func (p *provider) ask(_ context.Context, it *custody.Item) (Answer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked[it.ID]++
	if r, ok := p.says[it.ID]; ok {
		return Answer{Result: r, Evidence: "provider says " + string(r), Effect: p.effect[it.ID]}, nil
	}
	return Answer{Result: pipeline.UnknownOutcome}, nil
}

func (p *provider) say(id pipeline.ID, r pipeline.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.says[id] = r
}

// An effect that may exist is asked about before a send: what is there is closed, what is absent is sent, the rest is a person's.
func TestAmbiguousItemsAreAskedAboutFirst(t *testing.T) {
	b := newBench(t, sqliteStore(t))
	ambiguous := func(_ int64, l *deadletter.Letter) {
		l.Class, l.Failure.Code = pipeline.Ambiguous, pipeline.CodeHTTPAmbiguous
		l.Decision.Code = l.Failure.Code
	}
	ids := b.letters(0, 4, ambiguous)
	_, err := b.svc.Plan(b.Ctx, custodytest.Operator, b.request())
	wantCode(t, err, pipeline.CodeManifestEmpty) // nobody can be asked
	plain := b.letters(4, 6, same)
	pr := &provider{says: map[pipeline.ID]pipeline.Result{ids[0]: pipeline.Applied, ids[1]: pipeline.Absent, ids[2]: pipeline.Superseded}, asked: map[pipeline.ID]int{}}
	b.target.Reconcile, b.target.Ask = "http", pr.ask
	b.outcome = func(tr *pipeline.Trail) pipeline.Result {
		pr.say(tr.Item, pipeline.Applied) // the effect
		return pipeline.Forwarded
	}
	p := b.plan()
	if len(b.lines(p)) != 6 {
		t.Fatalf("%d lines, excluded %v", len(b.lines(p)), p.Excluded)
	}
	r, err := b.svc.DryRun(b.Ctx, custodytest.Operator, p.Digest)
	if err != nil || r.Asked != 4 {
		t.Fatalf("%v, %d asked", err, r.Asked)
	}
	b.approve(p)
	st := b.run(p)
	if st.State != StatePartial || st.Counts.Reconciled != 5 || st.Counts.Skipped != 1 {
		t.Errorf("%s %q %+v", st.State, st.Detail, st.Counts)
	}
	if b.sentCount() != 3 {
		t.Errorf("%d records were sent", b.sentCount())
	}
	for id, want := range map[pipeline.ID]struct {
		state      custody.State
		resolution string
		try        uint16
	}{ids[0]: {custody.Reconciled, "already_applied", 0}, ids[1]: {custody.Reconciled, "applied", 1}, ids[2]: {custody.Reconciled, "superseded", 0}, ids[3]: {custody.Triaged, "", 0}, plain[0]: {custody.Reconciled, "applied", 1}} {
		if it := b.Show(t, id).Item; it.State != want.state || it.Resolution != want.resolution || it.Try != want.try {
			t.Errorf("%s is %s %q, try %d; want %+v", id, it.State, it.Resolution, it.Try, want)
		}
	}
}

// After a send, absent contradicts the lane that delivered: redrives halt. The item comes back under its own id, and once two people
// have looked, the next plan sends it without another question.
func TestAbsentAfterASendIsSentAgainWithTheSameID(t *testing.T) {
	b := newBench(t, sqliteStore(t))
	ids := b.ready(2)
	pr := &provider{says: map[pipeline.ID]pipeline.Result{ids[0]: pipeline.Applied, ids[1]: pipeline.Absent}, asked: map[pipeline.ID]int{}}
	b.target.Reconcile, b.target.Ask = "http", pr.ask
	p := b.plan(func(r *PlanRequest) { r.Canary = 1 })
	b.approve(p)
	if _, err := b.svc.Run(b.Ctx, custodytest.Operator, p.Digest); pipeline.CodeOf(err) != pipeline.CodeRedriveMismatch {
		t.Fatal(err)
	}
	st, err := b.svc.Status(b.Ctx, custodytest.Operator, p.Digest)
	if err != nil || st.State != StateMismatch || st.Counts.Reconciled != 1 || st.Counts.Returned != 1 || st.Halt == nil {
		t.Fatalf("%v %s %q %+v", err, st.State, st.Detail, st.Counts)
	}
	if pr.asked[ids[1]] < 2 {
		t.Error("absent was final at once: an effect may be on its way")
	}
	if err := b.svc.Lift(b.Ctx, custodytest.Admin, "billing", "the provider lost one and has mended it"); err != nil {
		t.Fatal(err)
	}
	b.target.Horizon = Horizon{} // unknown by now: the answer stands for it
	pr.say(ids[1], pipeline.Absent)
	p = b.plan()
	if len(b.lines(p)) != 1 || b.lines(p)[0].Item != ids[1] || b.lines(p)[0].Ask {
		t.Fatalf("%+v %v", b.lines(p), p.Excluded)
	}
	b.approve(p)
	b.outcome = func(tr *pipeline.Trail) pipeline.Result {
		pr.say(tr.Item, pipeline.Applied)
		return pipeline.Forwarded
	}
	if st := b.run(p); st.State != StateDone {
		t.Fatalf("%s %q %+v", st.State, st.Detail, st.Counts)
	}
	if it := b.Show(t, ids[1]).Item; it.Try != 2 || it.EventID != "ev-1" {
		t.Errorf("try %d as %s", it.Try, it.EventID)
	}
}

func TestEffectsAreMeasuredAgainstTheirRecords(t *testing.T) {
	for name, c := range map[string]struct {
		effect string
		code   pipeline.Code
	}{"Agree": {"101", ""}, "Twice": {"202", pipeline.CodeRedriveMismatch}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, sqliteStore(t))
			b.target.Measures = []Measure{{Name: "amount", CEL: "view.amount_minor"}}
			ids := b.ready(2)
			pr := &provider{says: map[pipeline.ID]pipeline.Result{ids[0]: pipeline.Applied, ids[1]: pipeline.Applied}, asked: map[pipeline.ID]int{},
				effect: map[pipeline.ID]map[string]string{ids[0]: {"amount": "100"}, ids[1]: {"amount": c.effect}}}
			b.target.Reconcile, b.target.Ask = "http", pr.ask
			p := b.plan()
			b.approve(p)
			_, err := b.svc.Run(b.Ctx, custodytest.Operator, p.Digest)
			wantCode(t, err, c.code)
			st, err := b.svc.Status(b.Ctx, custodytest.Operator, p.Digest)
			if err != nil || (st.Halt != nil) != (c.code != "") {
				t.Errorf("%v, halt %+v, %s", err, st.Halt, st.Detail)
			}
		})
	}
}

func TestAnOlderStateIsSupersededAndADeltaIsAppliedExactly(t *testing.T) {
	for name, state := range map[string]bool{"State": true, "Delta": false} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, sqliteStore(t))
			b.target.State = state
			ids := b.letters(0, 9, func(n int64, l *deadletter.Letter) {
				l.Identity.Entity = "acct-" + decimal(n%3)
				l.Identity.Version = decimal(9 + n) // "10" is newer than "9"
				l.Key = []byte(l.Identity.Entity)
			})
			p := b.plan()
			b.approve(p)
			st := b.run(p)
			if st.State != StateDone || st.Counts.Reconciled != 9 {
				t.Fatalf("%s %q %+v", st.State, st.Detail, st.Counts)
			}
			sent := 9
			if state {
				sent = 3
			}
			if b.sentCount() != sent {
				t.Errorf("%d records were sent, want %d", b.sentCount(), sent)
			}
			for n, id := range ids {
				want := "applied"
				if state && n < 6 {
					want = "superseded"
				}
				if it := b.Show(t, id).Item; it.Resolution != want {
					t.Errorf("version %d of %s is %s %q", 9+n, it.Entity, it.State, it.Resolution)
				}
			}
			if !state {
				return
			}
			// One that arrives late, older than what has its effect, is not sent either.
			late := b.letters(9, 10, func(_ int64, l *deadletter.Letter) {
				l.Identity.Entity, l.Identity.Version = "acct-0", "3"
			})[0]
			p = b.plan()
			b.approve(p)
			if st := b.run(p); st.State != StateDone || b.sentCount() != sent || b.Show(t, late).Item.Resolution != "superseded" {
				t.Errorf("%s %q %+v, %d sent", st.State, st.Detail, st.Counts, b.sentCount())
			}
		})
	}
}

func TestANewLogicalIDTakesASecondApproval(t *testing.T) {
	berta, err := seal.GenerateSigner("berta")
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, sqliteStore(t), func(o *Options) {
		o.Approvers = append(o.Approvers, Approver{Key: berta.Verifier(), Roles: []string{"approver"}})
	})
	ids := b.letters(0, 2, func(n int64, l *deadletter.Letter) {
		l.Value = []byte(`{"event_id":"ev-` + decimal(n) + `","cents":1}`)
	})
	if _, err := b.svc.Repair(b.Ctx, custodytest.Operator, RepairRequest{Pipeline: "billing", Items: ids[:1], Ref: "set@1.0.0", Config: []byte(`{"values":{"/event_id":"ev-new"}}`), Intent: "the producer used one id twice", Change: []string{"event_id"}}); err != nil {
		t.Fatal(err)
	}
	p := b.plan()
	if len(b.lines(p)) != 1 || len(p.Excluded) != 1 || p.Excluded[0].Code != pipeline.CodeRedriveIdentity {
		t.Fatalf("a new id went into a plan that keeps ids: %+v", p.Excluded)
	}
	_, err = b.svc.Plan(b.Ctx, custodytest.Operator, b.request(func(r *PlanRequest) { r.Identity = "new" }))
	wantCode(t, err, pipeline.CodeReasonMissing)
	p = b.plan(func(r *PlanRequest) { r.Identity, r.Intent = "new", "the producer used one id twice" })
	b.approve(p)
	_, err = b.svc.Run(b.Ctx, custodytest.Operator, p.Digest)
	wantCode(t, err, pipeline.CodeApprovalMissing)
	if err := b.svc.Approve(b.Ctx, b.anton, Sign(b.signer, p.Digest, "approver", 8000, b.Clock().Add(2*time.Hour))); err != nil {
		t.Fatal(err)
	}
	_, err = b.svc.Run(b.Ctx, custodytest.Operator, p.Digest) // one person twice is one person
	wantCode(t, err, pipeline.CodeApprovalMissing)
	asBerta := custody.Actor{Subject: "berta", Roles: []string{"approver"}, Tenants: []string{custody.AllTenants}, Via: "cli"}
	if err := b.svc.Approve(b.Ctx, asBerta, Sign(berta, p.Digest, "approver", 8000, b.Clock().Add(time.Hour))); err != nil {
		t.Fatal(err)
	}
	if st := b.run(p); st.State != StateDone {
		t.Fatalf("%s %+v", st.State, st.Counts)
	}
	events := map[string]pipeline.ID{}
	for _, r := range b.kafka.All(retry) {
		tr, id, err := deadletter.ParseTrail(retry, &r, b.Ring)
		if err != nil {
			t.Fatal(err)
		}
		events[id.EventID] = tr.Item
	}
	if events["ev-new"] != ids[0] || events["ev-1"] != ids[1] || len(events) != 2 {
		t.Errorf("sent as %v: the new id must lead to its item, the other stay", events)
	}
}

// A redrive steps back while live records wait, says so, and goes on by itself.
func TestRedriveYieldsToLiveRecords(t *testing.T) {
	for name, c := range map[string]struct {
		yield Yield
		said  string
	}{
		"Lag":     {Yield{Lag: 100}, "yields to 500 live records that wait, more than 100"},
		"Latency": {Yield{Latency: 3 * time.Second}, "yields to live records: the oldest has waited for "},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, sqliteStore(t))
			b.target.Yield = c.yield
			b.ready(300)
			p := b.plan(func(r *PlanRequest) { r.Rate = 50 })
			b.approve(p)
			flooded, looks, at, said := false, 0, 0, ""
			b.onWait = func(time.Duration) {
				n := b.sentCount()
				switch {
				case !flooded && n >= 20:
					flooded = true
					b.live(0, 500)
				case flooded && said == "":
					st, err := b.svc.Status(b.Ctx, custodytest.Operator, p.Digest)
					if err != nil {
						t.Fatal(err)
					}
					said, at = st.Detail, n
				case said != "" && looks < 30:
					if looks++; looks == 30 {
						if n != at || n == 300 {
							t.Errorf("%d records were sent while live records waited", n-at)
						}
						b.commitLive()
					}
				}
			}
			st := b.run(p)
			if st.State != StateDone || looks != 30 || !strings.HasPrefix(said, c.said) || !strings.HasPrefix(st.Detail, "300 of 300") {
				t.Errorf("%s %q %+v, %d looks, said %q", st.State, st.Detail, st.Counts, looks, said)
			}
		})
	}
}

// Each of what a redrive rests on expires by itself: it is blocked, or reconciled, with a code of its own.
func TestWhatExpiresBlocksByItsOwnCode(t *testing.T) {
	t.Run("Inbox", func(t *testing.T) {
		b := newBench(t, sqliteStore(t))
		b.ready(1)
		b.target.Horizon = Horizon{Known: true, For: time.Minute}
		b.Turn(time.Hour)
		p, err := b.svc.Plan(b.Ctx, custodytest.Operator, b.request())
		wantCode(t, err, pipeline.CodeManifestEmpty)
		if p == nil || len(p.Excluded) != 1 || p.Excluded[0].Code != pipeline.CodeRedriveHorizon {
			t.Errorf("%+v", p)
		}
	})
	t.Run("Payload", func(t *testing.T) {
		store := sqliteStore(t)
		b := newBench(t, store)
		ids := b.ready(2)
		p := b.plan(func(r *PlanRequest) { r.Stop = &Stop{Failures: 5, Duplicates: -1} })
		b.approve(p)
		if _, err := store.SQL(t).Exec("DELETE FROM payloads WHERE item = '" + string(ids[0]) + "'"); err != nil {
			t.Fatal(err)
		}
		st := b.run(p)
		if st.State != StatePartial || st.Counts.Unsendable != 1 || codeOf(t, b, p, ids[0]) != pipeline.CodePayloadMissing {
			t.Errorf("%s %+v %s", st.State, st.Counts, codeOf(t, b, p, ids[0]))
		}
	})
	t.Run("Key", func(t *testing.T) {
		store := sqliteStore(t)
		b := newBench(t, store)
		ids := b.ready(2)
		p := b.plan(func(r *PlanRequest) { r.Stop = &Stop{Failures: 5, Duplicates: -1} })
		b.approve(p)
		if _, err := store.SQL(t).Exec("UPDATE items SET enc = 'hpke1;gone;AAAA' WHERE id = '" + string(ids[0]) + "'"); err != nil {
			t.Fatal(err)
		}
		st := b.run(p)
		if st.State != StatePartial || st.Counts.Unsendable != 1 || codeOf(t, b, p, ids[0]) != pipeline.CodeKeyUnknown {
			t.Errorf("%s %+v %s", st.State, st.Counts, codeOf(t, b, p, ids[0]))
		}
	})
}

func codeOf(t *testing.T, b *bench, p *Planned, id pipeline.ID) (code pipeline.Code) {
	t.Helper()
	if err := b.DB.Read(b.Ctx, func(tx *ledger.Tx) error {
		_, err := tx.Row("SELECT code FROM manifest_items WHERE manifest = ? AND item = ?", []any{p.Digest, id}, &code)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return code
}
