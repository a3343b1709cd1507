package custody_test

import (
	"testing"

	"reprieve.dev/custody"
	"reprieve.dev/custody/custodytest"
	"reprieve.dev/pipeline"
)

// counts are the open items of each group.
func counts(t *testing.T, e *custodytest.Env) map[pipeline.ID]int64 {
	t.Helper()
	gs, err := e.Items.Groups(e.Ctx, custodytest.Operator, custody.GroupFilter{})
	if err != nil {
		t.Fatal(err)
	}
	out := map[pipeline.ID]int64{}
	for _, g := range gs {
		out[g.Fingerprint] = g.Total()
	}
	return out
}

func TestSplitAndJoinMoveWhatIsThereAndWhatWillCome(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		admit := func(from, to int64) {
			list := e.Arrivals(from, to)
			for i := range list {
				if (from+int64(i))%2 == 1 {
					list[i].Letter.Identity.Release = "billing-event-processor@2.3"
				}
			}
			if _, err := e.Items.Admit(e.Ctx, custodytest.Worker, list); err != nil {
				t.Fatal(err)
			}
		}
		admit(0, 10)
		fp := e.Letter(0).Fingerprint
		apart, n, err := e.Items.Split(e.Ctx, custodytest.Operator, "acme", fp, selection(t, "release=billing-event-processor@2.3"), "only the new release")
		if err != nil || n != 5 {
			t.Fatal(n, err)
		}
		admit(10, 20)
		if c := counts(t, e); c[fp] != 10 || c[apart] != 10 {
			t.Fatal(c)
		}
		// What was split off is split again; the rest of it stays.
		again, n, err := e.Items.Split(e.Ctx, custodytest.Operator, "acme", apart, selection(t, "entity=acct-1"), "one account")
		if err != nil || n != 2 {
			t.Fatal(n, err)
		}
		admit(20, 34)
		if c := counts(t, e); c[fp] != 17 || c[apart]+c[again] != 17 || c[again] != 3 {
			t.Fatal(c, again)
		}
		if n := int64(len(found(t, e, "group="+string(again)))); n != 3 {
			t.Fatal(n)
		}
		// Fingerprints are evidence: they say what they said.
		if n := int64(len(found(t, e, "fingerprint="+string(fp)))); n != 34 {
			t.Fatal(n)
		}
		// A join takes both with it.
		if n, err = e.Items.Join(e.Ctx, custodytest.Operator, "acme", again, apart, "the same after all"); err != nil || n != 3 {
			t.Fatal(n, err)
		}
		if n, err = e.Items.Join(e.Ctx, custodytest.Operator, "acme", apart, fp, "the same after all"); err != nil || n != 17 {
			t.Fatal(n, err)
		}
		admit(34, 44)
		if c := counts(t, e); c[fp] != 44 || c[apart] != 0 || c[again] != 0 {
			t.Fatal(c)
		}
		mustVerify(t, e)
	})
}

func TestJoinedGroupsOfTwoCauses(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		other := func(from, to int64) {
			list := e.Arrivals(from, to)
			for i := range list {
				list[i].Letter.Fingerprint = "f1othercauseothercauseother"
			}
			if _, err := e.Items.Admit(e.Ctx, custodytest.Worker, list); err != nil {
				t.Fatal(err)
			}
		}
		e.Admit(t, 0, 3)
		other(3, 5)
		fp := e.Letter(0).Fingerprint
		if n, err := e.Items.Join(e.Ctx, custodytest.Operator, "acme", "f1othercauseothercauseother", fp, "one mistake, two messages"); err != nil || n != 2 {
			t.Fatal(n, err)
		}
		other(5, 9)
		e.Admit(t, 9, 10)
		if c := counts(t, e); c[fp] != 10 || len(c) != 1 {
			t.Fatal(c)
		}
		g, items, err := e.Items.Group(e.Ctx, custodytest.Operator, "acme", fp, 20)
		if err != nil || len(items) != 10 || g.LastItem != e.Letter(9).Item {
			t.Fatal(len(items), g.LastItem, err)
		}
		mustVerify(t, e)
	})
}

func TestRegroupingIsRefused(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		e.Admit(t, 0, 3)
		fp := e.Letter(0).Fingerprint
		for name, c := range map[string]struct {
			do   func() error
			code pipeline.Code
		}{
			"without a reason": {func() error {
				_, _, err := e.Items.Split(e.Ctx, custodytest.Operator, "acme", fp, selection(t, "entity=acct-1"), "")
				return err
			}, pipeline.CodeReasonMissing},
			"by what changes": {func() error {
				_, _, err := e.Items.Split(e.Ctx, custodytest.Operator, "acme", fp, selection(t, "owner=ops"), "r")
				return err
			}, pipeline.CodeSelectionInvalid},
			"by everything": {func() error {
				_, _, err := e.Items.Split(e.Ctx, custodytest.Operator, "acme", fp, selection(t, ""), "r")
				return err
			}, pipeline.CodeSelectionInvalid},
			"of nothing": {func() error {
				_, _, err := e.Items.Split(e.Ctx, custodytest.Operator, "acme", fp, selection(t, "entity=nobody"), "r")
				return err
			}, pipeline.CodeSelectionInvalid},
			"an unknown group":      {func() error { _, err := e.Items.Join(e.Ctx, custodytest.Operator, "acme", "f1x", fp, "r"); return err }, pipeline.CodeItemUnknown},
			"into an unknown group": {func() error { _, err := e.Items.Join(e.Ctx, custodytest.Operator, "acme", fp, "f1x", "r"); return err }, pipeline.CodeItemUnknown},
			"into itself":           {func() error { _, err := e.Items.Join(e.Ctx, custodytest.Operator, "acme", fp, fp, "r"); return err }, pipeline.CodeInputInvalid},
			"by a viewer":           {func() error { _, err := e.Items.Join(e.Ctx, custodytest.Viewer, "acme", fp, "f1x", "r"); return err }, pipeline.CodePermissionDenied},
			"of another tenant": {func() error {
				_, err := e.Items.Join(e.Ctx, custodytest.Operator, "globex", fp, "f1x", "r")
				return err
			}, pipeline.CodeItemUnknown},
		} {
			if err := c.do(); pipeline.CodeOf(err) != c.code {
				t.Errorf("%s: %v", name, err)
			}
		}
		mustVerify(t, e)
	})
}

func found(t *testing.T, e *custodytest.Env, text string) []*custody.Item {
	t.Helper()
	f, err := e.Items.Find(e.Ctx, custodytest.Operator, selection(t, text), custody.Page{Limit: 500})
	if err != nil {
		t.Fatal(err)
	}
	return f.Items
}

// In the ledger and outside it a selection means the same.
func TestMatchesIsWhatTheLedgerAnswers(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		list := e.Arrivals(0, 24)
		for i := range list {
			l := list[i].Letter
			l.Identity.Tenant = []string{"acme", "globex", ""}[i%3]
			l.Identity.Release = []string{"a@1", "a@2"}[i%2]
			l.Generation = uint32(i % 4)
			l.Data = []string{"", "payments"}[i%2]
			l.Decision.Attempt = uint8(i % 6)
			if i%5 == 0 {
				l.Class, l.Failure.Code = pipeline.Domain, pipeline.CodeRejected
			}
		}
		if _, err := e.Items.Admit(e.Ctx, custodytest.Worker, list); err != nil {
			t.Fatal(err)
		}
		ids := found(t, e, "tenant=acme")
		e.Triage(t, ids[0].ID, ids[1].ID)
		if _, err := e.Items.Assign(e.Ctx, custodytest.Operator, custody.One(ids[2].ID), "finance"); err != nil {
			t.Fatal(err)
		}
		if _, _, err := e.Items.Split(e.Ctx, custodytest.Operator, "acme", ids[0].Fingerprint, selection(t, "release=a@1"), "r"); err != nil {
			t.Fatal(err)
		}
		e.Turn(20 * 1e9)
		all := found(t, e, "")
		if len(all) != 24 {
			t.Fatal(len(all))
		}
		for _, text := range []string{"tenant=acme", "!tenant=acme|globex", "tenant=unassigned", "state=TRIAGED", "state=open", "!state=open", "class=domain", "code=ERR_DOMAIN_REJECTED|ERR_DECODE_TRUNCATED",
			"release=a@2 class=payload", "partition=1", "partition>0", "offset<7", "offset=3|4|5", "attempts>2", "generation=0", "generation>1", "sightings=1", "try=0", "age>5s", "age<5s", "idle>12s",
			"confirmed=no", "confirmed=yes", "flag=same_event", "!flag=raw", "owner=finance", `owner=""`, "ticket=OPS-1", "dialect=reprieve", "kind=letter", "pipeline=billing", "consumer=billing-event-processor",
			"event=ev-3", "entity=acct-1|acct-2", `business=""`, "topic=billing.invoices.v1", "data=payments", `data=""`, "stage=decode", "schema=avro:7", "policy=sha256:00", "faithful=inline", `redrive=""`, `resolution=""`,
			"id=" + string(ids[0].ID), "fingerprint=" + string(ids[0].Fingerprint), "group=" + string(ids[0].Fingerprint), "!group=" + string(ids[0].Fingerprint)} {
			sel := selection(t, text)
			want := map[pipeline.ID]bool{}
			for _, it := range found(t, e, text) {
				want[it.ID] = true
			}
			for _, it := range all {
				if got := sel.Matches(it, e.Clock().UnixMilli()); got != want[it.ID] {
					t.Errorf("%s: item %d of %s: the ledger says %v", text, it.Original.Offset, it.Tenant, want[it.ID])
				}
			}
		}
		for _, term := range custody.Terms() {
			if !testedTerms[term] {
				t.Errorf("the term %s is not compared", term)
			}
		}
	})
}

var testedTerms = map[string]bool{"id": true, "tenant": true, "state": true, "kind": true, "dialect": true, "pipeline": true, "consumer": true, "release": true, "event": true, "entity": true, "business": true,
	"topic": true, "partition": true, "offset": true, "class": true, "code": true, "fingerprint": true, "group": true, "stage": true, "schema": true, "policy": true, "attempts": true, "faithful": true,
	"owner": true, "ticket": true, "redrive": true, "try": true, "resolution": true, "sightings": true, "age": true, "idle": true, "confirmed": true, "flag": true, "generation": true, "data": true}
