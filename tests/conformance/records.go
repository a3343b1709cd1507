package conformance

import (
	"bytes"
	"fmt"

	"reprieve.dev/pipeline"
)

// RunSource holds a Source to what one consumer alone must do.
func RunSource(t T, c Cluster) {
	t.Run("records arrive byte for byte, null apart from empty", func(t T) { CaseC32(t, c) })
	t.Run("each partition is in order, each batch of one partition", func(t T) { orderIsKept(t, c) })
	t.Run("a large record arrives whole", func(t T) { largeIsWhole(t, c) })
	t.Run("retry topics are of the retry lane", func(t T) { lanes(t, c) })
	t.Run("a paused partition is silent and loses nothing", func(t T) { pauseIsSilent(t, c) })
	t.Run("pause before the first poll after assignment", func(t T) { startsPaused(t, c) })
	t.Run("seek moves both ways, paused or not", func(t T) { seeks(t, c) })
	t.Run("seek before the first poll after assignment", func(t T) { startsElsewhere(t, c) })
	t.Run("a checkpoint comes back with its metadata", func(t T) { checkpoints(t, c) })
}

// Shapes are records in every shape of null, empty and repeated that Kafka can hold (cases C32 and C61).
func Shapes() []pipeline.Message {
	b := func(s string) []byte { return []byte(s) }
	return []pipeline.Message{
		{Key: b("inv-9"), Value: nil},
		{Key: b("inv-9"), Value: b("")},
		{Key: b("inv-9"), Value: b("null")},
		{Key: nil, Value: nil},
		{Key: b(""), Value: nil},
		{Key: b("\xff\x00"), Value: b("\x00\x01\xfe")},
		{Key: b("inv-1"), Value: b(`{"ref":"chg-7"}`), Headers: []pipeline.Header{
			{Name: "n", Value: nil}, {Name: "e", Value: b("")}, {Name: "d", Value: b("1")}, {Name: "d", Value: b("2")},
			{Name: "bin", Value: b("\xff\x00\xfe")}, {Name: "", Value: b("x")}, {Name: "null", Value: b("null")}}},
	}
}

// CaseC32 writes and reads Shapes: null stays null, zero bytes stay zero bytes, headers keep order, repeats and nulls.
func CaseC32(t T, c Cluster) {
	topic := c.CreateTopic(t, 1, nil)
	k := c.Sink(t, SinkOptions{})
	msgs := Shapes()
	for i := range msgs {
		msgs[i].Topic, msgs[i].Partition, msgs[i].TimeMS = topic, 0, 1_760_000_000_000+int64(i)
	}
	Write(t, k, msgs...)
	s := c.Source(t, SourceOptions{Group: c.Name("shapes"), Topics: []string{topic}})
	got := Read(t, s, len(msgs))[pipeline.TP{Topic: topic}]
	for i := range msgs {
		m, r := &msgs[i], &got[i]
		if r.Offset != int64(i) || r.TimeMS != m.TimeMS || r.TimeType != pipeline.TimeCreate {
			t.Errorf("record %d: offset %d, time %d of type %v, want %d, %d, create", i, r.Offset, r.TimeMS, r.TimeType, i, m.TimeMS)
		}
		if !same(m.Key, r.Key) || !same(m.Value, r.Value) {
			t.Errorf("record %d: key %s value %s, want %s, %s", i, show(r.Key), show(r.Value), show(m.Key), show(m.Value))
		}
		if len(r.Headers) != len(m.Headers) {
			t.Errorf("record %d: %d headers, want %d", i, len(r.Headers), len(m.Headers))
			continue
		}
		for j := range m.Headers {
			if r.Headers[j].Name != m.Headers[j].Name || !same(r.Headers[j].Value, m.Headers[j].Value) {
				t.Errorf("record %d header %d: %q=%s, want %q=%s", i, j, r.Headers[j].Name, show(r.Headers[j].Value),
					m.Headers[j].Name, show(m.Headers[j].Value))
			}
		}
	}
}

func same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

func show(b []byte) string {
	if b == nil {
		return "null"
	}
	return fmt.Sprintf("%q", b)
}

func orderIsKept(t T, c Cluster) {
	const parts, each, most = 4, 700, 100
	topic := c.CreateTopic(t, parts, nil)
	k := c.Sink(t, SinkOptions{})
	for p := range int32(parts) {
		Write(t, k, numbered(topic, p, 0, each)...)
	}
	s := c.Source(t, SourceOptions{Group: c.Name("order"), Topics: []string{topic}, MaxBatch: most})
	at := map[pipeline.TP]int64{}
	seen, epoch := 0, uint32(0)
	until(t, "all records", func() bool {
		switch e := poll(t, s).(type) {
		case pipeline.Assigned:
			epoch = e.Epoch
		case *pipeline.Batch:
			if len(e.Recs) == 0 || len(e.Recs) > most {
				t.Fatalf("a batch of %d records, want 1 to %d", len(e.Recs), most)
			}
			if e.Epoch != epoch || e.Lane != pipeline.Live {
				t.Fatalf("epoch %d lane %d, want %d live", e.Epoch, e.Lane, epoch)
			}
			for i := range e.Recs {
				if e.Recs[i].Offset != at[e.TP] || string(e.Recs[i].Value) != fmt.Sprint(at[e.TP]) {
					t.Fatalf("%v: offset %d holds %q, want %d", e.TP, e.Recs[i].Offset, e.Recs[i].Value, at[e.TP])
				}
				at[e.TP]++
			}
			seen += len(e.Recs)
			e.Release()
		}
		return seen == parts*each
	})
}

func largeIsWhole(t T, c Cluster) {
	topic := c.CreateTopic(t, 1, nil)
	k := c.Sink(t, SinkOptions{})
	value := bytes.Repeat([]byte("0123456789abcdef"), 900_000/16)
	Write(t, k, pipeline.Message{Topic: topic, Value: value, From: -1}, pipeline.Message{Topic: topic, Value: []byte("small"), From: -1})
	s := c.Source(t, SourceOptions{Group: c.Name("large"), Topics: []string{topic}})
	got := Read(t, s, 2)[pipeline.TP{Topic: topic}]
	if !bytes.Equal(got[0].Value, value) || string(got[1].Value) != "small" {
		t.Errorf("%d bytes and %q came, want %d bytes and small", len(got[0].Value), got[1].Value, len(value))
	}
}

func lanes(t T, c Cluster) {
	live, retry := c.CreateTopic(t, 1, nil), c.CreateTopic(t, 1, nil)
	k := c.Sink(t, SinkOptions{})
	Write(t, k, pipeline.Message{Topic: live, Value: []byte("l"), From: -1}, pipeline.Message{Topic: retry, Value: []byte("r"), From: -1})
	s := c.Source(t, SourceOptions{Group: c.Name("lanes"), Topics: []string{live}, Retry: map[string]bool{retry: true}})
	for range 2 {
		b := next[*pipeline.Batch](t, s, func(pipeline.Event) {})
		if want := map[string]pipeline.Lane{live: pipeline.Live, retry: pipeline.Retry}[b.TP.Topic]; b.Lane != want {
			t.Errorf("%v is of lane %d, want %d", b.TP, b.Lane, want)
		}
		b.Release()
	}
}

// reader opens a source over one topic and waits for its partitions.
func reader(t T, c Cluster, topic string, parts int) Source {
	t.Helper()
	s := c.Source(t, SourceOptions{Group: c.Name("reader"), Topics: []string{topic}, MaxBatch: 50})
	assign(t, s, parts)
	return s
}

func pauseIsSilent(t T, c Cluster) {
	topic := c.CreateTopic(t, 2, nil)
	k := c.Sink(t, SinkOptions{})
	Write(t, k, append(numbered(topic, 0, 0, 500), numbered(topic, 1, 0, 500)...)...)
	s := reader(t, c, topic, 2)
	p0, p1 := pipeline.TP{Topic: topic}, pipeline.TP{Topic: topic, Partition: 1}
	at := map[pipeline.TP]int64{}
	take := func(b *pipeline.Batch) {
		for i := range b.Recs {
			if b.Recs[i].Offset != at[b.TP] {
				t.Fatalf("%v: offset %d, want %d", b.TP, b.Recs[i].Offset, at[b.TP])
			}
			at[b.TP]++
		}
		b.Release()
	}
	for at[p0] == 0 { // in the midst of prefetched records
		take(next[*pipeline.Batch](t, s, nil))
	}
	if err := s.Pause(p0); err != nil {
		t.Fatalf("Pause: %v", err)
	}
	stopped := at[p0]
	until(t, "the other partition", func() bool {
		if b, ok := poll(t, s).(*pipeline.Batch); ok {
			if b.TP == p0 {
				t.Fatalf("offset %d of the paused partition came", b.Recs[0].Offset)
			}
			take(b)
		}
		return at[p1] == 500
	})
	Write(t, k, numbered(topic, 0, 500, 10)...)
	quiet(t, s, "paused")
	if at[p0] != stopped {
		t.Fatalf("the paused partition went on to %d", at[p0])
	}
	if err := s.Resume(p0); err != nil {
		t.Fatalf("Resume: %v", err)
	}
	until(t, "the rest after Resume", func() bool {
		if b, ok := poll(t, s).(*pipeline.Batch); ok {
			take(b)
		}
		return at[p0] == 510
	})
	quiet(t, s, "everything was read")
}

func startsPaused(t T, c Cluster) {
	topic := c.CreateTopic(t, 1, nil)
	k := c.Sink(t, SinkOptions{})
	Write(t, k, numbered(topic, 0, 0, 5)...)
	s := c.Source(t, SourceOptions{Group: c.Name("startpaused"), Topics: []string{topic}})
	a := next[pipeline.Assigned](t, s, nil)
	if err := s.Pause(a.TPs...); err != nil {
		t.Fatalf("Pause: %v", err)
	}
	quiet(t, s, "it was to start paused")
	if err := s.Resume(a.TPs...); err != nil {
		t.Fatalf("Resume: %v", err)
	}
	Read(t, s, 5)
}

func seeks(t T, c Cluster) {
	topic := c.CreateTopic(t, 1, nil)
	k := c.Sink(t, SinkOptions{})
	Write(t, k, numbered(topic, 0, 0, 300)...)
	s := reader(t, c, topic, 1)
	tp := pipeline.TP{Topic: topic}
	first := func() int64 {
		b := next[*pipeline.Batch](t, s, nil)
		defer b.Release()
		return b.Recs[0].Offset
	}
	first()
	for _, to := range []int64{0, 290, 7, 7} {
		if err := s.Seek(tp, to); err != nil {
			t.Fatalf("Seek: %v", err)
		}
		if got := first(); got != to {
			t.Fatalf("after a seek to %d, offset %d came", to, got)
		}
	}
	if err := s.Pause(tp); err != nil {
		t.Fatalf("Pause: %v", err)
	}
	if err := s.Seek(tp, 42); err != nil {
		t.Fatalf("Seek: %v", err)
	}
	quiet(t, s, "paused, though sought")
	if err := s.Resume(tp); err != nil {
		t.Fatalf("Resume: %v", err)
	}
	if got := first(); got != 42 {
		t.Fatalf("after a seek to 42 while paused, offset %d came", got)
	}
	if err := s.Seek(pipeline.TP{Topic: topic, Partition: 9}, 0); err == nil {
		t.Errorf("a seek of a partition that is not assigned was taken")
	}
}

func startsElsewhere(t T, c Cluster) {
	topic := c.CreateTopic(t, 1, nil)
	k := c.Sink(t, SinkOptions{})
	Write(t, k, numbered(topic, 0, 0, 20)...)
	s := c.Source(t, SourceOptions{Group: c.Name("elsewhere"), Topics: []string{topic}})
	a := next[pipeline.Assigned](t, s, nil)
	if err := s.Seek(a.TPs[0], 15); err != nil {
		t.Fatalf("Seek: %v", err)
	}
	if got := Read(t, s, 5)[a.TPs[0]]; got[0].Offset != 15 {
		t.Fatalf("offset %d came first, want 15", got[0].Offset)
	}
}

func checkpoints(t T, c Cluster) {
	topic := c.CreateTopic(t, 2, nil)
	k := c.Sink(t, SinkOptions{})
	Write(t, k, append(numbered(topic, 0, 0, 50), numbered(topic, 1, 0, 50)...)...)
	group := c.Name("checkpoints")
	s := c.Source(t, SourceOptions{Group: group, Topics: []string{topic}})
	assign(t, s, 2)
	p0, p1 := pipeline.TP{Topic: topic}, pipeline.TP{Topic: topic, Partition: 1}
	cp := pipeline.Checkpoint{Next: 10, Starts: 3, InFlight: 10}
	for _, off := range []int64{12, 13, 20, 49} {
		cp.Ahead.Add(off)
	}
	if err := s.Commit(map[pipeline.TP]pipeline.Checkpoint{p0: cp, p1: {Next: 30, InFlight: -1}}); err != nil {
		t.Fatalf("Commit: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	s = c.Source(t, SourceOptions{Group: group, Topics: []string{topic}})
	got := assign(t, s, 2)
	if g := got[p0]; g.Next != 10 || g.Starts != 3 || g.InFlight != 10 || fmt.Sprint(g.Ahead) != fmt.Sprint(cp.Ahead) {
		t.Errorf("checkpoint %+v came back, want %+v", g, cp)
	}
	if g := got[p1]; g.Next != 30 || !g.Ahead.Empty() {
		t.Errorf("checkpoint %+v came back, want 30 and nothing else", g)
	}
	recs := Read(t, s, 40+20)
	if recs[p0][0].Offset != 10 || recs[p1][0].Offset != 30 {
		t.Errorf("reading began at %d and %d, want 10 and 30", recs[p0][0].Offset, recs[p1][0].Offset)
	}
	if g := c.Committed(t, group)[p1]; g.Next != 30 {
		t.Errorf("the group has committed %d, want 30", g.Next)
	}
}
