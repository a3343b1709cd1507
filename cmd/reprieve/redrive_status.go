package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"reprieve.dev/pipeline"
	"reprieve.dev/redrive"
	"reprieve.dev/worker"
)

func (a *app) statusCmd() *cobra.Command {
	var o opening
	c := &cobra.Command{
		Use: "status MANIFEST", Short: "Show where a redrive stands", Args: exactly(1, "the digest of one manifest, or its beginning"),
		RunE: func(c *cobra.Command, args []string) error {
			d, rd, err := a.openRedrive(c.Context(), o, true)
			dark := err != nil && pipeline.Lookup(pipeline.CodeOf(err)).Exit == pipeline.ExitEnvironment
			if dark { // a status is wanted most when the cluster is away
				d, rd, err = a.openRedrive(c.Context(), o, false)
			}
			if err != nil {
				return err
			}
			defer d.Close()
			digest, err := findManifest(c.Context(), d, rd, args[0])
			if err != nil {
				return err
			}
			if err := a.printStatus(c.Context(), d, rd, digest); err != nil || a.format != "table" {
				return err
			}
			if dark {
				writeLine(a.out, "note: the control topic cannot be read; redrives that need it wait, and a halt may stand there")
			}
			return nil
		},
	}
	o.flags(c, a)
	return c
}

func (a *app) printStatus(ctx context.Context, d *desk, rd *worker.Desk, digest pipeline.Digest) error {
	st, err := rd.Service.Status(ctx, d.who, digest)
	if err != nil {
		return err
	}
	if st.Halt == nil && rd.Board != nil {
		m, _, err := rd.Service.Read(ctx, d.who, digest)
		if err != nil {
			return err
		}
		if s, err := rd.Board.Snapshot(); err == nil {
			if e, halted := s.Halted(m.Pipeline); halted {
				st.Halt = &redrive.HaltInfo{By: e.By, Reason: e.HaltState().Reason}
			}
		}
	}
	return a.print(st, func(t *table) { statusTable(t, st) })
}

func countsLine(st *redrive.Status) string {
	c := st.Counts
	text := fmt.Sprintf("%s: %d waiting, %d sent, %d forwarded, %d reconciled", many(c.Total(), "item"), c.Planned, c.Sent, c.Forwarded, c.Reconciled)
	for _, more := range []struct {
		n    int64
		what string
	}{{c.Sending, "in doubt"}, {c.Returned, "failed again"}, {c.Unsendable, "could not be sent"}, {c.Skipped, "skipped"}, {c.Withdrawn, "withdrawn"}} {
		if more.n > 0 {
			text += fmt.Sprintf(", %d %s", more.n, more.what)
		}
	}
	return text
}

func statusTable(t *table, st *redrive.Status) {
	t.pair("manifest", st.Digest)
	t.pair("state", st.State)
	t.pair("why", st.Detail)
	t.pair("counts", countsLine(st))
	t.pair("rate", st.Rate)
	t.pair("executor", st.Executor)
	for _, ap := range st.Approvals {
		s := ap.Subject + " until " + ap.Expires
		if ap.Revoked != "" {
			s += " (revoked " + ap.Revoked + ")"
		}
		t.pair("approved by", s)
	}
	if st.Halt != nil {
		t.pair("HALTED", st.Halt.By+": "+st.Halt.Reason)
	}
	if next := afterStatus(st); next != "" {
		t.line("\nnext: %s", next)
	}
}

// afterStatus is what a person does about a redrive next; "" when it has ended, or goes on by itself.
func afterStatus(st *redrive.Status) string {
	short := string(st.Digest)[7:19]
	switch {
	case st.State.Final():
		return ""
	case st.State == redrive.StatePlanned:
		return "reprieve redrive dry-run " + short
	case st.State == redrive.StateDryRun:
		return "another person approves: reprieve redrive approve " + short + " --credential THEIR-KEY"
	case st.Halt != nil:
		return "another person lifts the halt, two people one of all pipelines: reprieve redrive lift --reason ... --credential THEIR-KEY"
	case st.State == redrive.StateUnclear:
		return "reprieve redrive resume " + short
	case st.Failed():
		return "look at what failed again (reprieve quarantine groups) and mend it; then plan it anew, and close this one: reprieve redrive deny " + short +
			" --reason ... --credential THEIR-KEY"
	case st.State == redrive.StateApproved, st.State == redrive.StateStopped:
		return "reprieve redrive run " + short
	case st.Executor == "" && st.State != redrive.StateSettling:
		return "nobody works on it, so its run was killed: reprieve redrive resume " + short
	}
	return ""
}

func (a *app) redriveListCmd() *cobra.Command {
	var o opening
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List manifests, newest first",
		RunE: func(c *cobra.Command, _ []string) error {
			d, rd, err := a.openRedrive(c.Context(), o, false)
			if err != nil {
				return err
			}
			defer d.Close()
			all, err := rd.Service.List(c.Context(), d.who, "", 0)
			if err != nil {
				return err
			}
			out := struct {
				Redrives []*redrive.Status `json:"redrives"`
			}{all}
			return a.print(out, func(t *table) {
				if len(all) == 0 {
					t.line("no redrive was planned yet")
					return
				}
				t.head("MANIFEST", "STATE", "CREATED", "COUNTS")
				var halts []redrive.HaltInfo
				for _, s := range all {
					t.row(string(s.Digest)[7:19], s.State, s.Created, countsLine(s))
					if s.Halt != nil && !slices.Contains(halts, *s.Halt) {
						halts = append(halts, *s.Halt)
					}
				}
				for _, h := range halts {
					t.line("HALTED: %s, by %s: %s", orAll(h.Pipeline), harmless(h.By), harmless(h.Reason))
				}
			})
		},
	}
	o.flags(c, a)
	return c
}
