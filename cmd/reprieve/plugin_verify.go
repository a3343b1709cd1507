package main

import (
	"context"

	"github.com/spf13/cobra"

	"reprieve.dev/pipeline"
)

func (a *app) pluginVerifyCmd() *cobra.Command {
	var replay string
	var o opening
	c := &cobra.Command{
		Use: "verify", Short: "Compare installed plugins with plugins.lock, or repeat a repair of the past",
		Long: "Verify reads every pinned plugin and compares its digests. Exit code 4: one is missing or has changed. With --replay it makes the\n" +
			"repair of an item again, from the original bytes and with the transform, version and configuration of its lineage, a plugin in\n" +
			"two processes, and compares what comes with the digests that were kept. Exit code 4: it gives other bytes.",
		Example: "  reprieve plugin verify\n  reprieve plugin verify --replay q1m8...",
		RunE: func(c *cobra.Command, _ []string) error {
			if replay != "" {
				return a.replay(c.Context(), o, pipeline.ID(replay))
			}
			o, rows, err := a.pluginRows()
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
	o.flags(c, a)
	c.Flags().StringVar(&replay, "replay", "", "item whose repair is made again")
	return c
}

// replay makes the repair of an item again and says whether it is the same.
func (a *app) replay(ctx context.Context, o opening, item pipeline.ID) error {
	d, rd, err := a.openRedrive(ctx, o, false)
	if err != nil {
		return err
	}
	defer d.Close()
	r, err := rd.Service.Replay(ctx, d.who, item)
	if err != nil {
		return err
	}
	return a.print(r, func(t *table) {
		t.line("%s: repeated bit for bit by %s", r.Lineage.Item, r.Lineage.Transform)
		t.pair("artifact", r.Lineage.Artifact)
		t.pair("configuration", r.Lineage.Config)
		t.pair("level", r.Level)
		t.pair("input", r.Lineage.Input)
		t.pair("output", r.Lineage.Output)
		t.pair("made", r.Lineage.At+" by "+r.Lineage.By)
	})
}
