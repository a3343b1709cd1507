// Package redrive sends quarantined items again, as a production deployment is done: repair, plan (a frozen manifest whose
// digest is its identity), dry run, approval by somebody else, a canary that is reconciled before the rest, an exact rate,
// stop rules, and a judgement over evidence at the end.
//
// Invariants, named where they are upheld:
//
//   - INV-MANIFEST: an executor sends only what the manifest's digest covers; a changed byte is ERR_MANIFEST_DIGEST.
//   - INV-APPROVED: no window is opened without an approval that verifies at that moment, by somebody else than the requester.
//   - INV-INTENT: an intent is durable before the first byte of its window leaves.
//   - INV-PACE: no half-open second sees more attempts than the rate, whoever sends them (INV-DLQ-03).
//   - INV-HALT: no new window starts after a halt is known; what is unknown for 10 s counts as a halt.
//   - INV-BYTES: what is sent are the faithful bytes or a registered repair of them, checked by digest at the send.
//   - INV-NO-PRIMARY: a redrive writes to the retry topic only (ERR_REDRIVE_PRIMARY).
//   - INV-UNCERTAIN: an intent without a result is never sent again without a person's decision.
//
// Reading order: service.go, manifest.go, plan.go, dryrun.go, approve.go, run.go, window.go, pace.go, reconcile.go, halt.go.
package redrive
