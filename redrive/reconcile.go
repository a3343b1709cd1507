package redrive

import (
	"context"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

// awaitCanary waits until every canary item has its evidence. One that came back stops the run: the rest would come back too.
// False: none of them could be sent, so nothing is proven.
func (e *executor) awaitCanary(ctx context.Context, idx []int) (proven bool, err error) {
	deadline := e.s.clock().Add(e.s.settle)
	e.patience = firstPoll
	in := make(map[int64]bool, len(idx))
	for _, i := range idx {
		in[e.lines[i].N] = true
	}
	for {
		var open, reconciled, returned int
		if err := e.s.db.Read(ctx, func(tx *ledger.Tx) error {
			open, reconciled, returned = 0, 0, 0
			return tx.Each("SELECT n, state, sent_offset, attempts FROM manifest_items WHERE manifest = ? AND tenant = ? AND n <= ?",
				[]any{e.digest, e.m.Tenant, e.lines[idx[len(idx)-1]].N}, func(scan func(...any) error) error {
					var n, at, attempts int64
					var state string
					if err := scan(&n, &state, &at, &attempts); err != nil || !in[n] {
						return err
					}
					switch state {
					case itemReconciled:
						if attempts > 0 { // resolved without a send is no proof that sends work
							reconciled++
						}
					case itemFailed:
						if at >= 0 {
							returned++
						}
					case itemSkipped, itemWithdrawn:
					default:
						open++
					}
					return nil
				})
		}); err != nil {
			return false, err
		}
		switch {
		case returned > 0:
			return false, e.crossed("%d items of the canary failed again", returned)
		case open == 0:
			return reconciled > 0, e.thresholds(ctx)
		case !e.s.clock().Before(deadline):
			return false, e.crossed("%d items of the canary were not reconciled within %s", open, e.s.settle)
		}
		if err := e.pause(ctx); err != nil {
			return false, err
		}
	}
}

// pause asks about forwarded items, waits a little, and looks whether the run may go on.
func (e *executor) pause(ctx context.Context) error {
	if err := e.s.ask(ctx, e.who, e.t, e.m, e.digest, askMost); err != nil {
		return err
	}
	if err := e.s.wait(ctx, e.patience); err != nil {
		return err
	}
	e.patience = min(2*e.patience, poll)
	return e.s.db.Write(ctx, func(tx *ledger.Tx) error {
		_, err := e.guard(tx)
		return err
	})
}

// settle waits for the evidence of everything that was sent, then judges. Evidence that only people or other systems give may
// take longer than an executor waits: the manifest then stays SETTLING, and Judge ends it later.
func (e *executor) settle(ctx context.Context) error {
	j := judge{s: e.s, t: e.t, m: e.m, digest: e.digest}
	deadline := e.s.clock().Add(e.s.settle)
	e.patience = firstPoll
	for {
		if err := e.superseded(ctx); err != nil {
			return err
		}
		ended, err := j.look(ctx)
		if err != nil || ended {
			return err
		}
		if !e.s.clock().Before(deadline) {
			return nil
		}
		if err := e.pause(ctx); err != nil {
			return err
		}
	}
}

// judge decides whether a run reconciles. It is patient: an item without a word is a mismatch only when nothing more can be
// on its way.
type judge struct {
	s      *Service
	t      *Target
	m      *Manifest
	digest pipeline.Digest
	ends   map[string]map[pipeline.TP]int64 // ends of the watched topics, taken after the last settlement
}

// look judges if it can. False: the evidence is not complete.
func (j *judge) look(ctx context.Context) (ended bool, err error) {
	passed, err := j.passed(ctx) // before the counts: what arrived until then is in them
	if err != nil {
		return false, err
	}
	var c Counts
	if err := j.s.db.Read(ctx, func(tx *ledger.Tx) (err error) {
		c, err = counts(tx, j.digest, j.m.Tenant)
		return err
	}); err != nil {
		return false, err
	}
	if c.Planned > 0 || c.Sending > 0 || c.Sent > 0 && !passed || c.Forwarded > 0 {
		return false, nil
	}
	return true, j.verdict(ctx, c)
}

// passed tells whether the custodian has read everything that can speak about the items: first the retry lane must have settled
// the last of them, then the ends of all topics of evidence are taken, then the custodian must have passed those.
func (j *judge) passed(ctx context.Context) (bool, error) {
	if j.ends == nil {
		last := map[pipeline.TP]int64{}
		if err := j.s.db.Read(ctx, func(tx *ledger.Tx) error {
			return tx.Each("SELECT sent_topic, sent_partition, max(sent_offset) FROM manifest_items WHERE manifest = ? AND tenant = ? AND sent_offset >= 0 GROUP BY sent_topic, sent_partition",
				[]any{j.digest, j.m.Tenant}, func(scan func(...any) error) error {
					var tp pipeline.TP
					var off int64
					err := scan(&tp.Topic, &tp.Partition, &off)
					last[tp] = off
					return err
				})
		}); err != nil {
			return false, err
		}
		log, err := j.s.logOf(j.t.Cluster)
		if err != nil {
			return false, err
		}
		committed, err := log.Committed(ctx, j.t.Group)
		if err != nil {
			return false, err
		}
		for tp, off := range last {
			if committed[tp] <= off {
				return false, nil
			}
		}
		ends := map[string]map[pipeline.TP]int64{}
		for _, w := range j.t.Watched {
			log, err := j.s.logOf(w.Cluster)
			if err != nil {
				return false, err
			}
			info, err := log.Info(ctx, w.Topic)
			if err != nil {
				return false, err
			}
			if ends[w.Cluster] == nil {
				ends[w.Cluster] = map[pipeline.TP]int64{}
			}
			for p, r := range info.Partitions {
				if r.Next > r.First {
					ends[w.Cluster][pipeline.TP{Topic: w.Topic, Partition: p}] = r.Next
				}
			}
		}
		j.ends = ends
	}
	for cluster, ends := range j.ends {
		log, err := j.s.logOf(cluster)
		if err != nil {
			return false, err
		}
		id, err := j.s.clusterID(ctx, cluster)
		if err != nil {
			return false, err
		}
		if ok, err := j.s.items.Passed(ctx, id, log, ends); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

// verdict ends a run whose evidence is complete. A mismatch halts redrives of the pipeline.
func (j *judge) verdict(ctx context.Context, c Counts) error {
	why := ""
	system := custody.System("redrive")
	err := j.s.db.Write(ctx, func(tx *ledger.Tx) error {
		why = ""
		row, err := lockManifest(tx, j.digest)
		if err != nil || row.State != StateSettling {
			return err
		}
		if c, err = counts(tx, j.digest, j.m.Tenant); err != nil {
			return err
		}
		var closed int64
		if _, err := tx.Row(`SELECT count(*) FROM manifest_items m JOIN items i ON i.id = m.item AND i.tenant = m.tenant
			WHERE m.manifest = ? AND m.tenant = ? AND m.state = 'reconciled' AND i.state = 'RECONCILED' AND (i.redrive = m.manifest OR m.attempts = 0)`, []any{j.digest, j.m.Tenant}, &closed); err != nil {
			return err
		}
		var missing int64
		if _, err := tx.Row("SELECT count(*) FROM manifest_items WHERE manifest = ? AND tenant = ? AND watched <> 0 AND watched = ? AND code = ?", []any{j.digest, j.m.Tenant, custody.WatchedFailed, string(pipeline.CodeRedriveMismatch)}, &missing); err != nil {
			return err
		}
		switch {
		case c.Total() != j.m.Selection.Count:
			why = decimal(c.Total()) + " items are accounted for and " + decimal(j.m.Selection.Count) + " were planned"
		case c.Sent > 0:
			why = decimal(c.Sent) + " items were sent and settled, and nothing was heard of them"
		case missing > 0:
			why = decimal(missing) + " items were delivered by the retry lane, and their effect is absent"
		case closed != c.Reconciled:
			why = decimal(c.Reconciled) + " items count as reconciled and " + decimal(closed) + " are"
		}
		amounts, off, err := sums(tx, row, j.m)
		if err != nil {
			return err
		}
		if why == "" {
			why = off
		}
		state, detail := StatePartial, decimal(c.Reconciled)+" of "+decimal(j.m.Selection.Count)+" reconciled"
		if amounts != "" {
			detail += "; " + amounts
		}
		if c.Reconciled == j.m.Selection.Count {
			state = StateDone
		}
		if why != "" {
			state, detail = StateMismatch, why
		}
		tx.Append(ledger.Entry{Tenant: j.m.Tenant, Event: "redrive_judged", Actor: system.Subject,
			Detail: map[string]string{"manifest": string(j.digest), "run": row.Run, "state": string(state), "counts": toJSON(c), "why": why}})
		return row.to(tx, state, detail)
	})
	if err != nil || why == "" {
		return err
	}
	if err := j.s.halt(ctx, system, j.m.Pipeline, "the run of "+string(j.digest)+" does not reconcile: "+why); err != nil {
		return err
	}
	return pipeline.Errorf(pipeline.CodeRedriveMismatch, string(j.digest), "%s", why)
}

// Judge ends a run that waits for evidence, if its evidence is complete by now. Codes: ERR_PERMISSION_DENIED,
// ERR_MANIFEST_UNKNOWN, ERR_REDRIVE_STATE, ERR_REDRIVE_MISMATCH.
func (s *Service) Judge(ctx context.Context, who custody.Actor, digest pipeline.Digest) (*Status, error) {
	o, err := s.open(ctx, who, custody.PermExecute, digest)
	if err != nil {
		return nil, s.refused(ctx, who, "judge", string(digest), "", err)
	}
	if o.row.State != StateSettling {
		return nil, pipeline.Errorf(pipeline.CodeRedriveState, string(digest), "it is %s", o.row.State)
	}
	t, err := s.target(o.m.Pipeline)
	if err != nil {
		return nil, err
	}
	if err := s.ask(ctx, who, t, o.m, digest, askMost); err != nil {
		return nil, err
	}
	j := judge{s: s, t: t, m: o.m, digest: digest}
	if _, err := j.look(ctx); err != nil {
		return nil, err
	}
	return s.Status(ctx, who, digest)
}

// JudgeAll ends every run that waits for evidence and whose evidence is complete by now, among those that the actor may see, and
// says how many. A worker calls it from time to time. A mismatch halts its pipeline and does not keep the others waiting.
func (s *Service) JudgeAll(ctx context.Context, who custody.Actor) (ended int, err error) {
	all, err := s.List(ctx, who, "", 1000)
	if err != nil {
		return 0, err
	}
	for _, st := range all {
		if st.State != StateSettling || st.Executor != "" {
			continue
		}
		after, jerr := s.Judge(ctx, who, st.Digest)
		switch {
		case jerr == nil && after.State.Final(), pipeline.CodeOf(jerr) == pipeline.CodeRedriveMismatch:
			ended++
		case ctx.Err() != nil:
			return ended, ctx.Err()
		case jerr != nil && err == nil:
			err = jerr
		}
	}
	return ended, err
}

// eta is how long the rest of a run takes at its rate.
func eta(c *Counts, r Rate) time.Duration { return r.duration(c.Planned) }
