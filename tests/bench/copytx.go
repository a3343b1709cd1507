package main

import (
	"context"
	"errors"
	"time"

	client "github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

// txEvery is the commit rule of a healthy exactly_once pipeline: the longest that a transaction stays open.
const txEvery = 250 * time.Millisecond

// copyTx is the transactional form of the copy loop: offsets and records in one transaction, no reports, since a message that is
// refused fails the commit.
type copyTx struct {
	c    *client.Consumer
	p    *client.Producer
	to   [2]string
	cut  int
	next map[int32]client.TopicPartition
	open bool
	tick time.Time
}

func newCopyTx(ctx context.Context, c *client.Consumer, bootstrap, group string, to [2]string, cut int) (*copyTx, error) {
	p, err := client.NewProducer(&client.ConfigMap{
		"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "partitioner": "murmur2_random", "transactional.id": group,
		"queue.buffering.max.messages": 100_000, "go.delivery.reports": false,
	})
	if err != nil {
		return nil, err
	}
	if err := p.InitTransactions(ctx); err != nil {
		return nil, err
	}
	return &copyTx{c: c, p: p, to: to, cut: cut, next: map[int32]client.TopicPartition{}}, nil
}

func (l *copyTx) run(ctx context.Context) error {
	var out client.Message
	header := []client.Header{{Key: "region", Value: []byte("row")}}
	for n := 0; ctx.Err() == nil; n++ {
		if l.open && n%256 == 0 && time.Since(l.tick) >= txEvery {
			if err := l.commit(ctx); err != nil {
				return err
			}
		}
		wait := 100
		if l.open {
			wait = 1
		}
		switch m := l.c.Poll(wait).(type) {
		case *client.Message:
			if m.TopicPartition.Error != nil {
				return m.TopicPartition.Error
			}
			if !l.open {
				if err := l.p.BeginTransaction(); err != nil {
					return err
				}
				l.open, l.tick = true, time.Now()
			}
			which := destination(m.Key)
			at := m.TopicPartition.Partition
			out.TopicPartition = client.TopicPartition{Topic: &l.to[which], Partition: at}
			out.Key, out.Value, out.Headers = m.Key, m.Value[:max(0, len(m.Value)-l.cut)], append(m.Headers, header...)
			if err := l.produce(&out); err != nil {
				return err
			}
			m.TopicPartition.Offset++
			l.next[at] = m.TopicPartition
		case client.Error:
			if m.IsFatal() {
				return m
			}
		case nil:
			if l.open && time.Since(l.tick) >= txEvery {
				if err := l.commit(ctx); err != nil {
					return err
				}
			}
		}
	}
	if l.open {
		return l.p.AbortTransaction(context.WithoutCancel(ctx))
	}
	return nil
}

func (l *copyTx) produce(m *client.Message) error {
	for {
		err := l.p.Produce(m, nil)
		if e, ok := errors.AsType[client.Error](err); !ok || e.Code() != client.ErrQueueFull {
			return err
		}
		time.Sleep(time.Millisecond) // the library's threads make room
	}
}

func (l *copyTx) commit(ctx context.Context) error {
	var list []client.TopicPartition
	for _, tp := range l.next {
		list = append(list, tp)
	}
	member, err := l.c.GetConsumerGroupMetadata()
	if err != nil {
		return err
	}
	if err := l.p.SendOffsetsToTransaction(ctx, list, member); err != nil {
		return err
	}
	if err := l.p.CommitTransaction(ctx); err != nil {
		return err
	}
	l.open = false
	clear(l.next)
	return nil
}
