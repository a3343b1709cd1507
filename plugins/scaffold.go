package plugins

import (
	"strings"

	"reprieve.dev/pipeline"
)

// ScaffoldFile is one file of a new plugin.
type ScaffoldFile struct{ Name, Text string }

// Scaffold makes the files of a new plugin in Go that builds, passes its test and conforms. With sdk the module is built against
// that checkout. Codes: ERR_INPUT_INVALID.
func Scaffold(name, sdk string) ([]ScaffoldFile, error) {
	if !nameForm.MatchString(name) {
		return nil, pipeline.Errorf(pipeline.CodeInputInvalid, name, "a name is publisher/name, of a-z, 0-9 and -").With("write it like acme/fix-dates")
	}
	base := name[strings.LastIndexByte(name, '/')+1:]
	replace := ""
	if sdk != "" {
		replace = "\nrequire reprieve.dev v0.0.0\n\nreplace reprieve.dev => " + sdk + "\n"
	}
	fill := strings.NewReplacer("NAME", name, "BASE", base, "REPLACE", replace)
	var out []ScaffoldFile
	for _, f := range scaffold {
		out = append(out, ScaffoldFile{f.Name, fill.Replace(f.Text)})
	}
	return out, nil
}

var scaffold = []ScaffoldFile{
	{"go.mod", "module BASE\n\ngo 1.26.0\nREPLACE"},
	{"main.go", `// Command BASE is a repair plugin for Reprieve.
package main

import "reprieve.dev/plugins/sdk"

func main() {
	sdk.Serve(sdk.About{Name: "NAME", Version: "0.1.0", Doc: "Trims the value."}, &repairer{})
}
`},
	{"repair.go", `package main

import (
	"bytes"

	"reprieve.dev/plugins/sdk"
)

// repairer is pure: no clock, no randomness, no memory of earlier records.
type repairer struct{}

// Configure reads the configuration, a JSON object.
func (*repairer) Configure(config []byte) error { return nil }

// Repair answers for one record. This one trims white space: replace it by your repair.
func (*repairer) Repair(e *sdk.Envelope) sdk.Result {
	trimmed := bytes.TrimSpace(e.Value)
	switch {
	case e.Value == nil:
		return sdk.Rejected("a delete marker has nothing to repair")
	case len(trimmed) == len(e.Value):
		return sdk.Unchanged()
	}
	return sdk.Repaired().SetValue(trimmed).Changed("")
}
`},
	{"repair_test.go", `package main

import (
	"testing"

	"reprieve.dev/plugins/sdk"
)

func TestWhiteSpaceGoes(t *testing.T) {
	r := (&repairer{}).Repair(&sdk.Envelope{Value: []byte(" {} ")}).Wire()
	if got := string(r.GetValue().GetValue()); got != "{}" {
		t.Fatalf("%q", got)
	}
}
`},
	{"plugin.yaml", `apiVersion: reprieve/v1
name: NAME
version: 0.1.0
doc: Trims the value.
protocol: 1
artifacts:
  - {os: linux, arch: amd64, path: BASE}
sandbox: {level: restricted}
vectors:
  - {name: white space, value: ' {"a":1} ', expect: '{"a":1}'}
`},
	{"Makefile", "BASE: *.go\n\tCGO_ENABLED=0 go build -trimpath -ldflags='-s -w -buildid=' -o BASE .\n"},
	{".gitignore", "BASE\n"},
}
