package custody

import (
	"slices"
	"strconv"
	"strings"
)

// Matches tells whether an item has what the selection asks for, at a time: the same answer as that of the ledger, for items that
// are not in it yet.
func (s Selection) Matches(it *Item, nowMS int64) bool {
	for _, t := range s.Terms {
		if t.matches(it, nowMS) == t.Not {
			return false
		}
	}
	return true
}

func (t Term) matches(it *Item, nowMS int64) bool {
	switch terms[t.Name].kind {
	case termAge:
		d, _ := parseAge(t.Values[0])
		ms := it.QuarantinedMS
		if t.Name == "idle" {
			ms = it.LastSeenMS
		}
		if t.Op == '>' {
			return ms < nowMS-d.Milliseconds()
		}
		return ms > nowMS-d.Milliseconds()
	case termNumber:
		have := it.number(t.Name)
		return slices.ContainsFunc(t.Values, func(v string) bool {
			want, _ := strconv.ParseInt(v, 10, 64)
			switch t.Op {
			case '<':
				return have < want
			case '>':
				return have > want
			}
			return have == want
		})
	case termFlag:
		return slices.ContainsFunc(t.Values, func(v string) bool { return it.Flags&(1<<slices.Index(flagNames, v)) != 0 })
	case termState:
		return slices.ContainsFunc(t.Values, func(v string) bool {
			s, _ := ParseState(v)
			return v == "open" && it.State.Open() || v != "open" && s == it.State
		})
	}
	return slices.Contains(t.Values, it.text(t.Name))
}

func (it *Item) number(term string) int64 {
	switch term {
	case "partition":
		return int64(it.Original.Partition)
	case "offset":
		return it.Original.Offset
	case "attempts":
		return int64(it.Attempts)
	case "try":
		return int64(it.Try)
	case "sightings":
		return int64(it.Sightings)
	case "generation":
		return int64(it.Generation)
	}
	panic("a number that no item has: " + term)
}

func (it *Item) text(term string) string {
	switch term {
	case "id":
		return string(it.ID)
	case "tenant":
		return it.Tenant
	case "kind":
		return string(it.Kind)
	case "dialect":
		return it.Dialect
	case "pipeline":
		return it.Pipeline
	case "consumer":
		return it.Consumer
	case "release":
		return it.Release
	case "event":
		return it.EventID
	case "entity":
		return it.Entity
	case "business":
		return it.BusinessID
	case "topic":
		return it.Original.Topic
	case "class":
		return it.Class.String()
	case "code":
		return string(it.Code)
	case "fingerprint":
		return string(it.Fingerprint)
	case "group":
		return string(it.Group())
	case "stage":
		return it.Stage
	case "schema":
		return it.Schema
	case "policy":
		return string(it.Policy)
	case "faithful":
		return string(it.Faithful)
	case "data":
		return it.Data
	case "owner":
		return it.Owner
	case "ticket":
		return it.Ticket
	case "redrive":
		return string(it.Redrive)
	case "resolution":
		return it.Resolution
	case "confirmed":
		return it.Confirmed.String()
	}
	panic("a text that no item has: " + term)
}

// settled are the terms whose values never change after an item was admitted: what is decided by them once stays right.
var settledTerms = []string{"id", "tenant", "kind", "dialect", "pipeline", "consumer", "release", "event", "entity", "business", "topic", "partition", "offset", "class",
	"code", "fingerprint", "stage", "schema", "policy", "attempts", "faithful", "generation", "data"}

// onlySettled refuses a selection by what may change later. Codes: ERR_SELECTION_INVALID.
func (s Selection) onlySettled() error {
	for _, t := range s.Terms {
		if !slices.Contains(settledTerms, t.Name) {
			return selectionError(t.Name, "what changes later cannot decide here; use %s", strings.Join(settledTerms, ", "))
		}
	}
	return nil
}
