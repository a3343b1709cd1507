// Package tests holds what is true of the whole tree.
package tests

import (
	"bytes"
	"encoding/json"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const module = "reprieve.dev"

// arrows is what each package of ours may import of ours, besides config, pipeline and seal, which everybody may. A name with
// /... covers what is below. It is the drawing of docs/architecture.md, and the only place to change when an arrow is added.
var arrows = map[string][]string{
	"config":   {},
	"pipeline": {},
	"seal":     {},

	"pipeline/expr":       {},
	"pipeline/codec":      {},
	"pipeline/control":    {},
	"pipeline/kafka":      {},
	"pipeline/deadletter": {},
	"pipeline/call":       {},

	"pipeline/redact": {"pipeline/codec"},
	"pipeline/decide": {"pipeline/expr"},
	"transforms":      {"pipeline/codec", "pipeline/expr"},
	"ledger":          {},
	"embedded":        {"pipeline/codec"},

	"pipeline/stage":  {"pipeline/codec", "pipeline/expr", "pipeline/redact", "pipeline/call"},
	"pipeline/engine": {"pipeline/decide", "pipeline/deadletter", "pipeline/control"},
	"plugins":         {"transforms", "pipeline/redact", "plugins/wire", "plugins/sandbox"},
	"plugins/wire":    {},
	"plugins/sandbox": {},
	"plugins/sdk":     {"plugins/wire"},

	"custody": {"ledger", "pipeline/deadletter", "pipeline/redact", "pipeline/control", "pipeline/codec"},
	"redrive": {"custody", "ledger", "transforms", "pipeline/codec", "pipeline/expr", "pipeline/redact", "pipeline/deadletter",
		"pipeline/control", "pipeline/call"},

	"api":     {"custody", "redrive", "pipeline/control", "pipeline/expr", "ledger"},
	"console": {"api", "custody", "redrive"},
	"worker":  {"pipeline/...", "custody", "redrive", "ledger", "transforms", "plugins/..."},

	"examples/billing": {"pipeline/codec"},

	"tests/conformance":           {"pipeline/...", "transforms", "plugins/...", "ledger", "embedded"},
	"tests/conformance/script":    {"pipeline/deadletter", "pipeline/decide"},
	"tests/services":              {},
	"tests/services/cmd/services": {"tests/services"},
	"tests/bench":                 {"..."},
	"tests/chaos":                 {"..."},
	"tests/drill":                 {"..."},
	"tests/drill/gateway":         {},
	"tests/integration":           {"..."},
	"custody/custodytest":         {"custody", "ledger", "ledger/ledgertest", "pipeline/deadletter", "tests/services"},
	"ledger/ledgertest":           {"ledger", "tests/services"},
	"cmd/reprieve":                {"..."},
}

// homes is where each third party may be imported. Tests may import what they like.
var homes = map[string][]string{
	"github.com/google/cel-go":                   {"pipeline/expr"},
	"github.com/hamba/avro":                      {"pipeline/codec"},
	"github.com/riferrei/srclient":               {"pipeline/codec"},
	"gopkg.in/yaml.v3":                           {"config", "cmd/reprieve"},
	"github.com/confluentinc/confluent-kafka-go": {"pipeline/kafka", "tests/bench"},
	"github.com/twmb/franz-go":                   {"embedded", "tests/services", "tests/bench", "tests/chaos", "tests/integration"},
	"github.com/mattn/go-sqlite3":                {"ledger", "examples/embed"},
	"github.com/jackc/pgx":                       {"ledger", "ledger/ledgertest", "tests/services", "tests/drill/gateway"},
	"github.com/pressly/goose":                   {"ledger"},
	"database/sql":                               {"ledger", "custody", "redrive", "api", "examples/embed", "ledger/ledgertest", "custody/custodytest", "tests/drill/gateway"},
	"github.com/hashicorp/go-plugin":             {"plugins", "plugins/sdk", "tests/conformance/plugin/hostile"},
	"google.golang.org/grpc":                     {"plugins", "plugins/sdk", "plugins/wire", "tests/conformance/plugin/hostile"},
	"github.com/danielgtaylor/huma":              {"api"},
	"gocloud.dev":                                {"worker", "cmd/reprieve"},
	"github.com/spf13/cobra":                     {"cmd/reprieve"},
	"github.com/prometheus/client_golang":        {"worker", "api", "cmd/reprieve"},
}

type listed struct {
	ImportPath, Dir   string
	Imports           []string
	GoFiles, CgoFiles []string
	TestImports       []string
	XTestImports      []string
}

func packages(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Imports,GoFiles,CgoFiles,TestImports,XTestImports", "./...")
	cmd.Dir = ".."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var all []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var p listed
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if len(all) < 10 {
		t.Fatalf("go list found only %d packages", len(all))
	}
	return all
}

func short(path string) string { return strings.TrimPrefix(strings.TrimPrefix(path, module), "/") }

func covers(allowed []string, pkg string) bool {
	for _, a := range allowed {
		if a == "..." || a == pkg {
			return true
		}
		if p, ok := strings.CutSuffix(a, "/..."); ok && (pkg == p || strings.HasPrefix(pkg, p+"/")) {
			return true
		}
	}
	return false
}

func TestArrowsPointOnlyWhereTheDesignDrawsThem(t *testing.T) {
	for _, p := range packages(t) {
		name := short(p.ImportPath)
		allowed, known := arrows[name]
		if !known {
			if strings.HasPrefix(name, "tests") || strings.HasPrefix(name, "examples/") || name == "" {
				continue
			}
			t.Errorf("package %s is not drawn: add it to arrows", name)
			continue
		}
		base := map[string]bool{"config": true, "pipeline": true, "seal": true}
		leaf := base[name] || strings.HasPrefix(name, "plugins/sdk") || strings.HasPrefix(name, "plugins/wire")
		for _, i := range p.Imports {
			if !strings.HasPrefix(i, module+"/") {
				continue
			}
			to := short(i)
			if base[to] && !leaf || covers(allowed, to) {
				continue
			}
			t.Errorf("%s imports %s: there is no such arrow", name, to)
		}
	}
}

func TestEachThirdPartyHasItsHome(t *testing.T) {
	for _, p := range packages(t) {
		name := short(p.ImportPath)
		if name == "" {
			continue
		}
		for _, i := range p.Imports {
			for third, home := range homes {
				if (i == third || strings.HasPrefix(i, third+"/")) && !covers(home, name) {
					t.Errorf("%s imports %s, whose home is %s", name, i, strings.Join(home, ", "))
				}
			}
		}
	}
}

// The batch binding over librdkafka is the only C of ours.
func TestOnlyTheClientOfKafkaSpeaksC(t *testing.T) {
	for _, p := range packages(t) {
		if name := short(p.ImportPath); len(p.CgoFiles) > 0 && name != "pipeline/kafka" {
			t.Errorf("%s imports C", name)
		}
	}
}

func TestThePipelinePackageIsALeaf(t *testing.T) {
	for _, p := range packages(t) {
		if short(p.ImportPath) != "pipeline" {
			continue
		}
		for _, i := range p.Imports {
			if strings.Contains(strings.SplitN(i, "/", 2)[0], ".") {
				t.Errorf("pipeline imports %s", i)
			}
		}
	}
}

// Only cmd reads the wall clock and the environment; everything else is told.
func TestTimeAndEnvironmentArePassedIn(t *testing.T) {
	forbidden := map[string]string{
		"time.Now(":            "pass a pipeline.Clock",
		"os.Getenv(":           "pass the value",
		"os.LookupEnv(":        "pass the value",
		"context.Background()": "pass a context",
		"context.TODO()":       "pass a context",
	}
	for _, p := range packages(t) {
		name := short(p.ImportPath)
		if name == "" || strings.HasPrefix(name, "cmd/") || strings.HasPrefix(name, "tests") || strings.HasPrefix(name, "examples/") ||
			strings.HasSuffix(name, "test") || name == "embedded" {
			continue
		}
		for _, f := range append(p.GoFiles, p.CgoFiles...) {
			src, err := os.ReadFile(filepath.Join(p.Dir, f))
			if err != nil {
				t.Fatal(err)
			}
			for n, line := range strings.Split(string(src), "\n") {
				code, _, _ := strings.Cut(line, "//")
				for word, why := range forbidden {
					if strings.Contains(code, word) {
						t.Errorf("%s/%s:%d: %s is only for cmd: %s", name, f, n+1, word, why)
					}
				}
			}
		}
	}
}

func TestFilesAreOneIdeaLong(t *testing.T) {
	for _, p := range packages(t) {
		for _, f := range append(p.GoFiles, p.CgoFiles...) {
			src, err := os.ReadFile(filepath.Join(p.Dir, f))
			if err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(src, []byte("\n")); n > 600 && !strings.HasSuffix(f, ".pb.go") && f != "codes.go" {
				t.Errorf("%s/%s has %d lines: split it", short(p.ImportPath), f, n)
			}
		}
	}
}

func TestNoPackageIsNamedForNothing(t *testing.T) {
	for _, p := range packages(t) {
		switch filepath.Base(p.ImportPath) {
		case "util", "utils", "common", "helpers", "helper", "misc", "shared":
			t.Errorf("%s: a folder is a noun of the domain", p.ImportPath)
		}
	}
}

func TestExportedNamesOfPackagesHaveADocComment(t *testing.T) {
	for _, p := range packages(t) {
		name := short(p.ImportPath)
		if name == "" || strings.HasPrefix(name, "tests") {
			continue
		}
		documented := false
		for _, f := range p.GoFiles {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, f), nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			documented = documented || file.Doc != nil
		}
		if !documented && len(p.GoFiles) > 0 {
			t.Errorf("%s has no package comment", name)
		}
	}
}
