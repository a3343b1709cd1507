package custody

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/seal"
)

// Keeper wraps private keys: a KMS, or a local key file. *secrets.Keeper of gocloud.dev is one.
type Keeper interface {
	Encrypt(ctx context.Context, plain []byte) ([]byte, error)
	Decrypt(ctx context.Context, wrapped []byte) ([]byte, error)
}

// Keys are the key pairs of tenants, and of pipelines for what has no tenant. The private halves stand only here, wrapped; without
// them nothing sealed for a tenant can be opened, wherever it lies: destroying them erases it. Safe for concurrent use.
type Keys struct {
	c      *Items
	keeper Keeper
	name   string
}

// NewKeys keeps keys in the ledger of c, wrapped by keeper; name says which keeper, for the day when it changes.
func NewKeys(c *Items, keeper Keeper, name string) *Keys { return &Keys{c, keeper, name} }

// ownerless begins what stands for a tenant in the rows of a pipeline's key. No tenant with such a name gets a key of its own.
const ownerless = "pipeline "

// HasKey tells whether a tenant may have a key: one that is known by name. What is unassigned is sealed to its pipeline's.
func HasKey(tenant string) bool {
	return tenant != "" && tenant != pipeline.TenantUnassigned && !strings.HasPrefix(tenant, ownerless)
}

// keyID is the kid of a version: the tenant's name is not in it, since it stands in every letter. It begins with t for a tenant's
// and with p for a pipeline's, which no erasure of a tenant reaches.
func keyID(owner string, version int64) string {
	sum := sha256.Sum256([]byte("tenant " + owner))
	letter := "t"
	if strings.HasPrefix(owner, ownerless) {
		letter = "p"
	}
	return fmt.Sprintf("%s%s.%d", letter, seal.Base32(sum[:10]), version)
}

// Current is the newest public key of a tenant, made if it has none. Codes: ERR_INPUT_INVALID (no tenant may be called so),
// ERR_LEDGER_*, ERR_SEAL_FAILED (the keeper).
func (k *Keys) Current(ctx context.Context, tenant string) (*seal.PublicKey, error) {
	if !HasKey(tenant) {
		return nil, pipeline.Errorf(pipeline.CodeInputInvalid, tenant, "what has no tenant is sealed to the key of its pipeline")
	}
	return k.current(ctx, tenant)
}

// OfPipeline is the newest public key of a pipeline, made if it has none: for records without a tenant, and while a tenant's key is
// not published. Codes: as Current.
func (k *Keys) OfPipeline(ctx context.Context, name string) (*seal.PublicKey, error) {
	return k.current(ctx, ownerless+name)
}

func (k *Keys) current(ctx context.Context, owner string) (*seal.PublicKey, error) {
	pub, err := k.newest(ctx, owner)
	if err != nil || pub != nil {
		return pub, err
	}
	return k.add(ctx, System("keys"), owner, true)
}

// Known is the newest public key that a tenant has, else a pipeline's: for sealing inside a transaction, where no key can be made.
// Codes: ERR_KEY_UNKNOWN (neither has one), ERR_LEDGER_*.
func (k *Keys) Known(ctx context.Context, tenant string) (pub *seal.PublicKey, err error) {
	err = k.c.db.Read(ctx, func(tx *ledger.Tx) error {
		if HasKey(tenant) {
			if pub, err = newestKey(tx, tenant); err != nil || pub != nil {
				return err
			}
		}
		var owner string
		found, err := tx.Row("SELECT tenant FROM tenant_keys WHERE substr(tenant, 1, 9) = ? ORDER BY tenant LIMIT 1", []any{ownerless}, &owner)
		if err != nil || !found {
			return err
		}
		pub, err = newestKey(tx, owner)
		return err
	})
	if err == nil && pub == nil {
		err = pipeline.Errorf(pipeline.CodeKeyUnknown, tenant, "the ledger has no key yet").With("run the custodian once: it makes the keys")
	}
	return pub, err
}

func (k *Keys) newest(ctx context.Context, owner string) (pub *seal.PublicKey, err error) {
	err = k.c.db.Read(ctx, func(tx *ledger.Tx) (err error) {
		pub, err = newestKey(tx, owner)
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

// Rotate makes the next version of a tenant's key; older ones still open what was sealed to them. Codes: ERR_INPUT_INVALID,
// ERR_PERMISSION_DENIED, ERR_TENANT_FORBIDDEN, ERR_SEAL_FAILED, ERR_LEDGER_*.
func (k *Keys) Rotate(ctx context.Context, who Actor, tenant string) (*seal.PublicKey, error) {
	if !HasKey(tenant) {
		return nil, pipeline.Errorf(pipeline.CodeInputInvalid, tenant, "no tenant is called so")
	}
	if err := k.c.Check(ctx, who, PermErase, tenant); err != nil {
		return nil, err
	}
	return k.add(ctx, who, tenant, false)
}

// RotatePipeline is Rotate for the key of a pipeline.
func (k *Keys) RotatePipeline(ctx context.Context, who Actor, name string) (*seal.PublicKey, error) {
	if err := k.c.CheckWhole(ctx, who, PermErase); err != nil {
		return nil, err
	}
	return k.add(ctx, who, ownerless+name, false)
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
			return k.failed(err, "wrapped")
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
		found, err := tx.Row("SELECT private_wrapped FROM tenant_keys WHERE id = ? AND (tenant = ? OR substr(tenant, 1, 9) = ?)", []any{kid, tenant, ownerless}, &wrapped)
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
		return nil, k.failed(err, "unwrapped")
	}
	return seal.NewPrivateKey(kid, raw)
}

// failed is the answer when the keeper did not do its part. A code of its own says more: the keeper could not be opened.
func (k *Keys) failed(err error, what string) error {
	if pipeline.CodeOf(err) != "" {
		return err
	}
	return &pipeline.Error{Code: pipeline.CodeSealFailed, Place: k.name, Text: "the private key could not be " + what, Cause: err}
}

// OwnedKey is one version of a key pair, without its private half.
type OwnedKey struct {
	Tenant    string // "" for a pipeline's
	Pipeline  string // "" for a tenant's
	Key       *seal.PublicKey
	Version   int64
	Newest    bool
	Keeper    string
	CreatedMS int64
}

// Public are the newest public keys of all tenants and pipelines: what pipelines seal to.
func (k *Keys) Public(ctx context.Context) (out []OwnedKey, err error) {
	all, err := k.all(ctx)
	for _, key := range all {
		if key.Newest {
			out = append(out, key)
		}
	}
	return out, err
}

// List are all versions of the keys that the actor may know of. Codes: ERR_PERMISSION_DENIED, ERR_LEDGER_*.
func (k *Keys) List(ctx context.Context, who Actor) (out []OwnedKey, err error) {
	if err := k.c.Check(ctx, who, PermRead, ""); err != nil {
		return nil, err
	}
	all, err := k.all(ctx)
	for _, key := range all {
		if key.Tenant == "" || k.c.roles.sees(who, key.Tenant) {
			out = append(out, key)
		}
	}
	return out, err
}

func (k *Keys) all(ctx context.Context) (out []OwnedKey, err error) {
	err = k.c.db.Read(ctx, func(tx *ledger.Tx) error {
		out = nil
		return tx.Each("SELECT tenant, id, version, public_key, keeper, created_ms FROM tenant_keys ORDER BY tenant, version", nil, func(scan func(...any) error) error {
			var key OwnedKey
			var id string
			var raw []byte
			if err := scan(&key.Tenant, &id, &key.Version, &raw, &key.Keeper, &key.CreatedMS); err != nil {
				return err
			}
			if n := len(out); n > 0 && out[n-1].owner() == key.Tenant {
				out[n-1].Newest = false
			}
			key.Newest = true
			if name, ok := strings.CutPrefix(key.Tenant, ownerless); ok {
				key.Tenant, key.Pipeline = "", name
			}
			var err error
			key.Key, err = seal.NewPublicKey(id, raw)
			out = append(out, key)
			return err
		})
	})
	return out, err
}

func (o *OwnedKey) owner() string {
	if o.Tenant == "" {
		return ownerless + o.Pipeline
	}
	return o.Tenant
}

// Tenants are the tenants that have items and may have a key, at most limit of them.
func (k *Keys) Tenants(ctx context.Context, limit int) (out []string, err error) {
	err = k.c.db.Read(ctx, func(tx *ledger.Tx) error {
		out = nil
		return tx.Each("SELECT DISTINCT tenant FROM group_rollup ORDER BY tenant LIMIT ?", []any{limit}, func(scan func(...any) error) error {
			var tenant string
			err := scan(&tenant)
			if HasKey(tenant) {
				out = append(out, tenant)
			}
			return err
		})
	})
	return out, err
}

// Unreached counts the items of a tenant that are sealed to a pipeline's key: destroying the tenant's key leaves them readable for who
// has the ledger. Erase them as items.
func (k *Keys) Unreached(ctx context.Context, tenant string) (n int64, err error) {
	err = k.c.db.Read(ctx, func(tx *ledger.Tx) error {
		_, err := tx.Row("SELECT count(*) FROM items i LEFT JOIN vault x ON x.item = i.id WHERE i.tenant = ? AND (i.enc LIKE 'hpke1;p%' OR x.enc LIKE 'hpke1;p%')", []any{tenant}, &n)
		return err
	})
	return n, err
}

// Destroy deletes every private key of a tenant but the version but, which is "" for none: what was sealed to them, in the ledger, in
// topics, in backups, cannot be opened any more, and nothing brings it back. It returns the kids. A legal hold on any item of the
// tenant refuses it. To erase a tenant whose records still come, Rotate first and publish the new key: what is sealed to a destroyed
// one is lost. Callers then make their openers forget the tenant. Codes: ERR_REASON_MISSING, ERR_PERMISSION_DENIED,
// ERR_TENANT_FORBIDDEN, ERR_LEGAL_HOLD, ERR_KEY_UNKNOWN (it has none), ERR_LEDGER_*.
func (k *Keys) Destroy(ctx context.Context, who Actor, tenant, but, reason string) (kids []string, err error) {
	if err := firstOf(needs(pipeline.CodeReasonMissing, reason, "a reason"), k.c.Check(ctx, who, PermErase, tenant)); err != nil {
		return nil, err
	}
	if !HasKey(tenant) {
		return nil, pipeline.Errorf(pipeline.CodeKeyUnknown, tenant, "no tenant is called so; the key of a pipeline belongs to no tenant and is not destroyed")
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
			if id != but {
				kids = append(kids, id)
			}
			return err
		}); err != nil {
			return err
		}
		if len(kids) == 0 {
			return pipeline.Errorf(pipeline.CodeKeyUnknown, tenant, "the tenant has no key here")
		}
		if _, err := tx.Exec("DELETE FROM tenant_keys WHERE tenant = ? AND id <> ?", tenant, but); err != nil {
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
// the newest erasure log, which has a backup cycle of its own. It erases nothing that an erasure would not: what is under legal hold stays,
// and is counted in the error at the end, and a key goes only as the key of its tenant. Codes: ERR_LEGAL_HOLD (the rest is done),
// ERR_PERMISSION_DENIED, ERR_TENANT_FORBIDDEN, ERR_PAYLOAD_UNAVAILABLE, ERR_LEDGER_*.
func (c *Items) ReplayErasures(ctx context.Context, who Actor, log []Erasure) (int64, error) {
	if err := c.CheckWhole(ctx, who, PermErase); err != nil {
		return 0, err
	}
	var n, held int64
	for _, e := range log {
		err := c.db.Write(ctx, func(tx *ledger.Tx) error {
			switch e.Kind {
			case "key":
				var holds int64
				if _, err := tx.Row("SELECT count(*) FROM items WHERE tenant = ? AND legal_hold <> ''", []any{e.Tenant}, &holds); err != nil {
					return err
				}
				if holds > 0 {
					held++
					return nil
				}
				if !HasKey(e.Tenant) {
					return nil // the key of a pipeline belongs to no tenant and is never destroyed
				}
				deleted, err := tx.Exec("DELETE FROM tenant_keys WHERE id = ? AND tenant = ?", e.Subject, e.Tenant)
				if err != nil {
					return err
				}
				if deleted > 0 {
					tx.Append(ledger.Entry{Tenant: e.Tenant, Event: "key_destroyed", Actor: who.Subject, Detail: map[string]string{"kid": e.Subject, "reason": e.Reason, "replayed_of": e.Actor}})
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
				if it.LegalHold != "" {
					held++
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
	if _, err := c.sweep(ctx); err != nil {
		return n, err
	}
	if held > 0 {
		return n, pipeline.Errorf(pipeline.CodeLegalHold, "erasure log", "%d erasures were not done again: their items, or items of their tenant, are under legal hold", held)
	}
	return n, nil
}

// Erasure is one row of the erasure log.
type Erasure struct {
	Tenant, Kind, Subject, Actor, Reason string
	AtMS                                 int64
}

// Erasures is the whole erasure log, oldest first: to be kept apart from the ledger's own backups. Codes: ERR_PERMISSION_DENIED,
// ERR_TENANT_FORBIDDEN.
func (c *Items) Erasures(ctx context.Context, who Actor) (out []Erasure, err error) {
	if err := c.CheckWhole(ctx, who, PermErase); err != nil {
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
