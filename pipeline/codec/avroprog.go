package codec

import (
	"encoding/binary"
	"hash/maphash"
	"math"
	"math/big"
	"math/bits"
	"unicode/utf8"

	"reprieve.dev/pipeline"
)

// ins is one step of a program: validate one value of this type. Fields of nested records stand in the list of the outer
// record, so that most records are one flat loop.
type ins struct {
	op    op
	depth uint8 // how many records are open around it inside this list
	n     int32 // size of a fixed, number of symbols or branches, branch number of null
	t     *typ
}

// Nested records are taken into the outer list up to these bounds, beyond them they are called.
const (
	maxCode   = 1024
	maxInline = 32
)

// flatten makes t.code and t.cost. Records that are open (recursive) are called, not taken in.
func (t *typ) flatten() {
	if t.code != nil {
		return
	}
	if t.op != opRecord {
		t.code = []ins{t.ins(0)}
		t.cost = t.text()
		return
	}
	t.code = make([]ins, 0, len(t.fields)+1)
	t.cost, t.slots = t.inline(t, 0, []*typ{t})
}

// slot is a field of a record and where it stands in the outer list. subs are set for a record that was taken in.
type slot struct {
	t    *typ
	at   int
	subs []slot
}

// inline appends r's fields to t's code. It returns the JSON text that they take at least and where they stand.
func (t *typ) inline(r *typ, depth int, open []*typ) (cost int64, slots []slot) {
	cost = 2
	t.nest = max(t.nest, depth)
	for i := range r.fields {
		f := &r.fields[i]
		cost = addSat(cost, int64(len(f.name)+4))
		at := len(t.code)
		if t.takes(f.t, depth, open) {
			c, subs := t.inline(f.t, depth+1, append(open, f.t))
			cost = addSat(cost, c)
			slots = append(slots, slot{f.t, at, subs})
			continue
		}
		t.code = append(t.code, f.t.ins(uint8(depth)))
		slots = append(slots, slot{f.t, at, nil})
		if f.t.op != opRecord { // a called record adds its own cost when it is called
			cost = addSat(cost, f.t.text())
		}
	}
	return cost, slots
}

// takes tells whether the record f is taken into t's code at this depth.
func (t *typ) takes(f *typ, depth int, open []*typ) bool {
	if f.op != opRecord || depth+1 >= maxInline || len(t.code)+len(f.fields) > maxCode {
		return false
	}
	for _, o := range open {
		if o == f {
			return false
		}
	}
	return true
}

func (t *typ) ins(depth uint8) ins {
	in := ins{op: t.op, depth: depth, t: t}
	switch t.op {
	case opFixed, opDecimalFixed:
		in.n = int32(min(t.size, math.MaxInt32))
	case opEnum:
		in.n = int32(len(t.symbols))
	case opUnion:
		in.n = int32(len(t.branches))
	case opOptional:
		in.n = int32(t.null)
	}
	return in
}

// text is how much JSON a value takes at least beside its own bytes.
func (t *typ) text() int64 {
	switch t.op {
	case opNull:
		return 4
	case opString, opBytes, opFixed, opArray, opMap:
		return 2
	case opDecimal, opDecimalFixed:
		return int64(t.scale) + 2
	case opInt, opLong:
		if t.logical != logicalNone {
			return 10
		}
	}
	return 1
}

// run is the state of one validation. It is part of the scratch; nothing in it is kept between values.
type run struct {
	data  []byte
	depth int   // deepest allowed
	items int64 // still allowed
	cost  int64 // still allowed

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
	data := r.data
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
			if off-at < 9 && off < len(data) {
				off++
				continue
			}
			if _, off = r.varintSlow(at); off < 0 { // ten bytes, or cut
				return -1
			}
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
			if !ascii(data[off:end]) && !utf8.Valid(data[off:end]) {
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
			off += 4
		case opDouble:
			if len(data)-off < 8 {
				return r.truncated(off, 8)
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
	if len(b) < 8 {
		var or byte
		for _, c := range b {
			or |= c
		}
		return or < 0x80
	}
	for i := 8; i < len(b); i += 8 {
		if binary.LittleEndian.Uint64(b[i-8:])&high != 0 {
			return false
		}
	}
	return binary.LittleEndian.Uint64(b[len(b)-8:])&high == 0
}
