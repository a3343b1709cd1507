package redrive

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

const (
	askMost     = 200                    // questions in one round about items that were sent
	askSide     = 8                      // questions at once
	askEvery    = 250 * time.Millisecond // between two rounds while items are being sent
	absentAfter = 5 * time.Second        // how long after a send absent is final: until then an effect may be on its way
)

// answer is what the question said about one item and its try.
type answer struct {
	item pipeline.ID
	try  uint16
	Answer
}

// question puts the reconcile question of many items, a few at once. An answer that cannot be had is unknown.
func (s *Service) question(ctx context.Context, t *Target, items []*custody.Item) []answer {
	out := make([]answer, len(items))
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(askSide, len(items)) {
		wg.Go(func() {
			for i := range next {
				a := &out[i]
				a.item, a.try = items[i].ID, items[i].Try
				var err error
				if a.Answer, err = t.Ask(ctx, items[i]); err != nil {
					s.log.Info("a reconcile question has no answer", "item", a.item, "code", pipeline.CodeOf(err))
					a.Result = pipeline.UnknownOutcome
				}
			}
		})
	}
	for i := range items {
		next <- i
	}
	close(next)
	wg.Wait()
	return out
}

// ask asks about items that the retry lane has settled, if the pipeline has a question: forwarded is no evidence of an effect.
// applied closes the item; absent brings it back to TRIAGED, and a later plan sends it again under the same id, but a run in which
// the lane delivered what is absent does not reconcile; an answer that says neither leaves the item as it is, for a person. An answer
// counts for the try that it was asked about only.
func (s *Service) ask(ctx context.Context, who custody.Actor, t *Target, m *Manifest, digest pipeline.Digest, most int) error {
	if t.Ask == nil {
		return nil
	}
	var list []*custody.Item
	sent := map[pipeline.ID]int64{}
	if err := s.db.Read(ctx, func(tx *ledger.Tx) error {
		var ids []pipeline.ID
		if err := tx.Each("SELECT item, sent_ms FROM manifest_items WHERE manifest = ? AND tenant = ? AND watched <> 0 AND watched = ? ORDER BY n LIMIT ?", []any{digest, m.Tenant, custody.WatchedForwarded, most}, func(scan func(...any) error) error {
			var id pipeline.ID
			var ms int64
			err := scan(&id, &ms)
			ids = append(ids, id)
			sent[id] = ms
			return err
		}); err != nil {
			return err
		}
		items, err := s.items.Load(tx, ids)
		list = nil
		for _, id := range ids {
			if it := items[id]; it != nil && it.State == custody.Redriving && it.Redrive == digest {
				list = append(list, it)
			}
		}
		return err
	}); err != nil || len(list) == 0 {
		return err
	}
	answers := s.question(ctx, t, list)
	for i := range answers {
		if a := &answers[i]; a.Result == pipeline.Absent && s.clock().UnixMilli()-sent[a.item] < absentAfter.Milliseconds() {
			a.Result = pipeline.UnknownOutcome // asked again later
		}
	}
	return s.db.Write(ctx, func(tx *ledger.Tx) error {
		return s.answered(tx, who, m, digest, answers)
	})
}

// answered writes what the question said about items that were sent: answers of one result together.
func (s *Service) answered(tx *ledger.Tx, who custody.Actor, m *Manifest, digest pipeline.Digest, answers []answer) error {
	ids := make([]pipeline.ID, len(answers))
	for i, a := range answers {
		ids[i] = a.item
	}
	now, err := s.items.Lock(tx, ids)
	if err != nil {
		return err
	}
	said := map[pipeline.ID]answer{}
	by := map[pipeline.Result][]pipeline.ID{}
	effects := map[pipeline.ID]string{}
	for _, a := range answers {
		if it := now[a.item]; it == nil || it.Try != a.try || it.Redrive != digest {
			continue // the question was about an earlier try
		}
		switch a.Result {
		case pipeline.Applied, pipeline.AlreadyApplied, pipeline.Superseded, pipeline.Corrected:
			if len(a.Effect) > 0 {
				effects[a.item] = toJSON(a.Effect)
			}
		case pipeline.Absent:
			if err := absent(tx, a, m.Tenant, digest, who.Subject); err != nil {
				return err
			}
		case pipeline.FailedOutcome:
		default:
			continue
		}
		said[a.item] = a
		by[a.Result] = append(by[a.Result], a.item)
	}
	for _, result := range slices.Sorted(maps.Keys(by)) {
		if result == pipeline.Absent || result == pipeline.FailedOutcome {
			_, err = s.items.FailRedrive(tx, who, digest, by[result], pipeline.CodeRedriveMismatch, func(id pipeline.ID) map[string]string {
				return map[string]string{"evidence": said[id].Evidence, "result": string(result)}
			})
		} else {
			_, err = s.items.Reconciled(tx, who, digest, by[result], result, func(id pipeline.ID) string { return said[id].Evidence })
		}
		if err != nil {
			return err
		}
	}
	return setTexts(tx, "effect", digest, m.Tenant, effects)
}

// setTexts writes a text of each item into one column of a manifest's rows.
func setTexts(tx *ledger.Tx, column string, digest pipeline.Digest, tenant string, of map[pipeline.ID]string) error {
	items := slices.Sorted(maps.Keys(of))
	for part := range slices.Chunk(items, 1000) {
		if tx.Dialect() != ledger.Postgres {
			for _, id := range part {
				if _, err := tx.Exec("UPDATE manifest_items SET "+column+" = ? WHERE manifest = ? AND tenant = ? AND item = ?", of[id], digest, tenant, id); err != nil {
					return err
				}
			}
			continue
		}
		texts := make([]string, len(part))
		for i, id := range part {
			texts[i] = of[id]
		}
		if _, err := tx.Exec("UPDATE manifest_items m SET "+column+" = v.said FROM unnest(?::text[], ?::text[]) AS v(item, said) WHERE m.manifest = ? AND m.tenant = ? AND m.item = v.item",
			idTexts(part), texts, digest, tenant); err != nil {
			return err
		}
	}
	return nil
}

// absent notes that the effect of an item's try is not there: it may be sent again under the same id.
func absent(tx *ledger.Tx, a answer, tenant string, digest pipeline.Digest, writer string) error {
	_, err := tx.Exec(`INSERT INTO outcomes (item, tenant, redrive, redrive_try, result, writer, effect_ref, code, at_ms, applied)
		VALUES (?, ?, ?, ?, 'absent', ?, ?, '', ?, 0) ON CONFLICT (item, redrive, redrive_try, result, writer) DO NOTHING`,
		a.item, tenant, digest, a.try, writer, ledger.Cut(a.Evidence, 256), tx.NowMS())
	return err
}

// askAlong asks about what was sent while more is being sent, a little at a time: a run whose effects are missing stops early.
func (e *executor) askAlong(ctx context.Context) error {
	now := e.s.clock()
	if e.t.Ask == nil || now.Sub(e.asked) < askEvery {
		return nil
	}
	e.asked = now
	return e.s.ask(ctx, e.who, e.t, e.m, e.digest, min(askMost, max(2*askSide, int(e.rate/3))))
}

// askFirst asks about those of a window whose effect may exist already, before anything of it is written. An item whose effect is
// there is resolved without a send, one that is provably absent stays in the window, and one without an answer is left for a
// person. It returns the lines that may go.
func (e *executor) askFirst(ctx context.Context, lines []Line) ([]Line, error) {
	var ids []pipeline.ID
	for _, l := range lines {
		if l.Ask {
			ids = append(ids, l.Item)
		}
	}
	if len(ids) == 0 {
		return lines, nil
	}
	if e.t.Ask == nil {
		return nil, pipeline.Errorf(pipeline.CodeReconcileFirst, string(e.digest), "the pipeline has no question any more, and the plan rests on it")
	}
	var list []*custody.Item
	if err := e.s.db.Read(ctx, func(tx *ledger.Tx) error {
		items, err := e.s.items.Load(tx, ids)
		list = nil
		for _, id := range ids {
			if it := items[id]; it != nil {
				list = append(list, it)
			}
		}
		return err
	}); err != nil {
		return nil, err
	}
	answers := e.s.question(ctx, e.t, list)
	if ctx.Err() != nil {
		return nil, ctx.Err() // no answer is not an unknown one
	}
	gone := map[pipeline.ID]bool{}
	if err := e.s.db.Write(ctx, func(tx *ledger.Tx) error {
		if err := e.mine(tx); err != nil {
			return err
		}
		there := map[pipeline.Result][]pipeline.ID{}
		evidence := map[pipeline.ID]string{}
		for _, a := range answers {
			switch a.Result {
			case pipeline.Absent:
				if err := absent(tx, a, e.m.Tenant, e.digest, e.who.Subject); err != nil {
					return err
				}
				continue
			case pipeline.Applied, pipeline.AlreadyApplied:
				there[pipeline.AlreadyApplied] = append(there[pipeline.AlreadyApplied], a.item)
			case pipeline.Superseded, pipeline.Corrected:
				there[a.Result] = append(there[a.Result], a.item)
			default:
				if err := e.skip(tx, a.item, pipeline.CodeReconcileFirst); err != nil {
					return err
				}
			}
			gone[a.item] = true
			evidence[a.item] = a.Evidence
		}
		for _, result := range []pipeline.Result{pipeline.AlreadyApplied, pipeline.Superseded, pipeline.Corrected} {
			if err := e.settled(tx, there[result], result, func(id pipeline.ID) string { return evidence[id] }); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	kept := lines[:0:0]
	for _, l := range lines {
		if !gone[l.Item] {
			kept = append(kept, l)
		}
	}
	return kept, nil
}

// settled resolves items of the run that need no send: their effect, or a newer one, is there.
func (e *executor) settled(tx *ledger.Tx, ids []pipeline.ID, result pipeline.Result, evidence func(pipeline.ID) string) error {
	if len(ids) == 0 {
		return nil
	}
	skips, err := e.s.items.ResolveTx(tx, e.who, ids, string(result), e.digest, evidence)
	if err != nil {
		return err
	}
	not := map[pipeline.ID]bool{}
	for _, k := range skips {
		not[k.Item] = true
		if err := e.skip(tx, k.Item, k.Code); err != nil {
			return err
		}
	}
	var done []string
	for _, id := range ids {
		if !not[id] {
			done = append(done, string(id))
		}
	}
	in, arg := tx.In("item", done)
	_, err = tx.Exec("UPDATE manifest_items SET state = ? WHERE manifest = ? AND tenant = ? AND "+in, itemReconciled, e.digest, e.m.Tenant, arg)
	return err
}
