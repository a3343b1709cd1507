package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"reprieve.dev/custody"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
)

// counted is what a demo run comes to, counted from the topics.
type counted struct {
	RecordsIn    int     `json:"records_in"`
	Delivered    int     `json:"delivered"`
	DeadLettered int     `json:"dead_lettered"`
	Repaired     int     `json:"repaired"`
	Redriven     int     `json:"redriven"`
	Reconciled   int     `json:"reconciled"`
	Lost         int     `json:"lost"`
	Duplicates   int     `json:"duplicates"`
	Seconds      float64 `json:"seconds"`
	Run          int     `json:"run"`
	Folder       string  `json:"folder"`
}

func (a *app) demoCmd() *cobra.Command {
	var once bool
	var dir string
	c := &cobra.Command{
		Use: "demo", Short: "The whole journey on this machine: broker, registry, ledger, 20,000 invoices, 50 of them poison",
		Long: "Demo starts an embedded broker and registry, writes 20,000 invoices and 1,000 adjustments, of which 50 cannot be processed,\n" +
			"runs the billing pipelines, and tells what happens to a record that fails: dead letter, custody, group, repair, approved\n" +
			"redrive, reconciliation. Then it stays open, so that you can look around; Ctrl-C ends it.",
		Example: "  reprieve demo\n  reprieve demo --once -o json",
		Args:    exactly(0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error {
			dir, err := filepath.Abs(dir)
			if err != nil {
				return pipeline.Errorf(pipeline.CodeUsage, "--dir", "%w", err)
			}
			return a.demo(c.Context(), dir, once)
		},
	}
	c.Flags().BoolVar(&once, "once", false, "end after the story")
	c.Flags().StringVar(&dir, "dir", "reprieve-demo", "folder of its files and data; use it again, or delete it")
	return c
}

// teller tells the story: plain words, and the commands that a person would type, with what they answer.
type teller struct {
	a     *app
	w     *world
	quiet bool
	step  int
}

func (t *teller) say(format string, args ...any) {
	if !t.quiet {
		fmt.Fprintf(t.a.out, "\n"+format+"\n", args...)
	}
}

func (t *teller) title(text string) {
	t.step++
	if !t.quiet {
		fmt.Fprintf(t.a.out, "\n%d. %s\n", t.step, text)
	}
}

// type runs a command of this program as somebody would type it, shows it with its answer, and returns the answer as JSON into
// into, if it is not nil.
func (t *teller) typed(ctx context.Context, as string, into any, args ...string) error {
	credential := ""
	if as != "" {
		credential = t.w.path("keys/" + as + ".pem")
	}
	if !t.quiet {
		shown := make([]string, len(args))
		for i, s := range args {
			if shown[i] = s; strings.ContainsAny(s, " |=<>{}\"!") {
				shown[i] = "'" + s + "'"
			}
		}
		if as != "" {
			shown = append(shown, "--credential", near(credential))
		}
		fmt.Fprintf(t.a.out, "\n   $ reprieve %s\n", strings.Join(shown, " "))
	}
	run := func(format string) ([]byte, error) {
		var out bytes.Buffer
		sub := &app{in: t.a.in, out: &out, err: t.a.err, clock: t.a.clock, env: t.a.env, readFile: t.a.readFile, logger: t.a.quietLog()}
		root := sub.root()
		full := append(append([]string{}, args...), "--config", t.w.path("reprieve.yaml"), "-o", format)
		if credential != "" {
			full = append(full, "--credential", credential)
		}
		root.SetArgs(full)
		err := root.ExecuteContext(ctx)
		return out.Bytes(), err
	}
	format := "table"
	if into != nil {
		format = "json"
	}
	out, err := run(format)
	if err != nil {
		return err
	}
	if into != nil {
		return json.Unmarshal(out, into)
	}
	t.indent(string(out))
	return nil
}

// near is a path as it is typed from here.
func near(path string) string {
	if here, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(here, path); err == nil && !strings.HasPrefix(rel, "..") {
			return rel
		}
	}
	return path
}

func (t *teller) indent(text string) {
	if t.quiet {
		return
	}
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i, l := range lines {
		if i == 60 && len(lines) > 66 {
			fmt.Fprintf(t.a.out, "   ... %d more lines\n", len(lines)-60)
			break
		}
		fmt.Fprintf(t.a.out, "   %s\n", l)
	}
}

func (a *app) demo(ctx context.Context, dir string, once bool) error {
	begun := a.clock()
	t := &teller{a: a, quiet: a.format != "table"}
	t.say("Reprieve: the journey of a record that cannot be processed. Folder: %s", dir)
	w, err := a.newWorld(ctx, dir)
	if err != nil {
		return err
	}
	defer w.Close()
	t.w = w
	from, err := w.ends(ctx)
	if err != nil {
		return err
	}
	got, err := t.story(ctx, from)
	if err != nil {
		return err
	}
	got.Seconds = a.clock().Sub(begun).Round(time.Millisecond).Seconds()
	got.Run, got.Folder = w.run, dir
	if err := a.print(got, func(tb *table) {
		tb.line("\nCounted from the topics:")
		tb.row("  records in", got.RecordsIn)
		tb.row("  delivered", got.Delivered)
		tb.row("  dead letters", got.DeadLettered)
		tb.row("  repaired", got.Repaired)
		tb.row("  redriven", got.Redriven)
		tb.row("  reconciled", got.Reconciled)
		tb.row("  lost", got.Lost)
		tb.row("  duplicates", got.Duplicates)
		tb.row("  seconds", got.Seconds)
	}); err != nil {
		return err
	}
	if got.Lost > 0 || got.Duplicates > 0 {
		return pipeline.Errorf(pipeline.CodeInternal, dir, "%d records are lost and %d are there twice", got.Lost, got.Duplicates)
	}
	look := fmt.Sprintf("   export PATH=%s:$PATH REPRIEVE_CONFIG=%s REPRIEVE_CREDENTIAL=%s\n   reprieve quarantine groups\n   reprieve quarantine list 'class=payload'",
		programFolder(), w.path("reprieve.yaml"), w.path("keys/operator.pem"))
	if once {
		t.say("It has ended; its ledger can still be looked at:\n\n%s\n\nRedrives need its broker: without --once the demo stays open.", look)
		return nil
	}
	t.say("It stays open. In another terminal:\n\n%s\n   curl http://%s/readyz\n\nCtrl-C ends it.", look, w.plan.Config.HTTP.Address)
	<-ctx.Done()
	t.say("It ends. What it made stays in %s; the next demo goes on there.", dir)
	return nil
}

// programFolder is where this program is, for the search path.
func programFolder() string {
	self, err := os.Executable()
	if err != nil {
		return "."
	}
	return filepath.Dir(self)
}

// story is the journey. from is where the topics ended before.
func (t *teller) story(ctx context.Context, from map[pipeline.TP]int64) (*counted, error) {
	w := t.w
	t.title("A worker starts: two pipelines (Avro invoices, JSON adjustments) and a custodian.")
	if err := t.typed(ctx, "", nil, "check"); err != nil {
		return nil, err
	}
	prepare := *t
	prepare.quiet = true
	if err := prepare.typed(ctx, "", nil, "ledger", "migrate"); err != nil {
		return nil, err
	}
	if err := w.startWorker(ctx); err != nil {
		return nil, err
	}
	t.title("20,000 invoices and 1,000 adjustments arrive. 50 of them cannot be processed, and 200 carry a card number or a token.")
	n, err := w.writeInvoices(ctx)
	if err != nil {
		return nil, err
	}
	if err := w.consumed(ctx); err != nil {
		return nil, err
	}
	letters, err := w.letters(ctx, from)
	if err != nil {
		return nil, err
	}
	t.say("   %d records in; %d went to a dead-letter topic, all others went on. Nothing waited for them.", n, len(letters))
	t.showLetters(letters)

	t.title("The custodian has each dead letter in the ledger. All items of one cause are one group.")
	if err := w.inCustody(ctx, t, letters); err != nil {
		return nil, err
	}
	if err := t.typed(ctx, "operator", nil, "quarantine", "groups"); err != nil {
		return nil, err
	}
	g, err := t.pickGroup(ctx)
	if err != nil {
		return nil, err
	}
	if err := t.typed(ctx, "operator", nil, "quarantine", "show", g.Sample); err != nil {
		return nil, err
	}

	t.title("An operator takes the group with an invalid currency, with a ticket, and repairs it by a versioned transform.")
	sel := "fingerprint=" + g.Fingerprint + " tenant=" + g.Tenant
	if err := t.typed(ctx, "operator", nil, "quarantine", "triage", sel+" state=DEAD_LETTERED", "--ticket", "BILL-17", "--yes"); err != nil {
		return nil, err
	}
	if err := t.typed(ctx, "operator", nil, "quarantine", "repair", sel+" state=TRIAGED", "--pipeline", "billing",
		"--transform", "set@1.0.0", "--set", `{"values": {"/currency": "EUR"}}`, "--yes"); err != nil {
		return nil, err
	}

	t.title("What is sent again is frozen into a manifest first, and dry-run: nothing is sent yet.")
	var planned struct {
		Digest string `json:"digest"`
	}
	if err := t.typed(ctx, "operator", &planned, "redrive", "plan", sel+" state=REPAIRED", "--pipeline", "billing", "--ticket", "BILL-17", "--yes"); err != nil {
		return nil, err
	}
	short := planned.Digest[7:19]
	t.indent("manifest " + planned.Digest)
	if err := t.typed(ctx, "operator", nil, "redrive", "dry-run", short); err != nil {
		return nil, err
	}

	t.title("The operator may not approve it. The finance owner signs it with a key of their own.")
	if err := t.typed(ctx, "finance", nil, "redrive", "approve", short); err != nil {
		return nil, err
	}

	t.title("It runs: a canary first, then the rest at no more than 50 records a second, through the retry topic, until what became of each is known.")
	if err := t.typed(ctx, "operator", nil, "redrive", "run", short); err != nil {
		return nil, err
	}
	if err := t.typed(ctx, "operator", nil, "quarantine", "show", g.Sample); err != nil {
		return nil, err
	}
	if err := w.consumed(ctx); err != nil {
		return nil, err
	}
	return w.count(ctx, from)
}

// demoGroup is what the story needs of a group.
type demoGroup struct {
	Fingerprint string `json:"fingerprint"`
	Tenant      string `json:"tenant"`
	Pipeline    string `json:"pipeline"`
	Code        string `json:"code"`
	Reason      string `json:"sample_reason"`
	Open        int    `json:"open"`
	Sample      string `json:"sample"`
	States      map[custody.State]int
}

// pickGroup finds the largest group of invoices with an invalid currency that nobody has triaged.
func (t *teller) pickGroup(ctx context.Context) (best demoGroup, err error) {
	var all struct {
		Groups []demoGroup `json:"groups"`
	}
	quiet := *t
	quiet.quiet = true
	if err := quiet.typed(ctx, "operator", &all, "quarantine", "groups"); err != nil {
		return best, err
	}
	for _, g := range all.Groups {
		if g.Pipeline == "billing" && g.Tenant == "acme" && strings.Contains(g.Reason, "invalid-currency") && g.States[custody.DeadLettered] > best.States[custody.DeadLettered] {
			best = g
		}
	}
	if best.Sample == "" {
		return best, pipeline.Errorf(pipeline.CodeInternal, "demo", "there is no group with an invalid currency")
	}
	return best, nil
}

// showLetters prints a line for each dead letter, and all headers of one.
func (t *teller) showLetters(letters []letterAt) {
	if t.quiet || len(letters) == 0 {
		return
	}
	seen := map[pipeline.Code]bool{}
	fmt.Fprintf(t.a.out, "\n   Each dead letter says where it stood and why it failed:\n")
	for _, l := range letters {
		fmt.Fprintf(t.a.out, "   %-38s %-22s %s\n", harmless(l.l.Original.String()), l.l.Failure.Code, harmless(l.l.Reason))
		seen[l.l.Failure.Code] = true
	}
	one := letters[max(0, slices.IndexFunc(letters, func(l letterAt) bool { return len(l.r.Value) > 0 }))] // others are whole in the vault
	fmt.Fprintf(t.a.out, "\n   The headers of %s (value: %d bytes, redacted, then sealed for its tenant; the keys are in the ledger):\n", harmless(one.l.Original.String()), len(one.r.Value))
	for _, h := range one.r.Headers {
		v := strings.ReplaceAll(string(h.Value), "\n", "; ")
		if h.Value == nil {
			v = "(null)"
		}
		if len(v) > 100 {
			v = v[:97] + "..."
		}
		fmt.Fprintf(t.a.out, "     %s: %s\n", harmless(h.Name), harmless(v))
	}
}

// letterAt is a dead letter with the message that carried it.
type letterAt struct {
	r  pipeline.Record
	tp pipeline.TP
	l  *deadletter.Letter
}
