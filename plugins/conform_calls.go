package plugins

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"reprieve.dev/plugins/wire"
)

// calls: what it says of itself, its health, and a call that nobody knows.
func (j *judge) calls() {
	const about, health, unknown = "says what plugin.yaml says", "answers for its health", "refuses a call that it does not know"
	p, err := j.h.start(j.ctx, j.pkg)
	if err != nil {
		j.add(about, "fail", "%v", err)
		return
	}
	defer p.end()
	ctx, cancel := context.WithTimeout(j.ctx, j.h.o.Call)
	defer cancel()
	d := &j.pkg.Descriptor
	switch a := p.about; {
	case a.MaxBatch > wire.BatchMost:
		j.add(about, "fail", "it asks for %d records a call; %d are the most", a.MaxBatch, wire.BatchMost)
	case a.Doc != "" && a.Doc != d.Doc:
		j.add(about, "note", "name, version and what it delivers are the same; it calls itself %q, plugin.yaml %q", p.runner.diary.clean(a.Doc), d.Doc)
	default:
		j.add(about, "pass", "%s, delivers %v, %d records a call at most (0: as the host likes)", d.Ref(), d.Delivers, a.MaxBatch)
	}
	h, err := grpc_health_v1.NewHealthClient(p.conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: "plugin"})
	if err != nil {
		j.add(health, "fail", "grpc.health.v1.Health/Check of the service plugin: %s; SERVING is right", p.trouble(err))
	} else {
		j.expect(health, h.Status == grpc_health_v1.HealthCheckResponse_SERVING, "grpc.health.v1.Health/Check of the service plugin: %s; SERVING is right", h.Status)
	}
	err = p.conn.Invoke(ctx, "/reprieve.transform.v1.RepairTransform/ACallOfTomorrow", &wire.DescribeRequest{}, &wire.DescribeReply{})
	if status.Code(err) != codes.Unimplemented {
		what := "it answered"
		if err != nil {
			what = p.trouble(err)
		}
		j.add(unknown, "fail", "%s; UNIMPLEMENTED is right", what)
		return
	}
	if _, err := p.client.Describe(ctx, &wire.DescribeRequest{}); err != nil {
		j.add(unknown, "fail", "afterwards it answers no more: %s", p.trouble(err))
		return
	}
	j.add(unknown, "pass", "UNIMPLEMENTED, and it goes on")
}

// order: Repair before Configure and a second Configure are refused.
func (j *judge) order() {
	const name = "takes one configuration, before any record"
	p, err := j.h.start(j.ctx, j.pkg)
	if err != nil {
		j.add(name, "fail", "%v", err)
		return
	}
	defer p.end()
	ctx, cancel := context.WithTimeout(j.ctx, j.h.o.Call)
	defer cancel()
	if before := j.early(ctx, p); status.Code(before) != codes.FailedPrecondition {
		what := "it answered"
		if before != nil {
			what = p.trouble(before)
		}
		j.add(name, "fail", "a record before it: %s; FailedPrecondition is right", what)
		return
	}
	config := or(j.config(), "{}")
	a, first := p.client.Configure(ctx, &wire.ConfigureRequest{Config: []byte(config)})
	switch {
	case first != nil:
		j.add(name, "fail", "the configuration %s: %s", config, p.trouble(first))
		return
	case a.Problem != "":
		j.add(name, "note", "it refuses the configuration %s: %s", config, p.runner.diary.clean(a.Problem))
		return
	}
	_, second := p.client.Configure(ctx, &wire.ConfigureRequest{Config: []byte(config)})
	j.expect(name, status.Code(second) == codes.FailedPrecondition, "a record before it: FailedPrecondition; a second configuration: %s; FailedPrecondition is right", status.Code(second))
}

// early asks for a batch of what the plugin delivers, before it is configured.
func (j *judge) early(ctx context.Context, p *process) (err error) {
	if j.pkg.Descriptor.Delivering(DeliversTransform) {
		_, err = p.client.Repair(ctx, &wire.RepairRequest{Batch: 1})
		return err
	}
	_, err = p.client.Process(ctx, &wire.ProcessRequest{Batch: 1})
	return err
}

// largeRecord is more than most gRPC servers take unless they are told to.
const largeRecord = 5 << 20

// large: one record in a message that is larger than what servers take by default.
func (j *judge) large() {
	const name = "takes a message of 5 MiB"
	var got *wire.Result
	err := j.ask(j.pkg, records(bytes.Repeat([]byte("x"), largeRecord)), func() int { return 1 }, func(_ int, r *wire.Result) error { got = r; return nil })
	if err != nil {
		j.add(name, "fail", "%v; messages of up to %d MiB have to be taken", err, wire.MessageMost>>20)
		return
	}
	j.add(name, "pass", "one record of it: %s", got.Outcome)
}

// endsWithin is how long a process whose call broke off is waited for.
const endsWithin = 5 * time.Second

// trouble is what came of a call that failed: its error and, if the process ended, how, and what it wrote last.
func (p *process) trouble(err error) string {
	text := p.runner.diary.clean(err.Error())
	if status.Code(err) != codes.Unavailable {
		return text
	}
	t := time.NewTimer(endsWithin)
	defer t.Stop()
	select {
	case <-p.runner.running.Gone():
	case <-t.C:
		return text
	}
	p.runner.drained.Wait()
	return text + "; " + p.runner.exit() + said(p.runner.diary.last())
}

// said is the end of a sentence about what a process wrote last.
func said(last string) string {
	if last == "" {
		return ""
	}
	return fmt.Sprintf("; it last wrote %q", last)
}
