package plugins

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"reprieve.dev/pipeline"
	"reprieve.dev/plugins/wire"
	"reprieve.dev/transforms"
)

// call sends one batch. The deadline ends the process, since nothing else ends a loop. Codes: ERR_PLUGIN_CRASHED,
// ERR_PLUGIN_TIMEOUT, ERR_PLUGIN_ANSWER.
func (r *remote) call(ctx context.Context, at **process, p *process, w work, req proto.Message, n int) (proto.Message, *pipeline.Failure) {
	limited, cancel := context.WithTimeout(ctx, r.h.o.Call)
	defer cancel()
	answered := make(chan struct{})
	defer close(answered)
	go func() { // who closes the host does not wait for an answer
		select {
		case <-r.h.closing:
			cancel()
		case <-answered:
		}
	}()
	reply, err := w.send(limited, p, req)
	if err == nil {
		return reply, nil
	}
	lost := func() { p.end(); *at = nil }
	heavy := p.codec.over.Swap(false)
	switch code := status.Code(err); {
	case r.h.isClosing():
		lost()
		return nil, r.failure(pipeline.CodePluginUnavailable, "the host is closed", nil)
	case ctx.Err() != nil:
		lost()
		return nil, r.failure(pipeline.CodePluginTimeout, "the caller gave up", nil)
	case limited.Err() != nil || code == codes.DeadlineExceeded: // the plugin's own clock of the same limit may run out first
		lost()
		r.blame(timeoutCosts)
		r.h.log.Warn("plugin did not answer in time", "plugin", r.info.Ref(), "limit", r.h.o.Call, "records", n)
		return nil, r.failure(pipeline.CodePluginTimeout, "no answer within the limit of a call", nil)
	case code == codes.Unavailable || p.soonGone():
		lost()
		r.blame(p.costs())
		exit, last := p.runner.exit(), p.runner.diary.last()
		r.words = last
		r.h.log.Warn("plugin crashed", "plugin", r.info.Ref(), "exit", exit, "records", n, "last", last)
		return nil, r.failure(pipeline.CodePluginCrashed, "exit: "+exit, nil)
	case code == codes.ResourceExhausted || heavy:
		if n == 1 {
			r.blame(1)
		}
		what := "the answer is too large"
		if heavy {
			what = "the answer holds too many parts"
		}
		return nil, r.failure(pipeline.CodePluginAnswer, what, nil)
	default:
		r.blame(1)
		r.h.log.Warn("plugin answered an error", "plugin", r.info.Ref(), "status", code.String(), "text", p.runner.diary.clean(status.Convert(err).Message()))
		return nil, r.failure(pipeline.CodePluginAnswer, "gRPC status "+code.String(), nil)
	}
}

// soonGone waits a moment for a process whose call failed: it may be dying.
func (p *process) soonGone() bool {
	t := time.NewTimer(20 * time.Millisecond)
	defer t.Stop()
	select {
	case <-p.runner.running.Gone():
		return true
	case <-t.C:
		return false
	}
}

// repairs is a batch of envelopes and what becomes of them.
type repairs struct {
	r   *remote
	in  []transforms.Envelope
	out []transforms.Result
}

// readable takes the envelopes out whose format the plugin does not read: they are rejected without asking it.
func (w *repairs) readable(reads []string, all []transforms.Envelope, out []transforms.Result) (at []int) {
	for i := range all {
		format, _, _ := strings.Cut(all[i].Schema, ":")
		if len(reads) == 0 || format == "" || format == "guid" || slices.Contains(reads, format) {
			w.in = append(w.in, all[i])
			at = append(at, i)
			continue
		}
		rec := &all[i].Record
		out[i] = transforms.Result{Key: rec.Key, Value: rec.Value, Headers: rec.Headers, Schema: all[i].Schema,
			Failure: w.r.failure(pipeline.CodeTransformFailed, "it does not read "+format, nil)}
	}
	return at
}

func (w *repairs) len() int { return len(w.in) }

func (w *repairs) size(i int) int { return len(w.in[i].Record.Key) + len(w.in[i].Record.Value) }

func (w *repairs) send(ctx context.Context, p *process, req proto.Message) (proto.Message, error) {
	return p.client.Repair(ctx, req.(*wire.RepairRequest))
}

func (w *repairs) request(batch uint64, from, to int) (proto.Message, string) {
	return request(batch, w.in[from:to])
}

func (w *repairs) take(req, reply proto.Message, from, to int) string {
	return w.r.take(req.(*wire.RepairRequest), reply.(*wire.RepairReply), w.in[from:to], w.out[from:to])
}

func (w *repairs) fail(from, to int, f *pipeline.Failure) {
	for i := from; i < to; i++ {
		rec := &w.in[i].Record
		w.out[i] = transforms.Result{Key: rec.Key, Value: rec.Value, Headers: rec.Headers, Schema: w.in[i].Schema, Failure: f}
	}
}

// request is a batch as the protocol has it, or why it cannot be sent.
func request(batch uint64, in []transforms.Envelope) (_ *wire.RepairRequest, what string) {
	req := &wire.RepairRequest{Batch: batch, Envelopes: make([]*wire.Envelope, len(in))}
	for i := range in {
		e := &in[i]
		id := &e.Identity
		w := &wire.Envelope{Item: string(e.Item), Topic: e.Topic, Offset: e.Record.Offset, TimeMs: e.Record.TimeMS, TimeType: e.Record.TimeType.String(),
			Key: &wire.Nullable{Value: e.Record.Key}, Value: &wire.Nullable{Value: e.Record.Value}, Schema: e.Schema, Code: string(e.Code),
			Identity: &wire.Identity{Consumer: id.Consumer, Release: id.Release, Tenant: id.Tenant, EventId: id.EventID, Entity: id.Entity,
				BusinessId: id.BusinessID, Token: id.Token, Version: id.Version}}
		for _, s := range []string{w.Item, w.Topic, w.Schema, w.Code, id.Consumer, id.Release, id.Tenant, id.EventID, id.Entity, id.BusinessID, id.Token, id.Version} {
			if !utf8.ValidString(s) {
				return nil, "its identity is not UTF-8"
			}
		}
		if len(e.Record.Headers) > 0 {
			w.Headers = &wire.Headers{Header: make([]*wire.Header, len(e.Record.Headers))}
			for j, h := range e.Record.Headers {
				if !utf8.ValidString(h.Name) {
					return nil, "a header name is not UTF-8"
				}
				w.Headers.Header[j] = &wire.Header{Name: h.Name, Value: h.Value}
			}
		}
		req.Envelopes[i] = w
	}
	return req, ""
}

func (h *Host) isClosing() bool {
	select {
	case <-h.closing:
		return true
	default:
		return false
	}
}
