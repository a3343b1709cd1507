package custody

import (
	"context"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

// Page asks for a part of a list. After is the Next of the page before.
type Page struct {
	After string
	Limit int // default 50, at most 500
}

// Found is one page of items, newest first. Next is empty on the last one.
type Found struct {
	Items []*Item
	Next  string
}

// Find lists items that the actor may see. Codes: ERR_PERMISSION_DENIED, ERR_TENANT_FORBIDDEN (the selection names a tenant that
// is not theirs), ERR_SELECTION_INVALID (the cursor).
func (c *Items) Find(ctx context.Context, who Actor, s Selection, p Page) (Found, error) {
	if err := c.mayRead(ctx, who, s); err != nil {
		return Found{}, err
	}
	if p.Limit <= 0 || p.Limit > 500 {
		p.Limit = 50
	}
	afterMS, afterID, err := parseCursor(p.After)
	if err != nil {
		return Found{}, err
	}
	var f Found
	err = c.db.Read(ctx, func(tx *ledger.Tx) error {
		f = Found{}
		cond, args := c.scope(tx, who, s)
		if p.After != "" {
			cond += " AND (quarantined_ms < ? OR (quarantined_ms = ? AND id > ?))"
			args = append(args, afterMS, afterMS, afterID)
		}
		err := tx.Each("SELECT "+itemColumns+" FROM items WHERE "+cond+" ORDER BY quarantined_ms DESC, id LIMIT ?", append(args, p.Limit+1), func(scan func(...any) error) error {
			it, err := scanItem(scan)
			f.Items = append(f.Items, it)
			return err
		})
		if err == nil && len(f.Items) > p.Limit {
			f.Items = f.Items[:p.Limit]
			last := f.Items[p.Limit-1]
			f.Next = base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(last.QuarantinedMS, 10) + " " + string(last.ID)))
		}
		return err
	})
	return f, err
}

func parseCursor(s string) (int64, string, error) {
	if s == "" {
		return 0, "", nil
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	ms, id, ok := strings.Cut(string(b), " ")
	n, err2 := strconv.ParseInt(ms, 10, 64)
	if err != nil || err2 != nil || !ok {
		return 0, "", pipeline.Errorf(pipeline.CodeSelectionInvalid, "cursor", "the cursor cannot be read").With("Start again without it.")
	}
	return n, id, nil
}

// mayRead checks the permission, and every tenant that the selection names.
func (c *Items) mayRead(ctx context.Context, who Actor, s Selection) error {
	named := s.Tenants()
	if named == nil {
		named = []string{""}
	}
	for _, tenant := range named {
		if err := c.Check(ctx, who, PermRead, tenant); err != nil {
			return err
		}
	}
	return nil
}

// scope is the selection's condition within what the actor may see.
func (c *Items) scope(tx *ledger.Tx, who Actor, s Selection) (string, []any) {
	cond, args := c.roles.visible(tx, who, "tenant")
	more, moreArgs := s.where(tx)
	return cond + " AND " + more, append(slices.Clone(args), moreArgs...)
}

// Count is how many items the selection has now, among those that the actor may see.
func (c *Items) Count(ctx context.Context, who Actor, s Selection) (n int64, err error) {
	if err := c.mayRead(ctx, who, s); err != nil {
		return 0, err
	}
	err = c.db.Read(ctx, func(tx *ledger.Tx) error {
		cond, args := c.scope(tx, who, s)
		_, err := tx.Row("SELECT count(*) FROM items WHERE "+cond, args, &n)
		return err
	})
	return n, err
}

// Sighting is one more arrival of an item.
type Sighting struct {
	Letter  pipeline.Position
	At      pipeline.Position
	AtMS    int64
	Code    pipeline.Code
	Release string
	Redrive pipeline.Digest
	Try     uint16
}

// Attempt is one failed pass; Try says of which redrive (0: before custody).
type Attempt struct {
	Try  uint16
	N    int
	AtMS int64
	Code pipeline.Code
}

// Shown is all that is known about an item, without its payload.
type Shown struct {
	Item      *Item
	Stack     string
	History   []ledger.Entry
	Attempts  []Attempt
	Sightings []Sighting
	Repairs   []StoredRepair
	Outcomes  []StoredOutcome
	SameEvent []pipeline.ID // other items with its event id
}

// Show tells everything about one item but its payload. Codes: ERR_ITEM_UNKNOWN, ERR_PERMISSION_DENIED, ERR_TENANT_FORBIDDEN.
func (c *Items) Show(ctx context.Context, who Actor, id pipeline.ID) (*Shown, error) {
	s := &Shown{}
	err := c.db.Read(ctx, func(tx *ledger.Tx) error {
		*s = Shown{}
		it, err := c.one(tx, id)
		if err != nil {
			return err
		}
		s.Item = it
		if err := c.roles.check(who, PermRead, it.Tenant); err != nil {
			return err
		}
		return s.read(tx, it)
	})
	if err != nil {
		tenant := ""
		if s.Item != nil {
			tenant = s.Item.Tenant
		}
		return nil, c.refused(ctx, who, string(PermRead), string(id), tenant, err)
	}
	return s, nil
}

// one loads one item. Codes: ERR_ITEM_UNKNOWN.
func (c *Items) one(tx *ledger.Tx, id pipeline.ID) (*Item, error) {
	m, err := load(tx, []string{string(id)}, false)
	if err != nil {
		return nil, err
	}
	if m[id] == nil {
		return nil, pipeline.Errorf(pipeline.CodeItemUnknown, string(id), "there is no such item")
	}
	return m[id], nil
}

func (s *Shown) read(tx *ledger.Tx, it *Item) (err error) {
	if it.Stack != "" {
		if _, err := tx.Row("SELECT text FROM stacks WHERE tenant = ? AND hash = ?", []any{it.Tenant, it.Stack}, &s.Stack); err != nil {
			return err
		}
	}
	if s.History, err = tx.History(string(it.ID)); err != nil {
		return err
	}
	err = tx.Each("SELECT redrive_try, n, at_ms, code FROM attempts WHERE item = ? ORDER BY redrive_try, n", []any{it.ID}, func(scan func(...any) error) error {
		var a Attempt
		err := scan(&a.Try, &a.N, &a.AtMS, &a.Code)
		s.Attempts = append(s.Attempts, a)
		return err
	})
	if err != nil {
		return err
	}
	err = tx.Each("SELECT topic, partition, letter_offset, at_topic, at_partition, at_offset, at_ms, code, release, redrive, redrive_try FROM sightings WHERE item = ? ORDER BY at_ms, topic, partition, letter_offset", []any{it.ID},
		func(scan func(...any) error) error {
			var g Sighting
			err := scan(&g.Letter.Topic, &g.Letter.Partition, &g.Letter.Offset, &g.At.Topic, &g.At.Partition, &g.At.Offset, &g.AtMS, &g.Code, &g.Release, &g.Redrive, &g.Try)
			s.Sightings = append(s.Sightings, g)
			return err
		})
	if err != nil {
		return err
	}
	if s.Repairs, err = readRepairs(tx, it.ID); err != nil {
		return err
	}
	if s.Outcomes, err = readOutcomes(tx, it.ID); err != nil {
		return err
	}
	if it.EventID == "" {
		return nil
	}
	return tx.Each("SELECT id FROM items WHERE tenant = ? AND consumer = ? AND event_id = ? AND event_id <> '' AND id <> ? ORDER BY id", []any{it.Tenant, it.Consumer, it.EventID, it.ID}, func(scan func(...any) error) error {
		var id pipeline.ID
		err := scan(&id)
		s.SameEvent = append(s.SameEvent, id)
		return err
	})
}
