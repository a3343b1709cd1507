package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"reprieve.dev/custody"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
)

func num(n int64) string { return strconv.FormatInt(n, 10) }

// stamp writes Unix ms as people and programs read it; 0 and below are nothing.
func stamp(ms int64) string {
	if ms <= 0 {
		return ""
	}
	return time.UnixMilli(ms).UTC().Format(pipeline.TimeForm)
}

// age is how long ago ms was, in the two largest units.
func (a *app) age(ms int64) string {
	d := a.clock().Sub(time.UnixMilli(ms)).Round(time.Second)
	switch {
	case d >= 48*time.Hour:
		return strconv.Itoa(int(d/(24*time.Hour))) + "d"
	case d >= time.Hour:
		return strconv.Itoa(int(d/time.Hour)) + "h" + strconv.Itoa(int(d%time.Hour/time.Minute)) + "m"
	case d >= time.Minute:
		return strconv.Itoa(int(d/time.Minute)) + "m" + strconv.Itoa(int(d%time.Minute/time.Second)) + "s"
	}
	return d.String()
}

func (a *app) quarantineCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "quarantine", Aliases: []string{"q", "items"}, Short: "Look at and work on records that could not be processed",
		Long: "Items are quarantined records in the ledger. A group is all items of one cause. Verbs that change items take ids, or a\n" +
			"selection such as 'class=payload state=DEAD_LETTERED age>3d', which is frozen into a snapshot first.\n\n" +
			"Selections: terms joined by spaces must all hold; | inside a value is or; ! negates.\nTerms: " + strings.Join(custody.Terms(), " "),
	}
	c.AddCommand(a.listCmd(), a.showCmd(), a.groupsCmd(),
		a.changeCmd("triage", "Say that somebody looked, with a ticket: DEAD_LETTERED -> TRIAGED", "triaged", "ticket",
			func(ctx context.Context, d *desk, t custody.Target, f changeFlags) (custody.Report, error) {
				return d.items.Triage(ctx, d.who, t, f.ticket)
			}),
		a.repairCmd(),
		a.assignCmd(), a.noteCmd(),
		a.changeCmd("hold", "Take items out of the way until a release", "held", "reason",
			func(ctx context.Context, d *desk, t custody.Target, f changeFlags) (custody.Report, error) {
				return d.items.Hold(ctx, d.who, t, f.reason)
			}),
		a.changeCmd("release", "Bring held items back", "released", "reason",
			func(ctx context.Context, d *desk, t custody.Target, f changeFlags) (custody.Report, error) {
				return d.items.Release(ctx, d.who, t, f.reason)
			}),
		a.changeCmd("resolve", "Close items whose effect is proven without a redrive", "resolved", "as,reason,evidence",
			func(ctx context.Context, d *desk, t custody.Target, f changeFlags) (custody.Report, error) {
				return d.items.Resolve(ctx, d.who, t, f.as, f.reason, f.evidence)
			}),
		a.changeCmd("discard", "Give items up for good, with a reason and evidence: TRIAGED -> DISCARDED", "discarded", "reason,evidence",
			func(ctx context.Context, d *desk, t custody.Target, f changeFlags) (custody.Report, error) {
				return d.items.Discard(ctx, d.who, t, f.reason, f.evidence)
			}),
		a.changeCmd("restore", "Take discarded items back, until they are erased", "restored", "reason",
			func(ctx context.Context, d *desk, t custody.Target, f changeFlags) (custody.Report, error) {
				return d.items.Restore(ctx, d.who, t, f.reason)
			}),
		a.changeCmd("vouch", "Take marks off items that somebody has asked about: same_event, rebuilt, conflict, contested", "vouched for", "marks,evidence",
			func(ctx context.Context, d *desk, t custody.Target, f changeFlags) (custody.Report, error) {
				marks, err := custody.ParseFlags(f.marks)
				if err != nil {
					return custody.Report{}, err
				}
				return d.items.Vouch(ctx, d.who, t, marks, f.evidence)
			}),
		a.revealCmd(), a.agingCmd(), a.muteCmd(), a.splitCmd(), a.joinCmd(), a.exportCmd())
	return c
}

// changeFlags are what changes may ask for.
type changeFlags struct {
	ticket, owner, text, reason, evidence, as, matter string
	marks                                             []string
}

// changeCmd makes a verb that changes items.
func (a *app) changeCmd(name, short, done, wants string, do func(context.Context, *desk, custody.Target, changeFlags) (custody.Report, error)) *cobra.Command {
	var o opening
	var t targeting
	var f changeFlags
	c := &cobra.Command{
		Use: name + " (ID... | SELECTION)", Short: short,
		RunE: func(c *cobra.Command, args []string) error {
			d, err := a.open(c.Context(), o)
			if err != nil {
				return err
			}
			defer d.Close()
			target, err := a.target(c.Context(), d, &t, args)
			if err != nil {
				return err
			}
			var ended func()
			target.Progress, ended = a.counting("items " + done)
			r, err := do(c.Context(), d, target, f)
			ended()
			if err != nil {
				return err
			}
			next := ""
			if name == "triage" {
				next = "repair them (reprieve quarantine repair), or send them as they are (reprieve redrive plan)"
			}
			return a.report(r, done, next)
		},
	}
	o.flags(c, a)
	t.flags(c)
	for _, w := range strings.Split(wants, ",") {
		switch w {
		case "ticket":
			c.Flags().StringVar(&f.ticket, "ticket", "", "the ticket that says who works on it")
		case "owner":
			c.Flags().StringVar(&f.owner, "owner", "", "team or person")
		case "text":
			c.Flags().StringVar(&f.text, "text", "", "the note")
		case "reason":
			c.Flags().StringVar(&f.reason, "reason", "", "why")
		case "evidence":
			c.Flags().StringVar(&f.evidence, "evidence", "", "what proves it: a ticket, a report, a transaction")
		case "matter":
			c.Flags().StringVar(&f.matter, "matter", "", "what the legal hold is for: a case, an order")
		case "marks":
			c.Flags().StringSliceVar(&f.marks, "marks", nil, "the marks, with commas")
		case "as":
			c.Flags().StringVar(&f.as, "as", "", "already_applied, superseded or corrected")
		}
	}
	return c
}

// listed is one item of a list.
type listed struct {
	ID          pipeline.ID   `json:"id"`
	State       custody.State `json:"state"`
	Pipeline    string        `json:"pipeline"`
	Tenant      string        `json:"tenant"`
	Class       string        `json:"class"`
	Code        pipeline.Code `json:"code"`
	Reason      string        `json:"reason"`
	Fingerprint pipeline.ID   `json:"fingerprint"`
	EventID     string        `json:"event_id,omitempty"`
	Entity      string        `json:"entity,omitempty"`
	Original    position      `json:"original"`
	Attempts    int           `json:"attempts"`
	Confirmed   string        `json:"source_passed"`
	Flags       []string      `json:"flags"`
	Owner       string        `json:"owner,omitempty"`
	Ticket      string        `json:"ticket,omitempty"`
	At          string        `json:"quarantined_at"`
}

// position with a 64-bit offset as text.
type position struct {
	Cluster   string `json:"cluster,omitempty"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    string `json:"offset"`
}

func positionOf(cluster string, p pipeline.Position) position {
	return position{cluster, p.Topic, p.Partition, num(p.Offset)}
}

func listedOf(it *custody.Item) listed {
	return listed{
		ID: it.ID, State: it.State, Pipeline: it.Pipeline, Tenant: it.Tenant, Class: it.Class.String(), Code: it.Code, Reason: it.Reason,
		Fingerprint: it.Fingerprint, EventID: it.EventID, Entity: it.Entity, Original: positionOf(it.Cluster, it.Original), Attempts: it.Attempts,
		Confirmed: it.Confirmed.String(), Flags: it.Flags.Names(), Owner: it.Owner, Ticket: it.Ticket, At: stamp(it.QuarantinedMS),
	}
}

func (a *app) listCmd() *cobra.Command {
	var o opening
	var limit int
	var after string
	c := &cobra.Command{
		Use: "list [SELECTION]", Aliases: []string{"ls"}, Short: "List items, newest first",
		Example: "  reprieve quarantine list 'state=DEAD_LETTERED class=payload'\n  reprieve quarantine list 'tenant=acme age>3d' -o json",
		RunE: func(c *cobra.Command, args []string) error {
			if err := within("--limit", limit, 1, 500); err != nil {
				return err
			}
			d, err := a.open(c.Context(), o)
			if err != nil {
				return err
			}
			defer d.Close()
			sel, err := custody.ParseSelection(strings.Join(args, " "))
			if err != nil {
				return err
			}
			found, err := d.items.Find(c.Context(), d.who, sel, custody.Page{After: after, Limit: limit})
			if err != nil {
				return err
			}
			out := struct {
				Items []listed `json:"items"`
				Next  string   `json:"next,omitempty"`
			}{Items: []listed{}, Next: found.Next}
			for _, it := range found.Items {
				out.Items = append(out.Items, listedOf(it))
			}
			return a.print(out, func(t *table) {
				if len(out.Items) == 0 {
					t.line("no item matches")
					return
				}
				t.head("ID", "STATE", "AGE", "TENANT", "CODE", "EVENT", "ORIGINAL")
				for i, it := range out.Items {
					t.row(it.ID, it.State, a.age(found.Items[i].QuarantinedMS), it.Tenant, it.Code, it.EventID,
						it.Original.Topic+"/"+strconv.Itoa(int(it.Original.Partition))+"/"+it.Original.Offset)
				}
				if out.Next != "" {
					t.line("there are more: --after %s", out.Next)
				}
			})
		},
	}
	o.flags(c, a)
	c.Flags().IntVar(&limit, "limit", 50, "most items to show (500)")
	c.Flags().StringVar(&after, "after", "", "go on behind the last page")
	return c
}

// short cuts text for a column, with a mark.
func short(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

// revealArchived shows an item as its archive keeps it.
func (a *app) revealArchived(ctx context.Context, d *desk, id pipeline.ID, reason string) error {
	bucket, closing, err := d.plan.Archive(ctx)
	if err != nil {
		return err
	}
	defer closing()
	if bucket == nil {
		return pipeline.Errorf(pipeline.CodeInputInvalid, "custody.retention.archive", "the worker file names no archive")
	}
	b, err := d.items.ReadArchive(ctx, d.who, bucket, id, reason)
	if err != nil {
		return err
	}
	_, err = a.out.Write(append(b, '\n'))
	return err
}

func (a *app) revealCmd() *cobra.Command {
	var o opening
	var reason string
	var original, archived bool
	c := &cobra.Command{
		Use: "reveal ID", Short: "Show the bytes that the ledger holds of an item, for a reason that is written down",
		Long: "Reveal shows what redaction left of an item. With --original it opens the vault and shows the record as it came, secrets\n" +
			"included: card numbers, tokens, names. Verification values are not stored anywhere. Each reveal stands in the history.",
		Args: exactly(1, "one item id"),
		RunE: func(c *cobra.Command, args []string) error {
			d, err := a.open(c.Context(), o)
			if err != nil {
				return err
			}
			defer d.Close()
			if archived {
				return a.revealArchived(c.Context(), d, pipeline.ID(args[0]), reason)
			}
			open := d.items.Open
			if original {
				open = d.items.OpenOriginal
			}
			b, err := open(c.Context(), d.who, pipeline.ID(args[0]), reason)
			if err != nil {
				return err
			}
			r := pipeline.Record{Key: b.Key, Value: b.Value, Headers: b.Headers, TimeMS: b.TimeMS, TimeType: b.TimeType}
			s, err := d.items.Show(c.Context(), d.who, pipeline.ID(args[0]))
			if err != nil {
				return err
			}
			r.Offset = s.Item.Original.Offset
			switch {
			case original && !b.Faithful:
				writeLine(a.err, "this is the record as it came, without its verification value: nobody may store that")
			case original:
			case s.Item.Faithful == deadletter.Vault:
				writeLine(a.err, "the letter holds what redaction left of it; the record as it came is in the vault: --original")
			case s.Item.Faithful != deadletter.Inline:
				writeLine(a.err, "the ledger holds what redaction left of it; the bytes as they came are in: %s (%s)", s.Item.Faithful, s.Item.Original)
			}
			_, err = a.out.Write(append(pipeline.AppendForm(nil, s.Item.Original.TP, &r), '\n'))
			return err
		},
	}
	o.flags(c, a)
	c.Flags().StringVar(&reason, "reason", "", "why you must see it")
	c.Flags().BoolVar(&original, "original", false, "the record as it came, from the vault")
	c.Flags().BoolVar(&archived, "archived", false, "the item from the archive, after its retention ended")
	return c
}
