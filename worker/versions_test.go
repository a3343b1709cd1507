package worker

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"reprieve.dev/config"
	"reprieve.dev/examples/billing"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/control"
	"reprieve.dev/pipeline/decide"
	"reprieve.dev/pipeline/stage"
	"reprieve.dev/seal"
	"reprieve.dev/tests/conformance/script"
)

// billingPlan is the pipeline billing of the example, with text put in place of another in its files.
func billingPlan(t *testing.T, replace ...string) (*Plan, *PipelinePlan) {
	t.Helper()
	dir := t.TempDir()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(os.CopyFS(dir, billing.Files()))
	check(os.MkdirAll(filepath.Join(dir, "keys"), 0o700))
	for _, k := range []string{"hmac", "identity"} {
		check(seal.WriteSecret(filepath.Join(dir, "keys", k), 32))
	}
	for i := 0; i+2 < len(replace); i += 3 {
		file := filepath.Join(dir, replace[i])
		text, err := os.ReadFile(file)
		check(err)
		if !strings.Contains(string(text), replace[i+1]) {
			t.Fatalf("%s has no %q", file, replace[i+1])
		}
		check(os.WriteFile(file, []byte(strings.ReplaceAll(string(text), replace[i+1], replace[i+2])), 0o600))
	}
	plan, ps := Load(Files{Worker: filepath.Join(dir, "reprieve.yaml"), Pipelines: []string{filepath.Join(dir, "pipelines", "billing.yaml")}},
		stage.Kinds(), config.Options{
			Env: func(string) (string, bool) { return "", false },
			ReadFile: func(path string) ([]byte, error) {
				if !filepath.IsAbs(path) {
					path = filepath.Join(dir, path)
				}
				return os.ReadFile(path)
			},
		})
	if len(ps) > 0 {
		t.Fatal(ps)
	}
	return plan, plan.Pipelines[0]
}

// scene is a control topic, followed for one pipeline.
type scene struct {
	t     *testing.T
	c     *script.Cluster
	board *control.Board
	ann   *seal.Signer
	v     *versions
	log   bytes.Buffer
}

const controlTopic = "reprieve.control"

func onStage(t *testing.T, f func(t *testing.T, s *scene), replace ...string) {
	_, pp := billingPlan(t, replace...)
	synctest.Test(t, func(t *testing.T) {
		s := &scene{t: t, c: script.New(time.Now().UnixMilli())}
		s.c.CreateTopic(controlTopic, 1, map[string]string{"cleanup.policy": "compact"})
		var err error
		if s.ann, err = seal.NewSigner("ann", bytes.Repeat([]byte{1}, 32)); err != nil {
			t.Fatal(err)
		}
		a := &control.Authority{Approvers: []control.Approver{{Subject: "ann", Key: s.ann.Verifier(), Activates: true}}}
		s.board = control.NewBoard(control.Options{Topic: controlTopic, Reader: s.c.Log(nil), Sink: s.c.Sink(script.SinkOptions{}), Authority: a, Clock: time.Now})
		s.v = newVersions(pp, s.board, slog.New(slog.NewTextHandler(&s.log, nil)), NewMeter(prometheus.NewRegistry()))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = s.board.Run(ctx) }()
		defer func() { cancel(); <-ended }()
		if err := s.board.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		f(t, s)
	})
}

// activate publishes a policy as a person's own tool would: nothing but the signature is checked.
func (s *scene) activate(text []byte, version string, share uint8) {
	s.t.Helper()
	snap, err := s.board.Snapshot()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.board.Publish(s.t.Context(), s.ann, snap.NewActivation("billing", "ann", version, share, text, "", "why")); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) text(f decide.File) ([]byte, string) {
	s.t.Helper()
	text, err := seal.Canonical(f)
	if err != nil {
		s.t.Fatal(err)
	}
	return text, seal.SHA256(text)
}

// inForce are the versions that decide for some of 100 partitions.
func (s *scene) inForce() map[pipeline.Digest]int {
	out := map[pipeline.Digest]int{}
	for n := range int32(100) {
		out[s.v.policy(pipeline.TP{Topic: "billing.invoices.v1", Partition: n}).Digest()]++
	}
	return out
}

func TestTheTopicSaysWhichVersionIsInForce(t *testing.T) {
	onStage(t, func(t *testing.T, s *scene) {
		file := s.v.pp.Policy.Digest()
		if got := s.inForce(); len(got) != 1 || got[file] != 100 {
			t.Errorf("before anything: %v", got)
		}
		a, va := s.text(decide.File{Policy: "a", Reject: []decide.RejectRule{{Name: "dollar", When: `view.note == "$$ ${x}"`}}})
		s.activate(a, va, 30)
		if got := s.inForce(); got[file] != 70 || got[pipeline.Digest(va)] != 30 {
			t.Errorf("as a canary: %v", got)
		}
		if active, canary := s.v.status(); active != string(file) || canary != va {
			t.Errorf("status %s, %s", active, canary)
		}
		s.activate(a, va, 100)
		if got := s.inForce(); len(got) != 1 || got[pipeline.Digest(va)] != 100 {
			t.Errorf("for all: %v", got)
		}
		s.activate(nil, control.FileVersion, 100)
		if got := s.inForce(); len(got) != 1 || got[file] != 100 {
			t.Errorf("the file again: %v", got)
		}
		if !strings.Contains(s.log.String(), "the policy file is not in force") || strings.Contains(s.log.String(), "UNUSABLE") {
			t.Errorf("log %s", s.log.String())
		}
	})
}

// What a worker cannot use changes nothing, and it says so once.
func TestAVersionThatCannotBeUsedChangesNothing(t *testing.T) {
	big := make([]decide.RejectRule, 40)
	for i := range big {
		big[i] = decide.RejectRule{Name: strings.Repeat("n", i+1), When: `view.x == "` + strings.Repeat("x", 7000) + `"`}
	}
	for name, f := range map[string]decide.File{
		"it does not compile":        {Reject: []decide.RejectRule{{Name: "r", When: "view.amount >"}}},
		"it gives a code of another": {Reject: []decide.RejectRule{{Name: "r", When: "true", Code: "ERR_HTTP_TIMEOUT"}}},
		"it goes up the ladder":      {Decide: []decide.DecideRule{{When: "true", Action: "deliver"}}},
		"it is larger than allowed":  {Reject: big},
	} {
		t.Run(name, func(t *testing.T) {
			onStage(t, func(t *testing.T, s *scene) {
				a, va := s.text(decide.File{Policy: "a"})
				s.activate(a, va, 100)
				b, vb := s.text(f)
				s.activate(b, vb, 100)
				for range 3 {
					if got := s.inForce(); len(got) != 1 || got[pipeline.Digest(va)] != 100 {
						t.Errorf("in force: %v", got)
					}
				}
				if n := strings.Count(s.log.String(), "ALERT_POLICY_UNUSABLE"); n != 1 || !strings.Contains(s.log.String(), vb) {
					t.Errorf("%d alarms in %s", n, s.log.String())
				}
			})
		})
	}
	t.Run("its text is another", func(t *testing.T) {
		onStage(t, func(t *testing.T, s *scene) {
			a, _ := s.text(decide.File{Policy: "a"})
			_, vb := s.text(decide.File{Policy: "b"})
			s.activate(a, vb, 100)
			if got := s.inForce(); got[s.v.pp.Policy.Digest()] != 100 {
				t.Errorf("in force: %v", got)
			}
			if !strings.Contains(s.log.String(), "ALERT_POLICY_UNUSABLE") {
				t.Error("no alarm")
			}
		})
	})
}

func TestRejectRulesNeedAStageThatAsksThem(t *testing.T) {
	onStage(t, func(t *testing.T, s *scene) {
		a, va := s.text(decide.File{Policy: "a", Reject: []decide.RejectRule{{Name: "r", When: "true"}}})
		s.activate(a, va, 100)
		if got := s.inForce(); got[s.v.pp.Policy.Digest()] != 100 || !strings.Contains(s.log.String(), "ALERT_POLICY_UNUSABLE") {
			t.Errorf("in force %v, log %s", got, s.log.String())
		}
		b, vb := s.text(decide.File{Policy: "b", Decide: []decide.DecideRule{{When: "attempt > 2", Action: "quarantine"}}})
		s.activate(b, vb, 100)
		if got := s.inForce(); got[pipeline.Digest(vb)] != 100 {
			t.Errorf("in force %v", got)
		}
	}, "pipelines/billing.yaml", "  - classify: {policy: ../policies/billing.yaml}\n", "",
		"pipelines/billing.yaml", ", allow: {billing.invoices.v1: [acme, globex]}", "")
}

// The platform's bounds clamp what travels, too.
func TestBoundsClampAnActivatedPolicy(t *testing.T) {
	onStage(t, func(t *testing.T, s *scene) {
		five := 5
		a, va := s.text(decide.File{Policy: "a", Decide: []decide.DecideRule{{When: "true", Attempts: &five}}})
		s.activate(a, va, 100)
		p := s.v.policy(pipeline.TP{Topic: "billing.invoices.v1"})
		f := pipeline.Facts{Code: pipeline.CodeHTTPTimeout, Class: pipeline.Transient, Attempt: 2, NowMS: 1}
		if d := p.Decide(f); string(p.Digest()) != va || d.Action != pipeline.ActQuarantine || d.Code != pipeline.CodeRetryExhausted {
			t.Errorf("after the two retries that the platform allows: %+v", d)
		}
	}, "reprieve.yaml", "\nhttp:", "\nbounds: {attempts: 2}\nhttp:")
}

// fixedRegistry answers with one schema for every subject.
type fixedRegistry struct {
	codec.Registry
	schema *codec.Schema
	asked  []string
}

func (r *fixedRegistry) Latest(_ context.Context, subject string) (*codec.Schema, *pipeline.Failure) {
	r.asked = append(r.asked, subject)
	if r.schema == nil {
		return nil, &pipeline.Failure{Code: pipeline.CodeRegistryUnavailable}
	}
	return r.schema, nil
}

func TestPathsThatNoRecordHasAreRefusedAllAtOnce(t *testing.T) {
	_, pp := billingPlan(t)
	schema, f := codec.ParseSchema(pipeline.SchemaRef{Format: codec.FormatAvro, ID: 7}, billing.Schema())
	if f != nil {
		t.Fatal(f.Cause)
	}
	file := filepath.Join(t.TempDir(), "p.yaml")
	text := `reject:
  - {name: a, when: 'view.currancy == "XXX"'}
  - {name: b, when: 'view.customer.emial == "" && has(view.later) && view.later > 3'}
  - {name: c, when: 'view.lines[0].amount_minor > 3 && view.attributes.anything == ""'}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p, doc, ps := pp.ReadPolicy(file, config.Options{ReadFile: os.ReadFile})
	if len(ps) > 0 {
		t.Fatal(ps)
	}
	reg := &fixedRegistry{schema: schema}
	open := func(string) (codec.Registry, error) { return reg, nil }
	ps, notes := pp.CheckPolicy(t.Context(), p, doc, open)
	got := ps.Error()
	if len(ps) != 2 || len(notes) != 0 || len(reg.asked) != 1 || reg.asked[0] != "billing.invoices.v1-value" {
		t.Fatalf("problems %s, notes %v, asked %v", got, notes, reg.asked)
	}
	for _, want := range []string{file + ":2:", "reject[0].when: no record of billing.invoices.v1 (avro:7) has /currancy (did you mean /currency?)",
		"reject[1].when: no record of billing.invoices.v1 (avro:7) has /customer/emial (did you mean /customer/email?)"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in %s", want, got)
		}
	}
	reg.schema = nil
	ps, notes = pp.CheckPolicy(t.Context(), p, doc, open)
	if len(ps) != 0 || len(notes) != 1 || !strings.Contains(notes[0], "not looked up") {
		t.Errorf("without a registry: %v, %v", ps, notes)
	}
}
