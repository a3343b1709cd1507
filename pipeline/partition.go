package pipeline

import "encoding/binary"

// Partition is where Java producers, and ours, put a key among n partitions (n > 0): murmur2 with its sign bit masked, not
// negated, modulo n.
func Partition(key []byte, n int32) int32 { return int32(murmur2(key)&0x7fffffff) % n }

// murmur2 is the 32-bit hash of Kafka's Java client (seed 0x9747b28c).
func murmur2(b []byte) uint32 {
	const m, r = 0x5bd1e995, 24
	h := uint32(0x9747b28c) ^ uint32(len(b))
	for ; len(b) >= 4; b = b[4:] {
		k := binary.LittleEndian.Uint32(b) * m
		k ^= k >> r
		h = h*m ^ k*m
	}
	switch len(b) {
	case 3:
		h ^= uint32(b[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(b[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(b[0])) * m
	}
	h = (h ^ h>>13) * m
	return h ^ h>>15
}
