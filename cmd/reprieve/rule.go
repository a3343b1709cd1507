package main

import (
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"reprieve.dev/custody"
	"reprieve.dev/pipeline"
)

func (a *app) ruleCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "rule", Short: "Standing decisions about new items of a cause",
		Long: "A rule does for each new item of one fingerprint and tenant what a person would: it gives an owner, triages under a ticket, keeps\n" +
			"quiet, or names a pinned repair. One person adds it, another approves it; it ends by itself. Every 100th item is left to a person,\n" +
			"so that a fingerprint that groups too much is seen. A rule never sends anything.",
	}
	c.AddCommand(a.ruleListCmd(), a.ruleAddCmd(), a.ruleApproveCmd(), a.ruleRemoveCmd())
	return c
}

func (a *app) printRules(rules []custody.Rule) error {
	out := struct {
		Rules []custody.Rule `json:"rules"`
	}{append([]custody.Rule{}, rules...)}
	return a.print(out, func(t *table) {
		if len(rules) == 0 {
			t.line("there is no rule")
			return
		}
		t.head("ID", "VERSION", "STATE", "TENANT", "FINGERPRINT", "DOES", "AUTHOR", "APPROVER", "MATCHED", "ENDS")
		for _, r := range rules {
			does := ""
			for _, part := range [][2]string{{"owner ", r.Owner}, {"ticket ", r.Ticket}, {"repair ", r.Repair}} {
				if part[1] != "" {
					does += part[0] + part[1] + " "
				}
			}
			if r.Mute {
				does += "mute"
			}
			t.row(r.ID, r.Version, r.State, r.Tenant, r.Fingerprint, does, r.Author, r.Approver, r.Matched, stamp(r.ExpiresMS))
		}
	})
}

func (a *app) ruleListCmd() *cobra.Command {
	var o opening
	var history bool
	c := &cobra.Command{
		Use: "list", Short: "List rules, newest first",
		RunE: func(c *cobra.Command, _ []string) error {
			d, err := a.open(c.Context(), o)
			if err != nil {
				return err
			}
			defer d.Close()
			rules, err := d.items.Rules(c.Context(), d.who, history)
			if err != nil {
				return err
			}
			return a.printRules(rules)
		},
	}
	o.flags(c, a)
	c.Flags().BoolVar(&history, "history", false, "also those that were removed or replaced")
	return c
}

func (a *app) ruleAddCmd() *cobra.Command {
	var o opening
	var r custody.Rule
	var life time.Duration
	c := &cobra.Command{
		Use: "add FINGERPRINT", Short: "Propose a rule; it does nothing until somebody else approves it", Args: exactly(1, "one fingerprint"),
		Example: "  reprieve rule add f1... --tenant acme --owner finance-operations --ticket OPS-1 --for 720h",
		RunE: func(c *cobra.Command, args []string) error {
			d, err := a.open(c.Context(), o)
			if err != nil {
				return err
			}
			defer d.Close()
			r.Fingerprint = pipeline.ID(args[0])
			r.ExpiresMS = a.clock().Add(life).UnixMilli()
			made, err := d.items.ProposeRule(c.Context(), d.who, r)
			if err != nil {
				return err
			}
			return a.print(made, func(t *table) {
				t.line("proposed as version %d of %s", made.Version, made.ID)
				t.line("next, by somebody else: reprieve rule approve %s %d", made.ID, made.Version)
			})
		},
	}
	o.flags(c, a)
	f := c.Flags()
	f.StringVar(&r.Tenant, "tenant", "", "tenant of the items")
	f.StringVar(&r.ID, "replaces", "", "id of the rule that this is the next version of")
	f.StringVar(&r.Owner, "owner", "", "who owns new items")
	f.StringVar(&r.Ticket, "ticket", "", "new items are triaged under it")
	f.StringVar(&r.Repair, "repair", "", "name@version of the transform that repairs them")
	f.StringVar(&r.RepairConf, "repair-config", "", "its configuration, JSON")
	f.StringVar(&r.Artifact, "repair-artifact", "", "digest of its code, as transform list shows it")
	f.BoolVar(&r.Mute, "mute", false, "tell nobody of new items")
	f.DurationVar(&life, "for", 30*24*time.Hour, "how long it holds, at most 180 days")
	return c
}

// onRule carries out one act on a version of a rule, args ID and VERSION, and says the state that it has then.
func (a *app) onRule(c *cobra.Command, o opening, args []string, state string, act func(d *desk, id string, version int) error) error {
	id := args[0]
	version, err := strconv.Atoi(args[1])
	if err != nil {
		return usage(c, "give the id of a rule and its version, a number")
	}
	d, err := a.open(c.Context(), o)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := act(d, id, version); err != nil {
		return err
	}
	return a.print(map[string]any{"id": id, "version": version, "state": state}, func(t *table) { t.line("%s: version %d of %s", state, version, id) })
}

func (a *app) ruleApproveCmd() *cobra.Command {
	var o opening
	c := &cobra.Command{
		Use: "approve ID VERSION", Short: "Make a proposed rule of somebody else active", Args: exactly(2, "the id of a rule and its version"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.onRule(c, o, args, custody.RuleActive, func(d *desk, id string, version int) error {
				return d.items.ApproveRule(c.Context(), d.who, id, version)
			})
		},
	}
	o.flags(c, a)
	return c
}

func (a *app) ruleRemoveCmd() *cobra.Command {
	var o opening
	var reason string
	c := &cobra.Command{
		Use: "remove ID VERSION", Short: "End a rule at once; items that it has changed stay as they are", Args: exactly(2, "the id of a rule and its version"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.onRule(c, o, args, custody.RuleRemoved, func(d *desk, id string, version int) error {
				return d.items.RemoveRule(c.Context(), d.who, id, version, reason)
			})
		},
	}
	o.flags(c, a)
	c.Flags().StringVar(&reason, "reason", "", "why")
	return c
}
