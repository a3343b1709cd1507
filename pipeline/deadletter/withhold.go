package deadletter

import (
	"reprieve.dev/pipeline"
	"reprieve.dev/seal"
)

// names are what a letter says of who the record is, in headers that redaction does not see.
func names(id *pipeline.Identity) [6]*string {
	return [...]*string{&id.Tenant, &id.EventID, &id.Entity, &id.BusinessID, &id.Token, &id.Version}
}

// Conceal puts keyed digests for names that hold a secret, so that equal ones stay equal, and tells whether there was one. text redacts.
func (l *Letter) Conceal(text func(string) string, digest func([]byte) string) (found bool) {
	for _, s := range names(&l.Identity) {
		if text(*s) != *s {
			*s, found = digest([]byte(*s)), true
		}
	}
	return found
}

// Withhold makes l the placeholder of a record that s could not redact, with the code why: no value, and of key, headers and names
// only what holds no secret. A keyed digest stands for a key that does. found: Conceal has found a name that held one.
func (l *Letter) Withhold(s pipeline.Sanitizer, digest func([]byte) string, topic string, r *pipeline.Record, found bool, why pipeline.Code) {
	l.Kind, l.Value, l.Faithful, l.DigestRedacted = KindSealed, nil, Vault, pipeline.Digest(seal.SHA256(nil))
	l.Key = r.Key
	if _, err := s.Sanitize(topic, &pipeline.Record{Key: r.Key}, nil); err != nil {
		l.Key, found = []byte(digest(r.Key)), true
	}
	l.Headers = nil
	if clean, err := s.Sanitize(topic, &pipeline.Record{Headers: r.Headers}, nil); err == nil {
		l.Headers = clean.Headers
	}
	if why == pipeline.CodeRedactIdentity && !found { // one of the names is the secret, and nobody can tell which; the tenant is a word
		all := names(&l.Identity)
		for _, s := range all[1:] {
			if *s != "" {
				*s = digest([]byte(*s))
			}
		}
	}
	l.Exception = s.Text(l.Exception)
}

// Keep makes m the vault message of l's record: o is what may be kept of it. m.Topic is set before. Codes: what the sealer answers.
func (l *Letter) Keep(m *pipeline.Message, o *pipeline.Clean, sealer pipeline.Sealer, digest func([]byte) string, ring *seal.Ring) error {
	v := Vaulted{Item: l.Item, Tenant: SealedTenant(l.Identity.Tenant), Pipeline: l.Pipeline, Original: l.Original,
		OriginalMS: l.OriginalMS, TimeType: l.TimeType, Cluster: l.Cluster, Digest: pipeline.Digest(digest(o.Value))}
	var err error
	if v.Sealed, v.Enc, err = sealer.Seal(v.Tenant, PackRecord(o.Key, o.Value, o.Headers), []byte(l.Item)); err != nil {
		return err
	}
	AppendVaulted(m, &v, ring)
	return nil
}
