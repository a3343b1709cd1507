package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"reprieve.dev/custody"
	"reprieve.dev/pipeline"
	"reprieve.dev/redrive"
	"reprieve.dev/worker"
)

// fromTopic is `redrive run` without a manifest: the set of items that stand behind a dead-letter topic now.
type fromTopic struct {
	topic  string
	rate   string
	ticket string
	dry    bool
	wait   time.Duration
}

func (a *app) redriveRunCmd() *cobra.Command {
	var o opening
	var f fromTopic
	c := &cobra.Command{
		Use: "run (MANIFEST | --source-dlq TOPIC)", Short: "Execute an approved manifest until every item is accounted for",
		Long: "Run sends the items of an approved manifest: a few first, and the rest once those are reconciled. Ctrl-C pauses it; the same command\n" +
			"goes on. With --source-dlq it makes a manifest of the items that stand behind a dead-letter topic now, one for each tenant, shows what\n" +
			"they would do, and asks for approval; called again, it goes on with them.",
		Example: "  reprieve redrive run 3f2a91c07d11\n  reprieve redrive run --source-dlq billing.invoices.v1.dlq --rate-limit 50 --dry-run=false",
		Args: func(c *cobra.Command, args []string) error {
			if (len(args) == 1) == (f.topic != "") || len(args) > 1 {
				return usage(c, "say which redrive: the digest of one manifest, or --source-dlq TOPIC")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			d, rd, err := a.openRedrive(c.Context(), o, true)
			if err != nil {
				return err
			}
			defer d.Close()
			if f.topic != "" {
				return a.runTopic(c.Context(), d, rd, f)
			}
			digest, err := findManifest(c.Context(), d, rd, args[0])
			if err != nil {
				return err
			}
			return a.runManifest(c.Context(), d, rd, digest)
		},
	}
	o.flags(c, a)
	c.Flags().StringVar(&f.topic, "source-dlq", "", "dead-letter topic whose triaged and repaired items are redriven")
	c.Flags().StringVar(&f.rate, "rate-limit", "", "most sends a second, for example 50; at most what pipeline and platform allow")
	c.Flags().BoolVar(&f.dry, "dry-run", true, "with --source-dlq: only show what would be sent")
	c.Flags().StringVar(&f.ticket, "ticket", "", "with --source-dlq: the ticket that asks for it; those of the items if not said")
	c.Flags().DurationVar(&f.wait, "wait", 0, "with --source-dlq: how long to wait for an approval; until Ctrl-C on a terminal")
	return c
}

// runManifest runs one manifest, shows its progress and then what has become of it.
func (a *app) runManifest(ctx context.Context, d *desk, rd *worker.Desk, digest pipeline.Digest) error {
	show, done := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if a.format == "table" {
			a.progress(show, d, rd, digest)
		}
	}()
	st, err := rd.Service.Run(ctx, d.who, digest)
	done()
	<-ended
	if st != nil {
		if perr := a.print(st, func(t *table) { statusTable(t, st) }); perr != nil {
			return perr
		}
	}
	return err
}

// progress shows how a run goes on: one line that changes on a terminal, a line every ten seconds elsewhere.
func (a *app) progress(ctx context.Context, d *desk, rd *worker.Desk, digest pipeline.Digest) {
	every := 10 * time.Second
	if a.terminal {
		every = 500 * time.Millisecond
		defer fmt.Fprint(a.out, "\r\033[K")
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	waiting, asked := int64(-1), time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		st, err := rd.Service.Status(ctx, d.who, digest)
		if err != nil {
			continue // the run itself tells what is wrong
		}
		if now := a.clock(); now.Sub(asked) >= 2*time.Second {
			asked = now
			if waiting, err = rd.Service.Waiting(ctx, st.Manifest.Pipeline); err != nil {
				waiting = -1
			}
		}
		line := fmt.Sprintf("%s  %s  %d/s  left %s", st.State, countsLine(st), st.PerSecond, st.TimeLeft)
		if waiting >= 0 {
			line += fmt.Sprintf("  live lag %d", waiting)
		}
		if st.Detail != "" {
			line += "  " + harmless(st.Detail)
		}
		if a.terminal {
			fmt.Fprintf(a.out, "\r\033[K%s", line)
		} else {
			writeLine(a.err, "%s", line)
		}
	}
}

// runTopic redrives what stands behind a dead-letter topic now: it goes on with what was begun, or makes a manifest for each tenant.
func (a *app) runTopic(ctx context.Context, d *desk, rd *worker.Desk, f fromTopic) error {
	var name string
	for _, p := range d.plan.Pipelines {
		if p.Config.Quarantine.Topic == f.topic {
			name = p.Config.Name
		}
	}
	if name == "" {
		return pipeline.Errorf(pipeline.CodeUsage, "--source-dlq "+f.topic, "no pipeline quarantines to this topic").With("see quarantine.topic of the pipeline files")
	}
	begun, err := a.begun(ctx, d, rd, name)
	if err != nil {
		return err
	}
	if len(begun) == 0 {
		if begun, err = a.planTopic(ctx, d, rd, name, f); err != nil {
			return err
		}
	}
	if f.dry {
		return nil
	}
	var waits []string
	for _, digest := range begun {
		ok, err := a.awaitApproval(ctx, d, rd, digest, f.wait)
		if err != nil {
			return err
		}
		if !ok {
			waits = append(waits, string(digest)[7:19])
			continue
		}
		if err := a.runManifest(ctx, d, rd, digest); err != nil {
			return err
		}
	}
	if len(waits) > 0 {
		return pipeline.Errorf(pipeline.CodeApprovalMissing, strings.Join(waits, ", "), "nobody has approved it yet; nothing of it was sent").
			With("another person: reprieve redrive approve " + waits[0] + " --credential THEIR-KEY; then the same command again")
	}
	return nil
}

// begun are the redrives of a pipeline that this person asked for and that have no end yet.
func (a *app) begun(ctx context.Context, d *desk, rd *worker.Desk, name string) (out []pipeline.Digest, err error) {
	all, err := rd.Service.List(ctx, d.who, name, 1000)
	if err != nil {
		return nil, err
	}
	for _, st := range slices.Backward(all) {
		if st.State.Final() || st.State == redrive.StatePlanned || st.State == redrive.StateSettling || st.Manifest.Requester != d.who.Subject {
			continue
		}
		if st.Failed() { // it would only stop again, and everybody else's items with it
			writeLine(a.err, "passing over %s, which was stopped: %s; next: %s", string(st.Digest)[7:19], harmless(st.Detail), afterStatus(st))
			continue
		}
		writeLine(a.err, "going on with %s, which is %s", string(st.Digest)[7:19], st.State)
		out = append(out, st.Digest)
	}
	return out, nil
}

// planTopic freezes the current set into manifests, one for each tenant, and dry-runs them.
func (a *app) planTopic(ctx context.Context, d *desk, rd *worker.Desk, name string, f fromTopic) (out []pipeline.Digest, err error) {
	var rate redrive.Rate
	if f.rate != "" {
		text := f.rate
		if !strings.Contains(text, "/") {
			text += "/s"
		}
		if rate, err = redrive.ParseRate(text); err != nil {
			return nil, err
		}
	}
	ages, err := d.items.Aging(ctx, d.who, "")
	if err != nil {
		return nil, err
	}
	var tenants []string
	for _, age := range ages {
		if age.N > 0 && (age.State == custody.Triaged || age.State == custody.Repaired) && !slices.Contains(tenants, age.Tenant) {
			tenants = append(tenants, age.Tenant)
		}
	}
	slices.Sort(tenants)
	var reports []*redrive.Report
	for _, tenant := range tenants {
		text := "pipeline=" + name + " tenant=" + tenant + " state=TRIAGED|REPAIRED"
		sel, err := custody.ParseSelection(text)
		if err != nil {
			return nil, err
		}
		found, err := d.items.Find(ctx, d.who, sel, custody.Page{Limit: 500})
		if err != nil {
			return nil, err
		}
		if len(found.Items) == 0 {
			continue
		}
		s, err := d.items.TakeSnapshot(ctx, d.who, sel)
		if err != nil {
			return nil, err
		}
		p, err := rd.Service.Plan(ctx, d.who, redrive.PlanRequest{Pipeline: name, Snapshot: s.ID, Count: s.Count, Digest: string(s.Digest), Ticket: tickets(f.ticket, found.Items), Rate: rate})
		if err != nil {
			return nil, a.nothingToSend(p, err)
		}
		r, err := rd.Service.DryRun(ctx, d.who, p.Digest)
		if err != nil {
			return nil, err
		}
		reports, out = append(reports, r), append(out, p.Digest)
	}
	if len(out) == 0 {
		return nil, pipeline.Errorf(pipeline.CodeManifestEmpty, f.topic, "no item of %s is triaged or repaired", name)
	}
	if !f.dry && a.format != "table" {
		return out, nil // the runs are what is printed
	}
	return out, a.print(map[string]any{"dry_runs": reports}, func(t *table) {
		for _, r := range reports {
			t.line("%s\n", strings.TrimRight(harmlessLines(r.Text()), "\n"))
		}
		if f.dry {
			t.line("next: the same command with --dry-run=false goes on with this, and waits for another person's approval")
		}
	})
}

// tickets are the one that was given, or those of the items.
func tickets(given string, items []*custody.Item) string {
	if given != "" {
		return given
	}
	var out []string
	for _, it := range items {
		if it.Ticket != "" && !slices.Contains(out, it.Ticket) && len(out) < 5 {
			out = append(out, it.Ticket)
		}
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}

// awaitApproval waits for another person's approval: as long as it is told, and on a terminal until Ctrl-C.
func (a *app) awaitApproval(ctx context.Context, d *desk, rd *worker.Desk, digest pipeline.Digest, wait time.Duration) (bool, error) {
	until := a.clock().Add(wait)
	said := false
	for {
		st, err := rd.Service.Status(ctx, d.who, digest)
		if err != nil {
			return false, err
		}
		if st.State != redrive.StateDryRun {
			return true, nil
		}
		if !(a.terminal && wait == 0) && !a.clock().Before(until) {
			return false, nil
		}
		if !said {
			said = true
			writeLine(a.err, "waiting for another person: reprieve redrive approve %s --credential THEIR-KEY", string(digest)[7:19])
		}
		t := time.NewTimer(500 * time.Millisecond) // between two looks at the ledger
		select {
		case <-ctx.Done():
			t.Stop()
			return false, ctx.Err()
		case <-t.C:
		}
	}
}
