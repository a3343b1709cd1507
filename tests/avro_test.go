package tests

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// The Avro library parses schemas and writes what we made. Its decoder ends the process on hostile bytes: it is never called, by any
// name that reaches it.
func TestTheAvroLibraryReadsNoBytes(t *testing.T) {
	allowed := map[string]bool{"NewWriter": true, "Writer": true, "ParseWithCache": true, "SchemaCache": true, "Duration": true, "Boolean": true, "Int": true,
		"Long": true, "Float": true, "Double": true, "Bytes": true}
	files, err := filepath.Glob("../pipeline/codec/*.go")
	if err != nil {
		t.Fatal(err)
	}
	used := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		library := ""
		for _, i := range file.Imports {
			if i.Path.Value == `"github.com/hamba/avro/v2"` {
				if library = "avro"; i.Name != nil {
					library = i.Name.Name
				}
			}
		}
		if library == "" {
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if id, ok := s.X.(*ast.Ident); !ok || id.Name != library {
				return true
			}
			used++
			if what := s.Sel.Name; !allowed[what] && !strings.HasSuffix(what, "Schema") {
				t.Errorf("%s uses %s.%s", filepath.Base(name), library, what)
			}
			return true
		})
	}
	if used < 10 {
		t.Errorf("only %d uses were found: this test looks in the wrong place", used)
	}
}
