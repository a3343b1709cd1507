package config

// Worker is the worker file (reprieve.yaml): what pipelines only name.
type Worker struct {
	Name       string                `yaml:"name" doc:"Stable name of this worker; the host's name if not said."`
	Clusters   map[string]Properties `yaml:"clusters" doc:"Kafka clusters by name, each with properties of librdkafka."`
	Registries map[string]Registry   `yaml:"registries" doc:"Schema registries by name."`
	Ledgers    map[string]Ledger     `yaml:"ledgers" doc:"Ledgers by name: sqlite:PATH or postgres://..."`
	Keys       Keys                  `yaml:"keys" doc:"Keys that sign and identify."`
	Custody    Custody               `yaml:"custody" doc:"What the custodian keeps and for whom."`
	Alerts     Alerts                `yaml:"alerts" doc:"Where alerts go directly."`
	Approvers  []Approver            `yaml:"approvers" doc:"Persons whose signatures count."`
	HTTP       HTTP                  `yaml:"http" doc:"API, console, health and metrics."`
	Sandbox    Sandbox               `yaml:"sandbox" doc:"What plugin processes may use."`
	Telemetry  Telemetry             `yaml:"telemetry" doc:"Logs, metrics and traces."`
	Topics     TopicNames            `yaml:"topics" doc:"Names of the platform's own topics."`
	Bounds     Bounds                `yaml:"bounds" doc:"Limits that no pipeline can widen."`
}

// Registry is one schema registry.
type Registry struct {
	URL         string   `yaml:"url" required:"true" doc:"Base URL; several, comma-separated, are tried in order."`
	User        string   `yaml:"user" doc:"User of basic authentication."`
	Password    Secret   `yaml:"password" doc:"Password of basic authentication."`
	Token       Secret   `yaml:"token" doc:"Bearer token, instead of user and password."`
	TLS         TLS      `yaml:"tls" doc:"Certificates."`
	Concurrency int      `yaml:"concurrency" default:"8" doc:"Requests at once."`
	Timeout     Duration `yaml:"timeout" default:"2s" doc:"Time for one request."`
}

// TLS names certificate files.
type TLS struct {
	CA   string `yaml:"ca" doc:"File of the authorities to trust, PEM."`
	Cert string `yaml:"cert" doc:"File of our certificate, PEM."`
	Key  string `yaml:"key" doc:"File of its private key, PEM."`
}

// Ledger is one database. In the file it is its URL, or a mapping.
type Ledger struct {
	URL Secret `yaml:"url" required:"true" doc:"sqlite:PATH or postgres://user:password@host/database."`
}

// UnmarshalConfig reads the URL alone or the mapping.
func (l *Ledger) UnmarshalConfig(n Node) Problems {
	if _, ok := n.Text(); ok {
		return l.URL.UnmarshalConfig(n)
	}
	type plain Ledger
	return n.Decode((*plain)(l))
}

func (l Ledger) configSchema() map[string]any {
	type plain Ledger
	return eitherSchema(plain{})
}

// Keys is the section keys.
type Keys struct {
	HMAC     []HMACKey   `yaml:"hmac" doc:"Keys that sign headers: the first signs, all verify."`
	Identity IdentityKey `yaml:"identity" doc:"Key that makes quarantine ids; never rotated."`
	Writers  []Writer    `yaml:"writers" doc:"Programs that may write outcomes."`
	Keeper   Keeper      `yaml:"keeper" doc:"What wraps the private keys that open sealed letters; without it nothing is sealed."`
}

// Keeper is keys.keeper: exactly one of its keys is set.
type Keeper struct {
	File string `yaml:"file" doc:"File with 32 random bytes in base64, mode 0600; a relative path counts from the worker file."`
	URL  string `yaml:"url" doc:"Key of a vault or a KMS: hashivault://KEY, awskms://..., gcpkms://..., azurekeyvault://..."`
}

// IsZero tells whether no keeper is named.
func (k Keeper) IsZero() bool { return k == Keeper{} }

// HMACKey is one signing key.
type HMACKey struct {
	ID     string `yaml:"id" required:"true" doc:"Name of the key; it stands in every signature."`
	Secret Secret `yaml:"secret" required:"true" doc:"At least 16 bytes, for example ${file:keys/hmac}."`
	From   string `yaml:"from" doc:"When it came into use, RFC 3339 or a date."`
}

// IdentityKey is keys.identity.
type IdentityKey struct {
	ID     string `yaml:"id" doc:"Name of the key; it stands in every keyed digest."`
	Secret Secret `yaml:"secret" doc:"At least 16 bytes."`
}

// Writer is a program that may write outcomes for a consumer.
type Writer struct {
	ID       string `yaml:"id" required:"true" doc:"Name of the writer."`
	Public   string `yaml:"public" required:"true" doc:"Its Ed25519 public key, base64 or PEM."`
	Consumer string `yaml:"consumer" required:"true" doc:"Group whose records it speaks for."`
}

// Custody is the section custody.
type Custody struct {
	Adopt      []Adopt     `yaml:"adopt" doc:"Dead-letter topics of other systems to manage."`
	Retention  Retention   `yaml:"retention" doc:"How long items are kept."`
	Large      Large       `yaml:"large" doc:"Where payloads stand that are too large for the ledger."`
	Owners     []Owner     `yaml:"owners" doc:"Who owns which items; the first that selects wins."`
	Objectives []Objective `yaml:"objectives" doc:"How soon items should be looked at and resolved."`
}

// Adopt is one foreign dead-letter topic.
type Adopt struct {
	Cluster  string   `yaml:"cluster" default:"main" doc:"Name of a cluster."`
	Topic    string   `yaml:"topic" required:"true" doc:"The dead-letter topic."`
	Dialect  string   `yaml:"dialect" enum:"connect,streams,share,spring,spring-cloud,smallrye,karafka,wolverine,x,raw" doc:"How it spells a letter; found out if not said."`
	Consumer string   `yaml:"consumer" doc:"Group that failed, if the letters do not name it."`
	Tenant   Tenant   `yaml:"tenant" doc:"Where the tenant stands."`
	Identity Identity `yaml:"identity" doc:"Where the names of a record stand."`
	Data     string   `yaml:"data" doc:"Data class of the records: a name of custody.retention.data, which says how long they are kept."`
	Redrive  string   `yaml:"redrive" doc:"Topic that redriven records go to."`
}

// Large is custody.large.
type Large struct {
	Bucket string `yaml:"bucket" doc:"URL of a bucket for them, for example file:///var/lib/reprieve/payloads; without it all stand in the ledger."`
	Over   Size   `yaml:"over" default:"256KiB" doc:"Values that are larger go there."`
}

// Retention is custody.retention. In the file it may be one duration, the default.
type Retention struct {
	Default  Duration            `yaml:"default" default:"30d" doc:"For items without a rule of their own."`
	Classes  map[string]Duration `yaml:"classes" doc:"By failure class."`
	Data     map[string]Duration `yaml:"data" doc:"By data class."`
	Tell     Duration            `yaml:"tell" default:"25d" doc:"Age at which the owner is told."`
	Escalate string              `yaml:"escalate" doc:"Who is told when the owner does nothing."`
	Archive  string              `yaml:"archive" doc:"URL of a bucket that expired items are archived to."`
	History  Duration            `yaml:"history" default:"2557d" doc:"For the history, 7 years by default."`
}

// UnmarshalConfig reads one duration or the mapping.
func (r *Retention) UnmarshalConfig(n Node) Problems {
	type plain Retention
	if _, ok := n.Text(); !ok {
		return n.Decode((*plain)(r))
	}
	Node{}.Decode((*plain)(r)) // defaults; nothing is required
	ps := r.Default.UnmarshalConfig(n)
	if r.Tell >= r.Default {
		r.Tell = r.Default - r.Default/6
	}
	return ps
}

func (r Retention) configSchema() map[string]any {
	type plain Retention
	return eitherSchema(plain{})
}

// Longest is the longest time that any item is kept.
func (r Retention) Longest() Duration {
	most := r.Default
	for _, m := range [...]map[string]Duration{r.Classes, r.Data} {
		for _, d := range m {
			most = max(most, d)
		}
	}
	return most
}

// Owner gives items to somebody.
type Owner struct {
	Select string `yaml:"select" required:"true" doc:"Selection, for example pipeline=billing class=payload."`
	Owner  string `yaml:"owner" required:"true" doc:"Team or person."`
}

// Objective is how soon items should move.
type Objective struct {
	Select  string   `yaml:"select" doc:"Selection; all items if empty."`
	Triage  Duration `yaml:"triage" doc:"Age by which an item is triaged."`
	Resolve Duration `yaml:"resolve" doc:"Age by which it is resolved."`
}

// Alerts is the section alerts.
type Alerts struct {
	Webhook Webhook `yaml:"webhook" doc:"URL that alerts are posted to."`
}

// Webhook is one URL with what it needs. In the file it may be the URL alone.
type Webhook struct {
	URL     Secret            `yaml:"url" doc:"Where to post."`
	Headers map[string]Secret `yaml:"headers" doc:"Headers to send."`
	Timeout Duration          `yaml:"timeout" default:"5s" doc:"Time for one request."`
}

// UnmarshalConfig reads the URL alone or the mapping.
func (w *Webhook) UnmarshalConfig(n Node) Problems {
	type plain Webhook
	if _, ok := n.Text(); !ok {
		return n.Decode((*plain)(w))
	}
	Node{}.Decode((*plain)(w))
	return w.URL.UnmarshalConfig(n)
}

func (w Webhook) configSchema() map[string]any {
	type plain Webhook
	return eitherSchema(plain{})
}

// Approver is a person whose signature counts.
type Approver struct {
	Subject string   `yaml:"subject" required:"true" doc:"Who signs."`
	Public  string   `yaml:"public" required:"true" doc:"Ed25519 public key, base64 or PEM."`
	Roles   []string `yaml:"roles" required:"true" doc:"What the person may approve."`
	Tenants []string `yaml:"tenants" doc:"For which tenants; all if empty."`
}

// HTTP is the section http.
type HTTP struct {
	Address string              `yaml:"address" default:"127.0.0.1:8080" doc:"Host and port to listen on."`
	TLS     TLS                 `yaml:"tls" doc:"Certificate to serve with; ca asks callers for theirs."`
	Tokens  []Token             `yaml:"tokens" doc:"Programs that authenticate by a bearer token."`
	OIDC    *OIDC               `yaml:"oidc" doc:"Sign-in of persons."`
	Roles   map[string][]string `yaml:"roles" doc:"Permissions by role; the built-in roles if empty."`
}

// Token is one caller by bearer token.
type Token struct {
	Subject string   `yaml:"subject" required:"true" doc:"Who calls."`
	Token   Secret   `yaml:"token" required:"true" doc:"The token."`
	Roles   []string `yaml:"roles" required:"true" doc:"Its roles."`
	Tenants []string `yaml:"tenants" doc:"For which tenants; all if empty."`
}

// OIDC is the section http.oidc.
type OIDC struct {
	Issuer       string              `yaml:"issuer" required:"true" doc:"URL of the issuer."`
	ClientID     string              `yaml:"client_id" required:"true" doc:"Our client id."`
	ClientSecret Secret              `yaml:"client_secret" doc:"Our client secret."`
	RedirectURL  string              `yaml:"redirect_url" doc:"URL of the console's callback."`
	RolesClaim   string              `yaml:"roles_claim" default:"groups" doc:"Claim that holds the groups of a person."`
	TenantsClaim string              `yaml:"tenants_claim" doc:"Claim that holds the tenants of a person."`
	Groups       map[string][]string `yaml:"groups" doc:"Roles by group; a group of a role's name has that role."`
}

// Sandbox is the section sandbox.
type Sandbox struct {
	Dir       string   `yaml:"dir" default:"plugins" doc:"Folder of installed plugins."`
	Lock      string   `yaml:"lock" default:"plugins.lock" doc:"File that pins what may run."`
	Memory    Size     `yaml:"memory" default:"256MiB" doc:"Memory of one plugin process."`
	CPU       Duration `yaml:"cpu" default:"60s" doc:"CPU time of one process for one batch."`
	Processes int      `yaml:"processes" default:"32" doc:"Processes and threads of one plugin."`
	Timeout   Duration `yaml:"timeout" default:"5s" doc:"Time for one call."`
	Start     Duration `yaml:"start" default:"10s" doc:"Time for a start."`
	Output    Size     `yaml:"output" default:"8MiB" doc:"Largest answer."`
	Insecure  bool     `yaml:"insecure" doc:"Run plugins where the sandbox is not available; for development only."`
}

// Telemetry is the section telemetry.
type Telemetry struct {
	Log  Log   `yaml:"log" doc:"Log lines."`
	OTLP *OTLP `yaml:"otlp" doc:"OpenTelemetry collector."`
}

// Log is the section telemetry.log.
type Log struct {
	Level  string `yaml:"level" default:"info" enum:"debug,info,warn,error" doc:"Lowest level to write."`
	Format string `yaml:"format" default:"text" enum:"text,json" doc:"Form of a line."`
}

// OTLP is the section telemetry.otlp.
type OTLP struct {
	Endpoint string            `yaml:"endpoint" required:"true" doc:"URL of the collector."`
	Headers  map[string]Secret `yaml:"headers" doc:"Headers to send."`
	Sample   float64           `yaml:"sample" default:"0.01" doc:"Share of traces that is kept, from 0 to 1."`
}

// TopicNames is the section topics.
type TopicNames struct {
	Prefix string `yaml:"prefix" default:"reprieve" doc:"Prefix of control, settlements, ranges, outcomes and audit topics."`
}

// Bounds is the section bounds: the platform's limits. Zero durations take the defaults of the policy.
type Bounds struct {
	Attempts        int           `yaml:"attempts" default:"5" doc:"Most retries of a record."`
	Age             Duration      `yaml:"age" doc:"Oldest record that is still retried."`
	Cumulative      Duration      `yaml:"cumulative" doc:"Most time that all retries of a record may take."`
	UnknownErrors   UnknownErrors `yaml:"unknown_errors" doc:"Budget of failures that nobody has classified, and of our own defects. A pipeline whose budget is exceeded is halted until a person resumes it."`
	LeaseExtensions int           `yaml:"lease_extensions" doc:"How often a lease may be extended."`
	Redrive         Rate          `yaml:"redrive" default:"50/s" doc:"Highest rate of all redrives together."`
	Quotas          Quotas        `yaml:"quotas" doc:"Highest rates of the redrives of one tenant or to one destination."`
}

// Quotas is bounds.quotas. All executors share them through the ledger.
type Quotas struct {
	Tenants      map[string]Rate `yaml:"tenants" doc:"By tenant."`
	Destinations map[string]Rate `yaml:"destinations" doc:"By topic that redriven records enter by."`
}

// UnknownErrors is bounds.unknown_errors.
type UnknownErrors struct {
	Window    int `yaml:"window" default:"10000" doc:"How many outcomes of records, the last ones, are looked at; 0 is no budget."`
	Tolerated int `yaml:"tolerated" default:"100" doc:"How many of them may be such failures."`
}

// LoadWorker parses, decodes and checks a worker file. The document is nil only when the file could not be read as YAML; the
// worker is usable only without problems.
func LoadWorker(file string, data []byte, opt Options) (*Worker, *Doc, Problems) {
	doc, ps := Parse(file, data, opt)
	if doc == nil {
		return nil, nil, ps
	}
	w := &Worker{}
	ps = append(ps, doc.Decode(w)...)
	return w, doc, ps.Sorted()
}
