package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/expr"
	"reprieve.dev/plugins"
	"reprieve.dev/plugins/sandbox"
)

// lane is a pipeline's plugin stage with what is around it.
type lane struct {
	t     *testing.T
	stage pipeline.Stage
	pool  *pipeline.Pool
	dec   *codec.Decoder
}

// live builds the hostile plugin as a stage, as a worker does.
func (w *world) live(settings string) (*lane, error) {
	w.t.Helper()
	doc, ps := config.Parse("stage.yaml", []byte(settings), config.Options{})
	k := plugins.Kind()
	set := k.Settings()
	if doc != nil {
		ps = append(ps, doc.Decode(set)...)
	}
	if len(ps) > 0 {
		w.t.Fatal(ps)
	}
	layout := &pipeline.Layout{}
	built, shut, err := k.Build(set, pipeline.Env{Name: "look", Layout: layout, Log: slog.New(slog.DiscardHandler), Clock: w.o.Clock,
		Resource: func(string, string) (any, error) {
			return plugins.Opener(func(use func(context.Context, *plugins.Host) error) error { return use(context.Background(), w.Host) }), nil
		}})
	if err != nil {
		return nil, err
	}
	w.t.Cleanup(func() { _ = shut() })
	dec, err := codec.NewDecoder(codec.DecodeConfig{Format: codec.FormatJSON}, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return &lane{t: w.t, stage: built, pool: pipeline.NewPool(layout), dec: dec}, nil
}

// batch is records with these values, decoded; an empty one is a delete marker.
func (l *lane) batch(values ...string) *pipeline.Batch {
	b := l.pool.Get()
	b.TP = pipeline.TP{Topic: "invoices", Partition: 3}
	for i, v := range values {
		r := pipeline.Record{Offset: int64(100 + i), Key: []byte("k"), TimeMS: 1_700_000_000_000}
		if v != "" {
			r.Value = []byte(v)
		}
		b.Recs = append(b.Recs, r)
	}
	b.Begin(nil)
	for i := range b.Recs {
		if b.Recs[i].Value == nil {
			continue
		}
		v, f := l.dec.Decode(context.Background(), codec.NewScratch(), b.Recs[i].Value, nil)
		if f != nil {
			l.t.Fatal(f.Reason())
		}
		b.Views[i] = v
	}
	return b
}

func do(verb string) string { return fmt.Sprintf(`{"do":%q}`, verb) }

const stageSettings = "ref: acme/hostile@1.0.0\n"

func TestAStageMarksAndAddsAndChangesNothingElse(t *testing.T) {
	w := open(t, nil)
	w.install(sandbox.Restricted)
	l, err := w.live(stageSettings)
	if err != nil {
		t.Fatal(err)
	}
	b := l.batch(do(""), do("reject: too-old"), "", do(""))
	b.Hold(3)
	if err := l.stage.Process(context.Background(), b); err != nil {
		t.Fatal(err)
	}
	b.Unhold(3)
	if len(b.Failures()) != 2 { // a delete marker has no fields to add to: the plugin breaks the protocol
		t.Fatal(b.Failures())
	}
	if f := b.Failure(1); f.Code != pipeline.CodeRejected || f.Stage != "look" || f.Params[0].Text != "too-old" {
		t.Fatal(f)
	}
	if f := b.Failure(2); f.Code != pipeline.CodePluginAnswer {
		t.Fatal(f)
	}
	o := b.Outs[0]
	if string(o.Value) != do("") || string(o.Key) != "k" || len(o.Headers) != 0 || len(o.Add) != 1 || string(o.Add[0].Value) != do("") {
		t.Fatalf("%+v", o)
	}
	for cond, want := range map[string]bool{
		"view.score == 7 && view.good && view.share == 0.5 && view.word == 'w' && view['do'] == ''": true, "has(view.score)": true, "has(view.other)": false,
		"view.score > 7": false,
	} {
		c, err := expr.Condition(cond)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.Eval(b, 0); err != nil || got != want {
			t.Errorf("%s: %v %v", cond, got, err)
		}
	}
	text, err := b.Views[0].AppendJSON(nil)
	if want := `{"do":"","score":7,"good":true,"share":0.5,"word":"w"}`; err != nil || string(text) != want || !json.Valid(text) {
		t.Fatalf("%s %v", text, err)
	}
	if b.Views[3].Schema().Format != "json" || len(b.Outs[3].Add) != 0 {
		t.Fatal("a record that was held was asked about")
	}
}

func TestAStageThatMisbehavesCostsTheRecordAlone(t *testing.T) {
	w := open(t, func(o *plugins.Options) { o.Call = 3 * time.Second })
	w.install(sandbox.Restricted)
	l, err := w.live(stageSettings)
	if err != nil {
		t.Fatal(err)
	}
	for verb, want := range map[string]pipeline.Code{
		"exit": pipeline.CodePluginCrashed, "panic": pipeline.CodePluginCrashed, "tcp: 127.0.0.1:9": pipeline.CodePluginCrashed, "hang": pipeline.CodePluginTimeout,
		"lie: count": pipeline.CodePluginAnswer, "lie: more": pipeline.CodePluginAnswer, "lie: offset": pipeline.CodePluginAnswer, "lie: batch": pipeline.CodePluginAnswer,
		"lie: rule": pipeline.CodePluginAnswer, "lie: both": pipeline.CodePluginAnswer, "lie: there": pipeline.CodePluginAnswer, "lie: twice": pipeline.CodePluginAnswer,
		"lie: field": pipeline.CodePluginAnswer, "lie: many": pipeline.CodePluginAnswer, "lie: header": pipeline.CodePluginAnswer,
		"read: /etc/passwd": pipeline.CodeRejected, "write: /tmp/x": pipeline.CodeRejected,
	} {
		t.Run(verb, func(t *testing.T) {
			values := make([]string, 9)
			for i := range values {
				values[i] = do("")
			}
			values[5] = do(verb)
			b := l.batch(values...)
			if err := l.stage.Process(context.Background(), b); err != nil {
				t.Fatal(err)
			}
			for i := range values {
				f := b.Failure(i)
				switch {
				case i == 5 && (f == nil || f.Code != want):
					t.Errorf("%+v, want %s", f, want)
				case i != 5 && (f != nil || len(b.Outs[i].Add) != 1):
					t.Errorf("record %d paid for it: %+v, %d headers", i, f, len(b.Outs[i].Add))
				}
			}
		})
	}
	noCard(t, "the log", w.log.String())
}

func TestAStageThatCannotBeAskedIsADependencyThatIsDown(t *testing.T) {
	now := time.Now()
	w := open(t, func(o *plugins.Options) { o.Failures = 2; o.Clock = func() time.Time { return now } })
	w.install(sandbox.Restricted)
	l, err := w.live(stageSettings)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(verb string) *pipeline.Failure {
		b := l.batch(do(verb))
		if err := l.stage.Process(context.Background(), b); err != nil {
			t.Fatal(err)
		}
		return b.Failure(0)
	}
	for range 2 {
		if f := ask("exit"); f == nil || f.Code != pipeline.CodePluginCrashed {
			t.Fatal(f)
		}
	}
	f := ask("")
	if f == nil || f.Code != pipeline.CodePluginUnavailable || pipeline.Lookup(f.Code).Class != pipeline.Transient {
		t.Fatal(f)
	}
	health := l.stage.(interface {
		Unhealthy(*pipeline.Failure) bool
	})
	if !health.Unhealthy(f) {
		t.Error("nobody is told that it is down")
	}
	now = now.Add(time.Hour)
	if f := ask(""); f != nil || health.Unhealthy(&pipeline.Failure{Stage: "look", Code: pipeline.CodePluginUnavailable}) {
		t.Error("it does not come back", f)
	}
}

func TestAStageThatGivesTwoAnswersEndsThePipeline(t *testing.T) {
	w := open(t, func(o *plugins.Options) { o.RepeatOneIn = 1 })
	w.install(sandbox.Restricted)
	l, err := w.live(stageSettings)
	if err != nil {
		t.Fatal(err)
	}
	b := l.batch(do(""))
	if err := l.stage.Process(context.Background(), b); err != nil || len(b.Failures()) != 0 || len(b.Outs[0].Add) != 1 {
		t.Fatal(err, b.Failures(), b.Outs[0].Add)
	}
	if err := l.stage.Process(context.Background(), l.batch(do("random"), do(""))); pipeline.CodeOf(err) != pipeline.CodePluginNondeterministic {
		t.Fatal(err)
	}
	if err := l.stage.Process(context.Background(), l.batch(do(""))); pipeline.CodeOf(err) != pipeline.CodePluginNondeterministic {
		t.Fatal("it goes on deciding:", err)
	}
}

func TestWhatCannotBeAStageIsRefusedBeforeItStarts(t *testing.T) {
	w := open(t, nil)
	if _, err := w.live(stageSettings); pipeline.CodeOf(err) != pipeline.CodePluginLock {
		t.Error(err)
	}
	w.install(sandbox.Restricted)
	if _, err := w.live(stageSettings + "config: {refuse: 1}\n"); pipeline.CodeOf(err) != pipeline.CodeTransformConfig {
		t.Error(err)
	}
	file := filepath.Join(w.Folder("acme/hostile@1.0.0"), plugins.DescriptorFile)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	only := strings.Replace(string(text), "[transform, stage]", "[transform]", 1)
	if err := os.WriteFile(file, []byte(only), 0o644); err != nil {
		t.Fatal(err)
	}
	pkg, err := plugins.Read(filepath.Dir(file))
	if err != nil {
		t.Fatal(err)
	}
	lock := &plugins.Lock{APIVersion: "reprieve/v1"}
	lock.Set(pkg.Pin(sandbox.Restricted))
	if err := lock.Write(w.o.Lock); err != nil {
		t.Fatal(err)
	}
	if _, err := w.live(stageSettings); pipeline.CodeOf(err) != pipeline.CodePluginRefused || !strings.Contains(err.Error(), "delivers no stage") {
		t.Error(err)
	}
}
