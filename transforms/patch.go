package transforms

import (
	"strconv"

	"reprieve.dev/pipeline"
)

// maxGrowth bounds what the copies of one patch may add.
const maxGrowth = 4 << 20

// operation is one step of a JSON Patch (RFC 6902).
type operation struct {
	op         string
	path, from pointer
	value      *node
}

// parsePatch compiles a JSON Patch document.
func parsePatch(patch *node) ([]operation, string) {
	if patch.kind != '[' {
		return nil, "a JSON Patch is an array of operations"
	}
	ops := make([]operation, 0, len(patch.items))
	for i, it := range patch.items {
		where := "operation " + strconv.Itoa(i) + ": "
		if it.v.kind != '{' {
			return nil, where + "it must be an object"
		}
		var o operation
		var hasPath, hasFrom bool
		for _, m := range it.v.members { // unknown members are ignored, as section 4 asks
			switch m.name {
			case "op":
				if m.v.kind == '"' {
					o.op = unquote(m.v.src)
				}
			case "path", "from":
				if m.v.kind != '"' {
					return nil, where + m.name + " must be a JSON pointer"
				}
				p, ok := parsePointer(unquote(m.v.src))
				if !ok {
					return nil, where + m.name + " must be a JSON pointer"
				}
				if m.name == "path" {
					o.path, hasPath = p, true
				} else {
					o.from, hasFrom = p, true
				}
			case "value":
				o.value = m.v
			}
		}
		if !hasPath {
			return nil, where + "path is missing"
		}
		switch o.op {
		case "add", "replace", "test":
			if o.value == nil {
				return nil, where + "value is missing"
			}
		case "move", "copy":
			if !hasFrom {
				return nil, where + "from is missing"
			}
			if o.op == "move" && len(o.path) > len(o.from) && o.path.inside(o.from) {
				return nil, where + "a value cannot be moved into itself"
			}
		case "remove":
		default:
			return nil, where + "op must be add, remove, replace, move, copy or test"
		}
		ops = append(ops, o)
	}
	return ops, ""
}

// patch applies a JSON Patch as a whole: the first operation that cannot be done fails the item.
func (d *document) patch(ops []operation) (changed []string, f *pipeline.Failure) {
	for i := range ops {
		o := &ops[i]
		var what string
		switch o.op {
		case "add":
			what = d.put(o.path, o.value.clone(), true)
		case "replace":
			if d.at(o.path) == nil {
				what = "no such value"
			} else {
				what = d.put(o.path, o.value.clone(), false)
			}
		case "remove":
			what = d.drop(o.path)
		case "copy":
			v := d.at(o.from)
			if v == nil {
				what = "no such value"
				break
			}
			v = v.clone()
			if d.grew += len(v.src); d.grew > maxGrowth { // copies of copies double
				what = "the record grows too large"
				break
			}
			what = d.put(o.path, v, true)
		case "move":
			v := d.at(o.from)
			switch {
			case v == nil:
				what = "no such value"
			case o.path.String() == o.from.String(): // nothing to do
			case len(o.from) == 0:
				what = "the whole record cannot be moved"
			default:
				v = v.clone()
				if what = d.drop(o.from); what == "" {
					what = d.put(o.path, v, true)
				}
			}
		case "test":
			if v := d.at(o.path); v == nil || !v.equal(o.value) {
				what = "the test does not hold"
			}
		}
		if what != "" {
			return nil, refuse(pipeline.CodeTransformFailed, what, pipeline.Str("op", o.op),
				pipeline.Str("path", o.path.String()), pipeline.Int("operation", i))
		}
		switch o.op {
		case "move":
			changed = append(changed, o.from.String(), o.path.String())
		case "test":
		default:
			changed = append(changed, o.path.String())
		}
	}
	return changed, nil
}

// merge applies a JSON Merge Patch (RFC 7396) and returns the pointers that it touched.
func (d *document) merge(patch *node) []string {
	var changed []string
	d.root = mergeInto(d.root, patch, pointer{}, &changed)
	return changed
}

func mergeInto(target, patch *node, at pointer, changed *[]string) *node {
	if patch.kind != '{' {
		if target == nil || !target.equal(patch) {
			*changed = append(*changed, at.String())
			return patch.clone()
		}
		return target
	}
	if target == nil || target.kind != '{' {
		target = &node{kind: '{', src: []byte("{}"), dirty: true, shape: true}
		*changed = append(*changed, at.String())
	}
	for _, m := range patch.members {
		i := target.find(m.name)
		here := append(at[:len(at):len(at)], m.name)
		if m.v.kind == 'n' {
			if i >= 0 {
				target.members = append(target.members[:i:i], target.members[i+1:]...)
				target.dirty, target.shape = true, true
				*changed = append(*changed, here.String())
			}
			continue
		}
		if i < 0 {
			v := mergeInto(nil, m.v, here, changed)
			target.members = append(target.members, member{slot: slot{v: v, from: -1}, raw: m.raw, name: m.name})
			target.dirty, target.shape = true, true
			continue
		}
		n := len(*changed)
		target.members[i].v = mergeInto(target.members[i].v, m.v, here, changed)
		if len(*changed) > n {
			target.dirty = true
		}
	}
	return target
}
