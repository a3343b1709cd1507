package billing_test

import (
	"bytes"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"reprieve.dev/config"
	"reprieve.dev/examples/billing"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/decide"
	"reprieve.dev/pipeline/stage"
)

// unpack writes the example's files into a folder, with keys of its own.
func unpack(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, billing.Files()); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "keys"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"hmac", "identity"} {
		if err := os.WriteFile(filepath.Join(dir, "keys", name), []byte("dGVzdC1rZXktdGVzdC1rZXktdGVzdC1rZXktdGVzdC0=\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func load(t *testing.T, dir, name string) (*config.Pipeline, *config.Doc, config.Options) {
	t.Helper()
	opt := config.Options{Env: func(string) (string, bool) { return "", false }, ReadFile: func(path string) ([]byte, error) {
		if !filepath.IsAbs(path) { // as if the command ran in the folder
			path = filepath.Join(dir, path)
		}
		return os.ReadFile(path)
	}}
	text, err := fs.ReadFile(billing.Files(), "pipelines/"+name+".yaml")
	if err != nil {
		t.Fatal(err)
	}
	p, doc, problems := config.LoadPipeline(filepath.Join(dir, "pipelines", name+".yaml"), text, opt)
	report(t, problems)
	return p, doc, opt
}

func report(t *testing.T, problems config.Problems) {
	t.Helper()
	for _, p := range problems {
		t.Error(p.String())
	}
	if t.Failed() {
		t.FailNow()
	}
}

func TestWorkerFileDefinesWhatThePipelinesName(t *testing.T) {
	dir := unpack(t)
	for _, name := range []string{"billing", "adjustments"} {
		p, doc, opt := load(t, dir, name)
		text, err := os.ReadFile(filepath.Join(dir, "reprieve.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		w, _, problems := config.LoadWorker(filepath.Join(dir, "reprieve.yaml"), text, opt)
		report(t, problems)
		report(t, config.CheckTogether(p, doc, w, config.TogetherOptions{}))
		if !p.Quarantine.Encrypt || p.Reconcile.Mode != "here" {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

type noMeter struct{}

func (noMeter) Counter(string, string, ...string) pipeline.Counter { return noMeter{} }
func (noMeter) Gauge(string, string, ...string) pipeline.Gauge     { return noMeter{} }
func (noMeter) Histogram(string, string, []float64, ...string) pipeline.Histogram {
	return noMeter{}
}
func (noMeter) Add(float64)     {}
func (noMeter) Set(float64)     {}
func (noMeter) Observe(float64) {}

// chain builds the stages of a pipeline file.
func chain(t *testing.T, name string) ([]pipeline.Stage, *pipeline.Pool, pipeline.Policy) {
	t.Helper()
	dir := unpack(t)
	p, _, opt := load(t, dir, name)
	schemas := t.TempDir()
	if err := os.WriteFile(filepath.Join(schemas, "7.avsc"), []byte(billing.Schema()), 0o600); err != nil {
		t.Fatal(err)
	}
	registry, err := codec.Folder(schemas)
	if err != nil {
		t.Fatal(err)
	}
	s := p.Source
	id, err := stage.NewIdentity(stage.IdentityConfig{Consumer: s.Group, Tenant: s.Tenant.Path, EventID: s.Identity.EventID, Entity: s.Identity.Entity,
		BusinessID: s.Identity.BusinessID, IdempotencyToken: s.Identity.Token, Version: s.Identity.Version, Allow: s.Tenant.Allow})
	if err != nil {
		t.Fatal(err)
	}
	layout := &pipeline.Layout{}
	env := pipeline.Env{Pipeline: name, Layout: layout, Log: slog.New(slog.DiscardHandler), Meter: noMeter{}, Clock: time.Now,
		Resource: func(kind, name string) (any, error) {
			switch kind {
			case stage.ResourceRegistry:
				return registry, nil
			case stage.ResourceIdentity:
				return id, nil
			case stage.ResourceHashKey:
				return make([]byte, 32), nil
			}
			return nil, pipeline.Errorf(pipeline.CodeConfigReference, name, "no %s", kind)
		}}
	var stages []pipeline.Stage
	var policy pipeline.Policy
	kinds := stage.Kinds()
	for _, st := range p.Stages {
		i := slices.IndexFunc(kinds, func(k pipeline.Kind) bool { return k.Name == st.Kind })
		if i < 0 {
			t.Fatalf("no stage kind %s", st.Kind)
		}
		settings := kinds[i].Settings()
		report(t, st.Settings.Decode(settings))
		if c, ok := settings.(*stage.ClassifySettings); ok {
			doc, problems := config.Read(filepath.Join(dir, "pipelines", c.Policy), opt)
			report(t, problems)
			policy, problems = decide.Load(doc, decide.Options{Quarantine: p.Quarantine.Topic, Retry: decide.Retry{Topic: p.Retry.Topic}})
			report(t, problems)
		}
		env.Name = st.Name
		built, stop, err := kinds[i].Build(settings, env)
		if err != nil {
			t.Fatal(err)
		}
		if stop != nil {
			t.Cleanup(func() { _ = stop() })
		}
		stages = append(stages, built)
	}
	return stages, pipeline.NewPool(layout), policy
}

// Every record ends as its label says, in the example's own pipeline: the right failure, or the right topic with no planted
// secret left in its value.
func TestExamplePipelinesSeeWhatWasPlanted(t *testing.T) {
	for name, records := range map[string]func(billing.Generator) func(func(pipeline.Message, billing.Label) bool){
		"billing":     func(g billing.Generator) func(func(pipeline.Message, billing.Label) bool) { return g.Invoices() },
		"adjustments": func(g billing.Generator) func(func(pipeline.Message, billing.Label) bool) { return g.Adjustments() },
	} {
		t.Run(name, func(t *testing.T) {
			stages, pool, policy := chain(t, name)
			var labels []billing.Label
			b := pool.Get()
			flush := func() {
				b.Begin(policy)
				for _, s := range stages {
					if err := s.Process(t.Context(), b); err != nil {
						t.Fatal(err)
					}
				}
				for i, l := range labels {
					f := b.Failure(i)
					switch {
					case l.Defect == billing.None && f != nil:
						t.Fatalf("%+v: %s %s", l, f.Code, f.Reason())
					case l.Defect != billing.None && (f == nil || f.Code != l.Defect.Code()):
						t.Fatalf("%+v: %v", l, f)
					case l.Defect != billing.None:
						continue
					}
					want := billing.LedgerTopic
					if l.Large {
						want = billing.LargeTopic
					}
					out := &b.Outs[i]
					if out.To.Topic != want {
						t.Fatalf("%+v goes to %s", l, out.To.Topic)
					}
					for _, secret := range []string{billing.CardNumber, billing.CardSpaced, "@example."} {
						if bytes.Contains(out.Value, []byte(secret)) {
							t.Fatalf("%+v: %s left with the record", l, secret)
						}
					}
				}
				labels = labels[:0]
				b.Release()
				b = pool.Get()
			}
			offset := int64(0)
			records(generator())(func(m pipeline.Message, l billing.Label) bool {
				b.TP.Topic = m.Topic
				b.Recs = append(b.Recs, pipeline.Record{Offset: offset, Key: m.Key, Value: m.Value, Headers: m.Headers})
				labels = append(labels, l)
				if offset++; len(labels) == 500 {
					flush()
				}
				return true
			})
			flush()
		})
	}
}
