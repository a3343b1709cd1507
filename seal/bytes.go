package seal

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
)

var base32Lower = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// Base32 is RFC 4648 in lower case without padding: the form of ids.
func Base32(b []byte) string { return base32Lower.EncodeToString(b) }

// ParseBase32 reads what Base32 writes and nothing else. Codes: ERR_INPUT_INVALID.
func ParseBase32(s string) ([]byte, error) {
	b, err := base32Lower.DecodeString(s)
	if err != nil || Base32(b) != s { // a decoder that takes stray bits or line breaks would give one id two spellings
		return nil, refuse(codeInput, "", "not lower-case base32 without padding")
	}
	return b, nil
}

// LP joins fields, each with its length before it in 4 bytes, big-endian. A nil field is the same as an empty one: write
// what tells null apart (SHA256, IdentityKey.Digest) instead of the bytes.
func LP(fields ...[]byte) []byte {
	n := 0
	for _, f := range fields {
		n += 4 + len(f)
	}
	return AppendLP(make([]byte, 0, n), fields...)
}

// AppendLP appends LP(fields...) to dst.
func AppendLP(dst []byte, fields ...[]byte) []byte {
	for _, f := range fields {
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(f)))
		dst = append(dst, f...)
	}
	return dst
}

// AppendLPText appends one text field with its length before it.
func AppendLPText(dst []byte, s string) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(s)))
	return append(dst, s...)
}

// ParseLP splits what LP made; the fields point into b. Codes: ERR_INPUT_INVALID.
func ParseLP(b []byte) ([][]byte, error) {
	var fields [][]byte
	for len(b) > 0 {
		if len(b) < 4 {
			return nil, refuse(codeInput, "", "a length is cut off")
		}
		n := binary.BigEndian.Uint32(b)
		b = b[4:]
		if uint64(n) > uint64(len(b)) {
			return nil, refuse(codeInput, "", "a field is cut off")
		}
		fields = append(fields, b[:n:n])
		b = b[n:]
	}
	return fields, nil
}

// SHA256 is "sha256:<64 hex>" of b, and "sha256:null" of nil: null is not empty. It is for artifacts, configurations,
// manifests and redacted bytes; what was not redacted gets IdentityKey.Digest.
func SHA256(b []byte) string {
	if b == nil {
		return "sha256:null"
	}
	sum := sha256.Sum256(b)
	var out [7 + 2*sha256.Size]byte
	copy(out[:], "sha256:")
	hex.Encode(out[7:], sum[:])
	return string(out[:])
}
