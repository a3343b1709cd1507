package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"reprieve.dev/pipeline"
	"reprieve.dev/redrive"
	"reprieve.dev/worker"
)

func (a *app) haltCmd() *cobra.Command {
	return a.haltOrLift("halt", "Stop all redrives at once (sticky)", false)
}
func (a *app) liftCmd() *cobra.Command {
	return a.haltOrLift("lift", "End a halt: another person than the one who set it, with a reason and their key", true)
}

func (a *app) haltOrLift(use, short string, lift bool) *cobra.Command {
	var o opening
	var name, reason string
	c := &cobra.Command{
		Use: use, Short: short, Args: exactly(0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error {
			d, rd, err := a.openRedrive(c.Context(), o, true)
			if err != nil {
				return err
			}
			defer d.Close()
			if !lift {
				if name != "" { // a misspelt one would halt nothing, and be believed
					if _, err := d.plan.Pipeline(name); err != nil {
						return err
					}
				}
				if err := rd.Service.Halt(c.Context(), d.who, name, reason); err != nil {
					return err
				}
				return a.print(map[string]string{"halted": orAll(name), "by": d.who.Subject, "reason": reason}, func(t *table) {
					who := "another person"
					if name == "" {
						who = "two other people, each"
					}
					t.line("halted: %s. No new send from now on. To end it, %s: reprieve redrive lift --reason ... --credential THEIR-KEY", orAll(name), who)
				})
			}
			if d.signer == nil {
				return pipeline.Errorf(pipeline.CodePermissionDenied, "", "lifting a halt is a signature: it needs your key").With("--credential FILE")
			}
			left, err := a.lift(c.Context(), d, rd, name, reason)
			if err != nil {
				return err
			}
			return a.print(map[string]any{"lifted": orAll(name), "by": d.who.Subject, "still_halted": left != "", "text": left}, func(t *table) {
				if left != "" {
					t.line("your lift is written; redrives stay halted: %s", harmless(left))
					t.line("next: another person: reprieve redrive lift --reason ... --credential THEIR-KEY")
					return
				}
				t.line("lifted: %s", orAll(name))
			})
		},
	}
	o.flags(c, a)
	c.Flags().StringVar(&name, "pipeline", "", "one pipeline; all if not said")
	c.Flags().StringVar(&reason, "reason", "", "why")
	return c
}

func orAll(name string) string {
	if name == "" {
		return "all pipelines"
	}
	return name
}

// doubted is one item that a killed run may have sent.
type doubted struct {
	Doubts []redrive.Doubt `json:"in_doubt"`
}

func (a *app) resumeCmd() *cobra.Command {
	var scan, goOn bool
	var sent, unsent []string
	var reason string
	flags := func(c *cobra.Command) {
		c.Flags().BoolVar(&scan, "scan", false, "take what the destination holds for the truth: found is sent, absent is unsent")
		c.Flags().StringSliceVar(&sent, "sent", nil, "items that were sent")
		c.Flags().StringSliceVar(&unsent, "unsent", nil, "items that were not")
		c.Flags().StringVar(&reason, "reason", "", "why you decide so")
		c.Flags().BoolVar(&goOn, "run", true, "go on with the rest")
	}
	return a.verb("resume", "Go on after a killed run: names what may have been sent, and takes your decision", true, flags,
		func(ctx context.Context, d *desk, rd *worker.Desk, digest pipeline.Digest) error {
			if !scan && len(sent)+len(unsent) == 0 {
				doubts, err := rd.Service.Doubts(ctx, d.who, digest)
				if err != nil {
					return err
				}
				if len(doubts) > 0 {
					if err := a.print(doubted{doubts}, func(t *table) {
						t.line("the run was killed; these items may have been sent:")
						for _, x := range doubts {
							where := "not on the destination"
							if x.Found != nil {
								where = "on the destination at " + x.Found.String()
							}
							t.row("  "+string(x.Item), where)
						}
						t.line("decide: --scan (found is sent, absent is unsent), or --sent and --unsent with ids, and --reason")
					}); err != nil {
						return err
					}
					return silent(pipeline.ExitRefused)
				}
			} else {
				dec := redrive.Decision{Scan: scan, Sent: ids(sent), Unsent: ids(unsent), Reason: reason}
				doubts, err := rd.Service.Resume(ctx, d.who, digest, dec)
				if err != nil {
					return err
				}
				if a.format == "table" {
					writeLine(a.out, "%s decided that were in doubt", are(len(doubts), "item"))
				}
			}
			if !goOn {
				return a.printStatus(ctx, d, rd, digest)
			}
			st, err := rd.Service.Run(ctx, d.who, digest)
			if st != nil {
				if perr := a.print(st, func(t *table) { statusTable(t, st) }); perr != nil {
					return perr
				}
			}
			return err
		})
}

func ids(list []string) (out []pipeline.ID) {
	for _, s := range list {
		out = append(out, pipeline.ID(s))
	}
	return out
}

// lift lifts both the ledger's halt and the one on the control topic, and says what still stands.
func (a *app) lift(ctx context.Context, d *desk, rd *worker.Desk, name, reason string) (string, error) {
	err := rd.Service.Lift(ctx, d.who, name, reason)
	if err != nil && pipeline.CodeOf(err) != pipeline.CodeRedriveState {
		return "", err
	}
	boardErr := rd.Lift(ctx, d.signer, name, reason)
	if boardErr != nil && (err != nil || pipeline.CodeOf(boardErr) != pipeline.CodeRedriveState) {
		return "", boardErr
	}
	if s, serr := rd.Board.Snapshot(); serr == nil {
		if e, halted := s.Halted(name); halted {
			text := e.By + " halted: " + e.HaltState().Reason + "; a halt of all pipelines takes two people to lift"
			if by := s.Lifters(e); len(by) > 0 {
				text += ", and so far only " + strings.Join(by, ", ") + " did"
			}
			return text, nil
		}
	}
	return "", nil
}
