package plugins

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"reprieve.dev/pipeline"
	"reprieve.dev/plugins/sandbox"
	"reprieve.dev/plugins/wire"
	"reprieve.dev/transforms"
)

// Check is one line of a conformance report.
type Check struct {
	Number   int    `json:"number"`
	Name     string `json:"name"`
	Result   string `json:"result"` // pass, fail, skip, note
	Evidence string `json:"evidence"`
}

// Conformance is the judgement of one plugin.
type Conformance struct {
	Plugin string          `json:"plugin"`
	Digest pipeline.Digest `json:"digest"`
	OK     bool            `json:"ok"` // no check failed
	Checks []Check         `json:"checks"`
}

// judge runs the checks one after the other.
type judge struct {
	h      *Host
	pkg    *loaded
	report *Conformance
	ctx    context.Context
}

func (j *judge) add(name, result, format string, args ...any) bool {
	j.report.Checks = append(j.report.Checks, Check{len(j.report.Checks) + 1, name, result, fmt.Sprintf(format, args...)})
	if result == "fail" {
		j.report.OK = false
	}
	return result != "fail"
}

func (j *judge) expect(name string, ok bool, format string, args ...any) bool {
	if ok {
		return j.add(name, "pass", format, args...)
	}
	return j.add(name, "fail", format, args...)
}

// Conform judges the plugin in a folder on hosts opened with o: what a plugin has to promise to every host, each check with its
// evidence. It takes seconds. An error is about the folder or this machine, not about the plugin's behaviour.
func Conform(ctx context.Context, o Options, dir string) (*Conformance, error) {
	pkg, err := Read(dir)
	if err != nil {
		return nil, err
	}
	d := &pkg.Descriptor
	program := bytes.Clone(pkg.program)
	rep := &Conformance{Plugin: d.Ref(), Digest: pkg.Digest, OK: true}
	j := &judge{report: rep, ctx: ctx}
	what := "static"
	if pkg.Artifact.Packed() {
		what = fmt.Sprintf("a root folder of %d entries, tree %s", pkg.tree.Entries, pkg.Tree)
	}
	j.add("descriptor and program", "pass", "%s for %s, %s, %d bytes, %s", d.Ref(), Platform(), what, len(program), pkg.Digest)
	o.RepeatOneIn, o.Failures = -1, 20 // who hangs on every record is not asked for each

	started := false
	for _, l := range []sandbox.Level{sandbox.Restricted, sandbox.Isolated} {
		o.Most = l
		h, err := Open(ctx, o)
		if err != nil {
			return nil, err
		}
		if had, why := h.Level(); had != l {
			j.add("starts at level "+l.String(), "skip", "this machine does not have the level: %v", why)
			if l == sandbox.Isolated || pkg.Level() > had {
				h.Close()
				continue
			}
		}
		if j.h != nil {
			j.h.Close()
		}
		j.h = h
		pkg.program = bytes.Clone(program)
		if l < pkg.Level() {
			j.add("starts at level "+l.String(), "skip", "its author asks for %s", pkg.Level())
			continue
		}
		started = j.start(pkg, l) || started
	}
	if j.h == nil {
		return rep, nil
	}
	defer func() { j.h.Close() }()
	if !started {
		return rep, ctx.Err()
	}
	if j.pkg == nil {
		return rep, ctx.Err()
	}
	j.cookie()
	j.order()
	if d.Delivering(DeliversTransform) {
		j.vectors()
		j.sameAnswers()
		j.robust()
		j.restart()
		j.speed()
	}
	if d.Delivering(DeliversStage) {
		j.marks()
		j.sameMarks()
	}
	return rep, ctx.Err()
}

// start: handshake, what it says it is, nothing on standard output.
func (j *judge) start(pkg *Package, level sandbox.Level) bool {
	l, err := j.h.seal(pkg, level)
	name := "starts at level " + level.String()
	if err != nil {
		return j.add(name, "fail", "%v", err)
	}
	t0 := j.h.o.Clock()
	p, err := j.h.start(j.ctx, l)
	if err != nil {
		return j.add(name, "fail", "%v", err)
	}
	took := j.h.o.Clock().Sub(t0)
	did := p.runner.running.Applied
	p.end()
	p.runner.mu.Lock()
	extra := p.runner.extra
	p.runner.mu.Unlock()
	j.pkg = l
	j.add(name, "pass", "in %d ms; Landlock %d, seccomp %s, user %d, namespaces %s", took.Milliseconds(), did.Landlock, did.Seccomp, did.UID, or(strings.Join(did.Namespaces, " "), "none"))
	return j.expect("writes nothing but its handshake to standard output", extra == 0, "%d further bytes", extra)
}

// cookie: started without it, a plugin serves nobody and ends.
func (j *judge) cookie() {
	const name = "refuses to run without the cookie"
	dir, err := os.MkdirTemp("", "reprieve-conform-")
	if err != nil {
		j.add(name, "skip", "%v", err)
		return
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(j.ctx, j.h.o.Start)
	defer cancel()
	spec := j.pkg.spec(j.h.o.Limits)
	spec.Dir, spec.Env = dir, append([]string{"PLUGIN_PROTOCOL_VERSIONS=1"}, fixedEnv...)
	for name, value := range j.pkg.Artifact.Env {
		spec.Env = append(spec.Env, name+"="+value)
	}
	r, err := j.h.spawner.Start(ctx, j.pkg.sealed, spec)
	if err != nil {
		j.add(name, "fail", "%v", err)
		return
	}
	defer r.Close()
	diary := &diary{log: j.h.log, redact: j.h.redact}
	done := make(chan struct{})
	go func() { defer close(done); diary.drain(r.Stderr, "stderr") }()
	out := make([]byte, handshakeMost)
	stop := context.AfterFunc(ctx, r.Kill) // who says nothing and stays must not hold up the read either
	n, _ := r.Stdout.Read(out)             // nothing is what is hoped for
	<-r.Gone()
	<-done
	if !stop() {
		j.add(name, "fail", "it ran on")
		return
	}
	first, _, _ := strings.Cut(string(out[:n]), "\n")
	j.expect(name, !canonical(first) && r.Exit() != "exit status 0", "%s; %s", r.Exit(), or(diary.last(), "it said nothing"))
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
		j.add(name, "fail", "a record before it: %s %s; FailedPrecondition is right", status.Code(before), status.Convert(before).Message())
		return
	}
	config := or(j.config(), "{}")
	a, first := p.client.Configure(ctx, &wire.ConfigureRequest{Config: []byte(config)})
	switch {
	case first != nil:
		j.add(name, "fail", "the configuration %s: %s", config, first)
		return
	case a.Problem != "":
		j.add(name, "note", "it refuses the configuration %s: %s", config, a.Problem)
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

// remote makes an unregistered transform of a configuration.
func (j *judge) remote(config string) (*remote, error) {
	c := []byte(or(config, "{}"))
	if err := j.pkg.CheckConfig(c); err != nil {
		return nil, err
	}
	digest, err := transforms.ConfigDigest(c)
	if err != nil {
		return nil, err
	}
	r := newRemote(j.h, j.pkg, transforms.Info{Name: j.pkg.Descriptor.Name, Version: j.pkg.Descriptor.Version, Artifact: j.pkg.Digest, Config: digest}, c)
	if err := r.try(j.ctx); err != nil {
		r.stop()
		return nil, err
	}
	return r, nil
}

// ask sends records in batches of a size to a fresh process and returns the result of each item.
func (j *judge) ask(in []transforms.Envelope, size int) (map[string][]byte, error) {
	r, err := j.remote(j.config())
	if err != nil {
		return nil, err
	}
	defer r.stop()
	got := map[string][]byte{}
	for batch := range slices.Chunk(in, size) {
		req, what := request(1, batch)
		if what != "" {
			return nil, fmt.Errorf("%s", what)
		}
		ctx, cancel := context.WithTimeout(j.ctx, j.h.o.Call)
		reply, err := r.proc.client.Repair(ctx, req)
		cancel()
		if err != nil {
			return nil, fmt.Errorf("%s", r.proc.runner.diary.clean(err.Error()))
		}
		if len(reply.Results) != len(batch) {
			return nil, fmt.Errorf("%d results for %d records", len(reply.Results), len(batch))
		}
		for _, res := range reply.Results {
			b, err := proto.MarshalOptions{Deterministic: true}.Marshal(res)
			if err != nil {
				return nil, err
			}
			got[res.Item] = b
		}
	}
	return got, nil
}

// sameAnswers: other processes, batch sizes and orders give the same results.
func (j *judge) sameAnswers() {
	const name = "gives the same answers"
	in := records(j.corpus()...)
	first, err := j.ask(in, wire.BatchDefault)
	if err != nil {
		j.add(name, "fail", "%v", err)
		return
	}
	back := slices.Clone(in)
	slices.Reverse(back)
	for _, o := range []struct {
		what string
		in   []transforms.Envelope
		size int
	}{{"a second process", in, wire.BatchDefault}, {"one record a call", in, 1}, {"batches of 7", in, 7}, {"batches of 512", in, wire.BatchMost}, {"another order", back, wire.BatchDefault}} {
		again, err := j.ask(o.in, o.size)
		if err != nil {
			j.add(name, "fail", "%s: %v", o.what, err)
			return
		}
		for i := range in {
			item := string(in[i].Item)
			if !bytes.Equal(first[item], again[item]) {
				j.add(name, "fail", "%s gives another answer for record %s", o.what, item)
				return
			}
		}
	}
	j.add(name, "pass", "%d records: two processes, batches of 1, 7, 64 and 512, and the reverse order agree", len(in))
}

// robust: whatever stands in a record, the plugin answers, and as the protocol asks.
func (j *judge) robust() {
	const name = "stands any record"
	r, err := j.remote(j.config())
	if err != nil {
		j.add(name, "fail", "%v", err)
		return
	}
	defer r.stop()
	in := records(j.corpus()...)
	out, err := r.Repair(j.ctx, in)
	if err != nil {
		j.add(name, "fail", "%v", err)
		return
	}
	repaired, rejected := 0, 0
	for i := range out {
		switch f := out[i].Failure; {
		case f == nil:
			repaired++
		case f.Code == pipeline.CodeTransformFailed:
			rejected++
		default:
			what := ""
			for _, p := range f.Params {
				what += " " + p.Text
			}
			j.add(name, "fail", "record %d of %d bytes: %s%s", i, len(in[i].Record.Value), f.Code, what)
			return
		}
	}
	j.add(name, "pass", "%d records, among them null, empty, deep, large, truncated and not UTF-8: %d answered, %d rejected", len(in), repaired, rejected)
}

// restart: killed and started again it goes on as before.
func (j *judge) restart() {
	const name = "goes on after it was killed"
	r, err := j.remote(j.config())
	if err != nil {
		j.add(name, "fail", "%v", err)
		return
	}
	defer r.stop()
	in := records(j.corpus()...)[:8]
	before, err1 := r.Repair(j.ctx, in)
	if r.proc == nil {
		j.add(name, "fail", "it does not stay alive")
		return
	}
	r.proc.runner.running.Kill()
	<-r.proc.runner.running.Gone()
	after, err2 := r.Repair(j.ctx, in)
	if err1 != nil || err2 != nil {
		j.add(name, "fail", "%v %v", err1, err2)
		return
	}
	for i := range before {
		if !same(before[i].Value, after[i].Value) || (before[i].Failure == nil) != (after[i].Failure == nil) {
			j.add(name, "fail", "record %d has another result afterwards", i)
			return
		}
	}
	j.add(name, "pass", "the same results from the new process")
}

// speed is for information.
func (j *judge) speed() {
	const name = "speed"
	r, err := j.remote(j.config())
	if err != nil {
		j.add(name, "skip", "%v", err)
		return
	}
	defer r.stop()
	value := []byte(`{"currency":"eur"}`)
	if vs := j.pkg.Descriptor.Vectors; len(vs) > 0 {
		value = []byte(vs[0].Value)
	}
	in := records(slices.Repeat([][]byte{value}, wire.BatchDefault)...)
	t0, n := j.h.o.Clock(), 0
	for j.h.o.Clock().Sub(t0) < 500*time.Millisecond && j.ctx.Err() == nil {
		if _, err := r.Repair(j.ctx, in); err != nil {
			break
		}
		n += len(in)
	}
	j.add(name, "note", "%d records/s in batches of %d; memory at most %s", int(float64(n)/max(j.h.o.Clock().Sub(t0).Seconds(), 1e-3)), wire.BatchDefault, r.peak())
}
