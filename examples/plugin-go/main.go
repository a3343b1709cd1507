// Command normalize-currency is a plugin that repairs JSON invoices whose currency is spelled as people write it ("eur", "€",
// " Euro "), not as ISO 4217 has it ("EUR"). As a stage of the live lane it tells later stages which currency an invoice has, and
// keeps out those whose currency nobody knows. It shows all that a plugin needs: main.go, plugin.yaml, and a test.
package main

import "reprieve.dev/plugins/sdk"

func main() {
	sdk.Serve(sdk.About{Name: "acme/normalize-currency", Version: "1.4.2", Doc: "Spells currencies as ISO 4217 codes.", View: true}, &normalizer{})
}
