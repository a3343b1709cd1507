package codec

import (
	"bytes"
	"encoding/json"
	"strings"
)

// collectDefaults notes the JSON text of each field default of a schema by the record's full name: into[record][field].
func collectDefaults(text string, into map[string]map[string]string) {
	var raw json.RawMessage
	if json.Unmarshal([]byte(text), &raw) == nil {
		walkDefaults(raw, "", into)
	}
}

func walkDefaults(raw json.RawMessage, namespace string, into map[string]map[string]string) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return
	}
	switch raw[0] {
	case '[':
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) == nil {
			for _, r := range list {
				walkDefaults(r, namespace, into)
			}
		}
		return
	case '{':
	default:
		return
	}
	var o struct {
		Name, Namespace string
		Type            json.RawMessage
		Items, Values   json.RawMessage
		Fields          []struct {
			Name    string
			Type    json.RawMessage
			Default json.RawMessage
		}
	}
	if json.Unmarshal(raw, &o) != nil {
		return
	}
	full := o.Name
	if dot := strings.LastIndexByte(full, '.'); dot >= 0 {
		namespace = full[:dot]
	} else {
		if o.Namespace != "" {
			namespace = o.Namespace
		}
		if namespace != "" && full != "" {
			full = namespace + "." + full
		}
	}
	for _, f := range o.Fields {
		if f.Default != nil {
			m := into[full]
			if m == nil {
				m = map[string]string{}
				into[full] = m
			}
			m[f.Name] = string(f.Default)
		}
		walkDefaults(f.Type, namespace, into)
	}
	walkDefaults(o.Type, namespace, into)
	walkDefaults(o.Items, namespace, into)
	walkDefaults(o.Values, namespace, into)
}
