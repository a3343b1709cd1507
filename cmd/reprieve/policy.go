package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"reprieve.dev/config"
	"reprieve.dev/custody"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/control"
	"reprieve.dev/pipeline/decide"
	"reprieve.dev/seal"
	"reprieve.dev/worker"
)

func (a *app) policyCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "policy", Short: "See and change which policy version is in force",
		Long: "A policy version is put into force for all partitions of a pipeline, or as a canary for a share of them, by a signed entry on\n" +
			"the control topic; every worker follows within about a second, and each decision, settlement and letter names its version.\n" +
			"Going back is the same act. Before anybody activates one, the version of each worker's own policy file is in force.",
	}
	c.AddCommand(a.policyListCmd(), a.policyShowCmd(), a.policyActivateCmd(), a.policyRollbackCmd())
	return c
}

// policies opens the desk of one pipeline, to look.
func (a *app) policies(ctx context.Context, plan *worker.Plan, name string) (*worker.PolicyDesk, error) {
	keys, err := worker.NewKeys(plan.Config.Keys)
	if err != nil {
		return nil, err
	}
	return worker.OpenPolicies(ctx, plan, name, "policy", keys, a.clock, a.log())
}

// mayActivate is the key of a person who may change which policy is in force.
func (a *app) mayActivate(plan *worker.Plan, credential string) (*seal.Signer, error) {
	return a.signing(plan, credential, "putting a policy into force", " with the role platform", custody.PermPolicy)
}

// listedPolicies are the versions of one pipeline.
type listedPolicies struct {
	Pipeline string                 `json:"pipeline"`
	Versions []worker.PolicyVersion `json:"versions"`
}

func (a *app) policyListCmd() *cobra.Command {
	return &cobra.Command{
		Use: "list [PIPELINE]", Aliases: []string{"ls"}, Short: "List the policy versions of the pipelines, the latest act first", Args: atMostOne("the name of one pipeline"),
		RunE: func(c *cobra.Command, args []string) error {
			var out struct {
				Pipelines []listedPolicies `json:"pipelines"`
			}
			err := a.eachPipeline(args, func(plan *worker.Plan, name string) error {
				d, err := a.policies(c.Context(), plan, name)
				if err != nil {
					return err
				}
				defer d.Close()
				all, err := d.List()
				out.Pipelines = append(out.Pipelines, listedPolicies{name, all})
				return err
			})
			if err != nil {
				return err
			}
			return a.print(out, func(t *table) {
				t.head("PIPELINE", "VERSION", "STATE", "PARTITIONS", "RULES", "BY", "AT", "REASON")
				for _, p := range out.Pipelines {
					for _, v := range p.Versions {
						t.row(p.Pipeline, shortVersion(v), v.State, percentOf(v), fmt.Sprintf("%d reject, %d decide", v.Reject, v.Decide), v.By, v.At, v.Reason)
					}
				}
			})
		},
	}
}

func shortVersion(v worker.PolicyVersion) string {
	if v.File {
		return shortDigest(v.Version) + " (file)"
	}
	return shortDigest(v.Version)
}

func percentOf(v worker.PolicyVersion) string {
	if v.Percent == 0 {
		return ""
	}
	return strconv.Itoa(v.Percent) + "%"
}

// shortDigest is the part of a digest that people read.
func shortDigest(digest string) string {
	d := strings.TrimPrefix(digest, "sha256:")
	return d[:min(len(d), 12)]
}

func (a *app) policyShowCmd() *cobra.Command {
	return &cobra.Command{
		Use: "show PIPELINE [VERSION]", Short: "Show a policy version: the one in force, or one by its digest",
		Example: "  reprieve policy show billing\n  reprieve policy show billing file",
		Args:    oneOrTwo("the name of a pipeline, and a version at most"),
		RunE: func(c *cobra.Command, args []string) error {
			plan, err := a.load(nil)
			if err != nil {
				return err
			}
			d, err := a.policies(c.Context(), plan, args[0])
			if err != nil {
				return err
			}
			defer d.Close()
			version := ""
			if len(args) > 1 {
				version = args[1]
			}
			v, err := d.Find(version)
			if err != nil {
				return err
			}
			return a.showPolicy(v)
		},
	}
}

// showPolicy prints a version: for people its facts and the file, else all of it as one value.
func (a *app) showPolicy(v worker.PolicyVersion) error {
	out := struct {
		worker.PolicyVersion
		Policy rawJSON `json:"policy"`
	}{v, v.Canonical}
	err := a.print(out, func(t *table) {
		t.pair("version", v.Version)
		t.pair("state", v.State)
		t.pair("partitions", percentOf(v))
		t.pair("by", v.By)
		t.pair("at", v.At)
		t.pair("reason", v.Reason)
		t.pair("before it", v.Previous)
		for _, c := range v.Clamped {
			t.pair("clamped by the platform", c)
		}
		for _, p := range v.Problems {
			t.pair("cannot be used here", p.String())
		}
		t.line("")
	})
	if err != nil || a.format != "table" {
		return err
	}
	return writeYAML(a.out, v.Canonical)
}

// rawJSON is JSON that is printed as it is.
type rawJSON []byte

// MarshalJSON implements json.Marshaler.
func (r rawJSON) MarshalJSON() ([]byte, error) { return r, nil }

func (a *app) policyActivateCmd() *cobra.Command {
	var credential, reason, share string
	c := &cobra.Command{
		Use: "activate PIPELINE [FILE | VERSION]", Short: "Put a policy version into force, for all partitions or as a canary for a share of them",
		Long: "Activate compiles the policy as the workers will, under the platform's bounds, looks up every place that its rules read in the\n" +
			"latest schemas of the source topics, and publishes it signed with your key. FILE is the pipeline's own policy file if not said;\n" +
			"VERSION is the digest of one that was activated before, or 'file', which leaves it to each worker's own file again.",
		Example: "  reprieve policy activate billing policies/billing.yaml --canary 10% --reason 'CHF is a currency' --credential me.pem\n" +
			"  reprieve policy activate billing --reason 'the canary did well' --credential me.pem",
		Args: oneOrTwo("the name of a pipeline, and a file or a version at most"),
		RunE: func(c *cobra.Command, args []string) error {
			percent, err := parsePercent(share)
			if err != nil {
				return err
			}
			plan, err := a.load(nil)
			if err != nil {
				return err
			}
			pp, err := plan.Pipeline(args[0])
			if err != nil {
				return err
			}
			signer, err := a.mayActivate(plan, credential)
			if err != nil {
				return err
			}
			what := pp.PolicyFile()
			if len(args) > 1 {
				what = args[1]
			}
			w, err := a.wanted(pp, what)
			if err != nil {
				return err
			}
			d, err := a.policies(c.Context(), plan, args[0])
			if err != nil {
				return err
			}
			defer d.Close()
			if err := w.find(d); err != nil {
				return err
			}
			ps, notes := d.Check(c.Context(), w.policy, w.doc)
			if len(ps) > 0 {
				return ps
			}
			out, err := d.Activate(c.Context(), signer, w.version, w.policy, percent, reason)
			if err != nil {
				return err
			}
			return a.printChange(out, notes)
		},
	}
	c.Flags().StringVar(&share, "canary", "100%", "share of the partitions that the version decides for; the others keep the one in force")
	signingFlags(a, c, &credential, &reason)
	return c
}

func signingFlags(a *app, c *cobra.Command, credential, reason *string) {
	c.Flags().StringVar(reason, "reason", "", "why; it is kept with the entry")
	c.Flags().StringVar(credential, "credential", a.envOr("REPRIEVE_CREDENTIAL", ""), "your private key file: it signs the entry (REPRIEVE_CREDENTIAL)")
}

func parsePercent(text string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSuffix(text, "%"))
	if err != nil || n < 1 || n > 100 {
		return 0, pipeline.Errorf(pipeline.CodeUsage, "--canary "+text, "it is not a share").With("write a whole number from 1% to 100%")
	}
	return n, nil
}

// wantedPolicy is what somebody asks to put into force.
type wantedPolicy struct {
	version string
	policy  *decide.Policy // nil: a version that must be looked for
	doc     *config.Doc    // of a file
}

// wanted reads a file, with all its problems, or takes the word "file" or a digest for what it is.
func (a *app) wanted(pp *worker.PipelinePlan, what string) (*wantedPolicy, error) {
	_, missing := os.Stat(what)
	switch {
	case what == "":
		return nil, pipeline.Errorf(pipeline.CodeUsage, pp.Config.Name, "the pipeline names no policy file").
			With("give the file: reprieve policy activate " + pp.Config.Name + " FILE")
	case what == control.FileVersion:
		return &wantedPolicy{version: what, policy: pp.Policy}, nil
	case missing != nil && isDigest(what):
		return &wantedPolicy{version: what}, nil
	}
	p, doc, ps := pp.ReadPolicy(what, a.optionsAt(a.file))
	if len(ps) > 0 {
		return nil, ps
	}
	return &wantedPolicy{string(p.Digest()), p, doc}, nil
}

// find completes what was asked for by its digest.
func (w *wantedPolicy) find(d *worker.PolicyDesk) error {
	if w.policy != nil {
		return nil
	}
	v, err := d.Find(w.version)
	if err != nil {
		return err
	}
	p, ps := d.Compiled(v)
	w.version, w.policy = v.Version, p
	return ps.Err()
}

// isDigest tells whether a text looks like a digest, or the beginning of one, and not like a file.
func isDigest(s string) bool {
	hex := strings.TrimPrefix(s, "sha256:")
	return hex != s || len(hex) >= 6 && strings.Trim(hex, "0123456789abcdef") == ""
}

func (a *app) policyRollbackCmd() *cobra.Command {
	var credential, reason string
	c := &cobra.Command{
		Use: "rollback PIPELINE [VERSION]", Short: "Go back: from a canary to the version in force, else to the version before",
		Example: "  reprieve policy rollback billing --reason 'refuses good invoices' --credential me.pem",
		Args:    oneOrTwo("the name of a pipeline, and a version at most"),
		RunE: func(c *cobra.Command, args []string) error {
			plan, err := a.load(nil)
			if err != nil {
				return err
			}
			signer, err := a.mayActivate(plan, credential)
			if err != nil {
				return err
			}
			d, err := a.policies(c.Context(), plan, args[0])
			if err != nil {
				return err
			}
			defer d.Close()
			version := ""
			if len(args) > 1 {
				version = args[1]
				if version != control.FileVersion {
					v, err := d.Find(version)
					if err != nil {
						return err
					}
					version = v.Version
				}
			}
			out, err := d.Rollback(c.Context(), signer, version, reason)
			if err != nil {
				return err
			}
			return a.printChange(out, nil)
		},
	}
	signingFlags(a, c, &credential, &reason)
	return c
}

func (a *app) printChange(ch worker.PolicyChange, notes []string) error {
	out := struct {
		worker.PolicyChange
		Notes []string `json:"notes,omitempty"`
	}{ch, notes}
	return a.print(out, func(t *table) {
		where := "all partitions"
		if ch.Percent < 100 {
			where = strconv.Itoa(ch.Percent) + "% of the partitions"
		}
		switch {
		case !ch.Changed:
			t.line("%s: %s is in force for %s already; nothing was written", ch.Pipeline, shortDigest(ch.Version), where)
		case ch.Percent < 100:
			t.line("%s: %s decides for %s as a canary; %s stays in force for the others", ch.Pipeline, shortDigest(ch.Version), where, shortDigest(ch.Before))
		default:
			t.line("%s: %s is in force for %s; before it was %s", ch.Pipeline, shortDigest(ch.Version), where, shortDigest(ch.Before))
		}
		for _, topic := range slices.Sorted(maps.Keys(ch.Partitions)) {
			t.line("  %s: partitions %s", topic, strings.Trim(fmt.Sprint(ch.Partitions[topic]), "[]"))
		}
		for _, c := range ch.Clamped {
			t.line("  clamped by the platform: %s", harmless(c))
		}
		for _, n := range notes {
			t.line("note: %s", harmless(n))
		}
		if ch.Changed {
			t.line("to go back: reprieve policy rollback %s --reason ... --credential YOUR-KEY", ch.Pipeline)
		}
	})
}
