package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"reprieve.dev/custody"
	"reprieve.dev/pipeline"
	"reprieve.dev/redrive"
	"reprieve.dev/worker"
)

func (a *app) redriveCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "redrive", Short: "Send repaired or triaged items again, as a controlled deployment",
		Long: "A redrive freezes items into a manifest, is dry-run, approved by another person, sends a few first, and goes on at a bounded\n" +
			"rate until what became of every item is known. Elsewhere it is called resubmit, replay, reprocess or shovel.\n\n" +
			"  plan -> dry-run -> approve -> run -> status\n  halt stops all redrives at once; lift ends that; resume goes on after a killed run",
	}
	c.AddCommand(a.planCmd(), a.dryRunCmd(), a.approveCmd(), a.denyCmd(), a.revokeCmd(), a.redriveRunCmd(), a.statusCmd(), a.redriveListCmd(),
		a.haltCmd(), a.liftCmd(), a.resumeCmd(), a.stopCmd())
	return c
}

// verb makes a redrive verb over one manifest: its digest, or enough of its beginning to be unique.
func (a *app) verb(use, short string, board bool, flags func(*cobra.Command), do func(ctx context.Context, d *desk, rd *worker.Desk, digest pipeline.Digest) error) *cobra.Command {
	var o opening
	c := &cobra.Command{
		Use: use + " MANIFEST", Short: short, Args: exactly(1, "the digest of one manifest, or its beginning"),
		RunE: func(c *cobra.Command, args []string) error {
			d, rd, err := a.openRedrive(c.Context(), o, board)
			if err != nil {
				return err
			}
			defer d.Close()
			digest, err := findManifest(c.Context(), d, rd, args[0])
			if err != nil {
				return err
			}
			return do(c.Context(), d, rd, digest)
		},
	}
	o.flags(c, a)
	if flags != nil {
		flags(c)
	}
	return c
}

func findManifest(ctx context.Context, d *desk, rd *worker.Desk, text string) (pipeline.Digest, error) {
	if text == "" { // a variable that was not set would name the only manifest there is
		return "", pipeline.Errorf(pipeline.CodeUsage, "MANIFEST", "the manifest is not named").With("give its digest, or the beginning of it: reprieve redrive list")
	}
	if !strings.HasPrefix(text, "sha256:") {
		text = "sha256:" + text
	}
	if len(text) == 7+64 {
		return pipeline.Digest(text), nil
	}
	all, err := rd.Service.List(ctx, d.who, "", 1000)
	if err != nil {
		return "", err
	}
	var found []pipeline.Digest
	for _, s := range all {
		if strings.HasPrefix(string(s.Digest), text) {
			found = append(found, s.Digest)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", pipeline.Errorf(pipeline.CodeManifestUnknown, text, "there is no such manifest")
	}
	return "", pipeline.Errorf(pipeline.CodeUsage, text, "%d manifests begin so", len(found)).With("give more of the digest")
}

// ruling is a verb that decides about a manifest for a reason and then shows what has become of it.
func (a *app) ruling(use, short string, rule func(*redrive.Service, context.Context, custody.Actor, pipeline.Digest, string) error) *cobra.Command {
	var reason string
	return a.verb(use, short, false, func(c *cobra.Command) { c.Flags().StringVar(&reason, "reason", "", "why") },
		func(ctx context.Context, d *desk, rd *worker.Desk, digest pipeline.Digest) error {
			if err := rule(rd.Service, ctx, d.who, digest, reason); err != nil {
				return err
			}
			return a.printStatus(ctx, d, rd, digest)
		})
}

func (a *app) denyCmd() *cobra.Command {
	return a.ruling("deny", "Refuse a manifest for good, with a reason", (*redrive.Service).Deny)
}

func (a *app) revokeCmd() *cobra.Command {
	return a.ruling("revoke", "Take the approvals of a manifest back", (*redrive.Service).Revoke)
}

func (a *app) stopCmd() *cobra.Command {
	return a.ruling("stop", "Stop one run; what was not sent stays planned", (*redrive.Service).Stop)
}
