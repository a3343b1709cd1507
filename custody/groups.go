package custody

import (
	"cmp"
	"context"
	"slices"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

// Group is all items of one cause and tenant, as persons have put them together: Fingerprint is the group's id, that of the items
// unless it was split off another.
type Group struct {
	Tenant       string
	Fingerprint  pipeline.ID
	Pipeline     string
	Consumer     string
	Class        pipeline.Class
	Code         pipeline.Code
	Stage        string
	Reason       string // of the first item: a sample
	FirstMS      int64
	FirstRelease string
	FirstSchema  string
	FirstItem    pipeline.ID
	LastMS       int64
	LastRelease  string
	LastSchema   string
	LastItem     pipeline.ID
	Owner        string
	Ticket       string
	Note         string
	MutedUntilMS int64
	MutedBy      string
	Rev          int64
	Counts       map[State]int64
}

// Open is how many of its items are open.
func (g *Group) Open() (n int64) {
	for s, c := range g.Counts {
		if s.Open() {
			n += c
		}
	}
	return n
}

// Total is how many items it has.
func (g *Group) Total() (n int64) {
	for _, c := range g.Counts {
		n += c
	}
	return n
}

// Muted tells whether nobody is to be told of new items.
func (g *Group) Muted(nowMS int64) bool { return g.MutedUntilMS > nowMS }

// countGroups brings the group rows of new items up to date: first and last seen, by time.
func (c *Items) countGroups(tx *ledger.Tx, items []*Item) error {
	type key struct{ tenant, fp string }
	first, last := map[key]*Item{}, map[key]*Item{}
	var keys []key
	for _, it := range items {
		k := key{it.Tenant, string(it.Group())}
		f := first[k]
		if f == nil {
			keys = append(keys, k)
			first[k], last[k] = it, it
			continue
		}
		if it.QuarantinedMS < f.QuarantinedMS {
			first[k] = it
		}
		if it.QuarantinedMS >= last[k].QuarantinedMS {
			last[k] = it
		}
	}
	slices.SortFunc(keys, func(a, b key) int { return cmp.Or(cmp.Compare(a.tenant, b.tenant), cmp.Compare(a.fp, b.fp)) })
	for _, k := range keys {
		f, l := first[k], last[k]
		if _, err := tx.Exec(`INSERT INTO groups (tenant, fingerprint, pipeline, consumer, class, code, stage, reason, first_ms, first_release, first_schema, first_item,
			last_ms, last_release, last_schema, last_item, owner, ticket, note, muted_until_ms, muted_by, rev)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '', '', '', 0, '', 1)
			ON CONFLICT (tenant, fingerprint) DO UPDATE SET
			first_release = CASE WHEN excluded.first_ms < groups.first_ms THEN excluded.first_release ELSE groups.first_release END,
			first_schema = CASE WHEN excluded.first_ms < groups.first_ms THEN excluded.first_schema ELSE groups.first_schema END,
			first_item = CASE WHEN excluded.first_ms < groups.first_ms THEN excluded.first_item ELSE groups.first_item END,
			first_ms = CASE WHEN excluded.first_ms < groups.first_ms THEN excluded.first_ms ELSE groups.first_ms END,
			last_release = CASE WHEN excluded.last_ms >= groups.last_ms THEN excluded.last_release ELSE groups.last_release END,
			last_schema = CASE WHEN excluded.last_ms >= groups.last_ms THEN excluded.last_schema ELSE groups.last_schema END,
			last_item = CASE WHEN excluded.last_ms >= groups.last_ms THEN excluded.last_item ELSE groups.last_item END,
			last_ms = CASE WHEN excluded.last_ms >= groups.last_ms THEN excluded.last_ms ELSE groups.last_ms END`,
			k.tenant, k.fp, f.Pipeline, f.Consumer, f.Class.String(), f.Code, f.Stage, f.Reason, f.QuarantinedMS, f.Release, f.Schema, f.ID,
			l.QuarantinedMS, l.Release, l.Schema, l.ID); err != nil {
			return err
		}
	}
	return nil
}

// GroupFilter chooses groups; empty fields do not choose.
type GroupFilter struct {
	Tenant, Pipeline, Owner string
	Class                   pipeline.Class
	OnlyOpen                bool
	Limit                   int // default 100, at most 1000
}

const groupColumns = `g.tenant, g.fingerprint, g.pipeline, g.consumer, g.class, g.code, g.stage, g.reason, g.first_ms, g.first_release, g.first_schema, g.first_item,
	g.last_ms, g.last_release, g.last_schema, g.last_item, g.owner, g.ticket, g.note, g.muted_until_ms, g.muted_by, g.rev`

func scanGroup(scan func(...any) error, g *Group, more ...any) error {
	var class string
	err := scan(append([]any{&g.Tenant, &g.Fingerprint, &g.Pipeline, &g.Consumer, &class, &g.Code, &g.Stage, &g.Reason, &g.FirstMS, &g.FirstRelease, &g.FirstSchema, &g.FirstItem,
		&g.LastMS, &g.LastRelease, &g.LastSchema, &g.LastItem, &g.Owner, &g.Ticket, &g.Note, &g.MutedUntilMS, &g.MutedBy, &g.Rev}, more...)...)
	g.Class, _ = pipeline.ParseClass(class)
	return err
}

// Groups are the causes that the actor may see, the one with the most open items first. Counts come from the roll-up: the
// cost does not grow with the number of items. Codes: ERR_PERMISSION_DENIED.
func (c *Items) Groups(ctx context.Context, who Actor, f GroupFilter) ([]Group, error) {
	if err := c.Check(ctx, who, PermRead, f.Tenant); err != nil {
		return nil, err
	}
	if f.Limit <= 0 || f.Limit > 1000 {
		f.Limit = 100
	}
	var out []Group
	err := c.db.Read(ctx, func(tx *ledger.Tx) error {
		out = nil
		cond, args := c.roles.visible(tx, who, "g.tenant")
		add := func(text string, v any) {
			cond += " AND " + text
			args = append(args, v)
		}
		if f.Tenant != "" {
			add("g.tenant = ?", f.Tenant)
		}
		if f.Pipeline != "" {
			add("g.pipeline = ?", f.Pipeline)
		}
		if f.Owner != "" {
			add("g.owner = ?", f.Owner)
		}
		if f.Class != pipeline.ClassNone {
			add("g.class = ?", f.Class.String())
		}
		having := ""
		if f.OnlyOpen {
			having = " HAVING sum(CASE WHEN r.state IN " + openStates + " THEN r.n ELSE 0 END) > 0"
		}
		q := `SELECT g.tenant, g.fingerprint FROM groups g JOIN group_rollup r ON r.tenant = g.tenant AND r.fingerprint = g.fingerprint AND r.n > 0 WHERE ` + cond +
			` GROUP BY g.tenant, g.fingerprint, g.last_ms` + having + ` ORDER BY sum(CASE WHEN r.state IN ` + openStates + ` THEN r.n ELSE 0 END) DESC, g.last_ms DESC, g.fingerprint LIMIT ?`
		type key struct{ tenant, fp string }
		var keys []key
		if err := tx.Each(q, append(args, f.Limit), func(scan func(...any) error) error {
			var k key
			err := scan(&k.tenant, &k.fp)
			keys = append(keys, k)
			return err
		}); err != nil {
			return err
		}
		ids := make([]string, len(keys))
		index := map[key]int{}
		for i, k := range keys {
			ids[i], index[k] = k.fp, i
		}
		out = make([]Group, len(keys))
		in, arg := tx.In("g.fingerprint", ids)
		if err := tx.Each("SELECT "+groupColumns+" FROM groups g WHERE "+in, []any{arg}, func(scan func(...any) error) error {
			var g Group
			err := scanGroup(scan, &g)
			if i, wanted := index[key{g.Tenant, string(g.Fingerprint)}]; wanted {
				g.Counts = map[State]int64{}
				out[i] = g
			}
			return err
		}); err != nil {
			return err
		}
		in, arg = tx.In("fingerprint", ids)
		return tx.Each("SELECT tenant, fingerprint, state, n FROM group_rollup WHERE n > 0 AND "+in, []any{arg}, func(scan func(...any) error) error {
			var k key
			var s State
			var n int64
			err := scan(&k.tenant, &k.fp, &s, &n)
			if i, wanted := index[k]; wanted {
				out[i].Counts[s] = n
			}
			return err
		})
	})
	return out, err
}

const openStates = "('DEAD_LETTERED', 'TRIAGED', 'REPAIRED', 'REDRIVING', 'REDRIVE_FAILED', 'POLICY_HOLD')"

func readGroup(tx *ledger.Tx, tenant, fp string) (g Group, found bool, err error) {
	g.Counts = map[State]int64{}
	err = tx.Each("SELECT "+groupColumns+" FROM groups g WHERE g.tenant = ? AND g.fingerprint = ?", []any{tenant, fp}, func(scan func(...any) error) error {
		found = true
		return scanGroup(scan, &g)
	})
	if err != nil || !found {
		return g, found, err
	}
	err = tx.Each("SELECT state, n FROM group_rollup WHERE tenant = ? AND fingerprint = ? AND n > 0", []any{tenant, fp}, func(scan func(...any) error) error {
		var s State
		var n int64
		err := scan(&s, &n)
		g.Counts[s] = n
		return err
	})
	return g, true, err
}

// Group is one cause of one tenant, with up to samples of its newest items. Codes: ERR_ITEM_UNKNOWN, ERR_PERMISSION_DENIED,
// ERR_TENANT_FORBIDDEN.
func (c *Items) Group(ctx context.Context, who Actor, tenant string, fp pipeline.ID, samples int) (Group, []*Item, error) {
	if err := c.Check(ctx, who, PermRead, tenant); err != nil {
		return Group{}, nil, err
	}
	var g Group
	var items []*Item
	err := c.db.Read(ctx, func(tx *ledger.Tx) (err error) {
		items = nil
		var found bool
		g, found, err = readGroup(tx, tenant, string(fp))
		if err != nil {
			return err
		}
		if !found {
			return pipeline.Errorf(pipeline.CodeItemUnknown, string(fp), "there is no such group")
		}
		return tx.Each("SELECT "+itemColumns+" FROM items WHERE tenant = ? AND (group_key = ? OR (group_key IS NULL AND fingerprint = ?)) ORDER BY quarantined_ms DESC, id LIMIT ?", []any{tenant, fp, fp, samples}, func(scan func(...any) error) error {
			it, err := scanItem(scan)
			items = append(items, it)
			return err
		})
	})
	return g, items, err
}
