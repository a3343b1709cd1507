package redrive

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/custody/custodytest"
	"reprieve.dev/ledger"
	"reprieve.dev/ledger/ledgertest"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/seal"
	"reprieve.dev/tests/conformance/script"
	"reprieve.dev/transforms"
)

const (
	source = "billing.invoices.v1"
	retry  = "billing.invoices.v1.retry"
)

// bench is a ledger, a scripted cluster, a service over both, and a stand-in for the engine that settles the retry topic.
type bench struct {
	*custodytest.Env
	t       testing.TB
	kafka   *script.Cluster
	sink    *script.Sink
	svc     *Service
	target  *Target
	signer  *seal.Signer
	anton   custody.Actor // who approves
	opts    Options
	mu      sync.Mutex
	sleeps  []time.Duration
	onWait  func(d time.Duration)
	outcome func(*pipeline.Trail) pipeline.Result // what the engine says; nil: forwarded
	seen    map[pipeline.Position]bool
}

func eachBench(t *testing.T, f func(t *testing.T, b *bench)) {
	ledgertest.Each(t, func(t *testing.T, s ledgertest.Store) { f(t, newBench(t, s)) })
}

func newBench(t testing.TB, s ledgertest.Store, with ...func(*Options)) *bench {
	t.Helper()
	b := &bench{t: t, kafka: script.New(custodytest.Start.UnixMilli()), seen: map[pipeline.Position]bool{}}
	b.kafka.CreateTopic(source, 3, nil)
	b.kafka.CreateTopic(retry, 3, map[string]string{"retention.ms": "604800000"})
	b.kafka.CreateTopic("billing.invoices.v1.dlq", 1, nil)
	b.kafka.CreateTopic("reprieve.outcomes", 1, nil)
	b.kafka.CreateTopic("reprieve.settlements", 1, nil)
	log := b.kafka.Log(nil)
	logs := func(string) (pipeline.Log, bool) { return log, true }
	b.Env = custodytest.New(t, s, func(o *custody.Options) { o.Source = logs })
	var err error
	if b.signer, err = seal.GenerateSigner("anton"); err != nil {
		t.Fatal(err)
	}
	b.anton = custody.Actor{Subject: "anton", Roles: []string{"approver"}, Tenants: []string{custody.AllTenants}, Via: "cli"}
	dec, err := codec.NewDecoder(codec.DecodeConfig{Format: codec.FormatJSON}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.target = &Target{Pipeline: "billing", Group: "billing-event-processor", Cluster: "cluster-1", Sources: []string{source}, Outputs: []string{"billing.ledger.v1"},
		Destination: retry, Ceiling: 8000, Reconcile: "here", Horizon: Horizon{Known: true}, Decoder: dec, Library: transforms.NewLibrary(transforms.Options{Decoder: dec}),
		Rules:   transforms.Rules{EventID: "/event_id"},
		Watched: []Topic{{"cluster-1", "billing.invoices.v1.dlq"}, {"cluster-1", "reprieve.outcomes"}, {"cluster-1", "reprieve.settlements"}}}
	b.sink = b.kafka.Sink(script.SinkOptions{})
	b.opts = Options{Items: b.Items, Name: "exec-1", Clock: b.Clock, Wait: b.wait, Ring: b.Ring, Identity: b.Identity, Bound: 8000,
		Targets: func(name string) (*Target, bool) { return b.target, name == "billing" }, Source: logs,
		Send: func(context.Context, *Target, ledger.Lease) (pipeline.Sink, func(context.Context) error, error) {
			return b.sink, nil, nil
		},
		Approvers: []Approver{{Key: b.signer.Verifier(), Roles: []string{"approver"}}}, Settle: time.Minute}
	for _, w := range with {
		w(&b.opts)
	}
	b.svc = New(b.opts)
	return b
}

// wait turns the clock instead of waiting, and lets the engine work meanwhile. Guards that wait for longer than any pace
// wait for their context.
func (b *bench) wait(ctx context.Context, d time.Duration) error {
	if d >= 30*time.Second {
		<-ctx.Done()
		return ctx.Err()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	b.mu.Lock()
	b.sleeps = append(b.sleeps, d)
	hook := b.onWait
	b.mu.Unlock()
	b.Turn(d)
	b.kafka.SetNow(b.Clock().UnixMilli())
	if hook != nil {
		hook(d)
	}
	b.engine()
	return nil
}

// engine reads what is new on the retry topic and has the custodian told what became of it.
func (b *bench) engine() {
	var list []custody.TakenOutcome
	for p := range int32(b.kafka.Partitions(retry)) {
		tp := pipeline.TP{Topic: retry, Partition: p}
		for _, r := range b.kafka.Records(tp) {
			at := pipeline.Position{TP: tp, Offset: r.Offset}
			if b.seen[at] {
				continue
			}
			tr, _, err := deadletter.ParseTrail(retry, &r, b.Ring)
			if err != nil {
				b.t.Errorf("%s: %v", at, err)
				continue
			}
			result := pipeline.Forwarded
			if b.outcome != nil {
				result = b.outcome(tr)
			}
			if result == "" {
				continue
			}
			b.seen[at] = true
			list = append(list, custody.TakenOutcome{Outcome: pipeline.Outcome{Pipeline: "billing", Item: tr.Item, Redrive: tr.Redrive, Try: tr.Try, At: at, AtMS: b.Clock().UnixMilli(), Result: result, Writer: "engine"}})
		}
	}
	if err := b.Items.Outcomes(b.Ctx, custodytest.Worker, list); err != nil {
		b.t.Error(err)
	}
}

// ready admits, confirms and triages the letters of offsets [0, n).
func (b *bench) ready(n int64) []pipeline.ID {
	b.t.Helper()
	ids := b.Admit(b.t, 0, n)
	b.Confirm(b.t, 0, n)
	b.Triage(b.t, ids...)
	return ids
}

func (b *bench) snapshot(selection string) custody.Snapshot {
	b.t.Helper()
	sel, err := custody.ParseSelection(selection)
	if err != nil {
		b.t.Fatal(err)
	}
	s, err := b.Items.TakeSnapshot(b.Ctx, custodytest.Operator, sel)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

func (b *bench) request(with ...func(*PlanRequest)) PlanRequest {
	s := b.snapshot("tenant=acme")
	r := PlanRequest{Pipeline: "billing", Snapshot: s.ID, Count: s.Count, Digest: string(s.Digest), Ticket: "OPS-1"}
	for _, w := range with {
		w(&r)
	}
	return r
}

func (b *bench) plan(with ...func(*PlanRequest)) *Planned {
	b.t.Helper()
	p, err := b.svc.Plan(b.Ctx, custodytest.Operator, b.request(with...))
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

// lines are the frozen items of a plan, as the ledger has them.
func (b *bench) lines(p *Planned) (lines []Line) {
	b.t.Helper()
	if err := b.svc.db.Read(b.Ctx, func(tx *ledger.Tx) (err error) {
		lines, err = readLines(tx, p.Manifest, p.Digest)
		return err
	}); err != nil {
		b.t.Fatal(err)
	}
	return lines
}

func (b *bench) approve(p *Planned) {
	b.t.Helper()
	if _, err := b.svc.DryRun(b.Ctx, custodytest.Operator, p.Digest); err != nil {
		b.t.Fatal(err)
	}
	rate, err := ParseRate(p.Manifest.Pace.Rate)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := b.svc.Approve(b.Ctx, b.anton, Sign(b.signer, p.Digest, "approver", rate, b.Clock().Add(time.Hour))); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) run(p *Planned) *Status {
	b.t.Helper()
	st, err := b.svc.Run(b.Ctx, custodytest.Operator, p.Digest)
	if err != nil {
		b.t.Fatal(err)
	}
	return st
}

func (b *bench) sentCount() (n int) {
	for p := range int32(b.kafka.Partitions(retry)) {
		n += len(b.kafka.Records(pipeline.TP{Topic: retry, Partition: p}))
	}
	return n
}

func wantCode(t testing.TB, err error, code pipeline.Code) {
	t.Helper()
	if pipeline.CodeOf(err) != code {
		t.Errorf("got %v, want %s", err, code)
	}
}

func tpText(tp pipeline.TP) string { return fmt.Sprintf("%s/%d", tp.Topic, tp.Partition) }

func sqliteStore(t testing.TB) ledgertest.Store { return ledgertest.SQLite(t) }
