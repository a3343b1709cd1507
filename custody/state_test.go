package custody_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"reprieve.dev/custody"
	"reprieve.dev/custody/custodytest"
	"reprieve.dev/ledger"
	"reprieve.dev/ledger/ledgertest"
	"reprieve.dev/pipeline"
)

// law is the state machine once more, as the design writes it: from, to, by whom. Next must say the same and nothing else.
var law = map[string]string{
	" deliver": "DELIVERED", " park": "PARKED",
	"DELIVERED retry": "RETRYING", "DELIVERED dead_letter": "DEAD_LETTERED", "RETRYING dead_letter": "DEAD_LETTERED",
	"PARKED deliver": "DELIVERED", "PARKED dead_letter": "DEAD_LETTERED",
	"DEAD_LETTERED triage": "TRIAGED", "TRIAGED repair": "REPAIRED", "REPAIRED unrepair": "TRIAGED",
	"TRIAGED redrive": "REDRIVING", "REPAIRED redrive": "REDRIVING", "REDRIVING withdraw": "TRIAGED", "REDRIVING withdraw_repaired": "REPAIRED",
	"REDRIVING reconcile": "RECONCILED", "REDRIVING redrive_failed": "REDRIVE_FAILED", "REDRIVE_FAILED return": "TRIAGED",
	"DEAD_LETTERED hold": "POLICY_HOLD", "TRIAGED hold": "POLICY_HOLD", "REPAIRED hold": "POLICY_HOLD", "POLICY_HOLD release": "DEAD_LETTERED", "POLICY_HOLD release_triaged": "TRIAGED",
	"TRIAGED resolve": "RECONCILED", "REPAIRED resolve": "RECONCILED", "POLICY_HOLD resolve": "RECONCILED",
	"DEAD_LETTERED delivered_live": "RECONCILED", "TRIAGED delivered_live": "RECONCILED", "REPAIRED delivered_live": "RECONCILED", "POLICY_HOLD delivered_live": "RECONCILED",
	"TRIAGED discard": "DISCARDED", "REPAIRED discard": "DISCARDED", "DISCARDED restore": "TRIAGED",
	"DEAD_LETTERED expire": "EXPIRED", "TRIAGED expire": "EXPIRED", "REPAIRED expire": "EXPIRED", "REDRIVE_FAILED expire": "EXPIRED", "POLICY_HOLD expire": "EXPIRED",
}

var events = []custody.Event{custody.Deliver, custody.Retry, custody.DeadLetter, custody.Park, custody.Triage, custody.Repair, custody.Unrepair, custody.Redrive, custody.WithdrawTriaged,
	custody.WithdrawRepaired, custody.Fail, custody.Return, custody.Reconcile, custody.Resolve, custody.DeliveredLive, custody.Hold, custody.Release, custody.ReleaseTriaged, custody.Discard,
	custody.Restore, custody.Expire}

func TestNextHasExactlyTheTransitionsOfTheLaw(t *testing.T) {
	for _, from := range append(custody.States(), custody.None) {
		for _, ev := range events {
			to, err := custody.Next(from, ev)
			want, ok := law[string(from)+" "+string(ev)]
			switch {
			case ok && (err != nil || string(to) != want):
				t.Errorf("%s %s: %s %v, want %s", from, ev, to, err, want)
			case !ok && (pipeline.CodeOf(err) != pipeline.CodeStateInvalid || to != from):
				t.Errorf("%s %s: %s %v, want InvalidStateTransitionException", from, ev, to, err)
			}
		}
	}
}

// model is one item as the law sees it.
type model struct {
	state, sentFrom, heldFrom custody.State
	try                       uint16
}

func (m *model) apply(ev custody.Event) bool {
	to, ok := law[string(m.state)+" "+string(ev)]
	if ok {
		m.state = custody.State(to)
	}
	return ok
}

// act is one thing that somebody may try, and what it does to the model.
type act struct {
	name string
	do   func(e *custodytest.Env, c *custody.Items, id pipeline.ID) error
	on   func(m *model) bool
}

const manifest = pipeline.Digest("sha256:aa")

var errSkipped = errors.New("skipped")

func skipped(n int, err error) error {
	if err == nil && n > 0 {
		return errSkipped
	}
	return err
}

func acts() []act {
	one := func(f func(*custodytest.Env, *custody.Items, custody.Target) (custody.Report, error)) func(*custodytest.Env, *custody.Items, pipeline.ID) error {
		return func(e *custodytest.Env, c *custody.Items, id pipeline.ID) error {
			_, err := f(e, c, custody.One(id))
			return err
		}
	}
	tx := func(f func(c *custody.Items, tx *ledger.Tx, id pipeline.ID) (int, error)) func(*custodytest.Env, *custody.Items, pipeline.ID) error {
		return func(e *custodytest.Env, c *custody.Items, id pipeline.ID) error {
			var n int
			err := c.Within(e.Ctx, func(tx *ledger.Tx) (err error) {
				n, err = f(c, tx, id)
				return err
			})
			return skipped(n, err)
		}
	}
	who := custodytest.Admin
	return []act{
		{"triage", one(func(e *custodytest.Env, c *custody.Items, t custody.Target) (custody.Report, error) {
			return c.Triage(e.Ctx, who, t, "OPS-1")
		}), func(m *model) bool { return m.apply(custody.Triage) }},
		{"hold", one(func(e *custodytest.Env, c *custody.Items, t custody.Target) (custody.Report, error) {
			return c.Hold(e.Ctx, who, t, "wait")
		}), func(m *model) bool {
			from := m.state
			ok := m.apply(custody.Hold)
			if ok {
				m.heldFrom = from
			}
			return ok
		}},
		{"release", one(func(e *custodytest.Env, c *custody.Items, t custody.Target) (custody.Report, error) {
			return c.Release(e.Ctx, who, t, "go")
		}), func(m *model) bool {
			if m.heldFrom == custody.DeadLettered {
				return m.apply(custody.Release)
			}
			return m.apply(custody.ReleaseTriaged)
		}},
		{"resolve", one(func(e *custodytest.Env, c *custody.Items, t custody.Target) (custody.Report, error) {
			return c.Resolve(e.Ctx, who, t, custody.ResolvedApplied, "seen", "ref 1")
		}), func(m *model) bool {
			if m.state == custody.Redriving {
				return m.apply(custody.Reconcile)
			}
			return m.apply(custody.Resolve)
		}},
		{"discard", one(func(e *custodytest.Env, c *custody.Items, t custody.Target) (custody.Report, error) {
			return c.Discard(e.Ctx, who, t, "no use", "mail")
		}), func(m *model) bool { return m.apply(custody.Discard) }},
		{"restore", one(func(e *custodytest.Env, c *custody.Items, t custody.Target) (custody.Report, error) {
			return c.Restore(e.Ctx, who, t, "of use")
		}), func(m *model) bool { return m.apply(custody.Restore) }},
		{"unrepair", one(func(e *custodytest.Env, c *custody.Items, t custody.Target) (custody.Report, error) {
			return c.Unrepair(e.Ctx, who, t, "wrong")
		}), func(m *model) bool { return m.apply(custody.Unrepair) }},
		{"repair", tx(func(c *custody.Items, tx *ledger.Tx, id pipeline.ID) (int, error) {
			_, skips, err := c.StoreRepairs(tx, who, []custody.NewRepair{{StoredRepair: custody.StoredRepair{Item: id, Transform: "set", Version: "1.0.0"}, Bytes: custody.Bytes{Value: []byte("r")}}})
			return len(skips), err
		}), func(m *model) bool {
			if m.state == custody.Repaired {
				return true // repaired anew
			}
			return m.apply(custody.Repair)
		}},
		{"redrive", tx(func(c *custody.Items, tx *ledger.Tx, id pipeline.ID) (int, error) {
			_, skips, err := c.Intend(tx, who, &custody.Intent{Manifest: manifest}, []pipeline.ID{id}, custody.Accept{Unconfirmed: true})
			return len(skips), err
		}), func(m *model) bool {
			from := m.state
			ok := m.apply(custody.Redrive)
			if ok {
				m.sentFrom, m.try = from, m.try+1
			}
			return ok
		}},
		{"withdraw", tx(func(c *custody.Items, tx *ledger.Tx, id pipeline.ID) (int, error) {
			_, skips, err := c.Withdraw(tx, who, manifest, []pipeline.ID{id}, "unsent")
			return len(skips), err
		}), func(m *model) bool {
			ok := m.state == custody.Redriving
			if ok {
				m.state = m.sentFrom
				m.try--
			}
			return ok
		}},
		{"fail", tx(func(c *custody.Items, tx *ledger.Tx, id pipeline.ID) (int, error) {
			skips, err := c.FailRedrive(tx, who, manifest, []pipeline.ID{id}, pipeline.CodeSendTopicMissing, func(pipeline.ID) map[string]string { return nil })
			return len(skips), err
		}), func(m *model) bool { return m.apply(custody.Fail) && m.apply(custody.Return) }},
		{"reconcile", tx(func(c *custody.Items, tx *ledger.Tx, id pipeline.ID) (int, error) {
			skips, err := c.Reconciled(tx, who, manifest, []pipeline.ID{id}, pipeline.Applied, func(pipeline.ID) string { return "" })
			return len(skips), err
		}), func(m *model) bool { return m.apply(custody.Reconcile) }},
	}
}

// Random histories: whatever is tried, the ledger and the law agree; what is refused changes nothing; the ledger verifies.
func TestRandomHistoriesFollowTheLaw(t *testing.T) {
	ledgertest.Each(t, func(t *testing.T, s ledgertest.Store) {
		e := custodytest.New(t, s)
		all := acts()
		n := int64(0)
		rapid.Check(t, func(r *rapid.T) {
			id := e.Admit(t, n, n+1)[0]
			n++
			m := model{state: custody.DeadLettered}
			for range rapid.IntRange(1, 12).Draw(r, "steps") {
				a := all[rapid.IntRange(0, len(all)-1).Draw(r, "act")]
				before := e.Show(t, id)
				ok := a.on(&m)
				err := a.do(e, e.Items, id)
				after := e.Show(t, id)
				if (err == nil) != ok {
					r.Fatalf("%s in %s: %v", a.name, before.Item.State, err)
				}
				if !ok && (after.Item.Rev != before.Item.Rev || len(after.History) != len(before.History)) {
					r.Fatalf("%s was refused in %s and changed the item", a.name, before.Item.State)
				}
				if after.Item.State != m.state || after.Item.Try != m.try {
					r.Fatalf("%s: %s try %d, the law says %s try %d", a.name, after.Item.State, after.Item.Try, m.state, m.try)
				}
			}
			path := append([]custody.State{custody.None}, custodytest.Path(e.Show(t, id))...)
			for i := 1; i < len(path); i++ {
				if !slices.ContainsFunc(events, func(ev custody.Event) bool { return law[string(path[i-1])+" "+string(ev)] == string(path[i]) }) {
					r.Fatalf("the history goes from %s to %s", path[i-1], path[i])
				}
			}
		})
		mustVerify(t, e)
	})
}

// Many actors at the same items over several connections: each change is one that the law allows from what was there before.
func TestConcurrentActorsFollowTheLaw(t *testing.T) {
	ledgertest.Each(t, func(t *testing.T, s ledgertest.Store) {
		e := custodytest.New(t, s)
		ids := e.Admit(t, 0, 6)
		all := acts()
		var wg sync.WaitGroup
		for w := range 6 {
			c := e.Again(s.Open(t, ledger.Options{Clock: e.Clock, BusyTimeout: 60e9}))
			wg.Go(func() {
				for i := range 40 {
					a := all[(w*7+i*5+i*i)%len(all)]
					err := a.do(e, c, ids[(w+i*i)%len(ids)])
					switch code := pipeline.CodeOf(err); {
					case err == nil, errors.Is(err, errSkipped), code == pipeline.CodeStateInvalid, code == pipeline.CodeItemHeld:
					default:
						t.Errorf("%s: %v", a.name, err)
					}
				}
			})
		}
		wg.Wait()
		for _, id := range ids {
			state := custody.None
			for _, h := range e.Show(t, id).History {
				if h.To == "" {
					continue
				}
				if custody.State(h.From) != state || law[string(state)+" "+h.Event] != h.To {
					t.Errorf("%s: %s by %s to %s after %s", id, h.From, h.Event, h.To, state)
				}
				state = custody.State(h.To)
			}
			if got := e.Show(t, id).Item.State; got != state {
				t.Errorf("%s is %s, its history ends in %s", id, got, state)
			}
		}
		mustVerify(t, e)
	})
}

func mustVerify(t *testing.T, e *custodytest.Env) {
	t.Helper()
	v, err := e.Items.Verify(context.Background(), custodytest.Admin, nil, nil)
	if err != nil || !v.OK() {
		t.Fatal(fmt.Sprintf("%+v", v), err)
	}
}
