package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"reprieve.dev/pipeline"
	"reprieve.dev/plugins"
	"reprieve.dev/plugins/sandbox"
)

func (a *app) pluginWhyCmd() *cobra.Command {
	return &cobra.Command{
		Use: "why NAME[@VERSION]", Short: "Say whether a plugin may run here, and why not",
		Long: "Why compares a plugin with its pin, starts it once in the sandbox and says what it got, or why it may not run. Exit code 4: no version\n" +
			"that was asked about may run.",
		Args: exactly(1, "the name of a plugin"),
		RunE: func(c *cobra.Command, args []string) error {
			o, rows, err := a.pluginRows()
			if err != nil {
				return err
			}
			var out []pluginWhy
			may := false
			for _, r := range rows {
				if name, _, _ := strings.Cut(r.Ref, "@"); r.Ref != args[0] && name != args[0] {
					continue
				}
				w := why(c.Context(), o, r)
				out, may = append(out, w), may || w.MayRun
			}
			if len(out) == 0 {
				return pipeline.Errorf(pipeline.CodePluginUnknown, args[0], "it is neither pinned in %s nor installed in %s", o.Lock, o.Dir)
			}
			err = a.print(map[string]any{"plugins": out}, func(t *table) {
				for _, w := range out {
					t.line("%s: %s", w.Ref, map[bool]string{true: "may run", false: "may not run"}[w.MayRun])
					for _, s := range w.Because {
						t.line("  %s", harmless(s))
					}
				}
			})
			if err == nil && !may {
				return silent(pipeline.ExitRefused)
			}
			return err
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
	var did sandbox.Applied
	if err == nil {
		did, err = h.Register(ctx, pkg)
	}
	if err != nil {
		w.MayRun = false
		say(err.Error())
		return w
	}
	say("it was started and says that it is " + r.Ref)
	say("limits: " + strings.Join(did.Limits, " "))
	for _, m := range did.Missing {
		say("not here: " + m)
	}
	return w
}
