package config

import (
	"strconv"
	"strings"
)

// valueKind is the shape of a value.
type valueKind uint8

const (
	kindNull valueKind = iota
	kindText           // a scalar
	kindMap
	kindList
)

// scalarType is what YAML says a plain scalar is; a quoted one is always text.
type scalarType uint8

const (
	scalarText scalarType = iota
	scalarInt
	scalarFloat
	scalarBool
)

// value is one place of a file after aliases, merge keys and variables.
type value struct {
	kind         valueKind
	scalar       scalarType
	line, column int
	text         string // of a scalar, variables substituted
	source       string // of a scalar that held variables or escapes: as it stands in the file; else empty
	variable     bool   // text came from at least one variable: it has no type of its own and is never shown
	fromFile     bool   // text came from ${file:...}
	secret       bool   // decoded into a Secret, or into a client property of a secret name
	known        bool   // decoded into a field that is no secret, whatever its key is called
	broken       bool   // Parse reported a problem here: there is no value to judge
	entries      []entry
	index        map[string]int // of entries, once there are many
	items        []*value
}

type entry struct {
	key          string
	line, column int // of the key
	value        *value
}

const fewEntries = 16

// add appends an entry whose key is new.
func (v *value) add(e entry) {
	v.entries = append(v.entries, e)
	switch n := len(v.entries); {
	case n == fewEntries:
		v.index = make(map[string]int, 2*n)
		for i := range v.entries {
			v.index[v.entries[i].key] = i
		}
	case n > fewEntries:
		v.index[e.key] = n - 1
	}
}

func (v *value) get(key string) *entry {
	if v.index != nil {
		if i, ok := v.index[key]; ok {
			return &v.entries[i]
		}
		return nil
	}
	for i := range v.entries {
		if v.entries[i].key == key {
			return &v.entries[i]
		}
	}
	return nil
}

func (v *value) anyBroken() bool {
	if v.broken {
		return true
	}
	for i := range v.entries {
		if v.entries[i].value.anyBroken() {
			return true
		}
	}
	for _, item := range v.items {
		if item.anyBroken() {
			return true
		}
	}
	return false
}

// shown is how a problem may print a scalar: what the file says, never what a variable held.
func (v *value) shown() string {
	s := v.text
	if v.source != "" {
		s = v.source
	}
	if v.secret {
		return mask
	}
	const most = 60
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "..."
	}
	return strconv.Quote(s)
}

func (v *value) name() string {
	switch v.kind {
	case kindMap:
		return "a mapping"
	case kindList:
		return "a list"
	case kindNull:
		return "nothing"
	}
	switch v.scalar {
	case scalarInt:
		return "a number"
	case scalarFloat:
		return "a number with a fraction"
	case scalarBool:
		return "true or false"
	}
	return "text"
}

// join makes the path of a member. A key is written as it stands, dots included: "errors.deadletterqueue.topic.name".
func join(path, key string) string {
	if path == "" || strings.HasPrefix(key, "[") {
		return path + key
	}
	if key == "" {
		return path
	}
	return path + "." + key
}

func joinIndex(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// find walks to a path and returns the deepest existing place on it. ok is false when the path goes further than that. Keys
// may hold dots, so every key that fits is tried.
func (v *value) find(path string) (at *value, line, column int, ok bool) {
	at, line, column = v, v.line, v.column
	if path == "" {
		return at, line, column, true
	}
	best, bestLine, bestColumn := at, line, column
	depth := -1
	var walk func(v *value, rest string, line, column, deep int) bool
	walk = func(v *value, rest string, line, column, deep int) bool {
		if deep > depth {
			depth, best, bestLine, bestColumn = deep, v, line, column
		}
		if rest == "" {
			return true
		}
		if rest[0] == '[' {
			if end := strings.IndexByte(rest, ']'); end > 0 && v.kind == kindList {
				if i, err := strconv.Atoi(rest[1:end]); err == nil && i >= 0 && i < len(v.items) {
					item := v.items[i]
					return walk(item, strings.TrimPrefix(rest[end+1:], "."), item.line, item.column, deep+end)
				}
			}
		}
		for end := 1; end <= len(rest); end++ {
			if end < len(rest) && rest[end] != '.' && rest[end] != '[' {
				continue
			}
			e := v.get(rest[:end])
			if e == nil {
				continue
			}
			line, column := e.value.line, e.value.column
			if e.value.kind != kindText { // of a section the key is what a reader looks for
				line, column = e.line, e.column
			}
			if walk(e.value, strings.TrimPrefix(rest[end:], "."), line, column, deep+end) {
				return true
			}
		}
		return false
	}
	if walk(v, path, v.line, v.column, 0) {
		ok = true
	}
	return best, bestLine, bestColumn, ok
}
