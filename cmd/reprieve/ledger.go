package main

import (
	"github.com/spf13/cobra"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

func (a *app) ledgerCmd() *cobra.Command {
	c := &cobra.Command{Use: "ledger", Short: "The database of everything that could not be processed"}
	c.AddCommand(a.verifyCmd(), a.migrateCmd())
	return c
}

// verified is what verify answers.
type verified struct {
	OK       bool      `json:"ok"`
	History  int64     `json:"history_rows"`
	Items    int64     `json:"items"`
	Heads    int64     `json:"signed_heads"`
	Findings []finding `json:"findings"`
}

type finding struct {
	Code  pipeline.Code `json:"code"`
	Place string        `json:"place"`
	Text  string        `json:"text"`
}

func (a *app) verifyCmd() *cobra.Command {
	var o opening
	c := &cobra.Command{
		Use: "verify", Short: "Check the history chain, the evidence of every item, payloads and counts",
		Long: "Verify reads the whole ledger: the hash chain of the history against its signed heads, the evidence of every item against its\n" +
			"admission, payloads against their digests, and counts against a recount. It names what does not hold and changes nothing.",
		Args: exactly(0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error {
			d, err := a.open(c.Context(), o)
			if err != nil {
				return err
			}
			defer d.Close()
			v, err := d.items.Verify(c.Context(), d.who, nil)
			if err != nil {
				return err
			}
			out := verified{OK: v.OK(), History: v.HistoryRows, Items: v.Items, Heads: v.Heads, Findings: []finding{}}
			for _, f := range v.Findings {
				out.Findings = append(out.Findings, finding{f.Code, f.Place, f.Text})
			}
			if err := a.print(out, func(t *table) {
				for _, f := range out.Findings {
					t.row(f.Place, f.Text)
				}
				if out.OK {
					t.line("the ledger verifies: %s, %s, %s", many(out.History, "history row"), many(out.Items, "item"), many(out.Heads, "signed head"))
				}
			}); err != nil {
				return err
			}
			if !out.OK {
				return pipeline.Errorf(pipeline.CodeLedgerCorrupt, "ledger", "%d things do not hold", len(out.Findings))
			}
			return nil
		},
	}
	o.flags(c, a)
	return c
}

func (a *app) migrateCmd() *cobra.Command {
	var name string
	c := &cobra.Command{
		Use: "migrate", Short: "Bring the ledger to this program's version", Args: exactly(0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error {
			plan, err := a.loadWorker()
			if err != nil {
				return err
			}
			url, err := plan.LedgerURL(name)
			if err != nil {
				return err
			}
			db, err := ledger.Open(c.Context(), url, ledger.Options{Clock: a.clock, Log: a.log()})
			if err != nil {
				return err
			}
			if err := db.Close(); err != nil {
				return err
			}
			return a.print(map[string]bool{"migrated": true}, func(t *table) { t.line("the ledger is at this program's version") })
		},
	}
	c.Flags().StringVar(&name, "ledger", "", "name of the ledger in the worker file, if there are several")
	return c
}
