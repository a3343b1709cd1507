// Package pipeline holds the words and ports that every part of Reprieve shares: what a record, a batch, a failure, a
// decision and a checkpoint are, and which few methods a source, a sink, a stage and a policy must have.
//
// It is a leaf: no goroutine, no clock, no I/O, no import of ours or of a third party. What happens to a record is read
// in this order:
//
//	cmd/reprieve/run.go      the verb
//	worker/build.go          files become running parts
//	pipeline/engine/owner.go one goroutine owns the consumer
//	pipeline/engine/partition.go  one goroutine a partition runs the stages
//	pipeline/stage/*.go      decode, classify, redact, enrich, route
//	pipeline/decide/policy.go     what a failure leads to (pure)
//	pipeline/engine/compose.go    batch and decisions become messages (pure)
//	pipeline/engine/send.go       the only effects
//	pipeline/decide/window.go     which offsets are settled
//	pipeline/engine/commit.go     what is committed, and when
package pipeline
