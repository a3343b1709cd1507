package engine_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/tests/conformance/script"
)

// spare gives a bench a fallback store: a cluster of its own that takes letters.
func (b *bench) spare() *script.Cluster {
	c := script.New(time.Now().UnixMilli())
	c.CreateTopic("in.dlq", 1, nil)
	b.o.Fallback = c.Sink(script.SinkOptions{})
	return c
}

// spared are the values that a fallback store has.
func spared(t *testing.T, c *script.Cluster) (out []string) {
	t.Helper()
	for _, r := range c.All("in.dlq") {
		if deadletter.IsProbe(&r) {
			continue
		}
		if _, err := deadletter.Parse("in.dlq", &r, testRing); err != nil {
			t.Error(err)
		}
		out = append(out, string(r.Value))
	}
	return out
}

// The ladder of a letter: its topic, the fallback store, and only then a halt (ADV-FD-01).
func TestALetterThatItsTopicRefusesGoesToTheFallbackStore(t *testing.T) {
	for name, exactly := range map[string]bool{"at_least_once": false, "exactly_once": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, 2)
				if exactly {
					b.exactlyOnce()
				}
				store := b.spare()
				b.start()
				b.after(time.Second)
				b.c.Refuse("in.dlq", pipeline.CodeSendTimeout, -1)
				b.in(0, "a", "poison 1", "b")
				b.after(3 * time.Second)
				if h := b.health.Load(); !h.Ready || h.Code != pipeline.CodeIngressFailed {
					t.Errorf("health %+v", h)
				}
				b.in(0, "poison 2", "later")
				b.in(1, "c")
				b.after(3 * time.Second)
				if got := spared(t, store); join(got) != "poison 1 poison 2" {
					t.Errorf("the store has %v", got)
				}
				if b.committed("in", 0) < 5 || b.committed("in", 1) < 1 {
					t.Errorf("committed %d and %d", b.committed("in", 0), b.committed("in", 1))
				}
				b.c.Refuse("in.dlq", "", 0)
				b.after(10 * time.Second)
				if h := b.health.Load(); !h.Ready || h.Code != "" {
					t.Errorf("health %+v after the topic came back", h)
				}
				b.in(0, "poison 3")
				b.after(3 * time.Second)
				if err := b.stop(); err != nil {
					t.Fatal(err)
				}
				if got := b.settled(); got["in fallback"] != 2 || got["in dead_lettered"] != 1 {
					t.Errorf("settled %v", got)
				}
				if join(b.values("in.dlq")) != "poison 3" || len(spared(t, store)) != 2 || len(b.values("out")) != 4 {
					t.Errorf("dlq %v, store %v, out %v", b.values("in.dlq"), spared(t, store), b.values("out"))
				}
			})
		})
	}
}

func TestNothingIsReadWhileNeitherTopicNorStoreTakesLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		store := b.spare()
		b.start()
		b.after(time.Second)
		b.c.Refuse("in.dlq", pipeline.CodeSendTimeout, -1)
		store.Refuse("in.dlq", pipeline.CodeSendFailed, -1)
		b.in(0, "a", "poison 1")
		b.after(3 * time.Second)
		if h := b.health.Load(); h.Ready || h.Code != pipeline.CodeFailureDomain {
			t.Errorf("health %+v", h)
		}
		b.in(0, "later")
		b.after(3 * time.Second)
		if slices.Contains(b.values("out"), "later") || b.committed("in", 0) > 1 {
			t.Errorf("out %v, committed %d", b.values("out"), b.committed("in", 0))
		}
		store.Refuse("in.dlq", "", 0) // the store alone is back: that is enough
		b.after(10 * time.Second)
		if h := b.health.Load(); !h.Ready || h.Code != pipeline.CodeIngressFailed {
			t.Errorf("health %+v", h)
		}
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		if join(spared(t, store)) != "poison 1" || len(b.values("in.dlq")) != 0 || b.committed("in", 0) != 3 || b.settled()["in fallback"] != 1 {
			t.Errorf("store %v, dlq %v, committed %d, settled %v", spared(t, store), b.values("in.dlq"), b.committed("in", 0), b.settled())
		}
	})
}

// A topic that is down when the pipeline starts keeps it from nothing: the store takes what fails.
func TestAPipelineStartsOnItsFallbackStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		store := b.spare()
		b.c.Refuse("in.dlq", pipeline.CodeSendDenied, -1)
		b.in(0, "a", "poison 1", "poison 2")
		b.start()
		b.after(5 * time.Second)
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		if join(b.values("out")) != "a" || join(spared(t, store)) != "poison 1 poison 2" || b.committed("in", 0) != 3 {
			t.Errorf("out %v, store %v, committed %d", b.values("out"), spared(t, store), b.committed("in", 0))
		}
	})
}
