package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

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

func (a *app) haltCmd() *cobra.Command {
	return a.haltOrLift("halt", "Stop all redrives at once (sticky)", false)
}
func (a *app) liftCmd() *cobra.Command {
	return a.haltOrLift("lift", "End a halt: another person than the one who set it, with a reason and their key", true)
}

func (a *app) haltOrLift(use, short string, lift bool) *cobra.Command {
	var o opening
	var name, reason string
	c := &cobra.Command{
		Use: use, Short: short, Args: exactly(0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error {
			d, rd, err := a.openRedrive(c.Context(), o, true)
			if err != nil {
				return err
			}
			defer d.Close()
			if !lift {
				if name != "" { // a misspelt one would halt nothing, and be believed
					if _, err := d.plan.Pipeline(name); err != nil {
						return err
					}
				}
				if err := rd.Service.Halt(c.Context(), d.who, name, reason); err != nil {
					return err
				}
				return a.print(map[string]string{"halted": orAll(name), "by": d.who.Subject, "reason": reason}, func(t *table) {
					who := "another person"
					if name == "" {
						who = "two other people, each"
					}
					t.line("halted: %s. No new send from now on. To end it, %s: reprieve redrive lift --reason ... --credential THEIR-KEY", orAll(name), who)
				})
			}
			if d.signer == nil {
				return pipeline.Errorf(pipeline.CodePermissionDenied, "", "lifting a halt is a signature: it needs your key").With("--credential FILE")
			}
			left, err := a.lift(c.Context(), d, rd, name, reason)
			if err != nil {
				return err
			}
			return a.print(map[string]any{"lifted": orAll(name), "by": d.who.Subject, "still_halted": left != "", "text": left}, func(t *table) {
				if left != "" {
					t.line("your lift is written; redrives stay halted: %s", harmless(left))
					t.line("next: another person: reprieve redrive lift --reason ... --credential THEIR-KEY")
					return
				}
				t.line("lifted: %s", orAll(name))
			})
		},
	}
	o.flags(c, a)
	c.Flags().StringVar(&name, "pipeline", "", "one pipeline; all if not said")
	c.Flags().StringVar(&reason, "reason", "", "why")
	return c
}

func orAll(name string) string {
	if name == "" {
		return "all pipelines"
	}
	return name
}

// doubted is one item that a killed run may have sent.
type doubted struct {
	Doubts []redrive.Doubt `json:"in_doubt"`
}

func (a *app) resumeCmd() *cobra.Command {
	var scan, goOn bool
	var sent, unsent []string
	var reason string
	flags := func(c *cobra.Command) {
		c.Flags().BoolVar(&scan, "scan", false, "take what the destination holds for the truth: found is sent, absent is unsent")
		c.Flags().StringSliceVar(&sent, "sent", nil, "items that were sent")
		c.Flags().StringSliceVar(&unsent, "unsent", nil, "items that were not")
		c.Flags().StringVar(&reason, "reason", "", "why you decide so")
		c.Flags().BoolVar(&goOn, "run", true, "go on with the rest")
	}
	return a.verb("resume", "Go on after a killed run: names what may have been sent, and takes your decision", true, flags,
		func(ctx context.Context, d *desk, rd *worker.Desk, digest pipeline.Digest) error {
			if !scan && len(sent)+len(unsent) == 0 {
				doubts, err := rd.Service.Doubts(ctx, d.who, digest)
				if err != nil {
					return err
				}
				if len(doubts) > 0 {
					if err := a.print(doubted{doubts}, func(t *table) {
						t.line("the run was killed; these items may have been sent:")
						for _, x := range doubts {
							where := "not on the destination"
							if x.Found != nil {
								where = "on the destination at " + x.Found.String()
							}
							t.row("  "+string(x.Item), where)
						}
						t.line("decide: --scan (found is sent, absent is unsent), or --sent and --unsent with ids, and --reason")
					}); err != nil {
						return err
					}
					return silent(pipeline.ExitRefused)
				}
			} else {
				dec := redrive.Decision{Scan: scan, Sent: ids(sent), Unsent: ids(unsent), Reason: reason}
				doubts, err := rd.Service.Resume(ctx, d.who, digest, dec)
				if err != nil {
					return err
				}
				if a.format == "table" {
					writeLine(a.out, "%s decided that were in doubt", are(len(doubts), "item"))
				}
			}
			if !goOn {
				return a.printStatus(ctx, d, rd, digest)
			}
			st, err := rd.Service.Run(ctx, d.who, digest)
			if st != nil {
				if perr := a.print(st, func(t *table) { statusTable(t, st) }); perr != nil {
					return perr
				}
			}
			return err
		})
}

func ids(list []string) (out []pipeline.ID) {
	for _, s := range list {
		out = append(out, pipeline.ID(s))
	}
	return out
}

// lift lifts both the ledger's halt and the one on the control topic, and says what still stands.
func (a *app) lift(ctx context.Context, d *desk, rd *worker.Desk, name, reason string) (string, error) {
	err := rd.Service.Lift(ctx, d.who, name, reason)
	if err != nil && pipeline.CodeOf(err) != pipeline.CodeRedriveState {
		return "", err
	}
	boardErr := rd.Lift(ctx, d.signer, name, reason)
	if boardErr != nil && (err != nil || pipeline.CodeOf(boardErr) != pipeline.CodeRedriveState) {
		return "", boardErr
	}
	if s, serr := rd.Board.Snapshot(); serr == nil {
		if e, halted := s.Halted(name); halted {
			text := e.By + " halted: " + e.HaltState().Reason + "; a halt of all pipelines takes two people to lift"
			if by := s.Lifters(e); len(by) > 0 {
				text += ", and so far only " + strings.Join(by, ", ") + " did"
			}
			return text, nil
		}
	}
	return "", nil
}
