package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Unmarshaler is a type that reads itself from a node: a scalar with a form of its own, or a section that can be written in
// two ways. Problems come with n.Problem.
type Unmarshaler interface{ UnmarshalConfig(n Node) Problems }

// Validator checks a value once it is decoded: what the type alone cannot say. It is called on the pointer, children before
// parents, also when the file has problems elsewhere; a problem at a place that already has one is dropped.
type Validator interface{ Validate(n Node) Problems }

var (
	nodeType     = reflect.TypeFor[Node]()
	durationType = reflect.TypeFor[time.Duration]()
)

// Decode reads the node into the pointer into, strictly: what into already holds are the defaults; `default:"..."` fills a
// field that is zero and not in the file; unknown keys, wrong types, missing `required:"true"` keys and values outside
// `enum:"a,b"` are problems, all at once and in file order. Then each Validator is asked. An absent or null node only brings
// defaults and what is required. Codes: ERR_CONFIG_UNKNOWN_KEY, _TYPE, _VALUE, _MISSING, and those of Validators.
func (n Node) Decode(into any) Problems {
	rv := reflect.ValueOf(into)
	if rv.Kind() != reflect.Pointer || rv.IsNil() {
		panic("config: Decode needs a pointer") // INV-CONFIG-POINTER: a mistake of the program, not of a file
	}
	d := &decoder{doc: n.doc, root: rv.Elem().Type()}
	v := n.value
	if v == nil {
		v = &value{kind: kindNull}
	}
	d.decode(v, rv.Elem(), n.path, nil)
	found := d.problems
	for _, c := range d.checks {
		for _, p := range c.validator.Validate(c.node) {
			if len(found) < maxProblems && !covered(d.problems, p.Path) && !n.unjudged(p.Path) {
				found = append(found, p)
			}
		}
	}
	return found.Sorted()
}

// covered tells whether a place, or one below or above it other than an unknown key, already has a problem.
func covered(ps Problems, path string) bool {
	return slices.ContainsFunc(ps, func(p Problem) bool {
		return p.Code != CodeUnknownKey && p.Path != "" && (within(p.Path, path) || path != "" && within(path, p.Path))
	})
}

// unjudged tells whether Parse already reported a problem at a path of the document or below it.
func (n Node) unjudged(path string) bool {
	if n.doc == nil {
		return false
	}
	v, _, _, ok := n.doc.root.find(path)
	return ok && path != "" && v.anyBroken()
}

// within tells whether path is outer or below it.
func within(outer, path string) bool {
	rest, ok := strings.CutPrefix(path, outer)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

type check struct {
	validator Validator
	node      Node
}

type decoder struct {
	doc      *Doc
	root     reflect.Type
	problems Problems
	checks   []check
	bad      map[*value]bool
	more     bool // not all problems are kept
}

func (d *decoder) problem(v *value, path, code, text, suggestion string) {
	p := Problem{Path: path, Code: code, Text: text, Suggestion: suggestion, Line: v.line, Column: v.column}
	if d.doc != nil {
		p.File = d.doc.file
		if v.line == 0 {
			_, p.Line, p.Column, _ = d.doc.root.find(path)
		}
	}
	if d.bad == nil {
		d.bad = map[*value]bool{}
	}
	d.bad[v] = true // in this reading only: a second Decode must find the same
	d.add(p)
}

// add keeps a problem; beyond maxProblems it only says so.
func (d *decoder) add(ps ...Problem) {
	for _, p := range ps {
		if len(d.problems) < maxProblems {
			d.problems = append(d.problems, p)
		} else if !d.more {
			d.more = true
			d.problems = append(d.problems, Problem{File: p.File, Line: p.Line, Column: p.Column, Code: p.Code,
				Text: "from here on there are more problems than are listed"})
		}
	}
}

func (d *decoder) wrong(v *value, path, want, suggestion string) {
	text := fmt.Sprintf("%s is wanted here, not %s", want, v.name())
	if v.kind == kindNull {
		text = fmt.Sprintf("%s is wanted here, and nothing is written", want)
	}
	d.problem(v, path, CodeType, text, suggestion)
}

func (d *decoder) decode(v *value, rv reflect.Value, path string, f *field) {
	if v.broken {
		return // told already; its real type is not known
	}
	t := rv.Type()
	node := Node{d.doc, v, path}
	if t == nodeType {
		rv.Set(reflect.ValueOf(node))
		return
	}
	if t.Kind() == reflect.Pointer {
		if v.kind == kindNull {
			return
		}
		if rv.IsNil() {
			rv.Set(reflect.New(t.Elem()))
		}
		d.decode(v, rv.Elem(), path, f)
		return
	}
	if rv.CanAddr() {
		if u, ok := rv.Addr().Interface().(Unmarshaler); ok {
			if v.kind == kindNull && !takesNull(t) {
				d.wrong(v, path, "a value", "")
				return
			}
			ps := u.UnmarshalConfig(node)
			d.add(ps...)
			if len(ps) > 0 {
				return
			}
			d.enum(v, rv, path, f)
			d.validator(rv, node)
			return
		}
	}
	if t == durationType {
		d.duration(v, rv, path)
		return
	}
	switch t.Kind() {
	case reflect.Struct:
		d.structure(v, rv, path)
		d.validator(rv, node)
	case reflect.Map:
		d.mapping(v, rv, path, f)
		d.validator(rv, node)
	case reflect.Slice:
		d.list(v, rv, path, f)
		d.validator(rv, node)
	case reflect.Interface:
		if t.NumMethod() == 0 {
			if x := plainValue(v); x != nil {
				rv.Set(reflect.ValueOf(x))
			}
			return
		}
		panic("config: cannot decode into " + t.String()) // INV-CONFIG-POINTER
	default:
		d.scalar(v, rv, path)
		d.enum(v, rv, path, f)
		d.validator(rv, node)
	}
}

// takesNull tells whether nothing written is fine for a type that reads itself: sections, not scalars.
func takesNull(t reflect.Type) bool {
	return (t.Kind() == reflect.Struct || t.Kind() == reflect.Map || t.Kind() == reflect.Slice) && !isScalarStruct(t)
}

func (d *decoder) validator(rv reflect.Value, node Node) {
	if !rv.CanAddr() {
		return
	}
	if c, ok := rv.Addr().Interface().(Validator); ok {
		d.checks = append(d.checks, check{c, node})
	}
}

func (d *decoder) mapping(v *value, rv reflect.Value, path string, f *field) {
	if v.kind == kindNull {
		return
	}
	if v.kind != kindMap {
		d.wrong(v, path, "a mapping", "write 'name: value' lines below the key")
		return
	}
	t := rv.Type()
	if rv.IsNil() {
		rv.Set(reflect.MakeMapWithSize(t, len(v.entries)))
	}
	for i := range v.entries {
		d.mapEntry(&v.entries[i], rv, path, f)
	}
}

func (d *decoder) mapEntry(e *entry, rv reflect.Value, path string, f *field) {
	t := rv.Type()
	key := reflect.New(t.Key()).Elem()
	if key.Kind() != reflect.String {
		panic("config: the keys of " + t.String() + " are not text") // INV-CONFIG-POINTER
	}
	key.SetString(e.key)
	if k := t.Elem().Kind(); secretName(e.key) && (k == reflect.String || k == reflect.Interface) {
		e.value.secret = true
	}
	elem := reflect.New(t.Elem()).Elem()
	if e.value.kind == kindNull && t.Elem().Kind() == reflect.Pointer && t.Elem().Elem().Kind() == reflect.Struct {
		elem.Set(reflect.New(t.Elem().Elem())) // "main:" with nothing behind it is a member with all defaults
		d.decode(e.value, elem.Elem(), join(path, e.key), f)
	} else {
		d.decode(e.value, elem, join(path, e.key), f)
	}
	rv.SetMapIndex(key, elem)
}

func (d *decoder) list(v *value, rv reflect.Value, path string, f *field) {
	if v.kind == kindNull {
		return
	}
	if v.kind != kindList {
		suggestion := "write '- ' before each item"
		if v.kind == kindText {
			suggestion = "put it in brackets: [...]"
			if !v.variable && !v.secret && len(v.text) < 40 && !strings.ContainsAny(v.text, ",[]{}\n") {
				suggestion = "write [" + v.text + "]"
			}
		}
		d.wrong(v, path, "a list", suggestion)
		return
	}
	out := reflect.MakeSlice(rv.Type(), len(v.items), len(v.items))
	for i, item := range v.items {
		d.decode(item, out.Index(i), joinIndex(path, i), f)
	}
	rv.Set(out)
}

func (d *decoder) duration(v *value, rv reflect.Value, path string) {
	if v.kind != kindText {
		d.wrong(v, path, "a duration", "write 100ms, 30s or 30d")
		return
	}
	n, fail := parseDuration(v.text)
	if fail != "" {
		d.problem(v, path, CodeValue, fail, suggestDuration(v))
		return
	}
	rv.SetInt(int64(n))
}

func (d *decoder) scalar(v *value, rv reflect.Value, path string) {
	v.known = true
	k := rv.Kind()
	switch {
	case k == reflect.String:
		if v.kind != kindText {
			d.wrong(v, path, "text", "")
			return
		}
		rv.SetString(v.text) // numbers and true stand for their own text: release: 2.10 stays 2.10
	case k == reflect.Bool:
		if v.kind != kindText || v.scalar != scalarBool && !v.variable || v.text != "true" && v.text != "false" {
			d.wrong(v, path, "true or false", suggestBool(v))
			return
		}
		rv.SetBool(v.text == "true")
	case k >= reflect.Int && k <= reflect.Int64:
		text, ok := d.number(v, path, scalarInt)
		if !ok {
			return
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || rv.OverflowInt(n) {
			d.problem(v, path, CodeValue, fmt.Sprintf("the number must be between %d and %d", -1<<(rv.Type().Bits()-1), uint64(1)<<(rv.Type().Bits()-1)-1), "")
			return
		}
		rv.SetInt(n)
	case k >= reflect.Uint && k <= reflect.Uint64:
		text, ok := d.number(v, path, scalarInt)
		if !ok {
			return
		}
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil || rv.OverflowUint(n) {
			d.problem(v, path, CodeValue, fmt.Sprintf("the number must be between 0 and %d", ^uint64(0)>>(64-rv.Type().Bits())), "")
			return
		}
		rv.SetUint(n)
	case k == reflect.Float32 || k == reflect.Float64:
		text, ok := d.number(v, path, scalarFloat)
		if !ok {
			return
		}
		n, err := strconv.ParseFloat(text, rv.Type().Bits())
		if err != nil {
			d.problem(v, path, CodeValue, "the number is out of range", "")
			return
		}
		rv.SetFloat(n)
	default:
		panic("config: cannot decode into " + rv.Type().String()) // INV-CONFIG-POINTER
	}
}

// number is the text of a decimal number. Text in quotes is none; what a variable holds may be one.
func (d *decoder) number(v *value, path string, want scalarType) (string, bool) {
	what := "a whole number"
	if want == scalarFloat {
		what = "a number"
	}
	if v.kind != kindText || !v.variable && v.scalar != scalarInt && (want == scalarInt || v.scalar != scalarFloat) {
		suggestion := ""
		if v.kind == kindText && !v.variable && isJSONNumber(v.text) {
			suggestion = "write it without quotes"
			if v.scalar == scalarFloat {
				suggestion = ""
			}
		}
		d.wrong(v, path, what, suggestion)
		return "", false
	}
	if !isJSONNumber(v.text) || want == scalarInt && !integer.MatchString(v.text) {
		d.problem(v, path, CodeType, what+" is wanted here", "write it in decimal digits")
		return "", false
	}
	return v.text, true
}

func (d *decoder) enum(v *value, rv reflect.Value, path string, f *field) {
	if f == nil || len(f.enum) == 0 || rv.Kind() != reflect.String || d.bad[v] || v.kind != kindText {
		return
	}
	if s := rv.String(); !slices.Contains(f.enum, s) {
		suggestion := "write one of " + strings.Join(f.enum, ", ")
		if len(f.enum) == 1 {
			suggestion = "write " + f.enum[0]
		} else if near := nearest(s, f.enum); near != "" && !v.variable {
			suggestion = "did you mean " + near + "? " + suggestion
		}
		d.problem(v, path, CodeValue, v.shown()+" is not allowed here", suggestion)
	}
}

func suggestBool(v *value) string {
	if v.kind != kindText || v.variable {
		return "write true or false"
	}
	switch strings.ToLower(v.text) {
	case "yes", "y", "on", "true", "1":
		return "write true, without quotes"
	case "no", "n", "off", "false", "0":
		return "write false, without quotes"
	}
	return "write true or false"
}
