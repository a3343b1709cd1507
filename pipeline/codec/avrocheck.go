package codec

import (
	"encoding/binary"
	"hash/maphash"
	"math"
	"math/big"

	"reprieve.dev/pipeline"
)

// twice returns where a key of a map stands a second time, or -1. Readers disagree which one counts, as with JSON, so such a
// map is refused. Many keys go through a table with a random seed, so that nobody can choose keys that make it slow.
func (r *run) twice(keys []uint32) int {
	key := func(i int) []byte { return r.data[keys[i]:keys[i+1]] }
	if len(keys) <= 2*12 {
		for i := 2; i < len(keys); i += 2 {
			for j := 0; j < i; j += 2 {
				if string(key(i)) == string(key(j)) {
					return int(keys[i])
				}
			}
		}
		return -1
	}
	if !r.seeded {
		r.seed, r.seeded = maphash.MakeSeed(), true
	}
	size := 64
	for size < len(keys) {
		size *= 2
	}
	if cap(r.table) < size {
		r.table = make([]uint32, size)
	}
	table := r.table[:size]
	clear(table)
	for i := 0; i < len(keys); i += 2 {
		for k := maphash.Bytes(r.seed, key(i)) & uint64(size-1); ; k = (k + 1) & uint64(size-1) {
			if table[k] == 0 {
				table[k] = uint32(i) + 1
				break
			}
			if string(key(int(table[k]-1))) == string(key(i)) {
				return int(keys[i])
			}
		}
	}
	return -1
}

// decimal checks an unscaled number of n bytes against the precision. No bytes at all is no number (Java refuses it too).
func (r *run) decimal(t *typ, off, n int) int {
	if n == 0 {
		return r.invalid(t, "decimal without digits", off)
	}
	if !fits(r.data[off:off+n], t) {
		r.code, r.at, r.bad = pipeline.CodeDecodePrecision, off, t
		return -1
	}
	return off + n
}

// fits tells whether a two's complement number has no more digits than t's precision.
func fits(b []byte, t *typ) bool {
	b = trimSign(b)
	if len(b) <= 8 {
		if t.precision > 18 {
			return true
		}
		v := small(b)
		u := uint64(v)
		if v < 0 {
			u = -u
		}
		return u < t.limit.Uint64()
	}
	if len(b) > (t.limit.BitLen()+8)/8+1 {
		return false
	}
	return new(big.Int).Abs(bigNumber(b)).Cmp(t.limit) < 0
}

// trimSign drops leading bytes that only repeat the sign.
func trimSign(b []byte) []byte {
	for len(b) > 1 && (b[0] == 0 && b[1] < 0x80 || b[0] == 0xff && b[1] >= 0x80) {
		b = b[1:]
	}
	return b
}

// small is a two's complement number of at most 8 bytes.
func small(b []byte) int64 {
	var v int64
	if len(b) > 0 && b[0] >= 0x80 {
		v = -1
	}
	for _, c := range b {
		v = v<<8 | int64(c)
	}
	return v
}

// bigNumber is a two's complement number of any length.
func bigNumber(b []byte) *big.Int {
	v := new(big.Int).SetBytes(b)
	if len(b) > 0 && b[0] >= 0x80 {
		v.Sub(v, new(big.Int).Lsh(big.NewInt(1), uint(len(b))*8))
	}
	return v
}

// ascii is a quick answer for what most strings are.
func ascii(b []byte) bool {
	const high = 0x8080808080808080
	n := len(b)
	switch {
	case n >= 16:
		var or uint64
		for i := 8; i < n; i += 8 {
			or |= binary.LittleEndian.Uint64(b[i-8:])
		}
		return (or|binary.LittleEndian.Uint64(b[n-8:]))&high == 0
	case n >= 8:
		return (binary.LittleEndian.Uint64(b)|binary.LittleEndian.Uint64(b[n-8:]))&high == 0
	case n >= 4:
		return (binary.LittleEndian.Uint32(b)|binary.LittleEndian.Uint32(b[n-4:]))&(high&math.MaxUint32) == 0
	}
	var or byte
	for _, c := range b {
		or |= c
	}
	return or < 0x80
}
