package main

import (
	"slices"

	"github.com/spf13/cobra"
)

// commands are all verbs, under the headings of the help page.
func (a *app) commands() []*cobra.Command {
	return slices.Concat(
		group("pipelines", a.runCmd(), a.checkCmd(), a.tryCmd(), a.testCmd(), a.schemaCmd(), a.topicsCmd(), a.policyCmd(), a.pipelineCmd()),
		group("custody", a.quarantineCmd(), a.ruleCmd(), a.redriveCmd(), a.transformCmd(), a.pluginCmd(), a.conformCmd(), a.ledgerCmd(), a.adoptCmd(), a.glassCmd()),
		group("other", a.demoCmd(), a.embeddedCmd(), a.docsCmd(), a.explainCmd(), a.versionCmd()),
	)
}
