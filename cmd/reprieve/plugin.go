package main

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
	"reprieve.dev/plugins"
	"reprieve.dev/plugins/sandbox"
	"reprieve.dev/worker"
)

func (a *app) pluginCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "plugin", Short: "Third-party transforms: write, install, pin and judge them",
		Long: "A plugin is a program that repairs records in a sandbox: no network, no files, no other processes. Only what plugins.lock pins\n" +
			"by digest runs. Folders and limits stand in the section sandbox of the worker file.",
	}
	c.AddCommand(a.pluginNewCmd(), a.pluginInstallCmd(), a.pluginListCmd(), a.pluginLockCmd(), a.pluginVerifyCmd(), a.pluginWhyCmd())
	return c
}

// quiet is the log of verbs that print what matters themselves: only warnings, unless asked for more.
func (a *app) quiet() *slog.Logger {
	if a.logLevel == "info" && a.logger == nil {
		b := *a
		b.logLevel = "error"
		return b.log()
	}
	return a.log()
}

// pluginOptions are those of the worker file, or the defaults where there is none.
func (a *app) pluginOptions() (plugins.Options, error) {
	var s config.Sandbox
	switch _, err := a.readFile(a.file); {
	case errors.Is(err, fs.ErrNotExist):
		doc, ps := config.Parse(a.file, []byte("{}"), config.Options{})
		if doc != nil {
			ps = append(ps, doc.Decode(&s)...)
		}
		if len(ps) > 0 {
			return plugins.Options{}, ps
		}
	default:
		plan, err := a.loadWorker()
		if err != nil {
			return plugins.Options{}, err
		}
		s = plan.Config.Sandbox
	}
	return worker.PluginOptions(a.file, s, a.clock, a.quiet()), nil
}

// pluginRow is one plugin as the verbs show it.
type pluginRow struct {
	Ref       string          `json:"ref"`
	Pinned    bool            `json:"pinned"`
	Installed bool            `json:"installed"`
	Level     string          `json:"level,omitempty"` // least, as pinned
	Protocol  int             `json:"protocol,omitempty"`
	Digest    pipeline.Digest `json:"digest,omitempty"` // as pinned, else as installed
	Code      pipeline.Code   `json:"code,omitempty"`   // why it may not run
	Text      string          `json:"text,omitempty"`
	Remedy    string          `json:"remedy,omitempty"`
}

func (r *pluginRow) fault(err error) {
	r.Code, r.Text = pipeline.CodePluginRefused, err.Error()
	if e, ok := errors.AsType[*pipeline.Error](err); ok {
		r.Code, r.Text, r.Remedy = e.Code, e.Text, e.Fix()
	}
}

// pluginRows are all plugins that are pinned or installed, compared with their pins.
func pluginRows(o plugins.Options) ([]pluginRow, error) {
	lock, err := plugins.ReadLock(o.Lock)
	if err != nil {
		return nil, err
	}
	rows := []pluginRow{}
	seen := map[string]bool{}
	for i := range lock.Plugins {
		pin := &lock.Plugins[i]
		r := pluginRow{Ref: pin.Ref(), Pinned: true, Level: pin.Level, Protocol: pin.Protocol, Digest: pin.Digest()}
		pkg, err := plugins.Read(plugins.Folder(o.Dir, pin.Ref()))
		if err == nil {
			r.Installed = true
			err = pin.Check(pkg)
		}
		if err != nil {
			r.fault(err)
		}
		seen[r.Ref] = true
		rows = append(rows, r)
	}
	found, err := plugins.Installed(o.Dir)
	if err != nil {
		return nil, err
	}
	for _, ref := range found {
		if seen[ref] {
			continue
		}
		r := pluginRow{Ref: ref, Installed: true}
		if pkg, err := plugins.Read(plugins.Folder(o.Dir, ref)); err != nil {
			r.fault(err)
		} else {
			r.Digest, r.Protocol = pkg.Digest, pkg.Descriptor.Protocol
			r.fault(pipeline.Errorf(pipeline.CodePluginLock, ref, "it is not pinned in %s", o.Lock).With("Pin it: reprieve plugin lock " + ref))
		}
		rows = append(rows, r)
	}
	return rows, nil
}

func (a *app) pluginInstallCmd() *cobra.Command {
	var noLock bool
	var level string
	c := &cobra.Command{
		Use: "install PATH", Short: "Install the plugin of a folder and pin it",
		Long: "Install starts the plugin once in the sandbox, compares what it says it is with plugin.yaml, copies both to the plugin folder of\n" +
			"the worker file, and pins name, version, digests, protocol and level in plugins.lock. The same version with other bytes is\n" +
			"refused: a version never changes.",
		Example: "  reprieve plugin install examples/plugin-go",
		Args:    exactly(1, "the folder that holds plugin.yaml"),
		RunE: func(c *cobra.Command, args []string) error {
			o, err := a.pluginOptions()
			if err != nil {
				return err
			}
			h, err := plugins.Open(c.Context(), o)
			if err != nil {
				return err
			}
			defer h.Close()
			pkg, did, err := h.Install(c.Context(), args[0])
			if err != nil {
				return err
			}
			out := struct {
				Ref    string          `json:"ref"`
				Folder string          `json:"folder"`
				Digest pipeline.Digest `json:"digest"`
				Level  string          `json:"level"` // it was started at
				Pinned string          `json:"pinned,omitempty"`
			}{pkg.Descriptor.Ref(), pkg.Dir, pkg.Digest, did.Level, ""}
			if !noLock {
				l, err := pin(o, pkg, level)
				if err != nil {
					return err
				}
				out.Pinned = l.String()
			}
			return a.print(out, func(t *table) {
				t.line("%s installed in %s", out.Ref, out.Folder)
				t.line("it ran at level %s; digest %s", out.Level, out.Digest)
				if out.Pinned != "" {
					t.line("pinned at level %s or better in %s", out.Pinned, o.Lock)
				} else {
					t.line("not pinned: it may not run before reprieve plugin lock %s", out.Ref)
				}
			})
		},
	}
	c.Flags().BoolVar(&noLock, "no-lock", false, "install only; do not pin")
	c.Flags().StringVar(&level, "level", "", "least level to pin: restricted or isolated; default: the author's")
	return c
}

// pin writes the pin of a package and returns its level.
func pin(o plugins.Options, pkg *plugins.Package, level string) (sandbox.Level, error) {
	l := pkg.Level()
	if level != "" {
		asked, err := sandbox.ParseLevel(level)
		if err != nil {
			return 0, err
		}
		if asked < l && !o.Insecure {
			return 0, pipeline.Errorf(pipeline.CodePluginSandbox, pkg.Descriptor.Ref(), "its author asks for level %s", l).With("pin it at " + l.String() + " or better")
		}
		l = asked
	}
	lock, err := plugins.ReadLock(o.Lock)
	if err != nil {
		return 0, err
	}
	lock.Set(pkg.Pin(l))
	return l, lock.Write(o.Lock)
}

func (a *app) pluginLockCmd() *cobra.Command {
	var level string
	c := &cobra.Command{
		Use: "lock NAME@VERSION", Short: "Pin an installed plugin as it is now",
		Long: "Lock writes digests, protocol and least sandbox level of an installed plugin to plugins.lock. Pins of other platforms stay. Look\n" +
			"at the difference before you commit the file: it is the list of what may run.",
		Args: exactly(1, "name@version"),
		RunE: func(_ *cobra.Command, args []string) error {
			o, err := a.pluginOptions()
			if err != nil {
				return err
			}
			pkg, err := plugins.Read(plugins.Folder(o.Dir, args[0]))
			if err != nil {
				return err
			}
			if got := pkg.Descriptor.Ref(); got != args[0] {
				return pipeline.Errorf(pipeline.CodePluginLock, args[0], "the folder holds %s", got)
			}
			l, err := pin(o, pkg, level)
			if err != nil {
				return err
			}
			return a.print(pkg.Pin(l), func(t *table) {
				t.line("%s pinned at level %s or better in %s: %s", args[0], l, o.Lock, pkg.Digest)
			})
		},
	}
	c.Flags().StringVar(&level, "level", "", "least level: restricted or isolated; default: the author's")
	return c
}

func (a *app) pluginListCmd() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List pinned and installed plugins",
		RunE: func(*cobra.Command, []string) error {
			o, err := a.pluginOptions()
			if err != nil {
				return err
			}
			rows, err := pluginRows(o)
			if err != nil {
				return err
			}
			return a.print(map[string]any{"plugins": rows}, func(t *table) {
				t.head("PLUGIN", "PINNED", "INSTALLED", "LEAST LEVEL", "STATE")
				for _, r := range rows {
					t.row(r.Ref, r.Pinned, r.Installed, r.Level, orWord(string(r.Code), "ok"))
				}
			})
		},
	}
}

func orWord(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func (a *app) pluginVerifyCmd() *cobra.Command {
	return &cobra.Command{
		Use: "verify", Short: "Compare installed plugins with plugins.lock",
		Long: "Verify reads every pinned plugin and compares its digests. Exit code 4: one is missing or has changed.",
		RunE: func(*cobra.Command, []string) error {
			o, err := a.pluginOptions()
			if err != nil {
				return err
			}
			rows, err := pluginRows(o)
			if err != nil {
				return err
			}
			bad := 0
			out := []pluginRow{}
			for _, r := range rows {
				if r.Pinned {
					out = append(out, r)
					if r.Code != "" {
						bad++
					}
				}
			}
			err = a.print(map[string]any{"ok": bad == 0, "plugins": out}, func(t *table) {
				for _, r := range out {
					if r.Code == "" {
						t.line("%s: as pinned, %s", r.Ref, r.Digest)
						continue
					}
					t.line("%s: %s: %s\n  %s", r.Ref, r.Code, harmless(r.Text), harmless(r.Remedy))
				}
				if len(out) == 0 {
					t.line("nothing is pinned in %s", o.Lock)
				}
			})
			if err == nil && bad > 0 {
				return silent(pipeline.ExitRefused)
			}
			return err
		},
	}
}

func (a *app) pluginWhyCmd() *cobra.Command {
	return &cobra.Command{
		Use: "why NAME[@VERSION]", Short: "Say whether a plugin may run here, and why not",
		Args: exactly(1, "the name of a plugin"),
		RunE: func(c *cobra.Command, args []string) error {
			o, err := a.pluginOptions()
			if err != nil {
				return err
			}
			rows, err := pluginRows(o)
			if err != nil {
				return err
			}
			var out []pluginWhy
			for _, r := range rows {
				if name, _, _ := strings.Cut(r.Ref, "@"); r.Ref != args[0] && name != args[0] {
					continue
				}
				out = append(out, why(c.Context(), o, r))
			}
			if len(out) == 0 {
				return pipeline.Errorf(pipeline.CodePluginUnknown, args[0], "it is neither pinned in %s nor installed in %s", o.Lock, o.Dir)
			}
			return a.print(map[string]any{"plugins": out}, func(t *table) {
				for _, w := range out {
					t.line("%s: %s", w.Ref, map[bool]string{true: "may run", false: "may not run"}[w.MayRun])
					for _, s := range w.Because {
						t.line("  %s", harmless(s))
					}
				}
			})
		},
	}
}

// pluginWhy is the answer of why.
type pluginWhy struct {
	pluginRow
	MayRun  bool     `json:"may_run"`
	Because []string `json:"because"`
}

func why(ctx context.Context, o plugins.Options, r pluginRow) pluginWhy {
	w := pluginWhy{pluginRow: r, MayRun: r.Code == "", Because: []string{}}
	say := func(s string) { w.Because = append(w.Because, s) }
	if r.Pinned {
		say("plugins.lock pins " + string(r.Digest) + " at level " + r.Level + " or better")
	}
	if r.Code != "" {
		say(string(r.Code) + ": " + r.Text)
		say(r.Remedy)
		return w
	}
	say("the installed files are as pinned")
	h, err := plugins.Open(ctx, o)
	if err != nil {
		w.MayRun = false
		say(err.Error())
		return w
	}
	defer h.Close()
	had, better := h.Level()
	say("this machine proved level " + had.String())
	if better != nil {
		say("no better one: " + better.Error())
	}
	if least, _ := sandbox.ParseLevel(r.Level); had < least { // the check of the pin has read it
		w.MayRun = false
		say("it needs level " + least.String())
		return w
	}
	pkg, err := plugins.Read(plugins.Folder(o.Dir, r.Ref))
	if err == nil {
		_, err = h.Register(ctx, pkg)
	}
	if err != nil {
		w.MayRun = false
		say(err.Error())
		return w
	}
	say("it was started and says that it is " + r.Ref)
	return w
}

func (a *app) pluginNewCmd() *cobra.Command {
	var sdk string
	c := &cobra.Command{
		Use: "new NAME [DIR]", Short: "Write the files of a new plugin in Go",
		Example: "  reprieve plugin new acme/fix-dates\n  cd fix-dates && go mod tidy && make",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return pipeline.Errorf(pipeline.CodeUsage, c.CommandPath(), "give a name like acme/fix-dates, and a folder if it is to be another one").With("usage: " + c.UseLine())
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			name := args[0]
			base := name[strings.LastIndexByte(name, '/')+1:]
			dir := base
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
			files, err := plugins.Scaffold(name, sdk)
			if err != nil {
				return err
			}
			var names []string
			for _, f := range files {
				path := filepath.Join(dir, f.Name)
				if _, err := os.Lstat(path); err == nil {
					return pipeline.Errorf(pipeline.CodeInputInvalid, path, "the file exists already").With("name an empty folder")
				}
			}
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return pipeline.Errorf(pipeline.CodeInputInvalid, dir, "%w", err)
			}
			for _, f := range files {
				path := filepath.Join(dir, f.Name)
				if err := os.WriteFile(path, []byte(f.Text), 0o644); err != nil {
					return pipeline.Errorf(pipeline.CodeInputInvalid, path, "%w", err)
				}
				names = append(names, path)
			}
			return a.print(map[string]any{"plugin": name, "files": names}, func(t *table) {
				for _, n := range names {
					t.line("%s", n)
				}
				t.line("next: cd %s && go mod tidy && go test ./... && make && reprieve conform .", dir)
			})
		},
	}
	c.Flags().StringVar(&sdk, "sdk", "", "folder of a checkout of reprieve.dev to build against, instead of a release")
	return c
}
