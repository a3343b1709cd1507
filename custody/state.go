package custody

import "reprieve.dev/pipeline"

// State is where an item stands.
type State string

// The states. None is before the first; NEW, REPAIR_READY and RESOLVED of older texts are DeadLettered, Repaired, Reconciled.
const (
	None          State = ""
	Delivered     State = "DELIVERED"
	Retrying      State = "RETRYING"
	DeadLettered  State = "DEAD_LETTERED"
	Parked        State = "PARKED"
	Triaged       State = "TRIAGED"
	Repaired      State = "REPAIRED"
	Redriving     State = "REDRIVING"
	RedriveFailed State = "REDRIVE_FAILED"
	Reconciled    State = "RECONCILED"
	PolicyHold    State = "POLICY_HOLD"
	Discarded     State = "DISCARDED"
	Expired       State = "EXPIRED"
)

// States are all of them, in the order in which people meet them.
func States() []State {
	return []State{Delivered, Retrying, Parked, DeadLettered, Triaged, Repaired, Redriving, RedriveFailed, PolicyHold, Reconciled, Discarded, Expired}
}

// Open tells whether somebody still has to do something about an item in this state.
func (s State) Open() bool {
	switch s {
	case DeadLettered, Triaged, Repaired, Redriving, RedriveFailed, PolicyHold:
		return true
	}
	return false
}

// Event is what happens to an item.
type Event string

// The events.
const (
	Deliver          Event = "deliver"           // the source delivered it for the first time, or the lane behind a blocked key does
	Retry            Event = "retry"             // it failed and went to the retry topic
	DeadLetter       Event = "dead_letter"       // it was taken into custody
	Park             Event = "park"              // it waits behind a blocked key: no failure
	Triage           Event = "triage"            // a person looked and has a ticket
	Repair           Event = "repair"            // a registered transform made repaired bytes
	Unrepair         Event = "unrepair"          // the repair is given up
	Redrive          Event = "redrive"           // an intent to send it is written
	WithdrawTriaged  Event = "withdraw"          // proven unsent: back to TRIAGED
	WithdrawRepaired Event = "withdraw_repaired" // proven unsent: back to REPAIRED
	Fail             Event = "redrive_failed"    // it came back, or could not be sent
	Return           Event = "return"            // after Fail, by itself
	Reconcile        Event = "reconcile"         // evidence of the effect of a redrive
	Resolve          Event = "resolve"           // settled without a redrive, with evidence
	DeliveredLive    Event = "delivered_live"    // a later settlement says that the record succeeded after all
	Hold             Event = "hold"              // policy says wait
	Release          Event = "release"           // back to DEAD_LETTERED
	ReleaseTriaged   Event = "release_triaged"   // back to TRIAGED
	Discard          Event = "discard"           // given up with authority, reason and evidence
	Restore          Event = "restore"           // a discard taken back
	Expire           Event = "expire"            // retention ended; the loss is recorded
)

// transition is one allowed step.
type transition struct {
	from State
	ev   Event
	to   State
}

// transitions are exactly those of the law. INV-STATE: nothing else ever happens to an item.
var transitions = [...]transition{
	{None, Deliver, Delivered},
	{None, Park, Parked},
	{Delivered, Retry, Retrying},
	{Delivered, DeadLetter, DeadLettered},
	{Retrying, DeadLetter, DeadLettered},
	{Parked, Deliver, Delivered},
	{Parked, DeadLetter, DeadLettered},

	{DeadLettered, Triage, Triaged},
	{Triaged, Repair, Repaired},
	{Repaired, Unrepair, Triaged},

	{Triaged, Redrive, Redriving},
	{Repaired, Redrive, Redriving},
	{Redriving, WithdrawTriaged, Triaged},
	{Redriving, WithdrawRepaired, Repaired},
	{Redriving, Reconcile, Reconciled},
	{Redriving, Fail, RedriveFailed},
	{RedriveFailed, Return, Triaged},

	{DeadLettered, Hold, PolicyHold},
	{Triaged, Hold, PolicyHold},
	{Repaired, Hold, PolicyHold},
	{PolicyHold, Release, DeadLettered},
	{PolicyHold, ReleaseTriaged, Triaged},

	{Triaged, Resolve, Reconciled},
	{Repaired, Resolve, Reconciled},
	{PolicyHold, Resolve, Reconciled},

	{DeadLettered, DeliveredLive, Reconciled},
	{Triaged, DeliveredLive, Reconciled},
	{Repaired, DeliveredLive, Reconciled},
	{PolicyHold, DeliveredLive, Reconciled},

	{Triaged, Discard, Discarded},
	{Repaired, Discard, Discarded},
	{Discarded, Restore, Triaged},

	{DeadLettered, Expire, Expired},
	{Triaged, Expire, Expired},
	{Repaired, Expire, Expired},
	{RedriveFailed, Expire, Expired},
	{PolicyHold, Expire, Expired},
}

// Next is the state after an event. It is pure; every change of an item goes through it. Codes: ERR_STATE_TRANSITION_INVALID
// (InvalidStateTransitionException): the event does not apply in this state, and nothing changes.
func Next(from State, ev Event) (State, error) {
	for i := range transitions {
		if t := &transitions[i]; t.from == from && t.ev == ev {
			return t.to, nil
		}
	}
	name := string(from)
	if from == None {
		name = "an item that is not in custody yet"
	}
	return from, pipeline.Errorf(pipeline.CodeStateInvalid, "", "InvalidStateTransitionException: %s does not apply to %s", ev, name)
}

// ParseState reads a state; the older names are taken too.
func ParseState(s string) (State, bool) {
	switch s {
	case "NEW":
		return DeadLettered, true
	case "REPAIR_READY":
		return Repaired, true
	case "RESOLVED":
		return Reconciled, true
	}
	for _, st := range States() {
		if string(st) == s {
			return st, true
		}
	}
	return None, false
}
