package config

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

const draft2020 = "https://json-schema.org/draft/2020-12/schema"

// Schema is the JSON Schema 2020-12 of a file form, by reflection of the tags that Decode reads: root is a Pipeline, a Worker
// or any struct; kinds are the settings of stage kinds by name (pointers to structs, as pipeline.Kind.Settings returns them)
// and may be nil. An editor checks a file with it while it is written: it refuses what Decode refuses and a schema can say.
// Numbers and booleans may also be a variable.
func Schema(root any, kinds map[string]any) ([]byte, error) {
	s := &schemas{kinds: kinds}
	out := s.of(reflect.TypeOf(root), nil)
	out["$schema"] = draft2020
	if t := deref(reflect.TypeOf(root)); t.Name() != "" {
		out["title"] = "reprieve " + strings.ToLower(t.Name()) + " file"
	}
	return json.MarshalIndent(out, "", "  ")
}

// configSchemaer is a type with a form of its own.
type configSchemaer interface{ configSchema() map[string]any }

type schemas struct{ kinds map[string]any }

func deref(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

var (
	stageType  = reflect.TypeFor[Stage]()
	variableOf = map[string]any{"type": "string", "pattern": `\$\{`}
)

func (s *schemas) of(t reflect.Type, f *field) map[string]any {
	t = deref(t)
	if t == stageType {
		return s.stage()
	}
	if t == nodeType {
		return map[string]any{}
	}
	if own, ok := reflect.New(t).Interface().(configSchemaer); ok {
		return own.configSchema()
	}
	if _, ok := reflect.New(t).Interface().(Unmarshaler); ok {
		return map[string]any{} // reads itself: anything may be right
	}
	if t == durationType {
		return Duration(0).configSchema()
	}
	switch t.Kind() {
	case reflect.Struct:
		return s.structure(t)
	case reflect.Map:
		return nullable(map[string]any{"type": "object", "additionalProperties": s.of(t.Elem(), f)})
	case reflect.Slice:
		return nullable(map[string]any{"type": "array", "items": s.of(t.Elem(), f)})
	case reflect.String:
		if f != nil && len(f.enum) > 0 {
			return map[string]any{"anyOf": []any{map[string]any{"enum": f.enum}, variableOf}}
		}
		return map[string]any{"type": []any{"string", "number", "boolean"}}
	case reflect.Bool:
		return map[string]any{"anyOf": []any{map[string]any{"type": "boolean"}, variableOf}}
	case reflect.Float32, reflect.Float64:
		return map[string]any{"anyOf": []any{map[string]any{"type": "number"}, variableOf}}
	case reflect.Interface:
		return map[string]any{}
	}
	number := map[string]any{"type": "integer"}
	if k := t.Kind(); k >= reflect.Uint && k <= reflect.Uint64 {
		number["minimum"] = 0
		if t.Bits() < 64 {
			number["maximum"] = uint64(1)<<t.Bits() - 1
		}
	}
	return map[string]any{"anyOf": []any{number, variableOf}}
}

// nullable lets a section be empty: "allow:" with nothing behind it.
func nullable(s map[string]any) map[string]any {
	s["type"] = []any{s["type"], "null"}
	return s
}

func (s *schemas) structure(t reflect.Type) map[string]any {
	out := map[string]any{"type": "object", "additionalProperties": false}
	properties := map[string]any{}
	var required []string
	for _, f := range fieldsOf(t) {
		if f.rest {
			out["additionalProperties"] = s.of(f.typ.Elem(), nil)
			continue
		}
		p := s.of(f.typ, &f)
		if f.doc != "" {
			p["description"] = f.doc
		}
		if f.hasDef && f.def != "" {
			p["default"] = defaultValue(deref(f.typ), f.def)
		}
		if f.required {
			required = append(required, f.name)
			p = notNull(p)
		}
		properties[f.name] = p
	}
	out["properties"] = properties
	if len(required) > 0 {
		slices.Sort(required)
		out["required"] = required
		return out
	}
	return nullable(out)
}

func notNull(p map[string]any) map[string]any {
	if types, ok := p["type"].([]any); ok && len(types) == 2 && types[1] == "null" {
		p["type"] = types[0]
	}
	return p
}

func defaultValue(t reflect.Type, def string) any {
	switch k := t.Kind(); {
	case t == durationType || t == reflect.TypeFor[Duration]() || t == reflect.TypeFor[Size]():
		return def
	case k == reflect.Bool:
		return def == "true"
	case k >= reflect.Int && k <= reflect.Float64:
		if isJSONNumber(def) {
			return json.Number(def)
		}
	case k == reflect.Slice:
		return strings.Split(def, ",")
	}
	return def
}

// stage is one item of stages: exactly one kind, name and when beside it.
func (s *schemas) stage() map[string]any {
	beside := func(p map[string]any) map[string]any {
		p["name"] = map[string]any{"type": "string", "description": "Name of the stage in failures and metrics; its kind if not said."}
		p["when"] = map[string]any{"type": "string", "description": "CEL condition over view, headers, key and topic: only records that satisfy it pass the stage."}
		return p
	}
	if len(s.kinds) == 0 {
		return map[string]any{"type": "object", "minProperties": 1, "maxProperties": 3}
	}
	names := make([]string, 0, len(s.kinds))
	for name := range s.kinds {
		names = append(names, name)
	}
	slices.Sort(names)
	properties := beside(map[string]any{})
	var one []any
	for _, name := range names {
		p := map[string]any{}
		if settings := s.kinds[name]; settings != nil {
			p = s.of(reflect.TypeOf(settings), nil)
		}
		properties[name] = p
		one = append(one, map[string]any{"required": []string{name}})
	}
	return map[string]any{"type": "object", "properties": properties, "additionalProperties": false, "oneOf": one}
}

// eitherSchema is a section that may be one word instead: any text, or one of words.
func eitherSchema(form any, words ...string) map[string]any {
	word := map[string]any{"type": "string"}
	if len(words) > 0 {
		word = map[string]any{"enum": words}
	}
	section := (&schemas{}).of(reflect.TypeOf(form), nil)
	return map[string]any{"anyOf": []any{word, variableOf, section, map[string]any{"type": "null"}}}
}

// Reference is one line of the reference of a file form.
type Reference struct {
	Path, Type, Default, Doc string
	Enum                     []string
	Required                 bool
}

// References lists every key of a file form in its order, for the generated reference. "[]" is an item of a list, "*" a key
// that people name themselves.
func References(root any) []Reference {
	var out []Reference
	var walk func(t reflect.Type, path string)
	walk = func(t reflect.Type, path string) {
		for _, f := range fieldsOf(t) {
			at := join(path, f.name)
			if f.rest {
				at = join(path, "*")
			}
			out = append(out, Reference{at, typeName(f.typ), f.def, f.doc, f.enum, f.required})
			inner := deref(f.typ)
			for inner.Kind() == reflect.Slice || inner.Kind() == reflect.Map {
				if inner.Kind() == reflect.Slice {
					at += "[]"
				} else if !f.rest {
					at = join(at, "*")
				}
				inner = deref(inner.Elem())
			}
			switch inner {
			case reflect.TypeFor[Reconcile]():
				inner = reflect.TypeFor[reconcileForm]()
			case reflect.TypeFor[Encode]():
				inner = reflect.TypeFor[encodeForm]()
			}
			if inner.Kind() == reflect.Struct && inner != nodeType && inner != stageType && !isScalarStruct(inner) {
				walk(inner, at)
			}
		}
	}
	walk(deref(reflect.TypeOf(root)), "")
	return out
}

func typeName(t reflect.Type) string {
	t = deref(t)
	switch t {
	case reflect.TypeFor[Duration](), reflect.TypeFor[time.Duration]():
		return "duration"
	case reflect.TypeFor[Size]():
		return "size"
	case reflect.TypeFor[Rate]():
		return "rate"
	case reflect.TypeFor[Secret]():
		return "secret"
	case stageType:
		return "stage"
	}
	switch k := t.Kind(); {
	case k == reflect.Slice:
		return "list of " + typeName(t.Elem())
	case k == reflect.Map:
		return "mapping of " + typeName(t.Elem())
	case k == reflect.Struct, k == reflect.Interface:
		return "section"
	case k == reflect.Bool:
		return "true or false"
	case k == reflect.Float32 || k == reflect.Float64:
		return "number"
	case k == reflect.String:
		return "text"
	}
	return "whole number" + bitsNote(t)
}

func bitsNote(t reflect.Type) string {
	if t.Kind() == reflect.Uint8 {
		return " up to " + strconv.Itoa(255)
	}
	return ""
}
