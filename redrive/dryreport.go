package redrive

import (
	"encoding/json"
	"time"

	"reprieve.dev/pipeline"
)

// Report says what a manifest would do, without doing it.
type Report struct {
	Manifest    pipeline.Digest   `json:"manifest"`
	Pipeline    string            `json:"pipeline"`
	Tenant      string            `json:"tenant"`
	At          string            `json:"at"`
	Destination string            `json:"destination"`
	Partitions  map[string]int64  `json:"partitions"` // destination partition -> items
	Selected    int64             `json:"selected"`   // of the snapshot
	Items       int64             `json:"items"`      // of the manifest
	WouldSend   int64             `json:"would_send"`
	CannotGo    map[string]Sample `json:"cannot_go"` // code -> items that would become REDRIVE_FAILED
	Excluded    map[string]int64  `json:"excluded"`  // reason -> items that the plan left out
	Since       int64             `json:"since"`     // items that match the selection now and are not in the snapshot
	Repaired    int64             `json:"repaired"`  // items that would be sent as a repair made them
	Deletes     int64             `json:"deletes"`   // tombstones: they delete their key
	Keyless     int64             `json:"keyless"`
	Repartition int64             `json:"repartition"` // keys that the source has on another partition than murmur2 says
	Old         int64             `json:"old"`         // older than the destination's retention: written with the present time
	Oldest      string            `json:"oldest"`      // original time of the oldest; "" is none
	Schemas     map[string]int64  `json:"schemas"`     // schema -> items that decode under it
	Undecoded   map[string]int64  `json:"undecoded"`   // code -> items that would fail again at decode
	FailAgain   map[string]Sample `json:"fail_again"`  // code -> items that the pipeline's own stages would refuse again
	Asked       int64             `json:"asked"`       // items that leave only after the answer that their effect is absent
	Superseded  int64             `json:"superseded"`  // items that are not sent: a newer state takes their place
	Again       int64             `json:"again"`       // items that were redriven before: their effect may exist
	Horizon     HorizonCounts     `json:"horizon"`     // of deduplication
	Missing     map[string]int64  `json:"missing"`     // payload, schema or key -> items without it
	Live        Load              `json:"live"`        // what the destination's pipeline has to do beside this
	Bytes       int64             `json:"bytes"`       //
	Duration    string            `json:"duration"`    // at the manifest's rate, without waiting for evidence
	Canary      []pipeline.ID     `json:"canary"`      //
	Measures    []Measure         `json:"measures"`    // exact sums over what would be sent
	Unmeasured  map[string]int64  `json:"unmeasured"`  // measure -> items that have no such number
	Notes       []string          `json:"notes"`       // sentences for people
	Rate        string            `json:"rate"`
}

// HorizonCounts says how many items the effect's deduplication still knows.
type HorizonCounts struct {
	Within  int64 `json:"within"`
	Past    int64 `json:"past"`    // a duplicate would be applied: expected duplicates are among them
	Unknown int64 `json:"unknown"` // nobody has said how long it remembers
}

// Load is what the live lane has to do at the moment of the dry run.
type Load struct {
	Waiting   int64  `json:"waiting"`    // records of the source that its group has not committed; -1 is unknown
	PerSecond int64  `json:"per_second"` // records a second that it commits now; -1 is unknown
	Share     string `json:"share"`      // what the redrive adds to that, as in "+12 %"; "" is unknown
}

// Sample counts items and names the first of them.
type Sample struct {
	Count int64         `json:"count"`
	Items []pipeline.ID `json:"items"`
}

const maxSample = 20

func (r *Report) cannot(code pipeline.Code, id pipeline.ID) {
	note(r.CannotGo, code, id)
	switch code {
	case pipeline.CodePayloadMissing, pipeline.CodePayloadUnfaithful, pipeline.CodeErased:
		r.Missing["payload"]++
	case pipeline.CodeKeyUnknown, pipeline.CodeKeyDestroyed:
		r.Missing["key"]++
	case pipeline.CodeSchemaUnknown:
		r.Missing["schema"]++
	}
}

func note(of map[string]Sample, code pipeline.Code, id pipeline.ID) {
	s := of[string(code)]
	s.Count++
	if len(s.Items) < maxSample {
		s.Items = append(s.Items, id)
	}
	of[string(code)] = s
}

func parseReport(text string) (*Report, error) {
	r := &Report{}
	if err := json.Unmarshal([]byte(text), r); err != nil {
		return nil, pipeline.Errorf(pipeline.CodeLedgerCorrupt, "manifests", "a dry run cannot be read")
	}
	return r, nil
}

func (d *dryRun) note(text string) {
	for _, n := range d.r.Notes {
		if n == text {
			return
		}
	}
	d.r.Notes = append(d.r.Notes, text)
}

func (d *dryRun) finish() {
	r := d.r
	if rate, err := ParseRate(d.m.Pace.Rate); err == nil {
		r.Duration = rate.duration(r.WouldSend).Round(time.Second).String()
	}
	if d.oldest > 0 {
		r.Oldest = stampMS(d.oldest)
	}
	for _, m := range d.sums {
		r.Measures = append(r.Measures, Measure{Name: m.Name, CEL: m.CEL, Sum: m.sum.String()})
	}
	if r.Repartition > 0 {
		d.note(decimal(r.Repartition) + " keys stand on another source partition than murmur2 says: the source's producers use another partitioner, and order of those keys is not kept")
	}
	if r.Old > 0 {
		d.note(decimal(r.Old) + " records are older than the destination keeps; they are written with the present time, their own time travels in a header")
	}
	if len(r.Undecoded) > 0 {
		d.note("some items would fail again at decode: repair them first")
	}
	if d.dest.LogAppend {
		d.note("the destination overwrites times with its own (LogAppendTime)")
	}
	switch h := d.t.Horizon; {
	case h.Known && h.Store != "" && r.Horizon.Past > 0:
		d.note(decimal(r.Horizon.Past) + " items are older than " + h.Store + " remembers")
	case !h.Known:
		d.note("nobody has said how long the effect's deduplication remembers: an effect may happen twice")
	}
	if n := len(r.FailAgain); n > 0 {
		total := int64(0)
		for _, x := range r.FailAgain {
			total += x.Count
		}
		d.note(decimal(total) + " items would fail again in the pipeline as it is now: repair them, or mend the pipeline first")
	}
	if r.Asked > 0 {
		d.note(decimal(r.Asked) + " items are asked about first: those whose effect is there already are closed without a send")
	}
	if r.Superseded > 0 {
		d.note(decimal(r.Superseded) + " items are not sent: a newer state of the same entity takes their place, and they are closed as superseded once it has its effect")
	}
	if d.m.Identity.Policy == identityNew {
		d.note("new logical ids are made, for this reason: " + d.m.Identity.Intent + "; two people have to approve")
	}
	if d.m.Loop == accepted {
		d.note("the item has come back too often for a bulk redrive: the approval takes that upon itself")
	}
	if d.m.Unconfirmed == accepted {
		d.note("items whose source progress is unknown are included: the approval takes that upon itself")
	}
	if d.m.Horizon == accepted {
		d.note("items past the deduplication horizon are included: the approval takes that upon itself")
	}
}
