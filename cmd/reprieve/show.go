package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"reprieve.dev/custody"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

// shown is all that is known about an item but its payload.
type shown struct {
	listed
	Kind        string         `json:"kind"`
	Dialect     string         `json:"dialect"`
	Consumer    string         `json:"consumer"`
	Release     string         `json:"release,omitempty"`
	BusinessID  string         `json:"business_id,omitempty"`
	Token       string         `json:"idempotency_token,omitempty"`
	Version     string         `json:"entity_version,omitempty"`
	Stage       string         `json:"stage"`
	Schema      string         `json:"schema,omitempty"`
	Policy      string         `json:"policy,omitempty"`
	Exception   string         `json:"exception"`
	Stack       string         `json:"stack,omitempty"`
	Letter      position       `json:"letter"`
	Faithful    string         `json:"faithful"`
	Digest      string         `json:"digest"`
	Redacted    string         `json:"digest_redacted"`
	Redrive     string         `json:"redrive,omitempty"`
	Try         uint16         `json:"redrive_try,omitempty"`
	Repair      string         `json:"repair,omitempty"`
	Resolution  string         `json:"resolution,omitempty"`
	Passes      []shownAttempt `json:"attempts_seen"`
	Repairs     []shownRepair  `json:"repairs"`
	Outcomes    []shownOutcome `json:"outcomes"`
	Sightings   int            `json:"sightings"`
	SameEvent   []pipeline.ID  `json:"same_event,omitempty"`
	History     []historyRow   `json:"history"`
	WhatToDo    string         `json:"what_to_do"`
	Explanation string         `json:"means"`
}

type shownAttempt struct {
	Try  uint16        `json:"redrive_try"`
	N    int           `json:"n"`
	At   string        `json:"at"`
	Code pipeline.Code `json:"code"`
}

type shownRepair struct {
	ID        string `json:"id"`
	Transform string `json:"transform"`
	Artifact  string `json:"artifact"`
	Config    string `json:"config"`
	Before    string `json:"before"`
	After     string `json:"after"`
	By        string `json:"by"`
	At        string `json:"at"`
}

type shownOutcome struct {
	Result string `json:"result"`
	Try    uint16 `json:"redrive_try"`
	At     string `json:"at"`
	Writer string `json:"writer"`
}

type historyRow struct {
	Seq    string            `json:"seq"`
	At     string            `json:"at"`
	Event  string            `json:"event"`
	From   string            `json:"from,omitempty"`
	To     string            `json:"to,omitempty"`
	Actor  string            `json:"actor,omitempty"`
	Detail map[string]string `json:"detail,omitempty"`
}

func historyOf(entries []ledger.Entry) []historyRow {
	out := []historyRow{}
	for _, e := range entries {
		out = append(out, historyRow{num(e.Seq), stamp(e.AtMS), e.Event, e.From, e.To, e.Actor, e.Detail})
	}
	return out
}

func shownOf(s *custody.Shown) shown {
	it := s.Item
	info := pipeline.Lookup(it.Code)
	out := shown{
		listed: listedOf(it), Kind: string(it.Kind), Dialect: it.Dialect, Consumer: it.Consumer, Release: it.Release, BusinessID: it.BusinessID,
		Token: it.Token, Version: it.Version, Stage: it.Stage, Schema: it.Schema, Policy: string(it.Policy), Exception: it.Exception, Stack: s.Stack,
		Letter: positionOf("", it.Letter), Faithful: string(it.Faithful), Digest: string(it.DigestFaithful), Redacted: string(it.DigestRedacted),
		Redrive: string(it.Redrive), Try: it.Try, Repair: it.Repair, Resolution: it.Resolution, Sightings: it.Sightings, SameEvent: s.SameEvent,
		Passes: []shownAttempt{}, Repairs: []shownRepair{}, Outcomes: []shownOutcome{}, History: historyOf(s.History),
		Explanation: info.Text, WhatToDo: whatToDo(it),
	}
	for _, a := range s.Attempts {
		out.Passes = append(out.Passes, shownAttempt{a.Try, a.N, stamp(a.AtMS), a.Code})
	}
	for _, r := range s.Repairs {
		out.Repairs = append(out.Repairs, shownRepair{r.ID, r.Transform + "@" + r.Version, string(r.Artifact), r.Config, string(r.Before), string(r.After), r.By, stamp(r.AtMS)})
	}
	for _, o := range s.Outcomes {
		out.Outcomes = append(out.Outcomes, shownOutcome{string(o.Result), o.Try, stamp(o.AtMS), o.Writer})
	}
	return out
}

// whatToDo is what a person does about an item next: what follows from its state once somebody works on it, before that the
// remedy of its code.
func whatToDo(it *custody.Item) string {
	switch it.State {
	case custody.Repaired:
		return "It is repaired: plan a redrive of it (reprieve redrive plan)."
	case custody.Redriving:
		return "It is being sent: see reprieve redrive status."
	case custody.Reconciled:
		return "Nothing: it is closed."
	case custody.Discarded:
		return "Nothing: it was given up; until it is erased, reprieve quarantine restore takes it back."
	case custody.Expired:
		return "Nothing: its retention has ended; what an archive keeps is shown by reprieve quarantine reveal --archived."
	case custody.PolicyHold:
		return "It is held: reprieve quarantine release brings it back."
	}
	return pipeline.Lookup(it.Code).Remedy
}

func (a *app) showCmd() *cobra.Command {
	var o opening
	c := &cobra.Command{
		Use: "show ID", Short: "Show all that is known about an item, but its payload",
		Args: exactly(1, "one item id"),
		RunE: func(c *cobra.Command, args []string) error {
			d, err := a.open(c.Context(), o)
			if err != nil {
				return err
			}
			defer d.Close()
			s, err := d.items.Show(c.Context(), d.who, pipeline.ID(args[0]))
			if err != nil {
				return err
			}
			out := shownOf(s)
			return a.print(out, func(t *table) { a.showItem(t, &out) })
		},
	}
	o.flags(c, a)
	return c
}

func (a *app) showItem(t *table, s *shown) {
	t.pair("item", s.ID)
	t.pair("state", s.State)
	t.pair("pipeline", s.Pipeline)
	t.pair("failed with", string(s.Code)+" ("+s.Class+") in "+s.Stage)
	t.pair("reason", s.Reason)
	t.pair("what to do", s.WhatToDo)
	t.pair("group", s.Fingerprint)
	t.pair("tenant", s.Tenant)
	t.pair("event", s.EventID)
	t.pair("entity", s.Entity)
	t.pair("business id", s.BusinessID)
	t.pair("token", s.Token)
	t.pair("schema", s.Schema)
	t.pair("release", s.Release)
	t.pair("original", s.Original.Topic+"/"+num(int64(s.Original.Partition))+"/"+s.Original.Offset)
	t.pair("letter", s.Letter.Topic+"/"+num(int64(s.Letter.Partition))+"/"+s.Letter.Offset+" ("+s.Dialect+")")
	t.pair("source passed", s.Confirmed)
	t.pair("faithful bytes", s.Faithful)
	t.pair("digest", s.Digest)
	t.pair("failed retries", s.Attempts)
	t.pair("flags", strings.Join(s.Flags, ", "))
	t.pair("owner", s.Owner)
	t.pair("ticket", s.Ticket)
	t.pair("resolution", s.Resolution)
	if s.Stack != "" {
		t.line("\nstack:")
		for _, l := range strings.Split(s.Stack, "\n") {
			t.line("  %s", harmless(l))
		}
	}
	for _, r := range s.Repairs {
		t.line("\nrepair %s: %s by %s at %s\n  before %s\n  after  %s", r.ID, r.Transform, harmless(r.By), r.At, r.Before, r.After)
	}
	t.line("\nhistory:")
	for _, h := range s.History {
		move := h.To
		if h.From != "" {
			move = h.From + " -> " + h.To
		}
		var detail []string
		for _, k := range slices.Sorted(maps.Keys(h.Detail)) {
			detail = append(detail, k+"="+h.Detail[k])
		}
		t.row("  "+h.At, h.Event, move, h.Actor, strings.Join(detail, " "))
	}
}
