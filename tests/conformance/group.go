package conformance

import (
	"fmt"
	"time"

	"reprieve.dev/pipeline"
)

// RunGroup holds Sources to what members of one group must do.
func RunGroup(t T, c Cluster) {
	t.Run("a revoked partition may still be committed, and its successor starts there", func(t T) { handOver(t, c) })
	t.Run("C28: a commit for a partition of another member is refused and counted", func(t T) { CaseC28(t, c) })
	t.Run("C26: a pause is not inherited by the next assignment", func(t T) { CaseC26(t, c) })
	t.Run("the epoch rises with each assignment, and only for what is assigned", func(t T) { epochs(t, c) })
	t.Run("close answers what is open", func(t T) { closesAmidst(t, c) })
	t.Run("members share everything once", func(t T) { shared(t, c) })
}

// member is a Source as an engine drives it: what it owns, and how it answers.
type member struct {
	t     T
	s     Source
	name  string
	owns  map[pipeline.TP]uint32
	cps   map[pipeline.TP]pipeline.Checkpoint
	taken map[pipeline.TP]int64 // next offset, as read
	seen  func(*pipeline.Batch)
	give  func([]pipeline.TP) // called with Revoked, before it is answered
	last  pipeline.Event
}

func join(t T, c Cluster, name, group, topic string) *member {
	return &member{t: t, name: name, s: c.Source(t, SourceOptions{Group: group, Topics: []string{topic}, MaxBatch: 100}),
		owns: map[pipeline.TP]uint32{}, cps: map[pipeline.TP]pipeline.Checkpoint{}, taken: map[pipeline.TP]int64{}}
}

// turn polls once.
func (m *member) turn() {
	m.t.Helper()
	m.last = poll(m.t, m.s)
	switch e := m.last.(type) {
	case pipeline.Assigned:
		for _, tp := range e.TPs {
			if _, ok := m.owns[tp]; ok {
				m.t.Fatalf("%s: %v was assigned twice", m.name, tp)
			}
			m.owns[tp] = e.Epoch
			m.cps[tp] = e.Checkpoints[tp]
			m.taken[tp] = e.Checkpoints[tp].Next
		}
	case pipeline.Revoked:
		if m.give != nil {
			m.give(e.TPs)
		}
		for _, tp := range e.TPs {
			if _, ok := m.owns[tp]; !ok {
				m.t.Fatalf("%s: %v was revoked and is not ours", m.name, tp)
			}
			delete(m.owns, tp)
		}
	case pipeline.Lost:
		for _, tp := range e.TPs {
			delete(m.owns, tp)
		}
	case *pipeline.Batch:
		if epoch, ok := m.owns[e.TP]; !ok || epoch != e.Epoch {
			m.t.Fatalf("%s: a batch of %v of epoch %d, owned is %v", m.name, e.TP, e.Epoch, m.owns)
		}
		if first := e.Recs[0].Offset; first != m.taken[e.TP] {
			m.t.Fatalf("%s: %v goes on at %d, want %d", m.name, e.TP, first, m.taken[e.TP])
		}
		m.taken[e.TP] = e.Recs[len(e.Recs)-1].Offset + 1
		if m.seen != nil {
			m.seen(e)
		}
		e.Release()
	}
}

// settle turns all members until they own n partitions, each of them at least one, and stay so.
func settle(t T, n int, ms ...*member) {
	t.Helper()
	until(t, fmt.Sprintf("%d partitions spread over %d members", n, len(ms)), func() bool {
		have := 0
		for _, m := range ms {
			m.turn()
		}
		for _, m := range ms {
			if len(m.owns) == 0 {
				return false
			}
			have += len(m.owns)
		}
		return have == n
	})
	for end := time.Now().Add(silence / 4); time.Now().Before(end); {
		for _, m := range ms {
			m.turn()
		}
	}
}

func handOver(t T, c Cluster) {
	topic, group := c.CreateTopic(t, 2, nil), c.Name("handover")
	k := c.Sink(t, SinkOptions{})
	Write(t, k, append(numbered(topic, 0, 0, 100), numbered(topic, 1, 0, 100)...)...)
	a := join(t, c, "A", group, topic)
	settle(t, 2, a)
	until(t, "A has all", func() bool {
		a.turn()
		return a.taken[pipeline.TP{Topic: topic}]+a.taken[pipeline.TP{Topic: topic, Partition: 1}] == 200
	})
	a.give = func(tps []pipeline.TP) {
		cps := map[pipeline.TP]pipeline.Checkpoint{}
		for _, tp := range tps {
			cps[tp] = pipeline.Checkpoint{Next: 61, Starts: 2, InFlight: 61}
		}
		if err := a.s.Commit(cps); err != nil {
			t.Fatalf("Commit of revoked partitions: %v", err)
		}
	}
	b := join(t, c, "B", group, topic)
	settle(t, 2, a, b)
	for tp := range b.owns {
		if cp := b.cps[tp]; cp.Next != 61 || cp.Starts != 2 {
			t.Errorf("B starts %v with %+v, want 61 and 2 starts", tp, cp)
		}
	}
}

// CaseC28: A hands an offset to a slow worker, B takes the partition over and commits 61, A commits 42 late. The committed offset
// never falls, and the late commit is counted.
func CaseC28(t T, c Cluster) {
	topic, group := c.CreateTopic(t, 2, nil), c.Name("strangers")
	k := c.Sink(t, SinkOptions{})
	Write(t, k, append(numbered(topic, 0, 0, 70), numbered(topic, 1, 0, 70)...)...)
	a := join(t, c, "A", group, topic)
	settle(t, 2, a)
	b := join(t, c, "B", group, topic)
	settle(t, 2, a, b)
	var moved pipeline.TP
	for tp := range b.owns {
		moved = tp
	}
	if err := b.s.Commit(map[pipeline.TP]pipeline.Checkpoint{moved: {Next: 61, InFlight: -1}}); err != nil {
		t.Fatalf("B commits: %v", err)
	}
	// A's slow worker ends now, with what A had before
	if err := a.s.Commit(map[pipeline.TP]pipeline.Checkpoint{moved: {Next: 42, InFlight: -1}}); err != nil {
		t.Fatalf("a late commit is dropped, it is no error: %v", err)
	}
	if n := a.s.Strangers(); n != 1 {
		t.Errorf("%d commits of a stranger were counted, want 1", n)
	}
	if got := c.Committed(t, group)[moved].Next; got != 61 {
		t.Fatalf("the group has committed %d, want 61", got)
	}
	if err := b.s.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	settle(t, 2, a)
	if cp := a.cps[moved]; cp.Next != 61 {
		t.Errorf("A starts again with %+v, want 61", cp)
	}
}

// CaseC26: A pauses both partitions, B joins and takes one, B leaves; what is then written to that partition must arrive at A.
func CaseC26(t T, c Cluster) {
	topic, group := c.CreateTopic(t, 2, nil), c.Name("inherit")
	k := c.Sink(t, SinkOptions{})
	a := join(t, c, "A", group, topic)
	settle(t, 2, a)
	p0, p1 := pipeline.TP{Topic: topic}, pipeline.TP{Topic: topic, Partition: 1}
	if err := a.s.Pause(p0, p1); err != nil {
		t.Fatalf("Pause: %v", err)
	}
	b := join(t, c, "B", group, topic)
	settle(t, 2, a, b)
	var moved pipeline.TP
	for tp := range b.owns {
		moved = tp
	}
	if err := b.s.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	settle(t, 2, a)
	Write(t, k, numbered(topic, moved.Partition, 0, 1)...)
	until(t, "the new record on the partition that came back", func() bool { a.turn(); return a.taken[moved] == 1 })
}

func epochs(t T, c Cluster) {
	topic, group := c.CreateTopic(t, 2, nil), c.Name("epochs")
	a := join(t, c, "A", group, topic)
	settle(t, 2, a)
	before := map[pipeline.TP]uint32{}
	for tp, e := range a.owns {
		before[tp] = e
	}
	b := join(t, c, "B", group, topic)
	settle(t, 2, a, b)
	if err := b.s.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	settle(t, 2, a)
	changed := 0
	for tp, e := range a.owns {
		if e < before[tp] {
			t.Errorf("the epoch of %v fell from %d to %d", tp, before[tp], e)
		}
		if e > before[tp] {
			changed++
		}
	}
	if changed == 0 {
		t.Errorf("a partition went and came back, and no epoch rose")
	}
}

func closesAmidst(t T, c Cluster) {
	topic, group := c.CreateTopic(t, 2, nil), c.Name("amidst")
	a := join(t, c, "A", group, topic)
	next[pipeline.Assigned](t, a.s, nil) // and never answered
	begun := time.Now()
	if err := a.s.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	b := join(t, c, "B", group, topic)
	settle(t, 2, b)
	d := join(t, c, "D", group, topic)
	until(t, "B is told to give", func() bool {
		d.turn()
		b.turn()
		_, ok := b.last.(pipeline.Revoked)
		return ok
	})
	if err := b.s.Close(); err != nil { // Revoked is not answered
		t.Fatalf("Close: %v", err)
	}
	settle(t, 2, d)
	if took := time.Since(begun); took > patience/2 {
		t.Errorf("closing in the midst of rebalances took %v", took)
	}
}

func shared(t T, c Cluster) {
	const parts, each = 6, 200
	topic, group := c.CreateTopic(t, parts, nil), c.Name("shared")
	k := c.Sink(t, SinkOptions{})
	for p := range int32(parts) {
		Write(t, k, numbered(topic, p, 0, each)...)
	}
	seen := map[string]int{}
	count := 0
	see := func(b *pipeline.Batch) {
		for i := range b.Recs {
			seen[fmt.Sprint(b.TP, b.Recs[i].Offset)]++
			count++
		}
	}
	var ms []*member
	for _, name := range []string{"A", "B", "D"} {
		m := join(t, c, name, group, topic)
		m.seen = see
		m.give = func(tps []pipeline.TP) {
			cps := map[pipeline.TP]pipeline.Checkpoint{}
			for _, tp := range tps {
				cps[tp] = pipeline.Checkpoint{Next: m.taken[tp], InFlight: -1}
			}
			if err := m.s.Commit(cps); err != nil {
				t.Fatalf("Commit: %v", err)
			}
		}
		ms = append(ms, m)
		for range 3 {
			m.turn()
		}
	}
	settle(t, parts, ms...)
	until(t, "all records", func() bool {
		for _, m := range ms {
			m.turn()
		}
		return count >= parts*each
	})
	for at, n := range seen {
		if n != 1 {
			t.Errorf("%s was read %d times though each hand-over was committed", at, n)
		}
	}
}
