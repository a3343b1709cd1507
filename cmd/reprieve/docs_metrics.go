package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// metric is one that the code asks a Meter for.
type metric struct{ name, kind, help, labels string }

// metricsPage finds every metric in the sources below root: the calls of Counter, Gauge and Histogram whose name begins with
// reprieve_.
func metricsPage(root string) (string, error) {
	var all []metric
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && path != root):
			return filepath.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		all = append(all, metricsOf(file)...)
		return nil
	})
	if err != nil {
		return "", err
	}
	slices.SortFunc(all, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	all = slices.CompactFunc(all, func(a, b metric) bool { return a.name == b.name })
	var b strings.Builder
	b.WriteString(generated + "# Metrics\n\n`/metrics` of a worker serves these in the Prometheus form, beside those of the Go runtime and the process.\n\n" +
		"| metric | kind | labels | means |\n| --- | --- | --- | --- |\n")
	for _, m := range all {
		cells(&b, "`"+m.name+"`", m.kind, m.labels, strings.ToUpper(m.help[:1])+strings.TrimSuffix(m.help[1:], ".")+".")
	}
	return b.String(), nil
}

func metricsOf(file *ast.File) (out []metric) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) < 2 {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		name, help := literal(call.Args[0]), literal(call.Args[1])
		skip, known := map[string]int{"Counter": 2, "Gauge": 2, "Histogram": 3}[sel.Sel.Name]
		if !known || help == "" || !strings.HasPrefix(name, "reprieve_") {
			return true
		}
		var labels []string
		for i, arg := range call.Args[min(skip, len(call.Args)):] {
			if s := literal(arg); s != "" {
				if i%2 == 0 {
					labels = append(labels, s)
				}
			} else if call.Ellipsis.IsValid() {
				labels = append(labels, spread(file, arg)...)
			}
		}
		out = append(out, metric{name, strings.ToLower(sel.Sel.Name), help, strings.Join(labels, ", ")})
		return true
	})
	return out
}

func literal(e ast.Expr) string {
	if l, ok := e.(*ast.BasicLit); ok && l.Kind == token.STRING {
		s, _ := strconv.Unquote(l.Value)
		return s
	}
	return ""
}

// spread finds the label names in what is passed as labels...: a variable or function of the same file that holds a []string
// of names and values in turn, or an append to one.
func spread(file *ast.File, e ast.Expr) (labels []string) {
	switch e := e.(type) {
	case *ast.SliceExpr:
		return spread(file, e.X)
	case *ast.CompositeLit:
		for i, x := range e.Elts {
			if s := literal(x); i%2 == 0 && s != "" {
				labels = append(labels, s)
			}
		}
	case *ast.CallExpr:
		id, ok := e.Fun.(*ast.Ident)
		if !ok {
			return nil
		}
		if id.Name != "append" {
			return named(file, id.Name)
		}
		labels = spread(file, e.Args[0])
		for i, x := range e.Args[1:] {
			if s := literal(x); i%2 == 0 && s != "" {
				labels = append(labels, s)
			}
		}
	case *ast.Ident:
		return named(file, e.Name)
	}
	return labels
}

func named(file *ast.File, name string) (labels []string) {
	first := func(n ast.Node) {
		ast.Inspect(n, func(n ast.Node) bool {
			if c, ok := n.(*ast.CompositeLit); ok && labels == nil {
				labels = spread(file, c)
			}
			return labels == nil
		})
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Name.Name == name && n.Body != nil {
				first(n.Body)
			}
		case *ast.AssignStmt:
			if id, ok := n.Lhs[0].(*ast.Ident); ok && id.Name == name && labels == nil {
				first(n.Rhs[0])
			}
		}
		return true
	})
	return labels
}
