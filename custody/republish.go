package custody

import (
	"cmp"
	"context"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/seal"
)

const republishBatch = 100

// Republish sends what a fallback store has of a pipeline to the topics that did not take it, and forgets what they have acknowledged.
// A letter that is too large for its topic goes there without its value, as it does from a pipeline. A vault message that is too large
// goes straight to custody by keep, and stays in the store until that has it; nothing else waits for it. It may be repeated, and run
// beside another one: the same letter twice is one item. sink is the caller's own. It returns how many left the store. Codes:
// ERR_FALLBACK_FAILED, ERR_LEDGER_*, ERR_CUSTODY_UNAVAILABLE (the topics refuse them still).
func Republish(ctx context.Context, store FallbackStore, pipelineName string, sink pipeline.Sink, ring *seal.Ring, keep func(context.Context, []TakenVault) error) (sent int, err error) {
	var last *Spare
	var waits error // what custody did not take
	for {
		list, err := store.List(ctx, pipelineName, last, republishBatch)
		if err != nil || len(list) == 0 {
			return sent, cmp.Or(err, waits)
		}
		done, large, err := republish(ctx, list, sink, ring)
		if taken, kerr := keepLarge(ctx, large, keep); kerr == nil {
			done = append(done, taken...)
		} else {
			waits = kerr
		}
		sent += len(done)
		if derr := store.Drop(ctx, done); err == nil {
			err = derr
		}
		if err != nil {
			return sent, err
		}
		last = &list[len(list)-1]
	}
}

// spareVault is a message of the store that its vault topic does not take.
type spareVault struct {
	spare Spare
	taken TakenVault
}

// keepLarge hands them to custody.
func keepLarge(ctx context.Context, large []spareVault, keep func(context.Context, []TakenVault) error) (done []Spare, err error) {
	if len(large) == 0 {
		return nil, nil
	}
	list := make([]TakenVault, len(large))
	for i, l := range large {
		list[i], done = l.taken, append(done, l.spare)
	}
	return done, keep(ctx, list)
}

// republish sends a batch and returns what was acknowledged, and what is too large to be.
func republish(ctx context.Context, list []Spare, sink pipeline.Sink, ring *seal.Ring) (done []Spare, large []spareVault, err error) {
	msgs := make([]pipeline.Message, len(list))
	for i := range list {
		if msgs[i], err = list[i].message(); err != nil {
			return nil, nil, err
		}
	}
	bad, err := sendOnce(ctx, sink, msgs)
	if err != nil {
		return nil, nil, err
	}
	var again []pipeline.Message
	var of []int
	refused := map[int]bool{}
	for _, b := range bad {
		refused[b.Msg] = true
		if b.Failure.Code != pipeline.CodeTooLarge {
			if err == nil {
				err = &pipeline.Error{Code: pipeline.CodeCustodyUnavailable, Place: msgs[b.Msg].Topic, Text: b.Failure.Reason()}
			}
			continue
		}
		if v := vaulted(&msgs[b.Msg], list[b.Msg].AtMS, ring); v != nil {
			large = append(large, spareVault{list[b.Msg], *v})
			continue
		}
		if m := bare(&msgs[b.Msg], ring); m != nil {
			again, of = append(again, *m), append(of, b.Msg)
		}
	}
	if len(again) > 0 {
		bad, serr := sendOnce(ctx, sink, again)
		if serr != nil {
			return nil, nil, serr
		}
		for _, i := range of {
			delete(refused, i)
		}
		for _, b := range bad {
			refused[of[b.Msg]] = true
		}
	}
	for i := range list {
		if !refused[i] {
			done = append(done, list[i])
		}
	}
	return done, large, err
}

// vaulted is the vault message that m is; nil: it is none of ours. It stands on no topic.
func vaulted(m *pipeline.Message, atMS int64, ring *seal.Ring) *TakenVault {
	v, err := deadletter.ParseVaulted(m.Topic, &pipeline.Record{Key: m.Key, Value: m.Value, Headers: m.Headers}, ring)
	if err != nil {
		return nil
	}
	return &TakenVault{Vaulted: v, Stands: pipeline.Position{TP: pipeline.TP{Topic: m.Topic, Partition: -1}, Offset: -1}, TimeMS: atMS, Cluster: v.Cluster}
}

// bare is the letter of m without what makes it large; nil: m is no letter of ours.
func bare(m *pipeline.Message, ring *seal.Ring) *pipeline.Message {
	l, err := deadletter.Parse(m.Topic, &pipeline.Record{Key: m.Key, Value: m.Value, Headers: m.Headers}, ring)
	if err != nil || l.Dialect != deadletter.Reprieve || l.Forged || l.Value == nil {
		return nil
	}
	out := &pipeline.Message{Topic: m.Topic, Partition: -1, From: -1}
	if deadletter.Append(out, l.Pointer(), deadletter.Profiles{}, ring) != nil {
		return nil
	}
	return out
}

// sendOnce waits for the answer to all messages.
func sendOnce(ctx context.Context, sink pipeline.Sink, msgs []pipeline.Message) ([]pipeline.Bad, error) {
	if err := sink.Send(&pipeline.Sending{Msgs: msgs}); err != nil {
		return nil, err
	}
	select {
	case s := <-sink.Done():
		return s.Bad, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
