package seal

import (
	"crypto/ecdh"
	"crypto/hpke"
	"encoding/base64"
	"strings"
)

// The suite of CONTRACTS 4: HPKE base mode, DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-256-GCM.
const (
	encScheme = "hpke1"
	hpkeInfo  = "reprieve/v1 "
)

// PublicKey is one version of a tenant's public key: with it one can seal, never open.
type PublicKey struct {
	id  string
	key hpke.PublicKey
}

// PrivateKey is one version of a tenant's private key. It stands wrapped in the ledger only.
type PrivateKey struct {
	id  string
	key hpke.PrivateKey
}

// GeneratePrivateKey makes a new X25519 key named id (for example "acme/3"). Codes: ERR_CONFIG_VALUE.
func GeneratePrivateKey(id string) (*PrivateKey, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	key, err := hpke.DHKEM(ecdh.X25519()).GenerateKey()
	if err != nil {
		return nil, &Error{Code: codeKey, Place: id, Text: "no key could be made", Cause: err}
	}
	return &PrivateKey{id, key}, nil
}

// NewPrivateKey reads the 32 bytes that Bytes returned. Codes: ERR_CONFIG_VALUE.
func NewPrivateKey(id string, raw []byte) (*PrivateKey, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	key, err := hpke.DHKEM(ecdh.X25519()).NewPrivateKey(raw)
	if err != nil {
		return nil, refuse(codeKey, id, "it is not an X25519 private key of 32 bytes")
	}
	return &PrivateKey{id, key}, nil
}

// ID is the name of this version: the kid of reprieve-enc.
func (k *PrivateKey) ID() string { return k.id }

// Bytes are the 32 bytes of the key. Wrap them before they are stored.
func (k *PrivateKey) Bytes() []byte {
	b, err := k.key.Bytes()
	if err != nil {
		panic(err) // INV-SEAL-KEY: an X25519 key of ours always has bytes
	}
	return b
}

// Public is the public half.
func (k *PrivateKey) Public() *PublicKey { return &PublicKey{k.id, k.key.PublicKey()} }

// NewPublicKey reads the 32 bytes that PublicKey.Bytes returned. Codes: ERR_CONFIG_VALUE.
func NewPublicKey(id string, raw []byte) (*PublicKey, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	key, err := hpke.DHKEM(ecdh.X25519()).NewPublicKey(raw)
	if err != nil {
		return nil, refuse(codeKey, id, "it is not an X25519 public key of 32 bytes")
	}
	return &PublicKey{id, key}, nil
}

// ID is the name of this version.
func (k *PublicKey) ID() string { return k.id }

// Bytes are the 32 bytes to publish.
func (k *PublicKey) Bytes() []byte { return k.key.Bytes() }

// wrap seals a data key for the tenant: the text of the header reprieve-enc.
func (k *PublicKey) wrap(tenant string, dataKey []byte) (string, error) {
	box, err := hpke.Seal(k.key, hpke.HKDFSHA256(), hpke.AES256GCM(), []byte(hpkeInfo+tenant), dataKey)
	if err != nil {
		return "", &Error{Code: codeSeal, Place: k.id, Text: "the data key cannot be sealed with this public key", Cause: err}
	}
	return encScheme + ";" + k.id + ";" + base64.RawURLEncoding.EncodeToString(box), nil
}

// unwrap opens what wrap made.
func (k *PrivateKey) unwrap(tenant string, box []byte) ([]byte, error) {
	dataKey, err := hpke.Open(k.key, hpke.HKDFSHA256(), hpke.AES256GCM(), []byte(hpkeInfo+tenant), box)
	if err != nil {
		return nil, refuse(codeOpen, k.id, "the data key does not open: it was changed, or sealed for another tenant or key")
	}
	return dataKey, nil
}

// ParseEnc splits the text of reprieve-enc into the id of the tenant key and the sealed data key. Codes: ERR_SEAL_BROKEN.
func ParseEnc(enc string) (kid string, box []byte, err error) {
	scheme, rest, _ := strings.Cut(enc, ";")
	kid, text, ok := strings.Cut(rest, ";")
	if !ok || scheme != encScheme {
		return "", nil, refuse(codeOpen, "", "reprieve-enc is not \"%s;<key id>;<sealed data key>\"", encScheme)
	}
	if checkID(kid) != nil {
		return "", nil, refuse(codeOpen, "", "reprieve-enc has a key id that no key can have")
	}
	box, err = base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || strings.ContainsAny(text, "\r\n") {
		return "", nil, refuse(codeOpen, kid, "reprieve-enc is not base64url without padding")
	}
	return kid, box, nil
}
