package custody

import (
	"context"
	"strconv"
	"strings"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

func needs(code pipeline.Code, text, what string) error {
	if text != "" {
		return nil
	}
	return pipeline.Errorf(code, "", "%s is missing", what)
}

// firstOf returns the first error.
func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Triage says that somebody looked and has a ticket: DEAD_LETTERED -> TRIAGED. Codes: ERR_TICKET_MISSING, those of a change.
//
// Every change can come back with ERR_PERMISSION_DENIED, ERR_SNAPSHOT_REQUIRED, ERR_SNAPSHOT_CHANGED, ERR_SELECTION_INVALID (no
// such snapshot), ERR_LEDGER_*; and for a single named item with what it was skipped for: ERR_ITEM_UNKNOWN,
// ERR_TENANT_FORBIDDEN, ERR_STATE_TRANSITION_INVALID, ERR_LEGAL_HOLD.
func (c *Items) Triage(ctx context.Context, who Actor, t Target, ticket string) (Report, error) {
	if err := needs(pipeline.CodeTicketMissing, ticket, "a ticket"); err != nil {
		return Report{}, err
	}
	ticket = ledger.Cut(ticket, maxName)
	return c.apply(ctx, who, PermTriage, t, func(tx *ledger.Tx, items []*Item) ([]*Item, []Skip, error) {
		return c.move(tx, who, items, change{ev: Triage, cols: []string{"ticket"}, args: []any{ticket}, detail: map[string]string{"ticket": ticket},
			keep: func(it *Item) { it.Ticket = ticket }})
	})
}

// Hold takes items out of the way until a release: DEAD_LETTERED, TRIAGED, REPAIRED -> POLICY_HOLD. Codes: ERR_REASON_MISSING,
// those of a change.
func (c *Items) Hold(ctx context.Context, who Actor, t Target, reason string) (Report, error) {
	if err := needs(pipeline.CodeReasonMissing, reason, "a reason"); err != nil {
		return Report{}, err
	}
	return c.apply(ctx, who, PermHold, t, func(tx *ledger.Tx, items []*Item) ([]*Item, []Skip, error) {
		return c.moveBy(tx, who, items, func(it *Item) change {
			from := it.State
			return change{ev: Hold, event: string(Hold) + ":" + string(from), cols: []string{"held_from"}, args: []any{string(from)}, detail: map[string]string{"reason": reason},
				keep: func(it *Item) { it.HeldFrom = from }}
		})
	})
}

// Release brings held items back: to DEAD_LETTERED if nobody had triaged them, else to TRIAGED (a repair is made again).
// Codes: ERR_REASON_MISSING, those of a change.
func (c *Items) Release(ctx context.Context, who Actor, t Target, reason string) (Report, error) {
	if err := needs(pipeline.CodeReasonMissing, reason, "a reason"); err != nil {
		return Report{}, err
	}
	return c.apply(ctx, who, PermHold, t, func(tx *ledger.Tx, items []*Item) ([]*Item, []Skip, error) {
		return c.moveBy(tx, who, items, func(it *Item) change {
			ch := change{ev: ReleaseTriaged, cols: []string{"held_from"}, args: []any{""}, detail: map[string]string{"reason": reason}, keep: func(it *Item) { it.HeldFrom = None }}
			if it.HeldFrom == DeadLettered {
				ch.ev = Release
			}
			return ch
		})
	})
}

// Resolutions that a person may give.
const (
	ResolvedApplied    = "already_applied"
	ResolvedSuperseded = "superseded"
	ResolvedCorrected  = "corrected"
)

// Resolve closes items without a redrive, or a redrive whose effect a person has evidence of: -> RECONCILED. Codes:
// ERR_INPUT_INVALID (resolution), ERR_REASON_MISSING, ERR_EVIDENCE_MISSING, those of a change.
func (c *Items) Resolve(ctx context.Context, who Actor, t Target, resolution, reason, evidence string) (Report, error) {
	switch resolution {
	case ResolvedApplied, ResolvedSuperseded, ResolvedCorrected:
	default:
		return Report{}, pipeline.Errorf(pipeline.CodeInputInvalid, resolution, "a resolution is already_applied, superseded or corrected")
	}
	if err := firstOf(needs(pipeline.CodeReasonMissing, reason, "a reason"), needs(pipeline.CodeEvidenceMissing, evidence, "evidence")); err != nil {
		return Report{}, err
	}
	return c.apply(ctx, who, PermResolve, t, func(tx *ledger.Tx, items []*Item) ([]*Item, []Skip, error) {
		moved, skips, err := c.moveBy(tx, who, items, func(it *Item) change {
			ch := change{ev: Resolve, cols: []string{"resolution"}, args: []any{resolution},
				detail: map[string]string{"resolution": resolution, "reason": reason, "evidence": evidence}, keep: func(it *Item) { it.Resolution = resolution }}
			if it.State == Redriving {
				ch.ev = Reconcile
			}
			return ch
		})
		if err != nil {
			return nil, nil, err
		}
		return moved, skips, c.manifestItems(tx, redriven(moved), "reconciled", "")
	})
}

// redriven are the items that a manifest has sent.
func redriven(items []*Item) (out []*Item) {
	for _, it := range items {
		if it.SentFrom != None {
			out = append(out, it)
		}
	}
	return out
}

// Discard gives items up: TRIAGED, REPAIRED -> DISCARDED. It never reaches forward: an item of the same cause that comes later
// is its own. Codes: ERR_REASON_MISSING, ERR_EVIDENCE_MISSING, ERR_LEGAL_HOLD, those of a change.
func (c *Items) Discard(ctx context.Context, who Actor, t Target, reason, evidence string) (Report, error) {
	if err := firstOf(needs(pipeline.CodeReasonMissing, reason, "a reason"), needs(pipeline.CodeEvidenceMissing, evidence, "evidence")); err != nil {
		return Report{}, err
	}
	return c.apply(ctx, who, PermDiscard, t, func(tx *ledger.Tx, items []*Item) ([]*Item, []Skip, error) {
		var free []*Item
		var held []Skip
		for _, it := range items {
			if it.LegalHold != "" {
				held = append(held, Skip{it.ID, it.State, pipeline.CodeLegalHold, "the item is under legal hold"})
				continue
			}
			free = append(free, it)
		}
		moved, skips, err := c.move(tx, who, free, change{ev: Discard, cols: []string{"resolution"}, args: []any{"discarded"},
			detail: map[string]string{"reason": reason, "evidence": evidence}, keep: func(it *Item) { it.Resolution = "discarded" }})
		return moved, append(held, skips...), err
	})
}

// Restore takes a discard back: DISCARDED -> TRIAGED, until the bytes are erased. Codes: ERR_REASON_MISSING, ERR_ERASED, those of
// a change.
func (c *Items) Restore(ctx context.Context, who Actor, t Target, reason string) (Report, error) {
	if err := needs(pipeline.CodeReasonMissing, reason, "a reason"); err != nil {
		return Report{}, err
	}
	return c.apply(ctx, who, PermRestore, t, func(tx *ledger.Tx, items []*Item) ([]*Item, []Skip, error) {
		var there []*Item
		var gone []Skip
		for _, it := range items {
			if it.Flags&FlagErased != 0 {
				gone = append(gone, Skip{it.ID, it.State, pipeline.CodeErased, "the bytes were erased"})
				continue
			}
			there = append(there, it)
		}
		moved, skips, err := c.move(tx, who, there, change{ev: Restore, cols: []string{"resolution"}, args: []any{""}, detail: map[string]string{"reason": reason},
			keep: func(it *Item) { it.Resolution = "" }})
		return moved, append(gone, skips...), err
	})
}

// Unrepair gives repairs up: REPAIRED -> TRIAGED. The repairs stay in the lineage. Codes: ERR_REASON_MISSING, those of a change.
func (c *Items) Unrepair(ctx context.Context, who Actor, t Target, reason string) (Report, error) {
	if err := needs(pipeline.CodeReasonMissing, reason, "a reason"); err != nil {
		return Report{}, err
	}
	return c.apply(ctx, who, PermRepair, t, func(tx *ledger.Tx, items []*Item) ([]*Item, []Skip, error) {
		return c.move(tx, who, items, change{ev: Unrepair, cols: []string{"repair"}, args: []any{""}, detail: map[string]string{"reason": reason}, keep: func(it *Item) { it.Repair = "" }})
	})
}

// Assign gives items an owner; an empty one takes them away. Codes: those of a change.
func (c *Items) Assign(ctx context.Context, who Actor, t Target, owner string) (Report, error) {
	owner = ledger.Cut(owner, maxName)
	return c.apply(ctx, who, PermTriage, t, func(tx *ledger.Tx, items []*Item) ([]*Item, []Skip, error) {
		for _, it := range items {
			tx.Count(it.Tenant, string(it.Group()), string(it.State), it.Owner, it.QuarantinedMS, -1)
			tx.Count(it.Tenant, string(it.Group()), string(it.State), owner, it.QuarantinedMS, 1)
		}
		err := c.set(tx, who, items, change{event: "assign", cols: []string{"owner"}, args: []any{owner}, detail: map[string]string{"owner": owner}, keep: func(it *Item) { it.Owner = owner }})
		return items, nil, err
	})
}

// Note writes a sentence into the history of items. Codes: ERR_INPUT_INVALID (empty), those of a change.
func (c *Items) Note(ctx context.Context, who Actor, t Target, text string) (Report, error) {
	if err := needs(pipeline.CodeInputInvalid, text, "the text of the note"); err != nil {
		return Report{}, err
	}
	return c.apply(ctx, who, PermTriage, t, func(tx *ledger.Tx, items []*Item) ([]*Item, []Skip, error) {
		return items, nil, c.set(tx, who, items, change{event: "note", detail: map[string]string{"note": ledger.Cut(text, 4*maxName)}})
	})
}

// Vouch takes marks off items that somebody has asked about: same_event, rebuilt, conflict, contested. They may then go into a
// bulk redrive. Codes: ERR_INPUT_INVALID (another mark), ERR_EVIDENCE_MISSING, those of a change.
func (c *Items) Vouch(ctx context.Context, who Actor, t Target, marks Flag, evidence string) (Report, error) {
	if marks == 0 || marks&^(FlagSameEvent|FlagRebuilt|FlagConflict|FlagContested) != 0 {
		return Report{}, pipeline.Errorf(pipeline.CodeInputInvalid, "", "one can vouch for same_event, rebuilt, conflict and contested")
	}
	if err := needs(pipeline.CodeEvidenceMissing, evidence, "evidence"); err != nil {
		return Report{}, err
	}
	return c.apply(ctx, who, PermResolve, t, func(tx *ledger.Tx, items []*Item) ([]*Item, []Skip, error) {
		for flags, its := range byFlags(items) {
			left := flags &^ marks
			ch := change{event: "vouched", cols: []string{"flags"}, args: []any{int64(left)}, detail: map[string]string{"marks": strings.Join((flags & marks).Names(), " "), "evidence": evidence}, keep: func(it *Item) { it.Flags = left }}
			if err := c.set(tx, who, its, ch); err != nil {
				return nil, nil, err
			}
		}
		return items, nil, nil
	})
}

// LegalHold stops expiry, discard and erasure of items until Unhold; ref names the matter. Codes: ERR_REASON_MISSING, those of a
// change.
func (c *Items) LegalHold(ctx context.Context, who Actor, t Target, ref string) (Report, error) {
	if err := needs(pipeline.CodeReasonMissing, ref, "the matter of the legal hold"); err != nil {
		return Report{}, err
	}
	return c.legalHold(ctx, who, t, ledger.Cut(ref, maxName), "legal_hold", map[string]string{"ref": ref})
}

// Unhold lifts a legal hold. Codes: ERR_REASON_MISSING, those of a change.
func (c *Items) Unhold(ctx context.Context, who Actor, t Target, reason string) (Report, error) {
	if err := needs(pipeline.CodeReasonMissing, reason, "a reason"); err != nil {
		return Report{}, err
	}
	return c.legalHold(ctx, who, t, "", "legal_unhold", map[string]string{"reason": reason})
}

func (c *Items) legalHold(ctx context.Context, who Actor, t Target, ref, event string, detail map[string]string) (Report, error) {
	return c.apply(ctx, who, PermLegalHold, t, func(tx *ledger.Tx, items []*Item) ([]*Item, []Skip, error) {
		err := c.set(tx, who, items, change{event: event, cols: []string{"legal_hold"}, args: []any{ref}, detail: detail, keep: func(it *Item) { it.LegalHold = ref }})
		return items, nil, err
	})
}

// moveBy is move with a change that depends on the item; items with the same event and name are moved together.
func (c *Items) moveBy(tx *ledger.Tx, who Actor, items []*Item, of func(*Item) change) (moved []*Item, skips []Skip, err error) {
	type set struct {
		ch    change
		items []*Item
	}
	sets := map[string]*set{}
	var order []string
	for _, it := range items {
		ch := of(it)
		k := string(ch.ev) + " " + ch.event
		if sets[k] == nil {
			sets[k] = &set{ch: ch}
			order = append(order, k)
		}
		sets[k].items = append(sets[k].items, it)
	}
	for _, k := range order {
		ch := sets[k].ch
		ch.event = ""
		m, s, err := c.move(tx, who, sets[k].items, ch)
		if err != nil {
			return nil, nil, err
		}
		moved, skips = append(moved, m...), append(skips, s...)
	}
	return moved, skips, nil
}

// groupChange changes the row of a group.
func (c *Items) groupChange(ctx context.Context, who Actor, perm Permission, tenant string, fp pipeline.ID, event string, cols string, args []any, detail map[string]string) error {
	if err := c.Check(ctx, who, perm, tenant); err != nil {
		return err
	}
	return c.db.Write(ctx, func(tx *ledger.Tx) error {
		n, err := tx.Exec("UPDATE groups SET rev = rev + 1, "+cols+" WHERE tenant = ? AND fingerprint = ?", append(append([]any{}, args...), tenant, fp)...)
		if err != nil {
			return err
		}
		if n == 0 {
			return pipeline.Errorf(pipeline.CodeItemUnknown, string(fp), "there is no such group")
		}
		d := map[string]string{"fingerprint": string(fp)}
		for k, v := range detail {
			d[k] = v
		}
		tx.Append(ledger.Entry{Tenant: tenant, Event: event, Actor: who.Subject, Detail: d})
		return nil
	})
}

// AssignGroup gives a group an owner and a ticket. Items keep theirs. Codes: ERR_ITEM_UNKNOWN, ERR_PERMISSION_DENIED,
// ERR_TENANT_FORBIDDEN.
func (c *Items) AssignGroup(ctx context.Context, who Actor, tenant string, fp pipeline.ID, owner, ticket string) error {
	return c.groupChange(ctx, who, PermTriage, tenant, fp, "group_assign", "owner = ?, ticket = ?", []any{ledger.Cut(owner, maxName), ledger.Cut(ticket, maxName)}, map[string]string{"owner": owner, "ticket": ticket})
}

// NoteGroup sets the note of a group. Codes: as AssignGroup.
func (c *Items) NoteGroup(ctx context.Context, who Actor, tenant string, fp pipeline.ID, text string) error {
	text = ledger.Cut(text, 4*maxName)
	return c.groupChange(ctx, who, PermTriage, tenant, fp, "group_note", "note = ?", []any{text}, map[string]string{"note": text})
}

// Mute keeps alerts about a group quiet until a time; 0 ends it. Items come into custody as before. Codes: ERR_REASON_MISSING, as
// AssignGroup.
func (c *Items) Mute(ctx context.Context, who Actor, tenant string, fp pipeline.ID, untilMS int64, reason string) error {
	if err := needs(pipeline.CodeReasonMissing, reason, "a reason"); err != nil {
		return err
	}
	return c.groupChange(ctx, who, PermTriage, tenant, fp, "group_mute", "muted_until_ms = ?, muted_by = ?", []any{untilMS, who.Subject}, map[string]string{"until_ms": strconv.FormatInt(untilMS, 10), "reason": reason})
}
