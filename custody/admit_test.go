package custody_test

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"reprieve.dev/custody"
	"reprieve.dev/custody/custodytest"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
)

func TestAdmitKeepsEverythingOnce(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		list := e.Arrivals(0, 20)
		got, err := e.Items.Admit(e.Ctx, custodytest.Worker, list)
		if err != nil || got != (custody.Admitted{New: 20}) {
			t.Fatal(got, err)
		}
		got, err = e.Items.Admit(e.Ctx, custodytest.Worker, list)
		if err != nil || got != (custody.Admitted{Repeated: 20}) {
			t.Fatal(got, err)
		}
		l := list[5].Letter
		s := e.Show(t, l.Item)
		it := s.Item
		if it.ID != l.Item || it.State != custody.DeadLettered || it.Original != l.Original || it.At != l.At || it.Identity != l.Identity || it.Fingerprint != l.Fingerprint ||
			it.Letter != list[5].Stands || it.Reason != l.Reason || it.DigestFaithful != l.DigestFaithful || it.Confirmed != custody.Unconfirmed || it.Sightings != 1 {
			t.Fatalf("%+v", it)
		}
		if d := cmp.Diff([]custody.State{custody.Delivered, custody.DeadLettered}, custodytest.Path(s)); d != "" {
			t.Fatal(d)
		}
		b, err := e.Items.Open(e.Ctx, custodytest.Owner, l.Item, "a look")
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(custody.Bytes{Key: l.Key, Value: l.Value, Headers: l.Headers, TimeMS: l.OriginalMS, TimeType: l.TimeType, Faithful: true}, b); d != "" {
			t.Fatal(d)
		}
		groups, err := e.Items.Groups(e.Ctx, custodytest.Operator, custody.GroupFilter{})
		if err != nil || len(groups) != 1 || groups[0].Counts[custody.DeadLettered] != 20 || groups[0].FirstItem != list[0].Letter.Item || groups[0].LastItem != list[19].Letter.Item {
			t.Fatalf("%+v %v", groups, err)
		}
	})
}

func TestAnotherArrivalIsASightingAndAttemptsAppend(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		l := e.Letter(1)
		l.Decision.Attempt = 2
		l.Attempts = []pipeline.Attempt{{N: 0, At: custodytest.Start, Code: pipeline.CodeHTTPUnavailable}, {N: 1, At: custodytest.Start.Add(time.Second), Code: pipeline.CodeHTTPTimeout}}
		if _, err := e.Items.Admit(e.Ctx, custodytest.Worker, []custody.Arrival{custodytest.Arrival(l, 1)}); err != nil {
			t.Fatal(err)
		}
		again := *l
		again.Attempts = append(again.Attempts[:2:2], pipeline.Attempt{N: 2, At: custodytest.Start.Add(2 * time.Second), Code: pipeline.CodeHTTPTimeout})
		got, err := e.Items.Admit(e.Ctx, custodytest.Worker, []custody.Arrival{custodytest.Arrival(&again, 9), custodytest.Arrival(&again, 9)})
		if err != nil || got != (custody.Admitted{Seen: 1, Repeated: 1}) {
			t.Fatal(got, err)
		}
		s := e.Show(t, l.Item)
		if len(s.Sightings) != 1 || s.Sightings[0].Letter.Offset != 9 || s.Item.Sightings != 2 || len(s.Attempts) != 3 {
			t.Fatalf("%+v", s)
		}
		if d := cmp.Diff([]custody.State{custody.Delivered, custody.Retrying, custody.DeadLettered}, custodytest.Path(s)); d != "" {
			t.Fatal(d)
		}
	})
}

func TestSameEventWithOtherBytesIsANewItemLinkedAndHeldOut(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		a, b, c := e.Letter(1), e.Letter(2), e.Letter(3)
		for _, l := range []*deadletter.Letter{b, c} {
			l.Identity.EventID = a.Identity.EventID
			l.Item = deadletter.QuarantineID(e.Identity, l.Identity, l.Cluster, l.Original, l.Value)
		}
		for _, batch := range [][]custody.Arrival{{custodytest.Arrival(a, 1)}, {custodytest.Arrival(b, 2), custodytest.Arrival(c, 3)}} {
			if _, err := e.Items.Admit(e.Ctx, custodytest.Worker, batch); err != nil {
				t.Fatal(err)
			}
		}
		for _, l := range []*deadletter.Letter{a, b, c} {
			s := e.Show(t, l.Item)
			if s.Item.Flags&custody.FlagSameEvent == 0 || len(s.SameEvent) != 2 {
				t.Fatalf("%v %v", s.Item.Flags.Names(), s.SameEvent)
			}
		}
		e.Triage(t, a.Item)
		if code := e.Show(t, a.Item).Item.Redrivable(); code != pipeline.CodeItemHeld {
			t.Fatal(code)
		}
	})
}

func TestOtherBytesUnderASignedIDAreAConflictAndKept(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		l := e.Letter(1)
		other := *l
		other.Value = []byte("something else")
		other.DigestFaithful = pipeline.Digest(e.Identity.Digest(other.Value))
		if _, err := e.Items.Admit(e.Ctx, custodytest.Worker, []custody.Arrival{custodytest.Arrival(l, 1), custodytest.Arrival(&other, 2)}); err != nil {
			t.Fatal(err)
		}
		s := e.Show(t, l.Item)
		if s.Item.Flags&custody.FlagConflict == 0 || s.Item.DigestFaithful != l.DigestFaithful {
			t.Fatal(s.Item.Flags.Names())
		}
		var kept []byte
		if err := e.Store.SQL(t).QueryRow("SELECT value FROM raw_messages").Scan(&kept); err != nil || string(kept) != "something else" {
			t.Fatalf("%q %v", kept, err)
		}
	})
}

func TestForeignLettersAreAdmittedWithWhatTheySay(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		connect := &deadletter.Letter{Kind: deadletter.KindLetter, Dialect: deadletter.Connect, Original: pipeline.Position{TP: pipeline.TP{Topic: "orders"}, Offset: 7}, Cluster: "c2", OriginalMS: -1,
			Identity: pipeline.Identity{Consumer: "connect-sink"}, Exception: "org.apache.kafka.connect.errors.DataException", Value: []byte("x"), QuarantinedMS: custodytest.Start.UnixMilli()}
		raw := &deadletter.Letter{Kind: deadletter.KindLetter, Dialect: deadletter.Raw, Original: deadletter.NoPosition, OriginalMS: -1, Value: nil, QuarantinedMS: 5}
		got, err := e.Items.Admit(e.Ctx, custodytest.Worker, []custody.Arrival{custodytest.Arrival(connect, 1), custodytest.Arrival(raw, 2), custodytest.Arrival(raw, 3)})
		if err != nil || got.New != 3 {
			t.Fatal(got, err)
		}
		found, err := e.Items.Find(e.Ctx, custodytest.Operator, custody.Selection{}, custody.Page{})
		if err != nil || len(found.Items) != 3 {
			t.Fatal(found, err)
		}
		for _, it := range found.Items {
			if it.Tenant != pipeline.TenantUnassigned || it.Code != pipeline.CodeForeignFailure {
				t.Errorf("%+v", it)
			}
			if want := map[string]custody.Confirmed{deadletter.Connect: custody.Unconfirmed, deadletter.Raw: custody.SourceUnknown}[it.Dialect]; it.Confirmed != want {
				t.Errorf("%s: %s", it.Dialect, it.Confirmed)
			}
		}
		// The group that the letter names has passed its position.
		if err := e.Items.Committed(e.Ctx, custodytest.Worker, "connect-sink", map[pipeline.TP]int64{{Topic: "orders"}: 8}); err != nil {
			t.Fatal(err)
		}
		sel, _ := custody.ParseSelection("confirmed=yes dialect=connect")
		if n, err := e.Items.Count(e.Ctx, custodytest.Operator, sel); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	})
}

// NUL, a Latin-1 byte, a cut character, a lone surrogate, and backslash-u0000 that is only text: five rows on both stores.
func TestCaseC37NoTextCostsARow(t *testing.T) {
	data, err := os.ReadFile("testdata/c37_rows.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct {
		N         int
		ReasonHex string `json:"reason_hex"`
		JSON      string
	}
	if err := json.Unmarshal(data, &rows); err != nil || len(rows) != 5 {
		t.Fatal(err)
	}
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		var list []custody.Arrival
		for _, r := range rows {
			reason, err := hex.DecodeString(r.ReasonHex)
			if err != nil {
				t.Fatal(err)
			}
			l := e.Letter(int64(r.N))
			l.Reason, l.Value = string(reason), []byte(r.JSON)
			l.Identity.EventID, l.Identity.Entity, l.Stack = string(reason), string(reason), "at "+string(reason)
			l.Key = reason
			l.Headers = []pipeline.Header{{Name: string(reason), Value: reason}}
			list = append(list, custodytest.Arrival(l, int64(r.N)))
		}
		got, err := e.Items.Admit(e.Ctx, custodytest.Worker, list)
		if err != nil || got.New != 5 {
			t.Fatal(got, err)
		}
		for i, r := range rows {
			l := list[i].Letter
			s := e.Show(t, l.Item)
			if !utf8.ValidString(s.Item.Reason) || s.Item.Reason == "" {
				t.Errorf("row %d: %q", r.N, s.Item.Reason)
			}
			if clean := utf8.ValidString(l.Reason) && r.N != 1; clean != (s.Item.ReasonRaw == nil) || !clean && string(s.Item.ReasonRaw) != l.Reason {
				t.Errorf("row %d: raw %q", r.N, s.Item.ReasonRaw)
			}
			b, err := e.Items.Open(e.Ctx, custodytest.Owner, l.Item, "a look")
			if err != nil || string(b.Value) != r.JSON || string(b.Key) != l.Reason || b.Headers[0].Name != l.Reason {
				t.Errorf("row %d: %q %v", r.N, b.Value, err)
			}
		}
	})
}

// A limit counts characters, and the result is valid UTF-8 without NUL; the bytes as they came are kept.
func TestCaseC35LimitsCountCharacters(t *testing.T) {
	read := func(name string) string {
		b, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	second, err := hex.DecodeString("626164206279746520fffe2068657265200020656e64")
	if err != nil {
		t.Fatal(err)
	}
	reasons := []string{read("c35_reason.txt"), read("c35_reason_long.txt"), string(second)}
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		for i, reason := range reasons {
			l := e.Letter(int64(i))
			l.Reason, l.Stack = reason, reason+reason+reason+reason+reason
			if _, err := e.Items.Admit(e.Ctx, custodytest.Worker, []custody.Arrival{custodytest.Arrival(l, int64(i))}); err != nil {
				t.Fatal(err)
			}
			s := e.Show(t, l.Item)
			got := s.Item.Reason
			if !utf8.ValidString(got) || !utf8.ValidString(s.Stack) || utf8.RuneCountInString(s.Stack) > 2048 {
				t.Errorf("%d: %q", i, got)
			}
			switch i {
			case 0:
				if got != reason || utf8.RuneCountInString(got) != 193 {
					t.Errorf("%d: %q", i, got)
				}
			case 1:
				if utf8.RuneCountInString(got) != 512 || len(got) != 1024 {
					t.Errorf("%d: %d characters", i, utf8.RuneCountInString(got))
				}
			case 2:
				if got != "bad byte \uFFFD here \uFFFD end" || string(s.Item.ReasonRaw) != reason {
					t.Errorf("%d: %q %q", i, got, s.Item.ReasonRaw)
				}
			}
		}
	})
}

func TestNothingIsHalfWritten(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		list := e.Arrivals(0, 3)
		if _, err := e.Store.SQL(t).Exec("DROP TABLE attempts"); err != nil {
			t.Fatal(err)
		}
		list[2].Letter.Attempts = []pipeline.Attempt{{N: 1, At: custodytest.Start, Code: "ERR_X"}}
		_, err := e.Items.Admit(e.Ctx, custodytest.Worker, list)
		if pipeline.CodeOf(err) != pipeline.CodeLedgerVersion {
			t.Fatal(err)
		}
		for _, table := range []string{"items", "payloads", "dlq_message_custody_ledger", "groups", "group_rollup"} {
			var n int
			if err := e.Store.SQL(t).QueryRow("SELECT count(*) FROM " + table).Scan(&n); err != nil || n != 0 {
				t.Fatal(table, n, err)
			}
		}
	})
}

func BenchmarkAdmit(b *testing.B) {
	for _, store := range stores(b) {
		b.Run(store.name, func(b *testing.B) {
			e := custodytest.New(b, store.open(b))
			n := int64(500)
			if _, err := e.Items.Admit(e.Ctx, custodytest.Worker, e.Arrivals(0, n)); err != nil { // the place of the week, prepared statements
				b.Fatal(err)
			}
			for b.Loop() {
				b.StopTimer()
				list := e.Arrivals(n, n+500)
				for i := range list {
					list[i].Letter.Value = append(list[i].Letter.Value, make([]byte, 1100)...)
				}
				n += 500
				b.StartTimer()
				if _, err := e.Items.Admit(e.Ctx, custodytest.Worker, list); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(n-500)/b.Elapsed().Seconds(), "items/s")
		})
	}
}
