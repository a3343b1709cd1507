// Package drill is the recovery drill MC-RT-01: real Kafka, a PostgreSQL ledger, a payment gateway in a process of its own, a live
// flow of invoices with poison among them, an outage of the gateway, its end, a redrive, and a proof by counting. It is run by
// scripts/drills/run_dlq_end_to_end_recovery_drill.sh (make drill).
package drill
