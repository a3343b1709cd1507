package main

import (
	"cmp"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"reprieve.dev/custody"
	"reprieve.dev/pipeline"
)

func (a *app) agingCmd() *cobra.Command {
	var o opening
	var tenant string
	c := &cobra.Command{
		Use: "aging", Short: "Show how long open items have waited, by owner and state, and which objectives are missed", Args: exactly(0, "no argument"),
		Long: "Aging reads counts, whatever the number of items.\n\n" +
			"With --needs it also walks through the open items and asks brokers and registries which of them outlive what they need: the source's\n" +
			"bytes where only the source topic has them, the key of what is sealed, the schema, the payload itself. What is gone stands first, then\n" +
			"what ends first. A worker with the role custodian looks every ten minutes and tells the owner (ALERT_RETENTION_OUTLIVED).",
		RunE: func(c *cobra.Command, _ []string) error {
			d, err := a.open(c.Context(), o)
			if err != nil {
				return err
			}
			defer d.Close()
			ages, err := d.items.Aging(c.Context(), d.who, tenant)
			if err != nil {
				return err
			}
			type row struct {
				Tenant string        `json:"tenant"`
				Owner  string        `json:"owner"`
				State  custody.State `json:"state"`
				Days   int64         `json:"days"`
				Items  int64         `json:"items"`
			}
			late, err := d.items.Overdue(c.Context(), d.who, d.plan.Objectives())
			if err != nil {
				return err
			}
			out := struct {
				Ages    []row             `json:"ages"`
				Overdue []custody.Overdue `json:"overdue"`
				Needs   *custody.Needs    `json:"needs,omitempty"`
			}{Ages: []row{}, Overdue: []custody.Overdue{}}
			if o.pipelines {
				needs, err := d.items.Needs(c.Context(), d.who, d.plan.Retention(), tenant)
				if err != nil {
					return err
				}
				out.Needs = &needs
			}
			for _, o := range late {
				if tenant == "" || o.Tenant == tenant {
					out.Overdue = append(out.Overdue, o)
				}
			}
			for _, g := range ages {
				out.Ages = append(out.Ages, row{g.Tenant, g.Owner, g.State, g.Days, g.N})
			}
			return a.print(out, func(t *table) {
				if len(out.Ages) == 0 {
					t.line("nothing waits")
					return
				}
				t.head("TENANT", "OWNER", "STATE", "DAYS", "ITEMS")
				for _, r := range out.Ages {
					if r.Owner == "" {
						r.Owner = "(nobody)"
					}
					t.row(r.Tenant, r.Owner, r.State, r.Days, r.Items)
				}
				for _, o := range out.Overdue {
					t.line("overdue to %s within %s (%s): %s of %s, owner %s, the oldest %s", o.What, o.Limit, cmp.Or(o.Selection, "all items"), many(o.Items, "item"), harmless(o.Tenant),
						harmless(cmp.Or(o.Owner, "(nobody)")), o.Oldest)
				}
				if out.Needs != nil {
					needsTable(t, out.Needs)
				}
			})
		},
	}
	o.flags(c, a)
	c.Flags().StringVar(&tenant, "tenant", "", "one tenant")
	c.Flags().BoolVar(&o.pipelines, "needs", false, "also find the items whose source, key, schema or payload ends first")
	return c
}

// needsTable writes what ends before its items do.
func needsTable(t *table, n *custody.Needs) {
	var codes []pipeline.Code
	if len(n.Ends) == 0 {
		t.line("no open item outlives what it needs")
	} else {
		t.line("")
		t.head("ENDS", "NEED", "OF", "TENANT", "OWNER", "PIPELINE", "ITEMS", "THE FIRST", "CODE", "WHY")
	}
	for _, e := range n.Ends {
		when := stamp(e.FirstMS)
		switch {
		case e.Gone:
			when = "gone"
		case e.FirstMS == 0:
			when = "any time"
		}
		t.row(when, e.Need, cmp.Or(e.Subject, "the ledger"), e.Tenant, cmp.Or(e.Owner, "(nobody)"), e.Pipeline, e.Items, e.Example, e.Code, e.Text)
		codes = append(codes, e.Code)
	}
	t.remedies(codes)
	for _, u := range n.Unchecked {
		t.line("not known: how long the %s %s lasts: %s", u.Need, harmless(u.Subject), harmless(u.Text))
	}
}

func (a *app) muteCmd() *cobra.Command {
	var o opening
	var tenant, reason string
	var until time.Duration
	c := &cobra.Command{
		Use: "mute FINGERPRINT", Short: "Tell nobody of new items of a group for a while", Args: exactly(1, "one fingerprint"),
		RunE: func(c *cobra.Command, args []string) error {
			d, err := a.open(c.Context(), o)
			if err != nil {
				return err
			}
			defer d.Close()
			at := a.clock().Add(until)
			if err := d.items.Mute(c.Context(), d.who, tenant, pipeline.ID(args[0]), at.UnixMilli(), reason); err != nil {
				return err
			}
			return a.print(map[string]string{"fingerprint": args[0], "tenant": tenant, "muted_until": stamp(at.UnixMilli())}, func(t *table) {
				t.line("muted until %s; its items are still taken into custody", stamp(at.UnixMilli()))
			})
		},
	}
	o.flags(c, a)
	c.Flags().StringVar(&tenant, "tenant", "", "tenant of the group")
	c.Flags().StringVar(&reason, "reason", "", "why")
	c.Flags().DurationVar(&until, "for", 24*time.Hour, "how long")
	return c
}

func (a *app) exportCmd() *cobra.Command {
	var o opening
	var format, file, reason string
	var payloads bool
	c := &cobra.Command{
		Use: "export [SELECTION]", Short: "Write items as JSON lines or CSV",
		Example: "  reprieve quarantine export 'class=payload' --format csv --file items.csv",
		RunE: func(c *cobra.Command, args []string) error {
			d, err := a.open(c.Context(), o)
			if err != nil {
				return err
			}
			defer d.Close()
			if format != "jsonl" && format != "csv" {
				return pipeline.Errorf(pipeline.CodeUsage, "--format "+format, "the format is jsonl or csv")
			}
			sel, err := custody.ParseSelection(strings.Join(args, " "))
			if err != nil {
				return err
			}
			w := a.out
			if file != "" {
				f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
				if err != nil {
					return pipeline.Errorf(pipeline.CodeUsage, file, "the file cannot be made: %w", err)
				}
				defer f.Close()
				w = f
			}
			options := custody.ExportOptions{CSV: format == "csv", Payloads: payloads, Reason: reason}
			ended := func() {}
			if file != "" || !a.terminal { // on a terminal the items themselves show how far it is
				options.Progress, ended = a.counting("items written")
			}
			n, err := d.items.Export(c.Context(), d.who, sel, options, w)
			ended()
			if err == nil && file != "" {
				err = a.print(map[string]any{"items": n, "file": file}, func(t *table) { t.line("%s written to %s", many(n, "item"), file) })
			}
			return err
		},
	}
	o.flags(c, a)
	c.Flags().StringVar(&format, "format", "jsonl", "jsonl or csv")
	c.Flags().BoolVar(&payloads, "payloads", false, "with the bytes that the ledger holds; needs the permission to reveal")
	c.Flags().StringVar(&reason, "reason", "", "why you must see the bytes")
	c.Flags().StringVar(&file, "file", "", "a new file; standard output if not said")
	return c
}
