// Package sdk is for authors of plugins: implement Transformer, call Serve in main.
//
//	type upper struct{}
//
//	func (upper) Configure(config []byte) error { return nil }
//	func (upper) Repair(e *sdk.Envelope) sdk.Result {
//		return sdk.Repaired().SetValue(bytes.ToUpper(e.Value)).Changed("")
//	}
//
//	func main() { sdk.Serve(sdk.About{Name: "acme/upper", Version: "1.0.0"}, upper{}) }
//
// A plugin that delivers a stage of the live lane implements Stager and calls ServeStage; one that does both implements both.
//
// A plugin is pure: no clock, no randomness, no state between calls; ranging over a map is random order too. It runs in a
// sandbox without network and files, as a static program (CGO_ENABLED=0 go build). Standard output belongs to the protocol:
// write to standard error, and never data of a record.
package sdk

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	plugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"reprieve.dev/plugins/wire"
)

// About says what the plugin is; the same as in plugin.yaml.
type About struct {
	Name     string // "acme/normalize-currency"
	Version  string // major.minor.patch
	Doc      string // one sentence
	MaxBatch int    // most envelopes a call; 0: the host's choice
	View     bool   // of a stage: it reads Record.View
}

// Fixed may be implemented beside Transformer or Stager: Begin is called before Configure with the time and the seed that are the
// same in every process of this version and configuration. Nothing else like time or randomness may be used.
type Fixed interface {
	Begin(now time.Time, seed uint64)
}

// Header is one Kafka header; a nil Value is null.
type Header struct {
	Name  string
	Value []byte
}

// Envelope is one record to repair. A nil Key or Value is null, one of length 0 is empty. Do not write to it.
type Envelope struct {
	Item     string
	Topic    string
	Offset   int64
	TimeMS   int64
	TimeType string // none, create, log_append
	Key      []byte
	Value    []byte
	Headers  []Header
	Schema   string // "avro:7", "json", ...
	Identity Identity
	Code     string // why it failed
}

// Identity is who the record is; a repair may not change it.
type Identity struct{ Consumer, Release, Tenant, EventID, Entity, BusinessID, Token, Version string }

// Transformer is what an author writes. Repair is called for one envelope at a time, by one goroutine. A panic ends the process
// and costs the record, as any other crash does.
type Transformer interface {
	// Configure takes the configuration, a JSON object, before the first Repair. The error is shown to the user.
	Configure(config []byte) error
	// Repair answers for one envelope: Repaired, Unchanged or Rejected.
	Repair(e *Envelope) Result
}

// Result is the answer for one envelope. The zero Result is not valid.
type Result struct{ r *wire.Result }

// Repaired starts the answer of an envelope that was changed. What is not set stays as it was.
func Repaired() Result {
	return Result{&wire.Result{Outcome: wire.Outcome_REPAIRED, Report: &wire.Report{}}}
}

// Unchanged says that there is nothing to repair.
func Unchanged() Result { return Result{&wire.Result{Outcome: wire.Outcome_UNCHANGED}} }

// Rejected says that this record cannot be repaired, and why, without data of the record.
func Rejected(reason string) Result {
	return Result{&wire.Result{Outcome: wire.Outcome_REJECTED, Reason: cut(reason)}}
}

// SetValue replaces the value; nil is null.
func (r Result) SetValue(b []byte) Result { r.r.Value = &wire.Nullable{Value: b}; return r }

// SetKey replaces the key; nil is null. A repair needs a declared intent to change the key.
func (r Result) SetKey(b []byte) Result { r.r.Key = &wire.Nullable{Value: b}; return r }

// SetHeaders replaces all headers.
func (r Result) SetHeaders(hs []Header) Result {
	r.r.Headers = &wire.Headers{}
	for _, h := range hs {
		r.r.Headers.Header = append(r.r.Headers.Header, &wire.Header{Name: h.Name, Value: h.Value})
	}
	return r
}

// SetSchema says that the value is written with another schema now.
func (r Result) SetSchema(s string) Result { r.r.Schema = &s; return r }

// Changed names what was changed: JSON pointers into the value, "key", "headers/NAME", "schema".
func (r Result) Changed(paths ...string) Result {
	r.report().Changed = append(r.report().Changed, paths...)
	return r
}

// Note adds a sentence for people, without data of the record.
func (r Result) Note(text string) Result {
	if n := r.report(); len(n.Notes) < wire.NotesMost {
		n.Notes = append(n.Notes, cut(text))
	}
	return r
}

func (r Result) report() *wire.Report {
	if r.r.Report == nil {
		r.r.Report = &wire.Report{}
	}
	return r.r.Report
}

// Wire is the result as the protocol has it, for tests.
func (r Result) Wire() *wire.Result { return r.r }

func cut(s string) string { return s[:min(len(s), wire.TextMost)] }

// Serve serves t until the host ends the process. It does not return. Started by hand it says so and exits 1.
func Serve(about About, t Transformer) { ServeService(NewServer(about, t)) }

// ServeStage serves s until the host ends the process, and its repairs if it is a Transformer as well. It does not return.
func ServeStage(about About, s Stager) { ServeService(NewStageServer(about, s)) }

// ServeService is Serve for a service of your own. It does not return.
func ServeService(s wire.RepairTransformServer) {
	debug.SetGCPercent(200) // batches come and go whole
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig:  plugin.HandshakeConfig{ProtocolVersion: wire.Protocol, MagicCookieKey: wire.CookieKey, MagicCookieValue: wire.CookieValue},
		VersionedPlugins: map[int]plugin.PluginSet{wire.Protocol: {"transform": &served{server: s}}},
		GRPCServer: func(o []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(o, grpc.MaxRecvMsgSize(wire.MessageMost), grpc.MaxSendMsgSize(wire.MessageMost))...)
		},
	})
}

// served registers the service with go-plugin's server.
type served struct {
	plugin.NetRPCUnsupportedPlugin
	server wire.RepairTransformServer
}

func (s *served) GRPCServer(_ *plugin.GRPCBroker, g *grpc.Server) error {
	wire.RegisterRepairTransformServer(g, s.server)
	return nil
}

func (*served) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, fmt.Errorf("a plugin is no client")
}

// NewServer is the gRPC service over t, for tests and for servers of your own.
func NewServer(about About, t Transformer) wire.RepairTransformServer {
	s := &server{about: about, configure: t.Configure, t: t}
	s.stage, _ = t.(Stager)
	s.fixed, _ = t.(Fixed)
	return s
}

// NewStageServer is the gRPC service over st.
func NewStageServer(about About, st Stager) wire.RepairTransformServer {
	s := &server{about: about, configure: st.Configure, stage: st}
	s.t, _ = st.(Transformer)
	s.fixed, _ = st.(Fixed)
	return s
}

type server struct {
	wire.UnimplementedRepairTransformServer
	about      About
	configure  func([]byte) error
	t          Transformer // nil: it delivers no repairs
	stage      Stager      // nil: it delivers no stage
	fixed      Fixed       // nil: it needs neither time nor seed
	mu         sync.Mutex
	configured bool
}

func (s *server) Describe(context.Context, *wire.DescribeRequest) (*wire.DescribeReply, error) {
	r := &wire.DescribeReply{Name: s.about.Name, Version: s.about.Version, ProtocolMinor: 1, Doc: s.about.Doc, MaxBatch: uint32(s.about.MaxBatch), View: s.about.View}
	if s.t != nil {
		r.Delivers = append(r.Delivers, "transform")
	}
	if s.stage != nil {
		r.Delivers = append(r.Delivers, "stage")
	}
	return r, nil
}

func (s *server) Configure(_ context.Context, in *wire.ConfigureRequest) (*wire.ConfigureReply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.configured {
		return nil, status.Error(codes.FailedPrecondition, "configured already")
	}
	if s.fixed != nil {
		s.fixed.Begin(time.UnixMilli(in.ClockMs).UTC(), in.Seed)
	}
	if err := s.configure(in.Config); err != nil {
		return &wire.ConfigureReply{Problem: cut(err.Error())}, nil
	}
	s.configured = true
	return &wire.ConfigureReply{}, nil
}

func (s *server) Repair(_ context.Context, in *wire.RepairRequest) (*wire.RepairReply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.configured {
		return nil, status.Error(codes.FailedPrecondition, "not configured")
	}
	if s.t == nil {
		return nil, status.Error(codes.Unimplemented, "it delivers no repairs")
	}
	out := &wire.RepairReply{Batch: in.Batch, Results: make([]*wire.Result, len(in.Envelopes))}
	for i, e := range in.Envelopes {
		r := s.t.Repair(envelope(e)).r
		if r == nil {
			return nil, status.Error(codes.Internal, "the transformer gave no result")
		}
		r.Item = e.Item
		out.Results[i] = r
	}
	return out, nil
}

func envelope(e *wire.Envelope) *Envelope {
	id := e.GetIdentity()
	out := &Envelope{Item: e.Item, Topic: e.Topic, Offset: e.Offset, TimeMS: e.TimeMs, TimeType: e.TimeType,
		Key: e.GetKey().GetValue(), Value: e.GetValue().GetValue(), Schema: e.Schema, Code: e.Code,
		Identity: Identity{id.GetConsumer(), id.GetRelease(), id.GetTenant(), id.GetEventId(), id.GetEntity(), id.GetBusinessId(), id.GetToken(), id.GetVersion()}}
	if hs := e.GetHeaders().GetHeader(); len(hs) > 0 {
		out.Headers = make([]Header, len(hs))
		for i, h := range hs {
			out.Headers[i] = Header{Name: h.Name, Value: h.Value}
		}
	}
	return out
}
