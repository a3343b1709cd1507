package custody

import (
	"context"
	"strconv"
	"strings"
	"time"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

// Extension is a decision about when items end, later or earlier than their class says. One person proposes it, another approves it;
// until then nothing has changed.
type Extension struct {
	ID        string          `json:"id"`
	Snapshot  string          `json:"snapshot"` // exactly these items
	Tenants   []string        `json:"tenants"`
	Items     int64           `json:"items,string"`
	Digest    pipeline.Digest `json:"digest"`
	UntilMS   int64           `json:"until_ms,string"`
	Reason    string          `json:"reason"`
	State     string          `json:"state"` // proposed or approved
	Author    string          `json:"author"`
	Approver  string          `json:"approver,omitempty"`
	CreatedMS int64           `json:"created_ms,string"`
}

// The states of an extension.
const (
	ExtensionProposed = "proposed"
	ExtensionApproved = "approved"
)

// ProposeExtension asks for another end of items, with a reason; it does nothing until somebody else approves it. Named items are frozen
// into a snapshot. Codes: ERR_REASON_MISSING, ERR_INPUT_INVALID (a time that is past), ERR_SNAPSHOT_REQUIRED, ERR_SNAPSHOT_CHANGED,
// ERR_SELECTION_INVALID (no such snapshot), ERR_ITEM_UNKNOWN (or not theirs to see), ERR_PERMISSION_DENIED, ERR_TENANT_FORBIDDEN.
func (c *Items) ProposeExtension(ctx context.Context, who Actor, t Target, until time.Time, reason string) (Extension, error) {
	x := Extension{ID: randomID("e"), UntilMS: until.UnixMilli(), Reason: ledger.Cut(reason, maxName), State: ExtensionProposed, Author: who.Subject}
	if err := firstOf(c.Check(ctx, who, PermRetention, ""), needs(pipeline.CodeReasonMissing, reason, "a reason")); err != nil {
		return x, err
	}
	if !until.After(c.clock()) {
		return x, pipeline.Errorf(pipeline.CodeInputInvalid, until.UTC().Format(pipeline.TimeForm), "the new end is past")
	}
	s, err := c.frozen(ctx, who, t)
	if err == nil && s.Count == 0 {
		err = pipeline.Errorf(pipeline.CodeItemUnknown, s.ID, "the snapshot holds no item")
	}
	if err != nil {
		return x, err
	}
	x.Snapshot, x.Items, x.Digest = s.ID, s.Count, s.Digest
	err = c.db.Write(ctx, func(tx *ledger.Tx) error {
		x.CreatedMS = tx.NowMS()
		var tenants string
		if _, err := tx.Row("SELECT tenants FROM snapshots WHERE id = ?", []any{s.ID}, &tenants); err != nil {
			return err
		}
		x.Tenants = strings.Split(tenants, "\n")
		if err := c.seesAll(who, PermRetention, x.Tenants); err != nil {
			return err
		}
		tx.Append(ledger.Entry{Tenant: x.tenant(), Event: "extension_proposed", Actor: who.Subject,
			Detail: map[string]string{"extension": x.ID, "snapshot": s.ID, "digest": string(s.Digest), "until_ms": strconv.FormatInt(x.UntilMS, 10), "reason": x.Reason}})
		return tx.Insert("extensions", columnList(extensionColumns),
			[][]any{{x.ID, x.Snapshot, tenants, x.Items, x.Digest, x.UntilMS, x.Reason, x.State, x.Author, "", x.CreatedMS}})
	})
	return x, c.refused(ctx, who, string(PermRetention), "", x.tenant(), err)
}

// frozen is the snapshot that a target names, or one of the items that it names.
func (c *Items) frozen(ctx context.Context, who Actor, t Target) (s Snapshot, err error) {
	switch {
	case t.Snapshot != "":
		err = c.db.Read(ctx, func(tx *ledger.Tx) (err error) {
			s, err = readSnapshot(tx, t.Snapshot)
			return err
		})
		return s, firstOf(err, s.is(t))
	case t.Selection != "" || len(t.Items) == 0:
		return s, pipeline.Errorf(pipeline.CodeSnapshotRequired, "", "a change of many items names a snapshot, its count and its digest")
	}
	names, distinct := make([]string, len(t.Items)), map[pipeline.ID]bool{}
	for i, id := range t.Items {
		names[i], distinct[id] = strconv.Quote(string(id)), true
	}
	sel, err := ParseSelection("id=" + strings.Join(names, "|"))
	if err != nil {
		return s, err
	}
	if s, err = c.TakeSnapshot(ctx, who, sel); err == nil && s.Count != int64(len(distinct)) {
		err = pipeline.Errorf(pipeline.CodeItemUnknown, string(t.Items[0]), "%d of these items are there and theirs to see", s.Count)
	}
	return s, err
}

// tenant is whose history the decision stands in: that of the one tenant, or nobody's.
func (x *Extension) tenant() string {
	if len(x.Tenants) == 1 {
		return x.Tenants[0]
	}
	return ""
}

// seesAll refuses an actor for whom any of the tenants is not.
func (c *Items) seesAll(who Actor, p Permission, tenants []string) error {
	for _, t := range tenants {
		if err := c.roles.check(who, p, t); err != nil {
			return err
		}
	}
	return nil
}

// ApproveExtension makes a proposal of somebody else hold: the items end then, and their history says who asked and who approved. It may
// be repeated by the same person after an interruption; items that end then already are skipped. progress may be nil. Codes:
// ERR_APPROVAL_INVALID (no such proposal, approved by somebody else, or its time is past), ERR_APPROVAL_SELF, ERR_PERMISSION_DENIED,
// ERR_TENANT_FORBIDDEN, those of a change.
func (c *Items) ApproveExtension(ctx context.Context, who Actor, id string, progress func(done, total int64)) (Report, error) {
	if err := c.Check(ctx, who, PermApprove, ""); err != nil {
		return Report{}, err
	}
	var x Extension
	err := c.db.Write(ctx, func(tx *ledger.Tx) error {
		x = Extension{}
		if err := tx.Lock("extensions"); err != nil {
			return err
		}
		list, err := readExtensions(tx, "WHERE id = ?", id)
		switch {
		case err != nil:
			return err
		case len(list) == 0:
			return pipeline.Errorf(pipeline.CodeApprovalInvalid, id, "there is no such extension")
		}
		x = list[0]
		switch err := c.seesAll(who, PermApprove, x.Tenants); {
		case err != nil:
			return err
		case x.Author == who.Subject:
			return pipeline.Errorf(pipeline.CodeApprovalSelf, id, "the author may not approve their own extension")
		case x.State == ExtensionApproved && x.Approver != who.Subject:
			return pipeline.Errorf(pipeline.CodeApprovalInvalid, id, "%s has approved it", x.Approver)
		case x.UntilMS <= tx.NowMS():
			return pipeline.Errorf(pipeline.CodeApprovalInvalid, id, "the end that it asks for is past")
		case x.State == ExtensionApproved:
			return nil // again, after an interruption
		}
		x.State, x.Approver = ExtensionApproved, who.Subject
		if _, err := tx.Exec("UPDATE extensions SET state = ?, approver = ? WHERE id = ?", x.State, x.Approver, id); err != nil {
			return err
		}
		tx.Append(ledger.Entry{Tenant: x.tenant(), Event: "extension_approved", Actor: who.Subject, Detail: map[string]string{"extension": id}})
		return nil
	})
	if err := c.refused(ctx, who, string(PermApprove), "", x.tenant(), err); err != nil {
		return Report{}, err
	}
	ends := change{event: "extend", cols: []string{"expires_ms"}, args: []any{x.UntilMS}, keep: func(it *Item) { it.ExpiresMS = x.UntilMS },
		detail: map[string]string{"until_ms": strconv.FormatInt(x.UntilMS, 10), "reason": x.Reason, "extension": x.ID, "proposed_by": x.Author}}
	return c.apply(ctx, who, PermApprove, Target{Snapshot: x.Snapshot, Count: x.Items, Digest: x.Digest, Progress: progress}, func(tx *ledger.Tx, items []*Item) ([]*Item, []Skip, error) {
		var todo []*Item
		var skips []Skip
		for _, it := range items {
			if it.ExpiresMS == x.UntilMS {
				skips = append(skips, Skip{it.ID, it.State, pipeline.CodeStateChanged, "it ends then already"})
				continue
			}
			todo = append(todo, it)
		}
		return todo, skips, c.set(tx, who, todo, ends)
	})
}

const extensionColumns = "id, snapshot, tenants, items, digest, until_ms, reason, state, author, approver, created_ms"

func readExtensions(tx *ledger.Tx, where string, args ...any) (out []Extension, err error) {
	err = tx.Each("SELECT "+extensionColumns+" FROM extensions "+where, args, func(scan func(...any) error) error {
		var x Extension
		var tenants string
		err := scan(&x.ID, &x.Snapshot, &tenants, &x.Items, &x.Digest, &x.UntilMS, &x.Reason, &x.State, &x.Author, &x.Approver, &x.CreatedMS)
		x.Tenants = strings.Split(tenants, "\n")
		out = append(out, x)
		return err
	})
	return out, err
}

// Extensions are the extensions over tenants that the actor may see, newest first; with history, also those that are approved. Codes:
// ERR_PERMISSION_DENIED.
func (c *Items) Extensions(ctx context.Context, who Actor, history bool) (out []Extension, err error) {
	if err := c.Check(ctx, who, PermRead, ""); err != nil {
		return nil, err
	}
	where := "WHERE state = 'proposed' "
	if history {
		where = ""
	}
	err = c.db.Read(ctx, func(tx *ledger.Tx) error {
		out = nil
		all, err := readExtensions(tx, where+"ORDER BY created_ms DESC, id")
		for _, x := range all {
			if c.seesAll(who, PermRead, x.Tenants) == nil {
				out = append(out, x)
			}
		}
		return err
	})
	return out, err
}
