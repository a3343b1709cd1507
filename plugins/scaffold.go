package plugins

import (
	"embed"
	"io/fs"
	"strings"

	"reprieve.dev/pipeline"
)

// ScaffoldFile is one file of a new plugin. Its name has slashes.
type ScaffoldFile struct{ Name, Text string }

// Languages that a new plugin may be written in.
var Languages = []string{"go", "python", "rust", "typescript"}

//go:embed all:scaffold
var scaffold embed.FS

// Scaffold makes the files of a new plugin that builds, passes its tests and conforms. With sdk a Go module is built against
// that checkout; the other languages bring what they need. Codes: ERR_INPUT_INVALID.
func Scaffold(lang, name, sdk string) ([]ScaffoldFile, error) {
	if !nameForm.MatchString(name) {
		return nil, pipeline.Errorf(pipeline.CodeInputInvalid, name, "a name is publisher/name, of a-z, 0-9 and -").With("write it like acme/fix-dates")
	}
	if _, err := fs.Stat(scaffold, "scaffold/"+lang); err != nil || !fs.ValidPath(lang) || strings.Contains(lang, "/") {
		return nil, pipeline.Errorf(pipeline.CodeInputInvalid, lang, "there is no such language here").With("one of " + strings.Join(Languages, ", ") + "; any other by transform.proto, see docs/plugins.md")
	}
	replace := ""
	if sdk != "" {
		replace = "\nrequire reprieve.dev v0.0.0\n\nreplace reprieve.dev => " + sdk + "\n"
	}
	fill := strings.NewReplacer("{{name}}", name, "{{base}}", name[strings.LastIndexByte(name, '/')+1:], "{{replace}}", replace)
	var out []ScaffoldFile
	root := "scaffold/" + lang
	err := fs.WalkDir(scaffold, root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := fs.ReadFile(scaffold, path)
		if err != nil {
			return err
		}
		out = append(out, ScaffoldFile{strings.TrimSuffix(strings.TrimPrefix(path, root+"/"), ".tmpl"), fill.Replace(string(text))})
		return nil
	})
	return out, err
}
