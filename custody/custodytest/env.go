// Package custodytest opens custody over fresh ledgers for tests, and makes letters.
package custodytest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/ledger"
	"reprieve.dev/ledger/ledgertest"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/seal"
)

// Start is when the clock of an Env begins.
var Start = time.Date(2026, 9, 15, 10, 0, 0, 0, time.UTC)

// The actors of tests.
var (
	Worker   = custody.System("custodian")
	Operator = custody.Actor{Subject: "ana", Roles: []string{"operator"}, Tenants: []string{custody.AllTenants}, Via: "cli"}
	Owner    = custody.Actor{Subject: "omar", Roles: []string{"owner"}, Tenants: []string{custody.AllTenants}, Via: "cli"}
	Admin    = custody.Actor{Subject: "root", Roles: []string{"admin"}, Tenants: []string{custody.AllTenants}, Via: "cli"}
	Viewer   = custody.Actor{Subject: "vera", Roles: []string{"viewer"}, Tenants: []string{"acme"}, Via: "console"}
)

// Env is custody over one fresh ledger with a clock that tests turn.
type Env struct {
	Store    ledgertest.Store
	DB       *ledger.DB
	Items    *custody.Items
	Identity *seal.IdentityKey
	Ring     *seal.Ring
	Ctx      context.Context

	mu  sync.Mutex
	now time.Time
}

// Each runs f for each store.
func Each(t *testing.T, f func(t *testing.T, e *Env)) {
	ledgertest.Each(t, func(t *testing.T, s ledgertest.Store) { f(t, New(t, s)) })
}

// New opens custody over a store. Change the options before with with.
func New(t testing.TB, s ledgertest.Store, with ...func(*custody.Options)) *Env {
	t.Helper()
	e := &Env{Store: s, Ctx: context.Background(), now: Start}
	var err error
	if e.Identity, err = seal.NewIdentityKey("id1", []byte("0123456789abcdef0123456789abcdef")); err != nil {
		t.Fatal(err)
	}
	if e.Ring, err = seal.NewRing([]seal.Key{{ID: "h1", Secret: []byte("fedcba9876543210fedcba9876543210")}}); err != nil {
		t.Fatal(err)
	}
	e.DB = s.Open(t, ledger.Options{Clock: e.Clock, BusyTimeout: 30 * time.Second})
	e.Items = e.Again(e.DB, with...)
	return e
}

// Again is custody over another connection to the same ledger: what another process would have.
func (e *Env) Again(db *ledger.DB, with ...func(*custody.Options)) *custody.Items {
	o := custody.Options{Clock: e.Clock, Identity: e.Identity, Ring: e.Ring}
	for _, w := range with {
		w(&o)
	}
	return custody.New(db, o)
}

// Clock is the Env's clock.
func (e *Env) Clock() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.now
}

// Turn moves the clock on.
func (e *Env) Turn(d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.now = e.now.Add(d)
}

// Letter makes the letter of source offset n of acme's invoices, as the engine would write it, one second after Start for
// each offset.
func (e *Env) Letter(n int64) *deadletter.Letter {
	value := fmt.Appendf(nil, `{"invoice_id":"INV-%d","amount_minor":%d}`, n, 100+n)
	id := pipeline.Identity{Consumer: "billing-event-processor", Release: "billing-event-processor@2.2", Tenant: "acme", EventID: fmt.Sprintf("ev-%d", n), Entity: fmt.Sprintf("acct-%d", n%7)}
	f := pipeline.Failure{Stage: "decode", Code: pipeline.CodeDecodeTruncated, Params: []pipeline.Param{pipeline.Str("schema", "avro:7"), pipeline.Int("at", 17)}}
	at := pipeline.Position{TP: pipeline.TP{Topic: "billing.invoices.v1", Partition: int32(n % 3)}, Offset: n}
	ms := Start.UnixMilli() + 1000*n
	return &deadletter.Letter{
		Kind: deadletter.KindLetter, Item: deadletter.QuarantineID(e.Identity, id, "cluster-1", at, value), At: at, Original: at, Cluster: "cluster-1", OriginalMS: ms - 50, TimeType: pipeline.TimeCreate,
		Pipeline: "billing", Failure: f, Identity: id, Class: pipeline.Payload, Fingerprint: deadletter.Fingerprint(id.Consumer, &f), Schema: "avro:7",
		Decision:       pipeline.Decision{Action: pipeline.ActQuarantine, Code: f.Code, Policy: "sha256:00"},
		DigestFaithful: pipeline.Digest(e.Identity.Digest(value)), DigestRedacted: pipeline.Digest(seal.SHA256(value)), Faithful: deadletter.Inline,
		QuarantinedMS: ms, Reason: f.Reason(), Exception: "reprieve.payload." + string(f.Code),
		Key: fmt.Appendf(nil, "acct-%d", n%7), Value: value, Headers: []pipeline.Header{{Name: "traceparent", Value: []byte("00-aa-bb-01")}, {Name: "null", Value: nil}, {Name: "empty", Value: []byte{}}},
		Dialect: deadletter.Reprieve,
	}
}

// Arrival puts a letter at an offset of the dead-letter topic.
func Arrival(l *deadletter.Letter, offset int64) custody.Arrival {
	return custody.Arrival{Letter: l, Stands: pipeline.Position{TP: pipeline.TP{Topic: "billing.invoices.v1.dlq", Partition: 0}, Offset: offset}, TimeMS: l.QuarantinedMS, Cluster: "cluster-1"}
}

// Arrivals are the letters of source offsets [from, to).
func (e *Env) Arrivals(from, to int64) []custody.Arrival {
	var out []custody.Arrival
	for n := from; n < to; n++ {
		out = append(out, Arrival(e.Letter(n), n))
	}
	return out
}

// Admit takes the letters of source offsets [from, to) into custody and returns their ids.
func (e *Env) Admit(t testing.TB, from, to int64) []pipeline.ID {
	t.Helper()
	list := e.Arrivals(from, to)
	if _, err := e.Items.Admit(e.Ctx, Worker, list); err != nil {
		t.Fatal(err)
	}
	var ids []pipeline.ID
	for _, a := range list {
		ids = append(ids, a.Letter.Item)
	}
	return ids
}

// Confirm settles source offsets [from, to) of all partitions as dead-lettered and commits them.
func (e *Env) Confirm(t testing.TB, from, to int64) {
	t.Helper()
	offsets := map[pipeline.TP]int64{}
	var list []custody.Settled
	for p := range int64(3) {
		tp := pipeline.TP{Topic: "billing.invoices.v1", Partition: int32(p)}
		s := deadletter.NewSettlement("billing", tp, 1, pipeline.Checkpoint{Next: from})
		for n := from; n < to; n++ {
			if n%3 == p {
				s.Add(n, pipeline.DeadLettered)
			}
		}
		s.To, s.Next = to, to
		offsets[tp] = to
		list = append(list, custody.Settled{Settlement: s, AtMS: e.Clock().UnixMilli()})
	}
	if err := e.Items.Settle(e.Ctx, Worker, list); err != nil {
		t.Fatal(err)
	}
	if err := e.Items.Committed(e.Ctx, Worker, "billing-event-processor", offsets); err != nil {
		t.Fatal(err)
	}
}

// Show is Items.Show for the operator.
func (e *Env) Show(t testing.TB, id pipeline.ID) *custody.Shown {
	t.Helper()
	s, err := e.Items.Show(e.Ctx, Operator, id)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Path are the states that an item went through, in order.
func Path(s *custody.Shown) []custody.State {
	var out []custody.State
	for _, h := range s.History {
		if h.To != "" {
			out = append(out, custody.State(h.To))
		}
	}
	return out
}

// Triage triages items with the ticket OPS-1.
func (e *Env) Triage(t testing.TB, ids ...pipeline.ID) {
	t.Helper()
	if _, err := e.Items.Triage(e.Ctx, Operator, custody.Target{Items: ids}, "OPS-1"); err != nil {
		t.Fatal(err)
	}
}
