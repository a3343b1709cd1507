package custody

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
)

// Settled is a settlement as it was read from its topic.
type Settled struct {
	*deadletter.Settlement
	AtMS int64 // of the message
}

// Settle takes settlements into the ledger, in the order of their topic, and draws from them: an item whose offset was
// dead-lettered is confirmed once the source's offset is committed beyond it; an item whose record succeeded in a later pass
// is closed as delivered_live. Codes: ERR_PERMISSION_DENIED, ERR_LEDGER_*.
func (c *Items) Settle(ctx context.Context, who Actor, settlements []Settled) error {
	if err := c.CheckWhole(ctx, who, PermQuarantine); err != nil {
		return err
	}
	return c.db.Write(ctx, func(tx *ledger.Tx) error { return c.SettleTx(tx, who, settlements) })
}

// SettleTx is Settle inside a transaction of the caller, who has checked the permission.
func (c *Items) SettleTx(tx *ledger.Tx, who Actor, settlements []Settled) error {
	if len(settlements) == 0 {
		return nil
	}
	if err := tx.Lock("admit"); err != nil { // items that are being admitted must see these, or these them
		return err
	}
	for _, s := range settlements {
		if err := storeSettlement(tx, s); err != nil {
			return err
		}
		if err := c.settleItems(tx, who, s); err != nil {
			return err
		}
	}
	return nil
}

// atRange is the condition for items whose last pass read an offset of [from, to).
const atRange = `((at_topic = '' AND topic = ? AND partition = ? AND source_offset >= ? AND source_offset < ?)
	OR (at_topic = ? AND at_partition = ? AND at_offset >= ? AND at_offset < ?))`

func atArgs(tp pipeline.TP, from, to int64) []any {
	return []any{tp.Topic, tp.Partition, from, to, tp.Topic, tp.Partition, from, to}
}

func (c *Items) settleItems(tx *ledger.Tx, who Actor, s Settled) error {
	var custody, live []*Item
	err := tx.Each("SELECT "+itemColumns+" FROM items WHERE state NOT IN ('RECONCILED', 'DISCARDED', 'EXPIRED') AND "+atRange+" ORDER BY id"+tx.ForUpdate(),
		atArgs(s.TP, s.From, s.To), func(scan func(...any) error) error {
			it, err := scanItem(scan)
			if err != nil || it.Dialect != deadletter.Reprieve {
				return err
			}
			d, known := s.Disposition(it.At.Offset)
			switch {
			case !known || it.Pipeline != "" && s.Pipeline != it.Pipeline: // another pipeline reads the same topic
			case inCustody(d) && it.Confirmed == Unconfirmed:
				custody = append(custody, it)
			case d == pipeline.Delivered && s.AtMS > it.QuarantinedMS:
				live = append(live, it)
			}
			return nil
		})
	if err != nil {
		return err
	}
	if err := c.markSettled(tx, custody); err != nil {
		return err
	}
	return c.deliveredLive(tx, who, live, map[string]string{"partition": s.TP.String(), "from": strconv.FormatInt(s.From, 10), "to": strconv.FormatInt(s.To, 10),
		"epoch": strconv.FormatInt(int64(s.Epoch), 10)})
}

func inCustody(d pipeline.Disposition) bool {
	switch d {
	case pipeline.DeadLettered, pipeline.Sealed, pipeline.InFallback, pipeline.Parked:
		return true
	}
	return false
}

// deliveredLive closes items whose record succeeded after all. Those that are being redriven are left to their redrive.
func (c *Items) deliveredLive(tx *ledger.Tx, who Actor, items []*Item, detail map[string]string) error {
	_, _, err := c.move(tx, who, items, change{ev: DeliveredLive, cols: []string{"resolution", "confirmed"}, args: []any{"delivered_live", int64(IsConfirmed)}, detail: detail,
		keep: func(it *Item) { it.Resolution, it.Confirmed = "delivered_live", IsConfirmed }})
	return err
}

// markSettled notes that items were settled as dead-lettered, and confirms those whose offset is committed.
func (c *Items) markSettled(tx *ledger.Tx, items []*Item) error {
	type where struct {
		consumer string
		tp       pipeline.TP
	}
	next := map[where]int64{}
	by := map[Confirmed][]string{}
	for _, it := range items {
		w := where{it.Consumer, it.At.TP}
		n, known := next[w]
		if !known {
			if _, err := tx.Row("SELECT next FROM committed_offsets WHERE consumer = ? AND topic = ? AND partition = ?", []any{w.consumer, w.tp.Topic, w.tp.Partition}, &n); err != nil {
				return err
			}
			next[w] = n
		}
		it.Confirmed = SettledOnly
		if n > it.At.Offset {
			it.Confirmed = IsConfirmed
		}
		by[it.Confirmed] = append(by[it.Confirmed], string(it.ID))
	}
	for confirmed, ids := range by {
		in, arg := tx.In("id", ids)
		if _, err := tx.Exec("UPDATE items SET confirmed = ?, rev = rev + 1 WHERE "+in, int64(confirmed), arg); err != nil {
			return err
		}
	}
	return nil
}

// Committed takes the committed offsets of a consumer group and confirms what they confirm. Codes: ERR_PERMISSION_DENIED,
// ERR_LEDGER_*.
func (c *Items) Committed(ctx context.Context, who Actor, group string, offsets map[pipeline.TP]int64) error {
	if err := c.CheckWhole(ctx, who, PermQuarantine); err != nil {
		return err
	}
	return c.db.Write(ctx, func(tx *ledger.Tx) error {
		if err := tx.Lock("admit"); err != nil {
			return err
		}
		for tp, next := range offsets {
			n, err := tx.Exec(`INSERT INTO committed_offsets (consumer, topic, partition, next, at_ms) VALUES (?, ?, ?, ?, ?)
				ON CONFLICT (consumer, topic, partition) DO UPDATE SET next = excluded.next, at_ms = excluded.at_ms WHERE committed_offsets.next <> excluded.next`,
				group, tp.Topic, tp.Partition, next, tx.NowMS())
			if err != nil {
				return err
			}
			_ = n // items may wait also when the offset is the one we knew
			args := append([]any{int64(IsConfirmed), group, int64(SettledOnly), int64(Unconfirmed), deadletter.Reprieve}, atArgs(tp, 0, next)...)
			if _, err := tx.Exec(`UPDATE items SET confirmed = ?, rev = rev + 1 WHERE consumer = ? AND confirmed IN (0, 3) AND (confirmed = ? OR (confirmed = ? AND dialect <> ?)) AND `+atRange, args...); err != nil {
				return err
			}
		}
		return nil
	})
}

// Waiting are the consumer groups that have items which a commit would confirm.
func (c *Items) Waiting(ctx context.Context) ([]string, error) {
	var out []string
	err := c.db.Read(ctx, func(tx *ledger.Tx) error {
		out = nil
		return tx.Each("SELECT DISTINCT consumer FROM items WHERE confirmed IN (0, 3) AND consumer <> '' ORDER BY consumer", nil, func(scan func(...any) error) error {
			var s string
			err := scan(&s)
			out = append(out, s)
			return err
		})
	})
	return out, err
}

// storeSettlement keeps what later items need of a settlement. Settlements that follow each other are kept as one row: a
// pipeline commits four times a second.
func storeSettlement(tx *ledger.Tx, s Settled) error {
	custody, other, counts := pipeline.Offsets{}, pipeline.Offsets{}, map[string]int64{}
	for d := pipeline.Delivered; d <= pipeline.Ranged; d++ {
		if n := s.Count(d); n > 0 {
			counts[d.String()] = n
		}
		set := &other
		if inCustody(d) {
			set = &custody
		}
		for off := range s.Offsets(d) {
			set.Add(off)
		}
	}
	var last storedSettlement
	found, err := last.read(tx, "WHERE topic = ? AND partition = ? ORDER BY seq DESC LIMIT 1", s.TP.Topic, s.TP.Partition)
	if err != nil {
		return err
	}
	const most, span = 16 << 10, 10 * 60 * 1000
	if found && last.to == s.From && last.pipeline == s.Pipeline && last.epoch == int64(s.Epoch) && last.policy == string(s.Policy) && len(last.custody)+len(last.other) < most && s.AtMS-last.firstMS < span {
		a, ok := pipeline.ParseOffsets(last.custody, last.from)
		b, ok2 := pipeline.ParseOffsets(last.other, last.from)
		if ok && ok2 {
			for off := range custody.All {
				a.Add(off)
			}
			for off := range other.All {
				b.Add(off)
			}
			for k, v := range last.counts {
				counts[k] += v
			}
			text, _ := json.Marshal(counts)
			_, err := tx.Exec("UPDATE settlements SET to_offset = ?, custody = ?, other = ?, counts = ?, last_ms = ? WHERE seq = ?",
				s.To, a.AppendBinary(nil, last.from), b.AppendBinary(nil, last.from), string(text), max(s.AtMS, last.lastMS), last.seq)
			return err
		}
	}
	seq, err := tx.Next("settlements", 1)
	if err != nil {
		return err
	}
	text, _ := json.Marshal(counts)
	_, err = tx.Exec(`INSERT INTO settlements (seq, pipeline, topic, partition, epoch, from_offset, to_offset, policy, counts, custody, other, first_ms, last_ms)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, seq, s.Pipeline, s.TP.Topic, s.TP.Partition, s.Epoch, s.From, s.To, s.Policy, string(text),
		custody.AppendBinary(nil, s.From), other.AppendBinary(nil, s.From), s.AtMS, s.AtMS)
	return err
}

// committedOf calls f with the committed offsets of all consumers on these partitions.
func committedOf(tx *ledger.Tx, f func(consumer string, tp pipeline.TP, next int64), tps []pipeline.TP) error {
	seen := map[string]bool{}
	var topics []string
	for _, tp := range tps {
		if !seen[tp.Topic] {
			seen[tp.Topic] = true
			topics = append(topics, tp.Topic)
		}
	}
	in, arg := tx.In("topic", topics)
	return tx.Each("SELECT consumer, topic, partition, next FROM committed_offsets WHERE "+in, []any{arg}, func(scan func(...any) error) error {
		var consumer string
		var tp pipeline.TP
		var next int64
		if err := scan(&consumer, &tp.Topic, &tp.Partition, &next); err != nil {
			return err
		}
		f(consumer, tp, next)
		return nil
	})
}

type storedSettlement struct {
	seq, epoch, from, to, firstMS, lastMS int64
	pipeline, policy                      string
	custody, other                        []byte
	counts                                map[string]int64

	inCustody, inOther pipeline.Offsets // of custody and other, once parse was called
	readable           bool
}

const storedColumns = "seq, pipeline, epoch, from_offset, to_offset, policy, counts, custody, other, first_ms, last_ms"

func (s *storedSettlement) scan(scan func(...any) error) error {
	var counts string
	if err := scan(&s.seq, &s.pipeline, &s.epoch, &s.from, &s.to, &s.policy, &counts, &s.custody, &s.other, &s.firstMS, &s.lastMS); err != nil {
		return err
	}
	return json.Unmarshal([]byte(counts), &s.counts)
}

func (s *storedSettlement) read(tx *ledger.Tx, where string, args ...any) (found bool, err error) {
	err = tx.Each("SELECT "+storedColumns+" FROM settlements "+where, args, func(scan func(...any) error) error {
		found = true
		return s.scan(scan)
	})
	return found, err
}

// parse reads the sets, for disposition.
func (s *storedSettlement) parse() {
	var ok, ok2 bool
	s.inCustody, ok = pipeline.ParseOffsets(s.custody, s.from)
	s.inOther, ok2 = pipeline.ParseOffsets(s.other, s.from)
	s.readable = ok && ok2
}

// disposition is what the stored settlement says of an offset inside it.
func (s *storedSettlement) disposition(off int64) (custody, delivered bool) {
	if !s.readable {
		return false, false
	}
	custody = s.inCustody.Has(off)
	return custody, !custody && !s.inOther.Has(off) && s.counts[pipeline.Delivered.String()] > 0
}

// confirmNew confirms items that are just being admitted from settlements that came before them.
func (c *Items) confirmNew(tx *ledger.Tx, items []*Item, history *[]ledger.Entry, who Actor) error {
	return c.confirm(tx, items, history, who)
}

// confirm sets Confirmed of unconfirmed items from what the ledger knows. With a history, items that were delivered later
// are closed as well; the caller writes the items.
func (c *Items) confirm(tx *ledger.Tx, items []*Item, history *[]ledger.Entry, who Actor) error {
	type span struct {
		from, to int64
		items    []*Item
	}
	type commitKey struct {
		consumer string
		tp       pipeline.TP
	}
	spans := map[pipeline.TP]*span{}
	commits := map[commitKey]int64{}
	for _, it := range items {
		if it.Confirmed != Unconfirmed {
			continue
		}
		s := spans[it.At.TP]
		if s == nil {
			s = &span{from: it.At.Offset, to: it.At.Offset}
			spans[it.At.TP] = s
		}
		s.from, s.to = min(s.from, it.At.Offset), max(s.to, it.At.Offset)
		s.items = append(s.items, it)
		commits[commitKey{it.Consumer, it.At.TP}] = -1
	}
	if err := committedOf(tx, func(consumer string, tp pipeline.TP, next int64) {
		if _, wanted := commits[commitKey{consumer, tp}]; wanted {
			commits[commitKey{consumer, tp}] = next
		}
	}, slices.Collect(maps.Keys(spans))); err != nil {
		return err
	}
	for tp, s := range spans {
		var stored []storedSettlement
		err := tx.Each("SELECT "+storedColumns+" FROM settlements WHERE topic = ? AND partition = ? AND to_offset > ? AND from_offset <= ? ORDER BY seq DESC",
			[]any{tp.Topic, tp.Partition, s.from, s.to}, func(scan func(...any) error) error {
				var st storedSettlement
				err := st.scan(scan)
				st.parse()
				stored = append(stored, st)
				return err
			})
		if err != nil {
			return err
		}
		for _, it := range s.items {
			committed := commits[commitKey{it.Consumer, tp}] > it.At.Offset
			if it.Dialect != deadletter.Reprieve {
				if committed {
					it.Confirmed = IsConfirmed
				}
				continue
			}
			for i := range stored {
				st := &stored[i]
				if it.At.Offset < st.from || it.At.Offset >= st.to || it.Pipeline != "" && st.pipeline != it.Pipeline {
					continue
				}
				custody, delivered := st.disposition(it.At.Offset)
				switch {
				case custody && committed:
					it.Confirmed = IsConfirmed
				case custody:
					it.Confirmed = SettledOnly
				case delivered && st.firstMS > it.QuarantinedMS && history != nil:
					to, err := Next(it.State, DeliveredLive)
					if err != nil {
						break
					}
					*history = append(*history, ledger.Entry{Tenant: it.Tenant, Item: string(it.ID), Event: string(DeliveredLive), From: string(it.State), To: string(to), Actor: who.Subject,
						Detail: map[string]string{"partition": tp.String(), "epoch": strconv.FormatInt(st.epoch, 10)}})
					it.State, it.Resolution, it.Confirmed = to, "delivered_live", IsConfirmed
				}
				break // the newest that covers it decides
			}
		}
	}
	return nil
}
