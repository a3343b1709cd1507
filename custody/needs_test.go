package custody_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/custody/custodytest"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/tests/conformance/script"
)

// keeping is a cluster whose topics hold twenty records each and keep them as long as their names say, and custody that may read it.
func keeping(t *testing.T, e *custodytest.Env) (*script.Cluster, *custody.Items) {
	t.Helper()
	cl := script.New(custodytest.Start.UnixMilli())
	for name, configs := range map[string]map[string]string{
		"20d": {"retention.ms": "1728000000"}, "40d": {"retention.ms": "3456000000"}, "forever": {"retention.ms": "-1"}, "compacted": {"cleanup.policy": "compact"}, "trimmed": nil,
		"sized": {"retention.ms": "3456000000", "retention.bytes": "1073741824"}, "sized for ever": {"retention.ms": "-1", "retention.bytes": "1048576"},
	} {
		cl.CreateTopic(name, 1, configs)
		for range 20 {
			cl.Append(pipeline.TP{Topic: name}, pipeline.Record{Value: []byte("x")})
		}
	}
	cl.CreateTopic("anew", 1, nil)
	cl.Trim(pipeline.TP{Topic: "trimmed"}, 15)
	schemas := func(_ context.Context, name, schema string) (bool, error) {
		if schema == "avro:8" {
			return false, pipeline.Errorf(pipeline.CodeRegistryUnavailable, "registries.main", "it does not answer")
		}
		return name == "billing" && schema == "avro:7", nil
	}
	return cl, e.Again(e.DB, func(o *custody.Options) {
		o.Source = func(cluster string) (pipeline.Log, bool) { return cl.Log(nil), cluster == "cluster-1" }
		o.Schemas = schemas
	})
}

// from makes the letter of source offset n say that its faithful bytes stand in a topic.
func from(e *custodytest.Env, n int64, topic string) custody.Arrival {
	l := e.Letter(n)
	l.Original.TP = pipeline.TP{Topic: topic}
	l.At, l.Faithful = l.Original, deadletter.Source
	return custodytest.Arrival(l, n)
}

func needLines(t *testing.T, n custody.Needs) (out []string) {
	t.Helper()
	for _, e := range n.Ends {
		when := time.UnixMilli(e.FirstMS).Sub(custodytest.Start).Round(time.Hour).String()
		switch {
		case e.Gone:
			when = "gone"
		case e.FirstMS == 0:
			when = "any time"
		}
		out = append(out, fmt.Sprintf("%s: %s %s of %s, %d: %s", when, e.Need, e.Subject, e.Tenant, e.Items, e.Code))
	}
	return out
}

func TestItemsThatOutliveWhatTheyNeedAreFound(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		cl, items := keeping(t, e)
		keys := custody.NewKeys(e.Items, newKeeper(t), "local")
		first, err := keys.Current(e.Ctx, "acme")
		if err != nil {
			t.Fatal(err)
		}
		list := e.Arrivals(0, 17)
		for n, topic := range map[int64]string{1: "20d", 2: "20d", 3: "40d", 4: "forever", 5: "compacted", 6: "trimmed", 7: "anew", 8: "nowhere", 9: "trimmed", 15: "20d", 16: "20d"} {
			list[n] = from(e, n, topic)
		}
		list[9].Letter.At = pipeline.Position{TP: pipeline.TP{Topic: "20d"}, Offset: 9} // a retry topic still has it
		list[10].Letter.Enc = "hpke1;" + first.ID() + ";x"
		list[11].Letter.Enc = "hpke1;tzzz.1;x"
		list[12].Letter.Schema = "avro:9"
		list[13].Letter.Schema = "avro:8"
		list[14].Letter.Schema, list[14].Letter.Failure.Code = "avro:9", pipeline.CodeSchemaUnknown // it never had one
		list[15].Letter.Faithful = deadletter.Vault                                                 // and the vault has nothing of it
		list[16].Letter.Identity.Tenant = "globex"
		if _, err := e.Items.Admit(e.Ctx, custodytest.Worker, list); err != nil {
			t.Fatal(err)
		}
		look := func(who custody.Actor, tenant string, want ...string) custody.Needs {
			t.Helper()
			got, err := items.Needs(e.Ctx, who, custody.Retention{}, tenant)
			if err != nil {
				t.Fatal(err)
			}
			if lines := needLines(t, got); !slices.Equal(lines, want) {
				t.Errorf("got\n%q\nwant\n%q", lines, want)
			}
			return got
		}
		gone := []string{"gone: key tzzz.1 of acme, 1: ERR_KEY_UNKNOWN", "gone: schema avro:9 of acme, 1: ERR_SCHEMA_UNKNOWN", "gone: source anew of acme, 1: ERR_PAYLOAD_MISSING",
			"gone: source nowhere of acme, 1: ERR_PAYLOAD_MISSING", "gone: source trimmed of acme, 1: ERR_PAYLOAD_MISSING"}
		acme := append(slices.Clone(gone), "any time: source compacted of acme, 1: ALERT_RETENTION_OUTLIVED", "480h0m0s: source 20d of acme, 4: ALERT_RETENTION_OUTLIVED")
		all := append(slices.Clone(acme), "480h0m0s: source 20d of globex, 1: ALERT_RETENTION_OUTLIVED")
		got := look(custodytest.Operator, "", all...)
		if ex := got.Ends[len(got.Ends)-2]; ex.Example != list[1].Letter.Item || ex.FirstMS != list[1].Letter.OriginalMS+20*24*3600*1000 || ex.Pipeline != "billing" {
			t.Errorf("%+v", ex)
		}
		if len(got.Unchecked) != 1 || got.Unchecked[0].Need != custody.NeedSchema || got.Unchecked[0].Subject != "avro:8" || got.Unchecked[0].Code != pipeline.CodeRegistryUnavailable {
			t.Errorf("%+v", got.Unchecked)
		}
		look(custodytest.Viewer, "", acme...)
		if _, err := items.Needs(e.Ctx, custodytest.Viewer, custody.Retention{}, "globex"); pipeline.CodeOf(err) != pipeline.CodeTenantForbidden {
			t.Fatal(err)
		}
		look(custodytest.Operator, "globex", all[len(all)-1])

		// A key that was rotated out still opens; one that was destroyed does not.
		second, err := keys.Rotate(e.Ctx, custodytest.Admin, "acme")
		if err != nil {
			t.Fatal(err)
		}
		look(custodytest.Viewer, "", acme...)
		if _, err := keys.Destroy(e.Ctx, custodytest.Admin, "acme", second.ID(), "they asked"); err != nil {
			t.Fatal(err)
		}
		acme = append([]string{"gone: key " + first.ID() + " of acme, 1: ERR_KEY_DESTROYED"}, acme...)
		look(custodytest.Viewer, "", acme...)

		// What is said of payloads: those that end soon, but for what is kept by a legal hold. What the topic should have dropped may go now.
		if _, err := e.Items.LegalHold(e.Ctx, custodytest.Admin, custody.One(list[0].Letter.Item), "case 1"); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Items.Discard(e.Ctx, custodytest.Admin, custody.One(triaged(t, e, list[12])), "r", "e"); err != nil {
			t.Fatal(err)
		}
		cl.Trim(pipeline.TP{Topic: "20d"}, 2)
		e.Turn(26 * 24 * time.Hour)
		look(custodytest.Viewer, "", acme[0], gone[0], "gone: source 20d of acme, 1: ERR_PAYLOAD_MISSING", gone[2], gone[3], gone[4],
			"any time: source 20d of acme, 3: ALERT_RETENTION_OUTLIVED", "any time: source compacted of acme, 1: ALERT_RETENTION_OUTLIVED", "720h0m0s: payload  of acme, 4: ALERT_RETENTION_ENDING")
	})
}

func triaged(t *testing.T, e *custodytest.Env, a custody.Arrival) pipeline.ID {
	t.Helper()
	e.Triage(t, a.Letter.Item)
	return a.Letter.Item
}

// A cluster that is not configured here is not asked, and that is said.
func TestWhatCannotBeAskedIsSaid(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		_, items := keeping(t, e)
		a := from(e, 1, "20d")
		a.Letter.Cluster = "cluster-2"
		if _, err := e.Items.Admit(e.Ctx, custodytest.Worker, []custody.Arrival{a}); err != nil {
			t.Fatal(err)
		}
		got, err := items.Needs(e.Ctx, custodytest.Operator, custody.Retention{}, "")
		if err != nil || len(got.Ends) != 0 || len(got.Unchecked) != 1 || got.Unchecked[0].Subject != "20d" || got.Unchecked[0].Code != pipeline.CodeConfigReference {
			t.Fatalf("%+v %v", got, err)
		}
	})
}

func TestOwnersAreToldOfWhatTheirItemsOutlive(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		cl, items := keeping(t, e)
		if _, err := e.Items.Admit(e.Ctx, custodytest.Worker, []custody.Arrival{from(e, 1, "20d"), from(e, 3, "40d")}); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Items.Assign(e.Ctx, custodytest.Operator, custody.One(e.Letter(1).Item), "finance"); err != nil {
			t.Fatal(err)
		}
		due := func(want ...string) {
			t.Helper()
			list, err := items.Due(e.Ctx, custodytest.Worker, custody.Retention{}, "platform", nil)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, n := range list {
				got = append(got, fmt.Sprintf("%s %s %d %q", n.Kind, n.Owner, n.Items, n.Text))
				if err := items.Told(e.Ctx, custodytest.Worker, n); err != nil {
					t.Fatal(err)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%q instead of %q", got, want)
			}
		}
		const short = `"the topic keeps the source's bytes for 20d only"`
		e.Turn(14 * 24 * time.Hour)
		due()
		e.Turn(25 * time.Hour) // five days before
		due("outlived finance 1 " + short)
		due()
		e.Turn(4 * 24 * time.Hour) // less than a day is left
		due("escalated platform 1 " + short)
		due()
		cl.Trim(pipeline.TP{Topic: "20d"}, 2)
		due(`outlived finance 1 "the topic has dropped the source's bytes"`)
		due()
	})
}

// A topic that has a bound of bytes may drop what it holds at any time, whatever its age; what goes by age soon is said as that, and told.
func TestATopicThatDropsBySizeIsSaid(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		_, items := keeping(t, e)
		if _, err := e.Items.Admit(e.Ctx, custodytest.Worker, []custody.Arrival{from(e, 1, "sized"), from(e, 2, "sized"), from(e, 3, "sized for ever"), from(e, 4, "40d"), from(e, 5, "forever")}); err != nil {
			t.Fatal(err)
		}
		look := func(want ...string) custody.Needs {
			t.Helper()
			got, err := items.Needs(e.Ctx, custodytest.Operator, custody.Retention{Default: 60 * 24 * time.Hour}, "")
			if err != nil {
				t.Fatal(err)
			}
			if lines := needLines(t, got); !slices.Equal(lines, want) {
				t.Errorf("got\n%q\nwant\n%q", lines, want)
			}
			return got
		}
		const forever, byAge = "any time: source sized for ever of acme, 1: ALERT_RETENTION_OUTLIVED", "960h0m0s: source 40d of acme, 1: ALERT_RETENTION_OUTLIVED"
		got := look("any time: source sized of acme, 2: ALERT_RETENTION_OUTLIVED", forever, byAge)
		if text := got.Ends[0].Text; text != "the topic keeps 1073741824 bytes of a partition (retention.bytes): the source's bytes may go at any time" {
			t.Error(text)
		}
		e.Turn(36 * 24 * time.Hour) // four days before
		look(forever, "960h0m0s: source sized of acme, 2: ALERT_RETENTION_OUTLIVED", byAge)
	})
}

// What needs nothing is left out by the ledger once its schema was asked for: of many more items than are read at once, each that outlives
// something is found all the same, and each question is put once.
func TestOfManyItemsEachThatOutlivesIsFound(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		cl, _ := keeping(t, e)
		asked := map[string]int{}
		items := e.Again(e.DB, func(o *custody.Options) {
			o.Source = func(string) (pipeline.Log, bool) { return cl.Log(nil), true }
			o.Schemas = func(_ context.Context, _, schema string) (bool, error) {
				asked[schema]++
				return schema != "avro:9", nil
			}
		})
		const n = 5000
		for at := int64(0); at < n; at += 1000 {
			list := e.Arrivals(at, at+1000)
			for i := range list {
				switch l := list[i].Letter; {
				case i%100 == 1:
					l.Schema = "avro:9"
				case i%100 == 2:
					l.Faithful, l.Original = deadletter.Source, pipeline.Position{TP: pipeline.TP{Topic: "20d"}, Offset: int64(i) % 20}
					l.At = l.Original
				case i%100 == 3:
					l.Enc = "hpke1;tzzz.1;x"
				}
			}
			if _, err := e.Items.Admit(e.Ctx, custodytest.Worker, list); err != nil {
				t.Fatal(err)
			}
		}
		want := []string{"gone: key tzzz.1 of acme, 50: ERR_KEY_UNKNOWN", "gone: schema avro:9 of acme, 50: ERR_SCHEMA_UNKNOWN", "480h0m0s: source 20d of acme, 50: ALERT_RETENTION_OUTLIVED"}
		for range 2 { // and once more when every payload ends soon
			got, err := items.Needs(e.Ctx, custodytest.Operator, custody.Retention{}, "")
			if err != nil {
				t.Fatal(err)
			}
			if lines := needLines(t, got); !slices.Equal(lines, want) {
				t.Errorf("got\n%q\nwant\n%q", lines, want)
			}
			e.Turn(25*24*time.Hour + 2*time.Hour)
			want[2] = "any time: source 20d of acme, 50: ALERT_RETENTION_OUTLIVED"
			if len(want) == 3 {
				want = append(want, "720h0m0s: payload  of acme, 4850: ALERT_RETENTION_ENDING")
			}
		}
		if asked["avro:7"] != 2 || asked["avro:9"] != 2 {
			t.Errorf("%v", asked)
		}
	})
}
