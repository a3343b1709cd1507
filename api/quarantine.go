package api

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"reprieve.dev/custody"
	"reprieve.dev/pipeline"
)

// Intake takes records into custody; *custody.Intake is one.
type Intake interface {
	QuarantineAll(ctx context.Context, who custody.Actor, list []custody.Submission) ([]pipeline.ID, error)
	Outcome(ctx context.Context, who custody.Actor, value []byte) (pipeline.Outcome, error)
	SourceMoved(ctx context.Context, who custody.Actor, id pipeline.ID) error
}

// Limits of one request.
const (
	mostRecords = 500
	mostBody    = 16 << 20 // bytes
	mostKey     = 255      // characters of an idempotency key
)

// submission is one record and why it could not be processed, as a request spells it.
type submission struct {
	Pipeline   string          `json:"pipeline" doc:"Whose dead-letter topic takes it."`
	Consumer   string          `json:"consumer" doc:"The consumer that failed: its group, or the application's name."`
	Release    string          `json:"release,omitempty" doc:"What ran: name@version."`
	Tenant     string          `json:"tenant,omitempty" doc:"Whose record it is; unassigned if it cannot be read."`
	EventID    string          `json:"event_id,omitempty" doc:"The event's id; required for a record that is in no topic, unless there is an Idempotency-Key."`
	Entity     string          `json:"entity,omitempty" doc:"What the event is about, for example an account."`
	BusinessID string          `json:"business_id,omitempty" doc:"The id that people use, for example of an invoice."`
	Token      string          `json:"idempotency_token,omitempty" doc:"The token that the effect is deduplicated by."`
	Version    string          `json:"entity_version,omitempty" doc:"The version or sequence number of the entity."`
	Cluster    string          `json:"cluster,omitempty" doc:"Id of the source cluster."`
	Code       string          `json:"code,omitempty" doc:"The failure's code; ERR_FOREIGN_FAILURE if it is none of ours."`
	Stage      string          `json:"stage,omitempty" doc:"Where it failed."`
	Reason     string          `json:"reason,omitempty" doc:"What happened; redacted like the record."`
	Exception  string          `json:"exception,omitempty" doc:"Class of the exception."`
	Stack      string          `json:"stack,omitempty" doc:"Its stack; redacted like the record."`
	Attempts   uint8           `json:"attempts,omitempty" doc:"Failed retries before."`
	Record     json.RawMessage `json:"record" doc:"The record in the one record form: topic, partition, offset, key, value, headers. Without a topic it is in none."`
}

// submissions is a request: one submission, or an array of them.
type submissions struct {
	list []submission
	many bool
}

// Schema describes both forms.
func (submissions) Schema(r huma.Registry) *huma.Schema {
	one := r.Schema(typeOf[submission](), true, "Submission")
	return &huma.Schema{OneOf: []*huma.Schema{one, {Type: "array", Items: one, MaxItems: ptr(mostRecords)}}}
}

func parseSubmissions(body []byte) (s submissions, err error) {
	if s.many = bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("[")); s.many {
		var list []json.RawMessage
		if err := json.Unmarshal(body, &list); err != nil {
			return s, pipeline.Errorf(pipeline.CodeInputInvalid, "body", "it is not JSON: %s", jsonFault(err))
		}
		if len(list) == 0 || len(list) > mostRecords {
			return s, pipeline.Errorf(pipeline.CodeInputInvalid, "body", "a request has 1 to %d records", mostRecords)
		}
		for i, one := range list {
			v, err := parseSubmission(one)
			if err != nil {
				return s, &custody.Refused{Index: i, Err: err}
			}
			s.list = append(s.list, v)
		}
		return s, nil
	}
	v, err := parseSubmission(body)
	s.list = []submission{v}
	return s, err
}

func parseSubmission(text []byte) (v submission, err error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&v); err != nil {
		return v, pipeline.Errorf(pipeline.CodeInputInvalid, "body", "%s", jsonFault(err))
	}
	if dec.More() {
		return v, pipeline.Errorf(pipeline.CodeInputInvalid, "body", "something stands behind the record")
	}
	return v, nil
}

// jsonFault says what is wrong without the bytes that are.
func jsonFault(err error) string {
	switch e := err.(type) {
	case *json.SyntaxError:
		return "it is not JSON at byte " + strconv.FormatInt(e.Offset, 10)
	case *json.UnmarshalTypeError:
		return e.Field + " cannot be a " + e.Value
	}
	return err.Error()
}

func (v *submission) submission(key string) (custody.Submission, error) {
	if len(v.Record) == 0 || string(v.Record) == "null" {
		return custody.Submission{}, pipeline.Errorf(pipeline.CodeInputInvalid, "record", "the record is missing")
	}
	tp, rec, err := pipeline.ParseForm(v.Record)
	if err != nil {
		return custody.Submission{}, err
	}
	s := custody.Submission{
		Pipeline: v.Pipeline, Cluster: v.Cluster, Record: rec, Reason: v.Reason, Exception: v.Exception, Stack: v.Stack, Attempts: v.Attempts,
		Identity: pipeline.Identity{Consumer: v.Consumer, Release: v.Release, Tenant: v.Tenant, EventID: v.EventID, Entity: v.Entity, BusinessID: v.BusinessID,
			Token: v.Token, Version: v.Version},
		Failure: pipeline.Failure{Code: pipeline.Code(v.Code), Stage: v.Stage},
	}
	if pipeline.Lookup(s.Failure.Code).Class == pipeline.ClassNone {
		s.Failure.Code = pipeline.CodeForeignFailure
	}
	if tp.Topic != "" {
		s.At = pipeline.Position{TP: tp, Offset: rec.Offset}
	} else if s.Identity.EventID == "" {
		s.Identity.EventID = key
	}
	return s, nil
}

// taken is the answer: every record is durable on its dead-letter topic.
type taken struct {
	ID    pipeline.ID `json:"quarantine_id"`
	State string      `json:"state" example:"DEAD_LETTERED"`
}

type quarantineInput struct {
	Key     string `header:"Idempotency-Key" doc:"Makes a repeated request the same request; the event id of a record that has none."`
	RawBody []byte `contentType:"application/json"`
}

type quarantineOutput struct {
	Status int
	Body   any
}

func (s *server) quarantine(ctx context.Context, in *quarantineInput) (*quarantineOutput, error) {
	who := actor(ctx)
	if len(in.Key) > mostKey {
		return nil, problemOf(pipeline.Errorf(pipeline.CodeInputInvalid, "Idempotency-Key", "it is longer than %d characters", mostKey))
	}
	req, err := parseSubmissions(in.RawBody)
	if err != nil {
		return nil, problemOf(err)
	}
	ids, err := s.answers.look(who.Subject, in.Key, in.RawBody)
	if err != nil {
		return nil, problemOf(err)
	}
	if ids == nil {
		list := make([]custody.Submission, len(req.list))
		for i := range req.list {
			key := in.Key
			if key != "" && req.many {
				key += "/" + strconv.Itoa(i)
			}
			if list[i], err = req.list[i].submission(key); err != nil {
				return nil, problemOf(&custody.Refused{Index: i, Err: err})
			}
		}
		if ids, err = s.o.Intake.QuarantineAll(ctx, who, list); err != nil {
			return nil, problemOf(err)
		}
		s.answers.keep(who.Subject, in.Key, in.RawBody, ids)
	}
	out := make([]taken, len(ids))
	for i, id := range ids {
		out[i] = taken{id, string(custody.DeadLettered)}
	}
	if req.many {
		return &quarantineOutput{http.StatusCreated, struct {
			Items []taken `json:"items"`
		}{out}}, nil
	}
	return &quarantineOutput{http.StatusCreated, out[0]}, nil
}

type outcomeInput struct {
	RawBody []byte `contentType:"application/json"`
}

type outcomeOutput struct {
	Status int
	Body   struct {
		ID      pipeline.ID     `json:"quarantine_id"`
		Outcome pipeline.Result `json:"outcome"`
	}
}

func (s *server) outcome(ctx context.Context, in *outcomeInput) (*outcomeOutput, error) {
	o, err := s.o.Intake.Outcome(ctx, actor(ctx), in.RawBody)
	if err != nil {
		return nil, problemOf(err)
	}
	out := &outcomeOutput{Status: http.StatusCreated}
	out.Body.ID, out.Body.Outcome = o.Item, o.Result
	return out, nil
}

type movedInput struct {
	ID string `path:"id" doc:"The quarantine id that the record was taken under."`
}

// moved takes the caller's statement that its source has moved on: the item may be redriven from then on.
func (s *server) moved(ctx context.Context, in *movedInput) (*struct{}, error) {
	if err := s.o.Intake.SourceMoved(ctx, actor(ctx), pipeline.ID(in.ID)); err != nil {
		return nil, problemOf(err)
	}
	return nil, nil
}
