package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/decide"
	"reprieve.dev/plugins"
	"reprieve.dev/worker"
)

// docsCmd writes the reference pages from what the program knows of itself. It is for those who change it; a test holds the
// pages to it.
func (a *app) docsCmd() *cobra.Command {
	var root string
	c := &cobra.Command{
		Use: "docs", Short: "Write docs/reference from the code", Hidden: true, Args: exactly(0, "no argument"),
		RunE: func(*cobra.Command, []string) error {
			pages, err := reference(root)
			if err != nil {
				return err
			}
			for name, text := range pages {
				if err := os.WriteFile(filepath.Join(root, "docs", "reference", name), []byte(text), 0o644); err != nil {
					return pipeline.Errorf(pipeline.CodeUsage, name, "the page cannot be written: %w", err).With("run it where go.mod is, or name that folder: --root DIR")
				}
			}
			return nil
		},
	}
	c.Flags().StringVar(&root, "root", ".", "folder of go.mod")
	return c
}

const generated = "<!-- Written by `go run ./cmd/reprieve docs`; change the code, not this page. -->\n\n"

// reference are the pages of docs/reference by file name.
func reference(root string) (map[string]string, error) {
	metrics, err := metricsPage(root)
	return map[string]string{"codes.md": codesPage(), "settings.md": settingsPage(), "cli.md": cliPage(), "metrics.md": metrics, "plugin.md": pluginPage()}, err
}

func codesPage() string {
	var b strings.Builder
	b.WriteString(generated + "# Codes\n\nEvery failure, refusal and alert has a code; a code is never renamed or used for something else. `reprieve explain CODE` shows\n" +
		"the same. A code with a class is about a record; what the default policy does with it stands beside. A code without one is an\n" +
		"answer to a command or an alert; the number is the exit code of a command that ends with it.\n\n" +
		"Exit codes: 0 done, 1 it failed while running, 2 the input or a file is wrong, 3 something of the environment is not there,\n4 refused; 130 and 143 after a signal.\n")
	head := func(title, cols string, n int) {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n%s\n", title, cols, "|"+strings.Repeat(" --- |", n))
	}
	head("About records", "| code | class | seen as | by default | tells causes apart by | means | what to do |", 7)
	for _, i := range pipeline.Codes() {
		if i.Class == pipeline.ClassNone {
			continue
		}
		cells(&b, "`"+string(i.Code)+"`", i.Class.String(), i.Class.ThreeWay(), i.Action.String(), strings.Join(i.Identifying, ", "), i.Text, i.Remedy)
	}
	head("Answers to commands, and alerts", "| code | exit | means | what to do |", 4)
	for _, i := range pipeline.Codes() {
		if i.Class == pipeline.ClassNone {
			cells(&b, "`"+string(i.Code)+"`", strconv.Itoa(i.Exit), i.Text, i.Remedy)
		}
	}
	return b.String()
}

func cells(b *strings.Builder, texts ...string) {
	for _, s := range texts {
		b.WriteString("| " + strings.ReplaceAll(strings.ReplaceAll(s, "|", `\|`), "\n", " ") + " ")
	}
	b.WriteString("|\n")
}

func settingsPage() string {
	var b strings.Builder
	b.WriteString(generated + "# Settings\n\nEvery key of the worker file, of a pipeline file and its stages, and of a policy file. Unknown keys, wrong types and unsafe\n" +
		"combinations are refused, all at once, by `reprieve check`; an editor can do the same with `reprieve schema pipeline`.\n" +
		"A duration is written `100ms`, `30s`, `5m`, `1h`, `30d`; a size `256KiB`, `1MiB`; a rate `50/s`. Values may hold `${NAME}`,\n" +
		"`${NAME:-default}`, `${NAME:?message}` and `${file:PATH}`. Required keys are marked *. Keys that `check` refuses in this\nversion are named in the README.\n")
	section := func(title, text string, v any) {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| key | type | default | means |\n| --- | --- | --- | --- |\n", title, text)
		settingsOf(&b, "", v)
	}
	section("Worker file", "`reprieve.yaml`: what pipelines only name.", config.Worker{})
	section("Pipeline file", "One file a pipeline, in the folder `pipelines` beside the worker file.", config.Pipeline{})
	for _, k := range worker.Kinds() {
		section("Stage "+k.Name, "An item of `stages`: `- "+k.Name+": {...}`, optionally with `name` and `when` beside it.", k.Settings())
	}
	section("Policy file", "What a `classify` stage names: `reject` turns business rules into failures, `decide` says what follows from a failure.", decide.File{})
	return b.String()
}

func pluginPage() string {
	var b strings.Builder
	b.WriteString(generated + "# Files of plugins\n\nEvery key of `plugin.yaml`, which an author writes, and of `plugins.lock`, which `reprieve plugin lock` writes. Unknown keys and wrong\n" +
		"types are refused, all at once. Required keys are marked *. [Writing a plugin](../plugins.md) says what they are for.\n")
	section := func(title, text string, v any) {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| key | type | default | means |\n| --- | --- | --- | --- |\n", title, text)
		settingsOf(&b, "", v)
	}
	section("plugin.yaml", "Beside the program, in the plugin's folder. It is pinned by its digest, like the program.", plugins.Descriptor{})
	section("plugins.lock", "What may run. Keep it under version control.", plugins.Lock{})
	return b.String()
}

func cliPage() string {
	plain := &app{env: func(string) (string, bool) { return "", false }}
	root := plain.root()
	var b strings.Builder
	b.WriteString(generated + "# Command line\n\n" + root.Long + "\n\nFlags of every verb:\n\n")
	flagTable(&b, root.PersistentFlags())
	b.WriteString("\nResults go to standard output, errors with code, place and remedy to standard error. Exit codes: 0 done, 1 it failed while\n" +
		"running, 2 the input or a file is wrong, 3 something of the environment is not there, 4 refused; 130 and 143 after a signal.\n")
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			if sub.Hidden || sub.Name() == "help" {
				continue
			}
			fmt.Fprintf(&b, "\n## %s\n\n%s.\n", sub.CommandPath(), sub.Short)
			if sub.Long != "" {
				fmt.Fprintf(&b, "\n%s\n", sub.Long)
			}
			if !sub.HasSubCommands() {
				fmt.Fprintf(&b, "\n    %s %s\n", c.CommandPath(), sub.Use)
			}
			if sub.Example != "" {
				fmt.Fprintf(&b, "\nFor example:\n\n%s\n", strings.ReplaceAll("  "+strings.TrimSpace(sub.Example), "  reprieve", "    reprieve"))
			}
			if sub.LocalNonPersistentFlags().HasAvailableFlags() {
				b.WriteString("\n")
				flagTable(&b, sub.LocalNonPersistentFlags())
			}
			walk(sub)
		}
	}
	walk(root)
	return b.String()
}

func flagTable(b *strings.Builder, fs *pflag.FlagSet) {
	b.WriteString("| flag | default | means |\n| --- | --- | --- |\n")
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		def := f.DefValue
		if def == "[]" || def == "false" {
			def = ""
		}
		cells(b, name, def, f.Usage)
	})
}
