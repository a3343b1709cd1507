package codec

import (
	"math"
	"reflect"
	"slices"
	"strings"

	"reprieve.dev/pipeline"
)

// planEntry keeps what one editor wants of the values of one program.
type planEntry struct {
	p      *program
	e      pipeline.Editor
	quick  pipeline.Indifferent // e, if it is one
	kept   bool                 // it is known again
	root   *planNode
	flat   []flatField // of a root record
	left   int         // nodes that may still be learnt
	learnt int         // of those, from records
}

func newPlan(p *program, e pipeline.Editor, kept bool) planEntry {
	pe := planEntry{p: p, e: e, kept: kept, left: maxPlanNodes}
	pe.quick, _ = e.(pipeline.Indifferent)
	pe.root = pe.node(p.root, "", "", "", nil, false, nil)
	if p.root.op == opRecord {
		pe.flat = pe.root.flat(nil, p.root.slots)
	}
	return pe
}

// Bounds of what a scratch learns: how many plans, how many nodes in each. Beyond them plans are made and thrown away.
const (
	maxPlans     = 64
	maxPlanNodes = 2048
)

// planNode is a place of a schema as one editor sees it: a path of member names, with "*" for array items. Places below a
// recursive type or a map are learnt when a record has them.
type planNode struct {
	t      *typ
	path   string
	place  string // path with "*" for map values too: what the schema itself says
	name   string
	tags   []string
	rule   pipeline.Rule
	least  int64 // integers nearer to zero and strings shorter than this are kept without asking
	quick  bool  // a string of which the editor can tell quickly that it is kept
	any    bool  // there is a rule here or below, or there may be
	star   bool  // the path has a place that differs from record to record
	open   bool  // the kids of the record are not planned yet
	kids   []planKid
	tail   []ins // the fields behind the last kid
	branch []*planNode
	item   *planNode
	keys   map[string]*planNode // of a map: learnt by key
}

type planKid struct {
	field int
	node  *planNode
	seg   string // "/name", as in a path
	skip  []ins  // the fields between the kid before and this one
}

// planFor returns the plan of e for the values of p. A plan is kept for an editor that can be told from others (a pointer).
func (s *Scratch) planFor(p *program, e pipeline.Editor) *planEntry {
	keep := reflect.TypeOf(e).Comparable()
	for i := 0; keep && i < len(s.plans); i++ {
		if pe := &s.plans[i]; pe.p == p && pe.e == e {
			if pe.left <= 0 && pe.learnt > 0 { // full of keys that may never come again: learn anew
				*pe = newPlan(p, e, true)
			}
			return pe
		}
	}
	entry := newPlan(p, e, keep)
	if !keep {
		return &entry
	}
	if len(s.plans) < maxPlans {
		s.plans = append(s.plans, entry)
		return &s.plans[len(s.plans)-1]
	}
	s.plan = (s.plan + 1) % maxPlans
	s.plans[s.plan] = entry
	return &s.plans[s.plan]
}

// node plans the place of t at path. open are the records around it.
func (pe *planEntry) node(t *typ, path, place, name string, tags []string, star bool, open []*typ) *planNode {
	n := &planNode{t: t, path: path, place: place, name: name, tags: tags, star: star}
	pe.left--
	switch t.op {
	case opNull:
	case opRecord:
		if n.open = pe.left <= 0 || slices.Contains(open, t); n.open {
			n.any = true
			return n
		}
		pe.expand(n, append(open, t))
	case opOptional, opUnion:
		for _, b := range t.branches {
			x := pe.node(b, path, place, name, tags, star, open)
			n.branch = append(n.branch, x)
			n.any = n.any || x.any
		}
	case opArray:
		n.item = pe.node(t.item, path+"/*", place+"/*", name, tags, true, open)
		n.any = n.item.any
	case opMap: // the rules depend on the keys
		n.any = true
	default:
		n.rule = pe.ask(n, t.kind())
		n.any = n.rule != 0
		if pe.quick != nil && n.rule != 0 {
			n.least = pe.quick.Least(n.rule, t.kind())
			n.quick = n.least > 0 && t.op == opString
			if n.least > math.MaxInt32 && t.op == opInt { // no number of 32 bits gets there
				n.rule, n.any = 0, false
			}
		}
	}
	return n
}

// ask asks the editor. Under a reader schema a field may have two names: a rule for either holds.
func (pe *planEntry) ask(n *planNode, kind pipeline.ValueKind) pipeline.Rule {
	rule := pe.e.Plan(n.path, n.name, kind, n.tags)
	if r := pe.p.reader; rule == 0 && r != nil {
		if path, ok := r.renamed(n.place); ok {
			rule = pe.e.Plan(path, path[strings.LastIndexByte(path, '/')+1:], kind, n.tags)
		}
	}
	return rule
}

// expand plans the fields of a record and keeps those that have rules.
func (pe *planEntry) expand(n *planNode, open []*typ) {
	n.open, n.any = false, false
	var skip []ins
	for i := range n.t.fields {
		f := &n.t.fields[i]
		seg := "/" + escapeSeg(f.name)
		x := pe.node(f.t, n.path+seg, n.place+seg, f.name, f.tags, n.star, open)
		if x.any {
			n.kids = append(n.kids, planKid{i, x, seg, skip})
			n.any, skip = true, nil
		} else {
			skip = append(skip, f.t.ins(0))
		}
	}
	n.tail = skip
}

// ready returns n with its kids planned: n itself, or a passing one when nothing more may be learnt.
func (pe *planEntry) ready(n *planNode) *planNode {
	if !n.open {
		return n
	}
	if pe.left <= 0 {
		x := *n
		n = &x
	}
	pe.expand(n, []*typ{n.t})
	return n
}

// key returns the node of a map's value under that key.
func (pe *planEntry) key(n *planNode, key []byte) *planNode {
	if k := n.keys[string(key)]; k != nil {
		return k
	}
	name := string(key)
	k := pe.node(n.t.item, n.path+"/"+escapeSeg(name), n.place+"/*", name, n.tags, true, []*typ{n.t.item})
	if pe.left > 0 {
		if n.keys == nil {
			n.keys = map[string]*planNode{}
		}
		n.keys[name] = k
		pe.learnt++
	}
	return k
}

func escapeSeg(s string) string {
	if strings.ContainsAny(s, "~/") {
		s = strings.ReplaceAll(strings.ReplaceAll(s, "~", "~0"), "/", "~1")
	}
	return s
}

func appendSeg(dst []byte, s string) []byte {
	dst = append(dst, '/')
	for i := range len(s) {
		switch s[i] {
		case '~':
			dst = append(dst, '~', '0')
		case '/':
			dst = append(dst, '~', '1')
		default:
			dst = append(dst, s[i])
		}
	}
	return dst
}
