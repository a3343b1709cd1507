package codec

import (
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"

	"reprieve.dev/pipeline"
)

// jsonNode is one value of a document, in document order. The children of a node follow it; next is behind the last of them.
type jsonNode struct {
	kind       jsonKind
	escaped    bool // the string has escapes
	nameEsc    bool
	start, end uint32 // of the text, quotes included
	name       uint32 // of the member name, without quotes
	nameEnd    uint32
	next       uint32
	count      uint32 // of children
}

type jsonKind uint8

const (
	jsonNull jsonKind = iota
	jsonFalse
	jsonTrue
	jsonNumber
	jsonString
	jsonArray
	jsonObject
)

// jsonScan validates a document as RFC 8259 with RFC 7493's strictness (UTF-8 only, no unpaired surrogate, no member twice)
// and indexes it. It answers as jsontext does with its defaults; a fuzz test holds the two together.
type jsonScan struct {
	data  []byte
	nodes []jsonNode
	depth int
	items int64

	code pipeline.Code
	what string
	at   int

	table  []uint32
	seed   maphash.Seed
	seeded bool
	a, b   []byte // unescaped names
}

// document validates data from off on. False: code, what and at say why not.
func (p *jsonScan) document(data []byte, off int, l *Limits) bool {
	p.data, p.nodes, p.depth, p.items, p.code = data, p.nodes[:0], int(l.Depth), l.Items, ""
	off = p.space(off)
	if len(data)-off >= 3 && data[off] == 0xef && data[off+1] == 0xbb && data[off+2] == 0xbf {
		return p.bad("byte order mark", off) >= 0
	}
	end := p.value(off, 0)
	if end < 0 {
		return false
	}
	if end = p.space(end); end != len(data) {
		p.code, p.at = pipeline.CodeDecodeLeftover, end
		return false
	}
	return true
}

func (p *jsonScan) bad(what string, at int) int {
	p.code, p.what, p.at = pipeline.CodeDecodeJSON, what, at
	if at >= len(p.data) {
		p.what = "truncated"
	}
	return -1
}

func (p *jsonScan) limit(code pipeline.Code, at int) int {
	p.code, p.at = code, at
	return -1
}

func (p *jsonScan) space(off int) int {
	for off < len(p.data) {
		switch p.data[off] {
		case ' ', '\t', '\n', '\r':
			off++
		default:
			return off
		}
	}
	return off
}

// value scans one value and returns the offset behind it, or -1. off is at its first byte.
func (p *jsonScan) value(off, depth int) int {
	if off >= len(p.data) {
		return p.bad("truncated", off)
	}
	at := len(p.nodes)
	p.nodes = append(p.nodes, jsonNode{start: uint32(off)})
	end := -1
	kind := jsonNull
	switch c := p.data[off]; c {
	case '{':
		kind, end = jsonObject, p.object(off, at, depth+1)
	case '[':
		kind, end = jsonArray, p.array(off, at, depth+1)
	case '"':
		var escaped bool
		end, escaped = p.str(off)
		kind, p.nodes[at].escaped = jsonString, escaped
	case 'n':
		end = p.literal(off, "null")
	case 't':
		kind, end = jsonTrue, p.literal(off, "true")
	case 'f':
		kind, end = jsonFalse, p.literal(off, "false")
	default:
		if c != '-' && (c < '0' || c > '9') {
			return p.bad("syntax", off)
		}
		kind, end = jsonNumber, p.number(off)
	}
	if end < 0 {
		return -1
	}
	n := &p.nodes[at]
	n.kind, n.end, n.next = kind, uint32(end), uint32(len(p.nodes))
	return end
}

func (p *jsonScan) object(off, at, depth int) int {
	if depth > p.depth {
		return p.limit(pipeline.CodeLimitDepth, off)
	}
	off = p.space(off + 1)
	if off < len(p.data) && p.data[off] == '}' {
		return off + 1
	}
	for {
		if off >= len(p.data) || p.data[off] != '"' {
			return p.bad("syntax", off)
		}
		end, escaped := p.str(off)
		if end < 0 {
			return -1
		}
		name := off + 1
		off = p.space(end)
		if off >= len(p.data) || p.data[off] != ':' {
			return p.bad("syntax", off)
		}
		if p.items--; p.items < 0 {
			return p.limit(pipeline.CodeLimitItems, name)
		}
		child := len(p.nodes)
		if off = p.value(p.space(off+1), depth); off < 0 {
			return -1
		}
		c := &p.nodes[child]
		c.name, c.nameEnd, c.nameEsc = uint32(name), uint32(end-1), escaped
		p.nodes[at].count++
		off = p.space(off)
		if off >= len(p.data) {
			return p.bad("truncated", off)
		}
		switch p.data[off] {
		case '}':
			if twice := p.duplicate(at); twice >= 0 {
				return p.limit(pipeline.CodeDecodeDuplicate, twice)
			}
			return off + 1
		case ',':
			off = p.space(off + 1)
		default:
			return p.bad("syntax", off)
		}
	}
}

func (p *jsonScan) array(off, at, depth int) int {
	if depth > p.depth {
		return p.limit(pipeline.CodeLimitDepth, off)
	}
	off = p.space(off + 1)
	if off < len(p.data) && p.data[off] == ']' {
		return off + 1
	}
	for {
		if p.items--; p.items < 0 {
			return p.limit(pipeline.CodeLimitItems, off)
		}
		if off = p.value(off, depth); off < 0 {
			return -1
		}
		p.nodes[at].count++
		off = p.space(off)
		if off >= len(p.data) {
			return p.bad("truncated", off)
		}
		switch p.data[off] {
		case ']':
			return off + 1
		case ',':
			off = p.space(off + 1)
		default:
			return p.bad("syntax", off)
		}
	}
}

func (p *jsonScan) literal(off int, word string) int {
	for i := range len(word) {
		if off+i >= len(p.data) || p.data[off+i] != word[i] {
			return p.bad("syntax", off+i)
		}
	}
	return off + len(word)
}

func (p *jsonScan) number(off int) int {
	d := p.data
	if d[off] == '-' {
		off++
	}
	switch {
	case off >= len(d):
		return p.bad("number", off)
	case d[off] == '0':
		off++
	case d[off] >= '1' && d[off] <= '9':
		off = digits(d, off)
	default:
		return p.bad("number", off)
	}
	if off < len(d) && d[off] == '.' {
		from := off + 1
		if off = digits(d, from); off == from {
			return p.bad("number", off)
		}
	}
	if off < len(d) && (d[off] == 'e' || d[off] == 'E') {
		off++
		if off < len(d) && (d[off] == '+' || d[off] == '-') {
			off++
		}
		from := off
		if off = digits(d, from); off == from {
			return p.bad("number", off)
		}
	}
	return off
}

func digits(d []byte, off int) int {
	for off < len(d) && d[off] >= '0' && d[off] <= '9' {
		off++
	}
	return off
}

// str scans a string whose quote is at off.
func (p *jsonScan) str(off int) (end int, escaped bool) {
	d := p.data
	for i := off + 1; i < len(d); {
		for i+8 <= len(d) { // eight bytes at a time until one needs a look
			m := special(binary.LittleEndian.Uint64(d[i:]))
			if m != 0 {
				i += bits.TrailingZeros64(m) >> 3
				break
			}
			i += 8
		}
		if i == len(d) {
			break
		}
		c := d[i]
		switch {
		case c == '"':
			return i + 1, escaped
		case c == '\\':
			escaped = true
			n := p.escape(i)
			if n < 0 {
				return -1, false
			}
			i = n
		case c < 0x20:
			return p.bad("control character", i), false
		case c < utf8.RuneSelf:
			i++
		default:
			r, n := utf8.DecodeRune(d[i:])
			if r == utf8.RuneError && n == 1 {
				if !utf8.FullRune(d[i:]) {
					return p.bad("truncated", len(d)), false
				}
				return p.bad("UTF-8", i), false
			}
			i += n
		}
	}
	return p.bad("truncated", len(d)), false
}

// special marks, in the high bit of each byte, those of eight that end a plain run: a quote, a backslash, a control
// character, the start of a longer rune. The lowest mark is exact; those above it may be too many.
func special(w uint64) uint64 {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	quote, slash := w^(ones*'"'), w^(ones*'\\')
	return ((quote-ones)&^quote | (slash-ones)&^slash | (w-ones*0x20)&^w | w) & high
}

// escape scans the escape at off and returns the offset behind it.
func (p *jsonScan) escape(off int) int {
	d := p.data
	if off+1 >= len(d) {
		return p.bad("truncated", len(d))
	}
	switch d[off+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return off + 2
	case 'u':
	default:
		return p.bad("escape", off)
	}
	r, ok := hex4(d, off+2)
	if !ok {
		if len(d) < off+6 {
			return p.bad("truncated", len(d))
		}
		return p.bad("escape", off)
	}
	if !utf16.IsSurrogate(r) {
		return off + 6
	}
	if off+7 < len(d) && d[off+6] == '\\' && d[off+7] == 'u' {
		low, ok := hex4(d, off+8)
		if ok && utf16.DecodeRune(r, low) != utf8.RuneError {
			return off + 12
		}
	}
	return p.bad("surrogate", off)
}

func hex4(d []byte, off int) (r rune, ok bool) {
	if off+4 > len(d) {
		return 0, false
	}
	for _, c := range d[off : off+4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// unescape appends the text of a string whose escapes were validated.
func unescape(dst, b []byte) []byte {
	for i := 0; i < len(b); {
		c := b[i]
		if c != '\\' {
			dst = append(dst, c)
			i++
			continue
		}
		switch e := b[i+1]; e {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r, _ := hex4(b, i+2)
			i += 4
			if utf16.IsSurrogate(r) {
				low, _ := hex4(b, i+4)
				r = utf16.DecodeRune(r, low)
				i += 6
			}
			dst = utf8.AppendRune(dst, r)
		default:
			dst = append(dst, e)
		}
		i += 2
	}
	return dst
}

// duplicate returns where a member name of the object stands a second time, or -1.
func (p *jsonScan) duplicate(at int) int {
	n := int(p.nodes[at].count)
	if n < 2 {
		return -1
	}
	if n > 12 {
		return p.duplicateOfMany(at, n)
	}
	for i := p.nodes[at+1].next; int(i) < len(p.nodes); i = p.nodes[i].next {
		x := &p.nodes[i]
		for j := uint32(at + 1); j < i; j = p.nodes[j].next {
			if p.same(x, &p.nodes[j]) {
				return int(x.name)
			}
		}
	}
	return -1
}

func (p *jsonScan) same(x, y *jsonNode) bool {
	if !x.nameEsc && !y.nameEsc {
		return x.nameEnd-x.name == y.nameEnd-y.name && string(p.data[x.name:x.nameEnd]) == string(p.data[y.name:y.nameEnd])
	}
	p.a = unescape(p.a[:0], p.data[x.name:x.nameEnd])
	p.b = unescape(p.b[:0], p.data[y.name:y.nameEnd])
	return string(p.a) == string(p.b)
}

// duplicateOfMany uses a table with a random seed, so that nobody can choose names that make it slow.
func (p *jsonScan) duplicateOfMany(at, n int) int {
	if !p.seeded {
		p.seed, p.seeded = maphash.MakeSeed(), true
	}
	size := 32
	for size < 2*n {
		size *= 2
	}
	if cap(p.table) < size {
		p.table = make([]uint32, size)
	}
	table := p.table[:size]
	clear(table)
	for i := uint32(at + 1); int(i) < len(p.nodes); i = p.nodes[i].next {
		x := &p.nodes[i]
		name := p.data[x.name:x.nameEnd]
		if x.nameEsc {
			p.a = unescape(p.a[:0], name)
			name = p.a
		}
		h := maphash.Bytes(p.seed, name)
		for k := h & uint64(size-1); ; k = (k + 1) & uint64(size-1) {
			if table[k] == 0 {
				table[k] = i
				break
			}
			if p.same(x, &p.nodes[table[k]]) {
				return int(x.name)
			}
		}
	}
	return -1
}
