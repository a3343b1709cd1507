package plugins

import (
	"context"
	"time"

	"google.golang.org/grpc"
)

// A plugin computes when it is asked. One that goes on afterwards takes processors from the host, and no limit of a call ends it.
const (
	restEvery = time.Second
	restLeast = restEvery / 50  // of computing within that time; less is what runtimes do for themselves
	restMost  = 3 * time.Second // of computing; half of it is forgotten in each such time without
)

// busy notes that a call is on its way.
func (p *process) busy(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, o ...grpc.CallOption) error {
	p.calls.Add(1)
	defer p.calls.Add(-1)
	err := call(ctx, method, req, reply, conn, o...)
	p.before.Store(int64(p.runner.running.CPU()))
	return err
}

// watchRest ends a process that computes while nobody asks it.
func (p *process) watchRest() {
	t := time.NewTicker(restEvery)
	defer t.Stop()
	var spent time.Duration
	for {
		select {
		case <-p.runner.running.Gone():
			return
		case <-t.C:
		}
		was := time.Duration(p.before.Load())
		now := p.runner.running.CPU()
		if p.calls.Load() > 0 {
			spent = 0
			continue
		}
		p.before.CompareAndSwap(int64(was), int64(now)) // a call that ended meanwhile has said what was before
		if now-was < restLeast {
			spent /= 2 // not all: on a busy machine one who computes has to wait as well
			continue
		}
		if spent += now - was; spent > restMost {
			p.runner.ended("it computes when nobody asks it")
			return
		}
	}
}
