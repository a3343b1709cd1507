package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"reprieve.dev/pipeline"
	"reprieve.dev/redrive"
	"reprieve.dev/worker"
)

func (a *app) planCmd() *cobra.Command {
	var o opening
	var t targeting
	var req redrive.PlanRequest
	var rate string
	c := &cobra.Command{
		Use: "plan (SELECTION | --snapshot ID)", Short: "Freeze a selection into a manifest; nothing is sent",
		Example: "  reprieve redrive plan 'fingerprint=f1... state=REPAIRED' --ticket OPS-1 --yes",
		RunE: func(c *cobra.Command, args []string) error {
			if err := within("--canary", req.Canary, 0, 1_000_000); err != nil {
				return err
			}
			d, rd, err := a.openRedrive(c.Context(), o, false)
			if err != nil {
				return err
			}
			defer d.Close()
			if req.Pipeline, err = pipelineOf(d.plan, req.Pipeline); err != nil {
				return err
			}
			pp, err := d.plan.Pipeline(req.Pipeline)
			if err != nil {
				return err
			}
			if d.signer == nil && pp.Config.Redrive.Approval == "dual" { // else one person could ask as nobody and approve by name
				return pipeline.Errorf(pipeline.CodePermissionDenied, d.who.Subject, "a redrive that another person approves is asked for by a known one").
					With("--credential FILE, of a key that is registered under approvers")
			}
			if rate != "" {
				if req.Rate, err = redrive.ParseRate(rate); err != nil {
					return err
				}
			}
			if ids, ok := itemIDs(args); ok && len(ids) > 0 {
				args = []string{"id=" + strings.Join(args, "|")}
				t.yes = true // the ids were given one by one
			}
			target, err := a.target(c.Context(), d, &t, args)
			if err != nil {
				return err
			}
			req.Snapshot, req.Count, req.Digest = target.Snapshot, target.Count, string(target.Digest)
			p, err := rd.Service.Plan(c.Context(), d.who, req)
			if err != nil {
				return a.nothingToSend(p, err)
			}
			return a.print(p, func(t *table) {
				m := p.Manifest
				t.pair("manifest", p.Digest)
				t.pair("items", fmt.Sprintf("%d of %d selected", m.Selection.Count, m.Selection.Selected))
				t.pair("to", m.Destination)
				t.pair("rate", m.Pace.Rate)
				canary := "as few as cover partitions and causes"
				if m.Canary.N > 0 {
					canary = "at most " + many(m.Canary.N, "item")
				}
				t.pair("canary", canary)
				t.pair("tenant", m.Tenant)
				t.pair("asked for by", m.Requester)
				for _, why := range slices.Sorted(maps.Keys(m.Selection.Excluded)) {
					t.pair("left out: "+leftOut(why), m.Selection.Excluded[why])
				}
				t.line("\nnext: reprieve redrive dry-run %s", string(p.Digest)[7:19])
			})
		},
	}
	o.flags(c, a)
	t.flags(c)
	c.Flags().StringVar(&req.Pipeline, "pipeline", "", "pipeline of the items, if there are several")
	c.Flags().StringVar(&req.Ticket, "ticket", "", "the ticket that asks for it")
	c.Flags().StringVar(&rate, "rate", "", "most sends a second, for example 50/s; at most what pipeline and platform allow")
	c.Flags().IntVar(&req.Canary, "canary", 0, "most items to send first; as few as cover partitions and causes if not said")
	c.Flags().StringVar(&req.Destination, "destination", "", "topic to enter by; only the pipeline's retry topic is allowed")
	c.Flags().StringVar(&req.Unconfirmed, "unconfirmed", "", "accepted: take items of which it is not known whether the source moved on")
	c.Flags().StringVar(&req.Horizon, "horizon", "", "accepted: take items past the deduplication horizon")
	c.Flags().StringVar(&req.Loop, "loop", "", "accepted: take one item, alone, that has come back too often for a bulk redrive")
	c.Flags().StringVar(&req.Identity, "identity", "", "new: take repairs that make new logical ids; needs --intent and two approvals")
	c.Flags().StringVar(&req.Intent, "intent", "", "why new logical ids are made")
	return c
}

func (a *app) dryRunCmd() *cobra.Command {
	report := false
	flags := func(c *cobra.Command) {
		c.Flags().BoolVar(&report, "report", false, "the report for who owns the data: what would happen, to how much, and what would not")
	}
	return a.verb("dry-run", "Do everything but send, and report it", false, flags, func(ctx context.Context, d *desk, rd *worker.Desk, digest pipeline.Digest) error {
		r, err := rd.Service.DryRun(ctx, d.who, digest)
		if err != nil {
			return err
		}
		return a.print(r, func(t *table) {
			if report {
				t.line("%s", strings.TrimRight(harmlessLines(r.Text()), "\n"))
				t.line("\nnext: %s", afterDryRun(r))
				return
			}
			t.pair("manifest", r.Manifest)
			t.pair("would send", fmt.Sprintf("%d of %s (%d as repaired), %s", r.WouldSend, many(r.Items, "item"), r.Repaired, many(r.Bytes, "byte")))
			t.pair("to", r.Destination)
			for _, p := range r.PartitionNumbers() {
				t.pair("  partition "+p, r.Partitions[p])
			}
			t.pair("takes", r.Duration+" at "+r.Rate)
			t.pair("canary", len(r.Canary))
			for _, s := range slices.Sorted(maps.Keys(r.Schemas)) {
				t.pair("reads as "+s, r.Schemas[s])
			}
			for _, code := range slices.Sorted(maps.Keys(r.Undecoded)) {
				t.pair("would fail again: "+code, r.Undecoded[code])
			}
			for _, code := range slices.Sorted(maps.Keys(r.FailAgain)) {
				t.pair("would fail again in the stages: "+code, r.FailAgain[code].Count)
			}
			if r.Asked > 0 {
				t.pair("asked about first", r.Asked)
			}
			if r.Superseded > 0 {
				t.pair("superseded, not sent", r.Superseded)
			}
			t.pair("deduplication", fmt.Sprintf("%d within its horizon, %d past it, %d unknown", r.Horizon.Within, r.Horizon.Past, r.Horizon.Unknown))
			if r.Live.Waiting >= 0 {
				t.pair("live records", strings.TrimSpace(fmt.Sprintf("%d wait, %d a second are done %s", r.Live.Waiting, max(0, r.Live.PerSecond), r.Live.Share)))
			}
			for _, code := range slices.Sorted(maps.Keys(r.CannotGo)) {
				t.pair("cannot go: "+code, r.CannotGo[code].Count)
			}
			for _, why := range slices.Sorted(maps.Keys(r.Excluded)) {
				t.pair("left out: "+leftOut(why), r.Excluded[why])
			}
			t.pair("newly matching, not in it", r.Since)
			for _, n := range r.Notes {
				t.line("note: %s", harmless(n))
			}
			t.line("\nnext: %s", afterDryRun(r))
		})
	})
}

// afterDryRun is what follows from a dry run: nobody is asked to approve what sends nothing.
func afterDryRun(r *redrive.Report) string {
	if r.WouldSend == 0 {
		return "none of it can be sent as it is: repair the items, or mend what is named above, and plan again"
	}
	return "another person approves: reprieve redrive approve " + string(r.Manifest)[7:19] + " --credential THEIR-KEY"
}

func (a *app) approveCmd() *cobra.Command {
	var role, rate string
	var valid time.Duration
	flags := func(c *cobra.Command) {
		c.Flags().StringVar(&role, "role", "approver", "the role you approve in")
		c.Flags().StringVar(&rate, "rate", "", "most sends a second that you approve; the manifest's if not said")
		c.Flags().DurationVar(&valid, "valid", 4*time.Hour, "how long the approval holds")
	}
	return a.verb("approve", "Sign a manifest with your own key; never your own redrive", false, flags, func(ctx context.Context, d *desk, rd *worker.Desk, digest pipeline.Digest) error {
		if d.signer == nil {
			return pipeline.Errorf(pipeline.CodeApprovalInvalid, "", "an approval is a signature: it needs your key").
				With("--credential FILE, of a key that is registered under approvers with the role " + role)
		}
		m, _, err := rd.Service.Read(ctx, d.who, digest)
		if err != nil {
			return err
		}
		if rate == "" {
			rate = m.Pace.Rate
		}
		r, err := redrive.ParseRate(rate)
		if err != nil {
			return err
		}
		ap := redrive.Sign(d.signer, digest, role, r, a.clock().Add(valid))
		if err := rd.Service.Approve(ctx, d.who, ap); err != nil {
			return err
		}
		return a.print(ap, func(t *table) {
			t.line("approved by %s until %s, at most %s", ap.Subject, ap.Expires, ap.Rate)
			if strings.HasPrefix(d.ledgerURL(), "sqlite:") {
				t.line("note: the ledger is a file on this machine, so this only demonstrates dual control: whoever can write the file can change it")
			}
			t.line("next: reprieve redrive run %s", string(digest)[7:19])
		})
	})
}
