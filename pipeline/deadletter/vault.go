package deadletter

import (
	"strconv"

	"reprieve.dev/pipeline"
	"reprieve.dev/seal"
)

// Vaulted is one message of a vault topic: a record as the source held it, sealed, and whose it is. Its letter stands on the
// dead-letter topic under the same item.
type Vaulted struct {
	Item       pipeline.ID
	Tenant     string // that it is sealed for; "" is unassigned
	Pipeline   string
	Original   pipeline.Position
	OriginalMS int64
	TimeType   pipeline.TimeType
	Cluster    string
	Digest     pipeline.Digest // keyed, of the value that is sealed; another than the letter's when a verification value was taken out
	Enc        string          // "hpke1;kid;..."
	Sealed     []byte          // what PackRecord made
}

// AppendVaulted makes m the vault message v: the item as its key, the sealed record behind its own reprieve-enc as its value, and
// who it belongs to in signed headers. m.Topic is set before. With s nil nothing is signed (try).
func AppendVaulted(m *pipeline.Message, v *Vaulted, s *seal.Ring) {
	m.Key, m.Value = []byte(v.Item), seal.Bundle(v.Enc, v.Sealed)
	w := writer{hs: m.Headers[:0], buf: make([]byte, 0, 512)}
	w.always(HeaderTopic, v.Original.Topic)
	w.number(HeaderPartition, int64(v.Original.Partition))
	w.number(HeaderOffset, v.Original.Offset)
	w.always(headerV, "1")
	w.always(headerKind, string(KindSealed))
	w.text(headerItem, string(v.Item))
	w.text(headerTenant, v.Tenant)
	w.text(headerPipeline, v.Pipeline)
	w.text(headerDigest, string(v.Digest))
	w.original(v.OriginalMS, v.TimeType)
	w.text(headerCluster, v.Cluster)
	m.Headers = w.hs
	sign(m, s)
}

// ParseVaulted reads a message of a vault topic. Without a valid signature nothing of it is believed. The sealed bytes are borrowed
// from r. Codes: ERR_SIGNATURE_INVALID, ERR_LETTER_INVALID (signed, but not a vault message of this version), ERR_SEAL_BROKEN.
func ParseVaulted(topic string, r *pipeline.Record, ring *seal.Ring) (*Vaulted, error) {
	if !verify(topic, r, ring) {
		return nil, pipeline.Errorf(pipeline.CodeSignatureInvalid, topic+" offset "+strconv.FormatInt(r.Offset, 10), "a vault message has no valid signature")
	}
	f := fields{hs: r.Headers}
	if !equalText(r.Headers, headerV, "1") || !equalText(r.Headers, headerKind, string(KindSealed)) {
		return nil, letterError(topic, r, "it is not a vault message of version 1")
	}
	v := &Vaulted{Item: pipeline.ID(f.text(headerItem)), Tenant: f.text(headerTenant), Pipeline: f.text(headerPipeline),
		Digest: pipeline.Digest(f.text(headerDigest)), Cluster: f.text(headerCluster), Original: f.origin()}
	v.OriginalMS, v.TimeType = f.original()
	if f.bad != "" || v.Item == "" || string(r.Key) != string(v.Item) {
		return nil, letterError(topic, r, "it does not say which item it belongs to")
	}
	var err error
	if v.Enc, v.Sealed, err = seal.Unbundle(r.Value); err != nil {
		return nil, err
	}
	if len(v.Sealed) == 0 {
		return nil, letterError(topic, r, "it holds no sealed record")
	}
	return v, nil
}

// SealedTenant is the tenant that the bytes of a letter are sealed for: as its header writes it, and unassigned if there is none.
func SealedTenant(tenant string) string {
	switch {
	case tenant == "":
		return pipeline.TenantUnassigned
	case len(tenant) > MaxIdentity:
		return seal.SHA256([]byte(tenant))
	}
	return cleanText(tenant)
}

// The form of a record that is sealed whole: length-prefixed fields, the form's name first. A nullable field is empty for null,
// else 0x01 and the bytes: null is not empty (INV-NULL).
const packed = "record/1"

// PackRecord is key, value and headers of a record in one piece, for sealing. Nulls, order and repeats are kept.
func PackRecord(key, value []byte, headers []pipeline.Header) []byte {
	fields := make([][]byte, 0, 3+2*len(headers))
	fields = append(fields, []byte(packed), nullable(key), nullable(value))
	for _, h := range headers {
		fields = append(fields, []byte(h.Name), nullable(h.Value))
	}
	return seal.LP(fields...)
}

// UnpackRecord reads what PackRecord made; the result points into b. Codes: ERR_SEAL_BROKEN.
func UnpackRecord(b []byte) (key, value []byte, headers []pipeline.Header, err error) {
	fields, perr := seal.ParseLP(b)
	bad := pipeline.Errorf(pipeline.CodeSealBroken, "", "what was sealed is not a record of version 1")
	if perr != nil || len(fields) < 3 || len(fields)%2 == 0 || string(fields[0]) != packed {
		return nil, nil, nil, bad
	}
	for i := 1; i < len(fields); i++ {
		if named := i > 2 && i%2 == 1; !named && len(fields[i]) > 0 && fields[i][0] != 1 {
			return nil, nil, nil, bad
		}
	}
	for i := 3; i < len(fields); i += 2 {
		headers = append(headers, pipeline.Header{Name: string(fields[i]), Value: denull(fields[i+1])})
	}
	return denull(fields[1]), denull(fields[2]), headers, nil
}

func nullable(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append([]byte{1}, b...)
}

func denull(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b[1:]
}
