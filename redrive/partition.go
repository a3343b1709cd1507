package redrive

// Murmur2 is the hash by which Java producers choose a partition.
func Murmur2(key []byte) uint32 {
	const m, r = 0x5bd1e995, 24
	n := len(key)
	h := uint32(0x9747b28c) ^ uint32(n)
	for ; len(key) >= 4; key = key[4:] {
		k := uint32(key[0]) | uint32(key[1])<<8 | uint32(key[2])<<16 | uint32(key[3])<<24
		k *= m
		k ^= k >> r
		k *= m
		h = h*m ^ k
	}
	switch len(key) {
	case 3:
		h ^= uint32(key[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(key[1]) << 8
		fallthrough
	case 1:
		h ^= uint32(key[0])
		h *= m
	}
	h ^= h >> 13
	h *= m
	h ^= h >> 15
	return h
}

// Partition is where Java producers put a key among n partitions: the sign bit is masked, not negated. An item without a key
// goes to the partition of the same number as it came from, so that a run is repeatable.
func Partition(key []byte, n, from int32) int32 {
	if n <= 0 {
		return -1
	}
	if key == nil {
		return from % n
	}
	return int32(Murmur2(key)&0x7fffffff) % n
}
