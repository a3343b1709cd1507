package ledger

import (
	"cmp"
	"maps"
	"slices"
	"strings"
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
	var groups, byAge rollRows
	for _, k := range keys {
		if n := t.rolls[k]; n != 0 {
			groups.add(n, 0, k.tenant, k.fingerprint, k.state)
		}
	}
	if err := t.addRolls("group_rollup", []string{"tenant", "fingerprint", "state"}, "", &groups); err != nil {
		return err
	}
	ages := slices.SortedFunc(maps.Keys(t.ages), func(a, b ageKey) int {
		return cmp.Or(cmp.Compare(a.tenant, b.tenant), cmp.Compare(a.owner, b.owner), cmp.Compare(a.state, b.state), cmp.Compare(a.day, b.day))
	})
	for _, k := range ages {
		if n := t.ages[k]; n != 0 {
			byAge.add(n, k.day, k.tenant, k.owner, k.state)
		}
	}
	return t.addRolls("age_rollup", []string{"tenant", "owner", "state"}, "day", &byAge)
}

// rollRows are rows of a roll-up by column, in key order.
type rollRows struct {
	texts [3][]string
	days  []int64
	n     []int64
}

func (r *rollRows) add(n, day int64, texts ...string) {
	for i, s := range texts {
		r.texts[i] = append(r.texts[i], s)
	}
	r.days, r.n = append(r.days, day), append(r.n, n)
}

// addRolls adds to a roll-up: one statement on PostgreSQL, where each costs a round trip. Rows are locked in key order.
func (t *Tx) addRolls(table string, texts []string, day string, r *rollRows) error {
	key := slices.Clone(texts)
	if day != "" {
		key = append(key, day)
	}
	cols := strings.Join(append(slices.Clone(key), "n"), ", ")
	merge := " ON CONFLICT (" + strings.Join(key, ", ") + ") DO UPDATE SET n = " + table + ".n + excluded.n"
	if t.db.dialect == Postgres {
		if len(r.n) == 0 {
			return nil
		}
		arrays := strings.Repeat("?::text[], ", len(texts))
		args := []any{r.texts[0], r.texts[1], r.texts[2]}
		if day != "" {
			arrays, args = arrays+"?::bigint[], ", append(args, r.days)
		}
		_, err := t.Exec("INSERT INTO "+table+" ("+cols+") SELECT * FROM unnest("+arrays+"?::bigint[])"+merge, append(args, r.n)...)
		return err
	}
	for i := range r.n {
		args := []any{r.texts[0][i], r.texts[1][i], r.texts[2][i]}
		if day != "" {
			args = append(args, r.days[i])
		}
		if _, err := t.Exec("INSERT INTO "+table+" ("+cols+") VALUES (?"+strings.Repeat(", ?", len(args))+")"+merge, append(args, r.n[i])...); err != nil {
			return err
		}
	}
	return nil
}
