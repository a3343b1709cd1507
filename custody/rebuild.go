package custody

import (
	"context"
	"errors"
	"maps"
	"slices"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

// Rebuilt says what a rebuild brought back, and what it could not.
type Rebuilt struct {
	Items   int64     `json:"items,string"`
	Raw     int64     `json:"raw,string"` // messages that are no letters
	Missing []Missing `json:"missing"`
}

// Missing is a part of the past that the topics do not hold any more.
type Missing struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      int64  `json:"from,string"`
	To        int64  `json:"to,string"` // exclusive
	Why       string `json:"why"`
}

// Rebuild fills an empty ledger from the topics of one cluster: it reads all of them to the end that they have now, marks every item as
// rebuilt, which holds it out of redrives until somebody has vouched for it, and lists what the topics do not hold any more. What
// persons did (owners, tickets, decisions, holds, erasures) is not in topics: it comes from a backup of the ledger only. o.Source must
// be a member of a consumer group of its own. progress, if not nil, is told how many of how many messages were read. Codes:
// ERR_INPUT_INVALID (the ledger is not empty), ERR_BROKER_*, ERR_LEDGER_*.
func Rebuild(ctx context.Context, who Actor, o CustodianOptions, topics []string, progress func(done, total int64)) (Rebuilt, error) {
	var out Rebuilt
	c := o.Items
	if err := c.CheckWhole(ctx, who, PermRetention); err != nil {
		return out, err
	}
	ends, gone, err := topicEnds(ctx, o.Kafka, topics)
	if err != nil {
		return out, err
	}
	out.Missing = gone
	before, err := c.counts(ctx)
	if err != nil {
		return out, err
	}
	// A rebuild that was interrupted goes on: its items are marked. Any other item is somebody's work.
	if before.others > 0 {
		return out, pipeline.Errorf(pipeline.CodeInputInvalid, c.db.Place(), "the ledger holds %d items that no rebuild has made", before.others).
			With("Name a new ledger in the worker file; a rebuild never writes over one.")
	}
	o.Rebuild = true
	if err := readThrough(ctx, NewCustodian(o), ends, progress); err != nil {
		return out, err
	}
	after, err := c.counts(ctx)
	if err != nil {
		return out, err
	}
	out.Items, out.Raw = after.rebuilt-before.rebuilt, after.raw-before.raw
	unsettled, err := c.withoutItems(ctx)
	out.Missing = append(out.Missing, unsettled...)
	return out, err
}

// readThrough runs a custodian until the ledger has everything below the ends.
func readThrough(ctx context.Context, k *Custodian, ends map[pipeline.TP]int64, progress func(done, total int64)) error {
	run, stop := context.WithCancel(ctx)
	defer stop()
	ran := make(chan error, 1)
	go func() { ran <- k.Run(run) }()
	passed := make(chan error, 1)
	waiting, giveUp := context.WithCancel(ctx)
	defer giveUp()
	go func() { passed <- k.passed(waiting, ends, progress) }()
	select {
	case err := <-ran:
		giveUp()
		return errors.Join(err, <-passed)
	case err := <-passed:
		stop()
		if ran := <-ran; err == nil {
			err = ran
		}
		if err != nil {
			return err
		}
	}
	return k.reviewCommits(ctx)
}

// passed is Passed with progress.
func (k *Custodian) passed(ctx context.Context, ends map[pipeline.TP]int64, progress func(done, total int64)) error {
	for {
		k.mu.Lock()
		signal := k.signal
		k.mu.Unlock()
		if progress != nil {
			done, total, err := k.o.Items.readOf(ctx, k.o.Cluster, ends)
			if err != nil {
				return err
			}
			progress(done, total)
		}
		ok, err := k.o.Items.Passed(ctx, k.o.Cluster, k.o.Kafka, ends)
		if err != nil || ok {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-signal:
		}
	}
}

// readOf is how many of the messages below the ends the ledger has read.
func (c *Items) readOf(ctx context.Context, cluster string, ends map[pipeline.TP]int64) (done, total int64, err error) {
	err = c.db.Read(ctx, func(tx *ledger.Tx) error {
		done, total = 0, 0
		next, err := tx.Intakes(cluster)
		for tp, end := range ends {
			total += end
			done += min(max(next[tp], 0), end)
		}
		return err
	})
	return done, total, err
}

// topicEnds are where topics end, and what they have lost at their beginning. A topic that is not there is lost wholly.
func topicEnds(ctx context.Context, log pipeline.Log, topics []string) (map[pipeline.TP]int64, []Missing, error) {
	ends := map[pipeline.TP]int64{}
	gone := []Missing{}
	for _, topic := range topics {
		info, err := log.Info(ctx, topic)
		if pipeline.CodeOf(err) == pipeline.CodeTopicMissing {
			gone = append(gone, Missing{Topic: topic, Partition: -1, Why: "the topic is not there"})
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		for _, p := range slices.Sorted(maps.Keys(info.Partitions)) {
			r := info.Partitions[p]
			ends[pipeline.TP{Topic: topic, Partition: p}] = r.Next
			if r.First > 0 {
				gone = append(gone, Missing{topic, p, 0, r.First, "its retention has taken them"})
			}
		}
	}
	return ends, gone, nil
}

type itemCounts struct{ rebuilt, others, raw int64 }

func (c *Items) counts(ctx context.Context) (n itemCounts, err error) {
	err = c.db.Read(ctx, func(tx *ledger.Tx) error {
		n = itemCounts{}
		if _, err := tx.Row("SELECT count(*), coalesce(sum(CASE WHEN flags & ? <> 0 THEN 1 ELSE 0 END), 0) FROM items", []any{int64(FlagRebuilt)}, &n.others, &n.rebuilt); err != nil {
			return err
		}
		n.others -= n.rebuilt
		_, err := tx.Row("SELECT count(*) FROM raw_messages", nil, &n.raw)
		return err
	})
	return n, err
}

// mostMissing is how many runs of missing offsets are named.
const mostMissing = 1000

// withoutItems are offsets that settlements of the ledger say were taken into custody, of which it has no item: their letters are
// gone from the topics.
func (c *Items) withoutItems(ctx context.Context) ([]Missing, error) {
	custody := map[pipeline.TP]*pipeline.Offsets{}
	if err := c.db.Read(ctx, func(tx *ledger.Tx) error {
		clear(custody)
		return tx.Each("SELECT topic, partition, from_offset, custody FROM settlements ORDER BY topic, partition, from_offset", nil, func(scan func(...any) error) error {
			var tp pipeline.TP
			var from int64
			var bits []byte
			if err := scan(&tp.Topic, &tp.Partition, &from, &bits); err != nil {
				return err
			}
			set, ok := pipeline.ParseOffsets(bits, from)
			if !ok {
				return pipeline.Errorf(pipeline.CodeLedgerCorrupt, "settlements", "a settlement of %s cannot be read", tp)
			}
			for off := range set.All {
				offsetsOf(custody, tp).Add(off)
			}
			return nil
		})
	}); err != nil {
		return nil, err
	}
	var out []Missing
	for _, tp := range sortedTPs(slices.Collect(maps.Keys(custody))) {
		have, err := c.itemOffsets(ctx, tp)
		if err != nil {
			return nil, err
		}
		for off := range custody[tp].All {
			if have.Has(off) {
				continue
			}
			if n := len(out); n > 0 && out[n-1].Topic == tp.Topic && out[n-1].Partition == tp.Partition && out[n-1].To == off {
				out[n-1].To++
			} else if n < mostMissing {
				out = append(out, Missing{tp.Topic, tp.Partition, off, off + 1, "taken into custody, and the letters are not on the dead-letter topic any more"})
			}
		}
	}
	return out, nil
}

// RebuildTopics are the topics that a rebuild reads of a cluster: those of its custodian.
func RebuildTopics(t Topics) []string {
	letters := slices.Concat(t.Letters, t.Vaults)
	if t.Sources {
		return CustodianTopics(t.Prefix, letters)
	}
	return letters
}
