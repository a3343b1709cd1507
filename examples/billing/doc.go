// Package billing is the example that demo, drill and bench share: the files of a billing worker (invoices in Avro,
// adjustments in JSON) and a generator of their records. The generator is deterministic: record i of a seed is always the
// same bytes, whatever was made before it, and its Label says what is wrong with it, so a test knows the truth.
package billing

import (
	"embed"
	"io/fs"
)

// The topics of the example.
const (
	InvoicesTopic    = "billing.invoices.v1"
	AdjustmentsTopic = "billing.adjustments.v1"
	LedgerTopic      = "billing.ledger.v1"
	LargeTopic       = "billing.large.v1"
)

//go:embed reprieve.yaml pipelines policies tests invoice.avsc
var files embed.FS

// Files are reprieve.yaml, pipelines/, policies/, tests/ and invoice.avsc, to be written into a folder.
func Files() fs.FS { return files }

// Schema is the Avro schema of an invoice; the registry's subject is Subject.
func Schema() string {
	text, err := files.ReadFile("invoice.avsc")
	if err != nil {
		panic(err) // it is in the binary
	}
	return string(text)
}

// Subject is what Schema is registered under.
const Subject = InvoicesTopic + "-value"
