package custody

import (
	"context"
	"errors"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
)

// Bytes are a record's key, value and headers. A nil Key or Value is null.
type Bytes struct {
	Key, Value []byte
	Headers    []pipeline.Header
	TimeMS     int64
	TimeType   pipeline.TimeType
	Faithful   bool // what the source held, byte for byte: its keyed digest was verified
}

// stored reads what the ledger holds of an item, opened if it is sealed. Codes: ERR_PAYLOAD_MISSING, ERR_ERASED,
// ERR_KEY_UNKNOWN, ERR_KEY_DESTROYED, ERR_LEDGER_CORRUPT.
func (c *Items) stored(tx *ledger.Tx, it *Item) (Bytes, error) {
	b, err := c.sealed(tx, it)
	if err != nil {
		return b, err
	}
	return b, c.unseal(it, &b)
}

// sealed is stored without opening.
func (c *Items) sealed(tx *ledger.Tx, it *Item) (Bytes, error) {
	b := Bytes{TimeMS: it.OriginalMS, TimeType: it.TimeType}
	if it.Flags&FlagErased != 0 {
		return b, pipeline.Errorf(pipeline.CodeErased, string(it.ID), "the bytes were erased")
	}
	var headers []byte
	var object *string
	found, err := tx.Row("SELECT record_key, value, headers, object FROM payloads WHERE item = ? AND week = ?", []any{it.ID, it.PayloadWeek}, &b.Key, &b.Value, &headers, &object)
	if err != nil {
		return b, err
	}
	if !found {
		return b, pipeline.Errorf(pipeline.CodePayloadMissing, string(it.ID), "the ledger has no payload of it any more")
	}
	if b.Value, err = c.valueOf(tx.Context(), b.Value, object); err != nil {
		return b, err
	}
	if err := c.intactIn(it, &b, headers, object); err != nil {
		return b, err
	}
	b.Headers, err = unpackHeaders(headers)
	return b, err
}

func (c *Items) unseal(it *Item, b *Bytes) (err error) {
	if it.Enc == "" || b.Value == nil {
		return nil
	}
	if c.opener == nil {
		return pipeline.Errorf(pipeline.CodeKeyUnknown, string(it.ID), "its bytes are sealed and this process has no keys")
	}
	b.Value, err = c.opener.Open(it.Tenant, it.Enc, b.Value, []byte(it.ID))
	return err
}

// Open reveals what the ledger holds of an item: redacted, or faithful when redaction changed nothing. It is written into the
// history with its reason before the bytes are returned. Codes: ERR_REASON_MISSING, ERR_ITEM_UNKNOWN, ERR_PERMISSION_DENIED,
// ERR_TENANT_FORBIDDEN, ERR_PAYLOAD_MISSING, ERR_ERASED, ERR_KEY_UNKNOWN, ERR_KEY_DESTROYED.
func (c *Items) Open(ctx context.Context, who Actor, id pipeline.ID, reason string) (Bytes, error) {
	var b Bytes
	err := c.reveal(ctx, who, id, reason, "", func(tx *ledger.Tx, it *Item) (err error) {
		b, err = c.stored(tx, it)
		b.Faithful = it.Faithful == deadletter.Inline
		return err
	})
	if err != nil {
		return Bytes{}, err
	}
	return b, nil
}

// reveal lets who look at an item: the permission, the reason in the history and what is looked up stand or fall together. A refusal is
// written down. by says through what, "" is the ledger itself.
func (c *Items) reveal(ctx context.Context, who Actor, id pipeline.ID, reason, by string, look func(*ledger.Tx, *Item) error) error {
	if err := needs(pipeline.CodeReasonMissing, reason, "a reason"); err != nil {
		return err
	}
	tenant := ""
	err := c.db.Write(ctx, func(tx *ledger.Tx) error {
		it, err := c.one(tx, id)
		if err != nil {
			return err
		}
		tenant = it.Tenant
		if err := c.roles.check(who, PermReveal, it.Tenant); err != nil {
			return err
		}
		if err := look(tx, it); err != nil {
			return err
		}
		detail := map[string]string{"reason": reason, "via": who.Via}
		if by != "" {
			detail["by"] = by
		}
		tx.Append(ledger.Entry{Tenant: it.Tenant, Item: string(id), Event: "revealed", Actor: who.Subject, Detail: detail})
		return nil
	})
	if err != nil {
		return c.refused(ctx, who, string(PermReveal), string(id), tenant, err)
	}
	return nil
}

// Stored returns what the ledger holds of an item to a redrive, without a reveal: for dry runs and repairs. Codes: as Open.
func (c *Items) Stored(tx *ledger.Tx, it *Item) (Bytes, error) { return c.stored(tx, it) }

// Faithful returns the bytes that the source held. Inline: from the ledger. Source: read from the source topic, if it still has
// them. Vault: opened, or from the source where a verification value was taken out of them. Always the keyed digest must agree. It is for those who send or repair, not for people to read: nothing is
// revealed. Codes: ERR_PAYLOAD_MISSING (gone, or no access to the source), ERR_PAYLOAD_UNFAITHFUL (only redacted bytes exist, or
// what was found has another digest), ERR_ERASED, ERR_KEY_*, ERR_BROKER_*.
func (c *Items) Faithful(ctx context.Context, it *Item) (Bytes, error) {
	switch it.Faithful {
	case deadletter.Inline:
		var b Bytes
		if err := c.db.Read(ctx, func(tx *ledger.Tx) (err error) {
			b, err = c.sealed(tx, it)
			return err
		}); err != nil {
			return Bytes{}, err
		}
		if err := c.unseal(it, &b); err != nil {
			return Bytes{}, err
		}
		return b, c.verifyFaithful(it, &b)
	case deadletter.Source:
		return c.fromSource(ctx, it)
	case deadletter.Vault:
		b, err := c.fromVault(ctx, it)
		switch code := pipeline.CodeOf(err); {
		case err == nil && b.Faithful:
			return b, nil
		case err == nil:
			err = pipeline.Errorf(pipeline.CodePayloadUnfaithful, string(it.ID), "a verification value was taken out of the bytes in the vault")
		case code != pipeline.CodePayloadMissing:
			return Bytes{}, err // the source may still have them: what was erased or cannot be opened is not looked for there
		}
		if b, serr := c.fromSource(ctx, it); serr == nil {
			return b, nil
		}
		return Bytes{}, err
	}
	return Bytes{}, pipeline.Errorf(pipeline.CodePayloadUnfaithful, string(it.ID), "redaction changed its bytes, and no copy of the source's bytes exists")
}

// verifyFaithful: INV-FAITHFUL: no bytes leave as faithful unless their keyed digest is the one taken when they were read.
func (c *Items) verifyFaithful(it *Item, b *Bytes) error {
	if got := pipeline.Digest(c.id.Digest(b.Value)); it.DigestFaithful == "" || got != it.DigestFaithful {
		return pipeline.Errorf(pipeline.CodePayloadUnfaithful, string(it.ID), "the digest of the bytes that were found is not the one that was taken")
	}
	b.Faithful = true
	return nil
}

var errFound = errors.New("found")

// fromSource reads the record where it first stood, else where its last pass read it (a retry topic carries source bytes).
func (c *Items) fromSource(ctx context.Context, it *Item) (Bytes, error) {
	if it.Flags&FlagErased != 0 {
		return Bytes{}, pipeline.Errorf(pipeline.CodeErased, string(it.ID), "the bytes were erased")
	}
	log, ok := c.source(it.Cluster)
	if !ok {
		return Bytes{}, pipeline.Errorf(pipeline.CodePayloadMissing, string(it.ID), "the source cluster %q cannot be read from here", it.Cluster).
			With("Run this where the source cluster is configured.")
	}
	var last error = pipeline.Errorf(pipeline.CodePayloadMissing, string(it.ID), "the source does not have offset %s any more", it.Original)
	for i, at := range []pipeline.Position{it.Original, it.At} {
		if i == 1 && at == it.Original {
			break
		}
		b, found, err := readAt(ctx, log, at)
		if err != nil {
			return Bytes{}, err
		}
		if !found {
			continue
		}
		if last = c.verifyFaithful(it, &b); last == nil {
			return b, nil
		}
	}
	return Bytes{}, last
}

func readAt(ctx context.Context, log pipeline.Log, at pipeline.Position) (b Bytes, found bool, err error) {
	one := func(yield func(int64) bool) { yield(at.Offset) }
	err = log.Read(ctx, at.TP, one, func(batch *pipeline.Batch) error {
		defer batch.Release()
		for i := range batch.Recs {
			if r := &batch.Recs[i]; r.Offset == at.Offset {
				k := r.Clone()
				b, found = Bytes{Key: k.Key, Value: k.Value, Headers: k.Headers, TimeMS: k.TimeMS, TimeType: k.TimeType}, true
				return errFound
			}
		}
		return nil
	})
	if errors.Is(err, errFound) {
		err = nil
	}
	return b, found, err
}
