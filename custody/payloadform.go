package custody

import (
	"encoding/binary"

	"reprieve.dev/pipeline"
	"reprieve.dev/seal"
)

// packHeaders is the form of headers in a byte column: a version byte, then for each header its name and value with
// lengths; a null value is told from an empty one. Names and values are any bytes.
func packHeaders(hs []pipeline.Header) []byte {
	n := 1
	for _, h := range hs {
		n += len(h.Name) + len(h.Value) + 6
	}
	b := make([]byte, 1, n)
	b[0] = 1
	for _, h := range hs {
		b = binary.AppendUvarint(b, uint64(len(h.Name)))
		b = append(b, h.Name...)
		if h.Value == nil {
			b = append(b, 0)
			continue
		}
		b = binary.AppendUvarint(b, uint64(len(h.Value))+1)
		b = append(b, h.Value...)
	}
	return b
}

// unpackHeaders reads what packHeaders wrote. Codes: ERR_LEDGER_CORRUPT.
func unpackHeaders(b []byte) ([]pipeline.Header, error) {
	bad := pipeline.Errorf(pipeline.CodeLedgerCorrupt, "payloads", "the headers of a payload cannot be read")
	if len(b) == 0 {
		return nil, nil
	}
	if b[0] != 1 {
		return nil, bad
	}
	b = b[1:]
	take := func(n uint64) ([]byte, bool) {
		if n > uint64(len(b)) {
			return nil, false
		}
		v := b[:n:n]
		b = b[n:]
		return v, true
	}
	var hs []pipeline.Header
	for len(b) > 0 {
		n, w := binary.Uvarint(b)
		if w <= 0 {
			return nil, bad
		}
		b = b[w:]
		name, ok := take(n)
		if !ok {
			return nil, bad
		}
		n, w = binary.Uvarint(b)
		if w <= 0 {
			return nil, bad
		}
		b = b[w:]
		h := pipeline.Header{Name: string(name)}
		if n > 0 {
			if h.Value, ok = take(n - 1); !ok {
				return nil, bad
			}
		}
		hs = append(hs, h)
	}
	return hs, nil
}

// payloadDigest is 32 bytes, keyed: a digest of bytes that may not be redacted must not be guessable.
func payloadDigest(k *seal.IdentityKey, key, value, headers []byte) []byte {
	marks := []byte{0, 0}
	if key == nil {
		marks[0] = 1
	}
	if value == nil {
		marks[1] = 1
	}
	return k.Sum(seal.LP([]byte("payload 1"), marks, key, value, headers))
}
