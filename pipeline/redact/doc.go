// Package redact strips card numbers, card verification values, authorization tokens and whatever a pipeline file names
// from records before they reach a dead-letter topic, a ledger, a log, a metric or a page.
//
// It sees structure (fields by path, name and schema tag, numbers, duplicate members, documents inside strings) and bytes
// (escapes, separators, binary). What it is not sure of it refuses: ERR_REDACT_FAILED or ERR_REDACT_IDENTITY, and the caller
// sends the record to the vault.
//
// Invariants. INV-REDACT-ALL-AND-ONLY: every secret of the built-in kinds goes, nothing else changes. INV-REDACT-IN-PLACE:
// in bytes that no codec read, every length and position stays. INV-REDACT-SURE: what cannot be looked into is refused.
//
//	redactor.go  Value, Sanitize, Text: what others call
//	editor.go    one leaf of a record
//	document.go  JSON inside a string; jsontext.go its tokens; members.go member names
//	scan.go      one text: the cheap look, then the detectors
//	words.go     names with values, schemes, values in prose
//	pan.go, edge.go, issuer.go, luhn.go, iban.go   card numbers
//	cvv.go, secret.go, leaf.go   verification values, credentials, whole values
//	names.go     what the name of a field, header or parameter means
//	unescape.go  reading through escapes
//	fields.go    what the file names by path, name and tag
//	action.go    what stands there afterwards
//	raw.go       bytes that no codec could read
package redact
