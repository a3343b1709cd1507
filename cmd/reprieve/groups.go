package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"reprieve.dev/custody"
	"reprieve.dev/pipeline"
)

// listedGroup is one group of a list.
type listedGroup struct {
	Fingerprint  pipeline.ID             `json:"fingerprint"`
	Tenant       string                  `json:"tenant"`
	Pipeline     string                  `json:"pipeline"`
	Class        string                  `json:"class"`
	Code         pipeline.Code           `json:"code"`
	Stage        string                  `json:"stage"`
	Reason       string                  `json:"sample_reason"`
	Open         int64                   `json:"open"`
	Total        int64                   `json:"total"`
	States       map[custody.State]int64 `json:"states"`
	First        string                  `json:"first_seen"`
	Last         string                  `json:"last_seen"`
	FirstSchema  string                  `json:"first_schema,omitempty"`
	LastSchema   string                  `json:"last_schema,omitempty"`
	FirstRelease string                  `json:"first_release,omitempty"`
	Release      string                  `json:"last_release,omitempty"`
	Owner        string                  `json:"owner,omitempty"`
	Ticket       string                  `json:"ticket,omitempty"`
	Note         string                  `json:"note,omitempty"`
	MutedUntil   string                  `json:"muted_until,omitempty"`
	Sample       pipeline.ID             `json:"sample"`
}

func listedGroupOf(g *custody.Group) listedGroup {
	return listedGroup{g.Fingerprint, g.Tenant, g.Pipeline, g.Class.String(), g.Code, g.Stage, g.Reason, g.Open(), g.Total(), g.Counts,
		stamp(g.FirstMS), stamp(g.LastMS), g.FirstSchema, g.LastSchema, g.FirstRelease, g.LastRelease, g.Owner, g.Ticket, g.Note, stamp(g.MutedUntilMS), g.LastItem}
}

func (a *app) groupsCmd() *cobra.Command {
	var o opening
	var all bool
	var f custody.GroupFilter
	var class string
	c := &cobra.Command{
		Use: "groups", Short: "List causes: all items of one fingerprint",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := within("--limit", f.Limit, 1, 1000); err != nil {
				return err
			}
			d, err := a.open(c.Context(), o)
			if err != nil {
				return err
			}
			defer d.Close()
			if class != "" {
				var ok bool
				if f.Class, ok = pipeline.ParseClass(class); !ok {
					return pipeline.Errorf(pipeline.CodeUsage, "--class "+class, "there is no such failure class").
						With("write one of " + strings.Join(pipeline.ClassNames(), ", "))
				}
			}
			f.OnlyOpen = !all
			gs, err := d.items.Groups(c.Context(), d.who, f)
			if err != nil {
				return err
			}
			out := struct {
				Groups []listedGroup `json:"groups"`
			}{[]listedGroup{}}
			for i := range gs {
				out.Groups = append(out.Groups, listedGroupOf(&gs[i]))
			}
			return a.print(out, func(t *table) {
				if len(out.Groups) == 0 {
					switch {
					case f.Tenant != "" || f.Pipeline != "" || f.Owner != "" || class != "":
						t.line("no group matches")
					case all:
						t.line("no group: nothing was taken into custody yet")
					default:
						t.line("no open group: nothing waits in custody")
					}
					return
				}
				t.head("FINGERPRINT", "OPEN", "TOTAL", "TENANT", "PIPELINE", "CODE", "LAST SEEN", "FOR EXAMPLE")
				for i, g := range out.Groups {
					t.row(g.Fingerprint, g.Open, g.Total, g.Tenant, g.Pipeline, g.Code, a.age(gs[i].LastMS)+" ago", short(g.Reason, 70))
				}
				t.line("\nlook at one: reprieve quarantine list 'group=%s'", out.Groups[0].Fingerprint)
			})
		},
	}
	o.flags(c, a)
	c.Flags().BoolVar(&all, "all", false, "also groups with nothing open")
	c.Flags().StringVar(&f.Tenant, "tenant", "", "of one tenant")
	c.Flags().StringVar(&f.Pipeline, "pipeline", "", "of one pipeline")
	c.Flags().StringVar(&f.Owner, "owner", "", "of one owner")
	c.Flags().StringVar(&class, "class", "", "of one failure class")
	c.Flags().IntVar(&f.Limit, "limit", 100, "most groups to show (1000)")
	return c
}

// assignCmd gives items to an owner, or a group itself.
func (a *app) assignCmd() *cobra.Command {
	c := a.changeCmd("assign", "Give items to an owner, or a group with --group", "assigned", "owner",
		func(ctx context.Context, d *desk, t custody.Target, f changeFlags) (custody.Report, error) {
			return d.items.Assign(ctx, d.who, t, f.owner)
		})
	var ticket string
	c.Flags().StringVar(&ticket, "ticket", "", "with --group: the ticket of the group")
	a.orGroup(c, func(ctx context.Context, d *desk, tenant string, group pipeline.ID) error {
		owner, _ := c.Flags().GetString("owner")
		return d.items.AssignGroup(ctx, d.who, tenant, group, owner, ticket)
	})
	return c
}

// noteCmd writes a note into the history of items, or on a group.
func (a *app) noteCmd() *cobra.Command {
	c := a.changeCmd("note", "Write a note into the history of items, or on a group with --group", "noted", "text",
		func(ctx context.Context, d *desk, t custody.Target, f changeFlags) (custody.Report, error) {
			return d.items.Note(ctx, d.who, t, f.text)
		})
	a.orGroup(c, func(ctx context.Context, d *desk, tenant string, group pipeline.ID) error {
		text, _ := c.Flags().GetString("text")
		return d.items.NoteGroup(ctx, d.who, tenant, group, text)
	})
	return c
}

// orGroup lets a verb that changes items change the row of a group instead: --group FINGERPRINT --tenant TENANT.
func (a *app) orGroup(c *cobra.Command, do func(ctx context.Context, d *desk, tenant string, group pipeline.ID) error) {
	var group, tenant string
	c.Flags().StringVar(&group, "group", "", "the group with this fingerprint, not its items")
	c.Flags().StringVar(&tenant, "tenant", "", "with --group: its tenant")
	items := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if group == "" {
			return items(c, args)
		}
		if len(args) > 0 || tenant == "" {
			return usage(c, "with --group comes its --tenant and no item")
		}
		return a.withGroup(c, tenant, group, do)
	}
}

// withGroup changes one group and shows what it is then.
func (a *app) withGroup(c *cobra.Command, tenant, group string, do func(ctx context.Context, d *desk, tenant string, group pipeline.ID) error) error {
	ledgerName, _ := c.Flags().GetString("ledger")
	credential, _ := c.Flags().GetString("credential")
	d, err := a.open(c.Context(), opening{ledger: ledgerName, credential: credential})
	if err != nil {
		return err
	}
	defer d.Close()
	if err := do(c.Context(), d, tenant, pipeline.ID(group)); err != nil {
		return err
	}
	g, _, err := d.items.Group(c.Context(), d.who, tenant, pipeline.ID(group), 0)
	if err != nil {
		return err
	}
	out := listedGroupOf(&g)
	return a.print(out, func(t *table) {
		t.pair("group", out.Fingerprint)
		t.pair("tenant", out.Tenant)
		t.pair("open", out.Open)
		t.pair("owner", out.Owner)
		t.pair("ticket", out.Ticket)
		t.pair("note", out.Note)
	})
}

// regrouped is what split and join answer.
type regrouped struct {
	Group pipeline.ID `json:"group"`
	Into  pipeline.ID `json:"into"`
	Items int64       `json:"items"`
}

func (a *app) splitCmd() *cobra.Command {
	var o opening
	var tenant, reason string
	c := &cobra.Command{
		Use: "split FINGERPRINT SELECTION", Short: "Take the items of a group that a selection has into a group of their own",
		Long: "Split is for a fingerprint that groups too much: the items that the selection has, those that are there and those that will\n" +
			"come, are counted and triaged apart. The selection asks for what never changes, such as release, schema, code or entity.\n" +
			"Fingerprints stay as they are: they are evidence. Join takes it back.",
		Example: "  reprieve quarantine split f1... 'release=billing-event-processor@2.2' --tenant acme --reason 'only the new release'",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usage(c, "give a group and a selection")
			}
			sel, err := custody.ParseSelection(strings.Join(args[1:], " "))
			if err != nil {
				return err
			}
			d, err := a.open(c.Context(), o)
			if err != nil {
				return err
			}
			defer d.Close()
			apart, n, err := d.items.Split(c.Context(), d.who, tenant, pipeline.ID(args[0]), sel, reason)
			if err != nil {
				return err
			}
			return a.print(regrouped{pipeline.ID(args[0]), apart, n}, func(t *table) {
				t.line("%s in the group %s now; new ones follow them", are(int(n), "item"), apart)
			})
		},
	}
	o.flags(c, a)
	c.Flags().StringVar(&tenant, "tenant", "", "tenant of the group")
	c.Flags().StringVar(&reason, "reason", "", "why")
	return c
}

func (a *app) joinCmd() *cobra.Command {
	var o opening
	var tenant, reason string
	c := &cobra.Command{
		Use: "join FINGERPRINT INTO", Short: "Count all items of a group in another one of the same tenant", Args: exactly(2, "the group, and the group that it joins"),
		RunE: func(c *cobra.Command, args []string) error {
			d, err := a.open(c.Context(), o)
			if err != nil {
				return err
			}
			defer d.Close()
			n, err := d.items.Join(c.Context(), d.who, tenant, pipeline.ID(args[0]), pipeline.ID(args[1]), reason)
			if err != nil {
				return err
			}
			return a.print(regrouped{pipeline.ID(args[0]), pipeline.ID(args[1]), n}, func(t *table) {
				t.line("%s in the group %s now; new ones follow them", are(int(n), "item"), harmless(args[1]))
			})
		},
	}
	o.flags(c, a)
	c.Flags().StringVar(&tenant, "tenant", "", "tenant of the groups")
	c.Flags().StringVar(&reason, "reason", "", "why")
	return c
}
