package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"reprieve.dev/pipeline"
	"reprieve.dev/redrive"
	"reprieve.dev/transforms"
	"reprieve.dev/worker"
)

// openRedrive opens the desk with redrive over it.
func (a *app) openRedrive(ctx context.Context, o opening, board bool) (*desk, *worker.Desk, error) {
	o.pipelines = true
	d, err := a.open(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	name := d.plan.Config.Name
	if name == "" {
		name = "cli"
	}
	rd, err := worker.NewDesk(ctx, worker.DeskOptions{Plan: d.plan, Keys: d.keys, Items: d.items, Name: name + "-" + d.who.Subject, By: d.who.Subject,
		Clock: a.clock, Log: a.log(), Source: d.logs.Of, Board: board})
	if err != nil {
		d.Close()
		return nil, nil, err
	}
	d.close = append(d.close, rd.Close)
	return d, rd, nil
}

// pipelineOf is the pipeline that --pipeline names, or the only one.
func pipelineOf(plan *worker.Plan, name string) (string, error) {
	if name != "" {
		return name, nil
	}
	if len(plan.Pipelines) == 1 {
		return plan.Pipelines[0].Config.Name, nil
	}
	var names []string
	for _, p := range plan.Pipelines {
		names = append(names, p.Config.Name)
	}
	return "", pipeline.Errorf(pipeline.CodeUsage, "", "there are several pipelines").With("name one: --pipeline " + strings.Join(names, " | "))
}

func (a *app) repairCmd() *cobra.Command {
	var o opening
	var t targeting
	var ref, settings, name, intent string
	var change []string
	c := &cobra.Command{
		Use: "repair (ID... | SELECTION) --transform NAME@VERSION", Short: "Repair triaged items by a versioned transform: TRIAGED -> REPAIRED",
		Long: "Repair runs a transform over the original bytes of items and keeps what it made with its lineage: name, version, digests of\n" +
			"code and configuration, bytes before and after. Nothing is sent. A second repair starts from the original bytes again.\n" +
			"reprieve transform list shows the transforms.",
		Example: `  reprieve quarantine repair 'fingerprint=f1... state=TRIAGED' --transform set@1.0.0 --set '{"values": {"/currency": "EUR"}}' --yes`,
		RunE: func(c *cobra.Command, args []string) error {
			d, rd, err := a.openRedrive(c.Context(), o, false)
			if err != nil {
				return err
			}
			defer d.Close()
			if name, err = pipelineOf(d.plan, name); err != nil {
				return err
			}
			target, err := a.target(c.Context(), d, &t, args)
			if err != nil {
				return err
			}
			if settings == "" {
				settings = "{}"
			}
			req := redrive.RepairRequest{Pipeline: name, Items: target.Items, Snapshot: target.Snapshot, Count: target.Count, Digest: string(target.Digest),
				Ref: ref, Config: []byte(settings), Intent: intent, Change: change}
			r, err := rd.Service.Repair(c.Context(), d.who, req)
			if err != nil {
				return err
			}
			return a.printRepaired(r, ref, name)
		},
	}
	o.flags(c, a)
	t.flags(c)
	c.Flags().StringVar(&ref, "transform", "", "name@version, never latest")
	c.Flags().StringVar(&settings, "set", "", "its configuration, JSON")
	c.Flags().StringVar(&name, "pipeline", "", "pipeline of the items, if there are several")
	c.Flags().StringVar(&intent, "intent", "", "why the repair may change what --change names")
	c.Flags().StringSliceVar(&change, "change", nil, "what it may change: key, event_id, entity, business_id, token, version")
	return c
}

func (a *app) printRepaired(r *redrive.Repaired, ref, name string) error {
	err := a.print(r, func(t *table) {
		t.line("%d of %s repaired by %s", r.Changed, many(r.Selected, "item"), ref)
		if r.Failed > 0 {
			t.line("%d could not be repaired and stay as they are:", r.Failed)
		}
		var codes []pipeline.Code
		for _, it := range r.Items {
			if it.Code == "" {
				continue
			}
			if len(codes) == 20 {
				t.line("  ... (-o json shows all)")
				break
			}
			t.row("  "+string(it.Item), it.Code, it.Text)
			codes = append(codes, it.Code)
		}
		t.remedies(codes)
		if r.Changed > 0 {
			t.line("next: reprieve redrive plan SELECTION --pipeline %s --ticket TICKET", name)
		}
	})
	if err == nil && r.Changed == 0 {
		return silent(pipeline.ExitRefused) // a script must see that nothing was done
	}
	return err
}

func (a *app) transformCmd() *cobra.Command {
	c := &cobra.Command{Use: "transform", Short: "The transforms that repair items"}
	c.AddCommand(&cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List transforms by exact version, with the form of their configuration; digests with -o json",
		RunE: func(*cobra.Command, []string) error {
			type row struct {
				Ref      string          `json:"ref"`
				Doc      string          `json:"doc"`
				Artifact pipeline.Digest `json:"artifact"`
				Level    string          `json:"level"`
			}
			out := struct {
				Transforms []row `json:"transforms"`
			}{}
			for _, k := range transforms.NewLibrary(transforms.Options{}).List() {
				out.Transforms = append(out.Transforms, row{k.Ref(), k.Doc, k.Artifact, k.Level})
			}
			return a.print(out, func(t *table) {
				t.head("TRANSFORM", "LEVEL", "WHAT IT DOES")
				for _, r := range out.Transforms {
					t.row(r.Ref, r.Level, r.Doc)
				}
			})
		},
	})
	return c
}
