package custody

import (
	"context"

	"reprieve.dev/ledger"
)

// Age is how many open items of one tenant, owner and state were quarantined so many days ago.
type Age struct {
	Tenant string
	Owner  string
	State  State
	Days   int64
	N      int64
}

// Aging counts open items by age in whole days, oldest first within tenant and owner; of one tenant or of all that the actor
// may see. It reads the roll-up: the cost does not grow with the number of items. Codes: ERR_PERMISSION_DENIED,
// ERR_TENANT_FORBIDDEN.
func (c *Items) Aging(ctx context.Context, who Actor, tenant string) ([]Age, error) {
	if err := c.Check(ctx, who, PermRead, tenant); err != nil {
		return nil, err
	}
	var out []Age
	err := c.db.Read(ctx, func(tx *ledger.Tx) error {
		out = nil
		cond, args := c.roles.visible(tx, who, "tenant")
		if tenant != "" {
			cond += " AND tenant = ?"
			args = append(args, tenant)
		}
		today := ledger.Day(tx.NowMS())
		return tx.Each("SELECT tenant, owner, state, day, n FROM age_rollup WHERE "+cond+" AND n > 0 AND state IN "+openStates+" ORDER BY tenant, owner, day, state", args, func(scan func(...any) error) error {
			var a Age
			var day int64
			err := scan(&a.Tenant, &a.Owner, &a.State, &day, &a.N)
			a.Days = max(0, today-day)
			out = append(out, a)
			return err
		})
	})
	return out, err
}
