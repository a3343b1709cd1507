package kafka_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	client "github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/kafka"
	"reprieve.dev/tests/conformance"
)

// deadline polls try until it is true.
func deadline(t *testing.T, what string, try func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !try(); {
		if time.Now().After(end) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

func mustPoll(t *testing.T, s pipeline.Source) pipeline.Event {
	t.Helper()
	ev, err := s.Poll(20 * time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if b, ok := ev.(*pipeline.Batch); ok {
		b.Release()
	}
	return ev
}

// fake starts a broker with options that the embedded one does not have.
func fake(t *testing.T, opts ...kfake.Opt) string {
	t.Helper()
	c, err := kfake.NewCluster(append(opts, kfake.NumBrokers(1), kfake.DataDir(t.TempDir()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return strings.Join(c.ListenAddrs(), ",")
}

func TestALostAssignmentIsSaidAndNothingIsCommittedForIt(t *testing.T) {
	at := fake(t, kfake.GroupMinSessionTimeout(100*time.Millisecond))
	a := newAdapter(at, map[string]string{"partition.assignment.strategy": "cooperative-sticky", "session.timeout.ms": "1000",
		"heartbeat.interval.ms": "100", "max.poll.interval.ms": "1000"})
	topic, group := a.CreateTopic(tt{t}, 1, nil), a.Name("lost")
	o := conformance.SourceOptions{Group: group, Topics: []string{topic}}
	tp := pipeline.TP{Topic: topic}
	slow := a.Source(tt{t}, o)
	deadline(t, "the first assignment", func() bool { _, ok := mustPoll(t, slow).(pipeline.Assigned); return ok })
	mustPoll(t, slow)
	other := a.Source(tt{t}, o)
	// slow stops polling: the library leaves the group in its place
	deadline(t, "the other takes over", func() bool { _, ok := mustPoll(t, other).(pipeline.Assigned); return ok })
	mustPoll(t, other)
	if err := other.Commit(map[pipeline.TP]pipeline.Checkpoint{tp: {Next: 61, InFlight: -1}}); err != nil {
		t.Fatal(err)
	}
	lost := false
	deadline(t, "the loss", func() bool {
		mustPoll(t, other)
		switch e := mustPoll(t, slow).(type) {
		case pipeline.Lost:
			lost = len(e.TPs) == 1 && e.TPs[0] == tp
			return true
		case pipeline.Revoked:
			t.Fatalf("it was told as revoked, so as if it could still commit: %v", e)
		}
		return false
	})
	if !lost {
		t.Fatal("Lost does not name the partition")
	}
	if err := slow.Commit(map[pipeline.TP]pipeline.Checkpoint{tp: {Next: 42, InFlight: -1}}); err != nil {
		t.Fatal(err)
	}
	if n := slow.Strangers(); n != 1 {
		t.Errorf("%d commits of a stranger, want 1", n)
	}
	if got := a.Committed(tt{t}, group)[tp].Next; got != 61 {
		t.Errorf("committed is %d, want 61", got)
	}
}

func TestAStaticMemberComesBackToItsPartitions(t *testing.T) { onBoth(t, staticMember) }

func staticMember(t *testing.T, at string) {
	a := newAdapter(at, map[string]string{"session.timeout.ms": "20000", "heartbeat.interval.ms": "200"})
	topic, group := a.CreateTopic(tt{t}, 4, nil), a.Name("static")
	open := func(name string) *kafka.Source {
		s, err := kafka.NewSource(kafka.SourceConfig{Cluster: a.cluster, Group: group, Topics: []string{topic}, InstanceID: name})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	one, two := open("one"), open("two")
	owned := map[*kafka.Source]map[pipeline.TP]bool{one: {}, two: {}}
	turn := func(s *kafka.Source) {
		switch e := mustPoll(t, s).(type) {
		case pipeline.Assigned:
			for _, tp := range e.TPs {
				owned[s][tp] = true
			}
		case pipeline.Revoked:
			for _, tp := range e.TPs {
				delete(owned[s], tp)
			}
		}
	}
	deadline(t, "two members share", func() bool { turn(one); turn(two); return len(owned[one]) == 2 && len(owned[two]) == 2 })
	before := fmt.Sprint(owned[two])
	if err := two.Close(); err != nil {
		t.Fatal(err)
	}
	again := open("two")
	owned[again] = map[pipeline.TP]bool{}
	deadline(t, "it is back", func() bool {
		if ev := mustPoll(t, one); ev != nil {
			t.Fatalf("the other member was disturbed: %T", ev)
		}
		turn(again)
		return len(owned[again]) == 2
	})
	if got := fmt.Sprint(owned[again]); got != before {
		t.Errorf("it came back to %s, had %s", got, before)
	}
	// a second one of the same name ends the first, which says so
	thief := open("two")
	owned[thief] = map[pipeline.TP]bool{}
	deadline(t, "the first of the name is fenced", func() bool {
		turn(one)
		turn(thief)
		_, err := again.Poll(20 * time.Millisecond)
		if err == nil {
			return false
		}
		if pipeline.CodeOf(err) != pipeline.CodeBrokerFatal || !strings.Contains(err.(*pipeline.Error).Fix(), "same name") {
			t.Errorf("it ended with %v, %q", err, err.(*pipeline.Error).Fix())
		}
		return true
	})
}

func TestATopicThatIsMissingIsSaid(t *testing.T) {
	a := newAdapter(startEmbedded(t), nil)
	s := a.Source(tt{t}, conformance.SourceOptions{Group: a.Name("g"), Topics: []string{"nobody.made.this"}})
	deadline(t, "an error", func() bool {
		_, err := s.Poll(50 * time.Millisecond)
		if err == nil {
			return false
		}
		if e := err.(*pipeline.Error); e.Code != pipeline.CodeTopicMissing || !strings.Contains(e.Place+e.Text, "nobody.made.this") || e.Fix() == "" {
			t.Errorf("it says %v (%s)", e, e.Fix())
		}
		return true
	})
}

// deaf is an address where nobody listens.
func deaf(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestAClusterThatIsAwayIsSaidAndStopsNothing(t *testing.T) {
	a := newAdapter(deaf(t), map[string]string{"message.timeout.ms": "500"})
	src, err := kafka.NewSource(kafka.SourceConfig{Cluster: a.cluster, Group: "g", Topics: []string{"t"}})
	if err != nil {
		t.Fatal(err)
	}
	deadline(t, "Health tells", func() bool { mustPoll(t, src); return src.Health() != nil })
	if e := src.Health().(*pipeline.Error); e.Code != pipeline.CodeBrokerUnreachable || !strings.Contains(e.Place, "main (127.0.0.1:") {
		t.Errorf("Health tells %v", e)
	}
	if err := src.Close(); err != nil {
		t.Error(err)
	}
	k := a.Sink(tt{t}, conformance.SinkOptions{})
	s := &pipeline.Sending{Msgs: []pipeline.Message{{Topic: "t", Partition: -1, Value: []byte("v"), From: 3}}}
	if err := k.Send(s); err != nil {
		t.Fatal(err)
	}
	<-k.Done()
	if len(s.Bad) != 1 || s.Bad[0].Failure.Code != pipeline.CodeSendTimeout || s.Bad[0].Failure.Index != 3 {
		t.Errorf("refused as %+v", s.Bad)
	}
	ad, err := kafka.NewAdmin(a.cluster)
	if err != nil {
		t.Fatal(err)
	}
	defer ad.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := ad.Topics(ctx); pipeline.CodeOf(err) != pipeline.CodeBrokerUnreachable {
		t.Errorf("Topics: %v", err)
	}
	if _, err := ad.ClusterID(ctx); pipeline.CodeOf(err) != pipeline.CodeBrokerUnreachable {
		t.Errorf("ClusterID: %v", err)
	}
	if _, err := kafka.NewTx(ctx, kafka.TxConfig{Cluster: a.cluster, TransactionalID: "x"}); pipeline.CodeOf(err) != pipeline.CodeBrokerUnreachable {
		t.Errorf("NewTx: %v", err)
	}
}

func TestCloseWithADeadlineCompletesEverything(t *testing.T) {
	a := newAdapter(deaf(t), nil)
	k, err := kafka.NewSink(kafka.SinkConfig{Cluster: a.cluster, MaxInFlight: 30})
	if err != nil {
		t.Fatal(err)
	}
	sent := 0
	for range 3 {
		s := &pipeline.Sending{}
		for range 10 {
			s.Msgs = append(s.Msgs, pipeline.Message{Topic: "t", Partition: -1, From: -1})
		}
		if err := k.Send(s); err != nil {
			t.Fatal(err)
		}
		sent++
	}
	if err := k.Send(&pipeline.Sending{Msgs: make([]pipeline.Message, 1)}); err != pipeline.ErrFull {
		t.Errorf("the sink is full and says %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := k.Close(ctx); pipeline.CodeOf(err) != pipeline.CodeDrainTimeout {
		t.Errorf("Close: %v", err)
	}
	for range sent {
		if s := <-k.Done(); len(s.Bad) != 10 || s.Bad[9].Failure.Code != pipeline.CodeSendTimeout {
			t.Errorf("%d of 10 refused: %+v", len(s.Bad), s.Bad)
		}
	}
}

func TestAWriteWithoutPermissionIsDenied(t *testing.T) {
	at := fake(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "root", "right"),
		kfake.User("PLAIN", "reader", "right", kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: "*", Pattern: kmsg.ACLResourcePatternTypeLiteral,
			Operation: kmsg.ACLOperationDescribe, Allow: true}))
	as := func(user, password string) adapter {
		return newAdapter(at, map[string]string{"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
			"sasl.username": user, "sasl.password": password, "message.timeout.ms": "3000"})
	}
	topic := as("root", "right").CreateTopic(tt{t}, 1, nil)
	reader := as("reader", "right")
	k := reader.Sink(tt{t}, conformance.SinkOptions{})
	sending := &pipeline.Sending{Msgs: []pipeline.Message{{Topic: topic, Value: []byte("v"), From: -1}}}
	if err := k.Send(sending); err != nil {
		t.Fatal(err)
	}
	<-k.Done()
	if len(sending.Bad) != 1 || sending.Bad[0].Failure.Code != pipeline.CodeSendDenied {
		t.Errorf("a write without permission: %+v", sending.Bad)
	}
	deadline(t, "the sink is at its end", func() bool {
		err := k.Send(&pipeline.Sending{Msgs: []pipeline.Message{{Topic: topic, From: -1}}})
		return pipeline.CodeOf(err) == pipeline.CodeBrokerAuth
	})
}

// inTx is one transaction that writes msgs.
func inTx(t *testing.T, x *kafka.Tx, msgs ...pipeline.Message) *pipeline.Sending {
	t.Helper()
	if err := x.Begin(); err != nil {
		t.Fatal(err)
	}
	s := &pipeline.Sending{Msgs: msgs}
	if err := x.Send(s); err != nil {
		t.Fatal(err)
	}
	<-x.Done()
	return s
}

func TestARefusedMessageDoomsItsTransactionAndIsNamedAlone(t *testing.T) {
	onBoth(t, func(t *testing.T, at string) {
		a := newAdapter(at, nil)
		topic := a.CreateTopic(tt{t}, 1, map[string]string{"max.message.bytes": "4000"})
		x, err := kafka.NewTx(within(tt{t}), kafka.TxConfig{Cluster: a.cluster, TransactionalID: a.Name("doomed"), BatchBytes: 4000})
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close(within(tt{t}))
		var msgs []pipeline.Message
		for i := range 20 {
			msgs = append(msgs, pipeline.Message{Topic: topic, Key: []byte("k"), Value: fmt.Append(nil, i), From: int32(i)})
		}
		msgs[7].Value = bytes.Repeat([]byte("x"), 9000)
		s := inTx(t, x, msgs...)
		if len(s.Bad) != 1 || s.Bad[0].Msg != 7 || s.Bad[0].Failure.Code != pipeline.CodeTooLarge {
			t.Errorf("%d refused, want message 7 alone", len(s.Bad))
		}
		if err := x.Commit(within(tt{t}), nil, nil); pipeline.CodeOf(err) != pipeline.CodeTxAborted {
			t.Errorf("Commit: %v, want ERR_TX_ABORTED", err)
		}
		if err := x.Abort(within(tt{t})); err != nil {
			t.Fatal(err)
		}
		msgs[7].Value = nil
		for try := 1; ; try++ {
			if s = inTx(t, x, msgs...); len(s.Bad) != 0 {
				t.Fatalf("%d refused, the first: %+v", len(s.Bad), s.Bad[0])
			}
			err := x.Commit(within(tt{t}), nil, nil)
			if err == nil {
				break
			}
			if pipeline.CodeOf(err) != pipeline.CodeTxAborted || try == 2 {
				t.Fatalf("try %d: %v", try, err)
			}
			if err := x.Abort(within(tt{t})); err != nil {
				t.Fatal(err)
			}
		}
		conformance.Read(tt{t}, a.Source(tt{t}, conformance.SourceOptions{Group: a.Name("g"), Topics: []string{topic}}), 20)
	})
}

// What a group has committed can be read while a transaction that commits more is open, for however long it stays so.
func TestOffsetsAreReadWhileATransactionCommitsThem(t *testing.T) { onBoth(t, offsetsInATransaction) }

func offsetsInATransaction(t *testing.T, at string) {
	a := newAdapter(at, nil)
	topic, group := a.CreateTopic(tt{t}, 1, nil), a.Name("group")
	p, err := client.NewProducer(&client.ConfigMap{"bootstrap.servers": at, "transactional.id": a.Name("tx")})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ctx := within(tt{t})
	if err := p.InitTransactions(ctx); err != nil {
		t.Fatal(err)
	}
	reader, err := client.NewConsumer(&client.ConfigMap{"bootstrap.servers": at, "group.id": group})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if err := reader.Assign([]client.TopicPartition{{Topic: &topic, Partition: 0}}); err != nil {
		t.Fatal(err)
	}
	offsets := func(next int64) {
		t.Helper()
		member, err := reader.GetConsumerGroupMetadata()
		if err != nil {
			t.Fatal(err)
		}
		if err := p.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := p.SendOffsetsToTransaction(ctx, []client.TopicPartition{{Topic: &topic, Partition: 0, Offset: client.Offset(next)}}, member); err != nil {
			t.Fatal(err)
		}
	}
	read := func(want int64) {
		t.Helper()
		got, err := a.Log(tt{t}).Committed(ctx, group)
		if err != nil || got[pipeline.TP{Topic: topic}] != want {
			t.Errorf("Committed told %v, %v, want %d", got, err, want)
		}
	}
	offsets(5)
	if err := p.CommitTransaction(ctx); err != nil {
		t.Fatal(err)
	}
	read(5)
	offsets(7)
	read(5)
	if err := p.CommitTransaction(ctx); err != nil {
		t.Fatal(err)
	}
	read(7)
}

func TestASendOutsideOfATransactionIsRefused(t *testing.T) {
	a := newAdapter(startEmbedded(t), nil)
	topic := a.CreateTopic(tt{t}, 1, nil)
	x := a.Tx(tt{t}, a.Name("outside"))
	s := &pipeline.Sending{Msgs: []pipeline.Message{{Topic: topic, From: -1}}}
	if err := x.Send(s); err != nil {
		t.Fatal(err)
	}
	<-x.Done()
	if len(s.Bad) != 1 {
		t.Error("it was taken")
	}
}

func TestCloseLeavesNoGoroutine(t *testing.T) {
	a := newAdapter(startEmbedded(t), nil)
	topic := a.CreateTopic(tt{t}, 2, nil)
	use := func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		k, err := kafka.NewSink(kafka.SinkConfig{Cluster: a.cluster})
		if err != nil {
			t.Fatal(err)
		}
		conformance.Write(tt{t}, k, pipeline.Message{Topic: topic, From: -1})
		src, err := kafka.NewSource(kafka.SourceConfig{Cluster: a.cluster, Group: a.Name("leak"), Topics: []string{topic}})
		if err != nil {
			t.Fatal(err)
		}
		deadline(t, "a record", func() bool { _, ok := mustPoll(t, src).(*pipeline.Batch); return ok })
		x, err := kafka.NewTx(ctx, kafka.TxConfig{Cluster: a.cluster, TransactionalID: a.Name("leak")})
		if err != nil {
			t.Fatal(err)
		}
		l, err := kafka.NewLog(a.cluster, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Info(ctx, topic); err != nil {
			t.Fatal(err)
		}
		if err := l.Read(ctx, pipeline.TP{Topic: topic}, func(yield func(int64) bool) { yield(0) }, func(b *pipeline.Batch) error {
			b.Release()
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		l.Close()
		for _, err := range []error{x.Close(ctx), src.Close(), k.Close(ctx)} {
			if err != nil {
				t.Error(err)
			}
		}
	}
	use() // whatever is kept for good is kept now
	before := runtime.NumGoroutine()
	use()
	deadline(t, "the goroutines end", func() bool {
		if runtime.NumGoroutine() <= before {
			return true
		}
		runtime.Gosched()
		return false
	})
}
