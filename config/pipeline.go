package config

import "strings"

// Pipeline is the pipeline file. Settings of stages are kept as nodes: who knows the kind decodes them.
type Pipeline struct {
	APIVersion string     `yaml:"apiVersion" required:"true" enum:"reprieve/v1" doc:"Version of the file form."`
	Name       string     `yaml:"pipeline" required:"true" doc:"Name of the pipeline; stable, it stands in topics, metrics and custody."`
	Owner      string     `yaml:"owner" doc:"Who owns items of this pipeline until a rule says otherwise."`
	Source     Source     `yaml:"source" required:"true" doc:"Where records come from and how they are identified."`
	Effect     Effect     `yaml:"effect" doc:"What delivering a record does, and how doing it twice is prevented."`
	Delivery   string     `yaml:"delivery" default:"at_least_once" enum:"at_least_once,exactly_once" doc:"exactly_once uses Kafka transactions."`
	Stages     []Stage    `yaml:"stages" required:"true" doc:"Steps in order of phase: decode, classify, redact, enrich, route."`
	Retry      Retry      `yaml:"retry" doc:"How transient failures are retried."`
	Quarantine Quarantine `yaml:"quarantine" required:"true" doc:"Where records go that cannot be processed."`
	Breaker    Breaker    `yaml:"breaker" doc:"When a systemic failure stops making copies."`
	Outage     string     `yaml:"outage" default:"pause" enum:"pause,quarantine" doc:"What happens while a dependency is known to be down."`
	Redrive    Redrive    `yaml:"redrive" doc:"Limits of redrives of this pipeline."`
	Reconcile  Reconcile  `yaml:"reconcile" doc:"How the effect of a redriven record is proven."`
}

// Source is the section source.
type Source struct {
	Cluster  string   `yaml:"cluster" default:"main" doc:"Name of a cluster of the worker file."`
	Topics   []string `yaml:"topics" required:"true" doc:"Topics to read."`
	Group    string   `yaml:"group" required:"true" doc:"Consumer group; also the consumer's name in custody, never changed by a release."`
	Release  string   `yaml:"release" doc:"What is blamed when a release goes bad, for example billing-event-processor@2.2."`
	Tenant   Tenant   `yaml:"tenant" doc:"Where the tenant of a record stands."`
	Identity Identity `yaml:"identity" doc:"Where the names of a record stand."`
	Ordering Ordering `yaml:"ordering" doc:"What must stay in order, and what happens to it at a quarantine."`
}

// Tenant is the section source.tenant.
type Tenant struct {
	From   string              `yaml:"from" enum:"payload,header,topic,fixed" doc:"Where the tenant stands."`
	Path   string              `yaml:"path" doc:"JSON pointer into the payload, with from: payload."`
	Header string              `yaml:"header" doc:"Name of the header, with from: header."`
	Value  string              `yaml:"value" doc:"The tenant itself, with from: fixed."`
	Allow  map[string][]string `yaml:"allow" doc:"Which tenants a topic may carry; a topic that is not named may carry any."`
}

// Identity is the section source.identity. Each is a JSON pointer into the payload ("/event_id") or "header:NAME".
type Identity struct {
	EventID    string `yaml:"event_id" doc:"Identity of the event: the same for a repeated delivery."`
	Entity     string `yaml:"entity" doc:"What the event is about, for example an account."`
	BusinessID string `yaml:"business_id" doc:"What people call it, for example an invoice number."`
	Token      string `yaml:"idempotency_token" doc:"Token that the effect deduplicates by."`
	Version    string `yaml:"version" doc:"Version or sequence number of the entity."`
}

// Fields are the members by their names in the file, in its order; those that are not set are empty.
func (i Identity) Fields() [5][2]string {
	return [5][2]string{{"event_id", i.EventID}, {"entity", i.Entity}, {"business_id", i.BusinessID}, {"idempotency_token", i.Token}, {"version", i.Version}}
}

// Ordering is the section source.ordering.
type Ordering struct {
	Scope        string `yaml:"scope" default:"none" enum:"none,key,partition" doc:"What must stay in order."`
	OnQuarantine string `yaml:"on_quarantine" enum:"none,block_key,skip_with_gap,block_partition" doc:"What happens to later records behind a quarantined one; block_key when scope is key, block_partition when it is partition."`
}

// Effect is the section effect.
type Effect struct {
	Kind  string `yaml:"kind" enum:"delta,state,none" doc:"delta adds to what is there, state replaces it."`
	Dedup Dedup  `yaml:"dedup" doc:"How the destination recognises what it has already done."`

	Compensates bool `yaml:"compensates" doc:"The effect undoes another one: refused without a reconciliation contract (reconcile: http or outcomes) and approval: dual."`
}

// Dedup is the section effect.dedup.
type Dedup struct {
	Store   string   `yaml:"store" doc:"Name of the table or service that remembers tokens, for reports."`
	Horizon Duration `yaml:"horizon" doc:"How long it remembers; past it an item is asked about before a redrive."`
	From    string   `yaml:"from" enum:"first_delivery,last_delivery" default:"first_delivery" doc:"From when the horizon counts."`
}

// Retry is the section retry.
type Retry struct {
	Topic    string  `yaml:"topic" doc:"Retry topic; <topic>.retry when there is one source topic."`
	Attempts int     `yaml:"attempts" default:"5" doc:"Retries after the first delivery; the platform's bounds clamp it."`
	Backoff  Backoff `yaml:"backoff" doc:"Time between retries."`
}

// Backoff is the section retry.backoff.
type Backoff struct {
	Initial Duration `yaml:"initial" default:"100ms" doc:"Wait before the first retry."`
	Factor  float64  `yaml:"factor" default:"2" doc:"What each wait is multiplied by."`
	Max     Duration `yaml:"max" doc:"Longest wait; 0s is no limit."`
	Jitter  float64  `yaml:"jitter" doc:"Random part of each wait, from 0 to 1."`
}

// Quarantine is the section quarantine.
type Quarantine struct {
	Topic         string     `yaml:"topic" required:"true" doc:"Dead-letter topic."`
	Cluster       string     `yaml:"cluster" doc:"Name of its cluster; the source's if not said."`
	Retention     Duration   `yaml:"retention" default:"30d" doc:"How long the dead-letter topic keeps a letter; not shorter than custody."`
	Encrypt       bool       `yaml:"encrypt" doc:"Seal the values of letters for their tenant; needs keys.keeper in the worker file."`
	SealOriginals bool       `yaml:"seal_originals" doc:"Keep what redaction changed, sealed, in the vault topic, less verification values; needs keys.keeper."`
	Fallback      []Fallback `yaml:"fallback" doc:"Where letters go when the dead-letter topic refuses them, in order."`
	Profile       []string   `yaml:"profile" default:"death" enum:"death,connect" doc:"Header families that a letter carries; death is always there."`
	Partitions    int        `yaml:"partitions" default:"6" doc:"Partitions of the dead-letter topic when it is made."`
	Data          string     `yaml:"data" doc:"Data class of the records: a name of custody.retention.data, which says how long they are kept."`
}

// VaultTopic is where sealed records of this dead-letter topic stand.
func (q Quarantine) VaultTopic() string { return q.Topic + ".vault" }

// Fallback is one store of quarantine.fallback: exactly one of its keys is set.
type Fallback struct {
	Ledger string `yaml:"ledger" doc:"Name of a ledger of the worker file."`
	Blob   string `yaml:"blob" doc:"URL of a bucket, for example s3://acme-letters."`
}

// Breaker is the section breaker.
type Breaker struct {
	Scope        []string `yaml:"scope" default:"release,fingerprint" enum:"fingerprint,release,schema,tenant,partition" doc:"What a cohort of failures has in common."`
	Window       Duration `yaml:"window" default:"10s" doc:"How far back failures are counted."`
	MinRecords   int      `yaml:"min_records" default:"100" doc:"Records in the window below which it never opens."`
	FailureRatio float64  `yaml:"failure_ratio" default:"0.2" doc:"Share of failures that opens it, above 0 and at most 1."`
	Off          bool     `yaml:"off" doc:"Never open: every failed record is copied."`
}

// Redrive is the section redrive.
type Redrive struct {
	Ceiling     Rate   `yaml:"ceiling" default:"50/s" doc:"Highest rate of a redrive; the platform's bound is the other limit."`
	Destination string `yaml:"destination" doc:"Topic that redriven records enter by; the retry topic if not said, never a source topic."`
	Approval    string `yaml:"approval" default:"dual" enum:"dual,single" doc:"Whether a second person approves."`
	Yield       Yield  `yaml:"yield" doc:"When a redrive steps back for live records."`

	Measures    map[string]string `yaml:"measures" doc:"CEL expressions over view, by name: their sums are approved and must reconcile, for example {amount: view.amount_minor}."`
	Invariants  map[string]string `yaml:"invariants" doc:"CEL conditions over view, headers, key and topic, by name, that every repaired record must satisfy beside its schema, identity and tenant, for example {balanced: view.net_minor + view.tax_minor == view.amount_minor}."`
	MaxRepaired Size              `yaml:"max_repaired" default:"1MiB" doc:"Largest key, value and headers of a repaired record together."`
}

// Yield is the section redrive.yield.
type Yield struct {
	Lag     int64    `yaml:"lag" default:"10000" doc:"Live records waiting above which a redrive sends nothing; 0 is never."`
	Latency Duration `yaml:"latency" doc:"Age of the oldest waiting live record above which a redrive sends nothing; 0s is never."`
}

// Reconcile is the section reconcile: a question over HTTP, "here" (this pipeline is the last step) or "outcomes" (another
// program writes signed outcomes). The zero value is not said.
type Reconcile struct {
	Mode string // "", "http", "here", "outcomes"
	HTTP ReconcileHTTP
}

// ReconcileHTTP is the question reconcile.http.
type ReconcileHTTP struct {
	URL            string            `yaml:"url" required:"true" doc:"URL template: {event_id} is an identity field, {/path} a payload field."`
	Method         string            `yaml:"method" default:"GET" enum:"GET,HEAD,POST" doc:"HTTP method."`
	Timeout        Duration          `yaml:"timeout" default:"2s" doc:"Time for one answer."`
	Headers        map[string]Secret `yaml:"headers" doc:"Headers to send."`
	Applied        string            `yaml:"applied" required:"true" doc:"Condition over status and body: the effect is there."`
	Absent         string            `yaml:"absent" doc:"Condition: the effect is provably not there."`
	AlreadyApplied string            `yaml:"already_applied" doc:"Condition: the effect was there before this redrive."`
	Superseded     string            `yaml:"superseded" doc:"Condition: a newer state is there."`
	Measures       map[string]string `yaml:"measures" doc:"CEL expressions over body, by the names of redrive.measures: what the effect amounts to. Their sums must be those of the records."`
}

// UnmarshalConfig reads a word or the mapping.
func (r *Reconcile) UnmarshalConfig(n Node) Problems {
	if n.IsNull() {
		return nil
	}
	if text, ok := n.Text(); ok {
		if text != "here" && text != "outcomes" {
			return Problems{n.Problem("", CodeValue, "it is not a way to reconcile", "write here, outcomes, or http: {url, applied, absent}")}
		}
		r.Mode = text
		return nil
	}
	var form reconcileForm
	ps := n.Decode(&form)
	if form.HTTP != nil {
		r.Mode, r.HTTP = "http", *form.HTTP
	}
	return ps
}

type reconcileForm struct {
	HTTP *ReconcileHTTP `yaml:"http" required:"true" doc:"Question whose answer proves the effect."`
}

func (r Reconcile) configSchema() map[string]any {
	return eitherSchema(reconcileForm{}, "here", "outcomes")
}

// Stage is one item of stages: a mapping of one kind to its settings, and optionally name and when beside it.
type Stage struct {
	Kind     string
	Name     string // the kind, if the file does not name it
	When     string // CEL over view, headers, key and topic; empty is always
	Settings Node
	Path     string // of the settings: "stages[0].decode"
	Place    Node   // the whole item, for problems about name and when
}

// UnmarshalConfig splits the item.
func (s *Stage) UnmarshalConfig(n Node) Problems {
	if !n.IsMap() {
		suggestion := "write '- decode: {...}'"
		if text, ok := n.Text(); ok && !n.value.variable && !strings.ContainsAny(text, " :{") {
			suggestion = "write '- " + text + ": {...}'"
		}
		return Problems{n.Problem("", CodeType, "a stage is a kind with its settings", suggestion)}
	}
	var ps Problems
	var kinds []string
	for _, key := range n.Keys() {
		switch key {
		case "name":
			s.Name = stageText(n.Key(key), &ps)
		case "when":
			s.When = stageText(n.Key(key), &ps)
		default:
			kinds = append(kinds, key)
		}
	}
	s.Place = n
	switch len(kinds) {
	case 0:
		return append(ps, n.Problem("", CodeMissing, "the stage has no kind", "write '- decode: {...}'"))
	case 1:
	default:
		return append(ps, n.Problem(kinds[1], CodeValue, "the stage has a second kind: "+strings.Join(kinds, ", "),
			"begin a new item with '- ' before "+kinds[1]+", or indent it below "+kinds[0]))
	}
	s.Kind, s.Settings = kinds[0], n.Key(kinds[0])
	s.Path = s.Settings.Path()
	if s.Name == "" {
		s.Name = s.Kind
	}
	return ps
}

func stageText(n Node, ps *Problems) string {
	text, ok := n.Text()
	if !ok && !n.Broken() {
		*ps = append(*ps, n.Problem("", CodeType, "text is wanted here", ""))
	}
	return text
}

// LoadPipeline parses, decodes and checks a pipeline file as far as the file alone tells. The document is nil only when the
// file could not be read as YAML; the pipeline is usable only without problems.
func LoadPipeline(file string, data []byte, opt Options) (*Pipeline, *Doc, Problems) {
	doc, ps := Parse(file, data, opt)
	if doc == nil {
		return nil, nil, ps
	}
	p := &Pipeline{}
	ps = append(ps, doc.Decode(p)...)
	p.complete()
	return p, doc, ps.Sorted()
}

// complete fills what follows from other fields.
func (p *Pipeline) complete() {
	if p.Retry.Topic == "" && len(p.Source.Topics) == 1 {
		p.Retry.Topic = p.Source.Topics[0] + ".retry"
	}
	if p.Quarantine.Cluster == "" {
		p.Quarantine.Cluster = p.Source.Cluster
	}
	if p.Redrive.Destination == "" {
		p.Redrive.Destination = p.Retry.Topic
	}
	if o := &p.Source.Ordering; o.OnQuarantine == "" {
		o.OnQuarantine = map[string]string{"key": "block_key", "partition": "block_partition"}[o.Scope]
		if o.OnQuarantine == "" {
			o.OnQuarantine = "none"
		}
	}
}
