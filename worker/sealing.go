package worker

import (
	"context"
	"sync"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/control"
	"reprieve.dev/pipeline/engine"
	"reprieve.dev/pipeline/redact"
	"reprieve.dev/seal"
)

// Vaulted tells whether a pipeline may seal: what cannot be redacted then goes to the vault, whatever else it says. Without a keeper
// nobody could open it, and such bytes stay in the source alone.
func (p *Plan) Vaulted() bool { return !p.Config.Keys.Keeper.IsZero() }

// sealing is what a pipeline seals, without the keys to do so.
func (pp *PipelinePlan) sealing(p *Plan, keys Keys) (engine.Sealing, error) {
	if !p.Vaulted() {
		return engine.Sealing{}, nil
	}
	strip, err := vaultStrip(keys)
	if err != nil {
		return engine.Sealing{}, err
	}
	q := pp.Config.Quarantine
	return engine.Sealing{Topic: q.VaultTopic(), Letters: q.Encrypt, Originals: q.SealOriginals, Strip: strip}, nil
}

// vaultStrip takes verification values out of what goes to a vault: nobody may store them.
func vaultStrip(keys Keys) (pipeline.Sanitizer, error) {
	return redact.New(redact.Config{Detectors: []string{redact.DetectCVV}}, redact.Options{HashKey: keys.Hash})
}

// publicKeys are the keys that one pipeline seals to, as the control topic has them. A version that was seen once is never gone back
// from: what is sealed to a destroyed key is lost.
type publicKeys struct {
	board    *control.Board
	pipeline string

	mu    sync.Mutex
	known map[string]publicKey // by tenant; "" is the pipeline's own
}

type publicKey struct {
	key     *seal.PublicKey
	version int64
}

// of is the key of a tenant, or the pipeline's own where the tenant has none. Codes: ERR_KEY_UNPUBLISHED, ERR_CONTROL_NOT_READY.
func (k *publicKeys) of(tenant string) (*seal.PublicKey, error) {
	s, err := k.board.Snapshot()
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if tenant != pipeline.TenantUnassigned {
		if key := k.newest(s, "", tenant); key != nil {
			return key, nil
		}
	}
	if key := k.newest(s, k.pipeline, ""); key != nil {
		return key, nil
	}
	return nil, pipeline.Errorf(pipeline.CodeKeyUnpublished, k.pipeline, "the control topic has no public key to seal to")
}

func (k *publicKeys) newest(s *control.Snapshot, pipelineName, tenant string) *seal.PublicKey {
	if tenant == "" && pipelineName == "" {
		return nil
	}
	if key, version := s.SealKey(pipelineName, tenant); key != nil && version > k.known[tenant].version {
		k.known[tenant] = publicKey{key, version}
	}
	return k.known[tenant].key
}

// follow makes sealer ask again for each tenant whose key changed, until ctx ends.
func (k *publicKeys) follow(ctx context.Context, sealer *seal.Sealer) {
	seen := map[string]int64{}
	for {
		changed := k.board.Changed()
		if s, err := k.board.Snapshot(); err == nil {
			for tenant, version := range s.SealTenants() {
				if seen[tenant] != version {
					seen[tenant] = version
					sealer.Forget(tenant)
				}
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// keyWait is how long a pipeline waits for its key before it is said to be missing: a custodian of the same process publishes it within
// a second or two.
const keyWait = 15 * time.Second

// openSealing gives a pipeline the keys that it seals to, and refuses to go on without one: better now than at the first record that
// cannot be redacted. Codes: ERR_CONTROL_NOT_READY, ERR_KEY_UNPUBLISHED, ERR_BROKER_*.
func (w *Worker) openSealing(ctx context.Context, ps *parts, o *engine.Options) error {
	if o.Seal.Topic == "" {
		return nil
	}
	board := w.versions[o.Pipeline].board
	keys := &publicKeys{board: board, pipeline: o.Pipeline, known: map[string]publicKey{}}
	ready, cancel := context.WithTimeout(ctx, keyWait)
	defer cancel()
	if err := board.WaitReady(ready); err != nil {
		return err
	}
	for {
		changed := board.Changed()
		_, err := keys.of(pipeline.TenantUnassigned)
		if err == nil {
			break
		}
		select {
		case <-changed:
		case <-ready.Done():
			return err
		}
	}
	sealer := seal.NewSealer(keys.of, seal.SealerOptions{Clock: w.o.Clock})
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	var following sync.WaitGroup
	following.Go(func() { keys.follow(run, sealer) })
	ps.close = append(ps.close, func() { stop(); following.Wait() })
	o.Seal.Sealer = sealer
	return nil
}
