package codec

import "reprieve.dev/pipeline"

// JoinJSON appends an object with the members of joins, which replace those of their names. Of several of one name the last
// counts; every other member stays as it is written. What joins hold must be JSON. Codes: ERR_ROUTE_ENCODE (the text is no object).
func JoinJSON(dst, object []byte, joins []pipeline.Join) ([]byte, error) {
	var p jsonScan
	l := Limits{Items: 1 << 40}.withDefaults()
	if !p.document(object, 0, &l) || p.nodes[0].kind != jsonObject {
		return dst, encodeError("", "the value is no object: it takes no member")
	}
	last := map[string]int{}
	for k, j := range joins {
		last[j.Name] = k
	}
	dst = append(dst, '{')
	empty := len(dst)
	comma := func() {
		if len(dst) > empty {
			dst = append(dst, ',')
		}
	}
	for i := uint32(1); i < p.nodes[0].next; i = p.nodes[i].next {
		n := &p.nodes[i]
		name := object[n.name:n.nameEnd]
		if n.nameEsc {
			name = unescape(nil, name)
		}
		if _, replaced := last[string(name)]; replaced {
			continue
		}
		comma()
		dst = append(dst, object[n.name-1:n.end]...) // from the name's quote on
	}
	for k, j := range joins {
		if last[j.Name] != k {
			continue
		}
		comma()
		dst = appendJSONLeaf(dst, jsonString, []byte(j.Name))
		dst = append(append(dst, ':'), j.JSON...)
	}
	return append(dst, '}'), nil
}
