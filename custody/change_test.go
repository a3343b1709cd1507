package custody_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"reprieve.dev/custody"
	"reprieve.dev/custody/custodytest"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

func selection(t testing.TB, text string) custody.Selection {
	t.Helper()
	s, err := custody.ParseSelection(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// 12 shown, 12,000 more arrive, one of the 12 is discarded: exactly the 12 are worked on, and what was skipped is said.
func TestCaseC46ABulkChangeDoesWhatWasSeen(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		ids := e.Admit(t, 0, 12)
		e.Triage(t, ids...)
		sel := selection(t, "class=payload")
		snap, err := e.Items.TakeSnapshot(e.Ctx, custodytest.Owner, sel)
		if err != nil || snap.Count != 12 {
			t.Fatal(snap, err)
		}
		for n := int64(12); n < 12_012; n += 2000 {
			e.Admit(t, n, n+2000)
		}
		if _, err := e.Items.Discard(e.Ctx, custodytest.Owner, custody.One(ids[3]), "test record", "mail of the producer"); err != nil {
			t.Fatal(err)
		}
		again, since, err := e.Items.ReadSnapshot(e.Ctx, custodytest.Owner, snap.ID)
		if err != nil || since != 12_000 || again.Digest != snap.Digest {
			t.Fatal(again, since, err)
		}
		for _, bad := range []struct {
			name string
			t    custody.Target
			code pipeline.Code
		}{
			{"only a filter", custody.Target{Selection: "class=payload"}, pipeline.CodeSnapshotRequired},
			{"nothing at all", custody.Target{}, pipeline.CodeSnapshotRequired},
			{"another count", custody.Target{Snapshot: snap.ID, Count: 12_012, Digest: snap.Digest}, pipeline.CodeSnapshotChanged},
			{"another digest", custody.Target{Snapshot: snap.ID, Count: 12, Digest: "sha256:00"}, pipeline.CodeSnapshotChanged},
			{"no such snapshot", custody.Target{Snapshot: "snone", Count: 12}, pipeline.CodeSelectionInvalid},
		} {
			if _, err := e.Items.Hold(e.Ctx, custodytest.Owner, bad.t, "wait"); pipeline.CodeOf(err) != bad.code {
				t.Errorf("%s: %v", bad.name, err)
			}
		}
		r, err := e.Items.Hold(e.Ctx, custodytest.Owner, custody.Of(snap), "wait")
		if err != nil {
			t.Fatal(err)
		}
		want := custody.Report{Selected: 12, Changed: 11, SkippedCount: 1, Skipped: []custody.Skip{{Item: ids[3], State: custody.Discarded, Code: pipeline.CodeStateInvalid}}, ByCode: map[pipeline.Code]int64{pipeline.CodeStateInvalid: 1}}
		if d := cmp.Diff(want, r, cmpopts.IgnoreFields(custody.Skip{}, "Text")); d != "" {
			t.Fatal(d)
		}
		if n, err := e.Items.Count(e.Ctx, custodytest.Owner, selection(t, "state=POLICY_HOLD")); n != 11 || err != nil {
			t.Fatal(n, err)
		}
		// Repeated after an interruption it finds its work done.
		r, err = e.Items.Hold(e.Ctx, custodytest.Owner, custody.Of(snap), "wait")
		if err != nil || r.Changed != 0 || r.SkippedCount != 12 {
			t.Fatal(r, err)
		}
		mustVerify(t, e)
	})
}

// Three of a group are discarded; a fourth of the same cause is its own open item, and the three do not come back.
func TestCaseC62DiscardDoesNotReachForward(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		ids := e.Admit(t, 0, 3)
		e.Triage(t, ids...)
		if r, err := e.Items.Discard(e.Ctx, custodytest.Owner, custody.Target{Items: ids}, "producer's test", "mail"); err != nil || r.Changed != 3 {
			t.Fatal(r, err)
		}
		fourth := e.Admit(t, 3, 4)[0]
		e.Confirm(t, 0, 4)
		if s := e.Show(t, fourth); s.Item.State != custody.DeadLettered {
			t.Fatal(s.Item.State)
		}
		e.Triage(t, fourth)
		snap, err := e.Items.TakeSnapshot(e.Ctx, custodytest.Operator, selection(t, "fingerprint="+string(e.Letter(0).Fingerprint)))
		if err != nil || snap.Count != 4 {
			t.Fatal(snap, err)
		}
		var ready []*custody.Item
		var skips []custody.Skip
		err = e.Items.SnapshotItems(e.Ctx, snap.ID, 100, func(all []pipeline.ID) error {
			return e.Items.Within(e.Ctx, func(tx *ledger.Tx) (err error) {
				ready, skips, err = e.Items.Intend(tx, custodytest.Operator, &custody.Intent{Manifest: manifest}, all, custody.Accept{})
				return err
			})
		})
		if err != nil || len(ready) != 1 || ready[0].ID != fourth || len(skips) != 3 || len(ready)+len(skips) != int(snap.Count) {
			t.Fatal(ready, skips, err)
		}
		for _, s := range skips {
			if s.State != custody.Discarded || s.Code != pipeline.CodeStateInvalid {
				t.Errorf("%+v", s)
			}
		}
		g, items, err := e.Items.Group(e.Ctx, custodytest.Operator, "acme", e.Letter(0).Fingerprint, 10)
		if err != nil || g.Counts[custody.Discarded] != 3 || g.Counts[custody.Redriving] != 1 || g.Open() != 1 || g.Total() != 4 || len(items) != 4 {
			t.Fatalf("%+v %v", g, err)
		}
	})
}

// A repair fails, a second one starts from the original bytes and is sent; identity and lineage are as listed.
func TestCaseC49ASecondRepairIsSent(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		id := e.Admit(t, 1, 2)[0]
		e.Confirm(t, 0, 2)
		e.Triage(t, id)
		original := e.Letter(1)
		repair := func(version, value string) {
			t.Helper()
			err := e.Items.Within(e.Ctx, func(tx *ledger.Tx) error {
				it, err := e.Items.Lock(tx, []pipeline.ID{id})
				if err != nil {
					return err
				}
				from, err := e.Items.Stored(tx, it[id])
				if err != nil {
					return err
				}
				if string(from.Value) != string(original.Value) {
					t.Errorf("repair %s starts from %s", version, from.Value)
				}
				_, skips, err := e.Items.StoreRepairs(tx, custodytest.Operator, []custody.NewRepair{{Bytes: custody.Bytes{Key: from.Key, Value: []byte(value)},
					StoredRepair: custody.StoredRepair{Item: id, Transform: "fix-cents", Version: version, Artifact: "sha256:" + pipeline.Digest(version), Before: it[id].DigestFaithful, Faithful: true}}})
				if len(skips) > 0 {
					t.Error(skips)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		redrive := func(m pipeline.Digest, want string) uint16 {
			t.Helper()
			var try uint16
			err := e.Items.Within(e.Ctx, func(tx *ledger.Tx) error {
				in := &custody.Intent{Manifest: m}
				ready, skips, err := e.Items.Intend(tx, custodytest.Operator, in, []pipeline.ID{id}, custody.Accept{})
				if err != nil || len(skips) > 0 {
					t.Fatal(skips, err)
				}
				b, lineage, err := e.Items.RepairedBytes(tx, ready[0])
				if err != nil || string(b.Value) != want || lineage.ID != ready[0].Repair {
					t.Errorf("%q %v", b.Value, err)
				}
				try = ready[0].Try
				return e.Items.CloseIntent(tx, in.ID, "sent")
			})
			if err != nil {
				t.Fatal(err)
			}
			return try
		}
		repair("1", "r1")
		try := redrive("sha256:m1", "r1")
		back := *original
		back.Redrive, back.Try, back.Failure.Code = "sha256:m1", try, pipeline.CodeSchemaMismatch
		back.At = pipeline.Position{TP: pipeline.TP{Topic: "billing.invoices.v1.retry"}, Offset: 5}
		back.DigestFaithful = pipeline.Digest(e.Identity.Digest([]byte("r1")))
		got, err := e.Items.Admit(e.Ctx, custodytest.Worker, []custody.Arrival{custodytest.Arrival(&back, 99)})
		if err != nil || got != (custody.Admitted{Seen: 1, Failed: 1}) {
			t.Fatal(got, err)
		}
		if s := e.Show(t, id); s.Item.Ticket != "OPS-1" || s.Item.State != custody.Triaged || s.Item.Confirmed != custody.Unconfirmed || s.Item.Flags != 0 {
			t.Fatalf("%+v", s.Item)
		}
		// The retry lane's settlement confirms the second failure.
		settle(t, e, back.At, pipeline.DeadLettered)
		repair("2", "r2")
		if try := redrive("sha256:m2", "r2"); try != 2 {
			t.Fatal(try)
		}
		outcome := custody.TakenOutcome{Outcome: pipeline.Outcome{Pipeline: "billing", Item: id, Redrive: "sha256:m2", Try: 2, Result: pipeline.Applied, Writer: "w"}}
		if err := e.Items.Outcomes(e.Ctx, custodytest.Worker, []custody.TakenOutcome{outcome, outcome}); err != nil {
			t.Fatal(err)
		}
		s := e.Show(t, id)
		if d := cmp.Diff([]custody.State{custody.Delivered, custody.DeadLettered, custody.Triaged, custody.Repaired, custody.Redriving, custody.RedriveFailed, custody.Triaged, custody.Repaired, custody.Redriving, custody.Reconciled}, custodytest.Path(s)); d != "" {
			t.Fatal(d)
		}
		lineage := []pipeline.Digest{s.Repairs[0].Before, s.Repairs[0].After, s.Repairs[1].Before, s.Repairs[1].After}
		digest := func(v string) pipeline.Digest { return pipeline.Digest(e.Identity.Digest([]byte(v))) }
		if d := cmp.Diff([]pipeline.Digest{original.DigestFaithful, digest("r1"), original.DigestFaithful, digest("r2")}, lineage); d != "" {
			t.Fatal(d)
		}
		if s.Item.ID != original.Item || s.Item.EventID != original.Identity.EventID || s.Item.DigestFaithful != original.DigestFaithful || s.Item.Resolution != "applied" {
			t.Fatalf("%+v", s.Item)
		}
		mustVerify(t, e)
	})
}

func TestWhatAChangeNeedsIsAskedFor(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		id := e.Admit(t, 0, 1)[0]
		one, who := custody.One(id), custodytest.Owner
		for name, c := range map[string]struct {
			err  func() error
			code pipeline.Code
		}{
			"triage without a ticket":    {func() error { _, err := e.Items.Triage(e.Ctx, who, one, ""); return err }, pipeline.CodeTicketMissing},
			"discard without a reason":   {func() error { _, err := e.Items.Discard(e.Ctx, who, one, "", "e"); return err }, pipeline.CodeReasonMissing},
			"discard without evidence":   {func() error { _, err := e.Items.Discard(e.Ctx, who, one, "r", ""); return err }, pipeline.CodeEvidenceMissing},
			"resolve without evidence":   {func() error { _, err := e.Items.Resolve(e.Ctx, who, one, custody.ResolvedApplied, "r", ""); return err }, pipeline.CodeEvidenceMissing},
			"an unknown resolution":      {func() error { _, err := e.Items.Resolve(e.Ctx, who, one, "done", "r", "e"); return err }, pipeline.CodeInputInvalid},
			"reveal without a reason":    {func() error { _, err := e.Items.Open(e.Ctx, who, id, ""); return err }, pipeline.CodeReasonMissing},
			"an unknown item":            {func() error { _, err := e.Items.Hold(e.Ctx, who, custody.One("qnone"), "r"); return err }, pipeline.CodeItemUnknown},
			"discard of a new item":      {func() error { _, err := e.Items.Discard(e.Ctx, who, one, "r", "e"); return err }, pipeline.CodeStateInvalid},
			"discard without permission": {func() error { _, err := e.Items.Discard(e.Ctx, custodytest.Operator, one, "r", "e"); return err }, pipeline.CodePermissionDenied},
		} {
			if err := c.err(); pipeline.CodeOf(err) != c.code {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestLegalHoldStopsADiscard(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		id := e.Admit(t, 0, 1)[0]
		e.Triage(t, id)
		if _, err := e.Items.LegalHold(e.Ctx, custodytest.Admin, custody.One(id), "case 7"); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Items.Discard(e.Ctx, custodytest.Owner, custody.One(id), "r", "e"); pipeline.CodeOf(err) != pipeline.CodeLegalHold {
			t.Fatal(err)
		}
		if code := e.Show(t, id).Item.Redrivable(); code != pipeline.CodeItemHeld {
			t.Fatal(code)
		}
		if _, err := e.Items.Unhold(e.Ctx, custodytest.Admin, custody.One(id), "case closed"); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Items.Discard(e.Ctx, custodytest.Owner, custody.One(id), "r", "e"); err != nil {
			t.Fatal(err)
		}
	})
}

func TestTenantsDoNotSeeEachOtherAndRefusalsAreWrittenDown(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		other := e.Letter(5)
		other.Identity.Tenant, other.Item = "globex", "qglobex"
		nobody := e.Letter(6)
		nobody.Identity.Tenant, nobody.Item = "", "qnobody"
		mine := e.Admit(t, 0, 1)[0]
		if _, err := e.Items.Admit(e.Ctx, custodytest.Worker, []custody.Arrival{custodytest.Arrival(other, 5), custodytest.Arrival(nobody, 6)}); err != nil {
			t.Fatal(err)
		}
		acme := custody.Actor{Subject: "otto", Roles: []string{"owner"}, Tenants: []string{"acme"}, Via: "api"}
		stranger := custody.Actor{Subject: "vic", Roles: []string{"viewer"}, Tenants: []string{custody.AllTenants}}
		for name, c := range map[string]struct {
			err  func() error
			code pipeline.Code
		}{
			"show":   {func() error { _, err := e.Items.Show(e.Ctx, acme, "qglobex"); return err }, pipeline.CodeTenantForbidden},
			"reveal": {func() error { _, err := e.Items.Open(e.Ctx, acme, "qglobex", "r"); return err }, pipeline.CodeTenantForbidden},
			"change": {func() error { _, err := e.Items.Triage(e.Ctx, acme, custody.One("qglobex"), "T"); return err }, pipeline.CodeTenantForbidden},
			"find by tenant": {func() error {
				_, err := e.Items.Find(e.Ctx, acme, selection(t, "tenant=globex"), custody.Page{})
				return err
			}, pipeline.CodeTenantForbidden},
			"group":                  {func() error { _, _, err := e.Items.Group(e.Ctx, acme, "globex", other.Fingerprint, 1); return err }, pipeline.CodeTenantForbidden},
			"groups":                 {func() error { _, err := e.Items.Groups(e.Ctx, acme, custody.GroupFilter{Tenant: "globex"}); return err }, pipeline.CodeTenantForbidden},
			"reveal by a viewer":     {func() error { _, err := e.Items.Open(e.Ctx, stranger, mine, "r"); return err }, pipeline.CodePermissionDenied},
			"unassigned by a viewer": {func() error { _, err := e.Items.Show(e.Ctx, stranger, "qnobody"); return err }, pipeline.CodeTenantForbidden},
			"nobody": {func() error {
				_, err := e.Items.Show(e.Ctx, custody.Actor{Roles: []string{"admin"}, Tenants: []string{"*"}}, mine)
				return err
			}, pipeline.CodePermissionDenied},
		} {
			before := refusals(t, e)
			if err := c.err(); pipeline.CodeOf(err) != c.code {
				t.Errorf("%s: %v", name, err)
			}
			if refusals(t, e) != before+1 {
				t.Errorf("%s: the refusal is not in the history", name)
			}
		}
		for who, want := range map[*custody.Actor]int{&acme: 1, &stranger: 2, &custodytest.Operator: 3} {
			f, err := e.Items.Find(e.Ctx, *who, custody.Selection{}, custody.Page{})
			if err != nil || len(f.Items) != want {
				t.Errorf("%s finds %d, %v", who.Subject, len(f.Items), err)
			}
			snap, err := e.Items.TakeSnapshot(e.Ctx, *who, custody.Selection{})
			if err != nil || snap.Count != int64(want) {
				t.Errorf("%s snapshots %d, %v", who.Subject, snap.Count, err)
			}
			groups, err := e.Items.Groups(e.Ctx, *who, custody.GroupFilter{})
			if err != nil || len(groups) != want {
				t.Errorf("%s sees %d groups, %v", who.Subject, len(groups), err)
			}
		}
		// Somebody else's snapshot gives no more rights than one's own.
		all, _ := e.Items.TakeSnapshot(e.Ctx, custodytest.Operator, custody.Selection{})
		r, err := e.Items.Triage(e.Ctx, acme, custody.Of(all), "T")
		if err != nil || r.Changed != 1 || r.ByCode[pipeline.CodeTenantForbidden] != 2 {
			t.Fatal(r, err)
		}
	})
}

func refusals(t *testing.T, e *custodytest.Env) (n int) {
	t.Helper()
	if err := e.Store.SQL(t).QueryRow("SELECT count(*) FROM dlq_message_custody_ledger WHERE event = 'refused'").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestRevealsAreWrittenDown(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		id := e.Admit(t, 0, 1)[0]
		if _, err := e.Items.Open(e.Ctx, custodytest.Owner, id, "ticket OPS-7"); err != nil {
			t.Fatal(err)
		}
		h := e.Show(t, id).History
		last := h[len(h)-1]
		if last.Event != "revealed" || last.Actor != "omar" || last.Detail["reason"] != "ticket OPS-7" || last.To != "" {
			t.Fatalf("%+v", last)
		}
	})
}

func TestOwnersNotesGroupsAndAging(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		ids := e.Admit(t, 0, 6)
		fp := e.Letter(0).Fingerprint
		if _, err := e.Items.Assign(e.Ctx, custodytest.Operator, custody.Target{Items: ids[:2]}, "finance"); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Items.Note(e.Ctx, custodytest.Operator, custody.Target{Items: ids[:1]}, "asked the producer"); err != nil {
			t.Fatal(err)
		}
		if err := e.Items.AssignGroup(e.Ctx, custodytest.Operator, "acme", fp, "finance", "OPS-9"); err != nil {
			t.Fatal(err)
		}
		if err := e.Items.NoteGroup(e.Ctx, custodytest.Operator, "acme", fp, "a bad release"); err != nil {
			t.Fatal(err)
		}
		until := custodytest.Start.Add(time.Hour).UnixMilli()
		if err := e.Items.Mute(e.Ctx, custodytest.Operator, "acme", fp, until, "known"); err != nil {
			t.Fatal(err)
		}
		if err := e.Items.AssignGroup(e.Ctx, custodytest.Operator, "acme", "f1none", "x", ""); pipeline.CodeOf(err) != pipeline.CodeItemUnknown {
			t.Fatal(err)
		}
		g, samples, err := e.Items.Group(e.Ctx, custodytest.Operator, "acme", fp, 2)
		if err != nil || g.Owner != "finance" || g.Ticket != "OPS-9" || g.Note != "a bad release" || !g.Muted(until-1) || g.Muted(until) || len(samples) != 2 || samples[0].ID != ids[5] {
			t.Fatalf("%+v %v", g, err)
		}
		if g.FirstSchema != "avro:7" || g.LastRelease != "billing-event-processor@2.2" || g.FirstMS != e.Letter(0).QuarantinedMS || g.LastMS != e.Letter(5).QuarantinedMS {
			t.Fatalf("%+v", g)
		}
		e.Turn(49 * time.Hour)
		ages, err := e.Items.Aging(e.Ctx, custodytest.Operator, "")
		if err != nil {
			t.Fatal(err)
		}
		want := []custody.Age{{Tenant: "acme", Owner: "", State: custody.DeadLettered, Days: 2, N: 4}, {Tenant: "acme", Owner: "finance", State: custody.DeadLettered, Days: 2, N: 2}}
		if d := cmp.Diff(want, ages); d != "" {
			t.Fatal(d)
		}
		mustVerify(t, e)
	})
}

func TestFindGivesPagesNewestFirst(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		ids := e.Admit(t, 0, 25)
		var got []pipeline.ID
		page := custody.Page{Limit: 10}
		for {
			f, err := e.Items.Find(e.Ctx, custodytest.Viewer, selection(t, "tenant=acme"), page)
			if err != nil {
				t.Fatal(err)
			}
			for _, it := range f.Items {
				got = append(got, it.ID)
			}
			if page.After = f.Next; f.Next == "" {
				break
			}
		}
		if len(got) != 25 || got[0] != ids[24] || got[24] != ids[0] {
			t.Fatal(got)
		}
		if _, err := e.Items.Find(e.Ctx, custodytest.Viewer, custody.Selection{}, custody.Page{After: "!"}); pipeline.CodeOf(err) != pipeline.CodeSelectionInvalid {
			t.Fatal(err)
		}
		for text, want := range map[string]int64{
			"": 25, "offset=7|8": 2, "offset>7 offset<10": 2, "!offset<20": 5, "topic=billing.invoices.v1 partition=1": 8, "state=NEW": 25, "state=open": 25, "state=TRIAGED": 0,
			"code=ERR_DECODE_TRUNCATED|ERR_X !owner=ops": 25, "entity=acct-3": 4, "event=ev-4": 1, "confirmed=no": 25, "confirmed=yes": 0, "flag=same_event": 0, "!flag=same_event": 25,
			`owner=""`: 25, "age>1d": 0, "age<1d": 25, "schema=avro:7 stage=decode attempts=0": 25, "id=" + string(ids[3]): 1, `release="billing-event-processor@2.2"`: 25,
		} {
			if n, err := e.Items.Count(e.Ctx, custodytest.Operator, selection(t, text)); n != want || err != nil {
				t.Errorf("%q: %d, want %d, %v", text, n, want, err)
			}
		}
	})
}

func TestSelectionsAreReadAndRefused(t *testing.T) {
	for in, want := range map[string]string{
		"":                                        "",
		"  class=payload   !owner=ops ":           "class=payload !owner=ops",
		`entity="a b"|c age>3d12h`:                `entity="a b"|c age>3d12h`,
		`owner="" ticket="x\"y"`:                  `owner="" ticket="x\"y"`,
		"code=ERR_DECODE_TRUNCATED|ERR_DECODE_X":  "code=ERR_DECODE_TRUNCATED|ERR_DECODE_X",
		`entity="é" event="tab\there" state=open`: `entity=é event="tab\there" state=open`,
	} {
		s, err := custody.ParseSelection(in)
		if err != nil || s.String() != want {
			t.Errorf("%q: %q %v", in, s.String(), err)
		}
		again, err := custody.ParseSelection(s.String())
		if err != nil || cmp.Diff(s, again) != "" {
			t.Errorf("%q does not read back: %v", s.String(), err)
		}
	}
	for _, bad := range []string{"colour=red", "class", "class=", "class=none", "state=DONE", "age=3d", "age>soon", "owner>x", "offset=ten", `entity="open`, "class=payload,domain x", "=x", "!",
		"offset>1|2", `entity="a"b`, "confirmed=maybe", "flag=odd", "a;b", "Class=payload"} {
		_, err := custody.ParseSelection(bad)
		if pipeline.CodeOf(err) != pipeline.CodeSelectionInvalid {
			t.Errorf("%q: %v", bad, err)
			continue
		}
		if fix := err.(*pipeline.Error).Fix(); !strings.Contains(fix, "fingerprint") || !strings.Contains(fix, "tenant") {
			t.Errorf("%q does not list the terms: %s", bad, fix)
		}
	}
}

func FuzzParseSelection(f *testing.F) {
	f.Add(`class=payload code=A|B tenant=acme age>3d !owner=ops entity="a b"`)
	f.Add(`!entity="\u0000"|""`)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := custody.ParseSelection(text)
		if err != nil {
			if pipeline.CodeOf(err) != pipeline.CodeSelectionInvalid {
				t.Fatal(err)
			}
			return
		}
		again, err := custody.ParseSelection(s.String())
		if err != nil || again.String() != s.String() {
			t.Fatalf("%q -> %q: %v", text, s.String(), err)
		}
	})
}

// Bulk changes and exports tell how far they are, chunk by chunk, and end at the whole.
func TestLongWorkTellsHowFarItIs(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		const n = 1200
		e.Admit(t, 0, n)
		var told [][2]int64
		tell := func(done, total int64) { told = append(told, [2]int64{done, total}) }
		want := [][2]int64{{500, n}, {1000, n}, {n, n}}
		s, err := e.Items.TakeSnapshot(e.Ctx, custodytest.Operator, selection(t, "state=DEAD_LETTERED"))
		if err != nil {
			t.Fatal(err)
		}
		target := custody.Of(s)
		target.Progress = tell
		if r, err := e.Items.Triage(e.Ctx, custodytest.Operator, target, "OPS-1"); err != nil || r.Changed != n {
			t.Fatal(r, err)
		}
		if d := cmp.Diff(want, told); d != "" {
			t.Errorf("triage: %s", d)
		}
		told = nil
		if got, err := e.Items.Export(e.Ctx, custodytest.Operator, selection(t, "state=TRIAGED"), custody.ExportOptions{Progress: tell}, io.Discard); err != nil || got != n {
			t.Fatal(got, err)
		}
		if d := cmp.Diff(want, told); d != "" {
			t.Errorf("export: %s", d)
		}
	})
}
