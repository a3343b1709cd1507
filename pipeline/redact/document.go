package redact

import (
	"strconv"
	"unsafe"
)

// Bounds of documents inside strings. What is deeper is read as text.
const (
	maxNested = 4   // documents in strings in documents in strings
	maxDepth  = 128 // objects and arrays of one document
)

// level is the scratch of one document inside a string: its bytes without escapes, and where each stood.
type level struct {
	buf []byte
	pos []int32
}

// text views b as a string for the length of a call that keeps nothing.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// value finds what goes in the string s, which stands at path under a name that means m. escaped says that s is the inside
// of a JSON string as written. Hits are in bytes of s.
func (e *Editor) value(s []byte, m meaning, path string, nested int, escaped bool) {
	mark := len(e.hits)
	switch {
	case m == meansCode && e.r.cvv:
		e.codeLeaf(s)
	case m == meansAuth && e.r.auth:
		e.authLeaf(s)
	case (m == meansSecret || m == meansCookie) && e.r.auth:
		e.secretLeaf(s)
	}
	if n := len(e.hits); n > mark && e.hits[n-1].from == 0 && e.hits[n-1].to == len(s) {
		e.prune(s, mark)
		return
	}
	if nested < maxNested && len(s) >= 8 && e.nested(s, path, nested, escaped) {
		e.settle(mark)
		return
	}
	e.windows(s, m)
	e.settle(mark)
	e.prune(s, mark)
}

// nested tries s as a document. False: it is none, and nothing was found yet.
func (e *Editor) nested(s []byte, path string, nested int, escaped bool) bool {
	i := blank(s, 0)
	if i == len(s) || s[i] != '{' && s[i] != '[' && s[i] != '"' && !(escaped && s[i] == '\\') {
		return false
	}
	from, base := len(e.hits), len(e.path)
	u := s
	var l *level
	if escaped && hasBackslash(s) {
		l = &e.depth[nested]
		var ok bool
		if l.buf, l.pos, ok = unquote(s, l.buf, l.pos); !ok {
			return false
		}
		u = l.buf
		if i := blank(u, 0); i == len(u) || u[i] != '{' && u[i] != '[' && u[i] != '"' {
			return false // a number, say, is no document: it goes by the name that it stands under
		}
	}
	if base == 0 {
		e.path = append(e.path, path...)
	}
	ok := e.document(u, nested+1)
	e.path = e.path[:base]
	if !ok {
		e.hits = e.hits[:from]
		return false
	}
	if l != nil {
		for k := from; k < len(e.hits); k++ {
			h := &e.hits[k]
			h.from, h.to = int(l.pos[h.from]), int(l.pos[h.to])
		}
	}
	return true
}

// document walks b as one JSON document and finds what goes in it. False: it is not valid JSON; the caller drops the hits.
func (e *Editor) document(b []byte, nested int) bool {
	i := blank(b, 0)
	if i == len(b) {
		return false
	}
	i, ok := e.docValue(b, i, docPlace{nested: nested})
	return ok && blank(b, i) == len(b)
}

// docPlace is where the walk is.
type docPlace struct {
	nested int
	depth  int
	m      meaning
	item   bool   // an item of an array
	rule   uint16 // a field named by the file, of this value or one around it
}

func (e *Editor) docValue(b []byte, i int, p docPlace) (next int, ok bool) {
	if i >= len(b) || p.depth > maxDepth {
		return i, false
	}
	switch c := b[i]; {
	case c == '{':
		return e.docObject(b, i, p)
	case c == '[':
		return e.docArray(b, i, p)
	case c == '"':
		end := stringEnd(b, i)
		if end < 0 {
			return i, false
		}
		e.docString(b, i+1, end-1, p)
		return end, true
	case c == '-' || digit(c):
		end := numberEnd(b, i)
		if end < 0 {
			return i, false
		}
		e.docNumber(b, i, end, p)
		return end, true
	}
	for _, w := range [...]string{"true", "false", "null"} {
		if len(b)-i >= len(w) && string(b[i:i+len(w)]) == w {
			return i + len(w), true
		}
	}
	return i, false
}

func (e *Editor) docObject(b []byte, i int, p docPlace) (int, bool) {
	base := len(e.path)
	if i = blank(b, i+1); i < len(b) && b[i] == '}' {
		return i + 1, true
	}
	beside := means // what a member "name" says about the member "value"
	for {
		if i >= len(b) || b[i] != '"' {
			return i, false
		}
		end := stringEnd(b, i)
		if end < 0 {
			return i, false
		}
		name := b[i+1 : end-1]
		e.docName(name, i+1)
		if i = blank(b, end); i >= len(b) || b[i] != ':' {
			return i, false
		}
		kid := docPlace{nested: p.nested, depth: p.depth + 1, rule: p.rule}
		if hasBackslash(name) {
			e.norm, e.pos = unescape(name, e.norm, e.pos)
			name = append(e.tmp[:0], e.norm...)
			e.tmp = name
		}
		if !e.namesOnly {
			kid.m = nameMeaning(text(name), false)
			if pairValue(text(name)) && beside != means {
				kid.m = beside
			}
			e.path = appendSegment(e.path[:base], name)
			if kid.rule == 0 && len(e.r.fields) > 0 {
				kid.rule = e.r.field(text(e.path), text(name), nil)
				if kid.rule != 0 && !e.r.exact(kid.rule, text(e.path)) {
					kid.rule = 0
				}
			}
			if kid.rule == 0 && e.r.kept(text(e.path)) {
				kid.m = meansKept
			} else if p.m == meansKept {
				kid.m = meansKept
			}
		}
		pairs := pairName(text(name)) // name may be scratch
		from := blank(b, i+1)
		var ok bool
		if i, ok = e.docValue(b, from, kid); !ok {
			return i, false
		}
		if pairs && b[from] == '"' {
			beside = named(b[from+1 : i-1])
		}
		e.path = e.path[:base]
		if i = blank(b, i); i >= len(b) {
			return i, false
		}
		switch b[i] {
		case ',':
			i = blank(b, i+1)
		case '}':
			return i + 1, true
		default:
			return i, false
		}
	}
}

func (e *Editor) docArray(b []byte, i int, p docPlace) (int, bool) {
	base := len(e.path)
	if i = blank(b, i+1); i < len(b) && b[i] == ']' {
		return i + 1, true
	}
	p.depth++
	inherited, item := p.rule, p.item
	p.item = true
	from := i
	for k := int64(0); ; k++ {
		if k == 1 && item && p.m == means && b[from] == '"' { // ["Authorization", "..."]
			if end := stringEnd(b, from); end > 0 {
				p.m = named(b[from+1 : end-1])
			}
		}
		if !e.namesOnly {
			e.path = strconv.AppendInt(append(e.path[:base], '/'), k, 10)
			if p.rule = inherited; p.rule == 0 && e.r.paths {
				if p.rule = e.r.field(text(e.path), "", nil); p.rule != 0 && !e.r.exact(p.rule, text(e.path)) {
					p.rule = 0
				}
			}
		}
		var ok bool
		if i, ok = e.docValue(b, i, p); !ok {
			return i, false
		}
		e.path = e.path[:base]
		if i = blank(b, i); i >= len(b) {
			return i, false
		}
		switch b[i] {
		case ',':
			i = blank(b, i+1)
		case ']':
			return i + 1, true
		default:
			return i, false
		}
	}
}

// docName finds card numbers in a member name.
func (e *Editor) docName(name []byte, at int) {
	if len(name) < minDigits {
		return
	}
	if _, _, run := e.r.look(name); !run || !e.r.pan {
		return
	}
	from := len(e.hits)
	e.scan(name, means)
	e.shift(from, at)
}

// shift moves hits that are relative to a part to the whole.
func (e *Editor) shift(from, by int) {
	for k := from; k < len(e.hits); k++ {
		e.hits[k].from += by
		e.hits[k].to += by
	}
}

func (e *Editor) docString(b []byte, from, to int, p docPlace) {
	if e.namesOnly || to-from == 0 || p.m == meansKept {
		return
	}
	mark := len(e.hits)
	if p.rule != 0 {
		if !masked(b[from:to]) {
			e.hits = append(e.hits, hit{from: from, to: to, kind: kindField, rule: p.rule})
		}
	} else {
		e.value(b[from:to], p.m, text(e.path), p.nested, true)
		if len(e.r.patterns) > 0 && len(e.hits) > mark {
			alignEscapes(b[from:to], e.hits[mark:])
		}
		e.shift(mark, from)
	}
	if len(e.hits) > mark {
		e.refuseIdentity(text(e.path))
	}
}

// alignEscapes widens hits so that none begins or ends inside an escape: a user's pattern knows nothing of them.
func alignEscapes(s []byte, hits []hit) {
	for i, k := 0, 0; i < len(s) && k < len(hits); {
		n := 1
		if s[i] == '\\' {
			if n = 2; i+1 < len(s) && s[i+1] == 'u' {
				n = 6
			}
		}
		end := min(i+n, len(s))
		h := &hits[k]
		if h.from > i && h.from < end {
			h.from = i
		}
		if h.to > i && h.to < end {
			h.to = end
		}
		if h.to <= end {
			k++
			continue // the next hit may begin in the same escape
		}
		i = end
	}
	for k := 1; k < len(hits); k++ {
		if hits[k].from < hits[k-1].to {
			hits[k].from = hits[k-1].to
			hits[k].to = max(hits[k].to, hits[k].from)
		}
	}
}

func (e *Editor) docNumber(b []byte, from, to int, p docPlace) {
	if e.namesOnly || p.m == meansKept {
		return
	}
	mark := len(e.hits)
	if p.rule != 0 {
		if string(b[from:to]) != "0" {
			e.hits = append(e.hits, hit{from: from, to: to, kind: kindField, rule: p.rule, literal: true})
		}
	} else {
		e.number(b[from:to], p.m)
		e.shift(mark, from)
	}
	if len(e.hits) > mark {
		e.refuseIdentity(text(e.path))
	}
}

func appendSegment(dst, name []byte) []byte {
	dst = append(dst, '/')
	for _, c := range name {
		switch c {
		case '~':
			dst = append(dst, '~', '0')
		case '/':
			dst = append(dst, '~', '1')
		default:
			dst = append(dst, c)
		}
	}
	return dst
}
