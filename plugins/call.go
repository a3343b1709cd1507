package plugins

import (
	"context"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"reprieve.dev/pipeline"
	"reprieve.dev/plugins/wire"
	"reprieve.dev/transforms"
)

// call sends one batch. The deadline ends the process, since nothing else ends a loop. Codes: ERR_PLUGIN_CRASHED,
// ERR_PLUGIN_TIMEOUT, ERR_PLUGIN_ANSWER.
func (r *remote) call(ctx context.Context, at **process, p *process, req *wire.RepairRequest) (*wire.RepairReply, *pipeline.Failure) {
	limited, cancel := context.WithTimeout(ctx, r.h.o.Call)
	defer cancel()
	reply, err := p.client.Repair(limited, req)
	if err == nil {
		return reply, nil
	}
	lost := func() { p.end(); *at = nil }
	switch code := status.Code(err); {
	case ctx.Err() != nil:
		lost()
		return nil, r.failure(pipeline.CodePluginTimeout, "the caller gave up", nil)
	case limited.Err() != nil || code == codes.DeadlineExceeded: // the plugin's own clock of the same limit may run out first
		lost()
		r.blame(timeoutCosts)
		r.h.log.Warn("plugin did not answer in time", "plugin", r.info.Ref(), "limit", r.h.o.Call, "records", len(req.Envelopes))
		return nil, r.failure(pipeline.CodePluginTimeout, "no answer within the limit of a call", nil)
	case code == codes.Unavailable || p.soonGone():
		lost()
		r.blame(1)
		exit, last := p.runner.running.Exit(), p.runner.diary.last()
		r.h.log.Warn("plugin crashed", "plugin", r.info.Ref(), "exit", exit, "records", len(req.Envelopes), "last", last)
		return nil, r.failure(pipeline.CodePluginCrashed, "exit: "+exit, nil)
	case code == codes.ResourceExhausted:
		return nil, r.failure(pipeline.CodePluginAnswer, "the answer is too large", nil)
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
