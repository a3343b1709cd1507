// Package transforms says what a repair is: a pure, versioned function from original envelopes to repaired ones, with a report
// of what changed, checks that no repair may skip, and lineage, so that a repair can be repeated bit for bit.
//
// A repair always starts from the original bytes of an item, never from an earlier repair (INV-REPAIR-01). It never changes
// who the record is (identity, tenant) nor where it belongs (key) unless the caller declares it (INV-REPAIR-02). A repaired
// value satisfies its schema as the pipeline's own decoder reads it (INV-REPAIR-03). A report holds paths and words, never
// payload (INV-REPAIR-04).
//
// Reading order: transform.go, library.go, run.go, check.go, lineage.go; then fields.go and bytes.go for the built-ins, apply.go
// for how an edit reaches the bytes, document.go for JSON text that keeps what it does not touch.
package transforms
