package plugins

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"reprieve.dev/pipeline"
	"reprieve.dev/plugins/sandbox"
	"reprieve.dev/plugins/wire"
	"reprieve.dev/transforms"
)

// remote makes an unregistered transform of a configuration.
func (j *judge) remote(pkg *loaded, config string) (*remote, error) {
	c := []byte(or(config, "{}"))
	if err := pkg.CheckConfig(c); err != nil {
		return nil, err
	}
	digest, err := transforms.ConfigDigest(c)
	if err != nil {
		return nil, err
	}
	r := newRemote(j.h, pkg, transforms.Info{Name: pkg.Descriptor.Name, Version: pkg.Descriptor.Version, Artifact: pkg.Digest, Config: digest}, c)
	if err := r.try(j.ctx); err != nil {
		r.stop()
		return nil, err
	}
	return r, nil
}

// ask sends records to a fresh process, in batches as large as sizes says, and hands over each result with the place of its record. A
// result that is not of the record at its place is an error. Numbers of batches follow from nothing.
func (j *judge) ask(pkg *loaded, in []transforms.Envelope, sizes func() int, each func(i int, r *wire.Result) error) error {
	r, err := j.remote(pkg, j.config())
	if err != nil {
		return err
	}
	defer r.stop()
	for from := 0; from < len(in); {
		to := min(from+sizes(), len(in))
		req, what := request(drawn()>>16, in[from:to])
		if what != "" {
			return errors.New(what)
		}
		ctx, cancel := context.WithTimeout(j.ctx, j.h.o.Call)
		reply, err := r.proc.client.Repair(ctx, req)
		cancel()
		if err != nil {
			return errors.New(r.proc.trouble(err))
		}
		if what := paired(req, reply); what != "" {
			return errors.New(what)
		}
		for i, res := range reply.Results {
			if res.Outcome == wire.Outcome_REJECTED {
				j.rejected++
				if strings.TrimSpace(res.Reason) == "" && j.silent == "" {
					j.silent = show(in[from+i].Record.Value)
				}
			}
			if err := each(from+i, res); err != nil {
				return err
			}
		}
		from = to
	}
	return nil
}

// paired says how the results of a reply do not belong to the records of a request, one for each and in their order.
func paired(req *wire.RepairRequest, reply *wire.RepairReply) string {
	switch {
	case reply.Batch != req.Batch:
		return fmt.Sprintf("the reply is for batch %d, %d was asked", reply.Batch, req.Batch)
	case len(reply.Results) != len(req.Envelopes):
		return fmt.Sprintf("%d results for %d records", len(reply.Results), len(req.Envelopes))
	}
	for i, res := range reply.Results {
		if want := req.Envelopes[i].Item; res.GetItem() != want {
			return fmt.Sprintf("result %d of %d is for %q, where %q stands: results have the order of the records", i, len(reply.Results), res.GetItem(), want)
		}
	}
	return ""
}

func always(n int) func() int { return func() int { return n } }

// roundsOf is at least so many records: the same ones again and again, each time in an order that nobody can tell in advance.
func roundsOf(in []transforms.Envelope, least int) (out []transforms.Envelope) {
	for len(out) < least && len(in) > 0 {
		round := slices.Clone(in)
		rand.Shuffle(len(round), func(a, b int) { round[a], round[b] = round[b], round[a] })
		out = append(out, round...)
	}
	return out
}

// small are the records that can be asked for again and again.
func small(in []transforms.Envelope) []transforms.Envelope {
	return slices.DeleteFunc(slices.Clone(in), func(e transforms.Envelope) bool { return len(e.Record.Value) > 16<<10 })
}

// longRun is how many records the longest check of sameness asks for: who is honest for as long as somebody surely looks is not
// honest for that long.
const longRun = 4096

// sameAnswers: other processes, batch sizes and orders, and many more records than anybody tries by hand, give the same results.
func (j *judge) sameAnswers() bool {
	const name = "gives the same answers"
	in := records(j.corpus()...)
	first := map[pipeline.ID]*wire.Result{}
	if err := j.ask(j.pkg, in, always(wire.BatchDefault), func(i int, r *wire.Result) error { first[in[i].Item] = r; return nil }); err != nil {
		return j.add(name, "fail", "%v", err)
	}
	back := slices.Clone(in)
	slices.Reverse(back)
	long := roundsOf(small(in), longRun)
	for _, way := range []struct {
		what  string
		in    []transforms.Envelope
		sizes func() int
	}{
		{"a second process", in, always(wire.BatchDefault)}, {"one record a call", in, always(1)}, {"batches of 7", in, always(7)},
		{"batches of 512", in, always(wire.BatchMost)}, {"the reverse order", back, always(wire.BatchDefault)},
		{"a long run in any order", long, func() int { return 1 + rand.IntN(wire.BatchDefault) }},
	} {
		if err := j.ask(j.pkg, way.in, way.sizes, agrees(way.what, way.in, first)); err != nil {
			return j.add(name, "fail", "%s: %v", way.what, err)
		}
	}
	return j.add(name, "pass", "%d records: two processes, batches of 1, 7, 64 and 512, the reverse order, and %d records in orders and batches that nobody can tell in advance agree", len(in), len(long))
}

// agrees compares results with the first ones.
func agrees(what string, in []transforms.Envelope, first map[pipeline.ID]*wire.Result) func(int, *wire.Result) error {
	return func(i int, r *wire.Result) error {
		e := &in[i]
		was := first[e.Item]
		if proto.Equal(was, r) {
			return nil
		}
		how := fmt.Sprintf("%s, where it was %s", r.Outcome, was.Outcome)
		if a, b := r.GetValue().GetValue(), was.GetValue().GetValue(); string(a) != string(b) {
			how = difference(string(a), string(b))
		}
		return fmt.Errorf("it gives another answer for record %d of %d, %s: %s", i+1, len(in), show(e.Record.Value), how)
	}
}

// sameElsewhere: another date and another machine, as far as the sandbox can make a plugin see one, give the same results.
func (j *judge) sameElsewhere() {
	const name = "gives the same answers at another time and on another machine"
	in := small(records(j.corpus()...))
	first := map[pipeline.ID]*wire.Result{}
	if err := j.ask(j.pkg, in, always(wire.BatchDefault), func(i int, r *wire.Result) error { first[in[i].Item] = r; return nil }); err != nil {
		j.add(name, "fail", "%v", err)
		return
	}
	where, err := j.elsewhere(func(pkg *loaded, what string) error {
		return j.ask(pkg, in, always(wire.BatchDefault), agrees(what, in, first))
	})
	switch {
	case pipeline.CodeOf(err) == pipeline.CodePluginSandbox:
		j.add(name, "skip", "it cannot be had here: %v", err)
	case err != nil:
		j.add(name, "fail", "%s: %v", where, err)
	default:
		j.add(name, "pass", "%d records: %s agree. What a program reads without asking the system stays as it is: the kind of its processor, its counter of cycles", len(in), where)
	}
}

// elsewhere calls f with the plugin in other places and says in which; after an error: in which it came.
func (j *judge) elsewhere(f func(pkg *loaded, what string) error) (where string, err error) {
	var were []string
	for _, e := range []sandbox.Elsewhere{
		{Shift: -(9*365*24+7)*time.Hour - 31*time.Minute, OneCPU: true},
		{Shift: (7*365*24+13)*time.Hour + 17*time.Minute},
	} {
		what := "in " + strconv.Itoa(j.h.o.Clock().Add(e.Shift).Year()) + " on another machine"
		if e.OneCPU {
			what += " with one processor"
		}
		pkg := *j.pkg
		pkg.elsewhere = &e
		if err := f(&pkg, what); err != nil {
			return what, err
		}
		were = append(were, what)
	}
	return strings.Join(were, " and "), nil
}

// robust: whatever stands in a record, the plugin answers, and as the protocol asks.
func (j *judge) robust() {
	const name = "stands any record"
	r, err := j.remote(j.pkg, j.config())
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
	repaired, rejected, worst := 0, 0, -1
	for i := range out {
		switch f := out[i].Failure; {
		case f == nil:
			repaired++
		case f.Code == pipeline.CodeTransformFailed:
			rejected++
		case worst < 0 || out[worst].Failure.Code == pipeline.CodePluginUnavailable && f.Code != pipeline.CodePluginUnavailable:
			worst = i // the first that did harm, before those that paid for it
		}
	}
	if worst >= 0 {
		j.add(name, "fail", "record %d of %d, %s: %s", worst+1, len(in), show(in[worst].Record.Value), r.became(out[worst].Failure))
		return
	}
	j.add(name, "pass", "%d records, among them null, empty, deep, large, truncated and not UTF-8: %d answered, %d rejected", len(in), repaired, rejected)
}

// became is what came of a record that failed: code, parameters and, after a crash, what was written last.
func (r *remote) became(f *pipeline.Failure) string {
	text := string(f.Code)
	for _, p := range f.Params {
		if p.Name != "plugin" {
			text += ": " + p.Text
		}
	}
	if f.Code == pipeline.CodePluginCrashed {
		text += said(r.words)
	}
	return text
}

// show is a record of the suite's own, or its author's, as evidence has it.
func show(value []byte) string {
	const most = 40
	switch {
	case value == nil:
		return "null"
	case len(value) > most:
		return fmt.Sprintf("%q... of %d bytes", value[:most], len(value))
	}
	return strconv.Quote(string(value))
}

// reasons: who rejects a record says why.
func (j *judge) reasons() {
	const name = "says why it rejects a record"
	switch {
	case j.silent != "":
		j.add(name, "fail", "%s is rejected without a reason", j.silent)
	case j.rejected == 0:
		j.add(name, "note", "it rejected none")
	default:
		j.add(name, "pass", "each of %d rejections has a reason", j.rejected)
	}
}

// restart: killed and started again it goes on as before.
func (j *judge) restart() {
	const name = "goes on after it was killed"
	r, err := j.remote(j.pkg, j.config())
	if err != nil {
		j.add(name, "fail", "%v", err)
		return
	}
	defer r.stop()
	in := records(j.corpus()...)[:8]
	before, err1 := r.Repair(j.ctx, in)
	if r.proc == nil {
		j.add(name, "fail", "it does not stay alive%s", said(r.words))
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
			j.add(name, "fail", "record %d, %s, has another result afterwards", i+1, show(in[i].Record.Value))
			return
		}
	}
	j.add(name, "pass", "the same results from the new process")
}

// speed is for information.
func (j *judge) speed() {
	const name = "speed"
	r, err := j.remote(j.pkg, j.config())
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
