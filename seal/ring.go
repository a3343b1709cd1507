package seal

import (
	"crypto/hmac"
	"crypto/sha256"
	"hash"
	"sync"
	"time"
)

const minSecret = 16 // bytes: below 128 bits an id or a signature could be guessed

// Key is one symmetric key of the worker file. From is when it came into use; it is told to people and decides nothing.
type Key struct {
	ID     string
	Secret []byte
	From   time.Time
}

// Ring signs with its first key and verifies with all of them, so a key can be replaced without a gap: add the new one
// behind, wait until every worker has it, move it to the front, remove the old one when no message of it is left. Safe for
// concurrent use.
type Ring struct{ keys []ringKey }

type ringKey struct {
	id   string
	macs *macPool
}

// NewRing copies the keys. It refuses none at all, an id twice, an id that cannot stand in a header and a secret below 16
// bytes. Codes: ERR_CONFIG_VALUE with the id as place.
func NewRing(keys []Key) (*Ring, error) {
	if len(keys) == 0 {
		return nil, refuse(codeKey, "", "a key ring needs at least one key")
	}
	r := &Ring{}
	for _, k := range keys {
		if err := checkKey(k.ID, k.Secret); err != nil {
			return nil, err
		}
		if r.find(k.ID) != nil {
			return nil, refuse(codeKey, k.ID, "two keys have this id")
		}
		r.keys = append(r.keys, ringKey{k.ID, newMacPool(k.Secret)})
	}
	return r, nil
}

// Sign returns the id of the first key and HMAC-SHA-256 of msg under it.
func (r *Ring) Sign(msg []byte) (kid string, mac []byte) {
	k := &r.keys[0]
	return k.id, k.macs.sum(make([]byte, 0, sha256.Size), msg)
}

// Verify tells whether mac is that of msg under the key kid. An unknown key is false.
func (r *Ring) Verify(kid string, msg, mac []byte) bool {
	k := r.find(kid)
	if k == nil {
		return false
	}
	var buf [sha256.Size]byte
	return hmac.Equal(k.macs.sum(buf[:0], msg), mac)
}

// KeyIDs are the ids in order: the first signs.
func (r *Ring) KeyIDs() []string {
	ids := make([]string, len(r.keys))
	for i := range r.keys {
		ids[i] = r.keys[i].id
	}
	return ids
}

func (r *Ring) find(id string) *ringKey {
	for i := range r.keys {
		if r.keys[i].id == id {
			return &r.keys[i]
		}
	}
	return nil
}

// checkKey holds the rules of every symmetric key: its id stands between ';' and ':' in headers and digests.
func checkKey(id string, secret []byte) error {
	if err := checkID(id); err != nil {
		return err
	}
	if len(secret) < minSecret {
		return refuse(codeKey, id, "the secret has %d bytes; at least %d are needed", len(secret), minSecret)
	}
	return nil
}

func checkID(id string) error {
	if id == "" || len(id) > 128 {
		return refuse(codeKey, id, "a key id has 1 to 128 characters")
	}
	for i := 0; i < len(id); i++ {
		c := id[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.' || c == '@' || c == '/') {
			return refuse(codeKey, "", "a key id has letters, digits and - _ . @ / only")
		}
	}
	return nil
}

// macPool reuses HMAC states: setting one up costs more than a short message.
type macPool struct{ pool sync.Pool }

func newMacPool(secret []byte) *macPool {
	secret = append([]byte(nil), secret...)
	return &macPool{sync.Pool{New: func() any { return hmac.New(sha256.New, secret) }}}
}

func (p *macPool) sum(dst []byte, msg []byte) []byte {
	h := p.pool.Get().(hash.Hash)
	h.Reset()
	h.Write(msg)
	dst = h.Sum(dst)
	p.pool.Put(h)
	return dst
}
