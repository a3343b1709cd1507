package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"reprieve.dev/worker"
)

func (a *app) topicsCmd() *cobra.Command {
	var partitions int
	c := &cobra.Command{Use: "topics", Short: "The topics that the files need"}
	run := func(apply bool) func(*cobra.Command, []string) error {
		return func(c *cobra.Command, args []string) error {
			if err := within("--partitions", partitions, 1, 10_000); err != nil {
				return err
			}
			plan, err := a.load(args)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context(), 30*time.Second)
			defer cancel()
			topics := plan.Topics(partitions)
			if err := plan.LookTopics(ctx, topics); err != nil {
				return err
			}
			if apply {
				if _, err := plan.CreateTopics(ctx, topics); err != nil {
					return err
				}
			}
			out := struct {
				Topics []worker.TopicPlan `json:"topics"`
			}{topics}
			return a.print(out, func(t *table) {
				t.head("CLUSTER", "TOPIC", "FOR", "PARTITIONS", "STATE")
				missing := 0
				for _, x := range topics {
					state := "exists"
					switch {
					case !x.Exists && apply:
						state = "created"
					case !x.Exists:
						state, missing = "missing", missing+1
					}
					t.row(x.Cluster, x.Topic, x.What, x.Partitions, state)
				}
				if missing > 0 {
					t.line("\n%s missing; reprieve topics apply creates what is missing", are(missing, "topic"))
				}
			})
		}
	}
	for _, v := range []struct {
		use, short string
		apply      bool
	}{{"plan [PIPELINE...]", "Show the topics and which are missing", false}, {"apply [PIPELINE...]", "Create the missing topics", true}} {
		sub := &cobra.Command{Use: v.use, Short: v.short, RunE: run(v.apply)}
		sub.Flags().IntVar(&partitions, "partitions", 12, "partitions of source and destination topics that do not exist")
		c.AddCommand(sub)
	}
	return c
}
