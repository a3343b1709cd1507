package redrive

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"reprieve.dev/custody"
	"reprieve.dev/custody/custodytest"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/seal"
)

func readCase(t *testing.T, path string, into any) {
	t.Helper()
	b, err := os.ReadFile("testdata/" + path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatal(err)
	}
}

// letters admits changed letters of offsets [from, to), confirmed and triaged.
func (b *bench) letters(from, to int64, change func(n int64, l *deadletter.Letter)) []pipeline.ID {
	b.t.Helper()
	var list []custody.Arrival
	var ids []pipeline.ID
	for n := from; n < to; n++ {
		l := b.Letter(n)
		change(n, l)
		l.DigestFaithful = pipeline.Digest(b.Identity.Digest(l.Value))
		l.DigestRedacted = pipeline.Digest(seal.SHA256(l.Value))
		l.Item = deadletter.QuarantineID(b.Identity, l.Identity, l.Cluster, l.Original, l.Value)
		ids = append(ids, l.Item)
		list = append(list, custodytest.Arrival(l, n))
	}
	if _, err := b.Items.Admit(b.Ctx, custodytest.Worker, list); err != nil {
		b.t.Fatal(err)
	}
	b.Confirm(b.t, from, to)
	b.Triage(b.t, ids...)
	return ids
}

// comesBack is the letter that a redriven item makes when it fails again, read, settled and committed.
func (b *bench) comesBack(id pipeline.ID, code pipeline.Code) {
	b.t.Helper()
	for p := range int32(b.kafka.Partitions(retry)) {
		tp := pipeline.TP{Topic: retry, Partition: p}
		for _, r := range b.kafka.Records(tp) {
			tr, ident, err := deadletter.ParseTrail(retry, &r, b.Ring)
			at := pipeline.Position{TP: tp, Offset: r.Offset}
			if err != nil || tr.Item != id || b.seen[at] {
				continue
			}
			b.seen[at] = true
			it := b.Show(b.t, id).Item
			l := &deadletter.Letter{Kind: deadletter.KindLetter, Item: id, At: at, Original: tr.Original, Cluster: it.Cluster, OriginalMS: tr.OriginalMS, TimeType: tr.TimeType, Pipeline: "billing",
				Failure: pipeline.Failure{Stage: "decode", Code: code}, Identity: ident, Class: pipeline.Payload, Schema: it.Schema, Redrive: tr.Redrive, Try: tr.Try,
				DigestFaithful: pipeline.Digest(b.Identity.Digest(r.Value)), Faithful: deadletter.Inline, QuarantinedMS: b.Clock().UnixMilli(), Key: r.Key, Value: r.Value, Dialect: deadletter.Reprieve}
			if _, err := b.Items.Admit(b.Ctx, custodytest.Worker, []custody.Arrival{custodytest.Arrival(l, 1000+r.Offset*10+int64(p))}); err != nil {
				b.t.Fatal(err)
			}
			s := deadletter.NewSettlement("billing", tp, 1, pipeline.Checkpoint{Next: r.Offset})
			s.Add(r.Offset, pipeline.DeadLettered)
			s.To, s.Next = r.Offset+1, r.Offset+1
			if err := b.Items.Settle(b.Ctx, custodytest.Worker, []custody.Settled{{Settlement: s, AtMS: b.Clock().UnixMilli()}}); err != nil {
				b.t.Fatal(err)
			}
			if err := b.Items.Committed(b.Ctx, custodytest.Worker, "billing-event-processor", map[pipeline.TP]int64{tp: r.Offset + 1}); err != nil {
				b.t.Fatal(err)
			}
			return
		}
	}
	b.t.Fatalf("%s is not on the retry topic", id)
}

func TestCaseC41PartitionOfJavaProducers(t *testing.T) {
	f, err := os.Open("testdata/C41/table.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows[1:] {
		n, _ := strconv.Atoi(r[1])
		want, _ := strconv.Atoi(r[2])
		if got := Partition([]byte(r[0]), int32(n), 0); got != int32(want) {
			t.Errorf("%s of %d is %d, want %d", r[0], n, got, want)
		}
	}
	t.Run("AnotherPartitionerIsSaidInTheDryRun", func(t *testing.T) {
		b := newBench(t, sqliteStore(t))
		moved := int64(0)
		b.letters(0, 9, func(n int64, l *deadletter.Letter) {
			l.Key = []byte(rows[1+n][0])
			if Partition(l.Key, 3, 0) != l.Original.Partition {
				moved++
			}
		})
		p := b.plan()
		r, err := b.svc.DryRun(b.Ctx, custodytest.Operator, p.Digest)
		if err != nil {
			t.Fatal(err)
		}
		if r.Repartition != moved || moved == 0 || !strings.Contains(strings.Join(r.Notes, " "), "another partitioner") {
			t.Errorf("%d of %d are named: %v", r.Repartition, moved, r.Notes)
		}
	})
}

func TestCaseC43WrittenTimeSurvivesRetention(t *testing.T) {
	var c struct {
		Destination map[string]any `json:"destination"`
		NowMS       int64          `json:"now_ms"`
		RecordMS    int64          `json:"record_ms"`
		Unit        struct {
			OriginalS int64 `json:"original_s"`
		} `json:"unit_trap"`
	}
	readCase(t, "C43/retention.json", &c)
	var table []struct {
		OriginalMS int64  `json:"original_ms"`
		Type       string `json:"type"`
	}
	readCase(t, "C43/table.json", &table)
	b := newBench(t, sqliteStore(t))
	b.Turn(time.UnixMilli(c.NowMS).Sub(b.Clock()))
	b.kafka.SetNow(c.NowMS)
	types := map[string]pipeline.TimeType{"CreateTime": pipeline.TimeCreate, "LogAppendTime": pipeline.TimeLogAppend, "NotAvailable": pipeline.TimeNone}
	ids := b.letters(0, int64(len(table))+2, func(n int64, l *deadletter.Letter) {
		switch {
		case n < int64(len(table)):
			l.OriginalMS, l.TimeType = table[n].OriginalMS, types[table[n].Type]
		case n == int64(len(table)):
			l.OriginalMS, l.TimeType = c.RecordMS, pipeline.TimeCreate
		default:
			l.OriginalMS, l.TimeType = c.Unit.OriginalS, pipeline.TimeCreate // seconds taken for milliseconds
		}
	})
	p := b.plan()
	r, err := b.svc.DryRun(b.Ctx, custodytest.Operator, p.Digest)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.CannotGo[string(pipeline.CodeRedriveTime)]; got.Count != 1 || got.Items[0] != ids[len(ids)-1] {
		t.Errorf("seconds are not refused: %+v", r.CannotGo)
	}
	// 2016 (create time), 2025-09-02 (append time) and the record of 34.7 days are older than seven days.
	if r.Old != 3 || !strings.Contains(strings.Join(r.Notes, " "), "1970") {
		t.Errorf("%d old records, notes %v", r.Old, r.Notes)
	}
	if got := r.Oldest; got != "2016-02-29T23:36:52.345Z" {
		t.Errorf("oldest %s", got)
	}
	b.approve(p)
	st := b.run(p)
	if st.Counts.Reconciled != int64(len(ids)-1) || st.Counts.Unsendable != 1 || st.State != StatePartial {
		t.Errorf("%s %+v", st.State, st.Counts)
	}
	for part := range int32(3) {
		for _, rec := range b.kafka.Records(pipeline.TP{Topic: retry, Partition: part}) {
			if rec.TimeMS < c.NowMS {
				t.Errorf("written with the time %d: the broker would delete it", rec.TimeMS)
			}
			tr, _, err := deadletter.ParseTrail(retry, &rec, b.Ring)
			if err != nil {
				t.Fatal(err)
			}
			n := slices.Index(ids, tr.Item)
			if it := b.Show(t, tr.Item).Item; tr.OriginalMS != it.OriginalMS || tr.TimeType != it.TimeType {
				t.Errorf("row %d: the header says %d %s, the item %d %s", n, tr.OriginalMS, tr.TimeType, it.OriginalMS, it.TimeType)
			}
		}
	}
}

func TestCaseC44NullKeyToCompactedTopic(t *testing.T) {
	var c struct {
		Records []struct {
			Key, Value *string
		} `json:"records"`
	}
	readCase(t, "C44/scenario.json", &c)
	b := newBench(t, sqliteStore(t))
	b.kafka.DeleteTopic(retry)
	b.kafka.CreateTopic(retry, 3, map[string]string{"cleanup.policy": "compact"})
	bytesOf := func(s *string) []byte {
		if s == nil {
			return nil
		}
		out := []byte{}
		fmt.Sscanf(*s, "%x", &out)
		return out
	}
	ids := b.letters(0, 3, func(n int64, l *deadletter.Letter) {
		l.Key, l.Value = bytesOf(c.Records[n].Key), bytesOf(c.Records[n].Value)
	})
	p := b.plan()
	r, err := b.svc.DryRun(b.Ctx, custodytest.Operator, p.Digest)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.CannotGo[string(pipeline.CodeSendKeyless)]; got.Count != 1 || got.Items[0] != ids[0] || r.Deletes != 1 || r.WouldSend != 2 {
		t.Errorf("dry run %+v", r)
	}
	b.approve(p)
	st := b.run(p)
	if st.State != StatePartial || st.Counts.Unsendable != 1 || st.Counts.Reconciled != 2 {
		t.Errorf("%s %+v", st.State, st.Counts)
	}
	if got := custodytest.Path(b.Show(t, ids[0])); !slices.Equal(got[len(got)-3:], []custody.State{custody.Redriving, custody.RedriveFailed, custody.Triaged}) {
		t.Errorf("the keyless item went %v", got)
	}
	for _, id := range ids[1:] {
		if it := b.Show(t, id).Item; it.State != custody.Reconciled {
			t.Errorf("%s is %s", id, it.State)
		}
	}
}

func TestCaseC46ExactlyTheItemsThatWereSeen(t *testing.T) {
	b := newBench(t, sqliteStore(t))
	ids := b.ready(12)
	p := b.plan()
	for from := int64(12); from < 12012; from += 3000 {
		b.Admit(t, from, from+3000)
	}
	b.Confirm(t, 12, 12012)
	r, err := b.svc.DryRun(b.Ctx, custodytest.Operator, p.Digest)
	if err != nil {
		t.Fatal(err)
	}
	if r.Items != 12 || r.Since != 12000 {
		t.Errorf("%d items, %d new since", r.Items, r.Since)
	}
	b.approve(p)
	if _, err := b.Items.Discard(b.Ctx, custodytest.Owner, custody.One(ids[4]), "test", "mail"); err != nil {
		t.Fatal(err)
	}
	st := b.run(p)
	if st.Counts.Reconciled != 11 || st.Counts.Skipped != 1 || b.sentCount() != 11 || st.State != StatePartial {
		t.Errorf("%s %+v, %d sent", st.State, st.Counts, b.sentCount())
	}
	for i, id := range ids {
		want := custody.Reconciled
		if i == 4 {
			want = custody.Discarded
		}
		if it := b.Show(t, id).Item; it.State != want {
			t.Errorf("item %d is %s", i, it.State)
		}
	}
}

func TestCaseC47UnsendableItemDoesNotHoldTheRest(t *testing.T) {
	b := newBench(t, sqliteStore(t))
	ids := b.ready(5)
	p := b.plan(func(r *PlanRequest) { r.Rate = 50 })
	b.approve(p)
	refused := false
	b.onWait = func(time.Duration) {
		if !refused && b.sentCount() == 2 {
			refused = true
			b.kafka.Refuse(retry, pipeline.CodeSendTopicMissing, 1)
		}
	}
	st := b.run(p)
	if st.State != StatePartial || st.Counts.Reconciled != 4 || st.Counts.Unsendable != 1 || st.Detail != "4 of 5 reconciled" {
		t.Errorf("%s %q %+v", st.State, st.Detail, st.Counts)
	}
	var failed pipeline.ID
	for _, id := range ids {
		switch it := b.Show(t, id); it.Item.State {
		case custody.Reconciled:
		case custody.Triaged:
			failed = id
			if got := custodytest.Path(it); !slices.Equal(got[len(got)-3:], []custody.State{custody.Redriving, custody.RedriveFailed, custody.Triaged}) || it.Item.Ticket != "OPS-1" {
				t.Errorf("%s went %v, ticket %q", id, got, it.Item.Ticket)
			}
		default:
			t.Errorf("%s is %s", id, it.Item.State)
		}
	}
	b.onWait = nil
	t.Run("AlsoAsTheOnlyCanary", func(t *testing.T) {
		b := newBench(t, sqliteStore(t))
		b.letters(0, 5, func(n int64, l *deadletter.Letter) {
			if n == 0 {
				l.Value = make([]byte, 2<<20) // more than the destination takes
			}
		})
		p := b.plan(func(r *PlanRequest) { r.Canary = 1 })
		b.approve(p)
		if st := b.run(p); st.State != StatePartial || st.Counts.Reconciled != 4 || st.Counts.Unsendable != 1 {
			t.Errorf("%s %q %+v", st.State, st.Detail, st.Counts)
		}
	})
	t.Run("NextManifestRuns", func(t *testing.T) {
		b.letters(5, 6, func(int64, *deadletter.Letter) {})
		second := b.plan()
		if len(b.lines(second)) != 2 { // the new one, and the one that could not be sent
			t.Fatalf("%d lines, %v", len(b.lines(second)), second.Excluded)
		}
		b.approve(second)
		if st := b.run(second); st.State != StateDone {
			t.Errorf("%s %+v", st.State, st.Counts)
		}
		if it := b.Show(t, failed).Item; it.State != custody.Reconciled || it.Try != 2 {
			t.Errorf("%s is %s, try %d", failed, it.State, it.Try)
		}
	})
	t.Run("NoTopicIsCreated", func(t *testing.T) {
		b.letters(6, 8, func(int64, *deadletter.Letter) {})
		third := b.plan()
		b.approve(third)
		b.kafka.DeleteTopic(retry)
		_, err := b.svc.Run(b.Ctx, custodytest.Operator, third.Digest)
		wantCode(t, err, pipeline.CodeTopicMissing)
		if b.kafka.Partitions(retry) != 0 {
			t.Error("the topic was created")
		}
	})
}

func TestCaseC49SecondRepairIsSent(t *testing.T) {
	eachBench(t, func(t *testing.T, b *bench) {
		id := b.letters(0, 1, func(_ int64, l *deadletter.Letter) { l.Value = []byte(`{"event_id":"ev-0","cents":"12.5"}`) })[0]
		event := b.Show(t, id).Item.EventID
		repair := func(config string) string {
			t.Helper()
			r, err := b.svc.Repair(b.Ctx, custodytest.Operator, RepairRequest{Pipeline: "billing", Items: []pipeline.ID{id}, Ref: "set@1.0.0", Config: []byte(config)})
			if err != nil {
				t.Fatal(err)
			}
			if r.Changed != 1 {
				t.Fatalf("%+v", r)
			}
			return r.Items[0].Repair
		}
		send := func() *Status {
			t.Helper()
			p := b.plan()
			if tr := p.Manifest.Transform; tr == nil || tr.Name != "set" || tr.Version != "1.0.0" {
				t.Errorf("the manifest's transform is %+v", tr)
			}
			b.approve(p)
			st, err := b.svc.Run(b.Ctx, custodytest.Operator, p.Digest)
			if err != nil && pipeline.CodeOf(err) != pipeline.CodeRedriveThreshold {
				t.Fatal(err)
			}
			return st
		}
		repair(`{"values":{"/cents":13}}`)
		b.outcome = func(*pipeline.Trail) pipeline.Result { return "" }
		b.onWait = func(time.Duration) {
			if b.sentCount() == 1 && b.Show(t, id).Item.State == custody.Redriving {
				b.comesBack(id, pipeline.CodeRejected)
			}
		}
		send()
		b.onWait, b.outcome = nil, nil
		repair(`{"values":{"/cents":1250}}`)
		if st := send(); st.State != StateDone {
			t.Fatalf("the second redrive is %s: %s %+v", st.State, st.Detail, st.Counts)
		}
		s := b.Show(t, id)
		want := []custody.State{custody.Triaged, custody.Repaired, custody.Redriving, custody.RedriveFailed, custody.Triaged, custody.Repaired, custody.Redriving, custody.Reconciled}
		path := custodytest.Path(s)
		if diff := cmp.Diff(want, path[len(path)-len(want):]); diff != "" {
			t.Error(diff)
		}
		if len(s.Repairs) != 2 || s.Repairs[0].Before != s.Repairs[1].Before || s.Repairs[0].Before != s.Item.DigestFaithful || s.Repairs[0].After == s.Repairs[1].After {
			t.Errorf("lineage %+v", s.Repairs)
		}
		if s.Item.EventID != event || s.Item.ID != id || s.Item.Try != 2 {
			t.Errorf("identity %+v", s.Item)
		}
		last := b.kafka.All(retry)
		if got := string(last[len(last)-1].Value); got != `{"event_id":"ev-0","cents":1250}` {
			t.Errorf("sent %s", got)
		}
	})
}

func TestCaseC50PastTheHorizonIsAskedFirst(t *testing.T) {
	var c struct {
		TTL        int64   `json:"dedup_ttl_s"`
		Deliveries []int64 `json:"deliveries_of_event_e1_s"`
	}
	readCase(t, "C50/scenario.json", &c)
	b := newBench(t, sqliteStore(t))
	b.target.Horizon = Horizon{Known: true, For: time.Duration(c.TTL) * time.Second}
	ids := b.letters(0, 2, func(_ int64, l *deadletter.Letter) { l.OriginalMS = custodytest.Start.UnixMilli() })
	if p := b.plan(); len(b.lines(p)) != 2 {
		t.Fatalf("inside the horizon: %v", p.Excluded)
	}
	b.Turn(time.Duration(c.Deliveries[1]) * time.Second)
	_, err := b.svc.Plan(b.Ctx, custodytest.Operator, b.request())
	wantCode(t, err, pipeline.CodeManifestEmpty)
	if !strings.Contains(err.Error(), "2 horizon") {
		t.Errorf("the reason is not named: %v", err)
	}
	// The operator found out that the first has its effect: it is closed without a send.
	if _, err := b.Items.Resolve(b.Ctx, custodytest.Operator, custody.One(ids[0]), custody.ResolvedApplied, "seen at the provider", "report 7"); err != nil {
		t.Fatal(err)
	}
	wantCode(t, b.svc.ConfirmAbsent(b.Ctx, custodytest.Operator, ids[1], ""), pipeline.CodeEvidenceMissing)
	if err := b.svc.ConfirmAbsent(b.Ctx, custodytest.Operator, ids[1], "report 8"); err != nil {
		t.Fatal(err)
	}
	p := b.plan()
	if len(b.lines(p)) != 1 || b.lines(p)[0].Item != ids[1] {
		t.Fatalf("planned %+v", b.lines(p))
	}
	b.approve(p)
	if st := b.run(p); st.State != StateDone {
		t.Errorf("%s %+v", st.State, st.Counts)
	}
	all := b.kafka.All(retry)
	if len(all) != 1 {
		t.Fatalf("%d records were sent", len(all))
	}
	if _, id, _ := deadletter.ParseTrail(retry, &all[0], b.Ring); id.EventID != "ev-1" {
		t.Errorf("sent as %s", id.EventID)
	}
	if it := b.Show(t, ids[0]).Item; it.State != custody.Reconciled {
		t.Errorf("the first is %s", it.State)
	}
	t.Run("FromTheLastDelivery", func(t *testing.T) {
		at := func(day int64) int64 { return custodytest.Start.UnixMilli() + day*24*3600*1000 }
		x := &brief{originalMS: at(0), timeType: pipeline.TimeCreate, takenMS: at(1), lastMS: at(20)}
		month := Horizon{Known: true, For: 30 * 24 * time.Hour}
		if !month.past(x, at(40)) || month.past(x, at(29)) {
			t.Error("it does not count from the first delivery")
		}
		if month.Last = true; month.past(x, at(40)) || !month.past(x, at(51)) {
			t.Error("it does not count from the last delivery")
		}
	})
	t.Run("UnknownHorizon", func(t *testing.T) {
		b.target.Horizon = Horizon{}
		b.letters(2, 3, func(int64, *deadletter.Letter) {})
		_, err := b.svc.Plan(b.Ctx, custodytest.Operator, b.request())
		wantCode(t, err, pipeline.CodeManifestEmpty)
		p := b.plan(func(r *PlanRequest) { r.Horizon = accepted })
		if len(b.lines(p)) != 1 || p.Manifest.Horizon != accepted {
			t.Errorf("%+v", p.Manifest)
		}
	})
}

func TestCaseC62NewItemOfADiscardedGroup(t *testing.T) {
	b := newBench(t, sqliteStore(t))
	old := b.ready(3)
	if _, err := b.Items.Discard(b.Ctx, custodytest.Owner, custody.Target{Items: old}, "test data", "mail"); err != nil {
		t.Fatal(err)
	}
	fresh := b.letters(3, 4, func(int64, *deadletter.Letter) {})[0]
	if it := b.Show(t, fresh).Item; it.State != custody.Triaged {
		t.Fatalf("the discard reached forward: %s", it.State)
	}
	p := b.plan()
	if p.Manifest.Selection.Count != 1 || p.Manifest.Selection.Excluded["state_DISCARDED"] != 3 || p.Manifest.Selection.Selected != 4 {
		t.Errorf("before: %+v", p.Manifest.Selection)
	}
	r, err := b.svc.DryRun(b.Ctx, custodytest.Operator, p.Digest)
	if err != nil {
		t.Fatal(err)
	}
	if r.WouldSend != 1 || r.Excluded["state_DISCARDED"] != 3 || r.Selected != 4 {
		t.Errorf("dry run: %+v", r)
	}
	b.approve(p)
	st := b.run(p)
	if st.Counts.Reconciled+st.Counts.Skipped+st.Counts.Failed()+st.Excluded != st.Selected || st.Counts.Reconciled != 1 || st.Excluded != 3 || st.State != StateDone {
		t.Errorf("after: %+v", st)
	}
	for _, id := range old {
		if it := b.Show(t, id).Item; it.State != custody.Discarded {
			t.Errorf("%s came back: %s", id, it.State)
		}
	}
}
