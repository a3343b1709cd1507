package config

import (
	"reflect"
	"strings"
)

// field is one key of a struct, from its tags: yaml (the key; "-" is not read; ",inline" on a map takes all other keys, on a
// struct its fields), doc, default, enum, required.
type field struct {
	name     string
	index    []int
	typ      reflect.Type
	required bool
	def      string
	hasDef   bool
	enum     []string
	doc      string
	rest     bool // an inline map
}

// fieldsOf are the keys of a struct in the order of its fields.
func fieldsOf(t reflect.Type) []field {
	var out []field
	for i := range t.NumField() {
		sf := t.Field(i)
		if !sf.IsExported() && !sf.Anonymous {
			continue
		}
		name, options, _ := strings.Cut(sf.Tag.Get("yaml"), ",")
		inline := strings.Contains(options, "inline") || sf.Anonymous && name == ""
		switch {
		case name == "-":
			continue
		case inline && sf.Type.Kind() == reflect.Struct:
			for _, f := range fieldsOf(sf.Type) {
				f.index = append([]int{i}, f.index...)
				out = append(out, f)
			}
			continue
		case name == "":
			name = strings.ToLower(sf.Name)
		}
		f := field{name: name, index: []int{i}, typ: sf.Type, required: sf.Tag.Get("required") == "true", doc: sf.Tag.Get("doc"), rest: inline}
		f.def, f.hasDef = sf.Tag.Lookup("default")
		if e := sf.Tag.Get("enum"); e != "" {
			f.enum = strings.Split(e, ",")
		}
		out = append(out, f)
	}
	return out
}

func (d *decoder) structure(v *value, rv reflect.Value, path string) {
	if v.kind != kindMap && v.kind != kindNull {
		d.wrong(v, path, "a mapping", "write 'name: value' lines below the key")
		return
	}
	fields := fieldsOf(rv.Type())
	var rest *field
	known := make([]string, 0, len(fields))
	for i := range fields {
		f := &fields[i]
		if f.rest {
			rest = f
			continue
		}
		known = append(known, f.name)
		fv := rv.FieldByIndex(f.index)
		if e := v.get(f.name); e != nil {
			if f.required && e.value.kind == kindNull && !e.value.broken {
				d.problem(e.value, join(path, f.name), CodeMissing, "it is required, and nothing is written", f.hint())
				continue
			}
			d.decode(e.value, fv, join(path, f.name), f)
			if e.value.kind == kindNull { // "attempts: 0" is said; "limits:" with nothing behind it is not
				d.fill(fv, f)
			}
			continue
		}
		if f.required && fv.IsZero() && !f.hasDef {
			d.missing(v, path, f)
		}
		d.fill(fv, f)
	}
	for i := range v.entries {
		e := &v.entries[i]
		if contains(known, e.key) {
			continue
		}
		if rest != nil {
			rv := rv.FieldByIndex(rest.index)
			if rv.IsNil() {
				rv.Set(reflect.MakeMap(rv.Type()))
			}
			d.mapEntry(e, rv, path, nil)
			continue
		}
		d.unknown(e, path, known)
	}
}

func contains(names []string, name string) bool {
	for _, n := range names {
		if n == name {
			return true
		}
	}
	return false
}

func (d *decoder) missing(parent *value, path string, f *field) {
	p := Problem{Path: join(path, f.name), Code: CodeMissing, Text: "it is required", Suggestion: f.hint()}
	if d.doc != nil {
		p.File = d.doc.file
		_, p.Line, p.Column, _ = d.doc.root.find(path)
	}
	if p.Line == 0 {
		p.Line, p.Column = parent.line, parent.column
	}
	d.add(p)
}

// hint says what a missing key would hold.
func (f *field) hint() string {
	switch {
	case len(f.enum) == 1:
		return "add " + f.name + ": " + f.enum[0]
	case len(f.enum) > 1:
		return "add '" + f.name + "': one of " + strings.Join(f.enum, ", ")
	case f.doc != "":
		return "add '" + f.name + "': " + strings.TrimSuffix(lowerFirst(f.doc), ".")
	}
	return "add " + f.name
}

func lowerFirst(s string) string {
	if len(s) > 1 && s[0] >= 'A' && s[0] <= 'Z' && s[1] >= 'a' && s[1] <= 'z' {
		return string(s[0]+'a'-'A') + s[1:]
	}
	return s
}

// fill sets the default of a field that is still zero, and those of the fields of a section that the file does not have.
func (d *decoder) fill(fv reflect.Value, f *field) {
	if f.hasDef && fv.IsZero() && f.def != "" {
		v := &value{kind: kindText, text: f.def, variable: true} // variable: the text takes the type of the field
		if fv.Kind() == reflect.Slice {
			v = &value{kind: kindList}
			for _, s := range strings.Split(f.def, ",") {
				v.items = append(v.items, &value{kind: kindText, text: strings.TrimSpace(s), variable: true})
			}
		}
		inner := &decoder{root: d.root}
		inner.decode(v, fv, f.name, f)
		if len(inner.problems) > 0 {
			panic("config: the default tag of " + f.name + " does not fit: " + inner.problems.Error()) // INV-CONFIG-POINTER
		}
		return
	}
	if fv.Kind() == reflect.Struct && fv.Type() != nodeType && !isScalarStruct(fv.Type()) {
		for _, sub := range fieldsOf(fv.Type()) {
			if !sub.rest {
				s := sub
				d.fill(fv.FieldByIndex(sub.index), &s)
			}
		}
	}
}

// isScalarStruct tells whether a struct is written as one word: a secret, a rate.
func isScalarStruct(t reflect.Type) bool {
	_, ok := reflect.New(t).Interface().(interface{ configScalar() })
	return ok
}
