package custody

import (
	"context"
	"sync"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/seal"
)

// IntakeOptions are what an Intake works with.
type IntakeOptions struct {
	Items     *Items
	Sink      pipeline.Sink      // its own: nobody else reads Done
	Sanitizer pipeline.Sanitizer // required: nothing is written that was not redacted
	Sealer    pipeline.Sealer    // nil: letters are not sealed
	Ring      *seal.Ring
	Topic     func(pipelineName string) (topic string, ok bool) // the dead-letter topic of a pipeline
}

// Intake takes records into custody that an application could not process and hands over by HTTP. They become letters on the
// dead-letter topic like any other; the custodian brings them into the ledger. Safe for concurrent use; one letter is under
// way at a time.
type Intake struct {
	o  IntakeOptions
	mu sync.Mutex
}

// NewIntake makes an intake.
func NewIntake(o IntakeOptions) *Intake {
	return &Intake{o: o}
}

// Submission is one record and why it could not be processed.
type Submission struct {
	Pipeline  string
	Cluster   string            // id of the source cluster
	At        pipeline.Position // in the source; zero topic: it came from somewhere else
	Record    pipeline.Record
	Identity  pipeline.Identity // Consumer and Tenant are required
	Failure   pipeline.Failure  // code and stage; an unknown code is a consumer defect
	Reason    string
	Exception string
	Stack     string
	Attempts  uint8
}

// Quarantine writes the record to its dead-letter topic and returns its id once the topic has it: the caller may then move
// its source on. The same record twice is the same item. Codes: ERR_PERMISSION_DENIED, ERR_TENANT_FORBIDDEN, ERR_INPUT_INVALID,
// ERR_REDACT_FAILED, ERR_SEAL_FAILED, ERR_RECORD_TOO_LARGE, ERR_CUSTODY_UNAVAILABLE (nothing is known to be written: try again).
func (in *Intake) Quarantine(ctx context.Context, who Actor, s Submission) (pipeline.ID, error) {
	if s.Identity.Tenant == "" {
		s.Identity.Tenant = pipeline.TenantUnassigned
	}
	if err := in.o.Items.Check(ctx, who, PermQuarantine, s.Identity.Tenant); err != nil {
		return "", err
	}
	topic, ok := in.o.Topic(s.Pipeline)
	switch {
	case !ok:
		return "", pipeline.Errorf(pipeline.CodeInputInvalid, s.Pipeline, "there is no such pipeline")
	case s.Identity.Consumer == "":
		return "", pipeline.Errorf(pipeline.CodeInputInvalid, "consumer", "the consumer that failed is missing")
	case s.At.Topic == "" && s.Identity.EventID == "":
		return "", pipeline.Errorf(pipeline.CodeInputInvalid, "event_id", "a record that is in no topic needs an event id")
	}
	l, err := in.letter(s)
	if err != nil {
		return "", err
	}
	m := pipeline.Message{Topic: topic, Partition: -1, From: -1}
	if err := deadletter.Append(&m, l, deadletter.Profiles{}, in.o.Ring); err != nil {
		return "", err
	}
	return l.Item, in.send(ctx, m)
}

func (in *Intake) letter(s Submission) (*deadletter.Letter, error) {
	id := in.o.Items.id
	now := in.o.Items.clock().UnixMilli()
	original := s.At
	if original.Topic == "" {
		original = deadletter.NoPosition
	}
	l := &deadletter.Letter{Kind: deadletter.KindLetter, Item: deadletter.QuarantineID(id, s.Identity, s.Cluster, s.At, s.Record.Value), At: original, Original: original, Cluster: s.Cluster,
		OriginalMS: s.Record.TimeMS, TimeType: s.Record.TimeType, Pipeline: s.Pipeline, Failure: s.Failure, Identity: s.Identity, Class: pipeline.Lookup(s.Failure.Code).Class,
		Fingerprint:    deadletter.Fingerprint(s.Identity.Consumer, &s.Failure),
		Decision:       pipeline.Decision{Action: pipeline.ActQuarantine, Code: s.Failure.Code, Attempt: s.Attempts},
		DigestFaithful: pipeline.Digest(id.Digest(s.Record.Value)), Faithful: deadletter.Inline, QuarantinedMS: now,
		Reason: in.o.Sanitizer.Text(s.Reason), Exception: ledger.Cut(s.Exception, maxName), Stack: in.o.Sanitizer.Text(s.Stack)}
	clean, err := in.o.Sanitizer.Sanitize(s.At.Topic, &s.Record, nil)
	if err != nil {
		return nil, &pipeline.Error{Code: pipeline.CodeRedactFailed, Place: string(l.Item), Text: "the record could not be redacted safely; nothing was written", Cause: err}
	}
	l.Key, l.Value, l.Headers = clean.Key, clean.Value, deadletter.PassHeaders(nil, clean.Headers, false)
	l.DigestRedacted = pipeline.Digest(seal.SHA256(clean.Value))
	if clean.Changed {
		l.Faithful = deadletter.Source
		if s.At.Topic == "" {
			l.Faithful = deadletter.Nowhere
		}
	}
	if in.o.Sealer != nil && l.Value != nil {
		if l.Value, l.Enc, err = in.o.Sealer.Seal(s.Identity.Tenant, l.Value, []byte(l.Item)); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// send waits for the acknowledgement. A caller that gives up leaves its completion to the next one.
func (in *Intake) send(ctx context.Context, m pipeline.Message) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	unavailable := func(cause error, text string) error {
		return &pipeline.Error{Code: pipeline.CodeCustodyUnavailable, Place: m.Topic, Text: text, Cause: cause}
	}
	s := &pipeline.Sending{Msgs: []pipeline.Message{m}}
	if err := in.o.Sink.Send(s); err != nil {
		return unavailable(err, "the dead-letter topic takes nothing now")
	}
	for {
		select {
		case <-ctx.Done():
			return unavailable(ctx.Err(), "the dead-letter topic did not answer in time")
		case done := <-in.o.Sink.Done():
			if done != s {
				continue // of a caller that gave up
			}
			if len(done.Bad) == 0 {
				return nil
			}
			f := done.Bad[0].Failure
			if f.Code == pipeline.CodeTooLarge {
				return pipeline.Errorf(f.Code, m.Topic, "%s", f.Reason())
			}
			return unavailable(nil, f.Reason())
		}
	}
}
