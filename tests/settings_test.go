package tests

import (
	"go/ast"
	"go/types"
	"reflect"
	"slices"
	"strings"
	"testing"

	load "golang.org/x/tools/go/packages"
)

// refused are sections and settings that a file is refused for where it says them (ERR_NOT_AVAILABLE): nothing reads them yet. And the
// version of the form, which the decoder holds to its list.
var refused = []string{"Breaker", "OIDC", "OTLP", "HTTP.OIDC", "Telemetry.OTLP", "Bounds.LeaseExtensions", "Pipeline.APIVersion"}

// A setting that nothing reads would be a promise that nobody keeps: each is read somewhere, or the file is refused for it.
func TestEverySettingIsRead(t *testing.T) {
	if testing.Short() {
		t.Skip("it reads the types of the whole module")
	}
	pkgs, err := load.Load(&load.Config{Mode: load.LoadSyntax, Dir: ".."}, "./...")
	if err != nil || load.PrintErrors(pkgs) > 0 {
		t.Fatal("the packages cannot be loaded: ", err)
	}
	settings, read := map[string]bool{}, map[string]bool{}
	for _, p := range pkgs {
		if p.PkgPath == "reprieve.dev/config" || p.PkgPath == "reprieve.dev/pipeline/stage" {
			declared(p.Types, settings)
		}
		for _, f := range p.Syntax {
			readBy(p.TypesInfo, f, read)
		}
	}
	if len(settings) < 150 {
		t.Fatalf("only %d settings were found", len(settings))
	}
	var dead []string
	for name := range settings {
		section, _, _ := strings.Cut(name, ".")
		if !read[name] && !slices.Contains(refused, section) && !slices.Contains(refused, name) {
			dead = append(dead, name)
		}
	}
	slices.Sort(dead)
	for _, name := range dead {
		t.Errorf("nothing reads %s", name)
	}
}

// declared notes the settings of a package: fields of its types that have a name in YAML.
func declared(p *types.Package, into map[string]bool) {
	for _, name := range p.Scope().Names() {
		s, ok := p.Scope().Lookup(name).Type().Underlying().(*types.Struct)
		if _, named := p.Scope().Lookup(name).(*types.TypeName); !ok || !named {
			continue
		}
		for i := range s.NumFields() {
			if yaml, ok := reflect.StructTag(s.Tag(i)).Lookup("yaml"); ok && yaml != "-" {
				into[name+"."+s.Field(i).Name()] = true
			}
		}
	}
}

// readBy notes the fields that a file reads. What is only assigned is not read.
func readBy(info *types.Info, f *ast.File, into map[string]bool) {
	assigned := map[ast.Expr]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, l := range n.Lhs {
				assigned[l] = true
			}
		case *ast.SelectorExpr:
			s := info.Selections[n]
			if s == nil || s.Kind() != types.FieldVal || assigned[n] {
				return true
			}
			from := s.Recv()
			for _, i := range s.Index() { // through embedded structs
				if ptr, ok := from.Underlying().(*types.Pointer); ok {
					from = ptr.Elem()
				}
				field := from.Underlying().(*types.Struct).Field(i)
				if named, ok := from.(*types.Named); ok {
					into[named.Obj().Name()+"."+field.Name()] = true
				}
				from = field.Type()
			}
		}
		return true
	})
}
