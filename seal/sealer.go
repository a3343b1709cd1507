package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"sync"
	"time"
)

const (
	sealedVersion = 0x01
	nonceSize     = 12
	tagSize       = 16
	dataKeySize   = 32
	maxDataKeys   = 10000 // tenants with a live data key at once, by default
)

// SealerOptions are the code's settings of a Sealer. Zero values are the defaults.
type SealerOptions struct {
	Clock   func() time.Time // required
	Letters int              // letters under one data key; 1,000, and never more
	Age     time.Duration    // life of a data key; 60 s, and never more
	Tenants int              // data keys held at once; 10,000
}

// Sealer seals values for tenants (CONTRACTS 4). It makes a data key for each tenant, seals that once with HPKE (about 95 us)
// and uses it for at most 1,000 letters or 60 s (about 0.4 us a letter and KiB). It cannot open what it sealed earlier. It
// implements pipeline.Sealer. Safe for concurrent use.
type Sealer struct {
	keys func(tenant string) (*PublicKey, error)
	o    SealerOptions

	mu     sync.Mutex
	byName map[string]*tenantSealer
}

type tenantSealer struct {
	mu    sync.Mutex
	aead  cipher.AEAD
	enc   string
	left  int
	until time.Time
}

// NewSealer seals under the key that keys returns: the current version of the tenant's public key, or the pipeline's own for
// a tenant that has none. It is asked once for each data key. A nil key without an error is refused as ERR_KEY_UNKNOWN.
func NewSealer(keys func(tenant string) (*PublicKey, error), o SealerOptions) *Sealer {
	if o.Letters <= 0 || o.Letters > 1000 {
		o.Letters = 1000
	}
	if o.Age <= 0 || o.Age > time.Minute {
		o.Age = time.Minute
	}
	if o.Tenants <= 0 {
		o.Tenants = maxDataKeys
	}
	return &Sealer{keys: keys, o: o, byName: make(map[string]*tenantSealer)}
}

// Seal returns the sealed value and the text of reprieve-enc. aad is the quarantine id. nil plain stays nil with enc "": null
// is never sealed. plain is not kept. Codes: ERR_SEAL_FAILED, ERR_KEY_UNKNOWN, and what the key source answers.
func (s *Sealer) Seal(tenant string, plain, aad []byte) (sealed []byte, enc string, err error) {
	if plain == nil {
		return nil, "", nil
	}
	aead, enc, err := s.dataKey(tenant)
	if err != nil {
		return nil, "", err
	}
	return sealValue(aead, plain, aad), enc, nil
}

// Forget drops the data key of a tenant, so that the next letter asks for the tenant's key again. Call it when a new version
// was published or the tenant was erased.
func (s *Sealer) Forget(tenant string) {
	s.mu.Lock()
	delete(s.byName, tenant)
	s.mu.Unlock()
}

func (s *Sealer) dataKey(tenant string) (cipher.AEAD, string, error) {
	now := s.o.Clock()
	s.mu.Lock()
	t := s.byName[tenant]
	if t == nil {
		if len(s.byName) >= s.o.Tenants {
			s.evict(now)
		}
		t = &tenantSealer{}
		s.byName[tenant] = t
	}
	s.mu.Unlock()

	t.mu.Lock() // one tenant's HPKE does not hold up another's letters
	defer t.mu.Unlock()
	// A clock that went backwards must not lengthen a key's life.
	if t.left <= 0 || !now.Before(t.until) || now.Before(t.until.Add(-s.o.Age)) {
		key, err := s.keys(tenant)
		if err != nil {
			return nil, "", err
		}
		if key == nil {
			return nil, "", refuse(codeUnknown, tenant, "the tenant has no public key")
		}
		raw := make([]byte, dataKeySize)
		rand.Read(raw) // never fails
		enc, err := key.wrap(tenant, raw)
		if err != nil {
			return nil, "", err
		}
		t.aead, t.enc, t.left, t.until = newAEAD(raw), enc, s.o.Letters, now.Add(s.o.Age)
		clear(raw)
	}
	t.left--
	return t.aead, t.enc, nil
}

// evict makes room: dead data keys first, else any one; a dropped key only costs one more HPKE.
func (s *Sealer) evict(now time.Time) {
	for name, t := range s.byName {
		if t.mu.TryLock() {
			if !now.Before(t.until) {
				delete(s.byName, name)
			}
			t.mu.Unlock()
		}
	}
	for name := range s.byName {
		if len(s.byName) < s.o.Tenants {
			return
		}
		delete(s.byName, name)
	}
}

func newAEAD(key []byte) cipher.AEAD {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // INV-SEAL-KEY: callers pass 32 bytes
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // INV-SEAL-KEY: AES has the block size of GCM
	}
	return aead
}

// sealValue is 0x01, 12 random bytes, AES-256-GCM. At most 1,000 values a key keep random nonces apart (INV-SEAL-NONCE).
func sealValue(aead cipher.AEAD, plain, aad []byte) []byte {
	out := make([]byte, 1+nonceSize, 1+nonceSize+len(plain)+tagSize)
	out[0] = sealedVersion
	rand.Read(out[1:]) // never fails
	return aead.Seal(out, out[1:1+nonceSize], plain, aad)
}

func openValue(aead cipher.AEAD, sealed, aad []byte) ([]byte, error) {
	if len(sealed) < 1+nonceSize+tagSize || sealed[0] != sealedVersion {
		return nil, refuse(codeOpen, "", "it is not a sealed value of version 1")
	}
	plain, err := aead.Open(make([]byte, 0, len(sealed)-1-nonceSize-tagSize), sealed[1:1+nonceSize], sealed[1+nonceSize:], aad)
	if err != nil {
		return nil, refuse(codeOpen, "", "the sealed value does not open: it was changed, or belongs to another item")
	}
	return plain, nil
}

// Bundle is a sealed value that carries its own reprieve-enc, as fallback stores and the vault keep it: 4 bytes of length,
// enc, value. nil stays nil.
func Bundle(enc string, sealed []byte) []byte {
	if sealed == nil {
		return nil
	}
	return append(AppendLPText(make([]byte, 0, 4+len(enc)+len(sealed)), enc), sealed...)
}

// Unbundle splits what Bundle made; sealed points into b. Codes: ERR_SEAL_BROKEN.
func Unbundle(b []byte) (enc string, sealed []byte, err error) {
	if b == nil {
		return "", nil, nil
	}
	if len(b) < 4 || uint64(binary.BigEndian.Uint32(b)) > uint64(len(b)-4) {
		return "", nil, refuse(codeOpen, "", "the header before the sealed value is cut off")
	}
	n := int(binary.BigEndian.Uint32(b))
	return string(b[4 : 4+n]), b[4+n:], nil
}
