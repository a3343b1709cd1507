package control

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"

	"reprieve.dev/pipeline"
)

// What a halt stops: the redrives of a pipeline, or the pipeline itself.
const (
	SubjectRedrive  = "redrive"
	SubjectPipeline = "pipeline"
)

// Halt is the state of an entry of kind halt. It is in effect from when it is written until it was lifted.
type Halt struct {
	Reason string `json:"reason"`
	Code   string `json:"code,omitempty"` // why a worker stopped its pipeline
}

// Lift is the state of an entry of kind lift. It names what it lifts: a halt that is written again, with a higher seq, is
// not lifted by it.
type Lift struct {
	Reason string `json:"reason"`
	// Lifted is writer -> seq of the halts with the same pipeline and subject.
	Lifted map[string]string `json:"lifted"`
}

// NewHalt is the halt of one pipeline, or of all with pipelineName "". Publish sets seq and time.
func NewHalt(pipelineName, writer, reason string) Entry {
	return Entry{Key: Key{KindHalt, pipelineName, SubjectRedrive, writer}, By: writer, State: stateOf(Halt{Reason: reason})}
}

// NewStop is a worker's halt of its pipeline: it reads nothing until a person resumes it. Publish sets seq and time.
func NewStop(pipelineName, writer, code, reason string) Entry {
	return Entry{Key: Key{KindHalt, pipelineName, SubjectPipeline, writer}, By: writer, State: stateOf(Halt{Reason: reason, Code: code})}
}

// NewLift lifts every halt of redrives that s has in effect for exactly this pipeline ("" is the halt of all). The person signs it;
// for all pipelines it takes as many persons as Authority.Lifters says. What the person lifted before stays named, because the
// new entry replaces the old one. False: there is nothing to lift.
func (s *Snapshot) NewLift(pipelineName, person, reason string) (Entry, bool) {
	return s.newLift(Key{KindLift, pipelineName, SubjectRedrive, person}, reason)
}

// NewResume lifts every halt of the pipeline itself: one person's signature is enough. False: it is not halted.
func (s *Snapshot) NewResume(pipelineName, person, reason string) (Entry, bool) {
	return s.newLift(Key{KindLift, pipelineName, SubjectPipeline, person}, reason)
}

func (s *Snapshot) newLift(key Key, reason string) (Entry, bool) {
	l := Lift{Reason: reason, Lifted: map[string]string{}}
	for writer, seq := range s.entries[key].lift().Lifted {
		if _, there := s.entries[Key{KindHalt, key.Pipeline, key.Subject, writer}]; there {
			l.Lifted[writer] = seq
		}
	}
	found := false
	for _, h := range s.halts {
		if h.Pipeline == key.Pipeline && h.Subject == key.Subject {
			l.Lifted[h.Writer] = strconv.FormatInt(h.Seq, 10)
			found = true
		}
	}
	return Entry{Key: key, By: key.Writer, State: stateOf(l)}, found
}

// lift reads the state of a lift; a damaged one lifts nothing.
func (e Entry) lift() (l Lift) {
	if len(e.State) == 0 || json.Unmarshal(e.State, &l) != nil {
		return Lift{}
	}
	return l
}

func stateOf(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil { // strings and maps of strings always have a JSON form
		return json.RawMessage("{}")
	}
	return b
}

// HaltState reads the state of a halt; a damaged one is a halt without a reason.
func (e Entry) HaltState() (h Halt) {
	if json.Unmarshal(e.State, &h) != nil {
		return Halt{}
	}
	return h
}

// Halted tells whether redrive of a pipeline is halted, by a halt of its own or by one of all pipelines, and by which entry:
// the oldest. Cost: no allocation.
func (s *Snapshot) Halted(pipelineName string) (Entry, bool) {
	for i := range s.halts {
		if h := &s.halts[i]; h.Subject == SubjectRedrive && (h.Pipeline == "" || h.Pipeline == pipelineName) {
			return *h, true
		}
	}
	return Entry{}, false
}

// Stopped tells whether a pipeline itself is halted, and by which entry: the oldest. Cost: no allocation.
func (s *Snapshot) Stopped(pipelineName string) (Entry, bool) {
	for i := range s.halts {
		if h := &s.halts[i]; h.Subject == SubjectPipeline && h.Pipeline == pipelineName {
			return *h, true
		}
	}
	return Entry{}, false
}

// Halts are all halts in effect, oldest first.
func (s *Snapshot) Halts() []Entry { return slices.Clone(s.halts) }

// Lifters are the persons who have lifted h so far; a halt of all pipelines needs more than one.
func (s *Snapshot) Lifters(h Entry) []string { return liftersIn(s.entries, h) }

// haltsIn upholds INV-CONTROL-STICKY: a halt stands unless enough different approvers lifted this seq or a later one.
func haltsIn(all map[Key]Entry, a *Authority) []Entry {
	var halts []Entry
	for k, e := range all {
		if k.Kind == KindHalt && len(liftersIn(all, e)) < a.lifters(k.Pipeline) {
			halts = append(halts, e)
		}
	}
	slices.SortFunc(halts, func(x, y Entry) int {
		return cmp.Or(cmp.Compare(x.AtMS, y.AtMS), cmp.Compare(x.Key.String(), y.Key.String()))
	})
	return halts
}

// liftersIn are the subjects of the lifts that name h. Each person has one lift entry a pipeline, so nobody counts twice. Who
// halted a single pipeline does not count: where one person is enough to lift, it is another one.
func liftersIn(all map[Key]Entry, h Entry) []string {
	var by []string
	for k, e := range all {
		if k.Kind != KindLift || k.Pipeline != h.Pipeline || k.Subject != h.Subject || e.Person == "" || h.Pipeline != "" && e.By == h.By {
			continue
		}
		if seq, err := strconv.ParseInt(e.lift().Lifted[h.Writer], 10, 64); err == nil && seq >= h.Seq {
			by = append(by, e.By)
		}
	}
	slices.Sort(by)
	return by
}

// haltedError is what a refused action says.
func haltedError(e Entry) *pipeline.Error {
	return pipeline.Errorf(pipeline.CodeRedriveHalted, e.Key.String(), "%s halted redrives: %s", e.By, e.HaltState().Reason)
}

// Check returns ERR_REDRIVE_HALTED if redrive of the pipeline is halted.
func (s *Snapshot) Check(pipelineName string) error {
	if e, halted := s.Halted(pipelineName); halted {
		return haltedError(e)
	}
	return nil
}
