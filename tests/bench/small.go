package main

import (
	"encoding/binary"
	"fmt"

	"reprieve.dev/examples/billing"
	"reprieve.dev/pipeline"
)

// smallSchema is an invoice of only what the billing pipeline looks at: a record of about 200 bytes.
const smallSchema = `{"type": "record", "name": "Invoice", "namespace": "billing.v1", "fields": [
	{"name": "event_id", "type": "string"}, {"name": "invoice_id", "type": "string"}, {"name": "account_id", "type": "string"},
	{"name": "tenant", "type": "string"}, {"name": "token", "type": "string"}, {"name": "seq", "type": "long"},
	{"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["INVOICE", "CREDIT_NOTE"]}},
	{"name": "account_status", "type": {"type": "enum", "name": "AccountStatus", "symbols": ["ACTIVE", "INACTIVE", "SUSPENDED", "CLOSED"]}},
	{"name": "currency", "type": "string"}, {"name": "amount_minor", "type": "long"}, {"name": "country", "type": "string"},
	{"name": "customer", "type": {"type": "record", "name": "Customer", "fields": [{"name": "name", "type": "string"}, {"name": "email", "type": "string"},
		{"name": "phone", "type": "string", "confluent:tags": ["PII"]}]}},
	{"name": "reference", "type": "string"}]}`

func (l lane) schema() string {
	if l.small {
		return smallSchema
	}
	return billing.Schema()
}

// shorten replaces an invoice's value by one of smallSchema.
func shorten(m *pipeline.Message, schema int32, i int) {
	b := binary.BigEndian.AppendUint32(append(m.Value[:0], 0), uint32(schema))
	text := func(s string) { b = append(binary.AppendVarint(b, int64(len(s))), s...) }
	text(fmt.Sprintf("evt-%024x", i))
	text(fmt.Sprintf("INV-%09d", i))
	text(string(m.Key))
	text("acme")
	text(fmt.Sprintf("tok-%012x", i))
	b = binary.AppendVarint(b, int64(i))
	b = binary.AppendVarint(b, 0) // INVOICE
	b = binary.AppendVarint(b, 0) // ACTIVE
	text("EUR")
	amount := int64(10_000 + i%900_000)
	if len(m.Key) > 0 && m.Key[len(m.Key)-1] == '7' {
		amount = 2_000_000 // goes to the topic of the large ones, as every tenth of the loop
	}
	b = binary.AppendVarint(b, amount)
	text([]string{"DE", "FR", "US", "CH"}[i%4])
	text("Customer of " + string(m.Key))
	text(fmt.Sprintf("billing-%d@customer.example", i%1000))
	text("+49 30 5550 1234")
	text("order of last week")
	m.Value = b
}
