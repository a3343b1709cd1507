// Package decide says what follows from a failure, and which offsets may be committed. It is pure: no goroutine, no clock, no
// I/O. Time is a field of what it is asked about.
//
//	policy.go   one failure -> one decision (Policy); file.go is the file that it is compiled from
//	bounds.go   the platform's limits, which every policy is held to
//	backoff.go  how long to wait before a retry
//	budget.go   when too many unknown failures stop a pipeline
//	suspect.go  what to do after a crash, from the marks in the commit metadata
//	canary.go   which version of a policy a partition gets
//	window.go   which offsets are settled; heap.go which held record is due
//
// The ladder of an action that fails is effect, retry, quarantine, pause. A decision only ever goes down.
package decide
