package redrive

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/seal"
)

// accepted is how a manifest says that its approver takes something upon them.
const accepted = "accepted"

// PlanRequest is what somebody wants to have sent.
type PlanRequest struct {
	Pipeline    string
	Snapshot    string // id of a snapshot of custody: a filter alone is refused
	Count       int64  // of the snapshot as it was shown; -1 is not checked
	Digest      string // of the snapshot as it was shown; "" is not checked
	Ticket      string
	Destination string // "" is the pipeline's retry topic, which is the only one allowed
	Rate        Rate   // 0: the lowest of ceiling and bound
	Canary      int    // most items of the canary; 0: as many as cover partitions and fingerprints
	Stop        *Stop  // nil: a twentieth of the items or ten may fail, whichever is more
	Unconfirmed string // "accepted" to take items whose source progress is unknown
	Horizon     string // "accepted" to take items past the deduplication horizon
	Loop        string // "accepted" to take one item, alone, that has come back too often for any bulk redrive
	Identity    string // "new" to take repairs that make new logical ids; it takes an intent and two approvals
	Intent      string
	Budget      int64 // most attempts; 0: as many as items

	alone bool // the snapshot has one item
}

// Planned is a stored manifest and what it leaves out.
type Planned struct {
	Digest   pipeline.Digest `json:"digest"`
	Manifest *Manifest       `json:"manifest"`
	Lines    []Line          `json:"-"`
	Excluded []Excluded      `json:"excluded"` // every item that is not sent
}

// Excluded is one item that a plan leaves out.
type Excluded struct {
	Item  pipeline.ID   `json:"id"`
	State custody.State `json:"state"`
	exclusion
}

// Plan freezes a snapshot into a manifest and stores it. It sends nothing and changes no item. Codes:
// ERR_SNAPSHOT_REQUIRED, ERR_SNAPSHOT_CHANGED, ERR_PERMISSION_DENIED, ERR_TENANT_FORBIDDEN, ERR_REDRIVE_TENANT,
// ERR_REDRIVE_PRIMARY, ERR_REDRIVE_RATE, ERR_TICKET_MISSING, ERR_MANIFEST_EMPTY (with the counts of the reasons).
func (s *Service) Plan(ctx context.Context, who custody.Actor, req PlanRequest) (*Planned, error) {
	p, tenant, err := s.plan(ctx, who, req)
	if err != nil {
		return p, s.refused(ctx, who, "plan", req.Snapshot, tenant, err)
	}
	return p, nil
}

func (s *Service) plan(ctx context.Context, who custody.Actor, req PlanRequest) (*Planned, string, error) {
	if err := s.items.Check(ctx, who, custody.PermPlan, ""); err != nil {
		return nil, "", err
	}
	if req.Snapshot == "" {
		return nil, "", pipeline.Errorf(pipeline.CodeSnapshotRequired, "", "a filter alone is not enough: what matches changes while you look")
	}
	if req.Ticket == "" {
		return nil, "", pipeline.Errorf(pipeline.CodeTicketMissing, req.Snapshot, "a redrive needs a ticket")
	}
	t, err := s.target(req.Pipeline)
	if err != nil {
		return nil, "", err
	}
	if err := t.allows(req.Destination); err != nil {
		return nil, "", err
	}
	if err := t.compensation(); err != nil {
		return nil, "", err
	}
	if req.Identity == identityNew && req.Intent == "" {
		return nil, "", pipeline.Errorf(pipeline.CodeReasonMissing, req.Snapshot, "new logical ids need a declared intent")
	}
	var rate Rate
	if err := s.db.Read(ctx, func(tx *ledger.Tx) (err error) {
		rate, err = s.rate(tx, t, req.Rate)
		return err
	}); err != nil {
		return nil, "", err
	}
	now := s.clock()
	out := &Planned{Excluded: []Excluded{}}
	var all []*brief
	var blocked map[string]map[pipeline.TP]int64
	err = s.db.Read(ctx, func(tx *ledger.Tx) error {
		var n int64
		var digest string
		found, err := tx.Row("SELECT count, digest FROM snapshots WHERE id = ?", []any{req.Snapshot}, &n, &digest)
		if err != nil {
			return err
		}
		if !found {
			return pipeline.Errorf(pipeline.CodeSnapshotRequired, req.Snapshot, "there is no such snapshot")
		}
		if req.Count >= 0 && req.Count != n || req.Digest != "" && req.Digest != digest {
			return pipeline.Errorf(pipeline.CodeSnapshotChanged, req.Snapshot, "it has %d items and the digest %s", n, digest)
		}
		if all, err = briefsOfSnapshot(tx, req.Snapshot); err != nil {
			return err
		}
		if int64(len(all)) != n {
			return pipeline.Errorf(pipeline.CodeSnapshotChanged, req.Snapshot, "%d of its %d items are gone", n-int64(len(all)), n)
		}
		req.alone = n == 1
		if t.State {
			if err := supersede(tx, t, &req, all, now.UnixMilli()); err != nil {
				return err
			}
		}
		if !t.Ordered {
			return nil
		}
		ours := map[pipeline.ID]bool{}
		var entities []string
		for _, b := range all {
			if b.exclude(t, &req, now.UnixMilli()) == nil {
				ours[b.id] = true
				if b.entity != "" {
					entities = append(entities, b.entity)
				}
			}
		}
		slices.Sort(entities)
		if len(all) > 0 {
			blocked, err = earlierOpen(tx, all[0].tenant, slices.Compact(entities), ours)
		}
		return err
	})
	if err != nil {
		return nil, "", err
	}
	if len(all) == 0 {
		return nil, "", pipeline.Errorf(pipeline.CodeManifestEmpty, req.Snapshot, "the snapshot has no item")
	}
	tenant := all[0].tenant
	for _, b := range all {
		if b.tenant != tenant {
			return nil, tenant, pipeline.Errorf(pipeline.CodeRedriveTenant, req.Snapshot, "the snapshot has items of several tenants")
		}
	}
	if err := s.items.Check(ctx, who, custody.PermPlan, tenant); err != nil {
		return nil, tenant, err
	}
	quotas := t.quotas(tenant)
	m := &Manifest{V: 1, Pipeline: t.Pipeline, Tenant: tenant, Requester: who.Subject, Ticket: req.Ticket, Created: stamp(now), Destination: t.Destination,
		Reenter: "first", Identity: IdentityRule{Policy: "keep"}, Order: Order{By: "key", Suffix: "excluded"},
		Pace:   Pace{Rate: rate.String(), Concurrency: 1, Budget: req.Budget, Quotas: map[string]string{}, Window: rate.window(MaxWindow)},
		Canary: Canary{N: req.Canary, Expect: "reconciled"}, Measures: t.Measures, Reconcile: t.Reconcile, Unconfirmed: "refused", Horizon: "kept", Loop: "refused", Abort: "keep",
		Selection: Selected{Snapshot: req.Snapshot, Selected: int64(len(all)), Classes: map[string]int64{}, Excluded: map[string]int64{}},
		Source:    []string{}, Schemas: []string{}}
	for _, q := range quotas {
		m.Pace.Quotas[q.name] = q.rate.String()
		m.Pace.Window = min(m.Pace.Window, q.rate.window(MaxWindow))
	}
	if req.Unconfirmed == accepted {
		m.Unconfirmed = accepted
	}
	if req.Horizon == accepted {
		m.Horizon = accepted
	}
	if req.Loop == accepted {
		m.Loop = accepted
	}
	if req.Identity == identityNew {
		m.Identity = IdentityRule{Policy: identityNew, Intent: req.Intent}
	}
	if m.Measures == nil {
		m.Measures = []Measure{}
	}
	kept := make([]*brief, 0, len(all))
	for _, b := range all {
		why := b.exclude(t, &req, now.UnixMilli())
		if why == nil && b.entity != "" {
			if first, ok := blocked[b.entity][b.original.TP]; ok && first < b.original.Offset {
				why = &exclusion{"order", pipeline.CodeRedriveOpenOrder}
			}
		}
		if why != nil {
			m.Selection.Excluded[why.Reason]++
			out.Excluded = append(out.Excluded, Excluded{b.id, b.state, *why})
			continue
		}
		kept = append(kept, b)
	}
	if len(kept) == 0 {
		return out, tenant, pipeline.Errorf(pipeline.CodeManifestEmpty, req.Snapshot, "none of %d items may be redriven: %s", len(all), reasons(m.Selection.Excluded))
	}
	// Order per key: items leave in the order of their source.
	slices.SortStableFunc(kept, func(a, b *brief) int {
		return cmp.Or(strings.Compare(a.original.Topic, b.original.Topic), cmp.Compare(a.original.Partition, b.original.Partition), cmp.Compare(a.original.Offset, b.original.Offset), strings.Compare(string(a.id), string(b.id)))
	})
	var bytes int64
	for i, b := range kept {
		out.Lines = append(out.Lines, Line{N: int64(i + 1), Item: b.id, Repair: b.repair, Digest: b.digest, Order: s.orderOf(b), Ask: b.ask && b.newer == "", Newer: b.newer})
		bytes += b.bytes
		m.Selection.Classes[b.class]++
		m.Source = append(m.Source, b.original.Topic)
		if b.schema != "" {
			m.Schemas = append(m.Schemas, b.schema)
		}
	}
	slices.Sort(m.Source)
	m.Source = slices.Compact(m.Source)
	slices.Sort(m.Schemas)
	m.Schemas = slices.Compact(m.Schemas)
	m.Selection.Count, m.Selection.Bytes = int64(len(kept)), decimal(bytes)
	m.Selection.Chunks, _, m.Selection.Merkle = chunks(out.Lines)
	m.Stop = Stop{Failures: max(10, m.Selection.Count/20), Duplicates: -1}
	if req.Stop != nil {
		m.Stop = *req.Stop
		if _, err := time.ParseDuration(m.Stop.Latency); m.Stop.Latency != "" && err != nil {
			return nil, tenant, pipeline.Errorf(pipeline.CodeManifestInvalid, m.Stop.Latency, "stop.latency is a duration, as in 2s")
		}
	}
	if m.Pace.Budget == 0 {
		m.Pace.Budget = m.Selection.Count
	}
	if m.Transform, err = s.transformOf(ctx, out.Lines, tenant); err != nil {
		return nil, tenant, err
	}
	if out.Digest, err = m.Digest(); err != nil {
		return nil, tenant, err
	}
	out.Manifest = m
	return out, tenant, s.store(ctx, who, out)
}

// orderOf is the group whose items stay in order: a keyed digest of the record's key.
func (s *Service) orderOf(b *brief) string {
	if b.key == nil {
		return ""
	}
	return s.id.Digest(seal.LP([]byte("order 1"), []byte(b.original.Topic), b.key))
}

// allows refuses every destination but the retry topic (INV-NO-PRIMARY).
func (t *Target) allows(destination string) error {
	if destination == "" {
		destination = t.Destination
	}
	switch {
	case t.Destination == "":
		return pipeline.Errorf(pipeline.CodeRedrivePrimary, t.Pipeline, "the pipeline has no retry topic to redrive to")
	case destination != t.Destination, slices.Contains(t.Sources, destination), slices.Contains(t.Outputs, destination):
		return pipeline.Errorf(pipeline.CodeRedrivePrimary, destination, "a redrive of %s writes to %s only", t.Pipeline, t.Destination)
	}
	return nil
}

// transformOf names the transform of the repairs if all of them come from one.
func (s *Service) transformOf(ctx context.Context, lines []Line, tenant string) (*TransformID, error) {
	ids := map[string]bool{}
	plain := false
	for _, l := range lines {
		if l.Repair == "" {
			plain = true
		} else {
			ids[l.Repair] = true
		}
	}
	if plain || len(ids) == 0 {
		return nil, nil
	}
	found := map[TransformID]bool{}
	list := make([]string, 0, len(ids))
	for id := range ids {
		list = append(list, id)
	}
	err := s.db.Read(ctx, func(tx *ledger.Tx) error {
		for from := 0; from < len(list); from += 1000 {
			in, arg := tx.In("id", list[from:min(from+1000, len(list))])
			err := tx.Each("SELECT DISTINCT transform, version, artifact, config_digest FROM repairs WHERE tenant = ? AND "+in, []any{tenant, arg}, func(scan func(...any) error) error {
				var t TransformID
				err := scan(&t.Name, &t.Version, &t.Artifact, &t.Config)
				found[t] = true
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || len(found) != 1 {
		return nil, err
	}
	for t := range found {
		return &t, nil
	}
	return nil, nil
}

func (s *Service) store(ctx context.Context, who custody.Actor, p *Planned) error {
	body, err := p.Manifest.Bytes()
	if err != nil {
		return err
	}
	m := p.Manifest
	if err := s.db.Write(ctx, func(tx *ledger.Tx) error {
		_, err := tx.Exec(`INSERT INTO manifests (digest, tenant, pipeline, requester, ticket, state, run, reconcile, destination, snapshot, items, bytes, created_ms, changed_ms, body, dry_run, dry_run_ms, detail, rev)
			VALUES (?, ?, ?, ?, ?, ?, '', ?, ?, ?, ?, ?, ?, ?, ?, '', 0, '', 1)`,
			p.Digest, m.Tenant, m.Pipeline, m.Requester, m.Ticket, string(StatePlanned), m.Reconcile, m.Destination, m.Selection.Snapshot, m.Selection.Count, int64(0), tx.NowMS(), tx.NowMS(), body)
		if err != nil {
			return err
		}
		rows := make([][]any, len(p.Lines))
		for i := range p.Lines {
			l := &p.Lines[i]
			rows[i] = []any{string(p.Digest), l.N, m.Tenant, string(l.Item), itemPlanned, "", l.Repair, string(l.Digest), l.Order, int64(0), "", "", int64(-1), int64(-1), int64(0), l.Ask, string(l.Newer)}
		}
		if err := tx.Insert("manifest_items", []string{"manifest", "n", "tenant", "item", "state", "code", "repair", "digest", "order_key", "attempts", "measures", "sent_topic", "sent_partition", "sent_offset", "sent_ms", "ask", "newer"}, rows); err != nil {
			return err
		}
		tx.Append(ledger.Entry{Tenant: m.Tenant, Event: "redrive_planned", Actor: who.Subject,
			Detail: map[string]string{"manifest": string(p.Digest), "items": decimal(m.Selection.Count), "excluded": reasons(m.Selection.Excluded), "ticket": m.Ticket, "rate": m.Pace.Rate, "via": who.Via}})
		return nil
	}); err != nil {
		return err
	}
	s.known(ctx, p.Digest, m.Selection.Count)
	return nil
}

// known tells a server what it has to know of a large manifest before it is worked on: until it has looked by itself, minutes later,
// it takes a million new rows for a handful and reads all of them for each window.
func (s *Service) known(ctx context.Context, digest pipeline.Digest, items int64) {
	if s.db.Dialect() != ledger.Postgres || items < MaxWindow {
		return
	}
	if err := s.db.Write(ctx, func(tx *ledger.Tx) error {
		_, err := tx.Exec("ANALYZE manifest_items")
		return err
	}); err != nil { // it costs speed, nothing else
		s.log.Warn("the server could not be told about a new manifest", "manifest", digest, "code", pipeline.CodeOf(err))
	}
}

// reasons is "2 held, 3 state_DISCARDED".
func reasons(m map[string]int64) string {
	names := make([]string, 0, len(m))
	for r := range m {
		names = append(names, r)
	}
	slices.Sort(names)
	for i, r := range names {
		names[i] = decimal(m[r]) + " " + r
	}
	return strings.Join(names, ", ")
}

// ConfirmAbsent records that somebody looked and that the last try of an item has no effect: an item past the deduplication
// horizon may then be planned once more, under the same event id. Codes: ERR_PERMISSION_DENIED, ERR_EVIDENCE_MISSING,
// ERR_ITEM_UNKNOWN, ERR_REDRIVE_STATE.
func (s *Service) ConfirmAbsent(ctx context.Context, who custody.Actor, item pipeline.ID, evidence string) error {
	if evidence == "" {
		return pipeline.Errorf(pipeline.CodeEvidenceMissing, string(item), "say how it was found out")
	}
	var tenant, state string
	var try int64
	err := s.db.Read(ctx, func(tx *ledger.Tx) error {
		found, err := tx.Row("SELECT tenant, state, redrive_try FROM items WHERE id = ?", []any{item}, &tenant, &state, &try)
		if err == nil && !found {
			err = pipeline.Errorf(pipeline.CodeItemUnknown, string(item), "there is no such item")
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := s.items.Check(ctx, who, custody.PermResolve, tenant); err != nil {
		return err
	}
	if st := custody.State(state); st != custody.Triaged && st != custody.Repaired {
		return pipeline.Errorf(pipeline.CodeRedriveState, string(item), "it is %s", state)
	}
	return s.db.Write(ctx, func(tx *ledger.Tx) error {
		if _, err := tx.Exec(`INSERT INTO outcomes (item, tenant, redrive, redrive_try, result, writer, effect_ref, code, at_ms, applied)
			VALUES (?, ?, '', ?, 'absent', ?, ?, '', ?, 0) ON CONFLICT (item, redrive, redrive_try, result, writer) DO NOTHING`,
			item, tenant, try, who.Subject, evidence, tx.NowMS()); err != nil {
			return err
		}
		tx.Append(ledger.Entry{Tenant: tenant, Item: string(item), Event: "confirmed_absent", Actor: who.Subject, Detail: map[string]string{"evidence": evidence, "try": decimal(try), "via": who.Via}})
		return nil
	})
}

// duration is how long n attempts take at a rate.
func (r Rate) duration(n int64) time.Duration { return time.Duration(n) * r.spacing() }
