package main

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"reprieve.dev/custody"
)

func (a *app) extendCmd() *cobra.Command {
	var o opening
	var t targeting
	var life time.Duration
	var reason string
	c := &cobra.Command{
		Use: "extend (ID... | SELECTION)", Short: "Ask for another end of items, later or earlier; somebody else approves it",
		Example: "  reprieve ledger extend 'pipeline=billing state=open' --for 720h --reason 'waits for the vendor' --yes",
		RunE: func(c *cobra.Command, args []string) error {
			d, err := a.open(c.Context(), o)
			if err != nil {
				return err
			}
			defer d.Close()
			target, err := a.target(c.Context(), d, &t, args)
			if err != nil {
				return err
			}
			x, err := d.items.ProposeExtension(c.Context(), d.who, target, a.clock().Add(life), reason)
			if err != nil {
				return err
			}
			return a.print(x, func(t *table) {
				t.line("proposed as %s: %s until %s", x.ID, many(x.Items, "item"), stamp(x.UntilMS))
				t.line("next, by somebody else: reprieve ledger approve-extension %s", x.ID)
			})
		},
	}
	o.flags(c, a)
	t.flags(c)
	c.Flags().DurationVar(&life, "for", 0, "how long from now they stay, for example 720h")
	c.Flags().StringVar(&reason, "reason", "", "why")
	return c
}

func (a *app) approveExtensionCmd() *cobra.Command {
	var o opening
	c := &cobra.Command{
		Use: "approve-extension ID", Short: "Let items end when somebody else has proposed", Args: exactly(1, "the id of an extension"),
		RunE: func(c *cobra.Command, args []string) error {
			d, err := a.open(c.Context(), o)
			if err != nil {
				return err
			}
			defer d.Close()
			show, done := a.counting("items extended")
			r, err := d.items.ApproveExtension(c.Context(), d.who, args[0], show)
			done()
			if err != nil {
				return err
			}
			return a.report(r, "extended", "")
		},
	}
	o.flags(c, a)
	return c
}

func (a *app) extensionsCmd() *cobra.Command {
	var o opening
	var history bool
	c := &cobra.Command{
		Use: "extensions", Short: "List proposed ends of items, newest first", Args: exactly(0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error {
			d, err := a.open(c.Context(), o)
			if err != nil {
				return err
			}
			defer d.Close()
			list, err := d.items.Extensions(c.Context(), d.who, history)
			if err != nil {
				return err
			}
			out := struct {
				Extensions []custody.Extension `json:"extensions"`
			}{append([]custody.Extension{}, list...)}
			return a.print(out, func(t *table) {
				if len(list) == 0 {
					t.line("there is no extension")
					return
				}
				t.head("ID", "STATE", "ITEMS", "TENANTS", "UNTIL", "AUTHOR", "APPROVER", "REASON")
				for _, x := range list {
					t.row(x.ID, x.State, x.Items, strings.Join(x.Tenants, " "), stamp(x.UntilMS), x.Author, x.Approver, x.Reason)
				}
			})
		},
	}
	o.flags(c, a)
	c.Flags().BoolVar(&history, "history", false, "also those that are approved")
	return c
}
