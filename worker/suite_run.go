package worker

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/call"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/engine"
	"reprieve.dev/pipeline/stage"
	"reprieve.dev/transforms"
)

// SuiteResult is how the tests of one file ended.
type SuiteResult struct {
	File     string       `json:"file"`
	Pipeline string       `json:"pipeline"`
	Tests    []TestResult `json:"tests"`
	Failed   int          `json:"failed"`
}

// TestResult is how one test ended.
type TestResult struct {
	Name        string       `json:"name"`
	OK          bool         `json:"ok"`
	Differences []Difference `json:"differences,omitempty"`
	Error       string       `json:"error,omitempty"` // the test itself cannot be run
	Seconds     float64      `json:"seconds"`
}

// Difference is one thing that is not as expected.
type Difference struct {
	Record   int    `json:"record"` // from 1; 0 is none of them
	Position string `json:"position,omitempty"`
	What     string `json:"what"` // "code", "headers.region", "view/customer/email"
	Want     string `json:"want"`
	Got      string `json:"got"`
	Reason   string `json:"reason,omitempty"` // why the record failed, where that helps
}

// SuiteOptions are what running suites needs.
type SuiteOptions struct {
	Worker string // the worker file, unless the suite names one
	Files  config.Options
	Kinds  []pipeline.Kind
	Meter  pipeline.Meter
	Clock  pipeline.Clock         // measures; what tests decide at is written in them
	Only   func(name string) bool // nil: all
}

// suiteSecret stands for every secret: tests give the same ids and signatures everywhere, and need no key.
const suiteSecret = "for tests only: 32 bytes of text"

// RunSuite runs the tests of a suite over the same stages, decisions and messages as a worker, without broker and network.
// Problems are those of the suite, the worker file or the pipeline file; otherwise every test has a result.
func RunSuite(ctx context.Context, s *Suite, o SuiteOptions) (SuiteResult, config.Problems) {
	out := SuiteResult{File: s.File, Tests: []TestResult{}}
	worker := o.Worker
	if s.Worker != "" {
		worker = s.at(s.Worker)
	}
	file := s.at(s.Pipeline)
	plan, ps := Load(Files{Worker: worker, Pipelines: []string{file}}, o.Kinds, s.options(o.Files, filepath.Dir(worker)))
	if len(ps) > 0 {
		return out, ps
	}
	if len(plan.Pipelines) != 1 {
		return out, config.Problems{{File: s.File, Path: "pipeline", Code: config.CodeValue, Text: file + " is not one pipeline file"}}
	}
	out.Pipeline = plan.Pipelines[0].Config.Name
	for i := range s.Tests {
		t := &s.Tests[i]
		if o.Only != nil && !o.Only(t.Name) {
			continue
		}
		begun := o.Clock()
		r := TestResult{Name: t.Name}
		var err error
		if r.Differences, err = runTest(ctx, s, t, plan, o); err != nil {
			r.Error = err.Error()
		}
		r.OK = err == nil && len(r.Differences) == 0
		r.Seconds = o.Clock().Sub(begun).Seconds()
		if !r.OK {
			out.Failed++
		}
		out.Tests = append(out.Tests, r)
	}
	return out, nil
}

// options read no environment and need no secret.
func (s *Suite) options(o config.Options, base string) config.Options {
	read := o.ReadFile
	o.Env = func(name string) (string, bool) { v, ok := s.Env[name]; return v, ok }
	o.ReadFile = func(path string) ([]byte, error) {
		data, err := read(path)
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return data, err
		}
		if !filepath.IsAbs(path) {
			if again, err2 := read(filepath.Join(base, path)); err2 == nil {
				return again, nil
			}
		}
		if ext := filepath.Ext(path); ext == ".yaml" || ext == ".yml" {
			return nil, err
		}
		return []byte(suiteSecret), nil
	}
	return o
}

func runTest(ctx context.Context, s *Suite, t *SuiteTest, plan *Plan, o SuiteOptions) ([]Difference, error) {
	pp := plan.Pipelines[0]
	text := t.Now
	if text == "" {
		text = s.Now
	}
	now, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return nil, pipeline.Errorf(pipeline.CodeInputInvalid, s.File, "now %q is not RFC 3339", text)
	}
	registry, err := s.registry(o.Files.ReadFile)
	if err != nil {
		return nil, err
	}
	keys, err := NewKeys(config.Keys{
		HMAC: []config.HMACKey{{ID: "test", Secret: config.NewSecret(suiteSecret)}}, Identity: config.IdentityKey{ID: "test", Secret: config.NewSecret(suiteSecret)}})
	if err != nil {
		return nil, err
	}
	m := &maker{suite: s, topic: pp.Config.Source.Topics[0], now: now, registry: registry, read: o.Files.ReadFile}
	services := &services{ctx: ctx, suite: s, test: t, maker: m}
	env := pipeline.Env{Log: slog.New(slog.DiscardHandler), Meter: o.Meter, Clock: func() time.Time { return now }, Resource: services.resource}
	opts, shut, err := pp.Assemble(ctx, plan, keys, env, func(string) (codec.Registry, error) { return registry, nil })
	if err != nil {
		return nil, err
	}
	defer func() { _ = shut() }() // nothing is open: no service was called
	opts.Cluster = "test"
	opts.Seal.Letters = false // what is compared is what a letter says before it is sealed
	trial := engine.NewTrial(opts)
	effects := Calls(opts.Stages)
	trial.Answer = func(m *pipeline.Message) *pipeline.Failure { return services.called(ctx, m, effects[m.Topic]) }
	tps, recs, err := m.records(ctx, t)
	if err != nil {
		return nil, err
	}
	if t.Expect.All == nil && len(t.Expect.Each) != len(recs) {
		return nil, pipeline.Errorf(pipeline.CodeInputInvalid, s.File, "%d records and %d expectations", len(recs), len(t.Expect.Each))
	}
	var differences []Difference
	for i := range recs {
		b := opts.Pool.Get()
		b.TP, b.Recs = tps[i], append(b.Recs[:0], recs[i])
		at := pipeline.Position{TP: tps[i], Offset: recs[i].Offset}
		if t.Attempt > 0 {
			b.Lane = pipeline.Retry
			b.Recs[0].Trail = &pipeline.Trail{Attempt: uint8(t.Attempt), Original: at, At: at, OriginalMS: recs[i].TimeMS, TimeType: recs[i].TimeType}
		}
		err := trial.Try(transforms.Twice(ctx), b, func(tried engine.Tried) error {
			c := comparison{record: i + 1, position: at.String(), now: now, maker: m, effects: effects}
			if err := c.all(ctx, t.Expect.of(i), tried); err != nil {
				return err
			}
			differences = append(differences, c.found...)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	for _, asked := range services.unanswered {
		differences = append(differences, Difference{What: asked[0], Want: "an answer to " + asked[1], Got: "none that fits"})
	}
	return differences, nil
}

// registry stands for the registry of the pipeline.
func (s *Suite) registry(read func(string) ([]byte, error)) (codec.Registry, error) {
	if s.Schemas.Folder != "" {
		return codec.Folder(s.at(s.Schemas.Folder))
	}
	r := &schemas{ids: map[int32]schemaAnswer{}, guids: map[string]schemaAnswer{}, subjects: map[string]int32{}}
	for name, what := range s.Schemas.Files {
		if id, err := strconv.ParseInt(what, 10, 32); err == nil && id >= 0 {
			r.subjects[name] = int32(id)
			continue
		}
		ref := pipeline.SchemaRef{}
		if id, err := strconv.ParseInt(name, 10, 32); err == nil && id >= 0 {
			ref.ID = int32(id)
		} else {
			ref.GUID = strings.ToLower(name)
		}
		var a schemaAnswer
		if pipeline.Known(pipeline.Code(what)) {
			a.failure = &pipeline.Failure{Code: pipeline.Code(what), Params: []pipeline.Param{pipeline.Str("schema", name)}}
		} else {
			ref.Format = map[string]string{".avsc": codec.FormatAvro, ".json": codec.FormatJSONSchema, ".proto": codec.FormatProtobuf}[filepath.Ext(what)]
			text, err := read(s.at(what))
			if err != nil || ref.Format == "" {
				return nil, pipeline.Errorf(pipeline.CodeInputInvalid, s.File, "the schema %s cannot be read: it is neither a file .avsc, .json or .proto nor a code", what)
			}
			if a.schema, a.failure = codec.ParseSchema(ref, string(text)); a.failure != nil {
				return nil, pipeline.Errorf(pipeline.CodeInputInvalid, what, "%s", a.failure.Reason())
			}
		}
		if ref.GUID != "" {
			r.guids[ref.GUID] = a
		} else {
			r.ids[ref.ID] = a
		}
	}
	return r, nil
}

type schemas struct {
	ids      map[int32]schemaAnswer
	guids    map[string]schemaAnswer
	subjects map[string]int32 // id of the newest schema
}

type schemaAnswer struct {
	schema  *codec.Schema
	failure *pipeline.Failure
}

func (a schemaAnswer) of(known bool, name string) (*codec.Schema, *pipeline.Failure) {
	if !known {
		return nil, &pipeline.Failure{Code: pipeline.CodeSchemaUnknown, Params: []pipeline.Param{pipeline.Str("schema", name)}}
	}
	if a.failure != nil { // each record has a failure of its own: stages write into it
		f := *a.failure
		return nil, &f
	}
	return a.schema, nil
}

// ByID implements codec.Registry.
func (r *schemas) ByID(_ context.Context, id int32) (*codec.Schema, *pipeline.Failure) {
	a, ok := r.ids[id]
	return a.of(ok, "id:"+strconv.Itoa(int(id)))
}

// ByGUID implements codec.Registry.
func (r *schemas) ByGUID(_ context.Context, guid string) (*codec.Schema, *pipeline.Failure) {
	a, ok := r.guids[guid]
	return a.of(ok, "guid:"+guid)
}

// Latest is the schema that the suite names as a subject's newest, or the code that asking for it fails with.
func (r *schemas) Latest(ctx context.Context, subject string) (*codec.Schema, *pipeline.Failure) {
	if id, ok := r.subjects[subject]; ok {
		return r.ByID(ctx, id)
	}
	a, ok := r.guids[strings.ToLower(subject)]
	return a.of(ok && a.failure != nil, "subject:"+subject)
}

// services stand for the HTTP services and the topics of look-ups of one test.
type services struct {
	ctx   context.Context
	suite *Suite
	test  *SuiteTest
	maker *maker

	mu         sync.Mutex
	unanswered [][2]string // what, URL
}

func (s *services) resource(kind, name string) (any, error) {
	if kind == stage.ResourceHTTP {
		return &service{s, "lookups." + name, name, [2]SuiteLookups{s.test.Lookups, s.suite.Lookups}}, nil
	}
	if kind == stage.ResourceTopic {
		return rows{s, name}, nil
	}
	return nil, nil
}

// rows stand for the topic that a look-up follows.
type rows struct {
	of    *services
	stage string
}

// Follow gives the rows that the suite has.
func (r rows) Follow(_, _ string, each func(context.Context, *pipeline.Record) error) (pipeline.Close, error) {
	table := r.of.suite.Tables[r.stage]
	for _, key := range slices.Sorted(maps.Keys(table)) {
		value, err := r.of.maker.bytes(r.of.ctx, table[key], nil, nil)
		if err != nil {
			return nil, err
		}
		if err := each(r.of.ctx, &pipeline.Record{Key: []byte(key), Value: value}); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// called is the answer of the service that an effect calls: one that the suite says nothing of takes every call.
func (s *services) called(ctx context.Context, m *pipeline.Message, e call.Effect) *pipeline.Failure {
	r, f := e.Request(m)
	if f == nil && len(s.test.Effects[m.Topic])+len(s.suite.Effects[m.Topic]) > 0 {
		stands := &service{s, "effects." + m.Topic, m.Topic, [2]SuiteLookups{s.test.Effects, s.suite.Effects}}
		_, f = stands.Do(ctx, r)
	}
	if f != nil {
		f.Stage = e.Stage
	}
	return f
}

type service struct {
	of      *services
	what    string // in differences
	name    string
	answers [2]SuiteLookups
}

// Do implements call.Doer: the first answer that fits.
func (s *service) Do(_ context.Context, r call.Request) (call.Answer, *pipeline.Failure) {
	for _, lookups := range s.answers {
		for _, reply := range lookups[s.name] {
			if reply.URL != "" && reply.URL != r.URL {
				continue
			}
			if reply.Fail != "" {
				return call.Answer{}, &pipeline.Failure{Code: pipeline.Code(reply.Fail), Params: []pipeline.Param{pipeline.Str("target", s.name)}}
			}
			after, _ := config.ParseDuration(reply.After) // Validate has read it
			a := call.Answer{Status: reply.Status}
			switch {
			case reply.Text != nil:
				a.Body = []byte(*reply.Text)
			case reply.JSON.Exists():
				a.Body, _ = reply.JSON.JSON() // plain data
			}
			return a, call.Judge(s.name, r, reply.Status, after)
		}
	}
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.unanswered = append(s.of.unanswered, [2]string{s.what, r.URL})
	return call.Answer{}, &pipeline.Failure{Code: pipeline.CodeHTTPUnavailable, Params: []pipeline.Param{pipeline.Str("target", s.name), pipeline.Str("what", "the test has no answer")}}
}

// Validate checks one answer.
func (r *SuiteReply) Validate(n config.Node) (ps config.Problems) {
	if r.Status < 100 || r.Status > 599 {
		ps = append(ps, n.Problem("status", config.CodeValue, "it is not an HTTP status", ""))
	}
	if r.After != "" {
		if _, err := config.ParseDuration(r.After); err != nil {
			ps = append(ps, n.Problem("retry_after", config.CodeValue, "it is not a duration", "write 2s"))
		}
	}
	if r.Fail != "" && !pipeline.Known(pipeline.Code(r.Fail)) {
		ps = append(ps, n.Problem("fail", config.CodeValue, "there is no such code", "see reprieve explain"))
	}
	return ps
}
