package docs

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the table of arrows into the page")

// The page's table of arrows is the map that tests/arch_test.go checks imports against.
func TestTheArrowsOfThePageAreThoseThatAreHeld(t *testing.T) {
	page := filepath.Join(root, "docs", "architecture.md")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const head = "| package | may import |\n| --- | --- |\n"
	before, rest, ok := strings.Cut(string(text), head)
	have, after, ok2 := strings.Cut(rest, "\n\n")
	if !ok || !ok2 {
		t.Fatal("the page has no table of arrows")
	}
	want := strings.TrimSuffix(arrows(t), "\n")
	if *update {
		if err := os.WriteFile(page, []byte(before+head+want+"\n\n"+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("the table is not up to date: go test ./tests/docs -run Arrows -update\n%s", diff)
	}
}

func arrows(t *testing.T) string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "tests", "arch_test.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || spec.Names[0].Name != "arrows" || len(spec.Values) != 1 {
			return true
		}
		lit, ok := spec.Values[0].(*ast.CompositeLit)
		if !ok {
			t.Fatal("arrows is no literal")
		}
		for _, e := range lit.Elts {
			kv, ok := e.(*ast.KeyValueExpr)
			if !ok {
				continue
			}
			name := text(t, kv.Key)
			if strings.HasPrefix(name, "tests") || strings.HasSuffix(name, "test") {
				continue
			}
			var to []string
			if list, ok := kv.Value.(*ast.CompositeLit); ok {
				for _, x := range list.Elts {
					to = append(to, "`"+text(t, x)+"`")
				}
			}
			shown := strings.Join(to, ", ")
			switch shown {
			case "":
				shown = "nothing"
			case "`...`":
				shown = "all"
			}
			out.WriteString("| `" + name + "` | " + shown + " |\n")
		}
		return false
	})
	return out.String()
}

func text(t *testing.T, e ast.Expr) string {
	t.Helper()
	lit, ok := e.(*ast.BasicLit)
	if !ok {
		t.Fatal("arrows holds something else than texts")
	}
	s, err := strconv.Unquote(lit.Value)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
