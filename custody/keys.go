package custody

import (
	"context"
	"crypto/sha256"
	"fmt"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/seal"
)

// Keeper wraps private keys: a KMS, or a local key file. *secrets.Keeper of gocloud.dev is one.
type Keeper interface {
	Encrypt(ctx context.Context, plain []byte) ([]byte, error)
	Decrypt(ctx context.Context, wrapped []byte) ([]byte, error)
}

// Keys are the tenants' key pairs. The private halves stand only here, wrapped; without them nothing sealed for the tenant can be
// opened, wherever it lies: destroying them erases it. Safe for concurrent use.
type Keys struct {
	c      *Items
	keeper Keeper
	name   string
}

// NewKeys keeps keys in the ledger of c, wrapped by keeper; name says which keeper, for the day when it changes.
func NewKeys(c *Items, keeper Keeper, name string) *Keys { return &Keys{c, keeper, name} }

// keyID is the kid of a version: the tenant's name is not in it, since it stands in every letter.
func keyID(tenant string, version int64) string {
	sum := sha256.Sum256([]byte("tenant " + tenant))
	return fmt.Sprintf("t%s.%d", seal.Base32(sum[:10]), version)
}

// Current is the newest public key of a tenant, made if it has none. Codes: ERR_LEDGER_*, ERR_SEAL_FAILED (the keeper).
func (k *Keys) Current(ctx context.Context, tenant string) (*seal.PublicKey, error) {
	pub, err := k.newest(ctx, tenant)
	if err != nil || pub != nil {
		return pub, err
	}
	return k.add(ctx, System("keys"), tenant, true)
}

func (k *Keys) newest(ctx context.Context, tenant string) (pub *seal.PublicKey, err error) {
	err = k.c.db.Read(ctx, func(tx *ledger.Tx) (err error) {
		pub, err = newestKey(tx, tenant)
		return err
	})
	return pub, err
}

func newestKey(tx *ledger.Tx, tenant string) (*seal.PublicKey, error) {
	var id string
	var raw []byte
	found, err := tx.Row("SELECT id, public_key FROM tenant_keys WHERE tenant = ? ORDER BY version DESC LIMIT 1", []any{tenant}, &id, &raw)
	if err != nil || !found {
		return nil, err
	}
	return seal.NewPublicKey(id, raw)
}

// Rotate makes the next version of a tenant's key; older ones still open what was sealed to them. Codes:
// ERR_PERMISSION_DENIED, ERR_TENANT_FORBIDDEN, ERR_SEAL_FAILED, ERR_LEDGER_*.
func (k *Keys) Rotate(ctx context.Context, who Actor, tenant string) (*seal.PublicKey, error) {
	if err := k.c.Check(ctx, who, PermErase, tenant); err != nil {
		return nil, err
	}
	return k.add(ctx, who, tenant, false)
}

// add makes a version. Versions are never used twice, not even after a destruction.
func (k *Keys) add(ctx context.Context, who Actor, tenant string, onlyFirst bool) (pub *seal.PublicKey, err error) {
	err = k.c.db.Write(ctx, func(tx *ledger.Tx) error {
		if err := tx.Lock("keys " + tenant); err != nil {
			return err
		}
		if onlyFirst {
			if pub, err = newestKey(tx, tenant); err != nil || pub != nil {
				return err
			}
		}
		version, err := tx.Next("tenant key "+tenant, 1)
		if err != nil {
			return err
		}
		private, err := seal.GeneratePrivateKey(keyID(tenant, version))
		if err != nil {
			return err
		}
		wrapped, err := k.keeper.Encrypt(ctx, private.Bytes())
		if err != nil {
			return &pipeline.Error{Code: pipeline.CodeSealFailed, Place: k.name, Text: "the private key could not be wrapped", Cause: err}
		}
		pub = private.Public()
		if err := tx.Insert("tenant_keys", []string{"id", "tenant", "version", "public_key", "private_wrapped", "keeper", "created_ms"},
			[][]any{{pub.ID(), tenant, version, pub.Bytes(), wrapped, k.name, tx.NowMS()}}); err != nil {
			return err
		}
		tx.Append(ledger.Entry{Tenant: tenant, Event: "key_made", Actor: who.Subject, Detail: map[string]string{"kid": pub.ID()}})
		return nil
	})
	return pub, err
}

// Private is the private key of a letter: what seal.NewOpener asks for. Codes: ERR_KEY_DESTROYED (the tenant was erased),
// ERR_KEY_UNKNOWN, ERR_SEAL_FAILED (the keeper), ERR_LEDGER_*.
func (k *Keys) Private(ctx context.Context, tenant, kid string) (*seal.PrivateKey, error) {
	var wrapped []byte
	var destroyed int64
	err := k.c.db.Read(ctx, func(tx *ledger.Tx) error {
		found, err := tx.Row("SELECT private_wrapped FROM tenant_keys WHERE id = ? AND tenant = ?", []any{kid, tenant}, &wrapped)
		if err != nil || found {
			return err
		}
		wrapped = nil
		_, err = tx.Row("SELECT count(*) FROM erasure_log WHERE kind = 'key' AND subject = ? AND tenant = ?", []any{kid, tenant}, &destroyed)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case destroyed > 0:
		return nil, pipeline.Errorf(pipeline.CodeKeyDestroyed, kid, "the key was destroyed with its tenant")
	case wrapped == nil:
		return nil, pipeline.Errorf(pipeline.CodeKeyUnknown, kid, "this ledger has no such key of that tenant")
	}
	raw, err := k.keeper.Decrypt(ctx, wrapped)
	if err != nil {
		return nil, &pipeline.Error{Code: pipeline.CodeSealFailed, Place: k.name, Text: "the private key could not be unwrapped", Cause: err}
	}
	return seal.NewPrivateKey(kid, raw)
}

// TenantKey is one public key, for the control topic.
type TenantKey struct {
	Tenant    string
	Key       *seal.PublicKey
	CreatedMS int64
}

// Public are the newest public keys of all tenants: what pipelines seal to.
func (k *Keys) Public(ctx context.Context) (out []TenantKey, err error) {
	err = k.c.db.Read(ctx, func(tx *ledger.Tx) error {
		out = nil
		return tx.Each("SELECT tenant, id, public_key, created_ms FROM tenant_keys t WHERE version = (SELECT max(version) FROM tenant_keys m WHERE m.tenant = t.tenant) ORDER BY tenant", nil, func(scan func(...any) error) error {
			var key TenantKey
			var id string
			var raw []byte
			if err := scan(&key.Tenant, &id, &raw, &key.CreatedMS); err != nil {
				return err
			}
			var err error
			key.Key, err = seal.NewPublicKey(id, raw)
			out = append(out, key)
			return err
		})
	})
	return out, err
}

// Destroy deletes every private key of a tenant: what was sealed for it, in the ledger, in topics, in backups, cannot be opened
// any more, and nothing brings it back. It returns the kids. A legal hold on any item of the tenant refuses it. Callers then
// make their openers forget the tenant. Codes: ERR_REASON_MISSING, ERR_PERMISSION_DENIED, ERR_TENANT_FORBIDDEN, ERR_LEGAL_HOLD,
// ERR_KEY_UNKNOWN (it has none), ERR_LEDGER_*.
func (k *Keys) Destroy(ctx context.Context, who Actor, tenant, reason string) (kids []string, err error) {
	if err := firstOf(needs(pipeline.CodeReasonMissing, reason, "a reason"), k.c.Check(ctx, who, PermErase, tenant)); err != nil {
		return nil, err
	}
	err = k.c.db.Write(ctx, func(tx *ledger.Tx) error {
		kids = nil
		if err := tx.Lock("keys " + tenant); err != nil {
			return err
		}
		var held int64
		if _, err := tx.Row("SELECT count(*) FROM items WHERE tenant = ? AND legal_hold <> ''", []any{tenant}, &held); err != nil {
			return err
		}
		if held > 0 {
			return pipeline.Errorf(pipeline.CodeLegalHold, tenant, "%d items of the tenant are under legal hold", held)
		}
		if err := tx.Each("SELECT id FROM tenant_keys WHERE tenant = ? ORDER BY version", []any{tenant}, func(scan func(...any) error) error {
			var id string
			err := scan(&id)
			kids = append(kids, id)
			return err
		}); err != nil {
			return err
		}
		if len(kids) == 0 {
			return pipeline.Errorf(pipeline.CodeKeyUnknown, tenant, "the tenant has no key here")
		}
		if _, err := tx.Exec("DELETE FROM tenant_keys WHERE tenant = ?", tenant); err != nil {
			return err
		}
		seq, err := tx.Next("erasure_log", int64(len(kids)))
		if err != nil {
			return err
		}
		rows := make([][]any, len(kids))
		for i, kid := range kids {
			rows[i] = []any{seq + int64(i), tenant, "key", kid, who.Subject, ledger.Cut(reason, maxReason), tx.NowMS()}
			tx.Append(ledger.Entry{Tenant: tenant, Event: "key_destroyed", Actor: who.Subject, Detail: map[string]string{"kid": kid, "reason": reason}})
		}
		return tx.Insert("erasure_log", []string{"seq", "tenant", "kind", "subject", "actor", "reason", "at_ms"}, rows)
	})
	return kids, err
}

// ReplayErasures does again what the erasure log says: after a restore or a rebuild nothing that was erased is there. log is
// the newest erasure log, which has a backup cycle of its own. Codes: ERR_PERMISSION_DENIED, ERR_LEDGER_*.
func (c *Items) ReplayErasures(ctx context.Context, who Actor, log []Erasure) (int64, error) {
	if err := c.Check(ctx, who, PermErase, ""); err != nil {
		return 0, err
	}
	var n int64
	for _, e := range log {
		err := c.db.Write(ctx, func(tx *ledger.Tx) error {
			switch e.Kind {
			case "key":
				deleted, err := tx.Exec("DELETE FROM tenant_keys WHERE id = ?", e.Subject)
				if err != nil {
					return err
				}
				n += deleted
			case "item":
				items, err := load(tx, []string{e.Subject}, true)
				if err != nil {
					return err
				}
				it := items[pipeline.ID(e.Subject)]
				if it == nil || it.Flags&FlagErased != 0 {
					return nil
				}
				n++
				return c.eraseRows(tx, who, []*Item{it}, e.Reason)
			}
			var known int64
			if _, err := tx.Row("SELECT count(*) FROM erasure_log WHERE kind = ? AND subject = ?", []any{e.Kind, e.Subject}, &known); err != nil || known > 0 {
				return err
			}
			seq, err := tx.Next("erasure_log", 1)
			if err != nil {
				return err
			}
			return tx.Insert("erasure_log", []string{"seq", "tenant", "kind", "subject", "actor", "reason", "at_ms"}, [][]any{{seq, e.Tenant, e.Kind, e.Subject, e.Actor, e.Reason, e.AtMS}})
		})
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// Erasure is one row of the erasure log.
type Erasure struct {
	Tenant, Kind, Subject, Actor, Reason string
	AtMS                                 int64
}

// Erasures is the whole erasure log, oldest first: to be kept apart from the ledger's own backups. Codes: ERR_PERMISSION_DENIED.
func (c *Items) Erasures(ctx context.Context, who Actor) (out []Erasure, err error) {
	if err := c.Check(ctx, who, PermErase, ""); err != nil {
		return nil, err
	}
	err = c.db.Read(ctx, func(tx *ledger.Tx) error {
		out = nil
		return tx.Each("SELECT tenant, kind, subject, actor, reason, at_ms FROM erasure_log ORDER BY seq", nil, func(scan func(...any) error) error {
			var e Erasure
			err := scan(&e.Tenant, &e.Kind, &e.Subject, &e.Actor, &e.Reason, &e.AtMS)
			out = append(out, e)
			return err
		})
	})
	return out, err
}
