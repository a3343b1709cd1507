package plugins

import (
	"context"
	"math"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
	"reprieve.dev/plugins/wire"
	"reprieve.dev/transforms"
)

// ResourceHost is what a plugin stage asks its environment for (pipeline.Env.Resource): an Opener.
const ResourceHost = "plugins"

// Opener lends the host of a pipeline's plugin stages. It is opened when the first of them is built.
type Opener func(use func(ctx context.Context, h *Host) error) error

// StageSettings of a plugin stage.
type StageSettings struct {
	Ref    string      `yaml:"ref" required:"true" doc:"name@version of a plugin that delivers a stage, as plugins.lock pins it."`
	Config config.Node `yaml:"config" doc:"Its configuration: a mapping, handed over as JSON."`
}

// Validate finds what is wrong in the settings by themselves.
func (s *StageSettings) Validate(n config.Node) (ps config.Problems) {
	if s.Ref != "" && !Exact(s.Ref) {
		ps = append(ps, n.Problem("ref", config.CodeValue, "a plugin is named with its exact version", "write it like acme/normalize-currency@1.4.2; latest is not a version"))
	}
	if s.Config.Exists() && !s.Config.IsMap() {
		ps = append(ps, n.Problem("config", config.CodeType, "the configuration of a plugin is a mapping", "write config: {KEY: VALUE}"))
	}
	return ps
}

// Exact tells whether ref is a name and an exact version.
func Exact(ref string) bool {
	name, version, _ := strings.Cut(ref, "@")
	return nameForm.MatchString(name) && versionForm.MatchString(version)
}

// JSON is the configuration as the plugin gets it.
func (s *StageSettings) JSON() ([]byte, error) {
	if !s.Config.Exists() {
		return []byte("{}"), nil
	}
	return s.Config.JSON()
}

// Kind is the stage kind "plugin". It stands in the phase enrich, so it never sees bytes before redact.
func Kind() pipeline.Kind {
	return pipeline.Kind{
		Name: "plugin", Phase: pipeline.PhaseEnrich,
		Doc:      "Asks a plugin about each record: it may reject it, add fields for conditions, and add headers.",
		Settings: func() any { return &StageSettings{} },
		Build:    buildStage,
	}
}

func buildStage(settings any, env pipeline.Env) (pipeline.Stage, pipeline.Close, error) {
	set := settings.(*StageSettings)
	got, err := env.Resource(ResourceHost, "")
	if err != nil {
		return nil, nil, err
	}
	open, ok := got.(Opener)
	if !ok {
		return nil, nil, pipeline.Errorf(pipeline.CodeInternal, env.Name, "the worker gave a %T as plugin host", got)
	}
	text, err := set.JSON()
	if err != nil {
		return nil, nil, err
	}
	var r *remote
	if err := open(func(ctx context.Context, h *Host) (err error) {
		r, err = h.stage(ctx, set.Ref, env.Name, text)
		return err
	}); err != nil {
		return nil, nil, err
	}
	s := &stage{r: r, name: env.Name, view: r.proc.about.View, slots: pipeline.NewSlot(env.Layout, func() *overlays { return &overlays{} })}
	return s, func() error { r.stop(); return nil }, nil
}

// stage starts the process of a live stage. Codes: ERR_PLUGIN_*, ERR_TRANSFORM_CONFIG, ERR_PLUGIN_REFUSED (it delivers no stage).
func (h *Host) stage(ctx context.Context, ref, name string, settings []byte) (*remote, error) {
	pin, pkg, err := pinned(h.o.Dir, h.o.Lock, ref)
	if err != nil {
		return nil, err
	}
	digest, err := transforms.ConfigDigest(settings)
	if err != nil {
		return nil, err
	}
	if err := pkg.CheckConfig(settings); err != nil {
		return nil, err
	}
	l, err := h.sealPinned(pin, pkg)
	if err != nil {
		return nil, err
	}
	r := newRemote(h, l, transforms.Info{Name: pin.Name, Version: pin.Version, Artifact: pkg.Digest, Config: digest}, settings)
	r.stage = name
	if err := r.try(ctx); err != nil {
		r.stop()
		return nil, err
	}
	return r, nil
}

// stage asks a plugin about the records of a batch. It has no way to reorder, drop or keep them, because it is only asked for
// marks and additions (INV-PLUGIN-STAGE).
type stage struct {
	r     *remote
	name  string
	view  bool
	slots pipeline.Slot[overlays]
}

// Unhealthy tells whether the plugin is known to be down, for Facts.
func (s *stage) Unhealthy(f *pipeline.Failure) bool {
	return f.Code == pipeline.CodePluginUnavailable && f.Stage == s.name && s.r.resting()
}

// Process implements pipeline.Stage. Failures of records: ERR_DOMAIN_REJECTED (the plugin rejects it), ERR_PLUGIN_CRASHED,
// ERR_PLUGIN_TIMEOUT, ERR_PLUGIN_ANSWER, ERR_PLUGIN_UNAVAILABLE. A version that gave two answers ends the pipeline: it may not
// decide about any further record.
func (s *stage) Process(ctx context.Context, b *pipeline.Batch) error {
	w := &marks{s: s, b: b, over: s.slots.Of(b)}
	w.over.begin(len(b.Recs))
	for i := range b.Recs {
		if b.Live(i) {
			w.at = append(w.at, i)
		}
	}
	if len(w.at) == 0 {
		return nil
	}
	w.got = make([]*wire.Mark, len(w.at))
	w.failed = make([]*pipeline.Failure, len(w.at))
	if err := s.r.do(ctx, w); err != nil {
		w.fail(0, len(w.at), s.r.failure(pipeline.CodePluginUnavailable, "the pipeline stops", err))
	}
	if w.stopped != nil {
		return w.stopped
	}
	for k, i := range w.at {
		if f := w.failed[k]; f != nil {
			b.Fail(i, *f)
			continue
		}
		w.keep(w.got[k], i)
	}
	return nil
}

// marks is the live records of a batch and what the plugin says of them.
type marks struct {
	s       *stage
	b       *pipeline.Batch
	at      []int // indices of live records
	got     []*wire.Mark
	failed  []*pipeline.Failure
	over    *overlays
	stopped error
}

func (w *marks) len() int { return len(w.at) }

func (w *marks) size(i int) int {
	o := &w.b.Outs[w.at[i]]
	n := len(o.Key) + len(o.Value)
	if w.s.view {
		n += 2 * len(o.Value)
	}
	return n
}

func (w *marks) send(ctx context.Context, p *process, req proto.Message) (proto.Message, error) {
	return p.client.Process(ctx, req.(*wire.ProcessRequest))
}

func (w *marks) request(batch uint64, from, to int) (proto.Message, string) {
	req := &wire.ProcessRequest{Batch: batch, Topic: w.b.TP.Topic, Partition: w.b.TP.Partition, Records: make([]*wire.LiveRecord, 0, to-from)}
	for _, i := range w.at[from:to] {
		r, o := &w.b.Recs[i], &w.b.Outs[i]
		l := &wire.LiveRecord{Offset: r.Offset, TimeMs: r.TimeMS, TimeType: r.TimeType.String(), Key: &wire.Nullable{Value: o.Key}, Value: &wire.Nullable{Value: o.Value}}
		if n := len(o.Headers) + len(o.Add); n > 0 {
			l.Headers = &wire.Headers{Header: make([]*wire.Header, 0, n)}
			for _, hs := range [][]pipeline.Header{o.Headers, o.Add} {
				for _, h := range hs {
					if !utf8.ValidString(h.Name) {
						continue // the protocol has no way to name it; it stays on the record
					}
					l.Headers.Header = append(l.Headers.Header, &wire.Header{Name: h.Name, Value: h.Value})
				}
			}
		}
		if v := w.b.Views[i]; v != nil {
			l.Schema = v.Schema().String()
			if w.s.view {
				text, err := v.AppendJSON(nil)
				if err != nil {
					return nil, "a record has no JSON form"
				}
				l.View = text
			}
		}
		req.Records = append(req.Records, l)
	}
	return req, ""
}

func (w *marks) fail(from, to int, f *pipeline.Failure) {
	if f.Code == pipeline.CodePluginNondeterministic || f.Code == pipeline.CodePluginRefused && f.Cause != nil {
		w.stopped = f.Cause
		return
	}
	for k := from; k < to; k++ {
		w.failed[k] = f
	}
}

// Limits of one mark.
const (
	additionsMost = 64
	ruleMost      = 64
	headerMost    = 4096 // bytes of one header or field

	ruleLetters = "abcdefghijklmnopqrstuvwxyz0123456789_-."
)

// take checks a whole reply. Nothing reaches the batch before every record has its answer: a batch may be asked again in halves.
func (w *marks) take(_, reply proto.Message, from, to int) string {
	rep := reply.(*wire.ProcessReply)
	at := w.at[from:to]
	switch {
	case rep.Batch != w.s.r.batch:
		return "the reply is for another batch"
	case len(rep.Records) != len(at):
		return "one mark a record is required"
	}
	for k, m := range rep.Records {
		if m.GetOffset() != w.b.Recs[at[k]].Offset {
			return "marks are for other records or in another order"
		}
		if what := w.check(m, at[k]); what != "" {
			return what
		}
	}
	copy(w.got[from:to], rep.Records)
	return ""
}

func (w *marks) check(m *wire.Mark, i int) string {
	if m.Reject != "" {
		switch {
		case !name(m.Reject, ruleMost, ruleLetters):
			return "a rejection names no rule"
		case len(m.Fields)+len(m.Headers) > 0:
			return "a record is rejected and added to"
		}
		return ""
	}
	if len(m.Fields) > additionsMost || len(m.Headers) > additionsMost {
		return "more is added than may be"
	}
	v := w.b.Views[i]
	for n, f := range m.Fields {
		switch {
		case v == nil:
			return "a field is added to a record that has none"
		case !name(f.GetName(), ruleMost, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") || f.Name[0] >= '0' && f.Name[0] <= '9':
			return "a field has no proper name"
		case f.Value == nil || len(f.GetText()) > headerMost || math.IsNaN(f.GetNumber()) || math.IsInf(f.GetNumber(), 0):
			return "a field has no value, or none that can be kept"
		}
		if _, there := v.Get(&pipeline.Path{Segs: []string{f.Name}, Text: "/" + f.Name}); there {
			return "a field is there already"
		}
		for _, other := range m.Fields[:n] {
			if other.Name == f.Name {
				return "a field is added twice"
			}
		}
	}
	for _, h := range m.Headers {
		if n := h.GetName(); n == "" || len(n) > wire.TextMost || len(h.Value) > headerMost || transforms.ReservedHeader(n) {
			return "a header may not be added"
		}
	}
	return ""
}

// name tells whether s has 1 to most of the letters.
func name(s string, most int, letters string) bool {
	return s != "" && len(s) <= most && strings.Trim(s, letters) == ""
}

func (w *marks) keep(m *wire.Mark, i int) {
	b := w.b
	if m.Reject != "" {
		b.Fail(i, pipeline.Failure{Stage: w.s.name, Code: pipeline.CodeRejected, Params: []pipeline.Param{pipeline.Str("rule", m.Reject)}})
		return
	}
	for _, h := range m.Headers {
		b.Outs[i].Add = append(b.Outs[i].Add, pipeline.Header{Name: h.Name, Value: h.Value})
	}
	if len(m.Fields) > 0 {
		b.Views[i] = w.over.over(b.Views[i], m.Fields)
	}
}

// CheckStage tells whether a stage could be built: pinned, installed as pinned, delivering a stage, with a configuration that its
// author allows. It starts nothing. Codes: ERR_PLUGIN_LOCK, ERR_PLUGIN_UNKNOWN, ERR_PLUGIN_REFUSED, ERR_PLUGIN_NONDETERMINISTIC,
// ERR_TRANSFORM_CONFIG, ERR_CONFIG_* (as problems of the lock file).
func CheckStage(o Options, set *StageSettings) error {
	_, pkg, err := pinned(o.Dir, o.Lock, set.Ref)
	if err != nil {
		return err
	}
	text, err := set.JSON()
	if err != nil {
		return err
	}
	return pkg.CheckConfig(text)
}

// pinned reads the installed package of a pinned stage. Codes: those of CheckStage.
func pinned(dir, lockFile, ref string) (*Pin, *Package, error) {
	lock, err := ReadLock(lockFile)
	if err != nil {
		return nil, nil, err
	}
	pin, ok := lock.Find(ref)
	if !ok {
		return nil, nil, pipeline.Errorf(pipeline.CodePluginLock, ref, "it is not pinned in %s", lockFile).With("Install and pin it: reprieve plugin install PATH")
	}
	if err := pin.speaks(); err != nil {
		return nil, nil, err
	}
	pkg, err := pin.read(dir)
	if err != nil {
		return nil, nil, err
	}
	if !pkg.Descriptor.Delivering(DeliversStage) {
		return nil, nil, pipeline.Errorf(pipeline.CodePluginRefused, ref, "it delivers no stage").With("its plugin.yaml says what it delivers; use it for repairs")
	}
	return pin, pkg, nil
}
