package custody

import (
	"context"
	"encoding/json"
	"time"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

// Rule is a standing decision about one cause of one tenant: what a person would do with each new item of it. It is proposed by
// one person and approved by another, has versions, and ends. It may bring new items to TRIAGED, and through its pinned
// repair to REPAIRED; never to a send.
type Rule struct {
	ID          string      `json:"id"`
	Version     int         `json:"version"`
	Tenant      string      `json:"tenant"`
	Fingerprint pipeline.ID `json:"fingerprint"`
	State       string      `json:"state"` // proposed, active, removed, replaced
	Owner       string      `json:"owner,omitempty"`
	Ticket      string      `json:"ticket,omitempty"` // new items are triaged under it
	Repair      string      `json:"repair,omitempty"` // name@version of a transform; a runner in redrive applies it
	RepairConf  string      `json:"repair_config,omitempty"`
	Artifact    string      `json:"repair_artifact,omitempty"` // digest of the transform's code: pinned
	Mute        bool        `json:"mute,omitempty"`
	Author      string      `json:"author"`
	Approver    string      `json:"approver,omitempty"`
	CreatedMS   int64       `json:"created_ms,string"`
	ExpiresMS   int64       `json:"expires_ms,string"`
	Matched     int64       `json:"matched,string"`
}

// The states of a rule.
const (
	RuleProposed = "proposed"
	RuleActive   = "active"
	RuleRemoved  = "removed"
	RuleReplaced = "replaced"
)

// SampleEvery is how many items of a rule go by before one is left to a person: a fingerprint that groups too much shows there.
const SampleEvery = 100

// maxRule is the longest life of a rule: it is then approved anew.
const maxRule = 180 * 24 * time.Hour

// ProposeRule stores a rule, or the next version of one when ID is set; it does nothing until somebody else approves it. Codes:
// ERR_RULE_INVALID, ERR_PERMISSION_DENIED, ERR_TENANT_FORBIDDEN.
func (c *Items) ProposeRule(ctx context.Context, who Actor, r Rule) (Rule, error) {
	if err := c.Check(ctx, who, PermRule, r.Tenant); err != nil {
		return r, err
	}
	now := c.clock().UnixMilli()
	invalid := func(text string) (Rule, error) {
		return r, pipeline.Errorf(pipeline.CodeRuleInvalid, string(r.Fingerprint), "%s", text)
	}
	switch {
	case r.Tenant == "" || r.Fingerprint == "":
		return invalid("a rule names a tenant and a fingerprint")
	case r.Owner == "" && r.Ticket == "" && r.Repair == "" && !r.Mute:
		return invalid("a rule gives an owner, a ticket, a repair or quiet")
	case r.Repair != "" && r.Ticket == "":
		return invalid("a pinned repair needs a ticket: items are triaged before they are repaired")
	case r.Repair != "" && r.Artifact == "":
		return invalid("a repair is pinned by the digest of its code")
	case r.ExpiresMS <= now || r.ExpiresMS > now+maxRule.Milliseconds():
		return invalid("a rule ends within 180 days")
	}
	err := c.db.Write(ctx, func(tx *ledger.Tx) error {
		r.Version = 1
		if r.ID == "" {
			r.ID = randomID("u")
		} else {
			old, err := readRules(tx, "WHERE id = ? ORDER BY version DESC LIMIT 1", r.ID)
			if err != nil {
				return err
			}
			if len(old) == 0 || old[0].Tenant != r.Tenant || old[0].Fingerprint != r.Fingerprint {
				return pipeline.Errorf(pipeline.CodeRuleInvalid, r.ID, "there is no rule of that id for this tenant and fingerprint")
			}
			r.Version = old[0].Version + 1
		}
		r.State, r.Author, r.Approver, r.CreatedMS, r.Matched = RuleProposed, who.Subject, "", tx.NowMS(), 0
		body, err := json.Marshal(r)
		if err != nil {
			return err
		}
		tx.Append(ledger.Entry{Tenant: r.Tenant, Event: "rule_proposed", Actor: who.Subject, Detail: map[string]string{"rule": r.ID, "body": string(body)}})
		return tx.Insert("rules", []string{"id", "version", "tenant", "fingerprint", "state", "body", "author", "approver", "created_ms", "expires_ms", "matched"},
			[][]any{{r.ID, r.Version, r.Tenant, r.Fingerprint, r.State, string(body), r.Author, "", r.CreatedMS, r.ExpiresMS, int64(0)}})
	})
	return r, err
}

// ApproveRule makes a proposed version active, in the place of the one before. Codes: ERR_RULE_INVALID (no such proposal, or it
// has ended), ERR_APPROVAL_SELF, ERR_PERMISSION_DENIED, ERR_TENANT_FORBIDDEN.
func (c *Items) ApproveRule(ctx context.Context, who Actor, id string, version int) error {
	return c.decideRule(ctx, who, PermApprove, id, version, func(tx *ledger.Tx, r *Rule) error {
		switch {
		case r.State != RuleProposed:
			return pipeline.Errorf(pipeline.CodeRuleInvalid, id, "the version is %s", r.State)
		case r.Author == who.Subject:
			return pipeline.Errorf(pipeline.CodeApprovalSelf, id, "the author may not approve their own rule")
		case r.ExpiresMS <= tx.NowMS():
			return pipeline.Errorf(pipeline.CodeRuleInvalid, id, "it has ended before it was approved")
		}
		if _, err := tx.Exec("UPDATE rules SET state = ? WHERE tenant = ? AND fingerprint = ? AND state = ?", RuleReplaced, r.Tenant, r.Fingerprint, RuleActive); err != nil {
			return err
		}
		if _, err := tx.Exec("UPDATE rules SET state = ?, approver = ? WHERE id = ? AND version = ?", RuleActive, who.Subject, id, version); err != nil {
			return err
		}
		if r.Mute {
			if _, err := tx.Exec("UPDATE groups SET muted_until_ms = ?, muted_by = ? WHERE tenant = ? AND fingerprint = ?", r.ExpiresMS, "rule:"+r.ID, r.Tenant, r.Fingerprint); err != nil {
				return err
			}
		}
		tx.Append(ledger.Entry{Tenant: r.Tenant, Event: "rule_approved", Actor: who.Subject, Detail: map[string]string{"rule": id}})
		return nil
	})
}

// RemoveRule ends a rule at once: one person is enough to stop. Codes: ERR_RULE_INVALID, ERR_REASON_MISSING,
// ERR_PERMISSION_DENIED, ERR_TENANT_FORBIDDEN.
func (c *Items) RemoveRule(ctx context.Context, who Actor, id string, version int, reason string) error {
	if err := needs(pipeline.CodeReasonMissing, reason, "a reason"); err != nil {
		return err
	}
	return c.decideRule(ctx, who, PermRule, id, version, func(tx *ledger.Tx, r *Rule) error {
		if r.State != RuleProposed && r.State != RuleActive {
			return pipeline.Errorf(pipeline.CodeRuleInvalid, id, "the version is %s", r.State)
		}
		if _, err := tx.Exec("UPDATE rules SET state = ? WHERE id = ? AND version = ?", RuleRemoved, id, version); err != nil {
			return err
		}
		if _, err := tx.Exec("UPDATE groups SET muted_until_ms = 0, muted_by = '' WHERE tenant = ? AND fingerprint = ? AND muted_by = ?", r.Tenant, r.Fingerprint, "rule:"+r.ID); err != nil {
			return err
		}
		tx.Append(ledger.Entry{Tenant: r.Tenant, Event: "rule_removed", Actor: who.Subject, Detail: map[string]string{"rule": id, "reason": reason}})
		return nil
	})
}

func (c *Items) decideRule(ctx context.Context, who Actor, p Permission, id string, version int, do func(*ledger.Tx, *Rule) error) error {
	if err := c.Check(ctx, who, p, ""); err != nil {
		return err
	}
	tenant := ""
	err := c.db.Write(ctx, func(tx *ledger.Tx) error {
		if err := tx.Lock("rules"); err != nil {
			return err
		}
		rs, err := readRules(tx, "WHERE id = ? AND version = ?", id, version)
		if err != nil {
			return err
		}
		if len(rs) == 0 {
			return pipeline.Errorf(pipeline.CodeRuleInvalid, id, "there is no version %d of such a rule", version)
		}
		tenant = rs[0].Tenant
		if err := c.roles.check(who, p, tenant); err != nil {
			return err
		}
		return do(tx, &rs[0])
	})
	return c.refused(ctx, who, string(p), "", tenant, err)
}

// Rules are the rules that the actor may see, newest first; with history, also those that were removed or replaced. Codes:
// ERR_PERMISSION_DENIED.
func (c *Items) Rules(ctx context.Context, who Actor, history bool) (out []Rule, err error) {
	if err := c.Check(ctx, who, PermRead, ""); err != nil {
		return nil, err
	}
	err = c.db.Read(ctx, func(tx *ledger.Tx) error {
		cond, args := c.roles.visible(tx, who, "tenant")
		if !history {
			cond += " AND state IN ('proposed', 'active')"
		}
		out, err = readRules(tx, "WHERE "+cond+" ORDER BY created_ms DESC, id, version DESC", args...)
		return err
	})
	return out, err
}

func readRules(tx *ledger.Tx, where string, args ...any) (out []Rule, err error) {
	err = tx.Each("SELECT body, state, approver, matched FROM rules "+where, args, func(scan func(...any) error) error {
		var r Rule
		var body, state, approver string
		var matched int64
		if err := scan(&body, &state, &approver, &matched); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(body), &r); err != nil {
			return err
		}
		r.State, r.Approver, r.Matched = state, approver, matched
		out = append(out, r)
		return nil
	})
	return out, err
}

// applyRules does for new items what active rules say. One in SampleEvery is left to a person.
func (c *Items) applyRules(tx *ledger.Tx, who Actor, items []*Item, history *[]ledger.Entry) error {
	fps := map[string]bool{}
	var names []string
	for _, it := range items {
		if fp := string(it.Fingerprint); !fps[fp] {
			fps[fp] = true
			names = append(names, fp)
		}
	}
	in, arg := tx.In("fingerprint", names)
	rules, err := readRules(tx, "WHERE state = 'active' AND expires_ms > ? AND "+in+" ORDER BY id", tx.NowMS(), arg)
	if err != nil || len(rules) == 0 {
		return err
	}
	type key struct {
		tenant string
		fp     pipeline.ID
	}
	by := map[key]*Rule{}
	for i := range rules {
		by[key{rules[i].Tenant, rules[i].Fingerprint}] = &rules[i]
	}
	matched := map[*Rule]int64{}
	for _, it := range items {
		r := by[key{it.Tenant, it.Fingerprint}]
		if r == nil || it.State != DeadLettered {
			continue
		}
		matched[r]++
		detail := map[string]string{"rule": r.ID}
		if (r.Matched+matched[r])%SampleEvery == 0 {
			*history = append(*history, ledger.Entry{Tenant: it.Tenant, Item: string(it.ID), Event: "rule_sample", Actor: who.Subject, Detail: detail})
			continue
		}
		if r.Owner != "" {
			it.Owner = ledger.Cut(r.Owner, maxName)
		}
		e := ledger.Entry{Tenant: it.Tenant, Item: string(it.ID), Event: "rule", Actor: who.Subject, Detail: detail}
		if r.Ticket != "" && it.Flags&(FlagSameEvent|FlagForged|FlagRebuilt) == 0 {
			to, err := Next(it.State, Triage)
			if err != nil {
				return err
			}
			it.State, it.Ticket = to, ledger.Cut(r.Ticket, maxName)
			e.Event, e.To = string(Triage), string(to)
		}
		*history = append(*history, e)
	}
	for i := range rules {
		if n := matched[&rules[i]]; n > 0 {
			if _, err := tx.Exec("UPDATE rules SET matched = matched + ? WHERE id = ? AND version = ?", n, rules[i].ID, rules[i].Version); err != nil {
				return err
			}
		}
	}
	return nil
}

// RuleWork are triaged items that an active rule with a pinned repair is about and that have no repair yet: work for the
// runner in redrive. At most limit.
func (c *Items) RuleWork(tx *ledger.Tx, limit int) (map[string][]pipeline.ID, []Rule, error) {
	rules, err := readRules(tx, "WHERE state = 'active' AND expires_ms > ? ORDER BY id", tx.NowMS())
	if err != nil {
		return nil, nil, err
	}
	work := map[string][]pipeline.ID{}
	var pinned []Rule
	for _, r := range rules {
		if r.Repair == "" || limit <= 0 {
			continue
		}
		pinned = append(pinned, r)
		if err := tx.Each("SELECT id FROM items WHERE tenant = ? AND fingerprint = ? AND state = 'TRIAGED' AND ticket = ? AND repair = '' AND redrive_try = 0 ORDER BY quarantined_ms, id LIMIT ?",
			[]any{r.Tenant, r.Fingerprint, r.Ticket, limit}, func(scan func(...any) error) error {
				var id pipeline.ID
				err := scan(&id)
				work[r.ID] = append(work[r.ID], id)
				limit--
				return err
			}); err != nil {
			return nil, nil, err
		}
	}
	return work, pinned, nil
}
