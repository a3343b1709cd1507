package main

import (
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"reprieve.dev/pipeline"
	"reprieve.dev/plugins"
)

func (a *app) conformCmd() *cobra.Command {
	var call, start time.Duration
	c := &cobra.Command{
		Use: "conform PATH", Short: "Judge a plugin: does it keep what every plugin promises?",
		Long: "Conform starts the plugin of a folder in the sandbox, at each level that this machine has, and checks it: handshake, what it\n" +
			"says it is, its own vectors, the same answers from other processes, in other batches and orders, at another time and on another\n" +
			"machine, hostile records, restart, and marks if it delivers a stage. The report is numbered and gives evidence for each check; with\n" +
			"-o junit it is one for build servers. It needs no worker file. Exit code 0: no check failed; 4: one did.",
		Example: "  reprieve conform examples/plugin-go\n  reprieve conform ./my-plugin -o json\n  reprieve conform ./my-plugin -o junit > report.xml",
		Args:    exactly(1, "the folder that holds plugin.yaml"), Annotations: map[string]string{formatJUnit: "yes"},
		RunE: func(c *cobra.Command, args []string) error {
			rep, err := plugins.Conform(c.Context(), plugins.Options{Call: call, Start: start, Clock: a.clock, Log: a.quiet()}, args[0])
			if err != nil {
				return err
			}
			if a.format == formatJUnit {
				err = a.printConformance(rep)
			} else {
				err = a.print(rep, func(t *table) {
					t.line("%s %s", rep.Plugin, rep.Digest)
					for _, k := range rep.Checks {
						t.line("%3d  %-4s  %s", k.Number, k.Result, harmless(k.Name))
						t.line("           %s", harmless(k.Evidence))
					}
					if rep.OK {
						t.line("conforms")
					} else {
						t.line("does not conform")
					}
				})
			}
			if err == nil && !rep.OK {
				return silent(pipeline.ExitRefused)
			}
			return err
		},
	}
	c.Flags().DurationVar(&call, "timeout", 5*time.Second, "time for one call")
	c.Flags().DurationVar(&start, "start", 10*time.Second, "time for a start")
	return c
}

// printConformance writes the report as build servers read it.
func (a *app) printConformance(rep *plugins.Conformance) error {
	suite := junitSuite{Name: rep.Plugin, Tests: len(rep.Checks), Time: "0"}
	for _, k := range rep.Checks {
		c := junitCase{Name: harmless(strconv.Itoa(k.Number) + " " + k.Name), Class: rep.Plugin, Time: "0"}
		switch evidence := harmless(k.Evidence); k.Result {
		case "fail":
			c.Failure = &junitTrouble{Message: evidence, Type: "check"}
			suite.Failures++
		case "skip":
			c.Skipped = &junitTrouble{Message: evidence, Type: "check"}
			suite.Skipped++
		default:
			c.Output = evidence
		}
		suite.Cases = append(suite.Cases, c)
	}
	b, err := (&junitSuites{Tests: suite.Tests, Failures: suite.Failures, Suites: []junitSuite{suite}}).text()
	if err != nil {
		return err
	}
	_, err = a.out.Write(b)
	return err
}
