package redrive

import (
	"context"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
)

// late is how far behind its slot a window may leave, half of what the spacing has to spare in a second. Later it takes a new
// slot: two windows that bunch up would exceed the rate in some half-open second (INV-PACE).
const late = 10 * time.Millisecond

// flight is one window on its way.
type flight struct {
	lines  map[pipeline.ID]Line
	intent custody.Intent
	items  []*custody.Item // REDRIVING under the intent
	slot   time.Time
	msgs   []pipeline.Message
	of     []*custody.Item // item of each message
	failed []failedItem
}

type failedItem struct {
	id   pipeline.ID
	code pipeline.Code
	why  string
}

// sendWindow takes one window from planned to sent: intent, slot, send, result, in this order. After an intent is durable it
// always ends with a result, or stays open for resume to ask about.
func (e *executor) sendWindow(ctx context.Context, lines []Line) error {
	if err := e.thresholds(ctx); err != nil {
		return err
	}
	if err := e.yield(ctx); err != nil {
		return err
	}
	if err := e.askAlong(ctx); err != nil {
		return err
	}
	lines, err := e.askFirst(ctx, lines)
	if err != nil || len(lines) == 0 {
		return err
	}
	f := &flight{lines: make(map[pipeline.ID]Line, len(lines))}
	for _, l := range lines {
		f.lines[l.Item] = l
	}
	if err := e.intend(ctx, lines, f); err != nil {
		return err
	}
	if err := e.prepare(ctx, f); err != nil {
		f.failed = nil
		if werr := e.withdraw(context.WithoutCancel(ctx), f, "its bytes could not be read now"); werr != nil {
			return werr
		}
		return err
	}
	if len(f.msgs) == 0 {
		return e.record(context.WithoutCancel(ctx), f, nil, "failed")
	}
	if err := e.depart(ctx, f); err != nil {
		// Nothing of it has left: proven unsent.
		if werr := e.withdraw(context.WithoutCancel(ctx), f, "stopped before the send"); werr != nil {
			return werr
		}
		return err
	}
	return e.send(ctx, f)
}

// intend writes the intent, brings the items to REDRIVING and takes the slots, in one transaction (INV-INTENT, INV-APPROVED,
// INV-HALT, INV-PACE).
func (e *executor) intend(ctx context.Context, lines []Line, f *flight) error {
	ends, err := e.ends(ctx)
	if err != nil {
		return err
	}
	ids := make([]pipeline.ID, len(lines))
	for i := range lines {
		ids[i] = lines[i].Item
	}
	return e.s.db.Write(ctx, func(tx *ledger.Tx) error {
		if err := e.allowed(tx); err != nil {
			return err
		}
		if err := e.budget(tx, len(ids)); err != nil {
			return err
		}
		f.intent = custody.Intent{Tenant: e.m.Tenant, Manifest: e.digest, Run: e.run, Lease: e.lease, FromN: lines[0].N, ToN: lines[len(lines)-1].N, Offsets: ends}
		var skips []custody.Skip
		var err error
		f.items, skips, err = e.s.items.Intend(tx, e.who, &f.intent, ids, custody.Accept{Unconfirmed: e.m.Unconfirmed == accepted})
		if err != nil {
			return err
		}
		for _, k := range skips {
			if _, err := tx.Exec("UPDATE manifest_items SET state = ?, code = ? WHERE manifest = ? AND tenant = ? AND item = ?", itemSkipped, string(k.Code), e.digest, e.m.Tenant, k.Item); err != nil {
				return err
			}
		}
		if len(f.items) == 0 {
			f.slot = e.s.clock()
			return e.s.items.CloseIntent(tx, f.intent.ID, "sent")
		}
		f.slot, err = take(tx, e.s.clock().Add(e.lead), len(f.items), e.rows...)
		return err
	})
}

// budget refuses more attempts than the manifest allows.
func (e *executor) budget(tx *ledger.Tx, n int) error {
	var taken int64
	if _, err := tx.Row("SELECT taken FROM pace WHERE name = ?", []any{"run/" + string(e.digest)}, &taken); err != nil {
		return err
	}
	if taken+int64(n) > e.m.Pace.Budget {
		return &stopped{StateStopped, pipeline.Errorf(pipeline.CodeRedriveThreshold, string(e.digest), "its budget of %d attempts is used up", e.m.Pace.Budget)}
	}
	return nil
}

// freshEnds is how old the end offsets of an intent may be: older ones only make a successor scan further.
const freshEnds = 5 * time.Second

// ends are end offsets of the destination from before the window: a successor scans from there.
func (e *executor) ends(ctx context.Context) (map[pipeline.TP]int64, error) {
	if e.from != nil && e.s.clock().Sub(e.fromAt) < freshEnds {
		return e.from, nil
	}
	log, err := e.s.logOf(e.t.Cluster)
	if err != nil {
		return nil, err
	}
	info, err := log.Info(ctx, e.m.Destination)
	if err != nil {
		return nil, err
	}
	e.info = info
	out := make(map[pipeline.TP]int64, len(info.Partitions))
	for p, r := range info.Partitions {
		out[pipeline.TP{Topic: e.m.Destination, Partition: p}] = r.Next
	}
	e.from, e.fromAt = out, e.s.clock()
	return out, nil
}

// prepare makes the signed messages. An item that cannot be sent is noted, not dropped.
func (e *executor) prepare(ctx context.Context, f *flight) error {
	// What the ledger holds is read in one go, and what stands in source topics a partition at a time.
	changed := map[pipeline.ID]bool{}
	repairs := map[pipeline.ID]string{}
	var held, elsewhere []*custody.Item
	for _, it := range f.items {
		switch l := f.lines[it.ID]; {
		case it.Repair != l.Repair && (l.Repair != "" || it.SentFrom == custody.Repaired):
			changed[it.ID] = true
		case l.Repair != "" || it.Faithful == deadletter.Inline:
			repairs[it.ID] = l.Repair
			held = append(held, it)
		default:
			elsewhere = append(elsewhere, it)
		}
	}
	there, err := e.s.items.SourceBytes(ctx, elsewhere)
	if err != nil {
		return err
	}
	var found map[pipeline.ID]custody.Bytes
	var failed map[pipeline.ID]error
	if err := e.s.db.Read(ctx, func(tx *ledger.Tx) (err error) {
		found, failed, err = e.s.items.WindowBytes(tx, held, repairs)
		return err
	}); err != nil {
		return err
	}
	for _, it := range f.items {
		l := f.lines[it.ID]
		b, ok := found[it.ID]
		if !ok {
			b, ok = there[it.ID]
		}
		err := failed[it.ID]
		switch {
		case err != nil:
		case changed[it.ID]:
			err = pipeline.Errorf(pipeline.CodeStateChanged, string(it.ID), "its repair changed since the plan")
		case !ok && l.Repair == "" && it.Faithful != deadletter.Inline:
			b, err = e.s.items.Faithful(ctx, it)
		case !ok:
			err = pipeline.Errorf(pipeline.CodePayloadMissing, string(it.ID), "the ledger has no payload of it any more")
		}
		switch {
		case err != nil:
		case pipeline.Digest(e.s.id.Digest(b.Value)) != l.Digest: // INV-BYTES
			err = pipeline.Errorf(pipeline.CodePayloadUnfaithful, string(it.ID), "its bytes are not those that were planned")
		case b.Key == nil && e.info.Compacted:
			err = pipeline.Errorf(pipeline.CodeSendKeyless, string(it.ID), "the destination is compacted and the record has no key")
		case e.t.unreadable(ctx, e.scratch, &b):
			err = pipeline.Errorf(pipeline.CodeSchemaUnknown, string(it.ID), "its schema is gone: the pipeline could not read it")
		case tooFar(it, e.s.clock()):
			err = pipeline.Errorf(pipeline.CodeRedriveTime, string(it.ID), "its own time is more than ten years away")
		}
		var m pipeline.Message
		if err == nil {
			m, err = e.message(ctx, it, b, l.Repair != "")
		}
		if err != nil {
			if ctx.Err() != nil || pipeline.CodeOf(err) == "" {
				return err
			}
			f.failed = append(f.failed, failedItem{it.ID, pipeline.CodeOf(err), text(err)})
			continue
		}
		f.msgs = append(f.msgs, m)
		f.of = append(f.of, it)
	}
	return nil
}

// message is the record as it was, with its signed past: original key and headers, and the key's partition as Java producers
// choose it.
func (e *executor) message(ctx context.Context, it *custody.Item, b custody.Bytes, repaired bool) (pipeline.Message, error) {
	id := it.Identity
	if repaired && e.m.Identity.Policy == identityNew {
		var err error
		if id, err = e.t.identityOf(ctx, id, &b); err != nil {
			return pipeline.Message{}, err
		}
	}
	m := pipeline.Message{Topic: e.m.Destination, Partition: Partition(b.Key, int32(len(e.info.Partitions)), it.Original.Partition),
		Key: b.Key, Value: b.Value, From: -1}
	m.Headers = deadletter.PassHeaders(make([]pipeline.Header, 0, len(b.Headers)+24), b.Headers, false)
	tr := pipeline.Trail{Item: it.ID, Redrive: e.digest, Try: it.Try, Generation: it.Generation, Original: it.Original, OriginalMS: it.OriginalMS, TimeType: it.TimeType, Identity: id}
	return m, deadletter.AppendTrail(&m, &tr, id, nil, 0, e.s.ring)
}

// A window asks the ledger once more before it leaves, so early that the answer is there when its slot comes. A fast run, whose
// windows wait for milliseconds only, does so when one has waited for longWait: until then what was read with its intent is
// recent enough for the bound of one second (INV-HALT).
const (
	longWait = 100 * time.Millisecond
	fastRate = Rate(200)
	mostLead = 500 * time.Millisecond // how early it asks at most
	mostLate = 20                     // slots that one window may miss
)

// depart waits for the slot and looks once more whether it may go. A window that missed its slot takes another one, further
// ahead each time: a slow ledger costs speed, never exactness.
func (e *executor) depart(ctx context.Context, f *flight) error {
	asked := e.s.clock() // when the ledger last said yes
	for missed := 0; ; missed++ {
		if err := e.s.waitUntil(ctx, f.slot.Add(-e.lead)); err != nil {
			return err
		}
		if now := e.s.clock(); missed == 0 && e.rate <= fastRate || now.Sub(asked) >= longWait {
			if err := e.s.db.Write(ctx, func(tx *ledger.Tx) error { return e.allowed(tx) }); err != nil {
				return err
			}
			asked = e.s.clock()
			e.lead = min(max(e.lead, asked.Sub(now)), mostLead)
		}
		if err := e.s.waitUntil(ctx, f.slot); err != nil {
			return err
		}
		if err := e.s.boardHalted(e.m.Pipeline); err != nil { // INV-HALT
			return err
		}
		behind := e.s.clock().Sub(f.slot)
		if behind <= late {
			e.lead -= e.lead / 8
			return nil
		}
		if missed == mostLate {
			return &stopped{StateStopped, pipeline.Errorf(pipeline.CodeRedriveRate, string(e.digest), "the ledger is too slow to keep %s exactly", e.rate)}
		}
		e.lead = min(2*max(e.lead, behind), mostLead)
		if err := e.s.db.Write(ctx, func(tx *ledger.Tx) (err error) {
			if err = e.allowed(tx); err != nil {
				return err
			}
			if err = untake(tx, len(f.items), e.rows...); err == nil {
				f.slot, err = take(tx, e.s.clock().Add(e.lead), len(f.items), e.rows...)
			}
			return err
		}); err != nil {
			return err
		}
		asked = e.s.clock()
	}
}

// allowed refuses to go on when the lease is lost, the run was stopped, redrives are halted, no approval is valid any more, or its
// rate is not (INV-APPROVED, INV-HALT).
func (e *executor) allowed(tx *ledger.Tx) error {
	if _, err := e.guard(tx); err != nil {
		return err
	}
	if _, err := e.s.approved(tx, e.m, e.digest); err != nil {
		return err
	}
	if e.rate > e.s.bound {
		return e.paced(tx)
	}
	return nil
}

// send hands the window over and waits for its completion, also when ctx ends meanwhile: what is in flight completes.
func (e *executor) send(ctx context.Context, f *flight) error {
	done := context.WithoutCancel(ctx)
	at := e.s.clock()
	msgs, of := f.msgs, f.of
	for i := range msgs { // the present as its time, or the broker's retention would take it away
		msgs[i].TimeMS = at.UnixMilli()
	}
	for {
		if e.tx != nil {
			if err := e.tx.Begin(); err != nil {
				return e.unsent(done, f, err)
			}
		}
		sending := &pipeline.Sending{Msgs: msgs}
		for {
			err := e.sink.Send(sending)
			if err == nil {
				break
			}
			if err != pipeline.ErrFull {
				e.abort(done)
				return e.unsent(done, f, err)
			}
			if err := e.s.wait(done, 5*time.Millisecond); err != nil {
				e.abort(done)
				return e.unsent(done, f, err)
			}
		}
		back, err := e.completed(done, sending)
		if err != nil {
			return err // the intent stays open
		}
		good, goodOf, refusedNow, unsure := e.sort(back, of, f)
		if e.tx == nil {
			e.slow = max(e.slow, e.s.clock().Sub(at))
			if err := e.record(done, f, f.sentAt(good, goodOf), "sent"); err != nil {
				return err
			}
			if unsure > 0 {
				return pipeline.Errorf(pipeline.CodeRedriveUncertain, string(e.digest), "%d items were not acknowledged: they may have been sent", unsure)
			}
			return nil
		}
		if refusedNow+unsure > 0 { // all or nothing: again without those that were refused
			if err := e.tx.Abort(done); err != nil {
				return pipeline.Errorf(pipeline.CodeRedriveUncertain, string(e.digest), "the transaction could not be aborted: %w", err)
			}
			if unsure > 0 {
				return e.unsent(done, f, pipeline.Errorf(pipeline.CodeTxAborted, string(e.digest), "the destination did not acknowledge; the transaction was aborted"))
			}
			if len(good) == 0 {
				return e.record(done, f, nil, "failed")
			}
			msgs, of = good, goodOf
			continue
		}
		if err := e.tx.Commit(done, nil, nil); err != nil {
			if pipeline.CodeOf(err) == pipeline.CodeTxAborted {
				return e.unsent(done, f, err)
			}
			return pipeline.Errorf(pipeline.CodeRedriveUncertain, string(e.digest), "the transaction's end is not known: %w", err)
		}
		e.slow = max(e.slow, e.s.clock().Sub(at))
		return e.record(done, f, f.sentAt(good, goodOf), "sent")
	}
}

func (e *executor) abort(ctx context.Context) {
	if e.tx != nil {
		if err := e.tx.Abort(ctx); err != nil {
			e.s.log.Warn("a transaction could not be aborted", "manifest", e.digest, "code", pipeline.CodeOf(err))
		}
	}
}

// completed waits for one Sending. The producer's own timeout ends it; if even that does not come, the lease does.
func (e *executor) completed(ctx context.Context, want *pipeline.Sending) (*pipeline.Sending, error) {
	limit, cancel := context.WithCancel(ctx)
	defer cancel()
	expired := make(chan struct{})
	go func() {
		defer close(expired)
		e.s.wait(limit, 2*e.s.lease)
	}()
	for {
		select {
		case s := <-e.sink.Done():
			if s == want {
				cancel()
				<-expired
				return s, nil
			}
		case <-expired:
			return nil, pipeline.Errorf(pipeline.CodeRedriveUncertain, string(e.digest), "the destination did not answer: its items may have been sent")
		}
	}
}

// sort parts a completed Sending: acknowledged messages, those that the broker refused for good (noted in f), and how many may
// or may not have been written.
func (e *executor) sort(s *pipeline.Sending, of []*custody.Item, f *flight) (good []pipeline.Message, goodOf []*custody.Item, refused, unsure int) {
	bad := 0
	for i := range s.Msgs {
		if bad < len(s.Bad) && s.Bad[bad].Msg == i {
			fail := &s.Bad[bad].Failure
			bad++
			switch c := pipeline.Lookup(fail.Code); c.Class {
			case pipeline.Transient, pipeline.Ambiguous:
				unsure++
			default:
				refused++
				f.failed = append(f.failed, failedItem{of[i].ID, fail.Code, fail.Reason()})
			}
			continue
		}
		good = append(good, s.Msgs[i])
		goodOf = append(goodOf, of[i])
	}
	return good, goodOf, refused, unsure
}

func (f *flight) sentAt(msgs []pipeline.Message, of []*custody.Item) []custody.SentAt {
	out := make([]custody.SentAt, len(msgs))
	for i := range msgs {
		out[i] = custody.SentAt{N: f.lines[of[i].ID].N, Item: of[i].ID, At: pipeline.Position{TP: pipeline.TP{Topic: msgs[i].Topic, Partition: msgs[i].Partition}, Offset: msgs[i].Offset}}
	}
	return out
}

// record writes the result of a window: positions, failures, and the end of the intent unless some items are in doubt.
func (e *executor) record(ctx context.Context, f *flight, sent []custody.SentAt, state string) error {
	return e.s.db.Write(ctx, func(tx *ledger.Tx) error {
		if err := e.mine(tx); err != nil {
			return err
		}
		for _, x := range f.failed {
			if _, err := e.s.items.FailRedrive(tx, e.who, e.digest, []pipeline.ID{x.id}, x.code, map[string]string{"why": x.why, "run": e.run}); err != nil {
				return err
			}
			if _, err := tx.Exec("UPDATE manifest_items SET attempts = attempts + 1 WHERE manifest = ? AND tenant = ? AND item = ?", e.digest, e.m.Tenant, x.id); err != nil {
				return err
			}
		}
		if err := e.s.items.Sent(tx, e.digest, e.m.Tenant, sent); err != nil {
			return err
		}
		if len(sent)+len(f.failed) < len(f.items) {
			return nil // INV-UNCERTAIN: the intent stays open for those in doubt
		}
		return e.s.items.CloseIntent(tx, f.intent.ID, state)
	})
}

// mine refuses to write results when somebody else took the lease since: they decide about the window then. A lease that only ran
// out, because a send took long, is still ours.
func (e *executor) mine(tx *ledger.Tx) error {
	var holder string
	var epoch int64
	if _, err := tx.Row("SELECT holder, epoch FROM leases WHERE name = ?"+tx.ForUpdate(), []any{e.lease.Name}, &holder, &epoch); err != nil {
		return err
	}
	if holder != e.lease.Holder || epoch != e.lease.Epoch {
		return pipeline.Errorf(pipeline.CodeRedriveState, string(e.digest), "the lease went to %s", holder)
	}
	return nil
}

// unsent withdraws a window of which nothing was taken, and stops the run with cause.
func (e *executor) unsent(ctx context.Context, f *flight, cause error) error {
	if err := e.withdraw(ctx, f, "the sink did not take it"); err != nil {
		return err
	}
	return cause
}

// withdraw brings the items of a window that provably did not leave back to where they came from: a later run may send them.
func (e *executor) withdraw(ctx context.Context, f *flight, why string) error {
	failed := map[pipeline.ID]bool{}
	for _, x := range f.failed {
		failed[x.id] = true
	}
	ids := make([]pipeline.ID, 0, len(f.items))
	for _, it := range f.items {
		if !failed[it.ID] {
			ids = append(ids, it.ID)
		}
	}
	if err := e.s.db.Write(ctx, func(tx *ledger.Tx) error {
		if err := e.mine(tx); err != nil {
			return err
		}
		if _, _, err := e.s.items.Withdraw(tx, e.who, e.digest, ids, why); err != nil {
			return err
		}
		if err := untake(tx, len(ids), e.rows...); err != nil {
			return err
		}
		in, arg := tx.In("item", idTexts(ids))
		if _, err := tx.Exec("UPDATE manifest_items SET state = ? WHERE manifest = ? AND tenant = ? AND "+in, itemPlanned, e.digest, e.m.Tenant, arg); err != nil {
			return err
		}
		if len(f.failed) > 0 {
			return nil // record closes the intent
		}
		return e.s.items.CloseIntent(tx, f.intent.ID, "withdrawn")
	}); err != nil {
		return err
	}
	if len(f.failed) > 0 {
		f.items = f.items[:0]
		return e.record(ctx, f, nil, "withdrawn")
	}
	return nil
}

func idTexts(ids []pipeline.ID) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = string(id)
	}
	return out
}

// thresholds stops the run before the next window when a rule of the manifest is crossed.
func (e *executor) thresholds(ctx context.Context) error {
	if e.stop.Latency != "" {
		if most, err := time.ParseDuration(e.stop.Latency); err == nil && e.slow > most {
			return e.crossed("an acknowledgement took %s, more than %s", e.slow, most)
		}
	}
	var failed, twice int64
	watch := e.stop.Duplicates >= 0 && e.s.clock().Sub(e.watched) >= time.Second
	if err := e.s.db.Read(ctx, func(tx *ledger.Tx) (err error) {
		if _, err = tx.Row("SELECT count(*) FROM manifest_items WHERE manifest = ? AND state = ? AND tenant = ?", []any{e.digest, itemFailed, e.m.Tenant}, &failed); err != nil || !watch {
			return err
		}
		_, err = tx.Row("SELECT count(*) FROM outcomes WHERE redrive = ? AND tenant = ? AND result = 'already_applied'", []any{e.digest, e.m.Tenant}, &twice)
		return err
	}); err != nil {
		return err
	}
	if watch {
		e.watched = e.s.clock()
	}
	if e.stop.Failures >= 0 && failed > e.stop.Failures {
		return e.crossed("%d items failed, more than the tolerated %d", failed, e.stop.Failures)
	}
	if e.stop.Duplicates >= 0 && twice > e.stop.Duplicates {
		return e.crossed("%d effects existed already, more than the tolerated %d", twice, e.stop.Duplicates)
	}
	return nil
}

func (e *executor) crossed(format string, args ...any) error {
	return &stopped{StateStopped, pipeline.Errorf(pipeline.CodeRedriveThreshold, string(e.digest), format, args...)}
}
