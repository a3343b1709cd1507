package custody_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/custody/custodytest"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

// attempts calls every method of custody that somebody acts by, with arguments that are right in all but who acts, and tells what
// came of it. A method that is added is found by itself.
func attempts(t *testing.T, e *custodytest.Env, who custody.Actor, item pipeline.ID, fp pipeline.ID, tell func(method string, results []any, err error)) {
	t.Helper()
	v := reflect.ValueOf(e.Items)
	actor, ctx, failure := reflect.TypeFor[custody.Actor](), reflect.TypeFor[context.Context](), reflect.TypeFor[error]()
	for i := range v.NumMethod() {
		m := v.Type().Method(i)
		f := v.Method(i)
		n := f.Type().NumIn()
		if n < 2 || f.Type().In(0) != ctx || f.Type().In(1) != actor || f.Type().NumOut() == 0 || f.Type().Out(f.Type().NumOut()-1) != failure {
			continue
		}
		args := []reflect.Value{reflect.ValueOf(e.Ctx), reflect.ValueOf(who)}
		texts := 0
		for j := 2; j < n; j++ {
			in := f.Type().In(j)
			var arg any
			switch in {
			case reflect.TypeFor[string]():
				arg = "acme"
				if texts > 0 || j == n-1 && m.Name != "Aging" && m.Name != "Needs" {
					arg = "a text"
				}
				if m.Name == "Resolve" && texts == 0 {
					arg = custody.ResolvedApplied
				}
				texts++
			case reflect.TypeFor[pipeline.ID]():
				if arg = item; strings.Contains(m.Name, "Group") || m.Name == "Split" || m.Name == "Join" || m.Name == "Mute" {
					arg = fp
				}
				if m.Name == "Join" && j == 4 {
					arg = fp + "x"
				}
			case reflect.TypeFor[[]pipeline.ID]():
				arg = []pipeline.ID{item}
			case reflect.TypeFor[custody.Target]():
				arg = custody.One(item)
			case reflect.TypeFor[custody.Selection]():
				if arg = selection(t, ""); m.Name == "Split" {
					arg = selection(t, "entity=acct-1")
				}
			case reflect.TypeFor[time.Time]():
				arg = e.Clock().Add(time.Hour)
			case reflect.TypeFor[custody.Flag]():
				arg = custody.FlagSameEvent
			case reflect.TypeFor[custody.Permission]():
				arg = custody.PermErase
			case reflect.TypeFor[custody.Rule]():
				arg = custody.Rule{Tenant: "acme", Fingerprint: fp, Owner: "x", ExpiresMS: e.Clock().Add(time.Hour).UnixMilli()}
			case reflect.TypeFor[custody.Topics]():
				arg = custody.Topics{}
			case reflect.TypeFor[custody.Bucket]():
				arg = folder{}
			case reflect.TypeFor[io.Writer]():
				arg = io.Discard
			case reflect.TypeFor[[]custody.Arrival]():
				arg = e.Arrivals(90, 91)
			}
			if arg == nil {
				args = append(args, reflect.Zero(in))
				continue
			}
			args = append(args, reflect.ValueOf(arg))
		}
		var results []any
		var err error
		call := f.Call
		if f.Type().IsVariadic() {
			call = f.CallSlice
		}
		for _, r := range call(args) {
			if r.Type() == failure {
				err, _ = r.Interface().(error)
				continue
			}
			results = append(results, r.Interface())
		}
		tell(m.Name, results, err)
	}
}

// folder is a bucket in memory.
type folder map[string][]byte

func (f folder) Put(_ context.Context, name string, b []byte) error {
	f[name] = slices.Clone(b)
	return nil
}

func (f folder) Get(_ context.Context, name string) ([]byte, error) {
	if b, ok := f[name]; ok {
		return b, nil
	}
	return nil, pipeline.Errorf(pipeline.CodePayloadMissing, name, "it is not there")
}

func (f folder) Delete(_ context.Context, name string) error {
	delete(f, name)
	return nil
}

// Nobody without a role does anything, whichever method they call, and every try is in the history.
func TestEveryMethodRefusesWhoHasNoRole(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		ids := e.Admit(t, 0, 5)
		e.Triage(t, ids...)
		before := history(t, e)
		mallory := custody.Actor{Subject: "mallory", Tenants: []string{custody.AllTenants}, Via: "cli"}
		n := 0
		attempts(t, e, mallory, ids[1], e.Letter(0).Fingerprint, func(method string, _ []any, err error) {
			if method == "Granted" || method == "Refused" {
				return // what they have taken: nothing; and what writes refusals down
			}
			if n++; pipeline.CodeOf(err) != pipeline.CodePermissionDenied {
				t.Errorf("%s: %v", method, err)
			}
		})
		if n < 30 {
			t.Fatalf("only %d methods were tried", n)
		}
		refused := 0
		for _, h := range history(t, e)[len(before):] {
			if h.Event != "refused" {
				t.Errorf("%s was done", h.Event)
			}
			refused++
		}
		if refused < n {
			t.Errorf("%d of %d refusals are in the history", refused, n)
		}
		// The worker's own name is nobody's.
		for _, subject := range []string{"", "system:custodian"} {
			attempts(t, e, custody.Actor{Subject: subject, Roles: []string{"admin", "system"}, Tenants: []string{custody.AllTenants}, Via: "api"}, ids[1], e.Letter(0).Fingerprint, func(method string, _ []any, err error) {
				if method != "Granted" && method != "Refused" && method != "BreakGlass" && method != "MayBreakGlass" && pipeline.CodeOf(err) != pipeline.CodePermissionDenied {
					t.Errorf("%q: %s: %v", subject, method, err)
				}
			})
		}
		mustVerify(t, e)
	})
}

// Somebody who may do everything for one tenant learns nothing of another and changes nothing of it.
func TestEveryMethodKeepsTenantsApart(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		ids := e.Admit(t, 0, 5)
		e.Triage(t, ids...)
		state := fmt.Sprintf("%+v", e.Show(t, ids[1]).Item)
		eve := custody.Actor{Subject: "eve", Roles: []string{"admin"}, Tenants: []string{"globex"}, Via: "cli"}
		whole := []string{"Verify", "Reconcile", "Expire", "Unarchive", "Told", "Committed", "Settle", "Admit", "Outcomes", "CheckWhole", "Erasures", "ReplayErasures"} // of the whole ledger
		attempts(t, e, eve, ids[1], e.Letter(0).Fingerprint, func(method string, results []any, err error) {
			if slices.Contains(whole, method) != (pipeline.CodeOf(err) == pipeline.CodeTenantForbidden && strings.Contains(err.Error(), "whole ledger")) {
				t.Errorf("%s, of the whole ledger, by somebody of one tenant: %v", method, err)
			}
			text, merr := json.Marshal(results)
			if merr != nil {
				t.Fatalf("%s: %v", method, merr)
			}
			if err == nil && (strings.Contains(string(text), string(ids[1])) && method != "Assign" || strings.Contains(string(text), "INV-")) {
				t.Errorf("%s tells of another tenant: %s", method, text)
			}
		})
		if now := fmt.Sprintf("%+v", e.Show(t, ids[1]).Item); now != state {
			t.Errorf("changed:\n%s\n%s", state, now)
		}
		groups, err := e.Items.Groups(e.Ctx, custodytest.Operator, custody.GroupFilter{})
		if err != nil || len(groups) != 1 || groups[0].Owner != "" || groups[0].Note != "" || groups[0].MutedUntilMS != 0 {
			t.Errorf("%+v %v", groups, err)
		}
		mustVerify(t, e)
	})
}

// A made-up erasure log reaches neither what is under legal hold, nor the key of a pipeline, nor a key under another tenant's name; and
// nobody of one tenant reads or replays it. A snapshot tells nothing to who may not see all of it.
func TestAMadeUpErasureLogErasesNothingThatAnErasureWouldNot(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		ids := e.Admit(t, 0, 3)
		keys := custody.NewKeys(e.Items, newKeeper(t), "local")
		acme, err := keys.Current(e.Ctx, "acme")
		if err != nil {
			t.Fatal(err)
		}
		globex, err := keys.Current(e.Ctx, "globex")
		if err != nil {
			t.Fatal(err)
		}
		billing, err := keys.OfPipeline(e.Ctx, "billing")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Items.LegalHold(e.Ctx, custodytest.Admin, custody.One(ids[1]), "case 1"); err != nil {
			t.Fatal(err)
		}
		log := []custody.Erasure{
			{Tenant: "acme", Kind: "item", Subject: string(ids[0]), Actor: "pia", Reason: "request 7", AtMS: 1},
			{Tenant: "acme", Kind: "item", Subject: string(ids[1]), Actor: "pia", Reason: "request 7", AtMS: 1},  // held
			{Tenant: "acme", Kind: "key", Subject: acme.ID(), Actor: "pia", Reason: "request 7", AtMS: 1},        // of a tenant with a held item
			{Tenant: "globex", Kind: "key", Subject: acme.ID(), Actor: "pia", Reason: "request 7", AtMS: 1},      // not theirs
			{Tenant: "pipeline billing", Kind: "key", Subject: billing.ID(), Actor: "pia", Reason: "x", AtMS: 1}, // nobody's
		}
		eve := custody.Actor{Subject: "eve", Roles: []string{"admin"}, Tenants: []string{"globex"}, Via: "cli"}
		if n, err := e.Items.ReplayErasures(e.Ctx, eve, log); n != 0 || pipeline.CodeOf(err) != pipeline.CodeTenantForbidden {
			t.Fatal(n, err)
		}
		if n, err := e.Items.ReplayErasures(e.Ctx, custodytest.Admin, log); n != 1 || pipeline.CodeOf(err) != pipeline.CodeLegalHold {
			t.Fatal(n, err)
		}
		if _, err := e.Items.Open(e.Ctx, custodytest.Owner, ids[1], "look"); err != nil {
			t.Error(err)
		}
		for _, k := range []struct{ tenant, kid string }{{"acme", acme.ID()}, {"globex", globex.ID()}, {"acme", billing.ID()}} {
			if _, err := keys.Private(e.Ctx, k.tenant, k.kid); err != nil {
				t.Errorf("%+v: %v", k, err)
			}
		}
		if log, err := e.Items.Erasures(e.Ctx, eve); len(log) != 0 || pipeline.CodeOf(err) != pipeline.CodeTenantForbidden {
			t.Error(log, err)
		}
		s, err := e.Items.TakeSnapshot(e.Ctx, custodytest.Operator, selection(t, "tenant=acme"))
		if err != nil {
			t.Fatal(err)
		}
		if seen, _, err := e.Items.ReadSnapshot(e.Ctx, eve, s.ID); seen != (custody.Snapshot{}) || pipeline.CodeOf(err) != pipeline.CodeTenantForbidden {
			t.Errorf("%+v %v", seen, err)
		}
		// Whoever names it wrongly is not told what is right: neither how many items it has, nor what to say so that it goes.
		for _, who := range []custody.Actor{eve, custodytest.Admin} {
			_, err := e.Items.Triage(e.Ctx, who, custody.Target{Snapshot: s.ID, Count: 2, Digest: "sha256:00"}, "T-1")
			_, perr := e.Items.ProposeExtension(e.Ctx, who, custody.Target{Snapshot: s.ID, Count: 2, Digest: "sha256:00"}, e.Clock().Add(time.Hour), "more time")
			for _, err := range []error{err, perr} {
				if pipeline.CodeOf(err) != pipeline.CodeSnapshotChanged || strings.Contains(err.Error(), string(s.Digest)) || strings.Contains(err.Error(), "3 items") {
					t.Errorf("%s is told: %v", who.Subject, err)
				}
			}
		}
		mustVerify(t, e)
	})
}

func history(t *testing.T, e *custodytest.Env) (out []ledger.Entry) {
	t.Helper()
	if err := e.DB.Read(e.Ctx, func(tx *ledger.Tx) (err error) {
		out, err = tx.Events(0, 10_000, nil)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestBreakGlassGivesAPermissionForFifteenMinutes(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		id := e.Admit(t, 0, 1)[0]
		who := custody.Actor{Subject: "vera", Roles: []string{"viewer"}, Tenants: []string{"acme"}, Via: "cli"}
		reveal := func(who custody.Actor) pipeline.Code {
			now, err := e.Items.Granted(e.Ctx, who)
			if err != nil {
				t.Fatal(err)
			}
			_, err = e.Items.Open(e.Ctx, now, id, "an outage")
			return pipeline.CodeOf(err)
		}
		if code := reveal(who); code != pipeline.CodePermissionDenied {
			t.Fatal(code)
		}
		for name, c := range map[string]struct {
			who    custody.Actor
			p      custody.Permission
			reason string
			code   pipeline.Code
		}{
			"without a reason":     {who, custody.PermReveal, " ", pipeline.CodeReasonMissing},
			"an unknown one":       {who, "everything", "x", pipeline.CodeInputInvalid},
			"one that they have":   {who, custody.PermRead, "x", pipeline.CodeInputInvalid},
			"an approval":          {who, custody.PermApprove, "x", pipeline.CodePermissionDenied},
			"the lift of a halt":   {who, custody.PermLift, "x", pipeline.CodePermissionDenied},
			"a program":            {custody.Actor{Subject: "app", Roles: []string{"intake"}, Via: "api"}, custody.PermReveal, "x", pipeline.CodePermissionDenied},
			"somebody without any": {custody.Actor{Subject: "mallory", Via: "cli"}, custody.PermReveal, "x", pipeline.CodePermissionDenied},
		} {
			if _, err := e.Items.BreakGlass(e.Ctx, c.who, c.p, c.reason); pipeline.CodeOf(err) != c.code {
				t.Errorf("%s: %v", name, err)
			}
		}
		g, err := e.Items.BreakGlass(e.Ctx, who, custody.PermReveal, "nobody answers, a customer waits")
		if err != nil || !g.Until.Equal(e.Clock().Add(15*time.Minute)) {
			t.Fatal(g, err)
		}
		if code := reveal(who); code != "" {
			t.Fatal(code)
		}
		other := who
		other.Tenants = []string{"globex"}
		if code := reveal(other); code != pipeline.CodeTenantForbidden {
			t.Fatalf("it reached another tenant: %s", code)
		}
		if code := reveal(custody.Actor{Subject: "victor", Roles: []string{"viewer"}, Tenants: []string{"acme"}, Via: "cli"}); code != pipeline.CodePermissionDenied {
			t.Fatalf("it holds for somebody else: %s", code)
		}
		e.Turn(15 * time.Minute)
		if code := reveal(who); code != pipeline.CodePermissionDenied {
			t.Fatalf("it still holds: %s", code)
		}
		found := false
		for _, h := range history(t, e) {
			found = found || h.Event == "break_glass" && h.Actor == "vera" && h.Detail["permission"] == "reveal" && h.Detail["reason"] != ""
		}
		if !found {
			t.Error("it is not in the history")
		}
		mustVerify(t, e)
	})
}

func TestOwnersAreToldOnceThenSomebodyElse(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		ids := e.Admit(t, 0, 6)
		for i, owner := range []string{"finance", "finance", "ops"} {
			if _, err := e.Items.Assign(e.Ctx, custodytest.Operator, custody.One(ids[i]), owner); err != nil {
				t.Fatal(err)
			}
		}
		objectives := []custody.Objective{{Selection: selection(t, "class=payload"), Triage: 26 * 24 * time.Hour}}
		due := func() (out []string) {
			t.Helper()
			list, err := e.Items.Due(e.Ctx, custodytest.Worker, custody.Retention{}, "platform", objectives)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range list {
				out = append(out, fmt.Sprintf("%s %s %d", n.Kind, n.Owner, n.Items))
				if err := e.Items.Told(e.Ctx, custodytest.Worker, n); err != nil {
					t.Fatal(err)
				}
			}
			return out
		}
		same := func(got []string, want ...string) {
			t.Helper()
			if !slices.Equal(got, want) {
				t.Errorf("%v instead of %v", got, want)
			}
		}
		e.Turn(24 * 24 * time.Hour)
		same(due())
		e.Turn(24*time.Hour + time.Minute) // the 25th day
		same(due(), "ending  3", "ending finance 2", "ending ops 1")
		same(due())
		e.Turn(24 * time.Hour) // an objective is missed; it is told once a day
		same(due(), "overdue  3", "overdue finance 2", "overdue ops 1")
		same(due())
		e.Triage(t, ids[2])
		e.Turn(3 * 24 * time.Hour) // less than a day is left
		same(due(), "escalated platform 6", "overdue  3", "overdue finance 2")
		same(due())
	})
}

func TestExpiredItemsAreArchivedFirstAndErasedArchivesGo(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		ids := e.Admit(t, 0, 4)
		e.Turn(31 * 24 * time.Hour)
		full := &full{folder: folder{}, left: 2}
		r := custody.Retention{Archive: full}
		if _, err := e.Items.Expire(e.Ctx, custodytest.Worker, r, nil); pipeline.CodeOf(err) != pipeline.CodeArchiveFailed {
			t.Fatal(err)
		}
		for _, id := range ids { // nothing was dropped that is not archived
			if s := e.Show(t, id).Item; s.State != custody.DeadLettered {
				t.Fatalf("%s is %s", id, s.State)
			}
		}
		full.left = 100
		if x, err := e.Items.Expire(e.Ctx, custodytest.Worker, r, nil); err != nil || x.Expired != 4 {
			t.Fatal(x, err)
		}
		b, err := e.Items.ReadArchive(e.Ctx, custodytest.Owner, full, ids[1], "an audit")
		var a custody.Archived
		if err != nil || json.Unmarshal(b, &a) != nil || a.ID != string(ids[1]) || !strings.Contains(string(a.Record), "INV-1") {
			t.Fatalf("%s %v", b, err)
		}
		if _, err := e.Items.ReadArchive(e.Ctx, custodytest.Viewer, full, ids[1], "an audit"); pipeline.CodeOf(err) != pipeline.CodePermissionDenied {
			t.Fatal(err)
		}
		var erased string
		for name, text := range full.folder {
			if strings.Contains(name, string(ids[2])) {
				full.folder[name] = append(text, ' ')
			}
			if strings.Contains(name, string(ids[3])) {
				erased = name
			}
		}
		if _, err := e.Items.ReadArchive(e.Ctx, custodytest.Owner, full, ids[2], "an audit"); pipeline.CodeOf(err) != pipeline.CodeLedgerCorrupt {
			t.Fatal(err)
		}
		if _, err := e.Items.EraseItems(e.Ctx, custodytest.Admin, ids[3:], "a request"); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Items.ReadArchive(e.Ctx, custodytest.Owner, full, ids[3], "an audit"); pipeline.CodeOf(err) != pipeline.CodePayloadMissing {
			t.Fatal(err)
		}
		if left, err := e.Items.Unarchive(e.Ctx, custodytest.Worker, full); err != nil || left != 0 || full.folder[erased] != nil || len(full.folder) != 3 {
			t.Fatal(left, err, len(full.folder))
		}
		mustVerify(t, e)
	})
}

// full is a bucket that takes so many objects.
type full struct {
	folder
	left int
}

func (f *full) Put(ctx context.Context, name string, b []byte) error {
	if f.left--; f.left < 0 {
		return fmt.Errorf("no space")
	}
	return f.folder.Put(ctx, name, b)
}
