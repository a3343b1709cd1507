package redrive

import (
	"context"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"reprieve.dev/custody"
	"reprieve.dev/custody/custodytest"
	"reprieve.dev/ledger"
	"reprieve.dev/ledger/ledgertest"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/tests/conformance/script"
)

// killed is what a kill panics with: nothing of the executor runs after it but the rollback that a lost connection means.
type killed struct{}

// fuse kills at its n-th point.
type fuse struct{ left int }

func (f *fuse) point() {
	if f.left--; f.left == 0 {
		panic(killed{})
	}
}

// mortalTx is a transactional producer whose process can die before and after each call.
type mortalTx struct {
	*script.Tx
	f *fuse
}

func (m mortalTx) Begin() error {
	m.f.point()
	return m.Tx.Begin()
}

func (m mortalTx) Send(s *pipeline.Sending) error {
	m.f.point()
	err := m.Tx.Send(s)
	m.f.point()
	return err
}

func (m mortalTx) Commit(ctx context.Context, cps map[pipeline.TP]pipeline.Checkpoint, g pipeline.GroupMeta) error {
	m.f.point()
	err := m.Tx.Commit(ctx, cps, g)
	m.f.point()
	return err
}

// mortalSink is the same without transactions.
type mortalSink struct {
	*script.Sink
	f *fuse
}

func (m mortalSink) Send(s *pipeline.Sending) error {
	m.f.point()
	err := m.Sink.Send(s)
	m.f.point()
	return err
}

// Whatever the points at which executors are killed, every item ends reconciled and stands on the retry topic once, and no
// attempt is forgotten. Transactional executors go on by themselves; others after a resume that looks at the destination.
func TestKilledAtAnyPointNothingIsLostOrTwice(t *testing.T) {
	for name, transactional := range map[string]bool{"Transactional": true, "Idempotent": false} {
		t.Run(name, func(t *testing.T) {
			all := 0
			defer func() {
				if !t.Failed() && all == 0 {
					t.Error("nobody was killed: the test tests nothing")
				}
				t.Logf("%d kills", all)
			}()
			rapid.Check(t, func(rt *rapid.T) {
				items := rapid.Int64Range(1, 30).Draw(rt, "items")
				rate := rapid.SampledFrom([]Rate{50, 640, 6400}).Draw(rt, "rate")
				f := &fuse{}
				w := newBench(t, ledgertest.SQLite(t), func(o *Options) { o.Fenced = transactional })
				w.opts.Send = func(_ context.Context, _ *Target, l ledger.Lease) (pipeline.Sink, func(context.Context) error, error) {
					f.point()
					if transactional {
						return mortalTx{w.kafka.Tx("reprieve."+l.Name, script.SinkOptions{}), f}, nil, nil
					}
					return mortalSink{w.kafka.Sink(script.SinkOptions{}), f}, nil, nil
				}
				w.onWait = func(time.Duration) { f.point() }
				ids := w.ready(items)
				w.svc = New(w.opts)
				p := w.plan(func(r *PlanRequest) { r.Rate = rate })
				w.approve(p)
				kills := 0
				for round := 0; ; round++ {
					f.left = 1 << 40
					if round < 6 {
						f.left = rapid.IntRange(1, 60).Draw(rt, "point")
					}
					o := w.opts
					o.Name = fmt.Sprint("exec-", round)
					dead, err := runMortal(New(o), w.Ctx, p.Digest)
					if !dead && err == nil {
						break
					}
					if dead {
						kills++
						all++
					} else if pipeline.CodeOf(err) == pipeline.CodeRedriveUncertain && !transactional {
						f.left = 1 << 40
						if _, err := New(o).Resume(w.Ctx, custodytest.Operator, p.Digest, Decision{Scan: true, Reason: "killed"}); err != nil {
							rt.Fatal(err)
						}
					} else if err != nil {
						rt.Fatal(err)
					}
					if round > 20 {
						rt.Fatalf("it does not end: %v", err)
					}
					w.Turn(time.Minute)
				}
				st, err := w.svc.Status(w.Ctx, custodytest.Operator, p.Digest)
				if err != nil {
					rt.Fatal(err)
				}
				if st.State != StateDone || st.Counts.Reconciled != items || st.Counts.Attempts != items {
					rt.Fatalf("after %d kills: %s %q %+v", kills, st.State, st.Detail, st.Counts)
				}
				seen := map[pipeline.ID]int{}
				for _, r := range w.kafka.All(retry) {
					tr, _, err := deadletter.ParseTrail(retry, &r, w.Ring)
					if err != nil {
						rt.Fatal(err)
					}
					seen[tr.Item]++
				}
				for _, id := range ids {
					if it := w.Show(t, id).Item; seen[id] != 1 || it.State != custody.Reconciled || it.Try != 1 {
						rt.Fatalf("after %d kills: %s was sent %d times, is %s, try %d", kills, id, seen[id], it.State, it.Try)
					}
				}
			})
		})
	}
}

func runMortal(s *Service, ctx context.Context, digest pipeline.Digest) (dead bool, err error) {
	defer func() {
		switch p := recover(); p.(type) {
		case nil:
		case killed:
			dead = true
		default:
			panic(p)
		}
	}()
	_, err = s.Run(ctx, custodytest.Operator, digest)
	return false, err
}
