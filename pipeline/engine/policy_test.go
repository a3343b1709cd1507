package engine_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/pipeline/decide"
	"reprieve.dev/pipeline/engine"
	"reprieve.dev/tests/conformance/script"
)

// variant is a policy version of its own digest.
func variant(t *testing.T, f decide.File) *decide.Policy {
	t.Helper()
	p, err := decide.New(f, decide.Options{Retry: decide.Retry{Topic: "in.retry"}, Quarantine: "in.dlq"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// board is a control topic of which the test says what is known.
type board struct{ known atomic.Int64 }

func (b *board) Covers(ms int64) bool { return b.known.Load() >= ms }

type logText struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// versionsOf reads which version settled which offsets of a partition.
func (b *bench) versionsOf(topic string, partition int32) map[int64]pipeline.Digest {
	b.t.Helper()
	out := map[int64]pipeline.Digest{}
	for _, r := range b.c.All("reprieve.settlements") {
		s, err := deadletter.ParseSettlement(&r, testRing)
		if err != nil {
			b.t.Fatal(err)
		}
		if s.TP != (pipeline.TP{Topic: topic, Partition: partition}) {
			continue
		}
		for off := s.From; off < s.To; off++ {
			if _, twice := out[off]; twice {
				b.t.Errorf("offset %d is settled twice", off)
			}
			out[off] = s.Policy
		}
	}
	return out
}

func TestEachSettlementAndLetterNamesTheVersionThatDecided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		one, two := variant(t, decide.File{Policy: "one"}), variant(t, decide.File{Policy: "two"})
		var now atomic.Pointer[decide.Policy]
		now.Store(one)
		b.o.Policy = func(pipeline.TP) pipeline.Policy { return now.Load() }
		b.o.Limits = engine.Limits{CommitEvery: 2 * time.Second}
		b.start()
		b.after(2500 * time.Millisecond)
		b.in(0, "a", "poison 1", "b")
		b.after(300 * time.Millisecond)
		now.Store(two)
		b.in(0, "c", "poison 2")
		b.after(10 * time.Second)
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		got := b.versionsOf("in", 0)
		for off := range int64(5) {
			want := one.Digest()
			if off >= 3 {
				want = two.Digest()
			}
			if got[off] != want {
				t.Errorf("offset %d was settled by %s, want %s", off, got[off], want)
			}
		}
		if len(got) != 5 || b.settled()["in dead_lettered"] != 2 || b.settled()["in delivered"] != 3 {
			t.Errorf("settled %v over %d offsets", b.settled(), len(got))
		}
		for _, l := range b.letters() {
			want := one.Digest()
			if strings.HasSuffix(string(l.Value), "2") {
				want = two.Digest()
			}
			if l.Decision.Policy != want {
				t.Errorf("the letter of %q names %s", l.Value, l.Decision.Policy)
			}
		}
	})
}

// A rule about failures that cannot be evaluated holds the records that it is about, blames none of them, alarms with the rule's name, and is
// over as soon as another version is in force: nobody waits for the next try, nothing is lost and nothing is done twice.
func TestAFailedRulePausesUntilAnotherVersionIsInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 2)
		broken := variant(t, decide.File{Policy: "broken", Decide: []decide.DecideRule{{Name: "too-clever", When: "1 / attempt > 0", Action: "quarantine"}}})
		good := variant(t, decide.File{Policy: "good"})
		var now atomic.Pointer[decide.Policy]
		now.Store(broken)
		b.o.Policy = func(pipeline.TP) pipeline.Policy { return now.Load() }
		log := &logText{}
		b.o.Log = slog.New(slog.NewTextHandler(log, nil))
		b.in(0, "a", "poison 1", "b")
		b.start()
		b.in(1, "c")
		b.after(time.Second)
		b.in(0, "d", "poison 2", "e")
		b.after(20 * time.Second) // the next try would be up to 16 s away
		if out := b.values("out"); slices.Contains(out, "poison 1") || len(b.letters()) != 0 || b.committed("in", 0) != 1 {
			t.Fatalf("out %v, %d letters, committed %d", out, len(b.letters()), b.committed("in", 0))
		}
		if h := b.health.Load(); h.Ready || h.Code != pipeline.CodePolicyRule {
			t.Errorf("health %+v", h)
		}
		for _, want := range []string{"ALERT_POLICY_FAILED", "rule=too-clever", "policy=" + string(broken.Digest())} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log has no %q", want)
			}
		}
		now.Store(good)
		b.after(time.Second)
		if out := b.values("out"); len(out) != 5 || len(b.letters()) == 0 {
			t.Errorf("a second after the rollback: out %v, %d letters", out, len(b.letters()))
		}
		b.after(5 * time.Second)
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		letters := b.letters()
		if len(letters) != 2 || b.committed("in", 0) != 6 || !b.health.Load().Ready {
			t.Fatalf("%d letters, committed %d, health %+v", len(letters), b.committed("in", 0), b.health.Load())
		}
		for _, l := range letters {
			if l.Failure.Code != pipeline.CodeDecodeTruncated || l.Decision.Policy != good.Digest() {
				t.Errorf("letter %s by %s", l.Failure.Code, l.Decision.Policy)
			}
		}
	})
}

// After some messages of a batch are acknowledged it cannot wait: the failure's own code decides, and the letter blames the
// record for what the record did.
func TestAFailedRuleAfterARefusedSendLeavesTheDecisionToTheCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		broken := variant(t, decide.File{Decide: []decide.DecideRule{{Name: "r", When: "1 / attempt > 0", Action: "retry"}}})
		b.o.Policy = func(pipeline.TP) pipeline.Policy { return broken }
		b.in(0, "a", "lost", "b") // the topic of "lost" is missing
		b.start()
		b.after(10 * time.Second)
		_ = b.stop()
		letters := b.letters()
		if len(letters) != 1 || letters[0].Failure.Code == pipeline.CodePolicyRule || join(b.values("out")) != "a b" || b.committed("in", 0) != 3 {
			t.Errorf("letters %v, out %v, committed %d", letters, b.values("out"), b.committed("in", 0))
		}
	})
}

func TestNothingIsPolledBeforeTheControlTopicWasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		known := &board{}
		b.o.Control = known
		b.in(0, "a")
		b.start()
		b.after(time.Minute)
		if h := b.health.Load(); h == nil || h.Ready || h.Code != pipeline.CodeControlNotReady || h.Assigned != 0 {
			t.Errorf("health %+v", h)
		}
		known.known.Store(time.Now().Add(time.Hour).UnixMilli())
		b.after(5 * time.Second)
		if join(b.values("out")) != "a" || !b.health.Load().Ready {
			t.Errorf("out %v, health %+v", b.values("out"), b.health.Load())
		}
		_ = b.stop()
	})
}

// A partition that comes later is not read before what stood on the topic when it came is known; the others go on.
func TestANewPartitionWaitsForTheControlTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 2)
		known := &board{}
		b.o.Control = known
		known.known.Store(time.Now().Add(time.Second).UnixMilli())
		other := b.c.Source(script.SourceOptions{Group: "g", Topics: []string{"in"}, Retry: map[string]bool{"in.retry": true}})
		polling, endPolling := context.WithCancel(t.Context())
		left := make(chan struct{})
		go func() { // holds a partition until it leaves
			defer close(left)
			for polling.Err() == nil {
				if _, err := other.Poll(10 * time.Millisecond); err != nil {
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
		}()
		b.start()
		b.after(5 * time.Second)
		mine := b.health.Load().Assigned
		b.in(0, "a")
		b.in(1, "b")
		b.after(2 * time.Second)
		before := len(b.values("out"))
		if mine == 0 || before > 1 {
			t.Fatalf("%d partitions, %d records", mine, before)
		}
		endPolling()
		<-left
		_ = other.Close()
		b.after(20 * time.Second)
		if n := len(b.values("out")); n != before {
			t.Errorf("%d records were read, %d before", n, before)
		}
		if h := b.health.Load(); h.Ready || h.Code != pipeline.CodeControlNotReady || h.Assigned != 4 {
			t.Errorf("health %+v", h)
		}
		known.known.Store(time.Now().Add(time.Hour).UnixMilli())
		b.after(2 * time.Second)
		if n := len(b.values("out")); n != 2 || !b.health.Load().Ready {
			t.Errorf("%d records, health %+v", n, b.health.Load())
		}
		_ = b.stop()
	})
}
