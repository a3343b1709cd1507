package seal

import (
	"crypto/sha256"
	"encoding/hex"
)

// IdentityKey makes what must be the same for ever without telling what it was made of: quarantine ids and digests of bytes
// that were not redacted. It is never rotated. Safe for concurrent use.
type IdentityKey struct {
	id     string
	macs   *macPool
	prefix string // "hmac256:<kid>:"
}

// NewIdentityKey copies the secret. Codes: ERR_CONFIG_VALUE.
func NewIdentityKey(id string, secret []byte) (*IdentityKey, error) {
	if err := checkKey(id, secret); err != nil {
		return nil, err
	}
	return &IdentityKey{id: id, macs: newMacPool(secret), prefix: "hmac256:" + id + ":"}, nil
}

// ID is the key's id.
func (k *IdentityKey) ID() string { return k.id }

// Digest is "hmac256:<kid>:<64 hex>" of b, and "hmac256:<kid>:null" of nil: null is not empty.
func (k *IdentityKey) Digest(b []byte) string {
	if b == nil {
		return k.prefix + "null"
	}
	var sum [sha256.Size]byte
	var out [160 + 2*sha256.Size]byte
	text := append(out[:0], k.prefix...)
	return string(hex.AppendEncode(text, k.macs.sum(sum[:0], b)))
}

// Sum is the 32 bytes that Digest spells, of b that is not nil.
func (k *IdentityKey) Sum(b []byte) []byte { return k.macs.sum(make([]byte, 0, sha256.Size), b) }

// QuarantineID is "q" and the base32 of the first 20 bytes of HMAC-SHA-256 over LP(fields...). Which fields, CONTRACTS 2
// says.
func (k *IdentityKey) QuarantineID(fields ...[]byte) string {
	var sum [sha256.Size]byte
	return "q" + Base32(k.macs.sum(sum[:0], LP(fields...))[:20])
}

// Fingerprint is "f1" and the base32 of the first 16 bytes of SHA-256 over LP(fields...). It needs no key: it is made of
// codes and names, never of payload.
func Fingerprint(fields ...[]byte) string {
	sum := sha256.Sum256(LP(fields...))
	return "f1" + Base32(sum[:16])
}
