package redrive

import (
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
	for _, f := range []struct{ name, value, only string }{{"unconfirmed", req.Unconfirmed, accepted}, {"horizon", req.Horizon, accepted}, {"loop", req.Loop, accepted}, {"identity", req.Identity, identityNew}} {
		if f.value != "" && f.value != f.only {
			return nil, "", pipeline.Errorf(pipeline.CodeInputInvalid, req.Snapshot, "%s is %q or left out, not %q", f.name, f.only, f.value).With("Write it as told, or leave it out.")
		}
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
	d := &draft{s: s, t: t, req: &req, now: s.clock(), excluded: []Excluded{}, classes: map[string]int64{}, reasons: map[string]int64{}, sources: map[string]bool{}, schemas: map[string]bool{}, repairs: map[string]bool{}}
	if err := d.lines.open(); err != nil {
		return nil, "", err
	}
	defer d.lines.close()
	if err := s.db.Read(ctx, func(tx *ledger.Tx) error { return d.read(ctx, tx, who) }); err != nil {
		return nil, d.tenant, err
	}
	out := &Planned{Excluded: d.excluded}
	if d.n == 0 {
		return out, d.tenant, pipeline.Errorf(pipeline.CodeManifestEmpty, req.Snapshot, "none of %d items may be redriven: %s", d.selected, reasons(d.reasons))
	}
	if out.Manifest, err = d.manifest(ctx, who, rate); err != nil {
		return nil, d.tenant, err
	}
	if out.Digest, err = out.Manifest.Digest(); err != nil {
		return nil, d.tenant, err
	}
	return out, d.tenant, s.store(ctx, who, out, &d.lines)
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

// transformOf names the transform of these repairs if all of them come from one.
func (s *Service) transformOf(ctx context.Context, ids map[string]bool, tenant string) (*TransformID, error) {
	if len(ids) == 0 {
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

func (s *Service) store(ctx context.Context, who custody.Actor, p *Planned, lines *spool) error {
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
		if err := lines.each(ChunkLines, func(list []Line) error {
			rows := make([][]any, len(list))
			for i := range list {
				l := &list[i]
				rows[i] = []any{string(p.Digest), l.N, m.Tenant, string(l.Item), itemPlanned, "", l.Repair, string(l.Digest), l.Order, int64(0), "", "", int64(-1), int64(-1), int64(0), l.Ask, string(l.Newer)}
			}
			return tx.Insert("manifest_items", []string{"manifest", "n", "tenant", "item", "state", "code", "repair", "digest", "order_key", "attempts", "measures", "sent_topic", "sent_partition", "sent_offset", "sent_ms", "ask", "newer"}, rows)
		}); err != nil {
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
