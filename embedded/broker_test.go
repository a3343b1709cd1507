package embedded_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"reprieve.dev/embedded"
	"reprieve.dev/pipeline"
)

func dial(t *testing.T, b *embedded.Broker, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append(opts, kgo.SeedBrokers(b.Bootstrap()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestABrokerTakesItsFolderUpAgain(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	dir := t.TempDir()
	b, err := embedded.StartBroker(embedded.BrokerConfig{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, b)
	if _, err := kadm.NewClient(c).CreateTopic(ctx, 2, 1, map[string]*string{"retention.ms": kadm.StringPtr("86400000")}, "kept"); err != nil {
		t.Fatal(err)
	}
	if err := c.ProduceSync(ctx, &kgo.Record{Topic: "kept", Value: []byte("v")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: "kept", Partition: 1, At: 7, Metadata: "m"})
	if err := kadm.NewClient(c).CommitAllOffsets(ctx, "g", offsets); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if b, err = embedded.StartBroker(embedded.BrokerConfig{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	a := kadm.NewClient(dial(t, b))
	ends, err := a.ListEndOffsets(ctx, "kept")
	if err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	ends.Each(func(o kadm.ListedOffset) { sum += o.Offset })
	if sum != 1 {
		t.Errorf("%d records after a restart, want 1", sum)
	}
	got, err := a.FetchOffsets(ctx, "g")
	if err != nil {
		t.Fatal(err)
	}
	if o, ok := got.Lookup("kept", 1); !ok || o.At != 7 || o.Metadata != "m" {
		t.Errorf("the group's offset is %+v after a restart, want 7 and m", o)
	}
}

func TestTopicsAreNotCreatedByWritingToThem(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	b, err := embedded.StartBroker(embedded.BrokerConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	c := dial(t, b, kgo.AllowAutoTopicCreation(), kgo.UnknownTopicRetries(0))
	if err := c.ProduceSync(ctx, &kgo.Record{Topic: "nobody", Value: []byte("v")}).FirstErr(); err != kerr.UnknownTopicOrPartition {
		t.Errorf("a write to a missing topic answered %v", err)
	}
}

func TestABrokerListensOnThisMachineOnly(t *testing.T) {
	b, err := embedded.StartBroker(embedded.BrokerConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if !strings.HasPrefix(b.Bootstrap(), "127.0.0.1:") || strings.Contains(b.Bootstrap(), ",") {
		t.Errorf("it listens on %s", b.Bootstrap())
	}
}

func TestWhatStopsABrokerIsSaid(t *testing.T) {
	dir := t.TempDir()
	b, err := embedded.StartBroker(embedded.BrokerConfig{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for name, conf := range map[string]embedded.BrokerConfig{
		"no folder":            {},
		"a folder in use":      {Dir: dir},
		"a port that is taken": {Dir: t.TempDir(), Port: port(t, b.Bootstrap())},
	} {
		if other, err := embedded.StartBroker(conf); pipeline.CodeOf(err) != pipeline.CodeEnvironmentTool {
			t.Errorf("%s: %v", name, err)
			if other != nil {
				_ = other.Close()
			}
		}
	}
}

func port(t *testing.T, addr string) (n int) {
	t.Helper()
	for _, c := range addr[strings.LastIndexByte(addr, ':')+1:] {
		n = n*10 + int(c-'0')
	}
	return n
}

func TestCloseLeavesNoGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	b, err := embedded.StartBroker(embedded.BrokerConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	r, err := embedded.StartRegistry(embedded.RegistryConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	call(t, r.URL(), "GET", "/subjects", "")
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	httpIdle()
	end := time.Now().Add(10 * time.Second)
	for runtime.NumGoroutine() > before {
		if time.Now().After(end) {
			buf := make([]byte, 1<<16)
			t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
		}
		runtime.Gosched()
	}
}
