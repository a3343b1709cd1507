package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// What one file may cost (INV-CONFIG-BOUND).
const (
	maxFileBytes = 512 << 10
	maxDepth     = 100
	maxValues    = 100_000
	maxAliased   = 10_000 // values that aliases and merge keys may add
	maxProblems  = 1000
)

// Parse reads one YAML document: aliases and merge keys resolved within bounds, variables substituted in values, positions
// kept. It reports every problem that it can see, in file order. The document is nil only when there is no tree to speak of;
// with problems and a document, Decode finds the rest, so that a person sees all at once. Cost: at most about 1 s and 128 MiB
// for any input; files above 512 KiB are refused. Codes: ERR_CONFIG_SYNTAX, _DOCUMENT, _ALIAS, _DUPLICATE_KEY, _VARIABLE,
// _VALUE (leading zero), _TYPE (tags), _MISSING (empty).
func Parse(file string, data []byte, opt Options) (*Doc, Problems) {
	p := &parser{file: file, opt: opt}
	if len(data) > maxFileBytes {
		return nil, Problems{{File: file, Code: CodeSyntax, Text: "the file is larger than 512 KiB", Suggestion: "split it"}}
	}
	if at := invalidUTF8(data); at >= 0 {
		line := 1 + bytes.Count(data[:at], []byte{'\n'})
		return nil, Problems{{File: file, Line: line, Column: 1, Code: CodeSyntax, Text: "the line is not valid UTF-8", Suggestion: "save the file as UTF-8"}}
	}
	root, ps := p.read(data)
	if root == nil {
		return nil, ps
	}
	p.problems = ps
	tree := p.convert(root)
	if p.stopped {
		return nil, p.problems.Sorted() // half a tree would only bring problems that are none
	}
	return &Doc{file: file, root: tree}, p.problems.Sorted()
}

// Read reads the file through opt.ReadFile and parses it. Codes: ERR_CONFIG_READ, and those of Parse.
func Read(file string, opt Options) (*Doc, Problems) {
	if opt.ReadFile == nil {
		return nil, Problems{{File: file, Code: CodeRead, Text: "files are not read here"}}
	}
	data, err := opt.ReadFile(file)
	if err != nil {
		return nil, Problems{{File: file, Code: CodeRead, Text: "the file cannot be read: " + rootCause(err), Suggestion: "check that it exists and may be read by this user"}}
	}
	return Parse(file, data, opt)
}

func rootCause(err error) string {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err.Error()
		}
		err = next
	}
}

func invalidUTF8(data []byte) int {
	if bytes.HasPrefix(data, []byte{0xff, 0xfe}) || bytes.HasPrefix(data, []byte{0xfe, 0xff}) {
		return 0
	}
	for at := 0; at < len(data); {
		r, n := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && n <= 1 {
			return at
		}
		at += n
	}
	return -1
}

type parser struct {
	file     string
	opt      Options
	problems Problems
	path     []string
	open     map[*yaml.Node]bool // anchored nodes that are being walked: an alias to one of them is a cycle
	values   int
	aliased  int
	inAlias  int
	outer    *yaml.Node // the alias in the file itself whose expansion is under way, and its path
	outerAt  string
	expanded int
	stopped  bool
}

// read lets yaml.v3 make its node tree, which is linear in the file: aliases are pointers there.
func (p *parser) read(data []byte) (root *yaml.Node, ps Problems) {
	defer func() {
		if r := recover(); r != nil { // the reader is not ours: a panic of it is a broken file, not a broken program
			root, ps = nil, Problems{{File: p.file, Code: CodeSyntax, Text: "the file is not valid YAML"}}
		}
	}()
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, Problems{{File: p.file, Line: 1, Column: 1, Code: CodeMissing, Text: "the file is empty"}}
		}
		return nil, Problems{p.syntax(err, data)}
	}
	var next yaml.Node
	switch err := dec.Decode(&next); {
	case errors.Is(err, io.EOF):
	case err != nil:
		ps = append(ps, p.syntax(err, data))
	default:
		ps = append(ps, Problem{File: p.file, Line: max(next.Line, 1), Column: max(next.Column, 1), Code: CodeDocument,
			Text: "a second document starts here", Suggestion: "one file holds one document: remove the '---' or split the file"})
	}
	if len(doc.Content) == 0 {
		return nil, append(ps, Problem{File: p.file, Line: 1, Column: 1, Code: CodeMissing, Text: "the file is empty"})
	}
	return doc.Content[0], ps
}

var (
	yamlLine      = regexp.MustCompile(`^line (\d+): `)
	unknownAnchor = regexp.MustCompile(`^unknown anchor '([^']*)' referenced`)
)

// syntax turns an error of the YAML reader into a problem with a place.
func (p *parser) syntax(err error, data []byte) Problem {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	out := Problem{File: p.file, Line: 1, Column: 1, Code: CodeSyntax}
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		out.Line, _ = strconv.Atoi(m[1])
		text = text[len(m[0]):]
	}
	lines := bytes.Split(data, []byte{'\n'})
	if m := unknownAnchor.FindStringSubmatch(text); m != nil {
		out.Code = CodeAlias
		out.Suggestion = "define it before its first use: &" + m[1]
		for i, line := range lines {
			if at := bytes.Index(line, []byte("*"+m[1])); at >= 0 {
				out.Line, out.Column = i+1, at+1
				break
			}
		}
	}
	if out.Line > len(lines) {
		out.Line = len(lines)
	}
	if line := lines[max(out.Line, 1)-1]; out.Suggestion == "" {
		indent := line[:len(line)-len(bytes.TrimLeft(line, " \t"))]
		if at := bytes.IndexByte(indent, '\t'); at >= 0 {
			out.Column = at + 1
			text, out.Suggestion = "a tab stands in the indentation", "indent with spaces"
		} else {
			out.Column = len(indent) + 1
		}
	}
	out.Text = "not valid YAML: " + text
	return out
}

func (p *parser) problem(n *yaml.Node, code, text, suggestion string) {
	if len(p.problems) >= maxProblems { // the same anchored mistake at each of its aliases
		p.stopped = true
		return
	}
	p.problems = append(p.problems, Problem{File: p.file, Line: n.Line, Column: n.Column, Path: p.at(), Code: code, Text: text, Suggestion: suggestion})
}

func (p *parser) at() string {
	path := ""
	for _, s := range p.path {
		path = join(path, s)
	}
	return path
}

func (p *parser) push(seg string) { p.path = append(p.path, seg) }

func (p *parser) pop() {
	if !p.stopped {
		p.path = p.path[:len(p.path)-1]
	}
}

// enter begins what an alias or a merge key brings.
func (p *parser) enter(n *yaml.Node) {
	if p.inAlias == 0 {
		p.outer, p.outerAt = n, p.at()
	}
	p.inAlias++
}

func (p *parser) stop(n *yaml.Node, code, text, suggestion string) *value {
	if !p.stopped {
		p.problem(n, code, text, suggestion)
		p.stopped = true
	}
	return &value{kind: kindNull, line: n.Line, column: n.Column, broken: true}
}

// convert makes our own tree of a node. It is the only code that follows aliases, and it counts what it makes.
func (p *parser) convert(n *yaml.Node) *value {
	v := &value{line: n.Line, column: n.Column}
	if p.stopped {
		v.broken = true
		return v
	}
	p.values++
	if p.inAlias > 0 {
		p.aliased++
	}
	switch {
	case p.aliased > maxAliased:
		p.path = []string{p.outerAt} // what stops is where the alias is used, not the depth that it led to
		return p.stop(p.outer, CodeAlias, fmt.Sprintf("aliases expand to more than %d values", maxAliased), "write the values out")
	case p.values > maxValues:
		return p.stop(n, CodeSyntax, fmt.Sprintf("the file has more than %d values", maxValues), "split it")
	case len(p.path) > maxDepth:
		return p.stop(n, CodeSyntax, fmt.Sprintf("nested deeper than %d", maxDepth), "")
	}
	if n.Kind == yaml.AliasNode {
		if n.Alias == nil || p.open[n.Alias] {
			return p.stop(n, CodeAlias, fmt.Sprintf("alias *%s holds itself", n.Value), "write the value out")
		}
		p.enter(n)
		v = p.convert(n.Alias)
		p.inAlias--
		return v
	}
	if n.Anchor != "" {
		if p.open == nil {
			p.open = map[*yaml.Node]bool{}
		}
		p.open[n] = true
		defer delete(p.open, n)
	}
	if !p.tagged(n) {
		v.broken = true
		return v
	}
	switch n.Kind {
	case yaml.ScalarNode:
		p.scalar(n, v)
	case yaml.SequenceNode:
		v.kind = kindList
		for i, item := range n.Content {
			p.push("[" + strconv.Itoa(i) + "]")
			v.items = append(v.items, p.convert(item))
			p.pop()
		}
	case yaml.MappingNode:
		v.kind = kindMap
		p.mapping(n, v)
	default:
		v.broken = true
		p.problem(n, CodeSyntax, "not a value", "")
	}
	return v
}

// tagged refuses tags that are not YAML's own.
func (p *parser) tagged(n *yaml.Node) bool {
	if n.Style&yaml.TaggedStyle == 0 {
		return true
	}
	switch n.ShortTag() {
	case "!!str", "!!int", "!!float", "!!bool", "!!null", "!!map", "!!seq":
		return true
	}
	p.problem(n, CodeType, "the tag "+strconv.Quote(n.Tag)+" is not read here", "write the value without it")
	return false
}

var (
	leadingZero = regexp.MustCompile(`^[-+]?0[0-9_]+$`)
	integer     = regexp.MustCompile(`^[-+]?[0-9]+$`)
)

func (p *parser) scalar(n *yaml.Node, v *value) {
	v.kind, v.text = kindText, n.Value
	plain := n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0
	if plain {
		switch n.ShortTag() {
		case "!!null":
			v.kind = kindNull
			return
		case "!!int":
			v.scalar = scalarInt
		case "!!float":
			v.scalar = scalarFloat
			if integer.MatchString(n.Value) { // beyond 64 bits
				v.scalar = scalarInt
			}
		case "!!bool":
			v.scalar = scalarBool
		}
		if leadingZero.MatchString(n.Value) && v.scalar != scalarText {
			v.broken = true
			digits := strings.TrimLeft(strings.TrimLeft(n.Value, "+-"), "0_")
			if digits == "" {
				digits = "0"
			}
			p.problem(n, CodeValue, "a number may not start with 0: readers disagree whether it is octal",
				fmt.Sprintf("write %s, or %q if it is text", digits, n.Value))
			return
		}
	}
	if !strings.Contains(v.text, "$") {
		return
	}
	x, fail := expand(v.text, p.opt)
	if p.expanded += len(x.text); fail == nil && p.expanded > maxExpanded {
		p.stop(n, CodeVariable, "the values of variables are larger than 4 MiB", "large values do not belong in this file")
	}
	if fail != nil {
		v.broken = true
		p.problem(n, CodeVariable, fail.text, fail.suggestion)
		return
	}
	v.source, v.text, v.variable, v.fromFile = v.text, x.text, x.variable, x.fromFile
	v.scalar = scalarText
}

func (p *parser) mapping(n *yaml.Node, v *value) {
	var merges []*yaml.Node
	for i := 0; i+1 < len(n.Content) && !p.stopped; i += 2 {
		key, val := n.Content[i], n.Content[i+1]
		for key.Kind == yaml.AliasNode && key.Alias != nil {
			key = key.Alias
		}
		if key.Kind != yaml.ScalarNode || key.ShortTag() == "!!null" {
			p.problem(n.Content[i], CodeType, "a key is not a name", "write a text before the colon")
			continue
		}
		if key.ShortTag() == "!!merge" {
			merges = append(merges, val)
			continue
		}
		p.push(key.Value)
		if strings.Contains(key.Value, "${") {
			p.problem(n.Content[i], CodeVariable, "variables are not read in keys", "write the name out")
		}
		if first := v.get(key.Value); first != nil {
			p.problem(n.Content[i], CodeDuplicateKey, fmt.Sprintf("the key %s stands twice", strconv.Quote(key.Value)),
				fmt.Sprintf("it is already on line %d: remove one of them", first.line))
		} else {
			v.add(entry{key.Value, n.Content[i].Line, n.Content[i].Column, p.convert(val)})
		}
		p.pop()
	}
	for _, m := range merges {
		p.merge(m, v)
	}
}

// merge adds what a merge key brings: keys that the mapping has itself win, and of a list the earlier mapping wins.
func (p *parser) merge(n *yaml.Node, v *value) {
	from := n
	if n.Kind == yaml.AliasNode {
		from = n.Alias
	}
	if from != nil && from.Kind == yaml.SequenceNode {
		for _, item := range from.Content {
			if p.stopped {
				return
			}
			p.merge(item, v)
		}
		return
	}
	if from == nil || from.Kind != yaml.MappingNode {
		p.problem(n, CodeType, "a merge key '<<' brings mappings only", "write <<: *name with the anchor of a mapping")
		return
	}
	p.enter(n)
	m := p.convert(n)
	p.inAlias--
	for _, e := range m.entries {
		if v.get(e.key) == nil {
			v.add(e)
		}
	}
}
