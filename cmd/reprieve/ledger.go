package main

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"reprieve.dev/custody"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

func (a *app) ledgerCmd() *cobra.Command {
	c := &cobra.Command{Use: "ledger", Short: "The database of everything that could not be processed"}
	c.AddCommand(a.verifyCmd(), a.migrateCmd(), a.rebuildCmd(), a.expireCmd(), a.eraseCmd(), a.keysCmd(),
		a.changeCmd("hold", "Put items under legal hold: they are not expired, discarded or erased until it is lifted", "held", "matter",
			func(ctx context.Context, d *desk, t custody.Target, f changeFlags) (custody.Report, error) {
				return d.items.LegalHold(ctx, d.who, t, f.matter)
			}),
		a.extendCmd(), a.extensionsCmd(), a.approveExtensionCmd(),
		a.changeCmd("unhold", "Lift the legal hold of items", "let go", "reason",
			func(ctx context.Context, d *desk, t custody.Target, f changeFlags) (custody.Report, error) {
				return d.items.Unhold(ctx, d.who, t, f.reason)
			}))
	return c
}

// verified is what verify answers.
type verified struct {
	OK       bool                `json:"ok"`
	History  int64               `json:"history_rows"`
	Items    int64               `json:"items"`
	Heads    int64               `json:"signed_heads"`
	Accounts []custody.Account   `json:"accounts,omitempty"`
	Letters  []custody.LetterLag `json:"letters,omitempty"`
	Findings []ledger.Finding    `json:"findings"`
}

func (a *app) verifyCmd() *cobra.Command {
	var o opening
	c := &cobra.Command{
		Use: "verify", Short: "Check the history chain, the evidence of every item, payloads and counts",
		Long: "Verify reads the whole ledger: the hash chain of the history against its signed heads, the evidence of every item against its\n" +
			"admission, payloads against their digests, and counts against a recount. It names what does not hold and changes nothing.\n\n" +
			"With --topics it also reads the topics: the heads on the audit topic, every letter against the ledger, and every position of the\n" +
			"sources against the settlements: received = delivered + dead-lettered + retried + parked + sealed + ranged + fallback.",
		Args: exactly(0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error {
			d, err := a.open(c.Context(), o)
			if err != nil {
				return err
			}
			defer d.Close()
			out, err := a.verify(c.Context(), d, o.pipelines)
			if err != nil {
				return err
			}
			if err := a.print(out, func(t *table) { verifiedTable(t, &out) }); err != nil {
				return err
			}
			if !out.OK {
				return pipeline.Errorf(pipeline.CodeLedgerCorrupt, "ledger", "%s", holds(len(out.Findings)))
			}
			return nil
		},
	}
	o.flags(c, a)
	c.Flags().BoolVar(&o.pipelines, "topics", false, "read the topics of all clusters too")
	return c
}

func (a *app) verify(ctx context.Context, d *desk, topics bool) (verified, error) {
	var accounts custody.Accounts
	var heads []custody.SignedHead
	var err error
	if topics {
		show, done := a.counting("messages read")
		accounts, heads, err = d.plan.Accounts(ctx, d.items, d.who, d.keys, show)
		done()
		if err != nil {
			return verified{}, err
		}
	}
	show, done := a.counting("history rows and items verified")
	v, err := d.items.Verify(ctx, d.who, heads, show)
	done()
	if err != nil {
		return verified{}, err
	}
	out := verified{History: v.HistoryRows, Items: v.Items, Heads: v.Heads, Accounts: accounts.Accounts, Letters: accounts.Letters,
		Findings: append(append([]ledger.Finding{}, v.Findings...), accounts.Findings...)}
	out.OK = len(out.Findings) == 0
	return out, nil
}

func holds(n int) string {
	if n == 1 {
		return "1 thing does not hold"
	}
	return strconv.Itoa(n) + " things do not hold"
}

func verifiedTable(t *table, v *verified) {
	if len(v.Accounts) > 0 {
		t.head("PIPELINE", "PARTITION", "RECEIVED", "DELIVERED", "DEAD-LETTERED", "RETRIED", "PARKED", "SEALED", "RANGED", "FALLBACK", "GAPS")
		for _, c := range v.Accounts {
			t.row(c.Pipeline, c.Topic+"/"+strconv.Itoa(int(c.Partition)), c.Received, c.Delivered, c.DeadLettered, c.Retried, c.Parked, c.Sealed, c.Ranged, c.Fallback, c.Gaps)
		}
	}
	for _, l := range v.Letters {
		if l.Next < l.End {
			t.line("the ledger is %s behind on %s/%d", many(l.End-l.Next, "message"), harmless(l.Topic), l.Partition)
		}
	}
	for _, f := range v.Findings {
		t.row(f.Place, f.Text)
	}
	if v.OK {
		t.line("the ledger verifies: %s, %s, %s", many(v.History, "history row"), many(v.Items, "item"), many(v.Heads, "signed head"))
	}
}

func (a *app) rebuildCmd() *cobra.Command {
	var o opening
	c := &cobra.Command{
		Use: "rebuild", Short: "Fill a new ledger from the topics, after the old one was lost",
		Long: "Rebuild reads dead letters, settlements and outcomes from the topics into the ledger that the worker file names, which must be\n" +
			"new. Every item is marked rebuilt, which holds it out of redrives until somebody has vouched for it (quarantine vouch), and what the\n" +
			"topics do not hold any more is listed. What persons did, such as owners, tickets, decisions, holds and erasures, is only in a\n" +
			"backup of the ledger: restore that instead, if there is one.",
		Args: exactly(0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error {
			o.create, o.pipelines = true, true
			d, err := a.open(c.Context(), o)
			if err != nil {
				return err
			}
			defer d.Close()
			show, done := a.counting("messages read")
			r, err := d.plan.Rebuild(c.Context(), d.items, d.who, d.keys, a.log(), d.plan.Config.Topics.Prefix+".rebuild."+strconv.FormatInt(a.clock().UnixNano(), 36),
				func(_ string, read, total int64) { show(read, total) })
			done()
			if err != nil {
				return err
			}
			return a.print(r, func(t *table) {
				t.line("%s rebuilt, %s kept raw", many(r.Items, "item"), many(r.Raw, "message"))
				for i, m := range r.Missing {
					if i == 50 {
						t.line("... and %d more (-o json shows them)", len(r.Missing)-i)
						break
					}
					if m.Partition < 0 {
						t.row("missing", m.Topic, "", m.Why)
						continue
					}
					t.row("missing", m.Topic+"/"+strconv.Itoa(int(m.Partition)), num(m.From)+" to "+num(m.To-1), m.Why)
				}
				t.line("every item is marked rebuilt and held out of redrives: reprieve quarantine vouch ... --marks rebuilt --evidence TEXT")
			})
		},
	}
	o.flags(c, a)
	return c
}

func (a *app) migrateCmd() *cobra.Command {
	var name string
	c := &cobra.Command{
		Use: "migrate", Short: "Bring the ledger to this program's version", Args: exactly(0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error {
			plan, err := a.loadWorker()
			if err != nil {
				return err
			}
			url, err := plan.LedgerURL(name)
			if err != nil {
				return err
			}
			db, err := ledger.Open(c.Context(), url, ledger.Options{Clock: a.clock, Log: a.log()})
			if err != nil {
				return err
			}
			have, _, err := db.Version(c.Context())
			if cerr := db.Close(); err == nil {
				err = cerr
			}
			if err != nil {
				return err
			}
			return a.print(map[string]any{"migrated": true, "version": have}, func(t *table) { t.line("the ledger is at version %d, this program's", have) })
		},
	}
	c.Flags().StringVar(&name, "ledger", "", "name of the ledger in the worker file, if there are several")
	return c
}

func (a *app) expireCmd() *cobra.Command {
	o := opening{pipelines: true} // how long an item is kept may follow from what its pipeline says of its data
	var dry bool
	c := &cobra.Command{
		Use: "expire", Short: "End what is past its retention: payloads go, the loss of open items is recorded",
		Long: "A worker with the role custodian does this every ten minutes. The horizons are those of custody.retention; a legal hold and an item's own\n" +
			"end win over them. --dry-run counts what would end now and who is to be told of what ends soon.",
		Args: exactly(0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error {
			d, err := a.open(c.Context(), o)
			if err != nil {
				return err
			}
			defer d.Close()
			r := d.plan.Retention()
			if dry {
				return a.expireDry(c.Context(), d, r)
			}
			bucket, closing, err := d.plan.Archive(c.Context())
			if err != nil {
				return err
			}
			defer closing()
			r.Archive = bucket
			show, done := a.counting("items looked at")
			e, err := d.items.Expire(c.Context(), d.who, r, show)
			done()
			if err != nil {
				return err
			}
			return a.print(e, func(t *table) {
				t.line("%s expired unprocessed, the payloads of %s dropped, %s kept by a legal hold", many(e.Expired, "open item"), many(e.Payloads, "closed item"), many(e.Held, "item"))
			})
		},
	}
	o.flags(c, a)
	c.Flags().BoolVar(&dry, "dry-run", false, "change nothing")
	return c
}

func (a *app) expireDry(ctx context.Context, d *desk, r custody.Retention) error {
	e, err := d.items.WouldExpire(ctx, d.who, r)
	if err != nil {
		return err
	}
	soon, err := d.items.EndingSoon(ctx, d.who, r)
	if err != nil {
		return err
	}
	out := struct {
		Now  custody.Expiry   `json:"now"`
		Soon []custody.Ending `json:"soon"`
	}{e, append([]custody.Ending{}, soon...)}
	return a.print(out, func(t *table) {
		t.line("now: %s would expire unprocessed, the payloads of %s would be dropped, %s kept by a legal hold", many(e.Expired, "open item"), many(e.Payloads, "closed item"), many(e.Held, "item"))
		if len(soon) > 0 {
			t.head("SOON: OWNER", "TENANT", "PIPELINE", "OPEN ITEMS", "THE FIRST ENDS")
		}
		for _, s := range soon {
			owner := s.Owner
			if owner == "" {
				owner = "(nobody)"
			}
			t.row(owner, s.Tenant, s.Pipeline, s.N, stamp(s.FirstMS))
		}
	})
}

// counting shows how far long work is: on a terminal in one line, elsewhere a line every ten seconds.
func (a *app) counting(what string) (show func(done, total int64), end func()) {
	began := a.clock()
	var last time.Time
	shown := false
	show = func(done, total int64) {
		now := a.clock()
		every := 10 * time.Second
		if a.terminal {
			every = 200 * time.Millisecond
		}
		if now.Sub(began) < every || now.Sub(last) < every && done < total {
			return
		}
		last, shown = now, true
		rate := float64(done) / now.Sub(began).Seconds()
		if a.terminal {
			writePart(a.err, "\r%d of %d %s, %.0f/s ", done, total, what, rate)
			return
		}
		writeLine(a.err, "%d of %d %s, %.0f/s", done, total, what, rate)
	}
	return show, func() {
		if a.terminal && shown {
			writeLine(a.err, "")
		}
	}
}
