package redrive

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/custody/custodytest"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/control"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/seal"
	"reprieve.dev/tests/conformance/script"
)

// switchBoard is a board whose halt is thrown by a test.
type switchBoard struct {
	halted atomic.Bool
	told   atomic.Int32
}

func (s *switchBoard) Halted(string) (string, bool) {
	return "the board says so", s.halted.Load()
}

func (s *switchBoard) Halt(context.Context, string, string, string) error {
	s.told.Add(1)
	return nil
}

// INV-HALT: after a halt on the board nothing new is sent, at a slow rate and at a fast one.
func TestBoardHaltStopsSends(t *testing.T) {
	for name, rate := range map[string]Rate{"Slow": 50, "Fast": 6400} {
		t.Run(name, func(t *testing.T) {
			board := &switchBoard{}
			b := newBench(t, sqliteStore(t), func(o *Options) { o.Board = board })
			b.ready(600)
			p := b.plan(func(r *PlanRequest) { r.Rate = rate })
			b.approve(p)
			var at time.Time
			b.onWait = func(time.Duration) {
				if at.IsZero() && b.sentCount() > 100 {
					board.halted.Store(true)
					at = b.Clock()
				}
			}
			st, err := b.svc.Run(b.Ctx, custodytest.Operator, p.Digest)
			wantCode(t, err, pipeline.CodeRedriveHalted)
			if st.State != StateStopped || st.Counts.Sending != 0 || b.sentCount() == 600 {
				t.Errorf("%s %+v", st.State, st.Counts)
			}
			for _, r := range b.kafka.All(retry) {
				if late := time.UnixMilli(r.TimeMS).Sub(at); late > 0 {
					t.Errorf("sent %s after the halt", late)
				}
			}
			board.halted.Store(false)
			b.onWait = nil
			if st := b.run(p); st.State != StateDone || b.sentCount() != 600 {
				t.Errorf("afterwards %s, %d sent", st.State, b.sentCount())
			}
		})
	}
}

func TestControlBoardUnknownIsHalted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := script.New(time.Now().UnixMilli())
		topic := deadletter.ControlTopic("reprieve")
		c.CreateTopic(topic, 1, map[string]string{"cleanup.policy": "compact"})
		ring, err := seal.NewRing([]seal.Key{{ID: "h1", Secret: []byte("fedcba9876543210fedcba9876543210")}})
		if err != nil {
			t.Fatal(err)
		}
		board := control.NewBoard(control.Options{Topic: topic, Reader: c.Log(nil), Sink: c.Sink(script.SinkOptions{}), Authority: &control.Authority{Ring: ring}, Clock: time.Now})
		cb := ControlBoard{Board: board, By: control.ByRing(ring), Writer: "w1"}
		if _, halted := cb.Halted("billing"); !halted {
			t.Error("a cold board is not a halt")
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = board.Run(ctx) }()
		if err := board.WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
		if why, halted := cb.Halted("billing"); halted {
			t.Errorf("halted: %s", why)
		}
		if err := cb.Halt(ctx, "billing", "ana", "smoke"); err != nil {
			t.Fatal(err)
		}
		if _, halted := cb.Halted("billing"); !halted {
			t.Error("the halt is not seen")
		}
		if _, halted := cb.Halted("other"); halted {
			t.Error("another pipeline is halted")
		}
		cancel()
		<-done
		time.Sleep(unheard + time.Second) // the bubble's time
		if _, halted := cb.Halted("other"); !halted {
			t.Error("a silent board is not a halt")
		}
	})
}

func TestHaltTellsTheBoard(t *testing.T) {
	board := &switchBoard{}
	b := newBench(t, sqliteStore(t), func(o *Options) { o.Board = board })
	if err := b.svc.Halt(b.Ctx, custodytest.Operator, "billing", "smoke"); err != nil {
		t.Fatal(err)
	}
	if board.told.Load() != 1 {
		t.Error("the board was not told")
	}
	wantCode(t, b.svc.Halt(b.Ctx, custodytest.Operator, "billing", ""), pipeline.CodeReasonMissing)
	wantCode(t, b.svc.Halt(b.Ctx, custodytest.Viewer, "billing", "x"), pipeline.CodePermissionDenied)
	wantCode(t, b.svc.Lift(b.Ctx, custodytest.Admin, "other", "x"), pipeline.CodeRedriveState)
}

// A halt may stand for the sake of any tenant: who is of one only may set it, and does not lift it.
func TestWhoIsOfOneTenantDoesNotLiftAHalt(t *testing.T) {
	b := newBench(t, sqliteStore(t))
	ofAcme := custody.Actor{Subject: "berta", Roles: []string{"admin"}, Tenants: []string{"acme"}, Via: "cli"}
	for _, name := range []string{"", "billing"} {
		if err := b.svc.Halt(b.Ctx, custodytest.Operator, name, "the ledger is wrong"); err != nil {
			t.Fatal(err)
		}
		wantCode(t, b.svc.Lift(b.Ctx, ofAcme, name, "mended"), pipeline.CodeTenantForbidden)
		if err := b.Items.Ledger().Read(b.Ctx, func(tx *ledger.Tx) error {
			h, err := haltIn(tx, "billing")
			if err == nil && h == nil {
				t.Errorf("the halt of %q was lifted", name)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if err := b.svc.Lift(b.Ctx, custodytest.Admin, name, "mended"); err != nil {
			t.Fatal(err)
		}
	}
}
