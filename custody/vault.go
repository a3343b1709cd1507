package custody

import (
	"context"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
)

// TakenVault is one message of a vault topic as it was read.
type TakenVault struct {
	*deadletter.Vaulted
	Stands  pipeline.Position
	TimeMS  int64
	Cluster string
}

// VaultTx keeps sealed records. The letter of the same item may come before or after: they meet by its id. The newest of an item is
// kept: the same record, sealed again to a newer key. What was erased or has expired does not come back. Cost: one insert each.
func (c *Items) VaultTx(tx *ledger.Tx, list []TakenVault) error {
	if len(list) == 0 {
		return nil
	}
	ids := make([]string, len(list))
	for i := range list {
		ids[i] = string(list[i].Item)
	}
	gone := map[pipeline.ID]bool{}
	note := func(scan func(...any) error) error {
		var id pipeline.ID
		err := scan(&id)
		gone[id] = true
		return err
	}
	in, arg := tx.In("subject", ids)
	if err := tx.Each("SELECT subject FROM erasure_log WHERE kind = 'item' AND "+in, []any{arg}, note); err != nil {
		return err
	}
	items, err := load(tx, ids, false)
	if err != nil {
		return err
	}
	for i := range list {
		v := &list[i]
		if it := items[v.Item]; gone[v.Item] || it != nil && it.Flags&(FlagErased|FlagExpired) != 0 {
			continue
		}
		if _, err := tx.Exec(`INSERT INTO vault (item, tenant, cluster, topic, partition, message_offset, digest, enc, sealed, at_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (item) DO UPDATE SET tenant = excluded.tenant, cluster = excluded.cluster, topic = excluded.topic, partition = excluded.partition,
			message_offset = excluded.message_offset, digest = excluded.digest, enc = excluded.enc, sealed = excluded.sealed, at_ms = excluded.at_ms`,
			v.Item, deadletter.SealedTenant(v.Tenant), v.Cluster, v.Stands.Topic, v.Stands.Partition, v.Stands.Offset, v.Digest, v.Enc, v.Sealed, v.TimeMS); err != nil {
			return err
		}
	}
	return nil
}

// sealedOriginal is the sealed record of an item.
type sealedOriginal struct {
	tenant, enc string
	digest      pipeline.Digest
	sealed      []byte
}

func readVault(tx *ledger.Tx, it *Item) (s sealedOriginal, err error) {
	found, err := tx.Row("SELECT tenant, enc, digest, sealed FROM vault WHERE item = ? AND tenant = ?", []any{it.ID, it.Tenant}, &s.tenant, &s.enc, &s.digest, &s.sealed)
	switch {
	case err != nil:
		return s, err
	case it.Flags&FlagErased != 0:
		return s, pipeline.Errorf(pipeline.CodeErased, string(it.ID), "the bytes were erased")
	case !found:
		return s, pipeline.Errorf(pipeline.CodePayloadMissing, string(it.ID), "its message of the vault topic is not in the ledger")
	}
	return s, nil
}

// openRecord opens a sealed record. aad is what it was bound to: the item, or the repair.
func (c *Items) openRecord(it *Item, tenant, enc string, sealed, aad []byte) (b Bytes, err error) {
	if c.opener == nil {
		return b, pipeline.Errorf(pipeline.CodeKeyUnknown, string(it.ID), "its bytes are sealed and this process has no keys")
	}
	plain, err := c.opener.Open(tenant, enc, sealed, aad)
	if err != nil {
		return b, err
	}
	b.TimeMS, b.TimeType = it.OriginalMS, it.TimeType
	b.Key, b.Value, b.Headers, err = deadletter.UnpackRecord(plain)
	return b, err
}

// fromVault opens the sealed record of an item. Its digest must be the one that was signed with it, and is the source's only if
// nothing was taken out of it. Codes: ERR_PAYLOAD_MISSING, ERR_ERASED, ERR_KEY_UNKNOWN, ERR_KEY_DESTROYED, ERR_SEAL_BROKEN,
// ERR_LEDGER_*.
func (c *Items) fromVault(ctx context.Context, it *Item) (Bytes, error) {
	var s sealedOriginal
	if err := c.db.Read(ctx, func(tx *ledger.Tx) (err error) {
		s, err = readVault(tx, it)
		return err
	}); err != nil {
		return Bytes{}, err
	}
	b, err := c.openRecord(it, s.tenant, s.enc, s.sealed, []byte(it.ID))
	if err != nil {
		return Bytes{}, err
	}
	got := pipeline.Digest(c.id.Digest(b.Value))
	if got != s.digest {
		return Bytes{}, pipeline.Errorf(pipeline.CodeLedgerCorrupt, string(it.ID), "the bytes in the vault are not those that were sealed")
	}
	b.Faithful = got == it.DigestFaithful
	return b, nil
}

// OpenOriginal reveals the bytes of an item that stand in the vault: what the source held, less verification values. It is written into
// the history with its reason before the bytes are returned. Codes: as Open, and ERR_PAYLOAD_MISSING when they are not in the vault.
func (c *Items) OpenOriginal(ctx context.Context, who Actor, id pipeline.ID, reason string) (Bytes, error) {
	if err := needs(pipeline.CodeReasonMissing, reason, "a reason"); err != nil {
		return Bytes{}, err
	}
	var it *Item
	var b Bytes
	err := c.db.Read(ctx, func(tx *ledger.Tx) (err error) {
		it, err = c.one(tx, id)
		return err
	})
	if err != nil {
		return Bytes{}, err
	}
	err = c.roles.check(who, PermReveal, it.Tenant)
	if err == nil && it.Faithful != deadletter.Vault {
		err = pipeline.Errorf(pipeline.CodePayloadMissing, string(id), "its original bytes are not in the vault but: %s", it.Faithful)
	}
	if err == nil {
		b, err = c.fromVault(ctx, it)
	}
	if err == nil {
		err = c.db.Write(ctx, func(tx *ledger.Tx) error {
			tx.Append(ledger.Entry{Tenant: it.Tenant, Item: string(id), Event: "revealed", Actor: who.Subject, Detail: map[string]string{"reason": reason, "via": who.Via, "bytes": "original"}})
			return nil
		})
	}
	if err != nil {
		return Bytes{}, c.refused(ctx, who, string(PermReveal), string(id), it.Tenant, err)
	}
	return b, nil
}

// sealRepair seals repaired bytes of an item whose own bytes may not stand in clear: it is sealed itself, or redaction changed it and
// the repair was made of what it hides. plain tells that they may stay as they are. Codes: ERR_SEAL_FAILED.
func (c *Items) sealRepair(it *Item, repair string, b Bytes) (sealed []byte, enc string, plain bool, err error) {
	if it.Enc == "" && it.Faithful == deadletter.Inline {
		return nil, "", true, nil
	}
	if c.sealer == nil {
		return nil, "", false, pipeline.Errorf(pipeline.CodeSealFailed, string(it.ID), "the repair holds what redaction took out of the letter, and this process has no keys to seal it").
			With("name a keeper in the worker file: keys: {keeper: {file: keys/keeper}}; then run the custodian once")
	}
	sealed, enc, err = c.sealer.Seal(it.Tenant, deadletter.PackRecord(b.Key, b.Value, b.Headers), []byte(repair))
	return sealed, enc, false, err
}
