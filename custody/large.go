package custody

import (
	"context"
	"encoding/hex"
	"time"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

// Large says where the values of items are kept that are too large for the ledger. Their rows have the name and the length; the digest of
// an item covers its value wherever it stands.
type Large struct {
	Bucket Bucket // nil: all values stand in the ledger
	Over   int64  // bytes: larger values go to the bucket
}

// objectTimeout bounds each answer of the bucket: a ledger transaction may wait for it.
const objectTimeout = 30 * time.Second

// putAside brings the large values of new items into the bucket, before the transaction that admits them: a bucket is slow. The same item
// has the same object, so it may be done again. A bucket that does not take one costs room, not custody: the value then stands in the
// ledger. What the ledger knows already is left alone; what was erased must not come back.
func (c *Items) putAside(ctx context.Context, arrivals []Arrival) error {
	if c.large.Bucket == nil {
		return nil
	}
	var ids []string
	var large []*Arrival
	for i := range arrivals {
		if a := &arrivals[i]; int64(len(a.Letter.Value)) > c.large.Over && c.ready(a).object == "" {
			ids, large = append(ids, string(c.ready(a).id)), append(large, a)
		}
	}
	if len(large) == 0 {
		return nil
	}
	known := map[pipeline.ID]bool{}
	if err := c.db.Read(ctx, func(tx *ledger.Tx) error {
		clear(known)
		in, arg := tx.In("id", ids)
		return tx.Each("SELECT id FROM items WHERE "+in, []any{arg}, func(scan func(...any) error) error {
			var id pipeline.ID
			err := scan(&id)
			known[id] = true
			return err
		})
	}); err != nil {
		return err
	}
	for _, a := range large {
		if known[a.ready.id] {
			continue
		}
		name := "payloads/" + string(a.ready.id) + "-" + hex.EncodeToString(a.ready.digest[:8])
		if err := c.put(ctx, name, a.Letter.Value); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			c.log.Warn("a large payload stays in the ledger", "item", a.ready.id, "bytes", len(a.Letter.Value), "code", pipeline.CodePayloadUnavailable, "cause", err.Error())
			continue
		}
		a.ready.object = name
	}
	return nil
}

func (c *Items) put(ctx context.Context, name string, value []byte) error {
	ctx, cancel := context.WithTimeout(ctx, objectTimeout)
	defer cancel()
	return c.large.Bucket.Put(ctx, name, value)
}

// payloadRow is the row of a new item's payload.
func (a *Arrival) payloadRow(week int64) []any {
	l := a.Letter
	if a.ready.object == "" {
		return []any{a.ready.id, week, tenantOf(l), l.Key, l.Value, a.ready.headers, nil, nil}
	}
	return []any{a.ready.id, week, tenantOf(l), l.Key, nil, a.ready.headers, a.ready.object, int64(len(l.Value))}
}

// valueOf is the value that a payload row means: its own, or that of the object it names. Codes: ERR_PAYLOAD_UNAVAILABLE,
// ERR_PAYLOAD_MISSING (the object is gone).
func (c *Items) valueOf(ctx context.Context, value []byte, object *string) ([]byte, error) {
	if object == nil {
		return value, nil
	}
	if c.large.Bucket == nil {
		return nil, pipeline.Errorf(pipeline.CodePayloadUnavailable, *object, "the value stands in a bucket, and the worker file names none")
	}
	ctx, cancel := context.WithTimeout(ctx, objectTimeout)
	defer cancel()
	b, err := c.large.Bucket.Get(ctx, *object)
	switch {
	case err == nil && b == nil:
		return []byte{}, nil
	case err != nil && pipeline.CodeOf(err) != pipeline.CodePayloadMissing:
		return nil, &pipeline.Error{Code: pipeline.CodePayloadUnavailable, Place: *object, Text: "the bucket does not give it: " + err.Error(), Cause: err}
	}
	return b, err
}

// intactIn refuses a value that is not the one that was taken, where it came out of the bucket: anybody may write there.
func (c *Items) intactIn(it *Item, b *Bytes, headers []byte, object *string) error {
	if object == nil || string(payloadDigest(c.id, b.Key, b.Value, headers)) == string(it.PayloadDigest) {
		return nil
	}
	return pipeline.Errorf(pipeline.CodeLedgerCorrupt, *object, "the object was changed: its digest does not hold")
}

// dropObjects notes which objects of items are to be deleted, in the transaction that deletes their rows: sweep does it.
func dropObjects(tx *ledger.Tx, week int64, ids []string) error {
	in, arg := tx.In("item", ids)
	_, err := tx.Exec("INSERT INTO dropped_objects (object, at_ms) SELECT object, CAST(? AS BIGINT) FROM payloads WHERE week = ? AND object IS NOT NULL AND "+in+" ON CONFLICT (object) DO NOTHING", tx.NowMS(), week, arg)
	return err
}

// sweepBatch is how many dropped objects are read at once.
const sweepBatch = 1000

// sweep deletes from the bucket what payloads were dropped for, by an erasure or an expiry. What cannot be deleted stays noted for the next
// time. It returns how many are left. Codes: ERR_PAYLOAD_UNAVAILABLE, ERR_LEDGER_*.
func (c *Items) sweep(ctx context.Context) (left int64, err error) {
	for after := ""; ; {
		var names []string
		if err := c.db.Read(ctx, func(tx *ledger.Tx) error {
			names = nil
			return tx.Each("SELECT object FROM dropped_objects WHERE object > ? ORDER BY object LIMIT ?", []any{after, sweepBatch}, func(scan func(...any) error) error {
				var name string
				err := scan(&name)
				names = append(names, name)
				return err
			})
		}); err != nil {
			return left, err
		}
		var gone []string
		for _, name := range names {
			if derr := c.deleteObject(ctx, name); derr != nil {
				left, err = left+1, derr
				continue
			}
			gone = append(gone, name)
		}
		if len(gone) > 0 {
			if werr := c.db.Write(ctx, func(tx *ledger.Tx) error {
				in, arg := tx.In("object", gone)
				_, err := tx.Exec("DELETE FROM dropped_objects WHERE "+in, arg)
				return err
			}); werr != nil {
				return left, werr
			}
		}
		if len(names) < sweepBatch {
			return left, err
		}
		after = names[len(names)-1]
	}
}

func (c *Items) deleteObject(ctx context.Context, name string) error {
	if c.large.Bucket == nil {
		return pipeline.Errorf(pipeline.CodePayloadUnavailable, name, "the value of an item that is gone stands in a bucket, and the worker file names none")
	}
	ctx, cancel := context.WithTimeout(ctx, objectTimeout)
	defer cancel()
	if err := c.large.Bucket.Delete(ctx, name); err != nil {
		return &pipeline.Error{Code: pipeline.CodePayloadUnavailable, Place: name, Text: "the bucket does not delete it: " + err.Error(), Cause: err}
	}
	return nil
}
