package redrive

import (
	"context"
	"errors"
	"strconv"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
)

// poll is how often an executor looks for evidence while it waits, more often at first: a fast lane has it within milliseconds.
const (
	firstPoll = 25 * time.Millisecond
	poll      = 200 * time.Millisecond
)

// executor runs one manifest under one lease.
type executor struct {
	s      *Service
	who    custody.Actor
	t      *Target
	m      *Manifest
	digest pipeline.Digest
	run    string
	lines  []Line
	lease  ledger.Lease
	sink   pipeline.Sink
	tx     pipeline.Tx // the sink, when it is transactional
	close  func(context.Context) error
	info   pipeline.TopicInfo
	rows   []paceRow
	rate   Rate
	window int
	stop   Stop
	state  State

	lead     time.Duration // how long the ledger takes to answer: slots are taken so far ahead
	slow     time.Duration // longest acknowledgement seen
	watched  time.Time     // when duplicates were last counted
	patience time.Duration // how long it waits before it looks for evidence again
	scratch  *codec.Scratch
	asked    time.Time // when it last asked about what was sent
	looked   time.Time // when the live lane was last looked at
	yields   string    // why nothing is sent now; "" is not so
	from     map[pipeline.TP]int64
	fromAt   time.Time // when from was read
}

// stopped ends a run without an error of ours: the manifest says why.
type stopped struct {
	state State
	err   error
}

func (s *stopped) Error() string { return s.err.Error() }
func (s *stopped) Unwrap() error { return s.err }

// Run executes an approved manifest: canary, its reconciliation, the rest, and the judgement. It blocks until the run has an
// end, is stopped, or ctx ends; then the window in flight completes and what was not sent stays planned. Codes:
// ERR_PERMISSION_DENIED, ERR_MANIFEST_UNKNOWN, ERR_MANIFEST_DIGEST, ERR_REDRIVE_STATE (not approved, or another executor has
// the lease), ERR_APPROVAL_*, ERR_REDRIVE_HALTED, ERR_REDRIVE_UNCERTAIN (a killed run: resume it), ERR_TOPIC_MISSING.
func (s *Service) Run(ctx context.Context, who custody.Actor, digest pipeline.Digest) (*Status, error) {
	e, tenant, err := s.begin(ctx, who, digest)
	if pipeline.CodeOf(err) == pipeline.CodeRedriveUncertain && s.fenced {
		// The dead executor was transactional: once it is fenced, the destination tells exactly what it has sent.
		if _, err = s.Resume(ctx, who, digest, Decision{Scan: true, Reason: "the earlier executor was fenced"}); err == nil {
			e, tenant, err = s.begin(ctx, who, digest)
		}
	}
	if err != nil {
		return nil, s.refused(ctx, who, "run", string(digest), tenant, err)
	}
	err = e.work(ctx)
	if cerr := e.close(context.WithoutCancel(ctx)); cerr != nil {
		s.log.Warn("the sink of a redrive did not close", "manifest", digest, "code", pipeline.CodeOf(cerr))
	}
	err = e.end(context.WithoutCancel(ctx), err)
	st, serr := s.Status(context.WithoutCancel(ctx), who, digest)
	if err == nil {
		err = serr
	}
	return st, err
}

// begin checks everything, takes the lease and opens the sink.
func (s *Service) begin(ctx context.Context, who custody.Actor, digest pipeline.Digest) (*executor, string, error) {
	o, err := s.open(ctx, who, custody.PermExecute, digest)
	if err != nil {
		return nil, "", err
	}
	m := o.m
	t, err := s.target(m.Pipeline)
	if err != nil {
		return nil, m.Tenant, err
	}
	if err := t.allows(m.Destination); err != nil {
		return nil, m.Tenant, err
	}
	if err := t.compensation(); err != nil {
		return nil, m.Tenant, err
	}
	rate, err := ParseRate(m.Pace.Rate)
	if err != nil {
		return nil, m.Tenant, err
	}
	e := &executor{s: s, who: who, scratch: codec.NewScratch(), t: t, m: m, digest: digest, stop: m.Stop, rate: rate, window: rate.window(max(1, m.Pace.Window)), close: func(context.Context) error { return nil }}
	log, err := s.logOf(t.Cluster)
	if err != nil {
		return nil, m.Tenant, err
	}
	if e.info, err = log.Info(ctx, m.Destination); err != nil { // a redrive never creates a topic
		return nil, m.Tenant, err
	}
	if s.send == nil {
		return nil, m.Tenant, pipeline.Errorf(pipeline.CodeConfigReference, t.Cluster, "this process has no producer for redrives")
	}
	err = s.db.Write(ctx, func(tx *ledger.Tx) error {
		row, err := lockManifest(tx, digest)
		if err != nil {
			return err
		}
		if err := s.startable(tx, row, m); err != nil {
			return err
		}
		if _, err := s.approved(tx, m, digest); err != nil {
			return err
		}
		if err := s.halted(tx, m.Pipeline); err != nil {
			return err
		}
		if err := e.paced(tx); err != nil {
			return err
		}
		l, ok, err := tx.Lease("redrive/"+string(digest), s.name+"/"+randomID(""), s.lease)
		if err != nil {
			return err
		}
		if !ok {
			return pipeline.Errorf(pipeline.CodeRedriveState, string(digest), "%s works on it until %s", l.Holder, stamp(l.Until)).With(leased)
		}
		e.lease = l
		if err := endIntents(tx, m, digest); err != nil { // of a killed run: startable has seen that nothing of them is in doubt
			return err
		}
		if e.lines, err = readLines(tx, m, digest); err != nil {
			return err
		}
		if err := m.verifyLines(digest, e.lines); err != nil {
			return err
		}
		if row.Run == "" {
			row.Run = randomID("r")
		}
		e.run = row.Run
		e.state = StateCanary
		tx.Append(ledger.Entry{Tenant: m.Tenant, Event: "redrive_started", Actor: who.Subject,
			Detail: map[string]string{"manifest": string(digest), "run": row.Run, "executor": l.Holder, "epoch": decimal(l.Epoch), "rate": m.Pace.Rate, "via": who.Via}})
		return row.to(tx, StateCanary, "")
	})
	if err != nil {
		return nil, m.Tenant, err
	}
	sink, done, err := s.send(ctx, t, e.lease)
	if err != nil {
		err = e.end(context.WithoutCancel(ctx), err)
		return nil, m.Tenant, err
	}
	e.sink = sink
	e.tx, _ = sink.(pipeline.Tx)
	if done != nil {
		e.close = done
	}
	return e, m.Tenant, nil
}

// paced sets the rows that the run takes its slots from, and refuses a rate that is not allowed any more: what two people have
// signed expires.
func (e *executor) paced(tx *ledger.Tx) error {
	most, err := e.s.rate(tx, e.t, 0)
	if err != nil {
		return err
	}
	if e.rate > most {
		_, err = e.s.rate(tx, e.t, e.rate)
		return err
	}
	if e.rows, err = e.s.rows(e.t, e.m, e.digest, most); err != nil {
		return err
	}
	for _, r := range e.rows {
		e.window = min(e.window, r.rate.window(MaxWindow))
	}
	return nil
}

// startable refuses a manifest that cannot be started in its state.
func (s *Service) startable(tx *ledger.Tx, row *manifestRow, m *Manifest) error {
	switch row.State {
	case StateApproved, StateStopped, StateCanary, StateRunning, StateSettling:
	case StatePlanned:
		return pipeline.Errorf(pipeline.CodeDryRunRequired, string(row.Digest), "nobody has seen what it would do")
	case StateDryRun:
		if _, err := s.approved(tx, m, row.Digest); err != nil {
			return err
		}
		return pipeline.Errorf(pipeline.CodeApprovalMissing, string(row.Digest), "nobody has approved it")
	case StateUnclear:
		return uncertain(row.Digest, -1)
	default:
		return pipeline.Errorf(pipeline.CodeRedriveState, string(row.Digest), "it is %s", row.State)
	}
	var open int64
	if _, err := tx.Row("SELECT count(*) FROM intents WHERE manifest = ? AND tenant = ? AND state = 'open'", []any{row.Digest, row.Tenant}, &open); err != nil {
		return err
	}
	if open == 0 {
		return nil
	}
	var until int64
	if _, err := tx.Row("SELECT until_ms FROM leases WHERE name = ?", []any{"redrive/" + string(row.Digest)}, &until); err != nil {
		return err
	}
	if until > tx.NowMS() {
		return pipeline.Errorf(pipeline.CodeRedriveState, string(row.Digest), "another executor is sending").With(leased)
	}
	// Evidence may have come for all that a killed run was sending: then nobody is left to be asked about.
	if _, err := tx.Row(`SELECT count(*) FROM intents n WHERE n.manifest = ? AND n.tenant = ? AND n.state = 'open' AND EXISTS
		(SELECT 1 FROM manifest_items m JOIN items i ON i.id = m.item AND i.tenant = m.tenant WHERE m.manifest = n.manifest AND m.tenant = n.tenant
		AND m.state IN (?, ?) AND m.n >= n.from_n AND m.n <= n.to_n AND i.state = 'REDRIVING' AND i.redrive = m.manifest)`,
		[]any{row.Digest, row.Tenant, itemPlanned, itemSending}, &open); err != nil || open == 0 {
		return err
	}
	return uncertain(row.Digest, open) // INV-UNCERTAIN
}

// leased is what to do about a manifest that an executor holds: it prolongs its lease while it lives.
const leased = "See reprieve redrive status. If that run was killed, wait until its time is over, then go on: reprieve redrive resume."

func uncertain(digest pipeline.Digest, windows int64) error {
	text := "an earlier run ended in the middle of a window: some of its items may have been sent"
	if windows > 1 {
		text = "an earlier run ended in the middle of " + strconv.FormatInt(windows, 10) + " windows: some of their items may have been sent"
	}
	return pipeline.Errorf(pipeline.CodeRedriveUncertain, string(digest), "%s", text)
}

// work sends the canary, has it reconciled, and sends the rest.
func (e *executor) work(ctx context.Context) error {
	states, of, err := e.progress(ctx)
	if err != nil {
		return err
	}
	if err := e.canary(ctx, states, of); err != nil {
		return err
	}
	if err := e.move(ctx, StateRunning, ""); err != nil {
		return err
	}
	rest := make([]int, len(e.lines))
	for i := range rest {
		rest[i] = i
	}
	if err := e.sendAll(ctx, rest, states); err != nil {
		return err
	}
	if err := e.move(ctx, StateSettling, ""); err != nil {
		return err
	}
	return e.settle(ctx)
}

// progress reads where each line stands, and what a canary has to cover.
func (e *executor) progress(ctx context.Context) (states []string, of []traits, err error) {
	states, of = make([]string, len(e.lines)), make([]traits, len(e.lines))
	n := int32(len(e.info.Partitions))
	err = e.s.db.Read(ctx, func(tx *ledger.Tx) error {
		return tx.Each(`SELECT m.n, m.state, i.fingerprint, i.partition, coalesce(rp.record_key, p.record_key)
			FROM manifest_items m JOIN items i ON i.id = m.item AND i.tenant = m.tenant
			LEFT JOIN payloads p ON p.item = i.id AND p.week = i.payload_week
			LEFT JOIN repair_payloads rp ON rp.repair = m.repair AND m.repair <> ''
			WHERE m.manifest = ? AND m.tenant = ? ORDER BY m.n`, []any{e.digest, e.m.Tenant}, func(scan func(...any) error) error {
			var at int64
			var state, print string
			var from int32
			var key []byte
			if err := scan(&at, &state, &print, &from, &key); err != nil {
				return err
			}
			if at < 1 || at > int64(len(e.lines)) {
				return pipeline.Errorf(pipeline.CodeManifestDigest, string(e.digest), "its items are not those that were frozen")
			}
			states[at-1] = state
			of[at-1] = traits{Partition(key, n, from), print}
			return nil
		})
	})
	return states, of, err
}

// move changes the manifest's state while the lease is ours.
func (e *executor) move(ctx context.Context, to State, detail string) error {
	return e.s.db.Write(ctx, func(tx *ledger.Tx) error {
		row, err := e.guard(tx)
		if err != nil {
			return err
		}
		e.state = to
		return row.to(tx, to, detail)
	})
}

// guard renews the lease and refuses to go on when it is lost, the run was stopped or redrives are halted.
func (e *executor) guard(tx *ledger.Tx) (*manifestRow, error) {
	l, ok, err := tx.Lease(e.lease.Name, e.lease.Holder, e.s.lease)
	if err != nil {
		return nil, err
	}
	if !ok || l.Epoch != e.lease.Epoch {
		return nil, pipeline.Errorf(pipeline.CodeRedriveState, string(e.digest), "the lease went to %s", l.Holder)
	}
	row, err := lockManifest(tx, e.digest)
	if err != nil {
		return nil, err
	}
	if row.State == StateStopped {
		return nil, &stopped{StateStopped, pipeline.Errorf(pipeline.CodeRedriveState, string(e.digest), "it was stopped: %s", row.Detail)}
	}
	if row.State != e.state {
		return nil, pipeline.Errorf(pipeline.CodeRedriveState, string(e.digest), "it became %s meanwhile", row.State)
	}
	if err := e.s.halted(tx, e.m.Pipeline); err != nil { // INV-HALT
		return nil, err
	}
	return row, nil
}

// end writes how the run ended and gives the lease back. A stop is no error of the program; the code comes back with it.
func (e *executor) end(ctx context.Context, cause error) error {
	state := StateStopped
	detail := ""
	var st *stopped
	switch code := pipeline.CodeOf(cause); {
	case cause == nil:
		state = ""
	case asStopped(cause, &st):
		state, detail = st.state, text(st.err)
	case code == pipeline.CodeRedriveUncertain:
		state, detail = StateUnclear, text(cause)
	case errors.Is(cause, context.Canceled):
		detail = detailPaused
	default:
		detail = text(cause)
	}
	err := e.s.db.Write(ctx, func(tx *ledger.Tx) error {
		if err := tx.Unlease(e.lease); err != nil {
			return err
		}
		if state == "" {
			return nil
		}
		row, err := lockManifest(tx, e.digest)
		if err != nil {
			return err
		}
		if row.State.Final() || row.State == StateStopped || row.State == StateUnclear {
			return nil
		}
		if code := pipeline.CodeOf(cause); code == pipeline.CodeTxFenced || code == pipeline.CodeRedriveState && st == nil {
			return nil // somebody else works on it: not ours to say
		}
		tx.Append(ledger.Entry{Tenant: e.m.Tenant, Event: "redrive_stopped", Actor: e.who.Subject,
			Detail: map[string]string{"manifest": string(e.digest), "run": e.run, "state": string(state), "code": string(pipeline.CodeOf(cause)), "why": detail}})
		return row.to(tx, state, detail)
	})
	if cause != nil {
		return cause
	}
	return err
}

func asStopped(err error, st **stopped) bool {
	s, ok := err.(*stopped)
	if ok {
		*st = s
	}
	return ok
}

// Stop ends a run from outside: its executor sends no further window. Codes: ERR_PERMISSION_DENIED, ERR_REASON_MISSING,
// ERR_REDRIVE_STATE.
func (s *Service) Stop(ctx context.Context, who custody.Actor, digest pipeline.Digest, reason string) error {
	o, err := s.open(ctx, who, custody.PermExecute, digest)
	if err != nil {
		return s.refused(ctx, who, "stop", string(digest), "", err)
	}
	if reason == "" {
		return pipeline.Errorf(pipeline.CodeReasonMissing, string(digest), "say why it is stopped")
	}
	return s.db.Write(ctx, func(tx *ledger.Tx) error {
		row, err := lockManifest(tx, digest)
		if err != nil {
			return err
		}
		switch row.State {
		case StateCanary, StateRunning, StateApproved:
		default:
			return pipeline.Errorf(pipeline.CodeRedriveState, string(digest), "it is %s", row.State)
		}
		tx.Append(ledger.Entry{Tenant: o.m.Tenant, Event: "redrive_stopped", Actor: who.Subject, Detail: map[string]string{"manifest": string(digest), "run": row.Run, "why": reason, "via": who.Via}})
		return row.to(tx, StateStopped, reason)
	})
}
