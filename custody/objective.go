package custody

import (
	"context"
	"time"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

// Objective is how old items of a selection may be before somebody has looked at them (Triage) and before they are closed (Resolve);
// 0 is no limit.
type Objective struct {
	Selection Selection
	Triage    time.Duration
	Resolve   time.Duration
}

// Overdue is how many open items of one owner are older than an objective allows.
type Overdue struct {
	Selection string        `json:"selection"`
	What      string        `json:"what"` // triage or resolve
	Limit     time.Duration `json:"-"`
	Tenant    string        `json:"tenant"`
	Owner     string        `json:"owner"`
	Items     int64         `json:"items,string"`
	OldestMS  int64         `json:"oldest_ms,string"`
	Oldest    pipeline.ID   `json:"oldest"`
}

// Overdue counts the open items that are older than the objectives allow, by tenant and owner. Codes: ERR_PERMISSION_DENIED,
// ERR_TENANT_FORBIDDEN, ERR_LEDGER_*.
func (c *Items) Overdue(ctx context.Context, who Actor, objectives []Objective) (out []Overdue, err error) {
	if err := c.Check(ctx, who, PermRead, ""); err != nil {
		return nil, err
	}
	for _, o := range objectives {
		if err := c.mayRead(ctx, who, o.Selection); err != nil {
			return nil, err
		}
	}
	err = c.db.Read(ctx, func(tx *ledger.Tx) error {
		out = nil
		for _, o := range objectives {
			for _, part := range []struct {
				what, states string
				limit        time.Duration
			}{{"triage", "('DEAD_LETTERED')", o.Triage}, {"resolve", openStates, o.Resolve}} {
				if part.limit <= 0 {
					continue
				}
				if out, err = c.overdue(tx, who, o.Selection, part.what, part.states, part.limit, out); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return out, err
}

func (c *Items) overdue(tx *ledger.Tx, who Actor, sel Selection, what, states string, limit time.Duration, out []Overdue) ([]Overdue, error) {
	cond, args := c.scope(tx, who, sel)
	err := tx.Each("SELECT tenant, owner, count(*), min(quarantined_ms) FROM items WHERE "+cond+" AND state IN "+states+" AND quarantined_ms < ? GROUP BY tenant, owner ORDER BY tenant, owner",
		append(args, tx.NowMS()-limit.Milliseconds()), func(scan func(...any) error) error {
			o := Overdue{Selection: sel.String(), What: what, Limit: limit}
			err := scan(&o.Tenant, &o.Owner, &o.Items, &o.OldestMS)
			out = append(out, o)
			return err
		})
	if err != nil {
		return nil, err
	}
	for i := range out {
		if o := &out[i]; o.Oldest == "" {
			if _, err := tx.Row("SELECT id FROM items WHERE tenant = ? AND owner = ? AND quarantined_ms = ? AND state IN "+states+" ORDER BY id LIMIT 1", []any{o.Tenant, o.Owner, o.OldestMS}, &o.Oldest); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}
