package sdk

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"reprieve.dev/plugins/wire"
)

// Record is one record of the live lane, as the redact stage left it. Do not write to it.
type Record struct {
	Topic     string
	Partition int32
	Offset    int64
	TimeMS    int64
	TimeType  string // none, create, log_append
	Key       []byte
	Value     []byte
	Headers   []Header
	Schema    string // "avro:7", "json", ...
	View      []byte // the decoded record as JSON, with About.View; empty: it has none (a delete marker)
}

// Stager is what the author of a live stage writes. Process is called for one record at a time, by one goroutine.
type Stager interface {
	// Configure takes the configuration, a JSON object, before the first Process. The error is shown to the user.
	Configure(config []byte) error
	// Process answers for one record: Pass, possibly with additions, or Reject.
	Process(r *Record) Mark
}

// Mark is the answer for one record. The zero Mark lets it go on.
type Mark struct{ m *wire.Mark }

// Pass lets the record go on.
func Pass() Mark { return Mark{&wire.Mark{}} }

// Reject fails the record by a rule, whose name has 1 to 64 of a-z, 0-9, "_", "-" and ".". Records of one rule are one group in
// quarantine.
func Reject(rule string) Mark { return Mark{&wire.Mark{Reject: rule}} }

// Header adds a header; a nil value is null.
func (m Mark) Header(name string, value []byte) Mark {
	m.m.Headers = append(m.m.Headers, &wire.Header{Name: name, Value: value})
	return m
}

// Text adds a field that conditions read as view.NAME. The record must not have one of the name.
func (m Mark) Text(name, value string) Mark {
	return m.field(&wire.Field{Name: name, Value: &wire.Field_Text{Text: value}})
}

// Integer adds a whole number.
func (m Mark) Integer(name string, value int64) Mark {
	return m.field(&wire.Field{Name: name, Value: &wire.Field_Integer{Integer: value}})
}

// Number adds a number with a fraction.
func (m Mark) Number(name string, value float64) Mark {
	return m.field(&wire.Field{Name: name, Value: &wire.Field_Number{Number: value}})
}

// Bool adds a truth value.
func (m Mark) Bool(name string, value bool) Mark {
	return m.field(&wire.Field{Name: name, Value: &wire.Field_Boolean{Boolean: value}})
}

func (m Mark) field(f *wire.Field) Mark { m.m.Fields = append(m.m.Fields, f); return m }

// Wire is the mark as the protocol has it, for tests.
func (m Mark) Wire() *wire.Mark { return m.m }

func (s *server) Process(_ context.Context, in *wire.ProcessRequest) (*wire.ProcessReply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.configured:
		return nil, status.Error(codes.FailedPrecondition, "not configured")
	case s.stage == nil:
		return nil, status.Error(codes.Unimplemented, "it delivers no stage")
	}
	out := &wire.ProcessReply{Batch: in.Batch, Records: make([]*wire.Mark, len(in.Records))}
	for i, r := range in.Records {
		m := s.stage.Process(record(in, r)).m
		if m == nil {
			m = &wire.Mark{}
		}
		m.Offset = r.Offset
		out.Records[i] = m
	}
	return out, nil
}

func record(in *wire.ProcessRequest, r *wire.LiveRecord) *Record {
	out := &Record{Topic: in.Topic, Partition: in.Partition, Offset: r.Offset, TimeMS: r.TimeMs, TimeType: r.TimeType,
		Key: r.GetKey().GetValue(), Value: r.GetValue().GetValue(), Schema: r.Schema, View: r.View}
	if hs := r.GetHeaders().GetHeader(); len(hs) > 0 {
		out.Headers = make([]Header, len(hs))
		for i, h := range hs {
			out.Headers[i] = Header{Name: h.Name, Value: h.Value}
		}
	}
	return out
}
