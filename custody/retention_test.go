package custody_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/custody/custodytest"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
)

// What the data of an item asks for wins, whether its letter or the file of its pipeline says what data it is; who knows neither keeps it
// as long as any data asks, and fixes nothing.
func TestHowLongFollowsFromTheData(t *testing.T) {
	const day = 24 * time.Hour
	r := custody.Retention{Default: 30 * day, Class: map[pipeline.Class]time.Duration{pipeline.Authorization: 90 * day},
		Data: map[string]time.Duration{"payments": 400 * day, "telemetry": 2 * day}, Pipeline: map[string]string{"billing": "payments", "meters": ""}}
	for _, c := range []struct {
		data, pipeline string
		class          pipeline.Class
		want           time.Duration
		fixed          bool
		said           string
	}{
		{"", "billing", pipeline.Payload, 400 * day, true, "payments"},
		{"telemetry", "billing", pipeline.Payload, 2 * day, true, "telemetry"}, // the file has changed since
		{"telemetry", "elsewhere", pipeline.Authorization, 2 * day, true, "telemetry"},
		{"", "meters", pipeline.Payload, 30 * day, true, ""},
		{"", "meters", pipeline.Authorization, 90 * day, true, ""},
		{"", "elsewhere", pipeline.Payload, 400 * day, false, ""},
		{"secret", "elsewhere", pipeline.Payload, 400 * day, false, "secret"},
		{"", "", pipeline.Payload, 30 * day, true, ""},
	} {
		it := &custody.Item{Data: c.data, Pipeline: c.pipeline, Class: c.class}
		if got := r.Of(it); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
		data, keep := r.Fix(it)
		if data != c.said || (keep != 0) != c.fixed || c.fixed && keep != c.want {
			t.Errorf("%+v: fixed as %q, %v", c, data, keep)
		}
		it.KeepMS = (7 * day).Milliseconds()
		if got := r.Of(it); got != 7*day {
			t.Errorf("%+v: %v, and seven days were fixed", c, got)
		}
	}
}

// What was said when an item was admitted holds for whoever looks after retention later, whatever their files say; it is evidence.
func TestDataAndHorizonAreFixedWhenAnItemIsAdmitted(t *testing.T) {
	const day = 24 * time.Hour
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		then := custody.Retention{Default: 30 * day, Class: map[pipeline.Class]time.Duration{pipeline.Domain: 10 * day},
			Data: map[string]time.Duration{"payments": 400 * day, "telemetry": 2 * day}, Pipeline: map[string]string{"billing": "payments", "meters": ""}}
		items := e.Again(e.DB, func(o *custody.Options) { o.Keep = then.Fix })
		list := e.Arrivals(0, 5)
		list[1].Letter.Data = "telemetry"
		list[2].Letter.Pipeline = "meters"
		list[3].Letter.Pipeline = "elsewhere" // its file is not here
		parked := list[4].Letter
		parked.Kind, parked.Pipeline, parked.Class, parked.Failure.Code, parked.Behind = deadletter.KindParked, "meters", pipeline.ClassNone, "", list[0].Letter.Item
		if _, err := items.Admit(e.Ctx, custodytest.Worker, list); err != nil {
			t.Fatal(err)
		}
		is := func(n int, data string, keep time.Duration) {
			t.Helper()
			if it := e.Show(t, list[n].Letter.Item).Item; it.Data != data || it.KeepMS != keep.Milliseconds() {
				t.Errorf("%d: %q, %v", n, it.Data, time.Duration(it.KeepMS)*time.Millisecond)
			}
		}
		is(0, "payments", 400*day)
		is(1, "telemetry", 2*day)
		is(2, "", 30*day)
		is(3, "", 0)
		is(4, "", 30*day)
		f := *e.Letter(4) // its turn came, and it failed
		f.Item, f.Pipeline, f.Class, f.Failure.Code = parked.Item, "meters", pipeline.Domain, pipeline.CodeRejected
		if _, err := items.Admit(e.Ctx, custodytest.Worker, []custody.Arrival{custodytest.Arrival(&f, 40)}); err != nil {
			t.Fatal(err)
		}
		is(4, "", 10*day)
		mustVerify(t, e)
		if n, err := e.Items.Count(e.Ctx, custodytest.Operator, selection(t, "data=payments|telemetry")); err != nil || n != 2 {
			t.Errorf("%d %v", n, err)
		}
		if form := e.Show(t, list[1].Letter.Item).Item.Form(); form.Data != "telemetry" || form.Expires != custodytest.Start.Add(2*day+time.Second).Format(pipeline.TimeForm) {
			t.Errorf("%+v", form)
		}

		now := custody.Retention{Default: day, Data: map[string]time.Duration{"payments": 2 * day}} // another worker, whose file says other things
		expire := func(want int64) {
			t.Helper()
			if x, err := e.Items.Expire(e.Ctx, custodytest.Admin, now, nil); err != nil || x.Expired != want {
				t.Errorf("%+v %v", x, err)
			}
		}
		e.Turn(day + time.Hour)
		expire(0)
		e.Turn(day)
		expire(2) // 1 is fixed so; 3 is not, and any data here stays for two days
		e.Turn(8 * day)
		expire(1)
		e.Turn(20 * day)
		expire(1)
		now.Default, now.Data["payments"] = 5000*day, 5000*day
		e.Turn(369 * day)
		expire(0)
		e.Turn(day)
		expire(1) // though nothing that is said here is so short
		mustVerify(t, e)

		if _, err := e.Store.SQL(t).Exec("UPDATE items SET keep_ms = 1 WHERE id = '" + string(list[2].Letter.Item) + "'"); err != nil {
			t.Fatal(err)
		}
		v, err := e.Items.Verify(e.Ctx, custodytest.Admin, nil, nil)
		if err != nil || len(v.Findings) != 1 || v.Findings[0].Place != "items/"+string(list[2].Letter.Item) {
			t.Errorf("%+v %v", v.Findings, err)
		}
	})
}

// Two persons may let items end sooner than any rule says.
func TestAnEndThatWasAgreedOnComesBeforeEveryRule(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		ids := e.Admit(t, 0, 2)
		x, err := e.Items.ProposeExtension(e.Ctx, custodytest.Admin, custody.One(ids[0]), custodytest.Start.Add(24*time.Hour), "the contract says so")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Items.ApproveExtension(e.Ctx, custodytest.Owner, x.ID, nil); err != nil {
			t.Fatal(err)
		}
		if soon, err := e.Items.EndingSoon(e.Ctx, custodytest.Operator, custody.Retention{}); err != nil || len(soon) != 1 || soon[0].N != 1 {
			t.Errorf("%+v %v", soon, err)
		}
		e.Turn(25 * time.Hour)
		if x, err := e.Items.WouldExpire(e.Ctx, custodytest.Operator, custody.Retention{}); err != nil || x.Expired != 1 {
			t.Errorf("%+v %v", x, err)
		}
		var told []int64
		progress := func(done, total int64) { told = append(told, done, total) }
		if x, err := e.Items.Expire(e.Ctx, custodytest.Admin, custody.Retention{}, progress); err != nil || x.Expired != 1 || !slices.Equal(told, []int64{1, 1}) {
			t.Errorf("%+v %v %v", x, told, err)
		}
		mustVerify(t, e)
	})
}

func TestExpiryRecordsTheLossAndALegalHoldWins(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		ids := e.Admit(t, 0, 8)
		who := custodytest.Admin
		e.Triage(t, ids[1:7]...)
		must := func(_ custody.Report, err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		must(e.Items.LegalHold(e.Ctx, who, custody.One(ids[1]), "case 1"))
		must(e.Items.Discard(e.Ctx, who, custody.One(ids[2]), "r", "e"))
		x, err := e.Items.ProposeExtension(e.Ctx, who, custody.One(ids[3]), custodytest.Start.Add(60*24*time.Hour), "waits for the vendor")
		if err != nil {
			t.Fatal(err)
		}
		must(e.Items.ApproveExtension(e.Ctx, custodytest.Owner, x.ID, nil))
		must(e.Items.Resolve(e.Ctx, who, custody.One(ids[4]), custody.ResolvedApplied, "r", "e"))
		if err := e.Items.Within(e.Ctx, func(tx *ledger.Tx) error {
			_, _, err := e.Items.Intend(tx, who, &custody.Intent{Manifest: manifest}, ids[5:6], custody.Accept{Unconfirmed: true})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		must(e.Items.Hold(e.Ctx, who, custody.One(ids[6]), "policy"))
		keep := custody.Retention{Default: 30 * 24 * time.Hour, Class: map[pipeline.Class]time.Duration{pipeline.Payload: 31 * 24 * time.Hour}}
		e.Turn(27 * 24 * time.Hour)
		soon, err := e.Items.EndingSoon(e.Ctx, custodytest.Operator, keep)
		if err != nil || len(soon) != 1 || soon[0].N != 4 {
			t.Fatalf("%+v %v", soon, err)
		}
		e.Turn(3*24*time.Hour + time.Hour)
		if x, err := e.Items.Expire(e.Ctx, who, keep, nil); err != nil || x != (custody.Expiry{Held: 1}) {
			t.Fatalf("a day too early: %+v %v", x, err)
		}
		e.Turn(24 * time.Hour)
		if x, err := e.Items.Expire(e.Ctx, who, keep, nil); err != nil || x != (custody.Expiry{Expired: 3, Payloads: 2, Held: 1}) {
			t.Fatalf("%+v %v", x, err)
		}
		want := []custody.State{custody.Expired, custody.Triaged, custody.Discarded, custody.Triaged, custody.Reconciled, custody.Redriving, custody.Expired, custody.Expired}
		gone := []bool{true, false, true, false, true, false, true, true}
		for i, id := range ids {
			s := e.Show(t, id)
			if s.Item.State != want[i] {
				t.Errorf("%d is %s", i, s.Item.State)
			}
			if _, err := e.Items.Open(e.Ctx, who, id, "look"); (pipeline.CodeOf(err) == pipeline.CodePayloadMissing) != gone[i] {
				t.Errorf("%d: %v", i, err)
			}
			if want[i] == custody.Expired {
				for _, h := range s.History {
					if h.To == "EXPIRED" && h.Detail["loss"] == "" {
						t.Errorf("%d: the loss is not recorded", i)
					}
				}
			}
		}
		if x, err := e.Items.Expire(e.Ctx, who, keep, nil); err != nil || x != (custody.Expiry{Held: 1}) {
			t.Fatalf("again: %+v %v", x, err)
		}
		mustVerify(t, e)
	})
}

func TestErasedBytesAreGoneAndTheRestVerifies(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		ids := e.Admit(t, 0, 21)
		who := custodytest.Admin
		e.Triage(t, ids...)
		if _, err := e.Items.LegalHold(e.Ctx, who, custody.One(ids[3]), "case 1"); err != nil {
			t.Fatal(err)
		}
		if err := e.Items.Within(e.Ctx, func(tx *ledger.Tx) error {
			_, _, err := e.Items.StoreRepairs(tx, who, []custody.NewRepair{{StoredRepair: custody.StoredRepair{Item: ids[10]}, Bytes: custody.Bytes{Value: []byte("r")}}})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Items.EraseEntity(e.Ctx, custodytest.Operator, "acme", "acct-3", "request 7"); pipeline.CodeOf(err) != pipeline.CodePermissionDenied {
			t.Fatal(err)
		}
		x, err := e.Items.EraseEntity(e.Ctx, who, "acme", "acct-3", "request 7")
		if err != nil || x.Items != 2 || len(x.Held) != 1 || x.Held[0] != ids[3] || len(x.Topics) != 2 {
			t.Fatalf("%+v %v", x, err)
		}
		for _, id := range []pipeline.ID{ids[10], ids[17]} {
			if _, err := e.Items.Open(e.Ctx, who, id, "look"); pipeline.CodeOf(err) != pipeline.CodeErased {
				t.Error(err)
			}
			s := e.Show(t, id)
			if code := s.Item.Redrivable(); code != pipeline.CodeErased {
				t.Error(code)
			}
			if s.History[0].Erased || !s.History[2].Erased || s.History[2].Actor != "" || s.History[len(s.History)-1].Event != "erased" || s.History[len(s.History)-1].Actor != "root" {
				t.Errorf("%+v", s.History)
			}
		}
		var n int
		if err := e.Store.SQL(t).QueryRow("SELECT (SELECT count(*) FROM repair_payloads) + (SELECT count(*) FROM payloads WHERE item = '" + string(ids[10]) + "')").Scan(&n); err != nil || n != 0 {
			t.Fatal(n, err)
		}
		if x, err = e.Items.EraseEntity(e.Ctx, who, "acme", "acct-3", "request 7"); err != nil || x.Items != 0 || x.Previous != 2 {
			t.Fatalf("%+v %v", x, err)
		}
		mustVerify(t, e)
	})
}

func TestExportsAreCompleteAndHarmless(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		list := e.Arrivals(0, 3)
		list[1].Letter.Reason = `=HYPERLINK("https://example.org","x")`
		list[1].Letter.Value = []byte{0xff, 0}
		list[1].Letter.Original.Offset = 9007199254740993
		if _, err := e.Items.Admit(e.Ctx, custodytest.Worker, list); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		n, err := e.Items.Export(e.Ctx, custodytest.Operator, custody.Selection{}, custody.ExportOptions{CSV: true}, &out)
		if err != nil || n != 3 {
			t.Fatal(n, err)
		}
		rows, err := csv.NewReader(&out).ReadAll()
		if err != nil || len(rows) != 4 || rows[0][0] != "id" {
			t.Fatal(rows, err)
		}
		for _, r := range rows[1:] {
			for _, cell := range r {
				if strings.HasPrefix(cell, "=") {
					t.Errorf("a formula: %s", cell)
				}
			}
		}
		if _, err := e.Items.Export(e.Ctx, custodytest.Operator, custody.Selection{}, custody.ExportOptions{Payloads: true, Reason: "r"}, &out); pipeline.CodeOf(err) != pipeline.CodePermissionDenied {
			t.Fatal(err)
		}
		out.Reset()
		n, err = e.Items.Export(e.Ctx, custodytest.Owner, selection(t, "id="+string(list[1].Letter.Item)), custody.ExportOptions{Payloads: true, Reason: "for the vendor"}, &out)
		if err != nil || n != 1 {
			t.Fatal(n, err)
		}
		var line struct {
			ID, Offset, State string
			Record            struct {
				Offset string
				Value  map[string]string
			}
		}
		if err := json.Unmarshal(out.Bytes(), &line); err != nil || line.Offset != "9007199254740993" || line.Record.Offset != line.Offset || line.Record.Value["base64"] != "/wA=" || line.State != "DEAD_LETTERED" {
			t.Fatalf("%s %v", out.Bytes(), err)
		}
		h := e.Show(t, list[1].Letter.Item).History
		if last := h[len(h)-1]; last.Event != "revealed" || last.Detail["by"] != "export" {
			t.Fatalf("%+v", last)
		}
	})
}

func TestRebuiltItemsAreHeldOutUntilSomebodyVouches(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		a := custodytest.Arrival(e.Letter(0), 0)
		a.Rebuilt = true
		if _, err := e.Items.Admit(e.Ctx, custodytest.Worker, []custody.Arrival{a}); err != nil {
			t.Fatal(err)
		}
		id := a.Letter.Item
		e.Confirm(t, 0, 1)
		e.Triage(t, id)
		if code := e.Show(t, id).Item.Redrivable(); code != pipeline.CodeItemHeld {
			t.Fatal(code)
		}
		if _, err := e.Items.Vouch(e.Ctx, custodytest.Operator, custody.One(id), custody.FlagErased, "e"); pipeline.CodeOf(err) != pipeline.CodeInputInvalid {
			t.Fatal(err)
		}
		if _, err := e.Items.Vouch(e.Ctx, custodytest.Operator, custody.One(id), custody.FlagRebuilt, "asked the payment provider"); err != nil {
			t.Fatal(err)
		}
		if code := e.Show(t, id).Item.Redrivable(); code != "" {
			t.Fatal(code)
		}
	})
}
