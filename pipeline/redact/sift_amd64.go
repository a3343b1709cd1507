package redact

import (
	"golang.org/x/sys/cpu"

	"reprieve.dev/pipeline"
)

//go:noescape
func siftChunks(data *byte, chunks int, rest *byte, marks, digits, spaces *uint64)

// sift fills s with the bits of src, 32 bytes at a time. It needs AVX2; false: nothing was done.
func sift(src []byte, s *pipeline.Sieve) bool {
	if !cpu.X86.HasAVX2 || len(src) == 0 || len(src) > pipeline.SieveMost {
		return false
	}
	s.Room(len(src))
	var rest [32]byte
	var at *byte
	if n := copy(rest[:], src[len(src)&^31:]); n > 0 {
		at = &rest[0]
	}
	siftChunks(&src[0], len(src)/32, at, &s.Marks[0], &s.Digits[0], &s.Spaces[0])
	return true
}
