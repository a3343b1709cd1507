package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"reprieve.dev/pipeline"
	"reprieve.dev/plugins"
)

func (a *app) pluginNewCmd() *cobra.Command {
	var sdk, lang string
	c := &cobra.Command{
		Use: "new NAME [DIR]", Short: "Write the files of a new plugin that builds, passes its tests and conforms",
		Long: "New writes a working project: a repair that trims the value, its tests, plugin.yaml with vectors, and how to build it. What it\n" +
			"needs beside its language's own tools it brings along; Go takes the module reprieve.dev.",
		Example: "  reprieve plugin new acme/fix-dates\n  reprieve plugin new acme/fix-dates --lang python\n  cd fix-dates && python3 -m unittest && reprieve plugin pack . && reprieve conform .",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return pipeline.Errorf(pipeline.CodeUsage, c.CommandPath(), "give a name like acme/fix-dates, and a folder if it is to be another one").With("usage: " + c.UseLine())
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			name := args[0]
			dir := name[strings.LastIndexByte(name, '/')+1:]
			if len(args) > 1 {
				dir = args[1]
			}
			if sdk != "" {
				abs, err := filepath.Abs(sdk)
				if err != nil {
					return err
				}
				sdk = abs
			}
			files, err := plugins.Scaffold(lang, name, sdk)
			if err != nil {
				return err
			}
			for _, f := range files {
				path := filepath.Join(dir, filepath.FromSlash(f.Name))
				if _, err := os.Lstat(path); err == nil {
					return pipeline.Errorf(pipeline.CodeInputInvalid, path, "the file exists already").With("name an empty folder")
				}
			}
			var names []string
			for _, f := range files {
				path := filepath.Join(dir, filepath.FromSlash(f.Name))
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					return pipeline.Errorf(pipeline.CodeInputInvalid, dir, "%w", err)
				}
				if err := os.WriteFile(path, []byte(f.Text), 0o644); err != nil {
					return pipeline.Errorf(pipeline.CodeInputInvalid, path, "%w", err)
				}
				names = append(names, path)
			}
			return a.print(map[string]any{"plugin": name, "files": names}, func(t *table) {
				for _, n := range names {
					t.line("%s", n)
				}
				t.line("next: cd %s && %s && reprieve conform .", dir, next[lang])
			})
		},
	}
	c.Flags().StringVar(&lang, "lang", "go", "language: "+strings.Join(plugins.Languages, ", "))
	c.Flags().StringVar(&sdk, "sdk", "", "of Go: folder of a checkout of reprieve.dev to build against, instead of a release")
	return c
}

// next is what builds and tests a new plugin.
var next = map[string]string{
	"go":         "go mod tidy && go test ./... && make",
	"python":     "python3 -m unittest && reprieve plugin pack .",
	"rust":       "cargo test && cargo build --release",
	"typescript": "npm install && npm test && reprieve plugin pack .",
}

func (a *app) pluginPackCmd() *cobra.Command {
	return &cobra.Command{
		Use: "pack PATH", Short: "Pack an interpreter and a plugin's files into a read-only root folder",
		Long: "Pack makes the program of a plugin that is not a static one: what the section pack of plugin.yaml names goes into one file that is\n" +
			"the whole root folder of the plugin in its sandbox. The interpreter of this machine becomes /bin/NAME, the libraries that it\n" +
			"is linked with /lib, the plugin's files /app; of Python the standard library comes along, compiled. The digest of this tree\n" +
			"is part of the digest that is pinned.",
		Example: "  reprieve plugin pack examples/plugin-python",
		Args:    exactly(1, "the folder that holds plugin.yaml"),
		RunE: func(c *cobra.Command, args []string) error {
			pkg, err := plugins.PackFolder(c.Context(), args[0])
			if err != nil {
				return err
			}
			out := struct {
				Ref    string          `json:"ref"`
				File   string          `json:"file"`
				Tree   pipeline.Digest `json:"tree"`
				Digest pipeline.Digest `json:"digest"`
			}{pkg.Descriptor.Ref(), filepath.Join(pkg.Dir, pkg.Artifact.Path), pkg.Tree, pkg.Digest}
			return a.print(out, func(t *table) {
				t.line("%s packed in %s", out.Ref, out.File)
				t.line("tree %s", out.Tree)
				t.line("digest %s", out.Digest)
			})
		},
	}
}
