package config

import (
	"encoding/json"
	"strings"
)

// Doc is one parsed file: variables substituted, aliases resolved, positions kept. It is not safe for concurrent use while
// it is decoded.
type Doc struct {
	file string
	root *value
}

// File is the name that Parse was given.
func (d *Doc) File() string { return d.file }

// Root is the whole document.
func (d *Doc) Root() Node { return Node{doc: d, value: d.root} }

// Decode reads the whole document into a pointer to a struct: see Node.Decode.
func (d *Doc) Decode(into any) Problems { return d.Root().Decode(into) }

// Problem makes a problem at a path, with the position of the deepest part of it that the file has.
func (d *Doc) Problem(path, code, text, suggestion string) Problem {
	_, line, column, _ := d.root.find(path)
	return Problem{File: d.file, Line: line, Column: column, Path: path, Code: code, Text: text, Suggestion: suggestion}
}

// Has tells whether the file says anything at path.
func (d *Doc) Has(path string) bool {
	_, _, _, ok := d.root.find(path)
	return ok
}

// At is the part of the document at path; an absent Node if the file does not have it.
func (d *Doc) At(path string) Node { return d.Root().At(path) }

// Node is a part of a document, decoded later by who knows its type: the settings of a stage, for example. The zero Node is
// absent.
type Node struct {
	doc   *Doc
	value *value
	path  string
}

// Path is where the node stands: "stages[0].decode".
func (n Node) Path() string { return n.path }

// File is the file it stands in; empty for an absent node without a document.
func (n Node) File() string {
	if n.doc == nil {
		return ""
	}
	return n.doc.file
}

// Doc is the document it belongs to, nil for the zero Node.
func (n Node) Doc() *Doc { return n.doc }

// Exists tells whether the file has this node.
func (n Node) Exists() bool { return n.value != nil }

// IsNull tells whether nothing is written there: absent, empty or null.
func (n Node) IsNull() bool { return n.value == nil || n.value.kind == kindNull }

// IsMap tells whether it is a mapping.
func (n Node) IsMap() bool { return n.value != nil && n.value.kind == kindMap }

// IsList tells whether it is a list.
func (n Node) IsList() bool { return n.value != nil && n.value.kind == kindList }

// Text is the text of a scalar after variables; ok is false for anything else.
func (n Node) Text() (text string, ok bool) {
	if n.value == nil || n.value.kind != kindText || n.value.broken {
		return "", false
	}
	return n.value.text, true
}

// Shown is a scalar as a problem may print it: what the file says, which for a variable is its name and for a secret ***
// (INV-CONFIG-SECRET). Text in problems comes from here, never from a decoded value.
func (n Node) Shown() string {
	switch v := n.value; {
	case v == nil || v.kind != kindText:
		return ""
	case v.secret:
		return mask
	case v.source != "":
		return v.source
	default:
		return v.text
	}
}

// literal tells whether a scalar is written in the file as it is.
func (n Node) literal() bool {
	return n.value != nil && n.value.kind == kindText && !n.value.variable && !n.value.secret
}

// Broken tells whether Parse reported a problem at this very place: there is no value to judge.
func (n Node) Broken() bool { return n.value != nil && n.value.broken }

// Position is the line and column, from 1; 0, 0 for an absent node.
func (n Node) Position() (line, column int) {
	if n.value == nil {
		return 0, 0
	}
	return n.value.line, n.value.column
}

// Keys are the keys of a mapping in the order of the file.
func (n Node) Keys() []string {
	if n.value == nil {
		return nil
	}
	keys := make([]string, len(n.value.entries))
	for i := range n.value.entries {
		keys[i] = n.value.entries[i].key
	}
	return keys
}

// Key is the member of a mapping by its exact name.
func (n Node) Key(name string) Node {
	out := Node{doc: n.doc, path: join(n.path, name)}
	if n.value != nil {
		if e := n.value.get(name); e != nil {
			out.value = e.value
		}
	}
	return out
}

// Items are the members of a list.
func (n Node) Items() []Node {
	if n.value == nil {
		return nil
	}
	items := make([]Node, len(n.value.items))
	for i, v := range n.value.items {
		items[i] = Node{n.doc, v, joinIndex(n.path, i)}
	}
	return items
}

// At is the node at a path below this one ("default.topic", "rules[0].when"); "" is the node itself.
func (n Node) At(path string) Node {
	out := Node{doc: n.doc, path: join(n.path, path)}
	if n.value != nil {
		if v, _, _, ok := n.value.find(path); ok {
			out.value = v
		}
	}
	return out
}

// Problem makes a problem at a path below this node ("" is the node itself), with the position of the deepest part of it
// that the file has.
func (n Node) Problem(path, code, text, suggestion string) Problem {
	full := join(n.path, path)
	if n.doc == nil {
		return Problem{Path: full, Code: code, Text: text, Suggestion: suggestion}
	}
	return n.doc.Problem(full, code, text, suggestion)
}

// Value is the node as plain Go data: map[string]any, []any, string, bool, json.Number, nil. Numbers keep every digit.
func (n Node) Value() any { return plainValue(n.value) }

// JSON is the node as JSON in the order of keys, for settings that are handed to others; an absent node is "null".
func (n Node) JSON() ([]byte, error) { return json.Marshal(n.Value()) }

func plainValue(v *value) any {
	switch {
	case v == nil || v.kind == kindNull:
		return nil
	case v.kind == kindMap:
		m := make(map[string]any, len(v.entries))
		for i := range v.entries {
			m[v.entries[i].key] = plainValue(v.entries[i].value)
		}
		return m
	case v.kind == kindList:
		l := make([]any, len(v.items))
		for i, item := range v.items {
			l[i] = plainValue(item)
		}
		return l
	case v.scalar == scalarBool:
		return strings.EqualFold(v.text, "true")
	case v.scalar == scalarInt || v.scalar == scalarFloat:
		if isJSONNumber(v.text) {
			return json.Number(v.text)
		}
	}
	return v.text
}

// isJSONNumber tells whether YAML's number is JSON's too; others (0x1f, .5, .inf) stay text.
func isJSONNumber(s string) bool {
	return len(s) > 0 && s[0] != '+' && json.Valid([]byte(s))
}
