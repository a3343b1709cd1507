package custody

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/seal"
)

// Snapshot is a selection frozen: exactly these items, however many more match later. A bulk change names id, count and
// digest, so that it does what somebody saw.
type Snapshot struct {
	ID        string
	Selection string
	Count     int64
	Digest    pipeline.Digest
	CreatedMS int64
	By        string
}

// TakeSnapshot freezes what the selection has now, among the items that the actor may see. Codes: ERR_PERMISSION_DENIED,
// ERR_TENANT_FORBIDDEN. Cost: one scan and one row for each item.
func (c *Items) TakeSnapshot(ctx context.Context, who Actor, sel Selection) (Snapshot, error) {
	if err := c.mayRead(ctx, who, sel); err != nil {
		return Snapshot{}, err
	}
	var s Snapshot
	err := c.db.Write(ctx, func(tx *ledger.Tx) error {
		s = Snapshot{ID: randomID("s"), Selection: sel.String(), CreatedMS: tx.NowMS(), By: who.Subject}
		cond, args := c.scope(tx, who, sel)
		if _, err := tx.Exec("INSERT INTO snapshot_items (snapshot, n, tenant, item) SELECT ?, ROW_NUMBER() OVER (ORDER BY id), tenant, id FROM items WHERE "+cond, append([]any{s.ID}, args...)...); err != nil {
			return err
		}
		d := newSnapshotDigest()
		tenants := map[string]bool{}
		if err := tx.Each("SELECT tenant, item FROM snapshot_items WHERE snapshot = ? ORDER BY n", []any{s.ID}, func(scan func(...any) error) error {
			var tenant, id string
			err := scan(&tenant, &id)
			tenants[tenant] = true
			d.add(id)
			return err
		}); err != nil {
			return err
		}
		s.Count, s.Digest = d.n, d.sum()
		names := make([]string, 0, len(tenants))
		for t := range tenants {
			names = append(names, t)
		}
		slices.Sort(names)
		_, err := tx.Exec("INSERT INTO snapshots (id, tenants, actor, selection, count, digest, created_ms) VALUES (?, ?, ?, ?, ?, ?, ?)",
			s.ID, strings.Join(names, "\n"), s.By, s.Selection, s.Count, s.Digest, s.CreatedMS)
		return err
	})
	return s, err
}

// snapshotDigest is sha256 over LP(ids) in ascending order.
type snapshotDigest struct {
	n int64
	h interface {
		Write([]byte) (int, error)
		Sum([]byte) []byte
	}
}

func newSnapshotDigest() *snapshotDigest { return &snapshotDigest{h: sha256.New()} }

func (d *snapshotDigest) add(id string) {
	d.n++
	d.h.Write(seal.LP([]byte(id)))
}

func (d *snapshotDigest) sum() pipeline.Digest {
	return pipeline.Digest("sha256:" + hex.EncodeToString(d.h.Sum(nil)))
}

// ReadSnapshot returns a snapshot, and how many items match its selection now that are not in it. Codes: ERR_SELECTION_INVALID
// (no such snapshot), ERR_PERMISSION_DENIED, ERR_TENANT_FORBIDDEN (it holds items that are not theirs to see).
func (c *Items) ReadSnapshot(ctx context.Context, who Actor, id string) (s Snapshot, since int64, err error) {
	if err := c.Check(ctx, who, PermRead, ""); err != nil {
		return s, 0, err
	}
	err = c.db.Read(ctx, func(tx *ledger.Tx) error {
		if s, err = readSnapshot(tx, id); err != nil {
			return err
		}
		var tenants string
		if _, err := tx.Row("SELECT tenants FROM snapshots WHERE id = ?", []any{id}, &tenants); err != nil {
			return err
		}
		if err := c.seesAll(who, PermRead, strings.Split(tenants, "\n")); err != nil {
			s = Snapshot{}
			return err
		}
		sel, err := ParseSelection(s.Selection)
		if err != nil {
			return err
		}
		cond, args := c.scope(tx, who, sel)
		_, err = tx.Row("SELECT count(*) FROM items WHERE "+cond+" AND NOT EXISTS (SELECT 1 FROM snapshot_items s WHERE s.snapshot = ? AND s.item = items.id)", append(args, id), &since)
		return err
	})
	return s, since, err
}

func readSnapshot(tx *ledger.Tx, id string) (Snapshot, error) {
	s := Snapshot{ID: id}
	found, err := tx.Row("SELECT actor, selection, count, digest, created_ms FROM snapshots WHERE id = ?", []any{id}, &s.By, &s.Selection, &s.Count, &s.Digest, &s.CreatedMS)
	if err == nil && !found {
		err = pipeline.Errorf(pipeline.CodeSelectionInvalid, id, "there is no such snapshot").With("Take one first; its id, count and digest are shown.")
	}
	return s, err
}

// is tells whether a target names this snapshot as it was seen, and never what it is: who has not seen it does not learn it here.
// Codes: ERR_SNAPSHOT_CHANGED.
func (s Snapshot) is(t Target) error {
	if s.Count != t.Count || s.Digest != t.Digest {
		return pipeline.Errorf(pipeline.CodeSnapshotChanged, t.Snapshot, "its count or its digest is not the one that was named")
	}
	return nil
}

// SnapshotItems calls f with the ids of a snapshot in ascending order, in chunks of at most size. f may change the ledger.
func (c *Items) SnapshotItems(ctx context.Context, id string, size int, f func([]pipeline.ID) error) error {
	for after := int64(0); ; {
		var ids []pipeline.ID
		err := c.db.Read(ctx, func(tx *ledger.Tx) error {
			ids = nil
			return tx.Each("SELECT item FROM snapshot_items WHERE snapshot = ? AND n > ? ORDER BY n LIMIT ?", []any{id, after, size}, func(scan func(...any) error) error {
				var s pipeline.ID
				err := scan(&s)
				ids = append(ids, s)
				return err
			})
		})
		if err != nil || len(ids) == 0 {
			return err
		}
		if err := f(ids); err != nil {
			return err
		}
		after += int64(len(ids))
	}
}

func randomID(prefix string) string {
	b := make([]byte, 15)
	rand.Read(b)
	return prefix + seal.Base32(b)
}
