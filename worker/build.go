package worker

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/pipeline/engine"
	"reprieve.dev/pipeline/kafka"
	"reprieve.dev/pipeline/redact"
	"reprieve.dev/pipeline/stage"
	"reprieve.dev/plugins"
	"reprieve.dev/seal"
)

// Keys are the keys of the worker file, ready to use.
type Keys struct {
	Ring     *seal.Ring
	Identity *seal.IdentityKey
	Hash     []byte // of hashing and tokenising, derived from the identity key
}

// NewKeys reads the section keys. Codes: ERR_KEY_UNKNOWN, ERR_CONFIG_VALUE.
func NewKeys(k config.Keys) (Keys, error) {
	var ring []seal.Key
	for _, h := range k.HMAC {
		key := seal.Key{ID: h.ID, Secret: []byte(h.Secret.Reveal())}
		if h.From != "" {
			at, err := time.Parse(time.RFC3339, h.From)
			if err != nil {
				at, err = time.Parse(time.DateOnly, h.From)
			}
			if err != nil {
				return Keys{}, pipeline.Errorf(pipeline.CodeConfigValue, "keys.hmac "+h.ID, "from is not a time: %w", err)
			}
			key.From = at
		}
		ring = append(ring, key)
	}
	var keys Keys
	var err error
	if keys.Ring, err = seal.NewRing(ring); err != nil {
		return Keys{}, err
	}
	secret := []byte(k.Identity.Secret.Reveal())
	id := k.Identity.ID
	if id == "" {
		id = "i1"
	}
	if keys.Identity, err = seal.NewIdentityKey(id, secret); err != nil {
		return Keys{}, err
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("reprieve/v1 redact"))
	keys.Hash = mac.Sum(nil)
	return keys, nil
}

// Cluster is a Kafka cluster of the worker file. Codes: ERR_CONFIG_REFERENCE.
func (p *Plan) Cluster(name string) (kafka.Cluster, error) {
	props, ok := p.Config.Clusters[name]
	if !ok {
		return kafka.Cluster{}, pipeline.Errorf(pipeline.CodeConfigReference, p.File, "there is no cluster %q", name)
	}
	return kafka.Cluster{Name: name, Properties: props}, nil
}

// Registry opens a schema registry of the worker file. Codes: ERR_CONFIG_REFERENCE, ERR_CONFIG_VALUE.
func (p *Plan) Registry(name string, clock pipeline.Clock) (codec.Registry, error) {
	r, ok := p.Config.Registries[name]
	if !ok {
		return nil, pipeline.Errorf(pipeline.CodeConfigReference, p.File, "there is no registry %q", name).
			With("define it under registries")
	}
	c, err := p.registryConfig(name, r)
	if err != nil {
		return nil, err
	}
	return codec.NewRegistry(c, clock)
}

// resources gives stages what the worker file names. lookup opens registries.
// given, if it is not nil, is asked first: what stands for an HTTP service in a test.
func (pp *PipelinePlan) resources(keys Keys, host plugins.Opener, topics *follower, lookup func(name string) (codec.Registry, error), given func(kind, name string) (any, error)) func(kind, name string) (any, error) {
	return func(kind, name string) (any, error) {
		if given != nil {
			if r, err := given(kind, name); r != nil || err != nil {
				return r, err
			}
		}
		switch kind {
		case stage.ResourceRegistry:
			if all := pp.registries(); name == "" && len(all) > 0 {
				name = all[0] // that of the decode stage
			}
			return lookup(name)
		case stage.ResourceIdentity:
			return pp.Identity, nil
		case stage.ResourceHashKey:
			return keys.Hash, nil
		case stage.ResourceFile:
			return pp.readFile(name)
		case plugins.ResourceHost:
			return host, nil
		case stage.ResourceTopic:
			return topics, nil
		case stage.ResourceEach:
			if pp.Config.Outage == "quarantine" {
				return true, nil
			}
		}
		return nil, pipeline.Errorf(pipeline.CodeConfigReference, pp.File, "there is no resource %s %q", kind, name)
	}
}

// Assemble builds the stages of a pipeline and the options of its engine, without source, sinks and the keys to seal with: what run
// and try share. Where Seal.Topic is set, who runs them sets Seal.Sealer. Plugins live until ctx is done or the result is closed.
func (pp *PipelinePlan) Assemble(ctx context.Context, p *Plan, keys Keys, env pipeline.Env, lookup func(string) (codec.Registry, error)) (engine.Options, pipeline.Close, error) {
	c := pp.Config
	layout := &pipeline.Layout{}
	o := engine.Options{
		Pipeline: c.Name, Consumer: c.Source.Group, Release: c.Source.Release, Data: c.Quarantine.Data, Layout: layout, Pool: pipeline.NewPool(layout),
		Policy: func(pipeline.TP) pipeline.Policy { return pp.Policy }, Identify: pp.Identity, Ring: keys.Ring, Identity: keys.Identity,
		Route: engine.Route{
			RetryTopic: c.Retry.Topic, QuarantineTopic: c.Quarantine.Topic, Prefix: p.Config.Topics.Prefix,
			Profiles: deadletter.Profiles{Connect: slices.Contains(c.Quarantine.Profile, "connect")},
		},
		Clock: env.Clock, Log: env.Log, Meter: env.Meter,
	}
	sanitize, err := newSanitizer(pp.Redact, redact.Options{HashKey: keys.Hash, Identity: pp.Identity.Paths()}, p.Vaulted())
	if err != nil {
		return o, nil, err
	}
	o.Sanitize = sanitize
	if o.Seal, err = pp.sealing(p, keys); err != nil {
		return o, nil, err
	}
	var closers []pipeline.Close
	closeAll := func() error {
		var errs []error
		for _, c := range slices.Backward(closers) {
			errs = append(errs, c())
		}
		return errors.Join(errs...)
	}
	host, shut := openHost(ctx, PluginOptions(p.File, p.Config.Sandbox, env.Clock, env.Log))
	closers = append(closers, shut) // the last to close: its plugins are the stages'
	topics := &follower{ctx: ctx, plan: p, source: c.Source.Cluster, log: env.Log}
	env.Pipeline, env.Layout, env.Resource = c.Name, layout, pp.resources(keys, host, topics, lookup, env.Resource)
	for _, s := range pp.Stages {
		env.Name = s.Name
		built, shut, err := s.Kind.Build(s.Settings, env)
		if err != nil {
			return o, nil, errors.Join(err, closeAll())
		}
		if shut != nil {
			closers = append(closers, shut)
		}
		es := engine.Stage{Name: s.Name, Stage: built}
		if s.When != nil {
			es.When = s.When
		}
		o.Stages = append(o.Stages, es)
	}
	o.Unhealthy = servicesDown(o.Stages)
	return o, closeAll, nil
}

// parts are what one run of a pipeline holds.
type parts struct {
	engine *engine.Engine
	close  []func()
}

func (p *parts) shut() {
	for _, f := range slices.Backward(p.close) {
		f()
	}
}

// build makes the running parts of a pipeline: clients, stages, engine. On an error nothing is left open.
func (w *Worker) build(ctx context.Context, pp *PipelinePlan, observe func(engine.Health)) (_ *parts, err error) {
	ps := &parts{}
	defer func() {
		if err != nil {
			ps.shut()
		}
	}()
	c := pp.Config
	source, err := w.o.Plan.Cluster(c.Source.Cluster)
	if err != nil {
		return nil, err
	}
	letters, err := w.o.Plan.Cluster(c.Quarantine.Cluster)
	if err != nil {
		return nil, err
	}
	env := pipeline.Env{Log: w.o.Log, Meter: w.o.Meter, Clock: w.o.Clock}
	o, shut, err := pp.Assemble(ctx, w.o.Plan, w.keys, env, w.registry)
	if err != nil {
		return nil, err
	}
	ps.close = append(ps.close, func() {
		if err := shut(); err != nil {
			w.o.Log.Warn("a stage did not close", "pipeline", c.Name, "cause", err.Error())
		}
	})
	if err := w.preflight(ctx, pp, source, letters, &o); err != nil {
		return nil, err
	}
	if err := w.openSealing(ctx, ps, &o); err != nil {
		return nil, err
	}
	o.Observe = observe
	o.Unhealthy = w.unhealthy(pp, o.Unhealthy)
	o.Limits = w.o.Limits
	v := w.versions[c.Name]
	o.Policy, o.Control = v.policy, gate{v}
	src, err := kafka.NewSource(kafka.SourceConfig{
		Cluster: source, Group: c.Source.Group, Topics: c.Source.Topics, RetryTopics: map[string]bool{c.Retry.Topic: c.Retry.Topic != ""},
		InstanceID: w.o.InstanceID, Pool: o.Pool, Log: w.o.Log,
	})
	if err != nil {
		return nil, err
	}
	ps.close = append(ps.close, func() { logClose(w, c.Name, "source", src.Close()) })
	o.Source = src
	if err := w.sinks(ctx, ps, &o, c, source, letters); err != nil {
		return nil, err
	}
	if err := w.fallback(ctx, ps, &o, c, letters); err != nil {
		return nil, err
	}
	w.calls(ctx, ps, &o, c)
	ps.engine = engine.New(o)
	return ps, nil
}

// unhealthy asks the registries and the services of a pipeline whether they are known to be down.
func (w *Worker) unhealthy(pp *PipelinePlan, services func(*pipeline.Failure) bool) func(*pipeline.Failure) bool {
	var health []func() bool
	for _, name := range pp.registries() {
		if r, err := w.registry(name); err == nil { // it was opened when the stages were built
			if h, ok := r.(interface{ Healthy() bool }); ok {
				health = append(health, h.Healthy)
			}
		}
	}
	return func(f *pipeline.Failure) bool {
		if f.Code != pipeline.CodeRegistryUnavailable {
			return services(f)
		}
		if f.Unasked {
			return true // it failed a moment ago and is left alone for a while: no attempt of this record
		}
		for _, healthy := range health {
			if !healthy() {
				return true
			}
		}
		return false
	}
}

// sinks opens what a pipeline writes with: one producer for each cluster. With exactly_once the source cluster's is
// transactional, under an id that is this worker's and this pipeline's: opening it fences an earlier life.
func (w *Worker) sinks(ctx context.Context, ps *parts, o *engine.Options, c *config.Pipeline, source, letters kafka.Cluster) error {
	if c.Delivery == "exactly_once" {
		opening, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		tx, err := kafka.NewTx(opening, kafka.TxConfig{Cluster: source, ClientID: "reprieve-" + c.Name, TransactionalID: c.Name + "/" + w.name(), Log: w.o.Log})
		if err != nil {
			return err
		}
		ps.close = append(ps.close, func() { w.closeSink(c.Name, tx.Close) })
		o.Sink, o.Letters, o.Tx = tx, tx, tx
	} else {
		sink, err := w.sink(ps, source, c.Name)
		if err != nil {
			return err
		}
		o.Sink, o.Letters = sink, sink
	}
	if letters.Name == source.Name && o.Tx == nil {
		return nil
	}
	apart, err := w.sink(ps, letters, c.Name+"-letters") // for letters on another cluster, and for probes: a transaction cannot probe
	if err != nil {
		return err
	}
	o.Prober = apart
	if letters.Name != source.Name {
		o.Letters = apart
	}
	return nil
}

// name is this worker's: stable, because transactional ids follow from it.
func (w *Worker) name() string {
	if n := w.o.Plan.Config.Name; n != "" {
		return n
	}
	return w.o.Host
}

func (w *Worker) sink(ps *parts, c kafka.Cluster, client string) (*kafka.Sink, error) {
	s, err := kafka.NewSink(kafka.SinkConfig{Cluster: c, ClientID: "reprieve-" + client, Log: w.o.Log})
	if err != nil {
		return nil, err
	}
	ps.close = append(ps.close, func() { w.closeSink(client, s.Close) })
	return s, nil
}

func (w *Worker) closeSink(name string, shut func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), 10*time.Second)
	defer cancel()
	logClose(w, name, "sink", shut(ctx))
}

func logClose(w *Worker, name, what string, err error) {
	if err != nil {
		w.o.Log.Warn("did not close cleanly", "pipeline", name, "part", what, "cause", err.Error())
	}
}

// registry opens each registry once for all pipelines.
func (w *Worker) registry(name string) (codec.Registry, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r, ok := w.registries[name]; ok {
		return r, nil
	}
	r, err := w.o.Plan.Registry(name, w.o.Clock)
	if err != nil {
		return nil, err
	}
	w.registries[name] = r
	return r, nil
}

// preflight asks the brokers whether the topics are there and safe, and completes o by what they say: the id of the source's cluster
// and how much the vault takes. Codes: ERR_TOPIC_MISSING, ERR_TOPIC_UNSAFE, ERR_BROKER_*.
func (w *Worker) preflight(ctx context.Context, pp *PipelinePlan, source, letters kafka.Cluster, o *engine.Options) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	c := pp.Config
	admin, err := kafka.NewAdmin(source)
	if err != nil {
		return err
	}
	defer admin.Close()
	if o.Cluster, err = admin.ClusterID(ctx); err != nil {
		return err
	}
	prefix := w.o.Plan.Config.Topics.Prefix
	wanted := slices.Concat(c.Source.Topics, pp.Targets, []string{deadletter.SettlementsTopic(prefix), deadletter.OutcomesTopic(prefix), deadletter.ControlTopic(prefix)})
	if c.Retry.Topic != "" {
		wanted = append(wanted, c.Retry.Topic)
	}
	have, err := admin.Topics(ctx)
	if err != nil {
		return err
	}
	for _, t := range wanted {
		if _, ok := have[t]; !ok {
			return pipeline.Errorf(pipeline.CodeTopicMissing, "cluster "+source.Name, "the topic %s of pipeline %s does not exist", t, c.Name)
		}
	}
	if err := safeControl(ctx, admin, deadletter.ControlTopic(prefix), have); err != nil {
		return err
	}
	if letters.Name != source.Name {
		if admin, err = kafka.NewAdmin(letters); err != nil {
			return err
		}
		defer admin.Close()
	}
	if _, err := w.kept(ctx, admin, c.Quarantine.Topic, "dead-letter", c.Quarantine.Retention.Std()); err != nil || o.Seal.Topic == "" {
		return err
	}
	info, err := w.kept(ctx, admin, o.Seal.Topic, "vault", c.Quarantine.Retention.Std())
	o.Seal.MaxBytes = int(info.MaxMessage)
	return err
}

// kept refuses a topic that would lose letters before custody ends, and warns of one that might. what is its name for people.
func (w *Worker) kept(ctx context.Context, admin *kafka.Admin, topic, what string, keep time.Duration) (pipeline.TopicInfo, error) {
	info, err := admin.Info(ctx, topic)
	if err != nil {
		return info, err
	}
	if info.Compacted {
		return info, pipeline.Errorf(pipeline.CodeTopicUnsafe, topic, "the %s topic is compacted: what has the same key would be lost", what).
			With("set cleanup.policy=delete on it")
	}
	if info.RetentionMS >= 0 && info.RetentionMS < keep.Milliseconds() {
		return info, pipeline.Errorf(pipeline.CodeTopicUnsafe, topic, "the %s topic keeps its messages for %s, custody needs %s",
			what, time.Duration(info.RetentionMS)*time.Millisecond, keep).
			With(fmt.Sprintf("set retention.ms=%d on it", keep.Milliseconds()))
	}
	if info.KeepBytes >= 0 {
		w.o.Log.Warn("the topic drops its oldest messages beyond a size: letters may go before custody ends", "topic", topic, "retention_bytes", info.KeepBytes,
			"code", pipeline.CodeRetentionOutlived, "remedy", "set retention.bytes=-1 on it")
	}
	return info, nil
}

// safeControl refuses a control topic that would forget entries or give them in no order.
func safeControl(ctx context.Context, admin *kafka.Admin, topic string, have map[string]int) error {
	if n := have[topic]; n != 1 {
		return pipeline.Errorf(pipeline.CodeTopicUnsafe, topic, "the control topic has %d partitions; it needs exactly one", n)
	}
	info, err := admin.Info(ctx, topic)
	if err == nil && !info.Compacted {
		err = pipeline.Errorf(pipeline.CodeTopicUnsafe, topic, "the control topic is not compacted: policies and halts would expire").With("set cleanup.policy=compact on it")
	}
	return err
}

// registryConfig turns the file's section into the client's settings; certificates are read from their files.
func (p *Plan) registryConfig(name string, r config.Registry) (codec.RegistryConfig, error) {
	c := codec.RegistryConfig{
		Name: name, URL: r.URL, User: r.User, Password: r.Password.Reveal(), Token: r.Token.Reveal(),
		Concurrency: r.Concurrency, Timeout: r.Timeout.Std(),
	}
	for _, f := range []struct {
		to   *string
		file string
	}{{&c.CA, r.TLS.CA}, {&c.Cert, r.TLS.Cert}, {&c.Key, r.TLS.Key}} {
		if f.file == "" {
			continue
		}
		pem, err := p.pem("registries."+name+".tls", f.file)
		if err != nil {
			return c, err
		}
		*f.to = string(pem)
	}
	return c, nil
}

// ClusterID asks a cluster for its id, which items carry. Codes: ERR_BROKER_*.
func ClusterID(ctx context.Context, c kafka.Cluster) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	admin, err := kafka.NewAdmin(c)
	if err != nil {
		return "", err
	}
	defer admin.Close()
	return admin.ClusterID(ctx)
}
