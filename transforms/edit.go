package transforms

import (
	"math"
	"strconv"
	"strings"
)

// pointer is a JSON pointer (RFC 6901), unescaped.
type pointer []string

// parsePointer reads a pointer; false: it does not start with "/" or has a bad escape.
func parsePointer(text string) (pointer, bool) {
	if text == "" {
		return pointer{}, true
	}
	if text[0] != '/' {
		return nil, false
	}
	segs := strings.Split(text[1:], "/")
	for i, s := range segs {
		for j := 0; j < len(s); j++ {
			if s[j] == '~' && (j+1 == len(s) || s[j+1] != '0' && s[j+1] != '1') {
				return nil, false
			}
		}
		segs[i] = strings.ReplaceAll(strings.ReplaceAll(s, "~1", "/"), "~0", "~")
	}
	return segs, true
}

func (p pointer) String() string {
	var b strings.Builder
	for _, s := range p {
		b.WriteByte('/')
		b.WriteString(strings.ReplaceAll(strings.ReplaceAll(s, "~", "~0"), "/", "~1"))
	}
	return b.String()
}

// inside tells whether p is at or below q.
func (p pointer) inside(q pointer) bool {
	if len(p) < len(q) {
		return false
	}
	for i := range q {
		if p[i] != q[i] {
			return false
		}
	}
	return true
}

// index reads an array index: digits without a leading zero (RFC 6901); n is the highest allowed.
func index(seg string, n int) (int, bool) {
	if seg == "" || len(seg) > 1 && seg[0] == '0' {
		return 0, false
	}
	for i := 0; i < len(seg); i++ {
		if seg[i] < '0' || seg[i] > '9' {
			return 0, false
		}
	}
	i, err := strconv.Atoi(seg)
	return i, err == nil && i <= n
}

// at finds the value at p, or nil.
func (d *document) at(p pointer) *node {
	n := d.root
	for _, seg := range p {
		if n = n.child(seg); n == nil {
			return nil
		}
	}
	return n
}

func (n *node) child(seg string) *node {
	switch n.kind {
	case '{':
		if i := n.find(seg); i >= 0 {
			return n.members[i].v
		}
	case '[':
		if i, ok := index(seg, len(n.items)-1); ok {
			return n.items[i].v
		}
	}
	return nil
}

// parent walks to the container of p and marks the way as changed. It returns nil if there is none; then nothing is marked.
func (d *document) parent(p pointer) *node {
	c := d.at(p[:len(p)-1])
	if c == nil || c.kind != '{' && c.kind != '[' {
		return nil
	}
	n := d.root
	n.dirty = true
	for _, seg := range p[:len(p)-1] {
		n = n.child(seg)
		n.dirty = true
	}
	return c
}

// put replaces an existing value in its place, or adds a member to an existing object. insert: in an array, put before the item
// at that index; "-" is the end. The answer says what is wrong, or "".
func (d *document) put(p pointer, v *node, insert bool) string {
	if len(p) == 0 {
		d.root = v
		return ""
	}
	last := p[len(p)-1]
	c := d.at(p[:len(p)-1])
	switch {
	case c == nil:
		return "no such parent"
	case c.kind == '{':
	case c.kind == '[':
		if insert {
			if last == "-" {
				break
			}
			if _, ok := index(last, len(c.items)); !ok {
				return "no such index"
			}
		} else if _, ok := index(last, len(c.items)-1); !ok {
			return "no such index"
		}
	default:
		return "the parent has no members"
	}
	d.parent(p)
	if c.kind == '{' {
		if i := c.find(last); i >= 0 {
			c.members[i].v = v
			return ""
		}
		c.shape = true
		c.members = append(c.members, member{slot: slot{v: v, from: -1}, raw: appendQuoted(nil, last), name: last})
		return ""
	}
	if !insert {
		i, _ := index(last, len(c.items)-1)
		c.items[i].v = v
		return ""
	}
	i := len(c.items)
	if last != "-" {
		i, _ = index(last, len(c.items))
	}
	c.shape = true
	c.items = append(c.items, slot{})
	copy(c.items[i+1:], c.items[i:])
	c.items[i] = slot{v: v, from: -1}
	return ""
}

// drop removes the value at p; it must exist and not be the root.
func (d *document) drop(p pointer) string {
	if len(p) == 0 {
		return "the whole record cannot be removed"
	}
	if d.at(p) == nil {
		return "no such value"
	}
	c := d.parent(p)
	c.shape = true
	last := p[len(p)-1]
	if c.kind == '{' {
		i := c.find(last)
		c.members = append(c.members[:i:i], c.members[i+1:]...)
		return ""
	}
	i, _ := index(last, len(c.items)-1)
	c.items = append(c.items[:i:i], c.items[i+1:]...)
	return ""
}

// rename gives a member another name in its place.
func (d *document) rename(p pointer, name string) string {
	if len(p) == 0 || d.at(p) == nil {
		return "no such value"
	}
	if c := d.at(p[:len(p)-1]); c.kind != '{' {
		return "only members of an object have names"
	} else if c.find(name) >= 0 {
		return "there is a member of that name already"
	}
	c := d.parent(p)
	i := c.find(p[len(p)-1])
	c.shape = true
	c.members[i].raw, c.members[i].name = appendQuoted(nil, name), name
	return ""
}

// clone makes a value of its own from what n writes now.
func (n *node) clone() *node {
	d := &document{src: n.append(nil), most: math.MaxInt} // how deep the result nests is the decoder's to judge
	if what := d.parse(); what != "" {
		panic("transforms: a document does not parse again: " + what) // our own bytes
	}
	return d.root
}

// equal compares two values as RFC 6902 does: numbers by value, strings by text, members in any order.
func (n *node) equal(o *node) bool {
	if n.kind != o.kind {
		return false
	}
	switch n.kind {
	case '{':
		if len(n.members) != len(o.members) {
			return false
		}
		for i := range n.members {
			j := o.find(n.members[i].name)
			if j < 0 || !n.members[i].v.equal(o.members[j].v) {
				return false
			}
		}
		return true
	case '[':
		if len(n.items) != len(o.items) {
			return false
		}
		for i := range n.items {
			if !n.items[i].v.equal(o.items[i].v) {
				return false
			}
		}
		return true
	case '"':
		return unquote(n.src) == unquote(o.src)
	case '0':
		return sameNumber(string(n.src), string(o.src))
	}
	return string(n.src) == string(o.src)
}

// sameNumber compares two JSON numbers exactly: 1, 1.0 and 10e-1 are one number.
func sameNumber(a, b string) bool {
	an, ad, ae := normal(a)
	bn, bd, be := normal(b)
	return ad == bd && ae == be && (an == bn || ad == "")
}

// normal splits a JSON number into its sign, its digits without zeros at either end, and the power of ten of the last digit.
func normal(s string) (neg bool, digits string, exp int64) {
	if s[0] == '-' {
		neg, s = true, s[1:]
	}
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		exp, _ = strconv.ParseInt(strings.TrimPrefix(s[i+1:], "+"), 10, 64) // out of range: clamped, both sides alike
		s = s[:i]
	}
	if i := strings.IndexByte(s, '.'); i >= 0 {
		exp -= int64(len(s) - i - 1)
		s = s[:i] + s[i+1:]
	}
	s = strings.TrimLeft(s, "0")
	t := strings.TrimRight(s, "0")
	exp += int64(len(s) - len(t))
	if t == "" {
		exp = 0
	}
	return neg, t, exp
}
