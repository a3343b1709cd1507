package custody_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/custody/custodytest"
	"reprieve.dev/ledger"
	"reprieve.dev/ledger/ledgertest"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/tests/conformance/script"
)

const dlq = "billing.invoices.v1.dlq"

// lab is a scripted cluster with a dead-letter topic, and what a custodian needs to read it.
type lab struct {
	*custodytest.Env
	t  testing.TB
	cl *script.Cluster
}

func newLab(t testing.TB, s ledgertest.Store) *lab {
	e := custodytest.New(t, s)
	l := &lab{Env: e, t: t, cl: script.New(custodytest.Start.UnixMilli())}
	for topic, n := range map[string]int{dlq: 2, "orders.dlq": 1, "billing.invoices.v1": 3, deadletter.SettlementsTopic("reprieve"): 1, deadletter.OutcomesTopic("reprieve"): 1} {
		l.cl.CreateTopic(topic, n, nil)
	}
	return l
}

// put writes a message as the engine would.
func (l *lab) put(m *pipeline.Message, partition int32) int64 {
	rec := pipeline.Record{TimeMS: l.Clock().UnixMilli(), TimeType: pipeline.TimeCreate, Key: m.Key, Value: m.Value, Headers: m.Headers}
	return l.cl.Append(pipeline.TP{Topic: m.Topic, Partition: partition}, rec)
}

func (l *lab) putLetter(n int64) {
	l.t.Helper()
	m := &pipeline.Message{Topic: dlq}
	if err := deadletter.Append(m, l.Letter(n), deadletter.Profiles{}, l.Ring); err != nil {
		l.t.Fatal(err)
	}
	l.put(m, int32(n%2))
}

func (l *lab) putSettlement(tp pipeline.TP, from, to int64, d pipeline.Disposition) {
	l.t.Helper()
	s := deadletter.NewSettlement("billing", tp, 1, pipeline.Checkpoint{Next: from})
	for off := from; off < to; off++ {
		s.Add(off, d)
	}
	s.To, s.Next = to, to
	m := &pipeline.Message{Topic: deadletter.SettlementsTopic("reprieve")}
	if err := s.AppendMessage(m, "reprieve", l.Ring); err != nil {
		l.t.Fatal(err)
	}
	l.put(m, 0)
}

func (l *lab) custodian(items *custody.Items, with ...func(*custody.CustodianOptions)) (*custody.Custodian, *script.Source) {
	src := l.cl.Source(script.SourceOptions{Group: "custodians", Topics: custody.CustodianTopics("reprieve", []string{dlq, "orders.dlq"}), MaxBatch: 100,
		Idle: func(wait time.Duration, changed <-chan struct{}) {
			select {
			case <-changed:
			case <-time.After(min(wait, 5*time.Millisecond)):
			}
		}})
	o := custody.CustodianOptions{Items: items, Source: src, Cluster: "cluster-1", Ring: l.Ring, Kafka: l.cl.Log(nil), Review: time.Nanosecond, Backoff: func(int) time.Duration { return time.Millisecond },
		Adopt: map[string]custody.Adoption{"orders.dlq": {Consumer: "orders-sink", Tenant: "acme", Pipeline: "orders"}}}
	for _, w := range with {
		w(&o)
	}
	return custody.NewCustodian(o), src
}

// run works until stop is called, which returns what Run returned.
func run(k *custody.Custodian) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	return func() error {
		cancel()
		return <-done
	}
}

func (l *lab) ends() map[pipeline.TP]int64 {
	out := map[pipeline.TP]int64{}
	for _, topic := range custody.CustodianTopics("reprieve", []string{dlq, "orders.dlq"}) {
		info, err := l.cl.Log(nil).Info(context.Background(), topic)
		if err != nil {
			l.t.Fatal(err)
		}
		for p, r := range info.Partitions {
			out[pipeline.TP{Topic: topic, Partition: p}] = r.Next
		}
	}
	return out
}

func (l *lab) passed(k *custody.Custodian) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := k.Passed(ctx, l.ends()); err != nil {
		l.t.Fatal(err)
	}
}

// eventually polls until f is true.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !f(); {
		if time.Now().After(end) {
			t.Fatal(what)
		}
		time.Sleep(time.Millisecond)
	}
}

func (l *lab) count(text string) int64 {
	l.t.Helper()
	n, err := l.Items.Count(l.Ctx, custodytest.Operator, selection(l.t, text))
	if err != nil {
		l.t.Fatal(err)
	}
	return n
}

func TestTheCustodianTakesEverythingOnceAndConfirms(t *testing.T) {
	ledgertest.Each(t, func(t *testing.T, s ledgertest.Store) {
		l := newLab(t, s)
		for n := range int64(40) {
			l.putLetter(n)
		}
		l.cl.Append(pipeline.TP{Topic: dlq, Partition: 0}, pipeline.Record{Headers: []pipeline.Header{{Name: deadletter.HeaderProbe, Value: []byte("1")}}})
		for p := range int32(3) {
			l.putSettlement(pipeline.TP{Topic: "billing.invoices.v1", Partition: p}, 0, 40, pipeline.DeadLettered)
		}
		k, src := l.custodian(l.Items)
		stop := run(k)
		l.passed(k)
		if n := l.count(""); n != 40 {
			t.Fatal(n)
		}
		if n := l.count("confirmed=yes"); n != 0 {
			t.Fatalf("%d confirmed before the source committed", n)
		}
		commit(t, l.cl, "billing-event-processor", []string{"billing.invoices.v1"}, 40)
		eventually(t, "the items are not confirmed", func() bool {
			l.Turn(time.Second) // the next review is due
			return l.count("confirmed=yes") == 40
		})
		for n := int64(40); n < 60; n++ {
			l.putLetter(n)
		}
		l.passed(k)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if src.Commits() == 0 {
			t.Error("the group shows no progress")
		}
		src.Close()
		// A second custodian whose group remembers nothing goes on where the ledger is, not from the beginning.
		k2, _ := l.custodian(l.Items)
		stop = run(k2)
		l.putLetter(60)
		l.passed(k2)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if n := l.count("sightings=1"); n != 61 {
			t.Fatalf("%d of 61 items were seen once", n)
		}
		mustVerify(t, l.Env)
	})
}

// commit makes a group whose committed offset is next on every partition of the topics.
func commit(t *testing.T, cl *script.Cluster, group string, topics []string, next int64) {
	t.Helper()
	src := cl.Source(script.SourceOptions{Group: group, Topics: topics})
	ev, err := src.Poll(0)
	if err != nil {
		t.Fatal(err)
	}
	cps := map[pipeline.TP]pipeline.Checkpoint{}
	for _, tp := range ev.(pipeline.Assigned).TPs {
		cps[tp] = pipeline.Checkpoint{Next: next, InFlight: -1}
	}
	if err := src.Commit(cps); err != nil {
		t.Fatal(err)
	}
	src.Close()
}

func TestDamagedAndForgedMessagesAreKeptAndConsumptionGoesOn(t *testing.T) {
	ledgertest.Each(t, func(t *testing.T, s ledgertest.Store) {
		l := newLab(t, s)
		l.cl.Append(pipeline.TP{Topic: deadletter.SettlementsTopic("reprieve")}, pipeline.Record{Value: []byte("{}")})
		l.cl.Append(pipeline.TP{Topic: deadletter.OutcomesTopic("reprieve")}, pipeline.Record{Value: []byte{0xff}})
		l.cl.Append(pipeline.TP{Topic: dlq, Partition: 1}, pipeline.Record{Value: []byte("who am I"), Headers: []pipeline.Header{{Name: "reprieve-quarantine-id", Value: []byte("qforged")}}})
		l.cl.Append(pipeline.TP{Topic: "orders.dlq"}, pipeline.Record{TimeMS: 1, Key: []byte("k"), Value: nil, Headers: []pipeline.Header{
			{Name: "__connect.errors.topic", Value: []byte("orders")}, {Name: "__connect.errors.partition", Value: []byte("0")}, {Name: "__connect.errors.offset", Value: []byte("12")},
			{Name: "__connect.errors.exception.class.name", Value: []byte("org.example.DataException")}, {Name: "__connect.errors.exception.message", Value: []byte("no \x00 good")}}})
		l.putLetter(1)
		k, _ := l.custodian(l.Items)
		stop := run(k)
		l.passed(k)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		var raw int
		if err := l.Store.SQL(t).QueryRow("SELECT count(*) FROM raw_messages").Scan(&raw); err != nil || raw != 2 {
			t.Fatal(raw, err)
		}
		if n := l.count("id=qforged"); n != 0 {
			t.Error("the forged id was believed")
		}
		for text, want := range map[string]int64{"": 3, "flag=forged": 1, "dialect=connect tenant=acme consumer=orders-sink pipeline=orders offset=12": 1} {
			if n := l.count(text); n != want {
				t.Errorf("%q: %d, want %d", text, n, want)
			}
		}
	})
}

// masker redacts one word, and refuses another.
type masker struct{}

func (masker) Sanitize(_ string, r *pipeline.Record, _ pipeline.View) (pipeline.Clean, error) {
	if string(r.Value) == "refuse" {
		return pipeline.Clean{}, pipeline.Errorf(pipeline.CodeRedactFailed, "", "cannot be sure")
	}
	if string(r.Value) == "4111111111111111" {
		return pipeline.Clean{Key: r.Key, Value: []byte("****"), Headers: r.Headers, Changed: true}, nil
	}
	return pipeline.Clean{Key: r.Key, Value: r.Value, Headers: r.Headers}, nil
}

func (masker) Text(s string) string { return s }

func TestForeignLettersAreRedactedBeforeTheLedgerSeesThem(t *testing.T) {
	ledgertest.Each(t, func(t *testing.T, s ledgertest.Store) {
		l := newLab(t, s)
		put := func(value string) {
			l.cl.Append(pipeline.TP{Topic: "orders.dlq"}, pipeline.Record{TimeMS: 1, Value: []byte(value), Headers: []pipeline.Header{{Name: "__connect.errors.topic", Value: []byte("billing.invoices.v1")},
				{Name: "__connect.errors.partition", Value: []byte("2")}, {Name: "__connect.errors.offset", Value: []byte("0")}, {Name: "__connect.errors.stage", Value: []byte("TASK_PUT")}}})
		}
		l.cl.Append(pipeline.TP{Topic: "billing.invoices.v1", Partition: 2}, pipeline.Record{Value: []byte("4111111111111111"), Key: []byte("k")})
		put("4111111111111111")
		put("refuse")
		put("harmless")
		k, _ := l.custodian(l.Items, func(o *custody.CustodianOptions) { o.Sanitizer = masker{} })
		stop := run(k)
		l.passed(k)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		var n int
		if err := l.Store.SQL(t).QueryRow("SELECT count(*) FROM raw_messages WHERE code = 'ERR_REDACT_FAILED' AND value IS NULL").Scan(&n); err != nil || n != 1 {
			t.Fatal(n, err)
		}
		f, err := l.Items.Find(l.Ctx, custodytest.Operator, selection(t, "faithful=source"), custody.Page{})
		if err != nil || len(f.Items) != 1 || l.count("faithful=inline") != 1 {
			t.Fatal(f, err)
		}
		b, err := l.Items.Open(l.Ctx, custodytest.Owner, f.Items[0].ID, "look")
		if err != nil || string(b.Value) != "****" || b.Faithful {
			t.Fatalf("%q %v", b.Value, err)
		}
		// The source has the original still: its digest is that of the letter as it came.
		items := l.Again(l.DB, func(o *custody.Options) {
			o.Source = func(cluster string) (pipeline.Log, bool) { return l.cl.Log(nil), cluster == "cluster-1" }
		})
		if b, err = items.Faithful(l.Ctx, f.Items[0]); err != nil || string(b.Value) != "4111111111111111" || !b.Faithful || string(b.Key) != "k" {
			t.Fatalf("%q %v", b.Value, err)
		}
	})
}

func TestTheCustodianWaitsForTheLedgerAndGoesOn(t *testing.T) {
	ledgertest.Each(t, func(t *testing.T, s ledgertest.Store) {
		l := newLab(t, s)
		k, src := l.custodian(l.Items)
		stop := run(k)
		l.putLetter(0)
		l.passed(k)
		// Somebody makes the ledger unusable in the middle of its work.
		raw := s.SQL(t)
		lock, unlock := "BEGIN IMMEDIATE", "ROLLBACK"
		if s.Dialect == ledger.Postgres {
			lock = "BEGIN; LOCK TABLE intake_offsets IN ACCESS EXCLUSIVE MODE"
		}
		busy := l.Again(s.Open(t, ledger.Options{Clock: l.Clock, BusyTimeout: 20 * time.Millisecond}))
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		src.Close()
		conn, err := raw.Conn(l.Ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.ExecContext(l.Ctx, lock); err != nil {
			t.Fatal(err)
		}
		waits := make(chan int, 1000)
		k, src = l.custodian(busy, func(o *custody.CustodianOptions) {
			o.Backoff = func(n int) time.Duration {
				select {
				case waits <- n:
				default:
				}
				return time.Millisecond
			}
		})
		stop = run(k)
		for n := int64(1); n < 30; n++ {
			l.putLetter(n)
		}
		for n := range waits {
			if n == 3 {
				break
			}
		}
		if _, err := conn.ExecContext(l.Ctx, unlock); err != nil {
			t.Fatal(err)
		}
		conn.Close()
		l.passed(k)
		if n := l.count("sightings=1"); n != 30 {
			t.Fatal(n)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if paused := src.Paused(); len(paused) != 0 {
			t.Fatal("still paused:", paused)
		}
	})
}

func TestSeveralCustodiansShareTheWorkWhileTheyComeAndGo(t *testing.T) {
	ledgertest.Each(t, func(t *testing.T, s ledgertest.Store) {
		l := newLab(t, s)
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(context.Background())
		for w := range 3 {
			items := l.Again(s.Open(t, ledger.Options{Clock: l.Clock, BusyTimeout: time.Minute}))
			wg.Go(func() {
				for round := 0; ctx.Err() == nil; round++ {
					k, src := l.custodian(items, func(o *custody.CustodianOptions) { o.Batch = 7 })
					stop := run(k)
					select {
					case <-ctx.Done():
					case <-time.After(time.Duration((40+30*w)*(4+round)/4) * time.Millisecond): // a member that leaves at any point of its work, later each time: a slow machine must get on
					}
					if err := stop(); err != nil && !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					src.Close()
				}
			})
		}
		for n := range int64(200) {
			l.putLetter(n)
			if n%20 == 0 {
				l.putSettlement(pipeline.TP{Topic: "billing.invoices.v1", Partition: int32(n % 3)}, n, n+20, pipeline.DeadLettered)
			}
		}
		eventually(t, "the custodians do not come to the end", func() bool {
			ok, err := l.Items.Passed(l.Ctx, "cluster-1", l.cl.Log(nil), l.ends())
			if err != nil {
				t.Fatal(err)
			}
			return ok
		})
		cancel()
		wg.Wait()
		if n := l.count("sightings=1"); n != 200 {
			t.Fatal(n)
		}
		mustVerify(t, l.Env)
	})
}

func TestALetterOfAnOlderCustodianIsNotWritten(t *testing.T) {
	ledgertest.Each(t, func(t *testing.T, s ledgertest.Store) {
		l := newLab(t, s)
		k, _ := l.custodian(l.Items)
		stop := run(k)
		l.putLetter(0)
		l.passed(k)
		// Another custodian takes everything over, without this one being told.
		for p := range int32(2) {
			if err := l.DB.Write(l.Ctx, func(tx *ledger.Tx) error {
				_, _, err := tx.TakeOver("cluster-1", pipeline.TP{Topic: dlq, Partition: p})
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		l.putLetter(2)
		l.putSettlement(pipeline.TP{Topic: "billing.invoices.v1"}, 0, 1, pipeline.DeadLettered)
		settlements := pipeline.TP{Topic: deadletter.SettlementsTopic("reprieve")}
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := k.Passed(ctx, map[pipeline.TP]int64{settlements: 1}); err != nil {
			t.Fatal(err)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if n := l.count(""); n != 1 {
			t.Fatal(n)
		}
	})
}

func TestPassedCountsOffsetsWithoutRecords(t *testing.T) {
	ledgertest.Each(t, func(t *testing.T, s ledgertest.Store) {
		l := newLab(t, s)
		tx := l.cl.Tx("w", script.SinkOptions{})
		if err := tx.Begin(); err != nil {
			t.Fatal(err)
		}
		sending := &pipeline.Sending{}
		m := pipeline.Message{Topic: dlq, Partition: 0}
		if err := deadletter.Append(&m, l.Letter(0), deadletter.Profiles{}, l.Ring); err != nil {
			t.Fatal(err)
		}
		sending.Msgs = append(sending.Msgs, m)
		if err := tx.Send(sending); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(l.Ctx, nil, nil); err != nil {
			t.Fatal(err)
		}
		if end := l.ends()[pipeline.TP{Topic: dlq}]; end != 2 {
			t.Fatal(fmt.Sprint("the mark of the transaction has no offset: ", end))
		}
		k, _ := l.custodian(l.Items)
		stop := run(k)
		l.passed(k)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestSignedHeadsReachTheAuditTopic(t *testing.T) {
	ledgertest.Each(t, func(t *testing.T, s ledgertest.Store) {
		l := newLab(t, s)
		l.cl.CreateTopic("reprieve.audit", 1, nil)
		l.cl.Refuse("reprieve.audit", pipeline.CodeSendTimeout, 1)
		k, _ := l.custodian(l.Items, func(o *custody.CustodianOptions) { o.Sink = l.cl.Sink(script.SinkOptions{}) })
		stop := run(k)
		for n := range int64(10) {
			l.putLetter(n)
		}
		l.passed(k)
		eventually(t, "no head came", func() bool {
			l.Turn(time.Minute)
			l.cl.SetNow(l.Clock().UnixMilli())
			return len(l.cl.All("reprieve.audit")) >= 1
		})
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		var heads []custody.SignedHead
		for _, r := range l.cl.All("reprieve.audit") {
			h, err := custody.ParseHead(r.Value)
			if err != nil {
				t.Fatal(err)
			}
			heads = append(heads, h)
		}
		v, err := l.Items.Verify(l.Ctx, custodytest.Admin, heads, nil)
		if err != nil || !v.OK() {
			t.Fatal(v, err)
		}
	})
}

// What the worker file says about where names stand is read before the letter is redacted.
func TestAdoptedLettersAreIdentified(t *testing.T) {
	ledgertest.Each(t, func(t *testing.T, s ledgertest.Store) {
		l := newLab(t, s)
		l.cl.Append(pipeline.TP{Topic: "orders.dlq"}, pipeline.Record{TimeMS: custodytest.Start.UnixMilli(), Key: []byte("k"), Value: []byte(`{"id": "o-1"}`), Headers: []pipeline.Header{
			{Name: "__connect.errors.topic", Value: []byte("orders")}, {Name: "__connect.errors.partition", Value: []byte("0")}, {Name: "__connect.errors.offset", Value: []byte("7")},
			{Name: "__connect.errors.exception.class.name", Value: []byte("org.example.Broken")}, {Name: "tenant", Value: []byte("globex")}}})
		k, _ := l.custodian(l.Items, func(o *custody.CustodianOptions) {
			o.Adopt = map[string]custody.Adoption{"orders.dlq": {Consumer: "orders-sink", Tenant: "acme", Identify: func(topic string, r *pipeline.Record) pipeline.Identity {
				return pipeline.Identity{Tenant: string(r.Headers[len(r.Headers)-1].Value), EventID: string(r.Value[8:11])}
			}}}
		})
		stop := run(k)
		l.passed(k)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if n := l.count("tenant=globex event=o-1 consumer=orders-sink dialect=connect"); n != 1 {
			t.Fatal(n)
		}
	})
}
