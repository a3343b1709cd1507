package main

import (
	"strings"

	"github.com/spf13/cobra"

	"reprieve.dev/custody"
	"reprieve.dev/pipeline"
	"reprieve.dev/worker"
)

func (a *app) glassCmd() *cobra.Command {
	var o opening
	var reason string
	var names []string
	for _, p := range custody.Permissions() {
		names = append(names, string(p))
	}
	c := &cobra.Command{
		Use: "break-glass PERMISSION", Short: "Take a permission that you miss, for 15 minutes; an alarm is raised at once",
		Long: "When nobody who may do something can be reached, a person with a credential may take the permission for 15 minutes, within their\n" +
			"tenants and with a reason. The alarm goes out first (alerts.webhook): if it cannot be delivered, nothing is given. It is in the\n" +
			"history, with everything done by it. What takes a second person, approvals and the lifting of halts, cannot be taken.\n\n" +
			"Permissions: " + strings.Join(names, " "),
		Args: exactly(1, "one permission"),
		RunE: func(c *cobra.Command, args []string) error {
			d, err := a.open(c.Context(), o)
			if err != nil {
				return err
			}
			defer d.Close()
			if d.signer == nil {
				return pipeline.Errorf(pipeline.CodePermissionDenied, d.who.Subject, "a permission is taken by a known person only").
					With("--credential FILE, of a key that is registered under approvers")
			}
			p := custody.Permission(args[0])
			if err := d.items.MayBreakGlass(c.Context(), d.who, p, reason); err != nil {
				return err
			}
			if err := d.plan.Alerts(a.clock, a.log()).Send(c.Context(), worker.Alert{Code: pipeline.CodeGlassBroken, Detail: map[string]string{"subject": d.who.Subject, "permission": args[0], "reason": reason}}); err != nil {
				return err
			}
			g, err := d.items.BreakGlass(c.Context(), d.who, p, reason)
			if err != nil {
				return err
			}
			return a.print(map[string]string{"permission": args[0], "until": stamp(g.Until.UnixMilli())}, func(t *table) {
				t.line("%s has the permission %s until %s; the alarm was raised", harmless(d.who.Subject), args[0], stamp(g.Until.UnixMilli()))
			})
		},
	}
	o.flags(c, a)
	c.Flags().StringVar(&reason, "reason", "", "why it cannot wait")
	return c
}
