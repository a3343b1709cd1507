package seal

import (
	"crypto/cipher"
	"sync"
	"time"
)

// OpenerOptions are the code's settings of an Opener. Zero values are the defaults.
type OpenerOptions struct {
	Clock func() time.Time // required
	Keys  int              // opened data keys kept; 4,096
	Age   time.Duration    // for how long; 1 minute
}

// Opener opens what a Sealer sealed. It keeps the data keys it opened for a short while, since many letters share one: the
// first letter of a data key costs an HPKE open (about 95 us), the others AES only. Safe for concurrent use.
type Opener struct {
	keys func(tenant, kid string) (*PrivateKey, error)
	o    OpenerOptions

	mu         sync.Mutex
	young, old map[openedID]openedKey // two generations: a full young one becomes the old one
	forgotten  uint64
}

type openedID struct{ tenant, enc string }

type openedKey struct {
	aead  cipher.AEAD
	since time.Time
}

// NewOpener opens with the private keys that keys returns. It answers ERR_KEY_DESTROYED for an erased tenant and
// ERR_KEY_UNKNOWN for a key it never had; a nil key without an error is ERR_KEY_UNKNOWN.
func NewOpener(keys func(tenant, kid string) (*PrivateKey, error), o OpenerOptions) *Opener {
	if o.Keys <= 0 {
		o.Keys = 4096
	}
	if o.Age <= 0 {
		o.Age = time.Minute
	}
	return &Opener{keys: keys, o: o}
}

// Open returns the plain value. enc is the text of reprieve-enc, aad the quarantine id. nil stays nil; with enc "" the value
// was never sealed and is refused. Codes: ERR_SEAL_BROKEN, and what the key source answers.
func (o *Opener) Open(tenant, enc string, sealed, aad []byte) ([]byte, error) {
	if sealed == nil {
		return nil, nil
	}
	aead, err := o.dataKey(tenant, enc)
	if err != nil {
		return nil, err
	}
	return openValue(aead, sealed, aad)
}

// Forget drops every data key of a tenant at once. Erasing calls it: what was erased must not be readable from memory.
func (o *Opener) Forget(tenant string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.forgotten++
	for _, m := range [...]map[openedID]openedKey{o.young, o.old} {
		for id := range m {
			if id.tenant == tenant {
				delete(m, id)
			}
		}
	}
}

func (o *Opener) dataKey(tenant, enc string) (cipher.AEAD, error) {
	id, now := openedID{tenant, enc}, o.o.Clock()
	o.mu.Lock()
	k, ok := o.young[id]
	if !ok {
		k, ok = o.old[id]
	}
	before := o.forgotten
	o.mu.Unlock()
	if age := now.Sub(k.since); ok && age >= 0 && age < o.o.Age {
		return k.aead, nil
	}

	kid, box, err := ParseEnc(enc)
	if err != nil {
		return nil, err
	}
	private, err := o.keys(tenant, kid)
	if err != nil {
		return nil, err
	}
	if private == nil {
		return nil, refuse(codeUnknown, kid, "the private key is not here")
	}
	raw, err := private.unwrap(tenant, box)
	if err != nil {
		return nil, err
	}
	if len(raw) != dataKeySize {
		return nil, refuse(codeOpen, kid, "the data key has %d bytes instead of 32", len(raw))
	}
	k = openedKey{newAEAD(raw), now}
	clear(raw)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.forgotten == before { // an erasure meanwhile: use it once, keep nothing
		if len(o.young) >= (o.o.Keys+1)/2 {
			o.young, o.old = nil, o.young
		}
		if o.young == nil {
			o.young = make(map[openedID]openedKey)
		}
		o.young[id] = k
	}
	return k.aead, nil
}
