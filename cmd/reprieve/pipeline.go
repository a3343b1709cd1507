package main

import (
	"context"

	"github.com/spf13/cobra"

	"reprieve.dev/custody"
	"reprieve.dev/pipeline"
	"reprieve.dev/seal"
	"reprieve.dev/worker"
)

func (a *app) pipelineCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "pipeline", Short: "See which pipelines halted themselves, and resume them",
		Long: "A pipeline whose budget of unknown errors is exceeded (unknown_errors of its policy, bounds.unknown_errors of the worker file)\n" +
			"halts: it finishes and commits what it has in work and reads nothing more, on no worker and after no restart, until a person\n" +
			"resumes it with a reason and their key. The halt stands on the control topic.",
	}
	c.AddCommand(a.pipelineListCmd(), a.pipelineResumeCmd())
	return c
}

func (a *app) halts(ctx context.Context, plan *worker.Plan, name string) (*worker.HaltDesk, error) {
	keys, err := worker.NewKeys(plan.Config.Keys)
	if err != nil {
		return nil, err
	}
	return worker.OpenHalt(ctx, plan, name, keys, a.clock, a.log())
}

// eachPipeline calls look for each pipeline of names, or for all without names, until one fails.
func (a *app) eachPipeline(names []string, look func(plan *worker.Plan, name string) error) error {
	plan, err := a.load(nil)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		for _, pp := range plan.Pipelines {
			names = append(names, pp.Config.Name)
		}
	}
	for _, name := range names {
		if err := look(plan, name); err != nil {
			return err
		}
	}
	return nil
}

// signing is the key of a person who may do what a signature is needed for: act says what, whose what kind of key it takes.
func (a *app) signing(plan *worker.Plan, credential, act, whose string, perm custody.Permission) (*seal.Signer, error) {
	who, signer, err := a.actor(plan, credential)
	if err != nil {
		return nil, err
	}
	if signer == nil {
		return nil, pipeline.Errorf(pipeline.CodePermissionDenied, who.Subject, "%s is a signature: it needs your key", act).
			With("--credential FILE, of a key that is registered under approvers" + whose)
	}
	return signer, custody.DefaultRoles().Check(who, perm)
}

func (a *app) pipelineListCmd() *cobra.Command {
	return &cobra.Command{
		Use: "list [PIPELINE]", Aliases: []string{"ls"}, Short: "List the pipelines and whether they are halted", Args: atMostOne("the name of one pipeline"),
		RunE: func(c *cobra.Command, args []string) error {
			var out struct {
				Pipelines []worker.HaltedPipeline `json:"pipelines"`
			}
			err := a.eachPipeline(args, func(plan *worker.Plan, name string) error {
				d, err := a.halts(c.Context(), plan, name)
				if err != nil {
					return err
				}
				defer d.Close()
				state, err := d.State()
				out.Pipelines = append(out.Pipelines, state)
				return err
			})
			if err != nil {
				return err
			}
			return a.print(out, func(t *table) {
				t.head("PIPELINE", "STATE", "CODE", "BY", "AT", "REASON")
				for _, p := range out.Pipelines {
					state := "not halted"
					if p.Halted {
						state = "HALTED"
					}
					t.row(p.Pipeline, state, string(p.Code), p.By, p.At, p.Reason)
				}
			})
		},
	}
}

func (a *app) pipelineResumeCmd() *cobra.Command {
	var credential, reason string
	c := &cobra.Command{
		Use: "resume PIPELINE", Short: "Let a halted pipeline go on: a signature, with a reason",
		Example: "  reprieve pipeline resume billing --reason 'release 2.3 mends the rule' --credential me.pem",
		Args:    exactly(1, "the name of a pipeline"),
		RunE: func(c *cobra.Command, args []string) error {
			plan, err := a.load(nil)
			if err != nil {
				return err
			}
			signer, err := a.signing(plan, credential, "resuming a halted pipeline", "", custody.PermLift)
			if err != nil {
				return err
			}
			d, err := a.halts(c.Context(), plan, args[0])
			if err != nil {
				return err
			}
			defer d.Close()
			resumed, err := d.Resume(c.Context(), signer, reason)
			if err != nil {
				return err
			}
			return a.print(map[string]any{"pipeline": args[0], "resumed": resumed, "by": signer.Subject()}, func(t *table) {
				if !resumed {
					t.line("%s is not halted; nothing was written", args[0])
					return
				}
				t.line("%s goes on", args[0])
			})
		},
	}
	signingFlags(a, c, &credential, &reason)
	return c
}
