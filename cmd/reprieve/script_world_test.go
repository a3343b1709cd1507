package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"reprieve.dev/custody"
	"reprieve.dev/embedded"
	"reprieve.dev/examples/billing"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/seal"
)

// writeRecords FILE writes one record of each kind that the pipeline billing must tell apart, in the form that try reads.
func writeRecords(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: records (invoices|adjustments) FILE")
	}
	g := billing.Generator{Seed: 3, Count: 400, Poison: 0.05, Secrets: 0.07, SchemaID: 7, Partitions: 12, Stamp: true}
	sequence := g.Invoices()
	if args[0] == "adjustments" {
		sequence = g.Adjustments()
	}
	type kind struct {
		defect       billing.Defect
		card, bearer bool
	}
	seen := map[kind]bool{}
	var out []byte
	offset := int64(9007199254740993) // no reader may round it
	add := func(m *pipeline.Message) {
		r := pipeline.Record{Offset: offset, TimeMS: m.TimeMS, TimeType: pipeline.TimeCreate, Key: m.Key, Value: m.Value, Headers: m.Headers}
		out = append(pipeline.AppendForm(out, pipeline.TP{Topic: m.Topic, Partition: m.Partition}, &r), '\n')
		offset++
	}
	var last pipeline.Message
	for m, label := range sequence {
		k := kind{label.Defect, label.Card, label.Bearer}
		if seen[k] || k.defect != billing.None && (k.card || k.bearer) {
			continue
		}
		seen[k] = true
		add(&m)
		last = m
	}
	last.Headers = nil
	last.Value = nil
	add(&last)
	last.Value = []byte{}
	add(&last)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), out, 0o644))
}

// begin is when the items of fillLedger failed.
var begin = time.Date(2026, 9, 15, 10, 0, 0, 0, time.UTC)

// fillLedger FILE [PIPELINE] makes a ledger with the items that the pipeline billing would have brought there: four truncated invoices and
// two with an unknown currency of acme, one of globex with bytes that look for a terminal, confirmed but the last. Those of another
// pipeline are JSON.
func fillLedger(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: ledger FILE [PIPELINE]")
	}
	ctx := context.Background()
	clock := func() time.Time { return begin.Add(time.Hour) }
	identity, err := seal.NewIdentityKey("i1", []byte("for tests only: makes item ids"))
	ts.Check(err)
	ring, err := seal.NewRing([]seal.Key{{ID: "h1", Secret: []byte("for tests only: signs headers")}})
	ts.Check(err)
	db, err := ledger.Open(ctx, "sqlite:"+ts.MkAbs(args[0]), ledger.Options{Clock: clock})
	ts.Check(err)
	defer db.Close()
	items := custody.New(db, custody.Options{Clock: clock, Identity: identity, Ring: ring})
	tp := pipeline.TP{Topic: "billing.invoices.v1", Partition: 3}
	var arrivals []custody.Arrival
	settled := deadletter.NewSettlement("billing", tp, 1, pipeline.Checkpoint{Next: 100})
	for n := range int64(7) {
		l := storedLetter(identity, tp, n)
		if len(args) > 1 {
			l.Pipeline, l.Schema = args[1], "json"
		}
		settled.Add(l.Original.Offset, pipeline.DeadLettered)
		arrivals = append(arrivals, custody.Arrival{Letter: l, TimeMS: l.QuarantinedMS, Cluster: "cluster-1",
			Stands: pipeline.Position{TP: pipeline.TP{Topic: "billing.invoices.v1.dlq"}, Offset: n}})
	}
	system := custody.System("custodian")
	_, err = items.Admit(ctx, system, arrivals)
	ts.Check(err)
	settled.To, settled.Next = 106, 106
	ts.Check(items.Settle(ctx, system, []custody.Settled{{Settlement: settled, AtMS: clock().UnixMilli()}}))
	ts.Check(items.Committed(ctx, system, "billing-event-processor", map[pipeline.TP]int64{tp: 106}))
	for n, a := range arrivals {
		ts.Setenv(fmt.Sprintf("ITEM%d", n), string(a.Letter.Item))
	}
	addPerson(ts, false, []string{"operator"})
	ts.Setenv("TRUNCATED", string(arrivals[0].Letter.Fingerprint))
	ts.Setenv("CURRENCY", string(arrivals[4].Letter.Fingerprint))
}

// addPerson ROLE registers ROLE@example.com as an approver with that role, and writes the key to ROLE.pem.
func addPerson(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: person ROLE")
	}
	person, err := seal.GenerateSigner(args[0] + "@example.com")
	ts.Check(err)
	ts.Check(person.WriteFile(ts.MkAbs(args[0] + ".pem")))
	file := ts.MkAbs("reprieve.yaml")
	text, err := os.ReadFile(file)
	ts.Check(err)
	if !bytes.Contains(text, []byte("\napprovers:\n")) {
		text = append(text, "\napprovers:\n"...)
	}
	text = fmt.Appendf(text, "  - {subject: %s, public: %q, roles: [%s]}\n", person.Subject(), person.Verifier().Text(), args[0])
	ts.Check(os.WriteFile(file, text, 0o644))
}

// startServers runs a broker and a registry with the schema of the invoices until the script ends.
func startServers(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: servers")
	}
	b, err := embedded.StartBroker(embedded.BrokerConfig{Dir: ts.MkAbs(".servers/broker")})
	ts.Check(err)
	ts.Defer(func() { b.Close() })
	r, err := embedded.StartRegistry(embedded.RegistryConfig{Dir: ts.MkAbs(".servers/registry")})
	ts.Check(err)
	ts.Defer(func() { _ = r.Close() })
	reg, err := codec.NewRegistry(codec.RegistryConfig{Name: "main", URL: r.URL()}, time.Now)
	ts.Check(err)
	_, err = reg.Register(context.Background(), billing.Subject, billing.Schema(), "avro")
	ts.Check(err)
	ts.Setenv("REPRIEVE_BOOTSTRAP", b.Bootstrap())
	ts.Setenv("REPRIEVE_DLQ_BOOTSTRAP", b.Bootstrap())
	ts.Setenv("REPRIEVE_REGISTRY", r.URL())
}

func storedLetter(identity *seal.IdentityKey, tp pipeline.TP, n int64) *deadletter.Letter {
	value, err := json.Marshal(map[string]any{"invoice_id": fmt.Sprintf("INV-%d", n), "currency": "XXX"})
	if err != nil {
		panic(err) // texts alone
	}
	who := pipeline.Identity{Consumer: "billing-event-processor", Release: "billing-event-processor@2.2", Tenant: "acme",
		EventID: fmt.Sprintf("evt-%d", n), Entity: fmt.Sprintf("ACC-%d", n)}
	f := pipeline.Failure{Stage: "decode", Code: pipeline.CodeDecodeTruncated, Params: []pipeline.Param{pipeline.Str("schema", "avro:7"), pipeline.Int("at", 17)}}
	if n >= 4 {
		f = pipeline.Failure{Stage: "classify", Code: pipeline.CodeRejected, Params: []pipeline.Param{pipeline.Str("rule", "invalid-currency")}}
	}
	if n == 6 {
		who.Tenant, who.EventID = "globex", "evt\x1b[2J\u202e6"
	}
	at := pipeline.Position{TP: tp, Offset: 100 + n}
	ms := begin.UnixMilli() + 1000*n
	return &deadletter.Letter{
		Kind: deadletter.KindLetter, Item: deadletter.QuarantineID(identity, who, "cluster-1", at, value), At: at, Original: at, Cluster: "cluster-1",
		OriginalMS: ms - 50, TimeType: pipeline.TimeCreate, Pipeline: "billing", Failure: f, Identity: who, Class: pipeline.Lookup(f.Code).Class,
		Fingerprint: deadletter.Fingerprint(who.Consumer, &f), Schema: "avro:7",
		Decision:       pipeline.Decision{Action: pipeline.ActQuarantine, Code: f.Code, Policy: "sha256:00"},
		DigestFaithful: pipeline.Digest(identity.Digest(value)), DigestRedacted: pipeline.Digest(seal.SHA256(value)), Faithful: deadletter.Inline,
		QuarantinedMS: ms, Reason: f.Reason(), Exception: "reprieve." + pipeline.Lookup(f.Code).Class.String() + "." + string(f.Code),
		Key: []byte(who.Entity), Value: value, Dialect: deadletter.Reprieve,
	}
}
