package expr

import (
	"slices"
	"strings"

	celast "github.com/google/cel-go/common/ast"

	"reprieve.dev/pipeline"
)

// Paths are the places of the view that the condition reads by a fixed path and does not guard with has(), each once, sorted:
// where a record has none of them, the condition may end with an error. What it reads of the items of a list that it walks is
// not among them.
func (c *Cond) Paths() []*pipeline.Path {
	t := &translator{c.prog}
	inner := map[int64]bool{} // a part of a longer path
	var read, guarded []*pipeline.Path
	celast.PreOrderVisit(c.prog.ast.NativeRep().Expr(), celast.NewExprVisitor(func(x celast.Expr) {
		if x.Kind() == celast.SelectKind && x.AsSelect().IsTestOnly() {
			if l, ok := t.path(x.AsSelect().Operand()); ok && l.root == rootView {
				if m, ok := l.member(x.AsSelect().FieldName()); ok {
					guarded = append(guarded, m.path)
				}
			}
			return
		}
		l, ok := t.path(x)
		if !ok || l.root != rootView || len(l.path.Segs) == 0 {
			return
		}
		inner[before(x).ID()] = true
		if !inner[x.ID()] {
			read = append(read, l.path)
		}
	}))
	read = slices.DeleteFunc(read, func(p *pipeline.Path) bool {
		return slices.ContainsFunc(guarded, func(g *pipeline.Path) bool { return p.Text == g.Text || strings.HasPrefix(p.Text, g.Text+"/") })
	})
	slices.SortFunc(read, func(a, b *pipeline.Path) int { return strings.Compare(a.Text, b.Text) })
	return slices.CompactFunc(read, func(a, b *pipeline.Path) bool { return a.Text == b.Text })
}

// before is a path without its last step.
func before(x celast.Expr) celast.Expr {
	if x.Kind() == celast.CallKind {
		return x.AsCall().Args()[0]
	}
	return x.AsSelect().Operand()
}
