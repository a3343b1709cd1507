package worker

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"gocloud.dev/secrets"
	"gocloud.dev/secrets/localsecrets"

	"reprieve.dev/custody"
	"reprieve.dev/pipeline"
	"reprieve.dev/seal"
)

// Keeper opens what wraps the private keys of tenants. Which URLs there are depends on the drivers that the program was built with. Call
// shut to free it. Codes: ERR_CONFIG_MISSING (the worker file names none), ERR_CONFIG_READ, ERR_CONFIG_UNSAFE (others
// may read the file), ERR_CONFIG_VALUE.
func (p *Plan) Keeper(ctx context.Context) (k custody.Keeper, shut func() error, err error) {
	c := p.Config.Keys.Keeper
	var open *secrets.Keeper
	switch {
	case c.IsZero():
		return nil, nil, pipeline.Errorf(pipeline.CodeConfigMissing, p.File, "no keeper wraps private keys").
			With("make a key: head -c 32 /dev/urandom | base64 > keys/keeper; chmod 600 keys/keeper; then write keys: {keeper: {file: keys/keeper}}")
	case c.File != "":
		path := c.File
		if !filepath.IsAbs(path) {
			path = filepath.Join(p.base(), path)
		}
		raw, err := seal.ReadSecret(path, 32)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil, nil, pipeline.Errorf(pipeline.CodeConfigRead, path, "the keeper's file is not there: sealed letters cannot be opened without it").
					With("restore it from its backup; only where nothing was sealed yet make a new one: head -c 32 /dev/urandom | base64 > " + c.File + "; chmod 600 " + c.File)
			}
			return nil, nil, err
		}
		open = localsecrets.NewKeeper([32]byte(raw))
		clear(raw)
	default:
		if open, err = secrets.OpenKeeper(ctx, c.URL); err != nil {
			return nil, nil, pipeline.Errorf(pipeline.CodeConfigValue, "keys.keeper.url", "the keeper cannot be opened: %w", err).
				With("hashivault is built in; awskms, gcpkms and azurekeyvault need a build with -tags cloud")
		}
	}
	return keeper{open}, open.Close, nil
}

// keeperName says which keeper wrapped a key, for the day when it changes.
func (p *Plan) keeperName() string {
	if c := p.Config.Keys.Keeper; c.File == "" {
		return c.URL
	}
	return "file:" + filepath.Base(p.Config.Keys.Keeper.File)
}

// keeper bounds each answer of a KMS: a ledger transaction waits for it.
type keeper struct{ *secrets.Keeper }

const keeperTimeout = 10 * time.Second

func (k keeper) Encrypt(ctx context.Context, plain []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, keeperTimeout)
	defer cancel()
	return k.Keeper.Encrypt(ctx, plain)
}

func (k keeper) Decrypt(ctx context.Context, wrapped []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, keeperTimeout)
	defer cancel()
	return k.Keeper.Decrypt(ctx, wrapped)
}

// Vault is the keys of a ledger, ready to open and to seal. The keeper is opened when it is first needed: who only looks at items needs
// no key.
type Vault struct {
	Keys   *custody.Keys
	Opener *seal.Opener
	Sealer *seal.Sealer
	late   *lateKeeper
}

// OpenVault joins the keeper of the worker file with the keys in the ledger of items. Close it.
func (p *Plan) OpenVault(ctx context.Context, items *custody.Items, clock pipeline.Clock) *Vault {
	asked := context.WithoutCancel(ctx) // an opener may outlive the call that made it
	v := &Vault{late: &lateKeeper{plan: p}}
	v.Keys = custody.NewKeys(items, v.late, p.keeperName())
	v.Opener = seal.NewOpener(func(tenant, kid string) (*seal.PrivateKey, error) { return v.Keys.Private(asked, tenant, kid) }, seal.OpenerOptions{Clock: clock})
	v.Sealer = seal.NewSealer(func(tenant string) (*seal.PublicKey, error) { return v.Keys.Known(asked, tenant) }, seal.SealerOptions{Clock: clock})
	return v
}

// Check opens the keeper now. Codes: as Plan.Keeper.
func (v *Vault) Check(ctx context.Context) error {
	_, err := v.late.get(ctx)
	return err
}

// Forget drops what is kept of a tenant in memory, after its key was rotated or destroyed.
func (v *Vault) Forget(tenant string) {
	v.Opener.Forget(tenant)
	v.Sealer.Forget(tenant)
}

// Close frees the keeper.
func (v *Vault) Close() error {
	v.late.mu.Lock()
	defer v.late.mu.Unlock()
	if v.late.shut == nil {
		return nil
	}
	return v.late.shut()
}

type lateKeeper struct {
	plan *Plan
	mu   sync.Mutex
	k    custody.Keeper
	shut func() error
}

func (l *lateKeeper) get(ctx context.Context) (_ custody.Keeper, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.k == nil {
		l.k, l.shut, err = l.plan.Keeper(ctx)
	}
	return l.k, err
}

func (l *lateKeeper) Encrypt(ctx context.Context, plain []byte) ([]byte, error) {
	k, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	return k.Encrypt(ctx, plain)
}

func (l *lateKeeper) Decrypt(ctx context.Context, wrapped []byte) ([]byte, error) {
	k, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	return k.Decrypt(ctx, wrapped)
}
