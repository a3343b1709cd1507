package worker

import (
	"path/filepath"
	"strings"

	"reprieve.dev/config"
)

// IsSuite tells whether a file holds tests of a pipeline rather than a pipeline.
func IsSuite(file string) bool {
	name := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(file), ".yaml"), ".yml")
	return strings.HasSuffix(name, "_test") && name != filepath.Base(file)
}

// Suite is one file of tests of a pipeline. Paths count from its folder.
type Suite struct {
	APIVersion string                 `yaml:"apiVersion" required:"true" enum:"reprieve/v1" doc:"Version of the file form."`
	Pipeline   string                 `yaml:"pipeline" required:"true" doc:"The pipeline file."`
	Worker     string                 `yaml:"worker" doc:"The worker file; the one that the command names if not said. Secrets are not needed: fixed keys stand for them."`
	Env        map[string]string      `yaml:"env" doc:"Variables of the files; the environment is not read."`
	Schemas    SuiteSchemas           `yaml:"schemas" doc:"What stands for the registry: a folder as try --schemas takes it, or id or GUID to a file, or to a code that asking for it fails with; a subject to the id of its newest schema."`
	Lookups    SuiteLookups           `yaml:"lookups" doc:"What stands for HTTP services: answers by the name of the enrich stage, the first that fits the URL."`
	Tables     SuiteTables            `yaml:"tables" doc:"What stands for the topics of look-ups: by the name of the enrich stage, key to value. Avro values are written as {avro: ID, json: ...}."`
	Effects    SuiteLookups           `yaml:"effects" doc:"What stands for the services that routes call: answers by the name of the effect, the first that fits the URL. An effect without answers takes every call."`
	Now        string                 `yaml:"now" default:"2026-01-01T00:00:00Z" doc:"The time to decide at, RFC 3339."`
	Records    map[string]SuiteRecord `yaml:"records" doc:"Records by name, for from."`
	Tests      []SuiteTest            `yaml:"tests" required:"true" doc:"The tests."`

	File string `yaml:"-"`
}

// SuiteTest is one test: records and what is expected of them.
type SuiteTest struct {
	Name    string        `yaml:"name" required:"true" doc:"What is tested, as a sentence."`
	Now     string        `yaml:"now" doc:"The time to decide at, if not that of the suite."`
	Attempt int           `yaml:"attempt" doc:"Retries that have failed already."`
	Lookups SuiteLookups  `yaml:"lookups" doc:"Answers that are asked before those of the suite."`
	Effects SuiteLookups  `yaml:"effects" doc:"Answers of called services that are asked before those of the suite."`
	Record  *SuiteRecord  `yaml:"record" doc:"The one record."`
	Records []SuiteRecord `yaml:"records" doc:"Several records, each a batch of its own, in order."`
	File    string        `yaml:"file" doc:"A file of records, one JSON object a line, as try reads them."`
	Expect  SuiteExpects  `yaml:"expect" required:"true" doc:"What is expected of each record: one mapping for all, or a list with one for each."`
}

// SuiteLookups are answers by the name of a stage or an effect.
type SuiteLookups map[string][]SuiteReply

// SuiteTables are rows by the name of a stage and their key.
type SuiteTables map[string]map[string]*SuiteBytes

// SuiteReply is one answer of an HTTP service.
type SuiteReply struct {
	URL    string      `yaml:"url" doc:"The exact URL; any if not said."`
	Status int         `yaml:"status" default:"200" doc:"HTTP status."`
	After  string      `yaml:"retry_after" doc:"Retry-After, as a duration."`
	JSON   config.Node `yaml:"json" doc:"Body as JSON."`
	Text   *string     `yaml:"text" doc:"Body as text."`
	Fail   string      `yaml:"fail" doc:"Code that the call fails with instead, for example ERR_HTTP_TIMEOUT."`
}

// SuiteExpect is what is expected of one record. What is not said is not compared.
type SuiteExpect struct {
	Action         string                 `yaml:"action" enum:"deliver,retry,quarantine,park,range,pause,hold" doc:"What is done with it; hold is a retry that is not due."`
	Code           string                 `yaml:"code" doc:"Code of its failure; none is no failure."`
	Decided        string                 `yaml:"decided" doc:"Code of the decision, when it says more than the failure: ERR_RETRY_EXHAUSTED."`
	Class          string                 `yaml:"class" doc:"Class of its failure."`
	Stage          string                 `yaml:"stage" doc:"Stage that it failed in."`
	Reason         string                 `yaml:"reason" doc:"Part of the reason."`
	Topic          string                 `yaml:"topic" doc:"Topic that it is written to."`
	Effect         string                 `yaml:"effect" doc:"Effect that is called with it; headers and value are then those of the request."`
	URL            string                 `yaml:"url" doc:"URL that is called."`
	Method         string                 `yaml:"method" doc:"Method of the call."`
	Attempt        *int                   `yaml:"attempt" doc:"Failed retries by then."`
	Delay          *config.Duration       `yaml:"delay" doc:"Wait before the retry."`
	Messages       *int                   `yaml:"messages" doc:"Number of messages and calls."`
	Key            *SuiteBytes            `yaml:"key" doc:"Key of the message."`
	Value          *SuiteBytes            `yaml:"value" doc:"Value of the message."`
	Headers        map[string]config.Node `yaml:"headers" doc:"Header name to text, or null: the last of that name."`
	WithoutHeaders []string               `yaml:"without_headers" doc:"Headers that must not be there."`
	View           map[string]config.Node `yaml:"view" doc:"JSON pointer into what leaves to the value there; null is null or absent."`
	MustNotContain []string               `yaml:"must_not_contain" doc:"Texts that must stand nowhere in what leaves: values, keys, headers, reason."`
}

// SuiteExpects is one expectation for all records, or one for each.
type SuiteExpects struct {
	All  *SuiteExpect
	Each []SuiteExpect
}

// UnmarshalConfig reads a mapping or a list.
func (e *SuiteExpects) UnmarshalConfig(n config.Node) config.Problems {
	if n.IsList() {
		var ps config.Problems
		for _, item := range n.Items() {
			var one SuiteExpect
			ps = append(ps, item.Decode(&one)...)
			e.Each = append(e.Each, one)
		}
		return ps
	}
	e.All = &SuiteExpect{}
	return n.Decode(e.All)
}

// of is what is expected of record i.
func (e *SuiteExpects) of(i int) *SuiteExpect {
	if e.All != nil {
		return e.All
	}
	return &e.Each[i]
}

// SuiteSchemas stand for the registry.
type SuiteSchemas struct {
	Folder string
	Files  map[string]string
}

// UnmarshalConfig reads a folder or a mapping.
func (s *SuiteSchemas) UnmarshalConfig(n config.Node) config.Problems {
	if text, ok := n.Text(); ok {
		s.Folder = text
		return nil
	}
	return n.Decode(&s.Files)
}

// Validate finds tests that test nothing.
func (s *Suite) Validate(n config.Node) (ps config.Problems) {
	if n.Key("tests").IsList() && len(s.Tests) == 0 {
		ps = append(ps, n.Problem("tests", config.CodeMissing, "the suite has no test", ""))
	}
	seen := map[string]bool{}
	for _, item := range n.Key("tests").Items() {
		if name, ok := item.Key("name").Text(); ok && seen[name] {
			ps = append(ps, item.Problem("name", config.CodeValue, "two tests have this name", "say what is different"))
		} else {
			seen[name] = true
		}
	}
	return ps
}

// Validate finds records without a test and tests without records.
func (t *SuiteTest) Validate(n config.Node) (ps config.Problems) {
	given := 0
	for _, set := range []bool{t.Record != nil, len(t.Records) > 0, t.File != ""} {
		if set {
			given++
		}
	}
	if given != 1 {
		ps = append(ps, n.Problem("record", config.CodeMissing, "a test has exactly one of record, records and file", ""))
	}
	if t.Attempt < 0 || t.Attempt > 255 {
		ps = append(ps, n.Problem("attempt", config.CodeValue, "failed retries are between 0 and 255", ""))
	}
	if records := max(len(t.Records), 1); t.File == "" && t.Expect.All == nil && len(t.Expect.Each) != records {
		ps = append(ps, n.Problem("expect", config.CodeValue, "there are not as many expectations as records", "write one for each, or one mapping for all"))
	}
	return ps
}

// LoadSuite reads a suite and names every problem.
func LoadSuite(file string, opt config.Options) (*Suite, config.Problems) {
	opt.Env = nil
	doc, ps := config.Read(file, opt)
	if doc == nil {
		return nil, ps
	}
	s := &Suite{File: file}
	ps = append(ps, doc.Decode(s)...)
	return s, ps.Sorted()
}

// at is a path of the suite.
func (s *Suite) at(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(s.File), path)
}
