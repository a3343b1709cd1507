package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"

	"gopkg.in/yaml.v3"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
)

// print writes a result: the value itself as JSON or YAML, or what people makes of it.
func (a *app) print(v any, people func(t *table)) error {
	switch a.format {
	case "json":
		enc := json.NewEncoder(a.out)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		return enc.Encode(v)
	case "yaml":
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		return writeYAML(a.out, b)
	}
	t := &table{w: tabwriter.NewWriter(a.out, 2, 4, 2, ' ', 0), color: a.color}
	people(t)
	return t.w.Flush()
}

// writeYAML writes JSON as YAML in block style; numbers and texts stay what they are.
func writeYAML(w io.Writer, b []byte) error {
	var n yaml.Node
	if err := yaml.Unmarshal(b, &n); err != nil {
		return err
	}
	older := map[string]bool{"yes": true, "no": true, "on": true, "off": true, "y": true, "n": true} // truth values in YAML 1.1
	var block func(n *yaml.Node)
	block = func(n *yaml.Node) {
		n.Style &^= yaml.FlowStyle
		if n.Kind == yaml.ScalarNode && n.Tag == "!!str" {
			n.Style = 0 // the encoder quotes where it must
			if older[strings.ToLower(n.Value)] {
				n.Style = yaml.DoubleQuotedStyle
			}
		}
		for _, c := range n.Content {
			block(c)
		}
	}
	block(&n)
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(&n); err != nil {
		return err
	}
	return enc.Close()
}

// table writes aligned columns for people. What comes from records is made harmless first: no control characters reach the
// terminal.
type table struct {
	w     *tabwriter.Writer
	color bool
}

func (t *table) head(cols ...string) { fmt.Fprintln(t.w, strings.Join(cols, "\t")) }

func (t *table) row(cols ...any) {
	for i, c := range cols {
		if i > 0 {
			fmt.Fprint(t.w, "\t")
		}
		fmt.Fprint(t.w, harmless(fmt.Sprint(c)))
	}
	fmt.Fprintln(t.w)
}

// line writes free text; it is not aligned.
func (t *table) line(format string, args ...any) {
	t.w.Flush()
	fmt.Fprintf(t.w, format+"\n", args...)
	t.w.Flush()
}

// pair writes "name  value" rows.
func (t *table) pair(name string, value any) {
	s := fmt.Sprint(value)
	if s != "" {
		t.row(name, s)
	}
}

// remedies says once for each of the codes what to do about it.
func (t *table) remedies(codes []pipeline.Code) {
	slices.Sort(codes)
	for _, c := range slices.Compact(codes) {
		if fix := pipeline.Lookup(c).Remedy; fix != "" {
			t.line("  What to do about %s: %s", c, fix)
		}
	}
}

// harmless replaces control characters, so that a payload cannot drive the terminal, and bidirectional marks, so that it cannot
// reorder the line.
func harmless(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
			return '\uFFFD'
		}
		return r
	}, s)
}

// failure is the form of an error on -o json.
type failure struct {
	Code   pipeline.Code `json:"code"`
	Place  string        `json:"place,omitempty"`
	Text   string        `json:"text"`
	Remedy string        `json:"remedy,omitempty"`
}

// fail prints err as code, place, text and remedy, and returns the exit code. The place of an error that names none is the verb.
func (a *app) fail(err error, verb string) int {
	if code, ok := err.(silent); ok {
		return int(code)
	}
	var problems config.Problems
	if errors.As(err, &problems) {
		a.printProblems(problems)
		return pipeline.ExitInput
	}
	f := failure{Code: pipeline.CodeInternal, Text: err.Error()}
	if code := pipeline.CodeOf(err); code != "" {
		f.Code = code
	}
	f.Remedy = pipeline.Lookup(f.Code).Remedy
	exit := pipeline.Lookup(f.Code).Exit
	if e, ok := errors.AsType[*pipeline.Error](err); ok {
		f = failure{e.Code, e.Place, e.Text, e.Fix()}
		exit = pipeline.Lookup(e.Code).Exit
	} else if rest, ok := strings.CutPrefix(f.Text, string(f.Code)+" "); ok {
		f.Place, f.Text, _ = strings.Cut(rest, ": ") // of config and seal, which spell their errors alike
	}
	f.Text = plain(f.Text)
	if f.Place == "" {
		f.Place = verb
	}
	if a.format != "table" {
		a.printFailure(map[string]failure{"error": f})
		return exit
	}
	fmt.Fprintf(a.err, "%s  %s\n  %s\n", f.Code, harmless(f.Place), harmless(f.Text))
	if f.Remedy != "" {
		fmt.Fprintf(a.err, "  What to do: %s\n", harmless(f.Remedy))
	}
	return exit
}

// printProblems prints every problem of a configuration file.
func (a *app) printProblems(ps config.Problems) {
	if a.format != "table" {
		a.printFailure(map[string]any{"problems": ps})
		return
	}
	for _, p := range ps {
		fmt.Fprintln(a.err, harmlessLines(p.String()))
	}
	fmt.Fprintln(a.err, many(len(ps), "problem"))
}

// printFailure writes what went wrong for programs, to standard error.
func (a *app) printFailure(v any) {
	b, err := json.Marshal(v)
	if err == nil && a.format == "yaml" {
		err = writeYAML(a.err, b)
	} else if err == nil {
		enc := json.NewEncoder(a.err)
		enc.SetEscapeHTML(false)
		err = enc.Encode(v)
	}
	if err != nil {
		fmt.Fprintln(a.err, harmless(err.Error())) // nothing else can be done
	}
}

// plain says in one line of plain words what a client library said: no line breaks, none of its own terms.
func plain(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	return strings.NewReplacer(
		"Local: Broker transport failure", "no broker answers",
		"Local: All broker connections are down", "no broker answers",
		"Local: Host resolution failure", "the host name is not known",
		"Local: Timed out", "no answer in time",
		"context deadline exceeded", "no answer in time",
	).Replace(text)
}

// many is a count with its noun.
func many[N int | int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// are is a count with its noun and verb.
func are(n int, noun string) string {
	if n == 1 {
		return "1 " + noun + " is"
	}
	return many(n, noun) + " are"
}

func harmlessLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = harmless(lines[i])
	}
	return strings.Join(lines, "\n")
}

func writePart(w io.Writer, format string, args ...any) { fmt.Fprintf(w, format, args...) }

func writeLine(w io.Writer, format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
