// Command reprieve is the one program: it runs pipelines, keeps what failed in custody, repairs it and sends it again under an
// approved manifest. Each verb has its file.
package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
)

func main() {
	os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// app is what verbs share: where to read and write, the clock, and the flags that every verb has.
type app struct {
	in       io.Reader
	out, err io.Writer
	clock    pipeline.Clock
	env      func(string) (string, bool)
	readFile func(string) ([]byte, error)

	format    string // table, json, yaml
	file      string // of the worker
	named     bool   // the file was named, and is not only where one is looked for
	logLevel  string
	logFormat string
	logger    *slog.Logger // instead of one over err
	terminal  bool         // out is one
	color     bool
}

// Main runs the program and returns its exit code. The first interrupt asks the verb to end; the second ends the process at
// once with 130 (SIGINT) or 143 (SIGTERM).
func Main(args []string, in io.Reader, out, errw io.Writer) int {
	a := &app{in: in, out: out, err: errw, clock: time.Now, env: os.LookupEnv, readFile: readRegular}
	if f, ok := out.(*os.File); ok {
		a.terminal = term.IsTerminal(int(f.Fd()))
	}
	_, noColor := a.env("NO_COLOR")
	a.color = a.terminal && !noColor

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	interrupted := make(chan int, 1)
	go func() {
		s, ok := <-signals
		if !ok {
			return
		}
		code := 130
		if s == syscall.SIGTERM {
			code = 143
		}
		interrupted <- code
		cancel()
		<-signals
		os.Exit(code)
	}()

	root := a.root()
	root.SetArgs(args)
	a.guess(args)
	ran, err := root.ExecuteContextC(ctx)
	if err == nil {
		return pipeline.ExitOK
	}
	select {
	case code := <-interrupted:
		if errors.Is(err, context.Canceled) {
			return code
		}
	default:
	}
	return a.fail(err, ran.CommandPath())
}

// guess takes the output format from the words as they stand, for errors that come before flags are read.
func (a *app) guess(args []string) {
	for i, s := range args {
		value, joined := strings.CutPrefix(s, "--output=")
		if !joined && i+1 < len(args) && (s == "-o" || s == "--output") {
			value, joined = args[i+1], true
		}
		if joined && (value == "json" || value == "yaml") {
			a.format = value
		}
	}
}

// mostFile is the largest file that a configuration may name.
const mostFile = 4 << 20

// readRegular reads a file of a bounded size; a pipe or a device would never end.
func readRegular(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	if info.Size() > mostFile {
		return nil, errors.New("it is larger than 4 MiB")
	}
	return os.ReadFile(path)
}

// formatJUnit is what build servers read; verbs that have it say so by an annotation.
const formatJUnit = "junit"

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "reprieve",
		Short: "Pipelines for the record that cannot be processed",
		Long: "Reprieve runs pipelines over Kafka. A record that fails is never lost, never blocks its partition and is never blindly\n" +
			"replayed: it goes into custody, is grouped by cause, repaired, and sent again under an approved, rate-limited manifest.\n\n" +
			"Other tools say resubmit, replay, reprocess or shovel for what is called redrive here.",
		SilenceErrors: true, SilenceUsage: true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: false},
	}
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	f := root.PersistentFlags()
	f.StringVarP(&a.format, "output", "o", "table", "output format: table, json or yaml; junit where a verb says so")
	f.StringVarP(&a.file, "config", "c", a.envOr("REPRIEVE_CONFIG", "reprieve.yaml"), "the worker file (REPRIEVE_CONFIG)")
	f.StringVar(&a.logLevel, "log-level", a.envOr("REPRIEVE_LOG_LEVEL", ""), "debug, info, warn or error; info for run, else error (REPRIEVE_LOG_LEVEL)")
	f.StringVar(&a.logFormat, "log-format", a.envOr("REPRIEVE_LOG_FORMAT", "text"), "text or json (REPRIEVE_LOG_FORMAT)")
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error {
		if a.logLevel == "" && (c.Name() == "run" || c.Name() == "embedded") && c.Parent() == root {
			a.logLevel = "info"
		} else if a.logLevel == "" {
			a.logLevel = "error" // what matters is told as the verb's result or error
		}
		a.named = c.Flags().Changed("config") || a.envOr("REPRIEVE_CONFIG", "") != ""
		formats := []string{"table", "json", "yaml"}
		if c.Annotations[formatJUnit] != "" {
			formats = append(formats, formatJUnit)
		}
		for _, f := range []struct {
			flag, value string
			allowed     []string
		}{
			{"-o", a.format, formats},
			{"--log-level", a.logLevel, []string{"debug", "info", "warn", "error"}},
			{"--log-format", a.logFormat, []string{"text", "json"}},
		} {
			if !slices.Contains(f.allowed, f.value) {
				if f.flag == "-o" {
					a.format = "table"
				}
				return pipeline.Errorf(pipeline.CodeUsage, f.flag+" "+f.value, "there is no such choice").With("write one of " + strings.Join(f.allowed, ", "))
			}
		}
		return nil
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		text, _, _ := strings.Cut(err.Error(), ": strconv.")
		return pipeline.Errorf(pipeline.CodeUsage, c.CommandPath(), "%s", text).With("see " + c.CommandPath() + " --help")
	})
	root.AddGroup(
		&cobra.Group{ID: "pipelines", Title: "Pipelines:"},
		&cobra.Group{ID: "custody", Title: "What could not be processed:"},
		&cobra.Group{ID: "other", Title: "Other:"},
	)
	root.Args = cobra.ArbitraryArgs
	root.AddCommand(a.commands()...)
	strict(root)
	root.SetHelpCommandGroupID("other")
	root.SetCompletionCommandGroupID("other")
	return root
}

// strict makes c and what is below it refuse words that they would ignore: an unknown verb of a parent, an argument of a verb
// whose usage names none.
func strict(c *cobra.Command) {
	for _, sub := range c.Commands() {
		strict(sub)
	}
	switch {
	case c.HasSubCommands() && !c.Runnable():
		c.RunE = func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return c.Help()
			}
			e := pipeline.Errorf(pipeline.CodeUsage, c.CommandPath()+" "+args[0], "there is no such verb")
			c.SuggestionsMinimumDistance = 2
			if near := c.SuggestionsFor(args[0]); len(near) > 0 {
				return e.With("did you mean " + strings.Join(near, " or ") + "? See " + c.CommandPath() + " --help")
			}
			return e.With("see " + c.CommandPath() + " --help")
		}
	case c.Args == nil && !strings.Contains(c.Use, " "):
		c.Args = exactly(0, "no argument")
	}
}

// group puts commands under a heading of the help page.
func group(id string, cs ...*cobra.Command) []*cobra.Command {
	for _, c := range cs {
		c.GroupID = id
	}
	return cs
}

func (a *app) envOr(name, other string) string {
	if v, ok := a.env(name); ok && v != "" {
		return v
	}
	return other
}

// options are what reading a configuration file may use.
func (a *app) options() config.Options { return config.Options{Env: a.env, ReadFile: a.readFile} }

// log writes to standard error: standard output belongs to what was asked for.
func (a *app) log() *slog.Logger {
	if a.logger != nil {
		return a.logger
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(a.logLevel)); err != nil {
		level = slog.LevelInfo
	}
	o := &slog.HandlerOptions{Level: level}
	if a.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(a.err, o))
	}
	return slog.New(slog.NewTextHandler(a.err, o))
}

// logAs takes the level and the form of log lines from the worker file where no flag and no variable says otherwise.
func (a *app) logAs(l config.Log, given *pflag.FlagSet) {
	if _, said := a.env("REPRIEVE_LOG_LEVEL"); !said && !given.Changed("log-level") {
		a.logLevel = l.Level
	}
	if _, said := a.env("REPRIEVE_LOG_FORMAT"); !said && !given.Changed("log-format") {
		a.logFormat = l.Format
	}
}

// exactly refuses a wrong number of arguments in our words.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != n {
			if n == 0 {
				return pipeline.Errorf(pipeline.CodeUsage, c.CommandPath(), "it takes no argument").
					With("write " + c.CommandPath() + "; what it takes instead are flags: " + c.CommandPath() + " --help")
			}
			return usage(c, "give "+what)
		}
		return nil
	}
}

// oneOrTwo allows one argument and a second one.
func oneOrTwo(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < 1 || len(args) > 2 {
			return usage(c, "give "+what)
		}
		return nil
	}
}

// usage is the refusal of a command line, with how it is written.
func usage(c *cobra.Command, text string) error {
	path := c.CommandPath()
	if p := c.Parent(); p != nil {
		path = p.CommandPath() + " " + c.Use
	}
	return pipeline.Errorf(pipeline.CodeUsage, c.CommandPath(), "%s", text).With("write " + path)
}

// within refuses a number of a flag that is out of range: one that is silently replaced answers another question.
func within(flag string, n, least, most int) error {
	if n < least || n > most {
		return pipeline.Errorf(pipeline.CodeUsage, flag+" "+strconv.Itoa(n), "the number is out of range").
			With("write a whole number from " + strconv.Itoa(least) + " to " + strconv.Itoa(most))
	}
	return nil
}

// atMostOne allows one argument, or none.
func atMostOne(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) > 1 {
			return usage(c, "give "+what+", or nothing")
		}
		return nil
	}
}
