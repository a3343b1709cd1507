package redrive

import (
	"context"
	"encoding/json"

	"reprieve.dev/custody"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

// State is where a manifest stands.
type State string

// The states of a manifest and its run.
const (
	StatePlanned  State = "PLANNED"
	StateDryRun   State = "DRY_RUN"   // its dry run is stored
	StateApproved State = "APPROVED"  //
	StateDenied   State = "DENIED"    // final
	StateCanary   State = "CANARY"    // the canary is being sent or awaits its evidence
	StateRunning  State = "RUNNING"   // the rest is being sent
	StateSettling State = "SETTLING"  // everything that could be sent is; the evidence is awaited
	StateStopped  State = "STOPPED"   // by an operator, a threshold, a halt or a lost lease: may be run again
	StateDone     State = "DONE"      // every item is reconciled; final
	StatePartial  State = "PARTIAL"   // some items are not; final
	StateMismatch State = "MISMATCH"  // the counts do not reconcile; redrives are halted
	StateUnclear  State = "UNCERTAIN" // killed: some items may have been sent; only resume goes on
)

// Final tells whether a run has ended for good.
func (s State) Final() bool {
	return s == StateDone || s == StatePartial || s == StateDenied || s == StateMismatch
}

// States of one item of a manifest. Custody writes those after planned and skipped, in the transactions that move the item.
const (
	itemPlanned    = "planned"
	itemSkipped    = "skipped"    // its state changed since the plan, or it may not be sent any more
	itemSending    = "sending"    // an intent is written, no result yet; earlier versions wrote it, and what inFlight finds is counted as it
	itemSent       = "sent"       // acknowledged
	itemForwarded  = "forwarded"  // the retry lane settled it; evidence of the effect is awaited
	itemFailed     = "failed"     // could not be sent, or failed again
	itemWithdrawn  = "withdrawn"  // proven unsent, or a person decided so
	itemReconciled = "reconciled" // evidence of the effect
)

type manifestRow struct {
	Digest    pipeline.Digest
	Tenant    string
	State     State
	Run       string
	Detail    string
	DryRunMS  int64
	CreatedMS int64
	ChangedMS int64
	Rev       int64
	body      []byte
	dryRun    string
}

const manifestColumns = "digest, tenant, state, run, detail, dry_run_ms, created_ms, changed_ms, rev, body, dry_run"

func scanManifest(scan func(...any) error) (*manifestRow, error) {
	r := &manifestRow{}
	return r, scan(&r.Digest, &r.Tenant, &r.State, &r.Run, &r.Detail, &r.DryRunMS, &r.CreatedMS, &r.ChangedMS, &r.Rev, &r.body, &r.dryRun)
}

func readManifest(tx *ledger.Tx, digest pipeline.Digest, lock string) (*manifestRow, error) {
	var r *manifestRow
	err := tx.Each("SELECT "+manifestColumns+" FROM manifests WHERE digest = ?"+lock, []any{digest}, func(scan func(...any) error) (err error) {
		r, err = scanManifest(scan)
		return err
	})
	if err == nil && r == nil {
		err = pipeline.Errorf(pipeline.CodeManifestUnknown, string(digest), "it is not in this ledger")
	}
	return r, err
}

func lockManifest(tx *ledger.Tx, digest pipeline.Digest) (*manifestRow, error) {
	return readManifest(tx, digest, tx.ForUpdate())
}

// to moves the manifest to a state; the revision is repeated, so a change made meanwhile is seen.
func (r *manifestRow) to(tx *ledger.Tx, s State, detail string) error {
	n, err := tx.Exec("UPDATE manifests SET state = ?, run = ?, detail = ?, changed_ms = ?, rev = rev + 1 WHERE digest = ? AND tenant = ? AND rev = ?",
		string(s), r.Run, detail, tx.NowMS(), r.Digest, r.Tenant, r.Rev)
	if err == nil && n != 1 {
		err = pipeline.Errorf(pipeline.CodeStateChanged, string(r.Digest), "somebody else changed the manifest meanwhile")
	}
	if err == nil {
		r.State, r.Detail = s, detail
		r.Rev++
	}
	return err
}

// opened is a manifest whose bytes were verified.
type opened struct {
	digest pipeline.Digest
	m      *Manifest
	row    *manifestRow
}

// open reads a manifest for somebody who may do p with its tenant, and verifies its bytes (INV-MANIFEST).
func (s *Service) open(ctx context.Context, who custody.Actor, p custody.Permission, digest pipeline.Digest) (*opened, error) {
	var row *manifestRow
	err := s.db.Read(ctx, func(tx *ledger.Tx) (err error) {
		row, err = readManifest(tx, digest, "")
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := s.items.Check(ctx, who, p, row.Tenant); err != nil {
		return nil, err
	}
	m, err := ParseManifest(row.body, digest)
	if err != nil {
		return nil, err
	}
	if m.Tenant != row.Tenant {
		return nil, pipeline.Errorf(pipeline.CodeManifestDigest, string(digest), "the ledger names another tenant than the manifest")
	}
	return &opened{digest, m, row}, nil
}

// lines reads the frozen items of a manifest in sending order.
func readLines(tx *ledger.Tx, m *Manifest, digest pipeline.Digest) ([]Line, error) {
	lines := make([]Line, 0, m.Selection.Count)
	err := tx.Each("SELECT n, item, repair, digest, order_key, ask, newer FROM manifest_items WHERE manifest = ? AND tenant = ? ORDER BY n", []any{digest, m.Tenant}, func(scan func(...any) error) error {
		var l Line
		var ask int64
		if err := scan(&l.N, &l.Item, &l.Repair, &l.Digest, &l.Order, &ask, &l.Newer); err != nil {
			return err
		}
		l.Ask = ask != 0
		lines = append(lines, l)
		return nil
	})
	return lines, err
}

// Counts are the items of a manifest by what became of them. They add up to its count.
type Counts struct {
	Planned    int64 `json:"planned"`
	Sending    int64 `json:"sending"`    // an intent without a result
	Sent       int64 `json:"sent"`       // acknowledged, nothing heard yet
	Forwarded  int64 `json:"forwarded"`  // settled by the retry lane, evidence awaited
	Reconciled int64 `json:"reconciled"` //
	Unsendable int64 `json:"unsendable"` // could not be sent: REDRIVE_FAILED, then TRIAGED
	Returned   int64 `json:"returned"`   // failed again: REDRIVE_FAILED, then TRIAGED
	Skipped    int64 `json:"skipped"`
	Withdrawn  int64 `json:"withdrawn"`
	Attempts   int64 `json:"attempts"`
}

// Total is how many items there are.
func (c *Counts) Total() int64 {
	return c.Planned + c.Sending + c.Sent + c.Forwarded + c.Reconciled + c.Unsendable + c.Returned + c.Skipped + c.Withdrawn
}

// Failed is how many items could not be sent or failed again.
func (c *Counts) Failed() int64 { return c.Unsendable + c.Returned }

func counts(tx *ledger.Tx, digest pipeline.Digest, tenant string) (c Counts, err error) {
	err = tx.Each(`SELECT state, CASE WHEN sent_offset >= 0 THEN 1 ELSE 0 END, count(*), coalesce(sum(attempts), 0) FROM manifest_items
		WHERE manifest = ? AND tenant = ? GROUP BY 1, 2`, []any{digest, tenant}, func(scan func(...any) error) error {
		var state string
		var sent, n, attempts int64
		if err := scan(&state, &sent, &n, &attempts); err != nil {
			return err
		}
		c.Attempts += attempts
		switch state {
		case itemPlanned:
			c.Planned += n
		case itemSending:
			c.Sending += n
		case itemSent:
			c.Sent += n
		case itemForwarded:
			c.Forwarded += n
		case itemReconciled:
			c.Reconciled += n
		case itemFailed:
			if sent == 1 {
				c.Returned += n
			} else {
				c.Unsendable += n
			}
		case itemSkipped:
			c.Skipped += n
		case itemWithdrawn:
			c.Withdrawn += n
		}
		return nil
	})
	if err != nil {
		return c, err
	}
	n, err := inFlight(tx, digest, tenant)
	c.Planned, c.Sending = c.Planned-n, c.Sending+n
	return c, err
}

// inFlight counts the items that an intent without a result covers: their rows are still planned, and they are REDRIVING.
func inFlight(tx *ledger.Tx, digest pipeline.Digest, tenant string) (n int64, err error) {
	_, err = tx.Row(`SELECT count(DISTINCT m.n) FROM intents n JOIN manifest_items m ON m.manifest = n.manifest AND m.n >= n.from_n AND m.n <= n.to_n
		JOIN items i ON i.id = m.item AND i.tenant = m.tenant
		WHERE n.manifest = ? AND n.tenant = ? AND n.state = 'open' AND m.state = ? AND i.state = 'REDRIVING' AND i.redrive = m.manifest`,
		[]any{digest, tenant, itemPlanned}, &n)
	return n, err
}

func toJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return "{}" // only our own structs
	}
	return string(b)
}
