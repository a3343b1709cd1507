package custody

import (
	"context"
	"slices"
	"strings"
	"time"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

// GlassLife is how long a permission is held that a person has taken.
const GlassLife = 15 * time.Minute

// Grant is a permission that a person has taken for GlassLife, because nobody who has it could be reached.
type Grant struct {
	Permission Permission
	Reason     string
	Until      time.Time
}

// unbreakable are permissions that take a second person: no glass stands before them.
var unbreakable = []Permission{PermApprove, PermLift}

// BreakGlass gives a person a permission that they miss, within the tenants that they have, for GlassLife. It is in the history
// before it holds; the caller has raised the alarm before. Codes: ERR_REASON_MISSING, ERR_INPUT_INVALID (no such permission, or they
// have it), ERR_PERMISSION_DENIED (one that takes a second person; a program; somebody without any role).
func (c *Items) BreakGlass(ctx context.Context, who Actor, p Permission, reason string) (Grant, error) {
	g := Grant{Permission: p, Reason: reason, Until: c.clock().Add(GlassLife)}
	if err := c.MayBreakGlass(ctx, who, p, reason); err != nil {
		return g, err
	}
	return g, c.db.Write(ctx, func(tx *ledger.Tx) error {
		g.Until = time.UnixMilli(tx.NowMS()).Add(GlassLife)
		tx.Append(ledger.Entry{Event: "break_glass", Actor: who.Subject, Detail: map[string]string{"permission": string(p), "reason": reason, "until": g.Until.UTC().Format(pipeline.TimeForm), "via": who.Via}})
		return tx.Insert("grants", []string{"subject", "permission", "until_ms", "reason", "at_ms"},
			[][]any{{who.Subject, string(p), g.Until.UnixMilli(), ledger.Cut(reason, maxReason), tx.NowMS()}})
	})
}

// MayBreakGlass tells whether BreakGlass would be refused, and changes nothing but the history of refusals. Codes: as BreakGlass.
func (c *Items) MayBreakGlass(ctx context.Context, who Actor, p Permission, reason string) error {
	deny := func(text string) error {
		return c.refused(ctx, who, "break_glass", "", "", pipeline.Errorf(pipeline.CodePermissionDenied, who.Subject, "%s", text))
	}
	switch {
	case strings.TrimSpace(reason) == "":
		return pipeline.Errorf(pipeline.CodeReasonMissing, "", "a reason is missing")
	case !slices.Contains(Permissions(), p):
		return pipeline.Errorf(pipeline.CodeInputInvalid, string(p), "there is no such permission")
	case who.Subject == "" || strings.HasPrefix(who.Subject, ledger.SystemActor) || who.Via == "worker" || who.Via == "api":
		return deny("only a person may take a permission")
	case len(who.Roles) == 0:
		return deny("somebody without any role may take nothing")
	case slices.Contains(unbreakable, p):
		return deny("what takes a second person cannot be taken by one")
	case c.roles.has(who, p):
		return pipeline.Errorf(pipeline.CodeInputInvalid, string(p), "they have this permission")
	}
	return nil
}

// Granted is the actor with the permissions that they have taken and that still hold. An actor lives for one command or request. Codes:
// ERR_LEDGER_*.
func (c *Items) Granted(ctx context.Context, who Actor) (Actor, error) {
	err := c.db.Read(ctx, func(tx *ledger.Tx) error {
		who.taken = nil
		return tx.Each("SELECT DISTINCT permission FROM grants WHERE subject = ? AND until_ms > ? ORDER BY permission", []any{who.Subject, tx.NowMS()}, func(scan func(...any) error) error {
			var p Permission
			err := scan(&p)
			if !slices.Contains(unbreakable, p) {
				who.taken = append(who.taken, p)
			}
			return err
		})
	})
	return who, err
}
