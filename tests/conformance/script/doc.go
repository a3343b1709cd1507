// Package script is a Kafka cluster in memory whose course a test writes: topics with partitions, consumer groups that
// rebalance when a member joins or leaves or when the test says so, acknowledgements that come when the test releases them,
// refusals per topic, transactions with fencing.
//
// It starts no goroutine and reads no clock: the same calls give the same events. A Poll that has nothing returns at once,
// unless SourceOptions.Idle says how to wait. Everything may be called from several goroutines.
package script
