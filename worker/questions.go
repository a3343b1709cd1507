package worker

import (
	"fmt"
	"slices"
	"strings"

	"reprieve.dev/config"
	"reprieve.dev/pipeline/stage"
)

// Question is one of the seven that must be settled before a dead-letter path is enabled.
type Question struct {
	Pipeline string `json:"pipeline"`
	Number   int    `json:"number"`
	Question string `json:"question"`
	Answer   string `json:"answer,omitempty"`
	Open     string `json:"open,omitempty"` // what is not said, and where to say it
}

// Questions answers the seven questions from a checked pipeline file, and names what it leaves open.
func (pp *PipelinePlan) Questions(w *config.Worker) []Question {
	c := pp.Config
	q := func(n int, question, answer, open string) Question {
		return Question{c.Name, n, question, answer, open}
	}
	var out []Question

	failures := fmt.Sprintf("transient: %s, %d retries, then %s; payload, domain, resource: at once to %s", or(c.Retry.Topic, "no retry topic"),
		c.Retry.Attempts, c.Quarantine.Topic, c.Quarantine.Topic)
	open := ""
	if !pp.hasKind("classify") {
		open = "no business rule is named: add a classify stage with a policy"
	} else if c.Retry.Topic == "" {
		open = "transient failures are quarantined at once: name retry.topic"
	}
	out = append(out, q(1, "Which typed failures go where?", failures, open))

	open = ""
	if len(w.Ledgers) == 0 {
		open = "no ledger indexes the dead-letter topic: define one under ledgers in the worker file"
	}
	out = append(out, q(2, "How are source progress and evidence made recoverable?",
		"offsets are committed only after every record is acknowledged somewhere; settlements on "+w.Topics.Prefix+".settlements; letters on "+c.Quarantine.Topic, open))

	answer := "none: later records of a key go on while one is in custody"
	if c.Source.Ordering.Scope != "none" {
		answer = c.Source.Ordering.Scope + ": " + c.Source.Ordering.OnQuarantine
	}
	open = ""
	if c.Effect.Kind == "" {
		open = "say whether an effect is a delta or a state: effect.kind"
	}
	out = append(out, q(3, "Which ordering scope stays blocked?", answer, open))

	out = append(out, q(4, "What is retained, and how long?",
		fmt.Sprintf("redacted letters for %s on the topic, items for %s in the ledger", c.Quarantine.Retention, w.Custody.Retention.Default), ""))

	open = ""
	if !c.Breaker.Off {
		open = "this version has no breaker, so a bad release writes a letter for every record: accept it with breaker: {off: true}"
	}
	out = append(out, q(5, "How is a systemic failure represented?", "one group per cause (fingerprint); each record has its letter", open))

	open = ""
	var missing []string
	for _, f := range c.Source.Identity.Fields() {
		if f[1] == "" && (f[0] == "event_id" || f[0] == "idempotency_token") {
			missing = append(missing, f[0])
		}
	}
	switch {
	case len(missing) > 0:
		open = "a redrive cannot keep what is not named: source.identity." + strings.Join(missing, ", ")
	case c.Reconcile.Mode == "":
		open = "nothing proves the effect of a redriven record: say reconcile"
	}
	out = append(out, q(6, "How does a redrive keep identity and protect live capacity?",
		fmt.Sprintf("key, event id and token are kept; at most %s through %s, approval %s", c.Redrive.Ceiling, or(c.Redrive.Destination, "nothing"), c.Redrive.Approval), open))

	open = ""
	if c.Owner == "" {
		open = "nobody owns its items: say owner"
	}
	out = append(out, q(7, "Who owns every item, and which outcomes are audited?", or(c.Owner, "nobody")+"; every change of an item is in the history of the ledger", open))
	return out
}

func (pp *PipelinePlan) hasKind(name string) bool {
	return slices.ContainsFunc(pp.Stages, func(s StagePlan) bool {
		_, classify := s.Settings.(*stage.ClassifySettings)
		return s.Kind.Name == name && (name != "classify" || classify)
	})
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
