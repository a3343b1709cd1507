package codec

import (
	"hash/maphash"
	"math"
	"math/bits"
	"unicode/utf8"

	"reprieve.dev/pipeline"
)

// run is the state of one validation. It is part of the scratch; nothing in it is kept between values.
type run struct {
	data  []byte
	depth int   // deepest allowed
	items int64 // still allowed
	cost  int64 // still allowed

	quick  pipeline.Indifferent // nil: nothing is noted
	dull   dull                 // of quick
	sieve  pipeline.Sieve       // of data, for quick, if it is sifted
	sifted bool
	notes  []uint32 // where values start that an editor may want to change

	watch  bool     // map keys are compared
	keys   []uint32 // start and end of the keys of open maps
	table  []uint32
	seed   maphash.Seed
	seeded bool

	// why it stopped
	code     pipeline.Code
	what     string
	at, want int
	bad      *typ
}

func (r *run) start(data []byte, l *Limits) {
	r.data, r.depth, r.items, r.cost = data, int(l.Depth), l.Items, l.Expansion-int64(len(data))
	r.code, r.watch, r.keys = "", true, r.keys[:0]
}

// free sets the bounds so wide that only bytes count: for walking over what was validated before.
func (r *run) free(data []byte) {
	r.data, r.depth, r.items, r.cost = data, maxDepth+1, math.MaxInt64, math.MaxInt64
	r.code, r.watch = "", false
}

func (r *run) truncated(at, want int) int {
	r.code, r.at, r.want = pipeline.CodeDecodeTruncated, at, want
	return -1
}

func (r *run) invalid(t *typ, what string, at int) int {
	r.code, r.what, r.at, r.bad = pipeline.CodeDecodeInvalid, what, at, t
	return -1
}

func (r *run) limit(code pipeline.Code, at int) int {
	r.code, r.at = code, at
	return -1
}

// varint reads a zigzag number. The end is -1 when it is cut or longer than 64 bits.
func (r *run) varint(off int) (v int64, end int) {
	if off < len(r.data) {
		if b := r.data[off]; b < 0x80 {
			return int64(b>>1) ^ -int64(b&1), off + 1
		}
	}
	return r.varintSlow(off)
}

func (r *run) varintSlow(off int) (int64, int) {
	var u uint64
	for i, shift := off, uint(0); ; i, shift = i+1, shift+7 {
		if i >= len(r.data) {
			return 0, r.truncated(i, 1)
		}
		b := r.data[i]
		if shift == 63 && b > 1 {
			return 0, r.invalid(nil, "number", off)
		}
		u |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return int64(u>>1) ^ -int64(u&1), i + 1
		}
	}
}

// prog validates the values of code one after the other and returns the offset behind them, or -1. With offs it notes where
// each of them starts. INV-BOUNDED-DECODE: nothing is looped over or followed before the bytes, the depth and the budgets
// allow it.
func (r *run) prog(code []ins, off, depth int, offs []uint32) int {
	data, quick := r.data, r.quick
	if offs != nil {
		offs = offs[:len(code)]
	}
	for i := range code {
		in := &code[i]
		if offs != nil {
			offs[i] = uint32(off)
		}
		o := in.op
		if o == opOptional {
			var branch int64
			if off < len(data) && data[off] < 4 { // 0 or 1 in one byte, as everybody writes it
				branch = int64(data[off] >> 1)
				if data[off]&1 != 0 {
					return r.invalid(in.t, "union branch", off)
				}
				off++
			} else {
				at := off
				if branch, off = r.varint(off); off < 0 {
					return -1
				}
				if branch != 0 && branch != 1 {
					return r.invalid(in.t, "union branch", at)
				}
			}
			if int32(branch) == in.n {
				continue
			}
			item := in.t.item
			if item.op != opString && item.op != opLong {
				if off = r.value(item, off, depth+int(in.depth)); off < 0 {
					return -1
				}
				continue
			}
			o = item.op
		}
		switch o {
		case opLong:
			at := off
			for off < len(data) && data[off] >= 0x80 {
				off++
			}
			if off-at < 5 && off < len(data) {
				off++
				continue
			}
			if off-at < 9 && off < len(data) {
				off++
			} else if _, off = r.varintSlow(at); off < 0 { // ten bytes, or cut
				return -1
			}
			r.noteNumber(in.t, at)
		case opString:
			var n int
			if off < len(data) && data[off] < 0x80 && data[off]&1 == 0 {
				n = int(data[off] >> 1)
				off++
				if len(data)-off < n {
					return r.truncated(off, n)
				}
			} else if n, off = r.length(off); off < 0 {
				return -1
			}
			end := off + n
			if quick != nil {
				if r.sifted {
					if r.sieve.Plain(data, off, end, r.dull.fewer) {
						off = end
						continue
					}
				} else if n < r.dull.fewer && r.dull.all(data[off:end]) {
					off = end
					continue
				}
				kept, low := quick.Keeps(data[off:end])
				if !low && !utf8.Valid(data[off:end]) {
					return r.invalid(in.t, "UTF-8", off)
				}
				if !kept {
					r.notes = append(r.notes, uint32(off))
				}
			} else if !ascii(data[off:end]) && !utf8.Valid(data[off:end]) {
				return r.invalid(in.t, "UTF-8", off)
			}
			off = end
		case opNull:
		case opBool:
			if off >= len(data) {
				return r.truncated(off, 1)
			}
			if data[off] > 1 {
				return r.invalid(in.t, "boolean", off)
			}
			off++
		case opInt:
			if off < len(data) && data[off] < 0x80 {
				off++
				continue
			}
			v, end := r.varintSlow(off)
			if end < 0 {
				return -1
			}
			if v != int64(int32(v)) {
				return r.invalid(in.t, "int", off)
			}
			off = end
		case opFloat:
			if len(data)-off < 4 {
				return r.truncated(off, 4)
			}
			if quick != nil {
				r.noteFloat(float64(float32At(data, off)), off)
			}
			off += 4
		case opDouble:
			if len(data)-off < 8 {
				return r.truncated(off, 8)
			}
			if quick != nil {
				r.noteFloat(float64At(data, off), off)
			}
			off += 8
		case opBytes:
			n, end := r.length(off)
			if end < 0 {
				return -1
			}
			off = end + n
		case opFixed:
			if len(data)-off < int(in.n) {
				return r.truncated(off, int(in.n))
			}
			off += int(in.n)
		case opEnum:
			if off < len(data) && data[off] < 0x80 && data[off]&1 == 0 && int32(data[off]>>1) < in.n {
				off++
				continue
			}
			at := off
			var v int64
			if v, off = r.varint(off); off < 0 {
				return -1
			}
			if v < 0 || v >= int64(in.n) {
				return r.invalid(in.t, "enum index", at)
			}
		default:
			if off = r.rare(in, off, depth+int(in.depth)); off < 0 {
				return -1
			}
		}
	}
	return off
}

func (r *run) rare(in *ins, off, depth int) int {
	switch in.op {
	case opDecimal:
		n, end := r.length(off)
		if end < 0 {
			return -1
		}
		return r.decimal(in.t, end, n)
	case opDecimalFixed:
		if len(r.data)-off < in.t.size {
			return r.truncated(off, in.t.size)
		}
		return r.decimal(in.t, off, in.t.size)
	case opUnion:
		v, end := r.varint(off)
		if end < 0 {
			return -1
		}
		if v < 0 || v >= int64(in.n) {
			return r.invalid(in.t, "union branch", off)
		}
		return r.value(in.t.branches[v], end, depth)
	case opArray, opMap:
		return r.blocks(in.t, off, depth+1)
	case opRecord:
		return r.value(in.t, off, depth)
	}
	return r.invalid(in.t, "schema", off)
}

// value validates one value of t.
func (r *run) value(t *typ, off, depth int) int {
	if t.op != opRecord {
		return r.prog(t.code, off, depth, nil)
	}
	if depth++; depth+t.nest > r.depth {
		return r.limit(pipeline.CodeLimitDepth, off)
	}
	if r.cost -= t.cost; r.cost < 0 {
		return r.limit(pipeline.CodeLimitExpansion, off)
	}
	return r.prog(t.code, off, depth, nil)
}

// length reads the length of bytes or a string; off is then where they start, and they are all there.
func (r *run) length(off int) (n, start int) {
	if off < len(r.data) {
		if b := r.data[off]; b < 0x80 && b&1 == 0 && int(b>>1) < len(r.data)-off {
			return int(b >> 1), off + 1
		}
	}
	v, end := r.varint(off)
	if end < 0 {
		return 0, -1
	}
	if v < 0 {
		return 0, r.invalid(nil, "length", off)
	}
	if v > int64(len(r.data)-end) {
		return 0, r.truncated(end, int(min(v, math.MaxInt)))
	}
	return int(v), end
}

func (r *run) blocks(t *typ, off, depth int) int {
	if depth > r.depth {
		return r.limit(pipeline.CodeLimitDepth, off)
	}
	least := t.item.min
	if t.op == opMap {
		least = addSat(least, 1)
	}
	keys := len(r.keys)
	for {
		count, size, body := r.block(off)
		if body < 0 {
			return -1
		}
		if count == 0 {
			if len(r.keys)-keys > 2 {
				if at := r.twice(r.keys[keys:]); at >= 0 {
					return r.limit(pipeline.CodeDecodeDuplicate, at)
				}
			}
			r.keys = r.keys[:keys]
			return body
		}
		left := int64(len(r.data) - body)
		if least > 0 && count > left/least {
			want := left + 1
			if hi, lo := bits.Mul64(uint64(count), uint64(least)); hi == 0 && lo < math.MaxInt64 {
				want = int64(lo)
			}
			return r.truncated(body, int(want))
		}
		if count > r.items {
			return r.limit(pipeline.CodeLimitItems, off)
		}
		r.items -= count
		if t.item.cost > 0 && count > r.cost/t.item.cost {
			return r.limit(pipeline.CodeLimitExpansion, off)
		}
		r.cost -= count * t.item.cost
		off = body
		if least > 0 {
			if off = r.itemsOf(t, off, count, depth); off < 0 {
				return -1
			}
		}
		if size >= 0 && int64(off-body) != size {
			return r.invalid(t, "block size", body)
		}
	}
}

// block reads the head of a block: how many items, how many bytes (-1 is not said), where they start.
func (r *run) block(off int) (count, size int64, body int) {
	count, body = r.varint(off)
	if body < 0 || count >= 0 {
		return count, -1, body
	}
	if count == math.MinInt64 {
		return 0, 0, r.invalid(nil, "block count", off)
	}
	at := body
	if size, body = r.varint(body); body < 0 {
		return 0, 0, -1
	}
	if size < 0 {
		return 0, 0, r.invalid(nil, "block size", at)
	}
	if size > int64(len(r.data)-body) {
		return 0, 0, r.truncated(body, int(size))
	}
	return -count, size, body
}

func (r *run) itemsOf(t *typ, off int, count int64, depth int) int {
	item, inside := t.item, depth
	if item.op == opRecord { // its cost was counted with the block
		if inside++; inside+item.nest > r.depth {
			return r.limit(pipeline.CodeLimitDepth, off)
		}
	}
	for ; count > 0; count-- {
		if t.op == opMap {
			n, start := r.length(off)
			if start < 0 {
				return -1
			}
			if key := r.data[start : start+n]; !ascii(key) && !utf8.Valid(key) {
				return r.invalid(t, "UTF-8", start)
			}
			off = start + n
			if r.watch {
				r.keys = append(r.keys, uint32(start), uint32(off))
			}
		}
		if off = r.prog(item.code, off, inside, nil); off < 0 {
			return -1
		}
	}
	return off
}
