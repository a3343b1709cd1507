package plugins

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"

	"reprieve.dev/pipeline"
	"reprieve.dev/plugins/sandbox"
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

	rejected int    // results that reject a record
	silent   string // the first record that was rejected without a reason
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
	stale, err := pkg.stale()
	if err != nil {
		return nil, err
	}
	if stale != "" {
		j.add("descriptor and program", "fail", "%s is not what was packed: pack it again with reprieve plugin pack %s", stale, dir)
	} else {
		j.add("descriptor and program", "pass", "%s for %s, %s, %d bytes, %s", d.Ref(), Platform(), what, len(program), pkg.Digest)
	}
	o.RepeatOneIn, o.Failures = -1, 8*timeoutCosts // a record of a batch that hangs can be found; who hangs on every one is not asked for each

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
	j.calls()
	j.order()
	if d.Delivering(DeliversTransform) {
		j.vectors()
		if j.sameAnswers() {
			j.sameElsewhere()
		}
		j.large()
		j.robust()
		j.reasons()
		j.restart()
		j.speed()
	}
	if d.Delivering(DeliversStage) {
		j.marks()
		j.sameMarks()
	}
	if n := j.h.chatter.Load(); n != 0 {
		j.add("writes nothing to standard output while it works", "fail", "%d bytes in all: standard output belongs to the protocol, print to standard error", n)
	} else {
		j.add("writes nothing to standard output while it works", "pass", "not a byte in any call")
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
