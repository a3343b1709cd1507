package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	client "github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

// copyCommand is the baseline: the loop that a careful engineer writes with confluent-kafka-go to move records from a topic to
// two others, at least once, and nothing else. It reads the same records as the pipeline, gives each a header of the same name and a
// value of about its size, and sends the same share to the second topic. The settings are those that were measured to matter
// (docs/performance.md), for it and for Reprieve alike.
func copyCommand(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("copy", flag.ContinueOnError)
	bootstrap := f.String("bootstrap", "", "the cluster")
	group := f.String("group", "", "consumer group")
	from := f.String("from", "", "source topic")
	to := f.String("to", "", "destination")
	large := f.String("large", "", "destination of every tenth record")
	tx := f.Bool("transactional", false, "exactly once: a transaction each 250 ms")
	cut := f.Int("cut", 0, "bytes to leave out at the end of each value, so that as much is written as by who masks fields")
	if err := f.Parse(args); err != nil {
		return err
	}
	c, err := client.NewConsumer(&client.ConfigMap{
		"bootstrap.servers": *bootstrap, "group.id": *group, "auto.offset.reset": "earliest", "enable.auto.commit": false,
		"enable.auto.offset.store": false, "check.crcs": true, "isolation.level": "read_committed",
		"fetch.queue.backoff.ms": 5, "queued.max.messages.kbytes": 16384,
	})
	if err != nil {
		return err
	}
	if err := c.Subscribe(*from, nil); err != nil {
		return err
	}
	if *tx {
		l, err := newCopyTx(ctx, c, *bootstrap, *group, [2]string{*to, *large}, *cut)
		if err != nil {
			return err
		}
		err = l.run(ctx)
		return errors.Join(err, c.Close())
	}
	p, err := client.NewProducer(&client.ConfigMap{
		"bootstrap.servers": *bootstrap, "acks": "all", "enable.idempotence": true, "linger.ms": 5, "partitioner": "murmur2_random",
		"queue.buffering.max.messages": 20_000, "go.delivery.report.fields": "none", "go.events.channel.size": 4096,
	})
	if err != nil {
		return err
	}
	l := &copyLoop{c: c, p: p, to: [2]string{*to, *large}, cut: *cut}
	err = l.run(ctx)
	return errors.Join(err, c.Close())
}

// copyLoop counts what it has given away and what is acknowledged for each destination partition. The producer keeps the order
// of a partition, so a snapshot of positions may be committed once as many are acknowledged as were given away before it.
type copyLoop struct {
	c *client.Consumer
	p *client.Producer

	to    [2]string
	cut   int
	given [2]map[int32]int64
	acked [2]map[int32]int64
	next  map[int32]client.TopicPartition

	snapshot []client.TopicPartition // waits to be committed
	wanted   [2]map[int32]int64
}

func (l *copyLoop) run(ctx context.Context) error {
	for i := range l.to {
		l.given[i], l.acked[i] = map[int32]int64{}, map[int32]int64{}
	}
	l.next = map[int32]client.TopicPartition{}
	tick := time.Now()
	var out client.Message
	header := []client.Header{{Key: "region", Value: []byte("row")}}
	for n := 0; ctx.Err() == nil; n++ {
		if n%256 == 0 {
			if err := l.reports(); err != nil {
				return err
			}
			if now := time.Now(); now.Sub(tick) > time.Second {
				tick = now
				if err := l.commit(); err != nil {
					return err
				}
			}
		}
		switch m := l.c.Poll(100).(type) {
		case *client.Message:
			if m.TopicPartition.Error != nil {
				return m.TopicPartition.Error
			}
			which := destination(m.Key)
			at := m.TopicPartition.Partition // keys stay in their partition: the destinations have as many
			out.TopicPartition = client.TopicPartition{Topic: &l.to[which], Partition: at}
			out.Key, out.Value, out.Headers = m.Key, m.Value[:max(0, len(m.Value)-l.cut)], append(m.Headers, header...)
			if err := l.produce(&out); err != nil {
				return err
			}
			l.given[which][at]++
			m.TopicPartition.Offset++
			l.next[at] = m.TopicPartition
		case client.Error:
			if m.IsFatal() {
				return m
			}
		}
	}
	return nil
}

// destination is where a record goes: every tenth to the second topic.
func destination(key []byte) int {
	if len(key) > 0 && key[len(key)-1] == '7' {
		return 1
	}
	return 0
}

// produce waits for room when the queue is full.
func (l *copyLoop) produce(m *client.Message) error {
	for {
		err := l.p.Produce(m, nil)
		if e, ok := errors.AsType[client.Error](err); !ok || e.Code() != client.ErrQueueFull {
			return err
		}
		select {
		case ev := <-l.p.Events():
			if err := l.report(ev); err != nil {
				return err
			}
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// reports takes the reports that are there.
func (l *copyLoop) reports() error {
	for {
		select {
		case ev := <-l.p.Events():
			if err := l.report(ev); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

func (l *copyLoop) report(ev client.Event) error {
	m, ok := ev.(*client.Message)
	if !ok {
		return nil
	}
	if m.TopicPartition.Error != nil {
		return fmt.Errorf("not delivered: %w", m.TopicPartition.Error)
	}
	which := 0
	if *m.TopicPartition.Topic == l.to[1] {
		which = 1
	}
	l.acked[which][m.TopicPartition.Partition]++
	return nil
}

// commit commits the last snapshot if everything before it is acknowledged, and then takes the next.
func (l *copyLoop) commit() error {
	if l.snapshot != nil {
		for i := range l.wanted {
			for p, n := range l.wanted[i] {
				if l.acked[i][p] < n {
					return nil
				}
			}
		}
		if _, err := l.c.CommitOffsets(l.snapshot); err != nil {
			return err
		}
	}
	l.snapshot = l.snapshot[:0]
	for _, tp := range l.next {
		l.snapshot = append(l.snapshot, tp)
	}
	for i := range l.given {
		l.wanted[i] = map[int32]int64{}
		for p, n := range l.given[i] {
			l.wanted[i][p] = n
		}
	}
	if len(l.snapshot) == 0 {
		l.snapshot = nil
	}
	return nil
}
