package redrive

import (
	"context"
	"slices"

	"reprieve.dev/custody"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

// Status is where a manifest stands.
type Status struct {
	Digest    pipeline.Digest `json:"manifest"`
	Manifest  *Manifest       `json:"-"`
	State     State           `json:"state"`
	Detail    string          `json:"detail,omitempty"`
	Run       string          `json:"run,omitempty"`
	Executor  string          `json:"executor,omitempty"` // who has the lease now
	Rate      string          `json:"rate"`               // the run's
	PerSecond int64           `json:"per_second"`         // acknowledged in the last second
	TimeLeft  string          `json:"time_left"`          // at the run's rate
	Counts    Counts          `json:"counts"`
	Selected  int64           `json:"selected"`
	Excluded  int64           `json:"excluded"`
	Approvals []Approval      `json:"approvals"`
	Halt      *HaltInfo       `json:"halt,omitempty"`
	DryRun    *Report         `json:"dry_run,omitempty"`
	Created   string          `json:"created"`
}

const detailPaused = "paused: run it again to go on"

// Failed tells that items came back and the run was stopped for it: to run it again stops it again, until their cause is mended.
func (st *Status) Failed() bool {
	return st.State == StateStopped && st.Counts.Returned > 0 && st.Detail != detailPaused
}

// Status reads where a manifest stands. Codes: ERR_MANIFEST_UNKNOWN, ERR_PERMISSION_DENIED, ERR_TENANT_FORBIDDEN.
func (s *Service) Status(ctx context.Context, who custody.Actor, digest pipeline.Digest) (*Status, error) {
	o, err := s.open(ctx, who, custody.PermRead, digest)
	if err != nil {
		return nil, err
	}
	var st *Status
	err = s.db.Read(ctx, func(tx *ledger.Tx) error {
		row, err := readManifest(tx, digest, "")
		if err != nil {
			return err
		}
		st, err = s.status(tx, row, o.m)
		return err
	})
	return st, err
}

func (s *Service) status(tx *ledger.Tx, row *manifestRow, m *Manifest) (st *Status, err error) {
	st = &Status{Digest: row.Digest, Manifest: m, State: row.State, Detail: row.Detail, Run: row.Run, Rate: m.Pace.Rate,
		Selected: m.Selection.Selected, Excluded: m.Selection.Selected - m.Selection.Count, Approvals: []Approval{}, Created: m.Created}
	if st.Counts, err = counts(tx, row.Digest, row.Tenant); err != nil {
		return nil, err
	}
	now := tx.NowMS()
	if _, err := tx.Row("SELECT count(*) FROM manifest_items WHERE manifest = ? AND tenant = ? AND sent_ms > ?", []any{row.Digest, row.Tenant, now - 1000}, &st.PerSecond); err != nil {
		return nil, err
	}
	var until int64
	var holder string
	if _, err := tx.Row("SELECT holder, until_ms FROM leases WHERE name = ?", []any{"redrive/" + string(row.Digest)}, &holder, &until); err != nil {
		return nil, err
	}
	if until > now {
		st.Executor = holder
	}
	if err := tx.Each("SELECT id, subject, role, rate, expires_ms, kid, at_ms, revoked_ms FROM approvals WHERE digest = ? AND tenant = ? AND kind = 'redrive' ORDER BY at_ms, id", []any{row.Digest, row.Tenant}, func(scan func(...any) error) error {
		a := Approval{Manifest: row.Digest}
		var expires, at, revoked int64
		if err := scan(&a.ID, &a.Subject, &a.Role, &a.Rate, &expires, &a.KID, &at, &revoked); err != nil {
			return err
		}
		a.Expires, a.At = stampMS(expires), stampMS(at)
		if revoked != 0 {
			a.Revoked = stampMS(revoked)
		}
		st.Approvals = append(st.Approvals, a)
		return nil
	}); err != nil {
		return nil, err
	}
	if st.Halt, err = haltIn(tx, m.Pipeline); err != nil {
		return nil, err
	}
	if row.dryRun != "" {
		if st.DryRun, err = parseReport(row.dryRun); err != nil {
			return nil, err
		}
	}
	if rate, err := ParseRate(m.Pace.Rate); err == nil {
		st.TimeLeft = eta(&st.Counts, rate).String()
	}
	return st, nil
}

// List returns the manifests that the actor may see, newest first; limit 0 is 100. Codes: ERR_PERMISSION_DENIED.
func (s *Service) List(ctx context.Context, who custody.Actor, name string, limit int) ([]*Status, error) {
	if err := s.items.Check(ctx, who, custody.PermRead, ""); err != nil {
		return nil, err
	}
	if limit <= 0 || limit > 1000 {
		limit = 100
	}
	var out []*Status
	err := s.db.Read(ctx, func(tx *ledger.Tx) error {
		out = []*Status{}
		var rows []*manifestRow
		tenants := who.Tenants
		q, args := "SELECT "+manifestColumns+" FROM manifests WHERE (? = '' OR pipeline = ?)", []any{name, name}
		if !slices.Contains(tenants, custody.AllTenants) {
			in, arg := tx.In("tenant", tenants)
			q, args = q+" AND "+in, append(args, arg)
		}
		if err := tx.Each(q+" ORDER BY created_ms DESC, digest LIMIT ?", append(args, limit), func(scan func(...any) error) error {
			r, err := scanManifest(scan)
			rows = append(rows, r)
			return err
		}); err != nil {
			return err
		}
		for _, r := range rows {
			if !s.items.Sees(who, r.Tenant) {
				continue
			}
			m, err := ParseManifest(r.body, r.Digest)
			if err != nil {
				m = &Manifest{} // listed all the same: somebody has to see that it was changed
				r.Detail = text(err)
			}
			st, err := s.status(tx, r, m)
			if err != nil {
				return err
			}
			out = append(out, st)
		}
		return nil
	})
	return out, err
}

// Read returns a manifest and its items, verified against its digest. Codes: ERR_MANIFEST_UNKNOWN, ERR_MANIFEST_DIGEST,
// ERR_PERMISSION_DENIED, ERR_TENANT_FORBIDDEN.
func (s *Service) Read(ctx context.Context, who custody.Actor, digest pipeline.Digest) (*Manifest, []Line, error) {
	o, err := s.open(ctx, who, custody.PermRead, digest)
	if err != nil {
		return nil, nil, err
	}
	var lines []Line
	if err := s.db.Read(ctx, func(tx *ledger.Tx) (err error) {
		lines, err = readLines(tx, o.m, digest)
		return err
	}); err != nil {
		return nil, nil, err
	}
	return o.m, lines, o.m.verifyLines(digest, lines)
}
