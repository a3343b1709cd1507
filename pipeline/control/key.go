package control

import (
	"encoding/base64"
	"encoding/json"
	"iter"
	"strconv"

	"reprieve.dev/seal"
)

// KeyWriter is the writer of all public keys: they come from one ledger, whoever publishes them.
const KeyWriter = "ledger"

// SealKey is the state of an entry of kind tenant-key: the newest public key of a tenant, or of a pipeline for what has no tenant.
// It carries no secret. Older versions are never published again.
type SealKey struct {
	KID     string `json:"kid"`
	Public  string `json:"public"` // base64 of 32 bytes
	Version string `json:"version"`
}

// NewSealKey is the entry of a public key. pipelineName is "" for the key of a tenant; tenant is "" for the key of a pipeline.
func NewSealKey(pipelineName, tenant string, key *seal.PublicKey, version int64, by string) Entry {
	return Entry{Key: Key{KindTenant, pipelineName, tenant, KeyWriter}, By: by,
		State: stateOf(SealKey{KID: key.ID(), Public: base64.StdEncoding.EncodeToString(key.Bytes()), Version: strconv.FormatInt(version, 10)})}
}

// SealKey is the public key that the topic has for a tenant, or with tenant "" for a pipeline. nil: there is none, or a damaged one.
func (s *Snapshot) SealKey(pipelineName, tenant string) (key *seal.PublicKey, version int64) {
	e, ok := s.entries[Key{KindTenant, pipelineName, tenant, KeyWriter}]
	if !ok {
		return nil, 0
	}
	return e.sealKey()
}

// SealTenants are the tenants that have a key, with its version.
func (s *Snapshot) SealTenants() iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		for k, e := range s.entries {
			if k.Kind != KindTenant || k.Pipeline != "" || k.Writer != KeyWriter {
				continue
			}
			if key, version := e.sealKey(); key != nil && !yield(k.Subject, version) {
				return
			}
		}
	}
}

func (e Entry) sealKey() (*seal.PublicKey, int64) {
	var st SealKey
	if json.Unmarshal(e.State, &st) != nil {
		return nil, 0
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(st.Public)
	version, err2 := strconv.ParseInt(st.Version, 10, 64)
	if err != nil || err2 != nil {
		return nil, 0
	}
	key, err := seal.NewPublicKey(st.KID, raw)
	if err != nil {
		return nil, 0
	}
	return key, version
}
