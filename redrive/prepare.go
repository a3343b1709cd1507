package redrive

import (
	"context"

	"reprieve.dev/custody"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
)

// prepare makes the signed messages. An item that cannot be sent is noted, not dropped.
func (e *executor) prepare(ctx context.Context, f *flight) error {
	// What the ledger holds is read in one go, and what stands in source topics a partition at a time.
	changed := map[pipeline.ID]bool{}
	repairs := map[pipeline.ID]string{}
	var held, elsewhere []*custody.Item
	for _, it := range f.items {
		switch l := f.lines[it.ID]; {
		case it.Repair != l.Repair && (l.Repair != "" || it.SentFrom == custody.Repaired):
			changed[it.ID] = true
		case l.Repair != "" || it.Faithful == deadletter.Inline:
			repairs[it.ID] = l.Repair
			held = append(held, it)
		default:
			elsewhere = append(elsewhere, it)
		}
	}
	there, err := e.s.items.SourceBytes(ctx, elsewhere)
	if err != nil {
		return err
	}
	var found map[pipeline.ID]custody.Bytes
	var failed map[pipeline.ID]error
	if err := e.s.db.Read(ctx, func(tx *ledger.Tx) (err error) {
		found, failed, err = e.s.items.WindowBytes(tx, held, repairs)
		return err
	}); err != nil {
		return err
	}
	for _, it := range f.items {
		l := f.lines[it.ID]
		b, ok := found[it.ID]
		if !ok {
			b, ok = there[it.ID]
		}
		err := failed[it.ID]
		switch {
		case err != nil:
		case changed[it.ID]:
			err = pipeline.Errorf(pipeline.CodeStateChanged, string(it.ID), "its repair changed since the plan")
		case !ok && l.Repair == "" && it.Faithful != deadletter.Inline:
			b, err = e.s.items.Faithful(ctx, it)
		case !ok:
			err = pipeline.Errorf(pipeline.CodePayloadMissing, string(it.ID), "the ledger has no payload of it any more")
		}
		switch {
		case err != nil:
		case pipeline.Digest(e.s.id.Digest(b.Value)) != l.Digest: // INV-BYTES
			err = pipeline.Errorf(pipeline.CodePayloadUnfaithful, string(it.ID), "its bytes are not those that were planned")
		case b.Key == nil && e.info.Compacted:
			err = pipeline.Errorf(pipeline.CodeSendKeyless, string(it.ID), "the destination is compacted and the record has no key")
		case e.t.unreadable(ctx, e.scratch, &b):
			err = pipeline.Errorf(pipeline.CodeSchemaUnknown, string(it.ID), "its schema is gone: the pipeline could not read it")
		case tooFar(it, e.s.clock()):
			err = pipeline.Errorf(pipeline.CodeRedriveTime, string(it.ID), "its own time is more than ten years away")
		}
		var m pipeline.Message
		if err == nil {
			m, err = e.message(ctx, it, b, l.Repair != "")
		}
		if err != nil {
			if ctx.Err() != nil || pipeline.CodeOf(err) == "" {
				return err
			}
			f.failed = append(f.failed, failedItem{it.ID, pipeline.CodeOf(err), text(err)})
			continue
		}
		f.msgs = append(f.msgs, m)
		f.of = append(f.of, it)
	}
	return nil
}

// message is the record as it was, with its signed past: original key and headers, and the key's partition as Java producers
// choose it.
func (e *executor) message(ctx context.Context, it *custody.Item, b custody.Bytes, repaired bool) (pipeline.Message, error) {
	id := it.Identity
	if repaired && e.m.Identity.Policy == identityNew {
		var err error
		if id, err = e.t.identityOf(ctx, id, &b); err != nil {
			return pipeline.Message{}, err
		}
	}
	m := pipeline.Message{Topic: e.m.Destination, Partition: Partition(b.Key, int32(len(e.info.Partitions)), it.Original.Partition),
		Key: b.Key, Value: b.Value, From: -1}
	m.Headers = deadletter.PassHeaders(make([]pipeline.Header, 0, len(b.Headers)+24), b.Headers, false)
	tr := pipeline.Trail{Item: it.ID, Redrive: e.digest, Try: it.Try, Generation: it.Generation, Original: it.Original, OriginalMS: it.OriginalMS, TimeType: it.TimeType, Identity: id}
	return m, deadletter.AppendTrail(&m, &tr, id, nil, 0, e.s.ring)
}
