package codec

import (
	"bytes"
	"encoding/json"
	"strings"
)

// maxSchemaDepth is how deep types may stand in each other in a schema's text.
const maxSchemaDepth = 500

// collectDefaults notes the JSON text of each field default of a schema by the record's full name: into[record][field].
func collectDefaults(text string, into map[string]map[string]string) {
	var raw json.RawMessage
	if json.Unmarshal([]byte(text), &raw) == nil {
		walkDefaults(raw, "", into, 0)
	}
}

func walkDefaults(raw json.RawMessage, namespace string, into map[string]map[string]string, depth int) {
	if depth > maxSchemaDepth {
		return
	}
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return
	}
	switch raw[0] {
	case '[':
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) == nil {
			for _, r := range list {
				walkDefaults(r, namespace, into, depth+1)
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
		walkDefaults(f.Type, namespace, into, depth+1)
	}
	walkDefaults(o.Type, namespace, into, depth+1)
	walkDefaults(o.Items, namespace, into, depth+1)
	walkDefaults(o.Values, namespace, into, depth+1)
}
