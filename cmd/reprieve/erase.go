package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"reprieve.dev/custody"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

// erasedForm is what erase answers.
type erasedForm struct {
	Items    int64         `json:"items"`
	Previous int64         `json:"erased_before"`
	Held     []pipeline.ID `json:"under_legal_hold,omitempty"`
	Running  []pipeline.ID `json:"being_redriven,omitempty"`
	Copies   []erasedCopy  `json:"copies"`
	Replayed *int64        `json:"replayed,omitempty"`
}

type erasedCopy struct {
	Topic string `json:"topic"`
	N     int64  `json:"n"`
	Until string `json:"until"` // "" is not known here
}

func (a *app) eraseCmd() *cobra.Command {
	o := opening{pipelines: true}
	var item, entity, tenant, reason, replay string
	var export bool
	c := &cobra.Command{
		Use: "erase", Short: "Delete the bytes of items at once, and say until when copies stay on topics",
		Long: "Erase deletes payloads, repaired bytes and sealed originals of one item, or of all items of one entity of a tenant, and the private words\n" +
			"of their history. Ids, digests and the chain of the history stay. Copies on topics stay until their retention ends; to make those\n" +
			"unreadable too, destroy the tenant's keys (reprieve ledger keys destroy).\n\n" +
			"The erasure log says what was erased. Keep it apart from the ledger's backups (--export > FILE), and after a restore or a rebuild do\n" +
			"again what it says (--replay FILE).",
		Example: "  reprieve ledger erase --entity ACC-1 --tenant acme --reason 'request 17'\n  reprieve ledger erase --export > erasures.jsonl\n  reprieve ledger erase --replay erasures.jsonl",
		Args:    exactly(0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error {
			ways := 0
			for _, set := range []bool{item != "", entity != "", replay != "", export} {
				if set {
					ways++
				}
			}
			switch {
			case ways != 1:
				return usage(c, "give one of --item, --entity, --export, --replay")
			case (entity != "") != (tenant != ""):
				return usage(c, "--entity goes with --tenant: the same name may stand for two things")
			}
			d, err := a.open(c.Context(), o)
			if err != nil {
				return err
			}
			defer d.Close()
			var sum custody.Erased
			switch {
			case export:
				return a.exportErasures(c, d)
			case replay != "":
				return a.replayErasures(c, d, replay)
			case item != "":
				sum, err = d.items.EraseItems(c.Context(), d.who, []pipeline.ID{pipeline.ID(item)}, reason)
			default:
				sum, err = d.items.EraseEntity(c.Context(), d.who, tenant, entity, reason)
			}
			if err == nil {
				err = a.eraseFallbacks(c.Context(), d, sum.Gone)
			}
			if err != nil {
				return err
			}
			return a.printErased(d, sum)
		},
	}
	o.flags(c, a)
	f := c.Flags()
	f.StringVar(&item, "item", "", "id of one item")
	f.StringVar(&entity, "entity", "", "all items of this entity")
	f.StringVar(&tenant, "tenant", "", "tenant of the entity")
	f.StringVar(&reason, "reason", "", "why; it stands in the erasure log")
	f.BoolVar(&export, "export", false, "print the erasure log, one JSON object a line")
	f.StringVar(&replay, "replay", "", "do again what this erasure log says")
	return c
}

// eraseFallbacks deletes what fallback stores have of items. It may be repeated.
func (a *app) eraseFallbacks(ctx context.Context, d *desk, ids []pipeline.ID) error {
	for _, pp := range d.plan.Pipelines {
		stores, closing, err := d.plan.Fallbacks(ctx, pp.Config, ledger.Options{Clock: a.clock, Log: a.log()})
		if err != nil {
			return err
		}
		for _, s := range stores {
			for _, id := range ids {
				err = errors.Join(err, s.Erase(ctx, pp.Config.Name, id))
			}
		}
		if err = errors.Join(err, closing()); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) printErased(d *desk, sum custody.Erased) error {
	out := erasedForm{Items: sum.Items, Previous: sum.Previous, Held: sum.Held, Running: sum.Running, Copies: []erasedCopy{}}
	for _, t := range sum.Topics {
		until := ""
		if keep := d.retention(t.Topic); keep > 0 {
			until = stamp(t.LastMS + keep.Milliseconds())
		}
		out.Copies = append(out.Copies, erasedCopy{t.Topic, t.N, until})
	}
	return a.print(out, func(t *table) {
		t.line("the bytes of %s erased", are(int(out.Items), "item"))
		if n := len(out.Held); n > 0 {
			t.line("%s under legal hold: not touched", are(n, "item"))
		}
		if n := len(out.Running); n > 0 {
			t.line("%s being redriven: erase again when that is decided", are(n, "item"))
		}
		for _, x := range out.Copies {
			until := x.Until
			if until == "" {
				until = "the topic's retention ends"
			}
			t.line("copies stay on %s (%d) until %s", x.Topic, x.N, until)
		}
	})
}

// retention is how long a dead-letter or vault topic of the files keeps its messages; 0 is not known.
func (d *desk) retention(topic string) time.Duration {
	for _, pp := range d.plan.Pipelines {
		if q := pp.Config.Quarantine; topic == q.Topic || topic == q.VaultTopic() {
			return q.Retention.Std()
		}
	}
	return 0
}

// erasureForm is one line of the erasure log.
type erasureForm struct {
	Tenant string `json:"tenant"`
	Kind   string `json:"kind"`
	What   string `json:"what"` // id of the item or the key
	By     string `json:"by"`
	Reason string `json:"reason"`
	At     string `json:"at"`
}

func (a *app) exportErasures(c *cobra.Command, d *desk) error {
	log, err := d.items.Erasures(c.Context(), d.who)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(a.out)
	enc := json.NewEncoder(w)
	for _, e := range log {
		if err := enc.Encode(erasureForm{e.Tenant, e.Kind, e.Subject, e.Actor, e.Reason, stamp(e.AtMS)}); err != nil {
			return err
		}
	}
	return w.Flush()
}

func (a *app) replayErasures(c *cobra.Command, d *desk, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return pipeline.Errorf(pipeline.CodeInputInvalid, file, "the erasure log cannot be read: %w", err)
	}
	var log []custody.Erasure
	for n, line := range strings.Split(string(text), "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		var e erasureForm
		err := json.Unmarshal([]byte(line), &e)
		at, err2 := time.Parse(time.RFC3339, e.At)
		if err != nil || err2 != nil || e.What == "" || e.Kind != "item" && e.Kind != "key" {
			return pipeline.Errorf(pipeline.CodeInputInvalid, file, "line %d is not a line of an erasure log; nothing was done", n+1)
		}
		log = append(log, custody.Erasure{Tenant: e.Tenant, Kind: e.Kind, Subject: e.What, Actor: e.By, Reason: e.Reason, AtMS: at.UnixMilli()})
	}
	n, err := d.items.ReplayErasures(c.Context(), d.who, log)
	if err != nil {
		return err
	}
	return a.print(erasedForm{Replayed: &n, Copies: []erasedCopy{}}, func(t *table) {
		t.line("%d of %s had come back and were erased again", n, many(len(log), "erasure"))
	})
}
