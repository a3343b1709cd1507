package custody

import (
	"context"
	"strconv"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/seal"
)

// IntakeOptions are what an Intake works with.
type IntakeOptions struct {
	Items     *Items
	Sanitizer pipeline.Sanitizer // required: nothing is written that was not redacted
	// Sealer seals the letters of a pipeline; nil, or nil of a pipeline: they are not sealed.
	Sealer func(pipelineName string) pipeline.Sealer
	// Vault seals what cannot be redacted; nil: such records are refused.
	Vault *IntakeVault
	Ring  *seal.Ring
	// Target is the dead-letter topic of a pipeline and what writes to its cluster; a sink is the intake's own: nobody else reads
	// Done.
	Target   func(pipelineName string) (topic string, sink pipeline.Sink, ok bool)
	Data     func(pipelineName string) string // the data class of a pipeline's records; nil: they have none
	Outcomes string                           // the outcomes topic; "": outcomes are refused
	Writers  map[string]deadletter.Writer     // by id: who may write outcomes
	// OutcomeSink writes to the cluster of the outcomes topic; its own. nil: outcomes are refused.
	OutcomeSink pipeline.Sink
}

// IntakeVault is where records go that cannot be redacted.
type IntakeVault struct {
	Sealer pipeline.Sealer
	Strip  pipeline.Sanitizer // takes verification values, and nothing else, out of what is kept: nobody may store them
	Topic  func(pipelineName string) string
}

// Intake takes records into custody that an application could not process and hands over by HTTP. They become letters on the
// dead-letter topic like any other; the custodian brings them into the ledger. Safe for concurrent use.
type Intake struct{ o IntakeOptions }

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
// its source on. The same record twice is the same item. Codes: as QuarantineAll.
func (in *Intake) Quarantine(ctx context.Context, who Actor, s Submission) (pipeline.ID, error) {
	ids, err := in.QuarantineAll(ctx, who, []Submission{s})
	if err != nil {
		return "", err
	}
	return ids[0], nil
}

// Refused says which of several submissions cannot be taken, and why.
type Refused struct {
	Index int
	Err   error
}

func (r *Refused) Error() string { return "record " + strconv.Itoa(r.Index) + ": " + r.Err.Error() }

func (r *Refused) Unwrap() error { return r.Err }

// QuarantineAll is Quarantine for several records: all of them or an error. What is wrong with any of them is found before
// anything is written and comes back as a Refused; what cannot be redacted is sealed to the vault; when a topic does not acknowledge all, some may have been written: send all of
// them again, they are the same items. Codes: ERR_PERMISSION_DENIED, ERR_TENANT_FORBIDDEN, ERR_INPUT_INVALID, ERR_REDACT_FAILED,
// ERR_SEAL_FAILED, ERR_RECORD_TOO_LARGE, ERR_CUSTODY_UNAVAILABLE.
func (in *Intake) QuarantineAll(ctx context.Context, who Actor, list []Submission) ([]pipeline.ID, error) {
	ids := make([]pipeline.ID, len(list))
	bySink := map[pipeline.Sink][]pipeline.Message{}
	index := map[pipeline.Sink][]int{}
	for i, s := range list {
		msgs, sink, id, err := in.compose(ctx, who, s)
		if err != nil {
			return nil, &Refused{i, err}
		}
		ids[i] = id
		for _, m := range msgs {
			bySink[sink], index[sink] = append(bySink[sink], m), append(index[sink], i)
		}
	}
	for sink, msgs := range bySink {
		if err := send(ctx, sink, msgs, index[sink]); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// compose makes the letter of one record, and what goes to the vault where it cannot be redacted.
func (in *Intake) compose(ctx context.Context, who Actor, s Submission) (msgs []pipeline.Message, sink pipeline.Sink, id pipeline.ID, err error) {
	if s.Identity.Tenant == "" {
		s.Identity.Tenant = pipeline.TenantUnassigned
	}
	if err := in.o.Items.Check(ctx, who, PermQuarantine, s.Identity.Tenant); err != nil {
		return nil, nil, "", err
	}
	topic, sink, ok := in.o.Target(s.Pipeline)
	switch {
	case !ok:
		return nil, nil, "", pipeline.Errorf(pipeline.CodeInputInvalid, "pipeline", "there is no pipeline %q", s.Pipeline)
	case s.Identity.Consumer == "":
		return nil, nil, "", pipeline.Errorf(pipeline.CodeInputInvalid, "consumer", "the consumer that failed is missing")
	case s.At.Topic == "" && s.Identity.EventID == "":
		return nil, nil, "", pipeline.Errorf(pipeline.CodeInputInvalid, "event_id", "a record that is in no topic needs an event id")
	}
	l, kept, err := in.letter(s)
	if err != nil {
		return nil, nil, "", err
	}
	m := pipeline.Message{Topic: topic, Partition: -1, From: -1}
	if err := deadletter.Append(&m, l, deadletter.Profiles{}, in.o.Ring); err != nil {
		return nil, nil, "", err
	}
	msgs = append(msgs, m)
	if kept != nil {
		msgs = append(msgs, *kept)
	}
	return msgs, sink, l.Item, nil
}

// Outcome writes what a registered writer has signed to the outcomes topic, and returns once the topic has it. value is the signed
// message as deadletter.AppendOutcomeBy makes it. The caller needs the permission to quarantine: what counts is the signature.
// Codes: ERR_PERMISSION_DENIED, ERR_SIGNATURE_INVALID, ERR_LETTER_INVALID, ERR_CUSTODY_UNAVAILABLE.
func (in *Intake) Outcome(ctx context.Context, who Actor, value []byte) (pipeline.Outcome, error) {
	if err := in.o.Items.Check(ctx, who, PermQuarantine, ""); err != nil {
		return pipeline.Outcome{}, err
	}
	if in.o.OutcomeSink == nil || in.o.Outcomes == "" {
		return pipeline.Outcome{}, pipeline.Errorf(pipeline.CodeCustodyUnavailable, "outcomes", "no outcomes are taken here")
	}
	o, _, err := deadletter.ParseOutcomeBy(&pipeline.Record{Value: value}, nil, in.o.Writers)
	if err != nil {
		return o, err
	}
	// Whether the writer may speak about this item's consumer the custodian decides: the item may not be in the ledger yet.
	m := pipeline.Message{Topic: in.o.Outcomes, Partition: -1, From: -1, Key: []byte(o.Item), Value: value, Headers: deadletter.OutcomeHeaders()}
	return o, send(ctx, in.o.OutcomeSink, []pipeline.Message{m}, []int{0})
}

// letter makes the letter of a record, and its vault message if it cannot be redacted.
func (in *Intake) letter(s Submission) (*deadletter.Letter, *pipeline.Message, error) {
	id := in.o.Items.id
	now := in.o.Items.clock().UnixMilli()
	original := s.At
	if original.Topic == "" {
		original = deadletter.NoPosition
	}
	l := &deadletter.Letter{Kind: deadletter.KindLetter, Item: deadletter.QuarantineID(id, knownBy(&s), s.Cluster, s.At, s.Record.Value), At: original, Original: original, Cluster: s.Cluster,
		OriginalMS: s.Record.TimeMS, TimeType: s.Record.TimeType, Pipeline: s.Pipeline, Failure: s.Failure, Identity: s.Identity, Class: pipeline.Lookup(s.Failure.Code).Class,
		Fingerprint:    deadletter.Fingerprint(s.Identity.Consumer, &s.Failure),
		Decision:       pipeline.Decision{Action: pipeline.ActQuarantine, Code: s.Failure.Code, Attempt: s.Attempts},
		DigestFaithful: pipeline.Digest(id.Digest(s.Record.Value)), Faithful: deadletter.Inline, QuarantinedMS: now,
		Reason: in.o.Sanitizer.Text(s.Reason), Exception: ledger.Cut(s.Exception, maxName), Stack: in.o.Sanitizer.Text(s.Stack)}
	if in.o.Data != nil {
		l.Data = in.o.Data(s.Pipeline)
	}
	found := l.Conceal(in.o.Sanitizer.Text, id.Digest)
	clean, err := in.o.Sanitizer.Sanitize(s.At.Topic, &s.Record, nil)
	if err != nil {
		kept, err := in.withhold(l, &s, found, err)
		return l, kept, notYet(err)
	}
	l.Key, l.Value, l.Headers = clean.Key, clean.Value, deadletter.PassHeaders(nil, clean.Headers, false)
	l.DigestRedacted = pipeline.Digest(seal.SHA256(clean.Value))
	if clean.Changed {
		l.Faithful = deadletter.Source
		if s.At.Topic == "" {
			l.Faithful = deadletter.Nowhere
		}
	}
	if in.o.Sealer == nil || l.Value == nil {
		return l, nil, nil
	}
	if sealer := in.o.Sealer(s.Pipeline); sealer != nil {
		l.DigestRedacted = pipeline.Digest(id.Digest(l.Value))
		if l.Value, l.Enc, err = sealer.Seal(deadletter.SealedTenant(s.Identity.Tenant), l.Value, []byte(l.Item)); err != nil {
			return nil, nil, notYet(err)
		}
	}
	return l, nil, nil
}

// knownBy is what the id of a record is made of. One without an event id is known by its position, within its tenant: the id that a pipeline
// makes of a position alone does not say whose it is, and nobody hands over a record under the id of somebody else's.
func knownBy(s *Submission) pipeline.Identity {
	id := s.Identity
	if id.EventID == "" {
		id.EventID = s.Cluster + "/" + s.At.String()
	}
	return id
}

// notYet is a key that nobody has made yet: nothing is wrong with the record, so it is to be sent again.
func notYet(err error) error {
	if pipeline.CodeOf(err) != pipeline.CodeKeyUnknown {
		return err
	}
	return &pipeline.Error{Code: pipeline.CodeSealFailed, Text: "there is no key to seal it with yet; send it again", Cause: err}
}

// withhold makes l the placeholder of a record that cannot be redacted, whose bytes go to the vault, as the live lane does.
func (in *Intake) withhold(l *deadletter.Letter, s *Submission, found bool, why error) (*pipeline.Message, error) {
	refused := &pipeline.Error{Code: pipeline.CodeRedactFailed, Place: string(l.Item), Text: "the record could not be redacted safely; nothing was written", Cause: why}
	v := in.o.Vault
	if v == nil {
		return nil, refused
	}
	kept, err := v.Strip.Sanitize(s.At.Topic, &s.Record, nil)
	switch {
	case err == nil:
	case pipeline.CodeOf(err) == pipeline.CodeRedactFailed: // nobody can look into it, which is why it is sealed
		kept = pipeline.Clean{Key: s.Record.Key, Value: s.Record.Value, Headers: s.Record.Headers}
	default:
		return nil, refused
	}
	l.Withhold(in.o.Sanitizer, in.o.Items.id.Digest, s.At.Topic, &s.Record, found, pipeline.CodeOf(why))
	l.Headers = deadletter.PassHeaders(nil, l.Headers, false)
	m := &pipeline.Message{Topic: v.Topic(s.Pipeline), Partition: -1, From: -1}
	return m, l.Keep(m, &kept, v.Sealer, in.o.Items.id.Digest, in.o.Ring)
}

// send waits for the acknowledgement of all messages. Several callers wait on one sink: whoever takes the completion of another
// hands it on, also to one that gave up. index says which submission each message is of.
func send(ctx context.Context, sink pipeline.Sink, msgs []pipeline.Message, index []int) error {
	unavailable := func(cause error, text string) error {
		return &pipeline.Error{Code: pipeline.CodeCustodyUnavailable, Place: msgs[0].Topic, Text: text, Cause: cause}
	}
	mine := make(chan *pipeline.Sending, 1)
	if err := sink.Send(&pipeline.Sending{Msgs: msgs, Owner: mine}); err != nil {
		return unavailable(err, "the topic takes nothing now")
	}
	for {
		select {
		case <-ctx.Done():
			return unavailable(ctx.Err(), "the topic did not answer in time")
		case s := <-sink.Done():
			s.Owner.(chan *pipeline.Sending) <- s
		case done := <-mine:
			if len(done.Bad) == 0 {
				return nil
			}
			bad := done.Bad[0]
			if f := bad.Failure; f.Code == pipeline.CodeTooLarge {
				return &Refused{index[bad.Msg], pipeline.Errorf(f.Code, msgs[bad.Msg].Topic, "%s", f.Reason())}
			}
			return unavailable(nil, bad.Failure.Reason())
		}
	}
}

// SourceMoved takes the statement of who handed a record over that its source has moved past it: from then on it may be redriven.
// Records of pipelines are confirmed by their settlements instead. Said again it changes nothing. Codes: ERR_ITEM_UNKNOWN (not in the
// ledger yet, or at all), ERR_INPUT_INVALID (not from an intake), ERR_PERMISSION_DENIED, ERR_TENANT_FORBIDDEN, ERR_LEDGER_*.
func (c *Items) SourceMoved(ctx context.Context, who Actor, id pipeline.ID) error {
	tenant := ""
	err := c.db.Write(ctx, func(tx *ledger.Tx) error {
		found, err := load(tx, []string{string(id)}, true)
		if err != nil {
			return err
		}
		it := found[id]
		if it == nil {
			return pipeline.Errorf(pipeline.CodeItemUnknown, string(id), "the ledger has no such item yet").With("The custodian brings it there; say it again.")
		}
		tenant = it.Tenant
		if err := c.roles.check(who, PermQuarantine, it.Tenant); err != nil {
			return err
		}
		switch {
		case it.Dialect != deadletter.Reprieve || it.Policy != "":
			return pipeline.Errorf(pipeline.CodeInputInvalid, string(id), "it was not handed over by an application")
		case it.Confirmed == IsConfirmed:
			return nil
		}
		return c.set(tx, who, []*Item{it}, change{event: "source_moved", cols: []string{"confirmed"}, args: []any{int64(IsConfirmed)}, keep: func(it *Item) { it.Confirmed = IsConfirmed }})
	})
	return c.refused(ctx, who, string(PermQuarantine), string(id), tenant, err)
}
