package main

import (
	"reflect"
	"strings"

	"reprieve.dev/config"
)

// settingsOf writes a row for each key of a settings struct and of those below it, from the tags that the loader reads.
func settingsOf(b *strings.Builder, path string, v any) {
	t := reflect.TypeOf(v)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	settingsOfType(b, path, t)
}

func settingsOfType(b *strings.Builder, path string, t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, rest, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if rest == "inline" {
			settingsOfType(b, path, f.Type)
			continue
		}
		if name == "" || name == "-" {
			continue
		}
		key := name
		if path != "" {
			key = path + "." + name
		}
		kind, below, suffix := settingType(f.Type)
		if e := f.Tag.Get("enum"); e != "" {
			kind = strings.ReplaceAll(e, ",", ", ")
			if suffix == "[]" {
				kind = "list of " + kind
			}
		}
		shown := "`" + key + "`"
		if f.Tag.Get("required") == "true" {
			shown += " *"
		}
		cells(b, shown, kind, f.Tag.Get("default"), f.Tag.Get("doc"))
		if below != nil {
			settingsOfType(b, key+suffix, below)
		}
	}
}

// settingType is what a type is called in the reference, the struct below it, and how its path goes on.
func settingType(t reflect.Type) (kind string, below reflect.Type, suffix string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[config.Duration]():
		return "duration", nil, ""
	case reflect.TypeFor[config.Size]():
		return "size", nil, ""
	case reflect.TypeFor[config.Rate]():
		return "rate", nil, ""
	case reflect.TypeFor[config.Secret]():
		return "secret", nil, ""
	case reflect.TypeFor[config.Reconcile]():
		return "here, outcomes, or a section http", nil, ""
	case reflect.TypeFor[config.Encode]():
		return "json, or a section {avro: SUBJECT, registry: NAME}", nil, ""
	case reflect.TypeFor[config.Stage]():
		return "list of stages", nil, ""
	case reflect.TypeFor[config.Ledger]():
		return "URL", nil, ""
	case reflect.TypeFor[config.Properties]():
		return "properties of librdkafka", nil, ""
	}
	switch t.Kind() {
	case reflect.Struct:
		return "section", t, ""
	case reflect.Slice:
		kind, below, more := settingType(t.Elem())
		if strings.HasPrefix(kind, "list") {
			return kind, below, more
		}
		if below != nil {
			kind = "sections"
		}
		return "list of " + kind, below, "[]" + more
	case reflect.Map:
		kind, below, more := settingType(t.Elem())
		return "by name: " + kind, below, ".NAME" + more
	case reflect.Bool:
		return "true or false", nil, ""
	case reflect.String:
		return "text", nil, ""
	}
	return "number", nil, ""
}
