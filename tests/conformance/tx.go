package conformance

import (
	"context"
	"slices"

	"reprieve.dev/pipeline"
)

// RunTx holds a Tx to its contract.
func RunTx(t T, c Cluster) {
	t.Run("outputs and offsets appear together", func(t T) { commits(t, c) })
	t.Run("an aborted transaction leaves nothing to see", func(t T) { aborts(t, c) })
	t.Run("a successor fences its predecessor", func(t T) { fences(t, c) })
}

func commits(t T, c Cluster) {
	in, out, group := c.CreateTopic(t, 1, nil), c.CreateTopic(t, 1, nil), c.Name("txgroup")
	Write(t, c.Sink(t, SinkOptions{}), numbered(in, 0, 0, 10)...)
	s := c.Source(t, SourceOptions{Group: group, Topics: []string{in}})
	Read(t, s, 10)
	x := c.Tx(t, c.Name("tx"))
	reader := c.Source(t, SourceOptions{Group: c.Name("committed"), Topics: []string{out}})
	assign(t, reader, 1)
	if err := x.Begin(); err != nil {
		t.Fatalf("Begin: %v", err)
	}
	send(t, x, numbered(out, 0, 0, 10)...)
	quiet(t, reader, "not committed yet")
	cp := pipeline.Checkpoint{Next: 10, Starts: 1, InFlight: 10}
	cp.Ahead.Add(12)
	ctx, cancel := timeout()
	defer cancel()
	if err := x.Commit(ctx, map[pipeline.TP]pipeline.Checkpoint{{Topic: in}: cp}, s.Group()); err != nil {
		t.Fatalf("Commit: %v", err)
	}
	Read(t, reader, 10)
	if got := c.Committed(t, group)[pipeline.TP{Topic: in}]; got.Next != 10 || got.Starts != 1 || !got.Ahead.Has(12) {
		t.Errorf("the group has committed %+v, want %+v", got, cp)
	}
}

func aborts(t T, c Cluster) {
	in, out, group := c.CreateTopic(t, 1, nil), c.CreateTopic(t, 1, nil), c.Name("abortgroup")
	Write(t, c.Sink(t, SinkOptions{}), numbered(in, 0, 0, 3)...)
	s := c.Source(t, SourceOptions{Group: group, Topics: []string{in}})
	Read(t, s, 3)
	x := c.Tx(t, c.Name("tx"))
	ctx, cancel := timeout()
	defer cancel()
	if err := x.Begin(); err != nil {
		t.Fatalf("Begin: %v", err)
	}
	send(t, x, numbered(out, 0, 0, 3)...)
	if err := x.Abort(ctx); err != nil {
		t.Fatalf("Abort: %v", err)
	}
	if got := c.Committed(t, group); len(got) != 0 {
		t.Errorf("an aborted transaction committed %v", got)
	}
	if err := x.Begin(); err != nil {
		t.Fatalf("Begin: %v", err)
	}
	send(t, x, numbered(out, 0, 100, 2)...)
	if err := x.Commit(ctx, map[pipeline.TP]pipeline.Checkpoint{{Topic: in}: {Next: 3, InFlight: -1}}, s.Group()); err != nil {
		t.Fatalf("Commit: %v", err)
	}
	recs := Read(t, c.Source(t, SourceOptions{Group: c.Name("r"), Topics: []string{out}}), 2)[pipeline.TP{Topic: out}]
	if string(recs[0].Value) != "100" || string(recs[1].Value) != "101" {
		t.Errorf("%q and %q are to be seen, want 100 and 101", recs[0].Value, recs[1].Value)
	}
}

func fences(t T, c Cluster) {
	out := c.CreateTopic(t, 1, nil)
	id := c.Name("fenced")
	old := c.Tx(t, id)
	if err := old.Begin(); err != nil {
		t.Fatalf("Begin: %v", err)
	}
	send(t, old, numbered(out, 0, 0, 2)...)
	x := c.Tx(t, id)
	ctx, cancel := timeout()
	defer cancel()
	if err := old.Commit(ctx, nil, nil); pipeline.CodeOf(err) != pipeline.CodeTxFenced {
		t.Errorf("the predecessor's commit answered %v, want ERR_TX_FENCED", err)
	}
	if err := x.Begin(); err != nil {
		t.Fatalf("Begin: %v", err)
	}
	send(t, x, numbered(out, 0, 7, 1)...)
	if err := x.Commit(ctx, nil, nil); err != nil {
		t.Fatalf("Commit: %v", err)
	}
	recs := Read(t, c.Source(t, SourceOptions{Group: c.Name("r"), Topics: []string{out}}), 1)[pipeline.TP{Topic: out}]
	if string(recs[0].Value) != "7" {
		t.Errorf("%q is to be seen, want 7", recs[0].Value)
	}
}

// RunLog holds a Log to its contract.
func RunLog(t T, c Cluster) {
	t.Run("read returns the wanted offsets, ascending", func(t T) { reads(t, c) })
	t.Run("offsets that are gone or not written are left out", func(t T) { readsGaps(t, c) })
	t.Run("a read goes on where another has ended", func(t T) { readsOn(t, c) })
	t.Run("info tells settings and offsets", func(t T) { infos(t, c) })
	t.Run("committed tells a group's offsets", func(t T) { groupOffsets(t, c) })
}

func offsetsOf(t T, l pipeline.Log, tp pipeline.TP, want ...int64) (got []int64) {
	t.Helper()
	ctx, cancel := timeout()
	defer cancel()
	err := l.Read(ctx, tp, slices.Values(want), func(b *pipeline.Batch) error {
		defer b.Release()
		if b.TP != tp {
			t.Errorf("a batch of %v came, want %v", b.TP, tp)
		}
		for i := range b.Recs {
			got = append(got, b.Recs[i].Offset)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("Read: %v", err)
	}
	return got
}

func reads(t T, c Cluster) {
	topic := c.CreateTopic(t, 2, nil)
	k := c.Sink(t, SinkOptions{})
	Write(t, k, numbered(topic, 1, 0, 6000)...)
	l := c.Log(t)
	tp := pipeline.TP{Topic: topic, Partition: 1}
	for _, want := range [][]int64{{0}, {5, 6, 7, 100, 5999}, {0, 2999, 3000, 5998}, nil} {
		if got := offsetsOf(t, l, tp, want...); !slices.Equal(got, want) {
			t.Errorf("offsets %v came, want %v", got, want)
		}
	}
	all := make([]int64, 6000)
	for i := range all {
		all[i] = int64(i)
	}
	if got := offsetsOf(t, l, tp, all...); !slices.Equal(got, all) {
		t.Errorf("%d offsets came, want all 6000", len(got))
	}
	stop := pipeline.Errorf(pipeline.CodeInterrupted, "", "enough")
	err := l.Read(context.Background(), tp, slices.Values(all), func(b *pipeline.Batch) error { b.Release(); return stop })
	if pipeline.CodeOf(err) != pipeline.CodeInterrupted {
		t.Errorf("the error of each came back as %v", err)
	}
}

func readsGaps(t T, c Cluster) {
	topic := c.CreateTopic(t, 1, nil)
	x := c.Tx(t, c.Name("gaps"))
	ctx, cancel := timeout()
	defer cancel()
	for i := range 3 { // offsets 0, 2, 4 are records, 1, 3, 5 are markers; the second transaction is aborted
		if err := x.Begin(); err != nil {
			t.Fatalf("Begin: %v", err)
		}
		send(t, x, numbered(topic, 0, i, 1)...)
		end := func() error { return x.Commit(ctx, nil, nil) }
		if i == 1 {
			end = func() error { return x.Abort(ctx) }
		}
		if err := end(); err != nil {
			t.Fatalf("end of transaction %d: %v", i, err)
		}
	}
	got := offsetsOf(t, c.Log(t), pipeline.TP{Topic: topic}, 0, 1, 2, 3, 4, 5, 6, 7, 1000)
	if !slices.Equal(got, []int64{0, 4}) {
		t.Errorf("offsets %v came, want 0 and 4", got)
	}
}

// readsOn reads a partition in parts, as a redrive does: further on, over what was written meanwhile, back, and beside another partition.
func readsOn(t T, c Cluster) {
	topic := c.CreateTopic(t, 2, nil)
	x := c.Tx(t, c.Name("parts"))
	ctx, cancel := timeout()
	defer cancel()
	look, ends := c.Log(t), map[int32]int64{}
	write := func(partition int32, parts int) { // 100 records and a marker each
		t.Helper()
		for range parts {
			if err := x.Begin(); err != nil {
				t.Fatalf("Begin: %v", err)
			}
			send(t, x, numbered(topic, partition, 0, 100)...)
			if err := x.Commit(ctx, nil, nil); err != nil {
				t.Fatalf("Commit: %v", err)
			}
			ends[partition] += 101
		}
		last := pipeline.TP{Topic: topic, Partition: partition}
		for len(offsetsOf(t, look, last, ends[partition]-2)) == 0 { // a commit is answered before everybody sees what it has committed
			if ctx.Err() != nil {
				t.Fatalf("offset %d of %v is not to be seen", ends[partition]-2, last)
			}
		}
	}
	l := c.Log(t)
	read := func(partition int32, from, to, end int64) {
		t.Helper()
		var ask, want []int64
		for off := from; off <= to; off++ {
			ask = append(ask, off)
			if off < end && off%101 != 100 {
				want = append(want, off)
			}
		}
		if got := offsetsOf(t, l, pipeline.TP{Topic: topic, Partition: partition}, ask...); !slices.Equal(got, want) {
			t.Errorf("partition %d, %d to %d: %d offsets came, want %d: %v", partition, from, to, len(got), len(want), got)
		}
	}
	write(1, 3)
	read(1, 0, 149, 303)
	read(1, 150, 999, 303)
	read(1, 303, 999, 303) // nothing yet
	write(1, 1)
	read(1, 303, 999, 404)
	write(0, 1)
	read(0, 0, 60, 101)
	read(1, 10, 120, 404)
	read(0, 61, 999, 101)
	read(1, 121, 250, 404)
	write(1, 1)
	read(1, 251, 999, 505)
	read(1, 300, 310, 505)
}

func infos(t T, c Cluster) {
	topic := c.CreateTopic(t, 2, map[string]string{"retention.ms": "86400000", "retention.bytes": "1073741824", "max.message.bytes": "5000", "message.timestamp.type": "LogAppendTime"})
	compacted := c.CreateTopic(t, 1, map[string]string{"cleanup.policy": "compact"})
	Write(t, c.Sink(t, SinkOptions{}), numbered(topic, 1, 0, 7)...)
	l := c.Log(t)
	ctx, cancel := timeout()
	defer cancel()
	i, err := l.Info(ctx, topic)
	if err != nil {
		t.Fatalf("Info: %v", err)
	}
	if i.RetentionMS != 86_400_000 || i.KeepBytes != 1<<30 || i.MaxMessage != 5000 || i.Compacted || !i.LogAppend || len(i.Partitions) != 2 ||
		i.Partitions[0] != (pipeline.Range{}) || i.Partitions[1] != (pipeline.Range{Next: 7}) {
		t.Errorf("Info told %+v", i)
	}
	if i, err = l.Info(ctx, compacted); err != nil || !i.Compacted || i.RetentionMS != -1 || i.KeepBytes != -1 {
		t.Errorf("Info of a compacted topic told %+v, %v", i, err)
	}
	if _, err = l.Info(ctx, c.Name("missing")); pipeline.CodeOf(err) != pipeline.CodeTopicMissing {
		t.Errorf("Info of a missing topic answered %v", err)
	}
}

func groupOffsets(t T, c Cluster) {
	topic, group := c.CreateTopic(t, 2, nil), c.Name("offsets")
	Write(t, c.Sink(t, SinkOptions{}), numbered(topic, 0, 0, 9)...)
	s := c.Source(t, SourceOptions{Group: group, Topics: []string{topic}})
	Read(t, s, 9)
	if err := s.Commit(map[pipeline.TP]pipeline.Checkpoint{{Topic: topic}: {Next: 9, InFlight: -1}}); err != nil {
		t.Fatalf("Commit: %v", err)
	}
	ctx, cancel := timeout()
	defer cancel()
	got, err := c.Log(t).Committed(ctx, group)
	if err != nil || len(got) != 1 || got[pipeline.TP{Topic: topic}] != 9 {
		t.Errorf("Committed told %v, %v, want 9 for partition 0 alone", got, err)
	}
}
