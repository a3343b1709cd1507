package ledger

import (
	"cmp"
	"maps"
	"slices"
)

type rollKey struct{ tenant, fingerprint, state string }

type ageKey struct {
	tenant, owner, state string
	day                  int64
}

// DayMS is a day in milliseconds: ages are rolled up by the day of quarantine.
const DayMS = 24 * 60 * 60 * 1000

// Count changes the roll-ups by n items of this group, state, owner and day. INV-ROLLUP: they change in the transaction that
// changes the items.
func (t *Tx) Count(tenant, fingerprint, state, owner string, quarantinedMS, n int64) {
	if t.rolls == nil {
		t.rolls, t.ages = map[rollKey]int64{}, map[ageKey]int64{}
	}
	t.rolls[rollKey{Clean(tenant), Clean(fingerprint), state}] += n
	t.ages[ageKey{Clean(tenant), Clean(owner), state, Day(quarantinedMS)}] += n
}

// Day is the number of the day of a time, rounded down also before 1970.
func Day(ms int64) int64 {
	d := ms / DayMS
	if ms%DayMS < 0 {
		d--
	}
	return d
}

func (t *Tx) flushRolls() error {
	if len(t.rolls) == 0 {
		return nil
	}
	keys := slices.SortedFunc(maps.Keys(t.rolls), func(a, b rollKey) int {
		return cmp.Or(cmp.Compare(a.tenant, b.tenant), cmp.Compare(a.fingerprint, b.fingerprint), cmp.Compare(a.state, b.state))
	})
	for _, k := range keys {
		n := t.rolls[k]
		if n == 0 {
			continue
		}
		if _, err := t.Exec(`INSERT INTO group_rollup (tenant, fingerprint, state, n) VALUES (?, ?, ?, ?)
			ON CONFLICT (tenant, fingerprint, state) DO UPDATE SET n = group_rollup.n + excluded.n`, k.tenant, k.fingerprint, k.state, n); err != nil {
			return err
		}
	}
	ages := slices.SortedFunc(maps.Keys(t.ages), func(a, b ageKey) int {
		return cmp.Or(cmp.Compare(a.tenant, b.tenant), cmp.Compare(a.owner, b.owner), cmp.Compare(a.state, b.state), cmp.Compare(a.day, b.day))
	})
	for _, k := range ages {
		n := t.ages[k]
		if n == 0 {
			continue
		}
		if _, err := t.Exec(`INSERT INTO age_rollup (tenant, owner, state, day, n) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT (tenant, owner, state, day) DO UPDATE SET n = age_rollup.n + excluded.n`, k.tenant, k.owner, k.state, k.day, n); err != nil {
			return err
		}
	}
	return nil
}
