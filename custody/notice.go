package custody

import (
	"context"
	"strconv"
	"strings"
	"time"

	"reprieve.dev/ledger"
)

// Notice is something that somebody is to be told, once.
type Notice struct {
	Kind    string        `json:"kind"` // ending, outlived, escalated, overdue
	Tenant  string        `json:"tenant"`
	Owner   string        `json:"owner"` // who is told; the escalation target of what nobody has acted on
	Subject string        `json:"subject"`
	Items   int64         `json:"items,string"`
	FirstMS int64         `json:"first_ms,string"` // of an ending: when the first goes; of an overdue one: since when the oldest waits
	Limit   time.Duration `json:"-"`
	Text    string        `json:"text,omitempty"` // of what they outlive: what is the matter; FirstMS 0 is at any time, or already
}

// Kinds of notices.
const (
	NoticeEnding    = "ending"
	NoticeOutlived  = "outlived"
	NoticeEscalated = "escalated"
	NoticeOverdue   = "overdue"
)

// Due are the notices that are due now and were not told: open items that end within the warning time of r, or whose source, key or
// schema does or is gone (Needs), to their owner, and in its last fifth to escalate, if there is one; and items that are older than an
// objective allows, once a day. Told writes down that one was told. Codes: ERR_PERMISSION_DENIED, ERR_LEDGER_*.
func (c *Items) Due(ctx context.Context, who Actor, r Retention, escalate string, objectives []Objective) ([]Notice, error) {
	soon, err := c.EndingSoon(ctx, who, r)
	if err != nil {
		return nil, err
	}
	needs, err := c.Needs(ctx, who, r, "")
	if err != nil {
		return nil, err
	}
	for _, u := range needs.Unchecked {
		c.log.Warn("whether open items outlive what they need cannot be told", "need", u.Need, "subject", u.Subject, "code", u.Code, "cause", u.Text)
	}
	late, err := c.Overdue(ctx, who, objectives)
	if err != nil {
		return nil, err
	}
	now := c.clock().UnixMilli()
	var all []Notice
	escalated := map[string]int{} // one for all owners of a pipeline: it goes to one
	tell := func(n Notice) {
		all = append(all, n)
		if escalate == "" || n.FirstMS == 0 || n.FirstMS-now >= r.warning().Milliseconds()/5 {
			return
		}
		key := n.Tenant + "\x00" + n.Subject
		if i, known := escalated[key]; known {
			all[i].Items += n.Items
			all[i].FirstMS = min(all[i].FirstMS, n.FirstMS)
			return
		}
		escalated[key] = len(all)
		n.Kind, n.Owner = NoticeEscalated, escalate
		all = append(all, n)
	}
	for _, e := range soon {
		subject := e.Pipeline + " " + strconv.FormatInt(ledger.Day(e.FirstMS), 10)
		tell(Notice{Kind: NoticeEnding, Tenant: e.Tenant, Owner: e.Owner, Subject: subject, Items: e.N, FirstMS: e.FirstMS})
	}
	for _, e := range needs.Ends {
		if e.Need == NeedPayload || e.FirstMS > now+r.warning().Milliseconds() {
			continue
		}
		when := "at any time"
		if e.Gone {
			when = "gone"
		} else if e.FirstMS != 0 {
			when = strconv.FormatInt(ledger.Day(e.FirstMS), 10)
		}
		tell(Notice{Kind: NoticeOutlived, Tenant: e.Tenant, Owner: e.Owner, Subject: strings.Join([]string{e.Pipeline, string(e.Need), e.Subject, when}, " "),
			Items: e.Items, FirstMS: e.FirstMS, Text: e.Text})
	}
	for _, o := range late {
		all = append(all, Notice{Kind: NoticeOverdue, Tenant: o.Tenant, Owner: o.Owner, Subject: o.What + " " + o.Selection + " " + strconv.FormatInt(ledger.Day(now), 10),
			Items: o.Items, FirstMS: o.OldestMS, Limit: o.Limit})
	}
	var due []Notice
	err = c.db.Read(ctx, func(tx *ledger.Tx) error {
		due = nil
		for _, n := range all {
			var told int64
			if _, err := tx.Row("SELECT count(*) FROM notices WHERE kind = ? AND tenant = ? AND owner = ? AND subject = ?", []any{n.Kind, n.Tenant, n.Owner, n.Subject}, &told); err != nil {
				return err
			}
			if told == 0 {
				due = append(due, n)
			}
		}
		return nil
	})
	return due, err
}

// Told writes down that somebody was told. Codes: ERR_PERMISSION_DENIED, ERR_LEDGER_*.
func (c *Items) Told(ctx context.Context, who Actor, n Notice) error {
	if err := c.CheckWhole(ctx, who, PermRetention); err != nil {
		return err
	}
	return c.db.Write(ctx, func(tx *ledger.Tx) error {
		told, err := tx.Exec("INSERT INTO notices (kind, tenant, owner, subject, at_ms) VALUES (?, ?, ?, ?, ?) ON CONFLICT (kind, tenant, owner, subject) DO NOTHING", n.Kind, n.Tenant, n.Owner, n.Subject, tx.NowMS())
		if err == nil && told == 1 {
			tx.Append(ledger.Entry{Tenant: n.Tenant, Event: "told_" + n.Kind, Actor: who.Subject, Detail: map[string]string{"owner": n.Owner, "subject": n.Subject, "items": strconv.FormatInt(n.Items, 10)}})
		}
		return err
	})
}

// Lead takes the right to do what one worker does for all, or extends it. False: another one has it. Codes: ERR_LEDGER_*.
func (c *Items) Lead(ctx context.Context, holder string, ttl time.Duration) (ok bool, err error) {
	err = c.db.Write(ctx, func(tx *ledger.Tx) error {
		_, ok, err = tx.Lease("housekeeping", holder, ttl)
		return err
	})
	return ok, err
}
