package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"reprieve.dev/pipeline"
	"reprieve.dev/worker"
)

func (a *app) keysCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "keys", Short: "The key pairs that letters are sealed to",
		Long: "Each tenant has a key pair, each pipeline one for records without a tenant. Public halves stand on the control topic, where pipelines\n" +
			"find them; private halves stand in the ledger alone, wrapped by keys.keeper of the worker file. Without them nobody can open what was\n" +
			"sealed, wherever a copy lies: destroying a tenant's keys erases the tenant.",
	}
	c.AddCommand(a.keysListCmd(), a.keysRotateCmd(), a.keysDestroyCmd())
	return c
}

type listedKey struct {
	Key      string `json:"key"`
	Tenant   string `json:"tenant,omitempty"`
	Pipeline string `json:"pipeline,omitempty"`
	Version  int64  `json:"version"`
	Newest   bool   `json:"newest"`
	Erasable bool   `json:"erasable_by_tenant"`
	Keeper   string `json:"keeper"`
	Created  string `json:"created"`
}

func (a *app) keysListCmd() *cobra.Command {
	var o opening
	c := &cobra.Command{
		Use: "list", Short: "Show all keys, without their private halves", Args: exactly(0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error {
			d, err := a.openVault(c.Context(), o)
			if err != nil {
				return err
			}
			defer d.Close()
			keys, err := d.vault.Keys.List(c.Context(), d.who)
			if err != nil {
				return err
			}
			out := struct {
				Keys []listedKey `json:"keys"`
			}{[]listedKey{}}
			for _, k := range keys {
				out.Keys = append(out.Keys, listedKey{k.Key.ID(), k.Tenant, k.Pipeline, k.Version, k.Newest, k.Tenant != "", k.Keeper, stamp(k.CreatedMS)})
			}
			return a.print(out, func(t *table) {
				if len(out.Keys) == 0 {
					t.line("no key yet: the custodian makes them")
					return
				}
				t.head("KEY", "FOR", "VERSION", "SEALS", "ERASABLE BY TENANT", "KEEPER", "MADE")
				for _, k := range out.Keys {
					owner, seals, erasable := "tenant "+k.Tenant, "no more", "yes"
					if k.Tenant == "" {
						owner, erasable = "pipeline "+k.Pipeline, "no"
					}
					if k.Newest {
						seals = "yes"
					}
					t.row(k.Key, owner, k.Version, seals, erasable, k.Keeper, k.Created)
				}
			})
		},
	}
	o.flags(c, a)
	return c
}

// openVault opens a desk that has the keys.
func (a *app) openVault(ctx context.Context, o opening) (*desk, error) {
	d, err := a.open(ctx, o)
	if err == nil && d.vault == nil {
		d.Close()
		return nil, pipeline.Errorf(pipeline.CodeConfigMissing, a.file, "the worker file names no keeper of keys").
			With("write keys: {keeper: {file: keys/keeper}}; make the file: head -c 32 /dev/urandom | base64 > keys/keeper; chmod 600 keys/keeper")
	}
	return d, err
}

// publish says the newest keys on the control topics, so that no pipeline seals to an older one any more.
func (a *app) publish(ctx context.Context, d *desk) error {
	p, err := worker.OpenPublisher(ctx, worker.PublisherOptions{Plan: d.plan, Keys: d.keys, Vault: d.vault, Name: d.who.Subject, Clock: a.clock, Log: a.log()})
	if err != nil {
		return err
	}
	defer p.Close()
	return p.Publish(ctx)
}

// rotated is what rotate and destroy answer.
type rotated struct {
	Tenant    string   `json:"tenant,omitempty"`
	Pipeline  string   `json:"pipeline,omitempty"`
	Key       string   `json:"key"` // that seals from now on
	Destroyed []string `json:"destroyed,omitempty"`
	Unreached int64    `json:"items_sealed_to_a_pipeline,omitempty"`
}

func (a *app) keysRotateCmd() *cobra.Command {
	o := opening{pipelines: true}
	var name string
	c := &cobra.Command{
		Use: "rotate [TENANT]", Short: "Make the next version of a key and publish it; older ones still open what was sealed to them",
		Example: "  reprieve ledger keys rotate acme --credential keys/privacy.pem\n  reprieve ledger keys rotate --pipeline billing --credential keys/privacy.pem",
		Args:    atMostOne("one tenant"),
		RunE: func(c *cobra.Command, args []string) error {
			if (len(args) == 1) == (name != "") {
				return usage(c, "give a tenant, or --pipeline NAME")
			}
			d, err := a.openVault(c.Context(), o)
			if err != nil {
				return err
			}
			defer d.Close()
			out := rotated{Pipeline: name}
			if name != "" {
				if _, err := d.plan.Pipeline(name); err != nil {
					return err
				}
				key, err := d.vault.Keys.RotatePipeline(c.Context(), d.who, name)
				if err != nil {
					return err
				}
				out.Key = key.ID()
			} else {
				out.Tenant = args[0]
				key, err := d.vault.Keys.Rotate(c.Context(), d.who, args[0])
				if err != nil {
					return err
				}
				out.Key = key.ID()
			}
			if err := a.publish(c.Context(), d); err != nil {
				return err
			}
			return a.print(out, func(t *table) { t.line("%s seals from now on", out.Key) })
		},
	}
	o.flags(c, a)
	c.Flags().StringVar(&name, "pipeline", "", "the key of a pipeline, for records without a tenant")
	return c
}

func (a *app) keysDestroyCmd() *cobra.Command {
	o := opening{pipelines: true}
	var reason string
	var yes bool
	c := &cobra.Command{
		Use: "destroy TENANT", Short: "Erase a tenant: destroy its private keys, so that no copy of anything sealed to them can be opened again",
		Long: "Destroy first makes and publishes a new key, so that records that still come are not lost, then deletes every older private key and\n" +
			"writes that into the erasure log. What was sealed for the tenant on topics, in the vault, in the ledger and in its backups cannot be\n" +
			"opened any more. Nothing brings it back.",
		Args: exactly(1, "one tenant"),
		RunE: func(c *cobra.Command, args []string) error {
			d, err := a.openVault(c.Context(), o)
			if err != nil {
				return err
			}
			defer d.Close()
			out := rotated{Tenant: args[0]}
			if !yes {
				return pipeline.Errorf(pipeline.CodeUsage, c.CommandPath(), "nothing of %s could be opened again, and nothing was changed", args[0]).
					With("say --yes when that is meant")
			}
			if strings.TrimSpace(reason) == "" {
				return pipeline.Errorf(pipeline.CodeReasonMissing, c.CommandPath(), "an erasure needs a reason").With("say --reason '...'")
			}
			if out.Unreached, err = d.vault.Keys.Unreached(c.Context(), args[0]); err != nil {
				return err
			}
			key, err := d.vault.Keys.Rotate(c.Context(), d.who, args[0])
			if err != nil {
				return err
			}
			if err := a.publish(c.Context(), d); err != nil {
				return err
			}
			out.Key = key.ID()
			if out.Destroyed, err = d.vault.Keys.Destroy(c.Context(), d.who, args[0], key.ID(), reason); err != nil {
				return err
			}
			d.vault.Forget(args[0])
			return a.print(out, func(t *table) {
				t.line("%s of %s destroyed: what was sealed to them cannot be opened any more", are(len(out.Destroyed), "key"), args[0])
				if out.Unreached > 0 {
					t.line("%s of the tenant sealed to a pipeline's key, before the tenant had one: erase them with reprieve ledger erase", are(int(out.Unreached), "item"))
				}
			})
		},
	}
	o.flags(c, a)
	c.Flags().StringVar(&reason, "reason", "", "why; it stands in the erasure log")
	c.Flags().BoolVar(&yes, "yes", false, "destroy them")
	return c
}
