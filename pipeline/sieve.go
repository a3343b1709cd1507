package pipeline

import "math/bits"

// Sieve says of each byte of a record what a text that holds it could mean, a bit for each. An Indifferent fills it at once for
// the whole record; most texts are then known to be kept from a few words of bits, unread.
type Sieve struct {
	Marks  []uint64 // a sign that has to be looked at, and whatever is not ASCII
	Digits []uint64
	Spaces []uint64
}

// SieveMost is the longest record that is sifted, in bytes: the bits of longer ones are not worth their memory.
const SieveMost = 64 << 10

// Room makes room for the bits of n bytes and one word more, in whole words; what stands there means nothing.
func (s *Sieve) Room(n int) {
	words := n/64 + 2
	if cap(s.Marks) < words {
		words += words / 2
		all := make([]uint64, 3*words)
		s.Marks, s.Digits, s.Spaces = all[:words:words], all[words:2*words:2*words], all[2*words:]
	}
	s.Marks, s.Digits, s.Spaces = s.Marks[:cap(s.Marks)], s.Digits[:cap(s.Digits)], s.Spaces[:cap(s.Spaces)]
}

// Plain tells that src[from:to] is ASCII, has no marks, fewer digits than most, and not both spaces and three digits; a space or
// the beginning of a document does not come first. False says nothing. src is what was sifted.
func (s *Sieve) Plain(src []byte, from, to, most int) bool {
	n := uint(to - from)
	if n-1 > 63 { // none, or many
		return n == 0 || s.plainLong(src, from, to, most)
	}
	w, k := uint(from)>>6, uint(from)&63
	if w+1 >= uint(len(s.Marks)) || w+1 >= uint(len(s.Digits)) || w+1 >= uint(len(s.Spaces)) {
		return false
	}
	keep := ^uint64(0) >> (64 - n)
	if (s.Marks[w]>>k|s.Marks[w+1]<<(64-k))&keep != 0 {
		return false
	}
	switch src[from] {
	case '{', '[', '"', ' ':
		return false
	}
	digits := (s.Digits[w]>>k | s.Digits[w+1]<<(64-k)) & keep
	if digits == 0 {
		return true
	}
	d := bits.OnesCount64(digits)
	return d < most && (d < 3 || (s.Spaces[w]>>k|s.Spaces[w+1]<<(64-k))&keep == 0)
}

// plainLong is Plain for texts of more than 64 bytes.
func (s *Sieve) plainLong(src []byte, from, to, most int) bool {
	switch src[from] {
	case '{', '[', '"', ' ':
		return false
	}
	d, spaces := 0, uint64(0)
	for at := from; at < to; {
		w, k := at>>6, uint(at)&63
		n := min(64-int(k), to-at)
		keep := ^uint64(0) >> (64 - uint(n)) << k
		if s.Marks[w]&keep != 0 {
			return false
		}
		d += bits.OnesCount64(s.Digits[w] & keep)
		spaces |= s.Spaces[w] & keep
		at += n
	}
	return d < most && (d < 3 || spaces == 0)
}
