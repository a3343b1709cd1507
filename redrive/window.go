package redrive

import (
	"context"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

// flight is one window on its way.
type flight struct {
	lines  map[pipeline.ID]Line
	intent custody.Intent
	items  []*custody.Item // REDRIVING under the intent
	slot   time.Time
	rows   []paceRow // that its slots were taken from
	asked  time.Time // when the ledger last said that it may leave
	msgs   []pipeline.Message
	of     []*custody.Item // item of each message
	failed []failedItem
}

type failedItem struct {
	id   pipeline.ID
	code pipeline.Code
	why  string
}

// sendAll sends those of the lines that are still planned, window by window, in order.
func (e *executor) sendAll(ctx context.Context, idx []int, states []string) error {
	next := e.windows(idx, states)
	f, err := e.ready(ctx, next, true)
	for err == nil && f != nil {
		if err := e.depart(ctx, f); err != nil {
			return e.back(ctx, f, "stopped before the send", err) // nothing of it has left: proven unsent
		}
		f, err = e.pass(ctx, f, next)
	}
	return err
}

// windows cuts what is planned into windows; one without lines is the end.
func (e *executor) windows(idx []int, states []string) func() []Line {
	return func() []Line {
		var lines []Line
		for len(idx) > 0 && len(lines) < e.window {
			at := idx[0]
			idx = idx[1:]
			if states[at] != itemPlanned || e.lines[at].Newer != "" {
				continue
			}
			states[at] = itemSending
			lines = append(lines, e.lines[at])
		}
		return lines
	}
}

// pass sends a window and makes the next one ready. A fast run does both at once: at most one more intent is open then, and its
// window leaves only after the one before has its result and no threshold is crossed.
func (e *executor) pass(ctx context.Context, f *flight, next func() []Line) (*flight, error) {
	if e.rate <= fastRate { // the next one would only wait for its slot
		if err := e.send(ctx, f); err != nil {
			return nil, err
		}
		return e.ready(ctx, next, true)
	}
	ahead, cancel := context.WithCancel(ctx)
	defer cancel()
	sent := beside(func() error {
		err := e.send(ctx, f)
		if err != nil {
			cancel()
		}
		return err
	})
	defer sent() // nothing is left behind, whatever happens here
	g, err := e.ready(ahead, next, false)
	if serr := sent(); serr != nil {
		err = serr
	}
	if err == nil && g != nil {
		err = e.thresholds(ctx)
	}
	if err != nil && g != nil {
		if werr := e.withdraw(context.WithoutCancel(ctx), g, "the window before it stopped the run"); werr != nil { // its intent stays open
			e.s.log.Warn("a window could not be withdrawn", "manifest", e.digest, "code", pipeline.CodeOf(werr))
		}
		return nil, err
	}
	return g, err
}

// beside runs f while the caller does something else. wait waits for it and gives its error; a panic of f is one of who waits.
func beside(f func() error) (wait func() error) {
	done := make(chan struct{})
	var err error
	var broken any
	go func() {
		defer close(done)
		defer func() { broken = recover() }()
		err = f()
	}()
	return func() error {
		<-done
		if broken != nil {
			panic(broken)
		}
		return err
	}
}

// ready takes the next window from planned to a message for each of its items: thresholds, live lane, questions, intent, bytes. nil
// is the end. After an intent is durable it always ends with a result, or stays open for resume to ask about. With watch, thresholds are
// judged before the intent: nothing is on its way that could still cross one.
func (e *executor) ready(ctx context.Context, next func() []Line, watch bool) (*flight, error) {
	for {
		lines := next()
		if len(lines) == 0 {
			return nil, nil
		}
		if watch {
			if err := e.thresholds(ctx); err != nil {
				return nil, err
			}
		}
		if err := e.yield(ctx); err != nil {
			return nil, err
		}
		if err := e.askAlong(ctx); err != nil {
			return nil, err
		}
		lines, err := e.askFirst(ctx, lines)
		if err != nil {
			return nil, err
		}
		if len(lines) == 0 {
			continue
		}
		f := &flight{lines: make(map[pipeline.ID]Line, len(lines))}
		for _, l := range lines {
			f.lines[l.Item] = l
		}
		if err := e.intend(ctx, lines, f); err != nil {
			return nil, err
		}
		if err := e.prepare(ctx, f); err != nil {
			f.failed = nil
			return nil, e.back(ctx, f, "its bytes could not be read now", err)
		}
		if len(f.msgs) > 0 {
			return f, nil
		}
		if err := e.record(context.WithoutCancel(ctx), f, nil, "failed"); err != nil {
			return nil, err
		}
	}
}

// back withdraws a window of which nothing has left, and returns why.
func (e *executor) back(ctx context.Context, f *flight, why string, cause error) error {
	if err := e.withdraw(context.WithoutCancel(ctx), f, why); err != nil {
		return err
	}
	return cause
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
		// Last, so that what holds the lease holds up nobody for long: the window before notes its result meanwhile.
		f.asked = e.s.clock()
		if err := e.allowed(tx); err != nil {
			return err
		}
		if err := e.budget(tx, len(f.items)); err != nil {
			return err
		}
		if len(f.items) == 0 {
			return e.s.items.CloseIntent(tx, f.intent.ID, "sent")
		}
		f.rows = e.rows
		f.slot, err = take(tx, e.s.clock().Add(e.lead), len(f.items), f.rows...)
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
