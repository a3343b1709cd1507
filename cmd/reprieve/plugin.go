package main

import (
	"errors"
	"io/fs"
	"log/slog"
	"slices"
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
		Use: "plugin", Short: "Third-party transforms and stages: write, pack, install, pin and judge them",
		Long: "A plugin is a program that repairs records, or looks at them on their way, in a sandbox: no network, no files, no other\n" +
			"processes. Only what plugins.lock pins by digest runs. Folders and limits stand in the section sandbox of the worker file.",
	}
	c.AddCommand(a.pluginNewCmd(), a.pluginPackCmd(), a.pluginInstallCmd(), a.pluginListCmd(), a.pluginLockCmd(), a.pluginVerifyCmd(), a.pluginWhyCmd())
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

// pluginOptions are those of the worker file, or the defaults where there is none and none was named.
func (a *app) pluginOptions() (plugins.Options, error) {
	var s config.Sandbox
	switch _, err := a.readFile(a.file); {
	case errors.Is(err, fs.ErrNotExist) && !a.named:
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
	Delivers  []string        `json:"delivers,omitempty"`
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
func (a *app) pluginRows() (o plugins.Options, rows []pluginRow, err error) {
	if o, err = a.pluginOptions(); err != nil {
		return o, nil, err
	}
	lock, err := plugins.ReadLock(o.Lock)
	if err != nil {
		return o, nil, err
	}
	rows = []pluginRow{}
	seen := map[string]bool{}
	for i := range lock.Plugins {
		pin := &lock.Plugins[i]
		r := pluginRow{Ref: pin.Ref(), Pinned: true, Level: pin.Level, Protocol: pin.Protocol, Digest: pin.Digest()}
		pkg, err := plugins.Read(plugins.Folder(o.Dir, pin.Ref()))
		if err == nil {
			r.Installed, r.Delivers = true, pkg.Descriptor.Delivers
			err = pin.Check(pkg)
		}
		if err == nil {
			err = plugins.Stopped(o.Dir, r.Ref)
		}
		if err != nil {
			r.fault(err)
		}
		seen[r.Ref] = true
		rows = append(rows, r)
	}
	found, err := plugins.Installed(o.Dir)
	if err != nil {
		return o, nil, err
	}
	for _, ref := range found {
		if seen[ref] {
			continue
		}
		r := pluginRow{Ref: ref, Installed: true}
		if pkg, err := plugins.Read(plugins.Folder(o.Dir, ref)); err != nil {
			r.fault(err)
		} else {
			r.Digest, r.Protocol, r.Delivers = pkg.Digest, pkg.Descriptor.Protocol, pkg.Descriptor.Delivers
			r.fault(pipeline.Errorf(pipeline.CodePluginLock, ref, "it is not pinned in %s", o.Lock).With("Pin it: reprieve plugin lock " + ref))
		}
		rows = append(rows, r)
	}
	return o, rows, nil
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
			if !plugins.Exact(args[0]) {
				return noVersion(o.Dir, args[0])
			}
			pkg, err := plugins.Read(plugins.Folder(o.Dir, args[0]))
			if err != nil {
				return err
			}
			if got := pkg.Descriptor.Ref(); got != args[0] {
				return pipeline.Errorf(pipeline.CodePluginLock, args[0], "the folder holds %s", got)
			}
			lock, err := plugins.ReadLock(o.Lock)
			if err != nil {
				return err
			}
			was, _ := lock.Find(args[0])
			l, err := pin(o, pkg, level)
			if err != nil {
				return err
			}
			now := pkg.Pin(l)
			return a.print(now, func(t *table) {
				t.line("%s pinned at level %s or better in %s: %s", args[0], l, o.Lock, pkg.Digest)
				if was != nil && was.Digest() != "" && was.Digest() != now.Digest() {
					t.line("it was %s: the program is another one, so conform it before you commit %s", was.Digest(), o.Lock)
				}
			})
		},
	}
	c.Flags().StringVar(&level, "level", "", "least level: restricted or isolated; default: the author's")
	return c
}

// noVersion refuses to pin what is not one version, and tells which are installed.
func noVersion(dir, name string) error {
	name, _, _ = strings.Cut(name, "@")
	found, err := plugins.Installed(dir)
	if err != nil {
		return err
	}
	found = slices.DeleteFunc(found, func(ref string) bool { return !strings.HasPrefix(ref, name+"@") })
	e := pipeline.Errorf(pipeline.CodeUsage, name, "a pin is of one exact version: name@major.minor.patch")
	if len(found) == 0 {
		return e.With("none is installed: reprieve plugin install PATH installs one and pins it")
	}
	return e.With("installed: " + strings.Join(found, ", "))
}

func (a *app) pluginListCmd() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List pinned and installed plugins",
		RunE: func(*cobra.Command, []string) error {
			_, rows, err := a.pluginRows()
			if err != nil {
				return err
			}
			return a.print(map[string]any{"plugins": rows}, func(t *table) {
				t.head("PLUGIN", "DELIVERS", "PINNED", "INSTALLED", "LEAST LEVEL", "STATE")
				for _, r := range rows {
					t.row(r.Ref, strings.Join(r.Delivers, " "), r.Pinned, r.Installed, r.Level, orWord(string(r.Code), "ok"))
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
