package redrive_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/custody/custodytest"
	"reprieve.dev/embedded"
	"reprieve.dev/ledger"
	"reprieve.dev/ledger/ledgertest"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/pipeline/kafka"
	"reprieve.dev/redrive"
	"reprieve.dev/seal"
)

const (
	source   = "billing.invoices.v1"
	retry    = "billing.invoices.v1.retry"
	letters  = "billing.invoices.v1.dlq"
	group    = "billing-event-processor"
	kafkaLog = "cluster-1"
)

// sleep waits in real time.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestOverKafka redrives through a broker, with a custodian that reads what the retry lane says, until every item is reconciled.
func TestOverKafka(t *testing.T) {
	for name, transactional := range map[string]bool{"Idempotent": false, "Transactional": true} {
		t.Run(name, func(t *testing.T) { overKafka(t, transactional) })
	}
}

func overKafka(t *testing.T, transactional bool) {
	const items, rate = 300, 100
	ctx, cancel := context.WithCancel(t.Context())
	broker, err := embedded.StartBroker(embedded.BrokerConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { broker.Close() })
	cluster := kafka.Cluster{Name: "main", Properties: map[string]string{"bootstrap.servers": broker.Bootstrap()}}
	admin, err := kafka.NewAdmin(cluster)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if err := admin.CreateTopics(ctx, kafka.TopicSpec{Name: source, Partitions: 3, Replicas: 1}, kafka.TopicSpec{Name: retry, Partitions: 3, Replicas: 1}, kafka.TopicSpec{Name: letters, Partitions: 1, Replicas: 1},
		kafka.TopicSpec{Name: deadletter.OutcomesTopic("reprieve"), Partitions: 1, Replicas: 1}, kafka.TopicSpec{Name: deadletter.SettlementsTopic("reprieve"), Partitions: 1, Replicas: 1}); err != nil {
		t.Fatal(err)
	}
	pool := pipeline.NewPool(&pipeline.Layout{})
	log, err := kafka.NewLog(cluster, pool)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()

	store := ledgertest.SQLite(t)
	env := custodytest.New(t, store)
	ids := env.Admit(t, 0, items)
	env.Confirm(t, 0, items)
	env.Triage(t, ids...)
	db := store.Open(t, ledger.Options{Clock: time.Now})
	real := env.Again(db, func(o *custody.Options) { o.Clock = time.Now })

	var wait sync.WaitGroup
	defer wait.Wait()
	defer cancel()
	wait.Go(func() { lane(t, ctx, cluster, env.Ring) })
	src, err := kafka.NewSource(kafka.SourceConfig{Cluster: cluster, Group: "custodian", Topics: custody.CustodianTopics("reprieve", []string{letters})})
	if err != nil {
		t.Fatal(err)
	}
	wait.Go(func() {
		defer src.Close()
		k := custody.NewCustodian(custody.CustodianOptions{Items: real, Source: src, Cluster: kafkaLog, Ring: env.Ring, Kafka: log})
		if err := k.Run(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	})

	anton, err := seal.GenerateSigner("anton")
	if err != nil {
		t.Fatal(err)
	}
	target := &redrive.Target{Pipeline: "billing", Group: group, Cluster: kafkaLog, Sources: []string{source}, Destination: retry, Ceiling: 1000, Reconcile: "here", Horizon: redrive.Horizon{Known: true},
		Watched: []redrive.Topic{{Cluster: kafkaLog, Topic: letters}, {Cluster: kafkaLog, Topic: "reprieve.outcomes"}, {Cluster: kafkaLog, Topic: "reprieve.settlements"}}}
	svc := redrive.New(redrive.Options{Items: real, Name: "exec-1", Clock: time.Now, Wait: sleep, Ring: env.Ring, Identity: env.Identity, Bound: 1000, Fenced: transactional, Settle: 60 * time.Second,
		Targets: func(string) (*redrive.Target, bool) { return target, true }, Source: func(string) (pipeline.Log, bool) { return log, true },
		Approvers: []redrive.Approver{{Key: anton.Verifier(), Roles: []string{"approver"}}},
		Send: func(ctx context.Context, _ *redrive.Target, l ledger.Lease) (pipeline.Sink, func(context.Context) error, error) {
			if transactional {
				tx, err := kafka.NewTx(ctx, kafka.TxConfig{Cluster: cluster, TransactionalID: "reprieve." + l.Name})
				if err != nil {
					return nil, nil, err
				}
				return tx, tx.Close, nil
			}
			s, err := kafka.NewSink(kafka.SinkConfig{Cluster: cluster})
			if err != nil {
				return nil, nil, err
			}
			return s, s.Close, nil
		}})
	sel, err := custody.ParseSelection("tenant=acme state=TRIAGED")
	if err != nil {
		t.Fatal(err)
	}
	snap, err := real.TakeSnapshot(ctx, custodytest.Operator, sel)
	if err != nil {
		t.Fatal(err)
	}
	p, err := svc.Plan(ctx, custodytest.Operator, redrive.PlanRequest{Pipeline: "billing", Snapshot: snap.ID, Count: snap.Count, Digest: string(snap.Digest), Ticket: "OPS-1", Rate: rate})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := svc.DryRun(ctx, custodytest.Operator, p.Digest); err != nil {
		t.Fatal(err)
	}
	who := custody.Actor{Subject: "anton", Roles: []string{"approver"}, Tenants: []string{custody.AllTenants}, Via: "cli"}
	if err := svc.Approve(ctx, who, redrive.Sign(anton, p.Digest, "approver", rate, time.Now().Add(time.Hour))); err != nil {
		t.Fatal(err)
	}
	st, err := svc.Run(ctx, custodytest.Operator, p.Digest)
	if err != nil {
		t.Fatal(err)
	}
	if st.State != redrive.StateDone || st.Counts.Reconciled != items {
		t.Errorf("%s %q %+v", st.State, st.Detail, st.Counts)
	}
	// Each item stands on the retry topic once, where Java producers put its key.
	seen := map[pipeline.ID]int{}
	var times []int64
	info, err := log.Info(ctx, retry)
	if err != nil {
		t.Fatal(err)
	}
	for part, r := range info.Partitions {
		if err := log.Read(ctx, pipeline.TP{Topic: retry, Partition: part}, func(yield func(int64) bool) {
			for off := r.First; off < r.Next && yield(off); off++ {
			}
		}, func(b *pipeline.Batch) error {
			defer b.Release()
			for i := range b.Recs {
				tr, _, err := deadletter.ParseTrail(retry, &b.Recs[i], env.Ring)
				if err != nil {
					t.Error(err)
					continue
				}
				seen[tr.Item]++
				times = append(times, b.Recs[i].TimeMS)
				if want := redrive.Partition(b.Recs[i].Key, 3, 0); want != part {
					t.Errorf("%s stands on partition %d, not %d", b.Recs[i].Key, part, want)
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(times)
	for from, i := 0, 0; i < len(times); i++ { // INV-PACE, in real time
		for times[i]-times[from] >= 1000 {
			from++
		}
		if i-from+1 > rate {
			t.Fatalf("%d records in one second", i-from+1)
		}
	}
	for _, id := range ids {
		if seen[id] != 1 {
			t.Errorf("%s was sent %d times", id, seen[id])
		}
	}
}

// lane is the retry lane of the pipeline: it settles what it reads and says so, and commits after that.
func lane(t *testing.T, ctx context.Context, cluster kafka.Cluster, ring *seal.Ring) {
	src, err := kafka.NewSource(kafka.SourceConfig{Cluster: cluster, Group: group, Topics: []string{retry}})
	if err != nil {
		t.Error(err)
		return
	}
	defer src.Close()
	sink, err := kafka.NewSink(kafka.SinkConfig{Cluster: cluster})
	if err != nil {
		t.Error(err)
		return
	}
	defer sink.Close(context.WithoutCancel(ctx))
	for ctx.Err() == nil {
		ev, err := src.Poll(50 * time.Millisecond)
		if err != nil {
			t.Error(err)
			return
		}
		b, ok := ev.(*pipeline.Batch)
		if !ok {
			continue
		}
		s := &pipeline.Sending{}
		for i := range b.Recs {
			tr, _, err := deadletter.ParseTrail(retry, &b.Recs[i], ring)
			if err != nil {
				t.Error(err)
				continue
			}
			m := pipeline.Message{Topic: deadletter.OutcomesTopic("reprieve"), Partition: -1, From: -1}
			if err := deadletter.AppendOutcome(&m, &pipeline.Outcome{Pipeline: "billing", Item: tr.Item, Redrive: tr.Redrive, Try: tr.Try, AtMS: time.Now().UnixMilli(), Result: pipeline.Forwarded, Writer: "engine",
				At: pipeline.Position{TP: b.TP, Offset: b.Recs[i].Offset}}, ring); err != nil {
				t.Error(err)
			}
			s.Msgs = append(s.Msgs, m)
		}
		next := pipeline.Checkpoint{Next: b.Recs[len(b.Recs)-1].Offset + 1, InFlight: -1}
		if err := sink.Send(s); err != nil {
			t.Error(err)
			return
		}
		<-sink.Done()
		if err := src.Commit(map[pipeline.TP]pipeline.Checkpoint{b.TP: next}); err != nil {
			t.Error(err)
		}
		b.Release()
	}
}
