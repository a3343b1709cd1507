package custody_test

import (
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

var source0 = pipeline.TP{Topic: "billing.invoices.v1", Partition: 0}

// sources fills the source topic: source offset n of partition n%3 stands at offset n, as the letters of an Env say.
func (l *lab) sources(to int64) {
	for n := range to {
		for p := range int32(3) {
			l.cl.Append(pipeline.TP{Topic: "billing.invoices.v1", Partition: p}, pipeline.Record{Value: []byte("x"), TimeMS: custodytest.Start.UnixMilli() + n})
		}
	}
}

// settleAs settles [from, to) of each partition: n%3 == partition was dead-lettered, what became of the rest is said.
func (l *lab) settleAs(from, to int64, others pipeline.Disposition) {
	l.t.Helper()
	l.settleBy(from, to, to, others)
}

// settleBy is settleAs with a commit that makes next the next offset to be read.
func (l *lab) settleBy(from, to, next int64, others pipeline.Disposition) {
	l.t.Helper()
	for p := range int32(3) {
		s := deadletter.NewSettlement("billing", pipeline.TP{Topic: "billing.invoices.v1", Partition: p}, 1, pipeline.Checkpoint{Next: from})
		for off := from; off < to; off++ {
			d := others
			if off%3 == int64(p) {
				d = pipeline.DeadLettered
			}
			s.Add(off, d)
		}
		s.To, s.Next = to, next
		m := &pipeline.Message{Topic: deadletter.SettlementsTopic("reprieve")}
		if err := s.AppendMessage(m, "reprieve", l.Ring); err != nil {
			l.t.Fatal(err)
		}
		l.put(m, 0)
	}
}

func (l *lab) topics() custody.Topics {
	return custody.Topics{Cluster: "cluster-1", Log: l.cl.Log(nil), Prefix: "reprieve", Letters: []string{dlq, "orders.dlq"}, Sources: true, Ring: l.Ring}
}

// taken runs a custodian over everything that is there.
func (l *lab) taken() {
	l.t.Helper()
	k, src := l.custodian(l.Items)
	stop := run(k)
	l.passed(k)
	if err := stop(); err != nil {
		l.t.Fatal(err)
	}
	src.Close()
}

func TestEveryPositionIsAccountedFor(t *testing.T) {
	ledgertest.Each(t, func(t *testing.T, s ledgertest.Store) {
		l := newLab(t, s)
		l.sources(60)
		for n := range int64(60) {
			l.putLetter(n)
		}
		l.cl.Append(pipeline.TP{Topic: dlq}, pipeline.Record{Headers: []pipeline.Header{{Name: deadletter.HeaderProbe, Value: []byte("1")}}})
		l.settleAs(0, 30, pipeline.Delivered)
		l.settleAs(30, 60, pipeline.Retried)
		l.taken()
		a, err := l.Items.Reconcile(l.Ctx, custodytest.Admin, l.topics())
		if err != nil || len(a.Findings) != 0 {
			t.Fatal(a.Findings, err)
		}
		if len(a.Accounts) != 3 {
			t.Fatal(a.Accounts)
		}
		for _, x := range a.Accounts {
			want := custody.Account{Pipeline: "billing", Topic: source0.Topic, Partition: x.Partition, To: 60, Received: 60, Delivered: 20, DeadLettered: 20, Retried: 20}
			if x != want {
				t.Fatalf("%+v", x)
			}
		}
		if _, err := l.Items.Reconcile(l.Ctx, custodytest.Viewer, l.topics()); pipeline.CodeOf(err) != pipeline.CodePermissionDenied {
			t.Fatal(err)
		}
	})
}

// Whoever waits for an account is told how far the reading is: it never goes back, and ends where everything was read.
func TestReadingTheTopicsTellsHowFarItIs(t *testing.T) {
	l := newLab(t, ledgertest.SQLite(t))
	l.sources(60)
	for n := range int64(60) {
		l.putLetter(n)
	}
	l.settleAs(0, 60, pipeline.Delivered)
	l.taken()
	var done, total, calls int64
	topics := l.topics()
	topics.Progress = func(d, of int64) {
		if d < done || of < total || d > of {
			t.Errorf("%d of %d after %d of %d", d, of, done, total)
		}
		done, total, calls = d, of, calls+1
	}
	if _, err := l.Items.Reconcile(l.Ctx, custodytest.Admin, topics); err != nil {
		t.Fatal(err)
	}
	if want := int64(60 + 3 + 3*60); done != want || total != want || calls < 3 {
		t.Errorf("%d of %d in %d calls, of %d messages", done, total, calls, want)
	}
}

// What went on past records that wait is settled ahead of the committed offset: between the two nobody has to say anything yet.
func TestWhatIsSettledAheadIsAccountedFor(t *testing.T) {
	l := newLab(t, ledgertest.SQLite(t))
	l.sources(60)
	for n := range int64(60) {
		l.putLetter(n)
	}
	look := func(want custody.Account) {
		t.Helper()
		l.taken()
		a, err := l.Items.Reconcile(l.Ctx, custodytest.Admin, l.topics())
		if err != nil || len(a.Findings) != 0 {
			t.Fatal(a.Findings, err)
		}
		want.Pipeline, want.Topic = "billing", source0.Topic
		for _, x := range a.Accounts {
			if want.Partition = x.Partition; x != want {
				t.Errorf("%+v, want %+v", x, want)
			}
		}
	}
	l.settleBy(39, 60, 0, pipeline.Delivered)
	look(custody.Account{From: 39, To: 39})
	l.settleAs(0, 30, pipeline.Delivered)
	look(custody.Account{To: 30, Received: 30, Delivered: 20, DeadLettered: 10})
	l.settleBy(30, 39, 60, pipeline.Delivered)
	look(custody.Account{To: 60, Received: 60, Delivered: 40, DeadLettered: 20})
	if n := l.count("state=DEAD_LETTERED"); n != 60 {
		t.Errorf("%d of 60 items are dead-lettered still", n)
	}
}

// What the source has lost by retention is taken from the settlements; marks of transactions are gaps.
func TestAccountsOfWhatTheSourceHasLost(t *testing.T) {
	l := newLab(t, ledgertest.SQLite(t))
	l.sources(60)
	for n := range int64(60) {
		l.putLetter(n)
	}
	l.settleAs(0, 30, pipeline.Delivered)
	l.settleAs(30, 60, pipeline.Delivered)
	l.taken()
	for p := range int32(3) {
		l.cl.Trim(pipeline.TP{Topic: source0.Topic, Partition: p}, 45)
	}
	a, err := l.Items.Reconcile(l.Ctx, custodytest.Admin, l.topics())
	if err != nil || len(a.Findings) != 0 {
		t.Fatal(a.Findings, err)
	}
	for _, x := range a.Accounts {
		if x.Received != 60 || x.Delivered != 40 || x.DeadLettered != 20 || x.Gaps != 0 || x.Gone != 45 {
			t.Fatalf("%+v", x)
		}
	}
}

func TestWhatIsNotAccountedForIsFoundAndNamed(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(t *testing.T, l *lab)
		want string // of a finding: place, then text
	}{
		"a letter that is not in the ledger": {func(t *testing.T, l *lab) {
			exec(t, l.Env, "DELETE FROM items WHERE letter_topic = '"+dlq+"' AND letter_partition = 1 AND letter_offset = 4")
		}, dlq + "/1/4-4"},
		"an offset that was taken into custody and has no item": {func(t *testing.T, l *lab) {
			exec(t, l.Env, "DELETE FROM items WHERE source_offset = 9")
		}, "billing/billing.invoices.v1/0/9-9"},
		"a hole between settlements": {func(t *testing.T, l *lab) { l.settleAs(70, 72, pipeline.Delivered) }, "billing/billing.invoices.v1/0/60-69"},
		"a record that no settlement counts": {func(t *testing.T, l *lab) {
			l.cl.Append(source0, pipeline.Record{Value: []byte("x")})
			s := deadletter.NewSettlement("billing", source0, 1, pipeline.Checkpoint{Next: 60})
			s.Add(60, pipeline.Parked)
			s.To, s.Next = 62, 62
			l.cl.Append(source0, pipeline.Record{Value: []byte("y")})
			m := &pipeline.Message{Topic: deadletter.SettlementsTopic("reprieve")}
			if err := s.AppendMessage(m, "reprieve", l.Ring); err != nil {
				t.Fatal(err)
			}
			l.put(m, 0)
		}, "billing/billing.invoices.v1/0/60-61"},
		"a dead-letter topic that was made anew": {func(t *testing.T, l *lab) {
			l.cl.DeleteTopic(dlq)
			l.cl.CreateTopic(dlq, 2, nil)
		}, dlq + "/0"},
		"a partition that is gone": {func(t *testing.T, l *lab) {
			l.cl.DeleteTopic(dlq)
			l.cl.CreateTopic(dlq, 1, nil)
		}, dlq + "/1"},
		"a topic that is gone": {func(t *testing.T, l *lab) { l.cl.DeleteTopic(dlq) }, dlq + "/1"},
		"a forged settlement": {func(t *testing.T, l *lab) {
			l.cl.Append(pipeline.TP{Topic: deadletter.SettlementsTopic("reprieve")}, pipeline.Record{Value: []byte(`{"v":1}`)})
		}, deadletter.SettlementsTopic("reprieve") + "/0/"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, ledgertest.SQLite(t))
			l.sources(60)
			for n := range int64(60) {
				l.putLetter(n)
			}
			l.settleAs(0, 60, pipeline.Delivered)
			l.taken()
			c.do(t, l)
			a, err := l.Items.Reconcile(l.Ctx, custodytest.Admin, l.topics())
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range a.Findings {
				if strings.HasPrefix(f.Place, c.want) {
					return
				}
			}
			t.Fatalf("%s is not named: %+v", c.want, a.Findings)
		})
	}
}

func exec(t *testing.T, e *custodytest.Env, query string) {
	t.Helper()
	r, err := e.Store.SQL(t).Exec(query)
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := r.RowsAffected(); n == 0 {
		t.Fatal("nothing was changed: ", query)
	}
}

// A redriven record that failed again stands elsewhere now: its first pass is still accounted for.
func TestAnItemThatMovedOnIsAccountedForWhereItStood(t *testing.T) {
	l := newLab(t, ledgertest.SQLite(t))
	l.sources(3)
	letter := l.Letter(0)
	retry := pipeline.Position{TP: pipeline.TP{Topic: "billing.invoices.v1.retry"}, Offset: 7}
	letter.At = retry
	m := &pipeline.Message{Topic: dlq}
	if err := deadletter.Append(m, letter, deadletter.Profiles{}, l.Ring); err != nil {
		t.Fatal(err)
	}
	l.put(m, 0)
	l.taken()
	exec(t, l.Env, "UPDATE items SET at_offset = 8")
	l.cl.CreateTopic(retry.Topic, 1, nil)
	for range 8 {
		l.cl.Append(retry.TP, pipeline.Record{Value: []byte("x")})
	}
	s := deadletter.NewSettlement("billing", retry.TP, 1, pipeline.Checkpoint{Next: 7})
	s.Add(7, pipeline.DeadLettered)
	s.To, s.Next = 8, 8
	ms := &pipeline.Message{Topic: deadletter.SettlementsTopic("reprieve")}
	if err := s.AppendMessage(ms, "reprieve", l.Ring); err != nil {
		t.Fatal(err)
	}
	l.put(ms, 0)
	a, err := l.Items.Reconcile(l.Ctx, custodytest.Admin, l.topics())
	if err != nil || len(a.Findings) != 0 {
		t.Fatal(a.Findings, err)
	}
}

func TestRebuildBringsBackWhatTheTopicsHoldAndListsTheRest(t *testing.T) {
	ledgertest.Each(t, func(t *testing.T, s ledgertest.Store) {
		l := newLab(t, ledgertest.SQLite(t))
		for n := range int64(60) {
			l.putLetter(n)
		}
		l.settleAs(0, 60, pipeline.Delivered)
		commit(t, l.cl, "billing-event-processor", []string{"billing.invoices.v1"}, 60)
		l.cl.Trim(pipeline.TP{Topic: dlq, Partition: 1}, 5) // letters 1, 3, 5, 7, 9 of partition 1 are gone
		fresh := custodytest.New(t, s)
		src := l.cl.Source(script.SourceOptions{Group: "rebuild", Topics: custody.CustodianTopics("reprieve", []string{dlq, "orders.dlq"}), MaxBatch: 100,
			Idle: func(wait time.Duration, changed <-chan struct{}) {
				select {
				case <-changed:
				case <-time.After(min(wait, 5*time.Millisecond)):
				}
			}})
		o := custody.CustodianOptions{Items: fresh.Items, Source: src, Cluster: "cluster-1", Ring: l.Ring, Kafka: l.cl.Log(nil)}
		var done, total int64
		r, err := custody.Rebuild(l.Ctx, custodytest.Admin, o, custody.CustodianTopics("reprieve", []string{dlq, "orders.dlq", "gone.dlq"}), func(d, n int64) { done, total = d, n })
		if err != nil {
			t.Fatal(err)
		}
		if r.Items != 55 || done != total || total != 63 {
			t.Fatalf("%+v %d of %d", r, done, total)
		}
		want := []custody.Missing{
			{Topic: dlq, Partition: 1, From: 0, To: 5, Why: "its retention has taken them"},
			{Topic: "gone.dlq", Partition: -1, Why: "the topic is not there"},
		}
		for i, m := range want {
			if r.Missing[i] != m {
				t.Errorf("%+v", r.Missing[i])
			}
		}
		lost := int64(0)
		for _, m := range r.Missing[2:] {
			lost += m.To - m.From
		}
		if lost != 5 {
			t.Errorf("%d items are missed: %+v", lost, r.Missing)
		}
		if n, err := fresh.Items.Count(l.Ctx, custodytest.Operator, selection(t, "flag=rebuilt confirmed=yes state=DEAD_LETTERED")); err != nil || n != 55 {
			t.Fatal(n, err)
		}
		fresh.Triage(t, l.Letter(0).Item)
		if code := fresh.Show(t, l.Letter(0).Item).Item.Redrivable(); code != pipeline.CodeItemHeld {
			t.Fatal(code)
		}
		if _, err := fresh.Items.Vouch(l.Ctx, custodytest.Operator, custody.One(l.Letter(0).Item), custody.FlagRebuilt, "the owner was asked"); err != nil {
			t.Fatal(err)
		}
		if code := fresh.Show(t, l.Letter(0).Item).Item.Redrivable(); code != "" {
			t.Fatal(code)
		}
		mustVerify(t, fresh)
		// It never writes over somebody's work.
		if _, err := custody.Rebuild(l.Ctx, custodytest.Admin, o, nil, nil); pipeline.CodeOf(err) != pipeline.CodeInputInvalid {
			t.Fatal(err)
		}
	})
}
