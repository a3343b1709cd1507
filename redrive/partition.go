package redrive

import "reprieve.dev/pipeline"

// Partition is where Java producers put a key among n partitions. An item without a key goes to the partition of the same number
// as it came from, so that a run is repeatable.
func Partition(key []byte, n, from int32) int32 {
	if n <= 0 {
		return -1
	}
	if key == nil {
		return from % n
	}
	return pipeline.Partition(key, n)
}
