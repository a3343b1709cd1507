package config

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"

	"gopkg.in/yaml.v3"
)

// Digest is "sha256:<hex>" over the canonical JSON of the data after variables (CONTRACTS 1): the version stamped on every
// decision. Comments, order of keys, quoting and aliases do not count. A secret counts as its reference (${NAME}), or as ***
// when it is written in the file itself; secrets are what was decoded into a Secret, what came from ${file:...}, and
// variables and client properties whose key says so (password, token ...). Call it when every part is decoded, the settings
// of stages too: types are then known. Numbers that are not integers count as their text.
func (d *Doc) Digest() string {
	sum := sha256.Sum256(appendCanonical(nil, d.root, ""))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Dump is the document as YAML to show to people: after variables, with *** for every secret.
func (d *Doc) Dump() []byte {
	var buf bytes.Buffer
	enc := yaml.NewEncoder(&buf)
	enc.SetIndent(2)
	if err := enc.Encode(dumpNode(d.root, "")); err != nil {
		return []byte("# the document cannot be shown\n") // INV-CONFIG-SECRET: an error could hold a value
	}
	enc.Close()
	return buf.Bytes()
}

// hidden tells whether a scalar below key may not be shown: it is a secret, or could be one by its name as long as nobody
// has said what type it has.
func (v *value) hidden(key string) bool {
	return v.secret || v.fromFile || !v.known && secretName(key)
}

// referenced tells whether a scalar counts by its reference: as hidden, but a literal of an unknown type counts as itself,
// for it may be a setting like "authorization: mask".
func (v *value) referenced(key string) bool {
	return v.secret || v.fromFile || !v.known && v.variable && secretName(key)
}

func appendCanonical(dst []byte, v *value, key string) []byte {
	switch v.kind {
	case kindNull:
		return append(dst, "null"...)
	case kindList:
		dst = append(dst, '[')
		for i, item := range v.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendCanonical(dst, item, key)
		}
		return append(dst, ']')
	case kindMap:
		order := make([]int, len(v.entries))
		for i := range order {
			order[i] = i
		}
		slices.SortFunc(order, func(a, b int) int {
			return slices.Compare(utf16.Encode([]rune(v.entries[a].key)), utf16.Encode([]rune(v.entries[b].key)))
		})
		dst = append(dst, '{')
		for i, n := range order {
			e := &v.entries[n]
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendText(dst, e.key), ':')
			dst = appendCanonical(dst, e.value, e.key)
		}
		return append(dst, '}')
	}
	switch {
	case v.referenced(key) && v.variable:
		return appendText(dst, v.source)
	case v.referenced(key):
		return appendText(dst, mask)
	case v.scalar == scalarBool:
		return append(dst, plainBool(v.text)...)
	case v.scalar == scalarInt && len(v.text) < 16 && isJSONNumber(v.text):
		n, _ := strconv.ParseInt(v.text, 10, 64)
		return strconv.AppendInt(dst, n, 10)
	}
	return appendText(dst, v.text)
}

func plainBool(s string) string {
	if s[0] == 't' || s[0] == 'T' {
		return "true"
	}
	return "false"
}

// appendText writes a text as RFC 8785 does: seal.Canonical over the same data gives the same bytes.
func appendText(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c >= 0x20:
			dst = append(dst, c)
		default:
			if at := strings.IndexByte("\b\t\n\f\r", c); at >= 0 {
				dst = append(dst, '\\', "btnfr"[at])
			} else {
				dst = fmt.Appendf(dst, "\\u%04x", c)
			}
		}
	}
	return append(dst, '"')
}

// textNode is a text that reads as the same text. The block form that people like is kept for texts that it cannot change.
func textNode(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	odd := func(r rune) bool {
		return r != '\n' && r != ' ' && (unicode.IsSpace(r) || unicode.IsControl(r) || !unicode.IsPrint(r))
	}
	if s == "<<" || n.Style == yaml.LiteralStyle && (s[0] <= ' ' || strings.Contains(s, " \n") || strings.HasSuffix(s, " ") || strings.ContainsFunc(s, odd)) {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

func dumpNode(v *value, key string) *yaml.Node {
	n := &yaml.Node{}
	switch v.kind {
	case kindNull:
		n.Kind, n.Tag, n.Value = yaml.ScalarNode, "!!null", "null"
	case kindList:
		n.Kind = yaml.SequenceNode
		for _, item := range v.items {
			n.Content = append(n.Content, dumpNode(item, key))
		}
	case kindMap:
		n.Kind = yaml.MappingNode
		for i := range v.entries {
			e := &v.entries[i]
			n.Content = append(n.Content, textNode(e.key), dumpNode(e.value, e.key))
		}
	default:
		switch {
		case v.hidden(key):
			n.SetString(mask)
		case v.scalar != scalarText:
			n.Kind, n.Value = yaml.ScalarNode, v.text
		default:
			return textNode(v.text)
		}
	}
	return n
}
