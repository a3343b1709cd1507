package custody_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/custody/custodytest"
	"reprieve.dev/ledger/ledgertest"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/tests/conformance/script"
)

func TestAnIntakeIsALetterLikeAnyOther(t *testing.T) {
	ledgertest.Each(t, func(t *testing.T, s ledgertest.Store) {
		l := newLab(t, s)
		sink := l.cl.Sink(script.SinkOptions{})
		in := custody.NewIntake(custody.IntakeOptions{Items: l.Items, Sanitizer: masker{}, Ring: l.Ring,
			Target: func(p string) (string, pipeline.Sink, bool) { return dlq, sink, p == "billing" }})
		sub := custody.Submission{Pipeline: "billing", Cluster: "cluster-1", At: pipeline.Position{TP: pipeline.TP{Topic: "billing.invoices.v1", Partition: 1}, Offset: 9},
			Record:   pipeline.Record{Offset: 9, TimeMS: custodytest.Start.UnixMilli(), TimeType: pipeline.TimeCreate, Key: []byte("k"), Value: []byte("{}"), Headers: []pipeline.Header{{Name: "reprieve-quarantine-id", Value: []byte("qforged")}}},
			Identity: pipeline.Identity{Consumer: "app", Tenant: "acme", EventID: "e1"}, Failure: pipeline.Failure{Stage: "app", Code: pipeline.CodeRejected}, Reason: "no account", Exception: "AccountMissing"}
		app := custody.Actor{Subject: "app", Roles: []string{"admin"}, Tenants: []string{"acme"}, Via: "api"}
		id, err := in.Quarantine(l.Ctx, app, sub)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := in.Quarantine(l.Ctx, app, sub); err != nil || again != id {
			t.Fatal(again, err)
		}
		for name, c := range map[string]struct {
			who    custody.Actor
			change func(*custody.Submission)
			code   pipeline.Code
		}{
			"another tenant":          {app, func(s *custody.Submission) { s.Identity.Tenant = "globex" }, pipeline.CodeTenantForbidden},
			"a viewer":                {custodytest.Viewer, func(*custody.Submission) {}, pipeline.CodePermissionDenied},
			"an unknown pipeline":     {app, func(s *custody.Submission) { s.Pipeline = "x" }, pipeline.CodeInputInvalid},
			"no consumer":             {app, func(s *custody.Submission) { s.Identity.Consumer = "" }, pipeline.CodeInputInvalid},
			"nothing to know it by":   {app, func(s *custody.Submission) { s.At, s.Identity.EventID = pipeline.Position{}, "" }, pipeline.CodeInputInvalid},
			"what cannot be redacted": {app, func(s *custody.Submission) { s.Record.Value = []byte("refuse") }, pipeline.CodeRedactFailed},
		} {
			bad := sub
			c.change(&bad)
			if _, err := in.Quarantine(l.Ctx, c.who, bad); pipeline.CodeOf(err) != c.code {
				t.Errorf("%s: %v", name, err)
			}
		}
		l.cl.Refuse(dlq, pipeline.CodeSendTimeout, 1)
		if _, err := in.Quarantine(l.Ctx, app, sub); pipeline.CodeOf(err) != pipeline.CodeCustodyUnavailable {
			t.Fatal(err)
		}
		// One that gives up leaves nothing that a later one takes for its own.
		sink.Hold()
		short, cancel := context.WithTimeout(l.Ctx, 10*time.Millisecond)
		defer cancel()
		if _, err := in.Quarantine(short, app, sub); pipeline.CodeOf(err) != pipeline.CodeCustodyUnavailable {
			t.Fatal(err)
		}
		sink.Flow()
		card := sub
		card.Record.Value, card.Identity.EventID = []byte("4111111111111111"), "e2"
		cardID, err := in.Quarantine(l.Ctx, app, card)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range l.cl.All(dlq) {
			if bytes.Contains(r.Value, []byte("4111")) {
				t.Fatal("a card number is on the dead-letter topic")
			}
		}
		k, _ := l.custodian(l.Items)
		stop := run(k)
		l.passed(k)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		s1, s2 := l.Show(t, id), l.Show(t, cardID)
		if s1.Item.State != custody.DeadLettered || s1.Item.Faithful != "inline" || s1.Item.Code != pipeline.CodeRejected || s1.Item.Original != sub.At || s1.Item.Exception != "AccountMissing" || s2.Item.Faithful != "source" {
			t.Fatalf("%+v %+v", s1.Item, s2.Item)
		}
		if n := l.count(""); n != 2 {
			t.Fatal(n)
		}
	})
}

// The id of a record without an event id is made of its position, and a position is nobody's: an application of one tenant that knows
// where another's record stands, and its bytes, takes nothing into its place and touches nothing of it.
func TestAnIntakeReachesNoItemOfAnotherTenant(t *testing.T) {
	ledgertest.Each(t, func(t *testing.T, s ledgertest.Store) {
		l := newLab(t, s)
		sink := l.cl.Sink(script.SinkOptions{})
		in := custody.NewIntake(custody.IntakeOptions{Items: l.Items, Sanitizer: masker{}, Ring: l.Ring,
			Target: func(string) (string, pipeline.Sink, bool) { return dlq, sink, true }})
		letter := l.Letter(0)
		letter.Identity.EventID = ""
		letter.Item = deadletter.QuarantineID(l.Identity, letter.Identity, letter.Cluster, letter.Original, letter.Value)
		theirs := custody.Submission{Pipeline: "billing", Cluster: letter.Cluster, At: letter.Original, Record: pipeline.Record{Offset: letter.Original.Offset, Value: letter.Value},
			Identity: pipeline.Identity{Consumer: letter.Identity.Consumer, Tenant: "globex"}, Failure: pipeline.Failure{Code: pipeline.CodeRejected}}
		app := custody.Actor{Subject: "app", Roles: []string{"intake"}, Tenants: []string{"globex"}, Via: "api"}
		first, err := in.Quarantine(l.Ctx, app, theirs) // before the pipeline does
		if err != nil || first == letter.Item {
			t.Fatal(first, err)
		}
		if again, err := in.Quarantine(l.Ctx, app, theirs); err != nil || again != first {
			t.Fatal(again, err)
		}
		l.taken()
		if _, err := l.Items.Admit(l.Ctx, custodytest.Worker, []custody.Arrival{custodytest.Arrival(letter, 100)}); err != nil {
			t.Fatal(err)
		}
		before := fmt.Sprintf("%+v", l.Show(t, letter.Item).Item)
		if !strings.Contains(before, "Tenant:acme") {
			t.Fatal(before)
		}
		// Whoever may write to an adopted topic can name the id itself.
		forged := *letter
		forged.Identity.Tenant, forged.Decision.Policy, forged.DigestFaithful = "globex", "", "hmac256:x:00"
		if sum, err := l.Items.Admit(l.Ctx, custodytest.Worker, []custody.Arrival{custodytest.Arrival(&forged, 101)}); err != nil || sum != (custody.Admitted{}) {
			t.Fatal(sum, err)
		}
		shown := l.Show(t, letter.Item)
		if after := fmt.Sprintf("%+v", shown.Item); after != before {
			t.Errorf("changed:\n%s\n%s", before, after)
		}
		if last := shown.History[len(shown.History)-1]; last.Event != "conflict" || last.Tenant != "acme" {
			t.Errorf("%+v", last)
		}
		var tenant string
		if err := l.Store.SQL(t).QueryRow("SELECT tenant FROM raw_messages WHERE message_offset = 101").Scan(&tenant); err != nil || tenant != "globex" {
			t.Error(tenant, err)
		}
		mustVerify(t, l.Env)
	})
}

// What an application hands over and nobody can redact is sealed, and shows nothing: without a vault it is refused.
func TestAnIntakeSealsWhatCannotBeRedacted(t *testing.T) {
	ledgertest.Each(t, func(t *testing.T, s ledgertest.Store) {
		l := newLab(t, s)
		keys := newSealing(t, l.Env)
		const vault = dlq + ".vault"
		l.cl.CreateTopic(vault, 1, nil)
		sink := l.cl.Sink(script.SinkOptions{})
		in := custody.NewIntake(custody.IntakeOptions{Items: l.Items, Sanitizer: masker{}, Ring: l.Ring,
			Vault:  &custody.IntakeVault{Sealer: keys.sealer, Strip: masker{}, Topic: func(string) string { return vault }},
			Target: func(p string) (string, pipeline.Sink, bool) { return dlq, sink, p == "billing" }})
		sub := custody.Submission{Pipeline: "billing", Cluster: "cluster-1",
			Record:   pipeline.Record{TimeMS: custodytest.Start.UnixMilli(), TimeType: pipeline.TimeCreate, Key: []byte("k"), Value: []byte("refuse"), Headers: []pipeline.Header{{Name: "trace", Value: []byte("1")}, {Name: "null"}}},
			Identity: pipeline.Identity{Consumer: "app", Tenant: "acme", EventID: "e1"}, Failure: pipeline.Failure{Stage: "app", Code: pipeline.CodeRejected}, Reason: "no account"}
		app := custody.Actor{Subject: "app", Roles: []string{"admin"}, Tenants: []string{"acme"}, Via: "api"}
		id, err := in.Quarantine(l.Ctx, app, sub)
		if err != nil {
			t.Fatal(err)
		}
		letters, kept := l.cl.All(dlq), l.cl.All(vault)
		if len(letters) != 1 || len(kept) != 1 {
			t.Fatalf("%d letters, %d vault messages", len(letters), len(kept))
		}
		letter, err := deadletter.Parse(dlq, &letters[0], l.Ring)
		if err != nil || letter.Item != id || letter.Kind != deadletter.KindSealed || letter.Value != nil || letter.Faithful != deadletter.Vault || string(letter.Key) != "k" {
			t.Fatalf("%+v %v", letter, err)
		}
		v, err := deadletter.ParseVaulted(vault, &kept[0], l.Ring)
		if err != nil || v.Item != id || bytes.Contains(kept[0].Value, []byte("refuse")) {
			t.Fatalf("%+v %v", v, err)
		}
		plain, err := keys.opener.Open(v.Tenant, v.Enc, v.Sealed, []byte(id))
		if err != nil {
			t.Fatal(err)
		}
		key, value, headers, err := deadletter.UnpackRecord(plain)
		if err != nil || string(key) != "k" || string(value) != "refuse" || len(headers) != 2 || headers[1].Value != nil {
			t.Errorf("%q %q %v %v", key, value, headers, err)
		}
		if again, err := in.Quarantine(l.Ctx, app, sub); err != nil || again != id {
			t.Errorf("%s %v", again, err)
		}
		l.cl.Refuse(vault, pipeline.CodeSendTimeout, 1) // both or nothing that counts: the caller keeps its record and sends again
		if _, err := in.Quarantine(l.Ctx, app, sub); pipeline.CodeOf(err) != pipeline.CodeCustodyUnavailable {
			t.Error(err)
		}
	})
}

// keyless is a sealer whose keys nobody has made yet.
type keyless struct{}

func (keyless) Seal(tenant string, _, _ []byte) ([]byte, string, error) {
	return nil, "", pipeline.Errorf(pipeline.CodeKeyUnknown, tenant, "the ledger has no key yet")
}

func TestARecordThatCannotBeSealedYetIsToBeSentAgain(t *testing.T) {
	l := newLab(t, ledgertest.SQLite(t))
	sink := l.cl.Sink(script.SinkOptions{})
	in := custody.NewIntake(custody.IntakeOptions{Items: l.Items, Sanitizer: masker{}, Ring: l.Ring, Sealer: func(string) pipeline.Sealer { return keyless{} },
		Target: func(string) (string, pipeline.Sink, bool) { return dlq, sink, true }})
	sub := custody.Submission{Pipeline: "billing", Record: pipeline.Record{Value: []byte("{}")}, Identity: pipeline.Identity{Consumer: "app", Tenant: "acme", EventID: "e1"},
		Failure: pipeline.Failure{Stage: "app", Code: pipeline.CodeRejected}}
	_, err := in.Quarantine(l.Ctx, custody.Actor{Subject: "app", Roles: []string{"admin"}, Tenants: []string{"acme"}}, sub)
	if pipeline.CodeOf(err) != pipeline.CodeSealFailed || len(l.cl.All(dlq)) != 0 {
		t.Fatalf("%v, %d letters", err, len(l.cl.All(dlq)))
	}
}
