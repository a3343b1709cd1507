package main

import (
	"errors"
	"strings"

	"reprieve.dev/pipeline"
	"reprieve.dev/redrive"
)

// leftOut says in words why an item is not redriven.
func leftOut(why string) string {
	switch why {
	case "other_pipeline":
		return "of another pipeline"
	case "held":
		return "on hold"
	case "same_event":
		return "another item has the same event id and other bytes: look at both"
	case "rebuilt":
		return "rebuilt from topics: what people did with it is not known"
	case "conflict":
		return "a later sighting disagrees with its evidence"
	case "unconfirmed":
		return "not confirmed that the source has moved on"
	case "payload_missing":
		return "the original bytes are nowhere any more"
	case "loop":
		return "redriven too often already: a person may send it alone (--loop accepted)"
	case "identity":
		return "its repair makes a new logical id (--identity new)"
	case "ambiguous":
		return "whether its effect exists is unknown: find out, then resolve it or confirm it absent"
	case "horizon":
		return "past the deduplication horizon, or none is declared: ask about the effect first (--horizon accepted)"
	}
	if state, ok := strings.CutPrefix(why, "state_"); ok {
		return "in state " + state
	}
	return strings.ReplaceAll(why, "_", " ")
}

// nothingToSend prints why a plan has nothing to send, and leaves to the error what is not told so.
func (a *app) nothingToSend(p *redrive.Planned, err error) error {
	e, ok := errors.AsType[*pipeline.Error](err)
	if p == nil || a.format != "table" || !ok || e.Code != pipeline.CodeManifestEmpty || len(p.Excluded) == 0 {
		return err
	}
	for i, x := range p.Excluded {
		if i == 20 {
			writeLine(a.err, "  ... and %d more", len(p.Excluded)-20)
			break
		}
		writeLine(a.err, "  %s  %s", x.Item, leftOut(x.Reason))
	}
	e.Text, _, _ = strings.Cut(e.Text, ":")
	return e
}
