package transforms

import (
	"strconv"
	"unicode/utf8"
)

// maxDepth is how deep a document may nest, as the decoder's own default.
const maxDepth = 100

// node is one JSON value. What was parsed and not touched is written again as its own bytes: numbers keep their text, strings
// their escapes, composites their white space.
type node struct {
	src     []byte   // the value's own bytes
	kind    byte     // '{' '[' '"' '0' 't' 'n'
	members []member // of an object
	items   []slot   // of an array
	dirty   bool     // something below differs from src
	shape   bool     // members or items were added, removed or renamed: src cannot be spliced
}

// slot is where a value stood in its parent's src; from is -1 for a new one.
type slot struct {
	v        *node
	from, to int
}

type member struct {
	slot
	raw  []byte // the name as written, quotes included
	name string // unescaped
}

// document is a parsed JSON text; nodes come from its slab.
type document struct {
	src  []byte
	root *node
	slab []node
	lead int // where the value starts
	tail int // and ends
	pos  int
	deep int
	most int // how deep it may nest
	grew int // bytes that copies added
}

// parseDocument reads one JSON text of RFC 8259: UTF-8 only, no repeated member, no lone surrogate, nothing after the value but
// white space. It keeps src. The second result says what is wrong, without payload, and where.
func parseDocument(src []byte) (*document, string) {
	d := &document{src: src, most: maxDepth}
	if what := d.parse(); what != "" {
		return nil, what + " at " + strconv.Itoa(d.pos)
	}
	return d, ""
}

func (d *document) parse() string {
	d.space()
	d.lead = d.pos
	n, what := d.value()
	if what != "" {
		return what
	}
	d.tail = d.pos
	d.space()
	if d.pos != len(d.src) {
		return "text after the value"
	}
	d.root = n
	return ""
}

func (d *document) node() *node {
	if len(d.slab) == cap(d.slab) {
		d.slab = make([]node, 0, 64) // full slabs stay alive through the nodes that point into them
	}
	d.slab = d.slab[:len(d.slab)+1]
	return &d.slab[len(d.slab)-1]
}

func (d *document) space() {
	for d.pos < len(d.src) {
		switch d.src[d.pos] {
		case ' ', '\t', '\n', '\r':
			d.pos++
		default:
			return
		}
	}
}

func (d *document) value() (*node, string) {
	if d.pos >= len(d.src) {
		return nil, "the text ends early"
	}
	from := d.pos
	var what string
	n := d.node()
	switch c := d.src[d.pos]; {
	case c == '{':
		n.kind = '{'
		what = d.object(n)
	case c == '[':
		n.kind = '['
		what = d.array(n)
	case c == '"':
		n.kind = '"'
		_, what = d.str()
	case c == '-' || c >= '0' && c <= '9':
		n.kind = '0'
		what = d.number()
	case c == 't':
		n.kind = 't'
		what = d.word("true")
	case c == 'f':
		n.kind = 't'
		what = d.word("false")
	case c == 'n':
		n.kind = 'n'
		what = d.word("null")
	default:
		what = "not a JSON value"
	}
	n.src = d.src[from:d.pos:d.pos]
	return n, what
}

func (d *document) word(w string) string {
	if len(d.src)-d.pos < len(w) || string(d.src[d.pos:d.pos+len(w)]) != w {
		return "not a JSON value"
	}
	d.pos += len(w)
	return ""
}

func (d *document) number() string {
	s := d.src
	if s[d.pos] == '-' {
		d.pos++
	}
	digits := func() bool {
		at := d.pos
		for d.pos < len(s) && s[d.pos] >= '0' && s[d.pos] <= '9' {
			d.pos++
		}
		return d.pos > at
	}
	zero := d.pos < len(s) && s[d.pos] == '0'
	at := d.pos
	if !digits() || zero && d.pos > at+1 {
		return "not a number"
	}
	if d.pos < len(s) && s[d.pos] == '.' {
		d.pos++
		if !digits() {
			return "not a number"
		}
	}
	if d.pos < len(s) && (s[d.pos] == 'e' || s[d.pos] == 'E') {
		d.pos++
		if d.pos < len(s) && (s[d.pos] == '+' || s[d.pos] == '-') {
			d.pos++
		}
		if !digits() {
			return "not a number"
		}
	}
	return ""
}

// str passes over a string and returns it with its quotes.
func (d *document) str() ([]byte, string) {
	s, from := d.src, d.pos
	d.pos++
	for d.pos < len(s) {
		c := s[d.pos]
		switch {
		case c == '"':
			d.pos++
			return s[from:d.pos], ""
		case c < 0x20:
			return nil, "a control character in a string"
		case c == '\\':
			if what := d.escape(); what != "" {
				return nil, what
			}
		case c < utf8.RuneSelf:
			d.pos++
		default:
			r, n := utf8.DecodeRune(s[d.pos:])
			if r == utf8.RuneError && n <= 1 {
				return nil, "invalid UTF-8"
			}
			d.pos += n
		}
	}
	return nil, "the text ends early"
}

func (d *document) escape() string {
	s := d.src
	if d.pos+1 >= len(s) {
		return "the text ends early"
	}
	switch s[d.pos+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		d.pos += 2
		return ""
	case 'u':
		r, ok := hex4(s[d.pos+2:])
		if !ok {
			return "a bad escape"
		}
		d.pos += 6
		if r >= 0xdc00 && r < 0xe000 {
			return "a lone surrogate"
		}
		if r >= 0xd800 && r < 0xdc00 {
			if d.pos+1 >= len(s) || s[d.pos] != '\\' || s[d.pos+1] != 'u' {
				return "a lone surrogate"
			}
			low, ok := hex4(s[d.pos+2:])
			if !ok || low < 0xdc00 || low >= 0xe000 {
				return "a lone surrogate"
			}
			d.pos += 6
		}
		return ""
	}
	return "a bad escape"
}

func hex4(s []byte) (r rune, ok bool) {
	if len(s) < 4 {
		return 0, false
	}
	for _, c := range s[:4] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

func (d *document) object(n *node) string {
	if d.deep++; d.deep > d.most {
		return "nests too deep"
	}
	from := d.pos
	d.pos++
	d.space()
	if d.pos < len(d.src) && d.src[d.pos] == '}' {
		d.pos++
		d.deep--
		return ""
	}
	n.members = make([]member, 0, 8)
	var seen map[string]bool // only for large objects: small ones are compared one by one
	for {
		if d.pos >= len(d.src) {
			return "the text ends early"
		}
		if d.src[d.pos] != '"' {
			return "a member without a name"
		}
		raw, what := d.str()
		if what != "" {
			return what
		}
		m := member{raw: raw, name: unquote(raw)}
		if len(n.members) == 32 {
			seen = make(map[string]bool, 64)
			for i := range n.members {
				seen[n.members[i].name] = true
			}
		}
		if seen != nil {
			if seen[m.name] {
				return "a repeated member"
			}
			seen[m.name] = true
		} else if n.find(m.name) >= 0 {
			return "a repeated member"
		}
		d.space()
		if d.pos >= len(d.src) || d.src[d.pos] != ':' {
			return "a member without a value"
		}
		d.pos++
		d.space()
		m.from = d.pos - from
		if m.v, what = d.value(); what != "" {
			return what
		}
		m.to = d.pos - from
		n.members = append(n.members, m)
		if done, what := d.next('}'); what != "" || done {
			return what
		}
	}
}

func (d *document) array(n *node) string {
	if d.deep++; d.deep > d.most {
		return "nests too deep"
	}
	from := d.pos
	d.pos++
	d.space()
	if d.pos < len(d.src) && d.src[d.pos] == ']' {
		d.pos++
		d.deep--
		return ""
	}
	for {
		s := slot{from: d.pos - from}
		var what string
		if s.v, what = d.value(); what != "" {
			return what
		}
		s.to = d.pos - from
		n.items = append(n.items, s)
		if done, what := d.next(']'); what != "" || done {
			return what
		}
	}
}

// next passes over what stands between two items; done: it was the end.
func (d *document) next(end byte) (done bool, what string) {
	d.space()
	if d.pos >= len(d.src) {
		return false, "the text ends early"
	}
	switch d.src[d.pos] {
	case end:
		d.pos++
		d.deep--
		return true, ""
	case ',':
		d.pos++
		d.space()
		return false, ""
	}
	return false, "a missing comma"
}

// find returns the place of a member, or -1.
func (n *node) find(name string) int {
	for i := range n.members {
		if n.members[i].name == name {
			return i
		}
	}
	return -1
}

// append writes the value: its own bytes where nothing changed.
func (n *node) append(dst []byte) []byte {
	if !n.dirty {
		return append(dst, n.src...)
	}
	if !n.shape {
		at := 0
		splice := func(s *slot) {
			dst = append(dst, n.src[at:s.from]...)
			dst = s.v.append(dst)
			at = s.to
		}
		for i := range n.members {
			splice(&n.members[i].slot)
		}
		for i := range n.items {
			splice(&n.items[i])
		}
		return append(dst, n.src[at:]...)
	}
	if n.kind == '[' {
		dst = append(dst, '[')
		for i := range n.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = n.items[i].v.append(dst)
		}
		return append(dst, ']')
	}
	dst = append(dst, '{')
	for i := range n.members {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(dst, n.members[i].raw...), ':')
		dst = n.members[i].v.append(dst)
	}
	return append(dst, '}')
}

// text writes the whole document, with the white space around its value.
func (d *document) text(dst []byte) []byte {
	dst = append(dst, d.src[:d.lead]...)
	dst = d.root.append(dst)
	return append(dst, d.src[d.tail:]...)
}

// unquote returns the text of a valid JSON string with its quotes.
func unquote(raw []byte) string {
	in := raw[1 : len(raw)-1]
	plain := true
	for _, c := range in {
		if c == '\\' {
			plain = false
			break
		}
	}
	if plain {
		return string(in)
	}
	out := make([]byte, 0, len(in))
	for i := 0; i < len(in); i++ {
		if in[i] != '\\' {
			out = append(out, in[i])
			continue
		}
		i++
		switch in[i] {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r, _ := hex4(in[i+1:])
			i += 4
			if r >= 0xd800 && r < 0xdc00 {
				low, _ := hex4(in[i+3:])
				i += 6
				r = 0x10000 + (r-0xd800)<<10 + (low - 0xdc00)
			}
			out = utf8.AppendRune(out, r)
		default:
			out = append(out, in[i])
		}
	}
	return string(out)
}

// appendQuoted writes s as a JSON string: only what must be escaped is escaped.
func appendQuoted(dst []byte, s string) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c == '\r':
			dst = append(dst, '\\', 'r')
		case c == '\t':
			dst = append(dst, '\\', 't')
		case c < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}
