package redact

import "strings"

// fieldRule is one thing that a file names: a path, a name or a tag. Its number in Redactor.fields, from 1, is the rule.
type fieldRule struct {
	segs   []string
	name   string
	tag    string
	action action
}

// matchPath matches a pattern against a pointer. below says that a path under what the pattern names matches too. '*' in the
// path (a codec's place for array items) matches any item of the pattern. It allocates nothing.
func matchPath(pattern []string, path string, below bool) bool {
	for i, p := range pattern {
		if p == "**" {
			for rest := path; ; {
				if matchPath(pattern[i+1:], rest, below) {
					return true
				}
				if rest == "" {
					return false
				}
				_, rest = nextSegment(rest)
			}
		}
		if path == "" {
			return false
		}
		var seg string
		seg, path = nextSegment(path)
		if p != "*" && !sameSegment(p, seg) && !(seg == "*" && itemNumber(p)) {
			return false
		}
	}
	return below || path == ""
}

// nextSegment cuts the first segment, as it is spelled, from a pointer that starts with '/'.
func nextSegment(path string) (seg, rest string) {
	if i := strings.IndexByte(path[1:], '/'); i >= 0 {
		return path[1 : 1+i], path[1+i:]
	}
	return path[1:], ""
}

// sameSegment compares a name with a segment as pointers spell it.
func sameSegment(name, seg string) bool {
	if strings.IndexByte(seg, '~') < 0 {
		return name == seg
	}
	k := 0
	for i := 0; i < len(seg); i++ {
		c := seg[i]
		if c == '~' && i+1 < len(seg) {
			i++
			if c = '~'; seg[i] == '1' {
				c = '/'
			}
		}
		if k == len(name) || name[k] != c {
			return false
		}
		k++
	}
	return k == len(name)
}

func itemNumber(s string) bool {
	for i := 0; i < len(s); i++ {
		if !digit(s[i]) {
			return false
		}
	}
	return len(s) > 0
}

// splitPath is the segments of a pointer.
func splitPath(path string) []string {
	if path == "" {
		return nil
	}
	segs := strings.Split(path[1:], "/")
	for i, s := range segs {
		if strings.IndexByte(s, '~') >= 0 {
			segs[i] = strings.ReplaceAll(strings.ReplaceAll(s, "~1", "/"), "~0", "~")
		}
	}
	return segs
}

// field is the rule for a place, 0 for none: paths before names before tags.
func (r *Redactor) field(path, name string, tags []string) uint16 {
	if r.paths {
		for i := range r.fields {
			if f := &r.fields[i]; f.segs != nil && matchPath(f.segs, path, true) {
				return uint16(i + 1)
			}
		}
	}
	if rule := r.byName(name); rule != 0 {
		return rule
	}
	if r.named && path != "" {
		// A composite that is named goes with all its leaves.
		for rest := path; rest != ""; {
			var seg string
			if seg, rest = nextSegment(rest); len(seg) > 0 {
				if rule := r.byName(seg); rule != 0 {
					return rule
				}
			}
		}
	}
	for _, t := range tags {
		for i := range r.fields {
			if f := &r.fields[i]; f.tag != "" && strings.EqualFold(f.tag, t) {
				return uint16(i + 1)
			}
		}
	}
	return 0
}

// byName is the rule for a member name.
func (r *Redactor) byName(name string) uint16 {
	if !r.named || name == "" {
		return 0
	}
	for i := range r.fields {
		if f := &r.fields[i]; f.name != "" && sameName(f.name, name) {
			return uint16(i + 1)
		}
	}
	return 0
}

// exact says whether a rule, found for a place with '*' in it, holds for the leaf at path.
func (r *Redactor) exact(rule uint16, path string) bool {
	f := &r.fields[rule-1]
	if f.segs == nil {
		return true
	}
	for _, s := range f.segs {
		if itemNumber(s) {
			return matchPath(f.segs, path, true)
		}
	}
	return true
}

// kept says that the detectors leave a place alone.
func (r *Redactor) kept(path string) bool {
	for _, k := range r.keep {
		if matchPath(k, path, true) {
			return true
		}
	}
	return false
}

// identity is the identity field at or above path, "" for none.
func (r *Redactor) identity(path string) string {
	for _, id := range r.ident {
		if strings.HasPrefix(path, id) && (len(path) == len(id) || path[len(id)] == '/') {
			return id
		}
	}
	return ""
}
